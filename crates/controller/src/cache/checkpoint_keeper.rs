//! Keeps the checkpoint in the cluster: how far changes were seen, and what is remembered about single triggers.
//!
//! It is written at most once per interval, and only when something in it is another by then. Another writer's version is
//! read and written over: this process holds the Lease, and knows better.

use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_object::metadata;
use kiln_value::Str;

use crate::cache::ignored_changes::PassedOver;
use crate::policies::record::{Checkpoint, record_id};

/// The checkpoint, as it is stored and as it is to be.
#[derive(Debug, Default)]
pub(crate) struct CheckpointKeeper {
    stored: Checkpoint,
    version: Option<Str>,
    sent: Option<Checkpoint>,
    /// Not before this time.
    next: u64,
    /// Something in it may be another by now.
    dirty: bool,
    /// What was stored when this process started.
    at_start: Checkpoint,
    /// Triggers whose latest change is ignored because its author is excluded.
    pub(crate) ignored: PassedOver,
    /// Up to which revision of a trigger downstreams that a rule made in a user's name have ended.
    pub(crate) ended: PassedOver,
}

impl CheckpointKeeper {
    /// What an earlier process stored.
    pub(crate) fn restore(&mut self, checkpoint: Checkpoint, version: Option<Str>) {
        self.version = version;
        self.ignored = checkpoint.passed_over.clone().into_iter().collect();
        self.ended = checkpoint.ended.clone().into_iter().collect();
        self.stored = checkpoint.clone();
        self.at_start = checkpoint;
    }

    pub(crate) fn stored(&self) -> &Checkpoint {
        &self.stored
    }

    pub(crate) fn at_start(&self) -> &Checkpoint {
        &self.at_start
    }

    /// Something may be another: a trigger of a rule that does not synchronise came or was served, say.
    pub(crate) fn touch(&mut self) {
        self.dirty = true;
    }

    /// Something may be another, if this holds.
    pub(crate) fn touch_if(&mut self, changed: bool) {
        self.dirty |= changed;
    }

    /// The changes of a trigger up to a revision are ignored.
    pub(crate) fn ignore(&mut self, uid: &Str, revision: u64) {
        self.ignored.insert(uid, revision);
        self.touch();
    }

    /// A trigger is gone.
    pub(crate) fn forget(&mut self, uid: &Str) {
        let known = self.ignored.remove(uid) | self.ended.remove_of(uid);
        self.touch_if(known);
    }

    /// What was made in a user's name has ended, up to a revision of the trigger.
    pub(crate) fn end(&mut self, name: &Str, revision: u64) {
        self.ended.insert(name, revision);
        self.touch();
    }

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        (self.dirty && self.sent.is_none()).then_some(self.next)
    }

    /// Whether it is time to look whether something is to be written.
    pub(crate) fn is_due(&self, now: u64) -> bool {
        self.next_deadline().is_some_and(|time| time <= now)
    }

    /// The call that stores a checkpoint; none when it is stored.
    pub(crate) fn poll(
        &mut self,
        checkpoint: Checkpoint,
        namespace: &str,
        next: u64,
    ) -> Option<Call> {
        self.dirty = false;
        if checkpoint == self.stored {
            return None;
        }
        let mut object = checkpoint.to_object(namespace);
        let call = match &self.version {
            Some(version) => {
                // Checkpoints have metadata.
                let _ = object.set(["metadata", "resourceVersion"], version.clone());
                Call::update(object)
            }
            None => Call::create(object),
        };
        self.sent = Some(checkpoint);
        self.next = next;
        Some(call)
    }

    /// What follows from the answer to a write: another writer's checkpoint is read.
    pub(crate) fn on_reply(
        &mut self,
        answer: Result<Reply, ApiError>,
        namespace: &str,
        retry_at: u64,
    ) -> Option<Call> {
        match answer {
            Ok(reply) => {
                self.stored = self.sent.take().unwrap_or_default();
                self.take_version(reply);
            }
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {
                let object = Checkpoint::default().to_object(namespace);
                return Some(Call::Get(record_id(&object)));
            }
            Err(error) => {
                self.sent = None;
                self.dirty = true;
                self.next = retry_at;
                if error.reason == Reason::NotFound {
                    self.version = None;
                }
            }
        }
        None
    }

    /// Another writer's checkpoint was read: it is written over.
    pub(crate) fn on_read(&mut self, answer: Result<Reply, ApiError>, retry_at: u64) {
        self.sent = None;
        self.dirty = true;
        match answer {
            Ok(reply) => self.take_version(reply),
            Err(error) if error.reason == Reason::NotFound => self.version = None,
            Err(_) => self.next = retry_at,
        }
    }

    fn take_version(&mut self, reply: Reply) {
        let object = reply.object();
        self.version = object.as_ref().and_then(metadata::resource_version).map(Str::from);
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn stored(version: &str) -> Result<Reply, ApiError> {
        Ok(Reply::Object(value!({"metadata": {"resourceVersion": version}})))
    }

    fn with(uid: &str) -> Checkpoint {
        Checkpoint { passed_over: [(uid.into(), 1)].into(), ..Checkpoint::default() }
    }

    #[test]
    fn it_is_written_when_it_is_another_and_not_too_often() {
        let mut keeper = CheckpointKeeper::default();
        assert_eq!(keeper.next_deadline(), None, "nothing is to be written");
        keeper.touch();
        assert!(keeper.is_due(0));
        assert_eq!(keeper.poll(Checkpoint::default(), "kyverno", 1_000), None, "it is the same");
        keeper.touch();
        let call = keeper.poll(with("a"), "kyverno", 1_000).unwrap();
        assert!(matches!(call, Call::Create { .. }));
        keeper.touch();
        assert_eq!(keeper.next_deadline(), None, "one write at a time");
        assert_eq!(keeper.on_reply(stored("5"), "kyverno", 0), None);
        assert_eq!(keeper.stored(), &with("a"));
        assert!(!keeper.is_due(999) && keeper.is_due(1_000));
        let Some(Call::Update { object, .. }) = keeper.poll(with("b"), "kyverno", 2_000) else {
            panic!("it replaces the version that it knows");
        };
        assert_eq!(metadata::resource_version(&object), Some("5"));
    }

    #[test]
    fn another_writer_is_read_and_written_over() {
        let mut keeper = CheckpointKeeper::default();
        keeper.touch();
        keeper.poll(with("a"), "kyverno", 1_000);
        let conflict = || Err(ApiError::new(Reason::AlreadyExists, "there is one"));
        let read = keeper.on_reply(conflict(), "kyverno", 500).unwrap();
        assert!(matches!(&read, Call::Get(id) if id.name == Checkpoint::NAME), "{read:?}");
        keeper.on_read(stored("9"), 500);
        assert_ne!(keeper.stored(), &with("a"));
        let Some(Call::Update { object, .. }) = keeper.poll(with("a"), "kyverno", 2_000) else {
            panic!("it is written over");
        };
        assert_eq!(metadata::resource_version(&object), Some("9"));
        // While the cluster does not answer, it is tried again later.
        keeper.on_reply(Err(ApiError::new(Reason::Unavailable, "")), "kyverno", 7_000);
        assert_eq!(keeper.next_deadline(), Some(7_000));
    }
}
