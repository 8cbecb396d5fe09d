//! The entries of the global context: what they hold, and what their status says.

use kiln_cluster::{ApiError, Call, ObjectPatch, Reason};
use kiln_engine::{CachedGlobal, GlobalEntry, GlobalSource, Globals};
use kiln_object::{Kind, Kinds, ObjectId, metadata};
use kiln_value::{Map, Str, Value, value};

use crate::api::{Api, get};
use crate::calls::{carry_out, list_all};
use crate::policy_store::Registry;
use crate::status::{covers, rfc3339, timed};

/// What is said of an entry of which nothing is known.
pub const NOTHING_YET: &str = "not loaded yet";

/// What an entry holds right now.
///
/// # Errors
/// Why it cannot be had.
pub async fn value_now<A: Api>(
    client: &A,
    kinds: &Kinds,
    written: &GlobalEntry,
) -> Result<CachedGlobal, String> {
    let value = match &written.source {
        GlobalSource::Answer { path, .. } => get(client, path).await,
        GlobalSource::Objects { group, version, resource, namespace } => {
            let gvk = kinds.by_resource(group, version, resource).map(Kind::gvk);
            let gvk = gvk.ok_or_else(|| unknown(group, version, resource))?;
            let listed = list_all(client, kinds, &gvk, namespace, "").await;
            listed.map(|listing| Value::from_iter(listing.objects))
        }
    };
    CachedGlobal::of(value.map_err(|error| error.to_string())?, &written.projections)
}

/// What is said of a resource that is not served.
pub fn unknown(group: &str, version: &str, resource: &str) -> String {
    format!("the cluster has no resource {resource:?} in {group}/{version}")
}

/// Whether something was heard of every entry that is stored, be it only why it cannot be had.
pub fn are_read(stored: &Registry, globals: &Globals) -> bool {
    stored.globals.iter().all(|entry| globals.entry(&name_of(entry)).is_some_and(is_known))
}

fn is_known(held: &Result<CachedGlobal, String>) -> bool {
    held.as_ref().err().is_none_or(|why| why != NOTHING_YET)
}

/// What an entry is called in rules.
pub fn name_of(entry: &Value) -> Str {
    metadata::name(entry).unwrap_or_default().into()
}

/// What changes when an entry says something else.
pub fn life_of(entry: &Value) -> String {
    let generation = entry.get_path(["metadata", "generation"]);
    format!("{} {generation:?}", metadata::uid(entry).unwrap_or_default())
}

/// Writes the status of an entry.
///
/// # Errors
/// When the server refuses it.
pub async fn say<A: Api>(
    api: &A,
    kinds: &Kinds,
    entry: &Value,
    problem: Option<&String>,
) -> Result<(), ApiError> {
    let Ok(id) = ObjectId::of(entry) else { return Ok(()) };
    let asks = entry.get_path(["spec", "apiCall"]).is_some();
    let status = status(problem.map(String::as_str));
    let there = entry.get("status").unwrap_or(&Value::Null);
    let refreshed = asks && problem.is_none();
    if covers(there, &status) && !refreshed {
        return Ok(());
    }
    let mut status = timed(entry, status, api.now());
    if refreshed && let Some(map) = status.as_map_mut() {
        map.insert("lastRefreshTime", rfc3339(api.now()));
    }
    let patch = ObjectPatch::Merge(value!({"status": status}));
    let call = Call::Patch { target: id, patch, subresource: "status".into() };
    match carry_out(api, kinds, &call).await {
        Err(error) if error.reason != Reason::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn status(problem: Option<&str>) -> Value {
    let (word, reason, message) = match problem {
        None => ("True", "Succeeded", "Ready"),
        Some(why) => ("False", "Failed", why),
    };
    let mut condition = Map::new();
    condition.insert("type", "Ready");
    condition.insert("status", word);
    condition.insert("reason", reason);
    condition.insert("message", message);
    value!({"ready": problem.is_none(), "conditions": [Value::Map(condition)]})
}
