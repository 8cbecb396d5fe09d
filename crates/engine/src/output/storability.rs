//! What an API server would not store of what rules change and make.
//!
//! Rules may write anything anywhere, servers store objects of known types. Hosts without a server at hand ask a
//! [`StorageCheck`], so that they say the same of a rule as a cluster does.

use kiln_value::Value;

use super::effect::Effect;
use super::failure::{Failure, FailureKind};
use super::outcome::{RuleOutcome, Verdict};
use crate::rule_set::Mutated;

/// The schemas that a server holds objects to.
pub trait StorageCheck {
    /// Why a server would not store an object, in its words. What was wrong with the object before a rule changed it is
    /// not the rule's doing, and is not told.
    fn refuses(&self, before: Option<&Value>, object: &Value) -> Option<String>;
}

impl Mutated {
    /// Makes the rule fail that left the object in a state that a server does not store; whether there is one. What a
    /// later rule mends is no failure.
    pub fn fail_if_not_storable(
        &mut self,
        given: Option<&Value>,
        schemas: &dyn StorageCheck,
    ) -> bool {
        let Some(given) = given.filter(|given| **given != self.object) else { return false };
        if schemas.refuses(Some(given), &self.object).is_none() {
            return false;
        }
        let mut culprit = None;
        for (at, outcome) in self.outcomes.iter().enumerate() {
            let last = outcome.effects.iter().rev().find_map(|effect| match effect {
                Effect::Patch(patch) => Some(&patch.after),
                _ => None,
            });
            let Some(after) = last else { continue };
            culprit = match schemas.refuses(Some(given), after) {
                None => None,
                Some(why) => culprit.or(Some((at, why))),
            };
        }
        let Some((at, why)) = culprit else { return false };
        let Some(outcome) = self.outcomes.get_mut(at) else { return false };
        outcome.effects.retain(|effect| !matches!(effect, Effect::Patch(_)));
        outcome.fail(format!("the API server rejects the object as the rules change it: {why}"));
        true
    }
}

impl RuleOutcome {
    /// Makes the rule fail for each object that it makes or changes and a server does not store; the others stay.
    pub fn fail_if_not_storable(&mut self, schemas: &dyn StorageCheck) {
        let mut refused = Vec::new();
        self.effects.retain(|effect| {
            let why = match effect {
                Effect::Ensure(ensure) => {
                    let why = schemas.refuses(None, &ensure.object);
                    why.map(|why| format!("the API server rejects {}: {why}", ensure.target))
                }
                Effect::Patch(patch) => {
                    let why = schemas.refuses(Some(&patch.before), &patch.after);
                    why.map(|why| {
                        format!("the API server rejects the object as the rule changes it: {why}")
                    })
                }
                _ => None,
            };
            let is_stored = why.is_none();
            refused.extend(why);
            is_stored
        });
        refused.into_iter().for_each(|why| self.fail(why));
    }

    fn fail(&mut self, why: String) {
        self.failures.push(
            Failure::new(FailureKind::Target, why).hint(
                "write a value of the type that the field has; `kiln check` names such fields",
            ),
        );
        self.verdict = Verdict::Error;
    }
}
