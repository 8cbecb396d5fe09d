//! How two objects differ, line by line.

use kiln_value::Value;
use kiln_yaml::emit;
use similar::TextDiff;

/// A unified difference of two objects under these names; one that is not there is empty.
pub fn unified_difference(
    names: Option<(&str, &str)>,
    old: Option<&Value>,
    new: Option<&Value>,
) -> String {
    let [old, new] = [old, new].map(|object| object.map_or_else(String::new, emit));
    let diff = TextDiff::from_lines(&old, &new);
    let mut unified = diff.unified_diff();
    if let Some((old_name, new_name)) = names {
        unified.header(old_name, new_name);
    }
    unified.to_string()
}
