//! Leader election, as a state machine without I/O: who may act, and until when they may write.
//!
//! The times are those of Kubernetes' own leader election. A holder renews the Lease every *retry period*, and stops writing
//! at the *renew deadline*, counted from before the last renewal that succeeded was sent. Others take the Lease over when
//! it has not changed for its *lease duration*, counted from when they saw it. They cannot have seen it before it was
//! sent, and the renew deadline is shorter than the lease duration: so a leader that cannot renew has stopped before another
//! begins, however long an answer took and whatever the clocks on the walls say. Both count by a clock that only goes
//! forward.
//!
//! ```text
//! holder   renews ·───── retry period ─────▶ · · · ✗ · ✗ ─▶ renew deadline: writes no more
//! other      sees └─────────────────────── lease duration ──────────────────────────▶ takes over
//! ```

use std::ops::{Add, Sub};
use std::time::Duration;

use kiln_cluster::{ApiError, Reason};
use kiln_value::Value;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// How long a Lease counts that is not renewed.
    pub lease_duration: Duration,
    /// How long its holder writes without having renewed it.
    pub renew_deadline: Duration,
    /// How often it is renewed, and how often others look.
    pub retry_period: Duration,
}

impl Times {
    pub fn of(lease_duration: Duration) -> Self {
        Times {
            lease_duration,
            renew_deadline: lease_duration * 7 / 10,
            retry_period: lease_duration / 5,
        }
    }
}

/// A time of a clock that only goes forward.
pub trait Moment: Copy + Ord + Add<Duration, Output = Self> + Sub<Self, Output = Duration> {}

impl<T: Copy + Ord + Add<Duration, Output = T> + Sub<T, Output = Duration>> Moment for T {}

/// Until when a replica may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until<I> {
    /// Not any more, or not yet.
    Over,
    /// Until then.
    At(I),
    /// As long as they like: there are no Leases here.
    Unlimited,
}

/// This process's part in an election.
#[derive(Debug)]
pub struct Election<I> {
    identity: String,
    pub times: Times,
    /// What the Lease last said, and since when.
    seen: Option<(Value, I)>,
    until: Until<I>,
}

/// How an attempt to take or renew the Lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leadership {
    /// This process acts.
    Leading,
    /// Another one does, or it is unknown.
    Standby,
    /// This one did, and another one has the Lease now.
    Ousted,
    /// This one did, and could not renew the Lease in time.
    Late,
}

impl<I: Moment> Election<I> {
    pub fn new(identity: String, times: Times) -> Self {
        Election { identity, times, seen: None, until: Until::Over }
    }

    pub fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when this process may write.
    pub fn until(&self) -> Until<I> {
        self.until
    }

    /// Whether this process holds the Lease by what it last said.
    pub fn is_ours(&self) -> bool {
        self.seen.as_ref().is_some_and(|(spec, _)| self.is_of(spec))
    }

    fn is_of(&self, spec: &Value) -> bool {
        spec.str_at(["holderIdentity"]) == Some(&self.identity)
    }

    /// Whether a Lease that says this may be taken or renewed.
    pub fn may_take(&mut self, spec: &Value, now: I) -> bool {
        let since = match &self.seen {
            Some((seen, since)) if seen == spec => *since,
            _ => now,
        };
        self.seen = Some((spec.clone(), since));
        let is_free = spec.str_at(["holderIdentity"]).unwrap_or_default().is_empty();
        self.is_of(spec) || is_free || now - since > self.duration_of(spec)
    }

    /// How long a Lease counts: as long as its holder believes, which may be longer than here.
    fn duration_of(&self, spec: &Value) -> Duration {
        let said = spec.get("leaseDurationSeconds").and_then(Value::as_i64);
        let said = said.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        said.unwrap_or_default().max(self.times.lease_duration)
    }

    /// The Lease was stored as this process wants it.
    pub fn stored(&mut self, spec: Option<Value>, now: I) {
        self.seen = spec.map(|spec| (spec, now));
    }

    /// What follows from an attempt that began at `asked`: whether this process holds the Lease now, or why that is not known.
    pub fn tried(&mut self, asked: I, holds: Result<bool, &ApiError>, now: I) -> Leadership {
        let led = self.until != Until::Over;
        match holds {
            Ok(true) => self.until = Until::At(asked + self.times.renew_deadline),
            Ok(false) => self.until = Until::Over,
            // A replica that never held a Lease, because it may not, acts without one. A leader that may not
            // renew it any more is as late as others are: another replica may be permitted.
            Err(error) if matches!(error.reason, Reason::Forbidden | Reason::UnknownKind) => {
                if !led {
                    self.until = Until::Unlimited;
                }
            }
            Err(_) => {}
        }
        match self.until {
            Until::Over if led => Leadership::Ousted,
            Until::Over => Leadership::Standby,
            Until::At(end) if end <= now => {
                self.until = Until::Over;
                if led { Leadership::Late } else { Leadership::Standby }
            }
            Until::At(_) | Until::Unlimited => Leadership::Leading,
        }
    }

    /// When to try again, and when to stop waiting for the answer.
    pub fn next(&self, now: I) -> (I, I) {
        let at = now + self.times.retry_period;
        let at = if let Until::At(end) = self.until { at.min(end) } else { at };
        (at, self.patience(at))
    }

    /// When to stop waiting for the answer to an attempt: one that hangs leaves time for another.
    pub fn patience(&self, asked: I) -> I {
        let half = asked + self.times.renew_deadline / 2;
        if let Until::At(end) = self.until { half.min(end) } else { half }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn election(identity: &str) -> Election<Duration> {
        Election::new(identity.to_owned(), Times::of(10 * SECOND))
    }

    fn lease(holder: &str, renewed: i64) -> Value {
        value!({"holderIdentity": holder, "leaseDurationSeconds": 10, "renewTime": renewed})
    }

    fn unavailable() -> ApiError {
        ApiError::new(Reason::Unavailable, "no answer")
    }

    #[test]
    fn the_renew_deadline_ends_before_the_lease_duration() {
        for seconds in [2, 3, 10, 15, 60] {
            let times = Times::of(seconds * SECOND);
            assert!(times.retry_period * 2 < times.renew_deadline, "a renewal may fail once");
            assert!(times.renew_deadline < times.lease_duration);
        }
    }

    #[test]
    fn a_lease_is_taken_when_it_is_free_or_was_not_renewed_for_its_duration() {
        let start = Duration::from_secs(1_000);
        let at = |seconds: u32| start + seconds * SECOND;
        let mut other = election("b");
        assert!(other.may_take(&Value::Null, at(0)), "there is none");
        assert!(other.may_take(&lease("", 0), at(0)), "it was given back");
        assert!(!other.may_take(&lease("a", 1), at(1)), "since when is unknown");
        assert!(!other.may_take(&lease("a", 1), at(11)));
        assert!(!other.may_take(&lease("a", 2), at(12)), "it was renewed");
        assert!(!other.may_take(&lease("a", 2), at(22)));
        assert!(other.may_take(&lease("a", 2), at(23)));
        // Its holder goes by what it says there.
        let long = value!({"holderIdentity": "a", "leaseDurationSeconds": 60});
        assert!(!other.may_take(&long, at(30)));
        assert!(!other.may_take(&long, at(90)));
        assert!(other.may_take(&long, at(91)));
    }

    #[test]
    fn whoever_cannot_renew_has_stopped_before_another_begins() {
        let start = Duration::from_secs(1_000);
        let at = |tenths: u32| start + tenths * SECOND / 10;
        // Answers take between nothing and as long as callers wait for them.
        for latency in [0, 1, 10, 30, 69] {
            let (mut holder, mut other) = (election("a"), election("b"));
            assert!(holder.may_take(&Value::Null, at(0)));
            // It is stored at some time between the question and the answer, and seen at once.
            let seen = at(0);
            let standing = holder.tried(at(0), Ok(true), at(latency));
            assert_eq!(standing, Leadership::Leading);
            assert!(!other.may_take(&lease("a", 1), seen));
            let Until::At(end) = holder.until() else { panic!("{:?}", holder.until()) };
            assert_eq!(end, at(70), "counted from before it was sent");
            // Nothing is answered from now on.
            let mut now = at(latency);
            let standing = loop {
                let (again, give_up) = holder.next(now);
                assert!(again <= end && give_up <= end, "no wait passes the deadline");
                now = give_up;
                let standing = holder.tried(again, Err(&unavailable()), now);
                if standing != Leadership::Leading {
                    break standing;
                }
            };
            assert_eq!((standing, holder.until()), (Leadership::Late, Until::Over));
            assert!(now <= end);
            let taken = (0..).map(at).find(|now| other.may_take(&lease("a", 1), *now)).unwrap();
            assert!(taken - now >= 3 * SECOND, "{latency}: {:?}", taken - now);
        }
        // One whose first answer comes too late never began.
        let mut late = election("a");
        assert_eq!(late.tried(at(0), Ok(true), at(70)), Leadership::Standby);
        assert_eq!(late.until(), Until::Over);
    }

    #[test]
    fn rights_that_are_missing_from_the_start_are_another_matter_than_rights_that_go() {
        let now = Duration::from_secs(1_000);
        let forbidden = ApiError::new(Reason::Forbidden, "no");
        let mut without = election("a");
        assert_eq!(without.tried(now, Err(&unavailable()), now), Leadership::Standby);
        assert_eq!(without.tried(now, Err(&forbidden), now), Leadership::Leading);
        assert_eq!(without.until(), Until::Unlimited);
        assert_eq!(without.tried(now, Err(&unavailable()), now), Leadership::Leading);
        assert_eq!(
            without.tried(now, Ok(false), now),
            Leadership::Ousted,
            "there is one after all"
        );
        let mut holder = election("a");
        assert_eq!(holder.tried(now, Ok(true), now), Leadership::Leading);
        assert_eq!(holder.tried(now, Err(&forbidden), now + 6 * SECOND), Leadership::Leading);
        assert_eq!(holder.tried(now, Err(&forbidden), now + 7 * SECOND), Leadership::Late);
    }
}
