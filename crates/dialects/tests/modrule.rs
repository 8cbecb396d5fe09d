//! ModRules as whole documents: order, reach, references, and what too much is told.

mod support;

use kiln_engine::{Effect, Event, FailureKind, Limits, Mutated, RuleSet, World};
use kiln_object::Kinds;
use kiln_value::{Value, value};
use support::{Fixed, Objects, compiled, messages, rules};

fn rule(name: &str, namespace: &str, spec: &str) -> String {
    let head = "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule";
    format!("{head}\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec:\n{spec}\n---\n")
}

/// A rule that appends its own name to a list.
fn appending(name: &str, tier: i32) -> String {
    rule(
        name,
        "dev",
        &format!(
            "  type: Patch\n  executionTier: {tier}\n  match: [{{select: $.kind, matchValue: Pod}}]\n  patch:\n  - {{op: add, path: /order/-1, value: {name}}}"
        ),
    )
}

fn mutate(set: &RuleSet, event: &Event, view: &Objects) -> Mutated {
    let kinds = Kinds::builtin();
    let sources = Fixed(std::cell::Cell::new(0));
    set.mutate(event, &World { sources: &sources, ..World::of(view, &kinds) })
}

fn pod() -> Value {
    value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "dev"}})
}

fn patched(text: &str, object: Value) -> Value {
    mutate(&rules(text), &Event::created(object), &Objects::default()).object
}

#[test]
fn rules_run_by_tier_then_by_name() {
    let text =
        [appending("c", 0), appending("a", 0), appending("z", -5), appending("b", 7)].concat();
    let after = patched(&text, pod());
    assert_eq!(after.get("order"), Some(&value!(["z", "a", "c", "b"])));
}

#[test]
fn a_failing_rule_leaves_the_others_alone() {
    let bad = rule(
        "bad",
        "dev",
        "  type: Patch\n  match: [{select: $.kind, matchValue: Pod}]\n  patch:\n  - {op: add, path: /lost, value: x}\n  - {op: replace, path: /nothing/here, value: x}",
    );
    let set = rules(&[appending("a", 0), bad, appending("c", 0)].concat());
    let Mutated { object, outcomes } = mutate(&set, &Event::created(pod()), &Objects::default());
    assert_eq!(object.get("order"), Some(&value!(["a", "c"])));
    assert_eq!(object.get("lost"), None);
    let failure = &outcomes[1].failures[0];
    assert_eq!(failure.kind, FailureKind::Patch);
    assert!(failure.message.contains("/nothing/here"), "{}", failure.message);
}

#[test]
fn references_come_from_the_cluster_and_do_not_stay() {
    let text = rule(
        "zone",
        "dev",
        "  type: Patch\n  match:\n  - {select: $.kind, matchValue: Pod}\n  - {select: $.syntheticRefs.namespace.metadata.labels.tier, matchValue: gold}\n  patch:\n  - {op: add, path: /metadata/labels/zone, value: '{{ .Target.syntheticRefs.node.metadata.labels.zone }}'}",
    );
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev", "labels": {"tier": "gold"}}});
    let node = value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": {"zone": "west"}}});
    let mut object = pod();
    object.set(["metadata", "annotations", "ref.kubemod.io/nodename"], "n1").unwrap();
    let view = Objects(vec![namespace, node]);
    let after = mutate(&rules(&text), &Event::created(object.clone()), &view).object;
    assert_eq!(after.str_at(["metadata", "labels", "zone"]), Some("west"));
    assert_eq!(after.get("syntheticRefs"), None);
    // Without the namespace nothing is known about it.
    assert_eq!(
        mutate(&rules(&text), &Event::created(object.clone()), &Objects::default()).object,
        object
    );
}

#[test]
fn refusals_name_the_rule_and_see_the_patches() {
    let reject = rule(
        "refuse",
        "dev",
        "  type: Reject\n  rejectMessage: 'order {{ .Target.order }} in {{ .Namespace }}'\n  match: [{select: 'isDefined($.order)'}]",
    );
    let set = rules(&[reject, appending("x", 3)].concat());
    let outcomes = mutate(&set, &Event::created(pod()), &Objects::default()).outcomes;
    let refused =
        outcomes.iter().flat_map(|outcome| &outcome.effects).find_map(|effect| match effect {
            Effect::Reject { message } => Some(message.as_str()),
            _ => None,
        });
    assert_eq!(refused, Some("dev/refuse: \"order [x] in dev\""));
}

#[test]
fn a_rule_sees_its_namespace_only_unless_it_reaches_beyond() {
    let body = "  match: [{select: 'isDefined($.kind)'}]\n  type: Patch\n  patch: [{op: add, path: /seen, value: yes}]";
    let regex = format!("  targetNamespaceRegex: ^dev\n{body}");
    let object = |namespace: Option<&str>| {
        let mut object = value!({"apiVersion": "v1", "kind": "Thing", "metadata": {"name": "x"}});
        if let Some(namespace) = namespace {
            object.set(["metadata", "namespace"], namespace).unwrap();
        }
        object
    };
    for (namespace, spec, of, seen) in [
        ("dev", body, Some("dev"), true),
        ("dev", body, Some("prod"), false),
        ("dev", body, None, false),
        ("kubemod-system", body, None, true),
        ("kubemod-system", body, Some("dev"), false),
        ("kubemod-system", body, Some("kubemod-system"), true),
        ("kubemod-system", regex.as_str(), Some("dev-2"), true),
        ("kubemod-system", regex.as_str(), Some("prod"), false),
        ("kubemod-system", regex.as_str(), None, false),
    ] {
        let after = patched(&rule("r", namespace, spec), object(of));
        assert_eq!(after.get("seen").is_some(), seen, "{namespace} {spec} {of:?}");
    }
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}});
    assert_eq!(patched(&rule("r", "dev", body), namespace.clone()).get("seen"), None);
    assert!(patched(&rule("r", "kubemod-system", body), namespace).get("seen").is_some());
}

#[test]
fn what_wants_too_much_fails_alone() {
    let wide = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "dev"}, "l": (0..3000).collect::<Vec<_>>()});
    for (patch, said) in [
        ("{op: add, path: /x/100000000, value: 1}", "100000000"),
        ("{op: add, path: /x, value: '{{ range until 10000000 }}x{{ end }}'}", "more than"),
        (
            "{op: add, path: /x, value: '{{ define \"a\" }}{{ template \"a\" . }}{{ end }}{{ template \"a\" . }}'}",
            "deeper",
        ),
        ("{op: add, path: '/x/#3', select: '$.l[*]', value: a}", "#3 is asked for"),
        ("{op: add, path: /x, select: '$.l[? length($.l[? @ > 5]) > 5]', value: a}", "steps"),
        ("{op: add, path: /x, value: '{{ .Target.metadata.name }}: [}'}", "no YAML"),
        ("{op: add, path: /x, value: '{{ fail \"stop\" }}'}", "stop"),
        ("{op: add, path: /x, value: '{{ .Nope }}'}", "the fields are .Namespace"),
    ] {
        let text = rule(
            "r",
            "dev",
            &format!(
                "  type: Patch\n  match: [{{select: $.kind, matchValue: Pod}}]\n  patch:\n  - {patch}"
            ),
        );
        let Mutated { object, outcomes } =
            mutate(&rules(&text), &Event::created(wide.clone()), &Objects::default());
        assert_eq!(object, wide, "{patch}");
        let failure = &outcomes[0].failures[0];
        let shown = format!("{} {:?}", failure.message, failure.hint);
        assert!(shown.contains(said), "{patch}: {shown}");
    }
    let _ = Limits::default();
}

#[test]
fn mistakes_and_doubts_are_said() {
    for (spec, said) in [
        (
            "  type: Patch\n  patch: [{op: add, path: /x}]",
            "error: policy.yaml:5:3: the field match of spec is missing",
        ),
        ("  type: Patch\n  match: []\n  patch: [{op: add, path: /x}]", "match has no item"),
        ("  type: Reject\n  match: [{select: ''}]", "the expression is empty"),
        ("  type: Reject\n  match: [{select: $.kind, matchFor: Some}]", "use Any or All"),
        ("  type: Reject\n  match: [{select: $.kind, matchValue: a, matchRegex: b}]", "warning: "),
        (
            "  type: Reject\n  targetNamespaceRegex: x\n  match: [{select: $.kind}]",
            "means nothing in namespace",
        ),
        (
            "  type: Reject\n  admissionOperations: [CONNECT]\n  match: [{select: $.kind}]",
            "use CREATE, UPDATE or DELETE",
        ),
        (
            "  type: Patch\n  admissionOperations: [DELETE]\n  match: [{select: $.kind}]\n  patch: [{op: add, path: /x}]",
            "nothing to patch",
        ),
        (
            "  type: Patch\n  rejectMessage: x\n  match: [{select: $.kind}]\n  patch: [{op: add, path: /x}]",
            "rejectMessage belongs to Reject",
        ),
    ] {
        let all = messages(&compiled(&rule("r", "dev", spec))).join("\n");
        assert!(all.contains(said), "{spec}: {all}");
    }
}
