//! What etcd promises to those who watch, held against what a server told.
//!
//! Ordered: versions only grow. Unique: no change is told twice. Reliable: no change is left out, so that what was told
//! leads to what a list shows. Atomic: an event holds what the write with its version stored. Resumable: a watch from the
//! version of an event tells what came after it. Bookmarkable: nothing from before a bookmark follows it.

use std::collections::BTreeMap;

use kiln_value::{Value, json};

use super::history::{Action, Operation};
use super::trace::{Trace, WatchTrace, is_change, newest, version};

/// The promises that a server did not keep.
pub(super) fn broken(history: &[Operation], trace: &Trace) -> Vec<String> {
    let mut all = Vec::new();
    for watch in &trace.watches {
        let number = history[watch.step].number;
        let is_table = history[watch.step].accept.is_some();
        let problems = [
            ordered(trace, watch),
            if is_table { None } else { atomic(history, trace, watch) },
            if is_table { None } else { reliable(trace, watch) },
            resumable(watch),
            bookmarked(watch),
        ];
        let problems = problems.into_iter().flatten();
        all.extend(problems.map(|why| format!("watch {number}: {}", beginning(&why))));
    }
    for (operation, step) in history.iter().zip(&trace.steps) {
        let items = step.as_ref().and_then(|answer| answer.body.get("items")?.as_list());
        let Some(items) = items.filter(|_| operation.action == Action::Send("GET")) else {
            continue;
        };
        let places: Vec<[&str; 2]> = items
            .iter()
            .map(|item| {
                ["namespace", "name"]
                    .map(|field| item.str_at(["metadata", field]).unwrap_or_default())
            })
            .collect();
        if !places.is_sorted() {
            all.push(format!("list {}: not in the order of names: {places:?}", operation.number));
        }
    }
    all
}

/// As much as a reader looks at.
fn beginning(text: &str) -> String {
    const MOST: usize = 600;
    text.chars().take(MOST).collect()
}

fn objects(events: &[Value]) -> impl Iterator<Item = (&str, &Value)> {
    let told = events.iter().filter(|event| is_change(event));
    told.filter_map(|event| Some((event.str_at(["type"])?, event.get("object")?)))
}

/// The newest version of which the client knew when a watch began.
fn began_at(trace: &Trace, watch: &WatchTrace) -> u64 {
    newest(&trace.steps[..watch.step])
}

fn ordered(trace: &Trace, watch: &WatchTrace) -> Option<String> {
    let began = began_at(trace, watch);
    let all: Vec<(&str, u64)> =
        objects(&watch.events).map(|(kind, object)| (kind, version(object))).collect();
    let initial =
        all.iter().take_while(|(kind, version)| *kind == "ADDED" && *version <= began).count();
    // The objects that were there at the beginning come in any order, but each of them once.
    let mut first: Vec<u64> = all[..initial].iter().map(|(_, version)| *version).collect();
    first.sort_unstable();
    let later = &all[initial..];
    let grows = first.windows(2).all(|two| two[0] < two[1])
        && later.windows(2).all(|two| two[0].1 < two[1].1);
    (!grows).then(|| format!("versions do not grow: {all:?}"))
}

fn atomic(history: &[Operation], trace: &Trace, watch: &WatchTrace) -> Option<String> {
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(map) = object.as_map_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
        json::to_canonical_string(&object)
    };
    let uid = |object: &Value| object.str_at(["metadata", "uid"]).map(str::to_owned);
    for (kind, told) in objects(&watch.events).filter(|(kind, _)| *kind != "DELETED") {
        // A dry run shows what is not stored.
        let is_dry =
            |operation: &Operation| operation.query.iter().any(|(name, _)| *name == "dryRun");
        let steps = history.iter().zip(&trace.steps).filter(|(operation, _)| !is_dry(operation));
        let answers = steps.filter_map(|(_, step)| Some(&step.as_ref()?.body));
        let written = answers.filter(|body| {
            uid(body).is_some()
                && uid(body) == uid(told)
                && body.get("kind") == told.get("kind")
                && version(body) == version(told)
        });
        for written in written {
            if bare(written) != bare(told) {
                let (told, written) = (bare(told), bare(written));
                return Some(format!("{kind} tells {told}, and {written} was written"));
            }
        }
    }
    None
}

fn reliable(trace: &Trace, watch: &WatchTrace) -> Option<String> {
    let place = |object: &Value| {
        ["namespace", "name"]
            .map(|field| object.str_at(["metadata", field]).unwrap_or_default().to_owned())
    };
    let mut told = BTreeMap::new();
    for (kind, object) in objects(&watch.events) {
        told.insert(place(object), (kind != "DELETED").then(|| version(object)));
    }
    let items = watch.list.get("items")?.as_list()?;
    let listed: BTreeMap<_, u64> = items.iter().map(|item| (place(item), version(item))).collect();
    let began = began_at(trace, watch);
    let missed = listed
        .iter()
        .find(|(place, version)| **version > began && told.get(*place) != Some(&Some(**version)));
    if let Some((place, version)) = missed {
        return Some(format!("nothing tells of {place:?} at {version}"));
    }
    let ended = told.iter().find(|(place, version)| {
        version.is_some_and(|version| listed.get(*place) != Some(&version))
    });
    ended.map(|(place, version)| {
        format!("{place:?} was told at {version:?}, listed is {:?}", listed.get(place))
    })
}

fn resumable(watch: &WatchTrace) -> Option<String> {
    let (half, rest) = watch.resumed.as_ref()?;
    let shown = |events: &[Value]| events.iter().map(json::to_canonical_string).collect::<Vec<_>>();
    let (wanted, got) = (shown(&watch.events[*half..]), shown(rest));
    (wanted != got)
        .then(|| format!("after event {half} a second watch tells {got:?} instead of {wanted:?}"))
}

fn bookmarked(watch: &WatchTrace) -> Option<String> {
    let mut bookmark = 0;
    let mut newest = 0;
    for event in &watch.events {
        let at = version(event.get("object")?);
        if event.str_at(["type"]) == Some("BOOKMARK") {
            if at < newest {
                return Some(format!("a bookmark at {at} comes after an event at {newest}"));
            }
            bookmark = at;
        } else if is_change(event) {
            if at <= bookmark {
                return Some(format!("an event at {at} comes after a bookmark at {bookmark}"));
            }
            newest = newest.max(at);
        }
    }
    None
}
