//! The value itself: typed access, path get, edits that rebuild only the spine.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use crate::{Key, Map, Number, Path, SegmentRef, Str};

/// A YAML or JSON value. Cloning is a pointer copy (short strings are held inline).
#[derive(Clone, Default, PartialEq)]
pub enum Value {
    #[default]
    Null,
    /// True or false.
    Bool(bool),
    /// An integer or a float.
    Number(Number),
    /// Text.
    String(Str),
    List(List),
    /// A map with ordered keys.
    Map(Map),
}

/// A shared list; editing through [`List::make_mut`] copies it first if it is shared.
#[derive(Clone, Default)]
pub struct List(Arc<Vec<Value>>);

/// An edit met something that is neither a map nor null where it had to go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blocked {
    /// The place where the edit stopped.
    pub path: Path,
    /// What was there, as [`Value::type_name`] says it.
    pub found: &'static str,
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot go below {}: it is a {}", self.path, self.found)
    }
}

impl std::error::Error for Blocked {}

impl Value {
    /// An empty map.
    pub fn map() -> Self {
        Value::Map(Map::new())
    }

    /// An empty list.
    pub fn list() -> Self {
        Value::List(List::default())
    }

    /// What kind of value this is, in words for messages.
    pub fn type_name(&self) -> &'static str {
        match self {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "list",
            Value::Map(_) => "map",
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self, Value::Null)
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Value::Bool(b) => Some(*b),
            _ => None,
        }
    }

    pub fn as_number(&self) -> Option<Number> {
        match self {
            Value::Number(n) => Some(*n),
            _ => None,
        }
    }

    /// The integer, if it is one in the range of `i64`.
    pub fn as_i64(&self) -> Option<i64> {
        self.as_number().and_then(Number::as_i64)
    }

    /// The number as a float, if it is a number.
    pub fn as_f64(&self) -> Option<f64> {
        self.as_number().map(Number::as_f64)
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Value::String(s) => Some(s),
            _ => None,
        }
    }

    pub fn as_list(&self) -> Option<&List> {
        match self {
            Value::List(list) => Some(list),
            _ => None,
        }
    }

    /// The list, to be edited, if it is one.
    pub fn as_list_mut(&mut self) -> Option<&mut Vec<Value>> {
        match self {
            Value::List(list) => Some(list.make_mut()),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The map, to be edited, if it is one.
    pub fn as_map_mut(&mut self) -> Option<&mut Map> {
        match self {
            Value::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The value under a key, if this is a map that has it.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.as_map()?.get(key)
    }

    /// The value under a key, to be edited.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        self.as_map_mut()?.get_mut(key)
    }

    /// The element at an index, if this is a list that long.
    pub fn index(&self, index: usize) -> Option<&Value> {
        self.as_list()?.get(index)
    }

    /// The value one path segment below.
    pub fn step<'s>(&self, segment: impl Into<SegmentRef<'s>>) -> Option<&Value> {
        match segment.into() {
            SegmentRef::Key(key) => self.get(key),
            SegmentRef::Index(index) => self.index(index),
        }
    }

    /// The value at a path, if there is one.
    pub fn get_path<'s, S: Into<SegmentRef<'s>>>(
        &self,
        path: impl IntoIterator<Item = S>,
    ) -> Option<&Value> {
        path.into_iter().try_fold(self, |value, segment| value.step(segment))
    }

    /// The text at a path, if there is a string.
    pub fn str_at<'s, S: Into<SegmentRef<'s>>>(
        &self,
        path: impl IntoIterator<Item = S>,
    ) -> Option<&str> {
        self.get_path(path)?.as_str()
    }

    /// The value at a path, to be edited. Copies nothing when nothing is there.
    pub fn get_path_mut<'s, S: Into<SegmentRef<'s>>>(
        &mut self,
        path: impl IntoIterator<Item = S>,
    ) -> Option<&mut Value> {
        path.into_iter().try_fold(self, |value, segment| match segment.into() {
            SegmentRef::Key(key) => value.get_mut(key),
            SegmentRef::Index(index) => match value {
                Value::List(list) if index < list.len() => list.make_mut().get_mut(index),
                _ => None,
            },
        })
    }

    /// Puts a value at a path. Missing maps on the way (and nulls) become maps; list indices must
    /// exist.
    ///
    /// # Errors
    /// When something else is in the way; the value is then unchanged.
    pub fn set<'s, S: Into<SegmentRef<'s>>>(
        &mut self,
        path: impl IntoIterator<Item = S>,
        value: impl Into<Value>,
    ) -> Result<(), Blocked> {
        let path: Vec<SegmentRef<'s>> = path.into_iter().map(Into::into).collect();
        self.check_way(&path)?;
        let mut place = self;
        for segment in path {
            place = match (segment, place) {
                (SegmentRef::Key(key), place) => {
                    if place.is_null() {
                        *place = Value::map();
                    }
                    match place {
                        Value::Map(map) => map.get_or_insert_with(key, || Value::Null),
                        _ => unreachable!("check_way saw a map or null here"),
                    }
                }
                (SegmentRef::Index(index), Value::List(list)) => &mut list.make_mut()[index],
                (SegmentRef::Index(_), _) => unreachable!("check_way saw this index"),
            };
        }
        *place = value.into();
        Ok(())
    }

    fn check_way(&self, path: &[SegmentRef<'_>]) -> Result<(), Blocked> {
        let mut place = Some(self);
        for (depth, segment) in path.iter().enumerate() {
            let passable = match (segment, place) {
                (SegmentRef::Key(_), None | Some(Value::Null | Value::Map(_))) => true,
                (SegmentRef::Index(index), Some(Value::List(list))) => *index < list.len(),
                _ => false,
            };
            if !passable {
                return Err(Blocked {
                    path: path[..depth].iter().copied().collect(),
                    found: place.map_or("missing list", Value::type_name),
                });
            }
            place = place.and_then(|value| value.step(*segment));
        }
        Ok(())
    }

    /// Takes out what is at a path; list elements after it move up.
    pub fn remove<'s, S: Into<SegmentRef<'s>>>(
        &mut self,
        path: impl IntoIterator<Item = S>,
    ) -> Option<Value> {
        let path: Vec<SegmentRef<'s>> = path.into_iter().map(Into::into).collect();
        let (last, parents) = path.split_last()?;
        // Look first, so that a miss copies nothing.
        self.get_path(path.iter().copied())?;
        match (last, self.get_path_mut(parents.iter().copied())?) {
            (SegmentRef::Key(key), Value::Map(map)) => map.remove(key),
            (SegmentRef::Index(index), Value::List(list)) => Some(list.make_mut().remove(*index)),
            _ => None,
        }
    }

    /// Whether both are equal without looking inside: the same scalar or the same allocation.
    /// `false` says nothing.
    pub fn same(&self, other: &Value) -> bool {
        match (self, other) {
            (Value::List(a), Value::List(b)) => a.ptr_eq(b),
            (Value::Map(a), Value::Map(b)) => a.ptr_eq(b),
            (Value::List(_) | Value::Map(_), _) | (_, Value::List(_) | Value::Map(_)) => false,
            (a, b) => a == b,
        }
    }
}

impl List {
    /// How many bytes it takes, without what is in its elements.
    pub(crate) fn spare_and_used(&self) -> usize {
        size_of::<Vec<Value>>() + self.0.capacity() * size_of::<Value>()
    }

    /// Whether both are the same allocation (and so surely equal).
    pub fn ptr_eq(&self, other: &List) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The elements, to be edited.
    pub fn make_mut(&mut self) -> &mut Vec<Value> {
        Arc::make_mut(&mut self.0)
    }

    /// The elements by value; copies pointers only if the list is shared.
    pub fn into_vec(self) -> Vec<Value> {
        Arc::try_unwrap(self.0).unwrap_or_else(|shared| (*shared).clone())
    }
}

impl Deref for List {
    type Target = [Value];
    fn deref(&self) -> &[Value] {
        &self.0
    }
}

impl PartialEq for List {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other) || **self == **other
    }
}

impl fmt::Debug for List {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl From<Vec<Value>> for List {
    fn from(elements: Vec<Value>) -> Self {
        List(Arc::new(elements))
    }
}

impl<'l> IntoIterator for &'l List {
    type Item = &'l Value;
    type IntoIter = std::slice::Iter<'l, Value>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("null"),
            Value::Bool(b) => b.fmt(f),
            Value::Number(Number::Float(x)) => x.fmt(f),
            Value::Number(n) => fmt::Display::fmt(n, f),
            Value::String(s) => s.as_str().fmt(f),
            Value::List(list) => list.fmt(f),
            Value::Map(map) => map.fmt(f),
        }
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Self {
        Value::Bool(b)
    }
}

impl From<Number> for Value {
    fn from(n: Number) -> Self {
        Value::Number(n)
    }
}

macro_rules! from_integer {
    ($($int:ty as $wide:ty),*) => {$(
        impl From<$int> for Value {
            fn from(i: $int) -> Self {
                Value::Number(Number::from(<$wide>::from(i)))
            }
        }
    )*};
}
from_integer!(i32 as i64, i64 as i64, u32 as u64, u64 as u64);

impl From<usize> for Value {
    fn from(i: usize) -> Self {
        Value::Number(Number::from(i as u64))
    }
}

impl From<f64> for Value {
    fn from(f: f64) -> Self {
        Value::Number(Number::Float(f))
    }
}

impl From<&str> for Value {
    fn from(s: &str) -> Self {
        Value::String(Str::new(s))
    }
}

impl From<String> for Value {
    fn from(s: String) -> Self {
        Value::String(Str::from(s))
    }
}

impl From<Str> for Value {
    fn from(s: Str) -> Self {
        Value::String(s)
    }
}

impl From<&Key> for Value {
    fn from(key: &Key) -> Self {
        Value::from(key.as_str())
    }
}

impl From<Map> for Value {
    fn from(map: Map) -> Self {
        Value::Map(map)
    }
}

impl From<List> for Value {
    fn from(list: List) -> Self {
        Value::List(list)
    }
}

impl<V: Into<Value>> From<Vec<V>> for Value {
    fn from(elements: Vec<V>) -> Self {
        elements.into_iter().collect()
    }
}

impl<V: Into<Value>> From<Option<V>> for Value {
    fn from(value: Option<V>) -> Self {
        value.map_or(Value::Null, Into::into)
    }
}

impl<V: Into<Value>> FromIterator<V> for Value {
    fn from_iter<I: IntoIterator<Item = V>>(elements: I) -> Self {
        Value::List(List::from(elements.into_iter().map(Into::into).collect::<Vec<Value>>()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[test]
    fn a_value_is_three_words_and_a_key_one() {
        assert_eq!(size_of::<Value>(), 24);
        assert_eq!(size_of::<Key>(), 8);
    }

    #[test]
    fn an_edit_shares_everything_off_the_spine() {
        let original = value!({"a": {"b": [1, {"c": 2}]}, "big": {"x": [1, 2, 3]}});
        let mut edited = original.clone();
        edited.set([SegmentRef::from("a"), "b".into(), 1.into(), "c".into()], 3).unwrap();
        assert_eq!(original, value!({"a": {"b": [1, {"c": 2}]}, "big": {"x": [1, 2, 3]}}));
        assert_eq!(edited, value!({"a": {"b": [1, {"c": 3}]}, "big": {"x": [1, 2, 3]}}));
        assert!(edited.get("big").unwrap().same(original.get("big").unwrap()));
    }

    #[test]
    fn set_makes_maps_but_never_replaces_what_is_in_the_way() {
        let mut value = value!({"a": null, "s": "text"});
        value.set(["a", "b", "c"], true).unwrap();
        assert_eq!(value, value!({"a": {"b": {"c": true}}, "s": "text"}));
        let blocked = value.set(["s", "x"], 1).unwrap_err();
        assert_eq!(blocked.to_string(), "cannot go below s: it is a string");
        assert!(value.set([SegmentRef::Key("new"), SegmentRef::Index(0)], 1).is_err());
        assert_eq!(value, value!({"a": {"b": {"c": true}}, "s": "text"}));
    }

    #[test]
    fn remove_takes_out_and_reports_misses() {
        let mut value = value!({"a": [1, 2, 3], "b": {"c": 1}});
        assert_eq!(value.remove([SegmentRef::Key("a"), SegmentRef::Index(1)]), Some(value!(2)));
        assert_eq!(value.remove(["b", "c"]), Some(value!(1)));
        assert_eq!(value.remove(["b", "missing"]), None);
        assert_eq!(value, value!({"a": [1, 3], "b": {}}));
    }
}
