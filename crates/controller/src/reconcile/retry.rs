//! What becomes of a key when its work is done, or could not be done.

use kiln_engine::{Failure, FailureKind};

use crate::cache::revision_of;
use crate::controller::{Controller, ControllerEvent};
use crate::reconcile::plan::Job;
use crate::settings::RetrySettings;
use crate::work_queue::{Condition, KeyState, Waiting, WorkKey};

impl Controller {
    /// The work on a key is done, as far as it could be.
    pub(crate) fn finish(&mut self, key: &WorkKey) {
        let Some(job) = self.work.end(key) else { return };
        let Job { plan, pending, mut conditions, deferred, made, .. } = job;
        if key.trigger.is_empty() {
            return self.finish_removed(key, &conditions, deferred);
        }
        conditions.extend(plan.failures.iter().map(condition_of));
        let worst = conditions.iter().max_by_key(|condition| severity(condition.reason)).cloned();
        let now = self.now;
        // Kinds that are being listed are known in a moment, or their failure is reported then.
        let listing = self.work.awaits_kinds(key);
        if !listing {
            self.show(key, worst.as_ref(), plan.skipped, &made);
        }
        self.report(key, plan.said, worst.as_ref());
        if plan.over && worst.is_none() && !deferred {
            self.cause_is_over(key);
        }
        let Some(state) = self.queue.get_mut(key) else { return };
        let before = std::mem::replace(&mut state.condition, worst.clone());
        let trigger = state.trigger.clone();
        let was_forbidden = before.as_ref().is_some_and(|b| b.reason == Waiting::Forbidden);
        let Some(worst) = worst else {
            (state.failures, state.tries) = (0, 0);
            let keeps = plan.keep
                && (!state.wants.is_empty()
                    // Something that it read may come or change.
                    || !state.reads.is_empty()
                    || deferred
                    || self.cache.claimed_by(&key.trigger).next().is_some());
            let looked_at_again = self.queue.is_queued(key) || !state_is_quiet(self.queue.get(key));
            if !keeps && !looked_at_again {
                self.forget(key);
            }
            if was_forbidden {
                self.rights_changed();
            }
            return;
        };
        if !listing && before.as_ref() != Some(&worst) {
            let (rule, condition) = (key.rule.clone(), worst.clone());
            let missing = plan.failures.iter().find(|failure| is_missing_source(failure));
            match (worst.reason, missing) {
                (Waiting::Missing, Some(failure)) => {
                    let message = failure.to_string();
                    self.tell(ControllerEvent::SourceMissing { rule, trigger, message });
                }
                // A namespace that is being created comes in a moment.
                (Waiting::Missing, None) => {}
                _ => self.tell(ControllerEvent::Failed { rule, trigger, condition }),
            }
        }
        // Its events were not served. They are looked at again with the next try, and not from the cache alone: a cache
        // holds what is there, not who did it.
        self.put_back(key, pending);
        if worst.reason == Waiting::Forbidden {
            self.follow_rights();
        }
        let retry = self.env.settings.retry;
        let Some(state) = self.queue.get_mut(key) else { return };
        if let Some(wait) = wait_before_retry(state, worst.reason, retry) {
            self.queue.enqueue_at(key, now + wait);
        }
    }

    /// A trigger is none any more. What a user caused is not caused again by another user who restores it.
    fn cause_is_over(&mut self, key: &WorkKey) {
        let live = self.cache.by_uid(&key.trigger).map(|(_, live)| revision_of(live));
        let Some(state) = self.queue.get_mut(key) else { return };
        if state.cause.as_ref().is_some_and(|cause| cause.left.is_some()) {
            state.cause = None;
            if let Some(revision) = live {
                self.end_cause(key, revision);
            }
        }
    }

    fn finish_removed(&mut self, key: &WorkKey, conditions: &[Condition], deferred: bool) {
        if deferred {
            return;
        }
        if let Some(condition) = conditions.first() {
            let wait = match condition.reason {
                Waiting::Forbidden => self.env.settings.retry.park,
                _ => self.env.settings.retry.backoff * 2,
            };
            self.queue.entry(key).condition = Some(condition.clone());
            if condition.reason == Waiting::Forbidden {
                self.follow_rights();
            }
            return self.queue.enqueue_at(key, self.now + wait);
        }
        if self.queue.is_queued(key) {
            return;
        }
        let removed = self.removed(key);
        self.forget(key);
        self.removed_is_done(key, &removed);
    }
}

/// Whether nothing more happened to the trigger.
fn state_is_quiet(state: Option<&KeyState>) -> bool {
    state.is_none_or(|state| state.pending.is_empty())
}

/// Counts a failure of a key, and says how long to wait before it is tried again; none if only an event helps.
fn wait_before_retry(state: &mut KeyState, reason: Waiting, retry: RetrySettings) -> Option<u64> {
    match reason {
        Waiting::Unavailable => {
            state.tries += 1;
            Some(backoff(retry, state.tries))
        }
        // Rights mostly come soon after they are missed.
        Waiting::Forbidden => {
            state.tries += 1;
            Some(backoff(retry, state.tries + 2).min(retry.park))
        }
        Waiting::Failed => {
            state.failures += 1;
            (state.failures <= retry.retries).then(|| backoff(retry, state.failures + 1))
        }
        // It goes on when what is missing comes, and is looked at now and then.
        Waiting::Missing => Some(retry.longest_backoff),
        Waiting::Contested | Waiting::Loop => None,
    }
}

/// How long to wait before the next try.
pub(crate) fn backoff(retry: RetrySettings, tries: u32) -> u64 {
    let RetrySettings { backoff, longest_backoff, .. } = retry;
    backoff.saturating_mul(1 << tries.min(20).saturating_sub(1)).min(longest_backoff)
}

/// Which of several conditions counts: it decides what users read, and when the key is tried again. So what passes by
/// itself comes first: if one part only waits for an event and another for a server that is down, waiting for the event
/// alone would leave the other part undone.
fn severity(reason: Waiting) -> u8 {
    match reason {
        Waiting::Unavailable => 5,
        Waiting::Forbidden => 4,
        Waiting::Failed => 3,
        Waiting::Contested => 2,
        Waiting::Loop => 1,
        Waiting::Missing => 0,
    }
}

fn is_missing_source(failure: &Failure) -> bool {
    matches!(failure.kind, FailureKind::SourceMissing(_))
}

fn condition_of(failure: &Failure) -> Condition {
    let reason = match &failure.kind {
        FailureKind::SourceMissing(_) => Waiting::Missing,
        FailureKind::Read | FailureKind::Unserved | FailureKind::Undecided => Waiting::Unavailable,
        FailureKind::Forbidden | FailureKind::Denied => Waiting::Forbidden,
        FailureKind::Loop => Waiting::Loop,
        _ => Waiting::Failed,
    };
    Condition { reason, message: failure.to_string() }
}
