//! The tests of this crate from outside, in one program: each further program would cost a link.
//!
//! Policies, objects and values go in as documents, and everything that a run says comes out as one text.

mod given;
mod made;
mod run;
