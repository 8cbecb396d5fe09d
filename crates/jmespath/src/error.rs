//! What can go wrong with an expression, and where in its text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Place, Source};

/// An expression that does not compile, or a search that failed.
///
/// `Display` gives one line without the place; [`Error::span`] is the place in the text of the
/// expression, for a caret.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: ErrorKind,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
    key: Option<String>,
    source: Option<Failure>,
}

/// Why a [`Root`](crate::Root) could not give a value.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not an expression.
    Syntax,
    /// A map has no such key. `||`, `not_null` and the other places of the dialect catch this one.
    NotFound,
    /// There is no function of this name.
    UnknownFunction,
    /// A function was called with the wrong number of arguments.
    Arity,
    /// A function was called with a value of the wrong type.
    Type,
    /// A function, or a slice, cannot do what it was asked with these values.
    Failed,
    /// The root could not load a value; [`std::error::Error::source`] says why.
    Root,
    /// A budget is used up. Nothing in the dialect catches this one, nor [`ErrorKind::Root`].
    Limit,
}

impl ErrorKind {
    /// Whether filters, flattening and `.*` turn this error on their left side into null.
    pub(crate) fn is_soft(self) -> bool {
        !matches!(self, ErrorKind::Limit | ErrorKind::Root)
    }
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, span: Range<usize>, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            span,
            message: message.into(),
            hint: None,
            key: None,
            source: None,
        }))
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

    #[must_use]
    pub(crate) fn caused_by(mut self, source: Failure) -> Self {
        self.0.source = Some(source);
        self
    }

    #[must_use]
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.0.key = Some(key.to_owned());
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// Whether a map lacked a key.
    pub fn is_not_found(&self) -> bool {
        self.0.kind == ErrorKind::NotFound
    }

    /// The key that was missing, for [`ErrorKind::NotFound`].
    pub fn missing_key(&self) -> Option<&str> {
        self.0.key.as_deref()
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

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
