//! Doing what was decided: step by step, one call at a time per key. What follows from the answers is in
//! [`crate::reconcile::call_results`].

use std::collections::{BTreeSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kiln_cluster::{Call, KindKey, Preconditions};
use kiln_engine::{
    Effect, Ensure, Existing, Failure, Ownership, PatchEffect, PatchTarget, RecordedRead,
    RuleOutcome,
};
use kiln_object::{ObjectId, metadata};
use kiln_value::{Str, Value};

use crate::controller::Controller;
use crate::outbox::Purpose;
use crate::ownership::left::Sender;
use crate::ownership::released;
use crate::reconcile::decide::Decision;
use crate::reports::Said;
use crate::work_queue::{Cause, Condition, Pending, WorkKey};

/// What is to be done about a key. The evaluation of its rule fills it, the decision completes it, and its steps are taken
/// one by one: this is the one form that an object has from the engine's effect to the call.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: VecDeque<PlanStep>,
    pub(crate) reads: Vec<RecordedRead>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) cause: Option<Cause>,
    /// Only unsigned claims say that the trigger is one: only what carries them is written.
    pub(crate) only_claimed: bool,
    /// Of such a trigger: the objects that are written for it.
    pub(crate) adopted: BTreeSet<ObjectId>,
    /// Objects that are not wanted go.
    pub(crate) settle: bool,
    /// The trigger came, changed or went in a way that is none of the rule's business.
    pub(crate) nothing: bool,
    /// The key is remembered afterwards.
    pub(crate) keep: bool,
    /// The trigger is none any more.
    pub(crate) over: bool,
    /// Labels or annotations changed, and the rule makes nothing of it.
    pub(crate) skipped: bool,
    /// What is reported of it.
    pub(crate) said: Option<Said>,
}

impl Plan {
    /// Nothing is to be done, because nothing happened that the rule takes.
    pub(crate) fn nothing() -> Self {
        Plan { nothing: true, ..Plan::default() }
    }

    /// Adds what an evaluation wants: these objects, and the rest of its outcome.
    pub(crate) fn take(&mut self, ensures: Vec<PlanStep>, outcome: RuleOutcome) {
        self.nothing = false;
        self.steps.extend(ensures);
        self.steps.extend(outcome.effects.into_iter().filter_map(|effect| match effect {
            Effect::Patch(patch) if patch.target != PatchTarget::Trigger => {
                Some(PlanStep::Patch(patch))
            }
            _ => None,
        }));
        self.failures.extend(outcome.failures);
        for read in outcome.reads {
            if !self.reads.contains(&read) {
                self.reads.push(read);
            }
        }
    }

    /// The objects that there are to be.
    pub(crate) fn wants(&self) -> impl Iterator<Item = &ObjectId> {
        self.steps.iter().filter_map(|step| match step {
            PlanStep::Ensure(ensure, _) => Some(&ensure.target),
            _ => None,
        })
    }

    /// Adds removals, and puts all steps in order: Namespaces first, since what goes into them needs them; deletions last,
    /// so that a downstream that is renamed is never missing in between.
    pub(crate) fn finish_with(&mut self, removals: Vec<PlanStep>) {
        self.steps.extend(removals);
        self.steps.make_contiguous().sort_by_key(|step| match step {
            PlanStep::Ensure(ensure, _) if ensure.target.gvk.kind == "Namespace" => 0,
            PlanStep::Ensure(..) => 1,
            PlanStep::Patch(_) => 2,
            PlanStep::Delete(_) | PlanStep::Release(_) => 3,
        });
    }
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum PlanStep {
    /// An object is to be so; with the user in whose name, if that makes a difference.
    Ensure(Box<Ensure>, Option<Sender>),
    /// A stored object is to be changed.
    Patch(Box<PatchEffect>),
    Delete(ObjectId),
    Release(ObjectId),
}

impl PlanStep {
    /// Whether it is in the name of a user.
    pub(crate) fn is_for_user(&self) -> bool {
        matches!(self, PlanStep::Ensure(_, Some(_)))
    }
}

/// Work on a key.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Plan,
    /// What is being done.
    pub(crate) current: Option<InFlight>,
    /// Events that this work answers.
    pub(crate) pending: Vec<Pending>,
    pub(crate) conditions: Vec<Condition>,
    /// Something to delete was left for later.
    pub(crate) deferred: bool,
    /// The trigger was read again, and is as the mirror says.
    pub(crate) verified: bool,
    pub(crate) made: Vec<ObjectId>,
}

impl Job {
    fn of(plan: Plan, pending: Vec<Pending>) -> Self {
        Job {
            plan,
            current: None,
            pending,
            conditions: Vec::new(),
            deferred: false,
            verified: false,
            made: Vec::new(),
        }
    }
}

/// A step whose call is under way.
#[derive(Debug)]
pub(crate) struct InFlight {
    pub(crate) step: PlanStep,
    pub(crate) phase: CallPhase,
}

/// What the call of a step is for.
#[derive(Debug)]
pub(crate) enum CallPhase {
    Write {
        sent: Value,
    },
    /// A trial, to see what a server would store.
    Try {
        sent: Value,
    },
    Delete {
        uid: Str,
    },
    /// Reads the trigger again, before something is deleted because of it.
    Verify {
        trigger: ObjectId,
    },
}

/// What a step takes: nothing any more, a call, or something that is not there yet.
pub(crate) type NextCall = Result<Option<Box<(Call, InFlight)>>, Condition>;

/// The call of a step.
pub(crate) fn call(call: Call, step: PlanStep, phase: CallPhase) -> NextCall {
    Ok(Some(Box::new((call, InFlight { step, phase }))))
}

impl Controller {
    /// Looks at a key, and begins what is to be done.
    pub(crate) fn reconcile(&mut self, key: &WorkKey) {
        let now = self.now;
        if let Some(state) = self.queue.get_mut(key) {
            state.at.get_or_insert(now);
        }
        let decision = self.unless_it_panics(|| self.decide(key));
        match decision.unwrap_or_else(|panicked| Decision::Fail(panicked.condition())) {
            Decision::Forget => {
                let awaited = self.take_pending(key).1;
                if awaited.is_empty() {
                    return self.forget(key);
                }
                self.keep_waiting(key, awaited);
                self.leave_pass(key);
            }
            Decision::Wait(condition) => {
                let (tier_snapshot, awaited) = self.take_pending(key);
                self.keep_waiting(key, awaited);
                self.put_back(key, tier_snapshot);
                self.queue.entry(key).condition = condition;
                self.leave_pass(key);
            }
            Decision::Follow(kinds) => {
                let waits_for = kinds.iter().map(KindKey::of).collect();
                for kind in kinds {
                    self.cache.follow(&kind);
                }
                // It goes on when the kinds are known, and blocks no other key until then.
                self.work.await_kinds(key, waits_for);
                self.leave_pass(key);
            }
            Decision::Fail(condition) => {
                let (pending, awaited) = self.take_pending(key);
                self.keep_waiting(key, awaited);
                self.leave_pass(key);
                let plan = Plan { keep: true, ..Plan::default() };
                let job = Job { conditions: vec![condition], ..Job::of(plan, pending) };
                self.work.begin(key, job);
                self.finish(key);
            }
            Decision::Ask(questions) => {
                self.lookups.ask(key, questions);
                self.leave_pass(key);
            }
            Decision::Do(mut plan) => {
                let (pending, awaited) = self.take_pending(key);
                self.keep_waiting(key, awaited);
                let state = self.queue.entry(key);
                let before = plan.cause.take().map(|cause| {
                    let now = cause.left.clone();
                    (state.cause.replace(cause).and_then(|before| before.left), now)
                });
                state.adopted.append(&mut plan.adopted);
                self.queue.set_wants(key, plan.wants().cloned().collect());
                self.forget_replaced(key);
                self.queue.set_reads(key, std::mem::take(&mut plan.reads));
                if let Some((Some(before), Some(now))) = before
                    && !before.is_as(&now)
                {
                    self.end_cause(key, now.revision.saturating_sub(1));
                }
                self.leave_pass(key);
                self.work.begin(key, Job::of(*plan, pending));
                self.go_on(key);
            }
        }
    }

    /// The events of a key: those that were looked at, and those that wait until their user is known.
    fn take_pending(&mut self, key: &WorkKey) -> (Vec<Pending>, Vec<Pending>) {
        let Some(state) = self.queue.get_mut(key) else { return Default::default() };
        let pending = std::mem::take(&mut state.pending);
        let Some(rule) = self.policies.rules.rule(&key.rule) else { return (pending, Vec::new()) };
        pending.into_iter().partition(|event| !self.awaits_user(rule, event))
    }

    /// Keeps events until their user is known, or was waited for long enough.
    fn keep_waiting(&mut self, key: &WorkKey, awaited: Vec<Pending>) {
        let Some(since) = awaited.iter().map(|event| event.since).min() else { return };
        self.queue.entry(key).pending = awaited;
        self.queue.enqueue_at(key, since + self.env.settings.requests.hint_life);
    }

    /// The next step of a job, until one needs an answer.
    pub(crate) fn go_on(&mut self, key: &WorkKey) {
        loop {
            let Some(job) = self.work.job(key) else { return };
            let Some(step) = job.plan.steps.pop_front() else { return self.finish(key) };
            let gone = !key.trigger.is_empty() && self.policies.rules.rule(&key.rule).is_none();
            if gone {
                return self.finish(key);
            }
            // What it changes is added to: nothing is left half done that others rely on.
            let next = catch_unwind(AssertUnwindSafe(|| self.next(key, step)));
            match next.unwrap_or_else(|_| Err(self.panicked().condition())) {
                Ok(None) => {}
                Err(condition) => {
                    if let Some(job) = self.work.job(key) {
                        job.conditions.push(condition);
                    }
                }
                Ok(Some(next)) => {
                    let (call, in_flight) = *next;
                    let id = call.about();
                    if !self.work.may_write(key, &id) {
                        // Another key writes it right now: looked at again when that is answered.
                        if let Some(job) = self.work.end(key) {
                            self.put_back(key, job.pending);
                        }
                        return;
                    }
                    if let Some(job) = self.work.job(key) {
                        job.current = Some(in_flight);
                    }
                    return self.ask(Purpose::Step(key.clone()), call);
                }
            }
        }
    }

    fn next(&mut self, key: &WorkKey, step: PlanStep) -> NextCall {
        match step {
            PlanStep::Ensure(ensure, user) => self.next_ensure(key, ensure, user),
            PlanStep::Patch(patch) => self.next_patch(patch),
            PlanStep::Delete(id) => self.next_delete(key, id),
            PlanStep::Release(id) => {
                let Some(live) = self.cache.get(&id) else { return Ok(None) };
                let sent = released(live);
                call(Call::update(sent.clone()), PlanStep::Release(id), CallPhase::Write { sent })
            }
        }
    }

    /// Changes a stored object, if it is still the one that the rule saw.
    fn next_patch(&self, patch: Box<PatchEffect>) -> NextCall {
        let PatchTarget::Stored { object: id, subresource } = &patch.target else {
            return Ok(None);
        };
        let Some(live) = self.cache.get(id) else { return Ok(None) };
        if metadata::is_deleted(live) || patch.after == patch.before {
            return Ok(None);
        }
        let mut sent = patch.after.clone();
        if let Some(version) = metadata::resource_version(&patch.before) {
            // A patched object has metadata.
            let _ = sent.set(["metadata", "resourceVersion"], version);
        }
        let subresource = subresource.clone().unwrap_or_default();
        let update = Call::Update { object: sent.clone(), subresource, dry_run: false };
        call(update, PlanStep::Patch(patch), CallPhase::Write { sent })
    }

    /// The trigger of a key, as far as its name is known.
    fn trigger_of(&self, key: &WorkKey, made: &ObjectId) -> Option<ObjectId> {
        if key.trigger.is_empty() {
            return None;
        }
        let known = self.queue.get(key).and_then(|state| state.trigger.clone());
        known.or_else(|| Ownership::read(self.cache.get(made)?)?.trigger())
    }

    fn next_delete(&mut self, key: &WorkKey, id: ObjectId) -> NextCall {
        let Some(live) = self.cache.get(&id) else { return Ok(None) };
        let Some(uid) = metadata::uid(live).map(Str::from) else { return Ok(None) };
        // Another rule that wants it adopts it, unless it adopts nothing and waits until it is gone. What another
        // engine wrote on it may name two rules, and then it is for the one that wants it.
        let mark = Ownership::read(live);
        let takes_over = |other: &&WorkKey| {
            let rule = self.policies.rules.rule(&other.rule);
            rule.is_some_and(|rule| rule.lifecycle.on_conflict == Existing::Update)
                || mark.as_ref().is_some_and(|mark| mark.is_by(&other.rule, &other.trigger))
        };
        let others: Vec<WorkKey> =
            self.queue.others_wanting(&id, key).filter(takes_over).cloned().collect();
        if !others.is_empty() {
            for other in others {
                self.queue.enqueue(&other, self.now);
            }
            return Ok(None);
        }
        if self.work.is_in_pass() {
            self.work.defer(key);
            return Ok(None);
        }
        if metadata::is_deleted(live) || self.downstreams.is_deleting(&uid) {
            return Ok(None);
        }
        // The mirror may lag behind: the trigger may be one again.
        if let Some(trigger) = self.trigger_of(key, &id)
            && self.work.job(key).is_some_and(|job| !job.verified)
        {
            let phase = CallPhase::Verify { trigger: trigger.clone() };
            return call(Call::Get(trigger), PlanStep::Delete(id), phase);
        }
        let preconditions = Preconditions {
            uid: Some(uid.clone()),
            resource_version: metadata::resource_version(live).map(Str::from),
        };
        let delete = Call::Delete { target: id.clone(), preconditions };
        call(delete, PlanStep::Delete(id), CallPhase::Delete { uid })
    }

    /// Looks at a key again when something changes that it depends on.
    pub(crate) fn add_read(&mut self, key: &WorkKey, read: RecordedRead) {
        let mut reads = self.queue.get(key).map(|state| state.reads.clone()).unwrap_or_default();
        if !reads.contains(&read) {
            reads.push(read);
            self.queue.set_reads(key, reads);
        }
    }
}
