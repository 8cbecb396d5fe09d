//! The tests of this crate from outside, in one program: each further program would cost a link.

mod certificates;
mod monitoring;
mod same_as_world;
mod server;
mod support;
mod watch;
