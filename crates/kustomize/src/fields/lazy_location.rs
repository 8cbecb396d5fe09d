//! Places in documents, computed on first use.
//!
//! Finding a place reads its document again, so steps carry these instead of places, and a document
//! that is asked many times is read for that once.

use std::cell::OnceCell;
use std::rc::Rc;
use std::sync::Arc;

use kiln_diagnostic::SourceLocation;
use kiln_value::{Path, Segment};
use kiln_yaml::{Document, Places};

/// A document that knows its places once it was asked.
pub(crate) struct LocatedDocument {
    document: Arc<Document>,
    places: OnceCell<Places>,
}

impl LocatedDocument {
    pub(crate) fn new(document: Arc<Document>) -> Rc<Self> {
        Rc::new(LocatedDocument { document, places: OnceCell::new() })
    }

    pub(crate) fn document(&self) -> &Document {
        &self.document
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| self.document.places())
    }
}

/// A value in a document, or nowhere.
#[derive(Clone, Default)]
pub(crate) struct LazyLocation(Option<(Rc<LocatedDocument>, Path)>);

impl LazyLocation {
    /// A value in a document.
    pub(crate) fn new<S: Into<Segment>>(
        document: Option<&Rc<LocatedDocument>>,
        path: impl IntoIterator<Item = S>,
    ) -> Self {
        LazyLocation(document.map(|document| (Rc::clone(document), path.into_iter().collect())))
    }

    /// A field of the value.
    pub(crate) fn field(&self, name: &str) -> Self {
        LazyLocation(self.0.as_ref().map(|(document, path)| (Rc::clone(document), path.join(name))))
    }

    /// An entry of the value.
    pub(crate) fn entry(&self, index: usize) -> Self {
        LazyLocation(
            self.0.as_ref().map(|(document, path)| (Rc::clone(document), path.join(index))),
        )
    }

    /// Where the value is.
    pub(crate) fn place(&self) -> Option<SourceLocation> {
        self.0.as_ref().map(|(document, path)| document.places().value(path))
    }

    /// Where the key of the value is.
    pub(crate) fn key_place(&self) -> Option<SourceLocation> {
        self.0.as_ref().map(|(document, path)| document.places().key(path))
    }
}
