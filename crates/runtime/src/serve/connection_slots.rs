//! Connection slots: how many there are, and which connection is evicted when all are taken.
//!
//! A connection without a request in flight can be evicted: when all slots are
//! taken, the connection that has been so for longest makes room. A request is at work once all of it was
//! received, so that neither silence nor slowness keeps a place.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use tokio::sync::watch;

use super::server::ConnectionLimits;

/// Connections at once that gave their place up and may still say farewell. Beyond these, they are cut off.
const LEAVING: usize = 64;

/// The places of a server. Cloning copies a pointer.
#[derive(Clone)]
pub(crate) struct ConnectionSlots(Arc<Mutex<Taken>>);

struct Taken {
    most: usize,
    next: u64,
    connections: BTreeMap<u64, Arc<ConnectionUse>>,
    /// Connections that gave their place up and have not ended.
    leaving: usize,
}

/// The place of one connection, until it is dropped.
pub(crate) struct ConnectionSlot {
    places: ConnectionSlots,
    number: u64,
    pub(crate) used: Arc<ConnectionUse>,
}

pub(crate) struct ConnectionUse {
    state: Mutex<ConnectionActivity>,
    told: watch::Sender<Eviction>,
}

struct ConnectionActivity {
    /// When a request last began, was received or ended, or the connection itself began.
    since: Instant,
    requests: u64,
    under_way: u64,
    /// Those of them that were received as a whole.
    at_work: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Eviction {
    Keep,
    /// Its slot is taken by another connection.
    Drain,
    /// There is no time for farewells.
    Close,
}

/// A request that is under way.
pub(crate) struct InFlightRequest {
    connection: Arc<ConnectionUse>,
    is_received: bool,
}

impl ConnectionSlots {
    pub(crate) fn new(most: usize) -> Self {
        let connections = BTreeMap::new();
        ConnectionSlots(Arc::new(Mutex::new(Taken { most, next: 0, connections, leaving: 0 })))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place, which another connection may have to give up; none when all of them are at work.
    pub(crate) fn take(&self) -> Option<ConnectionSlot> {
        let mut taken = self.taken();
        if taken.connections.len() >= taken.most {
            let resting = taken.connections.iter();
            let resting = resting.filter_map(|(number, used)| Some((used.rests_since()?, *number)));
            let (_, number) = resting.min()?;
            let used = taken.connections.remove(&number)?;
            taken.leaving += 1;
            used.told.send_replace(if taken.leaving > LEAVING {
                Eviction::Close
            } else {
                Eviction::Drain
            });
        }
        let number = taken.next;
        taken.next += 1;
        let used = Arc::new(ConnectionUse::new());
        taken.connections.insert(number, Arc::clone(&used));
        Some(ConnectionSlot { places: self.clone(), number, used })
    }
}

impl ConnectionSlot {
    /// Comes when the connection is to end: no request came for too long, or another connection has its slot.
    pub(crate) async fn is_over(&self, limits: &ConnectionLimits) {
        tokio::select! {
            () = self.used.is_left(limits) => {}
            () = self.is_given_up() => {}
        }
    }

    /// Comes when another connection has the slot.
    pub(crate) async fn is_given_up(&self) {
        self.is_told(|told| told != Eviction::Keep).await;
    }

    /// Comes when the connection is to end without a farewell.
    pub(crate) async fn is_cut(&self) {
        self.is_told(|told| told == Eviction::Close).await;
    }

    async fn is_told(&self, what: impl Fn(Eviction) -> bool) {
        // The sender lives as long as the place does.
        let _ = self.used.told.subscribe().wait_for(|told| what(*told)).await;
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if taken.connections.remove(&self.number).is_none() {
            taken.leaving -= 1;
        }
    }
}

impl ConnectionUse {
    fn new() -> Self {
        let state =
            ConnectionActivity { since: Instant::now(), requests: 0, under_way: 0, at_work: 0 };
        ConnectionUse { state: Mutex::new(state), told: watch::Sender::new(Eviction::Keep) }
    }

    /// The connection begins to be of use: its handshake is over.
    pub(crate) fn begins(&self) {
        self.state().since = Instant::now();
    }

    fn state(&self) -> MutexGuard<'_, ConnectionActivity> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Since when no request is at work; none while one is.
    fn rests_since(&self) -> Option<Instant> {
        let state = self.state();
        (state.at_work == 0).then_some(state.since)
    }

    /// Comes when no request came for too long.
    async fn is_left(&self, limits: &ConnectionLimits) {
        loop {
            let left = {
                let state = self.state();
                let most = if state.requests == 0 { limits.head } else { limits.idle };
                match state.under_way {
                    0 => most.saturating_sub(state.since.elapsed()),
                    _ => most,
                }
            };
            if left.is_zero() {
                return;
            }
            tokio::time::sleep(left).await;
        }
    }
}

impl InFlightRequest {
    pub(crate) fn begin(connection: &Arc<ConnectionUse>) -> Self {
        let mut state = connection.state();
        state.since = Instant::now();
        state.requests += 1;
        state.under_way += 1;
        InFlightRequest { connection: Arc::clone(connection), is_received: false }
    }

    /// All of the request is there, and work on it begins.
    pub(crate) fn is_received(&mut self) {
        if !std::mem::replace(&mut self.is_received, true) {
            let mut state = self.connection.state();
            state.since = Instant::now();
            state.at_work += 1;
        }
    }
}

impl Drop for InFlightRequest {
    fn drop(&mut self) {
        let mut state = self.connection.state();
        state.since = Instant::now();
        state.under_way -= 1;
        if self.is_received {
            state.at_work -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(place: &ConnectionSlot) -> Eviction {
        *place.used.told.borrow()
    }

    #[test]
    fn whoever_rested_longest_makes_room() {
        let places = ConnectionSlots::new(3);
        let [first, second, third] = [(); 3].map(|()| places.take().unwrap());
        // The first one has been used since, and one of the others is at work.
        drop(InFlightRequest::begin(&first.used));
        let mut work = InFlightRequest::begin(&second.used);
        work.is_received();
        let fourth = places.take().unwrap();
        assert!(told(&third) == Eviction::Drain);
        assert!([&first, &second, &fourth].into_iter().all(|place| told(place) == Eviction::Keep));
        drop(third);
        assert_eq!(places.taken().leaving, 0);
        let _fifth = places.take().unwrap();
        assert!(told(&first) == Eviction::Drain && told(&second) == Eviction::Keep);
    }

    #[test]
    fn whoever_is_at_work_stays_and_whoever_is_slow_does_not() {
        let places = ConnectionSlots::new(2);
        let [busy, slow] = [(); 2].map(|()| places.take().unwrap());
        let mut work = InFlightRequest::begin(&busy.used);
        work.is_received();
        let mut sends = InFlightRequest::begin(&slow.used);
        let new = places.take().unwrap();
        assert!(told(&slow) == Eviction::Drain && told(&busy) == Eviction::Keep);
        // What comes to be received after all changes nothing.
        sends.is_received();
        drop((sends, slow));
        let mut also = InFlightRequest::begin(&new.used);
        also.is_received();
        assert!(places.take().is_none(), "all of them are at work");
        drop(work);
        assert!(places.take().is_some());
    }

    #[test]
    fn farewells_are_bounded() {
        let places = ConnectionSlots::new(1);
        let all: Vec<ConnectionSlot> = (0..LEAVING + 3).map(|_| places.take().unwrap()).collect();
        let count = |what| all.iter().filter(|place| told(place) == what).count();
        assert_eq!(
            (count(Eviction::Keep), count(Eviction::Drain), count(Eviction::Close)),
            (1, LEAVING, 2)
        );
        drop(all);
        let taken = places.taken();
        assert_eq!((taken.leaving, taken.connections.len()), (0, 0));
    }
}
