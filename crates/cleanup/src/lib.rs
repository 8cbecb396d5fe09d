//! Deletes objects when their time has come.
//!
//! | module | holds |
//! |---|---|
//! | `cleaner` | runs of CleanupPolicies and DeletingPolicies: when they begin, what they list, what they delete |
//! | `status` | what the status of these policies says |
//! | `targets` | the kinds that a policy lists |
//! | `ttl` | values of the label `cleanup.kyverno.io/ttl` |
//! | `expiry` | the objects with that label, and when each is due |
//!
//! Both machines are pure: a host gives them policies, objects, answers and the time, and carries out what they ask for.
//! They never delete anything but an object as it was listed or watched: every deletion has its UID and its version as
//! preconditions, so that an object that was changed or re-created meanwhile is looked at again.

mod cleaner;
mod expiry;
mod status;
mod targets;
mod ttl;

pub use cleaner::{
    Cleaner, CleanupEvent, CleanupPolicy, CleanupReply, CleanupRequest, Judge, Judgement,
    RunReport, Todo,
};
pub use expiry::{Expired, TtlQueue};
pub use targets::target_kinds;
pub use ttl::{PROPAGATION_ANNOTATION, ParseTtlError, TTL_LABEL, Ttl};
