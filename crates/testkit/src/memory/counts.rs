//! What was read and written.

use std::collections::BTreeMap;

use kiln_cluster::Verb;
use kiln_object::ObjectId;

/// What was read and written, call by call, also by calls that failed.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    by_object: BTreeMap<ObjectId, Tally>,
    total: Tally,
}

/// How often something was read and written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Reads; for lists, those of the whole kind.
    pub reads: u64,
    pub writes: u64,
    /// Writes that were only trials.
    pub trials: u64,
}

impl Counts {
    pub(super) fn count(&mut self, verb: Verb, about: &ObjectId, changes: bool) {
        let add = |tally: &mut Tally| match (verb.writes(), changes) {
            (false, _) => tally.reads += 1,
            (true, true) => tally.writes += 1,
            (true, false) => tally.trials += 1,
        };
        add(&mut self.total);
        add(self.by_object.entry(about.clone()).or_default());
    }

    /// All together.
    pub fn total(&self) -> Tally {
        self.total
    }

    /// Those of one object.
    pub fn of(&self, id: &ObjectId) -> Tally {
        self.by_object.get(id).copied().unwrap_or_default()
    }

    /// Every object that was written, with its numbers.
    pub fn written(&self) -> impl Iterator<Item = (&ObjectId, Tally)> {
        self.by_object.iter().filter(|(_, tally)| tally.writes > 0).map(|(id, tally)| (id, *tally))
    }

    /// Starts over.
    pub fn clear(&mut self) {
        *self = Counts::default();
    }
}
