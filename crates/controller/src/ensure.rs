//! Making an object what a rule wants: whether it takes a write, and which one.

use kiln_cluster::{Call, KindKey, Reason};
use kiln_engine::{Ensure, Existing, RecordedRead};
use kiln_object::{ObjectId, metadata};
use kiln_rules::Write;

use crate::cache::State;
use crate::compare::{
    content_only, covers, fingerprint, is_foreign, live_form, replacement, same, taken_over,
    wanted_form,
};
use crate::controller::{Contest, Controller};
use crate::left::Sender;
use crate::ownership::{Ownership, marked};
use crate::plan::{Doing, Next, PlanStep};
use crate::signature::Proof;
use crate::work_queue::{Condition, Key, Waiting};

/// How long an edit stays at most that is made again and again, when no other rule makes it.
const LONGEST_OPEN: u64 = 5_000;

impl Controller {
    /// The call that makes an object what a rule wants, if it takes one.
    ///
    /// Runs again after every write and every watch event of the object, so it must end at `Done` for an object that is
    /// as wanted: a difference that a write does not remove would be written forever. Three things keep that from
    /// happening: comparing in the form that servers store (`live_form`), one dry run for a difference that may be
    /// defaults of the server (`settled` remembers the result), and a back-off for real conflicts (`contested`).
    ///
    /// The order matters. What cannot be known or may not be touched comes first; then creation; then the question whose
    /// object it is; and only then content. Another rule's object is never compared for content before ownership is
    /// clear, or two rules would overwrite each other in turns.
    pub(crate) fn next_ensure(
        &mut self,
        key: &Key,
        ensure: Box<Ensure>,
        sender: Option<Sender>,
    ) -> Next {
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return Next::Done };
        let id = ensure.target.clone();
        let later = |reason, message: String| Next::Later(Condition { reason, message });
        match self.cache.kinds.get(&KindKey::of(&id.gvk)).map(|kind| (&kind.state, kind.revision)) {
            Some((State::Failed(error), 0)) => {
                let reason = match error.reason {
                    Reason::Forbidden => Waiting::Forbidden,
                    Reason::UnknownKind => Waiting::Missing,
                    _ => Waiting::Unavailable,
                };
                return later(reason, format!("{id}: {error}"));
            }
            Some((_, revision)) if revision > 0 => {}
            _ => {
                self.waiting.entry(key.clone()).or_default().insert(KindKey::of(&id.gvk));
                return later(Waiting::Unavailable, format!("{} is not listed yet", id.gvk));
            }
        }
        let live = self.cache.get(&id).cloned();
        if let Some(live) = &live {
            let uid = metadata::uid(live).unwrap_or_default();
            if metadata::is_deleted(live) || self.deleting.contains(uid) {
                let once = ensure.existing == Existing::Keep || !rule.lifecycle.synchronize;
                if once {
                    return Next::Done;
                }
                // It is made again when the old one is gone.
                self.keys.entry(key);
                self.add_read(key, RecordedRead::Object(id.clone()));
                return later(Waiting::Missing, format!("waiting for {id} to be deleted"));
            }
        }
        let life = self.life_of(&rule);
        let wanted = marked(&ensure, &rule, &life, sender.as_ref(), &self.settings.claim_keys);
        let Some(live) = live else {
            if ensure.subresource.is_some() {
                self.add_read(key, RecordedRead::Object(id.clone()));
                return later(Waiting::Missing, format!("{id} does not exist"));
            }
            let call = match ensure.write {
                Write::Apply { manager } => {
                    Call::Apply { object: wanted.clone(), manager: manager.into(), force: true }
                }
                Write::Replace => Call::create(wanted.clone()),
            };
            return Next::Call(Box::new((
                call,
                Doing::Write { step: PlanStep::Ensure(ensure, sender), sent: wanted },
            )));
        };
        if ensure.existing == Existing::Keep {
            return Next::Done;
        }
        // Ownership: by this key (`mine`), by another key that still wants it (`other`), or without a known owner. Labels
        // alone do not decide, since a copy of a downstream has them too: `is_by` compares rule and trigger UID.
        let mark = Ownership::read(&live);
        let mine = mark.as_ref().is_some_and(|mark| mark.is_by(key));
        let form = wanted_form(&wanted);
        let live_form = match mine {
            true => live_form(&taken_over(&live, &wanted), &wanted),
            false => live_form(&live, &wanted),
        };
        let other = mark.as_ref().filter(|_| !mine).and_then(|mark| {
            let mut others = self.keys.others_wanting(&id, key);
            others.find(|other| mark.is_by(other))
        });
        if let Some(other) = other.cloned() {
            if rule.lifecycle.synchronize {
                // When the other one lets go of it, this one has its turn.
                self.add_read(key, RecordedRead::Object(id.clone()));
            }
            if content_only(&form) == content_only(&live_form) {
                return Next::Done;
            }
            // A UID says nothing to people.
            let state = self.keys.get(&other);
            let trigger = state.and_then(|state| state.trigger.as_ref()).map(ToString::to_string);
            let trigger = trigger.unwrap_or_else(|| other.trigger.to_string());
            let message = format!("{id} is also generated by {} for {trigger}", other.rule);
            return later(Waiting::Contested, format!("{message}, with other content"));
        }
        let was_edited = self.claim_was_edited(key, &id, &live);
        if !mine && !was_edited && ensure.existing == Existing::UpdateOwn {
            // It is made when the other one is gone, if the rule still wants it then.
            if rule.lifecycle.synchronize {
                self.add_read(key, RecordedRead::Object(id));
            }
            return Next::Done;
        }
        let as_wanted = match ensure.write {
            Write::Replace => same(&form, &live_form, &self.schema),
            Write::Apply { .. } => covers(&form, &live_form, &self.schema),
        };
        let hashes = (fingerprint(&form), fingerprint(&live_form));
        let edited = was_edited || (mark.is_some() && self.proof(&live) == Proof::Edited);
        // The user changed the trigger: the trigger as they left it is recorded, or it is lost after a restart.
        let left = mark.as_ref().filter(|_| mine).and_then(|mark| mark.left.as_ref());
        let outdated = sender.as_ref().zip(left).is_some_and(|(now, left)| !now.left.is_as(left));
        if !edited && !outdated && (as_wanted || self.settled.get(&id) == Some(&hashes)) {
            if self.contests.get(&id).is_some_and(|contest| contest.last + 600_000 < self.now) {
                self.contests.remove(&id);
            }
            return Next::Done;
        }
        let unchanged = mine
            && mark.as_ref().and_then(|mark| mark.content.as_deref())
                == Some(ensure.claim.content.to_string().as_str());
        let mut object = replacement(&wanted, &live);
        let subresource = ensure.subresource.clone().unwrap_or_default();
        // Perhaps the difference is only what a server adds: ask it with a dry run before writing. Only for an object whose
        // rule did not change (`unchanged`) or that another engine wrote; with a changed rule a write is due anyway.
        if !edited
            && !outdated
            && (unchanged || (mine && is_foreign(&live)))
            && matches!(ensure.write, Write::Replace)
            && covers(&form, &live_form, &self.schema)
        {
            let call = Call::Update { object: object.clone(), subresource, dry_run: true };
            let doing = Doing::Try { step: PlanStep::Ensure(ensure, sender), sent: object };
            return Next::Call(Box::new((call, doing)));
        }
        if (unchanged || edited)
            && !outdated
            && let Some(wait) = self.contested(key, &id)
        {
            self.keys.enqueue_at(key, wait);
            return later(Waiting::Contested, format!("another writer keeps changing {id}"));
        }
        let call = match ensure.write {
            Write::Apply { manager } => {
                object = wanted;
                Call::Apply { object: object.clone(), manager: manager.into(), force: true }
            }
            Write::Replace => Call::Update { object: object.clone(), subresource, dry_run: false },
        };
        Next::Call(Box::new((
            call,
            Doing::Write { step: PlanStep::Ensure(ensure, sender), sent: object },
        )))
    }

    /// Counts a correction of an object; when it was reverted too often, the time to wait for.
    ///
    /// The first corrections are immediate, so that an edit by hand is reverted at once. After `most` of them within a
    /// minute another writer insists, and corrections pause. The pause stays at five seconds if the other writer is not a
    /// rule, because its edit would stay otherwise; between two rules it doubles up to five times the longest back-off,
    /// because each correction costs another one. A quiet object is forgotten after a minute, a contested one after ten.
    pub(crate) fn contested(&mut self, key: &Key, id: &ObjectId) -> Option<u64> {
        let (now, most) = (self.now, self.settings.corrections);
        // Where rules fight, each correction costs another one. Another writer must not win by insisting.
        let longest = match self.keys.others_wanting(id, key).next() {
            Some(_) => self.settings.longest_backoff * 5,
            None => LONGEST_OPEN,
        };
        let contest = self.contests.entry(id.clone()).or_default();
        let quiet = if contest.corrections < most { 60_000 } else { 600_000 };
        if contest.last + quiet < now {
            *contest = Contest::default();
        }
        if contest.corrections >= most {
            let wait = 5_000_u64 << (contest.corrections - most).min(16);
            let allowed = contest.last + wait.min(longest);
            if now < allowed {
                return Some(allowed);
            }
        }
        contest.corrections += 1;
        contest.last = now;
        None
    }
}
