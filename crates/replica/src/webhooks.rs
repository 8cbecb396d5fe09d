//! Webhook configurations: written where they differ, and which policies are registered by them.

use std::collections::BTreeMap;

use kiln_admission::webhooks::is_current;
use kiln_cluster::{ApiError, Call, Reason};
use kiln_object::identity::MissingField;
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_rules::Policy;
use kiln_value::Value;

use crate::api::Api;
use crate::calls::carry_out;
use crate::policy_store::Registry;
use crate::status::RegisteredPolicies;

/// How often everything is compared with what the cluster has if nothing else happens, in milliseconds.
pub const COMPARE: u64 = 30_000;
/// How often a write is tried again because of a conflict.
const TRIES: usize = 5;

/// Why a webhook configuration is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PublishError {
    #[error(transparent)]
    Identify(#[from] MissingField),
    #[error("{name}: {error}")]
    Read { name: String, error: ApiError },
    #[error("{name}: {error}")]
    Write { name: String, error: ApiError },
}

/// The configurations that were last seen to be as they should be, and when.
#[derive(Debug, Default)]
pub struct PublishedWebhooks {
    seen: BTreeMap<String, (Value, u64)>,
}

impl PublishedWebhooks {
    /// Makes a configuration what it should be; whether that took a write.
    ///
    /// # Errors
    /// When it cannot be read or written.
    pub async fn ensure<A: Api>(
        &mut self,
        api: &A,
        kinds: &Kinds,
        wanted: &Value,
    ) -> Result<bool, PublishError> {
        let name = metadata::name(wanted).unwrap_or_default().to_owned();
        if let Some((known, seen)) = self.seen.get(&name)
            && known == wanted
            && api.now().checked_sub(*seen).is_some_and(|age| age < COMPARE)
        {
            return Ok(false);
        }
        let id = ObjectId::of(wanted)?;
        let mut tries = 0;
        loop {
            let there = match carry_out(api, kinds, &Call::Get(id.clone())).await {
                Ok(reply) => reply.object(),
                Err(error) if error.reason == Reason::NotFound => None,
                Err(error) => return Err(PublishError::Read { name, error }),
            };
            if there.as_ref().is_some_and(|there| is_current(there, wanted)) {
                self.seen.insert(name, (wanted.clone(), api.now()));
                return Ok(false);
            }
            match carry_out(api, kinds, &replacing(wanted, there.as_ref())).await {
                Ok(_) => {
                    self.seen.insert(name, (wanted.clone(), api.now()));
                    return Ok(true);
                }
                // Another writer was faster: what it wrote may be as wanted.
                Err(error)
                    if tries + 1 < TRIES
                        && matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) =>
                {
                    tries += 1;
                }
                Err(error) => return Err(PublishError::Write { name, error }),
            }
        }
    }
}

/// The call that stores an object in the place of the one that is there.
pub fn replacing(object: &Value, there: Option<&Value>) -> Call {
    match there.and_then(metadata::resource_version) {
        None => Call::create(object.clone()),
        Some(version) => {
            let mut object = object.clone();
            let _ = object.set(["metadata", "resourceVersion"], version);
            Call::update(object)
        }
    }
}

/// The policies that are registered once the configurations are written. The API server asks about no kind that it does
/// not serve.
pub fn registered(stored: &Registry, kinds: &Kinds) -> RegisteredPolicies {
    let whole = |compiled: &Policy| compiled.unserved_kinds(kinds).is_empty();
    let sound = stored.policies.iter().filter(|policy| policy.compiled.as_deref().is_ok_and(whole));
    sound
        .map(|policy| {
            let generation = policy.object.get_path(["metadata", "generation"]);
            let uid = metadata::uid(&policy.object).unwrap_or_default();
            (policy.id.clone(), (uid.into(), generation.and_then(Value::as_i64).unwrap_or(0)))
        })
        .collect()
}
