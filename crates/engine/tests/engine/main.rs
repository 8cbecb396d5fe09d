//! The tests of this crate from outside, in one program: each further program would cost a link.
//!
//! Policies, objects and an event go in as documents, and everything that the engine says of them comes out as one
//! text: verdicts, effects with whole objects, failures, warnings, what was read.

mod budgets;
mod changed;
mod gates;
mod lapsed;
mod made;
mod scene;
mod traced;
