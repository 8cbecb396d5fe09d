//! Making an object what a rule wants: whether it takes a write, and which one.

use kiln_cluster::{Call, KindKey, Reason};
use kiln_engine::{Ensure, Existing, Read};
use kiln_object::{ObjectId, metadata};
use kiln_rules::Write;

use crate::compare::{
    content_only, covers, fingerprint, is_foreign, live_form, replacement, same, taken_over,
    wanted_form,
};
use crate::controller::{Contest, Controller};
use crate::keys::{Condition, Key, Waiting};
use crate::left::Sender;
use crate::mark::{Mark, marked};
use crate::mirror::State;
use crate::plan::{Doing, Next, Step};
use crate::signature::Proof;

/// How long an edit stays at most that is made again and again, when no other rule makes it.
const LONGEST_OPEN: u64 = 5_000;

impl Controller {
    /// The call that makes an object what a rule wants, if it takes one.
    pub(crate) fn next_ensure(
        &mut self,
        key: &Key,
        ensure: Box<Ensure>,
        sender: Option<Sender>,
    ) -> Next {
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return Next::Done };
        let id = ensure.target.clone();
        let later = |reason, message: String| Next::Later(Condition { reason, message });
        match self.mirror.kinds.get(&KindKey::of(&id.gvk)).map(|kind| (&kind.state, kind.revision))
        {
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
        let live = self.mirror.get(&id).cloned();
        if let Some(live) = &live {
            let uid = metadata::uid(live).unwrap_or_default();
            if metadata::is_deleted(live) || self.deleting.contains(uid) {
                let once = ensure.existing == Existing::Keep || !rule.lifecycle.synchronize;
                if once {
                    return Next::Done;
                }
                // It is made again when the old one is gone.
                self.keys.entry(key);
                self.add_read(key, Read::Object(id.clone()));
                return later(Waiting::Missing, format!("{id} is on its way out"));
            }
        }
        let life = self.life_of(&rule);
        let wanted = marked(&ensure, &rule, &life, sender.as_ref(), &self.settings.claim_keys);
        let Some(live) = live else {
            if ensure.subresource.is_some() {
                self.add_read(key, Read::Object(id.clone()));
                return later(Waiting::Missing, format!("{id} is not there"));
            }
            let call = match ensure.write {
                Write::Apply { manager } => {
                    Call::Apply { object: wanted.clone(), manager: manager.into(), force: true }
                }
                Write::Replace => Call::create(wanted.clone()),
            };
            return Next::Call(Box::new((
                call,
                Doing::Write { step: Step::Ensure(ensure, sender), sent: wanted },
            )));
        };
        if ensure.existing == Existing::Keep {
            return Next::Done;
        }
        let mark = Mark::read(&live);
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
                self.add_read(key, Read::Object(id.clone()));
            }
            if content_only(&form) == content_only(&live_form) {
                return Next::Done;
            }
            // A UID says nothing to people.
            let state = self.keys.get(&other);
            let trigger = state.and_then(|state| state.trigger.as_ref()).map(ToString::to_string);
            let trigger = trigger.unwrap_or_else(|| other.trigger.to_string());
            let message = format!("{id} is made by {} for {trigger} as well", other.rule);
            return later(Waiting::Contested, format!("{message}, with other content"));
        }
        let was_edited = self.claim_was_edited(key, &id, &live);
        if !mine && !was_edited && ensure.existing == Existing::UpdateOwn {
            // It is made when the other one is gone, if the rule still wants it then.
            if rule.lifecycle.synchronize {
                self.add_read(key, Read::Object(id));
            }
            return Next::Done;
        }
        let as_wanted = match ensure.write {
            Write::Replace => same(&form, &live_form, &self.schema),
            Write::Apply { .. } => covers(&form, &live_form, &self.schema),
        };
        let hashes = (fingerprint(&form), fingerprint(&live_form));
        let edited = was_edited || (mark.is_some() && self.proof(&live) == Proof::Edited);
        // Whoever caused it changed the trigger: what they caused it of is written down, or nobody knows it after a restart.
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
        // Perhaps the difference is only what a server adds.
        if !edited
            && !outdated
            && (unchanged || (mine && is_foreign(&live)))
            && matches!(ensure.write, Write::Replace)
            && covers(&form, &live_form, &self.schema)
        {
            let call = Call::Update { object: object.clone(), subresource, dry_run: true };
            let doing = Doing::Try { step: Step::Ensure(ensure, sender), sent: object };
            return Next::Call(Box::new((call, doing)));
        }
        if (unchanged || edited)
            && !outdated
            && let Some(wait) = self.contested(key, &id)
        {
            self.keys.enqueue_at(key, wait);
            return later(Waiting::Contested, format!("somebody else keeps changing {id}"));
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
            Doing::Write { step: Step::Ensure(ensure, sender), sent: object },
        )))
    }

    /// Counts a correction of an object; when it was put right too often, the time to wait for.
    pub(crate) fn contested(&mut self, key: &Key, id: &ObjectId) -> Option<u64> {
        let (now, most) = (self.now, self.settings.corrections);
        // Where rules fight, each correction costs another one. Whoever else edits must not win by going on.
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
