//! The state machine: what goes in, what comes out, and in which order things are done.

use std::fmt;
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, KindKey, Listing, Reason, Reply, WatchEvent};
use kiln_engine::{ExternalData as _, Globals, User};
use kiln_object::{Gvk, Kinds, ObjectId, Selector};
use kiln_rules::{Exception, RuleId};
use kiln_schema::{KubernetesVersion, Schema};

use crate::cache::checkpoint_keeper::CheckpointKeeper;
use crate::cache::{KindState, ObjectCache};
use crate::lookups::Lookups;
use crate::outbox::{Outbox, Purpose};
use crate::policies::policy_set::{PolicySet, Start};
use crate::policies::record::LABEL;
use crate::reconcile::downstreams::Downstreams;
use crate::reconcile::evaluate::{Engine, Evaluate, Panicked};
use crate::reconcile::retry::backoff;
use crate::reports::Reports;
use crate::requests::Requests;
use crate::settings::Settings;
use crate::work_queue::work::Work;
use crate::work_queue::{Condition, WorkKey, WorkQueue};

/// A call that a host is to carry out, and to answer under its number.
#[derive(Clone, Debug, PartialEq)]
pub struct CallRequest {
    /// The number.
    pub ticket: u64,
    pub call: Call,
    /// The person without whose rights it is not to be made.
    pub author: Option<User>,
    /// The rule that wants it; none for the controller's own books.
    pub rule: Option<RuleId>,
}

/// Something that happened, for those who write events and count.
#[derive(Clone, Debug, PartialEq)]
pub enum ControllerEvent {
    /// A rule made an object that was not there.
    Made {
        rule: RuleId,
        /// What it made.
        target: ObjectId,
    },
    /// A rule changed a stored object.
    Changed {
        rule: RuleId,
        /// What it changed.
        target: ObjectId,
    },
    /// A rule could not do what it wants.
    Failed {
        rule: RuleId,
        /// What it wants it for, as far as that is known.
        trigger: Option<ObjectId>,
        /// Why.
        condition: Condition,
    },
    /// What a rule is to copy is not there. It goes on when it comes.
    SourceMissing {
        rule: RuleId,
        /// What it wants the copy for, as far as that is known.
        trigger: Option<ObjectId>,
        /// What is missing, in words.
        message: String,
    },
    /// A rule made an object whose owner Kubernetes does not honour.
    OwnerElsewhere {
        rule: RuleId,
        /// What it made.
        target: ObjectId,
        /// The owner, as it is written.
        owner: String,
    },
}

/// What evaluations and decisions are made with, besides objects: what a host gives, and changes at any time.
pub(crate) struct EvaluationEnvironment {
    pub(crate) settings: Settings,
    pub(crate) kinds: Kinds,
    pub(crate) schema: Schema,
    /// The global context.
    pub(crate) globals: Arc<Globals>,
    pub(crate) evaluate: Box<dyn Evaluate>,
}

/// Keeps what rules want and what a cluster holds the same.
///
/// It is put together from machines with one noun each, which know nothing of each other, and only routes between them:
/// an event of a watch goes through the cache to the queue, an answer to what asked for it. What needs several of them (a
/// decision: rule, trigger, claims, cache) is a function of the whole controller that changes nothing.
pub struct Controller {
    pub(crate) env: EvaluationEnvironment,
    pub(crate) now: u64,
    /// The objects that watches have delivered.
    pub(crate) cache: ObjectCache,
    /// When everything is listed again, so that lost events heal.
    next_resync: u64,
    /// The keys that wait to be reconciled, and what is known of each.
    pub(crate) queue: WorkQueue,
    /// What is under way for keys.
    pub(crate) work: Work,
    /// The policies, their records and the rules that act.
    pub(crate) policies: PolicySet,
    pub(crate) downstreams: Downstreams,
    pub(crate) checkpoint: CheckpointKeeper,
    /// What is known of admission requests.
    pub(crate) requests: Requests,
    pub(crate) reports: Reports,
    /// What rules ask besides objects.
    pub(crate) lookups: Lookups,
    outbox: Outbox,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("now", &self.now)
            .field("policies", &self.policies.states.len())
            .field("jobs", &self.work.busy())
            .finish_non_exhaustive()
    }
}

impl Controller {
    /// A controller that knows nothing yet.
    pub fn new(settings: Settings, kinds: Kinds) -> Self {
        let next_resync = settings.resync;
        let env = EvaluationEnvironment {
            settings,
            kinds,
            schema: Schema::builtin(KubernetesVersion::NEWEST),
            globals: Arc::default(),
            evaluate: Box::new(Engine),
        };
        Controller {
            env,
            now: 0,
            cache: ObjectCache::default(),
            next_resync,
            queue: WorkQueue::default(),
            work: Work::default(),
            policies: PolicySet::default(),
            downstreams: Downstreams::default(),
            checkpoint: CheckpointKeeper::default(),
            requests: Requests::default(),
            reports: Reports::default(),
            lookups: Lookups::default(),
            outbox: Outbox::default(),
        }
    }

    /// The same controller, with something else that evaluates rules.
    #[must_use]
    pub fn evaluating_with(mut self, evaluate: Box<dyn Evaluate>) -> Self {
        self.env.evaluate = evaluate;
        self
    }

    /// Tells which kinds there are now.
    pub fn set_kinds(&mut self, kinds: Kinds) {
        self.env.kinds = kinds;
        // What could not be listed may be there now.
        self.cache.retry_lists();
        self.follow_trigger_kinds();
        // What waits may have waited for one of them.
        let waiting: Vec<WorkKey> = self
            .queue
            .iter()
            .filter(|(_, state)| state.condition.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            self.queue.enqueue(&key, self.now);
        }
    }

    /// Tells which objects rules leave alone. Their downstreams stay as they are.
    pub fn set_exceptions(&mut self, exceptions: Vec<Arc<Exception>>) {
        let same = self
            .policies
            .exceptions
            .iter()
            .zip(&exceptions)
            .all(|(old, new)| Arc::ptr_eq(old, new));
        if same && self.policies.exceptions.len() == exceptions.len() {
            return;
        }
        self.policies.exceptions = exceptions;
        self.rebuild_rules();
        self.look_at_everything();
    }

    /// Tells what the global context holds. What was made of something else is looked at again.
    pub fn set_globals(&mut self, globals: Arc<Globals>) {
        let before = std::mem::replace(&mut self.env.globals, globals);
        let changed = |name: &str| before.global(name) != self.env.globals.global(name);
        for key in self.queue.readers_of_globals(changed) {
            self.queue.enqueue(&key, self.now);
        }
    }

    /// Changes what a host decides, from now on.
    pub fn configure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.env.settings);
    }

    /// What happened since this was last asked, the oldest first.
    pub fn take_news(&mut self) -> Vec<ControllerEvent> {
        self.outbox.take_events()
    }

    pub(crate) fn tell(&mut self, event: ControllerEvent) {
        self.outbox.tell(event);
    }

    /// What is to be done now. Calls come once, and each wants an answer.
    pub fn poll(&mut self, now: u64) -> Vec<CallRequest> {
        self.now = self.now.max(now);
        self.read_records();
        if self.next_resync <= self.now {
            self.next_resync = self.now + self.env.settings.resync;
            self.resync();
        }
        self.look_at_forbidden();
        self.list_kinds();
        self.save_records();
        self.forget_old_hints();
        self.consume_requests();
        self.queue.wake(self.now);
        self.show_requests();
        while self.work.busy() < self.env.settings.workers {
            let work = &self.work;
            let Some(key) = self.queue.pop(|key| work.is_busy(key)) else { break };
            self.reconcile(&key);
        }
        // Keys may wait for kinds that nothing followed before.
        self.list_kinds();
        self.save_checkpoint();
        self.outbox.poll()
    }

    /// The answer to a call.
    pub fn answer(&mut self, ticket: u64, answer: Result<Reply, ApiError>, now: u64) {
        self.now = self.now.max(now);
        let Some(purpose) = self.outbox.on_reply(ticket) else { return };
        match purpose {
            Purpose::Records => self.records_answered(answer),
            Purpose::List(kind) => self.listed(&kind, answer),
            Purpose::Step(key) => self.step_answered(&key, answer),
            Purpose::Refresh(key, id) => self.refreshed(&key, &id, answer),
            Purpose::Record(policy) => self.record_answered(&policy, answer),
            Purpose::RecordRead(policy) => self.record_read(&policy, answer),
            Purpose::Checkpoint => self.checkpoint_answered(answer),
            Purpose::CheckpointRead => self.checkpoint_read(answer),
            Purpose::UpdateRequest(name) => self.request_answered(&name, answer),
            Purpose::InboxEntry(name) => self.carrier_answered(&name, answer),
        }
    }

    /// The kinds to watch, and the revision after which.
    pub fn watches(&self) -> Vec<(Gvk, u64)> {
        let synced =
            self.cache.kinds.values().filter(|kind| matches!(kind.state, KindState::Synced));
        synced.map(|kind| (kind.gvk.clone(), kind.revision)).collect()
    }

    /// Something that a watch told.
    pub fn watched(&mut self, gvk: &Gvk, event: &WatchEvent, now: u64) {
        self.now = self.now.max(now);
        let Some(kind) = self.cache.kinds.get_mut(&KindKey::of(gvk)) else { return };
        kind.revision = kind.revision.max(event.revision);
        if let Some(difference) = self.cache.note(&event.object, event.change) {
            self.on_difference(&difference, false);
        }
    }

    /// How far a watch has come when it told nothing, as a bookmark says.
    pub fn watched_upto(&mut self, gvk: &Gvk, revision: u64) {
        if let Some(kind) = self.cache.kinds.get_mut(&KindKey::of(gvk)) {
            kind.revision = kind.revision.max(revision);
        }
    }

    /// A watch ended because what it asked for is no longer known: the kind is listed again.
    pub fn watch_lost(&mut self, gvk: &Gvk) {
        if let Some(kind) = self.cache.kinds.get_mut(&KindKey::of(gvk))
            && matches!(kind.state, KindState::Synced)
        {
            kind.state = KindState::Unlisted;
        }
    }

    /// When to poll again if nothing else happens.
    pub fn next_time(&self) -> Option<u64> {
        [
            self.queue.next_deadline(),
            Some(self.next_resync),
            self.cache.next_deadline(),
            self.policies.next_deadline(self.now),
            self.checkpoint.next_deadline(),
            self.requests.status.next_deadline(),
            self.requests.inbox.next_deadline(),
            self.work.rights.next_deadline(),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether nothing is to be done before [`Controller::next_time`].
    pub fn is_idle(&self) -> bool {
        self.queue.queue_is_empty() && self.work.busy() == 0 && self.outbox.is_idle()
    }

    /// Whether policies and records are read, so that rules act.
    pub fn is_running(&self) -> bool {
        self.policies.is_running()
    }

    /// Why work is not done, key by key.
    pub fn conditions(&self) -> impl Iterator<Item = (&WorkKey, &Condition)> {
        let found = self.queue.iter();
        found.filter_map(|(key, state)| state.condition.as_ref().map(|condition| (key, condition)))
    }

    /// Policies that do not act, and why.
    pub fn broken_policies(&self) -> impl Iterator<Item = (&ObjectId, &str)> {
        self.policies.broken.iter().map(|(policy, why)| (policy, why.as_str()))
    }

    /// Kinds that should fire rules and do not, because they cannot be followed: by policy, in words.
    pub fn unreadable_triggers(&self) -> Vec<(ObjectId, String)> {
        let mut found = Vec::new();
        for (id, held) in self.policies.states.iter().filter(|(_, held)| held.active) {
            for rule in held.policy.iter().flat_map(|policy| &policy.rules) {
                let problems = self.trigger_problems(rule);
                let named = |what| (id.clone(), format!("rule {}: {what}", rule.id.rule));
                found.extend(problems.into_iter().map(named));
            }
        }
        found
    }

    /// The rules that act.
    pub fn rules(&self) -> impl Iterator<Item = &RuleId> {
        self.policies.rules.rules().map(|rule| &rule.id)
    }

    /// How often work on a key panicked since the start. Each time it became an error of that key.
    pub fn panics(&self) -> u64 {
        self.outbox.panics()
    }

    /// Counts a panic that was caught.
    pub(crate) fn panicked(&self) -> Panicked {
        self.outbox.count_panic();
        Panicked
    }

    /// How many keys are held in memory.
    pub fn keys_held(&self) -> usize {
        self.queue.iter().count()
    }

    pub(crate) fn ask(&mut self, purpose: Purpose, call: Call) {
        // Only what rules want is held to the rights of their authors; the controller's own books are not.
        let (author, rule) = match &purpose {
            Purpose::Step(key) => (self.author(key), Some(key.rule.clone())),
            _ => (None, None),
        };
        self.outbox.ask(purpose, call, author, rule);
    }

    /// Asks for the records of earlier processes, which come before everything else.
    fn read_records(&mut self) {
        let Start::Records { at, asked: false } = self.policies.start else { return };
        if at > self.now {
            return;
        }
        self.policies.start = Start::Records { at, asked: true };
        let call = Call::List {
            kind: Gvk::new("v1", "ConfigMap"),
            namespace: Some(self.env.settings.namespace.clone()),
            selector: Selector::parse(LABEL).unwrap_or_else(|_| Selector::everything()),
            limit: None,
            resume: None,
        };
        self.ask(Purpose::Records, call);
    }

    /// Lists everything again, and looks at every key.
    fn resync(&mut self) {
        self.cache.resync();
        self.reports.resync();
        self.look_for_new_targets();
        self.look_at_everything();
    }

    fn look_at_everything(&mut self) {
        let keys: Vec<WorkKey> = self.queue.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.queue.enqueue(&key, self.now);
        }
    }

    fn list_kinds(&mut self) {
        for (key, gvk) in self.cache.poll(self.now) {
            self.ask_list(key, gvk, None);
        }
    }

    fn ask_list(&mut self, key: KindKey, kind: Gvk, resume: Option<String>) {
        let call = Call::List {
            kind,
            namespace: None,
            selector: Selector::everything(),
            limit: Some(500),
            resume,
        };
        self.ask(Purpose::List(key), call);
    }

    fn listed(&mut self, key: &KindKey, answer: Result<Reply, ApiError>) {
        let Some(kind) = self.cache.kinds.get(key) else { return };
        let (gvk, first) = (kind.gvk.clone(), kind.revision == 0);
        let listing = match answer.map(Reply::listing) {
            Ok(listing) => listing.unwrap_or_default(),
            Err(error) => return self.list_failed(key, error),
        };
        let Listing { objects, revision, resume } = listing;
        let Some((objects, was_away)) = self.cache.listed(key, objects, resume.is_none()) else {
            if resume.is_some() {
                self.ask_list(key.clone(), gvk, resume);
            }
            return;
        };
        let differences = self.cache.note_all(key, &objects, revision.max(1));
        // What was deleted while no watch ran needs no second deletion.
        for difference in &differences {
            if first {
                self.on_claim(difference);
            } else {
                self.on_difference(difference, false);
            }
        }
        self.wake_waiting_for(key);
        self.kind_synced(key, first);
        // What changed before roles were listed, was not reported.
        if was_away || (first && self.is_right(key)) {
            self.rights_changed();
        }
    }

    fn list_failed(&mut self, key: &KindKey, error: ApiError) {
        let is_forbidden = error.reason == Reason::Forbidden;
        let retry = self.env.settings.retry;
        self.cache.list_failed(key, error, self.now, |failures| backoff(retry, failures));
        self.wake_waiting_for(key);
        self.start_if_known();
        self.scan_known_kinds();
        // What tells of rights tells nothing of its own.
        if is_forbidden && !self.is_right(key) {
            self.follow_rights();
        }
    }

    /// Looks again at keys that could not go on before a kind was known.
    fn wake_waiting_for(&mut self, kind: &KindKey) {
        for key in self.work.kind_is_known(kind) {
            if self.queue.get(&key).is_some() {
                self.queue.enqueue(&key, self.now);
            }
        }
    }
}
