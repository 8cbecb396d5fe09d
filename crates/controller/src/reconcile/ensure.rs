//! Making an object what a rule wants: whether it takes a write, and which one.

use kiln_cluster::{Call, KindKey, Reason};
use kiln_engine::{Ensure, Existing, Ownership, RecordedRead};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Rule, Write};
use kiln_value::Value;

use crate::cache::KindState;
use crate::controller::Controller;
use crate::ownership::left::Sender;
use crate::ownership::signature::Proof;
use crate::ownership::{left_of, marked};
use crate::reconcile::compare::{
    content_only, covers, fingerprint, is_foreign, live_form, replacement, same, taken_over,
    wanted_form,
};
use crate::reconcile::plan::{CallPhase, NextCall, PlanStep, call};
use crate::work_queue::{Condition, Waiting, WorkKey};

/// An object against what a rule wants it to be.
struct Compared {
    mark: Option<Ownership>,
    /// This key made it.
    mine: bool,
    /// What is wanted, and what is there, in the form that servers store.
    form: Value,
    live: Value,
    as_wanted: bool,
    /// Others were seen to edit its claim, or to replace it.
    was_edited: bool,
    /// Its claim is not as the engine wrote it.
    edited: bool,
    /// The trigger that its claim remembers is not the one that its user left.
    outdated: bool,
    /// The rule wants what it wanted when the object was written.
    unchanged: bool,
}

/// Something that cannot be done now.
fn later(reason: Waiting, message: String) -> NextCall {
    Err(Condition { reason, message })
}

impl Controller {
    /// The call that makes an object what a rule wants, if it takes one.
    ///
    /// Runs again after every write and every watch event of the object, so it must end at nothing for an object that is
    /// as wanted: a difference that a write does not remove would be written forever. Three things keep that from
    /// happening: comparing in the form that servers store (`live_form`), one dry run for a difference that may be
    /// defaults of the server (`settled` remembers the result), and a back-off for real conflicts (`contested`).
    ///
    /// The order matters. What cannot be known or may not be touched comes first; then creation; then the question whose
    /// object it is; and only then content. Another rule's object is never compared for content before ownership is
    /// clear, or two rules would overwrite each other in turns.
    pub(crate) fn next_ensure(
        &mut self,
        key: &WorkKey,
        ensure: Box<Ensure>,
        sender: Option<Sender>,
    ) -> NextCall {
        let Some(rule) = self.policies.rules.rule(&key.rule).cloned() else { return Ok(None) };
        let id = ensure.target.clone();
        if let Some(unknown) = self.kind_is_unknown(key, &id) {
            return unknown;
        }
        let live = self.cache.get(&id).cloned();
        if let Some(going) = live.as_ref().and_then(|live| self.is_going(key, &ensure, &rule, live))
        {
            return going;
        }
        let life = self.life_of(&rule);
        let wanted = marked(&ensure, &rule, &life, sender.as_ref(), &self.env.settings.claim_keys);
        let Some(live) = live else { return self.create(key, ensure, sender, wanted) };
        if ensure.existing == Existing::Keep {
            return Ok(None);
        }
        let compared = self.compare(key, &ensure, sender.as_ref(), &wanted, &live);
        if let Some(other) = self.other_owner(key, &rule, &id, &compared) {
            return other;
        }
        if !compared.mine && !compared.was_edited && ensure.existing == Existing::UpdateOwn {
            // It is made when the other one is gone, if the rule still wants it then.
            if rule.lifecycle.synchronize {
                self.add_read(key, RecordedRead::Object(id));
            }
            return Ok(None);
        }
        let Compared { edited, outdated, .. } = compared;
        let hashes = (fingerprint(&compared.form), fingerprint(&compared.live));
        if !edited && !outdated && (compared.as_wanted || self.downstreams.is_settled(&id, hashes))
        {
            self.downstreams.is_as_wanted(&id, self.now);
            return Ok(None);
        }
        self.replace(key, ensure, sender, wanted, &live, &compared)
    }

    /// Why nothing can be said of an object: its kind is not listed, or cannot be.
    fn kind_is_unknown(&mut self, key: &WorkKey, id: &ObjectId) -> Option<NextCall> {
        let kind = KindKey::of(&id.gvk);
        match self.cache.kinds.get(&kind).map(|kind| (&kind.state, kind.revision)) {
            Some((KindState::Failed(error), 0)) => {
                let reason = match error.reason {
                    Reason::Forbidden => Waiting::Forbidden,
                    Reason::UnknownKind => Waiting::Missing,
                    _ => Waiting::Unavailable,
                };
                Some(later(reason, format!("{id}: {error}")))
            }
            Some((_, revision)) if revision > 0 => None,
            _ => {
                self.work.await_kind(key, kind);
                Some(later(Waiting::Unavailable, format!("{} is not listed yet", id.gvk)))
            }
        }
    }

    /// What to do about an object that is being deleted: it is made again when it is gone, if the rule synchronizes.
    fn is_going(
        &mut self,
        key: &WorkKey,
        ensure: &Ensure,
        rule: &Rule,
        live: &Value,
    ) -> Option<NextCall> {
        let uid = metadata::uid(live).unwrap_or_default();
        if !metadata::is_deleted(live) && !self.downstreams.is_deleting(uid) {
            return None;
        }
        if ensure.existing == Existing::Keep || !rule.lifecycle.synchronize {
            return Some(Ok(None));
        }
        let id = &ensure.target;
        self.queue.entry(key);
        self.add_read(key, RecordedRead::Object(id.clone()));
        Some(later(Waiting::Missing, format!("waiting for {id} to be deleted")))
    }

    /// The call that creates an object. A part of one cannot be created without the rest.
    fn create(
        &mut self,
        key: &WorkKey,
        ensure: Box<Ensure>,
        sender: Option<Sender>,
        wanted: Value,
    ) -> NextCall {
        if ensure.subresource.is_some() {
            self.add_read(key, RecordedRead::Object(ensure.target.clone()));
            return later(Waiting::Missing, format!("{} does not exist", ensure.target));
        }
        let write = match ensure.write {
            Write::Apply { manager } => {
                Call::Apply { object: wanted.clone(), manager: manager.into(), force: true }
            }
            Write::Replace => Call::create(wanted.clone()),
        };
        call(write, PlanStep::Ensure(ensure, sender), CallPhase::Write { sent: wanted })
    }

    /// Compares an object with what a rule wants it to be.
    fn compare(
        &self,
        key: &WorkKey,
        ensure: &Ensure,
        sender: Option<&Sender>,
        wanted: &Value,
        live: &Value,
    ) -> Compared {
        // Ownership: by this key (`mine`), by another key that still wants it, or without a known owner. Labels alone do
        // not decide, since a copy of a downstream has them too: `is_by` compares rule and trigger UID.
        let mark = Ownership::read(live);
        let mine = mark.as_ref().is_some_and(|mark| mark.is_by(&key.rule, &key.trigger));
        let form = wanted_form(wanted);
        let in_form = match mine {
            true => live_form(&taken_over(live, wanted), wanted),
            false => live_form(live, wanted),
        };
        let as_wanted = match ensure.write {
            Write::Replace => same(&form, &in_form, &self.env.schema),
            Write::Apply { .. } => covers(&form, &in_form, &self.env.schema),
        };
        let was_edited = self.downstreams.claim_was_edited(key, &ensure.target, live);
        let edited = was_edited || (mark.is_some() && self.proof(live) == Proof::Edited);
        // The user changed the trigger: the trigger as they left it is recorded, or it is lost after a restart.
        let left = mark.as_ref().filter(|_| mine).and_then(left_of);
        let outdated = sender.zip(left).is_some_and(|(now, left)| !now.left.is_as(&left));
        let content = mark.as_ref().and_then(|mark| mark.content.as_deref());
        let unchanged = mine && content == Some(ensure.claim.content.to_string().as_str());
        Compared {
            mark,
            mine,
            form,
            live: in_form,
            as_wanted,
            was_edited,
            edited,
            outdated,
            unchanged,
        }
    }

    /// What to do about an object that another key made and still wants. It is never compared for more than its content:
    /// two rules would overwrite each other in turns.
    fn other_owner(
        &mut self,
        key: &WorkKey,
        rule: &Rule,
        id: &ObjectId,
        compared: &Compared,
    ) -> Option<NextCall> {
        let mark = compared.mark.as_ref().filter(|_| !compared.mine)?;
        let other = self
            .queue
            .others_wanting(id, key)
            .find(|other| mark.is_by(&other.rule, &other.trigger))?
            .clone();
        if rule.lifecycle.synchronize {
            // When the other one lets go of it, this one has its turn.
            self.add_read(key, RecordedRead::Object(id.clone()));
        }
        if content_only(&compared.form) == content_only(&compared.live) {
            return Some(Ok(None));
        }
        // A UID says nothing to people.
        let state = self.queue.get(&other);
        let trigger = state.and_then(|state| state.trigger.as_ref()).map(ToString::to_string);
        let trigger = trigger.unwrap_or_else(|| other.trigger.to_string());
        let message = format!("{id} is also generated by {} for {trigger}", other.rule);
        Some(later(Waiting::Contested, format!("{message}, with other content")))
    }

    /// The call that makes an object as wanted which is not: a trial if the server may have added the difference, nothing
    /// for a while if another writer insists, otherwise a write.
    fn replace(
        &mut self,
        key: &WorkKey,
        ensure: Box<Ensure>,
        sender: Option<Sender>,
        wanted: Value,
        live: &Value,
        compared: &Compared,
    ) -> NextCall {
        let Compared { mine, edited, outdated, unchanged, .. } = *compared;
        let id = ensure.target.clone();
        let mut object = replacement(&wanted, live);
        let subresource = ensure.subresource.clone().unwrap_or_default();
        // Perhaps the difference is only what a server adds: ask it with a dry run before writing. Only for an object whose
        // rule did not change (`unchanged`) or that another engine wrote; with a changed rule a write is due anyway.
        if !edited
            && !outdated
            && (unchanged || (mine && is_foreign(live)))
            && matches!(ensure.write, Write::Replace)
            && covers(&compared.form, &compared.live, &self.env.schema)
        {
            let trial = Call::Update { object: object.clone(), subresource, dry_run: true };
            let step = PlanStep::Ensure(ensure, sender);
            return call(trial, step, CallPhase::Try { sent: object });
        }
        if (unchanged || edited)
            && !outdated
            && let Some(wait) = self.contested(key, &id)
        {
            self.queue.enqueue_at(key, wait);
            return later(Waiting::Contested, format!("another writer keeps changing {id}"));
        }
        let write = match ensure.write {
            Write::Apply { manager } => {
                object = wanted;
                Call::Apply { object: object.clone(), manager: manager.into(), force: true }
            }
            Write::Replace => Call::Update { object: object.clone(), subresource, dry_run: false },
        };
        call(write, PlanStep::Ensure(ensure, sender), CallPhase::Write { sent: object })
    }

    /// Counts a correction of an object; when it was reverted too often, the time to wait for.
    pub(crate) fn contested(&mut self, key: &WorkKey, id: &ObjectId) -> Option<u64> {
        let settings = &self.env.settings;
        // Where rules fight, each correction costs another one.
        let fights = self.queue.others_wanting(id, key).next().is_some();
        let pause = fights.then_some(settings.retry.longest_backoff * 5);
        self.downstreams.correct(id, self.now, settings.retry.corrections, pause)
    }
}
