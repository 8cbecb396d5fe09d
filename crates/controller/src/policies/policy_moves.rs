//! Policies that are stored in both API groups, or moved from one to the other.
//!
//! A policy has the same name for its rules wherever it is stored, so one of them counts: the one of Kiln's own group,
//! if it is sound. It takes over what is remembered of the other one, and with it every downstream. When it is deleted
//! while the other one is still there, that one gets everything back.

use std::mem::take;

use kiln_object::policy_kinds::{OWN_GROUP, twin};
use kiln_object::{ObjectId, metadata};
use kiln_value::Str;

use crate::controller::Controller;
use crate::policies::policy_set::{PolicyState, Saving};
use crate::policies::record::Record;
use crate::policies::stored_policies::StoredPolicy;

impl Controller {
    /// The sound policy of this name in the other group.
    fn sound_twin(&self, id: &ObjectId) -> Option<&StoredPolicy> {
        let stored = self.policies.stored(&twin(id)?)?;
        (stored.compiled.is_ok() && !metadata::is_deleted(&stored.object)).then_some(stored)
    }

    /// Whether a policy is not run because Kiln's own group has a sound one of its name.
    pub(crate) fn is_displaced(&self, id: &ObjectId) -> bool {
        id.gvk.group != OWN_GROUP && self.sound_twin(id).is_some()
    }

    /// Makes what is remembered of a policy in the other group that of this one.
    pub(crate) fn take_over(&mut self, id: &ObjectId, uid: &Str) {
        let Some(other) = twin(id) else { return };
        let is_known =
            self.policies.states.get(id).is_some_and(|held| !held.record.rules.is_empty());
        let Some(held) = self.policies.states.get_mut(&other) else { return };
        if held.record.is_empty() {
            return;
        }
        // Its record is deleted, or a restart would take it for that of a policy that is gone.
        let (rules, removed) = (take(&mut held.record.rules), take(&mut held.record.removed));
        let record = Record {
            object: id.clone(),
            policy: held.record.policy.clone(),
            uid: uid.clone(),
            moved_from: Some(held.record.uid.clone()),
            spec: held.record.spec.clone(),
            rules,
            removed,
        };
        let from_before = take(&mut held.from_before);
        (held.policy, held.active) = (None, false);
        held.change();
        if is_known {
            return;
        }
        let mut moved = PolicyState::of(record, None);
        (moved.from_before, moved.saving) = (from_before, Saving::Dirty);
        self.policies.states.insert(id.clone(), moved);
    }

    /// Gives what is remembered of a policy that is gone to the one of its name in the other group, if there is one.
    pub(crate) fn hand_over(&mut self, id: &ObjectId) -> bool {
        if !self.policies.states.contains_key(id) {
            return false;
        }
        let Some(there) = self.sound_twin(id).cloned() else { return false };
        if let Some(held) = self.policies.states.get_mut(id) {
            held.policy = None;
        }
        self.policy_changed(&there);
        true
    }
}
