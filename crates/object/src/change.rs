//! What happens to objects.

/// What happened to an object, as a watch tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Change {
    /// It is new.
    Added,
    /// It is another one.
    Modified,
    /// It is gone.
    Deleted,
}

impl Change {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Change::Added => "ADDED",
            Change::Modified => "MODIFIED",
            Change::Deleted => "DELETED",
        }
    }

    /// Reads the word on the wire; none for words that tell of no change, such as `BOOKMARK`.
    pub fn read(word: &str) -> Option<Self> {
        [Change::Added, Change::Modified, Change::Deleted]
            .into_iter()
            .find(|change| change.as_str() == word)
    }
}
