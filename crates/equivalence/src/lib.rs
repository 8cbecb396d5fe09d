//! Whether two sets of policies mean the same, whatever languages they are written in.
//!
//! Inputs are made from the types of the kinds that both sides name, and from the constants and boundaries in both: fields
//! that are missing, empty lists, quantities, updates and deletions, subresources, users. Both sides are run on each by the
//! engine; what differs is made small. Chance comes from a seed, so that every run finds the same.
//!
//! | module | holds |
//! |---|---|
//! | `words` | what policies mention: fields, constants, paths |
//! | `sketch` | what objects of a kind may look like |
//! | `inputs` | requests, and the objects that are there then |
//! | `outcome` | what policies make of an input |
//! | `compare` | both sides on the same inputs |
//! | `minimise` | counter-examples made small |
//! | `required_fields` | what an API server would refuse objects without |
//! | `mutants` | small faults, to see whether the inputs notice them |
//! | `chance` | choices from a seed |

mod chance;
mod compare;
mod inputs;
mod minimise;
mod mutants;
mod outcome;
mod required_fields;
mod sketch;
mod words;

use std::sync::Arc;

use kiln_engine::RuleSet;
use kiln_rules::{Exception, Policy, Program};
use kiln_value::Value;

pub use compare::{
    Comparison, DifferenceKind, Evidence, FoundDifference, compare, difference, outcome,
};
pub use inputs::Input;
pub use mutants::{Mutants, mutants};
pub use outcome::{PolicyOutcome, Word, outcome_of};
pub use required_fields::is_always_there;

/// Policies that are compared with others.
pub struct PolicySide {
    pub rules: RuleSet,
    /// The documents that they were compiled from.
    pub documents: Vec<Value>,
}

impl PolicySide {
    pub fn new(
        policies: impl IntoIterator<Item = Arc<Policy>>,
        exceptions: impl IntoIterator<Item = Arc<Exception>>,
        documents: Vec<Value>,
    ) -> Self {
        PolicySide { rules: RuleSet::new(policies).with_exceptions(exceptions), documents }
    }

    /// Whether some rule checks objects: only then results in reports say more than what became of the object.
    pub(crate) fn judges(&self) -> bool {
        judges(&self.rules)
    }

    /// Some rules of a policy, with those that were made of them for controllers of Pods.
    pub fn of_rules(policy: &Policy, names: &[&str], document: Value) -> Self {
        PolicySide::new([Arc::new(with_rules(policy, names))], [], vec![document])
    }
}

/// Whether some rule checks objects.
pub fn judges(rules: &RuleSet) -> bool {
    rules.rules().any(|rule| matches!(rule.program, Program::Validate(_)))
}

/// A policy with some of its rules, and with those that were made of them for controllers of Pods.
#[must_use]
pub fn with_rules<N: AsRef<str>>(policy: &Policy, names: &[N]) -> Policy {
    let mut only = policy.clone();
    only.rules.retain(|rule| {
        let name = rule.id.rule.as_str();
        let plain = name.strip_prefix("autogen-cronjob-").or_else(|| name.strip_prefix("autogen-"));
        // Names of such rules are cut off where they are too long.
        let is_made_of = |wanted: &str| {
            plain.is_some_and(|plain| {
                plain == wanted || (name.len() >= LONGEST_NAME && wanted.starts_with(plain))
            })
        };
        names.iter().map(AsRef::as_ref).any(|wanted| wanted == name || is_made_of(wanted))
    });
    only
}

/// The longest name that a rule may have.
const LONGEST_NAME: usize = 63;
