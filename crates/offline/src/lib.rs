//! Runs rules over given objects: what a cluster would do, without one.
//!
//! Every given resource is taken as just created (or as the values say). What rules generate joins the
//! objects, and is itself an event for the rules that listen to such objects, as it would be live.
//!
//! | module | holds |
//! |---|---|
//! | `given_documents` | documents as objects, and the kinds that they define |
//! | `globals` | the global context, made of the given objects |
//! | `objects` | the given objects, and what rules generated: the engine's view |
//! | `values` | Kyverno's values and user files: what a cluster or a request would have known |
//! | `payload` | requests to other servers, with the fields that they leave out |
//! | `run` | every resource through every rule |
//! | `report` | what came of it |
//!
//! Nothing here reads files or prints: the command line does.

mod given_documents;
mod globals;
mod objects;
mod payload;
mod report;
mod run;
mod values;

pub use given_documents::{kinds_of, more_kinds, objects_of};
pub use kiln_engine::Status;
pub use objects::{Objects, with_namespace};
pub use report::{Counts, Deletion, Made, ObjectChange, Report, RuleResult, blocked_by};
pub use run::{Given, Job, run};
pub use values::{UserFile, Values, remark_kind};
