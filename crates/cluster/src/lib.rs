//! Clusters: what can be asked of one, how it answers, and one that lives in memory.
//!
//! | module | holds |
//! |---|---|
//! | `call` | what is asked ([`Call`]) and answered ([`Reply`]): the same for every cluster |
//! | `error` | why a call failed ([`ApiError`]), sorted by what to do about it ([`Reason`]) |
//! | `watch` | what a watch tells ([`WatchEvent`]) |
//! | `memory` | a whole cluster as a data structure ([`Memory`]), for tests, and for an API server to serve |
//! | `secret` | how a server folds `stringData` into `data` |
//!
//! Calls are data: the code that decides what to do needs no connection, and the code that carries it out decides
//! nothing.

mod call;
mod error;
pub mod memory;
mod secret;
mod watch;

pub use call::{Call, KindKey, Listing, ObjectPatch, Preconditions, Reply, Verb};
pub use error::{ApiError, Reason};
pub use memory::Memory;
pub use secret::fold_string_data;
pub use watch::{Change, WatchEvent};
