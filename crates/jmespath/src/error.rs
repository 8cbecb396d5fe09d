//! What can go wrong with an expression, and where in its text.

use std::fmt;
use std::ops::{Deref, Range};

use kiln_diagnostic::Fault;

/// An expression that does not compile, or a search that failed; what it has to say is in [`Fault`].
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    fault: Fault<ErrorKind>,
    key: Option<String>,
    source: Option<RootFailure>,
}

/// Why a [`Root`](crate::Root) could not give a value.
pub type RootFailure = Box<dyn std::error::Error + Send + Sync>;

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
        Error(Box::new(Inner { fault: Fault::new(kind, span, message), key: None, source: None }))
    }

    #[must_use]
    pub(crate) fn hint(self, hint: impl Into<String>) -> Self {
        self.maybe_hint(Some(hint.into()))
    }

    #[must_use]
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.0.fault = self.0.fault.maybe_hint(hint);
        self
    }

    #[must_use]
    pub(crate) fn caused_by(mut self, source: RootFailure) -> Self {
        self.0.source = Some(source);
        self
    }

    #[must_use]
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        self.0.key = Some(key.to_owned());
        self
    }

    /// Whether a map lacked a key.
    pub fn is_not_found(&self) -> bool {
        self.kind() == ErrorKind::NotFound
    }

    /// The key that was missing, for [`ErrorKind::NotFound`].
    pub fn missing_key(&self) -> Option<&str> {
        self.0.key.as_deref()
    }
}

impl Deref for Error {
    type Target = Fault<ErrorKind>;

    fn deref(&self) -> &Self::Target {
        &self.0.fault
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fault.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.source.as_deref().map(|source| source as &(dyn std::error::Error + 'static))
    }
}
