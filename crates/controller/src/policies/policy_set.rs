//! The policies that the controller knows: as they are stored, what is remembered of them, and the rules that act.
//!
//! A policy has a record in the cluster, which is written before anything is done about a change of the policy. Its rules
//! act when the record is stored.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kiln_cluster::{ApiError, Call, KindKey, Preconditions, Reason, Reply};
use kiln_engine::{RuleSet, User};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Exception, Policy, PolicyId, RuleId};
use kiln_value::Str;

use crate::policies::record::{Record, record_id};
use crate::policies::stored_policies::StoredPolicy;

/// How far the start has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// Records are to be read, not before this time.
    Records {
        at: u64,
        asked: bool,
    },
    /// Policies and requests are to be known.
    Policies,
    Running,
}

impl Default for Start {
    fn default() -> Self {
        Start::Records { at: 0, asked: false }
    }
}

/// A policy whose rules act, or did.
#[derive(Debug)]
pub(crate) struct PolicyState {
    pub(crate) record: Record,
    pub(crate) policy: Option<Arc<Policy>>,
    /// Who stored it, if that was written down.
    pub(crate) author: Option<User>,
    /// The version of the ConfigMap that holds the record; none when there is none yet.
    pub(crate) version: Option<Str>,
    pub(crate) saving: Saving,
    /// Rules that were known before this process started.
    pub(crate) from_before: BTreeSet<Str>,
    /// Its rules act.
    pub(crate) active: bool,
    /// Its generate rules may be edited: they adopt what removed ones made.
    pub(crate) adopts: bool,
}

/// Whether a record is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saving {
    Stored,
    Dirty,
    /// Being written; whether it changed meanwhile.
    Sent {
        again: bool,
    },
}

impl PolicyState {
    /// What is known of a policy by its record.
    pub(crate) fn of(record: Record, version: Option<Str>) -> Self {
        PolicyState {
            from_before: BTreeSet::new(),
            record,
            policy: None,
            author: None,
            version,
            saving: Saving::Stored,
            active: false,
            adopts: false,
        }
    }

    /// Whether it holds what is remembered of a policy. A policy that was moved to another group leaves an empty record
    /// until that is deleted.
    fn is_of(&self, policy: &PolicyId) -> bool {
        self.record.policy == *policy && !self.record.is_empty()
    }

    /// The record is to be stored.
    pub(crate) fn change(&mut self) {
        self.saving = match self.saving {
            Saving::Sent { .. } => Saving::Sent { again: true },
            _ => Saving::Dirty,
        };
    }

    /// The call that stores the record, or deletes one in which nothing is left; none when there is none to delete.
    fn save(&mut self, namespace: &str) -> Option<Call> {
        self.saving = Saving::Sent { again: false };
        let mut object = self.record.to_object(namespace);
        match (&self.version, self.record.is_empty()) {
            (None, true) => None,
            (Some(version), true) => Some(Call::Delete {
                target: record_id(&object),
                preconditions: Preconditions { uid: None, resource_version: Some(version.clone()) },
            }),
            (Some(version), false) => {
                // Records have metadata.
                let _ = object.set(["metadata", "resourceVersion"], version.clone());
                Some(Call::update(object))
            }
            (None, false) => Some(Call::create(object)),
        }
    }
}

/// What follows from the answer about a record.
#[derive(Debug, PartialEq)]
pub(crate) enum RecordNews {
    /// It is stored: its rules act.
    Stored,
    /// Another writer changed it: it is to be read.
    Read(Call),
    Nothing,
}

/// All policies.
#[derive(Debug, Default)]
pub(crate) struct PolicySet {
    pub(crate) start: Start,
    /// The policies that are stored, as a host says; none before it has said so.
    pub(crate) given: Option<BTreeMap<ObjectId, StoredPolicy>>,
    pub(crate) states: BTreeMap<ObjectId, PolicyState>,
    /// Policies that cannot be compiled, with the reason.
    pub(crate) broken: BTreeMap<ObjectId, String>,
    pub(crate) exceptions: Vec<Arc<Exception>>,
    /// The rules that act, with their exceptions.
    pub(crate) rules: RuleSet,
    /// Rules that have looked at the objects of a kind that were there before them.
    pub(crate) begun: BTreeSet<(RuleId, KindKey)>,
    /// When records are written again after a failure.
    retry_at: u64,
}

impl PolicySet {
    pub(crate) fn is_running(&self) -> bool {
        self.start == Start::Running
    }

    /// A policy as it was last given.
    pub(crate) fn stored(&self, id: &ObjectId) -> Option<&StoredPolicy> {
        self.given.as_ref()?.get(id)
    }

    /// What is known of a policy by the name that its rules have.
    pub(crate) fn of(&self, policy: &PolicyId) -> Option<&PolicyState> {
        self.states.values().find(|state| state.is_of(policy))
    }

    pub(crate) fn of_mut(&mut self, policy: &PolicyId) -> Option<&mut PolicyState> {
        self.states.values_mut().find(|state| state.is_of(policy))
    }

    pub(crate) fn next_deadline(&self, now: u64) -> Option<u64> {
        let start = match self.start {
            Start::Records { at, asked: false } => Some(at),
            _ => None,
        };
        let retry = (self.retry_at > now).then_some(self.retry_at);
        [start, retry].into_iter().flatten().min()
    }

    /// The calls that store records which changed.
    pub(crate) fn poll(&mut self, now: u64, namespace: &str) -> Vec<(ObjectId, Call)> {
        if now < self.retry_at {
            return Vec::new();
        }
        let mut calls = Vec::new();
        self.states.retain(|id, state| {
            if state.saving != Saving::Dirty {
                return true;
            }
            let call = state.save(namespace);
            let is_left = call.is_some();
            calls.extend(call.map(|call| (id.clone(), call)));
            is_left
        });
        calls
    }

    /// What follows from the answer to a write of a record.
    pub(crate) fn on_reply(
        &mut self,
        id: &ObjectId,
        answer: Result<Reply, ApiError>,
        namespace: &str,
        retry_at: u64,
    ) -> RecordNews {
        let Some(state) = self.states.get_mut(id) else { return RecordNews::Nothing };
        let again = state.saving == Saving::Sent { again: true };
        match answer {
            Ok(Reply::Object(object)) => {
                state.saving = if again { Saving::Dirty } else { Saving::Stored };
                state.version = metadata::resource_version(&object).map(Str::from);
                RecordNews::Stored
            }
            Ok(_) => {
                state.saving = if again { Saving::Dirty } else { Saving::Stored };
                state.version = None;
                if !again {
                    self.states.remove(id);
                }
                RecordNews::Nothing
            }
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {
                let object = state.record.to_object(namespace);
                RecordNews::Read(Call::Get(record_id(&object)))
            }
            Err(error) => {
                if error.reason == Reason::NotFound {
                    state.version = None;
                }
                state.saving = Saving::Dirty;
                self.retry_at = retry_at;
                RecordNews::Nothing
            }
        }
    }

    /// Another writer changed the record: this process knows better, and writes over it.
    pub(crate) fn on_read(
        &mut self,
        id: &ObjectId,
        answer: Result<Reply, ApiError>,
        retry_at: u64,
    ) {
        let Some(state) = self.states.get_mut(id) else { return };
        state.saving = Saving::Dirty;
        match answer.map(Reply::object) {
            Ok(Some(object)) => {
                state.version = metadata::resource_version(&object).map(Str::from);
            }
            Err(error) if error.reason == Reason::NotFound => state.version = None,
            _ => self.retry_at = retry_at,
        }
    }

    /// Puts the rules together that act from now on.
    pub(crate) fn rebuild(&mut self) {
        let active = self.states.values().filter(|state| state.active);
        let policies: Vec<Arc<Policy>> = active.filter_map(|state| state.policy.clone()).collect();
        self.rules = RuleSet::new(policies).with_exceptions(self.exceptions.iter().cloned());
        let rules = &self.rules;
        self.begun.retain(|(rule, _)| rules.rule(rule).is_some());
    }
}

#[cfg(test)]
mod tests {
    use kiln_object::Gvk;
    use kiln_rules::Dialect;
    use kiln_value::value;

    use super::*;
    use crate::policies::record::{Leaving, Removed};

    fn set() -> (PolicySet, ObjectId) {
        let id = ObjectId::new(Gvk::new("kyverno.io/v1", "ClusterPolicy"), "", "p");
        let leaving = Leaving {
            synchronize: true,
            on_policy_delete: kiln_rules::OnPolicyDelete::Delete,
            kinds: Vec::new(),
        };
        let record = Record {
            object: id.clone(),
            policy: PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() },
            uid: "u".into(),
            moved_from: None,
            spec: "s".into(),
            rules: BTreeMap::new(),
            removed: vec![Removed { rule: "r".into(), uid: "u".into(), leaving }],
        };
        let mut set = PolicySet::default();
        set.states.insert(id.clone(), PolicyState::of(record, None));
        (set, id)
    }

    fn stored(version: &str) -> Result<Reply, ApiError> {
        Ok(Reply::Object(value!({"metadata": {"resourceVersion": version}})))
    }

    fn change(set: &mut PolicySet, id: &ObjectId) {
        set.states.get_mut(id).unwrap().change();
    }

    #[test]
    fn a_record_is_stored_before_its_rules_act_and_deleted_when_nothing_is_left() {
        let (mut set, id) = set();
        assert!(set.poll(0, "kyverno").is_empty(), "nothing changed");
        change(&mut set, &id);
        let calls = set.poll(0, "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Create { .. })]), "{calls:?}");
        assert!(set.poll(0, "kyverno").is_empty(), "it is under way");
        // It changed while it was written: it is written again.
        change(&mut set, &id);
        assert_eq!(set.on_reply(&id, stored("3"), "kyverno", 0), RecordNews::Stored);
        let calls = set.poll(0, "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Update { .. })]), "{calls:?}");
        assert_eq!(set.on_reply(&id, stored("4"), "kyverno", 0), RecordNews::Stored);
        set.states.get_mut(&id).unwrap().record.removed.clear();
        change(&mut set, &id);
        let calls = set.poll(0, "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Delete { .. })]), "{calls:?}");
        assert_eq!(set.on_reply(&id, Ok(Reply::Deleted), "kyverno", 0), RecordNews::Nothing);
        assert!(set.states.is_empty());
    }

    #[test]
    fn a_record_that_cannot_be_stored_is_tried_again_and_another_writers_is_written_over() {
        let (mut set, id) = set();
        change(&mut set, &id);
        set.poll(0, "kyverno");
        let failed = Err(ApiError::new(Reason::Unavailable, "down"));
        assert_eq!(set.on_reply(&id, failed, "kyverno", 500), RecordNews::Nothing);
        assert_eq!(set.next_deadline(1), Some(0), "records are still to be read");
        set.start = Start::Running;
        assert_eq!(set.next_deadline(1), Some(500));
        assert!(set.poll(499, "kyverno").is_empty());
        assert_eq!(set.poll(500, "kyverno").len(), 1);
        let taken = Err(ApiError::new(Reason::AlreadyExists, "taken"));
        let news = set.on_reply(&id, taken, "kyverno", 0);
        assert!(matches!(news, RecordNews::Read(Call::Get(_))), "{news:?}");
        set.on_read(&id, stored("8"), 0);
        let calls = set.poll(500, "kyverno");
        let [(_, Call::Update { object, .. })] = calls.as_slice() else { panic!("{calls:?}") };
        assert_eq!(metadata::resource_version(object), Some("8"));
    }
}
