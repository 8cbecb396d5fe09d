//! Lists with elements that lack keys, or share them, as kustomize merges them.
//!
//! The steps are kustomize's own: every combination of key texts is looked up in both lists, what
//! comes of it is put into a new list, and at last the object's elements are put over that one by
//! one. Elements may get lost on the way; that is what users of kustomize and Kyverno meet.

use kiln_schema::SchemaNode;
use kiln_value::{Str, Value};

use super::StrategicProblem;
use super::directive::{Directive, PATCH};
use super::element::{is_nothing, key_text, scalar_text};
use super::error::Trail;
use super::merge::{Merge, MergeResult};
use super::patch_first::{PatchedList, tidy};

/// The steps take time by the square of the number of elements.
const MOST_ELEMENTS: usize = 1_000;

/// The texts of the keys of an element; empty ones where it lacks them.
type Texts = Vec<Str>;

pub(super) fn merge<'s>(
    merge: Merge<'s>,
    object: &[Value],
    patch: PatchedList<'_>,
    keys: &[&str],
    node: SchemaNode<'s>,
    trail: &Trail<'_>,
) -> MergeResult<Vec<Value>> {
    let mut object = object.to_vec();
    let mut own: Vec<Value> = match patch {
        PatchedList::List(patch) => patch.to_vec(),
        PatchedList::Own | PatchedList::Untouched => Vec::new(),
    };
    if object.len() + own.len() > MOST_ELEMENTS {
        let limit = MOST_ELEMENTS;
        return Err(trail.error(StrategicProblem::TooManyUnclearElements { limit }));
    }
    let fail = |problem| trail.error(problem);
    let mut all: Vec<Texts> = Vec::new();
    for element in own.iter().chain(&object) {
        let texts: Texts = keys.iter().map(|key| key_text(element, key)).collect();
        if !all.contains(&texts) {
            all.push(texts);
        }
    }
    if all.is_empty() {
        return Ok(object);
    }
    if keys.len() > 1 {
        unite(&mut all);
    }
    let mut used: Vec<usize> =
        (0..keys.len()).filter(|key| all.iter().any(|texts| !texts[*key].is_empty())).collect();
    if used.is_empty() {
        used = (0..keys.len()).collect();
    }
    let keys: Vec<&str> = used.iter().map(|key| keys[*key]).collect();
    let mut result = Vec::new();
    for texts in &all {
        let texts: Texts = used.iter().map(|key| texts[*key].clone()).collect();
        let in_object = find(&object, &keys, &texts);
        let in_own = find(&own, &keys, &texts);
        let place = trail.then(in_object.or(in_own).unwrap_or_default());
        let merged = match (in_object, in_own, patch) {
            (Some(at), _, PatchedList::Own) => {
                let merged = merge.own_value(object[at].clone(), node.items(), &place)?;
                match (&merged, &mut object[at]) {
                    (Some(merged), element) => *element = merged.clone(),
                    (None, Value::Map(element)) => {
                        element.remove(PATCH);
                    }
                    (None, _) => {}
                }
                merged
            }
            (Some(at), Some(own_at), _) => {
                let said = own[own_at].get(PATCH).map(Directive::parse);
                let merged = merge.value(object[at].clone(), &own[own_at], node.items(), &place)?;
                // What replaces an element is not put into the object's list, what merges is.
                if !matches!(said, Some(Ok(Directive::Replace))) {
                    object[at] = merged.clone().unwrap_or_else(|| object[at].clone());
                }
                merged
            }
            (Some(at), None, _) => {
                object[at] = tidy(merge, &object[at], node.items(), &place)?;
                Some(object[at].clone())
            }
            (None, Some(own_at), _) => merge.new_value(&own[own_at], node.items(), &place)?,
            (None, None, _) => None,
        };
        // A directive counts once.
        if let Some(Value::Map(element)) = in_own.map(|at| &mut own[at])
            && Directive::of(element).is_ok()
        {
            element.remove(PATCH);
        }
        match merged.filter(|merged| !is_nothing(merged)) {
            None => set(&mut object, &keys, &texts, None).map_err(fail)?,
            Some(merged) => set(&mut result, &keys, &texts, Some(&merged)).map_err(fail)?,
        }
    }
    for element in object {
        put_over(&mut result, &element, &keys).map_err(fail)?;
    }
    Ok(result)
}

/// Fills in the keys that an element lacks from those that agree with it in the others.
fn unite(all: &mut [Texts]) {
    for i in 0..all.len() {
        let one = all[i].clone();
        for j in 0..all.len() {
            let agree =
                one.iter().zip(&all[j]).all(|(a, b)| a == b || a.is_empty() || b.is_empty());
            let common = one.iter().zip(&all[j]).any(|(a, b)| a == b);
            if agree && common {
                let both: Texts = one
                    .iter()
                    .zip(&all[j])
                    .map(|(a, b)| if a.is_empty() { b.clone() } else { a.clone() })
                    .collect();
                all[i].clone_from(&both);
                all[j] = both;
            }
        }
    }
}

/// The first element that has the given texts; empty ones count only if all are.
fn find(list: &[Value], keys: &[&str], texts: &[Str]) -> Option<usize> {
    let all_empty = texts.iter().all(Str::is_empty);
    list.iter().position(|element| {
        keys.iter()
            .zip(texts)
            .filter(|(_, text)| all_empty || !text.is_empty())
            .all(|(key, text)| element.get(key).is_some_and(|found| scalar_text(found) == *text))
    })
}

/// Puts an element in place of all that have the given texts, or behind them; or takes those away.
/// An empty text counts for any value of its key, and no texts at all leave nothing.
fn set(
    list: &mut Vec<Value>,
    keys: &[&str],
    texts: &[Str],
    element: Option<&Value>,
) -> Result<(), StrategicProblem> {
    let for_maps = texts.first().is_some_and(|text| !text.is_empty());
    let mut found_one = false;
    let mut kept = Vec::with_capacity(list.len() + 1);
    for old in std::mem::take(list) {
        if is_nothing(&old) {
            continue;
        }
        if !matches!(old, Value::Map(_)) {
            if for_maps {
                kept.push(old);
            } else if !texts.is_empty() {
                return Err(StrategicProblem::MixedElements);
            }
            continue;
        }
        let found = !texts.is_empty()
            && keys.iter().zip(texts).all(|(key, text)| {
                old.get(key).is_some_and(|found| text.is_empty() || scalar_text(found) == *text)
            });
        if found {
            found_one = true;
            kept.extend(element.cloned());
        } else if !texts.is_empty() {
            kept.push(old);
        }
    }
    if let Some(element) = element.filter(|element| !found_one && !element.is_null()) {
        kept.push(element.clone());
    }
    *list = kept;
    Ok(())
}

/// Puts an element of the object over the new list.
fn put_over(
    result: &mut Vec<Value>,
    element: &Value,
    keys: &[&str],
) -> Result<(), StrategicProblem> {
    if !matches!(element, Value::Map(_) | Value::Null) {
        return Err(StrategicProblem::MixedElements);
    }
    let mut texts = Texts::new();
    for key in keys {
        match element.get(key) {
            None => result.push(element.clone()),
            Some(found) => texts.push(scalar_text(found)),
        }
    }
    if keys.len() > 1 {
        set(result, keys, &texts, None)?;
    }
    set(result, keys, &texts, Some(element))
}
