//! Running compiled expressions.
//!
//! [`plan`](self::plan) turns a checked tree into nodes that refer to variables by slot and to
//! functions directly; [`run`](self::run) walks them. Recursion follows the nesting of the
//! expression, which the parser has limited; operator and selection chains are loops.

mod access;
mod loops;
mod node;
mod operators;
mod plan;
mod run;
mod session;

pub use self::node::Program;
pub(crate) use self::operators::arithmetic;
pub(crate) use self::session::Context;
pub use self::session::Session;
