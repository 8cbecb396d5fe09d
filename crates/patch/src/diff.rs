//! The difference between two values, as a JSON patch.
//!
//! Maps are compared key by key. List elements are matched by the keys that the schema names, else
//! by being equal, so that one more container is one operation and not a list replaced. What is
//! matched but stands in another order is taken out and put in again.
//!
//! ```
//! use kiln_patch::diff;
//! use kiln_schema::Schema;
//! use kiln_value::{json, value};
//! let patch = diff(&value!({"a": [1, 2, 3]}), &value!({"a": [1, 3], "b": 4}), &Schema::empty());
//! assert_eq!(json::to_string(&patch.to_value()),
//!     r#"[{"op":"remove","path":"/a/1"},{"op":"add","path":"/b","value":4}]"#);
//! ```

use std::collections::HashMap;

use kiln_schema::{Schema, SchemaNode};
use kiln_value::{Path, Value, json};

use crate::json6902::{Action, JsonPatch, JsonPatchOperation, JsonPatchRules, Pointer};

/// The operations that turn one value into the other. The schema tells which list elements
/// correspond; it is looked up by the apiVersion and kind of the first value.
///
/// Applied to `from` the patch always gives `to`.
pub fn diff(from: &Value, to: &Value, schema: &Schema) -> JsonPatch {
    let mut diff = Diff { path: Path::root(), operations: Vec::new(), weighing: false };
    diff.value(from, to, schema.root_of(from));
    JsonPatch::new(diff.operations, JsonPatchRules::rfc6902())
}

struct Diff {
    path: Path,
    operations: Vec<JsonPatchOperation>,
    /// Whether this is inside an element for which two ways are being weighed.
    weighing: bool,
}

impl Diff {
    fn push(&mut self, action: Action) {
        self.operations.push(JsonPatchOperation { path: Pointer::from(&self.path), action });
    }

    fn value(&mut self, from: &Value, to: &Value, node: Option<SchemaNode<'_>>) {
        match (from, to) {
            _ if from.same(to) => {}
            (Value::Map(from), Value::Map(to)) => {
                for (key, old) in from {
                    self.path.push(key);
                    match to.get(key) {
                        Some(new) => self.value(old, new, node.and_then(|node| node.field(key))),
                        None => self.push(Action::Remove),
                    }
                    self.path.pop();
                }
                for (key, new) in to.iter().filter(|(key, _)| !from.contains_key(key)) {
                    self.path.push(key);
                    self.push(Action::Add(new.clone()));
                    self.path.pop();
                }
            }
            (Value::List(from), Value::List(to)) => self.list(from, to, node),
            (from, to) if from == to => {}
            (_, to) => self.push(Action::Replace(to.clone())),
        }
    }

    /// Turns an element into another one that takes its place, in the shorter of two ways.
    fn change(&mut self, from: &Value, to: &Value, node: Option<SchemaNode<'_>>) {
        // Only the outermost change is weighed, so that the work stays proportional to the values.
        if std::mem::replace(&mut self.weighing, true) {
            return self.value(from, to, node);
        }
        let before = self.operations.len();
        self.value(from, to, node);
        self.weighing = false;
        let length = |operations: &[JsonPatchOperation]| {
            operations.iter().map(|o| json::to_string(&o.to_value()).len()).sum::<usize>()
        };
        let inside = self.operations.split_off(before);
        self.push(Action::Replace(to.clone()));
        if length(&inside) <= length(&self.operations[before..]) {
            self.operations.truncate(before);
            self.operations.extend(inside);
        }
    }

    fn list(&mut self, from: &[Value], to: &[Value], node: Option<SchemaNode<'_>>) {
        let same_start = from.iter().zip(to).take_while(|(a, b)| a == b).count();
        let (from, to) = (&from[same_start..], &to[same_start..]);
        let same_end = from.iter().rev().zip(to.iter().rev()).take_while(|(a, b)| a == b).count();
        let (from, to) = (&from[..from.len() - same_end], &to[..to.len() - same_end]);
        let keys: Vec<&str> =
            node.map_or_else(Vec::new, |node| node.element_keys().iter().map(|k| &**k).collect());
        let items = node.and_then(SchemaNode::items);
        let mut at = same_start;
        let (mut i, mut j) = (0, 0);
        let end = (from.len(), to.len());
        for (next_i, next_j) in matches(from, to, &keys).into_iter().chain([end]) {
            // Between two matches: what was there makes place for what comes.
            while i < next_i || j < next_j {
                self.path.push(at);
                match (i < next_i, j < next_j) {
                    (true, true) => self.change(&from[i], &to[j], items),
                    (true, false) => self.push(Action::Remove),
                    _ => self.push(Action::Add(to[j].clone())),
                }
                self.path.pop();
                at += usize::from(j < next_j);
                i += usize::from(i < next_i);
                j += usize::from(j < next_j);
            }
            if (next_i, next_j) != end {
                self.path.push(at);
                self.value(&from[i], &to[j], items);
                self.path.pop();
                (at, i, j) = (at + 1, i + 1, j + 1);
            }
        }
    }
}

/// Pairs of elements that correspond, in the order of both lists.
fn matches(from: &[Value], to: &[Value], keys: &[&str]) -> Vec<(usize, usize)> {
    if from.is_empty() || to.is_empty() {
        return Vec::new();
    }
    let mut places: HashMap<String, Vec<usize>> = HashMap::new();
    for (i, element) in from.iter().enumerate().rev() {
        places.entry(identity(element, keys)).or_default().push(i);
    }
    let pairs = to.iter().enumerate().filter_map(|(j, element)| {
        let i = places.get_mut(&identity(element, keys))?.pop()?;
        Some((i, j))
    });
    longest_in_order(&pairs.collect::<Vec<_>>())
}

/// A text that is equal for elements that correspond: their keys, or all of them.
fn identity(element: &Value, keys: &[&str]) -> String {
    let named: Option<Value> = keys.iter().map(|key| element.get(key).cloned()).collect();
    match named {
        Some(named) if !keys.is_empty() => json::to_canonical_string(&named),
        _ => json::to_canonical_string(element),
    }
}

/// The longest choice of pairs (given in the order of their second parts) whose first parts ascend.
fn longest_in_order(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // `ends[n]` is the pair with the smallest first part that ends a choice of n + 1 pairs.
    let mut ends: Vec<usize> = Vec::new();
    let mut before = vec![usize::MAX; pairs.len()];
    for (at, (first, _)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].0 < *first);
        if length > 0 {
            before[at] = ends[length - 1];
        }
        if length == ends.len() {
            ends.push(at);
        } else {
            ends[length] = at;
        }
    }
    let mut chosen = Vec::with_capacity(ends.len());
    let mut at = ends.last().copied();
    while let Some(pair) = at {
        chosen.push(pairs[pair]);
        at = Some(before[pair]).filter(|before| *before != usize::MAX);
    }
    chosen.reverse();
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_schema::KubernetesVersion;
    use kiln_value::value;

    fn operations(from: &Value, to: &Value) -> Vec<String> {
        let patch = diff(from, to, &Schema::builtin(KubernetesVersion::V1_36));
        let mut patched = from.clone();
        patch.apply(&mut patched).unwrap();
        assert_eq!(&patched, to);
        let text = |operation: &JsonPatchOperation| {
            format!("{} {}", operation.action.name(), operation.path)
        };
        patch.operations().iter().map(text).collect()
    }

    fn pod(containers: Value) -> Value {
        let mut pod = value!({"apiVersion": "v1", "kind": "Pod"});
        pod.set(["spec", "containers"], containers).unwrap();
        pod
    }

    #[test]
    fn elements_with_keys_change_one_by_one() {
        let before =
            pod(value!([{"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c"}]));
        for (after, wanted) in [
            (before.clone(), vec![]),
            (
                pod(
                    value!([{"name": "a", "image": "2"}, {"name": "b", "image": "1"}, {"name": "c"}]),
                ),
                vec!["replace /spec/containers/0/image"],
            ),
            (
                pod(value!([{"name": "b", "image": "2"}, {"name": "c"}])),
                vec!["remove /spec/containers/0", "replace /spec/containers/0/image"],
            ),
            (
                pod(
                    value!([{"name": "z"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}, {"name": "c"}]),
                ),
                vec!["add /spec/containers/0"],
            ),
            (
                pod(
                    value!([{"name": "c"}, {"name": "a", "image": "1"}, {"name": "b", "image": "1"}]),
                ),
                vec!["add /spec/containers/0", "remove /spec/containers/3"],
            ),
            (
                pod(value!([{"name": "a", "image": "1"}, {"name": "z"}, {"name": "c"}])),
                vec!["replace /spec/containers/1"],
            ),
        ] {
            assert_eq!(operations(&before, &after), wanted);
        }
    }

    #[test]
    fn other_elements_match_when_equal_and_meet_otherwise() {
        for (from, to, wanted) in [
            (value!([1, 2, 3]), value!([1, 5, 3]), vec!["replace /1"]),
            (value!([1, 2, 3]), value!([2, 3, 4]), vec!["remove /0", "add /2"]),
            (value!([{"a": 1, "b": 2}]), value!([{"a": 1, "b": 3}]), vec!["replace /0/b"]),
            (value!([[1], [2]]), value!([[2], [1]]), vec!["add /0", "remove /2"]),
            (value!({"a/b": 1}), value!({"a~b": 1}), vec!["remove /a~1b", "add /a~0b"]),
            (value!([1]), value!({"a": 1}), vec!["replace "]),
            (value!(1), value!(1.0), vec!["replace "]),
            (value!({"a": null}), value!({}), vec!["remove /a"]),
        ] {
            assert_eq!(operations(&from, &to), wanted, "{from:?} to {to:?}");
        }
    }
}
