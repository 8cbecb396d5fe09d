//! What this repository says of itself, held against the binary: pages, examples, transcripts, lists of tests.

mod documentation;
mod examples;
pub(crate) mod named_tests;
pub(crate) mod picture;
mod promises;
mod security;
mod transcripts;
mod walk;
