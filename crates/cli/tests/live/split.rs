//! What `kiln install --split` prints, run as it says: one side answers, the other one acts.

use std::process::Command;

use kiln_value::{Value, json};

use crate::harness::{ADMISSION, CONFIG_MAP, CONTROLLER, cluster, free_port, namespaces, policy};

/// The arguments of the engine in each Deployment that is printed, by name.
fn printed() -> Vec<(String, Vec<String>)> {
    let printed = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["install", "--image=kiln:7", "--split", "--replicas=2", "--format=json"])
        .output()
        .unwrap();
    let printed = json::parse(&String::from_utf8(printed.stdout).unwrap()).unwrap();
    let items = printed.get("items").and_then(Value::as_list).unwrap();
    let deployments = items.iter().filter(|item| item.str_at(["kind"]) == Some("Deployment"));
    deployments
        .map(|deployment| {
            let name = deployment.str_at(["metadata", "name"]).unwrap().to_owned();
            let containers = deployment.get_path(["spec", "template", "spec", "containers"]);
            let args = containers.unwrap().index(0).unwrap().get("args").unwrap();
            let args = args.as_list().unwrap().iter().filter_map(Value::as_str);
            (name, args.map(str::to_owned).collect())
        })
        .collect()
}

/// What is left of arguments that the harness does not give anyhow.
fn told<'a>(args: &'a [String], account: &str) -> Vec<&'a str> {
    assert_eq!(args[0], "run");
    assert!(args.contains(&account.to_owned()), "{account} in {args:?}");
    let own = |arg: &&str| !arg.starts_with("--as-") && !arg.starts_with("--listen=");
    args[1..].iter().map(String::as_str).filter(own).collect()
}

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: halved}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [Secret], namespaces: ['half-*']}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}
";

const SWEEP: &str = "
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: halved}
spec: {schedule: '0 0 * * *', match: {any: [{resources: {kinds: [ConfigMap]}}]}}
";

#[test]
fn two_deployments_do_the_work_between_them() {
    let Some(cluster) = cluster() else { return };
    let printed = printed();
    let names: Vec<&str> = printed.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["kiln-admission", "kiln-controller"]);
    let answers = told(&printed[0].1, &format!("--as-admission={ADMISSION}"));
    let acts = told(&printed[1].1, &format!("--as-controller={CONTROLLER}"));
    assert_eq!(answers, ["--namespace=kyverno", "--only=admission"]);
    assert_eq!(acts, ["--namespace=kyverno", "--only=controller"]);

    // Two replicas answer at one address; here one of them is enough.
    let port = free_port();
    let (url, listen) = (format!("https://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let here = ["--webhook-url", &url, "--listen", &listen, "--shutdown-grace-period", "0"];
    let mut asked = cluster.engine(&[&answers[..], &here].concat());
    let mut acting = cluster.engine(&acts);
    cluster.policy(LABEL);
    cluster.policy(&policy("halves", "half-*", CONFIG_MAP, true));
    cluster.apply(&namespaces(["half-a".to_owned()])).unwrap();
    cluster.wait("one side makes", || {
        cluster.object(&["configmap", "made", "-n", "half-a"]).is_some()
    });
    cluster.kubectl(&["create", "secret", "generic", "one", "-n", "half-a"]).unwrap();
    let secret = cluster.object(&["secret", "one", "-n", "half-a"]).unwrap();
    assert_eq!(secret.str_at(["metadata", "labels", "seen"]), Some("yes"), "the other one answers");
    assert!(!asked.said("holds the Lease"), "who only answers does not act");

    // What the account for it may not delete is not to be deleted by a policy.
    let refused = cluster.apply(SWEEP).unwrap_err();
    let why = "cleanup controller has no permission to delete kind ConfigMap";
    assert!(refused.to_string().contains(why), "{refused}");

    // Neither takes the other one along.
    acting.terminate();
    cluster.kubectl(&["create", "secret", "generic", "two", "-n", "half-a"]).unwrap();
    let secret = cluster.object(&["secret", "two", "-n", "half-a"]).unwrap();
    assert_eq!(secret.str_at(["metadata", "labels", "seen"]), Some("yes"));
    let mut acting = cluster.engine(&acts);
    asked.terminate();
    cluster.apply(&namespaces(["half-b".to_owned()])).unwrap();
    cluster.wait("it goes on making", || {
        cluster.object(&["configmap", "made", "-n", "half-b"]).is_some()
    });
    cluster.kubectl(&["delete", "clusterpolicy", "halved", "halves"]).unwrap();
    cluster.wait("what was made goes", || {
        cluster.object(&["configmap", "made", "-n", "half-b"]).is_none()
    });
    acting.terminate();
    cluster.kubectl(&["delete", "namespace", "half-a", "half-b", "--wait=false"]).unwrap();
}
