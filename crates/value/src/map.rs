//! Ordered maps, shared and copied on write.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use crate::{Key, Value};

/// An ordered map with unique keys. Cloning copies a pointer; the first edit of a shared map copies
/// its entries (not what they hold).
///
/// Equality ignores order, as Kubernetes does.
#[derive(Clone, Default)]
pub struct Map(Arc<Entries>);

#[derive(Clone)]
enum Entries {
    /// A flat list, searched from the front: the fastest form for the handful of fields that
    /// objects have.
    Few(Vec<(Key, Value)>),
    /// With an index from key to position, so that a map of a hundred thousand entries is no
    /// quadratic trap.
    Many(Box<Indexed>),
}

#[derive(Clone)]
struct Indexed {
    entries: Vec<(Key, Value)>,
    positions: HashMap<Key, u32>,
}

/// From this size on a map is indexed.
const MANY: usize = 24;

impl Default for Entries {
    fn default() -> Self {
        Entries::Few(Vec::new())
    }
}

impl Entries {
    fn from_unique(entries: Vec<(Key, Value)>) -> Self {
        if entries.len() < MANY {
            return Entries::Few(entries);
        }
        let positions = positions_of(&entries);
        Entries::Many(Box::new(Indexed { entries, positions }))
    }

    fn as_slice(&self) -> &[(Key, Value)] {
        match self {
            Entries::Few(entries) => entries,
            Entries::Many(indexed) => &indexed.entries,
        }
    }

    fn as_mut_slice(&mut self) -> &mut [(Key, Value)] {
        match self {
            Entries::Few(entries) => entries,
            Entries::Many(indexed) => &mut indexed.entries,
        }
    }

    fn position(&self, key: &str) -> Option<usize> {
        match self {
            Entries::Few(entries) => entries.iter().position(|(k, _)| k.as_str() == key),
            Entries::Many(indexed) => indexed.positions.get(key).map(|&p| p as usize),
        }
    }

    fn push_new(&mut self, key: Key, value: Value) {
        match self {
            Entries::Few(entries) => {
                entries.push((key, value));
                if entries.len() >= MANY {
                    *self = Entries::from_unique(std::mem::take(entries));
                }
            }
            Entries::Many(indexed) => {
                indexed.positions.insert(key.clone(), index_of(indexed.entries.len()));
                indexed.entries.push((key, value));
            }
        }
    }

    fn take(&mut self) -> Vec<(Key, Value)> {
        match std::mem::take(self) {
            Entries::Few(entries) => entries,
            Entries::Many(indexed) => indexed.entries,
        }
    }
}

fn positions_of(entries: &[(Key, Value)]) -> HashMap<Key, u32> {
    entries.iter().enumerate().map(|(at, (key, _))| (key.clone(), index_of(at))).collect()
}

/// Readers stop long before four thousand million entries.
fn index_of(position: usize) -> u32 {
    u32::try_from(position).expect("a map has fewer than 2^32 entries")
}

impl Map {
    /// An empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// A map of these entries, in this order. The caller vouches that no key occurs twice; readers
    /// have looked already, because they report duplicates with their places.
    pub fn from_unique(entries: Vec<(Key, Value)>) -> Self {
        Map(Arc::new(Entries::from_unique(entries)))
    }

    /// How many entries there are.
    pub fn len(&self) -> usize {
        self.0.as_slice().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.as_slice().is_empty()
    }

    /// The value under this key.
    pub fn get(&self, key: &str) -> Option<&Value> {
        match &*self.0 {
            Entries::Few(entries) => {
                entries.iter().find(|(k, _)| k.as_str() == key).map(|(_, value)| value)
            }
            Entries::Many(indexed) => {
                indexed.positions.get(key).map(|&at| &indexed.entries[at as usize].1)
            }
        }
    }

    pub fn contains_key(&self, key: &str) -> bool {
        self.0.position(key).is_some()
    }

    /// The value under this key, to be edited.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Value> {
        let at = self.0.position(key)?;
        Some(&mut Arc::make_mut(&mut self.0).as_mut_slice()[at].1)
    }

    /// The value under this key, to be edited; put there first if it is missing.
    pub fn get_or_insert_with(&mut self, key: &str, make: impl FnOnce() -> Value) -> &mut Value {
        let entries = Arc::make_mut(&mut self.0);
        let at = entries.position(key).unwrap_or_else(|| {
            entries.push_new(Key::new(key), make());
            entries.as_slice().len() - 1
        });
        &mut entries.as_mut_slice()[at].1
    }

    /// Sets a key. An existing one keeps its place and key; its old value is returned.
    pub fn insert(&mut self, key: impl Into<Key>, value: impl Into<Value>) -> Option<Value> {
        let (key, value) = (key.into(), value.into());
        let entries = Arc::make_mut(&mut self.0);
        if let Some(at) = entries.position(&key) {
            return Some(std::mem::replace(&mut entries.as_mut_slice()[at].1, value));
        }
        entries.push_new(key, value);
        None
    }

    /// Removes a key; the others keep their order.
    pub fn remove(&mut self, key: &str) -> Option<Value> {
        let at = self.0.position(key)?;
        let entries = Arc::make_mut(&mut self.0);
        match entries {
            Entries::Few(entries) => Some(entries.remove(at).1),
            Entries::Many(indexed) => {
                let (key, value) = indexed.entries.remove(at);
                indexed.positions.remove(key.as_str());
                for (later, (key, _)) in indexed.entries.iter().enumerate().skip(at) {
                    indexed.positions.insert(key.clone(), index_of(later));
                }
                Some(value)
            }
        }
    }

    /// Keeps only the entries for which this holds, in one pass.
    pub fn retain(&mut self, mut keep: impl FnMut(&Key, &mut Value) -> bool) {
        let entries = Arc::make_mut(&mut self.0);
        let mut kept = entries.take();
        kept.retain_mut(|(key, value)| keep(key, value));
        *entries = Entries::from_unique(kept);
    }

    /// Sorts the entries by key, by bytes.
    pub fn sort_keys(&mut self) {
        let entries = Arc::make_mut(&mut self.0);
        let mut sorted = entries.take();
        sorted.sort_by(|a, b| a.0.cmp(&b.0));
        *entries = Entries::from_unique(sorted);
    }

    /// Gives back spare room; readers call it on what they will keep.
    pub fn shrink_to_fit(&mut self) {
        if let Some(Entries::Few(entries)) = Arc::get_mut(&mut self.0) {
            entries.shrink_to_fit();
        }
    }

    /// The entries in order.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (&Key, &Value)> + DoubleEndedIterator + Clone {
        self.0.as_slice().iter().map(|(key, value)| (key, value))
    }

    /// The entries in order, their values to be edited.
    pub fn iter_mut(&mut self) -> impl ExactSizeIterator<Item = (&Key, &mut Value)> {
        Arc::make_mut(&mut self.0).as_mut_slice().iter_mut().map(|(key, value)| (&*key, value))
    }

    /// The keys in order.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &Key> + DoubleEndedIterator + Clone {
        self.0.as_slice().iter().map(|(key, _)| key)
    }

    /// The values in the order of their keys.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &Value> + DoubleEndedIterator + Clone {
        self.0.as_slice().iter().map(|(_, value)| value)
    }

    /// The entries as a slice, in order.
    pub fn as_slice(&self) -> &[(Key, Value)] {
        self.0.as_slice()
    }

    /// Where its entries are in memory.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).addr()
    }

    /// How many bytes it takes, without what is in its keys and values.
    pub(crate) fn spare_and_used(&self) -> usize {
        let entry = size_of::<(Key, Value)>();
        size_of::<Entries>()
            + match &*self.0 {
                Entries::Few(entries) => entries.capacity() * entry,
                Entries::Many(indexed) => {
                    size_of::<Indexed>()
                        + indexed.entries.capacity() * entry
                        + indexed.positions.capacity() * (size_of::<(Key, u32)>() + 1)
                }
            }
    }

    /// Whether both are the same allocation (and so surely equal).
    pub fn ptr_eq(&self, other: &Map) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl PartialEq for Map {
    fn eq(&self, other: &Self) -> bool {
        self.ptr_eq(other)
            || (self.len() == other.len()
                && self.iter().all(|(key, value)| other.get(key) == Some(value)))
    }
}

impl fmt::Debug for Map {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// A later entry replaces an earlier one with the same key, in the earlier one's place.
impl<K: Into<Key>, V: Into<Value>> FromIterator<(K, V)> for Map {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(entries: I) -> Self {
        let mut map = Map::new();
        map.extend(entries);
        map
    }
}

impl<K: Into<Key>, V: Into<Value>> Extend<(K, V)> for Map {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, entries: I) {
        for (key, value) in entries {
            self.insert(key, value);
        }
    }
}

impl<'m> IntoIterator for &'m Map {
    type Item = (&'m Key, &'m Value);
    type IntoIter = std::iter::Map<
        std::slice::Iter<'m, (Key, Value)>,
        fn(&'m (Key, Value)) -> (&'m Key, &'m Value),
    >;
    fn into_iter(self) -> Self::IntoIter {
        self.0.as_slice().iter().map(|(key, value)| (key, value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbered(count: usize) -> Map {
        (0..count).map(|i| (format!("k{i}"), Value::from(i as i64))).collect()
    }

    #[test]
    fn small_and_large_maps_behave_alike() {
        for size in [0, 1, MANY - 1, MANY, MANY * 4] {
            let mut map = numbered(size);
            assert_eq!(map.len(), size);
            for i in 0..size {
                assert_eq!(map.get(&format!("k{i}")), Some(&Value::from(i as i64)), "size {size}");
            }
            assert!(map.get("missing").is_none());
            for i in (0..size).step_by(2) {
                assert_eq!(map.remove(&format!("k{i}")), Some(Value::from(i as i64)));
            }
            let keys: Vec<_> = map.keys().map(ToString::to_string).collect();
            let wanted: Vec<_> = (0..size).skip(1).step_by(2).map(|i| format!("k{i}")).collect();
            assert_eq!(keys, wanted);
            for key in &wanted {
                assert!(map.contains_key(key));
            }
        }
    }

    #[test]
    fn an_edit_leaves_other_holders_alone() {
        let original = numbered(100);
        let mut edited = original.clone();
        assert!(original.ptr_eq(&edited));
        edited.insert("k50", "changed");
        edited.retain(|key, _| key != "k1");
        assert_eq!(original, numbered(100));
        assert_eq!(edited.len(), 99);
        assert_eq!(edited.get("k50").and_then(Value::as_str), Some("changed"));
    }

    #[test]
    fn equality_ignores_order() {
        let forward: Map = [("a", 1i64), ("b", 2)].into_iter().collect();
        let backward: Map = [("b", 2i64), ("a", 1)].into_iter().collect();
        assert_eq!(forward, backward);
        assert_ne!(forward, [("a", 1i64), ("c", 2)].into_iter().collect());
    }
}
