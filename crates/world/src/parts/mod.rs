//! The parts of a replica, each with the machine that `kiln run` has for it.

pub(crate) mod cleanup;
pub(crate) mod controller;
pub(crate) mod globals;
pub(crate) mod leader;
pub(crate) mod native_policies;
pub(crate) mod policies;
pub(crate) mod scan;
pub(crate) mod telling;
pub(crate) mod webhooks;
