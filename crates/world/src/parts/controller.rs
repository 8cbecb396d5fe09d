//! Drives the controller: gives it what watches and requests tell, and carries out its calls.

use std::collections::{BTreeMap, VecDeque};

use kiln_cluster::{ApiError, KindKey, Reason};
use kiln_controller::{
    CallRequest, ClaimKey, Condition, Controller, Lookup, LookupQuestion, LookupResult, WorkKey,
};
use kiln_engine::ExternalDataError;
use kiln_object::Gvk;
use kiln_replica::api::at_once;
use kiln_replica::claim_keys;
use kiln_replica::controller_settings::{configure, is_informed, settings};
use kiln_replica::events::Happened;
use kiln_replica::report_results::ReportNews;
use kiln_replica::status::Troubles;
use kiln_replica::watch_news::{Subject, WatchNews};

use crate::around::{Around, Seen, Timers};
use crate::clock::locked;
use crate::follower::WatchStream;

/// How long to wait before a kind is watched again whose watch could not begin.
const WATCH_AGAIN: u64 = 2_000;
/// How long to wait for the keys of claims after a failure.
const KEYS_AGAIN: u64 = 5_000;

/// The controller, and what it needs to act.
pub(crate) struct ControllerPart {
    controller: Controller,
    watches: BTreeMap<KindKey, (Gvk, Followed)>,
    /// Calls that are under way.
    calls: VecDeque<CallRequest>,
    informed: bool,
    /// It did something in its last turn. What follows from the answers is decided in the next one.
    acted: bool,
    began: u64,
    keys: KeysState,
    registry: Seen,
    kinds: Seen,
    globals: Seen,
}

#[derive(Debug)]
enum Followed {
    Stream(WatchStream),
    /// It is tried again then.
    Again(u64),
}

/// Whether the keys of claims are known.
#[derive(Debug)]
enum KeysState {
    Wanted(u64),
    Known,
}

impl std::fmt::Debug for ControllerPart {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ControllerPart")
            .field("controller", &self.controller)
            .finish_non_exhaustive()
    }
}

impl ControllerPart {
    pub(crate) fn new(around: &Around) -> Self {
        let identity = &around.identity;
        let user = around.connections.controller.user.clone();
        let settings = settings(&identity.namespace, &identity.names, Some(user));
        ControllerPart {
            controller: Controller::new(settings, around.knowledge.kinds.get().clone()),
            watches: BTreeMap::new(),
            calls: VecDeque::new(),
            informed: false,
            acted: false,
            began: around.now(),
            keys: KeysState::Wanted(0),
            registry: Seen::default(),
            kinds: Seen::default(),
            globals: Seen::default(),
        }
    }

    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let now = around.now();
        let mut progress = self.take_keys(around);
        progress |= self.take_knowledge(around);
        progress |= self.take_watches(around);
        let hints: Vec<_> = locked(&around.desk.output).hints.drain(..).collect();
        progress |= !hints.is_empty();
        for hint in hints {
            self.controller.hint(hint, now);
        }
        if !self.informed {
            let waited = std::time::Duration::from_millis(now - self.began);
            let (stored, globals) =
                (around.knowledge.registry.get(), around.knowledge.globals.get());
            let registered = around.knowledge.webhooks_begun;
            self.informed = matches!(self.keys, KeysState::Known)
                && is_informed(stored, globals, registered, waited);
            if !self.informed {
                return progress;
            }
            progress = true;
        }
        let is_busy = self.acted || !self.controller.is_idle() || !self.calls.is_empty();
        if progress || is_busy || self.is_due(now) {
            self.acted = self.act(around);
            progress |= self.acted;
        }
        progress
    }

    fn is_due(&self, now: u64) -> bool {
        self.controller.next_time().is_some_and(|time| time <= now)
    }

    fn take_keys(&mut self, around: &Around) -> bool {
        let KeysState::Wanted(at) = self.keys else { return false };
        if at > around.now() {
            return false;
        }
        let connection = &around.connections.controller;
        let draw = |made: i64| {
            let mut secret = [0; 32];
            for part in secret.chunks_mut(8) {
                part.copy_from_slice(&around.core.ambience.draw().to_le_bytes());
            }
            let name = format!("{made}-{:08x}", around.core.ambience.draw() >> 32);
            Ok(ClaimKey { name: name.into(), secret })
        };
        let namespace = &around.identity.namespace;
        let kinds = around.knowledge.kinds.get();
        let ensured = at_once(claim_keys::ensure(connection, kinds, namespace, draw));
        match ensured {
            Some(Ok(keys)) => {
                self.controller.configure(|settings| settings.claim_keys = keys);
                self.keys = KeysState::Known;
                true
            }
            _ => {
                self.keys = KeysState::Wanted(around.now() + KEYS_AGAIN);
                false
            }
        }
    }

    /// Takes over what is stored: exceptions and settings first, by which rules are bound, then the policies.
    fn take_knowledge(&mut self, around: &Around) -> bool {
        let knowledge = &around.knowledge;
        let mut progress = false;
        if self.kinds.renew(&knowledge.kinds) {
            self.controller.set_kinds(knowledge.kinds.get().clone());
            progress = true;
        }
        if self.globals.renew(&knowledge.globals) {
            self.controller.set_globals(knowledge.globals.get().clone());
            progress = true;
        }
        if knowledge.registry.get().complete && self.registry.renew(&knowledge.registry) {
            let stored = knowledge.registry.get();
            let config = around.settings();
            self.controller.set_exceptions(config.in_force(&stored.exceptions));
            self.controller.configure(|settings| {
                configure(settings, &config);
                settings.rules.services = false;
            });
            self.controller.set_policies(stored.for_controller(), around.now());
            progress = true;
        }
        progress
    }

    fn take_watches(&mut self, around: &Around) -> bool {
        let (now, connection) = (around.now(), &around.connections.controller);
        let kinds = around.knowledge.kinds.get();
        for (gvk, revision) in self.controller.watches() {
            let key = KindKey::of(&gvk);
            let wanted = match self.watches.get(&key) {
                None => true,
                Some((_, Followed::Again(at))) => *at <= now,
                Some((_, Followed::Stream(_))) => false,
            };
            if wanted {
                let opened =
                    WatchStream::open(connection, kinds, &Subject::all(gvk.clone()), revision);
                let followed = match opened {
                    Ok(stream) => Followed::Stream(stream),
                    Err(error) => {
                        if matches!(
                            error.reason,
                            Reason::Gone | Reason::UnknownKind | Reason::NotFound
                        ) {
                            self.controller.watch_lost(&gvk);
                        }
                        Followed::Again(now + WATCH_AGAIN)
                    }
                };
                self.watches.insert(key, (gvk, followed));
            }
        }
        let mut progress = false;
        let mut lost = Vec::new();
        for (key, (gvk, followed)) in &mut self.watches {
            let Followed::Stream(stream) = followed else { continue };
            match stream.pull(connection) {
                Ok(news) => {
                    for one in news {
                        match one {
                            WatchNews::Event(event) => {
                                progress = true;
                                self.controller.watched(gvk, &event, now);
                            }
                            WatchNews::Upto(revision) => {
                                self.controller.watched_upto(gvk, revision);
                            }
                            WatchNews::Lost => {}
                        }
                    }
                }
                Err(_) => lost.push((key.clone(), gvk.clone())),
            }
        }
        for (key, gvk) in lost {
            progress = true;
            self.watches.remove(&key);
            self.controller.watch_lost(&gvk);
        }
        progress
    }

    /// Lets the controller decide, and carries out what it wants done.
    fn act(&mut self, around: &mut Around) -> bool {
        let now = around.now();
        self.calls.extend(self.controller.poll(now));
        let mut progress = !self.calls.is_empty();
        while let Some(request) = self.calls.pop_front() {
            let answer = perform(around, &request);
            self.controller.answer(request.ticket, answer, now);
        }
        for question in self.controller.take_questions() {
            progress = true;
            let LookupQuestion { number, asked } = question;
            let answer = look_up(around, asked);
            self.controller.answered(number, answer, now);
        }
        let news = self.controller.take_news();
        progress |= !news.is_empty();
        around.happened.extend(news.into_iter().map(Happened::Told));
        while let Some(told) = self.controller.take_report() {
            progress = true;
            around.findings.push_back(ReportNews::of_trigger(told));
        }
        progress |= self.tell_troubles(around);
        progress
    }

    /// Tells what keeps policies from firing, when that is something else than before.
    fn tell_troubles(&self, around: &mut Around) -> bool {
        if !self.controller.is_running() {
            return false;
        }
        let mut troubles = Troubles::new();
        for (policy, what) in self.controller.unreadable_triggers() {
            troubles.entry(policy).or_default().push(what);
        }
        let before = around.knowledge.troubles.get();
        if before.as_ref() == Some(&troubles) {
            return false;
        }
        let mut told = Vec::new();
        for (policy, found) in &troubles {
            let known = before.as_ref().and_then(|before| before.get(policy));
            for what in found.iter().filter(|what| known.is_none_or(|k| !k.contains(what))) {
                told.push(Happened::Unreadable { policy: policy.clone(), what: what.clone() });
            }
        }
        around.happened.extend(told);
        around.knowledge.troubles.set(Some(troubles));
        true
    }

    pub(crate) fn timers(&self, now: u64) -> Timers {
        let keys = match self.keys {
            KeysState::Wanted(at) => Some(at),
            KeysState::Known => None,
        };
        let again = self.watches.values().filter_map(|(_, followed)| match followed {
            Followed::Again(at) => Some(*at),
            Followed::Stream(_) => None,
        });
        let busy = (self.informed && !self.controller.is_idle()).then_some(now);
        let next = self.controller.next_time().filter(|_| self.informed);
        let work = keys.into_iter().chain(busy).chain(next).min();
        Timers { work, routine: again.min() }
    }

    /// Why work is not done, key by key.
    pub(crate) fn conditions(&self) -> Vec<(WorkKey, Condition)> {
        self.controller.conditions().map(|(key, why)| (key.clone(), why.clone())).collect()
    }
}

fn perform(around: &Around, request: &CallRequest) -> Result<kiln_cluster::Reply, ApiError> {
    let connection = &around.connections.controller;
    let kinds = around.knowledge.kinds.get();
    let refusal = request.author.as_ref().and_then(|author| {
        let asked = around.desk.rights.refusal(connection, kinds, author, &request.call);
        at_once(asked).flatten()
    });
    match refusal {
        Some(error) => Err(error),
        None => around.fenced(connection, &request.call),
    }
}

fn look_up(around: &Around, asked: Lookup) -> LookupResult {
    match asked {
        Lookup::Access(right) => {
            let connection = &around.connections.controller;
            let kinds = around.knowledge.kinds.get();
            let asked = at_once(around.desk.rights.may_read(connection, kinds, &right));
            let missing = || Err("an answer of the world is missing".to_owned());
            LookupResult::Access(asked.unwrap_or_else(missing))
        }
        Lookup::Service(asked) => {
            let url = asked.request().url.to_owned();
            let why = format!("the service {url} is not called");
            LookupResult::Service(Err(ExternalDataError::refused(why)))
        }
    }
}
