//! Bodies of reviews: how many bytes of all of them are there at once.
//!
//! A client that announces much and sends nothing takes no room: bytes count as they come, and until the review was read. When
//! there is no room left, the body of which nothing came for longest makes room, so that neither silence nor slowness
//! keeps others out.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// Bodies that wait for room at once, each with a piece of some 16 KiB that has come already.
const WAITING: usize = 1024;
/// A body is slow when nothing of it came for so long while others want its room.
const SLOW: Duration = Duration::from_millis(100);

/// The room for bodies. Cloning copies pointers.
#[derive(Clone)]
pub(crate) struct Bodies {
    most: usize,
    room: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
    /// Bodies that are being received and hold room, by their numbers.
    receiving: Arc<Mutex<Receiving>>,
}

#[derive(Default)]
struct Receiving {
    next: u64,
    bodies: BTreeMap<u64, Slow>,
}

/// A body of which more is to come.
struct Slow {
    /// When something of it came last.
    since: Instant,
    /// Tells it to make room.
    go: Arc<Notify>,
}

/// The number of a body while its next piece is waited for.
struct Awaited<'b> {
    bodies: &'b Bodies,
    number: u64,
    go: Arc<Notify>,
}

/// A body, and the room that it takes.
pub(crate) struct BudgetedBody {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLong,
    NoRoom,
    /// Others needed the room that it held.
    MadeRoom,
    BrokeOff(String),
}

impl Bodies {
    /// So many bytes at once.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        let (room, waiting) = (Semaphore::new(most), Semaphore::new(WAITING));
        let receiving = Arc::default();
        Bodies { most, room: Arc::new(room), waiting: Arc::new(waiting), receiving }
    }

    fn receiving(&self) -> MutexGuard<'_, Receiving> {
        self.receiving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that more of a body that holds room is waited for.
    fn awaits(&self) -> Awaited<'_> {
        let mut receiving = self.receiving();
        let (number, go) = (receiving.next, Arc::new(Notify::new()));
        receiving.next += 1;
        receiving.bodies.insert(number, Slow { since: Instant::now(), go: Arc::clone(&go) });
        Awaited { bodies: self, number, go }
    }

    /// Lets the slowest body make room, if one is slow.
    fn make_room(&self) {
        let mut receiving = self.receiving();
        let slow = receiving.bodies.iter().filter(|(_, slow)| slow.since.elapsed() >= SLOW);
        let slowest = slow.min_by_key(|(_, slow)| slow.since).map(|(number, _)| *number);
        if let Some(slowest) = slowest.and_then(|number| receiving.bodies.remove(&number)) {
            slowest.go.notify_one();
        }
    }

    /// Receives a body of so many bytes at most.
    pub(crate) async fn receive<B>(&self, mut body: B, most: usize) -> Result<BudgetedBody, Unread>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut held = 0;
        // Most bodies come in one piece; of others no piece is kept, since small ones cost more than they hold.
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        loop {
            let frame = {
                let awaited = (held > 0).then(|| self.awaits());
                let is_to_go = async {
                    match &awaited {
                        Some(awaited) => awaited.go.notified().await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    frame = body.frame() => frame,
                    () = is_to_go => return Err(Unread::MadeRoom),
                }
            };
            let Some(frame) = frame else { break };
            let frame = frame.map_err(|error| Unread::BrokeOff(error.to_string()))?;
            let Ok(piece) = frame.into_data() else { continue };
            if piece.len() > most - first.len().max(joined.len()) {
                return Err(Unread::TooLong);
            }
            // A body that is larger than all the room has it alone.
            let more = piece.len().min(self.most - held);
            held += more;
            let more = self.room_for(more).await?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            if first.is_empty() {
                first = piece;
                continue;
            }
            if joined.is_empty() {
                joined.extend_from_slice(&first);
            }
            joined.extend_from_slice(&piece);
        }
        let bytes = if joined.is_empty() { first } else { joined.freeze() };
        Ok(BudgetedBody { bytes, _room: room })
    }

    async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Unread> {
        let bytes = u32::try_from(bytes).map_err(|_| Unread::NoRoom)?;
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            return Ok(room);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Unread::NoRoom)?;
        let room = Arc::clone(&self.room).acquire_many_owned(bytes);
        tokio::pin!(room);
        loop {
            self.make_room();
            // Others may become slow meanwhile.
            if let Ok(room) = tokio::time::timeout(SLOW, &mut room).await {
                return room.map_err(|_| Unread::NoRoom);
            }
        }
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.bodies.receiving().bodies.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::time::Duration;

    use futures_util::{StreamExt as _, stream};
    use http_body_util::StreamBody;
    use hyper::body::Frame;

    use super::*;

    fn body(
        pieces: &'static [&'static str],
    ) -> impl hyper::body::Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames =
            pieces.iter().map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
        StreamBody::new(stream::iter(frames))
    }

    #[tokio::test]
    async fn bodies_are_put_together_up_to_a_length() {
        let bodies = Bodies::new(100);
        for (pieces, whole) in [
            (&[][..], Ok("")),
            (&["abc"][..], Ok("abc")),
            (&["a", "", "bc"][..], Ok("abc")),
            (&["", "abc"][..], Ok("abc")),
            (&["abc", "", "de"][..], Ok("abcde")),
            (&["abc", "de", "f"][..], Err(Unread::TooLong)),
            (&["abcdef"][..], Err(Unread::TooLong)),
        ] {
            let received = bodies.receive(body(pieces), 5).await;
            let received = received.map(|body| body.bytes);
            assert_eq!(received, whole.map(Bytes::from), "{pieces:?}");
        }
        assert_eq!(bodies.room.available_permits(), 100, "all room is given back");
    }

    #[tokio::test]
    async fn bodies_wait_for_room_and_one_that_is_larger_than_all_of_it_has_it_alone() {
        let bodies = Bodies::new(4);
        let held = bodies.receive(body(&["abc"]), 9).await.unwrap();
        assert_eq!(bodies.room.available_permits(), 1);
        let large = bodies.receive(body(&["abcd", "efgh"]), 9);
        tokio::pin!(large);
        let early = tokio::time::timeout(Duration::from_millis(5), &mut large).await;
        assert!(early.is_err(), "there is no room");
        drop(held);
        let large = large.await.unwrap();
        assert_eq!((&large.bytes[..], bodies.room.available_permits()), (&b"abcdefgh"[..], 0));
        drop(large);
        assert_eq!(bodies.room.available_permits(), 4);
    }

    #[tokio::test]
    async fn whoever_sends_nothing_takes_no_room() {
        let bodies = Bodies::new(4);
        let silent = StreamBody::new(
            stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from_static(b"a")))])
                .chain(stream::pending()),
        );
        let silent = bodies.receive(silent, 1000);
        tokio::pin!(silent);
        assert!(tokio::time::timeout(Duration::from_millis(1), &mut silent).await.is_err());
        assert_eq!(bodies.room.available_permits(), 3);
        assert!(bodies.receive(body(&["abc"]), 9).await.is_ok());
    }

    #[tokio::test]
    async fn the_slowest_body_makes_room_for_others() {
        let bodies = Bodies::new(8);
        let begun = |text: &'static str| {
            let first = Ok::<_, Infallible>(Frame::data(Bytes::from_static(text.as_bytes())));
            let body = StreamBody::new(stream::iter([first]).chain(stream::pending()));
            let bodies = bodies.clone();
            tokio::spawn(async move { bodies.receive(body, 1000).await.err() })
        };
        let holds = async |bytes: usize| {
            while bodies.room.available_permits() != 8 - bytes {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let slowest = begun("abcd");
        holds(4).await;
        let slow = begun("efgh");
        holds(8).await;
        assert!(bodies.receive(body(&["xy"]), 9).await.is_ok(), "it has room in the end");
        assert_eq!(slowest.await.unwrap(), Some(Unread::MadeRoom));
        assert!(!slow.is_finished(), "one was enough");
        slow.abort();
    }

    #[tokio::test]
    async fn not_all_wait_for_room() {
        let bodies = Bodies::new(1);
        let _held = bodies.receive(body(&["a"]), 9).await.unwrap();
        let all = u32::try_from(WAITING).unwrap();
        let _waiting = bodies.waiting.acquire_many(all).await.unwrap();
        assert_eq!(bodies.receive(body(&["b"]), 9).await.err(), Some(Unread::NoRoom));
    }
}
