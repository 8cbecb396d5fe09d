//! How many requests are stored for the leader: clients that reach the port and make up reviews must not fill the
//! storage of the cluster.
//!
//! Each process writes at a pace, in number and in bytes, and stops when too many UpdateRequests are there and more than
//! a few of them are requests that are not taken. What is not stored is known to this process alone, and a webhook that must not miss it refuses.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kiln_cluster::ApiError;
use kiln_engine::CARRIES;
use kiln_object::Gvk;
use kiln_value::{Value, json};

use crate::path::{Address, path};
use crate::state::AppState;

/// How many requests may be written down.
#[derive(Clone, Copy, Debug)]
pub struct CarrierLimits {
    /// So many at once.
    pub burst: u32,
    /// And then so many per second.
    pub per_second: u32,
    /// So many bytes at once.
    pub burst_bytes: u32,
    /// And then so many bytes per second.
    pub bytes_per_second: u32,
    /// None while so many UpdateRequests are there, and more than a few of them are written requests.
    pub most: u64,
}

impl Default for CarrierLimits {
    fn default() -> Self {
        CarrierLimits {
            burst: 2_000,
            per_second: 200,
            burst_bytes: 64 << 20,
            bytes_per_second: 2 << 20,
            most: 10_000,
        }
    }
}

/// So many written requests count as few when other UpdateRequests are many.
const AMONG_OTHERS: &str = "200";
/// How often they are counted.
const LOOK: Duration = Duration::from_secs(2);

/// Decides which requests are written down. Cloning copies pointers.
#[derive(Clone, Debug)]
pub(crate) struct Carriers {
    buckets: Arc<Mutex<Buckets>>,
    /// How many UpdateRequests there were when they were last counted.
    there: Arc<AtomicU64>,
    most: u64,
}

#[derive(Debug)]
struct Buckets {
    number: Bucket,
    bytes: Bucket,
    looked: Option<Instant>,
}

/// An amount that is taken from, and comes back with time.
#[derive(Debug)]
struct Bucket {
    most: f64,
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Bucket {
    fn new(most: u32, per_second: u32, now: Instant) -> Self {
        let most = f64::from(most);
        Bucket { most, per_second: f64::from(per_second), left: most, at: now }
    }

    fn holds(&mut self, amount: f64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + passed * self.per_second).min(self.most);
        self.at = now;
        self.left >= amount
    }
}

/// Why an admission request was not written down, so that only this replica knows it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotStored {
    /// The cluster holds as many as it may.
    #[error("{most} UpdateRequests are waiting already")]
    TooManyWaiting {
        /// As many as there may be.
        most: u64,
    },
    /// Users send requests faster than they may be written down.
    #[error("too many requests in a short time")]
    TooFast,
    /// The API server did not take it.
    #[error(transparent)]
    Failed(ApiError),
}

impl NotStored {
    /// The word for it in metrics: whether it was tried at all.
    pub(crate) fn outcome(&self) -> &'static str {
        match self {
            NotStored::TooManyWaiting { .. } | NotStored::TooFast => "held back",
            NotStored::Failed(_) => "failed",
        }
    }
}

impl Carriers {
    pub(crate) fn new(limits: CarrierLimits, now: Instant) -> Self {
        let buckets = Buckets {
            number: Bucket::new(limits.burst, limits.per_second, now),
            bytes: Bucket::new(limits.burst_bytes, limits.bytes_per_second, now),
            looked: None,
        };
        Carriers {
            buckets: Arc::new(Mutex::new(buckets)),
            there: Arc::default(),
            most: limits.most,
        }
    }

    /// Whether a request may be written down now.
    ///
    /// # Errors
    /// When too many are, so that this one is held back.
    pub(crate) fn admit(&self, shared: &AppState, request: &Value) -> Result<(), NotStored> {
        let now = Instant::now();
        self.look(shared, now);
        self.take(json::to_string(request).len(), now)
    }

    fn take(&self, bytes: usize, now: Instant) -> Result<(), NotStored> {
        if self.there.load(Ordering::Relaxed) >= self.most {
            return Err(NotStored::TooManyWaiting { most: self.most });
        }
        let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
        let mut buckets = self.lock();
        if !buckets.number.holds(1.0, now) || !buckets.bytes.holds(bytes, now) {
            return Err(NotStored::TooFast);
        }
        buckets.number.left -= 1.0;
        buckets.bytes.left -= bytes;
        Ok(())
    }

    /// Counts them now and then, in the background.
    fn look(&self, shared: &AppState, now: Instant) {
        {
            let mut buckets = self.lock();
            if buckets.looked.is_some_and(|last| now.saturating_duration_since(last) < LOOK) {
                return;
            }
            buckets.looked = Some(now);
        }
        let (client, there) = (shared.clients.admission.clone(), Arc::clone(&self.there));
        let (namespace, most) = (shared.options.namespace.clone(), self.most);
        let Gvk { group, version, .. } = shared.options.names.update_request();
        tokio::spawn(async move {
            let requests = Address {
                group: &group,
                version: &version,
                plural: "updaterequests",
                namespace: &namespace,
                ..Address::default()
            };
            let ask = async |parameters: &[(&str, &str)]| {
                let path = path(&requests, parameters).ok()?;
                client.get(&path).await.ok()
            };
            // Who may not look writes at its pace.
            let mut found = ask(&[("limit", "1")]).await.map_or(0, |all| count(&all));
            if found >= most {
                // Most of them may say what the controller waits for, which is not a flood.
                let carriers = [("labelSelector", CARRIES), ("limit", AMONG_OTHERS)];
                let few = ask(&carriers).await.is_some_and(|carriers| !has_more(&carriers));
                found = if few { 0 } else { found };
            }
            there.store(found, Ordering::Relaxed);
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Buckets> {
        self.buckets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a list says that there are more than it shows.
fn has_more(list: &Value) -> bool {
    list.str_at(["metadata", "continue"]).is_some_and(|more| !more.is_empty())
}

/// How many objects there are, as a list with one of them says.
fn count(list: &Value) -> u64 {
    let shown = list.get("items").and_then(Value::as_list).map_or(0, |items| items.len() as u64);
    let more = list.get_path(["metadata", "remainingItemCount"]).and_then(Value::as_i64);
    shown + more.and_then(|more| u64::try_from(more).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn requests_are_written_at_a_pace() {
        let begin = Instant::now();
        let limits = CarrierLimits { burst: 3, per_second: 2, ..CarrierLimits::default() };
        let carriers = Carriers::new(limits, begin);
        let taken = |at: u64| {
            let now = begin + Duration::from_millis(at);
            (0..10).filter(|_| carriers.take(100, now).is_ok()).count()
        };
        assert_eq!((taken(0), taken(400), taken(500), taken(60_000)), (3, 0, 1, 3));
        let limits =
            CarrierLimits { burst_bytes: 1_000, bytes_per_second: 100, ..CarrierLimits::default() };
        let carriers = Carriers::new(limits, begin);
        assert!(carriers.take(900, begin).is_ok());
        assert!(carriers.take(200, begin).is_err());
        assert!(carriers.take(200, begin + Duration::from_secs(1)).is_ok());
        assert!(carriers.take(usize::MAX, begin + Duration::from_secs(600)).is_err());
    }

    #[test]
    fn none_is_written_while_too_many_are_there() {
        let now = Instant::now();
        let carriers = Carriers::new(CarrierLimits { most: 5, ..CarrierLimits::default() }, now);
        for (list, admitted) in [
            (value!({"items": [], "metadata": {}}), true),
            (value!({"items": [{}], "metadata": {"remainingItemCount": 3}}), true),
            (value!({"items": [{}], "metadata": {"remainingItemCount": 4}}), false),
            (value!({"items": [{}]}), true),
        ] {
            carriers.there.store(count(&list), Ordering::Relaxed);
            assert_eq!(carriers.take(1, now).is_ok(), admitted, "{list:?}");
        }
    }
}
