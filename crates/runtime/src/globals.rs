//! The global context: what GlobalContextEntries hold, kept up to date for all rules.
//!
//! An entry of a resource follows its objects; an entry of a call asks the API server again and again. What
//! an entry held stays while it cannot be had anew. Services outside the cluster are not asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_cluster::{ApiError, Call, ObjectPatch, Reason};
use kiln_engine::{CachedGlobal, GlobalEntry, GlobalSource, Globals};
use kiln_object::{Gvk, Kind, Kinds, ObjectId, metadata};
use kiln_value::{Map, Str, Value, value};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::calls::{carry_out, list_all};
use crate::client::Client;
use crate::policy_store::{News, Registry, follow, global_kinds};
use crate::state::AppState;
use crate::status::{covers, rfc3339, timed};
use crate::supervisor::pass_on;
use crate::watch::{Subject, Watcher};

/// How long to wait before something is asked for again that could not be had.
const AGAIN: Duration = Duration::from_secs(2);
/// Changes that come together are one.
const TOGETHER: Duration = Duration::from_millis(100);
/// What is said of an entry of which nothing is known.
const NOTHING_YET: &str = "not loaded yet";
/// How often an entry asks if it does not say.
const USUAL: Duration = Duration::from_secs(600);

/// What the entries hold, read once: for commands that do not follow them.
pub(crate) async fn read_once(
    client: &Client,
    kinds: &Kinds,
    kyverno: bool,
) -> Result<Globals, ApiError> {
    let mut globals = Globals::default();
    let mut entries = Vec::new();
    for kind in global_kinds(kyverno).into_iter().filter(|kind| kinds.get(kind).is_some()) {
        entries.extend(list_all(client, kinds, &kind, "", "").await?.objects);
    }
    for entry in entries {
        let held = match GlobalEntry::read(&entry) {
            Ok(written) => value_now(client, kinds, &written).await,
            Err(why) => Err(why),
        };
        globals.insert(name_of(&entry), held);
    }
    Ok(globals)
}

async fn value_now(
    client: &Client,
    kinds: &Kinds,
    written: &GlobalEntry,
) -> Result<CachedGlobal, String> {
    let value = match &written.source {
        GlobalSource::Answer { path, .. } => client.get(path).await,
        GlobalSource::Objects { group, version, resource, namespace } => {
            let gvk = kinds.by_resource(group, version, resource).map(Kind::gvk);
            let gvk = gvk.ok_or_else(|| unknown(group, version, resource))?;
            let listed = list_all(client, kinds, &gvk, namespace, "").await;
            listed.map(|listing| Value::from_iter(listing.objects))
        }
    };
    CachedGlobal::of(value.map_err(|error| error.to_string())?, &written.projections)
}

fn unknown(group: &str, version: &str, resource: &str) -> String {
    format!("the cluster has no resource {resource:?} in {group}/{version}")
}

/// How long to wait before an answer is asked for again.
fn pause(every: Option<Duration>) -> Duration {
    // Asking without a pause does not help.
    every.unwrap_or(USUAL).max(AGAIN)
}

/// What came of an entry: its life, and what it holds.
type Came = (Str, String, Result<CachedGlobal, String>);

/// Keeps the global context as the entries say, until the process is to end.
pub(crate) async fn keep(shared: AppState, watcher: Watcher) {
    let (came, mut told) = mpsc::channel::<Came>(64);
    let mut registry = shared.registry.clone();
    let mut shutdown = shared.shutdown.clone();
    let mut running: BTreeMap<Str, (String, AbortHandle)> = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    let mut globals = Globals::default();
    // A restarted part goes on with what was read before.
    let mut before = Some(shared.globals.borrow().clone());
    loop {
        let stored = registry.borrow_and_update().clone();
        let entries: BTreeMap<Str, Value> =
            stored.globals.iter().map(|entry| (name_of(entry), entry.clone())).collect();
        let mut changed = false;
        running.retain(|name, (life, task)| {
            let stays = entries.get(name).is_some_and(|entry| life_of(entry) == *life);
            if !stays {
                task.abort();
                globals.remove(name);
                changed = true;
            }
            stays
        });
        for (name, entry) in &entries {
            if running.contains_key(name) {
                continue;
            }
            let life = life_of(entry);
            let purpose = Str::from(format!("global context: {name}"));
            let task = tasks.spawn(follow_entry(
                Watcher { purpose, ..watcher.clone() },
                name.clone(),
                life.clone(),
                GlobalEntry::read(entry),
                came.clone(),
            ));
            running.insert(name.clone(), (life, task));
            let held = before.as_ref().and_then(|before| before.entry(name).cloned());
            globals.insert(name.clone(), held.unwrap_or_else(|| Err(NOTHING_YET.to_owned())));
            changed = true;
        }
        before = None;
        if changed {
            shared.globals.send_replace(Arc::new(globals.clone()));
        }
        loop {
            tokio::select! {
                changed = registry.changed() => match changed {
                    Ok(()) => break,
                    Err(_) => return,
                },
                Some((name, life, held)) = told.recv() => {
                    let Some(entry) = entries.get(&name).filter(|entry| life_of(entry) == life)
                    else {
                        continue;
                    };
                    say(&shared, &watcher.client, entry, held.as_ref().err()).await;
                    globals.insert(name, held);
                    shared.globals.send_replace(Arc::new(globals.clone()));
                }
                Some(ended) = tasks.join_next() => drop(pass_on(ended)),
                _ = shutdown.changed() => return,
            }
        }
    }
}

/// Whether something was heard of every entry that is stored, be it only why it cannot be had.
pub(crate) fn are_read(stored: &Registry, globals: &Globals) -> bool {
    stored.globals.iter().all(|entry| globals.entry(&name_of(entry)).is_some_and(is_known))
}

fn is_known(held: &Result<CachedGlobal, String>) -> bool {
    held.as_ref().err().is_none_or(|why| why != NOTHING_YET)
}

fn name_of(entry: &Value) -> Str {
    metadata::name(entry).unwrap_or_default().into()
}

/// What changes when an entry says something else.
fn life_of(entry: &Value) -> String {
    let generation = entry.get_path(["metadata", "generation"]);
    format!("{} {generation:?}", metadata::uid(entry).unwrap_or_default())
}

/// Tells what an entry holds, whenever that changes.
async fn follow_entry(
    watcher: Watcher,
    name: Str,
    life: String,
    written: Result<GlobalEntry, String>,
    came: mpsc::Sender<Came>,
) {
    let told = |held| came.send((name.clone(), life.clone(), held));
    let written = match written {
        Ok(written) => written,
        Err(why) => return drop(told(Err(why)).await),
    };
    match &written.source {
        GlobalSource::Answer { path, every } => {
            let mut known = false;
            loop {
                let (held, wait) = match watcher.client.get(path).await {
                    Ok(answer) => (CachedGlobal::of(answer, &written.projections), pause(*every)),
                    Err(error) => (Err(error.to_string()), AGAIN),
                };
                // What was had stays while it cannot be had anew.
                if held.is_ok() || !known {
                    known |= held.is_ok();
                    if told(held).await.is_err() {
                        return;
                    }
                }
                tokio::time::sleep(wait).await;
            }
        }
        GlobalSource::Objects { group, version, resource, namespace } => {
            let mut kinds = watcher.kinds.clone();
            let gvk: Gvk = loop {
                let found =
                    kinds.borrow_and_update().by_resource(group, version, resource).map(Kind::gvk);
                match found {
                    Some(gvk) => break gvk,
                    None => {
                        let why = unknown(group, version, resource);
                        if told(Err(why)).await.is_err() || kinds.changed().await.is_err() {
                            return;
                        }
                    }
                }
            };
            let fields = String::new();
            let subject = Subject { namespace: namespace.to_string(), fields, ..Subject::all(gvk) };
            let (news, mut read) = mpsc::channel(256);
            let following = follow(watcher.clone(), 0, subject, news);
            let telling = async {
                let mut objects = BTreeMap::new();
                let mut known = false;
                while let Some(first) = read.recv().await {
                    if let News::Unreadable(why) = first {
                        // What was had stays while it cannot be had anew.
                        if !known && told(Err(why)).await.is_err() {
                            return;
                        }
                        continue;
                    }
                    known = true;
                    first.take_into(&mut objects);
                    tokio::time::sleep(TOGETHER).await;
                    while let Ok(more) = read.try_recv() {
                        more.take_into(&mut objects);
                    }
                    let all = Value::from_iter(objects.values().cloned());
                    if told(CachedGlobal::of(all, &written.projections)).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! { () = following => {}, () = telling => {} }
        }
    }
}

/// Writes the status of an entry.
async fn say(shared: &AppState, client: &Client, entry: &Value, problem: Option<&String>) {
    let Ok(id) = ObjectId::of(entry) else { return };
    let asks = entry.get_path(["spec", "apiCall"]).is_some();
    let status = status(problem.map(String::as_str));
    let there = entry.get("status").unwrap_or(&Value::Null);
    let refreshed = asks && problem.is_none();
    if covers(there, &status) && !refreshed {
        return;
    }
    let mut status = timed(entry, status);
    if refreshed && let Some(map) = status.as_map_mut() {
        map.insert("lastRefreshTime", rfc3339());
    }
    let patch = ObjectPatch::Merge(value!({"status": status}));
    let call = Call::Patch { target: id.clone(), patch, subresource: "status".into() };
    let kinds = shared.kinds.borrow().clone();
    if let Err(error) = carry_out(client, &kinds, &call).await
        && error.reason != Reason::NotFound
    {
        tracing::debug!(entry = %id, %error, "cannot write the status");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_pause_between_calls() {
        for (written, wanted) in [
            (None, USUAL),
            (Some(Duration::from_millis(1)), AGAIN),
            (Some(Duration::from_secs(60)), Duration::from_secs(60)),
        ] {
            assert_eq!(pause(written), wanted);
        }
    }
}
