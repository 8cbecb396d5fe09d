//! Finding rules by what an event is about.

use crate::support::{compiled, objects};
use kiln_engine::{EvalEnv, Event, RuleSet};

fn set() -> RuleSet {
    let rule = |name: &str, kinds: &str, more: &str| {
        format!(
            "  - name: {name}\n    match: {{any: [{{resources: {{kinds: {kinds}{more}}}}}]}}\n    generate: {{apiVersion: v1, kind: Secret, name: s, namespace: home}}\n"
        )
    };
    let policy = |kind: &str, name: &str, rules: &[String]| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: {kind}\nmetadata: {{name: {name}, namespace: {}}}\nspec:\n  rules:\n{}",
            if kind == "Policy" { "home" } else { "''" },
            rules.concat()
        )
    };
    let text = [
        policy(
            "ClusterPolicy",
            "z",
            &[rule("pods", "[Pod]", ""), rule("both", "[ConfigMap, Pod]", "")],
        ),
        policy(
            "ClusterPolicy",
            "a",
            &[rule("wild", "['P*']", ""), rule("new", "[Pod]", ", operations: [CREATE]")],
        ),
        policy("Policy", "local", &[rule("here", "[Pod]", "")]),
    ]
    .join("---\n");
    let compiled = compiled(&text);
    assert!(!compiled.has_errors(), "{:?}", crate::support::messages(&compiled));
    RuleSet::new(compiled.policies)
}

#[test]
fn rules_are_found_by_kind_operation_and_namespace() {
    let set = set();
    let object = |kind: &str, namespace: &str| {
        objects(&format!(
            "{{apiVersion: v1, kind: {kind}, metadata: {{name: x, namespace: {namespace}}}}}"
        ))
        .remove(0)
    };
    let names = |event: &Event| -> Vec<String> {
        set.candidates(event).map(|rule| rule.id.rule.to_string()).collect()
    };
    let connect = Event {
        matched_as: kiln_rules::Operation::Connect,
        ..Event::created(object("Pod", "away"))
    };
    assert_eq!(names(&Event::created(object("Pod", "away"))), ["wild", "new", "pods", "both"]);
    assert_eq!(
        names(&Event::created(object("Pod", "home"))),
        ["wild", "new", "pods", "both", "here"]
    );
    assert_eq!(names(&Event::created(object("ConfigMap", "home"))), ["both"]);
    assert_eq!(names(&Event::created(object("PersistentVolumeClaim", "home"))), ["wild"]);
    assert_eq!(names(&Event::created(object("Secret", "home"))), [""; 0]);
    // A deletion may end what a creation began.
    assert_eq!(names(&Event::deleted(object("Pod", "away"))), ["wild", "new", "pods", "both"]);
    assert_eq!(names(&connect), ["wild", "pods", "both"]);
    assert_eq!(set.rules().count(), 5);
    let first = set.rules().next().unwrap();
    assert_eq!(set.rule(&first.id).unwrap().id, first.id);
}

/// Recorded with Kyverno 1.19.1: a rule that cannot be evaluated leaves the object to the next one.
#[test]
fn a_rule_with_an_error_is_not_the_one_that_applies() {
    let rule = |name: &str, deny: &str| {
        format!(
            "  - name: {name}\n    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\n    validate:\n      message: refused\n      deny: {{conditions: {{any: [{deny}]}}}}\n"
        )
    };
    let fails = "{key: a, operator: Equals, value: a}";
    let errs =
        "{key: '{{ request.object.metadata.annotations.tier }}', operator: Equals, value: a}";
    let passes = "{key: a, operator: Equals, value: b}";
    let statuses = |rules: [&str; 3]| -> Vec<&'static str> {
        let rules = ["a", "b", "c"].into_iter().zip(rules).map(|(name, deny)| rule(name, deny));
        let set = crate::support::rules(&format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  applyRules: One\n  background: false\n  rules:\n{}",
            rules.collect::<String>()
        ));
        let kinds = kiln_object::Kinds::builtin();
        let view = crate::support::Objects::default();
        let pod =
            objects("{apiVersion: v1, kind: Pod, metadata: {name: x, namespace: y}}").remove(0);
        let mutated = set.mutate(&Event::created(pod), &EvalEnv::of(&view, &kinds));
        mutated.outcomes.iter().map(|outcome| outcome.status().as_str()).collect()
    };
    assert_eq!(statuses([errs, fails, passes]), ["error", "fail"]);
    assert_eq!(statuses([errs, passes, fails]), ["error", "pass"]);
    assert_eq!(statuses([fails, errs, passes]), ["fail"]);
}
