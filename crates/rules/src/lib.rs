//! The one model that every input language compiles to.
//!
//! A [`Rule`] says what fires it, how far it reaches, which values it names, what must hold, what it does
//! and what becomes of what it made:
//!
//! | module | holds |
//! |---|---|
//! | `rule` | [`Rule`], and [`Policy`], which holds rules that were written together |
//! | `id` | names of rules that stay the same from one run to the next |
//! | `trigger`, `kind_pattern`, `operation` | what fires a rule: objects, operations, users |
//! | `scope` | how far a rule reaches |
//! | `context` | named values and where they come from |
//! | `script`, `document` | named values, conditions and documents in CEL |
//! | `program`, `mutate`, `modify`, `validate`, `delete` | what a rule does once it fires |
//! | `lifecycle` | what becomes of what it made |
//! | `delivery` | how requests reach a policy, and what its rules read of them |
//! | `exception` | objects that rules leave alone |
//! | `origin` | where it was written |
//!
//! The model knows nothing of the languages' syntax and nothing of how rules are run. A difference
//! between languages is a field with a name here, never a question of where a rule came from.

mod context;
mod delete;
mod delivery;
mod document;
mod exception;
mod id;
mod kind_pattern;
mod lifecycle;
mod modify;
mod mutate;
mod operation;
mod origin;
mod program;
mod rule;
mod scope;
mod script;
mod trigger;
mod validate;

pub use context::{ApiCall, Callee, ContextEntry, Load, Method, QueryText};
pub use delete::{Delete, Propagation};
pub use delivery::{
    AdmissionPart, Delivery, FailurePolicies, FailurePolicy, MatchConditions, RequestFacts,
    ShadowOf, WebhookFamily, WebhookPurpose, WebhookTimeout,
};
pub use document::{DocumentPart, TextPiece};
pub use exception::{ExceptedRules, Exception, Exempts, ReportResult};
pub use id::{Dialect, PolicyId, RuleId};
pub use kiln_object::kinds::usual_plural;
pub use kind_pattern::{KindPattern, is_version};
pub use lifecycle::{
    ALLOW_RULE_CHANGES, Existing, LabelOwner, Lifecycle, OnPolicyDelete, OwnershipLabels, Write,
    allows_rule_changes,
};
pub use modify::{
    MatchItem, Modify, ModifyAction, NamespaceReach, PatchAction, PatchItem, Quantifier, ValueTest,
};
pub use mutate::{
    ExpressionTargets, FilteredTargets, ForEachOrder, Mutate, MutateTarget, Mutation, MutationLoop,
    Patch, PatchBody, PatchForm, ScriptedPatch, Targets,
};
pub use operation::{Operation, Operations, UnknownOperation};
pub use origin::Origin;
pub use program::{
    Block, CloneSelect, Emission, Emitter, ForEach, Generate, Program, Source, Target,
    TargetNamespace,
};
pub use rule::{ApplyRules, Policy, ReportWords, Rule};
pub use scope::Scope;
pub use script::{Expression, FindParams, MissingParams, NamedExpression, Params, Script, Unmet};
pub use trigger::{
    Filter, FilterSemantics, Filters, Payload, Subject, Trigger, UserFilter, any_pair_matches,
};
pub use validate::{
    ActionOverride, Actions, Answers, CheckLoop, Deny, Expressions, FailureActions, Pattern,
    PodSecurity, Validate, ValidateCheck, Validation,
};
