//! Running a validate program: whether an object is as a rule wants it, and where it is not.
//!
//! | module | holds |
//! |---|---|
//! | here | which check is run on what |
//! | `pattern` | patterns, and several of which one must be met |
//! | `deny` | conditions that must not hold |
//! | `loops` | checks for each element of a list |
//! | `pod_security` | Pods against the Pod Security Standards |
//! | `message` | what is said of a failure |
//!
//! Expressions are judged in [`crate::script`].

mod deny;
mod loops;
mod message;
mod pattern;
pub(crate) mod pod_security;

use kiln_pattern::Fix;
use kiln_rules::{Rule, Validate, ValidateCheck};
use kiln_value::{Path, Value};

use crate::context::Context;
use crate::output::failure::{Failure, FailureKind};

/// What came of a check.
#[derive(Debug)]
pub(crate) enum Checked {
    /// There was nothing to check, and why.
    Nothing(&'static str),
    /// The object is as the rule wants it.
    Pass(String),
    /// The rule asks nothing of the object, and why.
    Skip(String),
    /// The object is not as the rule wants it.
    Fail(Failed),
}

/// What is wrong with an object.
#[derive(Debug)]
pub(crate) struct Failed {
    /// All of it in one text.
    pub(crate) message: String,
    /// Each of it with its place.
    pub(crate) faults: Vec<ValidationFault>,
    /// What would have to change, where that is clear. Whether the rule then passes is for the caller to see.
    pub(crate) fix: Option<Fix>,
}

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidationFault {
    /// Where in the object, from its root; none when it is about the whole object.
    pub at: Option<Path>,
    /// Which part of the rule asks for something else, from the root of the rule's document.
    pub wanted: Option<Path>,
    /// What is wrong there, in a few words.
    pub why: String,
}

/// A check of one object.
pub(crate) struct Checking<'c> {
    pub(crate) rule: &'c Rule,
    pub(crate) program: &'c Validate,
    /// The object: of a request to delete something, what is left of it.
    pub(crate) object: &'c Value,
    /// The object is being deleted.
    pub(crate) deleting: bool,
}

/// What a pattern is held against.
#[derive(Clone, Copy)]
pub(crate) struct Subject<'s> {
    value: &'s Value,
    /// How many loops the check is in.
    depth: usize,
}

impl Checking<'_> {
    /// Runs the program.
    pub(crate) fn run(&self, context: &Context<'_>) -> Result<Checked, Failure> {
        let subject = Subject { value: self.object, depth: 0 };
        self.check(&self.program.check, subject, context)
    }

    fn check(
        &self,
        check: &ValidateCheck,
        subject: Subject<'_>,
        context: &Context<'_>,
    ) -> Result<Checked, Failure> {
        match check {
            // Kyverno: elements of lists are looked at even then.
            ValidateCheck::Pattern(_) | ValidateCheck::AnyPattern(_)
                if self.deleting && subject.depth == 0 =>
            {
                Ok(Checked::Nothing("patterns are not checked on DELETE"))
            }
            ValidateCheck::Pattern(pattern) => self.pattern(pattern, subject, context),
            ValidateCheck::AnyPattern(patterns) => self.any_pattern(patterns, subject, context),
            ValidateCheck::Deny(deny) => self.deny(deny, context),
            ValidateCheck::Loops(loops) => self.loops(loops, subject, context),
            // They are looked at where the session and the exceptions are.
            ValidateCheck::Expressions(_)
            | ValidateCheck::Answers(_)
            | ValidateCheck::PodSecurity(_) => {
                let message = "the rule has a check that is not run here";
                Err(Failure::new(FailureKind::Unserved, message))
            }
        }
    }

    /// The name of the rule, for messages.
    fn name(&self) -> &str {
        &self.rule.id.rule
    }

    fn passed(&self) -> Checked {
        Checked::Pass(format!("validation rule '{}' passed.", self.name()))
    }
}
