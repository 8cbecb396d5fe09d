//! The labels and annotations by which the engine knows what it made: most lines of a difference, and the fewest that a
//! reader cares about.

use std::collections::BTreeSet;

use kiln_engine::{ANNOTATION_PREFIX, is_ownership_label};
use kiln_value::{Map, Value};

/// Two objects without the engine's bookkeeping.
pub struct Folded {
    pub before: Option<Value>,
    pub after: Option<Value>,
    /// How many of its labels and annotations differ.
    pub count: usize,
}

impl Folded {
    /// What is left out, in words.
    pub fn remark(&self) -> Option<String> {
        let words = if self.count == 1 { "label or annotation" } else { "labels and annotations" };
        (self.count > 0).then(|| format!("{} {words} of the engine are left out", self.count))
    }
}

/// Takes the engine's labels and annotations off two objects.
pub fn fold(before: Option<&Value>, after: Option<&Value>) -> Folded {
    let mut count = 0;
    let (mut shown_before, mut shown_after) = (before.cloned(), after.cloned());
    let is_note: fn(&str) -> bool = |key| key.starts_with(ANNOTATION_PREFIX);
    for (field, is_ours) in
        [("labels", is_ownership_label as fn(&str) -> bool), ("annotations", is_note)]
    {
        let pairs = |object: Option<&Value>| -> BTreeSet<(String, Option<String>)> {
            let map = object.and_then(|object| object.get_path(["metadata", field])?.as_map());
            map.into_iter()
                .flat_map(Map::iter)
                .filter(|(key, _)| is_ours(key))
                .map(|(key, value)| (key.to_string(), value.as_str().map(str::to_owned)))
                .collect()
        };
        let (old, new) = (pairs(before), pairs(after));
        let names: BTreeSet<_> = old.symmetric_difference(&new).map(|(key, _)| key).collect();
        count += names.len();
        for object in [&mut shown_before, &mut shown_after].into_iter().flatten() {
            take(object, field, is_ours);
        }
    }
    Folded { before: shown_before, after: shown_after, count }
}

/// Takes the engine's pairs off an object, and the field if nothing is left of it.
fn take(object: &mut Value, field: &str, is_ours: fn(&str) -> bool) {
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    let Some(pairs) = metadata.get_mut(field).and_then(Value::as_map_mut) else { return };
    let before = pairs.len();
    pairs.retain(|key, _| !is_ours(key));
    if pairs.is_empty() && before > 0 {
        metadata.remove(field);
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn only_what_differs_is_counted_and_the_rest_stays() {
        let before = value!({"metadata": {
            "labels": {"generate.kyverno.io/policy-name": "a", "generate.kyverno.io/rule-name": "r", "app": "x"},
            "annotations": {"kiln.dev/content": "1"},
        }});
        let after = value!({"metadata": {
            "labels": {"generate.kyverno.io/policy-name": "b", "generate.kyverno.io/rule-name": "r", "app": "y"},
            "annotations": {"kiln.dev/content": "2", "kiln.dev/slot": "0//0"},
        }});
        let folded = fold(Some(&before), Some(&after));
        assert_eq!(folded.count, 3);
        assert_eq!(folded.before, Some(value!({"metadata": {"labels": {"app": "x"}}})));
        assert_eq!(folded.after, Some(value!({"metadata": {"labels": {"app": "y"}}})));
        assert_eq!(fold(None, Some(&after)).count, 4);
        assert_eq!(fold(Some(&after), Some(&after)).count, 0);
    }
}
