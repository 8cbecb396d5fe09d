//! Webhooks on a real control plane: published, answering, repaired, removed.

use kiln_value::{Value, json};

use crate::harness::{Cluster, cluster};

fn object(cluster: &Cluster, what: &[&str]) -> Value {
    cluster.object(what).expect("it is there")
}

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [market]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: '{{ request.namespace }}'}}}}
";

const SERVICES: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: services}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: Service, name: robot, namespace: default, data: {spec: {ports: [{port: 80}]}}}
";

#[test]
fn webhooks_are_published_answer_and_go() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "market"]).unwrap();
    let mut engine = cluster.whole(&[]);
    let policy_webhook =
        ["validatingwebhookconfiguration", "kyverno-policy-validating-webhook-cfg"];
    cluster.wait("the webhook for policies", || {
        cluster.kubectl(&[&["get"], &policy_webhook[..]].concat()).is_ok()
    });

    // A mutate rule acts as soon as its policy is ready.
    cluster.policy(LABEL);
    cluster.kubectl(&["create", "configmap", "prices", "-n", "market"]).unwrap();
    let stored = object(&cluster, &["configmap", "prices", "-n", "market"]);
    assert_eq!(stored.str_at(["metadata", "labels", "team"]), Some("market"));

    // The registration names what the rule names, and nothing else.
    let name = ["mutatingwebhookconfiguration", "kyverno-resource-mutating-webhook-cfg"];
    let webhooks = object(&cluster, &name);
    let webhooks = webhooks.get("webhooks").and_then(Value::as_list).unwrap();
    // Rules that other tests left have webhooks of their own.
    let is_ours = |webhook: &&Value| webhook.str_at(["name"]) == Some("mutate.kyverno.svc-fail");
    let webhook = webhooks.iter().find(is_ours).unwrap();
    let rules = webhook.get("rules").map(json::to_canonical_string).unwrap();
    assert_eq!(
        rules,
        r#"[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps"],"scope":"Namespaced"}]"#
    );
    assert_eq!(webhook.str_at(["failurePolicy"]), Some("Fail"));

    // Changes by others are reverted.
    cluster.kubectl(&[&["delete"], &name[..]].concat()).unwrap();
    cluster.wait("the webhook that was deleted", || {
        cluster.kubectl(&[&["get"], &name[..]].concat()).is_ok()
    });

    // A policy that is wrong is refused, with a reason that users can act on.
    let wrong = LABEL
        .replace("name: label", "name: wrong")
        .replace("{{ request.namespace }}", "{{ nothing }}");
    let refusal = cluster.apply(&wrong).unwrap_err().to_string();
    assert!(refusal.contains("validate-policy.kyverno.svc"), "{refusal}");
    assert!(refusal.contains("nothing"), "{refusal}");

    // One whose rights are missing, with the role to apply.
    let refusal = cluster.apply(SERVICES).unwrap_err().to_string();
    assert!(refusal.contains("requires permissions create for resource v1/Service"), "{refusal}");
    let start = refusal.find("apiVersion: rbac.authorization.k8s.io/v1").unwrap();
    let role = &refusal[start..];
    assert!(
        role.contains("rbac.kyverno.io/aggregate-to-background-controller: \"true\""),
        "{role}"
    );
    cluster.apply(role).unwrap();
    cluster.wait("the policy with its rights", || cluster.apply(SERVICES).is_ok());

    // An engine that gets SIGTERM keeps no client waiting.
    engine.terminate();
    assert!(cluster.kubectl(&[&["get"], &name[..]].concat()).is_err());
    cluster.kubectl(&["create", "configmap", "after", "-n", "market"]).unwrap();
    cluster.kubectl(&["delete", "clusterpolicy", "label", "services"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "market", "--wait=false"]).unwrap();
}
