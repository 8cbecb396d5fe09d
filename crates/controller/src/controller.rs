//! The state machine: what goes in, what comes out, and in which order things are done.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, KindKey, Listing, Reason, Reply, WatchEvent};
use kiln_engine::{ContentHash, ExternalData as _, Globals, RuleSet, User};
use kiln_object::{Gvk, Kinds, ObjectId, Selector};
use kiln_rules::{Exception, Policy, RuleId};
use kiln_schema::{Schema, Version};
use kiln_value::Str;

use crate::cache::{ObjectCache, State};
use crate::evaluate::Compile;
use crate::ignored_changes::PassedOver;
use crate::lookups::Questions;
use crate::observed_requests::Hints;
use crate::plan::Job;
use crate::record::{Checkpoint, LABEL, Record};
use crate::reports::Reports;
use crate::request_inbox::RequestInbox;
use crate::retry::backoff;
use crate::rights::RightsLook;
use crate::settings::Settings;
use crate::update_request_status::Requests;
use crate::work_queue::{Condition, Key, WorkQueue};

/// A call that a host is to carry out, and to answer under its number.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
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

/// How many pieces of news wait at most to be taken.
const MOST_NEWS: usize = 4_096;

/// Keeps what rules want and what a cluster holds the same.
pub struct Controller {
    pub(crate) settings: Settings,
    pub(crate) kinds: Kinds,
    pub(crate) schema: Schema,
    pub(crate) compile: Box<dyn Compile>,
    pub(crate) now: u64,
    pub(crate) cache: ObjectCache,
    pub(crate) rules: RuleSet,
    pub(crate) keys: WorkQueue,
    pub(crate) jobs: HashMap<Key, Job>,
    pub(crate) hints: Hints,
    pub(crate) policies: BTreeMap<ObjectId, PolicyState>,
    pub(crate) exceptions: Vec<Arc<Exception>>,
    /// Events for users, logs and metrics.
    pub(crate) news: VecDeque<ControllerEvent>,
    /// Policies that cannot be compiled, with the reason.
    pub(crate) broken: BTreeMap<ObjectId, String>,
    pub(crate) start: Start,
    /// Rules that have looked at the objects of a kind that were there before them.
    pub(crate) begun: BTreeSet<(RuleId, KindKey)>,
    /// Keys of the pass over everything that were not looked at yet.
    pub(crate) pass: usize,
    /// Keys with something to delete, which waits for the end of the pass.
    pub(crate) deferred: BTreeSet<Key>,
    /// Objects whose deletion was asked for and not seen yet, by UID.
    pub(crate) deleting: HashSet<Str>,
    /// Objects of the engine's whose claim was edited by others, by UID.
    pub(crate) edited: HashSet<Str>,
    /// Where objects of the engine's were that others deleted, and the key that wants them.
    pub(crate) replaced: HashMap<ObjectId, Key>,
    /// Objects that are being written: by which key, and which keys wait for it.
    pub(crate) writing: HashMap<ObjectId, (Key, BTreeSet<Key>)>,
    /// What differs from what was sent right after it was written: what a server adds.
    pub(crate) settled: HashMap<ObjectId, (ContentHash, ContentHash)>,
    pub(crate) contests: HashMap<ObjectId, Contest>,
    pub(crate) checkpoint: CheckpointState,
    pub(crate) requests: Requests,
    pub(crate) reports: Reports,
    /// What rules ask besides objects.
    pub(crate) globals: Arc<Globals>,
    pub(crate) questions: Questions,
    /// UpdateRequests that carry hints.
    pub(crate) carried: RequestInbox,
    /// Triggers whose latest change is ignored because its author is excluded.
    pub(crate) passed_over: PassedOver,
    /// Up to which revision of a trigger downstreams that a rule made in a user's name have ended.
    pub(crate) ended: PassedOver,
    /// Keys that cannot go on before a kind is known.
    pub(crate) waiting: BTreeMap<Key, BTreeSet<KindKey>>,
    pub(crate) next_resync: u64,
    pub(crate) tickets: HashMap<u64, Purpose>,
    pub(crate) next_ticket: u64,
    pub(crate) out: Vec<Request>,
    /// Times at which kinds are listed again after a failure.
    pub(crate) relist: BTreeMap<KindKey, u64>,
    /// How often a kind could not be listed, in a row.
    pub(crate) list_failures: BTreeMap<KindKey, u32>,
    pub(crate) retry_records: u64,
    /// How often work on a key panicked.
    pub(crate) panics: Cell<u64>,
    pub(crate) rights: RightsLook,
}

impl fmt::Debug for Controller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("now", &self.now)
            .field("policies", &self.policies.len())
            .field("jobs", &self.jobs.len())
            .finish_non_exhaustive()
    }
}

/// A policy whose rules act, or did.
#[derive(Debug)]
pub(crate) struct PolicyState {
    pub(crate) record: Record,
    pub(crate) policy: Option<Arc<Policy>>,
    /// Who stored it, if that was written down.
    pub(crate) author: Option<User>,
    /// The version of the ConfigMap that holds the record; none when there is none yet.
    pub(crate) version: Option<Str>,
    pub(crate) saving: Saving,
    /// Rules that were known before this process started.
    pub(crate) from_before: BTreeSet<Str>,
    /// Its rules act.
    pub(crate) active: bool,
}

/// Whether a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saving {
    Stored,
    Dirty,
    /// Being written; whether it changed meanwhile.
    Sent {
        again: bool,
    },
}

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Records are to be read, not before this time.
    Records {
        at: u64,
        asked: bool,
    },
    /// Policies are to be listed.
    Policies,
    Running,
}

/// Corrections of one object in a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Contest {
    pub(crate) corrections: u32,
    /// When it was last reverted.
    pub(crate) last: u64,
}

#[derive(Debug, Default)]
pub(crate) struct CheckpointState {
    pub(crate) stored: Checkpoint,
    pub(crate) version: Option<Str>,
    pub(crate) sent: Option<Checkpoint>,
    pub(crate) next: u64,
    /// A trigger of a rule that does not synchronise came or was served.
    pub(crate) dirty: bool,
    /// What was stored when this process started.
    pub(crate) at_start: Checkpoint,
}

/// What an answer is for.
#[derive(Debug)]
pub(crate) enum Purpose {
    Records,
    List(KindKey),
    Step(Key),
    Refresh(Key, ObjectId),
    Record(ObjectId),
    RecordRead(ObjectId),
    Checkpoint,
    CheckpointRead,
    UpdateRequest(String),
    Report(ObjectId),
    InboxEntry(Str),
}

impl Controller {
    /// A controller that knows nothing yet.
    pub fn new(settings: Settings, kinds: Kinds, compile: Box<dyn Compile>) -> Self {
        let next_resync = settings.resync;
        Controller {
            settings,
            kinds,
            schema: Schema::builtin(Version::V1_36),
            compile,
            now: 0,
            cache: ObjectCache::default(),
            rules: RuleSet::default(),
            keys: WorkQueue::default(),
            jobs: HashMap::new(),
            hints: Hints::default(),
            policies: BTreeMap::new(),
            exceptions: Vec::new(),
            news: VecDeque::new(),
            broken: BTreeMap::new(),
            start: Start::Records { at: 0, asked: false },
            begun: BTreeSet::new(),
            pass: 0,
            deferred: BTreeSet::new(),
            deleting: HashSet::new(),
            edited: HashSet::new(),
            replaced: HashMap::new(),
            writing: HashMap::new(),
            settled: HashMap::new(),
            contests: HashMap::new(),
            checkpoint: CheckpointState::default(),
            requests: Requests::default(),
            reports: Reports::default(),
            globals: Arc::default(),
            questions: Questions::default(),
            carried: RequestInbox::default(),
            passed_over: PassedOver::default(),
            ended: PassedOver::default(),
            waiting: BTreeMap::new(),
            next_resync,
            tickets: HashMap::new(),
            next_ticket: 0,
            out: Vec::new(),
            relist: BTreeMap::new(),
            list_failures: BTreeMap::new(),
            retry_records: 0,
            panics: Cell::new(0),
            rights: RightsLook::default(),
        }
    }

    /// Tells which kinds there are now, and their shapes.
    pub fn set_kinds(&mut self, kinds: Kinds, schema: Schema) {
        self.kinds = kinds;
        self.schema = schema;
        // What could not be listed may be there now, and what could not be compiled may be good now.
        self.relist.clear();
        self.list_failures.clear();
        let broken: Vec<ObjectId> = self.broken.keys().cloned().collect();
        for id in broken {
            if let Some(object) = self.cache.get(&id).cloned() {
                self.policy_changed(&id, Some(&object));
            }
        }
        self.follow_trigger_kinds();
        self.follow_reports();
        // What waits may have waited for one of them.
        let waiting: Vec<Key> = self
            .keys
            .iter()
            .filter(|(_, state)| state.condition.is_some())
            .map(|(key, _)| key.clone())
            .collect();
        for key in waiting {
            self.keys.enqueue(&key, self.now);
        }
    }

    /// Tells which objects rules leave alone. Their downstreams stay as they are.
    pub fn set_exceptions(&mut self, exceptions: Vec<Arc<Exception>>) {
        let same = self.exceptions.iter().zip(&exceptions).all(|(old, new)| Arc::ptr_eq(old, new));
        if same && self.exceptions.len() == exceptions.len() {
            return;
        }
        self.exceptions = exceptions;
        self.rebuild_rules();
        self.look_at_everything();
    }

    /// Tells what the global context holds. What was made of something else is looked at again.
    pub fn set_globals(&mut self, globals: Arc<Globals>) {
        let before = std::mem::replace(&mut self.globals, globals);
        let changed = |name: &str| before.global(name) != self.globals.global(name);
        for key in self.keys.readers_of_globals(changed) {
            self.keys.enqueue(&key, self.now);
        }
    }

    /// Changes what a host decides, from now on.
    pub fn configure(&mut self, change: impl FnOnce(&mut Settings)) {
        change(&mut self.settings);
    }

    /// What happened since this was last asked, the oldest first.
    pub fn take_news(&mut self) -> Vec<ControllerEvent> {
        std::mem::take(&mut self.news).into()
    }

    pub(crate) fn tell(&mut self, news: ControllerEvent) {
        if self.news.len() >= MOST_NEWS {
            self.news.pop_front();
        }
        self.news.push_back(news);
    }

    /// What is to be done now. Calls come once, and each wants an answer.
    pub fn poll(&mut self, now: u64) -> Vec<Request> {
        self.now = self.now.max(now);
        if let Start::Records { at, asked: false } = self.start
            && at <= self.now
        {
            self.start = Start::Records { at, asked: true };
            let selector = Selector::parse(LABEL).unwrap_or_else(|_| Selector::everything());
            let call = Call::List {
                kind: Gvk::new("v1", "ConfigMap"),
                namespace: Some(self.settings.namespace.clone()),
                selector,
                limit: None,
                resume: None,
            };
            self.ask(Purpose::Records, call);
        }
        if self.next_resync <= self.now {
            self.next_resync = self.now + self.settings.resync;
            self.resync();
        }
        self.look_at_forbidden();
        self.list_kinds();
        self.save_records();
        self.forget_old_hints();
        self.consume_requests();
        self.keys.wake(self.now);
        self.show_requests();
        while self.jobs.len() < self.settings.workers {
            let jobs = &self.jobs;
            let Some(key) = self.keys.pop(|key| jobs.contains_key(key)) else { break };
            self.work(&key);
        }
        self.write_reports();
        self.list_kinds();
        self.save_checkpoint();
        std::mem::take(&mut self.out)
    }

    /// The answer to a call.
    pub fn answer(&mut self, ticket: u64, answer: Result<Reply, ApiError>, now: u64) {
        self.now = self.now.max(now);
        let Some(purpose) = self.tickets.remove(&ticket) else { return };
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
            Purpose::Report(id) => self.report_answered(&id, answer),
            Purpose::InboxEntry(name) => self.carrier_answered(&name, answer),
        }
    }

    /// The kinds to watch, and the revision after which.
    pub fn watches(&self) -> Vec<(Gvk, u64)> {
        let synced = self.cache.kinds.values().filter(|kind| matches!(kind.state, State::Synced));
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
            && matches!(kind.state, State::Synced)
        {
            kind.state = State::Unlisted;
        }
    }

    /// When to poll again if nothing else happens.
    pub fn next_time(&self) -> Option<u64> {
        let start = match self.start {
            Start::Records { at, asked: false } => Some(at),
            _ => None,
        };
        let checkpoint = self.checkpoint_due().then_some(self.checkpoint.next);
        [
            self.keys.next_time(),
            Some(self.next_resync),
            self.relist.values().min().copied(),
            start,
            checkpoint,
            self.requests.next_time(),
            self.reports.next_time(),
            self.carried.next_time(),
            self.rights.next_time(),
            (self.retry_records > self.now).then_some(self.retry_records),
        ]
        .into_iter()
        .flatten()
        .min()
    }

    /// Whether nothing is to be done before [`Controller::next_time`].
    pub fn is_idle(&self) -> bool {
        self.keys.queue_is_empty() && self.jobs.is_empty() && self.tickets.is_empty()
    }

    /// Whether policies and records are read, so that rules act.
    pub fn is_running(&self) -> bool {
        self.start == Start::Running
    }

    /// Why work is not done, key by key.
    pub fn conditions(&self) -> impl Iterator<Item = (&Key, &Condition)> {
        let found = self.keys.iter();
        found.filter_map(|(key, state)| state.condition.as_ref().map(|condition| (key, condition)))
    }

    /// Policies that do not act, and why.
    pub fn broken_policies(&self) -> impl Iterator<Item = (&ObjectId, &str)> {
        self.broken.iter().map(|(policy, why)| (policy, why.as_str()))
    }

    /// Kinds that should fire rules and do not, because they cannot be followed: by policy, in words.
    pub fn unreadable_triggers(&self) -> Vec<(ObjectId, String)> {
        let mut found = Vec::new();
        for (id, held) in self.policies.iter().filter(|(_, held)| held.active) {
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
        self.rules.rules().map(|rule| &rule.id)
    }

    /// How often work on a key panicked since the start. Each time it became an error of that key.
    pub fn panics(&self) -> u64 {
        self.panics.get()
    }

    /// How many keys are held in memory.
    pub fn keys_held(&self) -> usize {
        self.keys.iter().count()
    }

    pub(crate) fn ask(&mut self, purpose: Purpose, call: Call) {
        self.next_ticket += 1;
        let (author, rule) = match &purpose {
            Purpose::Step(key) => (self.author(key), Some(key.rule.clone())),
            _ => (None, None),
        };
        self.tickets.insert(self.next_ticket, purpose);
        self.out.push(Request { ticket: self.next_ticket, call, author, rule });
    }

    /// Lists everything again, and looks at every key.
    fn resync(&mut self) {
        for kind in self.cache.kinds.values_mut() {
            if matches!(kind.state, State::Synced) {
                kind.state = State::Unlisted;
            }
        }
        self.look_for_new_targets();
        self.look_at_everything();
    }

    fn look_at_everything(&mut self) {
        let keys: Vec<Key> = self.keys.iter().map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.keys.enqueue(&key, self.now);
        }
    }

    fn list_kinds(&mut self) {
        let now = self.now;
        let due: Vec<(KindKey, Gvk)> = self
            .cache
            .kinds
            .iter()
            .filter(|(key, kind)| match kind.state {
                State::Unlisted => true,
                State::Failed(_) => self.relist.get(*key).is_none_or(|time| *time <= now),
                _ => false,
            })
            .map(|(key, kind)| (key.clone(), kind.gvk.clone()))
            .collect();
        for (key, gvk) in due {
            self.relist.remove(&key);
            if let Some(kind) = self.cache.kinds.get_mut(&key) {
                kind.state = State::Listing(Vec::new());
            }
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
        let Some(kind) = self.cache.kinds.get_mut(key) else { return };
        let gvk = kind.gvk.clone();
        let listing = match answer.map(Reply::listing) {
            Ok(listing) => listing.unwrap_or_default(),
            Err(error) => {
                let failures = self.list_failures.entry(key.clone()).or_default();
                *failures += 1;
                let wait = match error.reason {
                    Reason::Gone => 0,
                    // Rights and definitions mostly come soon after the policy that needs them.
                    _ => backoff(&self.settings, *failures + 1),
                };
                let is_forbidden = error.reason == Reason::Forbidden;
                kind.state = State::Failed(error);
                self.relist.insert(key.clone(), self.now + wait);
                self.wake_waiting_for(key);
                self.start_if_known();
                self.scan_known_kinds();
                // What tells of rights tells nothing of its own.
                if is_forbidden && !self.is_right(key) {
                    self.follow_rights();
                }
                return;
            }
        };
        let State::Listing(known) = &mut kind.state else { return };
        let Listing { objects, revision, resume } = listing;
        known.extend(objects);
        if resume.is_some() {
            self.ask_list(key.clone(), gvk, resume);
            return;
        }
        let objects = std::mem::take(known);
        let was_away = self.list_failures.remove(key).is_some();
        let first = kind.revision == 0;
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

    /// Looks again at keys that could not go on before a kind was known.
    fn wake_waiting_for(&mut self, key: &KindKey) {
        for waiting in self.jobs_waiting_for(key) {
            self.keys.enqueue(&waiting, self.now);
        }
    }
}
