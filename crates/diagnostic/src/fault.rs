//! What is wrong with an expression or a template that stands for itself.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::{Diagnostic, Source, SourceLocation};

/// A part of a text that is at fault, and why. The kinds of faults are those of the language.
///
/// `Display` gives one line without the place.
///
/// ```
/// use kiln_diagnostic::Fault;
/// let fault = Fault::new("syntax", 2..3, "expected a name").hint("quote it");
/// assert_eq!(fault.to_string(), "expected a name (quote it)");
/// let problem = fault.diagnose("<expression>", "a.1");
/// assert_eq!(problem.to_string(), "<expression>:1:3: expected a name (quote it)");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault<K> {
    kind: K,
    span: Range<usize>,
    message: String,
    hint: Option<String>,
}

impl<K: Copy> Fault<K> {
    /// A fault in these bytes of the text.
    pub fn new(kind: K, span: Range<usize>, message: impl Into<String>) -> Self {
        Fault { kind, span, message: message.into(), hint: None }
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        self.maybe_hint(Some(hint.into()))
    }

    /// Says what to do next, if there is anything to say.
    #[must_use]
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }

    /// What kind of thing went wrong.
    pub fn kind(&self) -> K {
        self.kind
    }

    /// The bytes of the text that are at fault.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is wrong, without the place and without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What to do next, if there is anything to say.
    pub fn hint_text(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The fault as a diagnostic in the text itself, under a name the user knows.
    pub fn diagnose(&self, name: &str, text: &str) -> Diagnostic {
        let source = Arc::new(Source::new(name, text));
        Diagnostic::error(&self.message)
            .at(SourceLocation::new(source, self.span()))
            .maybe_hint(self.hint.clone())
    }
}

impl<K> fmt::Display for Fault<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}
