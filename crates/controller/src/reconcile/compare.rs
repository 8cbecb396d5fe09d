//! Whether an object is as a rule wants it.
//!
//! What only a server or another controller writes does not count: versions, finalizers, owners and
//! status that the rule says nothing about. Lists without an order are compared without one.

use kiln_engine::{ANNOTATION_PREFIX, ContentHash, Ownership, is_ownership_label};
use kiln_object::{fold_string_data, metadata};
use kiln_schema::{ListType, Schema, SchemaNode};
use kiln_value::{Map, Str, Value};

use crate::ownership::strip_volatile;

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

/// An object that another engine made for the rule, with the marks that the rule would give it.
///
/// Kyverno's controllers do not all write the same labels, keep those that a source had, and sign what they
/// make; none of that is a difference that a write is worth.
pub(crate) fn taken_over(live: &Value, wanted: &Value) -> Value {
    let mut live = live.clone();
    let owner = |object: &Value| Ownership::read(object).map(|mark| mark.labels.owner);
    // Labels of another owner are worth a write: that owner would delete the object with its own policy.
    if !is_foreign(&live) || owner(&live) != owner(wanted) {
        return live;
    }
    let Some(metadata) = live.get_mut("metadata").and_then(Value::as_map_mut) else { return live };
    for (field, is_mark) in
        [("labels", is_ownership_label as fn(&str) -> bool), ("annotations", is_note)]
    {
        let ours = wanted.get_path(["metadata", field]).and_then(Value::as_map);
        let ours = ours.into_iter().flat_map(Map::iter).filter(|(key, _)| is_mark(key));
        let theirs = metadata.get_or_insert_with(field, Value::map);
        let Some(theirs) = theirs.as_map_mut() else { continue };
        theirs.retain(|key, _| !is_mark(key));
        for (key, text) in ours {
            theirs.insert(key.clone(), text.clone());
        }
    }
    live
}

/// Whether an engine made an object that leaves none of our annotations.
pub(crate) fn is_foreign(object: &Value) -> bool {
    let is_ours = |texts: &Map| texts.keys().any(|key| key.starts_with(ANNOTATION_PREFIX));
    Ownership::read(object).is_some() && !metadata::annotations(object).is_some_and(is_ours)
}

/// Annotations that are about who made an object, or that copies do not take over. Kyverno copies what kubectl keeps in
/// sources.
fn is_note(key: &str) -> bool {
    key.starts_with(ANNOTATION_PREFIX) || is_ownership_label(key) || key == metadata::LAST_APPLIED
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

/// An object without what says whose it is.
pub(crate) fn content_only(form: &Value) -> Value {
    let mut form = form.clone();
    kiln_engine::strip(&mut form);
    form.remove(["metadata", "annotations"]);
    form
}

/// The hash of an object's content as the engine writes it down, unless a server adds to it.
pub(crate) fn content_of(live: &Value) -> Str {
    let mut object = live_form(live, &Value::Null);
    kiln_engine::strip(&mut object);
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut)
        && let Some(notes) = metadata.get_mut("annotations").and_then(Value::as_map_mut)
    {
        notes.retain(|key, _| !key.starts_with(ANNOTATION_PREFIX));
        if notes.is_empty() {
            metadata.remove("annotations");
        }
    }
    ContentHash::of(&object).to_string().into()
}

/// A short name for the content of an object.
pub(crate) fn fingerprint(form: &Value) -> ContentHash {
    ContentHash::of(form)
}

fn alike(wanted: &Value, live: &Value, node: Option<SchemaNode<'_>>, allow_more: bool) -> bool {
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
            let items = node.and_then(SchemaNode::items);
            let unordered =
                node.and_then(SchemaNode::list_type).is_some_and(|t| t != ListType::Atomic);
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
