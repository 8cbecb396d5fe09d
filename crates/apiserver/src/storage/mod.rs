//! Objects, one counter for all of them, and a log of what happened to each kind.
//!
//! Reads of the past (pages of a list, exact versions) undo the log backwards; watches read it forwards.
//! Readers cannot block a writer.

pub(crate) mod object_size;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, OnceLock};

use kiln_object::{Change, NamespacedName, ObjectMap, namespaced_name};
use kiln_value::{Map, Str, Value, json};

use crate::storage::object_size::{HEAVIEST, weight};

/// How many changes of a kind are remembered before the oldest are forgotten, and how large they may be together.
const REMEMBERED: usize = 20_000;
const REMEMBERED_BYTES: usize = 64 << 20;
/// About how many bytes of changes are sent at once.
pub(crate) const AT_ONCE: usize = 4 << 20;

/// What is stored together: a group and a plural name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TableKey {
    pub(crate) group: Str,
    pub(crate) plural: Str,
}

impl TableKey {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        // One kind, two groups.
        let group = if (group, plural) == ("events.k8s.io", "events") { "" } else { group };
        TableKey { group: group.into(), plural: plural.into() }
    }
}

/// One version of an object as JSON, written when it is first asked for and then the same for all lists and watches.
pub(crate) type VersionText = Arc<OnceLock<Arc<str>>>;

/// The text of a version of an object.
pub(crate) fn text_of<'t>(text: &'t VersionText, object: &Value) -> &'t str {
    text.get_or_init(|| json::to_string(object).into())
}

/// An object as it is now.
#[derive(Clone, Debug)]
struct StoredObject {
    value: Value,
    text: VersionText,
}

impl StoredObject {
    fn new(value: Value) -> Self {
        StoredObject { value, text: VersionText::default() }
    }
}

/// Something that happened to an object.
#[derive(Debug)]
pub(crate) struct StorageEvent {
    pub(crate) revision: u64,
    pub(crate) change: Change,
    pub(crate) place: NamespacedName,
    /// The object before.
    pub(crate) old: Option<Value>,
    /// The object after; for a deleted one its last state, with the revision of its end.
    pub(crate) object: Value,
    /// The object as JSON.
    pub(crate) text: VersionText,
    /// About how much memory it takes.
    bytes: usize,
}

impl StorageEvent {
    fn new(
        revision: u64,
        change: Change,
        place: NamespacedName,
        old: Option<Value>,
        object: StoredObject,
    ) -> Self {
        let StoredObject { value: object, text } = object;
        // As values and as text.
        let bytes = 3 * weight(&object, HEAVIEST) + 200;
        StorageEvent { revision, change, place, old, object, text, bytes }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    objects: ObjectMap<StoredObject>,
    log: VecDeque<Arc<StorageEvent>>,
    log_bytes: usize,
    /// Everything up to here may be forgotten.
    forgotten: u64,
}

impl Table {
    /// How many objects there are.
    pub(crate) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(crate) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(namespace, name).map(|object| &object.value)
    }

    /// Objects of a namespace, or of all, behind a place.
    pub(crate) fn range<'t>(
        &'t self,
        namespace: &'t str,
        after: Option<&NamespacedName>,
    ) -> impl Iterator<Item = (&'t NamespacedName, &'t Value)> {
        self.range_of_texts(namespace, after).map(|(place, object, _)| (place, object))
    }

    /// The same with their texts.
    pub(crate) fn range_of_texts<'t>(
        &'t self,
        namespace: &'t str,
        after: Option<&NamespacedName>,
    ) -> impl Iterator<Item = (&'t NamespacedName, &'t Value, &'t VersionText)> {
        let objects = self.objects.range((!namespace.is_empty()).then_some(namespace), after);
        objects.map(|(place, object)| (place, &object.value, &object.text))
    }

    /// The objects as they were at a revision; none when that is forgotten.
    pub(crate) fn at(&self, revision: u64) -> Option<ObjectMap> {
        if revision < self.forgotten {
            return None;
        }
        // Backwards from now: reads of the past are recent ones, and values are shared, so that this copies pointers.
        let now = self.objects.range(None, None);
        let mut objects: ObjectMap =
            now.map(|(place, object)| (place.clone(), object.value.clone())).collect();
        for event in self.log.iter().rev().take_while(|event| event.revision > revision) {
            match &event.old {
                Some(old) => objects.insert(event.place.clone(), old.clone()),
                None => objects.remove(&event.place),
            };
        }
        Some(objects)
    }

    /// What happened after a revision, or the beginning of it: not more than so many events, nor much more than
    /// [`AT_ONCE`] bytes. None when some of it is forgotten.
    pub(crate) fn since(&self, revision: u64, most: usize) -> Option<Vec<Arc<StorageEvent>>> {
        if revision < self.forgotten {
            return None;
        }
        let from = self.log.partition_point(|event| event.revision <= revision);
        let mut bytes = 0;
        let some = self.log.range(from..).take(most).take_while(|event| {
            let fits = bytes < AT_ONCE;
            bytes += event.bytes;
            fits
        });
        Some(some.cloned().collect())
    }

    fn note(&mut self, event: StorageEvent) {
        self.log_bytes += event.bytes;
        self.log.push_back(Arc::new(event));
        // By number and by size. A watch from before `forgotten` is answered with 410 Gone, and its client lists again.
        while self.log.len() > REMEMBERED || self.log_bytes > REMEMBERED_BYTES {
            let Some(oldest) = self.log.pop_front() else { return };
            self.log_bytes -= oldest.bytes;
            self.forgotten = oldest.revision;
        }
    }
}

/// All objects.
#[derive(Debug, Default)]
pub(crate) struct Store {
    /// In one order: what controllers do with several kinds is the same in every process.
    tables: BTreeMap<TableKey, Table>,
    revision: u64,
    /// What was written since the last call, for the host that keeps it on disk.
    pub(crate) journal: Option<Vec<Record>>,
}

/// A write, as it is kept on disk.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub group: Str,
    /// The plural name of the resource.
    pub plural: Str,
    /// The namespace; empty for cluster-wide kinds.
    pub namespace: Str,
    pub name: Str,
    /// The object; none when it is gone.
    pub object: Option<Value>,
    /// The revision of the write.
    pub revision: u64,
}

impl Store {
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn table(&self, key: &TableKey) -> Option<&Table> {
        self.tables.get(key)
    }

    pub(crate) fn tables(&self) -> impl Iterator<Item = (&TableKey, &Table)> {
        self.tables.iter()
    }

    pub(crate) fn get(&self, key: &TableKey, namespace: &str, name: &str) -> Option<&Value> {
        self.tables.get(key)?.get(namespace, name)
    }

    /// Stores an object, and gives it its version.
    pub(crate) fn put(&mut self, key: &TableKey, mut object: Value) -> Value {
        self.revision += 1;
        let revision = self.revision;
        set_version(&mut object, revision);
        let place = namespaced_name(&object);
        let table = self.tables.entry(key.clone()).or_default();
        let stored = StoredObject::new(object.clone());
        let old = table.objects.insert(place.clone(), stored.clone()).map(|old| old.value);
        let change = if old.is_some() { Change::Modified } else { Change::Added };
        table.note(StorageEvent::new(revision, change, place, old, stored));
        self.write_down(key, &object, true);
        object
    }

    /// Takes an object away; its last state, with the version of its end.
    pub(crate) fn remove(&mut self, key: &TableKey, namespace: &str, name: &str) -> Option<Value> {
        let table = self.tables.get_mut(key)?;
        let place = (Str::new(namespace), Str::new(name));
        let old = table.objects.remove(&place)?.value;
        self.revision += 1;
        let revision = self.revision;
        let mut object = old.clone();
        set_version(&mut object, revision);
        let gone = StoredObject::new(object.clone());
        table.note(StorageEvent::new(revision, Change::Deleted, place, Some(old), gone));
        self.write_down(key, &object, false);
        Some(object)
    }

    fn write_down(&mut self, key: &TableKey, object: &Value, stays: bool) {
        let revision = self.revision;
        if let Some(journal) = &mut self.journal {
            let (namespace, name) = namespaced_name(object);
            journal.push(Record {
                group: key.group.clone(),
                plural: key.plural.clone(),
                namespace,
                name,
                object: stays.then(|| object.clone()),
                revision,
            });
        }
    }

    /// Puts back what was kept on disk. Watches cannot reach behind it.
    pub(crate) fn restore(&mut self, record: Record) {
        let table =
            self.tables.entry(TableKey { group: record.group, plural: record.plural }).or_default();
        let place = (record.namespace, record.name);
        match record.object {
            Some(object) => table.objects.insert(place, StoredObject::new(object)),
            None => table.objects.remove(&place),
        };
        self.revision = self.revision.max(record.revision);
        let revision = self.revision;
        for table in self.tables.values_mut() {
            table.forgotten = revision;
        }
    }

    /// Forgets what happened up to a revision.
    pub(crate) fn compact(&mut self, upto: u64) {
        for table in self.tables.values_mut() {
            let kept = table.log.partition_point(|event| event.revision <= upto);
            table.log_bytes -= table.log.drain(..kept).map(|event| event.bytes).sum::<usize>();
            table.forgotten = table.forgotten.max(upto);
        }
    }

    /// The revision before which changes of a kind are forgotten.
    pub(crate) fn oldest(&self, key: &TableKey) -> u64 {
        self.tables.get(key).map_or(0, |table| table.forgotten)
    }
}

/// The order in which metadata is written.
const METADATA: [&str; 5] = ["name", "generateName", "namespace", "uid", "resourceVersion"];

fn set_version(object: &mut Value, revision: u64) {
    // Whatever is stored has metadata.
    let Some(metadata) = object.get_mut("metadata").and_then(Value::as_map_mut) else { return };
    let is_new = metadata.insert("resourceVersion", revision.to_string()).is_none();
    if is_new {
        let first =
            METADATA.iter().filter_map(|field| Some((*field, metadata.get(field)?.clone())));
        let mut ordered: Map = first.collect();
        let rest = metadata.iter().filter(|(key, _)| !METADATA.contains(&key.as_str()));
        ordered.extend(rest.map(|(key, value)| (key.clone(), value.clone())));
        *metadata = ordered;
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn the_past_can_be_read_until_it_is_forgotten() {
        let key = TableKey::new("", "configmaps");
        let mut store = Store::default();
        let object = |name: &str, data: &str| value!({"metadata": {"name": name, "namespace": "a"}, "data": data});
        store.put(&key, object("x", "1"));
        store.put(&key, object("y", "1"));
        store.put(&key, object("x", "2"));
        store.remove(&key, "a", "y");
        let table = store.table(&key).unwrap();
        let data = |revision| -> Vec<String> {
            let objects = table.at(revision).unwrap();
            objects.values().map(|object| object.str_at(["data"]).unwrap().to_owned()).collect()
        };
        assert_eq!(data(1), ["1"]);
        assert_eq!(data(2), ["1", "1"]);
        assert_eq!(data(3), ["2", "1"]);
        assert_eq!(data(4), ["2"]);
        assert_eq!(table.since(2, 10).unwrap().len(), 2);
        assert_eq!(store.revision(), 4);
        store.compact(3);
        assert!(store.table(&key).unwrap().at(2).is_none());
        assert!(store.table(&key).unwrap().since(2, 10).is_none());
        assert_eq!(store.table(&key).unwrap().since(3, 10).unwrap().len(), 1);
    }

    #[test]
    fn a_version_is_written_once_for_all_lists_and_watches() {
        let key = TableKey::new("", "configmaps");
        let mut store = Store::default();
        for data in ["1", "2"] {
            store.put(&key, value!({"metadata": {"name": "x", "namespace": "a"}, "data": data}));
        }
        let table = store.table(&key).unwrap();
        let (_, object, text) = table.range_of_texts("", None).next().unwrap();
        let listed = text_of(text, object);
        assert_eq!(listed, json::to_string(object));
        let events = table.since(0, 10).unwrap();
        let watched = text_of(&events[1].text, &events[1].object);
        assert!(std::ptr::eq(listed, watched), "one text for both");
        assert_ne!(text_of(&events[0].text, &events[0].object), listed);
    }

    #[test]
    fn large_changes_are_forgotten_sooner() {
        let key = TableKey::new("", "configmaps");
        let mut store = Store::default();
        for i in 0..100 {
            let data = "x".repeat(1 << 20) + &i.to_string();
            store.put(&key, value!({"metadata": {"name": "x"}, "data": data}));
        }
        let table = store.table(&key).unwrap();
        assert!(table.log.len() < 25, "{}", table.log.len());
        assert!(table.since(99, 10).is_some() && table.since(1, 10).is_none());
        store.compact(100);
        assert_eq!(store.table(&key).unwrap().log_bytes, 0);
    }
}
