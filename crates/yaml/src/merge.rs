//! Merge keys: `<<` with a map, an alias of a map, or a list of those.

use std::collections::HashMap;

use kiln_value::{Key, Value};

use crate::compose::ComposedEntry;
use crate::events::event::Scalar;
use crate::options::ScalarTable;
use crate::span::Track;

/// The maps that one `<<` brings in.
pub(crate) struct Merge<T> {
    /// How many entries of the map stand before the `<<`.
    after: usize,
    /// The entries of each map, strongest last.
    maps: Vec<Vec<ComposedEntry<T>>>,
}

/// Whether a key `<<` asks for a merge, rather than being text of that form.
pub(crate) fn is_merge_key(scalar: &Scalar<'_>, table: ScalarTable) -> bool {
    match scalar.properties.tag.as_deref() {
        None => scalar.is_plain(),
        // go-yaml v2: even in quotes.
        Some("!") => scalar.is_plain() || table == ScalarTable::V2,
        Some(tag) => tag == "tag:yaml.org,2002:merge",
    }
}

impl<T: Track> Merge<T> {
    /// What the value of a `<<` brings in.
    pub(crate) fn new(
        value: &Value,
        track: &T,
        after: usize,
        list: bool,
    ) -> Result<Self, &'static str> {
        const WANTED: &str = "a merge needs a map or a list of maps";
        let maps = match value {
            Value::Map(_) => vec![entries_of(value, track).ok_or(WANTED)?],
            // An alias of a list is refused by go-yaml, too.
            Value::List(elements) if list => elements
                .iter()
                .enumerate()
                // go-yaml: earlier maps are stronger.
                .rev()
                .map(|(at, element)| entries_of(element, &track.element(at)).ok_or(WANTED))
                .collect::<Result<_, _>>()?,
            _ => return Err(WANTED),
        };
        Ok(Merge { after, maps })
    }
}

fn entries_of<T: Track>(value: &Value, track: &T) -> Option<Vec<ComposedEntry<T>>> {
    let map = value.as_map()?;
    let entry = |(at, (key, value)): (usize, (&Key, &Value))| {
        let (key_span, track) = track.entry(at);
        ComposedEntry { key: key.clone(), key_span, value: value.clone(), track, from_data: false }
    };
    Some(map.iter().enumerate().map(entry).collect())
}

/// Adds what the merges bring in to the map whose own entries begin at `first`.
///
/// go-yaml v3: the map's own keys always win. v2: keys before the `<<` lose to it.
pub(crate) fn apply<T: Track>(
    entries: &mut Vec<ComposedEntry<T>>,
    first: usize,
    merges: Vec<Merge<T>>,
    table: ScalarTable,
) {
    let own = entries.len() - first;
    let mut positions: HashMap<Key, usize> =
        entries[first..].iter().enumerate().map(|(at, entry)| (entry.key.clone(), at)).collect();
    for Merge { after, maps } in merges {
        for entry in maps.into_iter().flatten() {
            match positions.get(&entry.key) {
                Some(&at) if at < own && (table == ScalarTable::V3 || at >= after) => {}
                Some(&at) => entries[first + at] = entry,
                None => {
                    positions.insert(entry.key.clone(), entries.len() - first);
                    entries.push(entry);
                }
            }
        }
    }
}
