//! The smallest change that makes an object meet a pattern, where there is only one.
//!
//! A mismatch says where the pattern wants something else. What it wants there is often a single value: `false`, the
//! bound that is crossed, the absence of a key. Such changes are made one after the other until the pattern is met. The
//! search ends without an answer where a pattern leaves a choice: alternatives, wildcards with text around them,
//! elements of lists.

use std::fmt;

use kiln_text::{Quantity, range, wildcard};
use kiln_value::{Path, Segment, Value, json};

use crate::anchor::{Anchor, AnchorKind};
use crate::effort::{Effort, PatternLimits};
use crate::leaf::{LeafOperator, Numbers, leaf_matches};
use crate::tree::{Matcher, Mismatch};

/// How many changes a fix may have: more is another object.
const MOST_CHANGES: usize = 32;

/// Changes of an object that make it meet a pattern.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fix {
    /// The changes, in the order they are made.
    pub changes: Vec<FieldChange>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct FieldChange {
    /// The field.
    pub at: Path,
    /// What becomes of it.
    pub to: FieldValue,
}

/// What becomes of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// It gets this value.
    Value(Value),
    /// It gets any value that meets this pattern, such as the example.
    Matching {
        pattern: Value,
        /// A value that meets it.
        example: Value,
    },
    Removed,
}

impl Fix {
    /// The same changes of a larger object, of which the changed one is a part.
    #[must_use]
    pub fn below(mut self, part: &Path) -> Self {
        for change in &mut self.changes {
            change.at = part.segments().iter().chain(change.at.segments()).cloned().collect();
        }
        self
    }

    /// These changes, then others; none if both change the same field.
    #[must_use]
    pub fn then(mut self, others: Fix) -> Option<Self> {
        let twice = |other: &FieldChange| self.changes.iter().any(|own| own.at == other.at);
        if others.changes.iter().any(twice) {
            return None;
        }
        self.changes.extend(others.changes);
        Some(self)
    }

    /// The object with the changes made, examples where any value will do; none if they cannot be made.
    pub fn applied(&self, object: &Value) -> Option<Value> {
        let mut object = object.clone();
        self.changes.iter().try_for_each(|change| change.make(&mut object))?;
        Some(object)
    }
}

impl FieldChange {
    fn make(&self, object: &mut Value) -> Option<()> {
        match &self.to {
            FieldValue::Value(value) | FieldValue::Matching { example: value, .. } => {
                object.set(&self.at, value.clone()).ok()
            }
            FieldValue::Removed => object.remove(&self.at).map(drop),
        }
    }
}

impl fmt::Display for Fix {
    /// An imperative: `set spec.hostNetwork to false and remove spec.hostPID`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, change) in self.changes.iter().enumerate() {
            match at {
                0 => {}
                _ if at + 1 == self.changes.len() => f.write_str(" and ")?,
                _ => f.write_str(", ")?,
            }
            write!(f, "{change}")?;
        }
        Ok(())
    }
}

impl fmt::Display for FieldChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = &self.at;
        match &self.to {
            FieldValue::Value(value) => write!(f, "set {at} to {}", json::to_string(value)),
            FieldValue::Matching { pattern, .. } if is_any(pattern) => write!(f, "set {at}"),
            FieldValue::Matching { pattern, .. } => {
                write!(f, "set {at} to a value that matches {}", json::to_string(pattern))
            }
            FieldValue::Removed => write!(f, "remove {at}"),
        }
    }
}

/// Whether a pattern takes every text that is not empty.
fn is_any(pattern: &Value) -> bool {
    matches!(pattern.as_str(), Some("*" | "?*" | "*?"))
}

/// The smallest change after which an object meets a pattern that it fails; none where the pattern leaves a choice, or
/// where the pattern says nothing about the object.
pub fn fix(pattern: &Value, value: &Value, limits: &PatternLimits) -> Option<Fix> {
    fix_counted(pattern, value, limits).0
}

/// The same, and how many steps it took.
pub fn fix_counted(pattern: &Value, value: &Value, limits: &PatternLimits) -> (Option<Fix>, usize) {
    let mut effort = Effort::new(limits);
    let found = search(pattern, value, &mut effort);
    (found, effort.spent())
}

fn search(pattern: &Value, value: &Value, effort: &mut Effort) -> Option<Fix> {
    let mut now = value.clone();
    let mut fix = Fix::default();
    for _ in 0..=MOST_CHANGES {
        let mismatch = match Matcher::new(effort, Numbers::Whole).value(pattern, &now) {
            Ok(()) => return Some(fix).filter(|fix| !fix.changes.is_empty()),
            Err(mismatch) if mismatch.condition || mismatch.too_much.is_some() => return None,
            Err(mismatch) => mismatch,
        };
        let change = one_change(pattern, &now, mismatch)?;
        change.make(&mut now)?;
        // A map that was put in for what is now set in it needs no mention.
        fix.changes.retain(|before| {
            let is_above = change.at.segments().starts_with(before.at.segments());
            !(is_above && before.at != change.at)
        });
        if fix.changes.iter().any(|before| before.at == change.at) {
            return None;
        }
        fix.changes.push(change);
    }
    None
}

/// What the part of the pattern that is not met wants, if that is one thing.
fn one_change(pattern: &Value, object: &Value, mismatch: Mismatch) -> Option<FieldChange> {
    let Mismatch { at, pattern: written, .. } = mismatch;
    if at.is_root() {
        return None;
    }
    let anchor = match written.segments().last() {
        Some(Segment::Key(key)) => Anchor::parse(key).map(|anchor| anchor.kind),
        _ => None,
    };
    // No label is called as a key with wildcards says.
    let is_name = |step: &Segment| match step {
        Segment::Key(key) => !wildcard::contains_wildcard(key),
        Segment::Index(_) => true,
    };
    if object.get_path(&at).is_none() && !at.segments().iter().all(is_name) {
        return None;
    }
    let to = match (anchor, pattern.get_path(&written)?, object.get_path(&at)) {
        (Some(AnchorKind::Negation), _, _) => FieldValue::Removed,
        (Some(AnchorKind::Existence), ..) | (_, Value::List(_), _) => return None,
        (_, Value::Map(_), None | Some(Value::Null)) => FieldValue::Value(Value::map()),
        (_, Value::Map(_), Some(_)) => return None,
        (_, Value::Null, _) => match at.segments().last() {
            Some(Segment::Key(_)) => FieldValue::Removed,
            _ => return None,
        },
        (_, leaf, found) => wanted(leaf, found.unwrap_or(&Value::Null), is_text(&at))?,
    };
    Some(FieldChange { at, to })
}

/// Whether a field holds text, whatever it looks like.
fn is_text(at: &Path) -> bool {
    const MAPS_OF_TEXT: [&str; 6] =
        ["labels", "annotations", "matchLabels", "nodeSelector", "data", "stringData"];
    let mut from_the_end = at.segments().iter().rev();
    // The `value` of an environment variable.
    let is_value = matches!(from_the_end.next(), Some(Segment::Key(key)) if key == "value");
    let above = from_the_end.next();
    is_value || matches!(above, Some(Segment::Key(key)) if MAPS_OF_TEXT.contains(&key.as_str()))
}

/// The one value that a leaf of a pattern wants in the place of another.
fn wanted(leaf: &Value, found: &Value, is_text: bool) -> Option<FieldValue> {
    let Value::String(text) = leaf else { return Some(FieldValue::Value(leaf.clone())) };
    let meets = |value: &Value| leaf_matches(leaf, value, Numbers::Whole);
    if !text.is_empty() && text.chars().all(|c| matches!(c, '*' | '?')) {
        let example = Value::from("x".repeat(text.len()));
        let pattern = leaf.clone();
        return meets(&example).then_some(FieldValue::Matching { pattern, example });
    }
    let mut values: Vec<Value> = Vec::new();
    for alternative in text.split('|') {
        for part in alternative.split('&').map(str::trim) {
            match bounds(part)? {
                Bounds::Values(texts) => {
                    values.extend(texts.into_iter().map(|text| typed(text, found, is_text)));
                }
                Bounds::Beyond(limit, step) => {
                    let limit: i64 = limit.parse().ok()?;
                    let example = Value::from(limit.checked_add(step)?);
                    let pattern = leaf.clone();
                    let is_all = text.trim() == part;
                    return (is_all && meets(&example))
                        .then_some(FieldValue::Matching { pattern, example });
                }
            }
        }
    }
    values.retain(meets);
    values.dedup();
    match values.as_slice() {
        [only] => Some(FieldValue::Value(only.clone())),
        several => nearest(several, found).map(FieldValue::Value),
    }
}

/// The values at which a part of a pattern begins to be met.
enum Bounds<'t> {
    Values(Vec<&'t str>),
    /// Those beyond a number, which itself does not meet it.
    Beyond(&'t str, i64),
}

/// None if any number of values are as good.
fn bounds(part: &str) -> Option<Bounds<'_>> {
    let (operator, rest) = LeafOperator::split(part);
    let rest = rest.trim();
    let ends = range::ends(part, "!-").or_else(|| range::ends(part, "-"));
    if let (LeafOperator::Equal, Some((from, to))) = (operator, ends) {
        return Some(Bounds::Values(vec![from, to]));
    }
    match (operator, rest) {
        _ if wildcard::contains_wildcard(rest) => None,
        (LeafOperator::Equal | LeafOperator::MoreEqual | LeafOperator::LessEqual, rest) => {
            Some(Bounds::Values(vec![rest]))
        }
        (LeafOperator::NotEqual, "true") => Some(Bounds::Values(vec!["false"])),
        (LeafOperator::NotEqual, "false") => Some(Bounds::Values(vec!["true"])),
        (LeafOperator::NotEqual, _) => None,
        (LeafOperator::More, rest) => Some(Bounds::Beyond(rest, 1)),
        (LeafOperator::Less, rest) => Some(Bounds::Beyond(rest, -1)),
    }
}

/// A text of a pattern as a value of the type that the field has, or may well have.
fn typed(text: &str, found: &Value, is_text: bool) -> Value {
    let of_text = || Value::from(text);
    match found {
        _ if is_text => of_text(),
        Value::String(_) => of_text(),
        _ => match (text, text.parse::<i64>()) {
            ("true", _) => Value::from(true),
            ("false", _) => Value::from(false),
            (_, Ok(number)) => Value::from(number),
            _ => of_text(),
        },
    }
}

/// The value next to the one that is there, if it is beyond all of them.
fn nearest(values: &[Value], found: &Value) -> Option<Value> {
    let quantity = |value: &Value| match value {
        Value::String(text) => Quantity::parse(text).ok(),
        Value::Number(number) => Quantity::parse(&number.to_string()).ok(),
        _ => None,
    };
    let found = quantity(found)?;
    let mut sorted =
        values.iter().map(|value| Some((quantity(value)?, value))).collect::<Option<Vec<_>>>()?;
    sorted.sort_by(|(a, _), (b, _)| a.cmp(b));
    let ((least, low), (most, high)) = (sorted.first()?, sorted.last()?);
    if found < *least {
        return Some((*low).clone());
    }
    (found > *most).then(|| (*high).clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn said(pattern: &Value, object: &Value) -> Option<String> {
        let found = fix(pattern, object, &PatternLimits::default())?;
        let changed = found.applied(object).unwrap();
        assert_eq!(crate::matches(pattern, &changed, &PatternLimits::default()), Ok(()));
        Some(found.to_string())
    }

    #[test]
    fn labels_that_a_wildcard_means_are_named_as_they_are() {
        let object = value!({"metadata": {"labels": {"app.io/tier": "back"}}});
        for (pattern, wanted) in [
            (
                value!({"metadata": {"labels": {"app.io/*": "front"}}}),
                Some("set metadata.labels[\"app.io/tier\"] to \"front\""),
            ),
            (value!({"metadata": {"labels": {"team.io/*": "front"}}}), None),
        ] {
            assert_eq!(said(&pattern, &object).as_deref(), wanted, "{pattern:?}");
        }
    }

    #[test]
    fn one_value_is_named_and_choices_are_not() {
        let object = value!({
            "n": 7, "b": true, "t": "x", "m": "100Mi", "l": [{"k": 1}], "labels": {"a": "b"},
        });
        for (pattern, wanted) in [
            (value!({"b": false}), Some("set b to false")),
            (value!({"b": "!true"}), Some("set b to false")),
            (value!({"n": "<=4"}), Some("set n to 4")),
            (value!({"n": "1-5"}), Some("set n to 5")),
            (value!({"n": ">=8 & <=9"}), Some("set n to 8")),
            (value!({"n": ">7"}), Some("set n to a value that matches \">7\"")),
            (value!({"m": "<=50Mi"}), Some("set m to \"50Mi\"")),
            (value!({"q": {"r": "?*"}}), Some("set q.r")),
            (value!({"labels": {"on": "true"}}), Some("set labels.on to \"true\"")),
            (value!({"t": null}), Some("remove t")),
            (value!({"X(t)": "null"}), Some("remove t")),
            (
                value!({"b": false, "X(t)": "null", "l": [{"k": "2"}]}),
                Some("remove t, set b to false and set l[0].k to 2"),
            ),
            (value!({"t": "a | b"}), None),
            (value!({"t": "a*"}), None),
            (value!({"t": "!x"}), None),
            (value!({"n": "!7"}), None),
            (value!({"list": [{"k": 1}]}), None),
            (value!({"^(l)": [{"k": 2}]}), None),
            (value!({"(n)": 1, "b": false}), None),
            (value!({"n": 7}), None),
        ] {
            assert_eq!(said(&pattern, &object).as_deref(), wanted, "{pattern:?}");
        }
    }
}
