//! CleanupPolicy, ClusterCleanupPolicy and DeletingPolicy: what they delete, and what is refused about them.

use kiln_engine::{Effect, EvalEnv, Event, RuleOutcome, RuleSet};
use kiln_object::Kinds;
use kiln_rules::{Payload, Program, Propagation};
use kiln_value::{Value, value};

use crate::support::{Objects, compiled, documents, messages, objects};

fn cleanup(kind: &str, spec: &str) -> String {
    let namespace = if kind == "CleanupPolicy" { ", namespace: dev" } else { "" };
    format!(
        "apiVersion: kyverno.io/v2\nkind: {kind}\nmetadata: {{name: sweep{namespace}}}\nspec:\n  {}\n",
        spec.trim().replace('\n', "\n  ")
    )
}

fn deleting(kind: &str, spec: &str) -> String {
    cleanup(kind, spec).replace("kyverno.io/v2", "policies.kyverno.io/v1")
}

const PODS: &str = "schedule: '* * * * *'\nmatch: {any: [{resources: {kinds: [Pod]}}]}";
const PODS_IN_CEL: &str = "schedule: '* * * * *'\nmatchConstraints: {resourceRules: [{apiGroups: [''], \
                           apiVersions: [v1], operations: [DELETE], resources: [pods]}]}";

fn pod(name: &str, namespace: &str, more: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: {namespace}{more}}}, \
         spec: {{containers: [{{name: a, image: 'nginx:1'}}]}}}}"
    )
}

fn outcome(event: &Event, policies: &str, others: &str) -> Option<RuleOutcome> {
    let compiled = compiled(policies);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
    let (kinds, view) = (Kinds::builtin(), Objects(objects(others)));
    rules.evaluate(event, &EvalEnv::of(&view, &kinds)).pop()
}

/// What becomes of an object: `delete`, `keep`, the first failure, or nothing.
fn fate_with(policies: &str, object: &str, others: &str) -> String {
    let event = Event::existing(objects(object).remove(0));
    let Some(outcome) = outcome(&event, policies, others) else { return "none".to_owned() };
    if let Some(failure) = outcome.failures.first() {
        return format!("error: {}", failure.message);
    }
    let deletes = outcome.effects.iter().any(|effect| matches!(effect, Effect::DeleteObject(_)));
    let said = outcome.why.as_deref().unwrap_or_default();
    let expected = if deletes { "resource matched" } else { "resource did not match" };
    if said == expected {
        if deletes { "delete" } else { "keep" }.to_owned()
    } else {
        said.to_owned()
    }
}

fn fate(policies: &str, object: &str) -> String {
    fate_with(policies, object, "")
}

#[test]
fn an_object_goes_that_matches_and_for_which_the_conditions_hold() {
    let with = |conditions: &str| {
        cleanup("ClusterCleanupPolicy", &format!("{PODS}\nconditions: {conditions}"))
    };
    let named = with("{all: [{key: '{{ target.metadata.name }}', operator: Equals, value: old}]}");
    assert_eq!(fate(&named, &pod("old", "dev", "")), "delete");
    assert_eq!(fate(&named, &pod("new", "dev", "")), "keep");
    let both = with(
        "\n    any: [{key: '{{ target.metadata.name }}', operator: Equals, value: old}]\n    all: [{key: '{{ target.metadata.namespace }}', operator: Equals, value: dev}]",
    );
    assert_eq!(fate(&both, &pod("old", "dev", "")), "delete");
    assert_eq!(fate(&both, &pod("old", "prod", "")), "keep");
    let images =
        with("{all: [{key: '{{ images.containers.a.name }}', operator: Equals, value: nginx}]}");
    assert_eq!(fate(&images, &pod("old", "dev", "")), "delete");
    // Of a field that is missing nothing is known, so that the object stays.
    let missing =
        with("{all: [{key: '{{ target.metadata.labels.ttl }}', operator: Equals, value: x}]}");
    assert!(fate(&missing, &pod("old", "dev", "")).starts_with("error: "));
    let guarded = with(
        "{all: [{key: \"{{ target.metadata.labels.ttl || '' }}\", operator: Equals, value: ''}]}",
    );
    assert_eq!(fate(&guarded, &pod("old", "dev", "")), "delete");
}

#[test]
fn a_policy_of_a_namespace_deletes_there_alone() {
    let own = cleanup("CleanupPolicy", PODS);
    assert_eq!(fate(&own, &pod("a", "dev", "")), "delete");
    assert_eq!(fate(&own, &pod("a", "prod", "")), "keep");
    let of_cluster = cleanup(
        "ClusterCleanupPolicy",
        "schedule: '@daily'\nmatch: {any: [{resources: {kinds: [Pod], operations: [DELETE]}}]}\n\
         exclude: {any: [{resources: {namespaces: [prod]}}]}",
    );
    assert_eq!(fate(&of_cluster, &pod("a", "dev", "")), "delete");
    assert_eq!(fate(&of_cluster, &pod("a", "prod", "")), "keep");
}

#[test]
fn named_values_are_the_same_for_all_objects() {
    let policy = cleanup(
        "ClusterCleanupPolicy",
        &format!(
            "{PODS}\ncontext:\n- name: marked\n  apiCall: {{urlPath: /api/v1/namespaces/dev, jmesPath: metadata.labels.marked}}\n- name: name\n  variable: {{value: '{{{{ marked }}}}-pod'}}\nconditions: {{all: [{{key: '{{{{ target.metadata.name }}}}', operator: Equals, value: '{{{{ name }}}}'}}]}}"
        ),
    );
    let namespace =
        "{apiVersion: v1, kind: Namespace, metadata: {name: dev, labels: {marked: old}}}";
    assert_eq!(fate_with(&policy, &pod("old-pod", "dev", ""), namespace), "delete");
    assert_eq!(fate_with(&policy, &pod("new-pod", "dev", ""), namespace), "keep");
    // They do not see the object.
    let seeing = cleanup(
        "ClusterCleanupPolicy",
        &format!(
            "{PODS}\ncontext: [{{name: x, variable: {{value: '{{{{ target.metadata.name }}}}'}}}}]"
        ),
    );
    assert!(compiled(&seeing).has_errors());
}

#[test]
fn conditions_in_cel_must_all_be_true_and_one_that_fails_keeps() {
    let with = |rest: &str| deleting("DeletingPolicy", &format!("{PODS_IN_CEL}\n{rest}"));
    assert_eq!(fate(&with(""), &pod("a", "dev", "")), "delete", "operations say nothing");
    let named = with("conditions: [{name: c, expression: object.metadata.name == 'a'}]");
    assert_eq!(fate(&named, &pod("a", "dev", "")), "delete");
    assert_eq!(fate(&named, &pod("b", "dev", "")), "keep");
    assert_eq!(
        fate(&named, "{apiVersion: v1, kind: Secret, metadata: {name: a, namespace: dev}}"),
        "none"
    );
    let odd = "conditions: [{name: odd, expression: object.metadata.labels.a == 'b'}, \
               {name: c, expression: object.metadata.name == 'a'}]";
    assert!(fate(&with(odd), &pod("a", "dev", "")).starts_with("error: "));
    assert_eq!(fate(&with(odd), &pod("b", "dev", "")), "keep", "false counts more than failed");
    let named = "variables: [{name: old, expression: \"object.metadata.name.startsWith('old-')\"}]\n\
                 conditions: [{name: c, expression: variables.old}]";
    assert_eq!(fate(&with(named), &pod("old-a", "dev", "")), "delete");
    assert_eq!(fate(&with(named), &pod("a", "dev", "")), "keep");
    // No request makes it run.
    let asks = with("conditions: [{name: c, expression: \"request.operation == 'CREATE'\"}]");
    assert!(fate(&asks, &pod("a", "dev", "")).starts_with("error: "));
    let warned = messages(&compiled(&asks));
    assert!(
        warned.iter().any(|line| line.contains("there is no request when the policy runs")),
        "{warned:?}"
    );
}

#[test]
fn the_namespace_of_an_object_is_known_and_a_namespace_is_its_own() {
    let spec =
        "conditions: [{name: c, expression: \"namespaceObject.metadata.labels.env == 'test'\"}]";
    let policy = deleting(
        "DeletingPolicy",
        &format!("{}\n{spec}", PODS_IN_CEL.replace("[pods]", "[pods, namespaces]")),
    );
    let namespace = |env: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: dev, labels: {{env: {env}}}}}}}"
        )
    };
    assert_eq!(fate_with(&policy, &pod("a", "dev", ""), &namespace("test")), "delete");
    assert_eq!(fate_with(&policy, &pod("a", "dev", ""), &namespace("prod")), "keep");
    assert_eq!(fate(&policy, &namespace("test")), "delete");
    let own =
        deleting("NamespacedDeletingPolicy", PODS_IN_CEL).replace("sweep", "sweep, namespace: dev");
    assert_eq!(fate(&own, &pod("a", "dev", "")), "delete");
    assert_eq!(fate(&own, &pod("a", "prod", "")), "none");
}

#[test]
fn any_exception_that_means_an_object_keeps_it() {
    let exception = |more: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {{name: spare, namespace: dev}}\nspec:\n  policyRefs: [{{name: sweep, kind: DeletingPolicy}}]\n  {more}\n"
        )
    };
    let policy = deleting("DeletingPolicy", PODS_IN_CEL);
    let with = |more: &str| format!("{policy}---\n{}", exception(more));
    let named = "matchConditions: [{name: c, expression: object.metadata.name == 'a'}]";
    assert_eq!(fate(&with(named), &pod("a", "dev", "")), "kept by policy exception dev/spare");
    assert_eq!(fate(&with(named), &pod("b", "dev", "")), "delete");
    // What it would allow is not looked at.
    let images = format!("images: ['x']\n  {named}");
    assert_eq!(fate(&with(&images), &pod("a", "dev", "")), "kept by policy exception dev/spare");
    let odd = "matchConditions: [{name: c, expression: object.metadata.labels.a == 'b'}]";
    assert!(fate(&with(odd), &pod("a", "dev", "")).starts_with("error: "));
}

#[test]
fn what_another_rule_generated_is_warned_of() {
    let policy = deleting("DeletingPolicy", PODS_IN_CEL);
    let made = pod("a", "dev", ", labels: {generate.kyverno.io/policy-name: defaults}");
    let event = Event::existing(objects(&made).remove(0));
    let outcome = outcome(&event, &policy, "").unwrap();
    let warned = outcome.effects.iter().find_map(|effect| match effect {
        Effect::Warn(warning) => Some(warning.message.clone()),
        _ => None,
    });
    assert_eq!(
        warned.as_deref(),
        Some("v1/Pod/dev/a was generated by policy defaults, which may create it again")
    );
}

#[test]
fn data_is_judged_by_conditions_alone() {
    let policy = deleting(
        "DeletingPolicy",
        "schedule: '@hourly'\nconditions: [{name: c, expression: object.key == 'old'}]",
    );
    let warned = messages(&compiled(&policy));
    assert!(warned[0].contains("spec.matchConstraints: Required value"), "{warned:?}");
    let said = |data: Value| {
        let event = Event::brought(Payload::Json, "data.json", data);
        outcome(&event, &policy, "").and_then(|outcome| outcome.why.map(Into::<String>::into))
    };
    assert_eq!(said(value!({"key": "old"})).as_deref(), Some("json matched"));
    assert_eq!(said(value!({"key": "new"})).as_deref(), Some("json did not match"));
    // Objects of a cluster are not.
    assert_eq!(fate(&policy, &pod("a", "dev", "")), "none");
}

#[test]
fn schedules_and_propagation_are_read() {
    let text = cleanup(
        "ClusterCleanupPolicy",
        &format!("{PODS}\ndeletionPropagationPolicy: Foreground")
            .replace("'* * * * *'", "'@every 90s'"),
    );
    let compiled = compiled(&text);
    let Program::Delete(delete) = &compiled.policies[0].rules[0].program else {
        panic!("{compiled:?}")
    };
    assert_eq!(delete.propagation, Some(Propagation::Foreground));
    assert_eq!(delete.schedule.next(0), Some(90));
}

#[test]
fn what_kyverno_refuses_is_refused_in_its_words_and_with_its_place() {
    let match_pods = "match: {any: [{resources: {kinds: [Pod]}}]}";
    for (policy, expected) in [
        (
            cleanup("ClusterCleanupPolicy", &format!("schedule: invalid-schedule\n{match_pods}")),
            "policy.yaml:5:29: spec.schedule: Invalid value: \"invalid-schedule\": schedule spec in the cleanupPolicy is not in proper cron format",
        ),
        (
            cleanup("ClusterCleanupPolicy", &format!("schedule: '5 25 * * *'\n{match_pods}")),
            "policy.yaml:5:16: spec.schedule: Invalid value: \"5 25 * * *\": schedule spec in the cleanupPolicy is not in proper cron format (the hour 25 is not in 0-23)",
        ),
        (
            deleting("DeletingPolicy", &PODS_IN_CEL.replace("* * * * *", "* * * * * *")),
            "schedule spec in the deletingPolicy is not in proper cron format: a schedule has five fields",
        ),
        (
            cleanup("ClusterCleanupPolicy", match_pods),
            "policy.yaml:5:3: spec.schedule: Required value: schedule is required",
        ),
        (
            cleanup(
                "ClusterCleanupPolicy",
                &format!("{PODS}\ncontext: [{{name: c, configMap: {{name: c, namespace: d}}}}]"),
            ),
            "policy.yaml:7:13: ConfigMap is not allowed in CleanUp Policy",
        ),
        (
            cleanup(
                "ClusterCleanupPolicy",
                &format!("{PODS}\ncontext: [{{name: c, imageRegistry: {{reference: x}}}}]"),
            ),
            "ImageRegistry is not allowed in CleanUp Policy",
        ),
        (
            cleanup("ClusterCleanupPolicy", &PODS.replace("resources:", "roles: [a], resources:")),
            "spec.match.any[0].roles: Forbidden: user information is not allowed in cleanup policies",
        ),
        (
            cleanup("CleanupPolicy", &PODS.replace("[Pod]", "[Pod, Namespace]")),
            "Cluster wide resource 'Namespace' not allowed in namespaced policy",
        ),
        (
            cleanup("CleanupPolicy", &PODS.replace("[Pod]", "[Pod], namespaces: [a]")),
            "Filtering namespaces not allowed in namespaced policies",
        ),
        (
            cleanup(
                "ClusterCleanupPolicy",
                &format!("{PODS}\nexclude: {{any: [{{resources: {{kinds: [Pod]}}}}]}}"),
            ),
            "spec: Invalid value: CleanupPolicy is matching an empty set",
        ),
        (
            cleanup(
                "ClusterCleanupPolicy",
                &format!(
                    "{PODS}\nconditions: {{all: [{{key: '{{{{ request.object.kind }}}}', operator: Equals, value: Pod}}]}}"
                ),
            ),
            "variable substitution failed for policy sweep: {{ request.object.kind }} at spec.conditions.all[0].key",
        ),
        (
            cleanup("ClusterCleanupPolicy", &format!("{PODS}\ndeletionPropagationPolicy: Never")),
            "spec.deletionPropagationPolicy: Unsupported value: \"Never\": supported values: \"Foreground\", \"Background\", \"Orphan\"",
        ),
        (
            cleanup("ClusterCleanupPolicy", &format!("{PODS}\nshedule: x")),
            "unknown field spec.shedule (did you mean \"schedule\"?)",
        ),
        (
            deleting("DeletingPolicy", "schedule: '@daily'\nmatchConstraints: {}"),
            "spec.matchConstraints: Required value: a matchConstraints with at least one resource rule is required",
        ),
        (
            deleting(
                "DeletingPolicy",
                &format!("{PODS_IN_CEL}\nconditions: [{{name: c, expression: '1'}}]"),
            ),
            "output is expected to be of type bool",
        ),
    ] {
        let compiled = compiled(&policy);
        assert!(compiled.has_errors(), "it is accepted: {policy}");
        let said = messages(&compiled).join("\n");
        assert!(said.contains(expected), "{expected}\n{said}\n{policy}");
        assert!(compiled.policies.is_empty());
    }
}

#[test]
fn a_day_that_never_comes_is_warned_of() {
    let never = cleanup("ClusterCleanupPolicy", &PODS.replace("* * * * *", "0 0 31 2 *"));
    let said = messages(&compiled(&never));
    assert!(said[0].contains("no day meets the schedule \"0 0 31 2 *\""), "{said:?}");
}

#[test]
fn policies_of_the_library_and_of_the_recorded_suites_are_read() {
    let Some(root) = kiln_testkit::corpus("policy-library") else { return };
    for file in [
        "cleanup-dpol/cleanup-bare-pods/cleanup-bare-pods.yaml",
        "cleanup-dpol/cleanup-empty-replicasets/cleanup-empty-replicasets.yaml",
    ] {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        let compiled = kiln_dialects::compile(&documents(file, &text), &Kinds::builtin());
        assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
        assert_eq!(compiled.policies.len(), 1, "{file}");
    }
}
