//! A place inside an expression.

use std::ops::Range;

use kiln_diagnostic::Position;

/// A range of bytes in the text of an expression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Span {
    /// The first byte.
    pub start: u32,
    /// The byte after the last one.
    pub end: u32,
}

impl Span {
    pub(crate) fn new(start: usize, end: usize) -> Self {
        // Sources are limited to far less than four gigabytes before anything is read.
        let narrow = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        Span { start: narrow(start), end: narrow(end) }
    }

    pub(crate) fn to(self, other: Span) -> Self {
        Span { start: self.start.min(other.start), end: self.end.max(other.end) }
    }

    /// The range of bytes, for slicing the source.
    pub fn range(self) -> Range<usize> {
        self.start as usize..self.end as usize
    }

    /// The line and column (both from 1, columns in characters) where it begins.
    pub fn position(self, source: &str) -> Position {
        kiln_diagnostic::Source::new("", source).position(self.start as usize)
    }
}
