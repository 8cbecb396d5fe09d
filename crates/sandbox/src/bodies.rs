//! What clients send: how many bytes of all bodies are there at once.
//!
//! A client that announces much and sends nothing takes no room: bytes count as they come, and until the request is answered.

use std::sync::Arc;

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The room for bodies. Cloning copies a pointer.
#[derive(Clone, Debug)]
pub(crate) struct Bodies(Arc<Semaphore>);

/// Why there is no body.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    TooLong,
    BrokeOff,
}

impl Bodies {
    /// So many bytes at once.
    pub(crate) fn new(most: usize) -> Self {
        Bodies(Arc::new(Semaphore::new(most)))
    }

    /// Whether a request waits for room, or soon has to.
    pub(crate) fn is_full(&self) -> bool {
        self.0.available_permits() < 1 << 16
    }

    /// Receives a body of so many bytes at most, and waits while there is no room for it; the room is free again when
    /// what comes with the body is dropped.
    pub(crate) async fn receive<B>(
        &self,
        mut body: B,
        most: usize,
    ) -> Result<(Vec<u8>, Option<OwnedSemaphorePermit>), Unread>
    where
        B: hyper::body::Body<Data = Bytes> + Unpin,
    {
        let mut received = Vec::new();
        let mut room: Option<OwnedSemaphorePermit> = None;
        while let Some(frame) = body.frame().await {
            let Ok(piece) = frame.map_err(|_| Unread::BrokeOff)?.into_data() else { continue };
            if piece.len() > most - received.len() {
                return Err(Unread::TooLong);
            }
            let bytes = u32::try_from(piece.len()).map_err(|_| Unread::TooLong)?;
            let more = Arc::clone(&self.0).acquire_many_owned(bytes).await;
            let more = more.map_err(|_| Unread::BrokeOff)?;
            match &mut room {
                Some(room) => room.merge(more),
                None => room = Some(more),
            }
            received.extend_from_slice(&piece);
        }
        Ok((received, room))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn bodies_wait_until_there_is_room() {
        let bodies = Bodies::new(100);
        let body = |length: usize| Full::new(Bytes::from(vec![b'x'; length]));
        let (first, room) = bodies.receive(body(60), 80).await.unwrap();
        assert_eq!(first.len(), 60);
        assert_eq!(bodies.receive(body(81), 80).await.unwrap_err(), Unread::TooLong);
        let second = bodies.receive(body(60), 80);
        tokio::pin!(second);
        let waited = tokio::time::timeout(Duration::from_millis(50), &mut second).await;
        assert!(waited.is_err(), "there is no room for both");
        drop(room);
        let (second, _room) = second.await.unwrap();
        assert_eq!(second.len(), 60);
    }
}
