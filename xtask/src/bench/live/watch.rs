//! Watches that tell when enough objects are as they should be.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde_json::Value;

use crate::bench::client::Client;

/// Nothing new for so long means that nothing more comes.
const PATIENCE: Duration = Duration::from_secs(120);

/// Objects as they come to hold something: those of one name in many namespaces, or by another key.
pub(super) struct Watch {
    resource: String,
    /// How many there are, and since when.
    news: Receiver<(usize, Instant)>,
    seen: usize,
}

impl Watch {
    /// Follows all objects of a name; those that hold something count, once in each namespace.
    pub(super) fn begin(
        client: &Client,
        resource: &str,
        name: &str,
        holds: impl Fn(&Value) -> bool + Send + 'static,
    ) -> Result<Self> {
        let selected = format!("&fieldSelector=metadata.name%3D{name}");
        let key = move |object: &Value| {
            let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
            holds(object).then(|| namespace.to_owned())
        };
        Self::keyed(client, resource, &selected, key)
    }

    /// Follows all objects that a query selects; those with a key count, once for each key.
    pub(super) fn keyed(
        client: &Client,
        resource: &str,
        query: &str,
        key: impl Fn(&Value) -> Option<String> + Send + 'static,
    ) -> Result<Self> {
        let lines = client.lines(&format!("{resource}?watch=true{query}"))?;
        let (send, news) = mpsc::channel();
        // It ends with the connection, or with the first news that is not waited for.
        thread::spawn(move || {
            let mut known = BTreeSet::new();
            for line in lines {
                let now = Instant::now();
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["type"] == "DELETED" {
                    continue;
                }
                let Some(key) = key(&event["object"]) else { continue };
                if known.insert(key) && send.send((known.len(), now)).is_err() {
                    return;
                }
            }
        });
        let resource = resource.rsplit('/').next().unwrap_or_default().to_owned();
        Ok(Watch { resource, news, seen: 0 })
    }

    /// The resource, in the plural.
    pub(super) fn resource(&self) -> &str {
        &self.resource
    }

    /// Waits for so many objects: how many there are, fewer when nothing more comes, and since when.
    pub(super) fn wait(&mut self, wanted: usize) -> (usize, Instant) {
        let mut last = Instant::now();
        while self.seen < wanted {
            let Ok((seen, when)) = self.news.recv_timeout(PATIENCE) else { break };
            (self.seen, last) = (seen, when);
        }
        (self.seen, last)
    }
}
