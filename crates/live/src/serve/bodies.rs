//! Bodies of reviews: how many bytes of all of them are there at once.
//!
//! Whoever announces much and sends nothing takes no room: bytes count as they come, and until the review was read.

use std::fmt::Display;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bodies that wait for room at once, each with a piece of some 16 KiB that has come already.
const WAITING: usize = 1024;

/// The room for bodies. Cloning copies pointers.
#[derive(Clone)]
pub(crate) struct Bodies {
    most: usize,
    room: Arc<Semaphore>,
    waiting: Arc<Semaphore>,
}

/// A body, and the room that it takes.
pub(crate) struct Body {
    pub(crate) bytes: Bytes,
    _room: Option<OwnedSemaphorePermit>,
}

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLong,
    NoRoom,
    BrokeOff(String),
}

impl Bodies {
    /// So many bytes at once.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        let (room, waiting) = (Semaphore::new(most), Semaphore::new(WAITING));
        Bodies { most, room: Arc::new(room), waiting: Arc::new(waiting) }
    }

    /// Receives a body of so many bytes at most.
    pub(crate) async fn receive<B>(&self, mut body: B, most: usize) -> Result<Body, Unread>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
        B::Error: Display,
    {
        let mut room: Option<OwnedSemaphorePermit> = None;
        let mut held = 0;
        // Most bodies come in one piece; of others no piece is kept, since small ones cost more than they hold.
        let mut first = Bytes::new();
        let mut joined = BytesMut::new();
        while let Some(frame) = body.frame().await {
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
        Ok(Body { bytes, _room: room })
    }

    async fn room_for(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Unread> {
        let bytes = u32::try_from(bytes).map_err(|_| Unread::NoRoom)?;
        if let Ok(room) = Arc::clone(&self.room).try_acquire_many_owned(bytes) {
            return Ok(room);
        }
        let _waiting = self.waiting.try_acquire().map_err(|_| Unread::NoRoom)?;
        Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| Unread::NoRoom)
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
    async fn not_all_wait_for_room() {
        let bodies = Bodies::new(1);
        let _held = bodies.receive(body(&["a"]), 9).await.unwrap();
        let all = u32::try_from(WAITING).unwrap();
        let _waiting = bodies.waiting.acquire_many(all).await.unwrap();
        assert_eq!(bodies.receive(body(&["b"]), 9).await.err(), Some(Unread::NoRoom));
    }
}
