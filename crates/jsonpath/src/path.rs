//! Following paths. A path with `*`, `..`, several keys, a slice or a filter gives a list, in the order of the document
//! (of maps: by key), and leaves out what has no such member; any other path gives one value or fails.

use kiln_value::{Str, Value};

use crate::error::ErrorKind;
use crate::eval::{Current, Eval, Result, failed};
use crate::item::Item;
use crate::tree::{JsonPathNode, Path, PathStep, PathStepKind};

/// What a path found, and the keys it took where it had a choice.
#[derive(Clone, Debug)]
pub(crate) struct FoundItem {
    pub(crate) keys: Vec<Captured>,
    pub(crate) item: Item,
}

/// What one step of a path captured.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Captured {
    /// The member that was taken.
    Key(Str),
    /// The members that `..` went down through.
    Way(Vec<Str>),
}

impl Captured {
    pub(crate) fn parts(&self) -> &[Str] {
        match self {
            Captured::Key(key) => std::slice::from_ref(key),
            Captured::Way(keys) => keys,
        }
    }
}

impl Eval<'_> {
    pub(crate) fn path(&self, path: &Path, current: Current<'_>) -> Result {
        if path.is_ambiguous() {
            let found = self.matches(path, current)?;
            return Ok(Item::list(found.into_iter().map(|found| found.item).collect()));
        }
        let mut item = self.begin(path, current);
        for step in &path.steps {
            item = self.plain(step, &item)?;
        }
        Ok(item)
    }

    fn begin(&self, path: &Path, current: Current<'_>) -> Item {
        match (path.from_root, current) {
            (true, _) => Item::Value(self.root.clone()),
            (false, Some(current)) => current.clone(),
            (false, None) => Item::NULL,
        }
    }

    /// Everything that a path finds; nothing where it cannot go on.
    pub(crate) fn matches(&self, path: &Path, current: Current<'_>) -> Result<Vec<FoundItem>> {
        let begin = FoundItem { keys: Vec::new(), item: self.begin(path, current) };
        let mut found = Vec::new();
        self.follow(&path.steps, begin, &mut found)?;
        Ok(found)
    }

    fn follow(
        &self,
        steps: &[PathStep],
        from: FoundItem,
        found: &mut Vec<FoundItem>,
    ) -> Result<()> {
        let Some((step, rest)) = steps.split_first() else {
            if from.item != Item::Undefined {
                found.push(from);
            }
            return Ok(());
        };
        if !step.is_ambiguous() {
            return match self.plain(step, &from.item) {
                Ok(Item::Undefined) => Ok(()),
                Ok(item) => self.follow(rest, FoundItem { keys: from.keys, item }, found),
                // KubeMod: a path that cannot be followed selects nothing. An exceeded limit stays an error, or it would pass for that.
                Err(error) if error.kind() == ErrorKind::Limit => Err(error),
                Err(_) => Ok(()),
            };
        }
        let mut go_on = |key: Option<Str>, item: Item| {
            self.step(&step.span, 1)?;
            let mut keys = from.keys.clone();
            keys.extend(key.map(Captured::Key));
            self.follow(rest, FoundItem { keys, item }, found)
        };
        match &step.kind {
            PathStepKind::Star => {
                for (key, item) in children(&from.item) {
                    go_on(Some(key), item)?;
                }
                Ok(())
            }
            PathStepKind::Filter(filter) => {
                for (key, item) in children(&from.item) {
                    self.step(&step.span, 1)?;
                    match self.node(filter, Some(&item)) {
                        Ok(verdict) if verdict.to_bool() == Some(true) => go_on(Some(key), item)?,
                        Err(error) if error.kind() == ErrorKind::Limit => return Err(error),
                        _ => {}
                    }
                }
                Ok(())
            }
            PathStepKind::Keys(keys) => {
                for key in keys {
                    match self.select(key, &from.item, step) {
                        Ok((_, Item::Undefined)) => {}
                        Ok((key, item)) => go_on(Some(key), item)?,
                        Err(error) if error.kind() == ErrorKind::Limit => return Err(error),
                        Err(_) => {}
                    }
                }
                Ok(())
            }
            PathStepKind::Slice(min, max, by) => {
                let Item::Value(Value::List(list)) = &from.item else { return Ok(()) };
                let bound = |part: &Option<JsonPathNode>, otherwise: i64| match part {
                    None => Ok(Some(otherwise)),
                    Some(node) => match self.node(node, Some(&from.item)) {
                        Ok(item) => Ok(item.to_float().map(|number| number as i64)),
                        Err(error) if error.kind() == ErrorKind::Limit => Err(error),
                        Err(_) => Ok(None),
                    },
                };
                let bounds = (bound(min, 0)?, bound(max, i64::from(i32::MAX))?, bound(by, 1)?);
                let (Some(min), Some(max), Some(by)) = bounds else { return Ok(()) };
                for at in slice(min, max, by, list.len()) {
                    go_on(Some(Str::from(at.to_string())), Item::Value(list[at].clone()))?;
                }
                Ok(())
            }
            PathStepKind::Descend => self.descend(rest, from.clone(), found),
            PathStepKind::Field(_) | PathStepKind::Key(_) | PathStepKind::Script(_) => Ok(()),
        }
    }

    /// The value itself, then everything below it.
    fn descend(
        &self,
        rest: &[PathStep],
        from: FoundItem,
        found: &mut Vec<FoundItem>,
    ) -> Result<()> {
        let span = rest.first().map_or(0..0, |step| step.span.clone());
        let mut pending = vec![(Vec::new(), from.item)];
        while let Some((way, item)) = pending.pop() {
            self.step(&span, 1)?;
            let below = children(&item);
            self.step(&span, below.len() as u64 * (1 + way.len() as u64 / 4))?;
            let mut keys = from.keys.clone();
            keys.push(Captured::Way(way.clone()));
            self.follow(rest, FoundItem { keys, item }, found)?;
            pending.extend(below.into_iter().rev().map(|(key, item)| {
                let mut way = way.clone();
                way.push(key);
                (way, item)
            }));
        }
        Ok(())
    }

    /// A step that gives one value.
    fn plain(&self, step: &PathStep, from: &Item) -> Result {
        self.step(&step.span, 1)?;
        match &step.kind {
            PathStepKind::Field(name) => {
                self.member(from, step, || Ok(Item::Value(Value::from(name.clone()))))
            }
            PathStepKind::Key(key) => self.member(from, step, || self.node(key, Some(from))),
            PathStepKind::Script(script) => self.node(script, Some(from)),
            _ => Ok(Item::Undefined),
        }
    }

    fn select(&self, key: &JsonPathNode, from: &Item, step: &PathStep) -> Result<(Str, Item)> {
        let key = self.node(key, Some(from))?;
        let name = match from {
            Item::Value(Value::List(_)) => {
                let index = key.to_float().map_or(0, |number| number as i64);
                Str::from(index.to_string())
            }
            _ => Str::from(key.text()),
        };
        Ok((name, self.member(from, step, || Ok(key.clone()))?))
    }

    fn member(&self, from: &Item, step: &PathStep, key: impl Fn() -> Result) -> Result {
        match from {
            Item::Undefined | Item::Value(Value::Null) => Ok(Item::Undefined),
            Item::Value(Value::Map(map)) => {
                let key = key()?;
                let found = match &key {
                    Item::Value(Value::String(name)) => map.get(name),
                    other => map.get(&other.text()),
                };
                Ok(found.map_or(Item::Undefined, |value| Item::Value(value.clone())))
            }
            Item::Value(Value::List(list)) => {
                let key = key()?;
                let Some(index) = key.to_float() else {
                    let name = key.text();
                    return Err(failed(&step.span, format!("a list has no member {name:?}"))
                        .hint("take an element with [0], or all of them with [*]"));
                };
                if index.is_nan() {
                    return Err(failed(&step.span, "the index is undefined"));
                }
                let at = index as i64;
                let found = usize::try_from(at).ok().and_then(|at| list.get(at));
                found.map(|value| Item::Value(value.clone())).ok_or_else(|| {
                    let length = list.len();
                    let error = failed(
                        &step.span,
                        format!("there is no element {at} in a list of {length}"),
                    );
                    if at < 0 { error.hint("write [-1:] for the last element") } else { error }
                })
            }
            other => {
                let found = other.type_name();
                Err(failed(&step.span, format!("a {found} has no members")))
            }
        }
    }
}

/// The members of a list or a map, in order.
fn children(item: &Item) -> Vec<(Str, Item)> {
    match item {
        Item::Value(Value::List(list)) => {
            let numbered = list.iter().enumerate();
            numbered
                .map(|(at, value)| (Str::from(at.to_string()), Item::Value(value.clone())))
                .collect()
        }
        Item::Value(Value::Map(map)) => {
            let mut entries: Vec<_> = map
                .iter()
                .map(|(key, value)| (Str::new(key.as_str()), Item::Value(value.clone())))
                .collect();
            entries.sort_by(|a, b| a.0.cmp(&b.0));
            entries
        }
        _ => Vec::new(),
    }
}

/// The places that a slice means. KubeMod: one whose minimum is above its maximum, as written, means none.
fn slice(min: i64, max: i64, by: i64, length: usize) -> Vec<usize> {
    if min > max {
        return Vec::new();
    }
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let bound = |at: i64| if at < 0 { (length.saturating_add(at)).max(0) } else { at.min(length) };
    let (min, max) = (bound(min), bound(max));
    let stride = usize::try_from(by.unsigned_abs()).unwrap_or(usize::MAX).max(1);
    let all = min..max;
    let places: Vec<i64> = match by {
        ..0 => all.rev().step_by(stride).collect(),
        _ => all.step_by(stride).collect(),
    };
    places.into_iter().filter_map(|at| usize::try_from(at).ok()).collect()
}
