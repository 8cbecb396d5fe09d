//! The recorded wildcards, quantities and durations.

use kiln_testkit::{Tally, corpus_json};
use kiln_text::{Duration, Quantity, wildcard};
use kiln_value::Value;

fn cases(file: &str) -> Option<Vec<Value>> {
    Some(corpus_json(file)?.as_list().expect("a list of cases").to_vec())
}

fn text<'a>(case: &'a Value, field: &str) -> &'a str {
    case.get(field).and_then(Value::as_str).unwrap_or_else(|| panic!("{field} in {case:?}"))
}

fn fails(case: &Value) -> bool {
    case.get("error").and_then(Value::as_bool).unwrap_or(false)
}

fn equal(wanted: &str, got: &str) -> Result<(), String> {
    if wanted == got { Ok(()) } else { Err(format!("wanted {wanted}, got {got}")) }
}

#[test]
fn wildcards_match_as_recorded() {
    let Some(cases) = cases("values/wildcard.json") else { return };
    let mut tally = Tally::new("values/wildcard");
    for case in &cases {
        let (pattern, name) = (text(case, "pattern"), text(case, "name"));
        let expected = case.get("expected").and_then(Value::as_bool).expect("expected");
        tally.case(&format!("{pattern} on {name}"), || {
            equal(&expected.to_string(), &wildcard::matches(pattern, name).to_string())
        });
    }
    tally.finish();
}

#[test]
fn quantities_print_as_recorded() {
    let Some(cases) = cases("values/quantity.json") else { return };
    let mut tally = Tally::new("values/quantity");
    for case in &cases {
        let input = text(case, "input");
        tally.case(input, || match Quantity::parse(input) {
            Err(_) if fails(case) => Ok(()),
            Err(error) => Err(format!("{error}")),
            Ok(got) if fails(case) => Err(format!("wanted an error, got {got}")),
            Ok(got) => equal(text(case, "canonical"), &got.to_string())
                .and_then(|()| equal(text(case, "format"), &got.format().to_string())),
        });
    }
    tally.finish();
}

#[test]
fn durations_print_as_recorded() {
    let Some(cases) = cases("values/duration.json") else { return };
    let mut tally = Tally::new("values/duration");
    for case in &cases {
        let input = text(case, "input");
        tally.case(input, || match Duration::parse(input) {
            Err(_) if fails(case) => Ok(()),
            Err(error) => Err(format!("{error}")),
            Ok(got) if fails(case) => Err(format!("wanted an error, got {got}")),
            Ok(got) => equal(text(case, "canonical"), &got.to_string()).and_then(|()| {
                let nanos = case.get("nanoseconds").and_then(Value::as_i64).expect("nanoseconds");
                equal(&nanos.to_string(), &got.as_nanos().to_string())
            }),
        });
    }
    tally.finish();
}
