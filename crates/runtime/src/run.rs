//! Puts the parts together, and takes them apart again.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use kiln_controller::{Engine, Evaluate, Settings};
use kiln_engine::ObservedRequest;
use kiln_object::Kinds;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use crate::client::{Client, ConnectError};
use crate::controller_loop::Ended;
use crate::discovery::Discovery;
use crate::events::Happened;
use crate::health::Health;
use crate::lease::{self, Term};
use crate::metrics::Metrics;
use crate::options::{Only, RuntimeOptions};
use crate::policy_store::{self, Registry};
use crate::reporter::ReportNews;
use crate::state::{ActivityState, AppState, Clients, NewsChannels, PartProgress};
use crate::supervisor::{self, OnPanic, Supervisor};
use crate::watch::Watcher;
use crate::{
    cleanup, controller_loop, discovery, events, globals, kyverno_metrics, native_policies,
    process_metrics, reporter, scan, serve, status,
};

/// How long calls that are under way may take when the process ends.
const LAST_CALLS: Duration = Duration::from_secs(20);

/// Why a process ended unasked, or did not begin, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunError {
    /// What went wrong.
    pub message: String,
    /// What to try.
    pub hint: String,
}

impl From<ConnectError> for RunError {
    fn from(error: ConnectError) -> Self {
        RunError { message: error.message, hint: error.hint }
    }
}

/// Runs until `end` comes.
///
/// # Errors
/// When there is no cluster to work on, or a part panicked that the process cannot do without.
pub async fn run(options: RuntimeOptions, end: impl Future<Output = ()>) -> Result<(), RunError> {
    run_seen(options, end, |_| {}).await
}

/// Runs until `end` comes, and shows what its parts share to the caller in the same process.
///
/// # Errors
/// When there is no cluster to work on, or a part panicked that the process cannot do without.
pub async fn run_seen(
    options: RuntimeOptions,
    end: impl Future<Output = ()>,
    show: impl FnOnce(&AppState),
) -> Result<(), RunError> {
    run_with(options, Acting::default(), end, show).await
}

/// What is different about acting in tests.
#[derive(Clone)]
pub(crate) struct Acting {
    /// What evaluates rules.
    pub(crate) evaluate: fn() -> Box<dyn Evaluate>,
    /// Runs in the controller's thread whenever it is told what is stored.
    pub(crate) on_stored: fn(),
    /// The connection to ask for the Lease by, if it is another one.
    pub(crate) lease: Option<Arc<RuntimeOptions>>,
}

impl Default for Acting {
    fn default() -> Self {
        Acting { evaluate: || Box::new(Engine), on_stored: || {}, lease: None }
    }
}

/// Starts all parts, waits for the end, and stops them.
///
/// The order of starting is the order of need. Discovery comes first, because without kinds nothing can be watched; it is the
/// only thing that can fail the start, so that wrong credentials are an error message and not a pod that is never ready.
/// Then the parts that read (definitions, global context, policies), then those that report. The server starts before
/// the controller has the Lease: every replica answers admission requests, only the leader writes.
///
/// The order of stopping is the other way round: `stop` makes the replica unready; the server drains; the controller
/// finishes calls under way and releases the Lease, so that another replica takes over at once; parts that only read are
/// cut off last. A panic of the server ends the process, because a replica that is ready and does not answer would block
/// the API server; every other part is restarted on its own.
pub(crate) async fn run_with(
    options: RuntimeOptions,
    acting: Acting,
    end: impl Future<Output = ()>,
    show: impl FnOnce(&AppState),
) -> Result<(), RunError> {
    // The first to set it wins; it is ring either way.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Arc::new(options);
    let clients = Clients::connect(&options).await?;
    let mut served = Discovery::default();
    let found = served.refresh(&clients.controller).await.map_err(|error| RunError {
        message: format!("cannot discover what {} serves: {error}", clients.controller.server()),
        hint: "check that the cluster is up and the credentials are valid".to_owned(),
    })?;
    let (shared, ends) = shared(options, clients, &served, found.unwrap_or_else(Kinds::builtin));
    let ChannelEnds { kinds, registry, hints, happened, findings, stop } = ends;
    show(&shared);
    process_metrics::begin(&shared.metrics);
    let (server, only) = (shared.clients.controller.server(), shared.options.only);
    tracing::info!(server, ?only, "starting Kiln");
    let (acts, admits) = (only != Some(Only::Admission), only != Some(Only::Controller));
    let supervisor = Supervisor::of(&shared);
    let mut parts = Parts { supervisor: supervisor.clone(), tasks: JoinSet::new() };
    parts.start_readers(&shared, served, kinds, registry, admits);
    parts.start_reporters(&shared, happened, findings, admits);
    let (ends, mut must_end) = mpsc::unbounded_channel();
    let serving = tokio::spawn({
        let (shared, supervisor) = (shared.clone(), supervisor.clone());
        async move {
            let serve = || serve::serve(shared.clone(), admits);
            supervisor.keep("server", OnPanic::EndProcess(ends), serve).await;
        }
    });
    let settings = settings(&shared.options, shared.clients.controller.who().await);
    let acting = acts.then(|| {
        let (shared, hints) = (shared.clone(), Arc::new(Mutex::new(hints)));
        let identity = lease::identity();
        tokio::spawn(async move {
            let act = || {
                let (settings, hints) = (settings.clone(), Arc::clone(&hints));
                act(shared.clone(), acting.clone(), settings, hints, identity.clone())
            };
            supervisor.keep(controller_loop::PART, OnPanic::Restart, act).await;
        })
    });
    let failed = tokio::select! {
        () = end => None,
        Some(part) = must_end.recv() => Some(part),
    };
    tracing::info!("stopping Kiln");
    let _ = stop.send(true);
    let last = async {
        let _ = serving.await;
        if let Some(acting) = acting {
            let _ = acting.await;
        }
    };
    if tokio::time::timeout(LAST_CALLS + shared.options.linger, last).await.is_err() {
        tracing::warn!("some calls did not finish");
    }
    parts.tasks.shutdown().await;
    match failed {
        None => Ok(()),
        Some(part) => Err(RunError {
            message: format!("the {part} of this process panicked"),
            hint: "see the log for the location, report it, and restart the process".to_owned(),
        }),
    }
}

impl Clients {
    /// Connects once for each part, with the user that it acts as.
    async fn connect(options: &RuntimeOptions) -> Result<Self, ConnectError> {
        let cleanup = options.as_cleanup.as_deref().or(options.as_controller.as_deref());
        Ok(Clients {
            controller: Client::connect(options, options.as_controller.as_deref()).await?,
            admission: Client::connect(options, options.as_admission.as_deref()).await?,
            cleanup: Client::connect(options, cleanup).await?,
        })
    }
}

/// The other ends of the channels that parts share: each belongs to one part.
struct ChannelEnds {
    kinds: watch::Sender<Kinds>,
    registry: watch::Sender<Arc<Registry>>,
    hints: mpsc::Receiver<ObservedRequest>,
    happened: mpsc::Receiver<Happened>,
    findings: mpsc::Receiver<ReportNews>,
    stop: watch::Sender<bool>,
}

/// What the parts share, before one of them runs.
fn shared(
    options: Arc<RuntimeOptions>,
    clients: Clients,
    served: &Discovery,
    found: Kinds,
) -> (AppState, ChannelEnds) {
    let (kinds_sender, kinds) = watch::channel(found);
    let (registry_sender, registry) = watch::channel(Arc::new(Registry::default()));
    let (stop, shutdown) = watch::channel(false);
    let (hints, told_hints) = mpsc::channel(4096);
    let (happened, told) = mpsc::channel(1024);
    let (findings, found) = mpsc::channel(4096);
    let metrics = Arc::new(Metrics::with_kyverno_names(options.kyverno_metrics));
    let shared = AppState {
        options,
        clients,
        kinds,
        rumours: served.rumours(),
        registry,
        globals: watch::Sender::new(Arc::default()),
        news: NewsChannels { hints, happened, findings },
        progress: PartProgress {
            webhooks: watch::Sender::new(BTreeMap::new()),
            troubles: watch::Sender::new(None),
            work: watch::Sender::default(),
            deletions: watch::Sender::default(),
        },
        rights: Arc::default(),
        health: Arc::new(Health::default()),
        metrics,
        shutdown,
    };
    let ends = ChannelEnds {
        kinds: kinds_sender,
        registry: registry_sender,
        hints: told_hints,
        happened: told,
        findings: found,
        stop,
    };
    (shared, ends)
}

/// Parts that end with the process, and begin again when they panic.
struct Parts {
    supervisor: Supervisor,
    tasks: JoinSet<()>,
}

impl Parts {
    fn restarted<F: Future<Output = ()> + Send>(
        &mut self,
        part: &'static str,
        begin: impl FnMut() -> F + Send + 'static,
    ) {
        let supervisor = self.supervisor.clone();
        self.tasks.spawn(async move { supervisor.keep(part, OnPanic::Restart, begin).await });
    }

    /// Starts what reads: the kinds that are served, definitions, the global context and policies.
    fn start_readers(
        &mut self,
        shared: &AppState,
        served: Discovery,
        kinds: watch::Sender<Kinds>,
        registry: watch::Sender<Arc<Registry>>,
        admits: bool,
    ) {
        self.restarted("discovery", {
            let (client, mut served) = (shared.clients.controller.clone(), Some(served));
            let rumours = shared.rumours.clone();
            move || {
                // A restarted part knows nothing.
                let served = served.take().unwrap_or_else(|| Discovery::hearing(rumours.clone()));
                served.follow(client.clone(), kinds.clone())
            }
        });
        let watcher = Watcher {
            client: reader(shared, admits).clone(),
            kinds: shared.kinds.clone(),
            stale_after: shared.options.stale_after,
            health: Arc::clone(&shared.health),
            purpose: "rules".into(),
            metrics: Arc::clone(&shared.metrics),
        };
        self.restarted("definitions", {
            let definitions = Watcher { purpose: "definitions".into(), ..watcher.clone() };
            let rumours = shared.rumours.clone();
            move || discovery::watch_definitions(definitions.clone(), rumours.clone())
        });
        self.restarted("global context", {
            let (shared, watcher) = (shared.clone(), watcher.clone());
            move || globals::keep(shared.clone(), watcher.clone())
        });
        let options = Arc::clone(&shared.options);
        self.restarted("rules", move || {
            policy_store::keep(watcher.clone(), Arc::clone(&options), registry.clone())
        });
    }

    /// Starts what tells users: the status of policies, Events, reports and metrics of policies.
    fn start_reporters(
        &mut self,
        shared: &AppState,
        happened: mpsc::Receiver<Happened>,
        findings: mpsc::Receiver<ReportNews>,
        admits: bool,
    ) {
        let client = reader(shared, admits);
        self.restarted("status", {
            let (shared, client) = (shared.clone(), client.clone());
            // With webhooks to wait for, the admission side says when a policy is ready.
            move || status::keep(shared.clone(), client.clone(), admits)
        });
        self.restarted("events", {
            let (shared, happened) = (shared.clone(), Arc::new(Mutex::new(happened)));
            move || events::write(shared.clone(), Arc::clone(&happened))
        });
        self.restarted("reports", {
            let (shared, findings) = (shared.clone(), Arc::new(Mutex::new(findings)));
            let client = client.clone();
            move || reporter::keep(shared.clone(), client.clone(), Arc::clone(&findings))
        });
        self.restarted("policy metrics", {
            let shared = shared.clone();
            move || kyverno_metrics::follow_policies(shared.clone())
        });
    }
}

/// The connection that policies are read by, and that tells of them.
fn reader(shared: &AppState, admits: bool) -> &Client {
    if admits { &shared.clients.admission } else { &shared.clients.controller }
}

/// Lets the controller act whenever this process holds the Lease, until the process is to end.
async fn act(
    shared: AppState,
    acting: Acting,
    settings: Settings,
    hints: Arc<Mutex<mpsc::Receiver<ObservedRequest>>>,
    identity: String,
) {
    let mut shutdown = shared.shutdown.clone();
    let lease = acting.lease.clone().unwrap_or_else(|| Arc::clone(&shared.options));
    loop {
        stands_by(&shared);
        shared.health.good("controller", None);
        shared.health.up(controller_loop::PART);
        let mut term = Term::begin(Arc::clone(&lease), shared.kinds.clone(), identity.clone());
        {
            let mut hints = hints.lock().await;
            let leads = term.leads();
            tokio::pin!(leads);
            loop {
                tokio::select! {
                    () = &mut leads => break,
                    _ = shutdown.wait_for(|end| *end) => return,
                    // A standby replica has nothing to do with requests.
                    Some(_) = hints.recv() => {}
                }
            }
        }
        process_metrics::acts(&shared.metrics, true);
        let mut end = term.end();
        // It ends with the term, and with this value if the controller panics.
        let mut cleaning = JoinSet::new();
        cleaning.spawn(cleanup::keep(shared.clone(), Arc::clone(&term.fence), term.end()));
        cleaning.spawn(native_policies::keep(shared.clone(), Arc::clone(&term.fence), term.end()));
        let driving = supervisor::on_own_thread(controller_loop::PART, {
            let (shared, settings, hints) = (shared.clone(), settings.clone(), Arc::clone(&hints));
            let (acting, fence, end) = (acting.clone(), Arc::clone(&term.fence), term.end());
            move || async move {
                let mut hints = hints.lock_owned().await;
                controller_loop::drive(shared, settings, &acting, &mut hints, fence, end).await
            }
        });
        // Objects that are there are checked by one replica.
        let scanning = tokio::spawn(scan::keep(shared.clone()));
        tokio::pin!(driving);
        let ended = tokio::select! {
            ended = &mut driving => ended,
            () = end.comes() => {
                // Nothing is written any more; an evaluation may be under way that knows nothing of it.
                stands_by(&shared);
                shared.health.bad("controller", "it lost the Lease during a write");
                driving.await
            }
        };
        scanning.abort();
        cleaning.shutdown().await;
        match ended {
            Ended::Told => {
                stands_by(&shared);
                return term.give_back().await;
            }
            // A candidate is ready to lead.
            Ended::LeaseLost => term.leave().await,
        }
    }
}

/// Tells that this process does not act.
fn stands_by(shared: &AppState) {
    process_metrics::acts(&shared.metrics, false);
    shared.progress.troubles.send_replace(None);
    shared.progress.work.send_replace(ActivityState::Standby);
}

/// Runs on a runtime of its own until SIGTERM or Ctrl-C.
///
/// # Errors
/// When there is no cluster to work on, or a part panicked that the process cannot do without.
pub fn run_blocking(options: RuntimeOptions) -> Result<(), RunError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| RunError {
        message: format!("cannot start: {error}"),
        hint: "cannot create threads".to_owned(),
    })?;
    runtime.block_on(run(options, told_to_end()))
}

/// Completes on SIGTERM or Ctrl-C.
#[cfg(unix)]
async fn told_to_end() {
    use tokio::signal::unix::{SignalKind, signal};
    let Ok(mut terminate) = signal(SignalKind::terminate()) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}

/// Completes on Ctrl-C.
#[cfg(not(unix))]
async fn told_to_end() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Writes logs to standard error from now on.
///
/// # Errors
/// When the levels cannot be read.
pub fn logs(levels: &str, as_json: bool) -> Result<(), tracing_subscriber::filter::ParseError> {
    let filter = tracing_subscriber::EnvFilter::try_new(levels)?;
    // The HTTP library calls it an error when a server ends an idle connection. What fails, Kiln tells itself.
    let filter = match (levels.contains("kube_client"), "kube_client::client::builder=off".parse())
    {
        (false, Ok(quiet)) => filter.add_directive(quiet),
        _ => filter,
    };
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let set = if as_json { logs.json().try_init() } else { logs.try_init() };
    // A second call changes nothing.
    drop(set);
    // Panics are part of the log, in its form. They are caught, counted and answered where they happen.
    std::panic::set_hook(Box::new(|panic| {
        let said = supervisor::words(panic.payload());
        let place = panic.location().map(ToString::to_string).unwrap_or_default();
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        let backtrace = match backtrace.status() {
            std::backtrace::BacktraceStatus::Captured => format!("\n{backtrace}"),
            _ => String::new(),
        };
        tracing::error!(
            place,
            thread = thread.name().unwrap_or_default(),
            "panicked: {said}{backtrace}"
        );
    }));
    Ok(())
}

fn settings(options: &RuntimeOptions, who: Option<String>) -> Settings {
    kiln_replica::controller_settings::settings(&options.namespace, &options.names, who)
}

#[cfg(test)]
mod tests;
