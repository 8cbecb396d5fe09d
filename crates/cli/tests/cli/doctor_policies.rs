//! `kiln doctor` about policies: the rights that they need, what their status says, and who stored them.

use std::time::{Duration, Instant};

use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};

use crate::harness::Folder;

/// A cluster with what `kiln install` prints, and no engine.
struct Patient {
    cluster: ControlPlane,
    folder: Folder,
}

impl Patient {
    fn new() -> Option<Self> {
        let cluster = ControlPlane::for_test()?;
        let folder = Folder::with(&[]);
        cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        cluster.kubectl(&wait).unwrap();
        Some(Patient { cluster, folder })
    }

    /// What doctor finds about something, each as `state`, `message` and `hint`.
    fn finds(&self, about: &str) -> Vec<[String; 3]> {
        let kubeconfig = self.cluster.kubeconfig().display().to_string();
        let run = self.folder.kiln(&["doctor", "--format=json", "--kubeconfig", &kubeconfig]);
        let all = json::parse(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr));
        let text = |found: &Value, key: &str| found.str_at([key]).unwrap_or_default().to_owned();
        let found = all.as_list().unwrap().iter();
        found
            .filter(|found| found.str_at(["about"]) == Some(about))
            .map(|found| ["state", "message", "hint"].map(|key| text(found, key)))
            .collect()
    }
}

#[test]
fn roles_that_policies_lack_can_be_applied_side_by_side() {
    let Some(patient) = Patient::new() else { return };
    for (namespace, kind) in [("shop", "ServiceAccount"), ("lab", "Endpoints")] {
        patient.cluster.kubectl(&["create", "namespace", namespace]).unwrap();
        patient
            .cluster
            .apply(&format!(
                "apiVersion: kyverno.io/v1\nkind: Policy\nmetadata: {{name: np, namespace: {namespace}}}\nspec:\n  rules:\n  \
                 - name: make\n    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}\n    \
                 generate: {{apiVersion: v1, kind: {kind}, name: made, namespace: {namespace}, data: {{}}}}\n"
            ))
            .unwrap();
    }
    let lacking = patient.finds("rights");
    let roles: Vec<&str> = lacking
        .iter()
        .filter(|[state, ..]| state == "problem")
        .map(|[_, _, hint]| hint.split_once("apply:\n").unwrap().1)
        .collect();
    assert_eq!(roles.len(), 2, "{lacking:?}");
    for role in roles {
        patient.cluster.apply(role).unwrap();
    }
    // Kubernetes collects what roles with a label hold.
    let begin = Instant::now();
    loop {
        let found = patient.finds("rights");
        if found.iter().all(|[state, ..]| state == "ok") {
            return;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{found:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}
