//! What an evaluation may cost: counted, never timed, and said clearly when it is too much.

use crate::support::{Objects, rules, run, run_within};
use kiln_engine::{
    Effect, EvaluationLimits, Event, FailureKind, Lineage, RuleOutcome, RuleSet, Verdict,
};
use kiln_value::{Value, value};

fn policy(rest: &str) -> String {
    let rest = rest.trim_matches('\n').replace('\n', "\n    ");
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    {rest}
"
    )
}

fn config_map(data: &Value) -> Value {
    let mut object = value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "namespace": "dev", "uid": "u"},
    });
    object.set(["data"], data.clone()).unwrap();
    object
}

fn list_of(element: impl Into<Value>, count: usize) -> Value {
    let mut data = Value::map();
    data.set(["list"], Value::from(vec![element.into(); count])).unwrap();
    data
}

fn text_of(bytes: usize) -> Value {
    let mut data = Value::map();
    data.set(["text"], "x".repeat(bytes).as_str()).unwrap();
    data
}

/// The one failure of the one rule.
fn failure(
    rest: &str,
    data: &Value,
    limits: EvaluationLimits,
) -> (FailureKind, String, RuleOutcome) {
    let rules = rules(&policy(rest));
    let event = Event::created(config_map(data));
    let outcome = run_within(&rules, &event, &Objects::default(), limits).remove(0);
    assert_eq!(outcome.verdict, Verdict::Error, "{outcome:?}");
    assert_eq!(outcome.failures.len(), 1, "{:?}", outcome.failures);
    let failure = outcome.failures[0].clone();
    (failure.kind, failure.message, outcome)
}

const PER_ELEMENT: &str = "
generate:
  foreach:
  - list: request.object.data.list
    apiVersion: v1
    kind: ConfigMap
    name: c-{{ elementIndex }}
    namespace: dev
";

#[test]
fn a_million_elements_are_too_many() {
    let data = list_of("x", 1_000_000);
    let limits =
        EvaluationLimits { objects: u64::MAX, elements: 1_000, ..EvaluationLimits::default() };
    let (kind, message, outcome) = failure(PER_ELEMENT, &data, limits);
    assert_eq!(kind, FailureKind::Limit);
    assert_eq!(message, "the rule runs for more than 1000 elements");
    assert_eq!((outcome.cost.elements, outcome.cost.objects), (1_001, 1_000));
    // Empty elements cost as well.
    let (_, message, outcome) = failure(PER_ELEMENT, &list_of(Value::Null, 1_000_000), limits);
    assert_eq!(message, "the rule runs for more than 1000 elements");
    assert_eq!(outcome.cost.objects, 0);
}

#[test]
fn objects_are_counted() {
    let limits = EvaluationLimits { objects: 10, ..EvaluationLimits::default() };
    let (kind, message, outcome) = failure(PER_ELEMENT, &list_of("x", 100), limits);
    assert_eq!(
        (kind, message.as_str()),
        (FailureKind::Limit, "the rule makes more than 10 objects")
    );
    assert_eq!(outcome.effects.len(), 10);
}

#[test]
fn steps_of_all_expressions_count_together() {
    let rest = PER_ELEMENT.replace(
        "c-{{ elementIndex }}",
        "c-{{ sum(request.object.data.list) }}-{{ elementIndex }}",
    );
    let limits = EvaluationLimits { steps: 5_000, ..EvaluationLimits::default() };
    let (kind, message, outcome) = failure(&rest, &list_of(1, 200), limits);
    assert_eq!(kind, FailureKind::Limit);
    assert!(message.contains("takes more than 5000 steps"), "{message}");
    assert!(outcome.cost.steps <= 5_000);
}

#[test]
fn bytes_that_templates_make_are_counted() {
    let data = text_of(100_000);
    let rest = "
generate:
  foreach:
  - list: \"`[1, 2, 3, 4, 5, 6, 7, 8, 9]`\"
    apiVersion: v1
    kind: ConfigMap
    name: c-{{ elementIndex }}
    namespace: dev
    data: {data: {v: 'a {{ request.object.data.text }}'}}
";
    let limits = EvaluationLimits { bytes: 500_000, ..EvaluationLimits::default() };
    let (kind, message, outcome) = failure(rest, &data, limits);
    assert_eq!(kind, FailureKind::Limit);
    assert!(message.contains("bytes"), "{message}");
    assert!((1..9).contains(&outcome.effects.len()), "{}", outcome.effects.len());
}

#[test]
fn what_the_context_loads_is_counted() {
    let data = text_of(100_000);
    let rest = "
context:
- {name: a, variable: {jmesPath: request.object.data.text}}
generate: {apiVersion: v1, kind: ConfigMap, name: '{{ length(a) }}', namespace: dev}
";
    let limits = EvaluationLimits { context_bytes: 1_000, ..EvaluationLimits::default() };
    let (kind, message, _) = failure(rest, &data, limits);
    assert_eq!(kind, FailureKind::Limit);
    assert_eq!(
        message,
        "cannot load the context entry \"a\": the rule loads more than 1000 bytes into its context"
    );
    // A default does not hide that a budget is used up.
    let rest = rest
        .replace("jmesPath: request.object.data.text", "jmesPath: 'length(b)', default: none")
        .replace(
            "- {name: a,",
            "- {name: b, variable: {jmesPath: request.object.data.text}}\n- {name: a,",
        );
    assert_eq!(failure(&rest, &data, limits).0, FailureKind::Limit);
}

#[test]
fn reads_are_counted() {
    let rest = PER_ELEMENT.replace(
        "    apiVersion: v1",
        "    context: [{name: count, apiCall: {urlPath: /api/v1/namespaces, jmesPath: length(items)}}]\n    preconditions: {all: [{key: '{{ count }}', operator: Equals, value: 0}]}\n    apiVersion: v1",
    );
    let limits = EvaluationLimits { reads: 10, ..EvaluationLimits::default() };
    let (kind, message, outcome) = failure(&rest, &list_of("x", 50), limits);
    assert_eq!(kind, FailureKind::Limit);
    assert!(message.contains("reads more than 10 times"), "{message}");
    assert_eq!(outcome.effects.len(), 10);
}

/// Plays a host: what rules make becomes events, until nothing is made any more.
fn play(rules: &RuleSet, first: Value) -> (usize, Vec<String>) {
    let mut waiting = vec![Event::created(first).by_engine(Lineage::default())];
    let (mut made, mut stopped) = (0, Vec::new());
    while let Some(event) = waiting.pop() {
        for outcome in run(rules, &event, &Objects::default()) {
            stopped.extend(outcome.failures.iter().map(|failure| {
                assert_eq!(failure.kind, FailureKind::Loop);
                failure.message.clone()
            }));
            for effect in outcome.effects {
                let Effect::Ensure(ensure) = effect else { continue };
                made += 1;
                assert!(made < 1_000, "nothing stops the rules");
                let lineage = outcome.lineage.clone();
                waiting.push(Event::created(ensure.object).by_engine(lineage));
            }
        }
    }
    (made, stopped)
}

#[test]
fn a_rule_that_fires_on_its_own_objects_is_stopped() {
    let rest = "
skipBackgroundRequests: false
generate: {apiVersion: v1, kind: ConfigMap, name: '{{ request.object.metadata.name }}-x', namespace: dev}
";
    let (made, stopped) = play(&rules(&policy(rest)), config_map(&value!({})));
    assert_eq!(made, EvaluationLimits::default().repeats);
    assert_eq!(stopped.len(), 1);
    assert!(
        stopped[0].starts_with(
            "rule kyverno:p/r fires on objects that it made itself: v1/ConfigMap/dev/c → p/r → "
        ),
        "{}",
        stopped[0]
    );
}

#[test]
fn two_rules_that_fire_on_each_other_are_stopped() {
    let one = policy(
        "
skipBackgroundRequests: false
generate: {apiVersion: v1, kind: Secret, name: '{{ request.object.metadata.name }}-x', namespace: dev}
",
    );
    let other = one
        .replace("kind: Secret", "kind: ConfigMap")
        .replace("kinds: [ConfigMap]", "kinds: [Secret]")
        .replace("name: p}", "name: q}");
    let (made, stopped) = play(&rules(&format!("{one}---\n{other}")), config_map(&value!({})));
    assert_eq!(made, 2 * EvaluationLimits::default().repeats);
    assert_eq!(stopped.len(), 1);
}

#[test]
fn a_rule_that_makes_the_same_object_again_is_stopped_at_once() {
    let rest = "
skipBackgroundRequests: false
generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: dev}
";
    let (made, stopped) = play(&rules(&policy(rest)), config_map(&value!({})));
    assert_eq!((made, stopped.len()), (1, 1));
}

/// Entries that each ask for the one before, through an expression that nests as deep as it may.
fn chain(length: usize, deep: usize) -> String {
    let (open, close) = ("to_lower(".repeat(deep), ")".repeat(deep));
    let entries: String = (1..length)
        .map(|at| {
            format!("\n- {{name: v{at}, variable: {{jmesPath: '{open}v{}{close}'}}}}", at - 1)
        })
        .collect();
    format!(
        "
context:
- {{name: v0, variable: {{value: end}}}}{entries}
generate: {{apiVersion: v1, kind: Secret, name: '{{{{ v{} }}}}', namespace: dev}}
",
        length - 1
    )
}

/// Runs on a thread with as little stack as any of ours has.
fn on_a_small_stack(run: impl FnOnce() + Send + 'static) {
    std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap().join().unwrap();
}

#[test]
fn entries_that_ask_for_one_another_end_before_the_stack_does() {
    on_a_small_stack(|| {
        for (length, deep) in [(60, 1), (7, 100)] {
            let rules = rules(&policy(&chain(length, deep)));
            let outcomes =
                run(&rules, &Event::created(config_map(&value!({}))), &Objects::default());
            assert_eq!(outcomes[0].verdict, Verdict::Pass, "{outcomes:?}");
        }
        for (length, deep) in [(5_000, 0), (5_000, 100)] {
            let (kind, message, _) =
                failure(&chain(length, deep), &value!({}), EvaluationLimits::default());
            assert_eq!(kind, FailureKind::Limit);
            assert!(message.ends_with("too many context entries ask for one another"), "{message}");
        }
    });
}

#[test]
fn names_with_many_dots_cost_no_stack() {
    on_a_small_stack(|| {
        let dotted = vec!["a"; 100_000].join(".");
        let rest = format!(
            "
context:
- {{name: {dotted}, variable: {{value: 1}}}}
generate: {{apiVersion: v1, kind: Secret, name: 'x-{{{{ length(a) }}}}', namespace: dev}}
"
        );
        let rules = rules(&policy(&rest));
        let outcomes = run(&rules, &Event::created(config_map(&value!({}))), &Objects::default());
        assert_eq!(outcomes[0].verdict, Verdict::Pass, "{:?}", outcomes[0].failures);
    });
}

#[test]
fn what_an_element_loads_is_given_back() {
    let mut data = list_of("x", 50);
    data.set(["text"], "x".repeat(10_000).as_str()).unwrap();
    let rest = PER_ELEMENT.replace(
        "    apiVersion: v1",
        "    context: [{name: a, variable: {jmesPath: request.object.data.text}}]\n    preconditions: {all: [{key: '{{ length(a) }}', operator: Equals, value: 10000}]}\n    apiVersion: v1",
    );
    let rules = rules(&policy(&rest));
    let limits = EvaluationLimits { context_bytes: 20_000, ..EvaluationLimits::default() };
    let event = Event::created(config_map(&data));
    let outcome = run_within(&rules, &event, &Objects::default(), limits).remove(0);
    assert_eq!(
        (outcome.verdict, outcome.effects.len()),
        (Verdict::Pass, 50),
        "{:?}",
        outcome.failures
    );
}
