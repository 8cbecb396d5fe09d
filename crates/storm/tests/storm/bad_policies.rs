//! Each of these policies has a mistake that a storm finds.

use kiln_storm::FindingKind;

use crate::findings;

fn mutate(name: &str, kind: &str, patch: &str) -> String {
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: {name}}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}
    mutate: {patch}
"
    )
}

fn generate(name: &str, kind: &str, more: &str, target: &str) -> String {
    format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: {name}}}
spec:
  rules:
  - name: r
    {more}
    match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}
    generate: {target}
"
    )
}

/// Each write makes the annotation longer.
pub(crate) const APPENDS: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: appends}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {annotations: {trail: "{{ request.object.metadata.annotations.trail || '' }}x"}}}}
"#;

fn assert_found(policies: &str, kind: FindingKind) {
    let found = findings(policies, 24);
    let kinds: Vec<&str> = found.iter().map(|finding| finding.kind.as_str()).collect();
    assert!(found.iter().any(|finding| finding.kind == kind), "{kind}: {kinds:?}\n{policies}");
}

#[test]
fn patches_that_change_their_own_result() {
    assert_found(APPENDS, FindingKind::NotIdempotent);
    let list = mutate(
        "adds-container",
        "Pod",
        r#"{patchesJson6902: "- {op: add, path: /spec/tolerations/-, value: {key: a, operator: Exists}}"}"#,
    );
    assert_found(&list, FindingKind::NotIdempotent);
    let flips = mutate(
        "flips",
        "ConfigMap",
        r#"{patchStrategicMerge: {metadata: {labels: {mode: "{{ request.object.metadata.labels.mode == 'on' && 'off' || 'on' }}"}}}}"#,
    );
    assert_found(&flips, FindingKind::NotIdempotent);
}

#[test]
fn policies_that_depend_on_their_order() {
    let both = format!(
        "{}---{}",
        mutate("first", "ConfigMap", "{patchStrategicMerge: {metadata: {labels: {owner: a}}}}"),
        mutate("second", "ConfigMap", "{patchStrategicMerge: {metadata: {labels: {owner: b}}}}")
    );
    assert_found(&both, FindingKind::OrderDependent);
}

#[test]
fn rules_that_make_more_and_more() {
    let chain = generate(
        "chain",
        "ConfigMap",
        "skipBackgroundRequests: false",
        r#"{synchronize: true, apiVersion: v1, kind: ConfigMap, name: "{{request.object.metadata.name}}-x", namespace: "{{request.namespace}}", data: {data: {a: b}}}"#,
    );
    assert_found(&chain, FindingKind::FanOut);
    let namespaces = generate(
        "namespaces",
        "Namespace",
        "skipBackgroundRequests: false",
        r#"{synchronize: true, apiVersion: v1, kind: Namespace, name: "{{request.object.metadata.name}}-x", data: {metadata: {labels: {a: b}}}}"#,
    );
    assert_found(&namespaces, FindingKind::FanOut);
}

#[test]
fn downstream_that_two_triggers_share() {
    let shared = generate(
        "shared",
        "ConfigMap",
        "skipBackgroundRequests: true",
        r#"{synchronize: true, apiVersion: v1, kind: Secret, name: shared, namespace: storm-a, data: {stringData: {from: "{{request.object.metadata.name}}"}}}"#,
    );
    let found = findings(&shared, 40);
    let is_wanted = |kind: FindingKind| {
        matches!(
            kind,
            FindingKind::Fight
                | FindingKind::DeletedUnexpectedly
                | FindingKind::Loop
                | FindingKind::Orphaned
        )
    };
    let kinds: Vec<&str> = found.iter().map(|finding| finding.kind.as_str()).collect();
    assert!(found.iter().any(|finding| is_wanted(finding.kind)), "{kinds:?}");
}

#[test]
fn rules_that_match_nothing() {
    let excluded = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: excluded}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [prod]}}]}
    exclude: {any: [{resources: {namespaces: [prod]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
";
    assert_found(excluded, FindingKind::NeverMatches);
    let both = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: both}
spec:
  rules:
  - name: r
    match: {all: [{resources: {kinds: [ConfigMap]}}, {resources: {kinds: [Secret]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
";
    assert_found(both, FindingKind::NeverMatches);
}

#[test]
fn rule_that_fails_on_a_missing_field() {
    let missing = mutate(
        "missing",
        "ConfigMap",
        r#"{patchStrategicMerge: {metadata: {labels: {team: "{{ request.object.metadata.annotations.team }}"}}}}"#,
    );
    assert_found(&missing, FindingKind::MissingField);
}
