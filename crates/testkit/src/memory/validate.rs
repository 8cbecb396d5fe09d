//! What a server refuses to store.

use kiln_cluster::{ApiError, Reason};
use kiln_object::{Gvk, metadata};
use kiln_text::names;
use kiln_value::Value;

/// Checks what every object must be.
pub(super) fn object(gvk: &Gvk, object: &Value) -> Result<(), ApiError> {
    let name = metadata::name(object).unwrap_or_default();
    let problems = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Namespace") => names::dns1123_label(name),
        ("", "Service") => names::dns1035_label(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        _ => names::dns1123_subdomain(name),
    };
    if name.is_empty() || !problems.is_empty() {
        let why = problems.into_iter().next().unwrap_or_else(|| "it is empty".into());
        return Err(invalid(object, "metadata.name", &why));
    }
    for (field, checks_values) in [("labels", true), ("annotations", false)] {
        let Some(pairs) = object.get_path(["metadata", field]).filter(|pairs| !pairs.is_null())
        else {
            continue;
        };
        let path = format!("metadata.{field}");
        let Some(pairs) = pairs.as_map() else {
            return Err(invalid(object, &path, "must be a map"));
        };
        for (key, value) in pairs.iter() {
            let Some(text) = value.as_str() else {
                return Err(invalid(
                    object,
                    &path,
                    &format!("the value of {key:?} must be a text"),
                ));
            };
            let problem = names::qualified_name(key)
                .into_iter()
                .chain(checks_values.then(|| names::label_value(text)).into_iter().flatten())
                .next();
            if let Some(problem) = problem {
                return Err(invalid(object, &path, &problem));
            }
        }
    }
    Ok(())
}

/// Checks that nothing changed which must stay as it was.
pub(super) fn change(gvk: &Gvk, old: &Value, new: &Value) -> Result<(), ApiError> {
    let differs = |field: &str| {
        old.get(field).unwrap_or(&Value::Null) != new.get(field).unwrap_or(&Value::Null)
    };
    let fixed: &[&str] = match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Secret") => &["type"],
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => &["roleRef"],
        _ => &[],
    };
    if let Some(field) = fixed.iter().find(|field| differs(field)) {
        return Err(invalid(new, field, "field is immutable"));
    }
    let locked = old.get("immutable").and_then(Value::as_bool) == Some(true)
        && gvk.group.is_empty()
        && matches!(gvk.kind.as_str(), "Secret" | "ConfigMap");
    if locked && ["data", "binaryData", "immutable"].iter().any(|field| differs(field)) {
        return Err(invalid(new, "data", "field is immutable when `immutable` is set"));
    }
    Ok(())
}

fn invalid(object: &Value, field: &str, why: &str) -> ApiError {
    let object = kiln_object::identity::describe(object);
    ApiError::new(Reason::Invalid, format!("{object} is invalid: {field}: {why}"))
}
