//! Kyverno's ClusterPolicy and Policy: generate rules compiled, mutate rules kept for their compiler, all
//! others named as not run.
//!
//! | module | holds |
//! |---|---|
//! | `parse`, `filters`, `entries` | documents to lenient types, every slip with its place |
//! | `compile`, `generate` | those types to rules |
//! | `check` | what Kyverno refuses, in its words |
//! | `variables` | which variables a rule may use |
//! | `update` | which changes of a policy are refused or warned about |

mod check;
mod compile;
mod entries;
mod filters;
mod generate;
mod parse;
mod update;
mod variables;

pub(crate) use compile::compile;
pub use update::check_update;
