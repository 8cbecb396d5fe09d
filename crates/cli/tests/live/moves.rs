//! Policies move to Kiln's own API group in a cluster that refuses every write of the old kinds.

use std::process::Command;

use kiln_object::metadata;
use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{CONFIG_MAP, Cluster, KILN, namespaces, on, policy};

/// What a later Kyverno does with the old kinds.
const REFUSES_OLD_KINDS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-old-kinds}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: [{apiGroups: [kyverno.io], apiVersions: ["*"], operations: [CREATE, UPDATE], resources: [clusterpolicies, policies]}]
  validations: [{expression: "false", message: the kinds of kyverno.io are gone}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-old-kinds}
spec: {policyName: no-old-kinds, validationActions: [Deny]}
"#;

fn kiln(args: &[&str]) -> String {
    let done = Command::new(KILN).args(args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

fn uid(cluster: &Cluster, namespace: &str) -> Option<String> {
    let made = cluster.object(&["configmap", "made", "-n", namespace])?;
    metadata::uid(&made).map(str::to_owned)
}

#[test]
fn policies_move_to_kilns_own_group_and_keep_what_they_made() {
    // A control plane of its own: with two groups, kubectl's short names no longer mean Kyverno's kinds, and kubectl
    // remembers that for other tests.
    let Some(cluster) = on(ControlPlane::start) else { return };
    let _engine = cluster.whole(&[]);
    let text = policy("moved", "moved-*", CONFIG_MAP, true);
    cluster.policy(&text);
    cluster.apply(&namespaces(["moved-a".to_owned()])).unwrap();
    cluster.wait("the downstream is made", || uid(&cluster, "moved-a").is_some());
    let before = uid(&cluster, "moved-a");

    let own = kiln(&["install", "--no-workload", "--grant", "standard", "--own-group"]);
    cluster.apply(&own).unwrap();
    let own: Vec<String> = kiln_install::own_definitions()
        .iter()
        .filter_map(|definition| metadata::name(definition).map(|name| format!("crd/{name}")))
        .collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    cluster
        .kubectl(&[&["wait", "--for=condition=Established", "--timeout=60s"], &own[..]].concat())
        .unwrap();
    cluster.apply(REFUSES_OLD_KINDS).unwrap();
    let name = ["clusterpolicies.kyverno.io", "moved"];
    cluster.wait("old kinds are refused", || {
        let label = [&["label"], &name[..], &["probe=x", "--dry-run=server"]].concat();
        cluster.kubectl(&label).is_err_and(|why| why.to_string().contains("are gone"))
    });

    let kubeconfig = cluster.kubeconfig().display().to_string();
    let printed = kiln(&["adopt", "--move", "--kubeconfig", &kubeconfig]);
    let moved = printed.split("---\n").find(|policy| policy.contains("name: moved\n")).unwrap();
    assert!(moved.contains("apiVersion: kiln.dev/v1\n"), "{moved}");
    cluster.wait("the policy is stored in kiln.dev", || cluster.apply(moved).is_ok());
    let label = || {
        let made = cluster.object(&["configmap", "made", "-n", "moved-a"])?;
        metadata::label(&made, "generate.kiln.dev/policy-name").map(str::to_owned)
    };
    cluster.wait("its labels are Kiln's own", || label().as_deref() == Some("moved"));
    assert_eq!(uid(&cluster, "moved-a"), before);

    cluster.kubectl(&["delete", "clusterpolicies.kyverno.io", "moved"]).unwrap();
    cluster.apply(&namespaces(["moved-b".to_owned()])).unwrap();
    cluster.wait("the moved policy acts", || uid(&cluster, "moved-b").is_some());
    let patch = r#"{"data":{"a":"edited"}}"#;
    cluster
        .kubectl(&["patch", "configmap", "made", "-n", "moved-a", "--type=merge", "-p", patch])
        .unwrap();
    cluster.wait("the edit is reverted", || {
        let made = cluster.object(&["configmap", "made", "-n", "moved-a"]);
        made.is_some_and(|made| made.str_at(["data", "a"]) == Some("1"))
    });
    assert_eq!(uid(&cluster, "moved-a"), before);

    cluster.kubectl(&["delete", "clusterpolicies.kiln.dev", "moved"]).unwrap();
    cluster.wait("what it made goes", || uid(&cluster, "moved-a").is_none());
}
