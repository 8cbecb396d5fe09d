//! Whole processes on a sandbox, of which evaluations stall and parts panic.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

use kiln_apiserver::ApiRequest;
use kiln_engine::{EvalEnv, Event, RuleOutcome, RuleSet};
use kiln_object::metadata;
use kiln_rules::Rule;
use kiln_sandbox::Sandbox;
use kiln_value::{Value, value};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::*;

/// The lease duration: renewed every 0.8 seconds, with a renew deadline of 2.8 seconds.
const LEASE: Duration = Duration::from_secs(4);
/// How long something may take that happens by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// A sandbox with what `kiln install` prints, and a kubeconfig for it.
struct Cluster {
    sandbox: Arc<Sandbox>,
    directory: tempfile::TempDir,
}

impl Cluster {
    async fn start() -> Self {
        let sandbox = Sandbox::start(&kiln_sandbox::SandboxOptions::default()).await.unwrap();
        let cluster =
            Cluster { sandbox: Arc::new(sandbox), directory: tempfile::tempdir().unwrap() };
        for object in kiln_install::manifests(&kiln_install::InstallOptions {
            workload: false,
            permissions: kiln_install::Permissions {
                grant: kiln_install::Grant::Standard,
                ..kiln_install::Permissions::default()
            },
            ..kiln_install::InstallOptions::default()
        }) {
            cluster.store(object).await;
        }
        cluster
    }

    /// A file that leads to the sandbox, perhaps by a detour.
    fn kubeconfig(&self, detour: Option<SocketAddr>) -> PathBuf {
        let address = self.sandbox.address().to_string();
        let through = detour.map_or_else(|| address.clone(), |detour| detour.to_string());
        let file = self.directory.path().join(&through);
        std::fs::write(&file, self.sandbox.kubeconfig().replace(&address, &through)).unwrap();
        file
    }

    async fn store(&self, object: Value) {
        let sandbox = Arc::clone(&self.sandbox);
        let stored = tokio::task::spawn_blocking(move || sandbox.apply(&object, "default")).await;
        stored.unwrap().unwrap();
    }

    /// Stores a ConfigMap that fires the rule.
    async fn trigger(&self, name: &str) {
        self.store(value!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": {"k": "v"},
            "metadata": {"name": name, "namespace": "default", "labels": {"fires": "yes"}},
        }))
        .await;
    }

    fn get(&self, path: &str) -> Option<Value> {
        let answer = self.sandbox.send(ApiRequest::new("GET", path));
        (answer.status == 200).then(|| answer.value())
    }

    fn made(&self, of: &str) -> bool {
        self.get(&format!("/api/v1/namespaces/default/secrets/of-{of}")).is_some()
    }

    /// Who holds the Lease, and when they renewed it.
    fn lease(&self) -> (String, String) {
        let path = "/apis/coordination.k8s.io/v1/namespaces/kyverno/leases/kiln-controller";
        let lease = self.get(path).unwrap_or(Value::Null);
        let text = |field| lease.str_at(["spec", field]).unwrap_or_default().to_owned();
        (text("holderIdentity"), text("renewTime"))
    }
}

/// A process on a cluster.
struct Process {
    shared: AppState,
    end: oneshot::Sender<()>,
    task: JoinHandle<Result<(), RunError>>,
}

impl Process {
    async fn start(cluster: &Cluster, acting: Acting) -> Self {
        let options = options(cluster, None);
        let (end, ended) = oneshot::channel();
        let (show, shown) = oneshot::channel();
        let ended = async { drop(ended.await) };
        let show = |shared: &AppState| drop(show.send(shared.clone()));
        let task = tokio::spawn(run_with(options, acting, ended, show));
        Process { shared: shown.await.unwrap(), end, task }
    }

    fn number(&self, sample: &str) -> f64 {
        let text = self.shared.metrics.text();
        let line = text.lines().find_map(|line| line.strip_prefix(sample));
        line.and_then(|rest| rest.trim().parse().ok()).unwrap_or(0.0)
    }

    /// Waits until it acts, and has read the existing objects.
    async fn is_at_work(&self) {
        until("it acts", || {
            self.acts() && *self.shared.progress.work.borrow() == ActivityState::Idle
        })
        .await;
    }

    fn acts(&self) -> bool {
        self.number("kiln_leader") > 0.0
    }

    /// How much it has written that was accepted.
    fn writes(&self) -> f64 {
        let text = self.shared.metrics.text();
        let writes = text.lines().filter(|line| {
            line.starts_with("kiln_api_calls_total{")
                && line.contains("\"ok\"")
                && ["create", "update", "patch", "delete"]
                    .iter()
                    .any(|verb| line.contains(&format!("\"{verb}\"")))
        });
        writes.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    }

    async fn end(self) {
        let _ = self.end.send(());
        self.task.await.unwrap().unwrap();
    }
}

fn options(cluster: &Cluster, detour: Option<SocketAddr>) -> RuntimeOptions {
    RuntimeOptions {
        kubeconfig: Some(cluster.kubeconfig(detour)),
        only: Some(Only::Controller),
        listen: SocketAddr::from(([127, 0, 0, 1], 0)),
        lease: LEASE,
        ..RuntimeOptions::default()
    }
}

async fn until(what: &str, mut holds: impl FnMut() -> bool) -> Instant {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}: it does not come to hold");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Instant::now()
}

/// Shows times that were measured, when the test runs with `--nocapture`.
#[allow(clippy::print_stdout, reason = "the times are for people")]
fn show(times: &str) {
    println!("{times}");
}

fn policy() -> Value {
    let generate = value!({
        "synchronize": true, "apiVersion": "v1", "kind": "Secret", "namespace": "default",
        "name": "of-{{ request.object.metadata.name }}", "data": {"stringData": {"k": "v"}},
    });
    let kinds = value!({"kinds": ["ConfigMap"], "selector": {"matchLabels": {"fires": "yes"}}});
    value!({
        "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "copies"},
        "spec": {"rules": [
            {"name": "r", "match": {"any": [{"resources": kinds}]}, "generate": generate},
        ]},
    })
}

/// Whatever comes by is held back while it is frozen.
async fn detour(to: SocketAddr) -> (SocketAddr, watch::Sender<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (freeze, frozen) = watch::channel(false);
    tokio::spawn(async move {
        while let Ok((near, _)) = listener.accept().await {
            let Ok(far) = TcpStream::connect(to).await else { continue };
            let (near, far) = (near.into_split(), far.into_split());
            for (mut from, mut into) in [(near.0, far.1), (far.0, near.1)] {
                let mut frozen = frozen.clone();
                tokio::spawn(async move {
                    let mut bytes = [0; 16 << 10];
                    while let Ok(count @ 1..) = from.read(&mut bytes).await {
                        if frozen.wait_for(|frozen| !frozen).await.is_err()
                            || into.write_all(&bytes[..count]).await.is_err()
                        {
                            return;
                        }
                    }
                });
            }
        }
    });
    (address, freeze)
}

/// Whether evaluations for `stall` take for ever, and whether one does.
static STALLS: Mutex<(bool, bool)> = Mutex::new((false, false));
static GOES_ON: Condvar = Condvar::new();

struct Stalls;

impl Evaluate for Stalls {
    fn evaluate(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> RuleOutcome {
        if event.trigger().and_then(metadata::name) == Some("stall") {
            let mut stalls = STALLS.lock().unwrap_or_else(PoisonError::into_inner);
            stalls.1 = stalls.0;
            while stalls.0 {
                stalls = GOES_ON.wait(stalls).unwrap_or_else(PoisonError::into_inner);
            }
            stalls.1 = false;
        }
        Engine.evaluate(rules, rule, event, eval_env)
    }
}

/// Leader election with an evaluation that stalls: the Lease is renewed all the same; when it cannot be renewed, the
/// replica stops writing before another one begins, and writes nothing when the evaluation goes on at last.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stalled_evaluation_holds_up_no_renewal_and_is_fenced_off() {
    let cluster = Cluster::start().await;
    let (through, freeze) = detour(cluster.sandbox.address()).await;
    let lease = Some(Arc::new(options(&cluster, Some(through))));
    let first = Process::start(
        &cluster,
        Acting { evaluate: || Box::new(Stalls), lease, ..Acting::default() },
    )
    .await;
    first.is_at_work().await;
    let second = Process::start(&cluster, Acting::default()).await;
    cluster.store(policy()).await;
    cluster.trigger("one").await;
    until("it is made", || cluster.made("one")).await;
    let (holder, _) = cluster.lease();

    *STALLS.lock().unwrap() = (true, false);
    cluster.trigger("stall").await;
    let stalled = until("it is evaluated", || STALLS.lock().unwrap().1).await;
    cluster.trigger("two").await;
    let (mut renewals, mut longest, mut last) = (BTreeSet::new(), Duration::ZERO, stalled);
    while stalled.elapsed() < LEASE * 2 {
        let (now_held_by, renewed) = cluster.lease();
        assert_eq!(now_held_by, holder, "no replica takes over from one that renews");
        if renewals.insert(renewed) {
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(renewals.len() >= 5, "{} renewals in two lease durations", renewals.len());
    assert!(longest < LEASE, "{longest:?} between two renewals");
    assert!(!cluster.made("two") && !second.acts(), "one acts, and it is busy");
    assert!(first.shared.health.not_running().is_empty(), "it is busy, not stuck");

    // Now nothing is heard of the Lease any more.
    freeze.send(true).unwrap();
    let stopped = until("the first one stops", || !first.acts()).await;
    assert!(!second.acts(), "there is no other replica yet");
    let before = first.writes();
    let began = until("the second one begins", || second.acts()).await;
    until("the second one does the work", || cluster.made("two") && cluster.made("stall")).await;

    // The evaluation comes to its end at last, and knows nothing of what happened.
    *STALLS.lock().unwrap() = (false, false);
    GOES_ON.notify_all();
    let lost = "controller: it lost the Lease, and is in the middle of something";
    until("the first one is through", || {
        !first.shared.health.problems().iter().any(|problem| problem == lost)
    })
    .await;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert!(
        (first.writes() - before).abs() < 0.5,
        "the replica that lost the Lease wrote something"
    );
    assert!(second.acts() && !first.acts());
    show(&format!(
        "while an evaluation stalled for {} s: {} renewals, at most {:.1} s apart; without renewals: the holder stopped \
         {:.1} s after the last one that was seen, the other began {:.1} s after it",
        (LEASE * 2).as_secs(),
        renewals.len() - 1,
        longest.as_secs_f64(),
        (stopped - last).as_secs_f64(),
        (began - last).as_secs_f64()
    ));

    freeze.send(false).unwrap();
    first.end().await;
    second.end().await;
    cluster.sandbox.end().await;
}

/// Whether the controller is to panic, outside of an evaluation.
static PANICS: AtomicBool = AtomicBool::new(false);

struct Panics;

impl Evaluate for Panics {
    fn evaluate(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> RuleOutcome {
        let name = event.trigger().and_then(metadata::name);
        assert!(name != Some("breaks"), "a mistake in Kiln");
        Engine.evaluate(rules, rule, event, eval_env)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_panics_begins_again() {
    let cluster = Cluster::start().await;
    let on_stored = || assert!(!PANICS.swap(false, Ordering::SeqCst), "a mistake in Kiln");
    let acting = Acting { evaluate: || Box::new(Panics), on_stored, lease: None };
    let process = Process::start(&cluster, acting).await;
    process.is_at_work().await;
    let compiled = || process.shared.registry.borrow().compilations;
    let before = compiled();
    cluster.store(policy()).await;
    until("the policy is known", || compiled() > before).await;
    process.is_at_work().await;
    cluster.trigger("one").await;
    until("it is made", || cluster.made("one")).await;

    // One key: the others go on.
    cluster.trigger("breaks").await;
    cluster.trigger("two").await;
    until("the other one is made", || cluster.made("two")).await;
    let evaluations = "kiln_panics_total{part=\"evaluation\"}";
    until("the panic is counted", || process.number(evaluations) >= 1.0).await;
    assert!(!cluster.made("breaks"));
    assert!(process.acts() && process.shared.health.not_running().is_empty());

    // All of it: it begins again.
    PANICS.store(true, Ordering::SeqCst);
    let mut changed = policy();
    changed.set(["metadata", "labels"], value!({"changed": "yes"})).unwrap();
    changed.set(["spec", "background"], false).unwrap();
    cluster.store(changed).await;
    let down = until("it is down", || !process.shared.health.not_running().is_empty()).await;
    assert!(process.number("kiln_panics_total{part=\"controller\"}") > 0.5);
    until("it runs again", || process.shared.health.not_running().is_empty()).await;
    cluster.trigger("three").await;
    until("it acts again", || cluster.made("three") && process.acts()).await;
    assert!(down.elapsed() < PATIENCE);
    process.end().await;
    assert_eq!(cluster.lease().0, "", "the Lease is given back");
    cluster.sandbox.end().await;
}

/// One watcher and one compiler for all parts of the process, whatever they need policies for.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_policy_is_watched_once_and_compiled_once_for_each_change() {
    let cluster = Cluster::start().await;
    let process = Process::start(&cluster, Acting::default()).await;
    process.is_at_work().await;
    let compiled = || process.shared.registry.borrow().compilations;
    let before = compiled();
    cluster.store(policy()).await;
    cluster.trigger("one").await;
    until("it is made", || cluster.made("one")).await;
    assert_eq!(compiled() - before, 1, "the policy came");

    let mut labelled = policy();
    labelled.set(["metadata", "labels"], value!({"changed": "yes"})).unwrap();
    cluster.store(labelled).await;
    let mut changed = policy();
    changed.set(["spec", "background"], false).unwrap();
    cluster.store(changed).await;
    until("it is compiled again", || compiled() - before > 1).await;
    cluster.trigger("two").await;
    until("its rules go on", || cluster.made("two")).await;
    assert_eq!(compiled() - before, 2, "its rules changed once; labels and status are none");

    for kind in policy_store::policy_kinds(true) {
        let watch = format!("watch of {kind}");
        let names = process.shared.health.names();
        let watches: Vec<&String> = names.iter().filter(|name| name.ends_with(&watch)).collect();
        // The group of Kiln's own is installed on demand, and not here.
        let is_served = !kind.to_string().starts_with("kiln.dev/");
        assert_eq!(watches.len(), usize::from(is_served), "{kind}: {watches:?}");
    }
    process.end().await;
    cluster.sandbox.end().await;
}
