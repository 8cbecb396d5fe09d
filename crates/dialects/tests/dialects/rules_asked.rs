//! How many rules a review asks: those that may apply, however many there are.

use std::cell::Cell;

use kiln_engine::{EvalEnv, EvaluationLimits, Event, Mutated, RuleSet, Verdict};
use kiln_object::Kinds;
use kiln_value::Value;

use crate::support::{Objects, objects, rules};

/// What rules make of an event, and how many were asked.
fn asked(set: &RuleSet, event: &Event, limits: EvaluationLimits) -> (usize, Mutated) {
    let (kinds, view, asked) = (Kinds::builtin(), Objects::default(), Cell::new(0));
    let env = EvalEnv { limits, ..EvalEnv::of(&view, &kinds) };
    let mutated = set.mutate_each(event, &env, |_, event| {
        asked.set(asked.get() + 1);
        event.clone()
    });
    (asked.get(), mutated)
}

/// The rules that came to something, and to what.
fn results(mutated: &Mutated) -> Vec<String> {
    let some = mutated.outcomes.iter().filter(|outcome| outcome.verdict != Verdict::NoMatch);
    some.map(|o| format!("{}: {} {:?}", o.rule, o.verdict.as_str(), o.failures)).collect()
}

/// A review finds the rules that apply, whether it asks all of them or those that an index gives. Gives how many it asked.
#[track_caller]
fn same_as_asking_all(set: &RuleSet, event: &Event) -> usize {
    let limits = EvaluationLimits::default();
    // To say why rules do not match, each has to be asked.
    let (_, all) = asked(set, event, limits.traced());
    let (few, found) = asked(set, event, limits);
    assert_eq!(results(&found), results(&all));
    assert_eq!(found.object, all.object);
    few
}

fn policy(name: &str, resources: &str, label: &str) -> String {
    format!(
        "---\napiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n  - name: r\n    \
         match: {{any: [{{resources: {{kinds: [ConfigMap], {resources}}}}}]}}\n    \
         mutate: {{patchStrategicMerge: {{metadata: {{labels: {{{label}}}}}}}}}\n"
    )
}

fn config_map(metadata: &str) -> Value {
    objects(&format!("{{apiVersion: v1, kind: ConfigMap, metadata: {{{metadata}}}}}")).remove(0)
}

#[test]
fn a_review_asks_three_of_1000_policies() {
    let of = |number: usize| match number {
        // As in clusters with many teams: each policy is for one application, object or namespace.
        250 => "names: [settings]".to_owned(),
        500 => "namespaces: [team-1]".to_owned(),
        _ => format!("selector: {{matchLabels: {{app: app-{number}}}}}"),
    };
    let text: String =
        (0..1000).map(|n| policy(&format!("p-{n:04}"), &of(n), "seen: 'yes'")).collect();
    let set = rules(&text);
    let settings =
        Event::created(config_map("name: settings, namespace: team-1, labels: {app: app-7}"));
    assert_eq!(same_as_asking_all(&set, &settings), 3);
    let other = Event::created(config_map("name: other, namespace: team-2, labels: {app: none}"));
    assert_eq!(same_as_asking_all(&set, &other), 0);
    // A name and a namespace stay what they are; what an object loses is not forgotten.
    let found = |event: &Event| set.candidates(event).count();
    assert_eq!((found(&settings), found(&other)), (1000, 998));
}

#[test]
fn a_review_asks_the_mod_rules_that_may_match() {
    let rule = |number: u32| {
        let app =
            if number.is_multiple_of(100) { "web".to_owned() } else { format!("web-{number}") };
        format!(
            r#"---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {{name: rule-{number:04}, namespace: team-1}}
spec:
  type: Patch
  executionTier: {tier}
  match:
  - {{select: $.kind, matchValue: Deployment}}
  - {{select: '$.spec.containers[*].image', matchRegex: '^registry'}}
  - {{select: '$.spec.containers[? @.name == "main"].image', matchRegex: shop}}
  - {{select: $.metadata.labels.app, matchValue: {app}}}
  patch:
  - {{op: add, path: /metadata/labels/rule-{number:04}, value: 'yes'}}
"#,
            tier = number % 3
        )
    };
    let set = rules(&(0..1000).map(rule).collect::<String>());
    let deployment = |app: &str, namespace: &str| {
        let text = format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web, namespace: {namespace}, labels: {{app: {app}}}}}, \
             spec: {{containers: [{{name: main, image: registry.example.com/shop}}]}}}}"
        );
        Event::created(objects(&text).remove(0))
    };
    assert_eq!(same_as_asking_all(&set, &deployment("web", "team-1")), 10);
    assert_eq!(same_as_asking_all(&set, &deployment("web-17", "team-1")), 1);
    assert_eq!(same_as_asking_all(&set, &deployment("web", "team-2")), 0);
    // A boolean is a verdict, whatever the value that is asked for.
    assert_eq!(same_as_asking_all(&set, &deployment("true", "team-1")), 1000);
    assert_eq!(same_as_asking_all(&set, &deployment("[web-1, web]", "team-1")), 1000);
}

#[test]
fn a_rule_sees_what_the_rules_before_it_made() {
    let text = [
        policy("a", "selector: {matchLabels: {step: one}}", "step: two"),
        policy("b", "selector: {matchLabels: {step: two}}", "step: three"),
        policy(
            "c",
            "selector: {matchExpressions: [{key: step, operator: In, values: [three, four]}]}",
            "done: 'yes'",
        ),
        policy("d", "selector: {matchLabels: {step: one}}", "never: 'yes'"),
    ];
    let set = rules(&text.concat());
    let event = Event::created(config_map("name: x, namespace: team, labels: {step: one}"));
    assert_eq!(same_as_asking_all(&set, &event), 3);
    let (_, mutated) = asked(&set, &event, EvaluationLimits::default());
    let labels = mutated.object.get_path(["metadata", "labels"]).unwrap();
    assert_eq!(*labels, kiln_value::value!({"step": "three", "done": "yes"}));
}

#[test]
fn tiers_of_mod_rules_see_what_the_tiers_before_them_made() {
    let rule = |name: &str, tier: i32, wants: &str, makes: &str| {
        format!(
            "---\napiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: {name}, namespace: team}}\nspec:\n  type: Patch\n  \
             executionTier: {tier}\n  match: [{{select: $.metadata.labels.step, matchValue: {wants}}}]\n  \
             patch: [{{op: add, path: /metadata/labels/step, value: {makes}}}]\n"
        )
    };
    let text = [
        rule("a", 0, "one", "two"),
        rule("b", 0, "two", "nothing"),
        rule("c", 1, "two", "three"),
        rule("d", 1, "two", "four"),
        rule("e", 2, "four", "five"),
        rule("f", 2, "three", "nothing"),
    ];
    let set = rules(&text.concat());
    let event = Event::created(config_map("name: x, namespace: team, labels: {step: one}"));
    same_as_asking_all(&set, &event);
    let (_, mutated) = asked(&set, &event, EvaluationLimits::default());
    let ran: Vec<_> = mutated.outcomes.iter().map(|o| o.rule.rule.to_string()).collect();
    assert_eq!(ran, ["a", "c", "d", "e"]);
}

#[test]
fn an_index_leaves_no_rule_out() {
    let selector = |labels: &str| format!("selector: {{matchLabels: {{{labels}}}}}");
    let mut text = [
        "names: [x]",
        "names: ['x*']",
        "names: [x, generated-]",
        "namespaces: [team]",
        "namespaces: ['te*', other]",
        "namespaces: ['']",
        &selector("app: web"),
        &selector("'app*': web"),
        &selector("app: web, tier: front"),
        &selector("app: '7'"),
        &selector("app: 'true'"),
        "names: [x], namespaces: [team], operations: [UPDATE]",
        "selector: {matchExpressions: [{key: app, operator: NotIn, values: [web]}]}",
        "selector: {matchExpressions: [{key: app, operator: Exists}]}",
        "annotations: {app: web}",
    ]
    .iter()
    .enumerate()
    .map(|(at, resources)| policy(&format!("p{at:02}"), resources, &format!("p{at:02}: 'yes'")))
    .collect::<String>();
    for (name, filters) in [
        (
            "all",
            "all: [{resources: {kinds: [ConfigMap], names: [x]}}, {resources: {namespaces: [team]}}]",
        ),
        (
            "any",
            "any: [{resources: {kinds: [Secret], names: [z]}}, {resources: {kinds: [ConfigMap], names: [x]}}]",
        ),
        (
            "some",
            "any: [{resources: {kinds: [ConfigMap], names: [z]}}, {resources: {kinds: ['*Map']}}]",
        ),
        ("both", "any: [{resources: {kinds: [ConfigMap], names: [z], namespaces: [team]}}]"),
    ] {
        text.push_str(
            &policy(name, "", &format!("{name}: 'yes'"))
                .replace("any: [{resources: {kinds: [ConfigMap], }}]", filters),
        );
    }
    let set = rules(&text);
    assert_eq!(set.rules().count(), 19);
    let mut asked = 0;
    let mut events = 0;
    for name in ["name: x", "name: xy", "name: z", "generateName: generated-", "generateName: x"] {
        for namespace in ["", ", namespace: team", ", namespace: other"] {
            for labels in [
                "",
                "{app: web}",
                "{app: web, tier: front}",
                "{app: 7}",
                "{app: true}",
                "{step: a}",
            ] {
                let labels =
                    if labels.is_empty() { String::new() } else { format!(", labels: {labels}") };
                let object = config_map(&format!("{name}{namespace}{labels}"));
                let old = config_map(&format!("{name}{namespace}, labels: {{app: web}}"));
                for event in [
                    Event::created(object.clone()),
                    Event::updated(old.clone(), object.clone()),
                    Event::deleted(object.clone()),
                    Event {
                        name: "x".into(),
                        namespace: Some("team".into()),
                        ..Event::created(object)
                    },
                ] {
                    asked += same_as_asking_all(&set, &event);
                    events += 1;
                }
            }
        }
    }
    assert!(asked < events * 16, "{asked} rules were asked for {events} events");
}

#[test]
fn a_rule_that_exceeds_a_limit_says_so_all_the_same() {
    let rule = |select: &str| {
        rules(&format!(
            "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: deep, namespace: team}}\nspec:\n  type: Patch\n  \
             match: [{{select: '{select}'}}, {{select: $.metadata.labels.app, matchValue: web}}]\n  \
             patch: [{{op: add, path: /metadata/labels/seen, value: 'yes'}}]\n"
        ))
    };
    let event = Event::created(config_map("name: x, namespace: team, labels: {app: other}"));
    let limits = EvaluationLimits { steps: 3, ..EvaluationLimits::default() };
    for select in ["$..name", "$.metadata[*]"] {
        let set = rule(select);
        let (_, mutated) = asked(&set, &event, limits);
        assert_eq!(mutated.outcomes.len(), 1, "{select}");
        assert_eq!(mutated.outcomes[0].verdict, Verdict::Error, "{select}");
    }
    assert_eq!(same_as_asking_all(&rule("$..name"), &event), 1);
    assert_eq!(same_as_asking_all(&rule("$.metadata[*]"), &event), 0);
}
