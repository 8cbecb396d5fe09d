//! The recorded cases of the dialect: what Kyverno answers, and where Kiln chose otherwise.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, SystemTime};

use kiln_jmespath::{AmbientSources, Error, ErrorKind, Expression, JmesPathEnvironment};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Value, json, value};

/// A fixed time, a fixed sequence for chance, and the few names that the cases ask for.
struct Fixed;

impl AmbientSources for Fixed {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000))
    }

    fn random(&self) -> Option<u64> {
        Some(0x9e37_79b9_7f4a_7c15)
    }

    fn resolve(&self, host: &str) -> Option<Result<Vec<IpAddr>, String>> {
        Some(match host {
            "localhost" => Ok(vec![IpAddr::V4(Ipv4Addr::LOCALHOST)]),
            "google.com" => Ok(vec![IpAddr::V4(Ipv4Addr::new(142, 250, 0, 1))]),
            _ => Err(format!("no such host {host:?}")),
        })
    }
}

pub(crate) enum Outcome {
    Compile(Error),
    Search(Error),
    Value(Value),
}

pub(crate) fn run(expression: &str, data: &Value) -> Outcome {
    let environment = JmesPathEnvironment { sources: &Fixed, ..JmesPathEnvironment::default() };
    match Expression::compile(expression) {
        Err(error) => Outcome::Compile(error),
        Ok(compiled) => {
            let _ = compiled.print_tree();
            match compiled.search(data, &environment) {
                Err(error) => Outcome::Search(error),
                Ok(value) => Outcome::Value(value),
            }
        }
    }
}

/// Equality as the cases mean it: numbers are floats.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len()
                && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| same(value, other)))
        }
        (a, b) => a == b,
    }
}

fn same_elements(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (a.as_list(), b.as_list()) else {
        return same(a, b);
    };
    let mut rest: Vec<&Value> = b.iter().collect();
    a.len() == b.len()
        && a.iter().all(|element| {
            let at = rest.iter().position(|other| same(element, other));
            at.map(|at| rest.swap_remove(at)).is_some()
        })
}

/// What Kiln answers where the cases say that it differs: `compare` gives an ordinary number and
/// `items` an ordinary list.
fn own_answer(expression: &str) -> Option<Value> {
    Some(match expression {
        "compare('a','b') == `-1`" => value!(true),
        "type(compare('a','b'))" => value!("number"),
        "abs(compare('a','b'))" => value!(1),
        "type(items(m,'k','v'))" => value!("array"),
        "to_array(items(m,'k','v'))" => {
            value!([{"k": "k1", "v": "v1"}, {"k": "k2", "v": "v2"}, {"k": "k3", "v": null}])
        }
        "items(items(arr,'i','v'),'j','w')" => value!([
            {"j": 0, "w": {"i": 0, "v": 1}},
            {"j": 1, "w": {"i": 1, "v": 2}},
            {"j": 2, "w": {"i": 2, "v": 3}}
        ]),
        "lookup(items(arr,'i','v'),`0`)" => value!({"i": 0, "v": 1}),
        _ => return None,
    })
}

pub(crate) fn check_value(wanted: &Value, outcome: Outcome, unordered: bool) -> Result<(), String> {
    match outcome {
        Outcome::Value(got) if unordered && same_elements(wanted, &got) => Ok(()),
        Outcome::Value(got) if !unordered && same(wanted, &got) => Ok(()),
        Outcome::Value(got) => {
            Err(format!("wanted {}, got {}", json::to_string(wanted), json::to_string(&got)))
        }
        Outcome::Compile(error) | Outcome::Search(error) => {
            Err(format!("wanted {}, got the error: {error}", json::to_string(wanted)))
        }
    }
}

fn check_error(case: &Value, outcome: Outcome) -> Result<(), String> {
    let text = |field: &str| case.get(field).and_then(Value::as_str);
    let (stage, error) = match outcome {
        Outcome::Compile(error) => ("compile", error),
        Outcome::Search(error) => ("search", error),
        Outcome::Value(got) => {
            return Err(format!("wanted an error, got {}", json::to_string(&got)));
        }
    };
    if text("stage").is_some_and(|wanted| wanted != stage) {
        return Err(format!("fails at {stage}: {error}"));
    }
    if (text("kind") == Some("not-found")) != (error.kind() == ErrorKind::NotFound) {
        return Err(format!("the error is {:?}: {error}", error.kind()));
    }
    Ok(())
}

#[test]
fn recorded_cases() {
    let Some(cases) = corpus_json("jmespath/cases.json") else { return };
    let mut tally = Tally::new("jmespath cases");
    for case in cases.as_list().unwrap() {
        let text = |field: &str| case.get(field).and_then(Value::as_str).unwrap_or_default();
        let (id, expression) = (text("id"), text("expression"));
        let data = case.get("data").cloned().unwrap_or_default();
        let name = format!("{id} {expression}");
        if case.get("undefined").is_some() {
            // No expectation; it must only come back.
            let _ = run(expression, &data);
            tally.leave_out();
            continue;
        }
        tally.case(&name, || {
            let outcome = run(expression, &data);
            if case.get("differs").is_some() {
                let wanted = own_answer(expression).ok_or("no answer of Kiln's own is listed")?;
                return check_value(&wanted, outcome, false);
            }
            if case.get("error").is_some() {
                return check_error(case, outcome);
            }
            let unordered = case.get("unordered").is_some();
            check_value(case.get("expected").unwrap_or(&Value::Null), outcome, unordered)
        });
    }
    tally.finish();
}

#[test]
fn standard_suite_with_the_differences_of_the_dialect() {
    let Some(differences) = corpus_json("jmespath/compliance/kyverno-differences.json") else {
        return;
    };
    let differences = differences.as_list().unwrap();
    let mut tally = Tally::new("jmespath standard suite");
    let mut differing = 0;
    for file in [
        "basic",
        "boolean",
        "current",
        "escape",
        "filters",
        "functions",
        "identifiers",
        "indices",
        "literal",
        "multiselect",
        "pipe",
        "slice",
        "syntax",
        "unicode",
        "wildcard",
        "benchmarks",
    ] {
        let file = format!("{file}.json");
        let Some(groups) = corpus_json(&format!("jmespath/compliance/{file}")) else { return };
        for (group_at, group) in groups.as_list().unwrap().iter().enumerate() {
            let given = group.get("given").cloned().unwrap_or_default();
            for (case_at, case) in group.get("cases").unwrap().as_list().unwrap().iter().enumerate()
            {
                let expression = case.get("expression").and_then(Value::as_str).unwrap();
                if case.get("bench").is_some() {
                    continue;
                }
                let difference = differences.iter().find(|difference| {
                    difference.get("file").and_then(Value::as_str) == Some(&file)
                        && difference.get("group").and_then(Value::as_i64) == Some(group_at as i64)
                        && difference.get("case").and_then(Value::as_i64) == Some(case_at as i64)
                });
                differing += usize::from(difference.is_some());
                let wanted = difference.and_then(|d| d.get("kyverno")).unwrap_or(case);
                tally.case(&format!("{file}/{group_at}/{case_at} {expression}"), || {
                    let outcome = run(expression, &given);
                    match wanted.get("error").and_then(Value::as_str) {
                        None => {
                            let wanted = wanted.get("result").unwrap_or(&Value::Null);
                            // Go maps have no order, ours is sorted; the suite has the file's.
                            check_value(
                                wanted,
                                outcome,
                                expression.contains('*') || expression.contains("values("),
                            )
                        }
                        Some("not-found") => match outcome {
                            Outcome::Search(error) if error.is_not_found() => Ok(()),
                            Outcome::Value(got) => Err(format!("got {}", json::to_string(&got))),
                            Outcome::Compile(error) | Outcome::Search(error) => {
                                Err(error.to_string())
                            }
                        },
                        Some(_) => match outcome {
                            Outcome::Value(got) => Err(format!("got {}", json::to_string(&got))),
                            Outcome::Compile(_) | Outcome::Search(_) => Ok(()),
                        },
                    }
                });
            }
        }
    }
    assert_eq!(differing, differences.len(), "every listed difference is met");
    assert_eq!(differing, 22);
    tally.finish();
}
