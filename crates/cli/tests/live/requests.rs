//! What only requests know, where one process is asked and another one acts, and either may die.

use std::thread::sleep;
use std::time::Duration;

use crate::harness::{Cluster, Engine, PATIENCE, cluster, free_port};

const POLICIES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: asked}
spec:
  background: false
  rules:
  - name: by-user
    match: {any: [{resources: {kinds: [Namespace], names: ["asked-*"]}}]}
    exclude: {any: [{subjects: [{kind: User, name: nobody}]}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: by
      namespace: "{{request.object.metadata.name}}"
      data: {data: {user: "{{request.userInfo.username}}"}}
  - name: on-exec
    match: {any: [{resources: {kinds: [Pod/exec], namespaces: [requests]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: "exec-{{request.name}}"
      namespace: requests
      data: {data: {user: "{{request.userInfo.username}}"}}
  - name: on-delete
    match: {any: [{resources: {kinds: [Secret], namespaces: [requests], operations: [DELETE]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: "after-{{request.oldObject.metadata.name}}"
      namespace: requests
      data: {data: {was: "{{request.oldObject.data.a}}"}}
  - name: on-anything
    match: {any: [{resources: {kinds: [Secret], namespaces: [requests], names: ["old-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: "of-{{request.object.metadata.name}}"
      namespace: requests
      data: {data: {a: b}}
"#;

fn made(cluster: &Cluster, namespace: &str, name: &str, field: &str) -> String {
    let path = format!("jsonpath={{.data.{field}}}");
    let args = ["get", "configmap", name, "-n", namespace, "-o", &path];
    cluster.kubectl(&args).unwrap_or_default()
}

fn secret(name: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Secret\nmetadata: {{name: {name}, namespace: requests}}\ndata: {{a: MQ==}}\n"
    )
}

/// An engine that only answers requests.
fn admission(cluster: &Cluster, port: u16) -> Engine {
    let (url, listen) = (format!("https://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let args =
        ["--only", "admission", "--webhook-url", &url, "--listen", &listen, "--leave-webhooks"];
    cluster.engine(&args)
}

/// Everything that the rules fire on, each thing under a name of its own.
fn request_everything(cluster: &Cluster, name: &str) {
    let namespace = format!("asked-{name}");
    cluster
        .kubectl(&["create", "namespace", &namespace, "--as=ann", "--as-group=system:masters"])
        .unwrap();
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, namespace: requests}}\n\
         spec: {{containers: [{{name: a, image: none}}]}}\n"
    );
    cluster.wait("the account of pods", || cluster.apply(&pod).is_ok());
    // There is no node, so that it comes to nothing, but it was asked for.
    assert!(cluster.kubectl(&["exec", "-n", "requests", name, "--", "true"]).is_err());
    cluster.apply(&secret(name)).unwrap();
    cluster.kubectl(&["delete", "secret", "-n", "requests", name]).unwrap();
    // The same once more: nothing is stored.
    cluster.apply(&secret(&format!("old-{name}"))).unwrap();
}

fn everything_is_made(cluster: &Cluster, name: &str) {
    cluster.wait("who", || made(cluster, &format!("asked-{name}"), "by", "user") == "ann");
    cluster.wait("exec", || {
        made(cluster, "requests", &format!("exec-{name}"), "user") == "kubernetes-admin"
    });
    cluster
        .wait("the end", || made(cluster, "requests", &format!("after-{name}"), "was") == "MQ==");
    cluster.wait("sent again", || made(cluster, "requests", &format!("of-old-{name}"), "a") == "b");
    cluster.wait("nothing is left to consume", || cluster.carried() == 0);
}

#[test]
fn who_is_asked_and_who_acts_may_be_different_and_die() {
    let Some(cluster) = cluster() else { return };
    cluster.kubectl(&["create", "namespace", "requests"]).unwrap();
    for name in ["one", "two", "three"] {
        // Before the rules, so that only a request makes it a trigger.
        cluster.apply(&secret(&format!("old-{name}"))).unwrap();
    }
    let port = free_port();
    let mut asked = admission(&cluster, port);
    let mut acting = cluster.controller();
    cluster.policy(POLICIES);
    sleep(Duration::from_secs(1));
    request_everything(&cluster, "one");
    everything_is_made(&cluster, "one");

    // The leader is dead while requests arrive.
    acting.kill();
    request_everything(&cluster, "two");
    assert!(cluster.carried() >= 4, "what is asked for is written down");
    asked.kill();
    let mut acting = cluster.controller();
    everything_is_made(&cluster, "two");

    // The replica that answers dies right after, and the leader in the middle.
    let asked = admission(&cluster, port);
    cluster.wait_for(PATIENCE, "it answers again", || asked.get("/readyz").is_some());
    request_everything(&cluster, "three");
    acting.kill();
    drop(asked);
    let _acting = cluster.controller();
    everything_is_made(&cluster, "three");
    let taken = ["mutatingwebhookconfiguration,validatingwebhookconfiguration", "--all"];
    cluster.kubectl(&[&["delete"], &taken[..]].concat()).unwrap();
    cluster.kubectl(&["delete", "clusterpolicy", "asked"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "requests", "--wait=false"]).unwrap();
}

#[test]
fn a_policy_is_not_ready_where_nobody_is_asked() {
    let Some(cluster) = cluster() else { return };
    let _acting = cluster.controller();
    let mutate = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: honest}\n\
                  spec: {rules: [{name: label, match: {any: [{resources: {kinds: [ConfigMap]}}]}, \
                  mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}}]}\n";
    cluster.apply(mutate).unwrap();
    let said = || {
        let path = "jsonpath={.status.conditions[0].reason}";
        cluster.kubectl(&["get", "clusterpolicy", "honest", "-o", path]).unwrap_or_default()
    };
    cluster.wait("it says what is missing", || said() == "NoAdmission");
    let port = free_port();
    let asked = admission(&cluster, port);
    cluster.wait("it is ready when a replica answers", || cluster.ready("honest"));
    drop(asked);
    cluster.kubectl(&["delete", "clusterpolicy", "honest"]).unwrap();
    let taken = ["mutatingwebhookconfiguration,validatingwebhookconfiguration", "--all"];
    cluster.kubectl(&[&["delete"], &taken[..]].concat()).unwrap();
}

#[test]
fn kinds_that_cannot_be_followed_are_shown() {
    let Some(cluster) = cluster() else { return };
    let _acting = cluster.controller();
    // No right of the account covers leases everywhere.
    let text = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: blind}\n\
                spec: {rules: [{name: make, match: {any: [{resources: {kinds: [Lease]}}]}, \
                generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: default, data: {}}}]}\n";
    cluster.apply(text).unwrap();
    let said = |path: &str| {
        let path = format!("jsonpath={path}");
        cluster.kubectl(&["get", "clusterpolicy", "blind", "-o", &path]).unwrap_or_default()
    };
    let condition = r#"{.status.conditions[?(@.type=="TriggersReadable")].message}"#;
    cluster.wait("the status says it", || said(condition).contains("Lease cannot be listed"));
    let events = || {
        let path = "jsonpath={.items[*].note}";
        let args = ["get", "events.events.k8s.io", "-A", "-o", path];
        cluster.kubectl(&args).unwrap_or_default()
    };
    cluster.wait("an event says it", || events().contains("Lease cannot be listed"));
    let explained = || {
        let explained = std::process::Command::new(env!("CARGO_BIN_EXE_kiln"))
            .args(["explain", "lease/kiln-controller", "-n", "kyverno", "--kubeconfig"])
            .arg(cluster.kubeconfig())
            .output()
            .unwrap();
        String::from_utf8(explained.stdout).unwrap()
    };
    // The condition goes for a moment if the replica takes the Lease anew.
    cluster.wait("it is explained", || explained().contains("Lease cannot be listed"));
    cluster.grant("see-leases", "coordination.k8s.io", "leases");
    cluster.wait("it is taken back with the right", || said(condition).is_empty());
    cluster.kubectl(&["delete", "clusterpolicy", "blind"]).unwrap();
    cluster.kubectl(&["delete", "clusterrole", "see-leases"]).unwrap();
}
