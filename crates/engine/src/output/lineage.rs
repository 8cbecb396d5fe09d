//! Which rules led to an event, so that rules that fire on each other's objects stop.
//!
//! A host that turns an effect into an event hands on the lineage that came with the effect. Nothing
//! else is asked of it: an evaluation whose lineage has come round too often fails by itself.

use std::fmt;
use std::sync::Arc;

use kiln_rules::RuleId;
use kiln_value::Str;

use crate::input::limits::EvaluationLimits;

/// The rules whose effects led to an event, first one first. Empty when a user or another program did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lineage(Option<Arc<Link>>);

#[derive(Debug, PartialEq, Eq)]
struct Link {
    rule: RuleId,
    /// The trigger, as users name it.
    trigger: Str,
    before: Lineage,
    length: usize,
}

impl Lineage {
    /// How many rules there are.
    pub fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |link| link.length)
    }

    /// Whether no rule led here.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The rules and their triggers, last one first.
    pub fn iter(&self) -> impl Iterator<Item = (&RuleId, &str)> {
        std::iter::successors(self.0.as_deref(), |link| link.before.0.as_deref())
            .map(|link| (&link.rule, link.trigger.as_str()))
    }

    /// The lineage of what a rule makes of a trigger.
    ///
    /// # Errors
    /// When the rule has seen this trigger before, has fired too often, or the chain is too long.
    pub fn then(
        &self,
        rule: &RuleId,
        trigger: &str,
        limits: &EvaluationLimits,
    ) -> Result<Lineage, Loop> {
        let earlier = || self.iter().filter(|(before, _)| *before == rule);
        let repeats = earlier().count();
        let came_round = earlier().any(|(_, before)| before == trigger);
        if came_round || repeats >= limits.repeats || self.len() >= limits.chain {
            return Err(Loop {
                rule: rule.clone(),
                trigger: trigger.into(),
                lineage: self.clone(),
            });
        }
        Ok(Lineage(Some(Arc::new(Link {
            rule: rule.clone(),
            trigger: trigger.into(),
            before: self.clone(),
            length: self.len() + 1,
        }))))
    }
}

/// Rules that fire on what they themselves made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loop {
    rule: RuleId,
    trigger: Str,
    lineage: Lineage,
}

impl fmt::Display for Loop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rule {} fires on objects that it made itself: ", self.rule)?;
        let mut chain: Vec<_> = self.lineage.iter().take(4).collect();
        chain.reverse();
        if chain.len() < self.lineage.len() {
            f.write_str("… → ")?;
        }
        for (rule, trigger) in chain {
            write!(f, "{trigger} → {}/{} → ", rule.policy.key(), rule.rule)?;
        }
        f.write_str(&self.trigger)
    }
}

impl std::error::Error for Loop {}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_rules::{Dialect, PolicyId};

    fn rule(name: &str) -> RuleId {
        let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
        RuleId { policy, rule: name.into() }
    }

    #[test]
    fn two_rules_that_fire_on_each_other_are_stopped() {
        let limits = EvaluationLimits::default();
        let mut lineage = Lineage::default();
        let mut fired = 0;
        let stopped = loop {
            let name = if fired % 2 == 0 { "a" } else { "b" };
            match lineage.then(&rule(name), &format!("ConfigMap x/c{fired}"), &limits) {
                Ok(next) => lineage = next,
                Err(stopped) => break stopped,
            }
            fired += 1;
        };
        assert_eq!(fired, 2 * limits.repeats);
        assert_eq!(
            stopped.to_string(),
            "rule kyverno:p/a fires on objects that it made itself: … → ConfigMap x/c4 → p/a → \
             ConfigMap x/c5 → p/b → ConfigMap x/c6 → p/a → ConfigMap x/c7 → p/b → ConfigMap x/c8"
        );
    }

    #[test]
    fn the_same_trigger_twice_is_a_loop_at_once() {
        let limits = EvaluationLimits::default();
        let once = Lineage::default().then(&rule("a"), "Pod x/p", &limits).unwrap();
        assert!(once.then(&rule("a"), "Pod x/p", &limits).is_err());
        assert!(once.then(&rule("b"), "Pod x/p", &limits).is_ok());
    }

    #[test]
    fn a_chain_of_many_rules_ends() {
        let limits = EvaluationLimits::default();
        let mut lineage = Lineage::default();
        for at in 0..limits.chain {
            lineage = lineage.then(&rule(&at.to_string()), "x", &limits).unwrap();
        }
        assert!(lineage.then(&rule("one more"), "x", &limits).is_err());
    }
}
