//! Makes a history small on which both servers differ.

use kiln_value::Value;

use super::history::{Body, Operation};
use crate::compare::patterns::smaller;

/// So many histories are tried.
const MOST: usize = 160;

/// The smallest history that is found by leaving out parts while it still differs in the same way.
pub(super) fn smallest(
    mut history: Vec<Operation>,
    mut differs: impl FnMut(&[Operation]) -> bool,
) -> Vec<Operation> {
    let mut tried = 0;
    let mut improved = true;
    while improved && tried < MOST {
        improved = false;
        // Requests from the end: what a late one does not need may go then.
        for at in (0..history.len()).rev() {
            let mut fewer = history.clone();
            fewer.remove(at);
            tried += 1;
            if !fewer.is_empty() && differs(&fewer) {
                history = fewer;
                improved = true;
            }
        }
        'parts: for at in 0..history.len() {
            for candidate in simpler(&history[at]) {
                if tried >= MOST {
                    break 'parts;
                }
                tried += 1;
                let mut changed = history.clone();
                changed[at] = candidate;
                if differs(&changed) {
                    history = changed;
                    improved = true;
                    break;
                }
            }
        }
    }
    history
}

/// An operation without one of its parts.
fn simpler(operation: &Operation) -> Vec<Operation> {
    let with = |body: Body| Operation { body, ..operation.clone() };
    // Without its selector, a request would reach the objects of other histories.
    let keeps = |at: &usize| !operation.query[*at].1.contains("history=");
    let mut all: Vec<Operation> = (0..operation.query.len())
        .filter(keeps)
        .map(|at| {
            let mut fewer = operation.clone();
            fewer.query.remove(at);
            fewer
        })
        .collect();
    if operation.accept.is_some() {
        all.push(Operation { accept: None, ..operation.clone() });
    }
    match &operation.body {
        Body::Nothing => {}
        Body::Value(value) => all.extend(parts(value).map(|value| with(Body::Value(value)))),
        Body::Seen(path, edit) => {
            all.extend(parts(edit).map(|edit| with(Body::Seen(path.clone(), edit))));
        }
    }
    all
}

/// Values without one part, those without the largest parts first.
fn parts(value: &Value) -> impl Iterator<Item = Value> {
    let mut all = smaller(value);
    all.sort_by_key(|value| kiln_value::json::to_string(value).len());
    all.into_iter()
}
