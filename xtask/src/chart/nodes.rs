//! Nodes for a control plane that has none: pods of the chart run as processes of this machine.
//!
//! Every pod gets what a node would give it: a process with the arguments of its container and a token of its
//! ServiceAccount, a status that follows the process, SIGTERM when it is deleted, and its end when the process ends. What
//! differs is the network: there are no Services, so API servers reach webhooks at an address of this machine, behind
//! which [`Front`] spreads connections over the pods that are ready, as a Service does.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufReader};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kiln_testkit::control_plane::ControlPlane;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

/// The namespace whose pods run.
pub(crate) const NAMESPACE: &str = "kyverno";

/// What stands in the place of the Service of the webhooks.
#[derive(Clone)]
pub(crate) struct Front {
    port: u16,
    ready: Arc<Mutex<Vec<u16>>>,
}

impl Front {
    fn listen() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let front = Front { port: listener.local_addr()?.port(), ready: Arc::default() };
        let ready = Arc::clone(&front.ready);
        thread::spawn(move || {
            let turn = AtomicUsize::new(0);
            for client in listener.incoming().flatten() {
                let ports = ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // Nothing is ready: the connection is closed, as a Service without endpoints refuses it.
                if ports.is_empty() {
                    continue;
                }
                let port = ports[turn.fetch_add(1, Ordering::Relaxed) % ports.len()];
                if let Ok(server) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) {
                    join(&client, &server);
                }
            }
        });
        Ok(front)
    }

    fn set(&self, port: u16, is_ready: bool) {
        let mut ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner);
        ready.retain(|known| *known != port);
        if is_ready {
            ready.push(port);
        }
    }
}

/// Carries bytes both ways until both sides have ended.
fn join(client: &TcpStream, server: &TcpStream) {
    for (from, to) in [(client, server), (server, client)] {
        let (Ok(mut from), Ok(mut to)) = (from.try_clone(), to.try_clone()) else { return };
        thread::spawn(move || {
            let _ = io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
    }
}

/// The nodes; their pods end with them.
pub(crate) struct Nodes {
    inner: Arc<Inner>,
    watch: Child,
}

struct Inner {
    cluster: Arc<ControlPlane>,
    /// The program for each image.
    images: BTreeMap<String, PathBuf>,
    front: Front,
    /// The pods that are to run, by UID.
    running: Mutex<BTreeSet<String>>,
    /// One kubeconfig is written at a time.
    accounts: Mutex<()>,
    ended: AtomicBool,
}

impl Nodes {
    /// Runs the pods of a cluster.
    pub(crate) fn start(
        cluster: &Arc<ControlPlane>,
        images: BTreeMap<String, PathBuf>,
    ) -> Result<Self> {
        let inner = Arc::new(Inner {
            cluster: Arc::clone(cluster),
            images,
            front: Front::listen()?,
            running: Mutex::default(),
            accounts: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let mut watch = Command::new(cluster.kubectl_path())
            .args(["get", "pods", "--watch", "--output-watch-events", "--output=json"])
            .args(["--namespace", NAMESPACE])
            .env("KUBECONFIG", cluster.kubeconfig())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let events = watch.stdout.take().context("it is piped")?;
        let seen = Arc::clone(&inner);
        thread::spawn(move || {
            let events = serde_json::Deserializer::from_reader(BufReader::new(events));
            for event in events.into_iter::<Value>().map_while(Result::ok) {
                seen.see(&event);
            }
        });
        Ok(Nodes { inner, watch })
    }
}

impl Drop for Nodes {
    fn drop(&mut self) {
        let _ = self.watch.kill();
        let _ = self.watch.wait();
        self.inner.ended.store(true, Ordering::Relaxed);
        self.inner.running().clear();
        // Their processes get SIGTERM.
        thread::sleep(Duration::from_secs(1));
    }
}

impl Inner {
    fn running(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn see(self: &Arc<Self>, event: &Value) {
        let pod = event["object"].clone();
        let uid = text(&pod, "/metadata/uid");
        let goes = event["type"] == "DELETED" || pod["metadata"]["deletionTimestamp"].is_string();
        if goes {
            self.running().remove(&uid);
            return;
        }
        if pod["spec"]["nodeName"].is_string() || !self.running().insert(uid) {
            return;
        }
        let inner = Arc::clone(self);
        thread::spawn(move || {
            if let Err(error) = inner.run(&pod) {
                eprintln!("pod {}: {error:#}", text(&pod, "/metadata/name"));
            }
        });
    }

    /// Runs a pod from its beginning to its end.
    fn run(&self, pod: &Value) -> Result<()> {
        let name = text(pod, "/metadata/name");
        let uid = text(pod, "/metadata/uid");
        self.bind(&name)?;
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let mut process = self.begin(pod, &name, port)?;
        let is_running = || self.running().contains(&uid);
        if pod["spec"]["restartPolicy"] == "Never" {
            let ended = process.wait()?;
            let phase = if ended.success() { "Succeeded" } else { "Failed" };
            return self.status(&name, &json!({"phase": phase, "containerStatuses": [{
                "name": "kiln", "image": "kiln", "imageID": "kiln", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": ended.code().unwrap_or(1)}},
            }]}));
        }
        let mut was_ready = false;
        while is_running() {
            if let Some(status) = process.try_wait()? {
                self.front.set(port, false);
                bail!("the process ended by itself: {status}; see {}", self.log(&name).display());
            }
            let is_ready = answers(port);
            if is_ready != was_ready {
                was_ready = is_ready;
                self.front.set(port, is_ready);
                let condition = if is_ready { "True" } else { "False" };
                self.status(
                    &name,
                    &json!({"phase": "Running", "conditions": [
                        {"type": "Ready", "status": condition},
                        {"type": "ContainersReady", "status": condition},
                    ]}),
                )?;
            }
            thread::sleep(Duration::from_millis(500));
        }
        // As endpoints do, the address goes while the process still serves.
        self.front.set(port, false);
        kill(Pid::from_raw(i32::try_from(process.id())?), Signal::SIGTERM)?;
        process.wait()?;
        if !self.ended.load(Ordering::Relaxed) {
            let _ = self.cluster.kubectl(&[
                "delete",
                "pod",
                &name,
                "--namespace",
                NAMESPACE,
                "--grace-period=0",
                "--force",
                "--ignore-not-found",
            ]);
        }
        Ok(())
    }

    fn begin(&self, pod: &Value, name: &str, port: u16) -> Result<Child> {
        let container = &pod["spec"]["containers"][0];
        let image = text(container, "/image");
        let program = self.images.get(&image).with_context(|| format!("no image {image}"))?;
        let account = text(pod, "/spec/serviceAccountName");
        let kubeconfig = {
            let _one = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            self.cluster.kubeconfig_of_account(NAMESPACE, &account)?
        };
        let mut args: Vec<String> = Vec::new();
        for arg in container["args"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            args.push(match arg.starts_with("--listen=") {
                true => format!("--listen=127.0.0.1:{port}"),
                false => arg.to_owned(),
            });
        }
        if args.first().is_some_and(|command| command == "run") {
            args.push(format!("--webhook-url=https://127.0.0.1:{}", self.front.port));
            args.push("--leave-webhooks".to_owned());
        }
        let log = File::create(self.log(name))?;
        Command::new(program)
            .args(&args)
            .arg("--kubeconfig")
            .arg(kubeconfig)
            .env("HOSTNAME", name)
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))
    }

    fn bind(&self, name: &str) -> Result<()> {
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": name},
            "target": {"apiVersion": "v1", "kind": "Node", "name": "here"},
        });
        let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding");
        let args = ["create", "--raw", &path, "--filename=-"];
        self.cluster.kubectl_with_input(&args, &binding.to_string())?;
        Ok(())
    }

    fn status(&self, name: &str, status: &Value) -> Result<()> {
        let patch = json!({"status": status}).to_string();
        self.cluster.kubectl(&[
            "patch",
            "pod",
            name,
            "--namespace",
            NAMESPACE,
            "--subresource=status",
            "--type=merge",
            "--patch",
            &patch,
        ])?;
        Ok(())
    }

    fn log(&self, name: &str) -> PathBuf {
        self.cluster.directory().join(format!("pod-{name}.log"))
    }
}

/// Whether a process says that it is ready.
fn answers(port: u16) -> bool {
    let curl = Command::new("curl")
        .args(["--silent", "--insecure", "--fail", "--max-time", "2", "--output", "/dev/null"])
        .arg(format!("https://127.0.0.1:{port}/readyz"))
        .status();
    curl.is_ok_and(|status| status.success())
}

fn text(value: &Value, path: &str) -> String {
    value.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned()
}
