//! Values to go-yaml v2's bytes: how strings, keys and numbers are written.

pub(crate) mod emit;
pub(crate) mod float;
pub(crate) mod order;
pub(crate) mod scalar;
pub(crate) mod style;
