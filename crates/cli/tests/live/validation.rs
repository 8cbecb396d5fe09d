//! Rules that check objects, on a real control plane.

use kiln_value::{Value, json};

use crate::harness::cluster;

const OWNED: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owned}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [stalls]}}]}
    validate: {failureAction: Enforce, message: set the label owner, pattern: {metadata: {labels: {owner: '?*'}}}}
  - name: kept
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [stalls], operations: [DELETE]}}]}
    validate:
      failureAction: Enforce
      message: it is kept
      deny: {conditions: {any: [{key: \"{{ request.oldObject.metadata.labels.keep || '' }}\", operator: Equals, value: 'yes'}]}}
";

const PODS: &str = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-host}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: stalls}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [pods]}]
  validations:
  - expression: \"!object.spec.?hostNetwork.orValue(false)\"
    message: no host network
";

const EXCEPTION: &str = "
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: free, namespace: kyverno}
spec:
  exceptions: [{policyName: owned, ruleNames: [owner]}]
  match: {any: [{resources: {kinds: [ConfigMap], namespaces: [stalls], names: [free]}}]}
";

const DEPLOYMENT: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: stalls}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {hostNetwork: true, containers: [{name: web, image: nginx}]}
";

#[test]
fn objects_are_refused_in_kyvernos_words() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "stalls"]).unwrap();
    // It was there before the policy, and fails it.
    cluster.kubectl(&["create", "configmap", "old", "-n", "stalls"]).unwrap();
    let mut engine = cluster.whole(&[]);
    cluster.policy(OWNED);

    let refusal = cluster
        .kubectl(&["create", "configmap", "prices", "-n", "stalls"])
        .unwrap_err()
        .to_string();
    let expected = "admission webhook \"validate.kyverno.svc-fail\" denied the request: \n\n\
                    resource ConfigMap/stalls/prices was blocked due to the following policies \n\n\
                    owned:\n  owner: 'validation error: set the label owner. rule owner failed at path /metadata/labels/'";
    assert!(refusal.contains(expected), "{refusal}");
    assert!(!refusal.contains("Forbidden"), "{refusal}");

    // What failed before may be changed, and what did not may not begin to.
    cluster.kubectl(&["label", "configmap", "old", "-n", "stalls", "a=b"]).unwrap();
    let good = "{apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: stalls, labels: {owner: me, keep: 'yes'}}}";
    cluster.apply(good).unwrap();
    let removed = cluster.kubectl(&["label", "configmap", "good", "-n", "stalls", "owner-"]);
    assert!(removed.unwrap_err().to_string().contains("set the label owner"));
    let deleted = cluster.kubectl(&["delete", "configmap", "good", "-n", "stalls"]);
    assert!(deleted.unwrap_err().to_string().contains("kept: it is kept"));

    // An exception frees one object.
    cluster.apply(EXCEPTION).unwrap();
    cluster.wait("the exception holds", || {
        cluster.kubectl(&["create", "configmap", "free", "-n", "stalls"]).is_ok()
    });

    // The rule for Pods holds for what makes them.
    cluster.wait("the policy in CEL is accepted", || cluster.apply(PODS).is_ok());
    let is_ready = || {
        let path = "jsonpath={.status.conditionStatus.ready}";
        cluster.kubectl(&["get", "vpol", "no-host", "-o", path]).is_ok_and(|ready| ready == "true")
    };
    cluster.wait("the policy in CEL is ready", is_ready);
    let refusal = cluster.apply(DEPLOYMENT).unwrap_err().to_string();
    let expected = "admission webhook \"vpol.validate.kyverno.svc-fail\" denied the request: \
                    Policy no-host failed: no host network";
    assert!(refusal.contains(expected), "{refusal}");

    let told = |namespace: &str, words: &str| {
        let events = cluster.object(&["events", "-n", namespace]).unwrap();
        let items = events.get("items").and_then(Value::as_list).unwrap();
        items.iter().any(|event| json::to_string(event).contains(words))
    };
    let words = "ConfigMap stalls/prices: [owner] fail (blocked)";
    cluster.wait("the event", || told("default", words));

    engine.terminate();
    cluster.kubectl(&["delete", "clusterpolicy", "owned"]).unwrap();
    cluster.kubectl(&["delete", "vpol", "no-host"]).unwrap();
    cluster.kubectl(&["delete", "polex", "-n", "kyverno", "free"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "stalls", "--wait=false"]).unwrap();
}

const NATIVE: &str = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: few}
spec:
  autogen: {validatingAdmissionPolicy: {enabled: true}}
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: native}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  validations:
  - expression: \"object.metadata.name != 'odd'\"
    message: no odd names
";

#[test]
fn a_policy_is_generated_as_one_that_the_api_server_runs() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "native"]).unwrap();
    let mut engine = cluster.whole(&[]);
    cluster.wait("the policy is accepted", || cluster.apply(NATIVE).is_ok());
    let text = |kind: &str, name: &str, path: &str| {
        let path = format!("jsonpath={{{path}}}");
        cluster.kubectl(&["get", kind, name, "-o", &path]).unwrap_or_default()
    };
    cluster.wait("it is generated", || text("vpol", "few", ".status.generated") == "true");
    let vap = "validatingadmissionpolicy";
    assert_eq!(text(vap, "vpol-few", ".metadata.ownerReferences[0].name"), "few");
    let webhooks = || {
        let name = "kyverno-resource-validating-webhook-cfg";
        text("validatingwebhookconfiguration", name, ".webhooks[*].name")
    };
    cluster.wait("the webhook leaves", || !webhooks().contains("vpol"));
    let denied = || {
        let created = cluster.kubectl(&["create", "configmap", "odd", "-n", "native"]);
        created.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let words = "ValidatingAdmissionPolicy 'vpol-few' with binding 'vpol-few-binding' denied request: no odd names";
    cluster.wait("the API server denies", || {
        let said = denied();
        let _ = cluster.kubectl(&["delete", "configmap", "odd", "-n", "native"]);
        said.contains(words)
    });
    // Edits are followed, also those of what was generated.
    let patch = r#"[{"op": "replace", "path": "/spec/validations/0/message", "value": "not odd"}]"#;
    cluster.kubectl(&["patch", "vpol", "few", "--type=json", "-p", patch]).unwrap();
    let message = || text(vap, "vpol-few", ".spec.validations[0].message");
    cluster.wait("the edit is followed", || message() == "not odd");
    // Without the wish, Kiln's webhook answers again.
    let patch = r#"[{"op": "remove", "path": "/spec/autogen"}]"#;
    cluster.kubectl(&["patch", "vpol", "few", "--type=json", "-p", patch]).unwrap();
    cluster.wait("it goes", || text(vap, "vpol-few", ".metadata.name").is_empty());
    cluster.wait("the webhook is back", || webhooks().contains("vpol"));
    assert_eq!(text("vpol", "few", ".status.generated"), "false");
    engine.terminate();
    cluster.kubectl(&["delete", "vpol", "few"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "native", "--wait=false"]).unwrap();
}
