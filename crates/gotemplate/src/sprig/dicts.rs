//! Maps. `set`, `unset` and `merge` change the map they are given, as in Go.

use kiln_value::Str;

use super::convert::{is_empty, text_of};
use crate::error::Refusal;
use crate::format::{MAX_DEPTH, too_deep};
use crate::functions::ParameterType::{Any, Map as MapType, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, key, map, text};
use crate::value::{Dyn, Map};

pub(super) const TABLE: &[TemplateFunction] = &[
    function("dict", &[], Some(Any), dict, "a map of keys and values"),
    function("dig", &[], Some(Any), dig, "what lies under keys in maps, or a default"),
    function("get", &[MapType, Text], None, get, "the value under a key, or an empty text"),
    function("hasKey", &[MapType, Text], None, has_key, "whether a map has a key"),
    function("keys", &[], Some(MapType), keys, "the keys of maps"),
    function("merge", &[MapType], Some(MapType), merge, "fills the first map from the others"),
    function(
        "mergeOverwrite",
        &[MapType],
        Some(MapType),
        overwrite,
        "writes the others over the first map",
    ),
    function("mustMerge", &[MapType], Some(MapType), merge, "fills the first map from the others"),
    function(
        "mustMergeOverwrite",
        &[MapType],
        Some(MapType),
        overwrite,
        "writes the others over the first map",
    ),
    function("omit", &[MapType], Some(Text), omit, "a map without these keys"),
    function("pick", &[MapType], Some(Text), pick, "a map of these keys only"),
    function("pluck", &[Text], Some(MapType), pluck, "the values under a key in several maps"),
    function("set", &[MapType, Text, Any], None, set, "sets a key of a map"),
    function("unset", &[MapType, Text], None, unset, "removes a key of a map"),
    function("values", &[MapType], None, values, "the values of a map"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

fn dict(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    call.meter.make(a.len() as u64 * 32)?;
    let mut entries = Vec::with_capacity(a.len() / 2 + 1);
    for pair in a.chunks(2) {
        let value = pair.get(1).cloned().unwrap_or_else(|| "".into());
        entries.push((text_of(&pair[0], call.meter)?.into_text(), value));
    }
    Ok(Dyn::map(entries))
}

fn get(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(map(a, 0).get(text(a, 1)).unwrap_or_else(|| "".into()))
}

fn has_key(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(map(a, 0).contains(text(a, 1)).into())
}

fn set(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let Dyn::Map(target) = any(a, 0) else {
        return Err("assignment to entry in nil map".into());
    };
    insert(call, target, key(text(a, 1)), any(a, 2).clone())?;
    Ok(Dyn::Map(target.clone()))
}

fn unset(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let target = map(a, 0);
    target.remove(text(a, 1));
    Ok(Dyn::Map(target))
}

/// Sets a key, unless the value holds the map: nothing could print such a map.
fn insert(call: &FunctionCall<'_>, target: &Map, key: Str, value: Dyn) -> Result<()> {
    let mut pending = vec![value.clone()];
    while let Some(part) = pending.pop() {
        call.meter.step(1)?;
        match part {
            Dyn::Map(map) if map.same(target) => {
                return Err(Refusal::Refused(
                    "a map cannot hold itself".into(),
                    "put a deepCopy of it there",
                ));
            }
            Dyn::Map(map) => pending.extend(map.entries().into_iter().map(|(_, value)| value)),
            Dyn::List(list) => pending.extend(list.items().iter().cloned()),
            _ => {}
        }
    }
    call.meter.make(32 + key.len() as u64)?;
    target.insert(key, value);
    Ok(())
}

fn keys(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut all = Vec::new();
    for at in 0..a.len() {
        let keys = map(a, at).keys();
        call.meter.make(keys.len() as u64 * 16)?;
        all.extend(keys);
    }
    Ok(Dyn::texts(all))
}

fn values(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let entries = map(a, 0).entries();
    call.meter.make(entries.len() as u64 * 16)?;
    Ok(Dyn::list(entries.into_iter().map(|(_, value)| value).collect()))
}

fn pick(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let source = map(a, 0);
    call.meter.make(a.len() as u64 * 32)?;
    let names = (1..a.len()).map(|at| text(a, at));
    Ok(Dyn::map(names.filter_map(|name| Some((key(name), source.get(name)?)))))
}

fn omit(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let entries = map(a, 0).entries();
    call.meter.make(entries.len() as u64 * 32)?;
    call.meter.step((entries.len() * a.len()) as u64 / 8)?;
    let omitted = |name: &Str| (1..a.len()).any(|at| text(a, at) == name);
    Ok(Dyn::map(entries.into_iter().filter(|(name, _)| !omitted(name))))
}

fn pluck(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let found = (1..a.len()).filter_map(|at| map(a, at).get(text(a, 0)));
    Ok(Dyn::list(found.collect()))
}

fn dig(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let [path @ .., otherwise, root] = a else {
        return Err("dig needs at least three arguments".into());
    };
    if path.is_empty() {
        return Err("dig needs at least three arguments".into());
    }
    let mut at = root.clone();
    for step in path {
        let Some(map) = (match &at {
            Dyn::Map(map) if map.named.is_none() => Some(map),
            _ => None,
        }) else {
            let found = if at.is_nil() { "nil" } else { at.type_name() };
            return Err(format!(
                "interface conversion: interface {{}} is {found}, not map[string]interface {{}}"
            )
            .into());
        };
        let Dyn::Text(name) = step else {
            let found = step.type_name();
            return Err(
                format!("interface conversion: interface {{}} is {found}, not string").into()
            );
        };
        match map.get(name) {
            Some(found) => at = found,
            None => return Ok(otherwise.clone()),
        }
    }
    Ok(at)
}

/// What a merge does to what is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Overwrite {
    /// Keeps it, unless it is empty.
    Never,
    /// Replaces it, but not by a map if it is not one: the library that sprig 3.2 uses.
    ButForMaps,
    /// Replaces it: the library that sprig 3.3 uses.
    Always,
}

fn merge(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    merged(call, a, Overwrite::Never)
}

fn overwrite(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    merged(call, a, Overwrite::ButForMaps)
}

/// As Helm's sprig has it.
pub(crate) fn overwrite_all(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    merged(call, a, Overwrite::Always)
}

fn merged(call: &FunctionCall<'_>, a: &[Dyn], overwrite: Overwrite) -> Result {
    let target = map(a, 0);
    for at in 1..a.len() {
        merge_into(call, &target, &map(a, at), overwrite, 0)?;
    }
    Ok(Dyn::Map(target))
}

fn merge_into(
    call: &FunctionCall<'_>,
    target: &Map,
    source: &Map,
    overwrite: Overwrite,
    depth: usize,
) -> Result<()> {
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if target.same(source) {
        return Ok(());
    }
    for (name, value) in source.entries() {
        call.meter.step(1)?;
        match (target.get(&name), &value) {
            (_, Dyn::Nil | Dyn::Missing) if overwrite == Overwrite::Never => {}
            (Some(Dyn::Map(inner)), Dyn::Map(from)) => {
                merge_into(call, &inner, from, overwrite, depth + 1)?;
            }
            // A map does not even overwrite what is not a map.
            (Some(present), Dyn::Map(_))
                if overwrite == Overwrite::ButForMaps && !is_empty(&present) => {}
            (Some(present), _) if overwrite == Overwrite::Never && !is_empty(&present) => {}
            _ => insert(call, target, name, value)?,
        }
    }
    Ok(())
}
