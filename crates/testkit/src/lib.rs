//! What the tests of all crates share.
//!
//! Corpora are recorded cases that live outside the project (`../shared/corpus` beside a checkout, or
//! the directory that `KILN_CORPUS` names). A test that needs one asks [`corpus`] for it and returns when it is
//! not there; [`skip`] says so where `cargo xtask test` counts it, and fails where `KILN_REQUIRE_ALL` is set.
//!
//! Tables are cases that the repository has of its own, in `tests/cases` of a crate: [`cases`] runs them.
//!
//! A [`Tally`] runs the cases of one corpus, so that a failure shows every failing case and not
//! only the first, and a success says how many there were.

mod cases;
#[cfg(feature = "control-plane")]
pub mod control_plane;
mod corpus;
mod kyverno;
pub mod markdown;
#[cfg(feature = "memory")]
pub mod memory;
mod missing;
#[cfg(feature = "server")]
pub mod server;
mod shape;
mod tally;

pub use cases::{Case, Expected, cases, read_cases};
pub use corpus::{RECORDED_CASES, corpus, corpus_directory, corpus_json, project_root};
pub use kyverno::{MadeBy, copied_by_kyverno, made_by_kyverno};
pub use missing::{skip, skip_named};
pub use shape::TypeShape;
pub use tally::{Tally, difference};
