//! Keeps records and the checkpoint in the cluster.

use std::collections::BTreeSet;

use kiln_cluster::{ApiError, Call, KindKey, Preconditions, Reason, Reply};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::{Str, Value};

use crate::controller::{Controller, Purpose, Saving, Start};
use crate::record::Checkpoint;

/// How many unserved triggers a checkpoint names before it stops moving on.
const MOST_WAITING: usize = 2_000;

impl Controller {
    /// Stores records that changed.
    pub(crate) fn save_records(&mut self) {
        if self.now < self.retry_records {
            return;
        }
        let dirty: Vec<ObjectId> = self
            .policies
            .iter()
            .filter(|(_, held)| held.saving == Saving::Dirty)
            .map(|(id, _)| id.clone())
            .collect();
        for id in dirty {
            let Some(held) = self.policies.get_mut(&id) else { continue };
            held.saving = Saving::Sent { again: false };
            let mut object = held.record.to_object(&self.settings.namespace);
            let call = match (&held.version, held.record.is_empty()) {
                (None, true) => {
                    self.policies.remove(&id);
                    continue;
                }
                (Some(version), true) => Call::Delete {
                    target: record_id(&object),
                    preconditions: Preconditions {
                        uid: None,
                        resource_version: Some(version.clone()),
                    },
                },
                (Some(version), false) => {
                    // Records have metadata.
                    let _ = object.set(["metadata", "resourceVersion"], version.clone());
                    Call::update(object)
                }
                (None, false) => Call::create(object),
            };
            self.ask(Purpose::Record(id), call);
        }
    }

    pub(crate) fn record_answered(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let Some(held) = self.policies.get_mut(id) else { return };
        let again = held.saving == Saving::Sent { again: true };
        match answer {
            Ok(reply) => {
                held.saving = if again { Saving::Dirty } else { Saving::Stored };
                match reply {
                    Reply::Object(object) => {
                        held.version = metadata::resource_version(&object).map(Str::from);
                        self.activate(id);
                    }
                    _ => {
                        held.version = None;
                        if !again {
                            self.policies.remove(id);
                        }
                    }
                }
            }
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {
                let object = held.record.to_object(&self.settings.namespace);
                self.ask(Purpose::RecordRead(id.clone()), Call::Get(record_id(&object)));
            }
            Err(error) => {
                if error.reason == Reason::NotFound {
                    held.version = None;
                }
                held.saving = Saving::Dirty;
                self.retry_records = self.now + self.settings.backoff;
            }
        }
    }

    /// Another writer changed the record: this process knows better, and writes over it.
    pub(crate) fn record_read(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let Some(held) = self.policies.get_mut(id) else { return };
        held.saving = Saving::Dirty;
        match answer.map(Reply::object) {
            Ok(Some(object)) => {
                held.version = metadata::resource_version(&object).map(Str::from);
            }
            Err(error) if error.reason == Reason::NotFound => held.version = None,
            _ => self.retry_records = self.now + self.settings.backoff,
        }
    }

    pub(crate) fn checkpoint_now(&self) -> Checkpoint {
        let unserved: Vec<_> = self
            .keys
            .iter()
            .filter(|(key, state)| {
                !state.pending.is_empty()
                    && self.rules.rule(&key.rule).is_some_and(|rule| !rule.lifecycle.synchronize)
                    && self.cache.by_uid(&key.trigger).is_some()
            })
            .map(|(key, state)| {
                let operation = state.pending.iter().find_map(|pending| pending.operation);
                let operation = operation.map(|operation| operation.as_str().into());
                (key.rule.to_string(), key.trigger.clone(), operation)
            })
            .collect();
        if unserved.len() > MOST_WAITING || self.start != Start::Running {
            return self.checkpoint.stored.clone();
        }
        let mut kinds: BTreeSet<KindKey> = BTreeSet::new();
        for rule in self.rules.rules().filter(|rule| !rule.lifecycle.synchronize) {
            kinds.extend(self.trigger_kinds(rule).iter().map(KindKey::of));
        }
        let seen = kinds
            .into_iter()
            .filter_map(|kind| {
                let before = self.checkpoint.stored.seen.get(&kind).copied().unwrap_or(0);
                let known = self.cache.kinds.get(&kind).map_or(0, |known| known.revision);
                let revision = known.max(before);
                (revision > 0).then_some((kind, revision))
            })
            .collect();
        Checkpoint {
            seen,
            waiting: unserved,
            passed_over: self.passed_over.to_map(),
            ended: self.ended.to_map(),
        }
    }

    pub(crate) fn checkpoint_due(&self) -> bool {
        self.checkpoint.dirty && self.checkpoint.sent.is_none()
    }

    pub(crate) fn save_checkpoint(&mut self) {
        // While everything is looked at, too little is known.
        if self.checkpoint.next > self.now || self.pass > 0 || !self.checkpoint_due() {
            return;
        }
        self.checkpoint.dirty = false;
        let checkpoint = self.checkpoint_now();
        if checkpoint == self.checkpoint.stored {
            return;
        }
        let mut object = checkpoint.to_object(&self.settings.namespace);
        let call = match &self.checkpoint.version {
            Some(version) => {
                let _ = object.set(["metadata", "resourceVersion"], version.clone());
                Call::update(object)
            }
            None => Call::create(object),
        };
        self.checkpoint.sent = Some(checkpoint);
        self.checkpoint.next = self.now + self.settings.checkpoint;
        self.ask(Purpose::Checkpoint, call);
    }

    pub(crate) fn checkpoint_answered(&mut self, answer: Result<Reply, ApiError>) {
        let sent = self.checkpoint.sent.take();
        match answer {
            Ok(reply) => {
                let object = reply.object();
                self.checkpoint.version =
                    object.as_ref().and_then(metadata::resource_version).map(Str::from);
                self.checkpoint.stored = sent.unwrap_or_default();
            }
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {
                let object = Checkpoint::default().to_object(&self.settings.namespace);
                self.checkpoint.sent = sent;
                self.ask(Purpose::CheckpointRead, Call::Get(record_id(&object)));
            }
            Err(error) => {
                self.checkpoint.dirty = true;
                self.checkpoint.next = self.now + self.settings.backoff;
                if error.reason == Reason::NotFound {
                    self.checkpoint.version = None;
                }
            }
        }
    }

    pub(crate) fn checkpoint_read(&mut self, answer: Result<Reply, ApiError>) {
        self.checkpoint.sent = None;
        self.checkpoint.dirty = true;
        match answer.map(Reply::object) {
            Ok(object) => {
                self.checkpoint.version =
                    object.as_ref().and_then(metadata::resource_version).map(Str::from);
            }
            Err(error) if error.reason == Reason::NotFound => self.checkpoint.version = None,
            Err(_) => self.checkpoint.next = self.now + self.settings.backoff,
        }
    }
}

fn record_id(object: &Value) -> ObjectId {
    ObjectId::new(
        Gvk::new("v1", "ConfigMap"),
        metadata::namespace(object).unwrap_or_default(),
        metadata::name(object).unwrap_or_default(),
    )
}
