//! Which kinds a cluster serves.
//!
//! The server is asked every two seconds. Parts that expect something new say so: a watch of
//! definitions, a policy that names a kind which is unknown. Then it is asked at once, and again until it has had the
//! time to tell, because it serves a definition a moment after it has stored it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use kiln_cluster::{ApiError, Call, Reply};
use kiln_object::{Gvk, Kinds, Selector};
use kiln_value::{Map, Value};
use tokio::sync::{Notify, mpsc, watch};

use crate::calls::carry_out;
use crate::client::Client;
use crate::watch::{Subject, Watcher};

/// The form of discovery that tells everything at once.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// How often the server is asked whether something changed. It answers with a tag and nothing else, mostly.
const PAUSE: Duration = Duration::from_secs(2);
/// How often, and for how long, when a part expects a change.
const SOON: (Duration, Duration) = (Duration::from_millis(150), Duration::from_secs(4));
/// How long to wait before definitions are watched again.
const WATCH_AGAIN: Duration = Duration::from_secs(10);

/// What a server serves, as it was last told.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Of `/api` and of `/apis`.
    parts: [DiscoveryPart; 2],
    rumours: Rumours,
}

/// Where those say so who believe that the server serves something new.
#[derive(Clone, Debug, Default)]
pub struct Rumours(Arc<Notify>);

impl Rumours {
    /// Has the server asked now, and for a while more often.
    pub fn spread(&self) {
        self.0.notify_one();
    }
}

#[derive(Debug, Default)]
struct DiscoveryPart {
    etag: Option<String>,
    groups: Vec<Value>,
}

impl Discovery {
    /// Asks what is served; none when that is the same as before.
    ///
    /// # Errors
    /// What the server says, or why it says nothing.
    pub async fn refresh(&mut self, client: &Client) -> Result<Option<Kinds>, ApiError> {
        let mut changed = false;
        for (path, part) in ["/api", "/apis"].into_iter().zip(&mut self.parts) {
            let answer = client.get_tagged(path, ACCEPT, part.etag.as_deref()).await?;
            let Some(value) = answer.value else { continue };
            let groups = value.get("items").and_then(Value::as_list);
            part.groups = groups.map(|groups| groups.to_vec()).unwrap_or_default();
            part.etag = answer.etag;
            changed = true;
        }
        if !changed {
            return Ok(None);
        }
        let groups = self.parts.iter().flat_map(|part| part.groups.iter().cloned());
        let mut all = Map::new();
        all.insert("items", Value::from_iter(groups));
        Ok(Some(Kinds::discovered(&Value::Map(all))))
    }

    /// Knows nothing yet, and listens where others listened before.
    pub fn hearing(rumours: Rumours) -> Self {
        Discovery { rumours, ..Discovery::default() }
    }

    /// Where to say that something may be new.
    pub fn rumours(&self) -> Rumours {
        self.rumours.clone()
    }

    /// Tells about changes for as long as there is a listener.
    pub async fn follow(mut self, client: Client, kinds: watch::Sender<Kinds>) {
        let mut soon_until = Instant::now();
        loop {
            let asked = Instant::now();
            match self.refresh(&client).await {
                Ok(Some(found)) => drop(kinds.send(found)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot discover the served kinds"),
            }
            let pause = if Instant::now() < soon_until { SOON.0 } else { PAUSE };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.rumours.0.notified() => {
                    soon_until = Instant::now() + SOON.1;
                    // However many rumours there are.
                    tokio::time::sleep(SOON.0.saturating_sub(asked.elapsed())).await;
                }
                () = kinds.closed() => return,
            }
        }
    }
}

/// Spreads rumours whenever a definition comes, changes or goes, for as long as the process lives.
pub(crate) async fn watch_definitions(watcher: Watcher, rumours: Rumours) {
    let kind = Gvk::new("apiextensions.k8s.io/v1", "CustomResourceDefinition");
    let subject = Subject::all(kind.clone());
    let standing = watcher.standing(&subject);
    loop {
        // Existing ones are known from discovery; only what comes is of interest.
        let newest = Call::List {
            kind: kind.clone(),
            namespace: None,
            selector: Selector::everything(),
            limit: Some(1),
            resume: None,
        };
        let kinds = watcher.kinds.borrow().clone();
        match carry_out(&watcher.client, &kinds, &newest).await.map(Reply::listing) {
            Ok(Some(listing)) => {
                rumours.spread();
                let (told, mut news) = mpsc::channel(64);
                let heard = async {
                    while news.recv().await.is_some() {
                        rumours.spread();
                    }
                };
                let watching = watcher.follow(&subject, listing.revision, &told, &standing);
                tokio::select! { () = watching => {}, () = heard => {} }
            }
            // The server is asked every so often all the same.
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "cannot watch CustomResourceDefinitions"),
        }
        standing.rests();
        tokio::time::sleep(WATCH_AGAIN).await;
    }
}
