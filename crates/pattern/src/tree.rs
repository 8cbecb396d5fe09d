//! An object against a tree of patterns.
//!
//! Maps ask for what they name and leave the rest alone; one map in a list asks it of every element. Anchors
//! are asked first: a condition that does not hold passes over the list element it stands in, and every
//! other mismatch ends the match.

use std::fmt;

use kiln_text::wildcard;
use kiln_value::{Key, List, Map, Path, Value};

use crate::anchor::{Anchor, AnchorKind};
use crate::effort::{Effort, Limits, TooMuchWork};
use crate::leaf::value_matches;

/// Where an object does not meet a pattern, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the object.
    pub path: Path,
    /// What the pattern wants there.
    pub why: String,
    /// A condition does not hold, so the pattern says nothing about the object; otherwise the object is
    /// not as the pattern wants it.
    pub condition: bool,
    /// The question was given up.
    pub too_much: Option<TooMuchWork>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            f.write_str(&self.why)
        } else {
            write!(f, "{}: {}", self.path, self.why)
        }
    }
}

impl std::error::Error for Mismatch {}

/// Whether a value meets a tree of patterns.
///
/// # Errors
/// The first mismatch, or that the question takes too much work.
pub fn matches(pattern: &Value, value: &Value, limits: &Limits) -> Result<(), Mismatch> {
    matches_within(pattern, value, &mut Effort::new(limits))
}

pub(crate) fn matches_within(
    pattern: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<(), Mismatch> {
    Matcher { path: Path::root(), effort }.value(pattern, value)
}

struct Matcher<'m> {
    path: Path,
    effort: &'m mut Effort,
}

impl Matcher<'_> {
    fn value(&mut self, pattern: &Value, value: &Value) -> Result<(), Mismatch> {
        self.spend()?;
        match (pattern, value) {
            (Value::Map(pattern), Value::Map(map)) => self.map(pattern, map),
            (Value::List(patterns), Value::List(list)) => self.list(patterns, list),
            (Value::Map(_) | Value::List(_), _) => {
                Err(self.wants(|| format!("a {} is wanted", pattern.type_name())))
            }
            // A leaf is asked of every element.
            (_, Value::List(list)) => {
                for element in list {
                    self.spend()?;
                    self.leaf(pattern, element)?;
                }
                Ok(())
            }
            _ => self.leaf(pattern, value),
        }
    }

    fn leaf(&self, pattern: &Value, value: &Value) -> Result<(), Mismatch> {
        if value_matches(pattern, value) {
            return Ok(());
        }
        let shown = kiln_value::json::to_string;
        Err(self.wants(|| format!("{} does not match {}", shown(value), shown(pattern))))
    }

    fn map(&mut self, pattern: &Map, map: &Map) -> Result<(), Mismatch> {
        let expanded = with_label_keys(pattern, map);
        let pattern = expanded.as_ref().unwrap_or(pattern);
        for key in self.order(pattern)? {
            let Some(wanted) = pattern.get(key) else { continue };
            match Anchor::parse(key) {
                Some(anchor) if anchor.kind != AnchorKind::AddIfNotPresent => {
                    self.path.push(anchor.key);
                    self.anchor(anchor, wanted, map.get(anchor.key))?;
                }
                _ => {
                    self.path.push(key);
                    self.field(wanted, map.get(key))?;
                }
            }
            self.path.pop();
        }
        Ok(())
    }

    fn field(&mut self, wanted: &Value, found: Option<&Value>) -> Result<(), Mismatch> {
        // Kyverno: a star alone takes whatever is there, also maps and lists.
        if wanted.as_str() == Some("*") {
            return match found {
                None | Some(Value::Null) => Err(self.wants(|| "it is not there".into())),
                Some(_) => Ok(()),
            };
        }
        self.value(wanted, found.unwrap_or(&Value::Null))
    }

    fn anchor(
        &mut self,
        anchor: Anchor<'_>,
        wanted: &Value,
        found: Option<&Value>,
    ) -> Result<(), Mismatch> {
        match (anchor.kind, found) {
            (AnchorKind::Negation, Some(_)) => Err(self.wants(|| "it is not allowed".into())),
            (AnchorKind::Condition, None) => {
                let missing = self.wants(|| "it is not there".into());
                Err(Mismatch { condition: true, ..missing })
            }
            (AnchorKind::Condition | AnchorKind::Global, Some(found)) => self
                .value(wanted, found)
                .map_err(|mismatch| Mismatch { condition: true, ..mismatch }),
            (AnchorKind::Existence, Some(found)) => self.existence(wanted, found),
            (_, Some(found)) => self.value(wanted, found),
            (_, None) => Ok(()),
        }
    }

    /// Every pattern must be met by some element.
    fn existence(&mut self, wanted: &Value, found: &Value) -> Result<(), Mismatch> {
        let (Value::List(patterns), Value::List(list)) = (wanted, found) else {
            return Err(self.wants(|| "a list is wanted".into()));
        };
        for pattern in patterns {
            if !matches!(pattern, Value::Map(_)) {
                return Err(self.wants(|| "the pattern must be a list of maps".into()));
            }
            let mut met = false;
            for (at, element) in list.iter().enumerate() {
                let depth = self.path.segments().len();
                self.path.push(at);
                let outcome = self.value(pattern, element);
                self.back_to(depth);
                match outcome {
                    Ok(()) => {
                        met = true;
                        break;
                    }
                    Err(mismatch) if mismatch.too_much.is_some() => return Err(mismatch),
                    Err(_) => {}
                }
            }
            if !met {
                return Err(self.wants(|| "no element is as wanted".into()));
            }
        }
        Ok(())
    }

    fn list(&mut self, patterns: &List, list: &List) -> Result<(), Mismatch> {
        match patterns.first() {
            None => Err(self.wants(|| "the pattern is an empty list".into())),
            // Kyverno: only the first pattern of a list counts, unless they are lists.
            Some(first @ Value::Map(_)) => self.elements(list.iter().map(|value| (first, value))),
            Some(Value::List(_)) if list.len() < patterns.len() => {
                Err(self.wants(|| format!("at least {} elements are wanted", patterns.len())))
            }
            Some(Value::List(_)) => self.elements(patterns.iter().zip(list.iter())),
            Some(leaf) => self.value(leaf, &Value::List(list.clone())),
        }
    }

    /// Elements whose conditions do not hold are passed over, as long as one is left.
    fn elements<'v>(
        &mut self,
        pairs: impl Iterator<Item = (&'v Value, &'v Value)>,
    ) -> Result<(), Mismatch> {
        let mut met = false;
        let mut passed_over = None;
        for (at, (pattern, element)) in pairs.enumerate() {
            let depth = self.path.segments().len();
            self.path.push(at);
            let outcome = self.value(pattern, element);
            self.back_to(depth);
            match outcome {
                Ok(()) => met = true,
                Err(mismatch) if mismatch.condition => {
                    passed_over.get_or_insert(mismatch);
                }
                Err(mismatch) => return Err(mismatch),
            }
        }
        match passed_over {
            Some(mismatch) if !met => Err(mismatch),
            _ => Ok(()),
        }
    }

    fn back_to(&mut self, depth: usize) {
        while self.path.segments().len() > depth {
            self.path.pop();
        }
    }

    /// The keys of a pattern in the order they are asked: anchors, then what holds anchors, then the
    /// rest.
    fn order<'k>(&mut self, pattern: &'k Map) -> Result<Vec<&'k Key>, Mismatch> {
        let mut keys = Vec::with_capacity(pattern.len());
        for (key, value) in pattern {
            let rank = match Anchor::parse(key).map(|anchor| anchor.kind) {
                Some(AnchorKind::Global) => 1,
                Some(kind) if kind != AnchorKind::AddIfNotPresent => 0,
                _ if self.holds_anchors(value)? => 1,
                _ => 2,
            };
            keys.push((rank, key));
        }
        keys.sort();
        Ok(keys.into_iter().map(|(_, key)| key).collect())
    }

    fn holds_anchors(&mut self, value: &Value) -> Result<bool, Mismatch> {
        self.spend()?;
        let asks = |key: &Key| {
            Anchor::parse(key).is_some_and(|anchor| anchor.kind != AnchorKind::AddIfNotPresent)
        };
        match value {
            Value::Map(map) => {
                for (key, value) in map {
                    if asks(key) || self.holds_anchors(value)? {
                        return Ok(true);
                    }
                }
            }
            Value::List(list) => {
                for element in list {
                    if self.holds_anchors(element)? {
                        return Ok(true);
                    }
                }
            }
            _ => {}
        }
        Ok(false)
    }

    fn spend(&mut self) -> Result<(), Mismatch> {
        self.effort.spend(1).map_err(|too_much| Mismatch {
            path: Path::root(),
            why: too_much.to_string(),
            condition: false,
            too_much: Some(too_much),
        })
    }

    fn wants(&self, why: impl FnOnce() -> String) -> Mismatch {
        Mismatch { path: self.path.clone(), why: why(), condition: false, too_much: None }
    }
}

/// Kyverno: keys of labels and annotations may have wildcards; the first label that meets one is meant.
fn with_label_keys(pattern: &Map, map: &Map) -> Option<Map> {
    let key = pattern.keys().find(|key| plain(key) == "metadata")?.clone();
    let metadata = map.get("metadata")?;
    let mut expanded = pattern.clone();
    let mut changed = false;
    let wanted = expanded.get_mut(&key)?.as_map_mut()?;
    for field in ["labels", "annotations"] {
        let Some(written) = wanted.keys().find(|key| plain(key) == field).cloned() else {
            continue;
        };
        let (Some(Value::Map(pairs)), Some(Value::Map(there))) =
            (wanted.get(&written), metadata.get(field))
        else {
            continue;
        };
        if !pairs.keys().any(|key| wildcard::contains_wildcard(key)) {
            continue;
        }
        let mut named = Map::new();
        for (key, value) in pairs {
            let meant = there.keys().find(|there| wildcard::matches(plain(key), there));
            let key = match (Anchor::parse(key), meant) {
                (Some(anchor), Some(meant)) => Anchor { key: meant, ..anchor }.to_string(),
                (None, Some(meant)) => meant.to_string(),
                (_, None) => key.to_string(),
            };
            named.insert(key, value.clone());
        }
        wanted.insert(written, named);
        changed = true;
    }
    changed.then_some(expanded)
}

fn plain(key: &str) -> &str {
    Anchor::parse(key).map_or(key, |anchor| anchor.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn check(pattern: &Value, value: &Value) -> Result<(), String> {
        matches(pattern, value, &Limits::default()).map_err(|mismatch| {
            format!("{mismatch}{}", if mismatch.condition { " (condition)" } else { "" })
        })
    }

    #[test]
    fn a_map_asks_for_what_it_names() {
        let pod =
            value!({"metadata": {"name": "p", "labels": {"app.io/a": "x"}}, "spec": {"n": 5}});
        assert_eq!(check(&value!({"spec": {"n": ">3"}}), &pod), Ok(()));
        assert_eq!(
            check(&value!({"spec": {"n": ">7"}}), &pod),
            Err("spec.n: 5 does not match \">7\"".into())
        );
        assert_eq!(check(&value!({"metadata": "*"}), &pod), Ok(()));
        assert_eq!(check(&value!({"metadata": {"labels": {"app.io/*": "x"}}}), &pod), Ok(()));
        assert_eq!(check(&value!({"metadata": {"=(labels)": {"=(app.io/*)": "x"}}}), &pod), Ok(()));
        assert!(check(&value!({"metadata": {"labels": {"b*": "x"}}}), &pod).is_err());
    }

    #[test]
    fn every_anchor_has_its_question() {
        let pod = value!({"a": 1, "list": [{"k": "x", "v": 1}, {"k": "y", "v": 2}]});
        for (pattern, wanted) in [
            (value!({"(a)": 1}), Ok(())),
            (value!({"(b)": 1}), Err("b: it is not there (condition)")),
            (value!({"<(b)": 1}), Ok(())),
            (value!({"<(a)": 2}), Err("a: 1 does not match 2 (condition)")),
            (value!({"=(b)": 1}), Ok(())),
            (value!({"=(a)": 2}), Err("a: 1 does not match 2")),
            (value!({"X(b)": "null"}), Ok(())),
            (value!({"X(a)": "null"}), Err("a: it is not allowed")),
            (value!({"^(list)": [{"k": "y"}]}), Ok(())),
            (value!({"^(list)": [{"k": "z"}]}), Err("list: no element is as wanted")),
            (value!({"list": [{"(k)": "x", "v": 1}]}), Ok(())),
            (value!({"list": [{"k": "x"}]}), Err("list[1].k: \"y\" does not match \"x\"")),
            (
                value!({"list": [{"(k)": "z", "v": 9}]}),
                Err("list[0].k: \"x\" does not match \"z\" (condition)"),
            ),
        ] {
            let wanted = wanted.map_err(str::to_owned);
            assert_eq!(check(&pattern, &pod), wanted, "{pattern:?}");
        }
    }

    #[test]
    fn a_product_of_lists_ends_at_the_limit() {
        let many = || (0..2000).map(|at| value!({"k": at})).collect::<Value>();
        let (pattern, value) = (value!({"^(list)": many()}), value!({"list": many()}));
        let found = matches(&pattern, &value, &Limits { steps: 10_000 });
        assert_eq!(found.unwrap_err().too_much, Some(TooMuchWork { limit: 10_000 }));
    }
}
