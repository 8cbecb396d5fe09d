//! A real control plane with what `kiln install` prints, `kiln run` as processes on it, and looks at both.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kiln_testkit::control_plane::{self, ControlPlane, Watched};
use kiln_value::{Value, json};

/// The account that rules act as.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:kyverno:kyverno-background-controller";
/// The account that answers requests.
pub(crate) const ADMISSION: &str = "system:serviceaccount:kyverno:kyverno-admission-controller";
/// How long something may take that happens by itself.
pub(crate) const PATIENCE: Duration = Duration::from_secs(90);

/// The cluster, for one test at a time: two engines would take each other's work.
pub(crate) struct Cluster {
    plane: &'static ControlPlane,
    _turn: MutexGuard<'static, Plane>,
    /// What the engines of this test write their logs to.
    logs: RefCell<Vec<PathBuf>>,
}

impl std::ops::Deref for Cluster {
    type Target = ControlPlane;

    fn deref(&self) -> &ControlPlane {
        self.plane
    }
}

/// A control plane that tests use in turns, when one of them has started it.
type Plane = Option<&'static ControlPlane>;

/// The turn on a control plane, unless another test has it.
fn take(plane: &'static Mutex<Plane>) -> Option<MutexGuard<'static, Plane>> {
    match plane.try_lock() {
        Ok(turn) => Some(turn),
        // A test that failed leaves webhooks and rules behind, and the next one would fail for them.
        Err(TryLockError::Poisoned(turn)) => {
            plane.clear_poison();
            let mut turn = turn.into_inner();
            *turn = None;
            Some(turn)
        }
        Err(TryLockError::WouldBlock) => None,
    }
}

/// A control plane with everything installed; none, said loudly, where there is none. Tests mostly wait, so several
/// run side by side, each on a control plane that is its own meanwhile.
pub(crate) fn cluster() -> Option<Cluster> {
    static PLANES: [Mutex<Plane>; 3] = [const { Mutex::new(None) }; 3];
    let mut turn = loop {
        if let Some(turn) = PLANES.iter().find_map(take) {
            break turn;
        }
        sleep(Duration::from_millis(50));
    };
    let plane = match *turn {
        Some(plane) => plane,
        None => {
            let plane: &ControlPlane = Box::leak(Box::new(ControlPlane::for_test()?));
            install_with(plane, &earlier_kiln());
            *turn = Some(plane);
            plane
        }
    };
    Some(Cluster { plane, _turn: turn, logs: RefCell::default() })
}

/// A cluster of another kind for one test alone, with everything installed.
pub(crate) fn on(
    start: impl FnOnce() -> Result<ControlPlane, control_plane::Error>,
) -> Option<Cluster> {
    let cluster = on_bare(start)?;
    install_with(&cluster, Path::new(KILN));
    Some(cluster)
}

/// A cluster of another kind for one test alone, with nothing in it.
pub(crate) fn on_bare(
    start: impl FnOnce() -> Result<ControlPlane, control_plane::Error>,
) -> Option<Cluster> {
    static TURN: Mutex<Plane> = Mutex::new(None);
    let turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let plane = match start() {
        Ok(plane) => plane,
        Err(control_plane::Error::Unavailable(why)) => {
            kiln_testkit::skip(&format!("there is no kubectl: {why}"), "cargo xtask cluster");
            return None;
        }
        Err(error) => panic!("the cluster does not start: {error:?}"),
    };
    let plane: &ControlPlane = Box::leak(Box::new(plane));
    Some(Cluster { plane, _turn: turn, logs: RefCell::default() })
}

/// The program under test.
pub(crate) const KILN: &str = env!("CARGO_BIN_EXE_kiln");

/// The program that clusters begin with: this one, or the earlier version that `cargo xtask upgrade` names.
pub(crate) fn earlier_kiln() -> PathBuf {
    std::env::var_os("KILN_UPGRADE_FROM").map_or_else(|| KILN.into(), PathBuf::from)
}

/// Applies what `kiln install` prints, for engines that run outside the cluster.
pub(crate) fn install(plane: &ControlPlane) {
    install_with(plane, Path::new(KILN));
}

fn install_with(plane: &ControlPlane, kiln: &Path) {
    let printed = Command::new(kiln)
        .args(["install", "--no-workload", "--grant", "standard"])
        .output()
        .unwrap();
    plane.apply(&String::from_utf8(printed.stdout).unwrap()).unwrap();
    let names = plane.kubectl(&["get", "crd", "-o", "name"]).unwrap();
    let mut wait = vec!["wait", "--for=condition=Established", "--timeout=60s"];
    wait.extend(names.lines());
    plane.kubectl(&wait).unwrap();
}

/// `kiln run` in a process of its own, which ends with this value as if by `kill -9`.
pub(crate) struct Engine {
    process: Option<Watched>,
    /// The port that it serves at.
    pub(crate) port: u16,
    log: PathBuf,
    /// Holds the number of its process.
    pid: PathBuf,
}

/// A port that is free now.
pub(crate) fn free_port() -> u16 {
    control_plane::free_port().unwrap()
}

impl Engine {
    /// Whether its log has some words in it.
    pub(crate) fn said(&self, words: &str) -> bool {
        std::fs::read_to_string(&self.log).unwrap_or_default().contains(words)
    }

    /// Ends it as if by `kill -9`.
    pub(crate) fn kill(&mut self) {
        self.process = None;
    }

    /// Tells it to end, and waits until it has.
    pub(crate) fn terminate(&mut self) {
        let Some(process) = self.process.take() else { return };
        let pid = std::fs::read_to_string(&self.pid).unwrap();
        let status = Command::new("kill").args(["-TERM", pid.trim()]).status().unwrap();
        assert!(status.success(), "the engine has ended before");
        let begin = Instant::now();
        while !process.has_ended() {
            assert!(begin.elapsed() < Duration::from_secs(60), "the engine does not end");
            sleep(Duration::from_millis(50));
        }
    }

    /// The body of an answer of its server, when the answer is a good one.
    pub(crate) fn get(&self, path: &str) -> Option<String> {
        self.ask(http::Request::get(path).body(Vec::new()).ok()?, None).ok()
    }

    /// What it answers to a review.
    pub(crate) fn review(&self, path: &str, review: &Value) -> Value {
        let request = http::Request::post(path).body(json::to_string(review).into_bytes()).unwrap();
        json::parse(&self.ask(request, None).unwrap()).unwrap()
    }

    /// Asks over a connection of its own, of which the certificate must be signed by one of these authorities.
    pub(crate) fn ask(
        &self,
        request: http::Request<Vec<u8>>,
        authorities: Option<Vec<Vec<u8>>>,
    ) -> Result<String, String> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let url = format!("https://127.0.0.1:{}", self.port).parse().unwrap();
        let mut config = kube::Config::new(url);
        config.accept_invalid_certs = authorities.is_none();
        config.root_cert = authorities;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let client = kube::Client::try_from(config).map_err(|error| error.to_string())?;
            client.request_text(request).await.map_err(|error| format!("{error:?}"))
        })
    }
}

impl Cluster {
    /// Starts an engine with some arguments; both sides act as the accounts that are installed for them.
    pub(crate) fn engine(&self, args: &[&str]) -> Engine {
        self.engine_at(&self.kubeconfig(), args)
    }

    /// An engine that only generates.
    pub(crate) fn controller(&self) -> Engine {
        self.engine(&["--only", "controller"])
    }

    /// An engine that answers requests at an address of its own, and generates.
    pub(crate) fn whole(&self, more: &[&str]) -> Engine {
        self.whole_at(&self.kubeconfig(), more)
    }

    /// An engine that answers requests and generates, and reaches the API server by a kubeconfig.
    pub(crate) fn whole_at(&self, kubeconfig: &Path, more: &[&str]) -> Engine {
        let port = free_port();
        let url = format!("https://127.0.0.1:{port}");
        let listen = format!("127.0.0.1:{port}");
        let args = ["--webhook-url", &url, "--listen", &listen, "--shutdown-grace-period", "0"];
        self.engine_at(kubeconfig, &[&args[..], more].concat())
    }

    /// Starts an engine that reaches the API server by a kubeconfig.
    pub(crate) fn engine_at(&self, kubeconfig: &Path, args: &[&str]) -> Engine {
        self.start(Path::new(KILN), kubeconfig, args)
    }

    /// Starts a version of the engine.
    pub(crate) fn start(&self, kiln: &Path, kubeconfig: &Path, args: &[&str]) -> Engine {
        let accounts = ["--as-controller", CONTROLLER, "--as-admission", ADMISSION];
        self.start_as(kiln, kubeconfig, &[&accounts, args].concat())
    }

    /// Starts a version of the engine that acts as the arguments say.
    pub(crate) fn start_as(&self, kiln: &Path, kubeconfig: &Path, args: &[&str]) -> Engine {
        let listens = args.iter().position(|arg| *arg == "--listen");
        let port = listens.and_then(|at| args[at + 1].rsplit(':').next()?.parse().ok());
        let port = port.unwrap_or_else(free_port);
        let number = self.logs.borrow().len();
        let name = std::thread::current().name().unwrap_or("test").replace(':', "-");
        let log = self.directory().join(format!("{name}-{number}.log"));
        let listen = format!("127.0.0.1:{port}");
        let pid = log.with_extension("pid");
        let mut command = Command::new("sh");
        command.args(["-c", "echo $$ > \"$0\"; exec \"$@\""]).arg(&pid);
        command.arg(kiln).arg("run").arg("--kubeconfig").arg(kubeconfig);
        // Those who come after one that was killed need not wait long.
        if !args.contains(&"--lease") {
            command.args(["--lease", "2"]);
        }
        if !args.contains(&"--listen") {
            command.args(["--listen", &listen]);
        }
        command.args(args);
        let process = Watched::spawn(&command, &log).unwrap();
        self.logs.borrow_mut().push(log.clone());
        Engine { process: Some(process), port, log, pid }
    }

    /// Waits until something holds; what the engines said is shown when it does not.
    pub(crate) fn wait(&self, what: &str, holds: impl FnMut() -> bool) {
        self.wait_for(PATIENCE, what, holds);
    }

    /// Waits at most for some time, and tells how long it took.
    pub(crate) fn wait_for(
        &self,
        patience: Duration,
        what: &str,
        mut holds: impl FnMut() -> bool,
    ) -> Duration {
        let begin = Instant::now();
        while !holds() {
            if begin.elapsed() > patience {
                let mut words = String::new();
                for log in self.logs.borrow().iter() {
                    let text = std::fs::read_to_string(log).unwrap_or_default();
                    let lines: Vec<_> = text.lines().collect();
                    let tail = lines[lines.len().saturating_sub(25)..].join("\n");
                    words.push_str(&format!("\n{}:\n{tail}\n", log.display()));
                }
                panic!("{what} does not come to hold; the last words were:{words}");
            }
            sleep(Duration::from_millis(100));
        }
        begin.elapsed()
    }

    /// Applies a policy, and waits until it is ready.
    pub(crate) fn policy(&self, text: &str) {
        self.wait("the policy is accepted", || self.apply(text).is_ok());
        let name = text.split_once("name: ").map(|(_, rest)| rest).unwrap_or_default();
        let name = name.split(['}', ',', '\n']).next().unwrap_or_default().trim().to_owned();
        self.wait("the policy is ready", || self.ready(&name));
    }

    /// Whether a policy is ready.
    pub(crate) fn ready(&self, policy: &str) -> bool {
        let path = r#"jsonpath={.status.conditions[?(@.type=="Ready")].status}"#;
        let found = self.kubectl(&["get", "clusterpolicy", policy, "-o", path]);
        found.is_ok_and(|found| found == "True")
    }

    /// An object; none when it is not there.
    pub(crate) fn object(&self, what: &[&str]) -> Option<Value> {
        let text = self.kubectl(&[&["get", "-o", "json"], what].concat()).ok()?;
        json::parse(&text).ok()
    }

    /// How many objects of a resource carry labels.
    pub(crate) fn count(&self, resource: &str, selector: &str) -> usize {
        let listed = self.kubectl(&["get", resource, "-A", "-l", selector, "-o", "name"]);
        listed.map_or(0, |listed| listed.lines().count())
    }

    /// How many writes of a resource the API server has answered well.
    pub(crate) fn writes(&self, resource: &str) -> u64 {
        let metrics = self.kubectl(&["get", "--raw", "/metrics"]).unwrap();
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

    /// UpdateRequests that hold a stored request.
    pub(crate) fn carried(&self) -> usize {
        self.count("updaterequests.kyverno.io", "kiln.dev/carries")
    }

    /// Grants the controller's account rights, and takes them back with the value.
    pub(crate) fn grant(&self, name: &str, groups: &str, resources: &str) {
        self.apply(&format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata:\n  name: {name}\n  \
             labels: {{rbac.kyverno.io/aggregate-to-background-controller: \"true\"}}\n\
             rules: [{{apiGroups: [{groups}], resources: [{resources}], verbs: [\"*\"]}}]\n"
        ))
        .unwrap();
    }
}

/// A policy with one generate rule for Namespaces.
pub(crate) fn policy(name: &str, namespaces: &str, kind: &str, sync: bool) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\n\
         spec:\n  rules:\n  - name: make\n\
         \x20   match: {{any: [{{resources: {{kinds: [Namespace], names: [\"{namespaces}\"]}}}}]}}\n\
         \x20   generate:\n      synchronize: {sync}\n\
         {kind}      namespace: \"{{{{request.object.metadata.name}}}}\"\n"
    )
}

/// What a rule makes: a NetworkPolicy.
pub(crate) const NETWORK_POLICY: &str = "      apiVersion: networking.k8s.io/v1\n      kind: NetworkPolicy\n      \
     name: made\n      data: {spec: {podSelector: {}, policyTypes: [Ingress]}}\n";

/// What a rule makes: a ConfigMap.
pub(crate) const CONFIG_MAP: &str = "      apiVersion: v1\n      kind: ConfigMap\n      name: made\n      \
     data: {data: {a: \"1\"}}\n";

/// Namespaces of some names.
pub(crate) fn namespaces(names: impl IntoIterator<Item = String>) -> String {
    let one = |name| format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n");
    names.into_iter().map(one).collect()
}

/// How many requests are a load. On a busy machine, more of them come after what is done meanwhile.
const LOAD: usize = 20;

/// Sends requests in two streams while something is done; no request may fail. `send` gets a name of its own each time.
pub(crate) fn under_load(
    send: impl Fn(&str) -> Result<(), String> + Sync,
    meanwhile: impl FnOnce(),
) {
    let done = AtomicBool::new(false);
    let failed = Mutex::new(Vec::new());
    let sent = AtomicUsize::new(0);
    thread::scope(|scope| {
        let (send, done, failed, sent) = (&send, &done, &failed, &sent);
        for stream in 0..2 {
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) || sent.load(Ordering::Relaxed) < LOAD {
                    let number = sent.fetch_add(1, Ordering::Relaxed);
                    if let Err(why) = send(&format!("load-{stream}-{number}")) {
                        failed.lock().unwrap().push(why);
                    }
                }
            });
        }
        // The streams end also when what is done meanwhile fails.
        let _ended = EndStreams(done);
        meanwhile();
    });
    let failed = failed.into_inner().unwrap();
    let sent = sent.into_inner();
    assert!(failed.is_empty(), "{} of {sent} failed: {failed:?}", failed.len());
    assert!(sent >= LOAD, "there was hardly a load: {sent} requests");
}

struct EndStreams<'d>(&'d AtomicBool);

impl Drop for EndStreams<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
