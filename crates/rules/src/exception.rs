//! Objects that rules leave alone by way of exception.

use kiln_text::wildcard;
use kiln_value::Str;
use kiln_variables::Conditions;

use crate::{Filters, Origin, RuleId};

/// Objects that some rules leave alone.
#[derive(Clone, Debug)]
pub struct Exception {
    /// `name`, or `namespace/name`.
    pub name: Str,
    /// The rules that are meant.
    pub rules: Vec<ExceptedRules>,
    /// The objects.
    pub include: Filters,
    /// What must hold besides, if anything.
    pub guard: Option<Conditions>,
    /// Where it was written.
    pub origin: Origin,
}

/// Rules of a policy that an exception means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptedRules {
    /// The policy, as `name` or `namespace/name`.
    pub policy: Str,
    /// The names of the rules, with wildcards.
    pub rules: Vec<Str>,
}

impl Exception {
    /// Whether a rule is meant.
    pub fn means(&self, rule: &RuleId) -> bool {
        let policy = rule.policy.key();
        self.rules.iter().any(|excepted| {
            excepted.policy == policy
                && excepted.rules.iter().any(|name| wildcard::matches(name, &rule.rule))
        })
    }
}
