//! The tables of this crate: expressions, and what KubeMod's own code makes of them.

use kiln_jsonpath::{ErrorKind, Expression, JsonPathLimits};
use kiln_testkit::{Case, Expected};
use kiln_value::{Map, Value, json};

use crate::recorded::{comparable, floats};

/// Cases that do not give yet what KubeMod gives.
const KNOWN: &[(&str, &str)] = &[(
    "captured-keys.yaml: captured key joined with text",
    "a placeholder stands alone before the colon, not within a larger expression",
)];

#[test]
fn cases_give_what_kubemod_gives() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cases");
    kiln_testkit::cases("jsonpath", folder, KNOWN, run);
}

/// Of an error the stage is compared, not the words: a rule whose expression does not parse is refused, one whose
/// expression fails does not match.
fn run(case: &Case) -> Result<(), String> {
    let data = case.get("data").cloned().unwrap_or(Value::Map(Map::new()));
    let got = Expression::compile(case.text("expression"))
        .and_then(|expression| expression.evaluate(&data, &JsonPathLimits::default()));
    match (got, case.expected()) {
        (Ok(item), Expected::Output(wanted)) => {
            let (mut got, mut wanted) = (comparable(&item), floats(wanted));
            if case.get("unordered").is_some() {
                for value in [&mut got, &mut wanted] {
                    if let Some(list) = value.as_list_mut() {
                        list.sort_by_key(json::to_string);
                    }
                }
            }
            let shown = |value: &Value| json::to_go_string_pretty(value);
            kiln_testkit::difference(&shown(&wanted), &shown(&got)).map_or(Ok(()), Err)
        }
        (Err(error), Expected::Error(wanted)) => {
            let stage = match error.kind() {
                ErrorKind::Syntax => "parse: ",
                _ => "evaluate: ",
            };
            if wanted.starts_with(stage) {
                return Ok(());
            }
            Err(format!("{stage}{error} instead of {wanted}"))
        }
        (Ok(item), Expected::Error(wanted)) => Err(format!("{item:?} instead of {wanted}")),
        (Err(error), Expected::Output(wanted)) => Err(format!("{error} instead of {wanted:?}")),
    }
}
