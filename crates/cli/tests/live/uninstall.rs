//! Taking the engine off a cluster: the leader ends first, and no downstream is deleted.

use std::process::{Command, Output};
use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Cluster, NETWORK_POLICY, cluster, install, namespaces, policy};

fn uninstall(cluster: &Cluster, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.arg("uninstall").arg("--kubeconfig").arg(cluster.kubeconfig()).args(args);
    command.output().unwrap()
}

/// It says no, deletes nothing, and says so beforehand as well.
fn refused(cluster: &Cluster, wanted: &[&str]) {
    let said = |args: &[&str]| {
        let refused = uninstall(cluster, args);
        assert_eq!(refused.status.code(), Some(2), "{args:?}");
        assert!(refused.stdout.is_empty(), "{}", String::from_utf8_lossy(&refused.stdout));
        String::from_utf8(refused.stderr).unwrap()
    };
    let words = said(&["--all"]);
    for wanted in wanted {
        assert!(words.contains(wanted), "{wanted:?} is missing in {words}");
    }
    assert!(!words.contains("run it again"), "{words}");
    assert_eq!(said(&["--all", "--dry-run"]), words);
    for installed in ["crd/clusterpolicies.kyverno.io", "clusterrole/kyverno:background-controller"]
    {
        assert!(cluster.kubectl(&["get", installed]).is_ok(), "{installed} is gone");
    }
}

/// Kyverno's images in a Deployment; there is no node that would run them.
const KYVERNO: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: kyverno-background-controller, namespace: kyverno}
spec:
  selector: {matchLabels: {app: kyverno}}
  template:
    metadata: {labels: {app: kyverno}}
    spec: {containers: [{name: kyverno, image: 'reg.kyverno.io/kyverno/background-controller:v1.15.0'}]}
";

/// A part of Kyverno that acts on no rules of Kiln's, from a mirror.
const CLEANUP: &str = "
apiVersion: apps/v1
kind: Deployment
metadata: {name: cleanup, namespace: default}
spec:
  selector: {matchLabels: {app: cleanup}}
  template:
    metadata: {labels: {app: cleanup}}
    spec: {containers: [{name: c, image: 'registry:5000/mirror/cleanup-controller:v1'}]}
";

/// A pod of the engine without a Deployment.
const STRAY: &str = "
apiVersion: v1
kind: Pod
metadata:
  name: stray
  namespace: kyverno
  labels: {app.kubernetes.io/name: kiln, app.kubernetes.io/component: engine}
spec: {containers: [{name: kiln, image: 'kiln:7'}]}
";

/// What `kiln install` prints with these options.
fn installed(cluster: &Cluster, args: &[&str]) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    let printed = command.args(["install", "--image=kiln:7"]).args(args).output().unwrap();
    cluster.apply(&String::from_utf8(printed.stdout).unwrap()).unwrap();
}

#[test]
fn another_engine_keeps_what_it_uses() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(CLEANUP).unwrap();
    let which = "Kyverno runs, and would lose what it shares with Kiln: Deployment default/cleanup";
    refused(&cluster, &[which, "kubectl scale deployment cleanup -n default --replicas=0"]);
    cluster.kubectl(&["delete", "deployment", "cleanup", "-n", "default"]).unwrap();

    cluster.apply(KYVERNO).unwrap();
    let stop = "kubectl scale deployment kyverno-background-controller -n kyverno --replicas=0";
    let which = "Kyverno runs, and would lose what it shares with Kiln: Deployment \
                 kyverno/kyverno-background-controller";
    refused(&cluster, &[which, stop, "--keep-shared"]);

    let uids = |what: &[&str]| {
        let path = "jsonpath={.metadata.uid}{.items[*].metadata.uid}";
        cluster.kubectl(&[&["get", "-o", path], what].concat()).unwrap()
    };
    let kyvernos: [&[&str]; 4] = [
        &["crd", "clusterpolicies.kyverno.io", "--ignore-not-found"],
        &["clusterrole,clusterrolebinding", "-l", "app.kubernetes.io/part-of=kyverno"],
        &["namespace", "kyverno"],
        &["crd", "policyreports.wgpolicyk8s.io"],
    ];
    let before = kyvernos.map(uids);
    let gone = uninstall(&cluster, &["--all", "--keep-shared"]);
    let words = String::from_utf8(gone.stdout).unwrap();
    assert!(gone.status.success(), "{words} {}", String::from_utf8_lossy(&gone.stderr));
    for wanted in [
        "leaves apiextensions.k8s.io/v1/CustomResourceDefinition/clusterpolicies.kyverno.io: Kyverno uses it",
        "leaves apiextensions.k8s.io/v1/CustomResourceDefinition/policyreports.wgpolicyk8s.io: other tools",
        "leaves v1/Namespace/kyverno: Kyverno uses it",
        "deleted rbac.authorization.k8s.io/v1/Role/kyverno/kiln:act-as",
        "deleted apiextensions.k8s.io/v1/CustomResourceDefinition/modrules.api.kubemod.io",
    ] {
        assert!(words.contains(wanted), "{wanted:?} is missing in {words}");
    }
    assert_eq!(kyvernos.map(uids), before);
    cluster.wait("the definition goes", || cluster.kubectl(&["get", "modrules", "-A"]).is_err());

    // One that is scaled to nothing runs no more.
    let scale = ["scale", "deployment", "kyverno-background-controller", "-n", "kyverno"];
    cluster.kubectl(&[&scale[..], &["--replicas=0"]].concat()).unwrap();
    let tried = uninstall(&cluster, &["--dry-run"]);
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stderr));
    cluster
        .kubectl(&["delete", "deployment", "kyverno-background-controller", "-n", "kyverno"])
        .unwrap();
    install(&cluster);
}

#[test]
fn a_workload_ends_first_and_what_is_not_ours_stays() {
    let Some(cluster) = cluster() else { return };
    installed(&cluster, &["--replicas=2"]);
    let pods = || {
        let labels = "app.kubernetes.io/name=kiln,app.kubernetes.io/component=engine";
        let names = ["get", "pods", "-n", "kyverno", "-l", labels, "-o", "name"];
        let names = cluster.kubectl(&names).unwrap_or_default();
        names.lines().map(|name| name.replace("pod/", "")).collect::<Vec<_>>()
    };
    cluster.wait("pods are there", || pods().len() == 2);

    // A pod that would go on is a reason not to begin.
    cluster.wait("the account of pods", || cluster.apply(STRAY).is_ok());
    refused(&cluster, &["the pod kyverno/stray runs the engine", "stop it first"]);
    cluster.kubectl(&["delete", "pod", "stray", "-n", "kyverno", "--force"]).unwrap();

    // So is one of a Deployment that stays because it belongs to another owner.
    let label = |name: &str| {
        let label = format!("app.kubernetes.io/name={name}");
        let deployment = ["label", "deployment", "kiln", "-n", "kyverno", "--overwrite", &label];
        cluster.kubectl(&deployment).unwrap();
    };
    label("other");
    let stays = "runs the engine, and its Deployment kiln stays: it does not carry the label";
    refused(&cluster, &["the pod kyverno/kiln-", stays, "stop it first"]);
    label("kiln");

    // And one that outlives its Deployment.
    let orphan = ["delete", "deployment", "kiln", "-n", "kyverno", "--cascade=orphan"];
    cluster.kubectl(&orphan).unwrap();
    refused(&cluster, &["the pod kyverno/kiln-", "and belongs to no Deployment that is deleted"]);
    installed(&cluster, &["--replicas=2"]);
    cluster.wait("the Deployment has its pods again", || {
        let path = "jsonpath={.items[*].metadata.ownerReferences[0].name}";
        let owner = cluster.kubectl(&["get", "replicasets", "-n", "kyverno", "-o", path]);
        owner.is_ok_and(|owner| owner == "kiln") && pods().len() == 2
    });

    // One of the pods acts: it ends with its Deployment.
    let _ = cluster.kubectl(&["delete", "lease", "kiln-controller", "-n", "kyverno"]);
    cluster
        .apply(&format!(
            "apiVersion: coordination.k8s.io/v1\nkind: Lease\nmetadata: {{name: kiln-controller, namespace: kyverno}}\n\
             spec: {{holderIdentity: {}-7-a1, leaseDurationSeconds: 3}}\n",
            pods()[0]
        ))
        .unwrap();
    // It belongs to another owner, whatever its name.
    let foreign = ["label", "poddisruptionbudget", "kiln", "-n", "kyverno"];
    cluster
        .kubectl(&[&foreign[..], &["--overwrite", "app.kubernetes.io/name=other"]].concat())
        .unwrap();

    let tried = uninstall(&cluster, &["--dry-run"]);
    assert!(tried.status.success(), "{}", String::from_utf8_lossy(&tried.stderr));
    let tried = String::from_utf8(tried.stdout).unwrap();
    assert!(tried.starts_with("would delete apps/v1/Deployment/kyverno/kiln\n"), "{tried}");
    assert_eq!(pods().len(), 2, "nothing has gone");
    let gone = uninstall(&cluster, &[]);
    let words = String::from_utf8(gone.stdout).unwrap();
    assert!(gone.status.success(), "{words} {}", String::from_utf8_lossy(&gone.stderr));
    assert!(
        words.starts_with("deleted apps/v1/Deployment/kyverno/kiln\nno leader remains\n"),
        "{words}"
    );
    assert!(pods().is_empty());
    let left = "leaves policy/v1/PodDisruptionBudget/kyverno/kiln: it does not carry the label";
    assert!(words.contains(left), "{words}");
    let told = |text: &str| {
        let lines = text.lines().filter(|line| *line != "no leader remains");
        lines.map(|line| line.replace("would delete", "deleted")).collect::<Vec<_>>()
    };
    assert_eq!(told(&tried), told(&words), "it does what it said");
    cluster.kubectl(&["delete", "poddisruptionbudget", "kiln", "-n", "kyverno"]).unwrap();
    install(&cluster);
}

#[test]
fn what_rules_made_stays_whatever_goes() {
    let Some(cluster) = cluster() else { return };
    // A late renewal must not look like no holder: what is shared with other tests would go.
    let mut engine = cluster.whole(&["--lease", "10"]);
    cluster.policy(&policy("left", "left-*", NETWORK_POLICY, true));
    cluster.apply(&namespaces((0..5).map(|n| format!("left-{n}")))).unwrap();
    let made = "generate.kyverno.io/policy-name=left";
    cluster.wait("all are made", || cluster.count("networkpolicies", made) == 5);
    let uids = || {
        let path = "jsonpath={.items[*].metadata.uid}";
        cluster.kubectl(&["get", "networkpolicies", "-A", "-l", made, "-o", path]).unwrap()
    };
    let before = uids();

    // Nothing goes while a replica acts: it would delete the downstreams with the policy.
    refused(&cluster, &["outside this cluster", "stop it first"]);
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
    assert!(order("no leader remains") < order("WebhookConfiguration"));
    assert!(order("WebhookConfiguration") < order("ClusterRoleBinding"));
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        let left = cluster.kubectl(&["get", kind, "-o", "name"]).unwrap();
        assert!(!left.contains("kyverno-"), "no webhook is left: {left}");
    }
    assert!(cluster.object(&["clusterpolicy", "left"]).is_some(), "policies stay");

    let gone = uninstall(&cluster, &["--all"]);
    assert!(gone.status.success(), "{}", String::from_utf8_lossy(&gone.stderr));
    cluster.wait("definitions go", || cluster.kubectl(&["get", "clusterpolicies"]).is_err());
    cluster.wait("the namespace goes", || cluster.object(&["namespace", "kyverno"]).is_none());
    sleep(Duration::from_secs(2));
    assert_eq!(uids(), before, "and all that rules made is there, untouched");

    // Installed once more, it goes on with the existing objects.
    install(&cluster);
    let _engine = cluster.controller();
    cluster.policy(&policy("left", "left-*", NETWORK_POLICY, true));
    sleep(Duration::from_secs(3));
    assert_eq!(uids(), before, "nothing is made anew");
    cluster.kubectl(&["delete", "clusterpolicy", "left"]).unwrap();
}
