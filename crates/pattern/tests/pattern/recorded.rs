//! Recorded cases: leaf patterns, the anchors of patches, and patches with anchors merged.

use kiln_patch::{StrategicRules, strategic_merge};
use kiln_pattern::{PatternLimits, Resolved, matches, resolve_anchors, value_matches};
use kiln_schema::{KubernetesVersion, Schema};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Value, json, value};

fn resolved(case: &Value) -> Result<Option<Value>, String> {
    let (patch, object) = (case.get("patch").unwrap(), case.get("resource").unwrap());
    match resolve_anchors(patch, object, &PatternLimits::default()) {
        Ok(Resolved::Patch(patch)) => Ok(Some(patch)),
        Ok(Resolved::Cancelled(_)) => Ok(None),
        Err(error) => Err(error.to_string()),
    }
}

fn compare(wanted: Option<&Value>, got: Option<&Value>) -> Result<(), String> {
    if wanted == got {
        return Ok(());
    }
    let shown = |value: Option<&Value>| value.map(json::to_canonical_string);
    Err(format!("\nwanted {:?}\ngot    {:?}", shown(wanted), shown(got)))
}

#[test]
fn leaf_patterns() {
    let Some(recorded) = corpus_json("values/pattern.json") else { return };
    let mut tally = Tally::new("leaf patterns");
    for case in recorded.as_list().unwrap() {
        let (pattern, value) = (case.get("pattern").unwrap(), case.get("value").unwrap());
        tally.case(&json::to_string(case), || {
            let got = value_matches(pattern, value);
            (Some(got) == case.get("expected").and_then(Value::as_bool))
                .then_some(())
                .ok_or_else(|| format!("got {got}"))
        });
    }
    tally.finish();
}

#[test]
fn anchors_of_patches() {
    let Some(recorded) = corpus_json("mutate/preprocess.json") else { return };
    let mut tally = Tally::new("anchors of patches");
    for case in recorded.as_list().unwrap() {
        tally.case(case.str_at(["id"]).unwrap(), || {
            compare(case.get("expected"), resolved(case)?.as_ref())
        });
    }
    tally.finish();
}

#[test]
fn merges_of_patches_with_anchors() {
    let Some(recorded) = corpus_json("mutate/strategic-merge.json") else { return };
    let schema = Schema::builtin(KubernetesVersion::V1_21);
    let mut tally = Tally::new("Kyverno, strategic merge with anchors");
    for case in recorded.as_list().unwrap() {
        let name = format!(
            "{} {}",
            case.str_at(["id"]).unwrap(),
            json::to_string(case.get("patch").unwrap())
        );
        tally.case(&name, || {
            let merged = resolved(case).and_then(|patch| {
                let mut object = case.get("resource").unwrap().clone();
                let patch = patch.unwrap_or_else(|| value!({}));
                let merged =
                    strategic_merge(&mut object, &patch, &schema, &StrategicRules::kyverno());
                merged.map(|_| object).map_err(|error| error.to_string())
            });
            match (case.get("error"), merged) {
                (Some(_), Err(_)) => Ok(()),
                (Some(_), Ok(got)) => Err(format!("not refused: {}", json::to_string(&got))),
                (None, Err(error)) => Err(error),
                (None, Ok(got)) => compare(case.get("expected"), Some(&got)),
            }
        });
    }
    tally.finish();
}

#[test]
fn patterns_of_validate_rules() {
    let Some(recorded) = corpus_json("validate/patterns.json") else { return };
    let mut tally = Tally::new("patterns of validate rules");
    tally.known_failure("patterns-015", "references $( ) are resolved before anything is matched");
    for case in recorded.as_list().unwrap() {
        let (pattern, object) = (case.get("pattern").unwrap(), case.get("resource").unwrap());
        tally.case(case.str_at(["id"]).unwrap(), || {
            let found = matches(pattern, object, &PatternLimits::default());
            let got = match &found {
                Ok(()) => "pass",
                Err(mismatch) if mismatch.condition => "skip",
                Err(_) => "fail",
            };
            let wanted = case.str_at(["expected"]).unwrap();
            if got != wanted {
                return Err(format!("wanted {wanted}, got {got}: {found:?}"));
            }
            // Kyverno writes keys as they are.
            let pointer = |m: &kiln_pattern::Mismatch| {
                format!("{}/", m.path.to_pointer().replace("~1", "/").replace("~0", "~"))
            };
            match (case.str_at(["path"]), &found) {
                (Some(wanted), Err(mismatch)) if got == "fail" && !wanted.is_empty() => {
                    let got = pointer(mismatch);
                    (got == wanted).then_some(()).ok_or_else(|| format!("at {got}, not {wanted}"))
                }
                _ => Ok(()),
            }
        });
    }
    tally.finish();
}

#[test]
fn values_of_validate_rules() {
    let Some(recorded) = corpus_json("validate/values.json") else { return };
    let mut tally = Tally::new("values of validate rules");
    tally.known_failure("values-123", "a map is never asked of null: the tree is told first");
    for case in recorded.as_list().unwrap() {
        let (pattern, value) = (case.get("pattern").unwrap(), case.get("value").unwrap());
        tally.case(case.str_at(["id"]).unwrap(), || {
            let got = value_matches(pattern, value);
            (Some(got) == case.get("expected").and_then(Value::as_bool))
                .then_some(())
                .ok_or_else(|| format!("got {got}"))
        });
    }
    tally.finish();
}
