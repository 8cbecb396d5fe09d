//! Deletes objects whose time has come: runs of policies on schedules, and the TTL label. Only the leader does.
//!
//! | module | holds |
//! |---|---|
//! | here | owns the [`Cleaner`]: gives it policies, answers and the time, carries out what it asks for |
//! | `judge` | whether a policy deletes an object, with what it reads of the cluster |
//! | `ttl` | follows the kinds whose objects may have the label |

mod judge;
mod ttl;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_cleanup::{Cleaner, CleanupEvent, CleanupReply, CleanupRequest, Todo};
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_object::{Kinds, ObjectId};
use kiln_replica::cleanup::{Lacks, cleanup_policies, lacking, status_patch};
use kiln_rules::Propagation;
use kiln_services::Services;
use kiln_value::Value;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::judge::{LiveJudge, RunReads};
use crate::calls::{carry_out, delete_object};
use crate::controller_loop::now;
use crate::election::Fence;
use crate::events::Happened;
use crate::lease::TermEnd;
use crate::policy_store::Registry;
use crate::state::AppState;
use crate::supervisor::caught;
use crate::tasks::{answer_or, call};

pub(crate) const PART: &str = "cleanup";

/// How long the permissions of the account count before they are asked for again.
const PERMISSIONS: Duration = Duration::from_secs(60);
/// How long to wait at most before looking at the time again: clocks may be set.
const LOOK: Duration = Duration::from_secs(30);

/// How long to wait after a panic.
const AGAIN: Duration = Duration::from_secs(5);

type Answered = (u64, Result<CleanupReply, ApiError>);

/// Deletes objects until the term is over, or the process is to end. After a panic it begins again: what ran last is in the
/// status of policies, and what is due is due then.
pub(crate) async fn keep(shared: AppState, fence: Arc<Fence>, term: TermEnd) {
    loop {
        let deleting = delete_on_time(shared.clone(), Arc::clone(&fence), term.clone());
        if caught(&shared.metrics, PART, deleting).await.is_some() {
            return;
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn delete_on_time(shared: AppState, fence: Arc<Fence>, mut term: TermEnd) {
    let mut shutdown = shared.shutdown.clone();
    let ending = async {
        tokio::select! {
            () = term.comes() => {}
            _ = shutdown.wait_for(|end| *end) => {}
        }
    };
    tokio::select! {
        () = ending => {}
        () = run_policies(shared.clone(), Arc::clone(&fence)) => {}
        // Beside Kyverno, the label is for its cleanup controller.
        () = ttl::keep(shared.clone(), fence), if shared.options.runs_kyverno() => {}
    }
}

/// Runs policies on their schedules.
async fn run_policies(shared: AppState, fence: Arc<Fence>) {
    let (mut registry, mut kinds) = (shared.registry.clone(), shared.kinds.clone());
    let (answers, mut answered) = mpsc::channel::<Answered>(256);
    let (found, mut permissions) = mpsc::channel::<Lacks>(1);
    let mut driver = Driver {
        cleaner: Cleaner::default(),
        tasks: JoinSet::new(),
        reads: HashMap::new(),
        running: HashMap::new(),
        lacks: Lacks::new(),
        shared,
        fence,
    };
    driver.tasks.spawn(follow_permissions(driver.shared.clone(), found));
    let mut is_stale = true;
    loop {
        let stored = registry.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        if is_stale && stored.complete {
            let policies = cleanup_policies(&stored, &known, &driver.lacks);
            driver.cleaner.set_policies(policies);
        }
        if stored.complete {
            driver.act(&answers);
        }
        let next = driver.cleaner.next_time();
        driver.shared.progress.deletions.send_modify(|deletions| deletions.policies = next);
        let wait = next.map_or(LOOK, |time| {
            Duration::from_millis(time.saturating_sub(now()).max(1)).min(LOOK)
        });
        is_stale = tokio::select! {
            Some((ticket, answer)) = answered.recv() => {
                let Some(next) = driver.answered(ticket, answer, &stored, &known).await else { return };
                driver = next;
                false
            }
            Some(lacks) = permissions.recv() => {
                driver.lacks = lacks;
                true
            }
            changed = registry.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
            changed = kinds.changed() => {
                if changed.is_err() {
                    return;
                }
                true
            }
            () = tokio::time::sleep(wait) => false,
        };
    }
}

/// Owns the cleaner.
struct Driver {
    shared: AppState,
    fence: Arc<Fence>,
    cleaner: Cleaner,
    /// Calls under way. They end with this value.
    tasks: JoinSet<()>,
    /// What the runs have read, so that each asks once for what is the same for all objects.
    reads: HashMap<ObjectId, Arc<RunReads>>,
    /// Which policy asked for what a ticket stands for.
    running: HashMap<u64, ObjectId>,
    lacks: Lacks,
}

impl Driver {
    /// Begins what is due, and tells what happened.
    fn act(&mut self, answers: &mpsc::Sender<Answered>) {
        // Each of them catches its own panics.
        while self.tasks.try_join_next().is_some() {}
        for request in self.cleaner.poll(now()) {
            self.running.insert(request.ticket, request.policy.clone());
            self.begin(request, answers.clone());
        }
        for event in self.cleaner.take_events() {
            self.tell(event);
        }
    }

    fn begin(&mut self, request: CleanupRequest, answers: mpsc::Sender<Answered>) {
        let (shared, fence) = (self.shared.clone(), Arc::clone(&self.fence));
        self.tasks.spawn(async move {
            let CleanupRequest { ticket, policy, todo } = request;
            let kinds = shared.kinds.borrow().clone();
            let metrics = Arc::clone(&shared.metrics);
            let doing = carry_out_todo(&shared, &fence, &kinds, &policy, todo);
            let failed = |why: &str| Err(ApiError::new(Reason::Unavailable, why.to_owned()));
            let answer = answer_or(&metrics, doing, failed).await;
            let _ = answers.send((ticket, answer)).await;
        });
    }

    /// Gives the cleaner an answer. Objects are judged on a thread where waiting for the API server is fine; none if that
    /// panicked, after which this part begins anew.
    async fn answered(
        mut self,
        ticket: u64,
        answer: Result<CleanupReply, ApiError>,
        stored: &Arc<Registry>,
        kinds: &Kinds,
    ) -> Option<Self> {
        let policy = self.running.remove(&ticket);
        let settings = self.shared.options.settings();
        let (settings, _) = settings.read(stored.config.as_ref());
        let reads = policy.map(|policy| Arc::clone(self.reads.entry(policy).or_default()));
        let services = Services::new(self.shared.options.services.clone().and(&settings.services));
        let judge = LiveJudge {
            client: self.shared.clients.cleanup.clone(),
            kinds: kinds.clone(),
            stored: Arc::clone(stored),
            authors: stored.authors(settings.authors),
            rights: Arc::clone(&self.shared.rights),
            globals: self.shared.globals.borrow().clone(),
            settings,
            services,
            reads: reads.unwrap_or_default(),
            handle: tokio::runtime::Handle::current(),
        };
        let metrics = Arc::clone(&self.shared.metrics);
        let judging = tokio::task::spawn_blocking(move || {
            self.cleaner.answer(ticket, answer, &judge, now());
            self
        });
        let judged = async { crate::supervisor::pass_on(judging.await) };
        caught(&metrics, "evaluation", judged).await.flatten()
    }

    fn tell(&mut self, event: CleanupEvent) {
        match &event {
            CleanupEvent::Deleted { policy, object, warning, propagation } => {
                tracing::info!(%policy, %object, "deleted an object");
                if let Some(warning) = warning {
                    tracing::warn!(%policy, %object, "{warning}");
                }
                self.count(policy, object, *propagation, "deletedobjects");
            }
            CleanupEvent::Failed { policy, object, why, propagation, .. } => {
                tracing::warn!(%policy, %object, "cannot delete: {why}");
                self.count(policy, object, *propagation, "errors");
            }
            CleanupEvent::Ran { policy, report } => {
                tracing::info!(
                    %policy, seen = report.seen, deleted = report.deleted, failed = report.failed,
                    changed = report.changed, "ran"
                );
                // The next run reads anew.
                self.reads.remove(policy);
            }
        }
        // Events are for people: when there are too many of them, some are left out.
        let _ = self.shared.news.happened.try_send(Happened::Cleanup(event));
    }

    fn count(
        &self,
        policy: &ObjectId,
        object: &ObjectId,
        propagation: Option<Propagation>,
        what: &str,
    ) {
        let in_cel = kiln_object::policy_kinds::is_cel(&policy.gvk);
        let name = match (in_cel, what) {
            (false, "errors") => "kyverno_cleanup_controller_errors_total",
            (false, _) => "kyverno_cleanup_controller_deletedobjects_total",
            (true, "errors") => "kyverno_deleting_controller_errors_total",
            (true, _) => "kyverno_deleting_controller_deletedobjects_total",
        };
        let resource = if in_cel { "resource" } else { "resource_kind" };
        let labels = [
            ("policy_type", policy.gvk.kind.as_str()),
            ("policy_namespace", policy.namespace.as_str()),
            ("policy_name", policy.name.as_str()),
            (resource, object.gvk.kind.as_str()),
            ("resource_namespace", object.namespace.as_str()),
            ("deletion_propagation", propagation.map_or("", Propagation::as_str)),
        ];
        self.shared.metrics.count(name, &labels);
    }
}

async fn carry_out_todo(
    shared: &AppState,
    fence: &Fence,
    kinds: &Kinds,
    policy: &ObjectId,
    todo: Todo,
) -> Result<CleanupReply, ApiError> {
    match todo {
        Todo::List(list) => {
            let reply =
                call(&shared.clients.cleanup, kinds, &list, None, &shared.metrics, fence).await?;
            Ok(match reply {
                Reply::List(listing) => CleanupReply::Listed(listing),
                _ => CleanupReply::Done,
            })
        }
        Todo::Delete { target, preconditions, propagation } => {
            let propagation = propagation.map(Propagation::as_str);
            let deleting =
                delete_object(&shared.clients.cleanup, kinds, &target, &preconditions, propagation);
            fence.write(deleting).await?;
            Ok(CleanupReply::Done)
        }
        Todo::Status(status) => {
            let registry = shared.registry.borrow().clone();
            let stored = registry.policies.iter().find(|stored| stored.id == *policy);
            let object = stored.map_or(Value::Null, |stored| stored.object.clone());
            let patch = status_patch(policy, &object, status, now());
            // The policies are the engine's own business, not that of the account that deletes.
            call(&shared.clients.controller, kinds, &patch, None, &shared.metrics, fence).await?;
            Ok(CleanupReply::Done)
        }
    }
}

/// Asks again and again what the account of the policies lacks, and tells it.
async fn follow_permissions(shared: AppState, found: mpsc::Sender<Lacks>) {
    let (mut registry, mut kinds) = (shared.registry.clone(), shared.kinds.clone());
    loop {
        let stored = registry.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        let mut all = Lacks::new();
        let sound = stored.policies.iter().filter_map(|stored| {
            let policy = stored.compiled.as_ref().ok().filter(|policy| policy.is_scheduled())?;
            Some((&stored.id, policy))
        });
        for (id, policy) in sound {
            let lacks =
                lacking(&shared.clients.cleanup, &shared.options.settings(), policy, &known).await;
            if !lacks.is_empty() {
                all.insert(id.clone(), lacks);
            }
        }
        if found.send(all).await.is_err() {
            return;
        }
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            changed = kinds.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(PERMISSIONS) => {}
        }
        // Changes come in bursts.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Carries out a call that reads.
async fn read(shared: &AppState, kinds: &Kinds, call: &Call) -> Result<Reply, ApiError> {
    carry_out(&shared.clients.cleanup, kinds, call).await
}
