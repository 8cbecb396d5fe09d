//! What Kiln keeps and kustomize loses: a build that differs from kustomize's for that reason says so.

use kiln_diagnostic::Diagnostic;
use kiln_value::{Number, Value};

use crate::fields::field_path::FoundField;
use crate::model::output::resolve_plain;
use crate::model::resource::Resource;

/// A name that looks like a number or a boolean once a prefix, a suffix or a replacement was at work: kustomize prints
/// it as one, and no API server takes that.
pub(crate) fn name_as_text(resource: &Resource) -> Option<Diagnostic> {
    let was_renamed = !resource.prefixes.is_empty() || !resource.suffixes.is_empty();
    let name = resource.name();
    if !was_renamed || matches!(resolve_plain(name), Value::String(_)) {
        return None;
    }
    let mut warning = Diagnostic::warning(format!(
        "the name {name} of {} stays text, where kustomize prints a value of another type",
        resource.id()
    ))
    .hint("choose a name that begins with a letter");
    warning.place = resource.document.as_ref().map(|document| document.place());
    Some(warning)
}

/// A field that a replacement made where null was: kustomize fails at `spec:` without a value, and makes nothing at
/// `spec: null`.
pub(crate) fn made_below_null(resource: &Resource, found: &FoundField) -> Option<Diagnostic> {
    if !found.below_null {
        return None;
    }
    let path = &found.path;
    let mut warning = Diagnostic::warning(format!(
        "{path} of {} is made where null was; kustomize fails there, or makes nothing",
        resource.id()
    ))
    .hint("remove the field that is null from the object");
    warning.place = resource.document.as_ref().map(|document| document.place());
    Some(warning)
}

/// An integer in an object that went through a JSON patch: kustomize carries numbers as floats there, and rounds it.
pub(crate) fn exact_integer(resource: &Resource) -> Option<Diagnostic> {
    let number = integer_between_floats(resource.object())?;
    let mut warning = Diagnostic::warning(format!(
        "{number} in {} stays as it is, where kustomize rounds it after a JSON patch",
        resource.id()
    ))
    .hint("a strategic merge patch rounds nothing in either");
    warning.place = resource.document.as_ref().map(|document| document.place());
    Some(warning)
}

/// The first integer that is not a float as well.
fn integer_between_floats(value: &Value) -> Option<i128> {
    let integer = match value {
        Value::Number(Number::Int(number)) => i128::from(*number),
        Value::Number(Number::UInt(number)) => i128::from(*number),
        Value::List(list) => return list.iter().find_map(integer_between_floats),
        Value::Map(map) => return map.iter().find_map(|(_, value)| integer_between_floats(value)),
        _ => return None,
    };
    (integer as f64 as i128 != integer).then_some(integer)
}
