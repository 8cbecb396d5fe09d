//! What the patch engines say, in the words that kustomize's users know.

use kiln_patch::{JsonPatchError, JsonPatchProblem, Merged, StrategicProblem, StrategicRules};
use kiln_patch::{WrittenScalars, strategic_merge_into_written};
use kiln_schema::Schema;
use kiln_value::{Path, Value};

use crate::error::{Error, Result};
use crate::model::output::wrong_node_kind;

/// A JSON patch that does not apply.
pub(crate) fn json_patch(error: &JsonPatchError) -> String {
    let op = error.op.as_deref().unwrap_or_default();
    let path = error.path.as_deref().unwrap_or_default();
    match (&*error.problem, op) {
        (JsonPatchProblem::TestFailed { .. }, _) => {
            format!("testing value {path} failed: test failed")
        }
        (JsonPatchProblem::NoSuchKey { map, key, .. }, _) => {
            let is_last =
                path.len() > map.len() && !path[map.len()..].trim_start_matches('/').contains('/');
            match (op, is_last) {
                ("remove", true) => format!(
                    "error in remove for path: '{path}': Unable to remove nonexistent key: {key}: missing value"
                ),
                ("replace", true) => {
                    format!(
                        "replace operation does not apply: doc is missing key: {path}: missing value"
                    )
                }
                ("move" | "copy", _) => {
                    format!(
                        "{op} operation does not apply: doc is missing from path: {path}: missing value"
                    )
                }
                _ => missing_path(op, path),
            }
        }
        (JsonPatchProblem::NotAContainer { .. } | JsonPatchProblem::NoSuchElement { .. }, _) => {
            match &*error.problem {
                JsonPatchProblem::NoSuchElement { index, .. } => format!(
                    "error in {op} for path: '{path}': Unable to access invalid index: {index}: invalid index referenced"
                ),
                _ => missing_path(op, path),
            }
        }
        (problem, _) => format!("error in {op} for path: '{path}': {problem}"),
    }
}

fn missing_path(op: &str, path: &str) -> String {
    format!("{op} operation does not apply: doc is missing path: {path:?}: missing value")
}

/// Merges a patch into an object; what is deleted becomes null.
///
/// # Errors
/// When patch and object do not fit together.
pub(crate) fn strategic_merge(
    schema: &Schema,
    object: &mut Value,
    patch: &Value,
    written: WrittenScalars<'_>,
) -> Result<()> {
    let rules = StrategicRules::kustomize();
    match strategic_merge_into_written(object, patch, schema, &rules, written) {
        Ok(Merged::Kept) => Ok(()),
        Ok(Merged::Deleted) => {
            *object = Value::Null;
            Ok(())
        }
        Err(error) => {
            let worded = match error.problem {
                StrategicProblem::KindsDiffer { .. } => kinds_differ(object, patch, &error.path),
                _ => None,
            };
            let hint = error.to_string();
            Err(worded.unwrap_or_else(|| Error::new(hint.clone())).hint(hint))
        }
    }
}

/// What was expected is what the object has; what was found is what the patch has.
fn kinds_differ(object: &Value, patch: &Value, path: &Path) -> Option<Error> {
    let expected = match object.get_path(path)? {
        Value::Map(_) => "MappingNode",
        Value::List(_) => "SequenceNode",
        _ => "ScalarNode",
    };
    Some(wrong_node_kind(expected, patch.get_path(path)?))
}
