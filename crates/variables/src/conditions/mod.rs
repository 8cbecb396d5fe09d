//! Conditions: `{any: […], all: […]}`, or a plain list of which all must hold.
//!
//! Each condition compares a key with a value by an operator. Keys and values may hold variables; they
//! are filled one condition at a time, in order, and only as far as the verdict needs it, so that a
//! missing variable behind a decided condition does not matter.
//!
//! ```
//! use kiln_jmespath::JmesPathEnvironment;
//! use kiln_value::value;
//! use kiln_variables::{Conditions, ContextScope, Substitution, conditions::Effort};
//! let conditions = Conditions::parse(&value!({
//!     "any": [{"key": "{{ name }}", "operator": "Equals", "value": "kube-*"}],
//! })).unwrap();
//! let context = value!({"name": "kube-system"});
//! let scope = ContextScope::new(&context, JmesPathEnvironment::default());
//! let mut substitution = Substitution::new(&scope);
//! let outcome = conditions.evaluate(&mut substitution, &mut Effort::default()).unwrap();
//! assert!(outcome.holds);
//! assert_eq!(
//!     outcome.checks[0].to_string(),
//!     r#"any[0]: "kube-system" Equals "kube-*" holds, compared as text and pattern"#
//! );
//! ```

mod compare;
mod equality;
mod membership;
mod operator;
mod order;
mod parse;
mod range;
mod text;

use std::fmt;

use kiln_value::{Path, Value, json};

pub use compare::{Compared, ComparisonRule, Effort, Exhausted};
pub use operator::{ConditionOperator, Order};
pub use parse::ParseConditionsError;

use crate::error::SubstituteError;
use crate::substitute::Substitution;
use crate::template::Template;

/// Conditions, read once.
#[derive(Clone, Debug, Default)]
pub struct Conditions {
    any: Option<Vec<Condition>>,
    all: Vec<Condition>,
    plain_list: bool,
    unknown_fields: Vec<Path>,
}

#[derive(Clone, Debug)]
pub struct Condition {
    /// Where it stands.
    pub path: Path,
    /// What is compared.
    pub key: Template,
    pub operator: ConditionOperator,
    pub value: Template,
    /// What to say about the verdict.
    pub message: Option<Template>,
}

/// What conditions came to.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionsOutcome {
    pub holds: bool,
    /// The messages of the conditions that decided it.
    pub message: String,
    /// Every condition that was looked at, in order. Those behind a decided one are missing.
    pub checks: Vec<ConditionCheck>,
}

/// One condition that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct ConditionCheck {
    /// Where the condition stands.
    pub path: Path,
    /// The key after substitution.
    pub key: Value,
    pub operator: ConditionOperator,
    /// The value after substitution.
    pub value: Value,
    /// Whether the condition holds.
    pub holds: bool,
    /// The rule that decided it.
    pub rule: ComparisonRule,
}

/// A condition that has no verdict.
#[derive(Debug)]
pub enum ConditionError {
    /// A variable in a key or value could not be resolved. The error names the place.
    Substitute(SubstituteError),
    /// The comparison was too much work.
    Compare {
        /// Where the condition stands.
        path: Path,
        /// How much work there was room for.
        exhausted: Exhausted,
    },
}

impl Conditions {
    /// The conditions of an `any` block, if there is one.
    pub fn any(&self) -> Option<&[Condition]> {
        self.any.as_deref()
    }

    /// The conditions of an `all` block, or of a plain list.
    pub fn all(&self) -> &[Condition] {
        &self.all
    }

    /// Every condition, those of `any` first.
    pub fn iter(&self) -> impl Iterator<Item = &Condition> {
        self.any.iter().flatten().chain(&self.all)
    }

    /// Fields that mean nothing. Kyverno ignores them; they are worth a warning.
    pub fn unknown_fields(&self) -> &[Path] {
        &self.unknown_fields
    }

    /// Decides whether the conditions hold: some of `any`, if there is such a block, and every one of
    /// `all`. `any` comes first; both stop at the condition that decides them, but a failed `any` does not
    /// keep `all` from being looked at.
    ///
    /// # Errors
    /// When a variable of a condition that is looked at cannot be resolved, or a comparison is too much
    /// work.
    pub fn evaluate(
        &self,
        substitution: &mut Substitution<'_>,
        effort: &mut Effort,
    ) -> Result<ConditionsOutcome, ConditionError> {
        let mut checks = Vec::new();
        let (mut held, mut failed) = (Vec::new(), Vec::new());
        let mut any_holds = self.any.is_none();
        for condition in self.any.iter().flatten() {
            any_holds = condition.check(substitution, effort, &mut checks)?;
            if any_holds { &mut held } else { &mut failed }.push(condition);
            if any_holds {
                break;
            }
        }
        let mut all_hold = true;
        for condition in &self.all {
            all_hold = condition.check(substitution, effort, &mut checks)?;
            if all_hold { &mut held } else { &mut failed }.push(condition);
            if !all_hold {
                break;
            }
        }
        let holds = any_holds && all_hold;
        let mut messages = Vec::new();
        for condition in if holds { held } else { failed } {
            let said = condition.said(substitution).map_err(ConditionError::Substitute)?;
            messages.extend(said.filter(|said| !said.is_empty()));
        }
        // Kyverno joins the messages of the old form without a space.
        let separator = if self.plain_list { ";" } else { "; " };
        Ok(ConditionsOutcome { holds, message: messages.join(separator), checks })
    }
}

impl Condition {
    /// Its message, filled in.
    fn said(&self, substitution: &mut Substitution<'_>) -> Result<Option<String>, SubstituteError> {
        let Some(message) = &self.message else { return Ok(None) };
        let filled =
            substitution.run(message).map_err(|error| error.below(&self.path.join("message")))?;
        Ok(Some(match filled {
            Value::String(text) => text.to_string(),
            other => json::to_string(&other),
        }))
    }

    fn check(
        &self,
        substitution: &mut Substitution<'_>,
        effort: &mut Effort,
        checks: &mut Vec<ConditionCheck>,
    ) -> Result<bool, ConditionError> {
        let mut fill = |template, part: &str| {
            substitution.run(template).map_err(|e| e.below(&self.path.join(part)))
        };
        let key = fill(&self.key, "key").map_err(ConditionError::Substitute)?;
        let value = fill(&self.value, "value").map_err(ConditionError::Substitute)?;
        let Compared { holds, rule } = self
            .operator
            .compare(&key, &value, effort)
            .map_err(|exhausted| ConditionError::Compare { path: self.path.clone(), exhausted })?;
        let (path, operator) = (self.path.clone(), self.operator);
        checks.push(ConditionCheck { path, key, operator, value, holds, rule });
        Ok(holds)
    }
}

impl fmt::Display for ConditionCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ConditionCheck { path, operator, rule, .. } = self;
        let (key, value) = (json::to_string(&self.key), json::to_string(&self.value));
        let verdict = if self.holds { "holds" } else { "does not hold" };
        write!(f, "{path}: {key} {operator} {value} {verdict}, compared {rule}")
    }
}

impl ConditionError {
    /// Where the condition at fault stands, down to its key or value.
    pub fn path(&self) -> &Path {
        match self {
            ConditionError::Substitute(error) => &error.path,
            ConditionError::Compare { path, .. } => path,
        }
    }

    /// What to do next.
    pub fn hint(&self) -> Option<String> {
        match self {
            ConditionError::Substitute(error) => error.hint(),
            ConditionError::Compare { .. } => None,
        }
    }
}

impl fmt::Display for ConditionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConditionError::Substitute(error) => error.fmt(f),
            ConditionError::Compare { path, exhausted } => {
                write!(f, "cannot compare at {path}: {exhausted}")
            }
        }
    }
}

impl std::error::Error for ConditionError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            ConditionError::Substitute(error) => error.source(),
            ConditionError::Compare { exhausted, .. } => Some(exhausted),
        }
    }
}
