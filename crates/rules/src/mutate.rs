//! Programs that change objects.
//!
//! A change is one patch, or a list of loops whose bodies are changes. It acts on the object of the event, or
//! on stored objects that the rule picks as its targets.

use kiln_value::{Path, Value};
use kiln_variables::{Conditions, Template};

use crate::context::ContextEntry;
use crate::program::ForEach;
use crate::script::{Expression, NamedExpression};
use crate::trigger::Filters;

/// Changes objects.
#[derive(Clone, Debug)]
pub struct Mutate {
    /// The stored objects to change; none for the object of the event itself.
    pub targets: Option<Targets>,
    pub change: Mutation,
    /// A rule that finds nothing to change has done its work, and is not skipped.
    pub pass_unchanged: bool,
}

/// Stored objects to change.
#[derive(Clone, Debug)]
pub enum Targets {
    /// Found by kind, name, namespace and labels.
    Named(Vec<MutateTarget>),
    /// All that filters take.
    Filtered(Box<FilteredTargets>),
    /// All that match the rule itself and its conditions.
    Matching {
        /// Another rule of the policy has changed the object of a request at admission, so only the others are left to
        /// change.
        but_the_trigger: bool,
    },
    /// What an expression gives.
    FromExpression(Box<ExpressionTargets>),
}

/// Stored objects that filters take.
#[derive(Clone, Debug)]
pub struct FilteredTargets {
    /// What must match. Which operations are named does not matter.
    pub include: Filters,
    /// What must then not match.
    pub exclude: Filters,
    /// What must hold for a target, which is `object` to the conditions.
    pub conditions: Vec<NamedExpression>,
}

/// Stored objects that an expression gives.
#[derive(Clone, Debug)]
pub struct ExpressionTargets {
    /// Gives an object, a List of objects, or null.
    pub expression: Expression,
    /// What must hold for a target, which is `object` to the conditions.
    pub conditions: Vec<NamedExpression>,
}

impl Mutate {
    /// The targets that are found by kind, name, namespace and labels.
    pub fn named_targets(&self) -> &[MutateTarget] {
        match &self.targets {
            Some(Targets::Named(targets)) => targets,
            _ => &[],
        }
    }

    /// Whether it changes the object of the event, before that is stored.
    pub fn changes_trigger(&self) -> bool {
        self.targets.is_none()
    }
}

/// What to change in an object.
#[derive(Clone, Debug)]
pub enum Mutation {
    Patch(Patch),
    /// Loops, one after the other. Each sees what those before it left; within one, `request.object` (or
    /// `target`) stays as it was when the loop began.
    Loops(Vec<MutationLoop>),
    /// Patches that expressions give, one after the other, each on what the one before left.
    Steps(Vec<ScriptedPatch>),
}

/// A patch that an expression gives.
#[derive(Clone, Debug)]
pub struct ScriptedPatch {
    /// What kind of patch it is.
    pub form: PatchForm,
    pub expression: Expression,
}

/// What kind of patch an expression gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchForm {
    /// A part of the object, merged as the schema says.
    Configuration {
        /// Lists and maps that are one value are replaced; otherwise a patch may not hold them.
        over_atomic: bool,
    },
    /// A list of operations of JSON Patch.
    Operations,
}

#[derive(Clone, Debug)]
pub struct Patch {
    /// What kind of patch, and its text.
    pub body: PatchBody,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}

/// What kind of patch, and its text.
#[derive(Clone, Debug)]
pub enum PatchBody {
    /// Kyverno's strategic merge, with anchors.
    Strategic(Template),
    /// JSON Patch: a list of operations.
    Json(Value),
    /// JSON Patch as the text of a list, to be filled in before it is read.
    JsonText(Template),
}

/// A change for each element of a list.
#[derive(Clone, Debug)]
pub struct MutationLoop {
    /// The list, its context and guard.
    pub foreach: ForEach,
    /// Which element comes first.
    pub order: ForEachOrder,
    pub change: Mutation,
}

/// Which element of a list comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForEachOrder {
    /// The first.
    Ascending,
    /// The last.
    Descending,
}

/// Stored objects to change.
#[derive(Clone, Debug)]
pub struct MutateTarget {
    /// `apiVersion`; wildcards are allowed, and so is a version without its group.
    pub api_version: Option<Template>,
    /// `kind`, perhaps with a subresource behind a slash.
    pub kind: Template,
    /// The name, with wildcards; any when left out.
    pub name: Option<Template>,
    /// The namespace, with wildcards; any when left out.
    pub namespace: Option<Template>,
    /// A label selector to fill in.
    pub selector: Option<Template>,
    /// Named values of each target, which is `target` to them.
    pub context: Vec<ContextEntry>,
    /// Whether to change a target.
    pub guard: Option<Conditions>,
    /// Where it was written, from the root of the rule's document.
    pub path: Path,
}
