//! The controller on a real control plane. Skipped, and loudly, where there is none.

use std::path::Path;
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use kiln_live::{Only, Options};
use kiln_testkit::control_plane::{ControlPlane, Watched};

/// What the process that is started for a test reads its cluster from.
const KUBECONFIG: &str = "KILN_TEST_KUBECONFIG";
const USER: &str = "KILN_TEST_USER";

/// The cluster, for one test at a time: two controllers would take each other's work.
fn cluster() -> Option<(&'static ControlPlane, MutexGuard<'static, ()>)> {
    static TURN: Mutex<()> = Mutex::new(());
    static CLUSTER: OnceLock<Option<ControlPlane>> = OnceLock::new();
    let started = CLUSTER.get_or_init(|| {
        let cluster = ControlPlane::for_test()?;
        let kinds = [
            ("clusterpolicies", "ClusterPolicy", "v1", "Cluster"),
            ("policies", "Policy", "v1", "Namespaced"),
            ("updaterequests", "UpdateRequest", "v2", "Namespaced"),
            ("policyexceptions", "PolicyException", "v2", "Namespaced"),
        ];
        for (plural, kind, version, scope) in kinds {
            cluster.apply(&definition(plural, kind, version, scope)).unwrap();
        }
        for (plural, ..) in kinds {
            let name = format!("crd/{plural}.kyverno.io");
            cluster.kubectl(&["wait", "--for=condition=Established", &name]).unwrap();
        }
        cluster.kubectl(&["create", "namespace", "kyverno"]).unwrap();
        Some(cluster)
    });
    started.as_ref().map(|cluster| (cluster, TURN.lock().unwrap_or_else(PoisonError::into_inner)))
}

fn definition(plural: &str, kind: &str, version: &str, scope: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: {plural}.kyverno.io}}\n\
         spec:\n  group: kyverno.io\n  scope: {scope}\n\
         \x20 names: {{plural: {plural}, singular: {}, kind: {kind}}}\n\
         \x20 versions:\n  - name: {version}\n    served: true\n    storage: true\n\
         \x20   subresources: {{status: {{}}}}\n\
         \x20   schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}\n",
        kind.to_lowercase()
    )
}

/// Not a test of its own: the process that the other tests start, and kill.
#[test]
#[ignore = "started by other tests"]
fn controller_process() {
    let Ok(kubeconfig) = std::env::var(KUBECONFIG) else { return };
    kiln_live::logs("info", false).unwrap();
    let options = Options {
        kubeconfig: Some(kubeconfig.into()),
        only: Some(Only::Controller),
        as_controller: std::env::var(USER).ok(),
        listen: ([127, 0, 0, 1], 0).into(),
        ..Options::default()
    };
    kiln_live::run_blocking(options).unwrap();
}

/// A controller in a process of its own, which ends with this value as if by `kill -9`.
fn controller(cluster: &ControlPlane, user: Option<&str>, log: &Path) -> Watched {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "controller_process", "--ignored", "--nocapture"]);
    command.env(KUBECONFIG, cluster.kubeconfig()).env_remove(USER);
    if let Some(user) = user {
        command.env(USER, user);
    }
    Watched::spawn(&command, log).unwrap()
}

/// Waits until something holds; what the controller said is shown when it does not.
fn wait(what: &str, log: &Path, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        if begin.elapsed() > Duration::from_secs(120) {
            let log = std::fs::read_to_string(log).unwrap_or_default();
            let lines: Vec<_> = log.lines().rev().take(30).collect();
            panic!("{what} does not come to hold; the last words were:\n{}", lines.join("\n"));
        }
        sleep(Duration::from_millis(100));
    }
}

fn policy(name: &str, namespaces: &str, kind: &str, sync: bool) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  rules:\n  - name: make\n\
         \x20   match: {{any: [{{resources: {{kinds: [Namespace], names: [\"{namespaces}\"]}}}}]}}\n\
         \x20   generate:\n      synchronize: {sync}\n\
         {kind}      namespace: \"{{{{request.object.metadata.name}}}}\"\n"
    )
}

const NETWORK_POLICY: &str = "      apiVersion: networking.k8s.io/v1\n      kind: NetworkPolicy\n      \
     name: made\n      data: {spec: {podSelector: {}, policyTypes: [Ingress]}}\n";

fn ready(cluster: &ControlPlane, policy: &str) -> bool {
    let path = "jsonpath={.status.conditions[*].status}";
    cluster
        .kubectl(&["get", "clusterpolicy", policy, "-o", path])
        .is_ok_and(|found| found == "True")
}

/// How many writes of a resource the API server has answered well.
fn writes(cluster: &ControlPlane, resource: &str) -> u64 {
    let metrics = cluster.kubectl(&["get", "--raw", "/metrics"]).unwrap();
    let wanted = format!("resource=\"{resource}\"");
    metrics
        .lines()
        .filter(|line| line.starts_with("apiserver_request_total{") && line.contains(&wanted))
        .filter(|line| line.contains("code=\"2") && line.contains("dry_run=\"\""))
        .filter(|line| {
            ["POST", "PUT", "PATCH", "APPLY", "DELETE"]
                .iter()
                .any(|verb| line.contains(&format!("verb=\"{verb}\"")))
        })
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .map(|count| count as u64)
        .sum()
}

fn count(cluster: &ControlPlane, resource: &str, selector: &str) -> usize {
    let listed = cluster.kubectl(&["get", resource, "-A", "-l", selector, "-o", "name"]).unwrap();
    listed.lines().count()
}

#[test]
fn five_hundred_namespaces_survive_a_kill_with_one_write_each() {
    let Some((cluster, _turn)) = cluster() else { return };
    let log = cluster.folder().join("kill.log");
    let first = controller(cluster, None, &log);
    cluster.apply(&policy("many", "many-*", NETWORK_POLICY, true)).unwrap();
    wait("the policy is ready", &log, || ready(cluster, "many"));
    let before = writes(cluster, "networkpolicies");
    let namespaces: String = (0..500)
        .map(|n| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: many-{n}}}\n"))
        .collect();
    let made = "generate.kyverno.io/policy-name=many";
    std::thread::scope(|scope| {
        scope.spawn(|| cluster.kubectl_with_input(&["create", "-f", "-"], &namespaces).unwrap());
        wait("some are made", &log, || count(cluster, "networkpolicies", made) > 50);
        drop(first);
    });
    let left = count(cluster, "networkpolicies", made);
    assert!(left < 500, "it was killed in the middle: {left}");
    let log = cluster.folder().join("kill-again.log");
    let second = controller(cluster, None, &log);
    wait("all are made", &log, || count(cluster, "networkpolicies", made) == 500);
    sleep(Duration::from_secs(3));
    // Those that were under way at the kill are done, but the server does not count them as answered well.
    let written = writes(cluster, "networkpolicies") - before;
    assert!((480..=500).contains(&written), "one write each, none twice: {written}");
    drop(second);
    // A third life has nothing to do.
    let log = cluster.folder().join("kill-idle.log");
    let _third = controller(cluster, None, &log);
    let probe = policy("probe", "no-such", NETWORK_POLICY, true);
    cluster.apply(&probe).unwrap();
    wait("the third life works", &log, || ready(cluster, "probe"));
    sleep(Duration::from_secs(3));
    assert_eq!(
        writes(cluster, "networkpolicies") - before,
        written,
        "nothing to do, nothing written"
    );
    // Undisturbed, it is one write for one object, exactly.
    let namespaces: String = (500..600)
        .map(|n| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: many-{n}}}\n"))
        .collect();
    cluster.kubectl_with_input(&["create", "-f", "-"], &namespaces).unwrap();
    wait("more are made", &log, || count(cluster, "networkpolicies", made) == 600);
    sleep(Duration::from_secs(3));
    assert_eq!(writes(cluster, "networkpolicies") - before, written + 100);
    cluster.kubectl(&["delete", "clusterpolicy", "many", "probe"]).unwrap();
    wait("all are gone with their policy", &log, || count(cluster, "networkpolicies", made) == 0);
}

#[test]
fn synchronised_objects_follow_and_missing_rights_heal() {
    let Some((cluster, _turn)) = cluster() else { return };
    let log = cluster.folder().join("rights.log");
    let user = "kiln-test-controller";
    cluster
        .apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {{name: test-reader}}\n\
             rules:\n- {{apiGroups: [\"\"], resources: [namespaces, configmaps, limitranges], verbs: [get, list, watch]}}\n\
             - {{apiGroups: [\"\"], resources: [configmaps], verbs: [create, update, delete]}}\n\
             - {{apiGroups: [events.k8s.io], resources: [events], verbs: [create]}}\n\
             - {{apiGroups: [kyverno.io], resources: [\"*\"], verbs: [\"*\"]}}\n\
             ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRoleBinding\n\
             metadata: {{name: test-reader}}\n\
             subjects: [{{kind: User, name: {user}, apiGroup: rbac.authorization.k8s.io}}]\n\
             roleRef: {{kind: ClusterRole, name: test-reader, apiGroup: rbac.authorization.k8s.io}}\n"
        ))
        .unwrap();
    let _controller = controller(cluster, Some(user), &log);
    let limits = "      apiVersion: v1\n      kind: LimitRange\n      name: made\n      data: {spec: {limits: \
                  [{type: Container, default: {cpu: 200m}}]}}\n";
    cluster.apply(&policy("limits", "rights-*", limits, true)).unwrap();
    wait("the policy is ready", &log, || ready(cluster, "limits"));
    cluster.kubectl(&["create", "namespace", "rights-a"]).unwrap();
    let requests = || {
        let path = "jsonpath={range .items[*]}{.status.state} {.status.message}{end}";
        let ours = "generate.kyverno.io/policy-name=limits";
        let args = ["get", "updaterequests", "-n", "kyverno", "-l", ours, "-o", path];
        cluster.kubectl(&args).unwrap_or_default()
    };
    wait("a failed request names the right", &log, || {
        let found = requests();
        found.starts_with("Failed") && found.contains("cannot create resource \"limitranges\"")
    });
    let role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
                metadata: {name: writer, namespace: rights-a}\n\
                subjects: [{kind: User, name: kiln-test-controller, apiGroup: rbac.authorization.k8s.io}]\n\
                roleRef: {kind: ClusterRole, name: admin-limits, apiGroup: rbac.authorization.k8s.io}\n\
                ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: admin-limits}\n\
                rules: [{apiGroups: [\"\"], resources: [limitranges], verbs: [\"*\"]}]\n";
    cluster.apply(role).unwrap();
    let limit = |path: &str| {
        let path = format!("jsonpath={path}");
        cluster
            .kubectl(&["get", "limitrange", "made", "-n", "rights-a", "-o", &path])
            .unwrap_or_default()
    };
    wait("the object is made without a restart", &log, || !limit("{.metadata.uid}").is_empty());
    wait("the request is gone", &log, || requests().is_empty());

    let patch = r#"{"spec":{"limits":[{"type":"Container","default":{"cpu":"1"}}]}}"#;
    cluster
        .kubectl(&["patch", "limitrange", "made", "-n", "rights-a", "--type=merge", "-p", patch])
        .unwrap();
    wait("an edit is reverted", &log, || limit("{.spec.limits[0].default.cpu}") == "200m");
    let uid = limit("{.metadata.uid}");
    cluster.kubectl(&["delete", "limitrange", "made", "-n", "rights-a"]).unwrap();
    wait("a deleted object comes back", &log, || {
        let now = limit("{.metadata.uid}");
        !now.is_empty() && now != uid
    });
    cluster.kubectl(&["delete", "clusterpolicy", "limits"]).unwrap();
    wait("it goes with its policy", &log, || limit("{.metadata.uid}").is_empty());
}

#[test]
fn a_second_process_stands_by_and_takes_over() {
    let Some((cluster, _turn)) = cluster() else { return };
    let logs = ["standby-first.log", "standby-second.log"].map(|name| cluster.folder().join(name));
    let said =
        |log: &Path, words: &str| std::fs::read_to_string(log).unwrap_or_default().contains(words);
    let first = controller(cluster, None, &logs[0]);
    wait("the first holds the Lease", &logs[0], || said(&logs[0], "holds the Lease"));
    let _second = controller(cluster, None, &logs[1]);
    wait("the second stands by", &logs[1], || said(&logs[1], "stands by"));
    cluster.apply(&policy("taken-over", "taken-*", NETWORK_POLICY, true)).unwrap();
    wait("the policy is ready", &logs[0], || ready(cluster, "taken-over"));
    let made = "generate.kyverno.io/policy-name=taken-over";
    cluster.kubectl(&["create", "namespace", "taken-a"]).unwrap();
    wait("the first acts", &logs[0], || count(cluster, "networkpolicies", made) == 1);
    drop(first);
    cluster.kubectl(&["create", "namespace", "taken-b"]).unwrap();
    wait("the second acts", &logs[1], || count(cluster, "networkpolicies", made) == 2);
    cluster.kubectl(&["delete", "clusterpolicy", "taken-over"]).unwrap();
    wait("the second cleans up", &logs[1], || count(cluster, "networkpolicies", made) == 0);
}

#[test]
fn server_side_apply_brings_our_fields_back_and_leaves_others() {
    let Some((cluster, _turn)) = cluster() else { return };
    let log = cluster.folder().join("apply.log");
    let _controller = controller(cluster, None, &log);
    let made = "      apiVersion: v1\n      kind: ConfigMap\n      name: made\n      data: {data: {ours: \"1\"}}\n";
    let text = policy("applied", "applied-*", made, true)
        .replace("spec:\n", "spec:\n  useServerSideApply: true\n");
    cluster.apply(&text).unwrap();
    wait("the policy is ready", &log, || ready(cluster, "applied"));
    cluster.kubectl(&["create", "namespace", "applied-a"]).unwrap();
    let data = || {
        let args = ["get", "configmap", "made", "-n", "applied-a", "-o", "jsonpath={.data}"];
        cluster.kubectl(&args).unwrap_or_default()
    };
    wait("it is made", &log, || data() == r#"{"ours":"1"}"#);
    let patch = r#"{"data":{"ours":"2","theirs":"3"}}"#;
    let args = ["patch", "configmap", "made", "-n", "applied-a", "--type=merge", "-p", patch];
    cluster.kubectl(&args).unwrap();
    wait("ours comes back and theirs stays", &log, || data() == r#"{"ours":"1","theirs":"3"}"#);
    cluster.kubectl(&["delete", "clusterpolicy", "applied"]).unwrap();
}
