//! Worlds, at the level of those who use them.

mod engine;
mod replicas;
mod simulation;
mod support;
