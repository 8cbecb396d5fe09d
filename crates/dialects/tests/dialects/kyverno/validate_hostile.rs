//! Checks and objects that would take forever: an error within the budget, and never a panic.

use kiln_engine::{EvalEnv, EvaluationLimits, Event, FailureKind, RuleOutcome, RuleSet, Status};
use kiln_object::Kinds;
use kiln_value::{Key, Map, Value, value};
use kiln_yaml::{ReadOptions, read_bytes};

use crate::support::{Objects, compiled, messages};

fn policy(validate: &str) -> String {
    let validate = validate.trim_matches('\n').replace('\n', "\n      ");
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  background: false
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    validate:
      {validate}
"
    )
}

fn outcome(policy: &str, object: Value, limits: EvaluationLimits) -> RuleOutcome {
    let compiled = compiled(policy);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    let rules = RuleSet::new(compiled.policies);
    let (kinds, view) = (Kinds::builtin(), Objects::default());
    let eval_env = EvalEnv { limits, ..EvalEnv::of(&view, &kinds) };
    rules.mutate(&Event::created(object), &eval_env).outcomes.remove(0)
}

/// The rule ends with an error about a limit, which says so.
fn assert_too_much(policy: &str, object: Value, limits: EvaluationLimits, wanted: &str) {
    let outcome = outcome(policy, object, limits);
    assert_eq!(outcome.status(), Status::Error);
    let failure = &outcome.failures[0];
    assert!(failure.message.contains(wanted), "{}", failure.message);
    assert!(matches!(failure.kind, FailureKind::Limit), "{:?}", failure.kind);
}

fn config_map(list: impl IntoIterator<Item = Value>) -> Value {
    let list: Value = list.into_iter().collect();
    value!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "namespace": "n"}, "list": list,
    })
}

fn maps(count: usize) -> impl Iterator<Item = Value> {
    (0..count).map(|at| value!({"k": at}))
}

#[test]
fn a_pattern_for_each_element_of_a_list_ends_at_the_limit() {
    let wanted: Vec<String> = (0..3_000).map(|at| format!("{{k: {at}}}")).collect();
    let policy = policy(&format!("pattern: {{^(list): [{}]}}", wanted.join(", ")));
    let wanted = "matching the pattern takes more than 2000000 steps";
    assert_too_much(&policy, config_map(maps(3_000)), EvaluationLimits::default(), wanted);
}

#[test]
fn a_pattern_on_the_whole_object_for_each_element_ends_at_the_limit() {
    let policy = policy(
        "
foreach:
- list: request.object.list
  elementScope: false
  pattern: {list: [{k: '>=0'}]}
",
    );
    let limits = EvaluationLimits { patched: 200_000, ..EvaluationLimits::default() };
    let wanted = "the rule compares more than 200000 values";
    assert_too_much(&policy, config_map(maps(2_000)), limits, wanted);
    // The same for one element is fine.
    let outcome = outcome(&policy, config_map(maps(1)), limits);
    assert_eq!(outcome.status(), Status::Pass, "{outcome:?}");
}

#[test]
fn loops_in_loops_end_at_the_limit() {
    let policy = policy(
        "
foreach:
- list: request.object.list
  foreach:
  - list: request.object.list
    foreach:
    - list: request.object.list
      deny: {conditions: {any: [{key: '{{ element.k }}', operator: Equals, value: never}]}}
",
    );
    let limits = EvaluationLimits { elements: 10_000, ..EvaluationLimits::default() };
    let wanted = "the rule runs for more than 10000 elements";
    assert_too_much(&policy, config_map(maps(1_000)), limits, wanted);
}

#[test]
fn long_texts_and_wildcards_end_at_the_limit() {
    let stars = "*a".repeat(4_000);
    let policy = policy(&format!("pattern: {{list: ['{stars}']}}"));
    let texts = (0..2_000).map(|_| Value::from("a".repeat(10_000)));
    let wanted = "matching the pattern takes more than 2000000 steps";
    assert_too_much(&policy, config_map(texts), EvaluationLimits::default(), wanted);
}

#[test]
fn wildcards_in_many_labels_end_at_the_limit() {
    let keys: Vec<String> = (0..3_000).map(|at| format!("'{at}*': x")).collect();
    let policy = policy(&format!("pattern: {{metadata: {{labels: {{{}}}}}}}", keys.join(", ")));
    let mut object = config_map([]);
    let labels: Map = (0..3_000).map(|at| (Key::new(&format!("l{at}")), "y")).collect();
    object.set(["metadata", "labels"], labels).unwrap();
    let wanted = "matching the pattern takes more than 2000000 steps";
    assert_too_much(&policy, object, EvaluationLimits::default(), wanted);
}

/// In CEL a rule that cannot be evaluated fails, and says why.
#[test]
fn expressions_that_explode_end_at_their_cost() {
    let nested = "object.list.all(a, object.list.all(b, object.list.all(c, a.k + b.k + c.k >= 0)))";
    let doubled: Vec<String> = (1..40)
        .map(|at| format!("{{name: v{at}, expression: 'variables.v{0} + variables.v{0}'}}", at - 1))
        .collect();
    for (cel, wanted) in [
        (format!("cel: {{expressions: [{{expression: '{nested}'}}]}}"), "cost limit exceeded"),
        (
            format!(
                "cel: {{variables: [{{name: v0, expression: '\"0123456789\"'}}, {}], expressions: [{{expression: 'size(variables.v39) > 0'}}]}}",
                doubled.join(", ")
            ),
            "limit",
        ),
    ] {
        let outcome = outcome(&policy(&cel), config_map(maps(500)), EvaluationLimits::default());
        let said = outcome.why.as_deref().unwrap_or_default();
        assert_eq!(outcome.status(), Status::Fail, "{outcome:?}");
        assert!(said.contains(wanted), "{said}");
    }
}

#[test]
fn deep_objects_are_checked_or_refused() {
    let nested = |depth: usize| format!("{}1{}", "{a: ".repeat(depth), "}".repeat(depth));
    let read = |depth: usize| {
        let text = nested(depth);
        read_bytes("deep.yaml", text.as_bytes(), ReadOptions::kubernetes())
    };
    assert!(read(100_000).is_err(), "a document this deep is refused where it is read");
    let deepest = (1..=1_000).rev().step_by(50).find_map(|depth| Some((depth, read(depth).ok()?)));
    let (depth, documents) = deepest.expect("some depth is read");
    let mut object = config_map([]);
    object.set(["spec"], documents[0].value().clone()).unwrap();
    for (innermost, wanted) in [("1", Status::Pass), ("2", Status::Fail)] {
        let pattern = nested(depth.saturating_sub(20)).replace('1', innermost);
        let pattern = match wanted {
            // The rest is below.
            Status::Pass => pattern.replace('1', "{}"),
            _ => pattern,
        };
        let policy = policy(&format!("pattern: {{spec: {pattern}}}"));
        let outcome =
            outcome(&policy, object.clone(), EvaluationLimits::default().traced().fixing());
        assert_eq!(outcome.status(), wanted, "{:?}", outcome.failures);
    }
}
