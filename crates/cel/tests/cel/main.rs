//! The tests of this crate from outside, in one program: each further program would cost a link.

mod cases;
mod conformance;
mod fuzz_regressions;
mod hostile;
mod policies;
mod recorded_policies;
mod requests;
