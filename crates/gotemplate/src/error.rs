//! What can go wrong with a template, and where in its text.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Place, Source};

/// A template that does not parse, or a rendering that failed.
///
/// `Display` gives one line without the place; [`Error::go_text`] is what Go would print.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    kind: ErrorKind,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
    go_prefix: String,
    partial: String,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not a template.
    Parse,
    /// The template cannot be rendered with this data.
    Exec,
    /// A budget is used up.
    Limit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, span: Range<usize>, message: impl Into<String>) -> Self {
        let message = message.into();
        Error(Box::new(Inner {
            kind,
            span,
            message,
            hint: None,
            go_prefix: String::new(),
            partial: String::new(),
        }))
    }

    #[must_use]
    pub(crate) fn with_go_prefix(mut self, prefix: String) -> Self {
        self.0.go_prefix = prefix;
        self
    }

    #[must_use]
    pub(crate) fn with_partial(mut self, partial: String) -> Self {
        self.0.partial = partial;
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

    /// The bytes of the template that are at fault.
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

    /// The message as Go's `text/template` words it, with the name of the template, line and column.
    pub fn go_text(&self) -> String {
        format!("{}{}", self.0.go_prefix, self.0.message)
    }

    /// What was written before the error.
    pub fn partial(&self) -> &str {
        &self.0.partial
    }

    /// The error as a diagnostic in the template itself, under a name the user knows.
    pub fn diagnose(&self, name: &str, template: &str) -> Diagnostic {
        let source = Arc::new(Source::new(name, template));
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

/// Why a function failed: in words for the user, or because a budget is used up.
#[derive(Clone, Debug)]
pub(crate) enum Fault {
    /// The function's own words; Go puts `error calling NAME: ` before them.
    Failed(String),
    /// The same, and what to do next.
    Refused(String, &'static str),
    /// A budget is used up.
    Limit(String),
}

impl From<String> for Fault {
    fn from(message: String) -> Self {
        Fault::Failed(message)
    }
}

impl From<&str> for Fault {
    fn from(message: &str) -> Self {
        Fault::Failed(message.to_owned())
    }
}
