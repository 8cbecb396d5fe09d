//! Objects that rules leave alone by way of exception.

use kiln_podsecurity::Exclusion;
use kiln_text::wildcard;
use kiln_value::Str;
use kiln_variables::Conditions;

use crate::script::NamedExpression;
use crate::{Dialect, Filters, Origin, RuleId};

/// Objects that some rules leave alone.
#[derive(Clone, Debug)]
pub struct Exception {
    /// `name`, or `namespace/name`.
    pub name: Str,
    /// The rules that are meant.
    pub rules: Vec<ExceptedRules>,
    /// The objects; none for all that the rules take.
    pub include: Option<Filters>,
    /// What must hold besides, if anything.
    pub guard: Option<Conditions>,
    /// What must hold besides, in CEL. Unlike a guard, one that fails is a failure of the rule.
    pub conditions: Vec<NamedExpression>,
    /// What the exception gives.
    pub exempts: Exempts,
    /// Of several exceptions, that with the highest number decides what is reported.
    pub priority: i64,
    /// When it ends, in seconds since 1970.
    pub expires: Option<i64>,
    /// Where it was written.
    pub origin: Origin,
}

/// What an exception gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Exempts {
    /// The rule does nothing.
    All(ReportResult),
    /// A rule about the Pod Security Standards leaves out this as well; all others do nothing.
    PodSecurity(Vec<Exclusion>),
    /// The rule runs, and its expressions see what is allowed.
    Some {
        /// Wildcards for images.
        images: Vec<Str>,
        /// Other values.
        values: Vec<Str>,
    },
}

/// How a rule that does nothing because of an exception is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportResult {
    Skip,
    Pass,
}

/// Rules of a policy that an exception means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExceptedRules {
    /// The language of the policy.
    pub dialect: Dialect,
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
            excepted.dialect == rule.policy.dialect
                && excepted.policy == policy
                && excepted.rules.iter().any(|name| wildcard::matches(name, &rule.rule))
        })
    }
}
