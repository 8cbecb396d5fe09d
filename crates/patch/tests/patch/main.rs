//! The tests of this crate from outside, in one program: each further program would cost a link.

mod apiserver;
mod common;
mod costs;
mod errors;
mod fuzz_regressions;
mod laws;
mod policies;
