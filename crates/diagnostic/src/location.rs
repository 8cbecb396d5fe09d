//! Sources and places in them.

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, OnceLock};

/// A text that a user gave us, with the name the user knows it by.
#[derive(Clone)]
pub struct Source {
    name: String,
    text: Arc<str>,
    /// Where lines begin, found when the first position is asked for: reports ask for thousands.
    line_starts: OnceLock<Arc<[usize]>>,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        (&self.name, &self.text) == (&other.name, &other.text)
    }
}

impl Eq for Source {}

impl Source {
    /// A source; `name` is the path as the user wrote it, or a word such as `<stdin>`.
    pub fn new(name: impl Into<String>, text: impl Into<Arc<str>>) -> Self {
        Source { name: name.into(), text: text.into(), line_starts: OnceLock::new() }
    }

    /// The name the user knows it by.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The whole text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The line and column of a byte offset. An offset past the end, or inside a character, counts
    /// as the nearest one before it.
    pub fn position(&self, offset: usize) -> Position {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let starts = self.line_starts.get_or_init(|| {
            let ends = self.text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n');
            std::iter::once(0).chain(ends.map(|(at, _)| at + 1)).collect()
        });
        let line = starts.partition_point(|start| *start <= offset);
        let start = starts[line - 1];
        Position { line, column: self.text[start..offset].chars().count() + 1 }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Source({:?}, {} bytes)", self.name, self.text.len())
    }
}

/// A line and a column, both from 1; columns count characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.line, self.column)
    }
}

/// A range of bytes in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLocation {
    source: Arc<Source>,
    span: Range<usize>,
}

impl SourceLocation {
    /// A place; the range is clipped to the text.
    pub fn new(source: Arc<Source>, span: Range<usize>) -> Self {
        let start = span.start.min(source.text.len());
        let end = span.end.clamp(start, source.text.len());
        SourceLocation { source, span: start..end }
    }

    pub fn source(&self) -> &Arc<Source> {
        &self.source
    }

    /// The range of bytes.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// The line and column where it begins.
    pub fn position(&self) -> Position {
        self.source.position(self.span.start)
    }
}

impl fmt::Display for SourceLocation {
    /// `file:line:column`, as editors and terminals link it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.source.name, self.position())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_lines_and_characters() {
        let source = Source::new("f", "ab\nöx\n");
        for (offset, line, column) in
            [(0, 1, 1), (2, 1, 3), (3, 2, 1), (4, 2, 1), (5, 2, 2), (99, 3, 1)]
        {
            assert_eq!(source.position(offset), Position { line, column }, "offset {offset}");
        }
    }

    #[test]
    fn ranges_are_clipped_to_the_text() {
        let place = SourceLocation::new(Arc::new(Source::new("f", "abc")), 2..9);
        assert_eq!(place.span(), 2..3);
        assert_eq!(place.to_string(), "f:1:3");
    }
}
