//! What is worked on: pairs of a rule and a trigger, each at most once, in a queue without end.

pub(crate) mod work;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

use kiln_cluster::KindKey;
use kiln_engine::{Event, ObservedRequest, RecordedRead, User};
use kiln_object::{ObjectId, Selector, metadata};
use kiln_rules::{Operation, RuleId};
use kiln_value::{Str, Value};

use crate::few::FewOf;
use crate::ownership::left::Left;

/// A rule and a trigger. Without a UID it stands for everything that a rule made that is gone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkKey {
    pub rule: RuleId,
    /// The UID of the trigger.
    pub trigger: Str,
}

impl fmt::Display for WorkKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} for {}", self.rule, self.trigger)
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
pub(crate) struct KeyState {
    /// What happened to the trigger and was not looked at yet: at most one event per operation, and a few of which
    /// the user is unknown.
    pub(crate) pending: Vec<Pending>,
    /// What made the trigger one.
    pub(crate) cause: Option<Cause>,
    /// What the rule wanted of the trigger when it was last evaluated.
    pub(crate) wants: Vec<ObjectId>,
    /// Of a trigger that only claims name: what the rule wanted of it and was there with such a claim.
    pub(crate) adopted: BTreeSet<ObjectId>,
    /// What the evaluation read.
    pub(crate) reads: Vec<RecordedRead>,
    /// How often it failed by itself.
    pub(crate) failures: u32,
    /// How often the cluster could not do it.
    pub(crate) tries: u32,
    /// Why it is not done.
    pub(crate) condition: Option<Condition>,
    /// It belongs to the pass over everything that follows a start or a change of a policy.
    pub(crate) in_pass: bool,
    /// The time that its evaluations see.
    pub(crate) at: Option<u64>,
    /// What it is, for those who read about it.
    pub(crate) trigger: Option<ObjectId>,
    /// When it was put into the queue.
    pub(crate) since: u64,
    /// When it goes into the queue by itself.
    timer: Option<u64>,
}

/// What made an object a trigger.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Cause {
    /// The operation; none for objects that were there before the rule.
    pub(crate) operation: Option<Operation>,
    /// Who did it, when that is known and matters.
    pub(crate) user: Option<User>,
    /// How that is known.
    pub(crate) evidence: Evidence,
    /// The trigger as they left it.
    pub(crate) left: Option<Left>,
}

/// How it is known what made an object a trigger; the best first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Evidence {
    /// This process saw it, or the engine signed it.
    #[default]
    Known,
    /// It came after the rule, or the rule runs for existing objects; the user is unknown.
    Guessed,
    /// An unsigned claim says so.
    Claimed,
}

/// Something that happened to a trigger.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Pending {
    pub(crate) operation: Option<Operation>,
    /// The object before; for a deleted one, as it last was.
    pub(crate) old: Option<Value>,
    pub(crate) user: Option<User>,
    pub(crate) own: bool,
    /// For requests that store nothing: the request itself.
    pub(crate) sent: Option<Box<ObservedRequest>>,
    /// The UpdateRequests that carry it.
    pub(crate) carriers: Vec<Str>,
    /// When it became known.
    pub(crate) since: u64,
    /// It was not observed, and its operation is a guess.
    pub(crate) guessed: bool,
    /// The object as the user left it, where rules may depend on who that was.
    pub(crate) left: Option<Value>,
}

impl Pending {
    /// An operation of which nothing else is known.
    pub(crate) fn of(operation: Option<Operation>, since: u64) -> Self {
        let (old, user, sent, carriers) = (None, None, None, Vec::new());
        Pending {
            operation,
            old,
            user,
            own: false,
            sent,
            carriers,
            since,
            guessed: false,
            left: None,
        }
    }

    /// Whether a request may be the one behind it, where its user is unknown.
    pub(crate) fn may_come_from(&self, request: &ObservedRequest) -> bool {
        let stored = matches!(request.operation, Operation::Create | Operation::Update);
        self.user.is_none()
            && (self.operation == Some(request.operation) || (self.guessed && stored))
            && request.may_lead(self.old.as_ref(), self.left.as_ref())
    }

    /// What it is to rules, for the trigger as it is now; none for one that is gone.
    pub(crate) fn event(&self, live: Option<&Value>) -> Event {
        let mut event = match (&self.sent, live, &self.old) {
            (Some(sent), _, old) => Event { old_object: old.clone(), ..sent.event() },
            (None, Some(live), Some(old)) if self.operation == Some(Operation::Update) => {
                Event::updated(old.clone(), live.clone())
            }
            (None, Some(live), _) => Event::created(live.clone()),
            (None, None, old) => Event::deleted(old.clone().unwrap_or(Value::Null)),
        };
        event.operation = self.operation;
        event.matched_as = self.operation.unwrap_or(Operation::Create);
        event.user = self.user.clone();
        event.context.own = self.own;
        event
    }
}

/// Why the work on a key is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// What kind of reason.
    pub reason: Waiting,
    /// The reason in words.
    pub message: String,
}

/// What kind of reason keeps work from being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Waiting {
    /// The cluster forbids it. It is tried again less and less often, and when the policy changes.
    Forbidden,
    /// The cluster cannot answer. It is tried again soon.
    Unavailable,
    /// What is to be copied, or the namespace to write to, is not there. It goes on when it comes.
    Missing,
    /// The rule, or what it makes, is wrong. It goes on when something changes.
    Failed,
    /// Another writer changes the same fields, or another rule makes the same object.
    Contested,
    /// The rule fires on what it made itself.
    Loop,
}

impl Waiting {
    /// The word for it, in the status of UpdateRequests and in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Waiting::Forbidden => "Forbidden",
            Waiting::Unavailable => "Unavailable",
            Waiting::Missing => "Missing",
            Waiting::Failed => "Failed",
            Waiting::Contested => "Contested",
            Waiting::Loop => "Loop",
        }
    }
}

/// How many events of a trigger wait at once until their user is known.
const MOST_UNKNOWN: usize = 32;

impl KeyState {
    /// Adds something that happened. For rules that ask who sent it, what an unknown user did is kept apart.
    pub(crate) fn add(&mut self, event: Pending, by_user: bool) {
        let same = |known: &Pending| {
            let apart = by_user && (known.user.is_none() || event.user.is_none());
            known.operation == event.operation && !apart
        };
        match self.pending.iter_mut().find(|known| same(known)) {
            // The first old object and the last user: several changes are one.
            Some(known) => {
                if event.user.is_some() {
                    // What the others carried is of no more use: they are let go.
                    known.user = event.user;
                    known.left = event.left;
                    known.carriers = event.carriers;
                }
                known.own &= event.own;
                known.old = known.old.take().or(event.old);
                known.guessed &= event.guessed;
                known.sent = event.sent.or_else(|| known.sent.take());
            }
            None => self.pending.push(event),
        }
        // What is so long unknown is not worth more memory.
        let unknown = |event: &Pending| event.user.is_none();
        if self.pending.iter().filter(|event| unknown(event)).count() > MOST_UNKNOWN
            && let Some(oldest) = self.pending.iter().position(unknown)
        {
            self.pending.remove(oldest);
        }
    }
}

/// All keys, and which of them wait.
#[derive(Debug, Default)]
pub(crate) struct WorkQueue {
    // A box, since a node of the tree has room for eleven and is half empty.
    states: BTreeMap<WorkKey, Box<KeyState>>,
    /// The keys that wait, by their turn.
    queue: BTreeMap<u64, WorkKey>,
    /// The turn of each key that waits, so that one is found without looking at the others.
    queued: HashMap<WorkKey, u64>,
    next_turn: u64,
    timers: BTreeSet<(u64, WorkKey)>,
    wanted: HashMap<(KindKey, Str, Str), FewOf<WorkKey>>,
    readers: HashMap<(KindKey, Str, Str), FewOf<WorkKey>>,
    listers: HashMap<(KindKey, Option<Str>), BTreeMap<WorkKey, Vec<Selector>>>,
    global_readers: BTreeMap<Str, BTreeSet<WorkKey>>,
}

fn place(id: &ObjectId) -> (KindKey, Str, Str) {
    (KindKey::of(&id.gvk), id.namespace.clone(), id.name.clone())
}

impl WorkQueue {
    pub(crate) fn get(&self, key: &WorkKey) -> Option<&KeyState> {
        self.states.get(key).map(AsRef::as_ref)
    }

    pub(crate) fn get_mut(&mut self, key: &WorkKey) -> Option<&mut KeyState> {
        self.states.get_mut(key).map(AsMut::as_mut)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&WorkKey, &KeyState)> {
        self.states.iter().map(|(key, state)| (key, state.as_ref()))
    }

    pub(crate) fn queue_is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn is_queued(&self, key: &WorkKey) -> bool {
        self.queued.contains_key(key)
    }

    /// The key's state, made if there is none.
    pub(crate) fn entry(&mut self, key: &WorkKey) -> &mut KeyState {
        self.states.entry(key.clone()).or_default()
    }

    /// Puts a key into the queue, unless it is there.
    pub(crate) fn enqueue(&mut self, key: &WorkKey, now: u64) {
        let state = self.states.entry(key.clone()).or_default();
        if !self.queued.contains_key(key) {
            state.since = now;
            self.queued.insert(key.clone(), self.next_turn);
            self.queue.insert(self.next_turn, key.clone());
            self.next_turn += 1;
        }
    }

    /// Puts a key into the queue at a time.
    pub(crate) fn enqueue_at(&mut self, key: &WorkKey, time: u64) {
        let Some(state) = self.states.get_mut(key) else { return };
        if let Some(old) = state.timer.replace(time) {
            self.timers.remove(&(old, key.clone()));
        }
        self.timers.insert((time, key.clone()));
    }

    fn stop_timer(&mut self, key: &WorkKey) {
        if let Some(time) = self.states.get_mut(key).and_then(|state| state.timer.take()) {
            self.timers.remove(&(time, key.clone()));
        }
    }

    /// Moves keys whose time has come into the queue.
    pub(crate) fn wake(&mut self, now: u64) {
        while let Some((time, _)) = self.timers.first()
            && *time <= now
        {
            if let Some((_, key)) = self.timers.pop_first()
                && let Some(state) = self.states.get_mut(&key)
            {
                state.timer = None;
                self.enqueue(&key, now);
            }
        }
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.timers.first().map(|(time, _)| *time)
    }

    /// The next key that is not being worked on.
    pub(crate) fn pop(&mut self, busy: impl Fn(&WorkKey) -> bool) -> Option<WorkKey> {
        let turn = self.queue.iter().find(|(_, key)| !busy(key)).map(|(turn, _)| *turn)?;
        let key = self.queue.remove(&turn)?;
        self.queued.remove(&key);
        self.stop_timer(&key);
        Some(key)
    }

    /// Forgets a key.
    pub(crate) fn remove(&mut self, key: &WorkKey) {
        self.set_wants(key, Vec::new());
        self.set_reads(key, Vec::new());
        self.stop_timer(key);
        self.states.remove(key);
        if let Some(turn) = self.queued.remove(key) {
            self.queue.remove(&turn);
        }
    }

    pub(crate) fn set_wants(&mut self, key: &WorkKey, wants: Vec<ObjectId>) {
        let Some(state) = self.states.get_mut(key) else { return };
        for id in std::mem::replace(&mut state.wants, wants) {
            if let Some(keys) = self.wanted.get_mut(&place(&id)) {
                keys.remove(key);
                if keys.is_empty() {
                    self.wanted.remove(&place(&id));
                }
            }
        }
        for id in &state.wants {
            self.wanted.entry(place(id)).or_default().insert(key.clone());
        }
    }

    pub(crate) fn set_reads(&mut self, key: &WorkKey, reads: Vec<RecordedRead>) {
        let Some(state) = self.states.get_mut(key) else { return };
        for read in std::mem::replace(&mut state.reads, reads) {
            match read {
                RecordedRead::Object(id) => {
                    if let Some(keys) = self.readers.get_mut(&place(&id)) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.readers.remove(&place(&id));
                        }
                    }
                }
                RecordedRead::List { kind, namespace, .. } => {
                    let list = (KindKey::of(&kind), namespace);
                    if let Some(keys) = self.listers.get_mut(&list) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.listers.remove(&list);
                        }
                    }
                }
                RecordedRead::Global(name) => {
                    if let Some(keys) = self.global_readers.get_mut(&name) {
                        keys.remove(key);
                        if keys.is_empty() {
                            self.global_readers.remove(&name);
                        }
                    }
                }
            }
        }
        for read in &state.reads {
            match read {
                RecordedRead::Object(id) => {
                    self.readers.entry(place(id)).or_default().insert(key.clone());
                }
                RecordedRead::List { kind, namespace, selector } => {
                    let list = (KindKey::of(kind), namespace.clone());
                    let keys = self.listers.entry(list).or_default();
                    keys.entry(key.clone()).or_default().push(selector.clone());
                }
                RecordedRead::Global(name) => {
                    self.global_readers.entry(name.clone()).or_default().insert(key.clone());
                }
            }
        }
    }

    /// Whether another key wants an object.
    pub(crate) fn others_wanting<'k>(
        &'k self,
        id: &ObjectId,
        key: &'k WorkKey,
    ) -> impl Iterator<Item = &'k WorkKey> {
        self.wanted.get(&place(id)).into_iter().flatten().filter(move |other| *other != key)
    }

    /// The keys whose evaluation asked for entries of the global context that changed.
    pub(crate) fn readers_of_globals(&self, changed: impl Fn(&str) -> bool) -> Vec<WorkKey> {
        let readers = self.global_readers.iter().filter(|(name, _)| changed(name));
        readers.flat_map(|(_, keys)| keys).cloned().collect()
    }

    /// The keys whose evaluation read an object, or would now.
    pub(crate) fn readers_of(&self, id: &ObjectId, objects: [Option<&Value>; 2]) -> Vec<WorkKey> {
        let mut found: Vec<WorkKey> =
            self.readers.get(&place(id)).into_iter().flatten().cloned().collect();
        let kind = KindKey::of(&id.gvk);
        for namespace in [None, Some(id.namespace.clone())] {
            for (key, selectors) in
                self.listers.get(&(kind.clone(), namespace)).into_iter().flatten()
            {
                let selected = objects.iter().flatten().any(|object| {
                    selectors.iter().any(|selector| selector.matches(metadata::labels(object)))
                });
                if selected {
                    found.push(key.clone());
                }
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use kiln_rules::{Dialect, PolicyId};

    use super::*;

    #[test]
    fn keys_leave_the_queue_from_anywhere_and_the_others_keep_their_turn() {
        let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: Str::from("p") };
        let rule = RuleId { policy, rule: Str::from("r") };
        let key = |at: usize| WorkKey { rule: rule.clone(), trigger: Str::from(format!("t{at}")) };
        let mut keys = WorkQueue::default();
        (0..5).for_each(|at| keys.enqueue(&key(at), 0));
        keys.enqueue(&key(0), 1);
        for at in [3, 0] {
            keys.remove(&key(at));
            assert!(!keys.is_queued(&key(at)));
        }
        // One that comes back is the last.
        keys.enqueue(&key(0), 2);
        assert_eq!(keys.pop(|busy| *busy == key(1)), Some(key(2)));
        let rest: Vec<_> = std::iter::from_fn(|| keys.pop(|_| false)).collect();
        assert_eq!(rest, [1, 4, 0].map(key));
        assert!(keys.queue_is_empty());
    }
}
