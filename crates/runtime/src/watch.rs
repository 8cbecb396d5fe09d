//! Follows one kind for as long as the process lives.
//!
//! A watch goes on where it ended, is begun anew when it falls silent, and gives up only when the server no
//! longer knows what happened since: then the listener has to list again. Where watching is forbidden
//! and listing is not, it gives up after every pause, so that listing takes its place.

use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use http_body_util::BodyExt as _;
use kiln_cluster::{ApiError, Reason};
use kiln_object::{Gvk, Kinds};
use kiln_replica::watch_news::read;
pub use kiln_replica::watch_news::{Subject, WatchNews};
use kiln_value::{KeyTable, Str, json};
use tokio::sync::{mpsc, watch};

use crate::calls::collection_path;
use crate::client::Client;
use crate::health::{Health, HealthPart};
use crate::metrics::Metrics;

/// The longest event that is read.
const LONGEST_EVENT: usize = 64 << 20;
/// How often a kind is listed that may not be watched.
const LISTING_PAUSE: Duration = Duration::from_millis(1500);
/// The first and the longest pause after a failure.
const PAUSES: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(20));

/// What a watch needs.
#[derive(Clone, Debug)]
pub struct Watcher {
    /// The connection.
    pub client: Client,
    /// The kinds that the cluster serves.
    pub kinds: watch::Receiver<Kinds>,
    /// A watch that tells nothing for so long is begun anew.
    pub stale_after: Duration,
    /// Where it says how it is.
    pub health: std::sync::Arc<Health>,
    /// For whom it watches: the beginning of what it is called there.
    pub purpose: Str,
    /// Where it counts.
    pub metrics: std::sync::Arc<Metrics>,
}

enum End {
    /// The server ended it, or the listener is gone.
    Usual,
    Silent,
    Failed(ApiError),
}

impl Watcher {
    /// How a watch is, for as long as its handle lives.
    pub fn standing(&self, subject: &Subject) -> HealthPart {
        self.health.part(format!("{}: {subject}", self.purpose))
    }

    /// Follows a kind from a revision on, until it is lost or the listener is gone.
    pub async fn follow(
        &self,
        subject: &Subject,
        from: u64,
        told: &mpsc::Sender<(Gvk, WatchNews)>,
        standing: &HealthPart,
    ) {
        let mut revision = from;
        let mut pause = PAUSES.0;
        // One that fell silent counts as well again when it has said something.
        let mut trusted = true;
        let kind = subject.gvk.kind.to_string();
        loop {
            let begun = Instant::now();
            let end = self.once(subject, &mut revision, told, standing, &mut trusted).await;
            if told.is_closed() {
                return;
            }
            let lasted = begun.elapsed() > Duration::from_secs(5);
            let reason = match &end {
                End::Usual => "ended",
                End::Silent => "silent",
                End::Failed(error) => error.reason.as_str(),
            };
            self.metrics.count("kiln_watch_restarts_total", &[("kind", &kind), ("reason", reason)]);
            if lasted {
                pause = PAUSES.0;
            }
            match end {
                End::Usual if lasted => continue,
                End::Usual => {}
                // The new watch says whether the server can be reached.
                End::Silent if !sends_bookmarks(&subject.gvk) => continue,
                End::Silent => {
                    tracing::warn!(
                        watch = standing.name(),
                        "received nothing for too long; restarting the watch"
                    );
                    trusted = false;
                    standing.bad("it fell silent");
                }
                End::Failed(error) => {
                    let forbidden = error.reason == Reason::Forbidden;
                    if forbidden
                        || matches!(
                            error.reason,
                            Reason::Gone | Reason::UnknownKind | Reason::NotFound
                        )
                    {
                        if forbidden {
                            tracing::debug!(watch = standing.name(), %error, "listing instead");
                            tokio::time::sleep(LISTING_PAUSE).await;
                        }
                        let _ = told.send((subject.gvk.clone(), WatchNews::Lost)).await;
                        return;
                    }
                    tracing::warn!(watch = standing.name(), %error, "watch failed; retrying");
                    standing.bad(error.to_string());
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }

    /// The address of a watch from a revision on.
    fn watch_path(&self, subject: &Subject, revision: u64) -> Result<String, ApiError> {
        let from = revision.to_string();
        // The server ends watches after some time; not all of them at once.
        let life = (240 + subject.gvk.kind.len() * 7 % 60).to_string();
        let mut query = vec![
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("resourceVersion", from.as_str()),
            ("timeoutSeconds", life.as_str()),
        ];
        if !subject.fields.is_empty() {
            query.push(("fieldSelector", subject.fields.as_str()));
        }
        if !subject.labels.is_empty() {
            query.push(("labelSelector", subject.labels.as_str()));
        }
        collection_path(&self.kinds.borrow(), &subject.gvk, &subject.namespace, &query)
    }

    async fn once(
        &self,
        subject: &Subject,
        revision: &mut u64,
        told: &mpsc::Sender<(Gvk, WatchNews)>,
        standing: &HealthPart,
        trusted: &mut bool,
    ) -> End {
        let path = match self.watch_path(subject, *revision) {
            Ok(path) => path,
            Err(error) => return End::Failed(error),
        };
        let mut body = match self.client.stream(&path).await {
            Ok(response) => response.into_body(),
            Err(error) => return End::Failed(error),
        };
        let patience = self.stale_after;
        if *trusted {
            standing.good(patience * 2);
        }
        let mut lines = Lines::default();
        let mut keys = KeyTable::new();
        loop {
            let frame = tokio::select! {
                frame = tokio::time::timeout(patience, body.frame()) => frame,
                () = told.closed() => return End::Usual,
            };
            let bytes = match frame {
                Err(_) => return End::Silent,
                Ok(None) => return End::Usual,
                Ok(Some(Err(error))) => {
                    let message = format!("the watch ended: {error}");
                    return End::Failed(ApiError::new(Reason::Unavailable, message));
                }
                Ok(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
            };
            *trusted = true;
            standing.good(patience * 2);
            if !lines.add(&bytes) {
                let message = "an event is too long".to_owned();
                return End::Failed(ApiError::new(Reason::Unavailable, message));
            }
            while let Some(line) = lines.next() {
                let Ok(value) = json::parse_bytes(&line, &mut keys) else {
                    let message = "the watch sent something that is not JSON".to_owned();
                    return End::Failed(ApiError::new(Reason::Unavailable, message));
                };
                let news = match read(value) {
                    Ok(news) => news,
                    Err(error) => return End::Failed(error),
                };
                match &news {
                    WatchNews::Event(event) => {
                        *revision = (*revision).max(event.revision);
                        self.metrics.count(
                            "kiln_watch_events_total",
                            &[("kind", subject.gvk.kind.as_str())],
                        );
                    }
                    WatchNews::Upto(upto) => *revision = (*revision).max(*upto),
                    WatchNews::Lost => {}
                }
                if told.send((subject.gvk.clone(), news)).await.is_err() {
                    return End::Usual;
                }
            }
        }
    }
}

/// Whether silence on a watch of a kind means that something is wrong: otherwise bookmarks would break it. API servers
/// send none for Events, which they keep out of their watch cache because there are so many.
fn sends_bookmarks(gvk: &Gvk) -> bool {
    !(gvk.kind == "Event" && ["", "events.k8s.io"].contains(&gvk.group.as_str()))
}

/// Bytes as they come, cut into lines.
#[derive(Debug, Default)]
struct Lines {
    held: BytesMut,
    /// No line ends before this place.
    searched: usize,
}

impl Lines {
    /// Adds bytes; whether the line at the end is still of a bearable length.
    fn add(&mut self, bytes: &Bytes) -> bool {
        self.held.extend_from_slice(bytes);
        self.held.len() <= LONGEST_EVENT || self.held.contains(&b'\n')
    }

    fn next(&mut self) -> Option<Bytes> {
        loop {
            let end = self.held[self.searched..].iter().position(|byte| *byte == b'\n');
            let Some(end) = end else {
                self.searched = self.held.len();
                return None;
            };
            let line = self.held.split_to(self.searched + end + 1).freeze();
            self.searched = 0;
            if line.len() > 1 {
                return Some(line.slice(..line.len() - 1));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_wherever_the_bytes_are() {
        let text = b"{\"a\":1}\n\n{\"b\":2}\n{\"c\"";
        for size in 1..text.len() {
            let mut lines = Lines::default();
            let mut found = Vec::new();
            for part in text.chunks(size) {
                assert!(lines.add(&Bytes::copy_from_slice(part)));
                found.extend(std::iter::from_fn(|| lines.next()));
            }
            assert_eq!(found, [&b"{\"a\":1}"[..], &b"{\"b\":2}"[..]], "{size}");
        }
    }
}
