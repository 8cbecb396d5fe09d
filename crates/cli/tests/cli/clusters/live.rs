//! A real control plane with what `kiln install` prints, and `kiln run` beside it.

use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use kiln_testkit::control_plane::{ControlPlane, Watched, free_port};
use kiln_value::{Value, json};

use crate::harness::Folder;

/// A cluster with everything that `kiln install` prints, and `kiln run` beside it.
pub(crate) struct Running {
    pub(crate) cluster: ControlPlane,
    pub(crate) folder: Folder,
    _engine: Watched,
}

impl Running {
    /// Starts both, with these options.
    pub(crate) fn start(install: &[&str], run: &[&str]) -> Option<Self> {
        let cluster = ControlPlane::for_test()?;
        let folder = Folder::with(&[]);
        let install = folder.kiln(&[&["install"], install].concat());
        cluster.apply(&install.stdout).unwrap();
        let wait = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
        cluster.kubectl(&wait).unwrap();
        let port = free_port().unwrap();
        let account = "system:serviceaccount:kyverno:kyverno";
        let mut engine = Command::new(env!("CARGO_BIN_EXE_kiln"));
        engine.arg("run").args(run).arg("--kubeconfig").arg(cluster.kubeconfig());
        engine.arg(format!("--as-admission={account}-admission-controller"));
        engine.arg(format!("--as-controller={account}-background-controller"));
        engine.arg(format!("--as-cleanup={account}-cleanup-controller"));
        engine.arg(format!("--listen=127.0.0.1:{port}"));
        engine.arg(format!("--webhook-url=https://127.0.0.1:{port}"));
        let engine = Watched::spawn(&engine, &folder.path().join("engine.log")).unwrap();
        let running = Running { cluster, folder, _engine: engine };
        let policies = "kyverno-policy-validating-webhook-cfg";
        running.wait("the webhook for policies", || {
            running.cluster.kubectl(&["get", "validatingwebhookconfiguration", policies]).is_ok()
        });
        Some(running)
    }

    pub(crate) fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let begin = Instant::now();
        while !holds() {
            if begin.elapsed() > Duration::from_secs(90) {
                panic!("{what} does not come to hold:\n{}", self.folder.read("engine.log"));
            }
            sleep(Duration::from_millis(100));
        }
    }

    /// Stores rules, and waits until they act.
    pub(crate) fn rules(&self, rules: &str) {
        self.cluster.apply(rules).unwrap();
        let ready = ["wait", "--for=condition=Ready", "modrules", "--all", "--timeout=60s", "-A"];
        let ready = self.cluster.kubectl(&ready);
        assert!(ready.is_ok(), "{ready:?}\n{}", self.folder.read("engine.log"));
    }

    pub(crate) fn get(&self, what: &[&str]) -> Value {
        let text = self.cluster.kubectl(&[&["get", "-o", "json"], what].concat()).unwrap();
        json::parse(&text).unwrap()
    }

    /// Creates what is not there yet, and gives it back as it is stored.
    pub(crate) fn create(&self, document: &str) -> Result<Value, String> {
        let args = ["create", "-o", "json", "-f", "-"];
        let made = self.cluster.kubectl_with_input(&args, document);
        made.map(|text| json::parse(&text).unwrap()).map_err(|error| error.to_string())
    }
}
