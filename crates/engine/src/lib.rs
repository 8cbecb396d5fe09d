//! Evaluates rules: rules, an event and a view of objects in, effects and a trace out.
//!
//! Evaluation is pure. Objects come through a [`View`], time and chance through
//! [`Sources`](kiln_jmespath::Sources), everything beyond through [`Outside`]; what is to be done leaves as
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
//! | `event`, `world`, `view`, `outside`, `globals` | what is given: what happened, objects, the rest of the world |
//! | `roles` | the roles that are bound to a user |
//! | `rule_set` | all rules, found by kind, operation and namespace |
//! | `evaluate`, `outcome` | one rule for one event, from the match to the verdict |
//! | `matching` | whether an object fires a rule |
//! | `script` | rules whose expressions are in CEL: their session, what they read, documents |
//! | `context`, `load`, `address`, `api_path`, `images` | the values that expressions see, loaded when asked for |
//! | `generate`, `target` | what a generate program makes, and whether it may be written |
//! | `mutate` | what a mutate program changes, and in which objects |
//! | `modify` | what a modify program looks at, patches or refuses |
//! | `effect`, `claim`, `failure`, `trace` | what comes out: what to do, who made what, what failed, why |
//! | `limits`, `lineage` | what an evaluation may cost, and rules that fire on each other |

mod address;
mod api_path;
mod claim;
mod context;
mod effect;
mod evaluate;
mod event;
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
mod outside;
mod protected;
mod roles;
mod rule_set;
mod script;
mod target;
mod trace;
mod view;
mod world;

pub use claim::{
    ANNOTATION_PREFIX, Claim, ClaimLabels, ContentHash, LABEL_PREFIX, MANAGED_BY, MANAGER,
    ObjectRef, SOURCE, SOURCE_SEPARATOR, Slot, strip,
};
pub use effect::{Delete, Effect, Ensure, Lapse, Patch, PatchTarget};
pub use evaluate::evaluate;
pub use event::{Event, User};
pub use failure::{Failure, FailureKind, MissingSource};
pub use globals::{Entry, Globals, WithGlobals};
pub use limits::{Cost, Exceeded, Limits, Traced};
pub use lineage::{Lineage, Loop};
pub use outcome::{Outcome, Status, Verdict};
pub use outside::{Offline, Outside, OutsideError, ServiceAnswer, ServiceRequest};
pub use rule_set::{Mutated, RuleSet};
pub use trace::{Answer, Step};
pub use view::{CLAIM_KEYS, ListQuery, Nothing, Page, Read, ReadError, View, Wish, is_own_secret};
pub use world::World;

pub use kiln_rules::Existing;
