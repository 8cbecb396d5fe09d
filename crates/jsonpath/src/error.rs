//! What can go wrong with an expression, and where in its text.

use std::fmt;
use std::ops::{Deref, Range};

use kiln_diagnostic::Fault;

/// An expression that does not parse, or an evaluation that failed; what it has to say is in [`Fault`].
#[derive(Clone, Debug)]
pub struct Error(Box<Fault<ErrorKind>>);

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not an expression.
    Syntax,
    /// The expression cannot be evaluated on this value.
    Evaluation,
    /// A budget is used up. Filters do not catch this one.
    Limit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, span: Range<usize>, message: impl Into<String>) -> Self {
        Error(Box::new(Fault::new(kind, span, message)))
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.maybe_hint(Some(hint.into()))
    }

    #[must_use]
    pub(crate) fn maybe_hint(self, hint: Option<String>) -> Self {
        Error(Box::new(self.0.maybe_hint(hint)))
    }
}

impl Deref for Error {
    type Target = Fault<ErrorKind>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Error {}
