//! How two objects differ, line by line.

use kiln_value::Value;
use kiln_yaml::emit;
use similar::TextDiff;

use super::plain;

/// A unified difference of two objects under these names; one that is not there is empty.
pub(crate) fn difference(
    old_name: &str,
    new_name: &str,
    old: Option<&Value>,
    new: Option<&Value>,
) -> String {
    let [old, new] = [old, new].map(|object| object.map_or_else(String::new, emit));
    TextDiff::from_lines(&old, &new)
        .unified_diff()
        .header(&plain(old_name), &plain(new_name))
        .to_string()
}
