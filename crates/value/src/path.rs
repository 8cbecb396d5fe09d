//! Places inside a value.

use std::fmt;

use crate::Key;

/// One step into a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Segment {
    /// Into a map.
    Key(Key),
    /// Into a list.
    Index(usize),
}

/// A place inside a value, from the root down.
///
/// Prints as people write it: `spec.containers[0].image`, with keys that are not plain words in
/// brackets and quotes: `metadata.annotations["example.com/x"]`. The root prints as nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Path(Vec<Segment>);

impl Path {
    pub fn root() -> Self {
        Self::default()
    }

    /// The steps, outermost first.
    pub fn segments(&self) -> &[Segment] {
        &self.0
    }

    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Goes one step further in.
    pub fn push(&mut self, segment: impl Into<Segment>) {
        self.0.push(segment.into());
    }

    /// Takes the innermost step back.
    pub fn pop(&mut self) -> Option<Segment> {
        self.0.pop()
    }

    /// This path and one more step.
    #[must_use]
    pub fn join(&self, segment: impl Into<Segment>) -> Self {
        let mut path = self.clone();
        path.push(segment);
        path
    }

    /// The path as an RFC 6901 pointer.
    pub fn to_pointer(&self) -> String {
        let mut text = String::new();
        for segment in &self.0 {
            text.push('/');
            match segment {
                Segment::Key(key) => text.push_str(&key.replace('~', "~0").replace('/', "~1")),
                Segment::Index(index) => text.push_str(&index.to_string()),
            }
        }
        text
    }

    /// Puts a step in front. Errors travel outwards, so they collect their path from the inside.
    pub(crate) fn prepend(&mut self, segment: Segment) {
        self.0.insert(0, segment);
    }
}

/// A borrowed [`Segment`], so that looking something up allocates nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentRef<'s> {
    /// Into a map.
    Key(&'s str),
    /// Into a list.
    Index(usize),
}

impl<'s> From<&'s str> for SegmentRef<'s> {
    fn from(key: &'s str) -> Self {
        SegmentRef::Key(key)
    }
}

impl<'s> From<&'s String> for SegmentRef<'s> {
    fn from(key: &'s String) -> Self {
        SegmentRef::Key(key)
    }
}

impl<'s> From<&'s Key> for SegmentRef<'s> {
    fn from(key: &'s Key) -> Self {
        SegmentRef::Key(key)
    }
}

impl From<usize> for SegmentRef<'_> {
    fn from(index: usize) -> Self {
        SegmentRef::Index(index)
    }
}

impl<'s> From<&'s Segment> for SegmentRef<'s> {
    fn from(segment: &'s Segment) -> Self {
        match segment {
            Segment::Key(key) => SegmentRef::Key(key),
            Segment::Index(index) => SegmentRef::Index(*index),
        }
    }
}

impl From<SegmentRef<'_>> for Segment {
    fn from(segment: SegmentRef<'_>) -> Self {
        match segment {
            SegmentRef::Key(key) => Segment::Key(Key::new(key)),
            SegmentRef::Index(index) => Segment::Index(index),
        }
    }
}

impl From<&str> for Segment {
    fn from(key: &str) -> Self {
        Segment::Key(Key::new(key))
    }
}

impl From<Key> for Segment {
    fn from(key: Key) -> Self {
        Segment::Key(key)
    }
}

impl From<&Key> for Segment {
    fn from(key: &Key) -> Self {
        Segment::Key(key.clone())
    }
}

impl From<usize> for Segment {
    fn from(index: usize) -> Self {
        Segment::Index(index)
    }
}

impl From<&Segment> for Segment {
    fn from(segment: &Segment) -> Self {
        segment.clone()
    }
}

impl<S: Into<Segment>> FromIterator<S> for Path {
    fn from_iter<I: IntoIterator<Item = S>>(segments: I) -> Self {
        Path(segments.into_iter().map(Into::into).collect())
    }
}

impl<'p> IntoIterator for &'p Path {
    type Item = &'p Segment;
    type IntoIter = std::slice::Iter<'p, Segment>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, segment) in self.0.iter().enumerate() {
            match segment {
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) if is_word(key) => {
                    if position > 0 {
                        f.write_str(".")?;
                    }
                    f.write_str(key)?;
                }
                Segment::Key(key) => write!(f, "[{:?}]", key.as_str())?,
            }
        }
        Ok(())
    }
}

fn is_word(key: &str) -> bool {
    !key.is_empty()
        && key.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'$'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_people_write_it() {
        let mut path: Path = ["spec", "containers"].into_iter().collect();
        path.push(0);
        path.push("image");
        assert_eq!(path.to_string(), "spec.containers[0].image");
        let path: Path = ["metadata", "annotations", "a.b/c~d"].into_iter().collect();
        assert_eq!(path.to_string(), "metadata.annotations[\"a.b/c~d\"]");
        assert_eq!(path.to_pointer(), "/metadata/annotations/a.b~1c~0d");
    }
}
