//! What an evaluation wants done. Nothing else leaves the engine.

use kiln_diagnostic::Diagnostic;
use kiln_object::ObjectId;
use kiln_pattern::Fix;
use kiln_rules::{Actions, Existing, Propagation, RuleId, Write};
use kiln_value::{Str, Value};

use crate::output::claim::{Claim, ObjectRef};
use crate::validate::ValidationFault;

/// Something that a host is to carry out, or to show.
#[derive(Clone, Debug)]
pub enum Effect {
    /// An object is to be there.
    Ensure(Box<Ensure>),
    /// An object is to be changed.
    Patch(Box<PatchEffect>),
    /// The request is to be refused.
    Reject {
        /// What to tell the user: the rule, and its words if it has some.
        message: String,
        /// The rule's own words.
        words: Option<String>,
    },
    /// The object is not as the rule wants it: refuse it, warn of it or write it down, as its actions say.
    Violation(Box<Violation>),
    /// Objects that the rule made of a trigger are to go.
    Delete(Box<Delete>),
    /// The object itself is to go.
    DeleteObject(Box<DeleteObject>),
    /// A warning for the user.
    Warn(Diagnostic),
}

/// An object that is not as a rule wants it.
#[derive(Clone, Debug)]
pub struct Violation {
    /// What the rule says about it.
    pub message: String,
    /// What is wrong with it, each with its place.
    pub faults: Vec<ValidationFault>,
    /// What becomes of the object.
    pub actions: Actions,
    /// It counts as a failure in reports; otherwise as a warning.
    pub scored: bool,
    /// The smallest change of the object with which the rule passes, if it was asked for and there is one that leaves no
    /// choice.
    pub fix: Option<Fix>,
}

/// An object is to be there.
#[derive(Clone, Debug)]
pub struct Ensure {
    /// What it is called.
    pub target: ObjectId,
    /// The subresource to write, for a target such as `Node/status`.
    pub subresource: Option<Str>,
    /// The whole object, ownership labels included.
    pub object: Value,
    /// Who made it, of what.
    pub claim: Claim,
    pub write: Write,
    /// What to do with an object of this name that is there already.
    pub existing: Existing,
}

/// An object is to be changed.
#[derive(Clone, Debug)]
pub struct PatchEffect {
    /// Which object.
    pub target: PatchTarget,
    /// The object as it was.
    pub before: Value,
    /// The object as it is to be.
    pub after: Value,
}

/// Which object is to be changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatchTarget {
    /// The object of the request, before it is stored.
    Trigger,
    /// An object that is stored.
    Stored {
        object: ObjectId,
        /// The subresource to write.
        subresource: Option<Str>,
    },
}

/// Objects that a rule made of a trigger are to go: all whose claim names both, and no others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delete {
    pub rule: RuleId,
    /// The trigger. Objects are found by its UID, never by its name alone.
    pub trigger: ObjectRef,
    /// Why.
    pub reason: DeleteReason,
}

/// An object is to go, because its time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeleteObject {
    /// Which one. It must still be this one, by its UID, when it is deleted.
    pub target: ObjectRef,
    /// What becomes of the objects that it owns.
    pub propagation: Option<Propagation>,
}

/// Why a trigger no longer wants its objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeleteReason {
    /// It is gone.
    Deleted,
    /// It no longer matches.
    NoMatch,
    /// The guards say no.
    Guards,
}

impl DeleteReason {
    /// The reason in words.
    pub fn as_str(self) -> &'static str {
        match self {
            DeleteReason::Deleted => "the trigger is deleted",
            DeleteReason::NoMatch => "the trigger no longer matches",
            DeleteReason::Guards => "the preconditions no longer hold",
        }
    }
}
