//! The write gate: what a rule makes must be an object that it may write.

use kiln_object::{Kinds, ObjectId, name};
use kiln_rules::Scope;
use kiln_text::names;
use kiln_value::{Map, Value};

use crate::output::failure::{Failure, FailureKind};

/// Checks what a made object is called.
pub(crate) fn check(target: &ObjectId, scope: &Scope, kinds: &Kinds) -> Result<(), Failure> {
    let ObjectId { gvk, namespace, name: called } = target;
    if gvk.kind.is_empty() || gvk.version.is_empty() {
        return Err(wrong(target, "it has no kind or no apiVersion"));
    }
    if let Some(problem) = name::problem(gvk, called) {
        return Err(wrong(target, &format!("its name {called:?} is not a valid name: {problem}"))
            .hint("join, cut and replace parts until it is one"));
    }
    match kinds.is_namespaced(gvk) {
        Some(true) if namespace.is_empty() => {
            return Err(wrong(target, "target namespace must be set for a namespaced resource"));
        }
        Some(false) if !namespace.is_empty() => {
            return Err(wrong(
                target,
                "target namespace must not be set for a cluster-wide resource",
            ));
        }
        _ => {}
    }
    if !namespace.is_empty()
        && let Some(problem) = names::dns1123_label(namespace).into_iter().next()
    {
        let why = format!("its namespace {namespace:?} is not a valid name: {problem}");
        return Err(wrong(target, &why));
    }
    match scope {
        Scope::Namespace(own) if own != namespace => {
            let message = format!(
                "cannot make {target}: a namespaced policy cannot generate resources in other \
                 namespaces, expected: {own}, received: {namespace}"
            );
            Err(Failure::new(FailureKind::OutOfReach, message).hint("use a ClusterPolicy"))
        }
        _ => Ok(()),
    }
}

fn wrong(target: &ObjectId, why: &str) -> Failure {
    Failure::new(FailureKind::Target, format!("cannot make {target}: {why}"))
}

/// Makes text of labels and annotations that variables turned into numbers or booleans.
///
/// Kyverno drops all labels of an object when one of them is not text.
pub(crate) fn stringify_metadata(object: &mut Value) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    for field in ["labels", "annotations"] {
        let Some(pairs) = metadata.get_mut(field).and_then(Value::as_map_mut) else { continue };
        let other = |value: &Value| matches!(value, Value::Number(_) | Value::Bool(_));
        if pairs.values().any(other) {
            for (_, value) in pairs.iter_mut() {
                if other(value) {
                    *value = kiln_value::json::to_string(value).into();
                }
            }
        }
    }
}

/// Makes text of labels and annotations that a patch turned into numbers or booleans; those that were so
/// before stay.
pub(crate) fn stringify_changed_metadata(after: &mut Value, before: &Value) {
    for field in ["labels", "annotations"] {
        let path = ["metadata", field];
        let Some(Value::Map(pairs)) = after.get_path(path) else { continue };
        let was = before.get_path(path);
        let changed: Vec<_> = pairs
            .iter()
            .filter(|(_, value)| matches!(value, Value::Number(_) | Value::Bool(_)))
            .filter(|(key, value)| was.and_then(|was| was.get(key)) != Some(*value))
            .map(|(key, value)| (key.clone(), kiln_value::json::to_string(value)))
            .collect();
        if changed.is_empty() {
            continue;
        }
        if let Some(Value::Map(pairs)) = after.get_path_mut(path) {
            for (key, text) in changed {
                pairs.insert(key, text);
            }
        }
    }
}

/// What only a server writes.
const OF_THE_SERVER: [&str; 5] =
    ["uid", "selfLink", "creationTimestamp", "managedFields", "resourceVersion"];

/// Takes off what only a server writes, and owners that are in another namespace.
pub(crate) fn strip_server_fields(object: &mut Value, other_namespace: bool) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    OF_THE_SERVER.iter().for_each(|field| drop(metadata.remove(field)));
    if other_namespace {
        metadata.remove("ownerReferences");
    }
}

/// What a copy does not take over from its source.
pub(crate) fn strip_source(object: &mut Value, other_namespace: bool) {
    let Some(root) = object.as_map_mut() else { return };
    root.remove("status");
    let Some(metadata) = root.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    let of_its_life = ["generation", "deletionTimestamp", "deletionGracePeriodSeconds"];
    OF_THE_SERVER.iter().chain(&of_its_life).for_each(|field| drop(metadata.remove(field)));
    // A finalizer would wait for a controller that does not know the copy.
    metadata.remove("finalizers");
    if other_namespace {
        metadata.remove("ownerReferences");
    }
    let drop_pairs = |metadata: &mut Map, field: &str, unwanted: fn(&str) -> bool| {
        if let Some(pairs) = metadata.get_mut(field).and_then(Value::as_map_mut) {
            pairs.retain(|key, _| !unwanted(key));
            if pairs.is_empty() {
                metadata.remove(field);
            }
        }
    };
    drop_pairs(metadata, "annotations", |key| {
        key == kiln_object::metadata::LAST_APPLIED
            || key.starts_with(crate::output::claim::ANNOTATION_PREFIX)
    });
    drop_pairs(metadata, "labels", crate::output::claim::is_ownership_label);
}
