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
use crate::health::Health;
use crate::lease::{self, Term};
use crate::metrics::Metrics;
use crate::options::{Only, Options};
use crate::policy_store::{self, Registry};
use crate::state::{ActivityState, AppState};
use crate::supervisor::{self, OnPanic, Supervisor};
use crate::watch::Watcher;
use crate::{
    cleanup, controller_loop, discovery, events, globals, process_metrics, reporter, scan, serve,
    status,
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
pub async fn run(options: Options, end: impl Future<Output = ()>) -> Result<(), RunError> {
    run_seen(options, end, |_| {}).await
}

/// Runs until `end` comes, and shows what its parts share to the caller in the same process.
///
/// # Errors
/// When there is no cluster to work on, or a part panicked that the process cannot do without.
pub async fn run_seen(
    options: Options,
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
    pub(crate) lease: Option<Arc<Options>>,
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
    options: Options,
    acting: Acting,
    end: impl Future<Output = ()>,
    show: impl FnOnce(&AppState),
) -> Result<(), RunError> {
    // The first to set it wins; it is ring either way.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Arc::new(options);
    let controller = Client::connect(&options, options.as_controller.as_deref()).await?;
    let admission = Client::connect(&options, options.as_admission.as_deref()).await?;
    let cleanup = options.as_cleanup.as_deref().or(options.as_controller.as_deref());
    let cleanup = Client::connect(&options, cleanup).await?;
    let mut served = Discovery::default();
    let found = served.refresh(&controller).await.map_err(|error| RunError {
        message: format!("cannot discover what {} serves: {error}", controller.server()),
        hint: "check that the cluster is up and the credentials are valid".to_owned(),
    })?;
    let (kinds_sender, kinds) = watch::channel(found.unwrap_or_else(Kinds::builtin));
    let (registry_sender, registry) = watch::channel(Arc::new(Registry::default()));
    let (stop, shutdown) = watch::channel(false);
    let (hints, told_hints) = mpsc::channel(4096);
    let (happened, told) = mpsc::channel(1024);
    let (findings, found) = mpsc::channel(4096);
    let shared = AppState {
        options: Arc::clone(&options),
        controller,
        admission,
        cleanup,
        kinds,
        rumours: served.rumours(),
        registry,
        globals: watch::Sender::new(Arc::default()),
        hints,
        webhooks: watch::Sender::new(BTreeMap::new()),
        happened,
        findings,
        troubles: watch::Sender::new(None),
        work: watch::Sender::default(),
        deletions: watch::Sender::default(),
        rights: Arc::default(),
        health: Arc::new(Health::default()),
        metrics: Arc::new(Metrics::default()),
        shutdown,
    };
    show(&shared);
    process_metrics::begin(&shared.metrics);
    tracing::info!(server = shared.controller.server(), only = ?options.only, "starting Kiln");
    let acts = options.only != Some(Only::Admission);
    let admits = options.only != Some(Only::Controller);
    let supervisor = Supervisor::of(&shared);
    let mut parts = Parts { supervisor: supervisor.clone(), tasks: JoinSet::new() };
    parts.restarted("discovery", {
        let (client, mut served) = (shared.controller.clone(), Some(served));
        let rumours = shared.rumours.clone();
        move || {
            // A restarted part knows nothing.
            let served = served.take().unwrap_or_else(|| Discovery::hearing(rumours.clone()));
            served.follow(client.clone(), kinds_sender.clone())
        }
    });
    let reader = if admits { &shared.admission } else { &shared.controller };
    let watcher = Watcher {
        client: reader.clone(),
        kinds: shared.kinds.clone(),
        stale_after: options.stale_after,
        health: Arc::clone(&shared.health),
        purpose: "rules".into(),
        metrics: Arc::clone(&shared.metrics),
    };
    parts.restarted("definitions", {
        let definitions = Watcher { purpose: "definitions".into(), ..watcher.clone() };
        let rumours = shared.rumours.clone();
        move || discovery::watch_definitions(definitions.clone(), rumours.clone())
    });
    parts.restarted("global context", {
        let (shared, watcher) = (shared.clone(), watcher.clone());
        move || globals::keep(shared.clone(), watcher.clone())
    });
    parts.restarted("rules", move || {
        policy_store::keep(watcher.clone(), Arc::clone(&options), registry_sender.clone())
    });
    parts.restarted("status", {
        let (shared, reader) = (shared.clone(), reader.clone());
        // With webhooks to wait for, the admission side says when a policy is ready.
        move || status::keep(shared.clone(), reader.clone(), admits)
    });
    parts.restarted("events", {
        let (shared, told) = (shared.clone(), Arc::new(Mutex::new(told)));
        move || events::write(shared.clone(), Arc::clone(&told))
    });
    parts.restarted("reports", {
        let (shared, found) = (shared.clone(), Arc::new(Mutex::new(found)));
        let client = reader.clone();
        move || reporter::keep(shared.clone(), client.clone(), Arc::clone(&found))
    });
    let (ends, mut must_end) = mpsc::unbounded_channel();
    let serving = tokio::spawn({
        let (shared, supervisor) = (shared.clone(), supervisor.clone());
        async move {
            let serve = || serve::serve(shared.clone(), admits);
            supervisor.keep("server", OnPanic::EndProcess(ends), serve).await;
        }
    });
    let settings = settings(&shared.options, shared.controller.who().await);
    let acting = acts.then(|| {
        let (shared, hints) = (shared.clone(), Arc::new(Mutex::new(told_hints)));
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
    shared.troubles.send_replace(None);
    shared.work.send_replace(ActivityState::Standby);
}

/// Runs on a runtime of its own until SIGTERM or Ctrl-C.
///
/// # Errors
/// When there is no cluster to work on, or a part panicked that the process cannot do without.
pub fn run_blocking(options: Options) -> Result<(), RunError> {
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
pub fn logs(levels: &str, as_json: bool) -> Result<(), String> {
    let filter =
        tracing_subscriber::EnvFilter::try_new(levels).map_err(|error| error.to_string())?;
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

fn settings(options: &Options, who: Option<String>) -> Settings {
    kiln_replica::controller_settings::settings(
        &options.namespace,
        &options.names,
        options.report_form(),
        who,
    )
}

#[cfg(test)]
mod tests;
