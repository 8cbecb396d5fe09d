//! Kyverno's ClusterPolicy and Policy: generate, mutate and validate rules compiled, all others named as not run; and
//! its cleanup policies.
//!
//! | module | holds |
//! |---|---|
//! | `parse`, `filters`, `entries` | documents to lenient types, every mistake with its place |
//! | `compile`, `generate`, `mutate`, `validate`, `loops`, `pod_security` | those types to rules |
//! | `cleanup` | CleanupPolicy and ClusterCleanupPolicy |
//! | `exception` | objects that rules leave alone |
//! | `autogen` | rules for Pods rewritten for the controllers of Pods |
//! | `check`, `remarks` | what Kyverno refuses and warns about, in its words |
//! | `variables` | which variables a rule may use |
//! | `delivery` | how requests reach a policy, and what its variables read of them |
//! | `update` | which changes of a policy are refused or warned about |

mod autogen;
mod check;
mod cleanup;
mod compile;
mod delivery;
mod entries;
mod exception;
mod filters;
mod generate;
mod loops;
mod mutate;
mod parse;
mod pod_security;
mod remarks;
mod update;
mod validate;
mod variables;

pub(crate) use cleanup::compile as compile_cleanup;
pub(crate) use compile::compile;
pub(crate) use exception::compile as compile_exception;
pub use update::check_update;

/// The rules that are added to those of a policy for the controllers of Pods, as they would be written.
pub fn derived_rules(policy: &kiln_value::Value) -> Vec<kiln_value::Value> {
    autogen::derive(policy).into_iter().map(|derived| derived.rule).collect()
}
