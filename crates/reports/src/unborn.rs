//! Results about objects that are not stored yet.
//!
//! A rule that changes an object runs before the object has a UID, and a report is named by it. So the host looks for the
//! object some times. One that was denied, or that has a name which is made when it is stored, is never found, and its
//! results are forgotten.

use std::collections::BTreeMap;

use kiln_object::{ObjectId, metadata};
use kiln_text::Time;
use kiln_value::{Str, Value};

/// How many objects are looked for at most. What is left out then is found out by the next request.
const MOST: usize = 4_096;
/// How often an object is looked for.
const TRIES: u32 = 6;
/// The first pause, in milliseconds; it doubles.
const PAUSE: u64 = 500;
/// How far the clock of an API server may be behind, in milliseconds: an older object is another one of the same name.
const ASKEW: u64 = 30_000;

#[derive(Debug)]
struct Awaited {
    results: Vec<Value>,
    /// When the first result came.
    since: u64,
    due: u64,
    tries: u32,
    /// The host looks for it.
    at_work: bool,
}

/// Results about objects that are not stored yet, by object.
#[derive(Debug, Default)]
pub(crate) struct Unborn {
    awaited: BTreeMap<ObjectId, Awaited>,
}

impl Unborn {
    pub(crate) fn add(&mut self, id: ObjectId, results: Vec<Value>, now: u64) {
        let is_new = !self.awaited.contains_key(&id);
        if id.name.is_empty() || results.is_empty() || (is_new && self.awaited.len() >= MOST) {
            return;
        }
        let due = now + PAUSE;
        let first = Awaited { results: Vec::new(), since: now, due, tries: 0, at_work: false };
        let awaited = self.awaited.entry(id).or_insert(first);
        // A webhook may be called again for what others changed: later results are in the place of earlier ones.
        awaited.results.extend(results);
        awaited.tries = 0;
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        let waiting = self.awaited.values().filter(|awaited| !awaited.at_work);
        waiting.map(|awaited| awaited.due).min()
    }

    pub(crate) fn due(&mut self, now: u64, most: usize) -> Vec<ObjectId> {
        let due = self.awaited.iter_mut().filter(|(_, it)| !it.at_work && it.due <= now);
        due.take(most)
            .map(|(id, awaited)| {
                awaited.at_work = true;
                id.clone()
            })
            .collect()
    }

    /// Takes in what was found: the UID of the object and its results, once it is there.
    pub(crate) fn looked_for(
        &mut self,
        id: &ObjectId,
        found: Option<&Value>,
        now: u64,
    ) -> Option<(Str, Vec<Value>)> {
        let awaited = self.awaited.get_mut(id)?;
        let is_it = |object: &&Value| {
            let made = object.str_at(["metadata", "creationTimestamp"]).unwrap_or_default();
            let made = Time::parse_rfc3339(made).map_or(0, |time| time.unix());
            let made = u64::try_from(made).unwrap_or(0) * 1_000;
            made + ASKEW >= awaited.since
        };
        let uid = found.filter(is_it).and_then(metadata::uid).map(Str::from);
        if let Some(uid) = uid {
            let results = self.awaited.remove(id)?.results;
            return Some((uid, results));
        }
        awaited.tries += 1;
        awaited.at_work = false;
        awaited.due = now + (PAUSE << awaited.tries);
        if awaited.tries >= TRIES {
            self.awaited.remove(id);
        }
        None
    }
}
