//! Programs that check objects.
//!
//! A check is one pattern, several of which one must be met, conditions that must not hold, expressions that
//! must, a level of Pod Security, or loops whose bodies are checks. What becomes of an object that fails is
//! said beside the check.

use kiln_object::selector::WildcardSelector;
use kiln_podsecurity::{Exclusion, Standard};
use kiln_value::{Path, Str};
use kiln_variables::{Conditions, Template};

use crate::program::ForEach;
use crate::script::Expression;

/// Checks objects.
#[derive(Clone, Debug)]
pub struct Validate {
    pub check: ValidateCheck,
    /// What to say of an object that fails, to be filled in when it does.
    pub message: Option<Template>,
    /// What becomes of an object that fails.
    pub on_failure: FailureActions,
    /// An update is let through if the object failed before it, too.
    pub allows_existing: bool,
    /// Failures count as such in reports; otherwise they are warnings there.
    pub scored: bool,
}

#[derive(Clone, Debug)]
pub enum ValidateCheck {
    /// The object is as a pattern says.
    Pattern(Pattern),
    /// The object is as at least one of these patterns says.
    AnyPattern(Vec<Pattern>),
    /// The conditions do not hold.
    Deny(Deny),
    /// Each element of each list passes.
    Loops(Vec<CheckLoop>),
    /// All expressions are true, in the session of the rule's script.
    Expressions(Box<Expressions>),
    /// The first expression that gives an answer to a request allows it, in the session of the rule's script.
    Answers(Box<Answers>),
    /// A Pod, or what makes Pods, keeps to a level of the Pod Security Standards.
    PodSecurity(Box<PodSecurity>),
}

/// An object, described by example.
#[derive(Clone, Debug)]
pub struct Pattern {
    /// The example, with anchors and operators, to be filled in.
    pub template: Template,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
    /// How many steps were put around it to reach the Pod in a controller of Pods; they are in no document.
    pub wrapped: usize,
}

/// What must not hold.
#[derive(Clone, Debug)]
pub struct Deny {
    /// The conditions; without any, every object fails.
    pub conditions: Option<Conditions>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// A check for each element of a list.
#[derive(Clone, Debug)]
pub struct CheckLoop {
    /// The list, its context and guard.
    pub foreach: ForEach,
    /// Whether patterns look at the element: only at maps when left out.
    pub element_scope: Option<bool>,
    pub check: ValidateCheck,
}

/// Expressions that must all be true.
#[derive(Clone, Debug)]
pub struct Expressions {
    /// Evaluated in order, until one is not true.
    pub validations: Vec<Validation>,
    /// An expression, or a condition, that cannot be evaluated counts as false.
    pub errors_fail: bool,
    /// A condition that cannot be evaluated counts as false, and refuses nothing.
    pub ignores_errors: bool,
    /// The text of a message expression is taken as it is; otherwise only if it is one short line.
    pub any_message: bool,
    /// Without a message, and in reports, a validation is known by its number; otherwise by its text.
    pub numbered: bool,
    /// What to say when all are true.
    pub passed: Str,
    /// What to say when the conditions do not hold.
    pub unmet: &'static str,
}

/// Expressions of which the first that gives an answer decides about a request.
#[derive(Clone, Debug)]
pub struct Answers {
    /// Evaluated in order; null does not count as an answer.
    pub expressions: Vec<Expression>,
    /// A failure does not count as an answer either.
    pub ignores_errors: bool,
}

/// An expression that must be true.
#[derive(Clone, Debug)]
pub struct Validation {
    pub expression: Expression,
    /// What to say when it is false.
    pub message: Option<Str>,
    /// What to say when it is false, as an expression, which counts more.
    pub message_expression: Option<Expression>,
}

/// A level of the Pod Security Standards.
#[derive(Clone, Debug)]
pub struct PodSecurity {
    /// The level, in a version.
    pub standard: Standard,
    /// The version as written; empty when left out.
    pub version: Str,
    /// What is not looked at.
    pub exclude: Vec<Exclusion>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// What becomes of objects that fail, by namespace.
#[derive(Clone, Debug, Default)]
pub struct FailureActions {
    /// Asked in order; the first that means the object's namespace decides.
    pub overrides: Vec<ActionOverride>,
    /// What holds everywhere else.
    pub usual: Actions,
}

/// What becomes of objects in some namespaces that fail.
#[derive(Clone, Debug)]
pub struct ActionOverride {
    /// What becomes of them.
    pub actions: Actions,
    /// Wildcards for names of namespaces; all when there are none.
    pub namespaces: Vec<Str>,
    /// Which labels the namespace must have besides.
    pub selector: Option<WildcardSelector>,
}

/// What becomes of an object that fails a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Actions {
    /// The request is refused.
    pub deny: bool,
    /// The sender of the request gets a warning.
    pub warn: bool,
    /// The failure is written down.
    pub audit: bool,
}

impl Actions {
    /// The request is refused.
    pub const DENY: Actions = Actions { deny: true, warn: false, audit: false };
    /// The failure is written down, and nothing else.
    pub const AUDIT: Actions = Actions { deny: false, warn: false, audit: true };
}

impl Validate {
    /// Every pattern, also those in loops.
    pub fn patterns(&self) -> Vec<&Pattern> {
        fn of<'c>(check: &'c ValidateCheck, found: &mut Vec<&'c Pattern>) {
            match check {
                ValidateCheck::Pattern(pattern) => found.push(pattern),
                ValidateCheck::AnyPattern(patterns) => found.extend(patterns),
                ValidateCheck::Loops(loops) => {
                    loops.iter().for_each(|entry| of(&entry.check, found));
                }
                ValidateCheck::Deny(_)
                | ValidateCheck::Expressions(_)
                | ValidateCheck::Answers(_)
                | ValidateCheck::PodSecurity(_) => {}
            }
        }
        let mut found = Vec::new();
        of(&self.check, &mut found);
        found
    }

    /// Every expression in CEL.
    pub fn expressions(&self) -> Vec<&Expression> {
        match &self.check {
            ValidateCheck::Expressions(expressions) => {
                let all = expressions.validations.iter();
                all.flat_map(|one| [Some(&one.expression), one.message_expression.as_ref()])
                    .flatten()
                    .collect()
            }
            ValidateCheck::Answers(answers) => answers.expressions.iter().collect(),
            _ => Vec::new(),
        }
    }
}
