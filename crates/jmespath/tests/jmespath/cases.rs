//! The tables in `tests/cases`: what Kyverno answers to each expression.

use kiln_testkit::{Case, Expected};
use kiln_value::{Value, json};

use crate::recorded::{Outcome, check_value, run};

/// Cases that fail, and why. The list only shrinks.
const KNOWN: &[(&str, &str)] = &[];

#[test]
fn cases_answer_as_kyverno() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("jmespath", folder, KNOWN, |case| {
        check(case).map_err(|failure| format!("{}\n  {failure}", case.text("expression")))
    });
}

fn check(case: &Case) -> Result<(), String> {
    let outcome = run(case.text("expression"), case.get("data").unwrap_or(&Value::Null));
    match case.expected() {
        Expected::Output(wanted) => check_value(wanted, outcome, false),
        Expected::Error(wanted) => check_error(wanted, outcome),
    }
}

/// Kiln has words of its own, but it fails where Kyverno does: when an expression is read, when a key is not there
/// (which `||` and others forgive), or otherwise.
fn check_error(wanted: &str, outcome: Outcome) -> Result<(), String> {
    let (read, error) = match outcome {
        Outcome::Value(got) => {
            return Err(format!("wanted the error {wanted}, got {}", json::to_string(&got)));
        }
        Outcome::Compile(error) => (false, error),
        Outcome::Search(error) => (true, error),
    };
    let is_syntax = wanted.starts_with("SyntaxError");
    let is_missing_key = wanted.starts_with("Unknown key");
    if (is_syntax && read) || is_missing_key != error.is_not_found() {
        return Err(format!("wanted the error {wanted}, got {:?}: {error}", error.kind()));
    }
    Ok(())
}
