//! The tables in `tests/cases`: what Kyverno says to each pattern, and what it makes of each patch.

use kiln_pattern::{PatternLimits, Resolved, matches, resolve_anchors, value_matches};
use kiln_testkit::{Case, Expected};
use kiln_value::{Path, Segment, Value, json, value};

/// Cases that fail, and why. The list only shrinks.
const KNOWN: &[(&str, &str)] = &[];

#[test]
fn cases_match_as_in_kyverno() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("pattern", folder, KNOWN, |case| match (answer(case), case.expected()) {
        (Ok(got), Expected::Output(wanted)) if got == *wanted => Ok(()),
        (Err(_), Expected::Error(_)) => Ok(()),
        (got, Expected::Output(wanted)) => {
            let got = got.map_or_else(|error| error, |got| json::to_string(&got));
            Err(format!("wanted {}, got {got}", json::to_string(wanted)))
        }
        (Ok(got), Expected::Error(wanted)) => {
            Err(format!("wanted the error {wanted}, got {}", json::to_string(&got)))
        }
    });
}

/// A leaf has a `value`, a tree of patterns a `resource`, and a patch with anchors is a `patch`.
fn answer(case: &Case) -> Result<Value, String> {
    let field = |name: &str| case.get(name).unwrap_or(&Value::Null);
    if let Some(patch) = case.get("patch") {
        return match resolve_anchors(patch, field("resource"), &PatternLimits::default()) {
            Ok(Resolved::Patch(plain)) => Ok(plain),
            Ok(Resolved::Cancelled(_)) => Ok(Value::Null),
            Err(error) => Err(error.to_string()),
        };
    }
    if let Some(value) = case.get("value") {
        let pattern = field("pattern");
        let has_parts = |value: &Value| matches!(value, Value::Map(_) | Value::List(_));
        // A tree asks the parts of a map or list; a leaf does not.
        return Ok(match has_parts(pattern) || has_parts(value) {
            true => value_matches(pattern, value).into(),
            false => matches(pattern, value, &PatternLimits::default()).is_ok().into(),
        });
    }
    Ok(match matches(field("pattern"), field("resource"), &PatternLimits::default()) {
        Ok(()) => value!({"result": "pass"}),
        Err(mismatch) if mismatch.condition => value!({"result": "skip"}),
        Err(mismatch) => value!({"result": "fail", "path": as_kyverno(&mismatch.path)}),
    })
}

/// A path as Kyverno's messages write it.
fn as_kyverno(path: &Path) -> String {
    path.segments().iter().fold("/".to_owned(), |path, segment| match segment {
        Segment::Key(key) => format!("{path}{key}/"),
        Segment::Index(at) => format!("{path}{at}/"),
    })
}
