//! The tests of this crate from outside, in one program: each further program would cost a link.

mod cases;
mod chart_resources;
mod commands;
mod corpus;
mod fuzz_regressions;
mod hostile;
mod plugins;
mod reports;
