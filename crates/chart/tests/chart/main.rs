//! The tests of this crate from outside, in one program: each further program would cost a link.

mod cases;
mod errors;
mod fuzz_regressions;
mod hostile;
