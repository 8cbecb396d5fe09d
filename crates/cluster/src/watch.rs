//! What a watch tells.

use kiln_object::Change;
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
