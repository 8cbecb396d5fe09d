//! What a rule wants of its trigger because of what happened to it.

use std::sync::Arc;

use kiln_cluster::KindKey;
use kiln_engine::{Event, Failure, FailureKind, Ownership, Verdict};
use kiln_object::metadata;
use kiln_rules::{Operation, Rule};
use kiln_value::Value;

use crate::cache::CacheView;
use crate::controller::Controller;
use crate::ownership::left::Left;
use crate::ownership::signature::Proof;
use crate::reconcile::plan::{Plan, PlanStep};
use crate::reports::Said;
use crate::work_queue::{Cause, Condition, Evidence, KeyState, Pending, Waiting, WorkKey};

/// A key that is looked at: its rule, what is known of it, and what the rule is shown.
struct Look<'l, 's> {
    rule: &'l Arc<Rule>,
    key: &'l WorkKey,
    state: &'l KeyState,
    sight: &'l CacheView<'s>,
}

/// What came of the events of a trigger.
enum Happened {
    /// One of them decides what there is to be.
    Decides(Box<Plan>),
    /// None of them does.
    Nothing {
        /// What there is to be all the same.
        once: Box<Plan>,
        /// Who caused one of them is not known.
        unknown_user: bool,
        /// One of them is none of the rule's business.
        unasked: bool,
    },
}

impl Controller {
    /// Of a rule that synchronizes: what there is to be as long as the trigger is one.
    ///
    /// The order of the parts is the meaning of the function:
    /// 1. Requests that store nothing (`kubectl exec`) are served from what was sent; there is nothing to synchronize.
    /// 2. If the trigger is gone, a rule on deletions may fire; otherwise its downstreams go (`settle`).
    /// 3. The newest event that the rule takes decides, and becomes the *cause*: who did what to the trigger.
    /// 4. Without such an event the remembered cause is evaluated again, since sources or the policy may have changed.
    ///
    /// An evaluation in a user's name is repeated only for the trigger as that user left it. Otherwise another user
    /// could edit the trigger and have the rule act with the first user's identity. Where that cannot be told, existing
    /// downstreams stay as they are: keeping something too long is repaired by the next request, deleting is not.
    pub(crate) fn desired_synchronized(
        &self,
        rule: &Arc<Rule>,
        key: &WorkKey,
        state: &KeyState,
        sight: &CacheView<'_>,
    ) -> Result<Plan, Option<Condition>> {
        let looked_at = Look { rule, key, state, sight };
        let mut once = Plan::nothing();
        for pending in &state.pending {
            if pending.sent.is_some() {
                let event = pending.event(None);
                let outcome = self.run(rule, &event, sight, state);
                once.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
            }
        }
        let Some(live) = self.live_trigger(key) else {
            return self.desired_of_gone(&looked_at, once);
        };
        let happened = self.desired_of_events(&looked_at, live, once);
        let (once, unknown_user, unasked) = match happened {
            Happened::Decides(wanted) => return Ok(*wanted),
            Happened::Nothing { once, unknown_user, unasked } => (*once, unknown_user, unasked),
        };
        let Some(cause) = &state.cause else {
            let wait = self.user_is_awaited(rule, state).filter(|_| unknown_user);
            return wait.map_or(Ok(once), |wait| Err(Some(wait)));
        };
        let passes_over =
            rule.asks_for_user() && state.pending.iter().any(|pending| pending.user.is_some());
        if unasked || passes_over {
            // The change is none of the rule's business, because of who made it or of what it is.
            return Ok(once);
        }
        Ok(self.desired_of_cause(&looked_at, live, cause, once))
    }

    /// Of a trigger that is gone: a rule on deletions may fire on it; otherwise its downstreams go.
    fn desired_of_gone(
        &self,
        look: &Look<'_, '_>,
        mut once: Plan,
    ) -> Result<Plan, Option<Condition>> {
        let Look { rule, key, state, sight } = *look;
        // Of several deletions that are known (a watch and a request), the one with a user says more.
        let deleted = state
            .pending
            .iter()
            .filter(|pending| pending.operation == Some(Operation::Delete))
            .max_by_key(|pending| pending.user.is_some());
        if let Some(pending) = deleted {
            let event = pending.event(None);
            if rule.asks_for_user() && event.user.is_none() {
                let wait = self.user_is_awaited(rule, state);
                return wait.map_or(Ok(once), |wait| Err(Some(wait)));
            }
            let outcome = self.run(rule, &event, sight, state);
            match outcome.verdict {
                _ if !outcome.asked => {}
                // It fires on the end of its trigger, and what it makes stays.
                Verdict::Pass | Verdict::Error => {
                    once.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
                    return Ok(once);
                }
                Verdict::Lapsed => {}
                _ if rule.asks_for_user() => return Ok(once),
                _ => {}
            }
        } else if rule.asks_for_user() || !once.nothing {
            return Ok(once);
        }
        // An absent trigger counts as deleted only if its kind is listed: a failed list must not delete downstreams.
        if self.trigger_kind_is_known(key) {
            once.nothing = false;
            once.settle = true;
        }
        Ok(once)
    }

    /// Of what happened to a trigger that is there: the first event that the rule takes decides, and becomes the cause.
    fn desired_of_events(&self, look: &Look<'_, '_>, live: &Value, mut once: Plan) -> Happened {
        let Look { rule, state, sight, .. } = *look;
        let (mut unknown_user, mut unasked) = (false, false);
        let is_stored = |pending: &&Pending| {
            pending.sent.is_none() && pending.operation != Some(Operation::Delete)
        };
        for pending in state.pending.iter().filter(is_stored) {
            if rule.asks_for_user() && pending.user.is_none() && pending.operation.is_some() {
                unknown_user = true;
                continue;
            }
            let (event, outcome) = self.run_for(rule, pending, live, sight, state);
            if !outcome.asked {
                unasked = true;
                continue;
            }
            let said = Said::of(&outcome);
            match outcome.verdict {
                // Its downstreams stay as they are.
                _ if outcome.is_excepted() => once.said = said,
                Verdict::Pass | Verdict::Error => {
                    let user = event.user.clone();
                    let evidence = match pending.guessed {
                        true => Evidence::Guessed,
                        false => Evidence::Known,
                    };
                    let ensures = self.ensures(rule, &outcome, &event, sight, state);
                    // Where it makes no difference who it was, the trigger may change.
                    let bound = rule.asks_for_user() || ensures.iter().any(PlanStep::is_for_user);
                    let left = user.as_ref().and(event.trigger()).filter(|_| bound).map(Left::of);
                    let cause = Cause { operation: event.operation, user, evidence, left };
                    let mut wanted =
                        Plan { cause: Some(cause), settle: true, said, ..Plan::nothing() };
                    wanted.take(ensures, outcome);
                    return Happened::Decides(Box::new(wanted));
                }
                Verdict::Lapsed => {
                    let lapsed = Plan { settle: true, nothing: false, ..Plan::nothing() };
                    return Happened::Decides(Box::new(Plan { said, ..lapsed }));
                }
                Verdict::Skip | Verdict::NoMatch => {
                    once.skipped |= outcome.verdict == Verdict::Skip && only_labels(pending, live);
                }
            }
        }
        Happened::Nothing { once: Box::new(once), unknown_user, unasked }
    }

    /// Of what made a trigger one before: the rule runs again, since sources or the policy may have changed.
    ///
    /// Whatever is in doubt ends with downstreams as they are: a user who is unknown, an unsigned claim, a trigger
    /// that another user changed since. Keeping something too long is repaired by the next request, deleting is not.
    fn desired_of_cause(
        &self,
        look: &Look<'_, '_>,
        live: &Value,
        cause: &Cause,
        once: Plan,
    ) -> Plan {
        let Look { rule, key, state, sight } = *look;
        let unsure = cause.evidence != Evidence::Known && cause.user.is_none();
        let only_claimed = cause.evidence == Evidence::Claimed;
        // A rule that asks who sent a request may not have asked when this one came.
        let unasked_for = cause.operation.is_some() && cause.user.is_none();
        if ((unsure || unasked_for) && rule.asks_for_user())
            || (only_claimed && self.checkpoint.ignored.get(&key.trigger).is_some())
        {
            // The user is unknown: existing downstreams stay as they are.
            return once;
        }
        let mut event = match cause.operation {
            Some(_) => Event::created(live.clone()),
            None => Event::existing(live.clone()),
        };
        event.operation = cause.operation;
        event.matched_as = cause.operation.unwrap_or(Operation::Create);
        event.user = cause.user.clone();
        let outcome = self.run(rule, &event, sight, state);
        let said = Said::of(&outcome);
        if outcome.is_excepted() || !outcome.asked {
            return Plan { said, ..once };
        }
        // What cannot be made again without its request stays as it is, until the next one.
        let source_is_missing =
            |failure: &Failure| matches!(failure.kind, FailureKind::SourceMissing(_));
        if unsure
            && !outcome.failures.is_empty()
            && !outcome.failures.iter().any(source_is_missing)
            && self.has_claims(key)
        {
            return once;
        }
        // Another user changed the trigger, who does not act for the one who made it a trigger.
        let is_left = cause.left.as_ref().is_some_and(|left| left.is(live));
        if cause.user.is_some()
            && !is_left
            && !(outcome.effects.is_empty() && outcome.failures.is_empty())
            && self.depends_on_user(rule, &outcome, &event, sight, state)
        {
            return once;
        }
        let mut wanted = Plan { settle: true, nothing: false, only_claimed, ..Plan::nothing() };
        // What is not a trigger any more has nothing to report.
        wanted.said = said.or(Some(Said::Nothing));
        wanted.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
        wanted.nothing = false;
        wanted
    }

    /// Whether something says that a key's rule made it of its trigger.
    fn has_claims(&self, key: &WorkKey) -> bool {
        let mut claims = self.cache.claimed_by(&key.trigger);
        claims.any(|(_, object)| Ownership::read(object).is_some_and(|mark| mark.is_of(&key.rule)))
    }

    /// The trigger of a key, unless it is gone or about to be.
    fn live_trigger(&self, key: &WorkKey) -> Option<&Value> {
        let (_, object) = self.cache.by_uid(&key.trigger)?;
        (!metadata::is_deleted(object)).then_some(object)
    }

    /// Of a rule that does not synchronize: what there is to be because something happened.
    ///
    /// Every event is served once, for the trigger as it is now; nothing is evaluated again and nothing is deleted, so
    /// there is no cause to remember. A trigger that is gone by now gets nothing, as with Kyverno.
    pub(crate) fn desired_once(
        &self,
        rule: &Arc<Rule>,
        key: &WorkKey,
        state: &KeyState,
        sight: &CacheView<'_>,
    ) -> Result<Plan, Option<Condition>> {
        let live = self.live_trigger(key);
        let mut wanted = Plan::nothing();
        let mut unknown_user = false;
        for pending in &state.pending {
            let of_nothing = pending.sent.is_some() || pending.operation == Some(Operation::Delete);
            if live.is_none() && !of_nothing {
                continue;
            }
            if rule.asks_for_user() && pending.user.is_none() && pending.operation.is_some() {
                unknown_user = true;
                continue;
            }
            let (event, outcome) = match live.filter(|_| !of_nothing) {
                Some(live) => self.run_for(rule, pending, live, sight, state),
                None => {
                    let event = pending.event(None);
                    let outcome = self.run(rule, &event, sight, state);
                    (event, outcome)
                }
            };
            wanted.said = Said::of(&outcome).or(wanted.said);
            match outcome.verdict {
                _ if outcome.is_excepted() => {}
                Verdict::Pass | Verdict::Error => {
                    wanted.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
                }
                Verdict::Skip => {
                    wanted.skipped |= live.is_some_and(|live| only_labels(pending, live));
                }
                _ => {}
            }
        }
        let wait = self.user_is_awaited(rule, state).filter(|_| wanted.nothing && unknown_user);
        wait.map_or(Ok(wanted), |wait| Err(Some(wait)))
    }

    /// The condition that the user behind a trigger is unknown; none when it was waited for long enough.
    fn user_is_awaited(&self, rule: &Rule, state: &KeyState) -> Option<Condition> {
        let message = "waiting for the admission request that says who created the trigger";
        let condition = Condition { reason: Waiting::Missing, message: message.into() };
        let awaited = state.pending.iter().any(|event| self.awaits_user(rule, event));
        awaited.then_some(condition)
    }

    /// Whether an event waits for the request that says who caused it.
    pub(crate) fn awaits_user(&self, rule: &Rule, event: &Pending) -> bool {
        rule.asks_for_user()
            && event.user.is_none()
            && event.operation.is_some()
            && self.now < event.since + self.env.settings.requests.hint_life
    }

    /// Whether the kind of a key's trigger is followed, so that an absent one is gone.
    fn trigger_kind_is_known(&self, key: &WorkKey) -> bool {
        let state = self.queue.get(key);
        if let Some(id) = state.and_then(|state| state.trigger.as_ref()) {
            return self.cache.is_known(&KindKey::of(&id.gvk));
        }
        // Each object that an unsigned claim is on is asked about its own.
        let mut kinds = self
            .cache
            .claimed_by(&key.trigger)
            .filter(|(_, object)| self.proof(object) == Proof::Proven)
            .filter_map(|(_, object)| Ownership::read(object))
            .map(|mark| KindKey::of(&mark.labels.trigger_kind));
        kinds.all(|kind| self.cache.is_known(&kind))
    }
}

/// Whether an update changed nothing but labels and annotations.
fn only_labels(pending: &Pending, live: &Value) -> bool {
    let Some(old) = pending.old.as_ref().filter(|_| pending.operation == Some(Operation::Update))
    else {
        return false;
    };
    let rest = |object: &Value| {
        let mut object = object.clone();
        for field in ["labels", "annotations", "resourceVersion", "generation", "managedFields"] {
            object.remove(["metadata", field]);
        }
        object.remove(["status"]);
        object
    };
    rest(old) == rest(live)
}
