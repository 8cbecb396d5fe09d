//! The tests of this crate from outside, in one program: each further program would cost a link.

mod fuzz_regressions;
mod laws;
mod malformed;
mod recorded;
mod words;
