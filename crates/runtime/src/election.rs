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

use std::time::Duration;

use kiln_cluster::{ApiError, Reason};
use kiln_value::Value;
use tokio::sync::watch;
use tokio::time::Instant;

/// The times of an election.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// How long a Lease counts that is not renewed.
    pub(crate) lease_duration: Duration,
    /// How long its holder writes without having renewed it.
    pub(crate) renew_deadline: Duration,
    /// How often it is renewed, and how often others look.
    pub(crate) retry_period: Duration,
}

impl Times {
    pub(crate) fn of(lease_duration: Duration) -> Self {
        Times {
            lease_duration,
            renew_deadline: lease_duration * 7 / 10,
            retry_period: lease_duration / 5,
        }
    }
}

/// Until when a replica may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Not any more, or not yet.
    Over,
    /// Until then.
    At(Instant),
    /// As long as they like: there are no Leases here.
    Unlimited,
}

/// This process's part in an election.
#[derive(Debug)]
pub(crate) struct Election {
    identity: String,
    pub(crate) times: Times,
    /// What the Lease last said, and since when.
    seen: Option<(Value, Instant)>,
    until: Until,
}

/// How an attempt to take or renew the Lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leadership {
    /// This process acts.
    Leading,
    /// Another one does, or it is unknown.
    Standby,
    /// This one did, and another one has the Lease now.
    Ousted,
    /// This one did, and could not renew the Lease in time.
    Late,
}

impl Election {
    pub(crate) fn new(identity: String, times: Times) -> Self {
        Election { identity, times, seen: None, until: Until::Over }
    }

    pub(crate) fn identity(&self) -> &str {
        &self.identity
    }

    /// Until when this process may write.
    pub(crate) fn until(&self) -> Until {
        self.until
    }

    /// Whether this process holds the Lease by what it last said.
    pub(crate) fn is_ours(&self) -> bool {
        self.seen.as_ref().is_some_and(|(spec, _)| self.is_of(spec))
    }

    fn is_of(&self, spec: &Value) -> bool {
        spec.str_at(["holderIdentity"]) == Some(&self.identity)
    }

    /// Whether a Lease that says this may be taken or renewed.
    pub(crate) fn may_take(&mut self, spec: &Value, now: Instant) -> bool {
        let since = match &self.seen {
            Some((seen, since)) if seen == spec => *since,
            _ => now,
        };
        self.seen = Some((spec.clone(), since));
        let is_free = spec.str_at(["holderIdentity"]).unwrap_or_default().is_empty();
        self.is_of(spec) || is_free || now.duration_since(since) > self.duration_of(spec)
    }

    /// How long a Lease counts: as long as its holder believes, which may be longer than here.
    fn duration_of(&self, spec: &Value) -> Duration {
        let said = spec.get("leaseDurationSeconds").and_then(Value::as_i64);
        let said = said.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
        said.unwrap_or_default().max(self.times.lease_duration)
    }

    /// The Lease was stored as this process wants it.
    pub(crate) fn stored(&mut self, spec: Option<Value>, now: Instant) {
        self.seen = spec.map(|spec| (spec, now));
    }

    /// What follows from an attempt that began at `asked`: whether this process holds the Lease now, or why that is not known.
    pub(crate) fn tried(
        &mut self,
        asked: Instant,
        holds: Result<bool, &ApiError>,
        now: Instant,
    ) -> Leadership {
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
    pub(crate) fn next(&self, now: Instant) -> (Instant, Instant) {
        let at = now + self.times.retry_period;
        let at = if let Until::At(end) = self.until { at.min(end) } else { at };
        (at, self.patience(at))
    }

    /// When to stop waiting for the answer to an attempt: one that hangs leaves time for another.
    pub(crate) fn patience(&self, asked: Instant) -> Instant {
        let half = asked + self.times.renew_deadline / 2;
        if let Until::At(end) = self.until { half.min(end) } else { half }
    }
}

/// The one gate that writes of the leader go through: open until the renew deadline.
#[derive(Debug)]
pub(crate) struct Fence {
    until: watch::Sender<Until>,
}

impl Fence {
    /// One that lets nothing through yet.
    pub(crate) fn new() -> Self {
        Fence { until: watch::Sender::new(Until::Over) }
    }

    pub(crate) fn set(&self, until: Until) {
        self.until.send_replace(until);
    }

    /// Carries out a write, if it may begin now. One that is under way when the time is over is waited for no longer.
    pub(crate) async fn write<T>(
        &self,
        write: impl Future<Output = Result<T, ApiError>>,
    ) -> Result<T, ApiError> {
        let mut until = self.until.subscribe();
        let mut write = std::pin::pin!(write);
        loop {
            let end = match *until.borrow_and_update() {
                Until::At(end) if end > Instant::now() => Some(end),
                Until::Unlimited => None,
                Until::At(_) | Until::Over => {
                    let why = "this replica does not hold the Lease; writing nothing";
                    return Err(ApiError::new(Reason::Unavailable, why));
                }
            };
            let over = async {
                match end {
                    Some(end) => tokio::time::sleep_until(end).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                answer = &mut write => return answer,
                // It ends with this value.
                _ = until.changed() => {}
                () = over => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn election(identity: &str) -> Election {
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
        let start = Instant::now();
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
        let start = Instant::now();
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
        let now = Instant::now();
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

    #[tokio::test(start_paused = true)]
    async fn nothing_is_written_after_the_deadline() {
        let fence = Fence::new();
        let wrote = std::cell::Cell::new(0);
        let write = |takes: Duration| {
            let wrote = &wrote;
            async move {
                tokio::time::sleep(takes).await;
                wrote.set(wrote.get() + 1);
                Ok(())
            }
        };
        let zero = Duration::ZERO;
        assert!(fence.write(write(zero)).await.is_err(), "there is no leader yet");
        fence.set(Until::At(Instant::now() + 7 * SECOND));
        assert!(fence.write(write(6 * SECOND)).await.is_ok());
        let began = Instant::now();
        let late = fence.write(write(2 * SECOND)).await.unwrap_err();
        assert_eq!(late.reason, Reason::Unavailable);
        assert_eq!(began.elapsed().as_secs(), 1, "it is waited for until the deadline");
        assert!(fence.write(write(zero)).await.is_err(), "the time is over");
        assert_eq!(wrote.get(), 1);
        // A renewal meanwhile gives more time to what is under way.
        fence.set(Until::At(Instant::now() + SECOND));
        let renewing = async {
            tokio::time::sleep(SECOND / 2).await;
            fence.set(Until::At(Instant::now() + 5 * SECOND));
        };
        let (long, ()) = tokio::join!(fence.write(write(3 * SECOND)), renewing);
        assert!(long.is_ok());
        // A leader that lost the Lease stops at once.
        let ousted = async {
            tokio::time::sleep(SECOND / 2).await;
            fence.set(Until::Over);
        };
        let (cut, ()) = tokio::join!(fence.write(write(SECOND)), ousted);
        assert!(cut.is_err());
        fence.set(Until::Unlimited);
        assert!(fence.write(write(100 * SECOND)).await.is_ok());
        assert_eq!(wrote.get(), 3);
    }
}
