//! Keeps what the entries of the global context hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use kiln_engine::{CachedGlobal, GlobalEntry, GlobalSource, Globals};
use kiln_object::Kind;
use kiln_replica::api::get;
use kiln_replica::globals::{life_of, name_of, say, unknown, value_now};
use kiln_replica::watch_news::Subject;
use kiln_value::{Str, Value};

use super::telling::run_now;
use crate::around::{Around, Seen, Timers};
use crate::connection::now_or_never;
use crate::follower::{FollowNews, Follower};

/// How long to wait before something is asked for again that could not be had.
const AGAIN: u64 = 2_000;
/// How often an entry asks if it does not say.
const USUAL: u64 = 600_000;

/// The global context.
#[derive(Debug, Default)]
pub(crate) struct GlobalsPart {
    registry: Seen,
    kinds: Seen,
    entries: BTreeMap<Str, Entry>,
    held: Globals,
}

#[derive(Debug)]
struct Entry {
    object: Value,
    life: String,
    written: Result<GlobalEntry, String>,
    follower: Option<Follower>,
    /// When it is read again.
    next: Option<u64>,
}

impl GlobalsPart {
    pub(crate) fn run(&mut self, around: &mut Around) -> bool {
        let mut progress = false;
        let kinds_changed = self.kinds.renew(&around.knowledge.kinds);
        if self.registry.renew(&around.knowledge.registry) {
            progress |= self.take_entries(&around.knowledge.registry.get().globals);
        }
        let now = around.now();
        let mut due = Vec::new();
        for (name, entry) in &mut self.entries {
            let (connection, kinds) = (&around.connections.admission, around.knowledge.kinds.get());
            if entry.follower.is_none()
                && let Ok(GlobalEntry {
                    source: GlobalSource::Objects { group, version, resource, namespace },
                    ..
                }) = &entry.written
                && let Some(gvk) = kinds.by_resource(group, version, resource).map(Kind::gvk)
            {
                let namespace = namespace.to_string();
                entry.follower = Some(Follower::new(Subject { namespace, ..Subject::all(gvk) }));
            }
            let news = entry.follower.as_mut().map(|follower| follower.poll(connection, kinds));
            let told = news.is_some_and(|news| {
                news.iter().any(|one| !matches!(one, FollowNews::Unreadable(_)))
            });
            let lacks = kinds_changed && entry.follower.is_none();
            if told || lacks || entry.next.is_some_and(|at| at <= now) {
                due.push(name.clone());
            }
        }
        for name in due {
            progress |= self.read(around, &name);
        }
        if progress {
            around.knowledge.globals.set(Arc::new(self.held.clone()));
        }
        progress
    }

    /// Takes over which entries are stored; whether they are others than before.
    fn take_entries(&mut self, stored: &[Value]) -> bool {
        let mut changed = false;
        let lives: BTreeMap<Str, String> =
            stored.iter().map(|entry| (name_of(entry), life_of(entry))).collect();
        let held = &mut self.held;
        self.entries.retain(|name, entry| {
            let stays = lives.get(name) == Some(&entry.life);
            if !stays {
                held.remove(name);
                changed = true;
            }
            stays
        });
        for object in stored {
            let name = name_of(object);
            if let Some(entry) = self.entries.get_mut(&name) {
                entry.object = object.clone();
                continue;
            }
            changed = true;
            let written = GlobalEntry::read(object);
            let entry = Entry {
                object: object.clone(),
                life: life_of(object),
                written,
                follower: None,
                next: Some(0),
            };
            self.entries.insert(name, entry);
        }
        changed
    }

    /// Reads what an entry holds; whether that is something else than before.
    fn read(&mut self, around: &Around, name: &Str) -> bool {
        let Some(entry) = self.entries.get_mut(name) else { return false };
        let (connection, kinds) = (&around.connections.admission, around.knowledge.kinds.get());
        let now = around.now();
        entry.next = None;
        let read: Result<CachedGlobal, String> = match &entry.written {
            Err(why) => Err(why.clone()),
            Ok(written) => match &written.source {
                GlobalSource::Answer { path, every } => {
                    let answer = now_or_never(get(connection, path));
                    let pause = every
                        .map_or(USUAL, |every| u64::try_from(every.as_millis()).unwrap_or(USUAL));
                    entry.next = Some(now + if answer.is_ok() { pause.max(AGAIN) } else { AGAIN });
                    answer
                        .map_err(|error| error.to_string())
                        .and_then(|answer| CachedGlobal::of(answer, &written.projections))
                }
                GlobalSource::Objects { group, version, resource, .. } => {
                    match kinds.by_resource(group, version, resource) {
                        Some(_) => {
                            run_now(async { Some(value_now(connection, kinds, written).await) })
                                .unwrap_or_else(|| {
                                    Err("an answer of the world is missing".to_owned())
                                })
                        }
                        None => Err(unknown(group, version, resource)),
                    }
                }
            },
        };
        let known = self.held.entry(name);
        // What was had stays while it cannot be had anew.
        if read.is_err() && known.is_some_and(Result::is_ok) {
            return false;
        }
        let _ = now_or_never(say(connection, kinds, &entry.object, read.as_ref().err()));
        self.held.insert(name.clone(), read);
        true
    }

    pub(crate) fn timers(&self) -> Timers {
        let follows = self.entries.values().filter_map(|entry| entry.follower.as_ref());
        let again = follows.filter_map(Follower::next_time).min();
        let next = self.entries.values().filter_map(|entry| entry.next).min();
        Timers { work: next, routine: again }
    }
}
