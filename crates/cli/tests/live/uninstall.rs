//! Taking the engine off a cluster: whoever acts ends first, and nothing that rules made goes.

use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Cluster, NETWORK_POLICY, cluster, install, namespaces, policy};

fn uninstall(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("uninstall").arg("--kubeconfig").arg(cluster.kubeconfig()).args(args);
    command.output().unwrap()
}

#[test]
fn what_rules_made_stays_whatever_goes() {
    let Some(cluster) = cluster() else { return };
    let mut engine = cluster.whole(&[]);
    cluster.policy(&policy("left", "left-*", NETWORK_POLICY, true));
    cluster.apply(&namespaces((0..5).map(|n| format!("left-{n}")))).unwrap();
    let made = "generate.kyverno.io/policy-name=left";
    cluster.wait("all are made", || cluster.count("networkpolicies", made) == 5);
    let uids = || {
        let path = "jsonpath={.items[*].metadata.uid}";
        cluster.kubectl(&["get", "networkpolicies", "-A", "-l", made, "-o", path]).unwrap()
    };
    let before = uids();

    // Nothing goes while somebody acts: with its policy would go what it made.
    let refused = uninstall(&cluster, &["--all"]);
    assert_eq!(refused.status.code(), Some(2));
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(words.contains("acts on the cluster from elsewhere; end it first"), "{words}");
    assert!(cluster.object(&["clusterpolicy", "left"]).is_some());

    engine.kill();
    let tried = uninstall(&cluster, &["--all", "--dry-run"]);
    let tried = String::from_utf8(tried.stdout).unwrap();
    assert!(
        tried.contains("would delete apiextensions.k8s.io/v1/CustomResourceDefinition"),
        "{tried}"
    );
    assert!(cluster.object(&["clusterpolicy", "left"]).is_some());
    let webhook = ["validatingwebhookconfiguration", "kyverno-policy-validating-webhook-cfg"];
    assert!(cluster.object(&webhook).is_some(), "one that is killed leaves its webhooks");

    let gone = uninstall(&cluster, &[]);
    let words = String::from_utf8(gone.stdout).unwrap();
    assert!(gone.status.success(), "{words} {}", String::from_utf8_lossy(&gone.stderr));
    let order = |what: &str| words.find(what).unwrap_or_else(|| panic!("{what} in {words}"));
    assert!(order("nobody acts any more") < order("WebhookConfiguration"));
    assert!(order("WebhookConfiguration") < order("ClusterRoleBinding"));
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let left = cluster.kubectl(&["get", kind, "-o", "name"]).unwrap();
        assert!(!left.contains("kyverno-"), "nobody is asked any more: {left}");
    }
    assert!(cluster.object(&["clusterpolicy", "left"]).is_some(), "policies stay");

    let gone = uninstall(&cluster, &["--all"]);
    assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
    cluster.wait("definitions go", || cluster.kubectl(&["get", "clusterpolicies"]).is_err());
    cluster.wait("the namespace goes", || cluster.object(&["namespace", "kyverno"]).is_none());
    sleep(Duration::from_secs(2));
    assert_eq!(uids(), before, "and all that rules made is there, untouched");

    // Installed once more, it goes on with what is there.
    install(&cluster);
    let _engine = cluster.controller();
    cluster.policy(&policy("left", "left-*", NETWORK_POLICY, true));
    sleep(Duration::from_secs(3));
    assert_eq!(uids(), before, "nothing is made anew");
    cluster.kubectl(&["delete", "clusterpolicy", "left"]).unwrap();
}
