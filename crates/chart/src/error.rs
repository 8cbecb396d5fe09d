//! Why a chart cannot be rendered.

use std::fmt;

use kiln_diagnostic::{Diagnostic, SourceLocation};

use crate::load::source;

/// A chart that cannot be read or rendered: where, why, and what Helm says.
#[derive(Clone, Debug)]
pub struct ChartError(Box<Inner>);

#[derive(Clone, Debug)]
struct Inner {
    diagnostic: Diagnostic,
    helm: String,
}

pub(crate) type Result<R, E = ChartError> = std::result::Result<R, E>;

impl ChartError {
    /// An error in Helm's words.
    pub(crate) fn new(message: impl Into<String>) -> Self {
        let message = message.into();
        ChartError(Box::new(Inner {
            diagnostic: Diagnostic::error(message.clone()),
            helm: message,
        }))
    }

    /// An error with a place; `helm` is how Helm words it.
    pub(crate) fn placed(diagnostic: Diagnostic, helm: impl Into<String>) -> Self {
        ChartError(Box::new(Inner { diagnostic, helm: helm.into() }))
    }

    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.diagnostic = self.0.diagnostic.hint(hint);
        self
    }

    /// The same error in this file, if it has no place yet.
    #[must_use]
    pub(crate) fn in_file(mut self, name: &str, data: &[u8]) -> Self {
        if self.0.diagnostic.place.is_none() {
            self.0.diagnostic.place = Some(SourceLocation::new(source(name, data), 0..0));
        }
        self
    }

    /// The same error with words of Helm before it.
    #[must_use]
    pub(crate) fn within(mut self, what: &str) -> Self {
        self.0.helm.insert_str(0, &format!("{what}: "));
        if self.0.diagnostic.place.is_none() {
            self.0.diagnostic.message.insert_str(0, &format!("{what}: "));
        }
        self
    }

    /// What Helm 3 prints after `Error: `.
    pub fn helm_text(&self) -> &str {
        &self.0.helm
    }

    /// The error with its place and what to do next.
    pub fn diagnostic(&self) -> &Diagnostic {
        &self.0.diagnostic
    }
}

impl From<ChartError> for Diagnostic {
    fn from(error: ChartError) -> Self {
        error.0.diagnostic
    }
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.diagnostic.fmt(f)
    }
}

impl std::error::Error for ChartError {}
