//! The recorded cases: what KubeMod's own code makes of expressions and placeholders.

use kiln_jsonpath::{ErrorKind, Expression, Item, JsonPathLimits, fill_placeholders};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Str, Value, json};

#[test]
fn expressions_give_what_kubemod_gives() {
    let Some(corpus) = corpus_json("kubemod/jsonpath-cases.json") else { return };
    let mut tally = Tally::new("kubemod expressions");
    for case in corpus.get("cases").and_then(Value::as_list).unwrap() {
        tally.case(case.str_at(["name"]).unwrap(), || {
            let source = case.str_at(["expr"]).unwrap();
            let data = corpus.get_path(["datasets", case.str_at(["data"]).unwrap()]).unwrap();
            let compiled = Expression::compile(source);
            match (compiled, case.str_at(["error"])) {
                (Err(_), Some("parse")) => Ok(()),
                (Err(error), _) => Err(format!("{source}: does not parse: {error}")),
                (Ok(expression), wanted) => {
                    let result = expression.evaluate(data, &JsonPathLimits::default());
                    compare(source, result, wanted, case)
                }
            }
        });
    }
    tally.finish();
}

fn compare(
    source: &str,
    result: Result<Item, kiln_jsonpath::Error>,
    wanted: Option<&str>,
    case: &Value,
) -> Result<(), String> {
    match (result, wanted) {
        (Err(error), Some("eval")) if error.kind() == ErrorKind::Evaluation => Ok(()),
        (Err(error), _) => Err(format!("{source}: {error}")),
        (Ok(item), Some(wanted)) => Err(format!("{source}: {item:?} instead of a {wanted} error")),
        (Ok(item), None) => {
            let (mut got, mut wanted) = (comparable(&item), floats(case.get("value").unwrap()));
            if case.get("unordered").is_some() {
                for value in [&mut got, &mut wanted] {
                    value.as_list_mut().unwrap().sort_by_key(json::to_string);
                }
            }
            if got == wanted {
                Ok(())
            } else {
                Err(format!("{source}: {got:?} instead of {wanted:?}"))
            }
        }
    }
}

/// Numbers as floats, as in the recorded results.
pub(crate) fn floats(value: &Value) -> Value {
    match value {
        Value::Number(number) => Value::from(number.as_f64()),
        Value::List(list) => list.iter().map(floats).collect(),
        Value::Map(map) => Value::Map(map.iter().map(|(k, v)| (k.as_str(), floats(v))).collect()),
        other => other.clone(),
    }
}

/// A result in the form of the recorded ones.
pub(crate) fn comparable(item: &Item) -> Value {
    let marked = |key: &str, value: Value| Value::Map([(key, value)].into_iter().collect());
    match item {
        Item::Undefined => marked("$undefined", true.into()),
        Item::Value(Value::Number(number)) if !number.as_f64().is_finite() => {
            marked("$number", kiln_text::float::print(number.as_f64()).into())
        }
        Item::Value(value) => floats(value),
        Item::List(items) => items.iter().map(comparable).collect(),
        Item::Map(entries) => {
            Value::Map(entries.iter().map(|(k, v)| (k.as_str(), comparable(v))).collect())
        }
        Item::Time(time) => time.rfc3339().into(),
    }
}

#[test]
fn placeholders_are_filled() {
    let Some(corpus) = corpus_json("kubemod/path-placeholders.json") else { return };
    let mut tally = Tally::new("kubemod placeholders");
    for case in corpus.as_list().unwrap() {
        let path = case.str_at(["path"]).unwrap();
        let selected = case.str_at(["selectKey"]).unwrap();
        tally.case(&format!("{selected} {path}"), || {
            let keys: Vec<Str> = selected
                .split("[\"")
                .skip(1)
                .map(|part| Str::new(part.trim_end_matches("\"]")))
                .collect();
            let filled = fill_placeholders(path, &keys);
            match (filled, case.get("error").and_then(Value::as_bool)) {
                (Err(_), Some(true)) => Ok(()),
                (Ok(filled), Some(false)) if filled == case.str_at(["expected"]).unwrap() => Ok(()),
                (got, _) => Err(format!("{got:?}")),
            }
        });
    }
    tally.finish();
}
