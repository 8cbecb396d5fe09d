//! Kyverno's ClusterPolicy and Policy: generate, mutate and validate rules compiled, all others named as not run; and
//! its cleanup policies.
//!
//! | module | holds |
//! |---|---|
//! | `parse`, `filters`, `entries` | documents to lenient types, every slip with its place |
//! | `compile`, `generate`, `mutate`, `validate`, `pod_security` | those types to rules |
//! | `cleanup` | CleanupPolicy and ClusterCleanupPolicy |
//! | `exception` | objects that rules leave alone |
//! | `autogen` | rules for Pods rewritten for the controllers of Pods |
//! | `check` | what Kyverno refuses, in its words |
//! | `variables` | which variables a rule may use |
//! | `update` | which changes of a policy are refused or warned about |

mod autogen;
mod check;
mod cleanup;
mod compile;
mod entries;
mod exception;
mod filters;
mod generate;
mod mutate;
mod parse;
mod pod_security;
mod update;
mod validate;
mod variables;

pub(crate) use cleanup::compile as compile_cleanup;
pub(crate) use compile::compile;
pub(crate) use exception::compile as compile_exception;
pub use update::check_update;
