//! What definitions of custom resources that many clusters have fill in. The table is `common-defaults.txt`.

use std::collections::BTreeMap;

use kiln_value::{Map, Value, json, value};

const TABLE: &str = include_str!("common-defaults.txt");

/// The schema of one version of a kind: every field is allowed, and some have defaults.
pub(super) fn schema(group: &str, version: &str, kind: &str) -> Value {
    let mut root = DefaultsNode::default();
    for (path, default) in defaults(group, version, kind) {
        root.insert(path.split('.'), default);
    }
    root.schema()
}

/// The defaults of one version of a kind, by path.
fn defaults(group: &str, version: &str, kind: &str) -> impl Iterator<Item = (&'static str, Value)> {
    let mut is_meant = false;
    TABLE.lines().filter_map(move |line| {
        if let Some(line) = line.strip_prefix("  ") {
            let (path, text) = line.split_once(' ').filter(|_| is_meant)?;
            return Some((path, json::parse(text).ok()?));
        }
        let mut words = line.split(' ');
        let is_group = words.next() == Some(group);
        let versions = words.next().unwrap_or_default();
        let is_version = versions == "*" || versions.split(',').any(|known| known == version);
        is_meant = is_group && is_version && words.any(|known| known == kind);
        None
    })
}

/// A part of a schema.
#[derive(Default)]
struct DefaultsNode {
    default: Option<Value>,
    fields: BTreeMap<&'static str, DefaultsNode>,
    items: Option<Box<DefaultsNode>>,
}

impl DefaultsNode {
    fn insert(&mut self, mut path: impl Iterator<Item = &'static str>, default: Value) {
        let Some(step) = path.next() else {
            self.default = Some(default);
            return;
        };
        match step.strip_suffix("[]") {
            None => self.fields.entry(step).or_default().insert(path, default),
            Some(list) => {
                let list = self.fields.entry(list).or_default();
                list.items.get_or_insert_default().insert(path, default);
            }
        }
    }

    fn schema(&self) -> Value {
        let mut schema = match (&self.items, &self.default) {
            (Some(items), _) => value!({"type": "array", "items": (items.schema())}),
            (None, Some(default)) if self.fields.is_empty() => schema_of(default),
            (None, _) => any_object(),
        };
        let fields: Map = self.fields.iter().map(|(name, field)| (*name, field.schema())).collect();
        if let Some(map) = schema.as_map_mut() {
            if !fields.is_empty() {
                map.insert("properties", fields);
            }
            if let Some(default) = &self.default {
                map.insert("default", default.clone());
            }
        }
        schema
    }
}

fn any_object() -> Value {
    value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})
}

/// The type that a value has.
fn schema_of(value: &Value) -> Value {
    match value {
        Value::Bool(_) => value!({"type": "boolean"}),
        Value::Number(_) => value!({"type": "integer"}),
        Value::String(_) => value!({"type": "string"}),
        Value::List(list) => {
            let items = list.first().map_or_else(any_object, schema_of);
            value!({"type": "array", "items": items})
        }
        Value::Map(_) | Value::Null => any_object(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kinds::common;

    #[test]
    fn every_line_of_the_table_means_something() {
        let mut served = BTreeSet::new();
        for name in common::names() {
            for definition in common::definitions(name).unwrap() {
                let text =
                    |path: &[&str]| definition.str_at(path.iter().copied()).unwrap().to_owned();
                let versions = definition.get_path(["spec", "versions"]).unwrap();
                for version in versions.as_list().unwrap() {
                    let version = version.str_at(["name"]).unwrap().to_owned();
                    let kind = text(&["spec", "names", "kind"]);
                    served.insert((text(&["spec", "group"]), version, kind));
                }
            }
        }
        for line in TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            if let Some(entry) = line.strip_prefix("  ") {
                let (path, text) = entry.split_once(' ').unwrap();
                assert!(path.split('.').all(|step| !step.is_empty()), "{line}");
                assert!(json::parse(text).is_ok(), "{line}");
                continue;
            }
            let words: Vec<&str> = line.split(' ').collect();
            let [group, versions, kinds @ ..] = words.as_slice() else { panic!("{line}") };
            for kind in kinds {
                for version in versions.split(',') {
                    let is_served = served.iter().any(|(g, v, k)| {
                        g == group && k == kind && (version == "*" || v == version)
                    });
                    assert!(is_served, "{line}: {version} {kind}");
                }
            }
        }
    }

    #[test]
    fn defaults_stand_where_a_schema_has_them() {
        let schema = schema("external-secrets.io", "v1beta1", "ExternalSecret");
        let at = |path: &[&str]| schema.get_path(path.iter().copied()).cloned().unwrap();
        let target = ["properties", "spec", "properties", "target"];
        let policy = [&target[..], &["properties", "deletionPolicy"]].concat();
        assert_eq!(at(&policy), value!({"type": "string", "default": "Retain"}));
        assert_eq!(
            at(&[&target[..], &["default"]].concat()),
            value!({"creationPolicy": "Owner", "deletionPolicy": "Retain"})
        );
        let data = ["properties", "spec", "properties", "data", "items", "properties"];
        assert_eq!(
            at(&[&data[..], &["remoteRef", "properties", "decodingStrategy", "default"]].concat()),
            value!("None")
        );
        let none = value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        assert_eq!(super::schema("external-secrets.io", "v1alpha1", "ExternalSecret"), none);
    }
}
