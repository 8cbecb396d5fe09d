//! Lists as the API server merges them.
//!
//! Elements of the patch follow its own order (or that of `$setElementOrder`); live elements that the
//! patch does not name keep their order and go before the first named one that followed them in
//! the live list.

use std::collections::{HashMap, HashSet};

use kiln_schema::SchemaNode;
use kiln_value::{List, Map, Value};

use super::StrategicProblem;
use super::directive::{Directive, PATCH};
use super::element::{ElementKind, ScalarKey};
use super::error::Trail;
use super::merge::{Merge, MergeResult, drop_directives};

/// Merges the elements of a patch into those of the object.
pub(super) fn merge<'s>(
    merge: Merge<'s>,
    live: Vec<Value>,
    patch: &[Value],
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Vec<Value>> {
    let fail = |problem| trail.error(problem);
    let kind = ElementKind::of(live.iter().chain(patch)).map_err(fail)?;
    match kind {
        None => Ok(live),
        Some(ElementKind::Scalars) if node.merge_key().is_some() => {
            Err(fail(StrategicProblem::MixedElements))
        }
        Some(ElementKind::Scalars) => {
            let mut seen = HashSet::new();
            let both = live.iter().chain(patch).filter(|value| seen.insert(ScalarKey::of(value)));
            let merged = both.cloned().collect();
            order(merged, patch, &live, None).map_err(fail)
        }
        Some(ElementKind::Maps) => {
            let key = node.merge_key().ok_or_else(|| fail(StrategicProblem::NoKeyInSchema))?;
            let (live, plain) = follow_directives(live, patch, key).map_err(fail)?;
            let merged = merge_maps(merge, live.clone(), &plain, key, node.items(), trail)?;
            order(merged, &plain, &live, Some(key)).map_err(fail)
        }
    }
}

/// Takes the elements away that the patch deletes, or all of them if it replaces the list; gives the
/// live elements that are left and the elements of the patch that are not directives.
fn follow_directives(
    mut live: Vec<Value>,
    patch: &[Value],
    key: &str,
) -> Result<(Vec<Value>, Vec<Value>), StrategicProblem> {
    let (mut plain, mut delete, mut replace) = (Vec::new(), HashSet::new(), false);
    for (position, element) in patch.iter().enumerate() {
        let said = element.get(PATCH).map(Directive::parse).transpose()?;
        match said {
            None => plain.push(element.clone()),
            Some(Directive::Delete) => {
                delete.insert(ScalarKey::of_element(element, key, position)?);
            }
            Some(Directive::Replace) => replace = true,
            Some(Directive::Merge) => return Err(StrategicProblem::MergeDirective),
        }
    }
    if replace {
        return Ok((plain, Vec::new()));
    }
    if !delete.is_empty() {
        live.retain(|element| {
            element.get(key).and_then(ScalarKey::of).is_none_or(|found| !delete.contains(&found))
        });
    }
    Ok((live, plain))
}

fn merge_maps<'s>(
    merge: Merge<'s>,
    mut merged: Vec<Value>,
    patch: &[Value],
    key: &str,
    items: Option<SchemaNode<'s>>,
    trail: &Trail<'_>,
) -> MergeResult<Vec<Value>> {
    // Of elements with the same key the first one is patched.
    let mut places: HashMap<ScalarKey, usize> = HashMap::new();
    for (at, element) in merged.iter().enumerate() {
        if let Some(found) = element.get(key) {
            let found = ScalarKey::of(found).ok_or_else(|| {
                trail.then(at).error(StrategicProblem::MergeKeyNotScalar(key.to_owned()))
            })?;
            places.entry(found).or_insert(at);
        }
    }
    for (position, element) in patch.iter().enumerate() {
        let found = ScalarKey::of_element(element, key, position).map_err(|e| trail.error(e))?;
        match places.get(&found) {
            Some(&at) => {
                let old = std::mem::take(&mut merged[at]);
                let new = merge.value(old, element, items, &trail.then(at))?;
                // An element stays where it is even when nothing is left of it, since `places` has its index.
                merged[at] = new.unwrap_or_else(Value::map);
            }
            None => {
                places.insert(found, merged.len());
                merged.push(element.clone());
            }
        }
    }
    Ok(merged)
}

/// Puts merged elements into order. With a key they are maps, otherwise scalars.
fn order(
    merged: Vec<Value>,
    wanted: &[Value],
    live: &[Value],
    key: Option<&str>,
) -> Result<Vec<Value>, StrategicProblem> {
    let wanted = positions(wanted, key)?;
    let live = positions(live, key)?;
    let (mut named, mut others) = (Vec::new(), Vec::new());
    for (position, element) in merged.into_iter().enumerate() {
        let found = element_key(&element, key, position)?;
        if wanted.contains_key(&found) {
            named.push((found, element));
        } else {
            others.push((found, element));
        }
    }
    named.sort_by_key(|(found, _)| wanted[found]);
    sort_others(&mut others, &live);
    // A new element is not looked into; one that came with a `$patch: delete` goes last.
    named.sort_by_key(|(_, element)| deletes(element));
    others.sort_by_key(|(_, element)| deletes(element));
    let mut result = Vec::with_capacity(named.len() + others.len());
    let mut others = others.into_iter().peekable();
    for (found, element) in named {
        while let Some((other, _)) = others.peek()
            && let (Some(other), Some(here)) = (live.get(other), live.get(&found))
            && other < here
        {
            result.extend(others.next().map(|(_, element)| element));
        }
        result.push(element);
    }
    result.extend(others.map(|(_, element)| element));
    Ok(result)
}

/// Beyond this many, elements of unknown order are not moved one by one: that is quadratic, and patches come from users.
/// What is not in the live list then goes first, in the order of the patch.
const INSERTED: usize = 1_000;

/// Sorts the elements that the wanted order does not name as the live list has them.
fn sort_others(others: &mut [(ScalarKey, Value)], live: &HashMap<ScalarKey, usize>) {
    if others.len() > INSERTED || others.iter().all(|(key, _)| live.contains_key(key)) {
        others.sort_by_key(|(key, _)| live.get(key));
        return;
    }
    // The API server: an element that is not in the live list goes before any other, seen from
    // either side; so the outcome is that of sorting by insertion.
    for end in 1..others.len() {
        let mut at = end;
        while at > 0 {
            let (before, here) = (live.get(&others[at - 1].0), live.get(&others[at].0));
            if matches!((here, before), (Some(here), Some(before)) if here >= before) {
                break;
            }
            others.swap(at - 1, at);
            at -= 1;
        }
    }
}

fn element_key(
    element: &Value,
    key: Option<&str>,
    position: usize,
) -> Result<ScalarKey, StrategicProblem> {
    match key {
        Some(key) => ScalarKey::of_element(element, key, position),
        None => ScalarKey::of(element).ok_or(StrategicProblem::NoKeyInSchema),
    }
}

/// The first position of each element.
fn positions(
    elements: &[Value],
    key: Option<&str>,
) -> Result<HashMap<ScalarKey, usize>, StrategicProblem> {
    let mut positions = HashMap::with_capacity(elements.len());
    for (at, element) in elements.iter().enumerate() {
        positions.entry(element_key(element, key, at)?).or_insert(at);
    }
    Ok(positions)
}

/// Follows `$deleteFromPrimitiveList`.
pub(super) fn delete_elements<'s>(
    merge: Merge<'s>,
    live: &List,
    delete: &List,
    node: Option<SchemaNode<'s>>,
    trail: &Trail<'_>,
) -> MergeResult<Vec<Value>> {
    match ElementKind::of(live.iter().chain(delete)).map_err(|problem| trail.error(problem))? {
        None => Ok(live.to_vec()),
        Some(ElementKind::Scalars) => {
            let delete: HashSet<Option<ScalarKey>> = delete.iter().map(ScalarKey::of).collect();
            let left = live.iter().filter(|value| !delete.contains(&ScalarKey::of(value)));
            Ok(left.cloned().collect())
        }
        // The API server merges lists of maps here as if the directive were not there.
        Some(ElementKind::Maps) => match node {
            Some(node) => self::merge(merge, live.to_vec(), delete, node, trail),
            None => Err(trail.error(StrategicProblem::UnknownField)),
        },
    }
}

/// Follows `$setElementOrder`: merges the list of the patch, if there is one, and orders the result.
pub(super) fn set_order<'s>(
    merge: Merge<'s>,
    object: &mut Map,
    field: &str,
    wanted: &Value,
    patch: Option<&Value>,
    node: Option<SchemaNode<'s>>,
    trail: &Trail<'_>,
) -> MergeResult<()> {
    let fail = |problem| trail.error(problem);
    let list = |value: Option<&Value>| match value {
        None => Ok(None),
        Some(Value::List(list)) => Ok(Some(list.clone())),
        Some(_) => Err(fail(StrategicProblem::MalformedDirective {
            directive: format!("$setElementOrder/{field}"),
            wanted: "a list, for a field that is a list",
        })),
    };
    let wanted = list(Some(wanted))?.unwrap_or_default();
    let (live, patch) = (list(object.get(field))?, list(patch)?);
    let node = node.filter(|node| node.list_type().is_some());
    let node = node.ok_or_else(|| fail(StrategicProblem::UnknownField))?;
    let key = node.merge_key();
    if let Some(patch) = &patch {
        check_order(patch, &wanted, key).map_err(fail)?;
    }
    let merged = match (&live, &patch) {
        (None, None) => return Ok(()),
        (Some(live), None) => live.to_vec(),
        (None, Some(patch)) => patch.iter().filter_map(|new| drop_directives(new, false)).collect(),
        (Some(live), Some(patch)) => {
            if node.patch_strategy().merges() {
                self::merge(merge, live.to_vec(), patch, node, trail)?
            } else {
                patch.to_vec()
            }
        }
    };
    let elements = live.iter().flatten().chain(patch.iter().flatten());
    let kind = ElementKind::of(elements).map_err(fail)?;
    let kind = kind.ok_or_else(|| fail(StrategicProblem::NothingToOrder))?;
    let live = match (live, key, &patch) {
        (Some(live), Some(key), Some(patch)) if kind == ElementKind::Maps => {
            after_deletions(&live, patch, key).map_err(fail)?
        }
        (live, ..) => live.map(List::into_vec).unwrap_or_default(),
    };
    object.insert(field, order(merged, &wanted, &live, key).map_err(fail)?);
    Ok(())
}

fn deletes(element: &Value) -> bool {
    element.get(PATCH).and_then(Value::as_str) == Some("delete")
}

/// The live order as `$setElementOrder` sees it.
///
/// The API server merges in place: a deleted element makes room at the end of the live list, and a
/// new one takes that room, so that it counts as the last live element from then on.
fn after_deletions(
    live: &[Value],
    patch: &[Value],
    key: &str,
) -> Result<Vec<Value>, StrategicProblem> {
    let deletions: Vec<Value> = patch.iter().filter(|element| deletes(element)).cloned().collect();
    if deletions.is_empty() {
        return Ok(live.to_vec());
    }
    let (mut left, _) = follow_directives(live.to_vec(), &deletions, key)?;
    let (_, new) = follow_directives(Vec::new(), patch, key)?;
    let mut known = positions(&left, Some(key))?;
    for (position, element) in new.iter().enumerate() {
        if left.len() == live.len() {
            break;
        }
        let found = ScalarKey::of_element(element, key, position)?;
        if known.insert(found, left.len()).is_none() {
            left.push(element.clone());
        }
    }
    Ok(left)
}

/// The elements of a patch must be among the wanted ones, and in their order; deleted ones do not
/// count.
fn check_order(
    patch: &[Value],
    wanted: &[Value],
    key: Option<&str>,
) -> Result<(), StrategicProblem> {
    if patch.is_empty() || wanted.is_empty() {
        return Ok(());
    }
    let mut plain = Vec::with_capacity(patch.len());
    for (position, element) in patch.iter().enumerate() {
        if key.is_some() && !matches!(element, Value::Map(_)) {
            return Err(StrategicProblem::MixedElements);
        }
        if key.is_none() || !deletes(element) {
            plain.push((position, element));
        }
    }
    let (mut at, mut wanted_at) = (0, 0);
    while let (Some((position, element)), Some(next)) = (plain.get(at), wanted.get(wanted_at)) {
        if element.get(PATCH).is_some() {
            at += 1;
            continue;
        }
        if element_key(element, key, *position)? == element_key(next, key, wanted_at)? {
            at += 1;
        }
        wanted_at += 1;
    }
    // The API server: a `$patch: replace` behind the last wanted element is one too many as well.
    if at < plain.len() { Err(StrategicProblem::OrderDiffers) } else { Ok(()) }
}
