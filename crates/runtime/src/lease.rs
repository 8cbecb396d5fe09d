//! Which of several processes acts: the one that holds the Lease. What follows from what is in `election`; here it is asked
//! and written.
//!
//! A [`Term`] has a thread, a runtime and a connection of its own: nothing that rules compute or that other tasks do can hold up
//! a renewal.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread;

use kiln_cluster::{ApiError, Reason};
use kiln_object::{Kinds, ObjectId};
use tokio::sync::{oneshot, watch};
use tokio::time::Instant;

use crate::client::Client;
use crate::controller_loop::now;
use crate::election::{Election, Fence, Leadership, Times, Until};
use crate::options::RuntimeOptions;

pub use kiln_replica::lease::id;

/// What this process is called as a holder.
pub(crate) fn identity() -> String {
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kiln".to_owned());
    format!("{host}-{}-{:x}", std::process::id(), now())
}

/// How far a term has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    StandsBy,
    Leads,
    Over,
}

/// The time for which this process stands for election, acts, and loses the Lease or gives it back.
pub(crate) struct Term {
    phase: watch::Receiver<Phase>,
    /// The gate for everything that is written in this term.
    pub(crate) fence: Arc<Fence>,
    resign: Option<oneshot::Sender<()>>,
    panicked: oneshot::Receiver<Box<dyn Any + Send>>,
}

/// Sees the end of a term.
#[derive(Clone)]
pub(crate) struct TermEnd(watch::Receiver<Phase>);

impl Term {
    /// Stands for election.
    pub(crate) fn begin(
        options: Arc<RuntimeOptions>,
        kinds: watch::Receiver<Kinds>,
        identity: String,
    ) -> Self {
        let (tell, phase) = watch::channel(Phase::StandsBy);
        let (resign, resigned) = oneshot::channel();
        let (broke, panicked) = oneshot::channel::<Box<dyn Any + Send>>();
        let fence = Arc::new(Fence::new());
        let gate = Arc::clone(&fence);
        let run = move || {
            // On a runtime of its own, so that its connections and timers are its own.
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(run_term(&options, kinds, identity, &gate, &tell, resigned));
            Ok::<_, std::io::Error>(())
        };
        let gate = Arc::clone(&fence);
        let work = move || {
            // Whatever ends it, nothing is written afterwards.
            let ended = catch_unwind(AssertUnwindSafe(run));
            gate.set(Until::Over);
            let _ = match ended {
                Ok(Ok(())) => return,
                Ok(Err(error)) => broke.send(Box::new(format!("no runtime: {error}"))),
                Err(panic) => broke.send(panic),
            };
        };
        if let Err(error) = thread::Builder::new().name("lease".to_owned()).spawn(work) {
            resume_unwind(Box::new(format!("cannot create a thread: {error}")));
        }
        Term { phase, fence, resign: Some(resign), panicked }
    }

    /// Waits until this process acts, or the term is over.
    pub(crate) async fn leads(&mut self) {
        let _ = self.phase.wait_for(|phase| *phase != Phase::StandsBy).await;
    }

    /// For those who have to stop with the term.
    pub(crate) fn end(&self) -> TermEnd {
        TermEnd(self.phase.clone())
    }

    /// Gives the Lease back, so that others need not wait. Nothing is to be under way any more.
    pub(crate) async fn give_back(mut self) {
        if let Some(resign) = self.resign.take() {
            let _ = resign.send(());
        }
        self.end().comes().await;
    }

    /// Ends it. Other replicas wait until the Lease has expired: something may be under way still. A panic of its
    /// thread goes on here.
    pub(crate) async fn leave(mut self) {
        self.resign = None;
        self.end().comes().await;
        if let Ok(panic) = self.panicked.await {
            resume_unwind(panic);
        }
    }
}

impl TermEnd {
    /// Waits for the end.
    pub(crate) async fn comes(&mut self) {
        // No receiver is left when the thread has ended.
        while *self.0.borrow_and_update() != Phase::Over && self.0.changed().await.is_ok() {}
    }

    pub(crate) fn has_come(&self) -> bool {
        *self.0.borrow() == Phase::Over || self.0.has_changed().is_err()
    }
}

async fn run_term(
    options: &RuntimeOptions,
    kinds: watch::Receiver<Kinds>,
    identity: String,
    fence: &Fence,
    phase: &watch::Sender<Phase>,
    mut resigned: oneshot::Receiver<()>,
) {
    let times = Times::of(options.lease);
    let client = loop {
        match Client::connect(options, options.as_controller.as_deref()).await {
            Ok(client) => break client,
            Err(error) => tracing::warn!(%error, "cannot read the Lease"),
        }
        tokio::select! {
            () = tokio::time::sleep(times.retry_period) => {}
            _ = &mut resigned => return,
        }
    };
    let election = Election::new(identity, times);
    let mut lease = Lease { client, kinds, id: id(&options.namespace, &options.names), election };
    let told_to_end = tokio::select! {
        () = lease.run(fence, phase) => return,
        told = &mut resigned => told.is_ok(),
    };
    fence.set(Until::Over);
    if told_to_end {
        lease.give_back().await;
    }
    phase.send_replace(Phase::Over);
}

/// The Lease, and this process's part in it.
struct Lease {
    client: Client,
    kinds: watch::Receiver<Kinds>,
    id: ObjectId,
    election: Election<Instant>,
}

impl Lease {
    /// Takes the Lease when it can be had, renews it, and comes back when it is lost. Where Leases are forbidden, this process
    /// acts without one.
    async fn run(&mut self, fence: &Fence, phase: &watch::Sender<Phase>) {
        let mut told = false;
        let mut give_up = self.election.patience(Instant::now());
        loop {
            let asked = Instant::now();
            // A server that does not answer in time is no reason to go on without the Lease.
            let answer = tokio::time::timeout_at(give_up, self.try_once()).await;
            let late = || Err(ApiError::new(Reason::Unavailable, "timed out"));
            let holds = answer.unwrap_or_else(|_| late());
            let standing = self.election.tried(asked, holds.as_ref().copied(), Instant::now());
            fence.set(self.election.until());
            let led = *phase.borrow() == Phase::Leads;
            match (standing, &holds) {
                (Leadership::Leading, Ok(_)) if !led => {
                    tracing::info!(holder = self.election.identity(), "holds the Lease");
                }
                (Leadership::Leading, Err(error)) if !led => {
                    tracing::warn!(%error, "acting without a Lease; no second replica may run");
                }
                (Leadership::Leading, Err(error)) => {
                    tracing::debug!(%error, "cannot renew the Lease");
                }
                (Leadership::Leading, Ok(_)) => {}
                (Leadership::Standby, Ok(_)) if !told => {
                    told = true;
                    tracing::info!("another replica holds the Lease; standing by");
                }
                (Leadership::Standby, Ok(_)) => {}
                (Leadership::Standby, Err(error)) => {
                    tracing::warn!(%error, "cannot read the Lease");
                }
                (Leadership::Ousted, _) => tracing::warn!("another replica took the Lease"),
                (Leadership::Late, Err(error)) => {
                    tracing::warn!(%error, "could not renew the Lease before the renew deadline");
                }
                (Leadership::Late, Ok(_)) => {
                    tracing::warn!("renewed the Lease after the renew deadline");
                }
            }
            match standing {
                Leadership::Leading if !led => drop(phase.send_replace(Phase::Leads)),
                Leadership::Leading | Leadership::Standby => {}
                Leadership::Ousted | Leadership::Late => {
                    phase.send_replace(Phase::Over);
                    return;
                }
            }
            let again;
            (again, give_up) = self.election.next(Instant::now());
            tokio::time::sleep_until(again).await;
        }
    }

    async fn give_back(&mut self) {
        let kinds = self.kinds.borrow().clone();
        kiln_replica::lease::give_back(&self.client, &kinds, &self.id, &self.election).await;
    }

    /// Takes or renews the Lease; whether this process holds it now.
    async fn try_once(&mut self) -> Result<bool, ApiError> {
        let kinds = self.kinds.borrow().clone();
        let (client, id) = (&self.client, &self.id);
        kiln_replica::lease::try_once(client, &kinds, id, &mut self.election, Instant::now).await
    }
}
