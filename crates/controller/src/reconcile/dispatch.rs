//! What follows when an object comes, changes or goes, and what requests add to it.

use kiln_cluster::KindKey;
use kiln_engine::{Event, ObservedRequest, Ownership};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Operation, Program, Rule};
use kiln_value::{Str, Value};

use crate::cache::{Difference, revision_of};
use crate::controller::Controller;
use crate::ownership::signature::Proof;
use crate::reconcile::compare::content_of;
use crate::work_queue::{Pending, WorkKey};

impl Controller {
    /// Whether no rule sees an object, or a subresource of it.
    pub(crate) fn is_filtered(&self, id: &ObjectId, subresource: &str) -> bool {
        let mut filters = self.env.settings.rules.filters.iter();
        filters.any(|filter| filter.takes(&id.gvk, subresource, &id.namespace, &id.name))
    }

    /// Everything that follows from a change of an object.
    pub(crate) fn on_difference(&mut self, difference: &Difference, own: bool) {
        let Difference { id, old, new, touched } = difference;
        self.on_claim(difference);
        if KindKey::of(&id.gvk) == KindKey::of(&self.env.settings.requests.kind) {
            self.request_changed(id, new.as_ref());
        }
        for key in self.queue.readers_of(id, [old.as_ref(), new.as_ref()]) {
            self.queue.enqueue(&key, self.now);
        }
        if *touched {
            self.on_right(id);
            let renewed = matches!((old, new), (Some(old), Some(new)) if metadata::uid(old) != metadata::uid(new));
            if renewed {
                self.on_trigger(id, old.as_ref(), None, own);
                self.on_trigger(id, None, new.as_ref(), own);
            } else {
                self.on_trigger(id, old.as_ref(), new.as_ref(), own);
            }
        }
    }

    /// The rules whose claim an object carries, or carried, look at it.
    pub(crate) fn on_claim(&mut self, difference: &Difference) {
        let Difference { old, new, .. } = difference;
        if new.is_none()
            && let Some(uid) = old.as_ref().and_then(metadata::uid)
        {
            self.downstreams.gone(&difference.id, uid);
        }
        self.note_edited_claim(difference);
        self.note_replaced(difference);
        for object in [old, new].into_iter().flatten() {
            let Some(mark) = Ownership::read(object) else { continue };
            let Some(trigger) = mark.labels.trigger_uid.clone() else { continue };
            let rule = self.policies.rules.rules().find(|rule| mark.is_of(&rule.id));
            let Some(rule) = rule.filter(|rule| rule.lifecycle.synchronize) else { continue };
            let key = WorkKey { rule: rule.id.clone(), trigger };
            self.remember_cause(&key, &mark, self.proof(object));
            match self.env.settings.retry.made_again_after {
                wait if wait > 0 && new.is_none() => self.queue.enqueue_at(&key, self.now + wait),
                _ => self.queue.enqueue(&key, self.now),
            }
        }
    }

    /// Remembers objects of the engine's whose claim others edit: the edit is reverted.
    fn note_edited_claim(&mut self, difference: &Difference) {
        let (Some(old), Some(new)) = (&difference.old, &difference.new) else { return };
        let Some(uid) = metadata::uid(new).filter(|uid| metadata::uid(old) == Some(*uid)) else {
            return;
        };
        if Ownership::read(new).is_some() && self.proof(new) == Proof::Proven {
            self.downstreams.set_edited(uid, false);
        } else if let Some(mark) = Ownership::read(old)
            && self.proof(old) == Proof::Proven
            && self.is_wanted(old, &mark)
        {
            self.downstreams.set_edited(uid, true);
        }
    }

    /// Remembers where an object of the engine's was that others delete: a replacement is reverted.
    fn note_replaced(&mut self, difference: &Difference) {
        let Difference { id, old, new, .. } = difference;
        let is_proven = |object: &Value| {
            Ownership::read(object).filter(|_| self.proof(object) == Proof::Proven)
        };
        if new.as_ref().and_then(is_proven).is_some() {
            self.downstreams.is_back(id);
            return;
        }
        let Some(old) = old
            .as_ref()
            .filter(|old| new.as_ref().is_none_or(|new| metadata::uid(new) != metadata::uid(old)))
        else {
            return;
        };
        let Some(mark) = is_proven(old).filter(|mark| self.is_wanted(old, mark)) else { return };
        let rule = self.policies.rules.rules().find(|rule| mark.is_of(&rule.id));
        if let Some((rule, trigger)) = rule.zip(mark.labels.trigger_uid.clone()) {
            let key = WorkKey { rule: rule.id.clone(), trigger };
            self.downstreams.was_replaced(id, key);
        }
    }

    /// Forgets what was deleted and a key does not want any more.
    pub(crate) fn forget_replaced(&mut self, key: &WorkKey) {
        let state = self.queue.get(key);
        let wants = state.map(|state| state.wants.as_slice()).unwrap_or_default();
        self.downstreams.forget_replaced(key, wants);
    }

    /// What happened to an object, for the rules that it may fire.
    pub(crate) fn on_trigger(
        &mut self,
        id: &ObjectId,
        old: Option<&Value>,
        new: Option<&Value>,
        own: bool,
    ) {
        let Some(uid) = new.or(old).and_then(metadata::uid).map(Str::from) else { return };
        if new.is_none() {
            self.checkpoint.forget(&uid);
        }
        let Some(operation) = operation_of(old, new) else { return };
        let hint = self.requests.observed.take(id, operation, Some(&uid), [old, new]);
        self.fire(id, old, new, own, hint);
    }

    /// What happened to an object, and the request behind it as far as it is known, for the rules that it may fire.
    pub(crate) fn fire(
        &mut self,
        id: &ObjectId,
        old: Option<&Value>,
        new: Option<&Value>,
        own: bool,
        hint: Option<ObservedRequest>,
    ) {
        let Some(uid) = new.or(old).and_then(metadata::uid).map(Str::from) else { return };
        let Some(operation) = operation_of(old, new) else { return };
        if self.is_filtered(id, "") {
            return;
        }
        if operation == Operation::Delete {
            self.requests.observed.has_ended(&uid, self.now);
        }
        let passed_over = hint.as_ref().is_some_and(|hint| hint.passed_over);
        if let Some(hint) = hint.as_ref().filter(|hint| hint.passed_over)
            && let Some(new) = new.filter(|_| operation != Operation::Delete)
        {
            // Whatever it is now, no rule is to act on it.
            return self.remember_passed_over(&uid, revision_of(new), hint.request.clone());
        }
        let carrier = hint.as_ref().and_then(|hint| hint.request.clone());
        let left = new.map(|new| self.as_left_by(hint.as_ref(), new));
        let user = hint.map(|hint| hint.user);
        // Where the request is known, it says whose it is.
        let own = own
            || match &user {
                Some(user) => user.username == self.env.settings.user,
                None => self.is_own_writing(old, new),
            };
        let event = match (operation, old, new) {
            (Operation::Create, _, Some(new)) => Event::created(new.clone()),
            (Operation::Update, Some(old), Some(new)) => Event::updated(old.clone(), new.clone()),
            (_, Some(old), _) => Event::deleted(old.clone()),
            _ => return,
        };
        let rules: Vec<_> = self
            .policies
            .rules
            .candidates(&event)
            .filter(|rule| wants(rule, own) && self.requests.observed.are_for(&rule.id.policy))
            .cloned()
            .collect();
        let pending = Pending {
            old: old.cloned(),
            user,
            own,
            carriers: carrier.into_iter().collect(),
            left,
            ..Pending::of(Some(operation), self.now)
        };
        for rule in rules {
            let key = WorkKey { rule: rule.id.clone(), trigger: uid.clone() };
            self.queue_trigger(&rule, &key, id, &pending, passed_over);
        }
    }

    /// Queues a key for something that happened to its trigger, unless nothing can follow from it.
    fn queue_trigger(
        &mut self,
        rule: &Rule,
        key: &WorkKey,
        id: &ObjectId,
        pending: &Pending,
        passed_over: bool,
    ) {
        let is_new = self.queue.get(key).is_none();
        // What it made of objects that were there is kept in step all the same.
        if rule.trigger.existing_only && is_new {
            return;
        }
        let gone_without_trace = pending.operation == Some(Operation::Delete)
            && is_new
            && !rule.trigger.named_operations().contains(Operation::Delete)
            && !self.cache.claimed_by(&key.trigger).any(|(_, object)| {
                Ownership::read(object).is_some_and(|mark| mark.is_of(&rule.id))
            });
        if gone_without_trace {
            return;
        }
        self.checkpoint.touch_if(!rule.lifecycle.synchronize);
        let state = self.queue.entry(key);
        state.trigger = Some(id.clone());
        state.failures = 0;
        let is_known = pending.user.is_some();
        if !passed_over {
            let mut event = pending.clone();
            event.left = event.left.filter(|_| is_known || rule.asks_for_user());
            state.add(event, rule.asks_for_user());
        }
        // Exclusion of users is known from requests, and those of other processes take a moment.
        match self.env.settings.requests.patience {
            wait if wait > 0 && !is_known && !pending.own => {
                self.queue.enqueue_at(key, self.now + wait);
            }
            _ => self.queue.enqueue(key, self.now),
        }
    }

    /// Whether a change is one that the engine made and never heard back about: it brings a claim, or another content
    /// hash, with a signature, and the content is the one that was signed.
    fn is_own_writing(&self, old: Option<&Value>, new: Option<&Value>) -> bool {
        let Some((new, mark)) = new.and_then(|new| Some((new, Ownership::read(new)?))) else {
            return false;
        };
        let before = old.and_then(Ownership::read);
        mark.content.is_some()
            && before.is_none_or(|before| before.content != mark.content)
            && self.is_own(new, &mark)
    }

    /// Whether the engine wrote an object as it is: a saved signed claim can be put onto other content. What a
    /// server adds makes another content too, so what a rule wants as it is counts as well.
    pub(crate) fn is_own(&self, object: &Value, mark: &Ownership) -> bool {
        self.proof(object) == Proof::Proven
            && (mark.content == Some(content_of(object)) || self.is_wanted_as_claimed(object, mark))
    }
}

/// What was done to an object; none when there is nothing to it.
pub(crate) fn operation_of(old: Option<&Value>, new: Option<&Value>) -> Option<Operation> {
    let was_ending = old.is_some_and(metadata::is_deleted);
    match (old, new) {
        (None, None) => None,
        (None, Some(new)) if metadata::is_deleted(new) => None,
        (None, Some(_)) => Some(Operation::Create),
        (Some(_), Some(new)) if !metadata::is_deleted(new) => Some(Operation::Update),
        // It ends with the deletion request, not with the last finalizer.
        (Some(_), _) if was_ending => None,
        (Some(_), _) => Some(Operation::Delete),
    }
}

/// Whether a rule cares about a change at all.
fn wants(rule: &Rule, own: bool) -> bool {
    let acts_later = match &rule.program {
        Program::Generate(_) => true,
        Program::Mutate(program) => !program.changes_trigger(),
        // All there is to it happens at admission.
        Program::Modify(_) | Program::Validate(_) => false,
        // A clock makes it run.
        Program::Delete(_) => false,
    };
    acts_later && !(own && rule.trigger.ignore_own_requests)
}
