//! The keys that prove which claims the engine wrote, kept in a Secret beside it.
//!
//! Every replica reads the same Secret, so the next leader knows what was signed before. A new key is made
//! when there is none and when the newest is [`RENEWED_AFTER`] old; what older ones signed counts as long as they are
//! kept. Deleting the Secret revokes them all: claims then count as unsigned until their objects are written
//! again.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_cluster::{Call, Reason};
use kiln_controller::{ClaimKey, ClaimKeys};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_value::{Map, Value, value};
use tokio::sync::watch;

use crate::calls::carry_out;
use crate::state::AppState;

/// The Secret. No rule is shown it.
const NAME: &str = kiln_engine::CLAIM_KEYS;
/// How old the newest key may be, in seconds.
const RENEWED_AFTER: i64 = 90 * 24 * 3600;
/// How many keys are kept: two years.
const KEPT: usize = 8;
/// How often the Secret is looked at.
const LOOK: Duration = Duration::from_secs(600);
/// How long to wait after a failure.
const PAUSE: Duration = Duration::from_secs(5);
/// How often it is tried before the engine acts without keys.
const TRIES: u32 = 3;
/// How often another process may be faster in a row.
const RACES: u32 = 5;

/// What is wrong, by the name under which `/health` tells it. The engine acts all the same.
const PART: &str = "controller: keys for claims";

/// Keeps the keys known, from the first time that they were read, or could not be.
pub(crate) async fn keep(shared: AppState, known: watch::Sender<Option<ClaimKeys>>) {
    let mut failures = 0;
    loop {
        let pause = match ensure(&shared).await {
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
                shared.health.bad(PART, why);
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

/// Reads the keys, and stores a new one if one is due.
async fn ensure(shared: &AppState) -> Result<ClaimKeys, String> {
    let namespace = &shared.options.namespace;
    let id = ObjectId::new(Gvk::new("v1", "Secret"), namespace, NAME);
    let kinds = shared.kinds.borrow().clone();
    for _ in 0..RACES {
        let stored =
            match carry_out(&shared.clients.controller, &kinds, &Call::Get(id.clone())).await {
                Ok(reply) => reply.object(),
                Err(error) if error.reason == Reason::NotFound => None,
                Err(error) => return Err(error.to_string()),
            };
        let mut keys = stored.as_ref().map(read).unwrap_or_default();
        let now = now();
        if keys.first().is_some_and(|newest| made_at(newest) + RENEWED_AFTER > now) {
            return Ok(ClaimKeys::new(keys));
        }
        keys.insert(0, draw(now)?);
        keys.truncate(KEPT);
        let mut secret = write(namespace, &keys);
        let call = match stored.as_ref().and_then(metadata::resource_version) {
            None => Call::create(secret),
            Some(version) => {
                // It was made with metadata.
                let _ = secret.set(["metadata", "resourceVersion"], version);
                Call::update(secret)
            }
        };
        match carry_out(&shared.clients.controller, &kinds, &call).await {
            Ok(_) => {
                tracing::info!(secret = NAME, "stored a new key for claims");
                return Ok(ClaimKeys::new(keys));
            }
            // Another replica was faster, and its key is as good.
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    Err(format!("Secret {namespace}/{NAME} keeps being changed"))
}

/// A key of the system's random source, called by the time when it was made.
fn draw(now: i64) -> Result<ClaimKey, String> {
    let mut drawn = [0; 36];
    let random = rustls::crypto::ring::default_provider().secure_random;
    random.fill(&mut drawn).map_err(|_| "the system gives no random bytes".to_owned())?;
    let mut secret = [0; 32];
    secret.copy_from_slice(&drawn[..32]);
    let told_apart: String = drawn[32..].iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(ClaimKey { name: format!("{now}-{told_apart}").into(), secret })
}

fn made_at(key: &ClaimKey) -> i64 {
    key.name.split('-').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// The keys of a Secret, the newest first. What is not a key is skipped.
fn read(secret: &Value) -> Vec<ClaimKey> {
    let data = secret.get("data").and_then(Value::as_map);
    let mut keys: Vec<ClaimKey> = data
        .into_iter()
        .flat_map(Map::iter)
        .filter_map(|(name, text)| {
            let bytes = STANDARD.decode(text.as_str()?).ok()?;
            Some(ClaimKey { name: name.as_str().into(), secret: bytes.try_into().ok()? })
        })
        .collect();
    keys.sort_by_key(|key| (std::cmp::Reverse(made_at(key)), key.name.clone()));
    keys
}

fn write(namespace: &str, keys: &[ClaimKey]) -> Value {
    let data: Map = keys
        .iter()
        .map(|key| (key.name.as_str(), Value::from(STANDARD.encode(key.secret))))
        .collect();
    let mut secret = value!({
        "apiVersion": "v1", "kind": "Secret", "type": "Opaque",
        "metadata": {"name": NAME, "namespace": namespace},
    });
    // A map takes a field.
    let _ = secret.set(["data"], Value::Map(data));
    secret
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_were_stored_the_newest_first() {
        let keys = [draw(2_000).unwrap(), draw(30_000).unwrap(), draw(100).unwrap()];
        assert_ne!(keys[0].secret, keys[1].secret);
        let read = read(&write("kyverno", &keys));
        let [second, newest, oldest] = keys;
        assert_eq!(made_at(&newest), 30_000);
        assert_eq!(read, [newest, second, oldest]);
    }

    #[test]
    fn what_is_no_key_is_passed_over() {
        let secret = value!({"data": {"1-a": "AAAA", "2-b": "?", "3-c": 7, "tls.key": ""}});
        assert_eq!(read(&secret), []);
        assert_eq!(read(&value!({})), []);
    }
}
