//! The policies whose expressions are in CEL: GeneratingPolicy and NamespacedGeneratingPolicy of Kyverno.
//!
//! | module | holds |
//! |---|---|
//! | `head` | what all of them have in common: name, reach, conditions, named values |
//! | `constraints` | matchConstraints to what fires a rule |
//! | `expressions` | expressions compiled with their types, every slip with its place inside the text |
//! | `tokens` | what can be told from the text of an expression: kinds it names, suspicious loops |
//! | `generating` | GeneratingPolicy |
//! | `template` | documents with `(( expressions ))` in them |
//! | `exception` | PolicyException |

mod constraints;
mod exception;
mod expressions;
mod generating;
mod head;
mod template;
mod tokens;

pub(crate) use exception::compile as compile_exception;
pub(crate) use generating::compile as compile_generating;
