//! The objects of one kind, and the log of their changes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use kiln_cluster::WatchEvent;
use kiln_object::{Change, NamespacedName, ObjectMap};
use kiln_value::{Str, Value};

/// How many changes of a kind are remembered before the oldest are forgotten.
const REMEMBERED: usize = 50_000;

/// The objects of one kind.
#[derive(Debug, Default)]
pub(super) struct Table {
    objects: ObjectMap,
    /// Which manager applied which fields, of objects that were written by server-side apply.
    applied: BTreeMap<NamespacedName, BTreeMap<Str, BTreeSet<Vec<Str>>>>,
    log: VecDeque<WatchEvent>,
    /// Everything up to here may be forgotten.
    forgotten: u64,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.objects.len()
    }

    pub(super) fn get(&self, namespace: &str, name: &str) -> Option<&Value> {
        self.objects.get(namespace, name)
    }

    pub(super) fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    pub(super) fn map(&self) -> &ObjectMap {
        &self.objects
    }

    pub(super) fn put(&mut self, place: NamespacedName, object: Value, revision: u64) {
        let change =
            if self.objects.get_at(&place).is_some() { Change::Modified } else { Change::Added };
        self.note(WatchEvent { change, object: object.clone(), revision });
        self.objects.insert(place, object);
    }

    pub(super) fn remove(&mut self, place: &NamespacedName, last: Value, revision: u64) {
        self.objects.remove(place);
        self.applied.remove(place);
        self.note(WatchEvent { change: Change::Deleted, object: last, revision });
    }

    pub(super) fn applied(
        &mut self,
        place: NamespacedName,
    ) -> &mut BTreeMap<Str, BTreeSet<Vec<Str>>> {
        self.applied.entry(place).or_default()
    }

    fn note(&mut self, event: WatchEvent) {
        self.log.push_back(event);
        if self.log.len() > REMEMBERED
            && let Some(oldest) = self.log.pop_front()
        {
            self.forgotten = oldest.revision;
        }
    }

    /// The changes after a revision, or none when some of them are forgotten.
    pub(super) fn changes(
        &self,
        after: u64,
        limit: usize,
    ) -> Option<impl Iterator<Item = &WatchEvent>> {
        let from = self.log.partition_point(|event| event.revision <= after);
        (after >= self.forgotten).then(|| self.log.range(from..).take(limit))
    }

    pub(super) fn compact(&mut self, upto: u64) {
        let kept = self.log.partition_point(|event| event.revision <= upto);
        self.log.drain(..kept);
        self.forgotten = self.forgotten.max(upto);
    }
}
