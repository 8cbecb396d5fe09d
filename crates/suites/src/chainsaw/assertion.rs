//! A value against what is asserted of it.
//!
//! What is asserted is a part of the value: fields that it does not name may be anything, lists have the same length.
//! A key in parentheses is an expression over the value, and its result is asserted on. `~.key` asserts of every
//! element, and `key->name` gives what is found a name.

use kiln_value::{Number, Value, json};

use super::error::ExpressionError;
use super::expression::{Bindings, parenthesised};

/// How a value differs from what is asserted of it; empty when it does not.
///
/// # Errors
/// When an expression cannot be evaluated.
pub(super) fn mismatches(
    wanted: &Value,
    found: &Value,
    bindings: &Bindings,
) -> Result<Vec<String>, ExpressionError> {
    let mut told = Vec::new();
    check(wanted, Some(found), "", bindings, &mut told)?;
    Ok(told)
}

/// A key that asserts something: what it looks at, and how.
struct Asserting<'k> {
    each: bool,
    key: &'k str,
    name: Option<&'k str>,
}

impl<'k> Asserting<'k> {
    fn read(key: &'k str) -> Self {
        let is_name = |name: &str| {
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
        };
        let (rest, name) = match key.rsplit_once("->") {
            Some((rest, name)) if is_name(name) => (rest, Some(name)),
            _ => (key, None),
        };
        match rest.strip_prefix("~.") {
            Some(rest) => Asserting { each: true, key: rest, name },
            None => Asserting { each: false, key: rest, name },
        }
    }
}

fn check(
    wanted: &Value,
    found: Option<&Value>,
    path: &str,
    bindings: &Bindings,
    told: &mut Vec<String>,
) -> Result<(), ExpressionError> {
    let at = if path.is_empty() { "the object" } else { path };
    match wanted {
        Value::Map(map) => {
            let value = found.unwrap_or(&Value::Null);
            for (key, wanted) in map {
                let asserting = Asserting::read(key);
                let place = join(path, key);
                let inner = match parenthesised(asserting.key) {
                    Some(expression) => Some(bindings.evaluate(expression, value)?),
                    None if found.is_some_and(|found| found.as_map().is_none()) => {
                        told.push(format!("{at} is {}, not an object", shown(found)));
                        return Ok(());
                    }
                    None => value.get(asserting.key).cloned(),
                };
                let named;
                let bindings = match asserting.name {
                    Some(name) => {
                        let value = inner.clone().unwrap_or_default();
                        named = bindings.clone().with(name, value);
                        &named
                    }
                    None => bindings,
                };
                if !asserting.each {
                    check(wanted, inner.as_ref(), &place, bindings, told)?;
                    continue;
                }
                match inner {
                    Some(Value::List(list)) => {
                        for (i, item) in list.iter().enumerate() {
                            let place = format!("{place}[{i}]");
                            check(wanted, Some(item), &place, bindings, told)?;
                        }
                    }
                    Some(Value::Map(map)) => {
                        for (key, item) in &map {
                            check(wanted, Some(item), &join(&place, key), bindings, told)?;
                        }
                    }
                    other => {
                        told.push(format!("{place} is {}, not a list", shown(other.as_ref())));
                    }
                }
            }
        }
        Value::List(items) => match found {
            Some(Value::List(list)) if list.len() == items.len() => {
                for (i, (wanted, found)) in items.iter().zip(list.iter()).enumerate() {
                    check(wanted, Some(found), &format!("{path}[{i}]"), bindings, told)?;
                }
            }
            Some(Value::List(list)) => {
                told.push(format!("{at} has {} elements, not {}", list.len(), items.len()));
            }
            other => told.push(format!("{at} is {}, not a list", shown(other))),
        },
        scalar => {
            let value = found.unwrap_or(&Value::Null);
            let wanted = match scalar.as_str().and_then(parenthesised) {
                Some(expression) => bindings.evaluate(expression, value)?,
                None => scalar.clone(),
            };
            if !same(&wanted, value) {
                told.push(format!("{at} is {}, not {}", shown(found), shown(Some(&wanted))));
            }
        }
    }
    Ok(())
}

fn same(wanted: &Value, found: &Value) -> bool {
    match (wanted, found) {
        (Value::Number(Number::Float(_)), Value::Number(_))
        | (Value::Number(_), Value::Number(Number::Float(_))) => wanted.as_f64() == found.as_f64(),
        _ => wanted == found,
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// A value in a message, not all of it when it is long.
fn shown(value: Option<&Value>) -> String {
    let Some(value) = value else { return "missing".to_owned() };
    let text = json::to_string(value);
    match text.char_indices().nth(120) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn asserts_parts_lengths_and_expressions() {
        let found = value!({"metadata": {"name": "a", "labels": {"x": "1"}},
            "spec": {"n": 2, "list": [{"k": "a", "v": 1}, {"k": "b", "v": 2}], "f": 1.0}});
        for (wanted, told) in [
            (value!({"metadata": {"name": "a"}}), vec![]),
            (value!({"spec": {"f": 1}}), vec![]),
            (value!({"spec": {"gone": null}}), vec![]),
            (value!({"spec": {"n": null}}), vec!["spec.n is 2, not null"]),
            (value!({"metadata": {"name": "b"}}), vec![r#"metadata.name is "a", not "b""#]),
            (value!({"metadata": {"uid": "b"}}), vec![r#"metadata.uid is missing, not "b""#]),
            (value!({"spec": {"n": "2"}}), vec![r#"spec.n is 2, not "2""#]),
            (value!({"spec": {"list": [{"k": "a"}]}}), vec!["spec.list has 2 elements, not 1"]),
            (value!({"spec": {"list": [{"k": "a"}, {"v": 2}]}}), vec![]),
            (value!({"spec": {"(list[?k == 'b'])": [{"v": 2}]}}), vec![]),
            (value!({"spec": {"(length(list))": 3}}), vec!["spec.(length(list)) is 2, not 3"]),
            (value!({"spec": {"(n > `1`)": true}}), vec![]),
            (value!({"spec": {"n": "(`2`)"}}), vec![]),
            (value!({"spec": {"~.list": {"(v > `0`)": true}}}), vec![]),
            (
                value!({"spec": {"~.list": {"(v > `1`)": true}}}),
                vec!["spec.~.list[0].(v > `1`) is false, not true"],
            ),
            (value!({"spec": {"n->count": 2, "(length(list) == $count)": true}}), vec!["error"]),
            (value!({"spec": {"list->all": {"(length($all))": 2}}}), vec![]),
            (
                value!({"metadata": {"name": {"x": 1}}}),
                vec![r#"metadata.name is "a", not an object"#],
            ),
        ] {
            let got = mismatches(&wanted, &found, &Bindings::default());
            match told.as_slice() {
                // A name holds below its own key.
                ["error"] => assert!(got.is_err(), "{wanted:?}"),
                told => assert_eq!(got.unwrap(), told, "{wanted:?}"),
            }
        }
    }
}
