//! One evaluation of a rule for a key: with its exceptions, what led to it, and the same time and chance each time.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kiln_engine::{
    ContentHash, Cost, Effect, EvalEnv, Event, Failure, FailureKind, Lineage, Loop, Ownership,
    PatchTarget, RuleOutcome, RuleSet, Verdict, WithGlobals,
};
use kiln_jmespath::AmbientSources;
use kiln_object::{ObjectId, metadata};
use kiln_rules::{ApplyRules, Mutate, Program, Rule, Targets};
use kiln_value::Value;

use crate::cache::CacheView;
use crate::controller::Controller;
use crate::ownership::left::{Left, Sender};
use crate::ownership::signature::Proof;
use crate::reconcile::compare::{content_only, covers, live_form, wanted_form};
use crate::reconcile::plan::PlanStep;
use crate::work_queue::{Condition, KeyState, Pending, Waiting, WorkKey};

/// Evaluates rules. A host replaces it to time evaluations, and tests do that need some which take for ever or panic.
pub trait Evaluate: Send + Sync {
    /// Evaluates a rule with its exceptions.
    fn evaluate(
        &self,
        rules: &RuleSet,
        rule: &Rule,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> RuleOutcome {
        let outcome = rules.evaluate_rule(&rule.id, event, eval_env);
        outcome.unwrap_or_else(|| kiln_engine::evaluate(rule, event, eval_env))
    }
}

/// Evaluates rules as the engine does.
#[derive(Clone, Copy, Debug, Default)]
pub struct Engine;

impl Evaluate for Engine {}

impl Controller {
    /// Evaluates a rule. It sees the time of its first look at the trigger, and the same chance each time.
    pub(crate) fn run(
        &self,
        rule: &Arc<Rule>,
        event: &Event,
        sight: &CacheView<'_>,
        state: &KeyState,
    ) -> RuleOutcome {
        let about = event.trigger().unwrap_or(&Value::Null);
        let uid = metadata::uid(about).unwrap_or_default();
        // The version of the trigger is part of the seed only where every event is served once. A rule that synchronizes
        // must draw the same random name after each edit of its trigger, or each edit would replace the downstream.
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
        let external_data =
            WithGlobals { external_data: &sight.answers, globals: &self.env.globals };
        let eval_env = EvalEnv {
            view: sight,
            kinds: &self.env.kinds,
            sources: &chance,
            external_data: &external_data,
            limits: self.env.settings.rules.limits,
            protected_namespaces: &self.env.settings.rules.protected_namespaces,
            home: &self.env.settings.namespace,
        };
        let mut event = event.clone();
        match self.lineage(about) {
            Ok(lineage) => event.context.lineage = lineage,
            Err(looped) => {
                let mut outcome = self.evaluate(rule, &event, &eval_env);
                if outcome.verdict == Verdict::Pass {
                    outcome.effects.clear();
                    outcome.failures = vec![Failure::from(*looped)];
                    outcome.verdict = Verdict::Error;
                }
                return outcome;
            }
        }
        match self.earlier_rule(rule, &event, &eval_env) {
            None => self.evaluate(rule, &event, &eval_env),
            Some(earlier) => {
                let nothing = self.evaluate(rule, &Event::created(Value::Null), &eval_env);
                // Whether this rule would run is unknown, so what it made before stays.
                let verdict = match earlier.failures.is_empty() {
                    true => nothing.verdict,
                    false => Verdict::Error,
                };
                RuleOutcome { verdict, failures: earlier.failures, reads: earlier.reads, ..nothing }
            }
        }
    }

    /// Evaluates a rule with its exceptions. A doubt counts as a failure: what was made before stays.
    fn evaluate(&self, rule: &Rule, event: &Event, eval_env: &EvalEnv<'_>) -> RuleOutcome {
        let mut outcome = self
            .unless_it_panics(|| {
                self.env.evaluate.evaluate(&self.policies.rules, rule, event, eval_env)
            })
            .unwrap_or_else(|_| broke_off(rule, event));
        if let Some(uncertain) = outcome.uncertain.take() {
            outcome.failures.push(uncertain);
            outcome.verdict = Verdict::Error;
        }
        if matches!(
            &rule.program,
            Program::Mutate(Mutate { targets: Some(Targets::Matching { .. }), .. })
        ) {
            // What no rule sees is not a target either.
            outcome.effects.retain(|effect| match effect {
                Effect::Patch(patch) => match &patch.target {
                    PatchTarget::Stored { object, .. } => !self.is_filtered(object, ""),
                    PatchTarget::Trigger => true,
                },
                _ => true,
            });
        }
        outcome
    }

    /// What comes of something that changes nothing here; an error when it panics. One rule that hits a mistake in Kiln keeps
    /// no other from its work.
    pub(crate) fn unless_it_panics<T>(&self, something: impl FnOnce() -> T) -> Result<T, Panicked> {
        catch_unwind(AssertUnwindSafe(something)).map_err(|_| self.panicked())
    }

    /// Which rules led to an object, as the claims on it and on its triggers say: those that are signed, and those of
    /// rules that want the object.
    ///
    /// Walked anew each time instead of being counted along: a count in memory begins at nothing after a restart, and one
    /// on the objects could be set back by any user who may edit them. Unproven claims end the walk, or a user could write
    /// a circle of claims that keeps a rule from running.
    fn lineage(&self, object: &Value) -> Result<Lineage, Box<Loop>> {
        let mut chain = Vec::new();
        let mut at = object;
        while chain.len() <= self.env.settings.rules.limits.chain {
            let Some(mark) = Ownership::read(at) else { break };
            let Some(uid) = mark.labels.trigger_uid.clone() else { break };
            let Some(rule) = self.policies.rules.rules().find(|rule| mark.is_of(&rule.id)) else {
                break;
            };
            let Some((id, trigger)) = self.cache.by_uid(&uid) else { break };
            if self.proof(at) != Proof::Proven && !self.is_wanted(at, &mark) {
                break;
            }
            chain.push((rule.id.clone(), id.to_string()));
            at = trigger;
        }
        let mut lineage = Lineage::default();
        for (rule, trigger) in chain.iter().rev() {
            lineage =
                lineage.then(rule, trigger, &self.env.settings.rules.limits).map_err(Box::new)?;
        }
        Ok(lineage)
    }

    /// Whether the rule that a claim names wanted the object that carries it when it last ran for the trigger.
    pub(crate) fn is_wanted(&self, object: &Value, mark: &Ownership) -> bool {
        let Some(trigger) = mark.labels.trigger_uid.clone() else { return false };
        let Some(rule) = self.policies.rules.rules().find(|rule| mark.is_of(&rule.id)) else {
            return false;
        };
        let state = self.queue.get(&WorkKey { rule: rule.id.clone(), trigger });
        let wants = state.map(|state| state.wants.as_slice()).unwrap_or_default();
        ObjectId::of(object).is_ok_and(|id| wants.iter().any(|wanted| wanted.same_object(&id)))
    }

    /// Whether the rule that an unsigned claim names wants the object that carries it, as another engine's or an older
    /// version's would.
    pub(crate) fn is_wanted_as_claimed(&self, object: &Value, mark: &Ownership) -> bool {
        let rule = self.policies.rules.rules().find(|rule| mark.is_of(&rule.id));
        let Some(rule) = rule.filter(|rule| !rule.asks_for_user()) else { return false };
        let trigger = mark.labels.trigger_uid.as_ref().and_then(|uid| self.cache.by_uid(uid));
        let (Some((_, trigger)), Ok(id)) = (trigger, ObjectId::of(object)) else { return false };
        let key = WorkKey {
            rule: rule.id.clone(),
            trigger: mark.labels.trigger_uid.clone().unwrap_or_default(),
        };
        let outcome = self.run(
            rule,
            &Event::existing(trigger.clone()),
            &self.sight(&key),
            &KeyState::default(),
        );
        outcome.effects.iter().any(|effect| match effect {
            Effect::Ensure(ensure) if ensure.target.same_object(&id) => {
                // Only what the rule makes is its own, not a replacement by others.
                let wanted = wanted_form(&ensure.object);
                covers(
                    &content_only(&wanted),
                    &content_only(&live_form(object, &wanted)),
                    &self.env.schema,
                )
            }
            _ => false,
        })
    }

    /// What a key's rule is shown.
    pub(crate) fn sight(&self, key: &WorkKey) -> CacheView<'_> {
        CacheView {
            cache: &self.cache,
            kinds: &self.env.kinds,
            answers: self.known_answers(),
            author: self.author(key),
            missing: RefCell::default(),
        }
    }

    /// Kyverno: with `applyRules: One`, the first rule of a policy that does not skip is the only one. This is what came of
    /// that rule, if it is an earlier one.
    fn earlier_rule(
        &self,
        rule: &Rule,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> Option<RuleOutcome> {
        let policy =
            self.policies.rules.policies().iter().find(|policy| policy.id == rule.id.policy);
        let policy = policy.filter(|policy| policy.apply == ApplyRules::One)?;
        let earlier = policy.rules.iter().take_while(|earlier| earlier.id != rule.id);
        earlier
            .map(|earlier| self.evaluate(earlier, event, eval_env))
            .find(|outcome| matches!(outcome.verdict, Verdict::Pass | Verdict::Error))
    }

    /// Whether what came of an evaluation depends on who sent the request.
    ///
    /// Found out by evaluating once more without the user. The compiled rule knows which expressions name the user, but not
    /// whether the result is another. Taking every rule that names one for dependent would freeze its downstreams after each
    /// edit by another user.
    pub(crate) fn depends_on_user(
        &self,
        rule: &Arc<Rule>,
        outcome: &RuleOutcome,
        event: &Event,
        sight: &CacheView<'_>,
        state: &KeyState,
    ) -> bool {
        if event.user.is_none() || rule.asks_for_user() {
            return event.user.is_some();
        }
        let other = self.run(rule, &Event { user: None, ..event.clone() }, sight, state);
        let content = |outcome: &RuleOutcome| -> Vec<_> {
            let effects = outcome.effects.iter();
            let content = |effect: &Effect| match effect {
                Effect::Ensure(ensure) => Some((ensure.target.clone(), ensure.claim.content)),
                Effect::Patch(patch) => {
                    let target = ObjectId::of(&patch.after).ok()?;
                    Some((target, ContentHash::of(&patch.after)))
                }
                _ => None,
            };
            effects.filter_map(content).collect()
        };
        let failures = |outcome: &RuleOutcome| -> Vec<String> {
            outcome.failures.iter().map(ToString::to_string).collect()
        };
        failures(&other) != failures(outcome) || content(&other) != content(outcome)
    }

    /// Evaluates a rule for something that happened to a trigger. What it makes in a user's name, it makes of the
    /// trigger as they left it.
    pub(crate) fn run_for(
        &self,
        rule: &Arc<Rule>,
        pending: &Pending,
        live: &Value,
        sight: &CacheView<'_>,
        state: &KeyState,
    ) -> (Event, RuleOutcome) {
        let event = pending.event(Some(live));
        let left = pending.left.as_ref();
        let left = left.filter(|left| event.user.is_some() && !Left::of(left).is(live));
        let Some(left) = left else {
            let outcome = self.run(rule, &event, sight, state);
            return (event, outcome);
        };
        if !rule.asks_for_user() {
            let outcome = self.run(rule, &event, sight, state);
            if !self.depends_on_user(rule, &outcome, &event, sight, state) {
                return (event, outcome);
            }
        }
        let event = pending.event(Some(left));
        let outcome = self.run(rule, &event, sight, state);
        (event, outcome)
    }

    /// The objects that an evaluation wants, as steps. When it depends on who sent the request, that is kept with them.
    pub(crate) fn ensures(
        &self,
        rule: &Arc<Rule>,
        outcome: &RuleOutcome,
        event: &Event,
        sight: &CacheView<'_>,
        state: &KeyState,
    ) -> Vec<PlanStep> {
        let depends =
            rule.lifecycle.synchronize && self.depends_on_user(rule, outcome, event, sight, state);
        let sender = event
            .user
            .clone()
            .filter(|_| depends)
            .map(|user| Sender { user, left: Left::of(event.trigger().unwrap_or(&Value::Null)) });
        let effects = outcome.effects.iter();
        effects
            .filter_map(|effect| match effect {
                Effect::Ensure(ensure) => Some(PlanStep::Ensure(ensure.clone(), sender.clone())),
                _ => None,
            })
            .collect()
    }
}

/// Work on a key panicked. What it said is in the log, for it may hold what is in objects.
pub(crate) struct Panicked;

impl Panicked {
    const MESSAGE: &str = "internal error; see the Kiln log";

    pub(crate) fn condition(self) -> Condition {
        Condition { reason: Waiting::Failed, message: Self::MESSAGE.into() }
    }
}

/// What came of an evaluation that panicked. As after any failure, what was made before stays.
fn broke_off(rule: &Rule, event: &Event) -> RuleOutcome {
    let failure = Failure {
        kind: FailureKind::Panic,
        message: Panicked::MESSAGE.to_owned(),
        hint: None,
        path: None,
        part: None,
    };
    RuleOutcome {
        rule: rule.id.clone(),
        verdict: Verdict::Error,
        why: None,
        exceptions: Vec::new(),
        asked: true,
        effects: Vec::new(),
        failures: vec![failure],
        on_error: None,
        uncertain: None,
        reads: Vec::new(),
        properties: Vec::new(),
        lineage: event.context.lineage.clone(),
        cost: Cost::default(),
        took: None,
        trace: None,
    }
}

/// Time and chance of one key: always the same, so that what a rule wants does not change by itself.
struct Chance {
    now: u64,
    next: Cell<u64>,
}

impl AmbientSources for Chance {
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
