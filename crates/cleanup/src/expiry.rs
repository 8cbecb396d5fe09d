//! The objects with the TTL label, and when each is due.

use std::collections::BTreeMap;

use kiln_cluster::{ApiError, KindKey, Preconditions, Reason};
use kiln_object::{ObjectId, metadata};
use kiln_rules::Propagation;
use kiln_text::Time;
use kiln_value::{Str, Value};

use crate::ttl::{PROPAGATION_ANNOTATION, TTL_LABEL, Ttl};

/// How often a deletion is tried again before the object must change first, and the first pause before it in
/// milliseconds.
const TRIES: u32 = 10;
const PAUSE: u64 = 1_000;
/// The most deletions at once.
const AT_ONCE: usize = 16;

/// The objects with the TTL label, by when they are due. Times are in milliseconds since 1970.
// A map by identity and no `ObjectMap`: nothing lists the objects of a kind, and they are asked for across kinds.
#[derive(Debug, Default)]
pub struct TtlQueue {
    objects: BTreeMap<ObjectId, Labelled>,
    in_flight: usize,
}

#[derive(Clone, Debug)]
struct Labelled {
    uid: Str,
    version: Str,
    propagation: Option<Propagation>,
    /// When to delete it; none while nothing can be done.
    due: Option<u64>,
    tries: u32,
    in_flight: bool,
    /// It changed while it was being deleted: the answer is about an older one.
    changed: bool,
}

/// An object whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Which one.
    pub target: ObjectId,
    /// It must still be as it was seen.
    pub preconditions: Preconditions,
    /// What becomes of what it owns.
    pub propagation: Option<Propagation>,
}

impl TtlQueue {
    /// Takes note of an object as it is now. What is wrong with its label, if something is.
    pub fn observe(&mut self, object: &Value) -> Option<String> {
        let Ok(id) = ObjectId::of(object) else { return None };
        let label = metadata::label(object, TTL_LABEL).filter(|_| !metadata::is_deleted(object));
        let Some(label) = label else {
            self.forget(&id);
            return None;
        };
        let ttl = match Ttl::parse(label) {
            Ok(ttl) => ttl,
            Err(wrong) => {
                self.forget(&id);
                return Some(wrong.to_string());
            }
        };
        let created = object.str_at(["metadata", "creationTimestamp"]);
        let created = created.and_then(|text| Time::parse_rfc3339(text).ok());
        // An object that no server has stored yet has no age.
        let created = created.map(|time| time.unix())?;
        let due = u64::try_from(ttl.due(created)).unwrap_or(0).saturating_mul(1_000);
        let in_flight = self.objects.get(&id).is_some_and(|known| known.in_flight);
        let text = |found: Option<&str>| Str::from(found.unwrap_or_default());
        let labelled = Labelled {
            uid: text(metadata::uid(object)),
            version: text(metadata::resource_version(object)),
            propagation: metadata::annotation(object, PROPAGATION_ANNOTATION)
                .and_then(Propagation::parse),
            due: Some(due),
            tries: 0,
            in_flight,
            changed: in_flight,
        };
        self.objects.insert(id, labelled);
        None
    }

    /// Drops an object that is gone.
    pub fn forget(&mut self, id: &ObjectId) {
        if self.objects.remove(id).is_some_and(|gone| gone.in_flight) {
            self.in_flight = self.in_flight.saturating_sub(1);
        }
    }

    /// Drops the objects of a kind, before it is listed anew or because it cannot be watched any longer.
    pub fn forget_kind(&mut self, kind: &KindKey) {
        let of_kind = |id: &&ObjectId| KindKey::of(&id.gvk) == *kind;
        let gone: Vec<ObjectId> = self.objects.keys().filter(of_kind).cloned().collect();
        gone.iter().for_each(|id| self.forget(id));
    }

    /// The objects whose time has come, to be deleted and answered for.
    pub fn poll(&mut self, now: u64) -> Vec<Expired> {
        let mut expired = Vec::new();
        for (id, labelled) in &mut self.objects {
            if self.in_flight >= AT_ONCE {
                break;
            }
            if labelled.in_flight || labelled.due.is_none_or(|due| due > now) {
                continue;
            }
            labelled.in_flight = true;
            self.in_flight += 1;
            expired.push(Expired {
                target: id.clone(),
                preconditions: Preconditions {
                    uid: Some(labelled.uid.clone()),
                    resource_version: Some(labelled.version.clone()),
                },
                propagation: labelled.propagation,
            });
        }
        expired
    }

    /// What came of a deletion. The watch tells when the object is gone.
    pub fn answered(&mut self, id: &ObjectId, answer: &Result<(), ApiError>, now: u64) {
        let Some(labelled) = self.objects.get_mut(id).filter(|known| known.in_flight) else {
            return;
        };
        labelled.in_flight = false;
        self.in_flight = self.in_flight.saturating_sub(1);
        if std::mem::take(&mut labelled.changed) {
            return;
        }
        labelled.due = match answer {
            Ok(()) => None,
            Err(error) if error.reason == Reason::NotFound => None,
            Err(_) => {
                labelled.tries += 1;
                let pause = PAUSE << (labelled.tries - 1).min(TRIES);
                (labelled.tries <= TRIES).then(|| now + pause)
            }
        };
    }

    /// When to poll again; none when nothing waits.
    pub fn next_time(&self) -> Option<u64> {
        if self.in_flight >= AT_ONCE {
            return None;
        }
        self.objects.values().filter(|known| !known.in_flight).filter_map(|known| known.due).min()
    }

    /// How many objects wait.
    pub fn len(&self) -> usize {
        self.objects.len()
    }

    /// Whether no object waits.
    pub fn is_empty(&self) -> bool {
        self.objects.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    const CREATED: u64 = 1_767_225_600_000; // 2026-01-01T00:00:00Z

    fn pod(version: &str, ttl: Option<&str>) -> Value {
        let mut pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {
            "name": "a", "namespace": "n", "uid": "u", "resourceVersion": version,
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "annotations": {"cleanup.kyverno.io/propagation-policy": "Foreground"},
        }});
        if let Some(ttl) = ttl {
            pod.set(["metadata", "labels", TTL_LABEL], ttl).unwrap();
        }
        pod
    }

    fn failed(reason: Reason) -> Result<(), ApiError> {
        Err(ApiError::new(reason, "no"))
    }

    #[test]
    fn an_object_goes_at_its_time_and_as_it_was_seen() {
        let mut queue = TtlQueue::default();
        assert_eq!(queue.observe(&pod("1", Some("10s"))), None);
        assert_eq!(queue.next_time(), Some(CREATED + 10_000));
        assert_eq!(queue.poll(CREATED + 9_999), []);
        let expired = queue.poll(CREATED + 10_000).remove(0);
        assert_eq!(expired.preconditions.uid.as_deref(), Some("u"));
        assert_eq!(expired.preconditions.resource_version.as_deref(), Some("1"));
        assert_eq!(expired.propagation, Some(Propagation::Foreground));
        assert_eq!(queue.poll(CREATED + 20_000), [], "once at a time");
        queue.answered(&expired.target, &Ok(()), CREATED + 10_001);
        assert_eq!(queue.poll(CREATED + 20_000), [], "it is ending");
        queue.forget(&expired.target);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_label_as_it_is_now_counts() {
        let mut queue = TtlQueue::default();
        queue.observe(&pod("1", Some("10s")));
        queue.observe(&pod("2", Some("1h")));
        assert_eq!(queue.next_time(), Some(CREATED + 3_600_000));
        queue.observe(&pod("3", None));
        assert!(queue.is_empty());
        let wrong = queue.observe(&pod("4", Some("10ay"))).unwrap();
        assert!(wrong.contains("\"10ay\""), "{wrong}");
        assert!(queue.is_empty());
        let mut ending = pod("5", Some("2020-01-01"));
        ending.set(["metadata", "deletionTimestamp"], "2026-01-01T00:00:00Z").unwrap();
        queue.observe(&ending);
        assert!(queue.is_empty());
        queue.observe(&pod("6", Some("2020-01-01")));
        queue.forget_kind(&KindKey::new("", "Pod"));
        assert!(queue.is_empty());
    }

    #[test]
    fn a_deletion_that_fails_is_tried_again_with_growing_pauses_and_then_waits_for_a_change() {
        let mut queue = TtlQueue::default();
        queue.observe(&pod("1", Some("1s")));
        let mut now = CREATED + 1_000;
        let mut pauses = Vec::new();
        while let Some(time) = queue.next_time() {
            pauses.push(time.saturating_sub(now));
            now = time.max(now);
            let expired = queue.poll(now).remove(0);
            queue.answered(&expired.target, &failed(Reason::Forbidden), now);
        }
        assert_eq!(pauses.len(), 11);
        assert_eq!(&pauses[..4], [0, 1_000, 2_000, 4_000]);
        // An object that changed is looked at anew.
        queue.observe(&pod("2", Some("1s")));
        assert_eq!(queue.poll(now).len(), 1);
    }

    #[test]
    fn a_conflict_waits_for_the_newer_object() {
        let mut queue = TtlQueue::default();
        queue.observe(&pod("1", Some("1s")));
        let expired = queue.poll(CREATED + 1_000).remove(0);
        // The watch is faster than the answer.
        queue.observe(&pod("2", Some("1h")));
        queue.answered(&expired.target, &failed(Reason::Conflict), CREATED + 1_001);
        assert_eq!(queue.next_time(), Some(CREATED + 3_600_000));
    }

    #[test]
    fn only_some_are_deleted_at_once() {
        let mut queue = TtlQueue::default();
        for number in 0..40 {
            let mut pod = pod("1", Some("1s"));
            pod.set(["metadata", "name"], format!("p{number}")).unwrap();
            queue.observe(&pod);
        }
        let first = queue.poll(CREATED + 5_000);
        assert_eq!((first.len(), queue.len()), (AT_ONCE, 40));
        assert_eq!(queue.next_time(), None);
        for expired in &first {
            queue.answered(&expired.target, &Ok(()), CREATED + 5_000);
        }
        assert_eq!(queue.poll(CREATED + 5_000).len(), AT_ONCE);
    }
}
