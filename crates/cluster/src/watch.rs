//! What a watch tells.

use kiln_value::Value;

/// Something happened to an object.
#[derive(Clone, Debug, PartialEq)]
pub struct WatchEvent {
    /// What happened.
    pub change: Change,
    /// The object after it; for a deleted one, as it last was, with the revision of its end.
    pub object: Value,
    /// The revision of the cluster that this made.
    pub revision: u64,
}

/// What happened to an object.
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
}
