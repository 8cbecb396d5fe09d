//! What can go wrong with a template, and where in its text.

use std::fmt;
use std::ops::{Deref, Range};

use kiln_diagnostic::Fault;
use kiln_value::Str;

/// A template that does not parse, or a rendering that failed; what it has to say is in [`Fault`].
///
/// [`Error::go_text`] is what Go would print.
#[derive(Clone, Debug)]
pub struct Error(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    fault: Fault<ErrorKind>,
    go_prefix: String,
    partial: String,
    file: Str,
}

/// What kind of thing went wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// The text is not a template.
    Parse,
    /// The template cannot be rendered with this data.
    Exec,
    /// The template stopped itself with a message for its user: Helm's `fail` and `required`.
    Stopped,
    /// A budget is used up.
    Limit,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, span: Range<usize>, message: impl Into<String>) -> Self {
        let fault = Fault::new(kind, span, message);
        Error(Box::new(Inner {
            fault,
            go_prefix: String::new(),
            partial: String::new(),
            file: Str::default(),
        }))
    }

    #[must_use]
    pub(crate) fn with_go_prefix(mut self, prefix: String) -> Self {
        self.0.go_prefix = prefix;
        self
    }

    /// The same error in a template that was called from another one.
    #[must_use]
    pub(crate) fn called_from(mut self, prefix: &str) -> Self {
        self.0.go_prefix.insert_str(0, prefix);
        self
    }

    #[must_use]
    pub(crate) fn in_file(mut self, name: &Str) -> Self {
        self.0.file = name.clone();
        self
    }

    #[must_use]
    pub(crate) fn with_partial(mut self, partial: String) -> Self {
        self.0.partial = partial;
        self
    }

    #[must_use]
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.0.fault = self.0.fault.maybe_hint(hint);
        self
    }

    /// The message as Go's `text/template` words it, with the name of the template, line and column.
    pub fn go_text(&self) -> String {
        format!("{}{}", self.0.go_prefix, self.message())
    }

    /// The name of the text that the span is in, which is one of several for a [`crate::TemplateSet`].
    pub fn file(&self) -> &str {
        &self.0.file
    }

    /// What was written before the error.
    pub fn partial(&self) -> &str {
        &self.0.partial
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

impl std::error::Error for Error {}

/// Why a function failed: in words for the user, or because a budget is used up.
#[derive(Clone, Debug)]
pub(crate) enum Refusal {
    /// The function's own words; Go puts `error calling NAME: ` before them.
    Failed(String),
    /// The same, and what to do next.
    Refused(String, &'static str),
    /// The words of a template that stops itself.
    Stopped(String),
    /// A budget is used up.
    Limit(String),
}

impl From<String> for Refusal {
    fn from(message: String) -> Self {
        Refusal::Failed(message)
    }
}

impl From<&str> for Refusal {
    fn from(message: &str) -> Self {
        Refusal::Failed(message.to_owned())
    }
}
