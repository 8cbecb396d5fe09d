//! The metadata of objects: names, labels, annotations.
//!
//! Readers answer `None` for what is missing, empty or of the wrong type; writers create what is
//! missing on the way.

use std::borrow::Cow;

use kiln_value::{Blocked, Map, Value};

/// A text of the metadata that is not empty.
fn text<'v>(object: &'v Value, field: &str) -> Option<&'v str> {
    object.str_at(["metadata", field]).filter(|text| !text.is_empty())
}

/// The annotation in which kubectl keeps what it applied last, as JSON.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

pub fn name(object: &Value) -> Option<&str> {
    text(object, "name")
}

/// The prefix from which the API server makes a name.
pub fn generate_name(object: &Value) -> Option<&str> {
    text(object, "generateName")
}

pub fn namespace(object: &Value) -> Option<&str> {
    text(object, "namespace")
}

/// The unique identifier that the API server gave.
pub fn uid(object: &Value) -> Option<&str> {
    text(object, "uid")
}

/// The version of the object in the API server's store.
pub fn resource_version(object: &Value) -> Option<&str> {
    text(object, "resourceVersion")
}

/// Whether the object is being deleted: it has a deletion timestamp, and finalizers hold it.
pub fn is_deleted(object: &Value) -> bool {
    text(object, "deletionTimestamp").is_some()
}

pub fn labels(object: &Value) -> Option<&Map> {
    object.get_path(["metadata", "labels"]).and_then(Value::as_map)
}

pub fn annotations(object: &Value) -> Option<&Map> {
    object.get_path(["metadata", "annotations"]).and_then(Value::as_map)
}

/// The value of a label, if it is a text.
pub fn label<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    labels(object)?.get(key)?.as_str()
}

/// The value of an annotation, if it is a text.
pub fn annotation<'v>(object: &'v Value, key: &str) -> Option<&'v str> {
    annotations(object)?.get(key)?.as_str()
}

/// Sets a label.
///
/// # Errors
/// When `metadata` or the labels are something else than a map.
pub fn set_label(object: &mut Value, key: &str, value: &str) -> Result<(), Blocked> {
    object.set(["metadata", "labels", key], value)
}

/// Sets an annotation.
///
/// # Errors
/// When `metadata` or the annotations are something else than a map.
pub fn set_annotation(object: &mut Value, key: &str, value: &str) -> Result<(), Blocked> {
    object.set(["metadata", "annotations", key], value)
}

/// Removes a label, and the map of labels with the last one.
pub fn remove_label(object: &mut Value, key: &str) {
    remove_from(object, "labels", key);
}

/// Removes an annotation, and the map of annotations with the last one.
pub fn remove_annotation(object: &mut Value, key: &str) {
    remove_from(object, "annotations", key);
}

fn remove_from(object: &mut Value, field: &str, key: &str) {
    if object.remove(["metadata", field, key]).is_some()
        && object.get_path(["metadata", field]).and_then(Value::as_map).is_some_and(Map::is_empty)
    {
        object.remove(["metadata", field]);
    }
}

/// A label's or annotation's value as selectors see it.
///
/// Files may have `version: 1` without quotes; kustomize takes such a value for its text, and an API
/// server would refuse it.
pub fn scalar_text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text.as_str())),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(flag) => Some(Cow::Borrowed(if *flag { "true" } else { "false" })),
        Value::Null | Value::List(_) | Value::Map(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn readers_take_nothing_for_an_answer() {
        let object =
            value!({"metadata": {"name": "", "namespace": 5, "labels": {"a": "b", "c": 1}}});
        assert_eq!(name(&object), None);
        assert_eq!(namespace(&object), None);
        assert_eq!(label(&object, "a"), Some("b"));
        assert_eq!(label(&object, "c"), None);
        assert_eq!(annotation(&object, "a"), None);
        assert_eq!(name(&value!("text")), None);
    }

    #[test]
    fn writers_make_and_clear_their_maps() {
        let mut object = value!({});
        set_label(&mut object, "a", "b").unwrap();
        set_annotation(&mut object, "c", "d").unwrap();
        assert_eq!(object, value!({"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}}}));
        remove_label(&mut object, "a");
        remove_annotation(&mut object, "absent");
        assert_eq!(object, value!({"metadata": {"annotations": {"c": "d"}}}));
        assert!(set_label(&mut value!({"metadata": []}), "a", "b").is_err());
    }
}
