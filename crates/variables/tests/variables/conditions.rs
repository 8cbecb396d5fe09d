//! Conditions: forms, order of evaluation, traces, errors, effort.

use kiln_jmespath::JmesPathEnvironment;
use kiln_value::{Path, Value, value};
use kiln_variables::conditions::{
    ComparisonRule, ConditionError, ConditionOperator, ConditionsOutcome, Effort,
};
use kiln_variables::{Conditions, ContextScope, Substitution};

fn evaluate(conditions: &Value, context: &Value) -> Result<ConditionsOutcome, ConditionError> {
    let scope = ContextScope::new(context, JmesPathEnvironment::default());
    let conditions = Conditions::parse(conditions).unwrap();
    conditions.evaluate(&mut Substitution::new(&scope), &mut Effort::default())
}

fn condition(key: &str, value: &str) -> Value {
    value!({"key": key, "operator": "Equals", "value": value, "message": format!("{key}={value}")})
}

#[test]
fn blocks_hold_as_their_names_say() {
    let (yes, no) = (condition("a", "a"), condition("a", "b"));
    let block = |fields: &[(&str, &[&Value])]| {
        let list = |of: &[&Value]| of.iter().map(|v| (*v).clone()).collect::<Value>();
        Value::Map(fields.iter().map(|(name, of)| (*name, list(of))).collect())
    };
    for (conditions, holds) in [
        (value!(null), true),
        (value!({}), true),
        (value!([]), true),
        (value!({"any": null}), true),
        (value!({"any": []}), false),
        (value!({"all": []}), true),
        (value!({"any": [], "all": []}), false),
        (block(&[("any", &[&no, &yes])]), true),
        (block(&[("any", &[&no, &no])]), false),
        (block(&[("all", &[&yes, &no])]), false),
        (block(&[("all", &[&yes, &yes])]), true),
        (block(&[("any", &[&yes]), ("all", &[&no])]), false),
        (block(&[("any", &[&no]), ("all", &[&yes])]), false),
        (block(&[("any", &[&yes]), ("all", &[&yes])]), true),
        (vec![yes.clone(), no.clone()].into(), false),
        (vec![yes.clone(), yes.clone()].into(), true),
    ] {
        assert_eq!(evaluate(&conditions, &value!({})).unwrap().holds, holds, "{conditions:?}");
    }
}

#[test]
fn nothing_behind_a_decision_is_looked_at() {
    let (yes, no, broken) = (condition("a", "a"), condition("a", "b"), condition("{{ zz }}", "a"));
    let list = |conditions: &[&Value]| conditions.iter().map(|v| (*v).clone()).collect::<Value>();
    for (block, decided) in [("any", &yes), ("all", &no)] {
        let mut conditions = Value::map();
        conditions.set([block], list(&[decided, &broken])).unwrap();
        assert_eq!(evaluate(&conditions, &value!({})).unwrap().checks.len(), 1);
        conditions.set([block], list(&[&broken, decided])).unwrap();
        assert!(evaluate(&conditions, &value!({})).is_err());
    }
    // A failed `any` decides the verdict, but Kyverno looks at `all` nevertheless.
    let mut conditions = value!({"any": []});
    conditions.set(["all"], list(&[&broken])).unwrap();
    assert!(evaluate(&conditions, &value!({})).is_err());
}

#[test]
fn messages_are_those_that_decided() {
    let (yes, no) = (condition("a", "a"), condition("a", "b"));
    let mut block = Value::map();
    block.set(["any"], Value::from(vec![no.clone(), no.clone()])).unwrap();
    block.set(["all"], Value::from(vec![yes.clone()])).unwrap();
    assert_eq!(evaluate(&block, &value!({})).unwrap().message, "a=b; a=b");
    block.set(["any"], Value::from(vec![no, yes.clone()])).unwrap();
    assert_eq!(evaluate(&block, &value!({})).unwrap().message, "a=a; a=a");
    let list = Value::from(vec![yes.clone(), yes]);
    assert_eq!(evaluate(&list, &value!({})).unwrap().message, "a=a;a=a");
}

#[test]
fn a_trace_says_what_was_compared_and_how() {
    let conditions = value!({"all": [
        {"key": "{{ n }}", "operator": "GreaterThan", "value": "{{ limit }}"},
        {"key": ["{{ names[0] }}", "x"], "operator": "anynotin", "value": "{{ names }}"},
        {"key": "{{ n }}", "operator": "LessThan", "value": null},
    ]});
    let context = value!({"n": 90, "limit": "1m", "names": ["a", "b"]});
    let outcome = evaluate(&conditions, &context).unwrap();
    let trace: Vec<String> = outcome.checks.iter().map(ToString::to_string).collect();
    assert_eq!(
        trace,
        [
            r#"all[0]: 90 GreaterThan "1m" holds, compared as durations"#,
            r#"all[1]: ["a","x"] AnyNotIn ["a","b"] holds, compared as elements with wildcards"#,
            "all[2]: 90 LessThan null does not hold, compared not at all: the value does not fit the key",
        ]
    );
}

#[test]
fn every_rule_of_the_ladders_can_be_seen() {
    use ComparisonRule::*;
    let long = value!("1h");
    for (key, operator, value, holds, rule) in [
        (value!(true), "Equals", value!(true), true, Booleans),
        (value!(true), "Equals", value!("true"), false, WrongValue),
        (value!(5), "Equals", value!(5.0), true, Numbers),
        (value!(5), "Equals", value!("5.0"), true, Numbers),
        (value!(5), "NotEquals", value!("x"), true, WrongValue),
        (long.clone(), "Equals", value!(3600), true, Durations),
        (value!("0"), "Equals", value!("0s"), false, WrongValue),
        (value!("1Gi"), "Equals", value!("1024Mi"), true, Quantities),
        (value!("1"), "Equals", value!("*"), false, WrongValue),
        (value!("abc"), "Equals", value!("a*"), true, Wildcard),
        (value!("a*"), "Equals", value!("abc"), false, Wildcard),
        (value!([1, {"a": 2}]), "Equals", value!([1.0, {"a": 2.0}]), true, Lists),
        (value!({"a": 1}), "NotEquals", value!({"a": 2}), true, Maps),
        (value!(null), "NotEquals", value!(1), false, WrongKey),
        (value!("1.2.3"), "LessThan", value!("1.10.0"), true, Versions),
        (value!("1.2.3"), "LessThan", value!("x"), false, WrongValue),
        (value!("x"), "LessThan", value!(1), false, WrongKey),
        (value!("500m"), "GreaterThan", value!(1), true, Durations),
        (value!("10"), "GreaterThan", long, false, Durations),
        (value!("NaN"), "GreaterThanOrEquals", value!("NaN"), false, Numbers),
        (value!(1.9), "DurationLessThan", value!("1s"), false, Durations),
        (value!("1"), "DurationLessThan", value!("2s"), false, WrongKey),
        (value!(1_000_000), "AnyIn", value!(["1e+06"]), true, Elements),
        (value!("a*"), "AllIn", value!(["abc"]), true, Elements),
        (value!("15"), "AnyIn", value!("10-20"), true, Range),
        (value!(["15", "x"]), "AnyNotIn", value!("10-20"), false, Range),
        (value!(["15", "x"]), "AllIn", value!("10-20"), false, Range),
        (value!(["10-20", "15"]), "AllIn", value!("10-20"), true, Range),
        (value!("5"), "AnyNotIn", value!(5), false, WrongValue),
        (value!([5, null]), "AnyNotIn", value!(5), true, Elements),
        (value!([5]), "AllIn", value!(5), false, WrongValue),
        (value!("a"), "AllNotIn", value!("[\"b\", null]"), true, ExactElements),
        (value!("a"), "AllNotIn", value!("[1]"), false, WrongValue),
        (value!(""), "AnyIn", value!("[null]"), true, ExactElements),
        (value!([["a", null]]), "AnyIn", value!(["[a <nil>]"]), true, Elements),
        (value!([]), "AllIn", value!(["a"]), true, Elements),
        (value!([]), "AnyNotIn", value!(["a"]), false, Elements),
        (value!(["a"]), "NotIn", value!("a"), true, ExactElements),
        (value!(["a*"]), "In", value!(["abc"]), false, ExactElements),
        (value!("a"), "In", value!("b"), false, WrongValue),
        (value!("a"), "NotIn", value!("b"), false, WrongValue),
        (value!({}), "AnyNotIn", value!(["a"]), false, WrongKey),
    ] {
        let named = ConditionOperator::named(operator).unwrap();
        let compared = named.compare(&key, &value, &mut Effort::default()).unwrap();
        let got = (compared.holds, compared.rule);
        assert_eq!(got, (holds, rule), "{key:?} {operator} {value:?}");
    }
}

#[test]
fn wrong_forms_are_reported_with_their_place() {
    let place: Path = ["preconditions"].into_iter().collect();
    for (conditions, message, hint) in [
        (value!("x"), "preconditions: conditions are a map or a list, not a string", "any:"),
        (
            value!({"all": {}}),
            "preconditions.all: expected a list of conditions, found a map",
            "dash",
        ),
        (value!([5]), "preconditions[0]: expected a condition, found a number", "a key"),
        (value!([{"key": 1}]), "preconditions[0]: a condition without an operator", "Equals"),
        (value!([{"any": []}]), "preconditions[0]: a condition without an operator", "at the top"),
        (
            value!({"any": [{"operator": "Equal"}, {"operator": "Equls"}]}),
            "preconditions.any[1].operator: entered value of `operator` is invalid: \"Equls\"",
            "did you mean \"Equals\"?",
        ),
        (
            value!([{"operator": 5}]),
            "preconditions[0].operator: an operator is a name, not a number",
            "In",
        ),
        (
            value!([{"operator": "In", "message": 1}]),
            "preconditions[0].message: a message is text, not a number",
            "quotes",
        ),
    ] {
        let error = Conditions::parse_at(&conditions, &place).unwrap_err();
        assert_eq!(error.to_string(), message);
        assert!(error.hint.as_deref().is_some_and(|h| h.contains(hint)), "{:?}", error.hint);
    }
    let odd = value!({"anny": [], "all": [{"operator": "In", "kye": 1}]});
    let odd = Conditions::parse_at(&odd, &place).unwrap();
    let unknown: Vec<String> = odd.unknown_fields().iter().map(ToString::to_string).collect();
    assert_eq!(unknown, ["preconditions.anny", "preconditions.all[0].kye"]);
}

#[test]
fn unresolved_variables_name_the_condition() {
    let conditions = value!({"all": [{"key": "a", "operator": "In", "value": ["x", "{{ zz }}"]}]});
    let error = evaluate(&conditions, &value!({})).unwrap_err();
    assert_eq!(error.path().to_string(), "all[0].value[1]");
    assert!(error.to_string().starts_with("cannot resolve {{ zz }} at all[0].value[1]: "));
    assert!(error.hint().is_some());
}

#[test]
fn long_lists_are_looked_up_not_tried_one_by_one() {
    let numbered =
        |from: usize| (from..from + 20_000).map(|i| format!("name-{i}")).collect::<Value>();
    let mut effort = Effort::default();
    let compared =
        ConditionOperator::AllNotIn.compare(&numbered(0), &numbered(20_000), &mut effort).unwrap();
    assert!(compared.holds);
    assert!(effort.used() < 2_000_000, "{}", effort.used());
}

#[test]
fn hostile_patterns_use_up_the_effort() {
    let key = value!("a".repeat(100_000));
    let pattern = value!("*a".repeat(20_000) + "b");
    let mut effort = Effort::default();
    let error = ConditionOperator::Equals.compare(&key, &pattern, &mut effort).unwrap_err();
    assert_eq!(error.to_string(), "the comparison looks at more than 209715200 bytes");

    let patterns: Value = (0..3_000).map(|i| format!("*{i}*x*")).collect();
    let keys: Value = (0..3_000).map(|i| format!("key-{i}")).collect();
    assert!(
        ConditionOperator::AnyIn.compare(&keys, &patterns, &mut Effort::new(10_000_000)).is_err()
    );
}

#[test]
fn the_deepest_values_compare() {
    let deep = (0..kiln_value::MAX_DEPTH).fold(value!("x"), |v, _| value_map(v));
    let same = (0..kiln_value::MAX_DEPTH).fold(value!("x"), |v, _| value_map(v));
    for name in ConditionOperator::names() {
        let operator = ConditionOperator::named(name).unwrap();
        let compared = operator.compare(&deep, &same, &mut Effort::default()).unwrap();
        assert_eq!(compared.holds, operator == ConditionOperator::Equals, "{name}");
        let listed = Value::from(vec![deep.clone()]);
        let compared = operator.compare(&listed, &listed, &mut Effort::default()).unwrap();
        let holds = matches!(
            operator,
            ConditionOperator::Equals | ConditionOperator::AnyIn | ConditionOperator::AllIn
        );
        assert_eq!(compared.holds, holds, "{name}");
    }
}

fn value_map(below: Value) -> Value {
    Value::Map([("k", below)].into_iter().collect())
}
