//! Clusters: what can be asked of one, and how it answers.
//!
//! | module | holds |
//! |---|---|
//! | `call` | what is asked ([`Call`]) and answered ([`Reply`]): the same for every cluster |
//! | `error` | why a call failed ([`ApiError`]), sorted by what to do about it ([`Reason`]) |
//! | `watch` | what a watch tells ([`WatchEvent`]) |
//!
//! Calls are data: the code that decides what to do needs no connection, and the code that carries it out decides
//! nothing.

mod call;
mod error;
mod watch;

pub use call::{Call, Listing, ObjectPatch, Preconditions, Reply, Verb};
pub use error::{ApiError, Reason};
pub use kiln_object::KindKey;
pub use watch::WatchEvent;
