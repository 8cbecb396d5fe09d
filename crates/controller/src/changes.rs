//! What follows when an object comes, changes or goes, and what requests add to it.

use std::collections::{HashMap, VecDeque};

use kiln_cluster::KindKey;
use kiln_engine::{Event, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Operation, Program, Rule};
use kiln_value::{Str, Value};

use crate::controller::Controller;
use crate::keys::{Key, Pending, Sent};
use crate::mark::Mark;
use crate::mirror::Difference;

/// What only a request knows: who did what. It is joined to the change that it makes, if it makes one.
#[derive(Clone, Debug)]
pub struct Hint {
    /// The operation.
    pub operation: Operation,
    /// The kind of the object; for a subresource, of its parent.
    pub kind: Gvk,
    /// The subresource; empty for the object itself.
    pub subresource: Str,
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Str,
    /// The name.
    pub name: Str,
    /// What was sent.
    pub object: Option<Value>,
    /// What was there before.
    pub old_object: Option<Value>,
    /// Who sent it.
    pub user: User,
    /// It is only a trial.
    pub dry_run: bool,
}

/// Requests whose change was not seen yet. When one is lost, rules that ask for its user do not fire.
#[derive(Debug, Default)]
pub(crate) struct Hints {
    waiting: HashMap<(KindKey, Str, Str), VecDeque<(u64, Hint)>>,
    count: usize,
    sent: u64,
}

impl Hints {
    fn add(&mut self, hint: Hint, now: u64, most: usize) {
        if self.count >= most {
            return;
        }
        let place = (KindKey::of(&hint.kind), hint.namespace.clone(), hint.name.clone());
        self.waiting.entry(place).or_default().push_back((now, hint));
        self.count += 1;
    }

    /// The request behind a change. Earlier ones of the object have come to nothing.
    fn take(&mut self, id: &ObjectId, operation: Operation, uid: Option<&str>) -> Option<Hint> {
        let place = (KindKey::of(&id.gvk), id.namespace.clone(), id.name.clone());
        let waiting = self.waiting.get_mut(&place)?;
        let at = waiting.iter().position(|(_, hint)| {
            let known = hint.object.as_ref().or(hint.old_object.as_ref()).and_then(metadata::uid);
            hint.operation == operation && (known.is_none() || known == uid)
        })?;
        let found = waiting.drain(..=at).next_back().map(|(_, hint)| hint);
        self.count -= at + 1;
        if waiting.is_empty() {
            self.waiting.remove(&place);
        }
        found
    }

    pub(crate) fn forget_old(&mut self, now: u64, life: u64) {
        if self.count == 0 {
            return;
        }
        self.waiting.retain(|_, waiting| {
            waiting.retain(|(time, _)| time + life > now);
            !waiting.is_empty()
        });
        self.count = self.waiting.values().map(VecDeque::len).sum();
    }
}

impl Controller {
    /// What only a request knows.
    pub fn hint(&mut self, hint: Hint, now: u64) {
        self.now = self.now.max(now);
        if hint.dry_run {
            return;
        }
        let id = ObjectId::new(hint.kind.clone(), &hint.namespace, &hint.name);
        let stores_nothing = hint.operation == Operation::Connect || !hint.subresource.is_empty();
        if stores_nothing {
            if hint.subresource != "status" {
                self.fire_on_request(&hint, &id);
            }
            return;
        }
        if changes_nothing(&hint) {
            // Kyverno: sending an object again as it is fires its rules. No watch will tell of it.
            let (old, new) = (hint.old_object.clone(), hint.object.clone());
            self.hints.add(hint, self.now, self.settings.hints);
            return self.on_trigger(&id, old.as_ref(), new.as_ref(), false);
        }
        // The change may have been told before its request.
        let known = self.mirror.get(&id).and_then(metadata::uid).map(Str::from);
        if let Some(uid) = known {
            let waiting: Vec<Key> = self
                .rules
                .rules()
                .filter(|rule| rule.asks_for_user())
                .map(|rule| Key { rule: rule.id.clone(), trigger: uid.clone() })
                .filter(|key| {
                    self.keys.get(key).is_some_and(|state| {
                        let same =
                            |p: &Pending| p.operation == Some(hint.operation) && p.user.is_none();
                        state.pending.iter().any(same)
                    })
                })
                .collect();
            for key in &waiting {
                let pending = self.keys.entry(key).pending.iter_mut();
                for event in pending.filter(|p| p.operation == Some(hint.operation)) {
                    event.user.get_or_insert_with(|| hint.user.clone());
                }
                self.keys.enqueue(key, self.now);
            }
            if !waiting.is_empty() {
                return;
            }
        }
        self.hints.add(hint, self.now, self.settings.hints);
    }

    /// Requests that store nothing fire at once.
    fn fire_on_request(&mut self, hint: &Hint, id: &ObjectId) {
        if self.is_filtered(id) {
            return;
        }
        self.hints.sent += 1;
        let mut event = Event::created(hint.object.clone().unwrap_or(Value::Null));
        event.operation = Some(hint.operation);
        event.matched_as = hint.operation;
        event.kind = hint.kind.clone();
        event.subresource = hint.subresource.clone();
        event.namespace = Some(hint.namespace.clone()).filter(|n| !n.is_empty());
        let own = hint.user.username == self.settings.user;
        let rules = self.rules.candidates(&event).filter(|rule| !rule.trigger.existing_only);
        let rules: Vec<_> = rules.map(|rule| rule.id.clone()).collect();
        for rule in rules {
            let key = Key { rule, trigger: format!("request/{}", self.hints.sent).into() };
            let sent = Sent {
                object: hint.object.clone(),
                about: id.clone(),
                subresource: hint.subresource.clone(),
            };
            self.keys.entry(&key).add(Pending {
                operation: Some(hint.operation),
                old: hint.old_object.clone(),
                user: Some(hint.user.clone()),
                own,
                sent: Some(Box::new(sent)),
            });
            self.keys.enqueue(&key, self.now);
        }
    }

    pub(crate) fn is_filtered(&self, id: &ObjectId) -> bool {
        self.settings.filters.iter().any(|filter| filter.matches(&id.gvk, &id.namespace, &id.name))
    }

    /// Everything that follows from a change of an object.
    pub(crate) fn on_difference(&mut self, difference: &Difference, own: bool) {
        let Difference { id, old, new, touched } = difference;
        self.on_claim(difference);
        if self.is_policy_kind(&id.gvk) {
            self.policy_changed(id, new.as_ref());
        }
        if crate::requests::is_request(&id.gvk) {
            self.request_changed(id, new.as_ref());
        }
        for key in self.keys.readers_of(id, [old.as_ref(), new.as_ref()]) {
            self.keys.enqueue(&key, self.now);
        }
        if *touched {
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
            self.deleting.remove(uid);
            self.settled.remove(&difference.id);
        }
        for object in [old, new].into_iter().flatten() {
            let Some(mark) = Mark::read(object) else { continue };
            let Some(trigger) = mark.labels.trigger_uid.clone() else { continue };
            let rule = self.rules.rules().find(|rule| mark.is_of(&rule.id));
            let Some(rule) = rule.filter(|rule| rule.lifecycle.synchronize) else { continue };
            let key = Key { rule: rule.id.clone(), trigger };
            self.remember_cause(&key, &mark);
            match self.settings.made_again_after {
                wait if wait > 0 && new.is_none() => self.keys.enqueue_at(&key, self.now + wait),
                _ => self.keys.enqueue(&key, self.now),
            }
        }
    }

    /// What happened to an object, for the rules that it may fire.
    fn on_trigger(&mut self, id: &ObjectId, old: Option<&Value>, new: Option<&Value>, own: bool) {
        let Some(uid) = new.or(old).and_then(metadata::uid).map(Str::from) else { return };
        if self.is_filtered(id) {
            return;
        }
        let was_ending = old.is_some_and(metadata::is_deleted);
        let operation = match (old, new) {
            (None, None) => return,
            (None, Some(new)) if metadata::is_deleted(new) => return,
            (None, Some(_)) => Operation::Create,
            (Some(_), Some(new)) if !metadata::is_deleted(new) => Operation::Update,
            // It ends when somebody says so, not when the last finalizer lets it go.
            (Some(_), _) if was_ending => return,
            (Some(_), _) => Operation::Delete,
        };
        let hint = self.hints.take(id, operation, Some(&uid));
        let user = hint.map(|hint| hint.user);
        let own = own
            || user.as_ref().is_some_and(|user| user.username == self.settings.user)
            || is_own_writing(old, new);
        let event = match (operation, old, new) {
            (Operation::Create, _, Some(new)) => Event::created(new.clone()),
            (Operation::Update, Some(old), Some(new)) => Event::updated(old.clone(), new.clone()),
            (_, Some(old), _) => Event::deleted(old.clone()),
            _ => return,
        };
        let rules: Vec<_> =
            self.rules.candidates(&event).filter(|rule| wants(rule, own)).cloned().collect();
        for rule in rules {
            let key = Key { rule: rule.id.clone(), trigger: uid.clone() };
            // What it made of objects that were there is kept in step all the same.
            if rule.trigger.existing_only && self.keys.get(&key).is_none() {
                continue;
            }
            let gone_without_trace = operation == Operation::Delete
                && self.keys.get(&key).is_none()
                && !rule.trigger.named_operations().contains(Operation::Delete)
                && !self
                    .mirror
                    .claimed_by(&uid)
                    .any(|(_, object)| Mark::read(object).is_some_and(|mark| mark.is_of(&rule.id)));
            if gone_without_trace {
                continue;
            }
            self.checkpoint.dirty |= !rule.lifecycle.synchronize;
            let state = self.keys.entry(&key);
            state.trigger = Some(id.clone());
            state.failures = 0;
            state.add(Pending {
                operation: Some(operation),
                old: old.cloned(),
                user: user.clone(),
                own,
                sent: None,
            });
            self.keys.enqueue(&key, self.now);
        }
    }
}

/// Whether a request sends an object as it is stored.
fn changes_nothing(hint: &Hint) -> bool {
    let (Some(old), Some(new)) = (&hint.old_object, &hint.object) else { return false };
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["managedFields", "resourceVersion", "generation"] {
            object.remove(["metadata", field]);
        }
        object
    };
    hint.operation == Operation::Update && rest(old) == rest(new)
}

/// Whether a rule cares about a change at all.
fn wants(rule: &Rule, own: bool) -> bool {
    let acts_later = match &rule.program {
        Program::Generate(_) => true,
        Program::Mutate(program) => !program.changes_trigger(),
        // All there is to it happens at admission.
        Program::Modify(_) => false,
    };
    acts_later && !(own && rule.trigger.ignore_own_requests)
}

/// Whether a change looks like one that the controller made and never heard back about: it brings a claim,
/// or another content hash, which nobody else writes.
fn is_own_writing(old: Option<&Value>, new: Option<&Value>) -> bool {
    let Some(mark) = new.and_then(Mark::read) else { return false };
    let before = old.and_then(Mark::read);
    mark.content.is_some() && before.is_none_or(|before| before.content != mark.content)
}
