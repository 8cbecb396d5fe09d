//! Kyverno's own controllers as plain processes on a control plane, in the version that `xtask/kyverno` pins.
//!
//! They run with the accounts, rights and flags of the manifest in their module; only addresses and ports differ.

use std::path::{Path, PathBuf};
use std::process::Command;

use kiln_value::{Value, json};

use super::binaries::{go_module_file, go_program};
use super::{ControlPlane, Error, free_port};

const MODULE: &str = "github.com/kyverno/kyverno";
/// The namespace of its manifest.
pub const NAMESPACE: &str = "kyverno";

/// One of Kyverno's controllers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controller {
    /// Answers admission requests.
    Admission,
    /// Generates, and mutates what exists.
    Background,
    /// Scans, and writes reports.
    Reports,
}

impl Controller {
    /// The name of its Deployment, account and Lease.
    pub fn name(self) -> &'static str {
        match self {
            Controller::Admission => "kyverno-admission-controller",
            Controller::Background => "kyverno-background-controller",
            Controller::Reports => "kyverno-reports-controller",
        }
    }

    /// Its package below `cmd`.
    fn package(self) -> &'static str {
        match self {
            Controller::Admission => "kyverno",
            Controller::Background => "background-controller",
            Controller::Reports => "reports-controller",
        }
    }
}

/// Kyverno's programs and its manifest.
#[derive(Clone, Debug)]
pub struct Kyverno {
    programs: [(Controller, PathBuf); 3],
    manifest: PathBuf,
}

impl Kyverno {
    /// Finds them in the cache, or builds them, which takes many minutes the first time.
    ///
    /// # Errors
    /// When Go is not there, or the module cannot be built.
    pub fn find() -> Result<Self, Error> {
        let program = |controller: Controller| {
            let package = controller.package();
            let built = go_program(
                "kyverno",
                &format!("kyverno-{package}"),
                &format!("{MODULE}/cmd/{package}"),
            )?;
            Ok::<_, Error>((controller, built))
        };
        Ok(Kyverno {
            programs: [
                program(Controller::Admission)?,
                program(Controller::Background)?,
                program(Controller::Reports)?,
            ],
            manifest: go_module_file("kyverno", MODULE, "config/install-latest-testing.yaml")?,
        })
    }

    /// Its definitions, accounts, rights, settings and Deployments.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn manifest(&self) -> Result<String, Error> {
        Ok(std::fs::read_to_string(&self.manifest)?)
    }

    fn program(&self, controller: Controller) -> &Path {
        let found = self.programs.iter().find(|(one, _)| *one == controller);
        &found.expect("all of them are built").1
    }

    /// How one of its controllers is started on a cluster that has its manifest: as its Deployment says, and reached at
    /// a port of loopback if it answers requests.
    ///
    /// # Errors
    /// When the cluster has no such Deployment or account.
    pub fn command(
        &self,
        cluster: &ControlPlane,
        controller: Controller,
        port: u16,
    ) -> Result<Command, Error> {
        let name = controller.name();
        let read = ["get", "deployment", name, "--namespace", NAMESPACE, "--output=json"];
        let deployment = json::parse(&cluster.kubectl(&read)?)
            .map_err(|error| Error::Failed(format!("the Deployment {name}: {error}")))?;
        let containers = deployment.get_path(["spec", "template", "spec", "containers"]);
        let container = containers.and_then(|all| all.index(0)).cloned().unwrap_or_default();
        let listed = |key: &str| -> Vec<Value> {
            let list = container.get(key).and_then(Value::as_list);
            list.map(|list| list.iter().cloned().collect()).unwrap_or_default()
        };
        let mut command = Command::new(self.program(controller));
        command.args(listed("args").iter().filter_map(Value::as_str));
        for variable in listed("env") {
            let field = variable.str_at(["valueFrom", "fieldRef", "fieldPath"]);
            let value = match field {
                Some("metadata.namespace") => NAMESPACE.to_owned(),
                Some("metadata.name") => format!("{name}-0"),
                _ => variable.str_at(["value"]).unwrap_or_default().to_owned(),
            };
            command.env(variable.str_at(["name"]).unwrap_or_default(), value);
        }
        // The last of two equal flags counts.
        let kubeconfig = cluster.kubeconfig_of_account(NAMESPACE, name)?;
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.arg(format!("--metricsPort={}", free_port()?));
        if controller != Controller::Reports {
            command.arg(format!("--controllerRuntimeMetricsAddress=127.0.0.1:{}", free_port()?));
        }
        if controller == Controller::Admission {
            command.arg(format!("--serverIP=127.0.0.1:{port}"));
            command.arg(format!("--webhookServerPort={port}"));
        }
        Ok(command)
    }
}
