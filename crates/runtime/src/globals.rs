//! The global context: what GlobalContextEntries hold, kept up to date for all rules.
//!
//! An entry of a resource follows its objects; an entry of a call asks the API server again and again. What
//! an entry held stays while it cannot be had anew. Services outside the cluster are not asked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kiln_cluster::ApiError;
use kiln_engine::{CachedGlobal, GlobalEntry, GlobalSource, Globals};
use kiln_object::{Gvk, Kind, Kinds};
use kiln_replica::globals::{NOTHING_YET, life_of, name_of, say, unknown, value_now};
use kiln_value::{Str, Value};
use tokio::sync::mpsc;
use tokio::task::AbortHandle;

use crate::calls::list_all;
use crate::client::Client;
use crate::policy_store::{News, follow, global_kinds};
use crate::state::AppState;
use crate::supervisor::pass_on;
use crate::watch::{Subject, Watcher};

/// How long to wait before something is asked for again that could not be had.
const AGAIN: Duration = Duration::from_secs(2);
/// Changes that come together are one.
const TOGETHER: Duration = Duration::from_millis(100);
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
                    let served = shared.kinds.borrow().clone();
                    let problem = held.as_ref().err();
                    if let Err(error) = say(&watcher.client, &served, entry, problem).await {
                        tracing::debug!(entry = %name, %error, "cannot write the status");
                    }
                    globals.insert(name, held);
                    shared.globals.send_replace(Arc::new(globals.clone()));
                }
                Some(ended) = tasks.join_next() => drop(pass_on(ended)),
                _ = shutdown.changed() => return,
            }
        }
    }
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
