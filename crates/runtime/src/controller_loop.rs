//! Owns the controller: gives it what watches and requests tell, and carries out its calls.
//!
//! It has a thread of its own (`run`), because the controller evaluates rules there: what is waited for comes over channels from
//! tasks of the runtime, and what is to be written goes to such tasks, through the fence of the term.

mod inputs;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use kiln_cluster::{ApiError, KindKey, Reason, Reply};
use kiln_controller::{CallRequest, Controller, ControllerEvent, Lookup, LookupQuestion, Settings};
use kiln_engine::{ExternalData as _, ExternalDataError, ObservedRequest};
use kiln_object::Gvk;
pub(crate) use kiln_replica::controller_settings::configure;
use kiln_replica::controller_settings::is_informed;
use kiln_services::Services;
use tokio::sync::{Semaphore, mpsc, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::claim_keys;
use crate::election::Fence;
use crate::events::Happened;
use crate::kyverno_metrics::CountedEvaluation;
use crate::lease::TermEnd;
use crate::options::Only;
use crate::policy_store::Registry;
use crate::reporter::ReportNews;
use crate::run::Acting;
use crate::state::{ActivityState, AppState, Troubles};
use crate::supervisor::{self, caught};
use crate::tasks::{answer_in_thread, answer_or, call, tell_answer};
use crate::watch::{Subject, WatchNews, Watcher};

use inputs::{Heard, LoopInputs};

/// How many watch events, answers and hints are taken in before the controller decides again.
const AT_ONCE: usize = 512;
/// How many services are asked at the same time.
const QUESTIONS_AT_ONCE: usize = 16;
/// A look at things that takes longer than this is stuck: `/healthz` tells. Evaluations have budgets of far less, but there may
/// be many of them in one look.
const STUCK: Duration = Duration::from_secs(300);
/// How long to wait before a kind is listed again whose watch panicked.
const WATCH_AGAIN: Duration = Duration::from_secs(2);

type CallAnswer = (u64, Result<Reply, ApiError>);
type ToldAnswer = (u64, kiln_controller::LookupResult);

/// The controller and what it needs to act.
pub(crate) struct ControllerLoop {
    shared: AppState,
    controller: Controller,
    watcher: Watcher,
    /// The watches that run.
    watches: HashMap<KindKey, AbortHandle>,
    /// Watches, calls and questions under way. They end with this value.
    tasks: JoinSet<()>,
    /// What is written goes through it: a replica without the Lease writes nothing.
    fence: Arc<Fence>,
    senders: TaskSenders,
    permits: TaskPermits,
    services: Services,
    /// What the ConfigMap says.
    config: kiln_admission::Settings,
    report: StateReport,
    on_stored: fn(),
}

/// Where tasks tell what they found out.
struct TaskSenders {
    told: mpsc::Sender<(Gvk, WatchNews)>,
    answers: mpsc::Sender<CallAnswer>,
    /// What services answer to questions.
    told_answers: mpsc::Sender<ToldAnswer>,
}

/// How many tasks may be under way.
struct TaskPermits {
    /// Calls to the API server.
    calls: Arc<Semaphore>,
    /// Questions to services.
    services: Arc<Semaphore>,
}

/// When the state of the controller was told last.
#[derive(Default)]
struct StateReport {
    last: Option<Instant>,
    /// Something may have changed since.
    is_due: bool,
    /// Panics of the controller that are counted.
    panics: u64,
}

/// Why the controller does not act any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The process is to end, and calls that were under way have come to their end.
    Told,
    /// Another replica may be the leader by now: open writes are dropped.
    LeaseLost,
}

/// Runs the controller until the process is to end, or its term is over.
///
/// The controller has no threads and no clock; this loop is its only caller, so that every decision sees one consistent
/// state and can be replayed. It does not act before it is `informed`: exceptions and settings must be known, because
/// what was done against them cannot be undone, and without the keys every claim would look unsigned.
///
/// When the process is to end, nothing new is begun, and the loop goes on until all calls under way have answered; a
/// lost Lease ends it at once, since the fence refuses further writes and another replica may act already.
pub(crate) async fn drive(
    shared: AppState,
    settings: Settings,
    acting: &Acting,
    hints: &mut mpsc::Receiver<ObservedRequest>,
    fence: Arc<Fence>,
    term: TermEnd,
) -> Ended {
    let (told, news) = mpsc::channel(1024);
    let (answers, answered) = mpsc::channel(256);
    let (told_answers, services_answered) = mpsc::channel(256);
    let senders = TaskSenders { told, answers, told_answers };
    let (known_keys, claim_keys) = watch::channel(None);
    let mut inputs = LoopInputs {
        news,
        answered,
        services_answered,
        hints,
        kinds: shared.kinds.clone(),
        registry: shared.registry.clone(),
        globals: shared.globals.subscribe(),
        claim_keys,
        shutdown: shared.shutdown.clone(),
        term,
    };
    let kinds = inputs.kinds.borrow_and_update().clone();
    let evaluation =
        CountedEvaluation { inner: (acting.evaluate)(), metrics: Arc::clone(&shared.metrics) };
    let controller = Controller::new(settings, kinds).evaluating_with(Box::new(evaluation));
    let mut driver = ControllerLoop::new(shared, controller, senders, fence, acting.on_stored);
    driver.shared.health.bad("controller", "its caches are not synced yet");
    driver.tasks.spawn(claim_keys::keep(driver.shared.clone(), known_keys));
    let mut ending = false;
    let began = Instant::now();
    let mut informed = false;
    loop {
        driver.shared.health.runs(PART, STUCK);
        // Another replica may lead after a slow read.
        if inputs.term.has_come() {
            return Ended::LeaseLost;
        }
        if !informed {
            informed = driver.inform(&mut inputs, began.elapsed());
        }
        // One permit per call under way: all of them free means that the last answer is in.
        if !ending {
            if informed {
                driver.act();
            }
        } else if driver.is_quiet() {
            return Ended::Told;
        }
        let wait = driver.wait(informed);
        match driver.hear(&mut inputs, wait).await {
            Heard::Input => {}
            Heard::Shutdown => ending = *inputs.shutdown.borrow(),
            Heard::TermEnd => return Ended::LeaseLost,
        }
        // What else has come meanwhile belongs to the same look at things.
        while let Ok(hint) = inputs.hints.try_recv() {
            driver.hint(hint);
        }
    }
}

impl ControllerLoop {
    fn new(
        shared: AppState,
        controller: Controller,
        senders: TaskSenders,
        fence: Arc<Fence>,
        on_stored: fn(),
    ) -> Self {
        let watcher = Watcher {
            client: shared.clients.controller.clone(),
            kinds: shared.kinds.clone(),
            stale_after: shared.options.stale_after,
            health: Arc::clone(&shared.health),
            purpose: "controller".into(),
            metrics: Arc::clone(&shared.metrics),
        };
        ControllerLoop {
            controller,
            watcher,
            watches: HashMap::new(),
            tasks: JoinSet::new(),
            fence,
            senders,
            permits: TaskPermits {
                calls: Arc::new(Semaphore::new(shared.options.calls_at_once)),
                services: Arc::new(Semaphore::new(QUESTIONS_AT_ONCE)),
            },
            services: Services::new(shared.options.services.clone()),
            config: shared.options.settings(),
            report: StateReport::default(),
            on_stored,
            shared,
        }
    }

    /// Takes over what is known before the controller acts: exceptions, settings, policies, the global context and the
    /// keys of claims. Whether that is enough.
    fn inform(&mut self, inputs: &mut LoopInputs<'_>, waited: Duration) -> bool {
        let stored = inputs.registry.borrow_and_update().clone();
        let held = inputs.globals.borrow_and_update().clone();
        let keys = inputs.claim_keys.borrow_and_update().clone();
        let registered = self.shared.options.only == Some(Only::Controller)
            || self.shared.health.has_begun("webhooks");
        let informed = keys.is_some() && is_informed(&stored, &held, registered, waited);
        self.controller.configure(|settings| settings.claim_keys = keys.unwrap_or_default());
        self.stored(&stored);
        self.controller.set_globals(held);
        informed
    }

    /// Whether no call is under way.
    fn is_quiet(&self) -> bool {
        self.permits.calls.available_permits() == self.shared.options.calls_at_once
    }

    /// How long nothing is to be done.
    fn wait(&self, informed: bool) -> Duration {
        let wait = match self.controller.next_time() {
            _ if !informed => Duration::from_millis(200),
            None => Duration::from_secs(60),
            Some(time) => Duration::from_millis(time.saturating_sub(now()).clamp(1, 60_000)),
        };
        let is_due = self.report.is_due || self.controller.has_reports();
        if is_due { wait.min(REPORT) } else { wait }
    }

    fn told(&mut self, gvk: &Gvk, told: WatchNews) {
        match told {
            WatchNews::Event(event) => self.controller.watched(gvk, &event, now()),
            WatchNews::Upto(revision) => self.controller.watched_upto(gvk, revision),
            WatchNews::Lost => {
                if let Some(task) = self.watches.remove(&KindKey::of(gvk)) {
                    task.abort();
                }
                self.controller.watch_lost(gvk);
            }
        }
    }

    /// Takes over what is stored: exceptions and settings first, by which rules are bound, then the policies.
    fn stored(&mut self, stored: &Registry) {
        if !stored.complete {
            return;
        }
        (self.on_stored)();
        // What is wrong with the ConfigMap is reported by the replicas that serve.
        let (config, _) = self.config.read(stored.config.as_ref());
        self.controller.set_exceptions(config.in_force(&stored.exceptions));
        self.services = Services::new(self.shared.options.services.clone().and(&config.services));
        let on = !self.services.are_off();
        self.controller.configure(|settings| {
            configure(settings, &config);
            settings.rules.services = on;
        });
        self.config = config;
        self.controller.set_policies(stored.for_controller(), now());
    }

    fn hint(&mut self, hint: ObservedRequest) {
        self.shared.metrics.count("kiln_observed_requests_total", &[]);
        self.controller.hint(hint, now());
    }

    /// Lets the controller decide, and begins what it wants done.
    fn act(&mut self) {
        // Each of them catches its own panics.
        while self.tasks.try_join_next().is_some() {}
        for request in self.controller.poll(now()) {
            self.begin(request);
        }
        let panics = self.controller.panics();
        supervisor::count(&self.shared.metrics, "evaluation", panics - self.report.panics);
        self.report.panics = panics;
        self.begin_watches();
        for question in self.controller.take_questions() {
            self.begin_lookup(question);
        }
        for news in self.controller.take_news() {
            self.tell(news);
        }
        self.tell_reports();
        self.tell_work();
        self.report();
    }

    /// Begins the watches of kinds that the controller follows since.
    fn begin_watches(&mut self) {
        for (gvk, revision) in self.controller.watches() {
            let key = KindKey::of(&gvk);
            if self.watches.contains_key(&key) {
                continue;
            }
            let subject = Subject::all(gvk);
            let (watcher, told) = (self.watcher.clone(), self.senders.told.clone());
            let standing = watcher.standing(&subject);
            let task = self.tasks.spawn(async move {
                let following = watcher.follow(&subject, revision, &told, &standing);
                if caught(&watcher.metrics, "watch", following).await.is_none() {
                    tokio::time::sleep(WATCH_AGAIN).await;
                    let _ = told.send((subject.gvk.clone(), WatchNews::Lost)).await;
                }
            });
            self.watches.insert(key, task);
        }
    }

    /// Asks a service, or the API server about rights.
    fn begin_lookup(&mut self, question: LookupQuestion) {
        let (services, answers) = (self.services.clone(), self.senders.told_answers.clone());
        let (client, kinds) =
            (self.shared.clients.controller.clone(), self.shared.kinds.borrow().clone());
        let (asking, rights) =
            (Arc::clone(&self.permits.services), Arc::clone(&self.shared.rights));
        let permits = Arc::clone(&self.permits.calls);
        let metrics = Arc::clone(&self.shared.metrics);
        self.tasks.spawn(async move {
            let number = question.number;
            match question.asked {
                Lookup::Access(right) => {
                    let Ok(permit) = permits.acquire().await else { return };
                    let asking = rights.may_read(&client, &kinds, &right);
                    let allowed = answer_or(&metrics, asking, |why| {
                        Err(format!(
                            "cannot check the permissions of {}: {why}",
                            right.user.username
                        ))
                    });
                    let answer = kiln_controller::LookupResult::Access(allowed.await);
                    tell_answer(permit, &answers, (number, answer)).await;
                }
                Lookup::Service(asked) => {
                    // Reviews need threads as well: a slow service must not take them all.
                    let Ok(permit) = asking.acquire().await else { return };
                    let url = asked.request().url.to_owned();
                    let exchange = move || services.exchange(&asked.request());
                    let answer = answer_in_thread(&metrics, exchange, |why| {
                        Err(ExternalDataError::failed(format!("{url}: {why}")))
                    });
                    let answer = kiln_controller::LookupResult::Service(answer.await);
                    tell_answer(permit, &answers, (number, answer)).await;
                }
            }
        });
    }

    /// Passes on what is to be reported, as far as there is room: the rest waits for the next look.
    fn tell_reports(&mut self) {
        while let Ok(room) = self.shared.news.findings.try_reserve() {
            let Some(told) = self.controller.take_report() else { break };
            room.send(ReportNews::of_trigger(told));
        }
    }

    /// Tells whether something is to be done, when that changed.
    fn tell_work(&self) {
        let work = match (self.controller.is_running(), self.controller.is_idle()) {
            (false, _) => ActivityState::Standby,
            (true, false) => ActivityState::Busy,
            (true, true) => ActivityState::Idle,
        };
        self.shared.progress.work.send_if_modified(|known| std::mem::replace(known, work) != work);
    }

    fn tell(&self, news: ControllerEvent) {
        let (rule, result) = match &news {
            ControllerEvent::Made { rule, target } => {
                tracing::info!(%rule, %target, "made an object");
                (rule, "made")
            }
            ControllerEvent::Failed { rule, trigger, condition } => {
                let trigger = trigger.as_ref().map(ToString::to_string).unwrap_or_default();
                let (reason, why) = (condition.reason, &condition.message);
                tracing::warn!(%rule, trigger, ?reason, why, "cannot reconcile");
                (rule, "failed")
            }
            ControllerEvent::SourceMissing { rule, trigger, message } => {
                let trigger = trigger.as_ref().map(ToString::to_string).unwrap_or_default();
                tracing::warn!(%rule, trigger, why = message, "waiting for the source");
                (rule, "source missing")
            }
            ControllerEvent::Changed { rule, target } => {
                tracing::info!(%rule, %target, "changed an object");
                (rule, "changed")
            }
            ControllerEvent::OwnerElsewhere { rule, target, owner } => {
                tracing::warn!(%rule, %target, owner, "Kubernetes does not respect this owner reference");
                (rule, "owner elsewhere")
            }
        };
        let policy = rule.policy.key();
        let labels =
            [("policy", policy.as_str()), ("rule", rule.rule.as_str()), ("result", result)];
        self.shared.metrics.count("kiln_rule_results_total", &labels);
        // Events are for people: when there are too many of them, some are left out.
        let _ = self.shared.news.happened.try_send(Happened::Told(news));
    }

    /// Tells what keeps policies from firing, when that is something else than before.
    fn tell_troubles(&self) {
        if !self.controller.is_running() {
            return;
        }
        let mut troubles = Troubles::new();
        for (policy, what) in self.controller.unreadable_triggers() {
            troubles.entry(policy).or_default().push(what);
        }
        let before = self.shared.progress.troubles.borrow().clone();
        if before.as_ref() == Some(&troubles) {
            return;
        }
        for (policy, found) in &troubles {
            let known = before.as_ref().and_then(|before| before.get(policy));
            for what in found.iter().filter(|what| known.is_none_or(|k| !k.contains(what))) {
                tracing::warn!(%policy, why = what, "cannot read triggers");
                let news = Happened::Unreadable { policy: policy.clone(), what: what.clone() };
                let _ = self.shared.news.happened.try_send(news);
            }
        }
        self.shared.progress.troubles.send_replace(Some(troubles));
    }

    fn begin(&mut self, request: CallRequest) {
        let (client, kinds) =
            (self.shared.clients.controller.clone(), self.shared.kinds.borrow().clone());
        let (answers, permits) = (self.senders.answers.clone(), Arc::clone(&self.permits.calls));
        let metrics = Arc::clone(&self.shared.metrics);
        let (rights, fence) = (Arc::clone(&self.shared.rights), Arc::clone(&self.fence));
        self.tasks.spawn(async move {
            let Ok(permit) = permits.acquire().await else { return };
            let done = async {
                let refusal = match &request.author {
                    Some(author) => rights.refusal(&client, &kinds, author, &request.call).await,
                    None => None,
                };
                match refusal {
                    Some(error) => Err(error),
                    None => {
                        let rule = request.rule.as_ref();
                        call(&client, &kinds, &request.call, rule, &metrics, &fence).await
                    }
                }
            };
            let failed = |why: &str| Err(ApiError::new(Reason::Unavailable, why));
            let answer = answer_or(&metrics, done, failed).await;
            tell_answer(permit, &answers, (request.ticket, answer)).await;
        });
    }

    fn report(&mut self) {
        self.report.is_due = self.report.last.is_some_and(|last| last.elapsed() < REPORT);
        if self.report.is_due {
            return;
        }
        self.report.last = Some(Instant::now());
        let metrics = &self.shared.metrics;
        let mut waiting: BTreeMap<&str, u32> = BTreeMap::new();
        for (_, condition) in self.controller.conditions() {
            *waiting.entry(condition.reason.as_str()).or_default() += 1;
        }
        metrics.clear("kiln_conditions");
        for (reason, count) in waiting {
            metrics.set("kiln_conditions", &[("reason", reason)], f64::from(count));
        }
        #[allow(clippy::cast_precision_loss, reason = "a count for people")]
        metrics.set("kiln_keys", &[], self.controller.keys_held() as f64);
        self.tell_troubles();
        match self.controller.is_running() {
            true => self.shared.health.good("controller", None),
            false => self.shared.health.bad("controller", "its caches are not synced yet"),
        }
    }
}

/// What the controller is called in `/healthz`.
pub(crate) const PART: &str = "controller";

/// The shortest time between two reports of the state.
const REPORT: Duration = Duration::from_secs(1);

/// The time, in milliseconds.
pub(crate) fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
