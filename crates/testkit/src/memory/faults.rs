//! Calls that fail on purpose, and watches that do not tell the truth.

use std::collections::VecDeque;

use kiln_cluster::{ApiError, KindKey, Reason, Verb};
use kiln_object::ObjectId;

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallFault {
    /// Another writer was faster.
    Conflict,
    /// The server is not there.
    Unavailable,
    /// The server refuses.
    Forbidden,
    /// The server does it, and the answer is lost.
    LostAnswer,
}

impl CallFault {
    pub(super) fn error(self, about: &ObjectId) -> ApiError {
        let (reason, message) = match self {
            CallFault::Conflict => (Reason::Conflict, "the object has been modified"),
            CallFault::Unavailable => {
                (Reason::Unavailable, "the server is currently unable to answer")
            }
            CallFault::Forbidden => (Reason::Forbidden, "access was withdrawn"),
            CallFault::LostAnswer => (Reason::Unavailable, "the connection was lost"),
        };
        ApiError::new(reason, format!("{about}: {message}"))
    }
}

/// What becomes of an event before a watch receives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WatchFault {
    /// It is lost.
    Drop,
    /// It comes twice.
    Repeat,
}

/// Faults that wait for calls to hit, each used once.
#[derive(Clone, Debug, Default)]
pub struct Faults {
    calls: VecDeque<(Option<Verb>, Option<KindKey>, CallFault)>,
    watches: VecDeque<(Option<KindKey>, WatchFault)>,
}

impl Faults {
    /// Lets the next call fail that has this verb and is about this kind.
    pub fn fail_next(&mut self, verb: Option<Verb>, kind: Option<KindKey>, fault: CallFault) {
        self.calls.push_back((verb, kind, fault));
    }

    /// Falsifies the next event of a kind before a watch receives it.
    pub fn falsify_next(&mut self, kind: Option<KindKey>, fault: WatchFault) {
        self.watches.push_back((kind, fault));
    }

    /// Takes every fault away.
    pub fn clear(&mut self) {
        self.calls.clear();
        self.watches.clear();
    }

    pub(super) fn take(&mut self, verb: Verb, about: &ObjectId) -> Option<CallFault> {
        let kind = KindKey::of(&about.gvk);
        let at = self.calls.iter().position(|(of_verb, of_kind, _)| {
            of_verb.is_none_or(|v| v == verb) && of_kind.as_ref().is_none_or(|k| *k == kind)
        })?;
        self.calls.remove(at).map(|(_, _, fault)| fault)
    }

    pub(super) fn take_watch(&mut self, kind: &KindKey) -> Option<WatchFault> {
        let at = self.watches.iter().position(|(of, _)| of.as_ref().is_none_or(|of| of == kind))?;
        self.watches.remove(at).map(|(_, fault)| fault)
    }
}
