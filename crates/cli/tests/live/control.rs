//! The controller on a real control plane: generating, dying, reverting drift.

use std::thread::sleep;
use std::time::Duration;

use http::Method;
use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{CONFIG_MAP, NETWORK_POLICY, cluster, namespaces, policy};
use crate::proxy::{Fault, Proxy, is_watch};

#[test]
fn five_hundred_namespaces_survive_a_kill_with_one_write_each() {
    let Some(cluster) = cluster() else { return };
    let proxy = Proxy::start(&cluster.kubeconfig(), cluster.directory());
    let controller = || cluster.engine_at(proxy.kubeconfig(), &["--only", "controller"]);
    let first = controller();
    cluster.policy(&policy("many", "many-*", NETWORK_POLICY, true));
    proxy.forget();
    let many = namespaces((0..500).map(|n| format!("many-{n}")));
    let made = "generate.kyverno.io/policy-name=many";
    std::thread::scope(|scope| {
        let plane: &ControlPlane = &cluster;
        let many = many.as_str();
        scope.spawn(move || plane.kubectl_with_input(&["create", "-f", "-"], many).unwrap());
        cluster.wait("some are made", || cluster.count("networkpolicies", made) > 50);
        drop(first);
    });
    let left = cluster.count("networkpolicies", made);
    assert!(left < 500, "it was killed in the middle: {left}");
    let second = controller();
    cluster.wait("all are made", || cluster.count("networkpolicies", made) == 500);
    sleep(Duration::from_secs(3));
    // The result of those that were under way is unknown at the kill, so they are looked at before they are
    // written: no object is written twice.
    let written = proxy.done("/networkpolicies");
    let twice: Vec<&String> = written
        .iter()
        .filter(|line| written.iter().filter(|other| of(other) == of(line)).count() > 1)
        .collect();
    assert!(twice.is_empty(), "{twice:#?}");
    assert!((484..=500).contains(&written.len()), "one write each: {}", written.len());
    drop(second);
    // A third life has nothing to do.
    let _third = controller();
    let probe = policy("probe", "no-such", NETWORK_POLICY, true);
    cluster.policy(&probe);
    sleep(Duration::from_secs(3));
    let later = proxy.done("/networkpolicies");
    assert_eq!(later[written.len()..], [""; 0], "nothing to do, nothing written");
    // Undisturbed, it is one write for one object, exactly, also as the API server counts.
    let before = cluster.writes("networkpolicies");
    let more = namespaces((500..600).map(|n| format!("many-{n}")));
    cluster.kubectl_with_input(&["create", "-f", "-"], &more).unwrap();
    cluster.wait("more are made", || cluster.count("networkpolicies", made) == 600);
    sleep(Duration::from_secs(3));
    assert_eq!(cluster.writes("networkpolicies") - before, 100);
    assert_eq!(proxy.done("/networkpolicies").len(), written.len() + 100);
    cluster.kubectl(&["delete", "clusterpolicy", "many", "probe"]).unwrap();
    cluster.wait("all are gone with their policy", || cluster.count("networkpolicies", made) == 0);
}

/// The namespace in a path.
fn of(line: &str) -> &str {
    let rest = line.split_once("/namespaces/").map_or("", |(_, rest)| rest);
    rest.split('/').next().unwrap_or_default()
}

#[test]
fn synchronised_objects_follow_and_missing_rights_heal() {
    let Some(cluster) = cluster() else { return };
    let _controller = cluster.controller();
    let account = "      apiVersion: v1\n      kind: ServiceAccount\n      name: made\n      \
                   data: {automountServiceAccountToken: false}\n";
    cluster.policy(&policy("rights", "rights-*", account, true));
    cluster.kubectl(&["create", "namespace", "rights-a"]).unwrap();
    let requests = || {
        let path = "jsonpath={range .items[*]}{.status.state} {.status.message}{end}";
        let ours = "generate.kyverno.io/policy-name=rights";
        let args = ["get", "updaterequests", "-n", "kyverno", "-l", ours, "-o", path];
        cluster.kubectl(&args).unwrap_or_default()
    };
    cluster.wait("a failed request names the right", || {
        let found = requests();
        found.starts_with("Failed") && found.contains("cannot create resource \"serviceaccounts\"")
    });
    cluster.grant("rights-accounts", "\"\"", "serviceaccounts");
    let made = |path: &str| {
        let path = format!("jsonpath={path}");
        let args = ["get", "serviceaccount", "made", "-n", "rights-a", "-o", &path];
        cluster.kubectl(&args).unwrap_or_default()
    };
    cluster.wait("the object is made without a restart", || !made("{.metadata.uid}").is_empty());
    cluster.wait("the request is gone", || requests().is_empty());

    let patch = r#"{"automountServiceAccountToken":true}"#;
    cluster
        .kubectl(&[
            "patch",
            "serviceaccount",
            "made",
            "-n",
            "rights-a",
            "--type=merge",
            "-p",
            patch,
        ])
        .unwrap();
    cluster.wait("an edit is reverted", || made("{.automountServiceAccountToken}") == "false");
    let uid = made("{.metadata.uid}");
    cluster.kubectl(&["delete", "serviceaccount", "made", "-n", "rights-a"]).unwrap();
    cluster.wait("a deleted object comes back", || {
        let now = made("{.metadata.uid}");
        !now.is_empty() && now != uid
    });
    cluster.kubectl(&["delete", "clusterpolicy", "rights"]).unwrap();
    cluster.kubectl(&["delete", "clusterrole", "rights-accounts"]).unwrap();
    cluster.wait("it goes with its policy", || made("{.metadata.uid}").is_empty());
}

#[test]
fn server_side_apply_brings_our_fields_back_and_leaves_others() {
    let Some(cluster) = cluster() else { return };
    let _controller = cluster.controller();
    let made = "      apiVersion: v1\n      kind: ConfigMap\n      name: made\n      data: {data: {ours: \"1\"}}\n";
    let text = policy("applied", "applied-*", made, true)
        .replace("spec:\n", "spec:\n  useServerSideApply: true\n");
    cluster.policy(&text);
    cluster.kubectl(&["create", "namespace", "applied-a"]).unwrap();
    let data = || {
        let args = ["get", "configmap", "made", "-n", "applied-a", "-o", "jsonpath={.data}"];
        cluster.kubectl(&args).unwrap_or_default()
    };
    cluster.wait("it is made", || data() == r#"{"ours":"1"}"#);
    let patch = r#"{"data":{"ours":"2","theirs":"3"}}"#;
    let args = ["patch", "configmap", "made", "-n", "applied-a", "--type=merge", "-p", patch];
    cluster.kubectl(&args).unwrap();
    cluster.wait("ours comes back and theirs stays", || data() == r#"{"ours":"1","theirs":"3"}"#);
    cluster.kubectl(&["delete", "clusterpolicy", "applied"]).unwrap();
}

#[test]
fn exceptions_that_are_read_late_count_from_the_start() {
    let Some(cluster) = cluster() else { return };
    let proxy = Proxy::start(&cluster.kubeconfig(), cluster.directory());
    cluster.apply(&namespaces(["late-0".to_owned(), "late-1".to_owned()])).unwrap();
    let existing = policy("late", "late-*", CONFIG_MAP, true)
        .replace("generate:\n", "generate:\n      generateExisting: true\n");
    let exception = "
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: late, namespace: kyverno}
spec:
  exceptions: [{policyName: late, ruleNames: [make]}]
  match: {any: [{resources: {kinds: [Namespace], names: [late-1]}}]}
";
    // One of another namespace is for policies of that namespace.
    let of_others = exception.replace("namespace: kyverno", "namespace: default");
    let of_others = of_others.replace("[late-1]", "['*']");
    cluster.apply(&format!("{existing}---{exception}---{of_others}")).unwrap();
    let lists = |_: &Method, path: &str| path.contains("policyexceptions") && !is_watch(path);
    proxy.fault(lists, 0, 2, Fault::Slow(Duration::from_secs(5)));
    let _controller = cluster.engine_at(proxy.kubeconfig(), &["--only", "controller"]);
    let made = |namespace: &str| cluster.object(&["configmap", "made", "-n", namespace]).is_some();
    cluster.wait("it is made where no exception is", || made("late-0"));
    sleep(Duration::from_secs(2));
    assert!(!made("late-1"), "it was made before the exception was known");
    for namespace in ["kyverno", "default"] {
        let gone = ["delete", "policyexceptions.kyverno.io", "late", "-n", namespace];
        cluster.kubectl(&gone).unwrap();
    }
    cluster.kubectl(&["delete", "clusterpolicy", "late"]).unwrap();
    cluster.wait("it goes with its policy", || !made("late-0"));
}
