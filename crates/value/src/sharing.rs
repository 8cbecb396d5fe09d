//! Values that share what they have in common, and what values take in memory.

use std::collections::HashSet;

use crate::{KeyTable, List, Map, Value};

/// The same value, in as little memory as it takes: of what it has in common with another one it keeps no copy, and its
/// keys are those of a table.
///
/// Many objects that one template made differ in a name: 10,000 of them then hold its content once.
#[must_use]
pub fn shared_with(value: &Value, like: Option<&Value>, keys: &mut KeyTable) -> Value {
    match value {
        Value::Map(map) => Value::Map(shared_map(map, like.and_then(Value::as_map), keys)),
        Value::List(list) => Value::List(shared_list(list, like.and_then(Value::as_list), keys)),
        Value::String(text) => match like {
            // Short texts are in the value itself.
            Some(Value::String(known)) if known == text => Value::String(known.clone()),
            _ => value.clone(),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
    }
}

fn shared_map(map: &Map, like: Option<&Map>, keys: &mut KeyTable) -> Map {
    if like.is_some_and(|like| like.ptr_eq(map)) {
        return map.clone();
    }
    let known = like.map_or(&[][..], Map::as_slice);
    let mut is_same = known.len() == map.len();
    // What shares all that it can is not copied again.
    let mut is_done = true;
    let mut entries = Vec::with_capacity(map.len());
    for (at, (key, value)) in map.iter().enumerate() {
        let same_place = known.get(at).filter(|(known, _)| known == key);
        is_same &= same_place.is_some();
        let counterpart = same_place.map(|(_, value)| value).or_else(|| like?.get(key));
        let shared = shared_with(value, counterpart, keys);
        is_same &= counterpart.is_some_and(|counterpart| is_shared(&shared, counterpart));
        let own = same_place.map_or_else(|| keys.intern(key), |(known, _)| known.clone());
        is_done &= own.as_ptr() == key.as_ptr() && is_shared(&shared, value);
        entries.push((own, shared));
    }
    match like {
        Some(like) if is_same => like.clone(),
        _ if is_done => map.clone(),
        _ => Map::from_unique(entries),
    }
}

fn shared_list(list: &List, like: Option<&List>, keys: &mut KeyTable) -> List {
    if like.is_some_and(|like| like.ptr_eq(list)) {
        return list.clone();
    }
    let known = like.map_or(&[][..], |like| like);
    let elements: Vec<Value> = list
        .iter()
        .enumerate()
        .map(|(at, element)| shared_with(element, known.get(at), keys))
        .collect();
    let is_same = known.len() == elements.len()
        && elements.iter().zip(known).all(|(element, known)| is_shared(element, known));
    match like {
        Some(like) if is_same => like.clone(),
        _ => elements.into(),
    }
}

/// Whether one value is the other: the same memory, or the same in the value itself.
fn is_shared(value: &Value, other: &Value) -> bool {
    value.same(other)
        && match (value, other) {
            // Equal numbers may be zeros of different signs.
            (Value::Number(a), Value::Number(b)) => a.as_f64().to_bits() == b.as_f64().to_bits(),
            _ => true,
        }
}

/// About how many bytes of memory values take together. What they share counts once.
pub fn memory<'v>(values: impl IntoIterator<Item = &'v Value>) -> usize {
    let mut known = HashSet::new();
    values.into_iter().map(|value| memory_of(value, &mut known)).sum()
}

fn memory_of(value: &Value, known: &mut HashSet<usize>) -> usize {
    // The counts of a shared allocation.
    const COUNTS: usize = 2 * size_of::<usize>();
    let mut once =
        |address: usize, bytes: usize| if known.insert(address) { COUNTS + bytes } else { 0 };
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) if !text.is_heap_allocated() => 0,
        Value::String(text) => once(text.as_ptr().addr(), text.len()),
        Value::List(list) => match once(list.as_ptr().addr(), list.spare_and_used()) {
            0 => 0,
            own => own + list.iter().map(|value| memory_of(value, known)).sum::<usize>(),
        },
        Value::Map(map) => match once(map.address(), map.spare_and_used()) {
            0 => 0,
            mut own => {
                for (key, value) in map {
                    if known.insert(key.as_ptr().addr()) {
                        own += COUNTS + key.len();
                    }
                    own += memory_of(value, known);
                }
                own
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{json, value};

    fn shared(text: &str, like: &Value) -> Value {
        let own = json::parse(text).unwrap();
        let shared = shared_with(&own, Some(like), &mut KeyTable::new());
        // The same to the byte: order of keys, kinds of numbers.
        assert_eq!(json::to_string(&shared), json::to_string(&own), "{text}");
        shared
    }

    #[test]
    fn what_is_alike_is_one_allocation() {
        let like = json::parse(
            r#"{"kind": "A", "metadata": {"name": "a"}, "data": {"x": [1, {"y": "z"}]}}"#,
        )
        .unwrap();
        let made = shared(
            r#"{"kind": "A", "metadata": {"name": "b"}, "data": {"x": [1, {"y": "z"}]}}"#,
            &like,
        );
        let map =
            |value: &Value, key: &str| value.get(key).and_then(Value::as_map).cloned().unwrap();
        assert!(map(&made, "data").ptr_eq(&map(&like, "data")));
        assert!(!map(&made, "metadata").ptr_eq(&map(&like, "metadata")));
        let same = shared(&json::to_string(&like), &like);
        assert!(same.as_map().unwrap().ptr_eq(like.as_map().unwrap()));
        assert_eq!(memory([&like, &same]), memory([&like]));
        assert!(memory([&like, &made]) < 2 * memory([&like]));
    }

    #[test]
    fn what_only_compares_equal_is_kept_apart() {
        let like = json::parse(r#"{"a": {"x": 1, "y": 0.0}, "b": [1, 2], "c": null}"#).unwrap();
        for text in [
            r#"{"a": {"y": 0.0, "x": 1}, "b": [1, 2], "c": null}"#,
            r#"{"a": {"x": 1.0, "y": -0.0}, "b": [2, 1], "c": {}}"#,
            r#"{"c": null, "b": [1, 2, 3], "a": {"x": 1}}"#,
            r#"{"a": [1], "b": {"0": 1}, "c": "null", "d": true}"#,
            r#"{"b": [], "a": {}}"#,
        ] {
            shared(text, &like);
        }
        let large: String = (0..100).map(|at| format!(r#""k{at}": {at},"#)).collect();
        shared(&format!("{{{large} \"last\": 1}}"), &like);
        assert_eq!(
            shared_with(&value!([1, "two"]), None, &mut KeyTable::new()),
            value!([1, "two"])
        );
    }
}
