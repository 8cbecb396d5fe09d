//! The control plane that other crates' tests rely on.

use std::io::{BufRead, BufReader};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use kiln_testkit::control_plane::ControlPlane;

/// Tells a copy of this test program that it is the one to be killed.
const VICTIM: &str = "KILN_CONTROL_PLANE_VICTIM";

fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < limit, "not within {limit:?}: {what}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn accounts_roles_and_namespaces_work_as_in_a_real_cluster() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster
        .apply(
            "
apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: robot, namespace: shop}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: collected}
aggregationRule: {clusterRoleSelectors: [{matchLabels: {collect: 'true'}}]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: part, labels: {collect: 'true'}}
rules: [{apiGroups: [''], resources: [configmaps], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: robot}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: collected}
subjects: [{kind: ServiceAccount, name: robot, namespace: shop}]
",
        )
        .unwrap();
    let robot = cluster.kubeconfig_of_account("shop", "robot").unwrap();
    let may = |verb: &str, resource: &str| {
        let robot = robot.display().to_string();
        cluster.kubectl(&["--kubeconfig", &robot, "auth", "can-i", verb, resource]).is_ok()
    };
    within(Duration::from_secs(20), "the aggregated role has its rule", || {
        may("list", "configmaps")
    });
    assert!(!may("list", "secrets"), "that permission was not granted");

    cluster.kubectl(&["delete", "namespace", "shop", "--timeout=60s"]).unwrap();
    assert!(cluster.kubectl(&["get", "namespace", "shop"]).is_err());
}

#[test]
fn servers_end_when_the_test_process_is_killed() {
    if std::env::var_os(VICTIM).is_some() {
        let cluster = ControlPlane::start().unwrap();
        eprintln!("victim {}", cluster.url());
        std::thread::sleep(Duration::from_secs(600));
        return;
    }
    if ControlPlane::for_test().is_none() {
        return;
    }
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "servers_end_when_the_test_process_is_killed", "--nocapture"])
        .env(VICTIM, "1")
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let url = BufReader::new(victim.stderr.take().unwrap())
        .lines()
        .map_while(Result::ok)
        .find_map(|line| line.strip_prefix("victim https://").map(str::to_owned))
        .expect("the victim says its address");
    assert!(TcpStream::connect(&url).is_ok());
    victim.kill().unwrap();
    victim.wait().unwrap();
    within(Duration::from_secs(10), "the servers are gone", || TcpStream::connect(&url).is_err());
}
