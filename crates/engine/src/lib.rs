//! Evaluates rules: rules, an event and a view of objects in, effects and a trace out.
//!
//! Evaluation is pure. Objects come through a [`View`], time and chance through
//! [`AmbientSources`](kiln_jmespath::AmbientSources), everything beyond through [`ExternalData`]; what is to be done leaves as
//! [`Effect`]s, and a host carries them out or shows them. Each evaluation has [`EvaluationLimits`].
//!
//! ```text
//! Event ─▶ RuleSet::candidates ─▶ matching ─▶ context, guards ─▶ program ─▶ write gate ─▶ Effects
//!                                    │             │ read gate      │
//!                                    └─────────────┴────── Trace ───┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `input` | what is given: what happened (`event`), objects (`view`), an admission request on its way to rules that act later (`observed_request`), `external_data`, `globals`, `limits`; what users keep from rules (`host_allowlist`, `resource_filter`) and who stored a policy (`author`) |
//! | `rule_set` | all rules of a host; `rule_index`: found by what an object is, `rule_requirements`: what it must be like |
//! | `evaluate` | one rule for one event, from the match to the verdict |
//! | `matching` | whether an object fires a rule; `roles`: the roles that are bound to a user |
//! | `context` | the values that expressions see, loaded when asked for (`load`, `address`, `api_path`, `images`) |
//! | `script` | rules whose expressions are in CEL: their session, what they read, documents |
//! | `generate` | what a generate program makes |
//! | `mutate` | what a mutate program changes, and in which objects |
//! | `modify` | what a modify program looks at, patches or refuses |
//! | `validate` | whether an object is as a validate program wants it, and where it is not |
//! | `write_gate`, `protected_namespaces` | whether a rule may write what it makes |
//! | `output` | what comes out: `effect`, `outcome`, `failure`, `trace`; who made what (`claim`, `ownership`), rules that fire on each other (`lineage`), what servers do not store (`storability`) |

mod context;
mod evaluate;
mod generate;
mod input;
mod matching;
mod modify;
mod mutate;
mod output;
mod protected_namespaces;
mod rule_index;
mod rule_requirements;
mod rule_set;
mod script;
mod validate;
mod write_gate;

pub use context::place;
pub use evaluate::evaluate;
pub use input::author;
pub use input::eval_env::EvalEnv;
pub use input::event::{Event, EventContext, RequestDetails, User};
pub use input::external_data::{
    ExternalData, ExternalDataError, NoExternalData, ServiceAnswer, ServiceRequest,
};
pub use input::globals::{CachedGlobal, GlobalEntry, GlobalSource, Globals, WithGlobals};
pub use input::host_allowlist::{AllowedHost, HostAllowlist, RefusedAddress};
pub use input::limits::{Cost, EvaluationLimits, Exceeded, Traced};
pub use input::observed_request::{CARRIES, ObservedRequest};
pub use input::resource_filter::ResourceFilter;
pub use input::view::{
    AccessRequest, CLAIM_KEYS, EmptyView, ListPage, ListQuery, ReadError, RecordedRead, View,
    is_own_secret,
};
pub use output::claim::{
    ANNOTATION_PREFIX, Claim, ClaimLabels, ContentHash, MANAGED_BY, ObjectRef, SOURCE,
    SOURCE_SEPARATOR, Slot, is_manager, is_ownership_label, strip,
};
pub use output::effect::{
    Delete, DeleteObject, DeleteReason, Effect, Ensure, PatchEffect, PatchTarget, Violation,
};
pub use output::failure::{Failure, FailureKind, MissingSource};
pub use output::lineage::{Lineage, Loop};
pub use output::outcome::{RuleOutcome, Status, Verdict};
pub use output::ownership::{CLAIM_USER, ClaimBooks, Ownership, TRIGGER_CONTENT};
pub use output::storability::StorageCheck;
pub use output::trace::{TraceAnswer, TraceStep};
pub use protected_namespaces::usual_protected_namespaces;
pub use rule_set::{Mutated, RuleSet};
pub use validate::ValidationFault;

pub use kiln_pattern::{FieldChange, FieldValue, Fix};
pub use kiln_rules::Existing;
