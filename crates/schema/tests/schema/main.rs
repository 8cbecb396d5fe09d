//! The tests of this crate from outside, in one program: each further program would cost a link.

mod documents;
mod recorded;
mod versions;
