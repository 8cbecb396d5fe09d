//! The tests of this crate from outside, in one program: each further program would cost a link.

mod admission;
mod behaviour;
mod definitions;
mod escalation;
mod fuzz_regressions;
mod histories;
mod hostile;
mod identity;
mod patches;
mod statuses;
