//! What the tests of all crates share.
//!
//! Corpora are recorded cases that live outside the project (`../shared/corpus` beside a checkout, or
//! the folder that `KILN_CORPUS` names). A test that needs one asks [`corpus`] for it and returns when it is
//! not there; the skip is said on the real standard error, where `cargo xtask test` counts it.
//!
//! A [`Tally`] runs the cases of one corpus, so that a failure shows every failing case and not
//! only the first, and a success says how many there were.

#[cfg(feature = "control-plane")]
pub mod control_plane;
mod corpus;
mod kyverno;
#[cfg(feature = "server")]
pub mod server;
mod tally;

pub use corpus::{corpus, corpus_json, project_root};
pub use kyverno::{MadeBy, copied_by_kyverno, made_by_kyverno};
pub use tally::{Tally, difference};
