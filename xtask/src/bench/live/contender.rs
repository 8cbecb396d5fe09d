//! The contenders: how each is installed, started and looked at.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::kyverno::{Controller, Kyverno, NAMESPACE};
use kiln_testkit::control_plane::{ControlPlane, Watched, free_port};
use serde_json::json;

use super::Programs;
use super::pods::TEAMS;
use super::watch::Watch;
use crate::bench::client::Client;

/// Starts a program again when it ends, as a kubelet does, and writes down its number and how often it ended.
const KUBELET: &str =
    r#"while :; do "$@" & echo $! > "$0.pid"; wait $!; echo $? >> "$0.ends"; sleep 1; done"#;
const ADMISSION: &str = "kyverno-admission-controller";
const BACKGROUND: &str = "kyverno-background-controller";
/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(180);

/// Who competes.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Who {
    Kiln,
    Kyverno,
    /// With ten times the client limits that it has by default.
    KyvernoUnthrottled,
}

impl Who {
    /// Its name in the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Who::Kiln => "kiln",
            Who::Kyverno => "kyverno",
            Who::KyvernoUnthrottled => "kyverno, unthrottled",
        }
    }
}

/// A fresh control plane with what one contender needs to be there.
pub(super) struct Stage<'a> {
    pub(super) client: Client,
    who: Who,
    programs: &'a Programs,
    plane: ControlPlane,
    /// Those of Kyverno's controllers that run.
    controllers: &'static [Controller],
}

impl<'a> Stage<'a> {
    pub(super) fn set(programs: &'a Programs, who: Who) -> Result<Self> {
        let plane = ControlPlane::start().context("cannot start the control plane")?;
        let printed = match (&programs.kyverno, who) {
            (Some(kyverno), Who::Kyverno | Who::KyvernoUnthrottled) => kyverno.manifest()?,
            _ => {
                let mut install = Command::new(&programs.kiln);
                install.args(["install", "--no-workload", "--grant", "standard"]);
                String::from_utf8(install.output()?.stdout)?
            }
        };
        plane.apply(&printed)?;
        let names = plane.kubectl(&["get", "crd", "-o", "name"])?;
        let mut wait = vec!["wait", "--for=condition=Established", "--timeout=120s"];
        wait.extend(names.lines());
        plane.kubectl(&wait)?;
        let client = Client::of(&plane)?;
        let controllers = &[Controller::Admission, Controller::Background];
        Ok(Stage { client, who, programs, plane, controllers })
    }

    /// The same with Kyverno's reports controller, which scans and writes reports.
    pub(super) fn with_reports(self) -> Self {
        let controllers = &[Controller::Admission, Controller::Background, Controller::Reports];
        Stage { controllers, ..self }
    }

    /// Starts the contender, and waits until it says that it is ready.
    pub(super) fn start(&self) -> Result<Contender> {
        let port = free_port()?;
        let processes = match (&self.programs.kyverno, self.who) {
            (Some(kyverno), Who::Kyverno | Who::KyvernoUnthrottled) => {
                let started = self.controllers.iter();
                started
                    .map(|one| self.controller(kyverno, *one, port))
                    .collect::<Result<Vec<_>>>()?
            }
            _ => vec![self.kiln(port)?],
        };
        let contender = Contender { processes };
        let ready = match self.who {
            Who::Kiln => "/readyz",
            Who::Kyverno | Who::KyvernoUnthrottled => "/health/readiness",
        };
        let health = format!("https://127.0.0.1:{port}{ready}");
        let agent = unverified(Duration::from_secs(5));
        contender.wait("ready", || agent.get(&health).call().is_ok())?;
        let leaders = self.controllers.iter().filter(|one| **one != Controller::Admission);
        for leader in leaders.filter(|_| self.who != Who::Kiln) {
            let (leases, name) = ("/apis/coordination.k8s.io/v1/namespaces", leader.name());
            let leads = format!("{leases}/{NAMESPACE}/leases/{name}");
            contender.wait("acting", || {
                let lease = self.client.object(&leads).unwrap_or_default();
                lease["spec"]["holderIdentity"].as_str().is_some_and(|holder| !holder.is_empty())
            })?;
        }
        Ok(contender)
    }

    /// What is left behind by one that was killed would keep others from writing.
    pub(super) fn remove_webhooks(&self) -> Result<()> {
        let kinds = "mutatingwebhookconfigurations,validatingwebhookconfigurations";
        self.plane.kubectl(&["delete", kinds, "--all"])?;
        Ok(())
    }

    fn kiln(&self, port: u16) -> Result<Process> {
        let account = |name: &str| format!("system:serviceaccount:{NAMESPACE}:{name}");
        let mut command = Command::new(&self.programs.kiln);
        command.arg("run").arg("--kubeconfig").arg(self.plane.kubeconfig());
        command.arg(format!("--as-controller={}", account(BACKGROUND)));
        command.arg(format!("--as-admission={}", account(ADMISSION)));
        command.arg(format!("--webhook-url=https://127.0.0.1:{port}"));
        command.arg(format!("--listen=127.0.0.1:{port}"));
        Process::spawn(&command, &self.plane.directory().join("kiln"))
    }

    /// One of Kyverno's controllers, as its Deployment says.
    fn controller(&self, kyverno: &Kyverno, controller: Controller, port: u16) -> Result<Process> {
        let mut command = kyverno.command(&self.plane, controller, port)?;
        if self.who == Who::KyvernoUnthrottled {
            command.args(["--clientRateLimitQPS=1000", "--clientRateLimitBurst=2000"]);
        }
        Process::spawn(&command, &self.plane.directory().join(controller.name()))
    }

    /// Makes the namespaces that Pods are in.
    pub(super) fn teams(&self) -> Result<()> {
        for team in 0..TEAMS {
            let namespace = json!({
                "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": format!("team-{team}")},
            });
            self.client.post("/api/v1/namespaces", &namespace.to_string())?;
        }
        // Pods need the account of their namespace.
        let mut accounts =
            Watch::begin(&self.client, "/api/v1/serviceaccounts", "default", |object| {
                object["metadata"]["namespace"].as_str().is_some_and(|n| n.starts_with("team-"))
            })?;
        if accounts.wait(TEAMS).0 < TEAMS {
            bail!("the controller manager does not keep up");
        }
        Ok(())
    }
}

/// A client for servers with self-signed certificates.
pub(super) fn unverified(patience: Duration) -> ureq::Agent {
    let tls = ureq::tls::TlsConfig::builder().disable_verification(true).build();
    ureq::Agent::config_builder().tls_config(tls).timeout_global(Some(patience)).build().into()
}

/// The processes of a contender, which end with this value.
pub(super) struct Contender {
    processes: Vec<Process>,
}

impl Contender {
    /// Its memory at this moment, in bytes.
    pub(super) fn memory(&self) -> f64 {
        self.sum(|process| process.status("VmRSS:"))
    }

    /// The most memory that its processes have had, in bytes.
    pub(super) fn peak_memory(&self) -> f64 {
        self.sum(|process| process.status("VmHWM:"))
    }

    /// The processor time that it has used, in seconds.
    pub(super) fn processor_seconds(&self) -> f64 {
        self.sum(Process::processor_seconds)
    }

    fn sum(&self, figure: impl Fn(&Process) -> Option<f64>) -> f64 {
        self.processes.iter().filter_map(figure).sum()
    }

    /// How often one of its processes has ended by itself.
    pub(super) fn restarts(&self) -> usize {
        self.processes.iter().map(Process::ends).sum()
    }

    /// Waits until something holds; what the processes said is shown when it does not.
    pub(super) fn wait(&self, what: &str, mut holds: impl FnMut() -> bool) -> Result<()> {
        let began = Instant::now();
        while !holds() {
            if began.elapsed() > PATIENCE || self.restarts() > 3 {
                let words: Vec<_> = self.processes.iter().map(Process::last_words).collect();
                bail!("not {what} after {:?}:\n{}", began.elapsed(), words.join("\n"));
            }
            sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

struct Process {
    _watched: Watched,
    /// Its files, without their endings.
    name: PathBuf,
}

impl Process {
    fn spawn(command: &Command, name: &Path) -> Result<Self> {
        // Those of the one before are not ours.
        let _ = fs::remove_file(name.with_extension("ends"));
        let mut watched = Command::new("sh");
        watched.args(["-c", KUBELET]).arg(name);
        watched.arg(command.get_program()).args(command.get_args());
        watched.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let watched = Watched::spawn(&watched, &name.with_extension("log"))
            .with_context(|| format!("cannot start {}", command.get_program().display()))?;
        Ok(Process { _watched: watched, name: name.to_owned() })
    }

    fn ends(&self) -> usize {
        let ends = fs::read_to_string(self.name.with_extension("ends"));
        ends.map_or(0, |ends| ends.lines().count())
    }

    fn proc(&self, file: &str) -> Option<String> {
        let pid = fs::read_to_string(self.name.with_extension("pid")).ok()?;
        fs::read_to_string(Path::new("/proc").join(pid.trim()).join(file)).ok()
    }

    /// A line of the kernel's account of it, in bytes.
    fn status(&self, line: &str) -> Option<f64> {
        let status = self.proc("status")?;
        let found = status.lines().find_map(|text| text.strip_prefix(line))?;
        Some(found.split_whitespace().next()?.parse::<f64>().ok()? * 1024.0)
    }

    fn processor_seconds(&self) -> Option<f64> {
        let stat = self.proc("stat")?;
        // The name, which comes before, may have blanks in it.
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
        let ticks = fields.get(11)?.parse::<f64>().ok()? + fields.get(12)?.parse::<f64>().ok()?;
        // The kernel reports hundredths.
        Some(ticks / 100.0)
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.name.with_extension("log")).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}
