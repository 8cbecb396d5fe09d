//! All rules of a host, found by what an event is about.
//!
//! Rules are found through an index, and of those that it finds each is asked. What admission runs is found by the object
//! as it is at that moment: a rule that changes it may be what makes another one apply.

use std::collections::HashMap;
use std::sync::Arc;

use kiln_rules::{ApplyRules, Exception, Operation, Payload, Policy, Program, Rule, RuleId, Scope};
use kiln_value::{Str, Value};

use crate::evaluate::evaluate_except;
use crate::input::eval_env::EvalEnv;
use crate::input::event::Event;
use crate::output::effect::Effect;
use crate::output::outcome::{RuleOutcome, Verdict};
use crate::rule_index::{Entry, RuleIndex, RuleLookup, Sought};

/// All rules of a host. It never changes: a host makes a new one and puts it in the old one's place, so
/// that an event sees one set from beginning to end.
#[derive(Debug, Default)]
pub struct RuleSet {
    policies: Vec<Arc<Policy>>,
    /// Every rule, policy after policy.
    rules: Vec<IndexedRule>,
    by_id: HashMap<RuleId, usize>,
    /// Rules that change the object of an event before it is stored.
    changing: RuleIndex,
    /// Rules that may refuse it then.
    judging: RuleIndex,
    /// Rules that act later.
    acting: RuleIndex,
}

#[derive(Debug)]
struct IndexedRule {
    rule: Arc<Rule>,
    policy: usize,
    exceptions: Vec<Arc<Exception>>,
}

/// What mutate rules made of the object of an event.
#[derive(Clone, Debug)]
pub struct Mutated {
    /// The object, changed or not; null when the event has none.
    pub object: Value,
    /// What each rule did, in order. The patches of a rule begin where those of the rule before it ended.
    pub outcomes: Vec<RuleOutcome>,
}

impl RuleSet {
    /// A set of policies, which keep the order of their names.
    pub fn new(policies: impl IntoIterator<Item = Arc<Policy>>) -> Self {
        let mut policies: Vec<_> = policies.into_iter().collect();
        policies.sort_by(|a, b| {
            let key = |policy: &Policy| (policy.id.dialect, tier(policy));
            key(a).cmp(&key(b)).then_with(|| a.id.cmp(&b.id))
        });
        let mut set = RuleSet { policies, ..RuleSet::default() };
        for (policy, held) in set.policies.iter().enumerate() {
            for rule in &held.rules {
                set.by_id.insert(rule.id.clone(), set.rules.len());
                let exceptions = Vec::new();
                set.rules.push(IndexedRule { rule: Arc::clone(rule), policy, exceptions });
            }
        }
        let index = |part: Part| {
            let rules = set.rules.iter().enumerate();
            RuleIndex::of(
                rules.filter(|(_, e)| Part::of(&e.rule) == part).map(|(at, e)| entry(at, &e.rule)),
            )
        };
        let (changing, judging, acting) =
            (index(Part::Changing), index(Part::Judging), index(Part::Acting));
        RuleSet { changing, judging, acting, ..set }
    }

    /// The same rules, which leave alone what the exceptions mean.
    #[must_use]
    pub fn with_exceptions(mut self, exceptions: impl IntoIterator<Item = Arc<Exception>>) -> Self {
        let mut exceptions: Vec<_> = exceptions.into_iter().collect();
        exceptions.sort_by(|a, b| a.name.cmp(&b.name));
        for entry in &mut self.rules {
            let meant = exceptions.iter().filter(|exception| exception.means(&entry.rule.id));
            entry.exceptions.extend(meant.cloned());
        }
        self
    }

    /// The policies, in the order of their names.
    pub fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// All rules, policy after policy.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.rules.iter().map(|entry| &entry.rule)
    }

    /// The rule of this name.
    pub fn rule(&self, id: &RuleId) -> Option<&Arc<Rule>> {
        self.by_id.get(id).map(|at| &self.rules[*at].rule)
    }

    /// The rules that an event may concern, policy after policy.
    pub fn candidates(&self, event: &Event) -> impl Iterator<Item = &Arc<Rule>> {
        let sought = Sought::of(event, None);
        let parts = [&self.changing, &self.judging, &self.acting];
        let mut found: Vec<usize> =
            parts.iter().flat_map(|part| part.find(&sought, RuleLookup::Identity)).collect();
        found.sort_unstable();
        let rules = found.into_iter().map(|at| &self.rules[at].rule);
        rules.filter(|rule| reaches(rule, event) && may_act(rule, event))
    }

    /// The rules of an index that an event may concern, from one of them on.
    fn found(
        &self,
        index: &RuleIndex,
        event: &Event,
        tier_snapshot: Option<&Value>,
        from: usize,
        eval_env: &EvalEnv<'_>,
    ) -> std::vec::IntoIter<usize> {
        let sought = Sought::of(event, tier_snapshot);
        let lookup = match eval_env.limits.trace {
            0 => index.lookup_within(&sought, eval_env.limits.steps),
            _ => RuleLookup::Kind,
        };
        let mut found = index.find(&sought, lookup);
        found.retain(|at| *at >= from && reaches(&self.rules[*at].rule, event));
        found.into_iter()
    }

    /// Changes the object of an event by every mutate rule that takes it, one after the other: each rule
    /// sees what those before it left, in matching and in its variables. A host does this before the
    /// object is stored, with what people send and with what rules make alike.
    ///
    /// Outcomes come in the order of the rules; those without a match are left out, unless they have a
    /// trace to show. A rule that fails changes nothing.
    pub fn mutate(&self, event: &Event, eval_env: &EvalEnv<'_>) -> Mutated {
        self.mutate_each(event, eval_env, |_, event| event.clone())
    }

    /// Like [`RuleSet::mutate`], for hosts that know more about the event for one rule than for another:
    /// `prepare` gives the event as the rule is to see it.
    pub fn mutate_each(
        &self,
        event: &Event,
        eval_env: &EvalEnv<'_>,
        prepare: impl Fn(&Rule, &Event) -> Event,
    ) -> Mutated {
        let mut event = event.clone();
        let mut outcomes = Vec::new();
        let mut done = None;
        let mut begun: Option<(i16, Option<Value>)> = None;
        // What may refuse the object sees the object as the others changed it.
        for index in [&self.changing, &self.judging] {
            let mut found = self.found(index, &event, None, 0, eval_env);
            let mut is_changed = false;
            let mut next = 0;
            loop {
                let begun_tier = begun.as_ref().map(|(tier, _)| *tier);
                // What a tier began with stays what its rules look at.
                let in_tier = |at: &usize| {
                    begun_tier.is_some() && tier_of(&self.rules[*at].rule) == begun_tier
                };
                if is_changed && !found.as_slice().first().is_some_and(in_tier) {
                    is_changed = false;
                    let began_with = begun.as_ref().and_then(|(_, object)| object.as_ref());
                    found = self.found(index, &event, began_with, next, eval_env);
                }
                let Some(at) = found.next() else { break };
                next = at + 1;
                let entry = &self.rules[at];
                if done == Some(entry.policy) {
                    continue;
                }
                // The rules of a tier all look at what the tier began with.
                event.context.tier_snapshot = match tier_of(&entry.rule) {
                    Some(tier) => {
                        if begun.as_ref().is_none_or(|(begun, _)| *begun != tier) {
                            begun = Some((tier, event.object.clone()));
                        }
                        begun.as_ref().and_then(|(_, object)| object.clone())
                    }
                    None => None,
                };
                let prepared = prepare(&entry.rule, &event);
                if !may_act(&entry.rule, &prepared) {
                    continue;
                }
                let outcome = self.run(entry, &prepared, eval_env);
                for effect in &outcome.effects {
                    if let Effect::Patch(patch) = effect {
                        event.object = Some(patch.after.clone());
                        is_changed = true;
                    }
                }
                // Kyverno: a rule that cannot be evaluated or changes nothing does not count as the one that applies; a check
                // that the object does not pass does.
                let only_one = self.policies[entry.policy].apply == ApplyRules::One;
                let counts = outcome.verdict == Verdict::Pass || outcome.violation().is_some();
                if only_one && counts {
                    done = Some(entry.policy);
                }
                if outcome.verdict != Verdict::NoMatch || outcome.trace.is_some() {
                    outcomes.push(outcome);
                }
            }
        }
        Mutated { object: event.object.unwrap_or(Value::Null), outcomes }
    }

    /// Evaluates one rule of the set; none when it has no such rule.
    pub fn evaluate_rule(
        &self,
        id: &RuleId,
        event: &Event,
        eval_env: &EvalEnv<'_>,
    ) -> Option<RuleOutcome> {
        let at = self.by_id.get(id)?;
        Some(self.run(&self.rules[*at], event, eval_env))
    }

    fn run(&self, entry: &IndexedRule, event: &Event, eval_env: &EvalEnv<'_>) -> RuleOutcome {
        evaluate_except(&entry.rule, &entry.exceptions, event, eval_env)
    }

    /// Evaluates every rule that an event may concern, but for those that [`RuleSet::mutate`] runs.
    /// Outcomes come in the order of the rules; those without a match are left out, unless they have a
    /// trace to show.
    pub fn evaluate(&self, event: &Event, eval_env: &EvalEnv<'_>) -> Vec<RuleOutcome> {
        self.evaluate_each(event, eval_env, |_, event| event.clone())
    }

    /// Like [`RuleSet::evaluate`], for hosts that know more about the event for one rule than for
    /// another: `prepare` gives the event as the rule is to see it.
    pub fn evaluate_each(
        &self,
        event: &Event,
        eval_env: &EvalEnv<'_>,
        prepare: impl Fn(&Rule, &Event) -> Event,
    ) -> Vec<RuleOutcome> {
        let mut outcomes = Vec::new();
        let mut done = None;
        let sought = Sought::of(event, None);
        let lookup =
            if eval_env.limits.trace == 0 { RuleLookup::Identity } else { RuleLookup::Kind };
        for at in self.acting.find(&sought, lookup) {
            let entry = &self.rules[at];
            if done == Some(entry.policy) || !reaches(&entry.rule, event) {
                continue;
            }
            let prepared = prepare(&entry.rule, event);
            if !may_act(&entry.rule, &prepared) {
                continue;
            }
            let outcome = self.run(entry, &prepared, eval_env);
            if outcome.verdict == Verdict::NoMatch {
                // Who asks why wants to know why not, too.
                if outcome.trace.is_some() {
                    outcomes.push(outcome);
                }
                continue;
            }
            let only_one = self.policies[entry.policy].apply == ApplyRules::One;
            if only_one && outcome.verdict != Verdict::Skip {
                done = Some(entry.policy);
            }
            outcomes.push(outcome);
        }
        outcomes
    }
}

/// When a rule runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Changing,
    Judging,
    Acting,
}

impl Part {
    fn of(rule: &Rule) -> Self {
        match &rule.program {
            program if program.changes_trigger() => Part::Changing,
            program if program.acts_at_admission() => Part::Judging,
            _ => Part::Acting,
        }
    }
}

/// A rule, and the kinds that it is found by.
fn entry(at: usize, rule: &Rule) -> Entry<'_> {
    let filters = rule.trigger.include.filters();
    let kinds = || filters.iter().flat_map(|filter| &filter.kinds);
    let is_data = rule.trigger.payload != Payload::Kubernetes || rule.trigger.takes_data;
    let takes_all = is_data || reports_all(rule);
    // A filter without kinds takes all of them.
    if takes_all
        || filters.iter().any(|filter| filter.kinds.is_empty())
        || kinds().any(|kind| !kind.names_one_kind())
    {
        return Entry { at, rule, kinds: Vec::new(), takes_all };
    }
    let mut kinds: Vec<Str> = kinds().map(|kind| kind.kind.clone()).collect();
    kinds.sort_unstable();
    kinds.dedup();
    Entry { at, rule, kinds, takes_all }
}

/// The tier of a rule whose tier begins with one object for all of its rules.
fn tier_of(rule: &Rule) -> Option<i16> {
    match &rule.program {
        Program::Modify(modify) if modify.changes_trigger() => Some(modify.tier),
        _ => None,
    }
}

/// The tier of a policy's rules.
fn tier(policy: &Policy) -> i16 {
    policy.rules.first().map_or(0, |rule| rule.program.tier())
}

/// Whether what an event is about is within a rule's reach, as far as is known without looking at the object.
fn reaches(rule: &Rule, event: &Event) -> bool {
    if rule.trigger.payload != Payload::Kubernetes || event.payload != Payload::Kubernetes {
        return rule.trigger.takes(event.payload);
    }
    if reports_all(rule) {
        return true;
    }
    let in_reach = match &rule.scope {
        Scope::Cluster => true,
        Scope::Namespace(own) => event.namespace.as_ref() == Some(own),
    };
    in_reach && rule.trigger.may_fire_for(&event.kind, &event.subresource)
}

/// Whether a rule says of every object what becomes of it, also of those that it does not match.
fn reports_all(rule: &Rule) -> bool {
    matches!(&rule.program, Program::Delete(delete) if delete.reports_unmatched)
}

/// Whether a rule has to do with the operation of an event. A host may say for one rule that it is another one.
fn may_act(rule: &Rule, event: &Event) -> bool {
    let operation = event.matched_as;
    // An object that changes or goes may stop being a trigger, whatever made it one.
    let may_lapse = matches!(operation, Operation::Update | Operation::Delete);
    // Of a rule that a clock makes run, operations say nothing.
    may_lapse
        || rule.program.is_scheduled()
        || rule.trigger.payload != Payload::Kubernetes
        || rule.trigger.may_fire_on(operation)
}
