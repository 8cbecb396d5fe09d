//! `kiln doctor` about policies: the rights that they need, what their status says, and who stored them.

use crate::clusters::doctor_patient::{Patient, patiently};
use crate::harness::SETTINGS_POLICY;

#[test]
fn roles_that_policies_lack_can_be_applied_side_by_side() {
    let Some(patient) = Patient::new() else { return };
    for (namespace, kind) in [("shop", "ServiceAccount"), ("lab", "Endpoints")] {
        patient.cluster.kubectl(&["create", "namespace", namespace]).unwrap();
        patient
            .cluster
            .apply(&format!(
                "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {{name: np, namespace: {namespace}}}\nspec:\n  rules:\n  \
                 - name: make\n    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}\n    \
                 generate: {{apiVersion: v1, kind: {kind}, name: made, namespace: {namespace}, data: {{}}}}\n"
            ))
            .unwrap();
    }
    let lacking = patient.finds("permissions");
    let roles: Vec<&str> = lacking
        .iter()
        .filter(|[state, ..]| state == "problem")
        .map(|[_, _, hint]| hint.split_once("apply:\n").unwrap().1)
        .collect();
    assert_eq!(roles.len(), 2, "{lacking:?}");
    for role in roles {
        patient.cluster.apply(role).unwrap();
    }
    // Kubernetes collects what roles with a label hold.
    let is_well = |found: &Vec<[String; 3]>| found.iter().all(|[state, ..]| state == "ok");
    patiently(|| patient.finds("permissions"), is_well);
}

const OF_NAMESPACE: &str = "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {name: own, namespace: default}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
---
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: let-be, namespace: default}
spec:
  exceptions: [{policyName: default/own, ruleNames: [label]}]
  match: {any: [{resources: {kinds: [ConfigMap], names: [a]}}]}
---
apiVersion: kyverno.io/v2
kind: CleanupPolicy
metadata: {name: sweep, namespace: default}
spec: {schedule: '0 0 * * *', match: {any: [{resources: {kinds: [ConfigMap]}}]}}
";

const IN_CEL: &str = "
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: notes}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  generate: [{expression: \"generator.Apply(object.metadata.name, [])\"}]
---
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: Object.data{owner: \"cel\"}}'}
";

#[test]
fn only_kinds_that_get_an_author_lack_one() {
    let Some(patient) = Patient::new() else { return };
    patient.cluster.apply(OF_NAMESPACE).unwrap();
    let found = patient.finds("authors");
    let found: Vec<_> = found.iter().map(|[_, message, _]| message.as_str()).collect();
    assert_eq!(
        found,
        [
            "the author of kyverno.io/v1/Policy/default/own is not recorded: it has the engine's permissions in its namespace",
            "the author of kyverno.io/v2/CleanupPolicy/default/sweep is not recorded: it has the engine's permissions in its namespace",
        ]
    );

    // Policies for all namespaces have an author too if users want it so.
    patient.cluster.apply(SETTINGS_POLICY).unwrap();
    assert_eq!(patient.finds("authors").len(), 2);
    let all = r#"{"data": {"kiln.authorRights": "all"}}"#;
    let patch = ["patch", "configmap", "kyverno", "--namespace=kyverno", "--type=merge"];
    patient.cluster.kubectl(&[&patch[..], &["--patch", all]].concat()).unwrap();
    let found = patient.finds("authors");
    let wanted = "the author of kyverno.io/v1/ClusterPolicy/settings is not recorded: it has the engine's permissions";
    assert_eq!(found.len(), 3, "{found:#?}");
    assert!(found.iter().any(|[_, message, _]| message == wanted), "{found:#?}");
}

#[test]
fn policies_that_say_they_do_not_act_are_found_in_every_language() {
    let Some(patient) = Patient::new() else { return };
    patient.cluster.apply(OF_NAMESPACE).unwrap();
    patient.cluster.apply(IN_CEL).unwrap();
    let says = |policy: &str, status: &str| {
        let (kind, name) = policy.split_once('/').unwrap();
        let status = format!(r#"{{"status": {status}}}"#);
        let patch =
            ["patch", kind, name, "--subresource=status", "--type=merge", "--patch", &status];
        patient.cluster.kubectl(&patch).unwrap();
    };
    let condition = |kind: &str, word: &str, reason: &str, message: &str| {
        format!(
            r#"{{"type": "{kind}", "status": "{word}", "reason": "{reason}", "message": "{message}",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}}"#
        )
    };
    let in_cel = |ready: bool, conditions: &[String]| {
        let conditions = conditions.join(",");
        format!(
            r#"{{"conditionStatus": {{"ready": {ready}, "message": "", "conditions": [{conditions}]}}}}"#
        )
    };
    let found = || {
        let found = patient.finds("policies");
        found.into_iter().filter(|[state, ..]| state == "problem").collect::<Vec<_>>()
    };
    assert_eq!(found(), [[""; 3]; 0]);

    // Only webhooks are missing, which is reported elsewhere.
    let no_webhook = condition("WebhookConfigured", "False", "Failed", "nothing answers");
    says("generatingpolicies/notes", &in_cel(true, std::slice::from_ref(&no_webhook)));
    assert_eq!(found(), [[""; 3]; 0]);

    let readable = condition("TriggersReadable", "False", "Failed", "rule notes: no");
    let good = condition("WebhookConfigured", "True", "Succeeded", "Webhook configured.");
    says("generatingpolicies/notes", &in_cel(true, &[good, readable]));
    let no_rights = condition("RBACPermissionsGranted", "False", "Failed", "nothing answers");
    says("mutatingpolicies/owner", &in_cel(false, &[no_webhook, no_rights]));
    // It is left to others, who write its status.
    let foreign = condition("Ready", "False", "Failed", "foreign");
    says("cleanuppolicies/sweep", &format!(r#"{{"conditions": [{foreign}]}}"#));
    let no_admission = condition("Ready", "False", "NoAdmission", "nothing answers");
    says(
        "policies.kyverno.io/own",
        &format!(r#"{{"ready": false, "conditions": [{no_admission}]}}"#),
    );
    let found = found();
    let wanted = [
        (
            "kyverno.io/v1/Policy/default/own is not ready: nothing answers",
            "let an engine answer requests",
        ),
        ("kyverno.io/v2/CleanupPolicy/default/sweep is not ready: foreign", "the policy is valid"),
        (
            "policies.kyverno.io/v1/GeneratingPolicy/notes is not triggered by all kinds that it names: rule notes: no",
            "list and watch these kinds",
        ),
        (
            "policies.kyverno.io/v1/MutatingPolicy/owner is not ready: nothing answers",
            "the policy is valid",
        ),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for ([_, message, hint], (wanted, hinted)) in found.iter().zip(wanted) {
        assert_eq!(message, wanted);
        assert!(hint.contains(hinted), "{message}: {hint}");
    }
}
