//! The flow of a build: kustomization by kustomization, step by step, and what runs at the end.

pub(crate) mod accumulate;
pub(crate) mod budget;
pub(crate) mod explain;
pub(crate) mod kustomize_differences;
pub(crate) mod name_reference;
pub(crate) mod session;
pub(crate) mod stats;
pub(crate) mod steps;
pub(crate) mod vars;
