//! What goes wrong between a replica and the server, when a story wants it.

use kiln_cluster::{ApiError, Reason};

use crate::clock::Chance;

/// How often things go wrong: one call, event or turn in so many; 0 for never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultRates {
    /// A call fails before it reaches the server.
    pub lost_call: u64,
    /// A call is carried out, and its answer is lost.
    pub lost_answer: u64,
    /// The server asks for patience (429).
    pub throttled: u64,
    /// The replica crashes at a call, before or after it.
    pub crash: u64,
    /// A watch breaks, and its kind is listed again: states in between are skipped.
    pub broken_watch: u64,
    /// A part of a replica is late by up to two seconds: it decides on what was true before.
    pub late_part: u64,
    /// A replica cannot reach the server for up to half a minute.
    pub partition: u64,
}

impl FaultRates {
    /// Some of everything.
    pub fn usual() -> Self {
        FaultRates {
            lost_call: 60,
            lost_answer: 60,
            throttled: 80,
            crash: 400,
            broken_watch: 120,
            late_part: 12,
            partition: 3_000,
        }
    }

    /// Nothing goes wrong.
    pub fn none() -> Self {
        FaultRates::default()
    }

    pub fn are_none(&self) -> bool {
        *self == FaultRates::default()
    }
}

/// What happens to one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallFate {
    Fine,
    LostCall,
    LostAnswer,
    Throttled,
    CrashBefore,
    CrashAfter,
}

impl CallFate {
    pub(crate) fn draw(rates: &FaultRates, chance: &mut Chance) -> Self {
        let mut comes = |rate: u64| rate > 0 && chance.one_in(rate);
        match () {
            () if comes(rates.lost_call) => CallFate::LostCall,
            () if comes(rates.lost_answer) => CallFate::LostAnswer,
            () if comes(rates.throttled) => CallFate::Throttled,
            () if comes(rates.crash) => CallFate::CrashBefore,
            () if comes(rates.crash) => CallFate::CrashAfter,
            () => CallFate::Fine,
        }
    }

    /// Whether the server sees the call.
    pub(crate) fn arrives(self) -> bool {
        matches!(self, CallFate::Fine | CallFate::LostAnswer | CallFate::CrashAfter)
    }

    /// What the caller sees in the place of an answer.
    pub(crate) fn failure(self) -> Option<ApiError> {
        let message = match self {
            CallFate::Fine => return None,
            CallFate::LostCall => "the connection was refused",
            CallFate::LostAnswer => "the connection was closed before the answer",
            CallFate::Throttled => "too many requests, please try again later",
            CallFate::CrashBefore | CallFate::CrashAfter => CRASHED,
        };
        let retry = (self == CallFate::Throttled).then_some(1);
        let error = ApiError::new(Reason::Unavailable, message);
        Some(ApiError { retry_after_seconds: retry, ..error })
    }
}

/// What the calls of a crashed replica come to.
pub(crate) const CRASHED: &str = "the replica has crashed";
