//! Which kinds a cluster serves.

use std::time::Duration;

use kiln_cluster::ApiError;
use kiln_object::Kinds;
use kiln_value::{Map, Value};
use tokio::sync::watch;

use crate::client::Client;

/// The form of discovery that tells everything at once.
const ACCEPT: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,\
                      application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
/// How often the server is asked whether something changed. It answers with a tag and nothing else, mostly.
const PAUSE: Duration = Duration::from_secs(2);

/// What a server serves, as it was last told.
#[derive(Debug, Default)]
pub struct Discovery {
    /// Of `/api` and of `/apis`.
    parts: [Part; 2],
}

#[derive(Debug, Default)]
struct Part {
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

    /// Tells about changes for as long as somebody listens.
    pub async fn follow(mut self, client: Client, kinds: watch::Sender<Kinds>) {
        loop {
            tokio::select! {
                () = tokio::time::sleep(PAUSE) => {}
                () = kinds.closed() => return,
            }
            match self.refresh(&client).await {
                Ok(Some(found)) => drop(kinds.send(found)),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot ask which kinds are served"),
            }
        }
    }
}
