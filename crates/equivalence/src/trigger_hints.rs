//! What rules ask of their triggers besides the kind: requests that meet none of it would never reach a rule.

use kiln_object::selector::WildcardSelector;
use kiln_rules::{Filter, Filters, Rule};
use kiln_value::{Map, Value};

use crate::words::instance;

/// Attributes with which an object meets a filter, or all filters of a block that wants all of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriggerHint {
    name: Option<String>,
    namespace: Option<String>,
    labels: Vec<(String, String)>,
    annotations: Vec<(String, String)>,
    /// Of the object's namespace.
    pub(crate) namespace_labels: Vec<(String, String)>,
}

/// The hints of a rule: of what it matches, and of what it excludes.
pub(crate) fn of_rule(rule: &Rule) -> impl Iterator<Item = TriggerHint> {
    let blocks = [&rule.trigger.include, &rule.trigger.exclude];
    blocks.into_iter().flat_map(of_block).filter(|hint| !hint.is_empty())
}

fn of_block(block: &Filters) -> Vec<TriggerHint> {
    match block {
        Filters::Any(filters) => filters.iter().map(|filter| TriggerHint::of([filter])).collect(),
        Filters::All(filters) => vec![TriggerHint::of(filters)],
    }
}

impl TriggerHint {
    fn of<'f>(filters: impl IntoIterator<Item = &'f Filter>) -> Self {
        let mut hint = TriggerHint::default();
        for filter in filters {
            let first =
                |wildcards: &[kiln_value::Str]| wildcards.first().map(|text| instance(text));
            hint.name = hint.name.or_else(|| first(&filter.names));
            hint.namespace = hint.namespace.or_else(|| first(&filter.namespaces));
            let pairs = filter.annotations.iter();
            hint.annotations.extend(pairs.map(|(key, value)| (instance(key), instance(value))));
            let labels = |selector: &Option<WildcardSelector>| {
                selector.as_ref().map(WildcardSelector::example_labels).unwrap_or_default()
            };
            hint.labels.extend(labels(&filter.selector));
            hint.namespace_labels.extend(labels(&filter.namespace_selector));
        }
        hint
    }

    fn is_empty(&self) -> bool {
        self.name.is_none()
            && self.namespace.is_none()
            && [&self.labels, &self.annotations, &self.namespace_labels]
                .into_iter()
                .all(Vec::is_empty)
    }

    /// Gives an object what the hint says; only one that lives in a namespace gets another.
    pub(crate) fn apply(&self, object: &mut Value, namespaced: bool) {
        let is_namespace = object.str_at(["kind"]) == Some("Namespace");
        let mut set = |field: &str, text: &str| {
            let _ = object.set(["metadata", field], text);
        };
        match (&self.name, &self.namespace) {
            // A Namespace is matched by its own name.
            (Some(name), _) | (None, Some(name)) if is_namespace => set("name", name),
            (name, namespace) => {
                name.iter().for_each(|name| set("name", name));
                let namespace = namespace.iter().filter(|_| namespaced);
                namespace.for_each(|namespace| set("namespace", namespace));
            }
        }
        add(object, "labels", &self.labels);
        add(object, "annotations", &self.annotations);
        if is_namespace {
            add(object, "labels", &self.namespace_labels);
        }
    }
}

/// Adds pairs to the labels or annotations of an object.
pub(crate) fn add(object: &mut Value, field: &str, pairs: &[(String, String)]) {
    if pairs.is_empty() {
        return;
    }
    let known = object.get_path(["metadata", field]).and_then(Value::as_map);
    let mut map: Map = known.cloned().unwrap_or_default();
    for (key, value) in pairs {
        map.insert(key.as_str(), value.as_str());
    }
    let _ = object.set(["metadata", field], map);
}
