//! What is to be done about one key: what its rule wants of its trigger, against what there is.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kiln_cluster::{KindKey, Reason};
use kiln_engine::{
    Effect, Ensure, Event, Failure, FailureKind, Lineage, Loop, Outcome, Patch, PatchTarget, Read,
    User, Verdict, WithGlobals, World,
};
use kiln_jmespath::Sources;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Apply, Operation, Rule};
use kiln_value::Value;

use crate::controller::Controller;
use crate::keys::{Cause, Condition, Key, KeyState, Pending, Waiting};
use crate::mark::{Mark, patterns};
use crate::mirror::{KindMirror, Sight, State};
use crate::plan::{Plan, Step};
use crate::questions::Question;
use crate::reports::Said;

/// What came of looking at a key.
pub(crate) enum Decision {
    /// There is nothing to it.
    Forget,
    /// Nobody knows enough yet.
    Wait(Option<Condition>),
    /// These kinds have to be listed first.
    Follow(BTreeSet<Gvk>),
    /// These services have to be asked first.
    Ask(Vec<Question>),
    /// This is to be done.
    Do(Box<Plan>),
}

/// What a rule wants of a trigger.
struct Wanted {
    ensures: Vec<(Ensure, Option<User>)>,
    patches: Vec<Patch>,
    failures: Vec<Failure>,
    reads: Vec<Read>,
    cause: Option<Cause>,
    /// Objects that are not wanted go.
    settle: bool,
    /// The trigger came, changed or went in a way that is none of the rule's business.
    nothing: bool,
    /// Labels or annotations changed, and the rule makes nothing of it.
    skipped: bool,
    said: Option<Said>,
}

impl Wanted {
    fn nothing() -> Self {
        Wanted {
            ensures: Vec::new(),
            patches: Vec::new(),
            failures: Vec::new(),
            reads: Vec::new(),
            cause: None,
            settle: false,
            nothing: true,
            skipped: false,
            said: None,
        }
    }
}

impl Controller {
    pub(crate) fn decide(&self, key: &Key) -> Decision {
        let Some(state) = self.keys.get(key) else { return Decision::Forget };
        if key.trigger.is_empty() {
            return self.decide_removed(key);
        }
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return Decision::Forget };
        let sight = Sight {
            mirror: &self.mirror,
            kinds: &self.kinds,
            services: self.services(),
            missing: RefCell::default(),
        };
        let wanted = if rule.lifecycle.synchronize {
            self.wanted_in_step(&rule, key, state, &sight)
        } else {
            self.wanted_once(&rule, key, state, &sight)
        };
        let missing = sight.missing.take();
        if !missing.is_empty() {
            return Decision::Follow(missing);
        }
        let questions = sight.services.missing.take();
        if !questions.is_empty() {
            return Decision::Ask(questions);
        }
        let wanted = match wanted {
            Ok(wanted) => wanted,
            Err(condition) => return Decision::Wait(condition),
        };
        let claimed: Vec<(ObjectId, Mark)> = self
            .mirror
            .claimed_by(&key.trigger)
            .filter_map(|(id, object)| Some((id.clone(), Mark::read(object)?)))
            .filter(|(_, mark)| mark.is_of(&rule.id))
            .collect();
        if wanted.nothing && wanted.failures.is_empty() {
            let member = rule.lifecycle.synchronize && !claimed.is_empty() && state.cause.is_some();
            return match member || wanted.skipped || wanted.said.is_some() {
                true => Decision::Do(Box::new(Plan {
                    skipped: wanted.skipped,
                    said: wanted.said,
                    keep: member,
                    ..Plan::default()
                })),
                false => Decision::Forget,
            };
        }
        let missing_kinds: BTreeSet<Gvk> = wanted
            .ensures
            .iter()
            .map(|(ensure, _)| ensure.target.gvk.clone())
            .filter(|gvk| !self.mirror.kinds.contains_key(&KindKey::of(gvk)))
            .collect();
        if !missing_kinds.is_empty() {
            return Decision::Follow(missing_kinds);
        }
        let targets: BTreeSet<(KindKey, &str, &str)> =
            wanted.ensures.iter().map(|(ensure, _)| place(&ensure.target)).collect();
        let mut removals = Vec::new();
        if wanted.settle && rule.lifecycle.synchronize {
            let whole = wanted.failures.is_empty();
            let life = self.life_of(&rule);
            for (id, mark) in &claimed {
                let unwanted = !targets.contains(&place(id))
                    && !mark.is_final()
                    && mark.is_of_life(&life)
                    && (whole || lost_its_source(&wanted.failures, id, mark));
                if !unwanted {
                    continue;
                }
                let written_now = mark
                    .pattern
                    .as_ref()
                    .is_none_or(|pattern| patterns(&rule, id).contains(pattern));
                removals.push(if written_now {
                    Step::Delete(id.clone())
                } else {
                    Step::Release(id.clone())
                });
            }
        }
        let wants = wanted.ensures.iter().map(|(ensure, _)| ensure.target.clone()).collect();
        // Namespaces first: what goes into them needs them.
        let (namespaces, others): (Vec<_>, Vec<_>) = wanted
            .ensures
            .into_iter()
            .partition(|(ensure, _)| ensure.target.gvk.kind == "Namespace");
        let steps = namespaces
            .into_iter()
            .chain(others)
            .map(|(ensure, user)| Step::Ensure(Box::new(ensure), user))
            .chain(wanted.patches.into_iter().map(|patch| Step::Patch(Box::new(patch))))
            .chain(removals)
            .collect();
        Decision::Do(Box::new(Plan {
            steps,
            wants,
            reads: wanted.reads,
            failures: wanted.failures,
            cause: wanted.cause,
            keep: rule.lifecycle.synchronize,
            skipped: wanted.skipped,
            said: wanted.said,
        }))
    }

    /// What a rule that is gone left behind.
    fn decide_removed(&self, key: &Key) -> Decision {
        let removed = self.removed(key);
        let kinds: BTreeSet<Gvk> = removed
            .iter()
            .flat_map(|removed| &removed.leaving.kinds)
            .filter(|kind| match self.mirror.kinds.get(&KindKey::of(kind)) {
                Some(known) if known.revision > 0 => false,
                // Of a kind that is gone nothing is left.
                Some(KindMirror { state: State::Failed(error), .. }) => {
                    error.reason != Reason::UnknownKind
                }
                _ => true,
            })
            .cloned()
            .collect();
        if !kinds.is_empty() {
            return Decision::Follow(kinds);
        }
        let mut steps = Vec::new();
        for (id, object) in self.mirror.claimed() {
            let Some(mark) = Mark::read(object).filter(|mark| mark.is_of(&key.rule)) else {
                continue;
            };
            let goes = removed.iter().any(|removed| {
                let leaving = &removed.leaving;
                leaving.synchronize
                    && mark.is_of_life(&removed.uid)
                    && leaving.on_policy_delete.deletes(mark.copied)
            });
            if goes {
                steps.push(Step::Delete(id.clone()));
            }
        }
        Decision::Do(Box::new(Plan { steps: steps.into(), ..Plan::default() }))
    }

    /// Of a rule that synchronises: what there is to be as long as the trigger is one.
    fn wanted_in_step(
        &self,
        rule: &Arc<Rule>,
        key: &Key,
        state: &KeyState,
        sight: &Sight<'_>,
    ) -> Result<Wanted, Option<Condition>> {
        let live = self.mirror.by_uid(&key.trigger).map(|(_, object)| object);
        let live = live.filter(|object| !metadata::is_deleted(object));
        let mut once = Wanted::nothing();
        for pending in &state.pending {
            if pending.sent.is_some() {
                let event = Self::event_of(pending, None);
                let outcome = self.run(rule, &event, sight, state);
                once.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
            }
        }
        let deleted =
            state.pending.iter().find(|pending| pending.operation == Some(Operation::Delete));
        let Some(live) = live else {
            if let Some(pending) = deleted {
                let event = Self::event_of(pending, None);
                if rule.asks_for_user() && event.user.is_none() {
                    return self.user_is_awaited(state).map_or(Ok(once), |wait| Err(Some(wait)));
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
            if !self.trigger_kind_is_known(key) {
                return Ok(once);
            }
            once.nothing = false;
            once.settle = true;
            return Ok(once);
        };
        let (mut unknown_user, mut unasked) = (false, false);
        for pending in
            state.pending.iter().filter(|pending| pending.operation != Some(Operation::Delete))
        {
            if pending.sent.is_some() {
                continue;
            }
            if rule.asks_for_user() && pending.user.is_none() && pending.operation.is_some() {
                unknown_user = true;
                continue;
            }
            let event = Self::event_of(pending, Some(live));
            let outcome = self.run(rule, &event, sight, state);
            if !outcome.asked {
                unasked = true;
                continue;
            }
            let said = Said::of(&outcome);
            match outcome.verdict {
                // What was made of it before stays as it is.
                _ if outcome.is_excepted() => once.said = said,
                Verdict::Pass | Verdict::Error => {
                    let user = event.user.clone();
                    let cause = Cause { operation: event.operation, user };
                    let mut wanted =
                        Wanted { cause: Some(cause), settle: true, said, ..Wanted::nothing() };
                    wanted.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
                    return Ok(wanted);
                }
                Verdict::Lapsed => {
                    let lapsed = Wanted { settle: true, nothing: false, ..Wanted::nothing() };
                    return Ok(Wanted { said, ..lapsed });
                }
                Verdict::Skip | Verdict::NoMatch => {
                    once.skipped |= outcome.verdict == Verdict::Skip && only_labels(pending, live);
                }
            }
        }
        let Some(cause) = &state.cause else {
            let wait = self.user_is_awaited(state).filter(|_| unknown_user);
            return wait.map_or(Ok(once), |wait| Err(Some(wait)));
        };
        let passes_over =
            rule.asks_for_user() && state.pending.iter().any(|pending| pending.user.is_some());
        if unasked || passes_over {
            // The change is none of the rule's business, because of who made it or of what it is.
            return Ok(once);
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
            return Ok(Wanted { said, ..once });
        }
        let mut wanted = Wanted { settle: true, nothing: false, ..Wanted::nothing() };
        // What is no trigger any more has nothing to report.
        wanted.said = said.or(Some(Said::Nothing));
        wanted.take(self.ensures(rule, &outcome, &event, sight, state), outcome);
        wanted.nothing = false;
        Ok(wanted)
    }

    /// Of a rule that does not: what there is to be because something happened.
    fn wanted_once(
        &self,
        rule: &Arc<Rule>,
        key: &Key,
        state: &KeyState,
        sight: &Sight<'_>,
    ) -> Result<Wanted, Option<Condition>> {
        let live = self.mirror.by_uid(&key.trigger).map(|(_, object)| object);
        let live = live.filter(|object| !metadata::is_deleted(object));
        let mut wanted = Wanted::nothing();
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
            let event = Self::event_of(pending, live.filter(|_| !of_nothing));
            let outcome = self.run(rule, &event, sight, state);
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
        let wait = self.user_is_awaited(state).filter(|_| wanted.nothing && unknown_user);
        wait.map_or(Ok(wanted), |wait| Err(Some(wait)))
    }

    /// That nobody knows who made a trigger one; none when it was waited for long enough.
    fn user_is_awaited(&self, state: &KeyState) -> Option<Condition> {
        let since = state.at.unwrap_or(self.now);
        let message = "nobody knows yet who made the trigger, and the rule asks for it";
        let condition = Condition { reason: Waiting::Missing, message: message.into() };
        (self.now < since + self.settings.hint_life).then_some(condition)
    }

    fn event_of(pending: &Pending, live: Option<&Value>) -> Event {
        let mut event = match (&pending.sent, live, &pending.old) {
            (Some(sent), _, old) => {
                let mut event = Event::created(sent.object.clone().unwrap_or(Value::Null));
                event.old_object = old.clone();
                event.kind = sent.about.gvk.clone();
                event.name = sent.about.name.clone();
                event.namespace =
                    Some(sent.about.namespace.clone()).filter(|namespace| !namespace.is_empty());
                event.subresource = sent.subresource.clone();
                event
            }
            (None, Some(live), Some(old)) if pending.operation == Some(Operation::Update) => {
                Event::updated(old.clone(), live.clone())
            }
            (None, Some(live), _) => Event::created(live.clone()),
            (None, None, old) => Event::deleted(old.clone().unwrap_or(Value::Null)),
        };
        event.operation = pending.operation;
        event.matched_as = pending.operation.unwrap_or(Operation::Create);
        event.user = pending.user.clone();
        event.own = pending.own;
        event
    }

    /// Evaluates a rule. It sees the time of its first look at the trigger, and the same chance each time.
    fn run(&self, rule: &Arc<Rule>, event: &Event, sight: &Sight<'_>, state: &KeyState) -> Outcome {
        let about = event.trigger().unwrap_or(&Value::Null);
        let uid = metadata::uid(about).unwrap_or_default();
        let version = if rule.lifecycle.synchronize {
            ""
        } else {
            metadata::resource_version(about).unwrap_or_default()
        };
        let seed = [rule.id.to_string().as_str(), uid, version]
            .iter()
            .flat_map(|text| text.bytes())
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
        let chance = Chance { now: state.at.unwrap_or(self.now), next: Cell::new(seed) };
        let outside = WithGlobals { outside: &sight.services, globals: &self.globals };
        let world = World {
            view: sight,
            kinds: &self.kinds,
            sources: &chance,
            outside: &outside,
            limits: self.settings.limits,
        };
        let mut event = event.clone();
        match self.lineage(about) {
            Ok(lineage) => event.lineage = lineage,
            Err(looped) => {
                let mut outcome = self.evaluate(rule, &event, &world);
                if outcome.verdict == Verdict::Pass {
                    outcome.effects.clear();
                    outcome.failures = vec![Failure::from(*looped)];
                    outcome.verdict = Verdict::Error;
                }
                return outcome;
            }
        }
        if self.another_rule_acts(rule, &event, &world) {
            return self.evaluate(rule, &Event::created(Value::Null), &world);
        }
        self.evaluate(rule, &event, &world)
    }

    /// Evaluates a rule with its exceptions.
    fn evaluate(&self, rule: &Rule, event: &Event, world: &World<'_>) -> Outcome {
        let outcome = self.rules.evaluate_rule(&rule.id, event, world);
        outcome.unwrap_or_else(|| kiln_engine::evaluate(rule, event, world))
    }

    /// Which rules led to an object, as the claims on it and on its triggers say.
    fn lineage(&self, object: &Value) -> Result<Lineage, Box<Loop>> {
        let mut chain = Vec::new();
        let mut at = object;
        while chain.len() <= self.settings.limits.chain {
            let Some(mark) = Mark::read(at) else { break };
            let Some(uid) = mark.labels.trigger_uid.clone() else { break };
            let Some(rule) = self.rules.rules().find(|rule| mark.is_of(&rule.id)) else { break };
            let Some((id, trigger)) = self.mirror.by_uid(&uid) else { break };
            chain.push((rule.id.clone(), id.to_string()));
            at = trigger;
        }
        let mut lineage = Lineage::default();
        for (rule, trigger) in chain.iter().rev() {
            lineage = lineage.then(rule, trigger, &self.settings.limits).map_err(Box::new)?;
        }
        Ok(lineage)
    }

    /// Kyverno: with `applyRules: One`, the first rule of a policy that does not skip is the only one.
    fn another_rule_acts(&self, rule: &Rule, event: &Event, world: &World<'_>) -> bool {
        let policy = self.rules.policies().iter().find(|policy| policy.id == rule.id.policy);
        let Some(policy) = policy.filter(|policy| policy.apply == Apply::One) else { return false };
        let earlier = policy.rules.iter().take_while(|earlier| earlier.id != rule.id);
        earlier
            .map(|earlier| self.evaluate(earlier, event, world).verdict)
            .any(|verdict| matches!(verdict, Verdict::Pass | Verdict::Error))
    }

    /// The objects that an evaluation wants. When it depends on who sent the request, that is kept with them.
    fn ensures(
        &self,
        rule: &Arc<Rule>,
        outcome: &Outcome,
        event: &Event,
        sight: &Sight<'_>,
        state: &KeyState,
    ) -> Vec<(Ensure, Option<User>)> {
        let found = |outcome: &Outcome| -> Vec<Ensure> {
            let effects = outcome.effects.iter();
            effects
                .filter_map(|effect| match effect {
                    Effect::Ensure(ensure) => Some(Ensure::clone(ensure)),
                    _ => None,
                })
                .collect()
        };
        let ensures = found(outcome);
        let mut user = None;
        if rule.lifecycle.synchronize && event.user.is_some() {
            let mut unknown = event.clone();
            unknown.user = None;
            let other = self.run(rule, &unknown, sight, state);
            let content = |ensures: &[Ensure]| -> Vec<_> {
                ensures.iter().map(|e| (e.target.clone(), e.claim.content)).collect()
            };
            if rule.asks_for_user()
                || !other.failures.is_empty()
                || content(&found(&other)) != content(&ensures)
            {
                user = event.user.clone();
            }
        }
        ensures.into_iter().map(|ensure| (ensure, user.clone())).collect()
    }

    /// Whether the kind of a key's trigger is followed, so that an absent one is gone.
    fn trigger_kind_is_known(&self, key: &Key) -> bool {
        let state = self.keys.get(key);
        if let Some(id) = state.and_then(|state| state.trigger.as_ref()) {
            return self.mirror.is_known(&KindKey::of(&id.gvk));
        }
        let mut kinds = self
            .mirror
            .claimed_by(&key.trigger)
            .filter_map(|(_, object)| Mark::read(object))
            .map(|mark| KindKey::of(&mark.labels.trigger_kind));
        kinds.all(|kind| self.mirror.is_known(&kind))
    }
}

impl Wanted {
    fn take(&mut self, ensures: Vec<(Ensure, Option<User>)>, outcome: Outcome) {
        self.nothing = false;
        self.ensures.extend(ensures);
        self.patches.extend(outcome.effects.into_iter().filter_map(|effect| match effect {
            Effect::Patch(patch) if patch.target != PatchTarget::Trigger => Some(*patch),
            _ => None,
        }));
        self.failures.extend(outcome.failures);
        for read in outcome.reads {
            if !self.reads.contains(&read) {
                self.reads.push(read);
            }
        }
    }
}

fn place(id: &ObjectId) -> (KindKey, &str, &str) {
    (KindKey::of(&id.gvk), &id.namespace, &id.name)
}

/// Whether an object is a copy of something that is gone.
fn lost_its_source(failures: &[Failure], id: &ObjectId, mark: &Mark) -> bool {
    failures.iter().any(|failure| match &failure.kind {
        FailureKind::SourceMissing(missing) => match &missing.target {
            Some(target) => target.same_object(id),
            None => mark.is_made_of(&missing.source),
        },
        _ => false,
    })
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

/// Time and chance of one key: always the same, so that what a rule wants does not change by itself.
struct Chance {
    now: u64,
    next: Cell<u64>,
}

impl Sources for Chance {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_millis(self.now))
    }

    fn random(&self) -> Option<u64> {
        let next = self.next.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.next.set(next);
        let mut z = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Some(z ^ (z >> 31))
    }
}
