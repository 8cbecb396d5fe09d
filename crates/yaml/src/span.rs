//! Where every node of a document is.
//!
//! Reading keeps no places, because nearly all of them are never asked for. The composer is generic
//! over what it remembers instead: nothing while reading ([`Nowhere`]), a tree of places when
//! a caller asks ([`Spot`]), and both runs see the same document.

use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Source, SourceLocation};
use kiln_value::{Key, Path, Segment};

/// What the composer remembers about where nodes are.
pub(crate) trait Track: Clone {
    fn scalar(span: Range<usize>) -> Self;
    fn list(span: Range<usize>, elements: &[Self]) -> Self;
    fn map<'e>(
        span: Range<usize>,
        entries: impl Iterator<Item = (&'e Key, Range<usize>, &'e Self)>,
    ) -> Self
    where
        Self: 'e;
    /// A node that stands for another: itself here, what is inside it there.
    fn alias(&self, span: Range<usize>) -> Self;
    /// The place of an entry's key, and what is known about its value.
    fn entry(&self, at: usize) -> (Range<usize>, Self);
    /// What is known about an element.
    fn element(&self, at: usize) -> Self;
}

/// Remembers nothing.
#[derive(Clone)]
pub(crate) struct Nowhere;

impl Track for Nowhere {
    fn scalar(_: Range<usize>) -> Self {
        Nowhere
    }
    fn list(_: Range<usize>, _: &[Self]) -> Self {
        Nowhere
    }
    fn map<'e>(
        _: Range<usize>,
        _: impl Iterator<Item = (&'e Key, Range<usize>, &'e Self)>,
    ) -> Self {
        Nowhere
    }
    fn alias(&self, _: Range<usize>) -> Self {
        Nowhere
    }
    fn entry(&self, _: usize) -> (Range<usize>, Self) {
        (0..0, Nowhere)
    }
    fn element(&self, _: usize) -> Self {
        Nowhere
    }
}

/// The place of a node and of all that is inside it.
#[derive(Clone, Debug)]
pub(crate) struct Spot {
    span: Range<usize>,
    inside: Inside,
}

#[derive(Clone, Debug)]
enum Inside {
    Nothing,
    List(Arc<[Spot]>),
    Map(Arc<[(Key, Range<usize>, Spot)]>),
}

/// What is inside a node.
pub(crate) enum Parts<'s> {
    Scalar,
    List(&'s [Spot]),
    Map(&'s [(Key, Range<usize>, Spot)]),
}

impl Spot {
    /// Where the node is.
    pub(crate) fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// What is inside it.
    pub(crate) fn parts(&self) -> Parts<'_> {
        match &self.inside {
            Inside::Nothing => Parts::Scalar,
            Inside::List(elements) => Parts::List(elements),
            Inside::Map(entries) => Parts::Map(entries),
        }
    }
}

impl Track for Spot {
    fn scalar(span: Range<usize>) -> Self {
        Spot { span, inside: Inside::Nothing }
    }

    fn list(span: Range<usize>, elements: &[Self]) -> Self {
        Spot { span, inside: Inside::List(elements.into()) }
    }

    fn map<'e>(
        span: Range<usize>,
        entries: impl Iterator<Item = (&'e Key, Range<usize>, &'e Self)>,
    ) -> Self {
        let entries = entries.map(|(key, span, spot)| (key.clone(), span, spot.clone()));
        Spot { span, inside: Inside::Map(entries.collect()) }
    }

    fn alias(&self, span: Range<usize>) -> Self {
        Spot { span, inside: self.inside.clone() }
    }

    fn entry(&self, at: usize) -> (Range<usize>, Self) {
        match &self.inside {
            Inside::Map(entries) => {
                entries.get(at).map(|(_, span, spot)| (span.clone(), spot.clone()))
            }
            _ => None,
        }
        .unwrap_or_else(|| (self.span.clone(), self.clone()))
    }

    fn element(&self, at: usize) -> Self {
        match &self.inside {
            Inside::List(elements) => elements.get(at).cloned(),
            _ => None,
        }
        .unwrap_or_else(|| self.clone())
    }
}

/// The places of every key and value of one document.
///
/// Where a path leads nowhere, the place of the last thing on the way is given: that is where
/// something is missing.
#[derive(Clone, Debug)]
pub struct Places {
    source: Arc<Source>,
    root: Spot,
}

impl Places {
    pub(crate) fn new(source: Arc<Source>, root: Spot) -> Self {
        Places { source, root }
    }

    /// Where the value at this path is. The place of an alias is the alias; what is inside it lies
    /// at its anchor.
    pub fn value(&self, path: &Path) -> SourceLocation {
        self.place(self.walk(path).1)
    }

    /// Where the key of this path is; for a list element, where the element is.
    pub fn key(&self, path: &Path) -> SourceLocation {
        let (key, value) = self.walk(path);
        self.place(key.unwrap_or(value))
    }

    /// The path of the innermost key or value in which a place of this document begins.
    pub fn path_at(&self, place: &SourceLocation) -> Path {
        let at = place.span().start;
        let (mut path, mut spot) = (Path::root(), &self.root);
        loop {
            let next: Option<(Segment, &Spot)> = match &spot.inside {
                Inside::Nothing => None,
                Inside::List(elements) => {
                    let inside = elements.iter().position(|element| element.span.contains(&at));
                    inside.map(|index| (Segment::Index(index), &elements[index]))
                }
                Inside::Map(entries) => entries
                    .iter()
                    .find(|(_, key, value)| key.contains(&at) || value.span.contains(&at))
                    .map(|(key, _, value)| (Segment::Key(key.clone()), value)),
            };
            let Some((segment, inner)) = next else { return path };
            path.push(segment);
            spot = inner;
        }
    }

    pub(crate) fn root(&self) -> &Spot {
        &self.root
    }

    fn walk(&self, path: &Path) -> (Option<Range<usize>>, Range<usize>) {
        let mut spot = &self.root;
        let mut key = None;
        for segment in path {
            let next = match (segment, &spot.inside) {
                (Segment::Index(index), Inside::List(elements)) => {
                    elements.get(*index).map(|element| (None, element))
                }
                (Segment::Key(wanted), Inside::Map(entries)) => entries
                    .iter()
                    .find(|(key, ..)| key == wanted)
                    .map(|(_, span, value)| (Some(span.clone()), value)),
                _ => None,
            };
            match next {
                Some((span, inner)) => (key, spot) = (span, inner),
                None => break,
            }
        }
        (key, spot.span.clone())
    }

    fn place(&self, span: Range<usize>) -> SourceLocation {
        SourceLocation::new(Arc::clone(&self.source), span)
    }
}
