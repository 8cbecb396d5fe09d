//! Worlds, at the level of those who use them.

mod engine;
mod replicas;
mod support;
mod takeover;
