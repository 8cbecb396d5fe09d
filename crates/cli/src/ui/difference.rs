//! How two objects differ, line by line.

use kiln_studio::unified_difference;
use kiln_value::Value;

use super::plain;

/// A unified difference of two objects under these names; one that is not there is empty.
pub(crate) fn difference(
    old_name: &str,
    new_name: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> String {
    unified_difference(Some((&plain(old_name), &plain(new_name))), old, new)
}
