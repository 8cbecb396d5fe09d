//! What fires a rule: match and exclude in every form.

use crate::support::{Objects, objects, rules, run};
use kiln_engine::{Event, User};
use kiln_rules::Operation;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: dev, labels: {app: web, tier: gold}, annotations: {owner: ann}}}";
const NAMESPACES: &str =
    "{apiVersion: v1, kind: Namespace, metadata: {name: dev, labels: {team: x}}}";

fn fires(blocks: &str, event: &Event) -> bool {
    let policy = format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  background: false
  rules:
  - name: r
    {}
    generate: {{apiVersion: v1, kind: ConfigMap, name: c, namespace: x}}
",
        blocks.replace('\n', "\n    ")
    );
    let outcomes = run(&rules(&policy), event, &Objects(objects(NAMESPACES)));
    assert!(outcomes.iter().all(|outcome| outcome.failures.is_empty()), "{outcomes:#?}");
    !outcomes.is_empty()
}

fn pod() -> Event {
    Event::created(objects(POD).remove(0))
}

#[test]
fn attributes_of_one_filter_must_all_hold() {
    for (resources, wanted) in [
        ("kinds: [Pod]", true),
        ("kinds: [Deployment, Pod]", true),
        ("kinds: [v1/Pod]", true),
        ("kinds: ['*/Pod']", true),
        ("kinds: [v2/Pod]", false),
        ("kinds: [apps/v1/Pod]", false),
        ("kinds: ['P*']", true),
        ("kinds: [Pod/exec]", false),
        ("kinds: ['*/*']", true),
        ("kinds: [pod]", false),
        ("kinds: [Pod], name: 'web-?'", true),
        ("kinds: [Pod], names: ['db-*', 'web-*']", true),
        ("kinds: [Pod], names: [db-*]", false),
        ("kinds: [Pod], namespaces: [d*]", true),
        ("kinds: [Pod], namespaces: [prod]", false),
        ("kinds: [Pod], annotations: {'own*': 'a?n'}", true),
        ("kinds: [Pod], annotations: {owner: bob}", false),
        ("kinds: [Pod], selector: {matchLabels: {app: web}}", true),
        ("kinds: [Pod], selector: {matchLabels: {'a*': 'w?b'}}", true),
        ("kinds: [Pod], selector: {matchLabels: {app: '?*', tier: iron}}", false),
        (
            "kinds: [Pod], selector: {matchExpressions: [{key: tier, operator: In, values: [gold]}]}",
            true,
        ),
        (
            "kinds: [Pod], selector: {matchExpressions: [{key: tier, operator: DoesNotExist}]}",
            false,
        ),
        ("kinds: [Pod], namespaceSelector: {matchLabels: {team: x}}", true),
        (
            "kinds: [Pod], namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: dev}}",
            true,
        ),
        ("kinds: [Pod], namespaceSelector: {matchLabels: {team: z}}", false),
        ("kinds: [Pod], operations: [CREATE]", true),
        ("kinds: [Pod], operations: [UPDATE, DELETE]", false),
        ("kinds: [Pod], names: [web-*], namespaces: [prod]", false),
    ] {
        let any = format!("match: {{any: [{{resources: {{{resources}}}}}]}}");
        assert_eq!(fires(&any, &pod()), wanted, "{resources}");
        let old = format!("match: {{resources: {{{resources}}}}}");
        assert_eq!(fires(&old, &pod()), wanted, "the old form of {resources}");
    }
}

#[test]
fn filters_join_by_any_or_all_and_exclude_takes_away() {
    let yes = "{resources: {kinds: [Pod]}}";
    let no = "{resources: {kinds: [Pod], names: [other]}}";
    for (blocks, wanted) in [
        (format!("match: {{any: [{no}, {yes}]}}"), true),
        (format!("match: {{any: [{no}, {no}]}}"), false),
        (
            format!("match: {{all: [{yes}, {{resources: {{kinds: [Pod], namespaces: [dev]}}}}]}}"),
            true,
        ),
        (format!("match: {{all: [{yes}, {no}]}}"), false),
        (format!("match: {{any: [{yes}]}}\nexclude: {{any: [{no}]}}"), true),
        (
            format!(
                "match: {{any: [{yes}]}}\nexclude: {{any: [{no}, {{resources: {{namespaces: [dev]}}}}]}}"
            ),
            false,
        ),
        (
            format!(
                "match: {{any: [{yes}]}}\nexclude: {{all: [{no}, {{resources: {{namespaces: [dev]}}}}]}}"
            ),
            true,
        ),
        (format!("match: {{any: [{yes}]}}\nexclude: {{resources: {{namespaces: [dev]}}}}"), false),
        (format!("match: {{any: [{yes}]}}\nexclude: {{any: [{{resources: {{}}}}]}}"), true),
        (format!("match: {{any: [{yes}]}}\nexclude: {{}}"), true),
    ] {
        assert_eq!(fires(&blocks, &pod()), wanted, "{blocks}");
    }
}

#[test]
fn users_are_matched_when_they_are_known() {
    let user = User {
        username: "system:serviceaccount:ops:robot".into(),
        groups: vec!["system:authenticated".into(), "builders".into()],
        roles: vec!["ops:edit".into()],
        cluster_roles: vec!["view".into()],
        ..User::default()
    };
    let known = || Event { user: Some(user.clone()), ..pod() };
    for (who, wanted) in [
        ("subjects: [{kind: User, name: 'system:serviceaccount:*:robot'}]", true),
        ("subjects: [{kind: User, name: bob}]", false),
        ("subjects: [{kind: Group, name: build*}]", true),
        ("subjects: [{kind: ServiceAccount, name: robot, namespace: ops}]", true),
        ("subjects: [{kind: ServiceAccount, name: robot, namespace: dev}]", false),
        ("roles: ['ops:edit']", true),
        ("roles: ['ops:*']", false),
        ("clusterRoles: [admin, view]", true),
        ("clusterRoles: [view], roles: ['dev:edit']", false),
        ("clusterRoles: [view], subjects: [{kind: Group, name: builders}]", true),
    ] {
        let include = format!("match: {{any: [{{resources: {{kinds: [Pod]}}, {who}}}]}}");
        assert_eq!(fires(&include, &known()), wanted, "{who}");
        // The user is unknown: include blocks do not check it, exclude blocks match no user.
        assert!(fires(&include, &pod()), "{who}");
        let exclude = format!(
            "match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\nexclude: {{any: [{{{who}}}]}}"
        );
        assert_eq!(fires(&exclude, &known()), !wanted, "exclude {who}");
        assert!(fires(&exclude, &pod()), "exclude {who}");
    }
}

#[test]
fn namespaces_are_named_by_themselves_and_are_in_none() {
    let namespace = || Event::created(objects(NAMESPACES).remove(0));
    for (resources, wanted) in [
        ("kinds: [Namespace], namespaces: [dev]", true),
        ("kinds: [Namespace], namespaces: [prod]", false),
        ("kinds: [Namespace], namespaceSelector: {matchLabels: {team: x}}", false),
        ("kinds: [Namespace], selector: {matchLabels: {team: x}}", true),
    ] {
        assert_eq!(
            fires(&format!("match: {{any: [{{resources: {{{resources}}}}}]}}"), &namespace()),
            wanted,
            "{resources}"
        );
    }
}

#[test]
fn names_that_the_server_makes_up_go_by_their_beginning() {
    let pod =
        objects("{apiVersion: v1, kind: Pod, metadata: {generateName: web-, namespace: dev}}")
            .remove(0);
    assert!(fires(
        "match: {any: [{resources: {kinds: [Pod], names: [web-*]}}]}",
        &Event::created(pod)
    ));
}

#[test]
fn existing_objects_count_as_created_and_have_no_request() {
    let event = Event::existing(objects(POD).remove(0));
    assert!(fires("match: {any: [{resources: {kinds: [Pod], operations: [CREATE]}}]}", &event));
    let background = "match: {any: [{resources: {kinds: [Pod]}}]}
preconditions: {all: [{key: \"{{ request.operation || 'BACKGROUND' }}\", operator: Equals, value: BACKGROUND}]}";
    assert!(fires(background, &event));
}

#[test]
fn subresources_are_asked_for_by_name() {
    let exec = Event {
        operation: Some(Operation::Connect),
        matched_as: Operation::Connect,
        kind: kiln_object::Gvk::new("v1", "Pod"),
        subresource: "exec".into(),
        ..Event::created(objects("{apiVersion: v1, kind: PodExecOptions}").remove(0))
    };
    let debug = Event { subresource: "ephemeralcontainers".into(), ..pod() };
    for (kind, of_exec, of_debug) in [
        ("Pod", false, true),
        ("Pod/exec", true, false),
        ("v1/Pod.exec", true, false),
        ("'*/exec'", true, false),
        ("'Pod/*'", true, true),
        ("PodExecOptions", false, false),
    ] {
        let block = format!("match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}");
        assert_eq!(fires(&block, &exec), of_exec, "{kind} on exec");
        assert_eq!(fires(&block, &debug), of_debug, "{kind} on ephemeralcontainers");
    }
}
