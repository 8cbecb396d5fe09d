//! Values with their types: what they own, how they merge, differ and shrink.
//!
//! Kubernetes' structured merge, with its corners: two empty lists are one leaf, null stands for nothing
//! where a map or list is wanted, and a map that loses its last member becomes null.

use std::collections::{BTreeMap, HashMap};

use kiln_value::{List, Map, Number, Value};

use super::fieldset::{FieldSet, FieldStep};
use super::shape::{ApplyShape, Elements, Form, Member, Scalar, form_for};

/// Why a value does not have its type, with its place in front.
pub(super) type TypeError = String;

/// The step to an element, or why it cannot be identified.
fn element_step(element: &Value, elements: &Elements) -> Result<FieldStep, String> {
    match elements {
        Elements::Atomic => Err("the list is one value".to_owned()),
        Elements::Set => match element {
            Value::Null => {
                Err("associative list without keys has an element that's an explicit null"
                    .to_owned())
            }
            Value::Map(_) => {
                Err("associative list without keys has an element that's a map type".to_owned())
            }
            Value::List(_) => {
                Err("associative list without keys has an element that's a list type".to_owned())
            }
            scalar => Ok(FieldStep::value(scalar)),
        },
        Elements::Keyed(keys) => {
            let map = match element {
                Value::Map(map) => map,
                Value::Null => {
                    return Err("associative list with keys may not have a null element".to_owned());
                }
                _ => {
                    return Err(
                        "associative list with keys may not have non-map elements".to_owned()
                    );
                }
            };
            let mut found = BTreeMap::new();
            for (key, default) in keys {
                match map.get(key).or(default.as_ref()) {
                    Some(value) => found.insert(key.as_str(), value.clone()),
                    None => {
                        return Err(format!(
                            "associative list with keys has an element that omits key field {key:?} \
                             (and doesn't have default value)"
                        ));
                    }
                };
            }
            Ok(FieldStep::keys(&found))
        }
    }
}

/// Checks that a value has its type.
pub(super) fn check<S: ApplyShape>(
    value: &Value,
    shape: &S,
    path: &mut String,
    duplicates: bool,
) -> Result<(), TypeError> {
    let at = |path: &str, why: String| if path.is_empty() { why } else { format!("{path}: {why}") };
    match (form_for(shape, Some(value)), value) {
        (Form::Untyped, _) | (_, Value::Null) => Ok(()),
        (Form::Scalar(scalar), value) => {
            scalar_problem(scalar, value).map_or(Ok(()), |why| Err(at(path, why)))
        }
        (Form::List(items, elements), Value::List(list)) => {
            let mut seen = HashMap::new();
            for (i, element) in list.iter().enumerate() {
                let length = path.len();
                if elements == Elements::Atomic {
                    path.push_str(&format!("[{i}]"));
                } else {
                    let step = element_step(element, &elements)
                        .map_err(|why| at(path, format!("element {i}: {why}")))?;
                    let mut printed = String::new();
                    step.print(&mut printed);
                    if seen.insert(step, ()).is_some() && !duplicates {
                        return Err(at(path, format!("duplicate entries for key {printed}")));
                    }
                    path.push_str(&printed);
                }
                check(element, &items, path, duplicates)?;
                path.truncate(length);
            }
            Ok(())
        }
        (Form::Map | Form::AtomicMap, Value::Map(map)) => {
            for (key, value) in map {
                let length = path.len();
                path.push('.');
                path.push_str(key);
                match shape.member(key) {
                    Member::Unknown => {
                        return Err(at(path, "field not declared in schema".to_owned()));
                    }
                    Member::Field(member) | Member::Entry(member) => {
                        check(value, &member, path, duplicates)?;
                    }
                }
                path.truncate(length);
            }
            Ok(())
        }
        (form, value) => {
            let wanted = if matches!(form, Form::List(..)) { "list" } else { "map" };
            Err(at(path, format!("expected {wanted}, got &{{{}}}", go(value))))
        }
    }
}

fn scalar_problem(scalar: Scalar, value: &Value) -> Option<String> {
    let wrapped = || format!("&value.valueUnstructured{{Value:{}}}", go(value));
    match (scalar, value) {
        (Scalar::String, Value::String(_))
        | (Scalar::Number, Value::Number(_))
        | (Scalar::Bool, Value::Bool(_))
        | (Scalar::Any, Value::String(_) | Value::Number(_) | Value::Bool(_)) => None,
        (Scalar::String, _) => Some(format!("expected string, got {}", wrapped())),
        (Scalar::Number, _) => {
            Some(format!("expected numeric (int or float), got {}", go_type(value)))
        }
        (Scalar::Bool, _) => Some(format!("expected boolean, got {}", wrapped())),
        (Scalar::Any, _) => Some(format!("expected any scalar, got {}", wrapped())),
    }
}

/// A value as Go prints it.
fn go(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.to_string(),
        Value::List(list) => {
            format!("[{}]", list.iter().map(go).collect::<Vec<_>>().join(" "))
        }
        Value::Map(map) => {
            let mut pairs: Vec<_> = map.iter().map(|(k, v)| format!("{k}:{}", go(v))).collect();
            pairs.sort();
            format!("map[{}]", pairs.join(" "))
        }
        scalar => kiln_value::json::to_string(scalar),
    }
}

fn go_type(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "string",
        Value::Bool(_) => "bool",
        Value::List(_) => "[]interface {}",
        Value::Map(_) => "map[string]interface {}",
        Value::Number(_) => "float64",
        Value::Null => "<nil>",
    }
}

/// What a value owns.
pub(super) fn field_set<S: ApplyShape>(value: &Value, shape: &S) -> FieldSet {
    let mut set = FieldSet::default();
    collect(value, shape, &mut Vec::new(), &mut set);
    set
}

fn collect<S: ApplyShape>(value: &Value, shape: &S, path: &mut Vec<FieldStep>, set: &mut FieldSet) {
    match (form_for(shape, Some(value)), value) {
        (
            Form::Scalar(_) | Form::AtomicMap | Form::List(_, Elements::Atomic) | Form::Untyped,
            _,
        ) => set.insert(path),
        (Form::List(items, elements), Value::List(list)) => {
            let steps: Vec<Option<FieldStep>> =
                list.iter().map(|element| element_step(element, &elements).ok()).collect();
            let mut times: HashMap<&FieldStep, usize> = HashMap::new();
            for step in steps.iter().flatten() {
                *times.entry(step).or_default() += 1;
            }
            for (element, step) in list.iter().zip(&steps) {
                let Some(step) = step else { continue };
                path.push(step.clone());
                // Fields of duplicates cannot be told apart, so duplicates are owned as a whole and not field by field.
                if times.get(step) == Some(&1) {
                    collect(element, &items, path, set);
                }
                set.insert(path);
                path.pop();
            }
        }
        (Form::Map, Value::Map(map)) => {
            for (key, value) in map {
                path.push(FieldStep::field(key));
                let member = shape.member(key);
                let named = matches!(member, Member::Field(_));
                let empty = value.is_null() || value.as_map().is_some_and(Map::is_empty);
                if let Some(member) = member.shape() {
                    collect(value, &member, path, set);
                }
                // A field of a struct exists by its type; only its content is owned. An entry of a map exists because
                // a manager put it there, so the entry itself is owned, or pruning would leave it behind empty.
                if empty || !named {
                    set.insert(path);
                }
                path.pop();
            }
        }
        _ => {}
    }
}

/// Merges an applied value into a live one.
pub(super) fn merge<S: ApplyShape>(
    live: Option<&Value>,
    applied: Option<&Value>,
    shape: &S,
) -> Option<Value> {
    let form = form_for(shape, applied.or(live));
    let leaf = || applied.or(live).cloned();
    match form {
        Form::Scalar(_) | Form::AtomicMap | Form::Untyped | Form::List(_, Elements::Atomic) => {
            leaf()
        }
        Form::List(items, elements) => {
            let (left, right) = (list_of(live), list_of(applied));
            // Walking two empty lists would give nothing, and the field would vanish; as a leaf, an empty list that is
            // applied over null is an empty list, and null over an empty one is null.
            if left.is_empty() && right.is_empty() {
                return leaf();
            }
            merge_lists(left, right, &items, &elements)
        }
        Form::Map => {
            let (left, right) = (map_of(live), map_of(applied));
            if left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty) {
                return leaf();
            }
            // Live fields first and in their order: applying the same again must give the same bytes, whatever order the
            // manager writes them in, or every application would look like a change to those who compare texts.
            let mut out = Map::new();
            for (key, value) in left.into_iter().flat_map(Map::iter) {
                let other = right.and_then(|right| right.get(key));
                let merged = match shape.member(key).shape() {
                    Some(member) => merge(Some(value), other, &member),
                    None => other.or(Some(value)).cloned(),
                };
                if let Some(merged) = merged {
                    out.insert(key.clone(), merged);
                }
            }
            for (key, value) in right.into_iter().flat_map(Map::iter) {
                if left.is_some_and(|left| left.contains_key(key)) {
                    continue;
                }
                let merged = match shape.member(key).shape() {
                    Some(member) => merge(None, Some(value), &member),
                    None => Some(value.clone()),
                };
                if let Some(merged) = merged {
                    out.insert(key.clone(), merged);
                }
            }
            (!out.is_empty()).then_some(Value::Map(out))
        }
    }
}

fn list_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_list).map_or(&[], |list: &List| list)
}

fn map_of(value: Option<&Value>) -> Option<&Map> {
    value.and_then(Value::as_map)
}

/// Merges two lists whose elements have identities.
///
/// The order is structured-merge-diff's: elements of both lists keep the order of the applied one, and what only the
/// live list has keeps its place among them. `next_shared` is the next element of the applied list that
/// the live one has too. An element of the live list that is shared but not next is passed, since its turn comes with
/// the applied list; without that, applying a new order would do nothing.
fn merge_lists<S: ApplyShape>(
    left: &[Value],
    right: &[Value],
    items: &S,
    elements: &Elements,
) -> Option<Value> {
    let index = |list: &[Value]| -> Vec<(FieldStep, Value)> {
        let steps = list.iter().filter_map(|e| Some((element_step(e, elements).ok()?, e.clone())));
        steps.collect()
    };
    let (left, right) = (index(left), index(right));
    // Of an element that is there twice, none is merged.
    let mut observed_left: HashMap<&FieldStep, Option<&Value>> = HashMap::new();
    for (step, value) in &left {
        observed_left.entry(step).and_modify(|known| *known = None).or_insert(Some(value));
    }
    let observed_right: HashMap<&FieldStep, &Value> = right.iter().map(|(s, v)| (s, v)).collect();
    let mut shared =
        right.iter().map(|(step, _)| step).filter(|step| observed_left.contains_key(step));
    let mut next_shared = shared.next();
    let mut done: HashMap<&FieldStep, ()> = HashMap::new();
    let mut out: Vec<Value> = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < left.len() || r < right.len() {
        if l < left.len() && r < right.len() {
            let step = &left[l].0;
            if *step == right[r].0 {
                done.insert(step, ());
                out.extend(merge(observed_left[step], observed_right.get(step).copied(), items));
                (l, r) = (l + 1, r + 1);
                next_shared = shared.next();
                continue;
            }
            if observed_right.contains_key(step) && next_shared.is_some_and(|next| next != step) {
                l += 1;
                continue;
            }
        }
        if l < left.len() {
            let (step, value) = &left[l];
            if !observed_right.contains_key(step) {
                out.extend(merge(Some(value), None, items));
                l += 1;
                continue;
            } else if done.contains_key(step) {
                l += 1;
            }
        }
        if r < right.len() {
            let step = &right[r].0;
            done.insert(step, ());
            let value = observed_left.get(step).copied().flatten();
            out.extend(merge(value, observed_right.get(step).copied(), items));
            r += 1;
            if next_shared == Some(step) {
                next_shared = shared.next();
            }
        }
    }
    (!out.is_empty()).then(|| Value::from(out))
}

/// What differs between two values.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub(super) added: FieldSet,
    pub(super) modified: FieldSet,
    pub(super) removed: FieldSet,
}

impl Comparison {
    pub(super) fn of<S: ApplyShape>(old: &Value, new: &Value, shape: &S) -> Self {
        let mut comparison = Comparison::default();
        comparison.compare(Some(old), Some(new), shape, &mut Vec::new());
        comparison
    }

    pub(super) fn without(self, fields: &FieldSet) -> Self {
        Comparison {
            added: self.added.without(fields),
            modified: self.modified.without(fields),
            removed: self.removed.without(fields),
        }
    }

    fn compare<S: ApplyShape>(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &S,
        path: &mut Vec<FieldStep>,
    ) {
        // `same` compares pointers. Merging shares what it does not change, so most of an object ends here.
        if let (Some(old), Some(new)) = (old, new)
            && old.same(new)
        {
            return;
        }
        let mut leaf = false;
        let kind = std::mem::discriminant::<Value>;
        if let (Form::Untyped, Some(was), Some(is)) = (shape.form(), old, new)
            && kind(was) != kind(is)
        {
            // What was of one kind and is of another: what was inside is gone.
            let mut apart = false;
            self.walk_as(form_for(shape, old), old, new, shape, path, &mut apart);
        }
        self.walk_as(form_for(shape, new.or(old)), old, new, shape, path, &mut leaf);
        if !leaf {
            match (old, new) {
                (None, _) => self.added.insert(path),
                (_, None) => self.removed.insert(path),
                _ => {}
            }
        }
    }

    fn walk_as<S: ApplyShape>(
        &mut self,
        form: Form<S>,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &S,
        path: &mut Vec<FieldStep>,
        leaf: &mut bool,
    ) {
        match form {
            Form::List(items, elements) if elements != Elements::Atomic => {
                let (left, right) = (list_of(old), list_of(new));
                if left.is_empty() && right.is_empty() {
                    return self.leaf(old, new, path, leaf);
                }
                self.compare_lists(left, right, &items, &elements, path);
            }
            Form::Map => {
                let (left, right) = (map_of(old), map_of(new));
                if left.is_none_or(Map::is_empty) && right.is_none_or(Map::is_empty) {
                    return self.leaf(old, new, path, leaf);
                }
                for (key, value) in left.into_iter().flat_map(Map::iter) {
                    let other = right.and_then(|right| right.get(key));
                    self.member(key, Some(value), other, shape, path);
                }
                for (key, value) in right.into_iter().flat_map(Map::iter) {
                    if left.is_none_or(|left| !left.contains_key(key)) {
                        self.member(key, None, Some(value), shape, path);
                    }
                }
            }
            _ => self.leaf(old, new, path, leaf),
        }
    }

    fn member<S: ApplyShape>(
        &mut self,
        key: &str,
        old: Option<&Value>,
        new: Option<&Value>,
        shape: &S,
        path: &mut Vec<FieldStep>,
    ) {
        let Some(member) = shape.member(key).shape() else { return };
        path.push(FieldStep::field(key));
        self.compare(old, new, &member, path);
        path.pop();
    }

    fn leaf(
        &mut self,
        old: Option<&Value>,
        new: Option<&Value>,
        path: &[FieldStep],
        leaf: &mut bool,
    ) {
        if std::mem::replace(leaf, true) {
            return;
        }
        match (old, new) {
            (None, _) => self.added.insert(path),
            (_, None) => self.removed.insert(path),
            (Some(old), Some(new)) if !equal(old, new) => self.modified.insert(path),
            _ => {}
        }
    }

    fn compare_lists<S: ApplyShape>(
        &mut self,
        left: &[Value],
        right: &[Value],
        items: &S,
        elements: &Elements,
        path: &mut Vec<FieldStep>,
    ) {
        // By identity and not by position, since the order of such a list means nothing. Duplicates are compared as a whole.
        let mut all: BTreeMap<FieldStep, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        for value in left {
            if let Ok(step) = element_step(value, elements) {
                all.entry(step).or_default().0.push(value);
            }
        }
        for value in right {
            if let Ok(step) = element_step(value, elements) {
                all.entry(step).or_default().1.push(value);
            }
        }
        for (step, (left, right)) in all {
            path.push(step);
            match (left.as_slice(), right.as_slice()) {
                (left, right) if left.len() <= 1 && right.len() <= 1 => {
                    self.compare(left.first().copied(), right.first().copied(), items, path);
                }
                (left, right) if left.len() >= 2 && right.len() >= 2 => {
                    let same = left.len() == right.len()
                        && left.iter().zip(right).all(|(left, right)| equal(left, right));
                    if !same {
                        self.modified.insert(path);
                    }
                }
                (left, right) if left.len() >= 2 => {
                    if let Some(right) = right.first() {
                        self.compare(None, Some(right), items, path);
                    }
                    self.removed.insert(path);
                }
                (left, _) => {
                    if let Some(left) = left.first() {
                        self.compare(Some(left), None, items, path);
                    }
                    self.added.insert(path);
                }
            }
            path.pop();
        }
    }
}

/// Whether two values are the same to Kubernetes: `1` is `1.0`.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(Number::Float(_)), Value::Number(_))
        | (Value::Number(_), Value::Number(Number::Float(_))) => a.as_f64() == b.as_f64(),
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| equal(a, b)))
        }
        _ => a == b,
    }
}

/// Takes fields out. What becomes empty by it becomes null.
pub(super) fn remove<S: ApplyShape>(value: &Value, fields: &FieldSet, shape: &S) -> Value {
    match (form_for(shape, Some(value)), value) {
        (Form::Scalar(_), value) => value.clone(),
        (Form::List(items, elements), Value::List(list))
            if !list.is_empty() && elements != Elements::Atomic =>
        {
            let mut left = Vec::with_capacity(list.len());
            for element in list {
                let Ok(step) = element_step(element, &elements) else {
                    left.push(element.clone());
                    continue;
                };
                if fields.has(&step) {
                    continue;
                }
                left.push(match fields.below(&step) {
                    Some(below) => remove(element, below, &items),
                    None => element.clone(),
                });
            }
            if left.is_empty() { Value::Null } else { Value::from(left) }
        }
        (Form::Map, Value::Map(map)) if !map.is_empty() => {
            let mut left = Map::new();
            for (key, value) in map {
                let step = FieldStep::field(key);
                if fields.has(&step) {
                    continue;
                }
                let value = match (fields.below(&step), shape.member(key).shape()) {
                    (Some(below), Some(member)) => remove(value, below, &member),
                    _ => value.clone(),
                };
                left.insert(key.clone(), value);
            }
            if left.is_empty() { Value::Null } else { Value::Map(left) }
        }
        _ => Value::Null,
    }
}
