//! `kiln adopt --plan`, on a cluster state as Kyverno leaves it.

use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{Folder, Run, SETTINGS_POLICY, kiln};

const CHECKS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: checks}
spec:
  rules:
  - name: labels
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {message: label it, pattern: {metadata: {labels: {app: '?*'}}}}
";

/// What Kyverno makes of a Namespace with this UID.
fn made(namespace: &str, uid: &str, mode: &str) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: settings\n  namespace: {namespace}\n  labels:\n    \
         app.kubernetes.io/managed-by: kyverno\n    \
         generate.kyverno.io/policy-name: settings\n    generate.kyverno.io/policy-namespace: ''\n    \
         generate.kyverno.io/rule-name: make\n    generate.kyverno.io/trigger-group: ''\n    \
         generate.kyverno.io/trigger-kind: Namespace\n    generate.kyverno.io/trigger-namespace: ''\n    \
         generate.kyverno.io/trigger-uid: {uid}\n    generate.kyverno.io/trigger-version: v1\n\
         data:\n  mode: {mode}\n"
    )
}

#[test]
fn says_what_runs_unchanged_and_what_becomes_of_what_was_made() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
    let policies = format!("{SETTINGS_POLICY}---{CHECKS}");
    cluster.kubectl_with_input(&["create", "-f", "-"], &policies).unwrap();
    for name in ["team-a", "team-b"] {
        cluster.kubectl(&["create", "namespace", name]).unwrap();
    }
    let uid = |name: &str| {
        cluster.kubectl(&["get", "namespace", name, "-o", "jsonpath={.metadata.uid}"]).unwrap()
    };
    for name in ["team-a", "team-b"] {
        cluster.apply(&made(name, &uid(name), "quiet")).unwrap();
    }
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let adopt = |args: &[&str]| -> Run {
        folder.kiln(&[&["adopt", "--plan", "--kubeconfig", &kubeconfig], args].concat())
    };
    let run = adopt(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    for wanted in [
        "not run   kyverno.io/v1/ClusterPolicy/checks\n",
        "unchanged kyverno.io/v1/ClusterPolicy/settings\n",
        "2 policies: 1 unchanged, 0 in part, 1 not run; 2 objects that rules made stay as they are",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    for unwanted in ["\nchange", "\ndelete", "\ncreate", "not done"] {
        assert!(!run.stdout.contains(unwanted), "{}", run.stdout);
    }

    cluster.apply(&made("team-b", &uid("team-b"), "loud")).unwrap();
    let run = adopt(&[]);
    assert!(run.stdout.contains("change    v1/ConfigMap/team-b/settings\n"), "{}", run.stdout);
    let run = adopt(&["--format=json"]);
    assert!(run.stdout.contains("\"made\": 2"), "{}", run.stdout);
    cluster.kubectl(&["delete", "clusterpolicy", "checks"]).unwrap();
    cluster.apply(&made("team-b", &uid("team-b"), "quiet")).unwrap();
    let run = adopt(&[]);
    assert_eq!(run.code, 0, "{}", run.stdout);
}

#[test]
fn it_only_says_it() {
    let run = kiln(&["adopt"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--plan"), "{}", run.stderr);
}
