//! The real binary: whole commands, whole output, exit codes.

mod apply;
mod documentation;
mod eval;
mod examples;
mod fmt;
mod general;
mod harness;
