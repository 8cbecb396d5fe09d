//! What a server refuses to store, in the words that users know.
//!
//! Names, labels, finalizers, owners; what must be there and what must not change in the kinds that people
//! write every day; everything that a schema says of custom kinds.

mod definition;
mod kinds;
mod metadata;
mod pod;

use kiln_object::Kind;
use kiln_value::Value;

use crate::crd::Customs;
use crate::server::ServerState;
use crate::status::FieldProblem;

/// What is wrong with a new object.
pub(crate) fn created(state: &ServerState, kind: &Kind, object: &Value) -> Vec<FieldProblem> {
    let mut problems = metadata::check(kind, object);
    problems.extend(content(&state.customs, kind, object, None));
    problems
}

/// What is wrong with an object that takes the place of another.
pub(crate) fn changed(
    state: &ServerState,
    kind: &Kind,
    subresource: &str,
    old: &Value,
    new: &Value,
) -> Vec<FieldProblem> {
    let mut problems = metadata::check(kind, new);
    problems.extend(metadata::check_change(old, new));
    if subresource.is_empty() || subresource == "scale" || state.is_custom(&kind.gvk()) {
        problems.extend(content(&state.customs, kind, new, Some(old)));
    }
    if subresource.is_empty() && !state.is_custom(&kind.gvk()) {
        problems.extend(kinds::check_change(kind, old, new));
    }
    problems
}

/// What is wrong with the fields of an object besides its metadata.
pub(crate) fn content(
    customs: &Customs,
    kind: &Kind,
    object: &Value,
    old: Option<&Value>,
) -> Vec<FieldProblem> {
    match customs.get(&kind.gvk()) {
        Some(custom) => custom.problems(object, old),
        None => kinds::check(kind, object, old),
    }
}
