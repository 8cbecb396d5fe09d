//! What expressions read, so that the sources of what they make are known.
//!
//! Parts of objects are shared, not copied, so an object that holds a part of another one is recognized by
//! the part itself: a copy that was changed, or one that was put together field by field, still has the
//! source's data in it.

use std::collections::HashMap;

use kiln_object::{Gvk, ObjectId};
use kiln_value::{Map, Str, Value};

use crate::output::claim::ObjectRef;
use crate::output::failure::FailureKind;

/// What the expressions of one evaluation read.
#[derive(Debug, Default)]
pub(crate) struct ReadLog {
    objects: Vec<Value>,
    by_address: HashMap<usize, usize>,
    by_name: HashMap<(Str, Str, Str), usize>,
    /// The parts of all objects, computed on first use.
    parts: Option<HashMap<usize, usize>>,
    /// What was asked for by name and is not there.
    pub(super) missing: Vec<ObjectId>,
    /// Why the first read that failed did.
    pub(super) refused: Option<FailureKind>,
}

/// Where an object comes from.
pub(crate) struct Origins {
    /// What it was made of, that with which it has most in common first.
    pub(crate) sources: Vec<ObjectRef>,
    /// It is the source, perhaps changed here and there, and not a new object with parts of it.
    pub(crate) whole: bool,
}

/// How deep parts are looked for.
const DEPTH: usize = 6;

/// How many sources of one object are kept.
const MOST: usize = 8;

impl ReadLog {
    pub(super) fn read(&mut self, object: &Value) {
        let Some(map) = object.as_map() else { return };
        let at = self.objects.len();
        self.by_address.insert(address(map), at);
        self.by_name.entry(name_of(object)).or_insert(at);
        self.objects.push(object.clone());
        self.parts = None;
    }

    /// What an object was made of.
    pub(crate) fn origins(&mut self, object: &Value) -> Origins {
        let mut origins = Origins { sources: Vec::new(), whole: false };
        let Some(map) = object.as_map().filter(|_| !self.objects.is_empty()) else {
            return origins;
        };
        if let Some(at) = self.by_address.get(&address(map)) {
            origins.whole = true;
            origins.sources.push(ObjectRef::of(&self.objects[*at]));
            return origins;
        }
        let mut found = Vec::new();
        let uid = object.str_at(["metadata", "uid"]).filter(|uid| !uid.is_empty());
        if let Some(uid) = uid {
            let same = |other: &Value| other.str_at(["metadata", "uid"]) == Some(uid);
            if let Some(at) = self.objects.iter().position(same) {
                origins.whole = true;
                found.push(at);
            }
        }
        self.shared_parts(map, 0, &mut found);
        if let Some(at) = self.by_name.get(&name_of(object))
            && has_equal_part(object, &self.objects[*at])
        {
            found.push(*at);
        }
        let name = name_of(object);
        origins.whole |= found.iter().any(|at| name_of(&self.objects[*at]) == name);
        for at in found {
            let source = ObjectRef::of(&self.objects[at]);
            if origins.sources.len() < MOST && !origins.sources.contains(&source) {
                origins.sources.push(source);
            }
        }
        origins
    }

    fn shared_parts(&mut self, map: &Map, depth: usize, found: &mut Vec<usize>) {
        if self.parts.is_none() {
            let mut parts = HashMap::new();
            for (at, object) in self.objects.iter().enumerate() {
                note_parts(object, at, 0, &mut parts);
            }
            self.parts = Some(parts);
        }
        let Some(parts) = &self.parts else { return };
        for value in map.values() {
            look_for_parts(value, depth, parts, found);
        }
    }
}

fn look_for_parts(
    value: &Value,
    depth: usize,
    parts: &HashMap<usize, usize>,
    found: &mut Vec<usize>,
) {
    let known = place(value).and_then(|place| parts.get(&place));
    match (known, value) {
        (Some(at), _) => found.push(*at),
        _ if depth >= DEPTH => {}
        (None, Value::Map(map)) => {
            map.values().for_each(|value| look_for_parts(value, depth + 1, parts, found));
        }
        (None, Value::List(list)) => {
            list.iter().for_each(|value| look_for_parts(value, depth + 1, parts, found));
        }
        _ => {}
    }
}

fn note_parts(value: &Value, at: usize, depth: usize, parts: &mut HashMap<usize, usize>) {
    if let Some(place) = place(value) {
        parts.entry(place).or_insert(at);
    }
    match value {
        _ if depth >= DEPTH => {}
        Value::Map(map) => map.values().for_each(|value| note_parts(value, at, depth + 1, parts)),
        Value::List(list) => list.iter().for_each(|value| note_parts(value, at, depth + 1, parts)),
        _ => {}
    }
}

/// Where the content of a map or list is kept; empty ones are kept nowhere.
fn place(value: &Value) -> Option<usize> {
    match value {
        Value::Map(map) if !map.is_empty() => Some(address(map)),
        Value::List(list) if !list.is_empty() => Some(list.as_ptr().addr()),
        _ => None,
    }
}

fn address(map: &Map) -> usize {
    map.as_slice().as_ptr().addr()
}

fn name_of(object: &Value) -> (Str, Str, Str) {
    let Gvk { group, kind, .. } = Gvk::of(object).unwrap_or_default();
    (group, kind, object.str_at(["metadata", "name"]).unwrap_or_default().into())
}

/// Whether two objects hold the same value at the same place, their envelopes apart.
fn has_equal_part(object: &Value, other: &Value) -> bool {
    let (Some(object), Some(other)) = (object.as_map(), other.as_map()) else { return false };
    let envelope = ["apiVersion", "kind", "metadata"];
    object.iter().filter(|(key, _)| !envelope.contains(&key.as_str())).any(|(key, value)| {
        other.get(key).is_some_and(|found| match (value, found) {
            (Value::Map(value), Value::Map(found)) => {
                value.iter().any(|(key, value)| found.get(key) == Some(value))
            }
            (value, found) => value == found,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn source(name: &str) -> Value {
        value!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": name, "namespace": "default", "labels": {"a": "b"}, "uid": name},
            "data": {"user": "x", "key": "y"}, "type": "Opaque"
        })
    }

    fn names(read_log: &mut ReadLog, object: &Value) -> Vec<String> {
        read_log.origins(object).sources.iter().map(|source| source.id.name.to_string()).collect()
    }

    #[test]
    fn copies_are_known_however_they_were_made() {
        let (one, two) = (source("one"), source("two"));
        let mut read_log = ReadLog::default();
        read_log.read(&one);
        read_log.read(&two);
        assert_eq!(names(&mut read_log, &one), ["one"]);
        assert!(read_log.origins(&two).whole);
        let mut moved = two.clone();
        moved.set(["metadata", "namespace"], "dev").unwrap();
        assert_eq!(names(&mut read_log, &moved), ["two"]);
        assert!(read_log.origins(&moved).whole);
        let mut built = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}});
        built.set(["data"], one.get("data").unwrap().clone()).unwrap();
        assert_eq!(names(&mut read_log, &built), ["one"]);
        assert!(!read_log.origins(&built).whole);
        built
            .set(["metadata", "labels"], two.get_path(["metadata", "labels"]).unwrap().clone())
            .unwrap();
        assert_eq!(names(&mut read_log, &built), ["two", "one"]);
    }

    #[test]
    fn what_only_looks_alike_is_no_copy() {
        let mut read_log = ReadLog::default();
        read_log.read(&source("one"));
        let other = value!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "new"}, "data": {"user": "x"}
        });
        assert!(names(&mut read_log, &other).is_empty());
        // Of one name and with the same value in one place, it is.
        let mut same = other.clone();
        same.set(["metadata", "name"], "one").unwrap();
        assert_eq!(names(&mut read_log, &same), ["one"]);
        let empty = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "one"}});
        assert!(names(&mut read_log, &empty).is_empty());
    }
}
