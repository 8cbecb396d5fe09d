//! What went wrong in a user's document, where, and what to do next.
//!
//! Every reader and compiler of Kiln reports problems as a [`Diagnostic`]. It knows nothing about
//! terminals: the command line renders it with a snippet and a caret, or as JSON.
//!
//! ```
//! use std::sync::Arc;
//! use kiln_diagnostic::{Diagnostic, SourceLocation, Source};
//! let source = Arc::new(Source::new("rule.yaml", "kind: Podd\n"));
//! let problem = Diagnostic::error("unknown kind \"Podd\"")
//!     .at(SourceLocation::new(source, 6..10))
//!     .hint("did you mean \"Pod\"?");
//! assert_eq!(problem.to_string(), "rule.yaml:1:7: unknown kind \"Podd\" (did you mean \"Pod\"?)");
//! ```

mod did_you_mean;
mod fault;
mod location;

use std::fmt;

use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};

pub use did_you_mean::did_you_mean;
pub use fault::Fault;
pub use location::{Position, Source, SourceLocation};

/// How serious a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing; nothing is wrong.
    Note,
    /// Works, but probably not as meant.
    Warning,
    /// Does not work.
    Error,
}

impl Severity {
    /// The word that introduces such a problem.
    pub fn as_str(self) -> &'static str {
        match self {
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Error => "error",
        }
    }
}

/// A problem in a user's document.
///
/// `message` is a lower-case fragment without a period; `hint` says what to do next. It is small
/// enough to be returned in a `Result` as it is.
/// Serialises as a flat JSON object, stable for programs.
#[derive(Clone, Debug)]
pub struct Diagnostic {
    /// How serious it is.
    pub severity: Severity,
    /// What is wrong.
    pub message: String,
    /// Where, if the problem has a place in a file.
    pub place: Option<SourceLocation>,
    /// What the caret says, when that is more useful than nothing.
    pub label: Option<Box<str>>,
    /// Other places that belong to the problem: the first of two duplicates, say.
    pub related: Vec<Related>,
    /// What to do next.
    pub hint: Option<String>,
}

/// Another place that belongs to a problem.
#[derive(Clone, Debug)]
pub struct Related {
    /// What the other location shows.
    pub message: String,
    pub place: SourceLocation,
}

impl Diagnostic {
    /// A problem of this severity.
    pub fn new(severity: Severity, message: impl Into<String>) -> Self {
        Diagnostic {
            severity,
            message: message.into(),
            place: None,
            label: None,
            related: Vec::new(),
            hint: None,
        }
    }

    /// Something that does not work.
    pub fn error(message: impl Into<String>) -> Self {
        Self::new(Severity::Error, message)
    }

    /// Something that works, but probably not as meant.
    pub fn warning(message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, message)
    }

    /// Says where.
    #[must_use]
    pub fn at(mut self, place: SourceLocation) -> Self {
        self.place = Some(place);
        self
    }

    /// Says what the caret points at.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = Some(label.into().into_boxed_str());
        self
    }

    /// Adds another place that belongs to the problem.
    #[must_use]
    pub fn related(mut self, message: impl Into<String>, place: SourceLocation) -> Self {
        self.related.push(Related { message: message.into(), place });
        self
    }

    /// Says what to do next.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Says what to do next, if there is anything to say.
    #[must_use]
    pub fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = hint.or(self.hint);
        self
    }
}

impl fmt::Display for Diagnostic {
    /// One line: `file:line:column: message (hint)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.message)?;
        for related in &self.related {
            write!(f, "; {} at {}", related.message, related.place)?;
        }
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Diagnostic {}

impl Serialize for Diagnostic {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("severity", &self.severity)?;
        map.serialize_entry("message", &self.message)?;
        if let Some(place) = &self.place {
            serialize_place(&mut map, place)?;
        }
        if let Some(label) = &self.label {
            map.serialize_entry("label", label)?;
        }
        if !self.related.is_empty() {
            map.serialize_entry("related", &self.related)?;
        }
        if let Some(hint) = &self.hint {
            map.serialize_entry("hint", hint)?;
        }
        map.end()
    }
}

impl Serialize for Related {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("message", &self.message)?;
        serialize_place(&mut map, &self.place)?;
        map.end()
    }
}

fn serialize_place<M: SerializeMap>(map: &mut M, place: &SourceLocation) -> Result<(), M::Error> {
    let position = place.position();
    map.serialize_entry("file", place.source().name())?;
    map.serialize_entry("line", &position.line)?;
    map.serialize_entry("column", &position.column)
}

#[cfg(test)]
mod tests {
    use super::Diagnostic;

    #[test]
    fn a_diagnostic_fits_into_a_result() {
        assert!(size_of::<Diagnostic>() < 128);
    }
}
