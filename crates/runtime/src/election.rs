//! The gate that writes of the leader go through. Who leads, and until when, is in [`kiln_replica::election`].

use kiln_cluster::{ApiError, Reason};
pub(crate) use kiln_replica::election::{Election, Leadership, Times, Until};
use tokio::sync::watch;
use tokio::time::Instant;

/// The one gate that writes of the leader go through: open until the renew deadline.
#[derive(Debug)]
pub(crate) struct Fence {
    until: watch::Sender<Until<Instant>>,
}

impl Fence {
    /// One that lets nothing through yet.
    pub(crate) fn new() -> Self {
        Fence { until: watch::Sender::new(Until::Over) }
    }

    pub(crate) fn set(&self, until: Until<Instant>) {
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
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

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
