//! The tests of this crate from outside, in one program: each further program would cost a link.

mod bad_input;
mod corpus;
mod fuzz_regressions;
mod properties;
mod reading;
