//! The keys that prove which claims the engine wrote, kept in a Secret beside it.
//!
//! Every replica reads the same Secret, so the next leader knows what was signed before. A new key is made
//! when there is none and when the newest is [`RENEWED_AFTER`] old; what older ones signed counts as long as they are
//! kept. Deleting the Secret revokes them all: claims then count as unsigned until their objects are written
//! again.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_cluster::{ApiError, Call, Reason};
use kiln_controller::{ClaimKey, ClaimKeys};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_value::{Map, Value, value};

use crate::api::Api;
use crate::calls::carry_out;

/// The Secret. No rule is shown it.
const NAME: &str = kiln_engine::CLAIM_KEYS;
/// How old the newest key may be, in seconds.
const RENEWED_AFTER: i64 = 90 * 24 * 3600;
/// How many keys are kept: two years.
const KEPT: usize = 8;
/// How often another process may be faster in a row.
const RACES: u32 = 5;

/// Why there are no keys.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimKeysError {
    #[error("{0}")]
    Read(ApiError),
    #[error("{0}")]
    Store(ApiError),
    #[error("the system gives no random bytes")]
    Draw,
    #[error("Secret {0}/{name} keeps being changed", name = NAME)]
    KeepsChanging(String),
}

/// Reads the keys of an engine that lives in a namespace, and stores a new one if one is due.
///
/// # Errors
/// When they cannot be read or stored.
pub async fn ensure<A: Api>(
    api: &A,
    kinds: &Kinds,
    namespace: &str,
    draw: impl Fn(i64) -> Result<ClaimKey, ClaimKeysError>,
) -> Result<ClaimKeys, ClaimKeysError> {
    let id = ObjectId::new(Gvk::new("v1", "Secret"), namespace, NAME);
    for _ in 0..RACES {
        let stored = match carry_out(api, kinds, &Call::Get(id.clone())).await {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::NotFound => None,
            Err(error) => return Err(ClaimKeysError::Read(error)),
        };
        let mut keys = stored.as_ref().map(read).unwrap_or_default();
        let now = i64::try_from(api.now() / 1000).unwrap_or(i64::MAX);
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
        match carry_out(api, kinds, &call).await {
            Ok(_) => return Ok(ClaimKeys::new(keys)),
            // Another replica was faster, and its key is as good.
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {}
            Err(error) => return Err(ClaimKeysError::Store(error)),
        }
    }
    Err(ClaimKeysError::KeepsChanging(namespace.to_owned()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn key(made: i64) -> ClaimKey {
        ClaimKey {
            name: format!("{made}-a").into(),
            secret: [u8::try_from(made % 251).unwrap(); 32],
        }
    }

    #[test]
    fn keys_are_read_as_they_were_stored_the_newest_first() {
        let keys = [key(2_000), key(30_000), key(100)];
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
