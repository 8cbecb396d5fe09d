//! What an evaluation gives: what to do, which rule made what, what failed, and why.

pub(crate) mod claim;
pub(crate) mod effect;
pub(crate) mod failure;
pub(crate) mod lineage;
pub(crate) mod outcome;
pub(crate) mod ownership;
pub(crate) mod storability;
pub(crate) mod trace;
