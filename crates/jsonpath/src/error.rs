//! What can go wrong with an expression, and where in its text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Place, Source};

/// An expression that does not parse, or an evaluation that failed.
///
/// `Display` gives one line without the place; [`Error::span`] is the place, for a caret.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
}

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
        Error(Box::new(Inner { kind, span, message: message.into(), hint: None }))
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }

    #[must_use]
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.0.hint = hint.or(self.0.hint);
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The bytes of the expression that are at fault.
    pub fn span(&self) -> Range<usize> {
        self.0.span.clone()
    }

    /// What is wrong, without the place and without the hint.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do next, if there is anything to say.
    pub fn hint_text(&self) -> Option<&str> {
        self.0.hint.as_deref()
    }

    /// The error as a diagnostic in the expression itself, under a name the user knows.
    pub fn diagnose(&self, name: &str, expression: &str) -> Diagnostic {
        let source = Arc::new(Source::new(name, expression));
        Diagnostic::error(&self.0.message)
            .at(Place::new(source, self.span()))
            .maybe_hint(self.0.hint.clone())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)?;
        match &self.0.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}
