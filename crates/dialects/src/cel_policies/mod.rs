//! The policies whose expressions are in CEL: Kyverno's GeneratingPolicy and MutatingPolicy, for the cluster
//! and for a namespace, and Kubernetes' MutatingAdmissionPolicy.
//!
//! | module | holds |
//! |---|---|
//! | `head` | what all of them have in common: name, reach, conditions, named values |
//! | `constraints` | matchConstraints to what fires a rule |
//! | `expressions` | expressions compiled with their types, every slip with its place inside the text |
//! | `tokens` | what is known from the text of an expression: kinds it names, suspicious loops |
//! | `generating` | GeneratingPolicy |
//! | `mutating` | MutatingPolicy |
//! | `pod_controllers` | MutatingPolicies for Pods, rewritten for the controllers of Pods |
//! | `admission` | MutatingAdmissionPolicy and its bindings |
//! | `object_literals` | objects that expressions write out: what they lack, and what they have too much |
//! | `template` | documents with `(( expressions ))` in them |
//! | `exception` | PolicyException |

mod admission;
mod constraints;
mod exception;
mod expressions;
mod generating;
mod head;
mod mutating;
mod object_literals;
pub mod pod_controllers;
mod template;
mod tokens;

pub(crate) use admission::compile as compile_admission;
pub(crate) use exception::compile as compile_exception;
pub(crate) use generating::compile as compile_generating;
pub(crate) use head::request_conditions;
pub(crate) use mutating::compile as compile_mutating;
