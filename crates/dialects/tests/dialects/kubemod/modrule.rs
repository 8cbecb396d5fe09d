//! ModRules as whole documents: order, reach, references, and messages about exceeded limits.

use crate::support::{Fixed, Objects, compiled, messages, rules};
use kiln_engine::{Effect, EvalEnv, Event, FailureKind, Mutated, RuleSet};
use kiln_object::Kinds;
use kiln_value::{Value, value};

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
    set.mutate(event, &EvalEnv { sources: &sources, ..EvalEnv::of(view, &kinds) })
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

/// The object after a Patch rule for Pods with these items, and what failed.
fn patch(items: &str, object: Value) -> (Value, Vec<String>) {
    let spec =
        format!("  type: Patch\n  match: [{{select: $.kind, matchValue: Pod}}]\n  patch:\n{items}");
    let set = rules(&rule("r", "dev", &spec));
    let Mutated { object, outcomes } = mutate(&set, &Event::created(object), &Objects::default());
    let failures = outcomes.iter().flat_map(|outcome| &outcome.failures);
    (object, failures.map(|failure| failure.message.clone()).collect())
}

#[test]
fn items_test_move_and_copy_as_json_patch_does() {
    let mut labelled = pod();
    labelled.set(["metadata", "labels"], value!({"a": "1", "b": "2"})).unwrap();
    let labels = |object: &Value| object.get_path(["metadata", "labels"]).unwrap().clone();
    let (moved, failed) = patch(
        "  - {op: move, from: /metadata/labels/a, path: /metadata/labels/c}",
        labelled.clone(),
    );
    assert_eq!((labels(&moved), failed.len()), (value!({"b": "2", "c": "1"}), 0), "{failed:?}");
    let (copied, _) = patch(
        "  - {op: copy, from: /metadata/labels/a, path: /metadata/labels/c}",
        labelled.clone(),
    );
    assert_eq!(labels(&copied), value!({"a": "1", "b": "2", "c": "1"}));
    // Where the test fails, nothing of the rule is done.
    for (value, done) in [("'\"1\"'", true), ("'\"2\"'", false), ("'1'", false)] {
        let items = format!(
            "  - {{op: add, path: /metadata/labels/first, value: x}}\n  - {{op: test, path: /metadata/labels/a, value: {value}}}\n  - {{op: add, path: /metadata/labels/last, value: x}}"
        );
        let (after, failed) = patch(&items, labelled.clone());
        assert_eq!(after != labelled, done, "{value}: {after:?}");
        assert_eq!(failed.is_empty(), done, "{value}: {failed:?}");
    }
    // What is not there cannot be moved, and is no reason to make it up.
    let (after, failed) =
        patch("  - {op: move, from: /nothing, path: /something}", labelled.clone());
    assert_eq!((&after, failed.len()), (&labelled, 1));
    // With select, each found place has its own operation, from the back.
    let mut containers = pod();
    containers.set(["spec", "containers"], value!([{"image": "a"}, {"image": "b"}])).unwrap();
    let (after, failed) = patch(
        "  - {op: move, select: '$.spec.containers[*].image', from: '/spec/containers/#0/image', path: '/spec/containers/#0/name'}",
        containers,
    );
    assert_eq!(failed, Vec::<String>::new());
    let list = after.get_path(["spec", "containers"]).unwrap();
    assert_eq!(*list, value!([{"name": "a"}, {"name": "b"}]));
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
            Effect::Reject { message, .. } => Some(message.as_str()),
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
        ("{op: add, path: /x, value: '{{ .Target.metadata.name }}: [}'}", "not YAML"),
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
}

#[test]
fn hostile_matches_end_inside_the_budget() {
    let long = format!("{}b", "a".repeat(100_000));
    let deep = (0..400).fold(value!(1), |inner, _| value!({ "a": inner }));
    let object = value!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "dev"},
        "long": long, "deep": deep, "l": (0..3000).collect::<Vec<_>>(),
    });
    let run = |select: &str| {
        let spec = format!("  type: Reject\n  match: [{{select: {select}}}]");
        let set = rules(&rule("r", "dev", &spec));
        let mut outcomes =
            mutate(&set, &Event::created(object.clone()), &Objects::default()).outcomes;
        outcomes.pop().map(|outcome| outcome.failures.first().map(|f| f.message.clone()))
    };
    // What other engines need longer than the universe for is not a match, at once.
    assert_eq!(run("$.long, matchRegex: ^(a+)+$"), None);
    assert_eq!(run("'$.long =~ \"^(a|a)*$\"'"), None);
    assert_eq!(run("$..*, matchValue: never"), None);
    let steps = run("'length($.l[? length($.l[? @ > 5]) > 5]) > 1'").flatten().unwrap();
    assert!(steps.contains("steps"), "{steps}");
    // What cannot be compiled within bounds is refused when the rule is read.
    let nested = format!("{}1{}", "(".repeat(5000), ")".repeat(5000));
    for (item, said) in [
        ("{select: $.kind, matchRegex: '((a{1000}){1000}){1000}'}".to_owned(), "repeat"),
        ("{select: '$.kind =~ \"((a{1000}){1000}){1000}\"'}".to_owned(), "repeat"),
        (format!("{{select: '{nested}'}}"), "nests deeper"),
    ] {
        let text = rule("r", "dev", &format!("  type: Reject\n  match: [{item}]"));
        let all = messages(&compiled(&text)).join("\n");
        assert!(all.contains(said), "{}: {all}", &item[..item.len().min(60)]);
    }
}

#[test]
fn the_request_for_a_namespace_is_not_one_in_it() {
    let body = "  match: [{select: $.kind, matchValue: Namespace}]\n  type: Patch\n  patch: [{op: add, path: /seen, value: yes}]";
    let object = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "dev"}});
    let mut event = Event::updated(object.clone(), object);
    event.namespace = Some("dev".into());
    for (namespace, seen) in [("dev", false), ("kubemod-system", true)] {
        let set = rules(&rule("r", namespace, body));
        let after = mutate(&set, &event, &Objects::default()).object;
        assert_eq!(after.get("seen").is_some(), seen, "{namespace}");
    }
}

#[test]
fn an_api_server_may_ask_again() {
    let sidecar = |name: &str, tier: i32| {
        let spec = format!(
            "  type: Patch\n  executionTier: {tier}\n  match: [{{select: $.kind, matchValue: Pod}}]\n  patch:\n  - {{op: add, path: /spec/containers/-1, value: '{{name: {name}, image: x}}'}}"
        );
        rule(name, "dev", &spec)
    };
    let set = rules(&[sidecar("a", 0), sidecar("b", 0), sidecar("c", 1)].concat());
    let names = |object: &Value| -> Vec<String> {
        let list = object.get_path(["spec", "containers"]).and_then(Value::as_list).unwrap();
        list.iter().map(|c| c.str_at(["name"]).unwrap().to_owned()).collect()
    };
    let mut object = pod();
    object.set(["spec", "containers"], value!([{"name": "main", "image": "m"}])).unwrap();
    let once = mutate(&set, &Event::created(object.clone()), &Objects::default()).object;
    assert_eq!(names(&once), ["main", "a", "b", "c"]);
    // Meanwhile the server filled in defaults, and another writer put a container in front.
    let containers = once.get_path(["spec", "containers"]).and_then(Value::as_list).unwrap();
    let filled = containers.iter().map(|container| {
        let mut container = container.clone();
        container.set(["imagePullPolicy"], "Always").unwrap();
        container
    });
    let first = value!({"name": "mesh", "image": "mesh"});
    let mut sent_again = once.clone();
    let all: Value = std::iter::once(first).chain(filled).collect();
    sent_again.set(["spec", "containers"], all).unwrap();
    let again = mutate(&set, &Event::created(sent_again.clone()), &Objects::default()).object;
    assert_eq!(names(&again), ["mesh", "main", "a", "b", "c"]);
    let update = Event::updated(object, sent_again.clone());
    assert_eq!(mutate(&set, &update, &Objects::default()).object, sent_again);
    // A later update is another request.
    let update = Event::updated(once.clone(), once);
    let twice = mutate(&set, &update, &Objects::default()).object;
    assert_eq!(names(&twice), ["main", "a", "b", "c", "a", "b", "c"]);
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
