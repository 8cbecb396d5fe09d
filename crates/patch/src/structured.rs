//! Structured merge: what server-side apply makes of an object, without who owns which field.
//!
//! The schema says how lists and maps merge. Where a kind has no schema, maps merge and lists are
//! replaced.

use std::collections::HashSet;
use std::fmt;

use kiln_schema::{ListType, MapType, Schema, SchemaNode};
use kiln_value::{List, Map, Path, Value, json};

/// How a structured merge treats what its schema calls one value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Atomic {
    /// A patch may not hold it.
    Refused,
    /// A patch replaces it.
    Replaced,
}

/// Why a patch does not fit an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StructuredError {
    /// It holds lists or maps that are one value.
    Atomic(Vec<Path>),
    /// An element of a list of maps lacks a key that tells it apart.
    MissingKey {
        /// The element.
        path: Path,
        key: String,
    },
    /// Two elements of a list have the same keys.
    Duplicate {
        /// The list.
        path: Path,
        /// The keys and their values.
        key: String,
    },
}

impl fmt::Display for StructuredError {
    // Kubernetes' words.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StructuredError::Atomic(paths) => {
                let paths: Vec<_> = paths.iter().map(|path| format!(".{path}")).collect();
                let paths = paths.join(", ");
                write!(
                    f,
                    "invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: {paths}"
                )
            }
            StructuredError::MissingKey { path, key } => write!(
                f,
                "failed to convert patch object to typed object: .{path}: associative list with keys \
                 has an element that omits key field {key:?}"
            ),
            StructuredError::Duplicate { path, key } => write!(
                f,
                "failed to convert patch object to typed object: .{path}: duplicate entries for key \
                 [{key}]"
            ),
        }
    }
}

impl std::error::Error for StructuredError {}

/// Merges a patch into an object.
///
/// # Errors
/// When the patch holds what it may not, or its elements cannot be identified.
pub fn structured_merge(
    object: &mut Value,
    patch: &Value,
    schema: &Schema,
    atomic: Atomic,
) -> Result<(), StructuredError> {
    let node = schema.root_of(object);
    let known = node.is_some();
    if atomic == Atomic::Refused && known {
        let mut found = Vec::new();
        find_atomic(patch, node, &mut Path::root(), &mut found);
        if !found.is_empty() {
            return Err(StructuredError::Atomic(found));
        }
    }
    let merge = Merge { known };
    *object = merge.value(object, patch, node, &mut Path::root())?;
    Ok(())
}

/// Every list or map of a patch that its schema calls one value.
fn find_atomic(
    patch: &Value,
    node: Option<SchemaNode<'_>>,
    path: &mut Path,
    found: &mut Vec<Path>,
) {
    match patch {
        Value::Map(map) => {
            if node.is_some_and(|node| node.map_type() == MapType::Atomic) {
                found.push(path.clone());
            }
            for (key, value) in map {
                path.push(key);
                find_atomic(value, node.and_then(|node| node.field(key)), path, found);
                path.pop();
            }
        }
        Value::List(list) => {
            if list_type(node) == ListType::Atomic {
                found.push(path.clone());
            }
            for (at, value) in list.iter().enumerate() {
                path.push(at);
                find_atomic(value, node.and_then(SchemaNode::items), path, found);
                path.pop();
            }
        }
        _ => {}
    }
}

/// How a list of a known kind merges; one of which nothing is said is one value.
fn list_type(node: Option<SchemaNode<'_>>) -> ListType {
    node.and_then(SchemaNode::list_type).unwrap_or_default()
}

struct Merge {
    known: bool,
}

impl Merge {
    fn value(
        &self,
        live: &Value,
        patch: &Value,
        node: Option<SchemaNode<'_>>,
        path: &mut Path,
    ) -> Result<Value, StructuredError> {
        match (live, patch) {
            (Value::Map(live), Value::Map(patch))
                if node.is_none_or(|node| node.map_type() == MapType::Granular) =>
            {
                let mut merged = live.clone();
                for (key, value) in patch {
                    path.push(key);
                    let node = node.and_then(|node| node.field(key));
                    let value = match live.get(key) {
                        Some(live) => self.value(live, value, node, path)?,
                        None => self.value(&empty_like(value), value, node, path)?,
                    };
                    path.pop();
                    merged.insert(key.clone(), value);
                }
                Ok(Value::Map(merged))
            }
            (Value::List(live), Value::List(patch)) if self.known => match list_type(node) {
                ListType::Atomic => Ok(Value::List(patch.clone())),
                ListType::Set => {
                    let mut all = live.clone().into_vec();
                    all.extend(patch.iter().filter(|value| !live.contains(value)).cloned());
                    Ok(Value::from(all))
                }
                ListType::Map => self.keyed(live, patch, node, path),
            },
            _ => Ok(patch.clone()),
        }
    }

    /// Merges lists whose elements are identified by keys.
    ///
    /// Elements that only the object has keep their places; shared ones stand in the order of the patch;
    /// new ones stand before the next shared one of the patch, or at the end.
    fn keyed(
        &self,
        live: &List,
        patch: &List,
        node: Option<SchemaNode<'_>>,
        path: &mut Path,
    ) -> Result<Value, StructuredError> {
        let keys = node.map(SchemaNode::map_keys).unwrap_or_default();
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        let mut patch_keys = Vec::with_capacity(patch.len());
        let mut in_patch = HashSet::new();
        for (at, element) in patch.iter().enumerate() {
            let key = key_of(element, &keys).map_err(|key| StructuredError::MissingKey {
                path: path.join(at),
                key: key.to_owned(),
            })?;
            if !in_patch.insert(key.clone()) {
                return Err(StructuredError::Duplicate { path: path.clone(), key });
            }
            patch_keys.push(key);
        }
        let live_keys: Vec<Option<String>> =
            live.iter().map(|element| key_of(element, &keys).ok()).collect();
        let item = node.and_then(SchemaNode::items);
        let mut merged = Vec::with_capacity(live.len() + patch.len());
        let mut done: HashSet<&str> = HashSet::new();
        let (mut from_live, mut from_patch) = (0, 0);
        while from_live < live.len() || from_patch < patch.len() {
            if from_live < live.len() {
                match &live_keys[from_live] {
                    Some(key) if in_patch.contains(key) => {
                        if done.contains(key.as_str()) {
                            from_live += 1;
                            continue;
                        }
                    }
                    _ => {
                        merged.push(live[from_live].clone());
                        from_live += 1;
                        continue;
                    }
                }
            }
            let (key, element) = (&patch_keys[from_patch], &patch[from_patch]);
            let mut same = (0..live.len()).filter(|at| live_keys[*at].as_ref() == Some(key));
            path.push(from_patch);
            merged.push(match (same.next(), same.next()) {
                (Some(at), None) => self.value(&live[at], element, item, path)?,
                // Kubernetes: of an element that is there twice, only the patch is kept.
                _ => self.value(&empty_like(element), element, item, path)?,
            });
            path.pop();
            done.insert(key);
            from_patch += 1;
        }
        Ok(Value::from(merged))
    }
}

/// What a patch is merged into where the object has nothing, so that its elements are checked there too.
fn empty_like(value: &Value) -> Value {
    match value {
        Value::Map(_) => Value::Map(Map::new()),
        Value::List(_) => Value::list(),
        other => other.clone(),
    }
}

/// The keys of an element and their values, as text; the key that it lacks otherwise.
fn key_of<'k>(element: &Value, keys: &[&'k str]) -> Result<String, &'k str> {
    let mut text = Vec::with_capacity(keys.len());
    for key in keys {
        let value = match element.get(key) {
            Some(value) => json::to_string(value),
            // Kubernetes: the one key that has a default.
            None if *key == "protocol" => "\"TCP\"".to_owned(),
            None => return Err(key),
        };
        text.push(format!("{key}={value}"));
    }
    Ok(text.join(","))
}

#[cfg(test)]
mod tests {
    use kiln_schema::KubernetesVersion;
    use kiln_value::value;

    use super::*;

    fn merged(object: &Value, patch: &Value, atomic: Atomic) -> Result<Value, String> {
        let mut object = object.clone();
        let schema = Schema::builtin(KubernetesVersion::V1_36);
        structured_merge(&mut object, patch, &schema, atomic).map_err(|error| error.to_string())?;
        Ok(object)
    }

    fn pod(containers: &Value) -> Value {
        let mut pod = value!({"apiVersion": "v1", "kind": "Pod"});
        pod.set(["spec", "containers"], containers.clone()).unwrap();
        pod
    }

    #[test]
    fn elements_stand_where_kubernetes_puts_them() {
        let names = |live: &[&str], patch: &[&str]| -> String {
            let list = |names: &[&str]| -> Value {
                names.iter().map(|name| value!({"name": name})).collect::<Vec<_>>().into()
            };
            let mut change = value!({});
            change.set(["spec", "containers"], list(patch)).unwrap();
            let after = merged(&pod(&list(live)), &change, Atomic::Refused).unwrap();
            let found = after.get_path(["spec", "containers"]).unwrap().as_list().unwrap();
            found.iter().filter_map(|c| c.str_at(["name"])).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(&["a", "b"], &["b"]), "a b");
        assert_eq!(names(&["a", "b"], &["n"]), "a b n");
        assert_eq!(names(&["a", "b"], &["n", "b"]), "a n b");
        assert_eq!(names(&["a", "b"], &["b", "a"]), "b a");
        assert_eq!(names(&["a", "b", "c"], &["c", "b"]), "a c b");
        assert_eq!(names(&[], &["b", "a"]), "b a");
    }

    #[test]
    fn lists_and_maps_merge_as_their_schema_says() {
        let live = pod(&value!([{"name": "a", "image": "x", "env": [
            {"name": "test", "value": "a"}, {"name": "test", "value": "b"}, {"name": "foo", "value": "c"}],
            "ports": [{"containerPort": 80}]}]));
        let patch = |container: Value| {
            let mut patch = value!({});
            patch.set(["spec", "containers"], Value::from(vec![container])).unwrap();
            patch
        };
        let container = |after: Result<Value, String>| {
            after.map(|after| {
                after.get_path(["spec", "containers"]).unwrap().index(0).unwrap().clone()
            })
        };
        let after =
            container(merged(&live, &patch(value!({"name": "a", "image": "y"})), Atomic::Refused))
                .unwrap();
        assert_eq!(
            after.get("env").unwrap().as_list().unwrap().len(),
            3,
            "duplicates that are not touched stay"
        );
        assert_eq!(after.str_at(["image"]), Some("y"));
        let after = container(merged(
            &live,
            &patch(value!({"name": "a", "env": [{"name": "test", "value": "c"}]})),
            Atomic::Refused,
        ))
        .unwrap();
        assert_eq!(
            after.get("env"),
            Some(&value!([{"name": "test", "value": "c"}, {"name": "foo", "value": "c"}]))
        );
        let after = container(merged(&live, &patch(value!({"name": "a", "ports": [{"containerPort": 80, "protocol": "TCP", "name": "web"}]})), Atomic::Refused)).unwrap();
        assert_eq!(
            after.get("ports"),
            Some(&value!([{"containerPort": 80, "protocol": "TCP", "name": "web"}]))
        );
        assert_eq!(
            merged(&live, &patch(value!({"name": "a", "args": ["x"]})), Atomic::Refused),
            Err("invalid ApplyConfiguration: may not mutate atomic arrays, maps or structs: .spec.containers[0].args".into())
        );
        let after = container(merged(
            &live,
            &patch(value!({"name": "a", "args": ["x"]})),
            Atomic::Replaced,
        ))
        .unwrap();
        assert_eq!(after.get("args"), Some(&value!(["x"])));
        assert!(
            merged(&live, &patch(value!({"image": "y"})), Atomic::Refused)
                .unwrap_err()
                .contains("omits key field \"name\"")
        );
        let twice = value!({"spec": {"containers": [{"name": "b"}, {"name": "b"}]}});
        assert!(
            merged(&live, &twice, Atomic::Refused)
                .unwrap_err()
                .contains("duplicate entries for key [name=\"b\"]")
        );
    }

    #[test]
    fn selectors_are_one_value_and_finalizers_a_set() {
        let deployment = value!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"labels": {"a": "b"}, "finalizers": ["x"]},
            "spec": {"selector": {"matchLabels": {"a": "b"}}}
        });
        let selector = value!({"spec": {"selector": {"matchLabels": {"c": "d"}}}});
        assert!(
            merged(&deployment, &selector, Atomic::Refused).unwrap_err().contains(".spec.selector")
        );
        let after = merged(&deployment, &selector, Atomic::Replaced).unwrap();
        assert_eq!(
            after.get_path(["spec", "selector"]),
            Some(&value!({"matchLabels": {"c": "d"}}))
        );
        let after = merged(
            &deployment,
            &value!({"metadata": {"labels": {"c": "d"}, "finalizers": ["x", "y"]}}),
            Atomic::Refused,
        )
        .unwrap();
        assert_eq!(
            after.get("metadata"),
            Some(&value!({"labels": {"a": "b", "c": "d"}, "finalizers": ["x", "y"]}))
        );
    }

    #[test]
    fn without_a_schema_lists_are_replaced() {
        let thing = value!({"apiVersion": "acme.io/v1", "kind": "Thing", "spec": {"list": [1, 2], "map": {"a": 1}}});
        let after =
            merged(&thing, &value!({"spec": {"list": [3], "map": {"b": 2}}}), Atomic::Refused)
                .unwrap();
        assert_eq!(after.get("spec"), Some(&value!({"list": [3], "map": {"a": 1, "b": 2}})));
    }
}
