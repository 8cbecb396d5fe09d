//! Puts the parts together, and takes them apart again.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use kiln_controller::{Hint, ResourceFilter, Settings};
use kiln_object::Kinds;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::client::{Client, ConnectError};
use crate::discovery::Discovery;
use crate::health::Health;
use crate::lease::Lease;
use crate::metrics::Metrics;
use crate::options::{Only, Options};
use crate::registry::{self, Registry};
use crate::state::{Shared, Work};
use crate::watch::Watcher;
use crate::{drive, events, gauges, globals, serve, status};

/// How long calls that are under way may take when the process ends.
const LAST_CALLS: Duration = Duration::from_secs(20);

/// Runs until `end` comes.
///
/// # Errors
/// When there is no cluster to work on.
pub async fn run(options: Options, end: impl Future<Output = ()>) -> Result<(), ConnectError> {
    run_seen(options, end, |_| {}).await
}

/// Runs until `end` comes, and shows what its parts share to somebody in the same process.
///
/// # Errors
/// When there is no cluster to work on.
pub async fn run_seen(
    options: Options,
    end: impl Future<Output = ()>,
    show: impl FnOnce(&Shared),
) -> Result<(), ConnectError> {
    // The first to set it wins; it is ring either way.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let options = Arc::new(options);
    let controller = Client::connect(&options, options.as_controller.as_deref()).await?;
    let admission = Client::connect(&options, options.as_admission.as_deref()).await?;
    let mut discovery = Discovery::default();
    let found = discovery.refresh(&controller).await.map_err(|error| ConnectError {
        message: format!("cannot ask {} what it serves: {error}", controller.server()),
        hint: "check that the cluster runs and that the credentials are good".to_owned(),
    })?;
    let (kinds_sender, kinds) = watch::channel(found.unwrap_or_else(Kinds::builtin));
    let (registry_sender, registry) = watch::channel(Arc::new(Registry::default()));
    let (stop, shutdown) = watch::channel(false);
    let (hints, told_hints) = mpsc::channel(4096);
    let (happened, told) = mpsc::channel(1024);
    let shared = Shared {
        options: Arc::clone(&options),
        controller,
        admission,
        kinds,
        registry,
        globals: watch::Sender::new(Arc::default()),
        hints,
        webhooks: watch::Sender::new(BTreeMap::new()),
        happened,
        troubles: watch::Sender::new(None),
        work: watch::Sender::default(),
        rights: Arc::default(),
        health: Arc::new(Health::default()),
        metrics: Arc::new(Metrics::default()),
        shutdown,
    };
    show(&shared);
    gauges::begin(&shared.metrics);
    tracing::info!(server = shared.controller.server(), only = ?options.only, "starts");
    let acts = options.only != Some(Only::Admission);
    let admits = options.only != Some(Only::Controller);
    let mut parts = JoinSet::new();
    parts.spawn(discovery.follow(shared.controller.clone(), kinds_sender));
    let reader = if admits { &shared.admission } else { &shared.controller };
    let watcher = Watcher {
        client: reader.clone(),
        kinds: shared.kinds.clone(),
        stale_after: options.stale_after,
        health: Arc::clone(&shared.health),
        purpose: "rules".into(),
        metrics: Arc::clone(&shared.metrics),
    };
    let (namespace, config_map) = (options.namespace.clone(), options.config_map.clone());
    parts.spawn(globals::keep(shared.clone(), watcher.clone()));
    parts.spawn(registry::keep(watcher, namespace, config_map, registry_sender));
    // With webhooks to wait for, the admission side says when a policy is ready.
    parts.spawn(status::keep(shared.clone(), reader.clone(), admits));
    let serving = tokio::spawn(serve::serve(shared.clone(), admits));
    parts.spawn(events::write(shared.clone(), told));
    let settings = settings(&options, shared.controller.who().await);
    let acting = acts.then(|| tokio::spawn(act(shared.clone(), settings, told_hints)));
    end.await;
    tracing::info!("ends");
    let _ = stop.send(true);
    let last = async {
        let _ = serving.await;
        if let Some(acting) = acting {
            let _ = acting.await;
        }
    };
    if tokio::time::timeout(LAST_CALLS + options.linger, last).await.is_err() {
        tracing::warn!("some calls did not come to their end");
    }
    parts.shutdown().await;
    Ok(())
}

/// Lets the controller act whenever this process holds the Lease, until the process is to end.
async fn act(shared: Shared, settings: Settings, mut hints: mpsc::Receiver<Hint>) {
    let mut lease = Lease::new(shared.clone());
    let mut shutdown = shared.shutdown.clone();
    loop {
        shared.health.good("controller", None);
        gauges::acts(&shared.metrics, false);
        {
            let acquired = lease.acquire();
            tokio::pin!(acquired);
            loop {
                tokio::select! {
                    () = &mut acquired => break,
                    _ = shutdown.changed() => return,
                    // Whoever stands by has nothing to do with requests.
                    _ = hints.recv() => {}
                }
            }
        }
        gauges::acts(&shared.metrics, true);
        let driven = drive::drive(shared.clone(), settings.clone(), &mut hints);
        let ended = tokio::select! {
            () = driven => true,
            () = lease.hold() => false,
        };
        shared.troubles.send_replace(None);
        shared.work.send_replace(Work::Waits);
        if ended {
            return lease.give_back().await;
        }
    }
}

/// Runs on a runtime of its own until the process is told to end: by SIGTERM, or Ctrl-C.
///
/// # Errors
/// When there is no cluster to work on.
pub fn run_blocking(options: Options) -> Result<(), ConnectError> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|error| ConnectError {
        message: format!("cannot begin: {error}"),
        hint: "the system gives no threads".to_owned(),
    })?;
    runtime.block_on(run(options, told_to_end()))
}

/// Comes when the process is told to end.
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

/// Writes logs to standard error from now on.
///
/// # Errors
/// When the levels cannot be read.
pub fn logs(levels: &str, as_json: bool) -> Result<(), String> {
    let filter =
        tracing_subscriber::EnvFilter::try_new(levels).map_err(|error| error.to_string())?;
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let set = if as_json { logs.json().try_init() } else { logs.try_init() };
    // A second call changes nothing.
    drop(set);
    Ok(())
}

fn settings(options: &Options, who: Option<String>) -> Settings {
    let namespace = options.namespace.as_str();
    // Of an account that people use as well, requests say nothing about who made them.
    let user = who.filter(|user| user.starts_with("system:serviceaccount:"));
    let usual = || format!("system:serviceaccount:{namespace}:kyverno-background-controller");
    Settings {
        namespace: namespace.into(),
        user: user.unwrap_or_else(usual).into(),
        resync: 3_600_000,
        made_again_after: 700,
        filters: ResourceFilter::usual(namespace),
        ..Settings::default()
    }
}
