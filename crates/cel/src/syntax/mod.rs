//! From text to a tree: tokens, literals, the parser with its macros.

pub(crate) mod ast;
mod lex;
mod literal;
mod macros;
mod parse;

pub use lex::{CelToken, lex};
pub(crate) use macros::MACROS;
pub(crate) use parse::{Dialect, parse};
