//! What only requests know: who did what, and what no watch tells of.
//!
//! A hint is joined to the change that it makes, whichever comes first. Hints that must not be lost are carried by
//! UpdateRequests ([`crate::requests::request_inbox`]); the others only spare a moment of waiting.

use std::collections::{BTreeSet, HashMap, VecDeque};

use kiln_cluster::KindKey;
use kiln_engine::ObservedRequest;
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Operation, PolicyId, RuleId};
use kiln_value::{Str, Value};

use crate::cache::{differs, revision_of};
use crate::controller::Controller;
use crate::ownership::left::Left;
use crate::reconcile::dispatch::operation_of;
use crate::work_queue::{Pending, WorkKey};

/// How often old hints are looked for.
const FORGET: u64 = 1_000;

/// Requests whose change was not seen yet. When one is lost, rules that ask for its user do not fire.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    waiting: HashMap<(KindKey, Str, Str), VecDeque<(u64, ObservedRequest)>>,
    /// How many of them are not stored.
    loose: usize,
    sent: u64,
    next_forget: u64,
    /// The only policies that observe right now.
    only: Option<BTreeSet<PolicyId>>,
    /// Objects whose end a watch told, and when: a request that says the same comes too late to fire anything.
    ended: HashMap<Str, u64>,
}

impl Hints {
    /// Lets a request wait for its change. Of those that are written down there are no more than the cluster holds.
    fn add(&mut self, hint: ObservedRequest, now: u64, most: usize) {
        if hint.request.is_none() {
            if self.loose >= most {
                return;
            }
            self.loose += 1;
        }
        let place = (KindKey::of(&hint.kind), hint.namespace.clone(), hint.name.clone());
        self.waiting.entry(place).or_default().push_back((now, hint));
    }

    /// The request behind a change. Earlier ones of the object have come to nothing.
    pub(crate) fn take(
        &mut self,
        id: &ObjectId,
        operation: Operation,
        uid: Option<&str>,
        [old, new]: [Option<&Value>; 2],
    ) -> Option<ObservedRequest> {
        self.take_one(id, operation == Operation::Update, |hint| {
            let known = hint.uid();
            hint.operation == operation
                && (known.is_none() || known == uid)
                && hint.may_lead(old, new)
        })
    }

    /// The request that says that a change of an object is ignored.
    pub(crate) fn take_passed_over(&mut self, id: &ObjectId, uid: &str) -> Option<ObservedRequest> {
        self.take_one(id, false, |hint| {
            hint.passed_over && hint.uid().is_none_or(|known| known == uid)
        })
    }

    /// The first request that is wanted, or the last one where several changes may have become one.
    fn take_one(
        &mut self,
        id: &ObjectId,
        last: bool,
        wanted: impl Fn(&ObservedRequest) -> bool,
    ) -> Option<ObservedRequest> {
        let place = (KindKey::of(&id.gvk), id.namespace.clone(), id.name.clone());
        let waiting = self.waiting.get_mut(&place)?;
        let at = match last {
            true => waiting.iter().rposition(|(_, hint)| wanted(hint))?,
            false => waiting.iter().position(|(_, hint)| wanted(hint))?,
        };
        let mut taken: Vec<ObservedRequest> = waiting.drain(..=at).map(|(_, hint)| hint).collect();
        self.loose -= taken.iter().filter(|hint| hint.request.is_none()).count();
        let found = taken.pop();
        if waiting.is_empty() {
            self.waiting.remove(&place);
        }
        found
    }

    /// The requests that carry those that wait.
    pub(crate) fn carriers(&self) -> impl Iterator<Item = &Str> {
        self.waiting.values().flatten().filter_map(|(_, hint)| hint.request.as_ref())
    }

    /// A watch told of an object's end.
    pub(crate) fn has_ended(&mut self, uid: &str, now: u64) {
        self.ended.insert(uid.into(), now);
    }

    fn forget_old(&mut self, now: u64, life: u64, is_followed: impl Fn(&KindKey) -> bool) {
        if now < self.next_forget {
            return;
        }
        self.next_forget = now + FORGET;
        self.ended.retain(|_, time| *time + life > now);
        self.waiting.retain(|(kind, _, _), waiting| {
            // While no watch runs, a change that does not show proves nothing.
            let unseen = !is_followed(kind);
            for (time, _) in waiting.iter_mut().filter(|(_, hint)| unseen && hint.request.is_some())
            {
                *time = now;
            }
            waiting.retain(|(time, _)| *time + life > now);
            !waiting.is_empty()
        });
        let all = self.waiting.values().flatten();
        self.loose = all.filter(|(_, hint)| hint.request.is_none()).count();
    }

    /// Whether a policy observes right now.
    pub(crate) fn are_for(&self, policy: &PolicyId) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(policy))
    }
}

impl Controller {
    /// What only a request knows.
    pub fn hint(&mut self, hint: ObservedRequest, now: u64) {
        self.now = self.now.max(now);
        if hint.dry_run {
            return;
        }
        let id = hint.about();
        if hint.stores_nothing() {
            if hint.subresource != "status" && !hint.passed_over {
                self.fire_on_request(&hint, &id);
            }
            return;
        }
        if hint.passed_over {
            return self.pass_over(hint, &id);
        }
        if hint.changes_nothing() {
            // Kyverno: sending an object again as it is fires its rules. No watch will tell of it.
            let old = hint.old_object.clone();
            // What was sent is what is stored, which the mirror has in full, unless it was changed since.
            let known = self.cache.get(&id).filter(|known| {
                metadata::uid(known) == hint.uid()
                    && hint.object.as_ref().is_some_and(|sent| Left::of(sent).is(known))
            });
            let new = known.cloned().or_else(|| hint.object.clone());
            return self.fire(&id, old.as_ref(), new.as_ref(), false, Some(hint));
        }
        let joined = self.join(&hint, &id);
        match self.seen_by_nobody(&hint, &id) {
            Unseen::Change { old, new } => {
                self.fire(&id, old.as_ref(), new.as_ref(), false, Some(hint));
            }
            Unseen::Over => {}
            Unseen::No if joined => {}
            Unseen::No => {
                self.requests.observed.add(hint, self.now, self.env.settings.requests.hints);
            }
        }
    }

    /// Tells a request to the rules of these policies alone, which did not act when others heard of it.
    pub(crate) fn hint_late(&mut self, hint: ObservedRequest, policies: BTreeSet<PolicyId>) {
        self.requests.observed.only = Some(policies);
        self.hint(hint, self.now);
        self.requests.observed.only = None;
    }

    pub(crate) fn forget_old_hints(&mut self) {
        let cache = &self.cache;
        self.requests.observed.forget_old(self.now, self.env.settings.requests.hint_life, |kind| {
            cache.is_followed(kind)
        });
    }

    /// What a request did before this process began to watch: of that only the request tells.
    fn seen_by_nobody(&self, hint: &ObservedRequest, id: &ObjectId) -> Unseen {
        let Some(uid) = hint.uid() else { return Unseen::No };
        let entry = self.cache.entry(id).filter(|entry| metadata::uid(&entry.object) == Some(uid));
        let ends = entry.is_none_or(|entry| metadata::is_deleted(&entry.object));
        let found_at = entry.and_then(|entry| entry.found_at);
        let old = hint.old_object.as_ref();
        let change = match (hint.operation, entry) {
            // It is gone, or its finalizers hold it.
            (Operation::Delete, _) if ends && self.cache.is_known(&KindKey::of(&id.gvk)) => {
                if self.requests.observed.ended.contains_key(uid) {
                    return Unseen::Over;
                }
                Unseen::Change { old: old.cloned(), new: None }
            }
            // Those that are not written down are about what this process watched.
            (Operation::Create, Some(entry)) if !ends && hint.request.is_some() => {
                found_at.map_or(Unseen::No, |_| Unseen::Change {
                    old: None,
                    new: Some(entry.object.clone()),
                })
            }
            (Operation::Update, Some(entry)) if !ends && hint.request.is_some() => {
                // The status alone may have changed since, if the request was refused.
                let happened = old.is_some_and(|old| {
                    found_at.is_some_and(|first| first > revision_of(old))
                        && differs(old, &entry.object)
                });
                match happened {
                    true => Unseen::Change { old: old.cloned(), new: Some(entry.object.clone()) },
                    false => Unseen::No,
                }
            }
            _ => Unseen::No,
        };
        match &change {
            Unseen::Change { old, new } if operation_of(old.as_ref(), new.as_ref()).is_none() => {
                Unseen::Over
            }
            _ => change,
        }
    }

    /// Joins a request to a change that was seen before it; whether a key waited for it.
    fn join(&mut self, hint: &ObservedRequest, id: &ObjectId) -> bool {
        // A request that names another object of the same place was refused, or is about one that is gone.
        let known = hint.uid().or_else(|| self.cache.get(id).and_then(metadata::uid));
        let Some(uid) = known.map(Str::from) else { return false };
        let waiting = self.keys_without_user(&uid, |event| event.may_come_from(hint));
        for key in &waiting {
            let by_user =
                self.policies.rules.rule(&key.rule).is_some_and(|rule| rule.asks_for_user());
            for mut event in std::mem::take(&mut self.queue.entry(key).pending) {
                if event.may_come_from(hint) {
                    event.left = event.left.map(|live| self.as_left_by(Some(hint), &live));
                    event.operation = Some(hint.operation);
                    event.guessed = false;
                    event.user = Some(hint.user.clone());
                    if event.old.is_none() {
                        event.old.clone_from(&hint.old_object);
                    }
                    event.carriers = hint.request.iter().cloned().collect();
                }
                self.queue.entry(key).add(event, by_user);
            }
            self.queue.enqueue(key, self.now);
        }
        !waiting.is_empty()
    }

    /// The keys of a trigger that know of an operation, and not who did it.
    fn keys_without_user(&self, uid: &Str, waits: impl Fn(&Pending) -> bool) -> Vec<WorkKey> {
        self.policies
            .rules
            .rules()
            .filter(|rule| self.requests.observed.are_for(&rule.id.policy))
            .map(|rule| WorkKey { rule: rule.id.clone(), trigger: uid.clone() })
            .filter(|key| self.queue.get(key).is_some_and(|s| s.pending.iter().any(&waits)))
            .collect()
    }

    /// Changes of an excluded user trigger no rule, whether it was seen already or not.
    fn pass_over(&mut self, hint: ObservedRequest, id: &ObjectId) {
        let uid = hint.uid().map(Str::from);
        let uid = uid.or_else(|| self.cache.get(id).and_then(metadata::uid).map(Str::from));
        let Some(uid) = uid else {
            return self.requests.observed.add(hint, self.now, self.env.settings.requests.hints);
        };
        let seen = self.keys_without_user(&uid, |event| event.may_come_from(&hint));
        if seen.is_empty() {
            return self.requests.observed.add(hint, self.now, self.env.settings.requests.hints);
        }
        for key in seen {
            let state = self.queue.entry(&key);
            state.pending.retain(|event| !event.may_come_from(&hint));
            if state.pending.is_empty() && state.cause.is_none() {
                self.forget(&key);
            }
        }
        if hint.operation != Operation::Delete {
            let revision = self.cache.get(id).map_or(0, revision_of);
            self.remember_passed_over(&uid, revision, hint.request);
        }
    }

    /// Remembers that the change of an object up to a revision is ignored.
    pub(crate) fn remember_passed_over(&mut self, uid: &Str, revision: u64, carrier: Option<Str>) {
        self.checkpoint.ignore(uid, revision);
        if let Some(carrier) = carrier {
            self.requests.inbox.keep_until_stored(&carrier, uid.clone());
        }
    }

    /// Requests that store nothing fire at once.
    fn fire_on_request(&mut self, hint: &ObservedRequest, id: &ObjectId) {
        if self.is_filtered(id, &hint.subresource) {
            return;
        }
        self.requests.observed.sent += 1;
        let event = hint.event();
        let own = hint.user.username == self.env.settings.user;
        let rules: Vec<RuleId> = self
            .policies
            .rules
            .candidates(&event)
            .filter(|rule| {
                !rule.trigger.existing_only && self.requests.observed.are_for(&rule.id.policy)
            })
            .map(|rule| rule.id.clone())
            .collect();
        for rule in rules {
            // A stored request is the same for the next leader.
            let name = hint
                .request
                .clone()
                .unwrap_or_else(|| self.requests.observed.sent.to_string().into());
            let key = WorkKey { rule, trigger: format!("request/{name}").into() };
            let event = Pending {
                old: hint.old_object.clone(),
                user: Some(hint.user.clone()),
                own,
                sent: Some(Box::new(hint.clone())),
                carriers: hint.request.iter().cloned().collect(),
                ..Pending::of(Some(hint.operation), self.now)
            };
            self.queue.entry(&key).add(event, false);
            self.queue.enqueue(&key, self.now);
        }
    }
}

/// What a request did that no watch told of.
enum Unseen {
    /// A watch told of it, or will.
    No,
    /// There is nothing more to it.
    Over,
    Change {
        old: Option<Value>,
        new: Option<Value>,
    },
}
