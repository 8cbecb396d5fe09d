//! Sets of fields: who owns what, and the `fieldsV1` that says so.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use kiln_value::{Map, Number, Str, Value, json};

use super::shape::{ApplyShape, Form, Member};

/// One step to a field, as `fieldsV1` writes it: `f:name`, `k:{"name":"a"}`, `v:"a"` or `i:0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FieldStep(Str);

impl FieldStep {
    /// A member of a map.
    pub fn field(name: &str) -> Self {
        FieldStep(Str::new(format!("f:{name}")))
    }

    /// An element of a list, by its keys.
    pub(super) fn keys(keys: &BTreeMap<&str, Value>) -> Self {
        let map: Map = keys.iter().map(|(key, value)| (*key, whole(value))).collect();
        FieldStep(Str::new(format!("k:{}", json::to_string(&Value::Map(map)))))
    }

    /// An element of a set.
    pub(super) fn value(value: &Value) -> Self {
        FieldStep(Str::new(format!("v:{}", json::to_string(&whole(value)))))
    }

    /// The name, if it is a member of a map.
    pub(super) fn name(&self) -> Option<&str> {
        self.0.strip_prefix("f:")
    }

    fn parse(text: &str) -> Option<Self> {
        let (kind, rest) = text.split_at_checked(2)?;
        match kind {
            "f:" | "i:" => Some(FieldStep(Str::new(text))),
            "k:" => match json::parse(rest).ok()? {
                Value::Map(map) => {
                    let keys = map.iter().map(|(key, value)| (key.as_str(), value.clone()));
                    Some(FieldStep::keys(&keys.collect()))
                }
                _ => None,
            },
            "v:" => Some(FieldStep::value(&json::parse(rest).ok()?)),
            _ => None,
        }
    }

    /// As messages write it: `.name`, `[name="a"]`, `[="a"]`, `[0]`.
    pub(super) fn print(&self, out: &mut String) {
        let rest = &self.0[2..];
        match self.0.as_bytes()[0] {
            b'f' => {
                out.push('.');
                out.push_str(rest);
            }
            b'k' => {
                let keys = json::parse(rest).unwrap_or_default();
                let keys = keys.as_map().into_iter().flat_map(Map::iter);
                let keys: Vec<String> =
                    keys.map(|(key, value)| format!("{key}={}", json::to_string(value))).collect();
                out.push_str(&format!("[{}]", keys.join(",")));
            }
            b'v' => out.push_str(&format!("[={rest}]")),
            _ => out.push_str(&format!("[{rest}]")),
        }
    }
}

/// A float without a fraction is the integer: both name the same element.
fn whole(value: &Value) -> Value {
    match value {
        Value::Number(Number::Float(float))
            if float.fract() == 0.0 && float.abs() < 9_007_199_254_740_992.0 =>
        {
            #[allow(clippy::cast_possible_truncation, reason = "it was just measured")]
            Value::from(*float as i64)
        }
        other => other.clone(),
    }
}

/// The fields that one manager owns, as `managedFields` stores them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSet(BTreeMap<FieldStep, Owned>);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Owned {
    member: bool,
    below: FieldSet,
}

impl Owned {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Whether nothing is in it.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A set of these paths, each a row of names.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = FieldSet::default();
        for path in paths {
            let steps: Vec<FieldStep> = path.iter().map(|name| FieldStep::field(name)).collect();
            set.insert(&steps);
        }
        set
    }

    /// Puts a field in. The root has no owner.
    pub fn insert(&mut self, path: &[FieldStep]) {
        if let [first, rest @ ..] = path {
            let owned = self.0.entry(first.clone()).or_default();
            if rest.is_empty() { owned.member = true } else { owned.below.insert(rest) }
        }
    }

    pub(super) fn has(&self, step: &FieldStep) -> bool {
        self.0.get(step).is_some_and(|owned| owned.member)
    }

    /// What is in it below a step.
    pub(super) fn below(&self, step: &FieldStep) -> Option<&FieldSet> {
        self.0.get(step).map(|owned| &owned.below).filter(|below| !below.is_empty())
    }

    #[must_use]
    pub fn union(mut self, other: &FieldSet) -> Self {
        for (step, theirs) in &other.0 {
            match self.0.entry(step.clone()) {
                Slot::Vacant(slot) => {
                    slot.insert(theirs.clone());
                }
                Slot::Occupied(mut slot) => {
                    let ours = slot.get_mut();
                    ours.member |= theirs.member;
                    ours.below = std::mem::take(&mut ours.below).union(&theirs.below);
                }
            }
        }
        self
    }

    /// What is in both.
    #[must_use]
    pub fn intersection(&self, other: &FieldSet) -> Self {
        let both = self.0.iter().filter_map(|(step, ours)| {
            let theirs = other.0.get(step)?;
            let owned = Owned {
                member: ours.member && theirs.member,
                below: ours.below.intersection(&theirs.below),
            };
            (!owned.is_empty()).then(|| (step.clone(), owned))
        });
        FieldSet(both.collect())
    }

    /// What is in this one and not in the other, field by field.
    #[must_use]
    pub fn difference(&self, other: &FieldSet) -> Self {
        let left = self.0.iter().filter_map(|(step, ours)| {
            let Some(theirs) = other.0.get(step) else { return Some((step.clone(), ours.clone())) };
            let owned = Owned {
                member: ours.member && !theirs.member,
                below: ours.below.difference(&theirs.below),
            };
            (!owned.is_empty()).then(|| (step.clone(), owned))
        });
        FieldSet(left.collect())
    }

    /// What is in this one, without what is in the other or below it.
    #[must_use]
    pub fn without(&self, other: &FieldSet) -> Self {
        let left = self.0.iter().filter_map(|(step, ours)| {
            let Some(theirs) = other.0.get(step) else { return Some((step.clone(), ours.clone())) };
            if theirs.member {
                return None;
            }
            let owned = Owned { member: ours.member, below: ours.below.without(&theirs.below) };
            (!owned.is_empty()).then(|| (step.clone(), owned))
        });
        FieldSet(left.collect())
    }

    /// The same, with every field that its type names and that has something below it.
    #[must_use]
    pub(super) fn with_named<S: ApplyShape>(&self, shape: Option<&S>) -> Self {
        let all = self.0.iter().map(|(step, owned)| {
            let member = shape.and_then(|shape| match (step.name(), shape.form()) {
                (Some(name), Form::Map | Form::AtomicMap | Form::Untyped) => {
                    Some(shape.member(name))
                }
                (None, Form::List(items, _)) => Some(Member::Entry(items)),
                _ => None,
            });
            let named = matches!(member, Some(Member::Field(_))) && !owned.below.is_empty();
            let below = member.and_then(Member::shape);
            let owned = Owned {
                member: owned.member || named,
                below: owned.below.with_named(below.as_ref()),
            };
            (step.clone(), owned)
        });
        FieldSet(all.collect())
    }

    /// Every path, printed as messages write it.
    pub fn paths(&self) -> Vec<String> {
        let mut all = Vec::new();
        self.collect(&mut String::new(), &mut all);
        all
    }

    fn collect(&self, prefix: &mut String, all: &mut Vec<String>) {
        let length = prefix.len();
        for (step, owned) in &self.0 {
            step.print(prefix);
            if owned.member {
                all.push(prefix.clone());
            }
            owned.below.collect(prefix, all);
            prefix.truncate(length);
        }
    }

    /// Reads `fieldsV1`; steps that make no sense count for nothing.
    pub fn from_value(fields: &Value) -> Self {
        let mut set = FieldSet::default();
        for (key, below) in fields.as_map().into_iter().flat_map(Map::iter) {
            let Some(step) = FieldStep::parse(key) else { continue };
            let inner = below.as_map();
            let member = inner.is_none_or(|map| map.is_empty() || map.contains_key("."));
            let owned = Owned { member, below: FieldSet::from_value(below) };
            if !owned.is_empty() {
                set.0.insert(step, owned);
            }
        }
        set
    }

    /// Writes `fieldsV1`.
    pub fn to_value(&self) -> Value {
        let mut map = Map::new();
        for (step, owned) in &self.0 {
            let mut below = owned.below.to_value();
            if owned.member && !owned.below.is_empty() {
                let mut with = Map::new();
                with.insert(".", Value::map());
                with.extend(
                    below
                        .as_map()
                        .into_iter()
                        .flat_map(Map::iter)
                        .map(|(k, v)| (k.clone(), v.clone())),
                );
                below = Value::Map(with);
            }
            map.insert(step.0.as_str(), below);
        }
        Value::Map(map)
    }
}
