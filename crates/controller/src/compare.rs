//! Whether an object is as a rule wants it.
//!
//! What only a server or another controller writes does not count: versions, finalizers, owners and
//! status that the rule says nothing about. Lists without an order are compared without one.

use kiln_cluster::fold_string_data;
use kiln_engine::{ANNOTATION_PREFIX, ClaimLabels, ContentHash};
use kiln_object::metadata;
use kiln_schema::{ListType, Node, Schema};
use kiln_value::{Map, Value};

use crate::mark::strip_volatile;

const OF_THE_SERVER: [&str; 8] = [
    "uid",
    "selfLink",
    "creationTimestamp",
    "managedFields",
    "resourceVersion",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
];

/// What a rule wants, as a server would store it.
pub(crate) fn wanted_form(wanted: &Value) -> Value {
    let mut wanted = wanted.clone();
    fold_string_data(&mut wanted);
    strip_volatile(&mut wanted);
    wanted
}

/// A stored object, without what the wanted one says nothing about.
pub(crate) fn live_form(live: &Value, wanted: &Value) -> Value {
    let mut live = live.clone();
    take_over_marks(&mut live, wanted);
    strip_volatile(&mut live);
    if wanted.get("status").is_none()
        && let Some(root) = live.as_map_mut()
    {
        root.remove("status");
    }
    if let Some(metadata) = live.get_mut("metadata").and_then(Value::as_map_mut) {
        OF_THE_SERVER.iter().for_each(|field| drop(metadata.remove(field)));
        for field in ["finalizers", "ownerReferences"] {
            if wanted.get_path(["metadata", field]).is_none() {
                metadata.remove(field);
            }
        }
    }
    live
}

/// What another engine made carries its labels and none of our annotations; that alone is no difference.
fn take_over_marks(live: &mut Value, wanted: &Value) {
    let is_mark = |key: &str| key.starts_with(ANNOTATION_PREFIX);
    let has_marks =
        metadata::annotations(live).is_some_and(|texts| texts.keys().any(|key| is_mark(key)));
    if has_marks || ClaimLabels::read(live).is_none() {
        return;
    }
    for (key, text) in metadata::annotations(wanted).into_iter().flat_map(Map::iter) {
        if let (true, Some(text)) = (is_mark(key), text.as_str()) {
            // It has labels, so its metadata is a map.
            let _ = metadata::set_annotation(live, key, text);
        }
    }
}

/// What a rule wants in the place of a stored object.
pub(crate) fn replacement(wanted: &Value, live: &Value) -> Value {
    let mut object = wanted.clone();
    for field in ["uid", "resourceVersion"] {
        if let Some(value) = live.get_path(["metadata", field]) {
            // Objects that rules want have metadata.
            let _ = object.set(["metadata", field], value.clone());
        }
    }
    for field in ["finalizers", "ownerReferences"] {
        if let Some(value) = live.get_path(["metadata", field])
            && wanted.get_path(["metadata", field]).is_none()
        {
            let _ = object.set(["metadata", field], value.clone());
        }
    }
    object
}

/// Whether both forms are the same.
pub(crate) fn same(wanted: &Value, live: &Value, schema: &Schema) -> bool {
    alike(wanted, live, schema.root_of(wanted), false)
}

/// Whether everything that is wanted is there, whatever else there is.
pub(crate) fn covers(wanted: &Value, live: &Value, schema: &Schema) -> bool {
    alike(wanted, live, schema.root_of(wanted), true)
}

/// A short name for the content of an object.
pub(crate) fn fingerprint(form: &Value) -> ContentHash {
    ContentHash::of(form)
}

fn alike(wanted: &Value, live: &Value, node: Option<Node<'_>>, allow_more: bool) -> bool {
    match (wanted, live) {
        (Value::Map(wanted), Value::Map(live)) => {
            let field = |key: &str| node.and_then(|node| node.field(key));
            let empty = Value::Null;
            let there = wanted.iter().all(|(key, value)| {
                alike(value, live.get(key).unwrap_or(&empty), field(key), allow_more)
            });
            there
                && (allow_more
                    || live
                        .iter()
                        .all(|(key, value)| says_nothing(value) || wanted.contains_key(key)))
        }
        (Value::List(wanted), Value::List(live)) => {
            let items = node.and_then(Node::items);
            let unordered = node.and_then(Node::list_type).is_some_and(|t| t != ListType::Atomic);
            wanted.len() == live.len()
                && if unordered {
                    wanted.iter().all(|w| live.iter().any(|l| alike(w, l, items, allow_more)))
                } else {
                    wanted.iter().zip(live.iter()).all(|(w, l)| alike(w, l, items, allow_more))
                }
        }
        (wanted, live) => wanted == live || (says_nothing(wanted) && says_nothing(live)),
    }
}

/// Servers drop what is null or empty.
fn says_nothing(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Map(map) => Map::is_empty(map),
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}
