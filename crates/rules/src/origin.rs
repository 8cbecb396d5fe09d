//! Where a rule was written.

use std::ops::Range;

use kiln_diagnostic::{Diagnostic, SourceLocation};
use kiln_value::{Path, Value};
use kiln_yaml::{Document, part_of};

/// The place of a rule, or of a part of it, in its document. Cloning copies pointers.
#[derive(Clone, Debug)]
pub struct Origin {
    document: Document,
    path: Path,
}

impl Origin {
    /// The value at a path of a document.
    pub fn new(document: Document, path: Path) -> Self {
        Origin { document, path }
    }

    pub fn document(&self) -> &Document {
        &self.document
    }

    /// The path from the root of the document.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where it is. Reads the document again, so ask only to show it.
    pub fn place(&self) -> SourceLocation {
        self.document.locate(&self.path)
    }

    /// Where another path of the same document is, counted from its root.
    pub fn place_of(&self, path: &Path) -> SourceLocation {
        self.document.locate(path)
    }

    /// Where a part of the text at a path of the same document is.
    pub fn place_of_part(&self, path: &Path, part: Range<usize>) -> SourceLocation {
        let place = self.place_of(path);
        match self.document.value().get_path(path).and_then(Value::as_str) {
            Some(text) => part_of(&place, text, part),
            None => place,
        }
    }

    /// A diagnostic about a path of the same document.
    pub fn error_at(&self, path: &Path, message: impl Into<String>) -> Diagnostic {
        Diagnostic::error(message).at(self.place_of(path))
    }
}
