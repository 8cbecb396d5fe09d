//! The anchors of a patch, worked off against an object.
//!
//! ```text
//! patch with anchors, object ─▶ ask and add ─▶ sweep ─▶ plain patch, or nothing at all
//! ```
//!
//! Asking walks patch and object together: `+(k)` becomes `k` or goes, `<(k)` and `(k)` are matched. In a
//! list of maps, an element with anchors is tried on each element of the object, and for each that takes
//! it a plain element with that one's name joins the list. Sweeping then takes away what only asked.

use std::fmt;

use kiln_value::{Key, List, Map, Path, Value};

use crate::anchor::{Anchor, AnchorKind};
use crate::effort::{Effort, PatternLimits, TooMuchWork};
use crate::tree::matches_within;

/// What became of a patch.
#[derive(Clone, Debug, PartialEq)]
pub enum Resolved {
    /// The patch without anchors.
    Patch(Value),
    /// A condition does not hold: nothing applies.
    Cancelled(Cancelled),
}

/// The condition that cancels a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cancelled {
    /// Where the condition stands in the patch.
    pub path: Path,
    /// Why it does not hold.
    pub why: String,
}

impl fmt::Display for Cancelled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.why)
    }
}

/// Why the anchors of a patch cannot be worked off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ResolveError {
    /// The patch has a list of maps where the object has something else.
    NotAList {
        /// Where in the patch.
        path: Path,
        /// What the object has.
        found: &'static str,
    },
    /// It takes too much work.
    TooMuchWork(TooMuchWork),
}

impl fmt::Display for ResolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ResolveError::NotAList { path, found } => {
                write!(f, "the patch has a list at {path}, and the object a {found}")
            }
            ResolveError::TooMuchWork(too_much) => too_much.fmt(f),
        }
    }
}

impl std::error::Error for ResolveError {}

/// Works off the anchors of a patch against an object.
///
/// # Errors
/// When patch and object do not fit together, or it takes too much work.
pub fn resolve_anchors(
    patch: &Value,
    object: &Value,
    limits: &PatternLimits,
) -> Result<Resolved, ResolveError> {
    let mut patch = patch.clone();
    let mut resolver = Resolver { path: Path::root(), effort: Effort::new(limits) };
    match resolver.value(&mut patch, Some(object)) {
        Ok(()) => {
            sweep_top(&mut patch);
            Ok(Resolved::Patch(patch))
        }
        Err(Stop::Condition(cancelled) | Stop::Global(cancelled)) => {
            Ok(Resolved::Cancelled(cancelled))
        }
        Err(Stop::Error(error)) => Err(error),
    }
}

/// Why asking ended.
enum Stop {
    /// The map, or the list element it is in, does not apply.
    Condition(Cancelled),
    /// Nothing applies.
    Global(Cancelled),
    Error(ResolveError),
}

impl From<TooMuchWork> for Stop {
    fn from(too_much: TooMuchWork) -> Self {
        Stop::Error(ResolveError::TooMuchWork(too_much))
    }
}

struct Resolver {
    path: Path,
    effort: Effort,
}

impl Resolver {
    fn value(&mut self, patch: &mut Value, object: Option<&Value>) -> Result<(), Stop> {
        self.effort.spend(1)?;
        match patch {
            Value::Map(_) => self.map(patch, object),
            Value::List(list) if matches!(list.first(), Some(Value::Map(_))) => {
                self.list_of_maps(patch, object)
            }
            _ => Ok(()),
        }
    }

    fn map(&mut self, patch: &mut Value, object: Option<&Value>) -> Result<(), Stop> {
        let Some(map) = patch.as_map_mut() else { return Ok(()) };
        add_if_not_present(map, object);
        self.conditions(map, object, AnchorKind::Global).map_err(Stop::from_global)?;
        self.conditions(map, object, AnchorKind::Condition)?;
        let plain: Vec<Key> = map
            .keys()
            .filter(|key| !Anchor::parse(key).is_some_and(|anchor| anchor.kind.is_for_patches()))
            .cloned()
            .collect();
        for key in plain {
            let Some(value) = map.get_mut(&key) else { continue };
            // A subtree without lists of maps and anchors stays shared.
            if !may_change(value) {
                continue;
            }
            self.path.push(&key);
            self.value(value, object.and_then(|object| object.get(&key)))?;
            self.path.pop();
        }
        Ok(())
    }

    /// Asks the anchors of one kind on a map.
    fn conditions(
        &mut self,
        map: &mut Map,
        object: Option<&Value>,
        kind: AnchorKind,
    ) -> Result<(), Stop> {
        let asked: Vec<Key> = map
            .keys()
            .filter(|key| Anchor::parse(key).is_some_and(|anchor| anchor.kind == kind))
            .cloned()
            .collect();
        for written in asked {
            let Some(anchor) = Anchor::parse(&written) else { continue };
            let cancelled =
                |why: String| Stop::Condition(Cancelled { path: self.path.join(&written), why });
            let Some(found) = object.and_then(|object| object.get(anchor.key)) else {
                return Err(cancelled(format!("the object has no {:?} there", anchor.key)));
            };
            let Some(wanted) = map.get_mut(&written) else { continue };
            // Kyverno: what has something to add asks nothing.
            if let Some(below) = wanted.as_map_mut()
                && add_if_not_present(below, Some(found))
            {
                continue;
            }
            let outcome = match is_scalar(wanted) || is_scalar(found) {
                // Kyverno: a scalar right below an anchor is compared as text.
                true => matches_within(&as_text(wanted), &as_text(found), &mut self.effort),
                false => matches_within(wanted, found, &mut self.effort),
            };
            if let Err(mismatch) = outcome {
                return Err(match mismatch.too_much {
                    Some(too_much) => too_much.into(),
                    None => cancelled(mismatch.to_string()),
                });
            }
        }
        Ok(())
    }

    fn list_of_maps(&mut self, patch: &mut Value, object: Option<&Value>) -> Result<(), Stop> {
        let elements = match object {
            None | Some(Value::Null) => None,
            Some(Value::List(list)) => Some(list),
            Some(other) => {
                let (path, found) = (self.path.clone(), other.type_name());
                return Err(Stop::Error(ResolveError::NotAList { path, found }));
            }
        };
        self.effort.spend(size(patch))?;
        if !has_anchor(patch, AnchorKind::is_for_patches) {
            return Ok(());
        }
        let Some(list) = patch.as_list_mut() else { return Ok(()) };
        let depth = self.path.segments().len();
        for at in 0..list.len() {
            if !has_anchor(&list[at], AnchorKind::is_for_patches) {
                continue;
            }
            self.path.push(at);
            let added = match (elements, object) {
                (Some(elements), _) => self.element(&list[at], elements)?,
                (None, Some(_)) => Vec::new(),
                (None, None) => {
                    let mut copy = list[at].clone();
                    match self.value(&mut copy, None) {
                        Ok(()) | Err(Stop::Condition(_)) => Vec::new(),
                        Err(stop) => return Err(stop),
                    }
                }
            };
            self.back_to(depth);
            list.extend(added);
        }
        Ok(())
    }

    /// Tries an element with anchors on each element of the object; gives what is to join the list.
    fn element(&mut self, patch: &Value, elements: &List) -> Result<Vec<Value>, Stop> {
        let global = has_anchor(patch, |kind| kind == AnchorKind::Global);
        let depth = self.path.segments().len();
        // Kyverno: one copy for all elements, on which add anchors are worked off by the first that
        // meets them, for those that follow too.
        let mut copy = patch.clone();
        let (mut taken, mut refused) = (false, None);
        let mut added = Vec::new();
        for element in elements {
            match self.value(&mut copy, Some(element)) {
                Ok(()) if global => taken = true,
                Ok(()) => added.extend(self.named(&copy, element)?),
                Err(Stop::Condition(_)) => {}
                Err(Stop::Global(cancelled)) => refused = Some(cancelled),
                Err(stop) => return Err(stop),
            }
            self.back_to(depth);
        }
        match refused {
            Some(cancelled) if !taken => Err(Stop::Global(cancelled)),
            _ => Ok(added),
        }
    }

    fn back_to(&mut self, depth: usize) {
        while self.path.segments().len() > depth {
            self.path.pop();
        }
    }

    /// A plain element for one element of the object. Without a name a merge could not find it again.
    fn named(&mut self, patch: &Value, element: &Value) -> Result<Option<Value>, Stop> {
        let nameless = |name: &Value| match name {
            Value::Null => true,
            Value::String(text) => text.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            _ => false,
        };
        let Some(name) = element.get("name").filter(|name| !nameless(name)) else {
            return Ok(None);
        };
        self.effort.spend(size(patch))?;
        let mut plain = patch.clone();
        if sweep(&mut plain, true) {
            return Ok(None);
        }
        if let Some(map) = plain.as_map_mut() {
            map.insert("name", name.clone());
        }
        Ok(Some(plain))
    }
}

impl Stop {
    fn from_global(stop: Stop) -> Stop {
        match stop {
            Stop::Condition(cancelled) => Stop::Global(cancelled),
            other => other,
        }
    }
}

/// Works off the add anchors of a map; says whether there were any.
fn add_if_not_present(map: &mut Map, object: Option<&Value>) -> bool {
    let is_add = |key: &Key| {
        Anchor::parse(key).is_some_and(|anchor| anchor.kind == AnchorKind::AddIfNotPresent)
    };
    let adds: Vec<Key> = map.keys().filter(|key| is_add(key)).cloned().collect();
    for written in &adds {
        let Some(anchor) = Anchor::parse(written) else { continue };
        // Kyverno: also null is there.
        if object.is_some_and(|object| object.get(anchor.key).is_some()) {
            map.remove(written);
        } else {
            rename(map, written, anchor.key);
        }
    }
    !adds.is_empty()
}

/// Takes away what only asked. Kyverno: at the top of a patch, a condition that holds more than scalars stays with
/// its anchor, and so changes nothing that the object has.
fn sweep_top(patch: &mut Value) {
    match patch.as_map_mut() {
        Some(map) => map.retain(|key, value| {
            let asked = Anchor::parse(key).is_some_and(|anchor| anchor.kind.is_condition());
            !sweep(value, asked)
        }),
        None => {
            sweep(patch, false);
        }
    }
}

/// Takes away what only asked. True when nothing is left; a scalar that is left counts if `scalars`.
fn sweep(value: &mut Value, scalars: bool) -> bool {
    match value {
        Value::Map(map) => sweep_map(map),
        Value::List(_) => {
            let Some(list) = value.as_list_mut() else { return false };
            let was_empty = list.is_empty();
            list.retain_mut(|element| {
                !has_anchor(element, AnchorKind::is_for_patches) && !sweep(element, false)
            });
            list.is_empty() && !was_empty
        }
        _ => scalars,
    }
}

fn sweep_map(map: &mut Map) -> bool {
    let asked: Vec<Key> = map
        .keys()
        .filter(|key| Anchor::parse(key).is_some_and(|anchor| anchor.kind.is_condition()))
        .cloned()
        .collect();
    for written in &asked {
        let Some(value) = map.get_mut(written) else { continue };
        if sweep(value, true) {
            map.remove(written);
        } else if let Some(anchor) = Anchor::parse(written) {
            // Kyverno: what holds more than scalars stays, as if it had no anchor.
            rename(map, written, anchor.key);
        }
    }
    map.retain(|_, value| !sweep(value, false));
    map.is_empty()
}

/// Gives an entry another key, over an entry that has it already.
fn rename(map: &mut Map, from: &str, to: &str) {
    if from == to || !map.contains_key(from) {
        return;
    }
    let entries = map.as_slice().iter().filter(|(key, _)| key.as_str() != to);
    let renamed = |key: &Key| if key.as_str() == from { Key::new(to) } else { key.clone() };
    *map = Map::from_unique(entries.map(|(key, value)| (renamed(key), value.clone())).collect());
}

/// Whether some key in or below a value has an anchor of a kind.
fn has_anchor(value: &Value, wanted: fn(AnchorKind) -> bool) -> bool {
    match value {
        Value::Map(map) => map.iter().any(|(key, value)| {
            Anchor::parse(key).is_some_and(|anchor| wanted(anchor.kind))
                || has_anchor(value, wanted)
        }),
        Value::List(list) => list.iter().any(|element| has_anchor(element, wanted)),
        _ => false,
    }
}

/// Whether asking can change something below a value.
fn may_change(value: &Value) -> bool {
    match value {
        Value::Map(map) => !map.is_empty(),
        Value::List(list) => !list.is_empty(),
        _ => false,
    }
}

fn is_scalar(value: &Value) -> bool {
    !matches!(value, Value::Map(_) | Value::List(_))
}

/// A scalar as it is written; maps and lists as they are.
fn as_text(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            kiln_value::json::to_string(value).into()
        }
        other => other.clone(),
    }
}

fn size(value: &Value) -> usize {
    match value {
        Value::Map(map) => 1 + map.values().map(size).sum::<usize>(),
        Value::List(list) => 1 + list.iter().map(size).sum::<usize>(),
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn plain(patch: &Value, object: &Value) -> Value {
        match resolve_anchors(patch, object, &PatternLimits::default()) {
            Ok(Resolved::Patch(plain)) => plain,
            Ok(Resolved::Cancelled(cancelled)) => format!("cancelled at {cancelled}").into(),
            Err(error) => error.to_string().into(),
        }
    }

    #[test]
    fn conditions_cancel_and_say_which() {
        let pod = value!({"metadata": {"labels": {"app": "web"}}, "spec": {"n": 5}});
        let patch = value!({"spec": {"(n)": ">7", "m": 1}});
        assert_eq!(
            plain(&patch, &pod),
            value!("cancelled at spec[\"(n)\"]: \"5\" does not match \">7\"")
        );
        let patch = value!({"metadata": {"<(name)": "x"}});
        assert_eq!(
            plain(&patch, &pod),
            value!("cancelled at metadata[\"<(name)\"]: the object has no \"name\" there")
        );
        let patch = value!({"spec": {"(n)": "5", "m": 1}});
        assert_eq!(plain(&patch, &pod), value!({"spec": {"m": 1}}));
    }

    #[test]
    fn two_elements_with_anchors_both_go() {
        let pod = value!({"spec": {"containers": [
            {"name": "a", "image": "a:latest"}, {"name": "b", "image": "b:1"},
        ]}});
        let patch = value!({"spec": {"containers": [
            {"(image)": "*:latest", "imagePullPolicy": "Always"},
            {"(image)": "!*:latest", "imagePullPolicy": "IfNotPresent"},
            {"name": "c"},
        ]}});
        assert_eq!(
            plain(&patch, &pod),
            value!({"spec": {"containers": [
                {"name": "c"},
                {"imagePullPolicy": "Always", "name": "a"},
                {"imagePullPolicy": "IfNotPresent", "name": "b"},
            ]}})
        );
    }

    #[test]
    fn a_list_meets_only_a_list() {
        let patch = value!({"spec": {"containers": [{"(name)": "a"}]}});
        assert_eq!(
            plain(&patch, &value!({"spec": {"containers": {"a": 1}}})),
            value!("the patch has a list at spec.containers, and the object a map")
        );
        assert_eq!(plain(&patch, &value!({"spec": {"containers": null}})), value!({}));
    }

    #[test]
    fn a_product_of_lists_ends_at_the_limit() {
        let elements: Value = (0..2000).map(|at| value!({"name": at})).collect();
        let patches: Value = (0..2000).map(|_| value!({"(name)": "*", "a": 1})).collect();
        let found = resolve_anchors(
            &value!({"list": patches}),
            &value!({"list": elements}),
            &PatternLimits { steps: 100_000 },
        );
        assert_eq!(found, Err(ResolveError::TooMuchWork(TooMuchWork { limit: 100_000 })));
    }

    #[test]
    fn the_deepest_patch_fits_on_a_small_stack() {
        let mut patch = value!({"+(x)": 1, "(y)": "*"});
        let mut object = value!({"y": {"z": 1}});
        for _ in 0..(kiln_value::MAX_DEPTH / 2 - 2) {
            patch = value!({"l": [{"(name)": "*", "m": patch}]});
            object = value!({"l": [{"name": "n", "m": object}]});
        }
        let run = move || plain(&patch, &object).type_name();
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(run).unwrap();
        assert!(thread.join().is_ok());
    }
}
