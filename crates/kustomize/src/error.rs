//! What stops a build, told as kustomize tells it, with the place in the user's file beside it.
//!
//! Tools and people match on kustomize's own texts, so the message keeps them, with every
//! `accumulating resources: …` in front. What kustomize does not say (file, line, column, what to
//! do next) travels beside the message and never changes it.

use std::fmt;

use kiln_diagnostic::{Diagnostic, SourceLocation};

/// Why a build failed.
#[derive(Clone, Debug)]
pub struct Error {
    message: String,
    place: Option<SourceLocation>,
    hint: Option<String>,
    kind: BuildErrorKind,
}

/// What kind of failure it is, where the caller must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BuildErrorKind {
    Other,
    /// The text is not YAML: a file, surely, and no directory need be tried.
    Malformed,
    /// A remote file could not be had.
    Http,
}

/// The result of a step of a build.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A failure with this message.
    pub fn new(message: impl Into<String>) -> Self {
        Error { message: message.into(), place: None, hint: None, kind: BuildErrorKind::Other }
    }

    /// Text that is not YAML.
    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Error { kind: BuildErrorKind::Malformed, ..Error::new(message) }
    }

    /// A remote file that could not be had.
    pub fn http(message: impl Into<String>) -> Self {
        Error { kind: BuildErrorKind::Http, ..Error::new(message) }
    }

    pub(crate) fn is_malformed(&self) -> bool {
        self.kind == BuildErrorKind::Malformed
    }

    pub(crate) fn is_http(&self) -> bool {
        self.kind == BuildErrorKind::Http
    }

    /// Puts what was being done in front.
    #[must_use]
    pub fn context(mut self, doing: impl fmt::Display) -> Self {
        self.message = format!("{doing}: {}", self.message);
        self
    }

    /// Changes the message only.
    #[must_use]
    pub(crate) fn reword(mut self, reword: impl FnOnce(&str) -> String) -> Self {
        self.message = reword(&self.message);
        self
    }

    /// Says where, unless a more exact place is known already.
    #[must_use]
    pub fn at(mut self, place: Option<SourceLocation>) -> Self {
        self.place = self.place.or(place);
        self
    }

    /// Forgets a place that means nothing to the user.
    #[must_use]
    pub(crate) fn nowhere(mut self) -> Self {
        self.place = None;
        self
    }

    /// Says what to do next, unless that was said already.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint.get_or_insert_with(|| hint.into());
        self
    }

    /// Says what to do next, if there is anything to say.
    #[must_use]
    pub(crate) fn maybe_hint(mut self, hint: Option<String>) -> Self {
        self.hint = self.hint.or(hint);
        self
    }

    /// Points where another failure points, if that has a place in a file.
    #[must_use]
    pub(crate) fn pointing_like(mut self, other: &Error) -> Self {
        if other.place.is_some() {
            self.place.clone_from(&other.place);
            self.hint.clone_from(&other.hint);
        }
        if self.hint.is_none() {
            self.hint.clone_from(&other.hint);
        }
        self
    }

    /// The message, as kustomize says it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The place in a file, if the failure has one.
    pub fn place(&self) -> Option<&SourceLocation> {
        self.place.as_ref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

impl From<Error> for Diagnostic {
    fn from(error: Error) -> Self {
        let mut diagnostic = Diagnostic::error(error.message).maybe_hint(error.hint);
        diagnostic.place = error.place;
        diagnostic
    }
}

/// `?` with a word about what was being done.
pub(crate) trait Context<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn context(self, doing: impl fmt::Display) -> Result<T> {
        self.map_err(|error| error.context(doing))
    }
}
