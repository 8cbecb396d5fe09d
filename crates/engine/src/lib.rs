//! Evaluates rules: rules, an event and a view of objects in, effects and a trace out.
//!
//! Evaluation is pure. Objects come through a [`View`], time and chance through
//! [`AmbientSources`](kiln_jmespath::AmbientSources), everything beyond through [`ExternalData`]; what is to be done leaves as
//! [`Effect`]s, and a host carries them out or shows them. Each evaluation has [`Limits`].
//!
//! ```text
//! Event ─▶ RuleSet::candidates ─▶ matching ─▶ context, guards ─▶ program ─▶ write gate ─▶ Effects
//!                                    │             │ read gate      │
//!                                    └─────────────┴────── Trace ───┘
//! ```
//!
//! | module | holds |
//! |---|---|
//! | `event`, `eval_env`, `view`, `external_data`, `globals` | what is given: what happened, objects, the rest of the world |
//! | `roles` | the roles that are bound to a user |
//! | `rule_set` | all rules, found by kind, operation and namespace |
//! | `evaluate`, `outcome` | one rule for one event, from the match to the verdict |
//! | `matching` | whether an object fires a rule |
//! | `script` | rules whose expressions are in CEL: their session, what they read, documents |
//! | `context`, `load`, `address`, `api_path`, `images` | the values that expressions see, loaded when asked for |
//! | `generate`, `target` | what a generate program makes, and whether it may be written |
//! | `mutate` | what a mutate program changes, and in which objects |
//! | `modify` | what a modify program looks at, patches or refuses |
//! | `validate` | whether an object is as a validate program wants it, and where it is not |
//! | `effect`, `claim`, `failure`, `trace` | what comes out: what to do, who made what, what failed, why |
//! | `limits`, `lineage` | what an evaluation may cost, and rules that fire on each other |

mod address;
mod api_path;
mod claim;
mod context;
mod effect;
mod eval_env;
mod evaluate;
mod event;
mod external_data;
mod failure;
mod generate;
mod globals;
mod images;
mod limits;
mod lineage;
mod load;
mod matching;
mod modify;
mod mutate;
mod outcome;
mod protected_namespaces;
mod roles;
mod rule_set;
mod script;
mod target;
mod trace;
mod validate;
mod view;

pub use claim::{
    ANNOTATION_PREFIX, Claim, ClaimLabels, ContentHash, LABEL_PREFIX, MANAGED_BY, MANAGER,
    ObjectRef, SOURCE, SOURCE_SEPARATOR, Slot, strip,
};
pub use context::place;
pub use effect::{
    Delete, DeleteObject, DeleteReason, Effect, Ensure, Patch, PatchTarget, Violation,
};
pub use eval_env::EvalEnv;
pub use evaluate::evaluate;
pub use event::{Event, User};
pub use external_data::{
    ExternalData, ExternalDataError, NoExternalData, ServiceAnswer, ServiceRequest,
};
pub use failure::{Failure, FailureKind, MissingSource};
pub use globals::{CachedGlobal, GlobalEntry, GlobalSource, Globals, WithGlobals};
pub use limits::{Cost, Exceeded, Limits, Traced};
pub use lineage::{Lineage, Loop};
pub use outcome::{RuleOutcome, Status, Verdict};
pub use rule_set::{Mutated, RuleSet};
pub use trace::{TraceAnswer, TraceStep};
pub use validate::Fault;
pub use view::{
    AccessRequest, CLAIM_KEYS, EmptyView, ListPage, ListQuery, ReadError, RecordedRead, View,
    is_own_secret,
};

pub use kiln_pattern::{FieldChange, FieldValue, Fix};
pub use kiln_rules::Existing;
