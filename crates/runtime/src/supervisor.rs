//! Watches over the parts of a running process: a panic is logged and counted, `/healthz` tells, and the part begins
//! again, or the process ends.
//!
//! | part | when it panics | because |
//! |---|---|---|
//! | `controller` (with the Lease) | begins again | it reads everything anew, as a new process would, and reviews are answered meanwhile |
//! | `cleanup` (with the Lease) | begins again | what ran last is in the status of policies, and what is due is due then |
//! | `discovery`, `rules`, `global context` | begins again | what was read goes on to count until it is read anew |
//! | `status`, `events` | begins again | they are for people: nothing depends on them |
//! | `webhooks` | begins again | reviews are answered by the rules and the certificate that are there |
//! | `server` | ends the process | without it no request is answered, and no probe sees why; the kubelet restarts the process |
//!
//! What one question, call, connection, review or evaluation of a rule for one object does is smaller than a part: a panic
//! there fails that one, and is counted as well ([`caught`], `kiln_controller`, `kiln_admission`).

use std::any::Any;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinError;
use tokio::time::Instant;

use crate::health::Health;
use crate::metrics::Metrics;
use crate::state::AppState;

/// The first and the longest pause before a part begins again. Kubernetes' probes give up on a process after half a minute
/// in which `/healthz` is not well: one that panics again and again is started anew as a whole.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));
/// A part that ran for so long has got over its last panic.
const WELL_AGAIN: Duration = Duration::from_secs(300);

/// Who panics are counted for: parts, and what is smaller than one.
pub(crate) const COUNTED: [&str; 15] = [
    "cleanup",
    "controller",
    "discovery",
    "events",
    "global context",
    "rules",
    "server",
    "status",
    "webhooks",
    "call",
    "connection",
    "evaluation",
    "request",
    "review",
    "watch",
];

/// What becomes of a part that panics.
pub(crate) enum OnPanic {
    /// It begins again, after a pause.
    Restart,
    /// The process ends; the part is recorded here.
    EndProcess(mpsc::UnboundedSender<&'static str>),
}

/// Pauses that grow while a part panics again and again.
struct Backoff {
    next: Duration,
}

impl Backoff {
    fn new() -> Self {
        Backoff { next: PAUSES.0 }
    }

    /// How long to wait before a part begins again that ran for some time.
    fn after(&mut self, ran: Duration) -> Duration {
        if ran >= WELL_AGAIN {
            self.next = PAUSES.0;
        }
        let pause = self.next;
        self.next = (self.next * 2).min(PAUSES.1);
        pause
    }
}

/// Watches over parts.
#[derive(Clone, Debug)]
pub(crate) struct Supervisor {
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    shutdown: watch::Receiver<bool>,
}

impl Supervisor {
    pub(crate) fn of(shared: &AppState) -> Self {
        Supervisor {
            health: Arc::clone(&shared.health),
            metrics: Arc::clone(&shared.metrics),
            shutdown: shared.shutdown.clone(),
        }
    }

    /// Runs a part until the process is to end, whatever happens to it.
    pub(crate) async fn keep<F: Future<Output = ()>>(
        &self,
        part: &'static str,
        on_panic: OnPanic,
        mut begin: impl FnMut() -> F,
    ) {
        let mut shutdown = self.shutdown.clone();
        let mut backoff = Backoff::new();
        loop {
            let began = Instant::now();
            // What it shares with others are channels, and locks that do not mind.
            let ended = caught(&self.metrics, part, async { begin().await }).await;
            if *shutdown.borrow() {
                return;
            }
            let what = match (&ended, &on_panic) {
                (None, OnPanic::EndProcess(ends)) => {
                    self.health.down(part, "it panicked; the process exits");
                    let _ = ends.send(part);
                    return;
                }
                (None, OnPanic::Restart) => "panicked",
                // It was not asked to.
                (Some(()), _) => "ended by itself",
            };
            let pause = backoff.after(began.elapsed());
            tracing::error!(
                part,
                what,
                pause_seconds = pause.as_secs(),
                "a part stopped; restarting it"
            );
            self.health.down(part, format!("it {what}; restarting"));
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                _ = shutdown.wait_for(|end| *end) => return,
            }
            self.health.up(part);
        }
    }
}

/// What comes of something; none when it panics, which is logged and counted.
pub(crate) async fn caught<T>(
    metrics: &Metrics,
    part: &str,
    something: impl Future<Output = T>,
) -> Option<T> {
    match AssertUnwindSafe(something).catch_unwind().await {
        Ok(done) => Some(done),
        Err(panic) => {
            count(metrics, part, 1);
            tracing::error!(part, panic = words(panic.as_ref()), "a part panicked");
            None
        }
    }
}

/// Counts panics.
pub(crate) fn count(metrics: &Metrics, part: &str, panics: u64) {
    for _ in 0..panics {
        metrics.count("kiln_panics_total", &[("part", part)]);
    }
}

/// Lets the panic of a task go on in its parent: nothing is left that ran without being watched.
/// None for a task that was stopped.
pub(crate) fn pass_on<T>(ended: Result<T, JoinError>) -> Option<T> {
    ended.map_err(|error| error.try_into_panic().map(|panic| resume_unwind(panic))).ok()
}

/// Runs something on a thread of its own: however long it computes, it keeps no task of the runtime from going on. Tasks
/// that it spawns, and its timers, are the runtime's. Its panic goes on in its caller.
pub(crate) async fn on_own_thread<T: Send + 'static, F: Future<Output = T>>(
    name: &str,
    begin: impl FnOnce() -> F + Send + 'static,
) -> T {
    let (tell, told) = oneshot::channel();
    let runtime = Handle::current();
    let spawned = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let run = AssertUnwindSafe(|| runtime.block_on(async move { begin().await }));
        let _ = tell.send(std::panic::catch_unwind(run));
    });
    if let Err(error) = spawned {
        resume_unwind(Box::new(format!("cannot create a thread: {error}")));
    }
    match told.await {
        Ok(Ok(done)) => done,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => resume_unwind(Box::new("a thread ended unexpectedly")),
    }
}

/// The message of a panic.
pub(crate) fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn supervisor() -> (Supervisor, watch::Sender<bool>) {
        let (stop, shutdown) = watch::channel(false);
        let (health, metrics) = (Arc::default(), Arc::default());
        (Supervisor { health, metrics, shutdown }, stop)
    }

    #[test]
    fn pauses_grow_until_a_part_has_got_over_it() {
        let mut backoff = Backoff::new();
        let seconds: Vec<u64> = (0..8).map(|_| backoff.after(SECOND).as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.after(WELL_AGAIN), SECOND);
        assert_eq!(backoff.after(SECOND), 2 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_panics_is_counted_told_and_begins_again() {
        let (supervisor, stop) = supervisor();
        let begun = Arc::new(AtomicUsize::new(0));
        let (began, shutdown) = (Arc::clone(&begun), supervisor.shutdown.clone());
        let part = move || {
            let number = began.fetch_add(1, Ordering::SeqCst);
            let mut shutdown = shutdown.clone();
            async move {
                // In the middle of its work, twice; once it just ends.
                tokio::time::sleep(SECOND).await;
                assert!(number > 1, "a mistake");
                if number > 2 {
                    let _ = shutdown.wait_for(|end| *end).await;
                }
            }
        };
        let (watched, health) = (supervisor.clone(), Arc::clone(&supervisor.health));
        let keeping = tokio::spawn(async move {
            watched.keep("status", OnPanic::Restart, part).await;
        });
        let at = |milliseconds| tokio::time::sleep(Duration::from_millis(milliseconds));
        at(500).await;
        assert!(health.not_running().is_empty());
        at(1000).await;
        let told = "status: it panicked; restarting";
        assert_eq!(health.not_running(), [told], "after a second it panicked");
        at(1000).await;
        assert_eq!((begun.load(Ordering::SeqCst), health.not_running().len()), (2, 0));
        at(1000).await;
        assert_eq!(health.not_running(), [told], "and again");
        let counted = "kiln_panics_total{part=\"status\"} 2\n";
        assert!(supervisor.metrics.text().contains(counted), "{}", supervisor.metrics.text());
        at(2500).await;
        let told = "status: it ended by itself; restarting";
        at(1000).await;
        assert_eq!((begun.load(Ordering::SeqCst), health.not_running()), (3, vec![told.into()]));
        at(5000).await;
        assert_eq!((begun.load(Ordering::SeqCst), health.not_running().len()), (4, 0));
        assert!(supervisor.metrics.text().contains(counted), "nothing panicked");
        stop.send(true).unwrap();
        keeping.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_that_nothing_goes_on_without_ends_the_process() {
        let (supervisor, _stop) = supervisor();
        let (ends, mut must_end) = mpsc::unbounded_channel();
        let part = || async { panic!("a mistake") };
        supervisor.keep("server", OnPanic::EndProcess(ends), part).await;
        assert_eq!(must_end.recv().await, Some("server"));
        let told = ["server: it panicked; the process exits"];
        assert_eq!(supervisor.health.not_running(), told);
        assert!(supervisor.metrics.text().contains("kiln_panics_total{part=\"server\"} 1\n"));
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_a_pause_when_the_process_ends() {
        let (supervisor, stop) = supervisor();
        let ends = async {
            tokio::time::sleep(SECOND / 2).await;
            stop.send(true).unwrap();
        };
        let began = Instant::now();
        let part = || async { panic!("a mistake") };
        tokio::join!(supervisor.keep("status", OnPanic::Restart, part), ends);
        assert!(began.elapsed() < SECOND);
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 1)]
    async fn what_computes_on_its_own_thread_holds_up_no_task() {
        let (go_on, may_go_on) = std::sync::mpsc::channel::<()>();
        let computing = tokio::spawn(on_own_thread("controller", move || async move {
            // The only worker of the runtime is free all the same, for its tasks and for those of others.
            let task = tokio::spawn(async { 40 });
            may_go_on.recv().unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            task.await.unwrap() + 2
        }));
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!computing.is_finished());
        go_on.send(()).unwrap();
        assert_eq!(computing.await.unwrap(), 42);
        let panics = on_own_thread("controller", || async { panic!("a mistake") });
        let panicked = tokio::spawn(panics);
        assert_eq!(words(panicked.await.unwrap_err().into_panic().as_ref()), "a mistake");
    }

    #[tokio::test]
    async fn panics_of_tasks_go_on_in_whoever_began_them() {
        let metrics = Metrics::default();
        let watched = async {
            let mut tasks = tokio::task::JoinSet::new();
            tasks.spawn(async { panic!("a mistake") });
            while let Some(ended) = tasks.join_next().await {
                let _: Option<()> = pass_on(ended);
            }
        };
        assert!(caught(&metrics, "rules", watched).await.is_none());
        let stopped = tokio::spawn(std::future::pending::<()>());
        stopped.abort();
        assert_eq!(pass_on(stopped.await), None);
    }
}
