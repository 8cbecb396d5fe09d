//! What is known of single downstream objects besides what they say themselves.
//!
//! All of it is found out again after a restart, at the cost of a trial write or a count that begins anew.

use std::collections::{HashMap, HashSet};

use kiln_engine::ContentHash;
use kiln_object::{ObjectId, metadata};
use kiln_value::{Str, Value};

use crate::work_queue::WorkKey;

/// How long an edit stays at most that is made again and again, when no other rule makes it.
const LONGEST_OPEN: u64 = 5_000;
/// How long an object is quiet before its corrections are forgotten: one that was corrected now and then, and one about
/// which another writer insisted.
const QUIET: u64 = 60_000;
const QUIET_AFTER_CONFLICT: u64 = 600_000;

/// Corrections of one object in a row.
#[derive(Clone, Copy, Debug, Default)]
struct Contest {
    corrections: u32,
    /// When it was last reverted.
    last: u64,
}

/// What is known of downstream objects.
#[derive(Debug, Default)]
pub(crate) struct Downstreams {
    /// Objects whose deletion was asked for and not seen yet, by UID.
    deleting: HashSet<Str>,
    /// Objects of the engine's whose claim was edited by others, by UID.
    edited: HashSet<Str>,
    /// Where objects of the engine's were that others deleted, and the key that wants them.
    replaced: HashMap<ObjectId, WorkKey>,
    /// What differs from what was sent right after it was written: what a server adds.
    settled: HashMap<ObjectId, (ContentHash, ContentHash)>,
    contests: HashMap<ObjectId, Contest>,
}

impl Downstreams {
    /// An object is gone.
    pub(crate) fn gone(&mut self, id: &ObjectId, uid: &str) {
        self.deleting.remove(uid);
        self.edited.remove(uid);
        self.settled.remove(id);
    }

    /// The deletion of an object was accepted; a watch tells when it is over.
    pub(crate) fn deletes(&mut self, uid: Str) {
        self.deleting.insert(uid);
    }

    pub(crate) fn is_deleting(&self, uid: &str) -> bool {
        self.deleting.contains(uid)
    }

    /// Others edited the claim on an object, or what they edited is as it was.
    pub(crate) fn set_edited(&mut self, uid: &str, edited: bool) {
        match edited {
            true => drop(self.edited.insert(uid.into())),
            false => drop(self.edited.remove(uid)),
        }
    }

    /// Others deleted an object that a key wants.
    pub(crate) fn was_replaced(&mut self, id: &ObjectId, wanted_by: WorkKey) {
        self.replaced.insert(id.clone(), wanted_by);
    }

    /// The engine's own object is there again.
    pub(crate) fn is_back(&mut self, id: &ObjectId) {
        self.replaced.remove(id);
    }

    /// Forgets what was deleted and a key does not want any more.
    pub(crate) fn forget_replaced(&mut self, key: &WorkKey, wants: &[ObjectId]) {
        self.replaced.retain(|id, owner| owner != key || wants.contains(id));
    }

    /// Whether others were seen to edit the claim on an object that the engine wrote for a key, or to replace it.
    pub(crate) fn claim_was_edited(&self, key: &WorkKey, id: &ObjectId, object: &Value) -> bool {
        metadata::uid(object).is_some_and(|uid| self.edited.contains(uid))
            || self.replaced.get(id) == Some(key)
    }

    /// An object differs from what was sent by what the server adds: that is no difference from now on.
    pub(crate) fn settle(&mut self, id: &ObjectId, wanted: ContentHash, stored: ContentHash) {
        self.settled.insert(id.clone(), (wanted, stored));
    }

    /// An object is stored as it was sent.
    pub(crate) fn is_as_sent(&mut self, id: &ObjectId) {
        self.settled.remove(id);
    }

    /// Whether the difference of an object is known to be what the server adds.
    pub(crate) fn is_settled(&self, id: &ObjectId, hashes: (ContentHash, ContentHash)) -> bool {
        self.settled.get(id) == Some(&hashes)
    }

    /// An object is as its rule wants it: corrections of long ago are forgotten.
    pub(crate) fn is_as_wanted(&mut self, id: &ObjectId, now: u64) {
        if self.contests.get(id).is_some_and(|contest| contest.last + QUIET_AFTER_CONFLICT < now) {
            self.contests.remove(id);
        }
    }

    /// Counts a correction of an object; when it was reverted too often, the time to wait for.
    ///
    /// The first corrections are immediate, so that an edit by hand is reverted at once. After `most` of them within a
    /// minute another writer insists, and corrections pause. The pause stays at five seconds if the other writer is not a
    /// rule, because its edit would stay otherwise, and it must not win by insisting; between two rules (`pause_of_rules`
    /// is given) it doubles up to that, because each correction costs another one. A quiet object is forgotten after a
    /// minute, a contested one after ten.
    pub(crate) fn correct(
        &mut self,
        id: &ObjectId,
        now: u64,
        most: u32,
        pause_of_rules: Option<u64>,
    ) -> Option<u64> {
        let longest = pause_of_rules.unwrap_or(LONGEST_OPEN);
        let contest = self.contests.entry(id.clone()).or_default();
        let quiet = if contest.corrections < most { QUIET } else { QUIET_AFTER_CONFLICT };
        if contest.last + quiet < now {
            *contest = Contest::default();
        }
        if contest.corrections >= most {
            let wait = 5_000_u64 << (contest.corrections - most).min(16);
            let allowed = contest.last + wait.min(longest);
            if now < allowed {
                return Some(allowed);
            }
        }
        contest.corrections += 1;
        contest.last = now;
        None
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;

    use super::*;

    #[test]
    fn corrections_pause_when_another_writer_insists() {
        let mut downstreams = Downstreams::default();
        let id = ObjectId::new(Gvk::new("v1", "Secret"), "a", "b");
        let now = 1_000_000;
        for _ in 0..3 {
            assert_eq!(downstreams.correct(&id, now, 3, None), None, "reverted at once");
        }
        assert_eq!(downstreams.correct(&id, now, 3, None), Some(now + 5_000));
        assert_eq!(downstreams.correct(&id, now + 5_000, 3, None), None);
        // Another writer must not win by insisting; two rules would go on for ever.
        assert_eq!(downstreams.correct(&id, now + 5_000, 3, None), Some(now + 10_000));
        let between_rules = downstreams.correct(&id, now + 5_000, 3, Some(300_000));
        assert_eq!(between_rules, Some(now + 15_000), "the pause doubles");
        assert_eq!(downstreams.correct(&id, now + 700_000, 3, None), None, "it was quiet");
        downstreams.is_as_wanted(&id, now + 2_000_000);
        assert!(downstreams.contests.is_empty());
    }

    #[test]
    fn what_is_gone_is_forgotten() {
        let mut downstreams = Downstreams::default();
        let id = ObjectId::new(Gvk::new("v1", "Secret"), "a", "b");
        let hash = ContentHash::of(&Value::Null);
        downstreams.deletes("u".into());
        downstreams.set_edited("u", true);
        downstreams.settle(&id, hash, hash);
        assert!(downstreams.is_deleting("u") && downstreams.is_settled(&id, (hash, hash)));
        downstreams.gone(&id, "u");
        assert!(!downstreams.is_deleting("u") && !downstreams.is_settled(&id, (hash, hash)));
        assert!(downstreams.edited.is_empty());
    }
}
