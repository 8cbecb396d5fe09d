//! Writes events about what rules did: [`kiln_replica::events`] says what stands in them.

use std::sync::Arc;

use kiln_cluster::Call;
pub use kiln_replica::events::{CheckedObject, Happened};
use kiln_replica::events::{EventReporter, events_of};
use tokio::sync::{Mutex, mpsc};

use crate::calls::carry_out;
use crate::controller_loop::now;
use crate::state::AppState;

/// Writes events about news for as long as some come.
pub(crate) async fn write(shared: AppState, happened: Arc<Mutex<mpsc::Receiver<Happened>>>) {
    let mut happened = happened.lock().await;
    let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kiln".to_owned());
    let mut reporter = EventReporter::new(&host);
    let settings = shared.options.settings();
    while let Some(happened) = happened.recv().await {
        let registry = shared.registry.borrow().clone();
        let (config, _) = settings.read(registry.config.as_ref());
        // Each side writes as itself.
        let client = match happened.is_of_admission() {
            true => &shared.clients.admission,
            false => &shared.clients.controller,
        };
        for event in events_of(&happened, &registry, &config, &mut reporter, now()) {
            let kinds = shared.kinds.borrow().clone();
            if let Err(error) = carry_out(client, &kinds, &Call::create(event)).await {
                tracing::debug!(%error, "cannot write an event");
            }
        }
    }
}
