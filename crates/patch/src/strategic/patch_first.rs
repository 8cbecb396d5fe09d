//! Lists as kustomize (and so Kyverno) merges them.
//!
//! Elements are identified by the texts of one or several keys. With one key in use, the elements of
//! the patch come first, in its order, merged with those they match; with several, only new ones
//! come first and matched ones stay where they are.
//!
//! All that holds while every element has its keys and no two have the same. What happens
//! otherwise follows from how kustomize goes about it, step by step, and users rely on the
//! outcomes; [`ambiguous_keys`] therefore goes about it in the same steps.

use std::collections::{HashMap, HashSet};
use std::fmt::Write;

use kiln_schema::SchemaNode;
use kiln_value::{Key, List, Map, Str, Value};

use super::StrategicProblem;
use super::ambiguous_keys;
use super::directive::{Directive, PATCH};
use super::element::{is_nothing, key_text, scalar_text};
use super::error::Trail;
use super::merge::{Merge, MergeResult, is_container};

/// Where the second list of a merge comes from.
#[derive(Clone, Copy)]
pub(super) enum PatchedList<'p> {
    /// The patch does not mention the list.
    Untouched,
    /// The list comes from the patch alone and is merged with itself.
    Own,
    /// The list of the patch.
    List(&'p [Value]),
}

/// Merges a list of a patch into one of the object.
pub(super) fn merge<'s>(
    merge: Merge<'s>,
    object: List,
    patch: &List,
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Option<Value>> {
    match list_directive(patch).map_err(|problem| trail.error(problem))? {
        Some(Directive::Delete) => Ok(None),
        Some(Directive::Replace) => {
            let own = without_directive(patch, "replace");
            elements(merge, List::from(own), PatchedList::Own, node, trail).map(Some)
        }
        Some(Directive::Merge) => {
            let patch = without_directive(patch, "merge");
            elements(merge, object, PatchedList::List(&patch), node, trail).map(Some)
        }
        None => elements(merge, object, PatchedList::List(patch), node, trail).map(Some),
    }
}

/// A list inside a part of a patch that is merged with itself.
pub(super) fn own_list<'s>(
    merge: Merge<'s>,
    list: List,
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Option<Value>> {
    let directive = list_directive(&list).map_err(|problem| trail.error(problem))?;
    let list = match directive {
        Some(Directive::Delete) => return Ok(None),
        Some(Directive::Replace) => List::from(without_directive(&list, "replace")),
        Some(Directive::Merge) => List::from(without_directive(&list, "merge")),
        None => list,
    };
    own_elements(merge, list, node, trail).map(Some)
}

/// The elements of a list that comes from the patch alone.
pub(super) fn own_elements<'s>(
    merge: Merge<'s>,
    list: List,
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Value> {
    elements(merge, list, PatchedList::Own, node, trail)
}

/// What an element with nothing but `$patch` says about its list.
fn list_directive(list: &[Value]) -> Result<Option<Directive>, StrategicProblem> {
    let said = list.iter().find_map(|element| Some((element.as_map()?, element.get(PATCH)?)));
    match said {
        Some((element, said)) if element.len() == 1 => Directive::parse(said).map(Some),
        _ => Ok(None),
    }
}

fn without_directive(list: &[Value], said: &str) -> Vec<Value> {
    let kept = list.iter().filter(|element| {
        !is_nothing(element) && element.get(PATCH).and_then(Value::as_str) != Some(said)
    });
    kept.cloned().collect()
}

/// Removes duplicates and empty elements from lists that the patch does not mention, wherever they are below these
/// fields.
pub(super) fn tidy_fields<'s>(
    merge: Merge<'s>,
    object: &mut Map,
    patch: Option<&Map>,
    node: Option<SchemaNode<'s>>,
    trail: &Trail<'_>,
) -> MergeResult<()> {
    let untouched = |key: &str| patch.is_none_or(|patch| !patch.contains_key(key));
    // Where the schema knows the type, only fields with nodes can hold such lists.
    let mut changed: Vec<(Key, Value)> = Vec::new();
    for (key, value) in object.iter() {
        if !is_container(value) || !untouched(key) {
            continue;
        }
        let child = match node {
            Some(node) => match node.field(key) {
                Some(child) => Some(child),
                None => continue,
            },
            None => None,
        };
        let tidied = tidy(merge, value, child, &trail.then(key))?;
        if !tidied.same(value) {
            changed.push((key.clone(), tidied));
        }
    }
    for (key, tidied) in changed {
        object.insert(key, tidied);
    }
    Ok(())
}

/// A value that the patch does not mention, corrected; the same one if nothing was wrong.
pub(super) fn tidy<'s>(
    merge: Merge<'s>,
    value: &Value,
    node: Option<SchemaNode<'s>>,
    trail: &Trail<'_>,
) -> MergeResult<Value> {
    let node = merge.node_of([value], node);
    match value {
        Value::Map(map) => {
            let mut map = map.clone();
            tidy_fields(merge, &mut map, None, node, trail)?;
            Ok(Value::Map(map))
        }
        Value::List(list) => match node.filter(|node| node.patch_strategy().merges()) {
            Some(node) => elements(merge, list.clone(), PatchedList::Untouched, node, trail),
            None => Ok(value.clone()),
        },
        scalar => Ok(scalar.clone()),
    }
}

fn elements<'s>(
    merge: Merge<'s>,
    list: List,
    patch: PatchedList<'_>,
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Value> {
    let keys = node.element_keys();
    if keys.is_empty() {
        return scalars(list, patch, trail);
    }
    let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
    let other = match patch {
        PatchedList::List(patch) => patch,
        PatchedList::Own | PatchedList::Untouched => &[],
    };
    // A key that no element has is not in use: ports are identified by `containerPort` and `protocol`, and most files
    // leave `protocol` out. Counting it would make every such list ambiguous.
    let used: Vec<&str> = keys
        .iter()
        .copied()
        .filter(|key| list.iter().chain(other).any(|element| !key_text(element, key).is_empty()))
        .collect();
    // Both lists must be clear. If only one is, matching by identity would pair elements that kustomize pairs by its
    // walk over combinations, and the results differ in what is lost.
    match (places(&list, &used), places(other, &used)) {
        (Some(places), Some(_)) if !used.is_empty() => {
            clear(merge, list, patch, &used, &places, node, trail)
        }
        _ => ambiguous_keys::merge(merge, &list, patch, &keys, node, trail).map(Value::from),
    }
}

/// The places of elements by their identities; `None` unless every element has all keys and no two
/// have the same.
fn places(list: &[Value], keys: &[&str]) -> Option<HashMap<Str, usize>> {
    let mut places = HashMap::with_capacity(list.len());
    for (at, element) in list.iter().enumerate() {
        if places.insert(identity(element, keys)?, at).is_some() {
            return None;
        }
    }
    Some(places)
}

/// The texts of the keys of an element in one; `None` when it lacks one of them.
fn identity(element: &Value, keys: &[&str]) -> Option<Str> {
    if let [key] = keys {
        return Some(key_text(element, key)).filter(|text| !text.is_empty());
    }
    let mut all = String::new();
    for key in keys {
        let text = key_text(element, key);
        if text.is_empty() {
            return None;
        }
        // With their lengths, so that no two combinations look alike.
        let _ = write!(all, "{}:{text}", text.len());
    }
    Some(Str::from(all))
}

/// Merges lists whose elements can be identified.
///
/// It gives what [`ambiguous_keys`] gives for the same lists, in linear time: that walk is quadratic, and nearly all
/// lists are clear. Whatever changes here has to change there.
fn clear<'s>(
    merge: Merge<'s>,
    list: List,
    patch: PatchedList<'_>,
    used: &[&str],
    places: &HashMap<Str, usize>,
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Value> {
    let items = node.items();
    let patch = match patch {
        PatchedList::List(patch) => patch,
        PatchedList::Own | PatchedList::Untouched => {
            let mut result = list.clone();
            let mut removed = false;
            for (at, element) in list.iter().enumerate() {
                let trail = trail.then(at);
                let merged = match patch {
                    PatchedList::Own => merge.own_value(element.clone(), items, &trail)?,
                    _ => Some(tidy(merge, element, items, &trail)?),
                };
                let merged = merged.unwrap_or_default();
                removed |= is_nothing(&merged);
                if !merged.same(element) {
                    result.make_mut()[at] = merged;
                }
            }
            if removed {
                result.make_mut().retain(|element| !is_nothing(element));
            }
            return Ok(Value::List(result));
        }
    };
    let mut rest: Vec<Option<Value>> = Vec::with_capacity(list.len());
    let mut named = HashMap::new();
    for (position, element) in patch.iter().enumerate() {
        if let Some(&at) = identity(element, used).and_then(|identity| places.get(&identity)) {
            named.insert(at, position);
        }
    }
    let mut matched: Vec<Option<Value>> = vec![None; patch.len()];
    for (at, element) in list.into_vec().into_iter().enumerate() {
        let trail = trail.then(at);
        let Some(&position) = named.get(&at) else {
            let tidied = tidy(merge, &element, items, &trail)?;
            rest.push(Some(tidied));
            continue;
        };
        let merged = match Directive::of(patch[position].as_map().unwrap_or(&Map::new())) {
            // kustomize: the object's own element comes back after the replacing one was put in.
            Ok(Some(Directive::Replace)) => Some(element),
            _ => merge.value(element, &patch[position], items, &trail)?,
        };
        let merged = merged.filter(|merged| !is_nothing(merged));
        // kustomize: with one key the patch decides the order, with several the object does. It is an accident of its
        // walk, and the bytes of many builds depend on it.
        if used.len() > 1 {
            rest.push(merged);
        } else {
            matched[position] = merged;
        }
    }
    let places: HashSet<usize> = named.into_values().collect();
    let mut result = Vec::with_capacity(patch.len() + rest.len());
    for (position, element) in patch.iter().enumerate() {
        if places.contains(&position) {
            result.extend(matched[position].take());
        } else {
            let new = merge.new_value(element, items, &trail.then(position))?;
            result.extend(new.filter(|new| !is_nothing(new)));
        }
    }
    result.extend(rest.into_iter().flatten());
    Ok(Value::from(result))
}

/// Lists of scalars: each text once, those of the patch first.
fn scalars(list: List, patch: PatchedList<'_>, trail: &Trail<'_>) -> MergeResult<Value> {
    let other = match patch {
        PatchedList::List(patch) => patch,
        PatchedList::Own | PatchedList::Untouched => &[],
    };
    if list.is_empty() && other.is_empty() {
        return Ok(Value::List(list));
    }
    let mut places: HashMap<Str, usize> = HashMap::new();
    let mut result: Vec<Value> = Vec::new();
    let all = other.iter().map(|element| (element, false));
    for (element, from_object) in all.chain(list.iter().map(|element| (element, true))) {
        if element.is_null() {
            continue;
        }
        if is_container(element) {
            return Err(trail.error(StrategicProblem::MixedElements));
        }
        match places.get(&scalar_text(element)) {
            // The text is the same, the type may not be (`80` and `"80"`): the object's stays, at the patch's place.
            Some(&at) if from_object => result[at] = element.clone(),
            Some(_) => {}
            None => {
                places.insert(scalar_text(element), result.len());
                result.push(element.clone());
            }
        }
    }
    let unchanged = result.len() == list.len() && result.iter().zip(&list).all(|(a, b)| a == b);
    Ok(if unchanged { Value::List(list) } else { Value::from(result) })
}
