//! The recorded cases of Kyverno's variables and conditions.

use kiln_jmespath::{Expression, JmesPathEnvironment};
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Value, value};
use kiln_variables::conditions::{ConditionOperator, Effort};
use kiln_variables::{Conditions, ContextScope, Substitution, Template};

/// Numbers are floats in the recording, so values are compared by how they print as such.
fn same(wanted: &Value, got: &Value) -> Result<(), String> {
    let (wanted, got) = (printed(wanted), printed(got));
    if wanted == got { Ok(()) } else { Err(format!("wanted {wanted}, got {got}")) }
}

fn printed(value: &Value) -> String {
    let print = Expression::compile("to_string([@])").unwrap();
    let text = print.search(value, &JmesPathEnvironment::default()).unwrap();
    text.as_str().unwrap().to_owned()
}

fn substitute(case: &Value) -> Result<Value, String> {
    let context = case.get("context").unwrap();
    let scope = ContextScope::new(context, JmesPathEnvironment::default());
    let template = Template::compile(case.get("document").unwrap());
    Substitution::new(&scope).run(&template).map_err(|error| error.to_string())
}

/// What Kiln makes of the cases in which Kyverno reads data as a template.
fn own_outcome(case: &Value) -> Value {
    let object = case.get_path(["context", "request", "object"]);
    match case.str_at(["document"]).unwrap() {
        "{{- variableWithVariables }} {{foo}} {{variablesNested}}" => {
            value!("{{ DO_NOT_SUBSTITUTE_ME {{OR_ME}} }} bar {{foo2}}")
        }
        "{{foo}} {{- variableWithVariables }} {{variablesNested}}" => {
            value!("bar {{ DO_NOT_SUBSTITUTE_ME {{OR_ME}} }} {{foo2}}")
        }
        "x{{request.object.metadata.annotations.tpl}}" => {
            value!("x{{request.object.metadata.name}}")
        }
        "x{{request.object.metadata.annotations.esc}}" => value!(r"x\{{x}}"),
        "{{ @ }}" => object.unwrap().clone(),
        "{{@}}x" => {
            let text = printed(object.unwrap());
            Value::from(text[1..text.len() - 1].to_owned() + "x")
        }
        other => panic!("no outcome is written down for {other:?}"),
    }
}

#[test]
fn variables() {
    let Some(cases) = corpus_json("variables/cases.json") else { return };
    let mut tally = Tally::new("variables");
    for case in cases.as_list().unwrap() {
        let id = case.str_at(["id"]).unwrap();
        if case.get("undefined").is_some() {
            // Any outcome is right, a crash is not.
            let _ = substitute(case);
            tally.leave_out();
            continue;
        }
        tally.case(id, || {
            let outcome = substitute(case);
            match (case.get("error"), case.get("differs")) {
                (Some(_), _) => match outcome {
                    Err(_) => Ok(()),
                    Ok(value) => Err(format!("wanted an error, got {value:?}")),
                },
                (None, Some(_)) => same(&own_outcome(case), &outcome?),
                (None, None) => same(case.get("expected").unwrap(), &outcome?),
            }
        });
    }
    tally.finish();
}

/// Whether a condition holds as an operator alone, in a block of either kind, and in a plain list;
/// `None` when the operator is unknown.
fn holds(case: &Value) -> Result<Option<bool>, String> {
    let [key, operator, value] = ["key", "operator", "value"].map(|part| case.get(part).unwrap());
    let Some(operator) = ConditionOperator::named(operator.as_str().unwrap()) else {
        return match Conditions::parse(&vec![case.clone()].into()) {
            Err(_) => Ok(None),
            Ok(_) => Err("an unknown operator was read".into()),
        };
    };
    let alone = operator.compare(key, value, &mut Effort::default()).unwrap().holds;
    let list = Value::from(vec![case.clone()]);
    let in_block = |name: &str| Value::Map([(name, list.clone())].into_iter().collect());
    let context = value!({});
    let scope = ContextScope::new(&context, JmesPathEnvironment::default());
    for form in [list.clone(), in_block("any"), in_block("all")] {
        let conditions = Conditions::parse(&form).map_err(|error| error.to_string())?;
        let outcome = conditions
            .evaluate(&mut Substitution::new(&scope), &mut Effort::default())
            .map_err(|error| error.to_string())?;
        if outcome.holds != alone || outcome.checks.len() != 1 {
            return Err(format!("{alone} alone, but as {form:?}: {outcome:?}"));
        }
    }
    Ok(Some(alone))
}

#[test]
fn conditions() {
    let Some(cases) = corpus_json("conditions/cases.json") else { return };
    let mut tally = Tally::new("conditions");
    for case in cases.as_list().unwrap() {
        if case.get("undefined").is_some() {
            // Either verdict is right, a crash is not.
            holds(case).unwrap();
            tally.leave_out();
            continue;
        }
        tally.case(case.str_at(["id"]).unwrap(), || {
            let mut wanted = case.get("expected").and_then(Value::as_bool);
            if case.get("differs").is_some() {
                // Operators count in any letter case, and so 0 is less than "1".
                assert_eq!(case.str_at(["operator"]), Some("lessthan"));
                wanted = Some(true);
            }
            let got = holds(case)?;
            if got == wanted { Ok(()) } else { Err(format!("wanted {wanted:?}, got {got:?}")) }
        });
    }
    tally.finish();
}
