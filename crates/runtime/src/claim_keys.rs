//! The keys that prove which claims the engine wrote, kept in a Secret beside it. [`kiln_replica::claim_keys`] reads and
//! renews them; here they are drawn, and looked at again and again.

use std::time::Duration;

use kiln_controller::{ClaimKey, ClaimKeys};
use kiln_replica::claim_keys::{ClaimKeysError, ensure};
use tokio::sync::watch;

use crate::state::AppState;

/// How often the Secret is looked at.
const LOOK: Duration = Duration::from_secs(600);
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is tried before the engine acts without keys.
const TRIES: u32 = 3;

/// What is wrong, by the name under which `/health` tells it. The engine acts all the same.
const PART: &str = "controller: keys for claims";

/// Keeps the keys known, from the first time that they were read, or could not be.
pub(crate) async fn keep(shared: AppState, known: watch::Sender<Option<ClaimKeys>>) {
    let mut failures = 0;
    loop {
        let kinds = shared.kinds.borrow().clone();
        let pause =
            match ensure(&shared.clients.controller, &kinds, &shared.options.namespace, draw).await
            {
                Ok(keys) => {
                    failures = 0;
                    shared.health.good(PART, None);
                    known.send_if_modified(|known| {
                        let changed = known.as_ref() != Some(&keys);
                        *known = Some(keys);
                        changed
                    });
                    LOOK
                }
                Err(why) => {
                    failures += 1;
                    tracing::warn!(%why, "cannot get the keys for claims");
                    shared.health.bad(PART, why.to_string());
                    if failures >= TRIES {
                        // Nothing that is stored proves anything then, which is safe, and new objects are made.
                        known.send_if_modified(|known| {
                            known.is_none().then(|| *known = Some(ClaimKeys::default())).is_some()
                        });
                    }
                    PAUSE
                }
            };
        tokio::time::sleep(pause).await;
    }
}

/// A key of the system's random source, called by the time when it was made.
fn draw(now: i64) -> Result<ClaimKey, ClaimKeysError> {
    let mut drawn = [0; 36];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut drawn).map_err(|_| ClaimKeysError::Draw)?;
    let mut secret = [0; 32];
    secret.copy_from_slice(&drawn[..32]);
    let told_apart: String = drawn[32..].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(ClaimKey { name: format!("{now}-{told_apart}").into(), secret })
}
