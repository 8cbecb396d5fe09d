//! `kiln doctor` about policies: the rights that they need, what their status says, and who stored them.

use std::time::{Duration, Instant};

use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};

use crate::harness::Folder;

/// A cluster with what `kiln install` prints, and no engine.
struct Patient {
    cluster: ControlPlane,
    folder: Folder,
}

impl Patient {
    fn new() -> Option<Self> {
        let cluster = ControlPlane::for_test()?;
        let folder = Folder::with(&[]);
        cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        cluster.kubectl(&wait).unwrap();
        Some(Patient { cluster, folder })
    }

    /// What doctor finds about something, each as `state`, `message` and `hint`.
    fn finds(&self, about: &str) -> Vec<[String; 3]> {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let run = self.folder.kiln(&["doctor", "--format=json", "--kubeconfig", &kubeconfig]);
        let all = json::parse(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        let text = |found: &Value, key: &str| found.str_at([key]).unwrap_or_default().to_owned();
        let found = all.as_list().unwrap().iter();
        found
            .filter(|found| found.str_at(["about"]) == Some(about))
            .map(|found| ["state", "message", "hint"].map(|key| text(found, key)))
            .collect()
    }
}

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
    let lacking = patient.finds("rights");
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
    let begin = Instant::now();
    loop {
        let found = patient.finds("rights");
        if found.iter().all(|[state, ..]| state == "ok") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{found:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
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
            "nobody wrote down who stored kyverno.io/v1/Policy/default/own: it may do what the engine may in its namespace"
        ]
    );
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

    // Only webhooks are missing, which is told elsewhere.
    let no_webhook = condition("WebhookConfigured", "False", "Failed", "nobody answers");
    says("generatingpolicies/notes", &in_cel(true, std::slice::from_ref(&no_webhook)));
    assert_eq!(found(), [[""; 3]; 0]);

    let readable = condition("TriggersReadable", "False", "Failed", "rule notes: no");
    let good = condition("WebhookConfigured", "True", "Succeeded", "Webhook configured.");
    says("generatingpolicies/notes", &in_cel(true, &[good, readable]));
    let no_rights = condition("RBACPermissionsGranted", "False", "Failed", "nobody answers");
    says("mutatingpolicies/owner", &in_cel(false, &[no_webhook, no_rights]));
    // It is left to others, who write its status.
    let foreign = condition("Ready", "False", "Failed", "foreign");
    says("cleanuppolicies/sweep", &format!(r#"{{"conditions": [{foreign}]}}"#));
    let no_admission = condition("Ready", "False", "NoAdmission", "nobody answers");
    says(
        "policies.kyverno.io/own",
        &format!(r#"{{"ready": false, "conditions": [{no_admission}]}}"#),
    );
    let found = found();
    let wanted = [
        (
            "kyverno.io/v1/Policy/default/own is not ready: nobody answers",
            "let an engine answer requests",
        ),
        (
            "policies.kyverno.io/v1/GeneratingPolicy/notes is not fired by everything that it names: rule notes: no",
            "list and watch these kinds",
        ),
        (
            "policies.kyverno.io/v1/MutatingPolicy/owner is not ready: nobody answers",
            "the policy is sound",
        ),
    ];
    assert_eq!(found.len(), wanted.len(), "{found:#?}");
    for ([_, message, hint], (wanted, hinted)) in found.iter().zip(wanted) {
        assert_eq!(message, wanted);
        assert!(hint.contains(hinted), "{message}: {hint}");
    }
}
