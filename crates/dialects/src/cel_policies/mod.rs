//! The policies whose expressions are in CEL: Kyverno's GeneratingPolicy, MutatingPolicy, ValidatingPolicy and
//! DeletingPolicy, for the cluster and for a namespace, and Kubernetes' MutatingAdmissionPolicy and ValidatingAdmissionPolicy.
//!
//! | module | holds |
//! |---|---|
//! | `head` | what all of them have in common: name, reach, conditions, named values |
//! | `constraints` | matchConstraints to what fires a rule |
//! | `delivery` | how requests reach a policy: webhooks, conditions, selectors |
//! | `request_facts` | what expressions read that only a request tells |
//! | `expressions` | expressions compiled with their types, every slip with its place inside the text |
//! | `tokens` | what is known from the text of an expression: kinds it names, suspicious loops |
//! | `generating` | GeneratingPolicy |
//! | `mutating` | MutatingPolicy |
//! | `pod_controllers` | policies for Pods, rewritten for the controllers of Pods |
//! | `validating` | ValidatingPolicy |
//! | `deleting` | DeletingPolicy |
//! | `variants` | the rules for controllers of Pods, added to policies |
//! | `admission` | MutatingAdmissionPolicy and its bindings |
//! | `validating_admission` | ValidatingAdmissionPolicy and its bindings |
//! | `in_rules` | `validate.cel` of Kyverno's rules |
//! | `object_literals` | objects that expressions write out: what they lack, and what they have too much |
//! | `template` | documents with `(( expressions ))` in them |
//! | `exception` | PolicyException |

mod admission;
mod constraints;
mod deleting;
mod delivery;
mod exception;
mod expressions;
mod generating;
mod head;
pub(crate) mod in_rules;
mod mutating;
mod object_literals;
pub mod pod_controllers;
pub(crate) mod request_facts;
mod template;
mod tokens;
mod validating;
mod validating_admission;
mod variants;

pub(crate) use admission::compile as compile_admission;
pub(crate) use deleting::compile as compile_deleting;
pub(crate) use exception::compile as compile_exception;
pub(crate) use generating::compile as compile_generating;
pub(crate) use head::request_conditions;
pub(crate) use mutating::compile as compile_mutating;
pub(crate) use validating::compile as compile_validating;
pub(crate) use validating_admission::compile as compile_validating_admission;
