//! What the sandbox does otherwise on purpose: docs/concepts/sandbox.md has the list.

use kiln_value::Value;

use super::history::Operation;

/// Why a difference is wanted; none for one that is not.
pub(super) fn reason(
    operation: &Operation,
    real: &Value,
    ours: &Value,
    path: &str,
) -> Option<&'static str> {
    let status = |said: &Value| said.get("status").and_then(Value::as_i64).unwrap_or(0);
    if operation.path.contains("/services/") && operation.path.ends_with("/status") {
        return Some("a status that is applied does not create its Service");
    }
    let is_builtin = !operation.path.contains("example.com");
    match (status(real), status(ours)) {
        (422, 200 | 201) if is_builtin => {
            Some("of built-in kinds, not everything is checked that Kubernetes checks")
        }
        (422, 422) if is_builtin && !path.ends_with("/reason") => {
            Some("of built-in kinds, fewer problems are named")
        }
        _ => None,
    }
}
