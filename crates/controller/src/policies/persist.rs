//! Routes records and the checkpoint between the cluster and what keeps them.

use std::collections::BTreeSet;

use kiln_cluster::{ApiError, KindKey, Reply};
use kiln_object::ObjectId;

use crate::controller::Controller;
use crate::outbox::Purpose;
use crate::policies::policy_set::RecordNews;
use crate::policies::record::Checkpoint;

/// How many unserved triggers a checkpoint names before it stops moving on.
const MOST_WAITING: usize = 2_000;

impl Controller {
    /// Stores records that changed.
    pub(crate) fn save_records(&mut self) {
        for (id, call) in self.policies.poll(self.now, &self.env.settings.namespace) {
            self.ask(Purpose::Record(id), call);
        }
    }

    pub(crate) fn record_answered(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let retry_at = self.now + self.env.settings.retry.backoff;
        let namespace = self.env.settings.namespace.clone();
        match self.policies.on_reply(id, answer, &namespace, retry_at) {
            RecordNews::Stored => self.activate(id),
            RecordNews::Read(call) => self.ask(Purpose::RecordRead(id.clone()), call),
            RecordNews::Nothing => {}
        }
    }

    pub(crate) fn record_read(&mut self, id: &ObjectId, answer: Result<Reply, ApiError>) {
        self.policies.on_read(id, answer, self.now + self.env.settings.retry.backoff);
    }

    /// Up to where everything was served by now.
    fn checkpoint_now(&self) -> Checkpoint {
        let unserved: Vec<_> = self
            .queue
            .iter()
            .filter(|(key, state)| {
                let rule = self.policies.rules.rule(&key.rule);
                !state.pending.is_empty()
                    && rule.is_some_and(|rule| !rule.lifecycle.synchronize)
                    && self.cache.by_uid(&key.trigger).is_some()
            })
            .map(|(key, state)| {
                let operation = state.pending.iter().find_map(|pending| pending.operation);
                let operation = operation.map(|operation| operation.as_str().into());
                (key.rule.to_string(), key.trigger.clone(), operation)
            })
            .collect();
        if unserved.len() > MOST_WAITING || !self.policies.is_running() {
            return self.checkpoint.stored().clone();
        }
        let mut kinds: BTreeSet<KindKey> = BTreeSet::new();
        for rule in self.policies.rules.rules().filter(|rule| !rule.lifecycle.synchronize) {
            kinds.extend(self.trigger_kinds(rule).iter().map(KindKey::of));
        }
        let seen = kinds
            .into_iter()
            .filter_map(|kind| {
                let before = self.checkpoint.stored().seen.get(&kind).copied().unwrap_or(0);
                let known = self.cache.kinds.get(&kind).map_or(0, |known| known.revision);
                let revision = known.max(before);
                (revision > 0).then_some((kind, revision))
            })
            .collect();
        Checkpoint {
            seen,
            waiting: unserved,
            passed_over: self.checkpoint.ignored.to_map(),
            ended: self.checkpoint.ended.to_map(),
        }
    }

    pub(crate) fn save_checkpoint(&mut self) {
        // While everything is looked at, too little is known.
        if self.work.is_in_pass() || !self.checkpoint.is_due(self.now) {
            return;
        }
        let checkpoint = self.checkpoint_now();
        let settings = &self.env.settings;
        let next = self.now + settings.checkpoint;
        if let Some(call) = self.checkpoint.poll(checkpoint, &settings.namespace, next) {
            self.ask(Purpose::Checkpoint, call);
        }
    }

    pub(crate) fn checkpoint_answered(&mut self, answer: Result<Reply, ApiError>) {
        let settings = &self.env.settings;
        let retry_at = self.now + settings.retry.backoff;
        if let Some(call) = self.checkpoint.on_reply(answer, &settings.namespace, retry_at) {
            self.ask(Purpose::CheckpointRead, call);
        }
    }

    pub(crate) fn checkpoint_read(&mut self, answer: Result<Reply, ApiError>) {
        self.checkpoint.on_read(answer, self.now + self.env.settings.retry.backoff);
    }
}
