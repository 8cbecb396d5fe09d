//! The tests of this crate from outside, in one program: each further program would cost a link.

mod admission;
mod behaviour;
mod fuzz_regressions;
mod hostile;
mod patches;
mod statuses;
