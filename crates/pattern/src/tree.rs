//! An object against a tree of patterns.
//!
//! Maps ask for what they name and leave the rest alone; one map in a list asks it of every element. Anchors
//! are asked first: a condition that does not hold skips the list element it stands in, or the
//! equality anchor it stands below if another anchor beside that one holds; every other mismatch ends the match.

use std::fmt;

use kiln_text::wildcard;
use kiln_value::{Key, List, Map, Path, Segment, Value};

use crate::anchor::{Anchor, AnchorKind};
use crate::effort::{Effort, PatternLimits, TooMuchWork};
use crate::explain::{Log, PatternQuestion};
use crate::leaf::{Numbers, leaf_matches};

/// So many bytes of texts are looked at in one step.
const BYTES_A_STEP: usize = 256;

/// Where an object does not meet a pattern, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// Where in the object, as Kyverno says it: of a key that `*` wants, the map that lacks it.
    pub path: Path,
    /// Where in the object exactly.
    pub at: Path,
    /// Which part of the pattern wants something else there.
    pub pattern: Path,
    /// What the pattern wants there.
    pub why: String,
    /// A condition does not hold, so the pattern says nothing about the object; otherwise the object is
    /// not as the pattern wants it.
    pub condition: bool,
    /// The question was given up.
    pub too_much: Option<TooMuchWork>,
    /// The condition stands in a map or list of its own, below the one that is asked.
    below: bool,
}

impl Mismatch {
    /// Whether it only says that a condition does not hold, so that others may be asked.
    fn passes_over(&self) -> bool {
        self.condition && self.too_much.is_none()
    }
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

/// Whether an object meets a tree of patterns, as a validate rule asks.
///
/// # Errors
/// The first mismatch, or that the question takes too much work.
pub fn matches(pattern: &Value, value: &Value, limits: &PatternLimits) -> Result<(), Mismatch> {
    matches_counted(pattern, value, limits).0
}

/// The same, and how many steps it took: for those who ask many times and count them all together.
pub fn matches_counted(
    pattern: &Value,
    value: &Value,
    limits: &PatternLimits,
) -> (Result<(), Mismatch>, usize) {
    let mut effort = Effort::new(limits);
    let found = Matcher::new(&mut effort, Numbers::Whole).value(pattern, value);
    (found, effort.spent())
}

/// Whether an object meets a tree of patterns, as a condition of a patch asks.
pub(crate) fn matches_within(
    pattern: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<(), Mismatch> {
    Matcher::new(effort, Numbers::Floats).value(pattern, value)
}

pub(crate) struct Matcher<'m> {
    /// Where in the object.
    pub(crate) path: Path,
    pub(crate) pattern: Path,
    effort: &'m mut Effort,
    numbers: Numbers,
    /// Keys with wildcards that stand for a label: where the label is in the pattern now, and the key as it is written.
    renamed: Vec<(Path, Key)>,
    /// The steps, if they are wanted.
    pub(crate) log: Option<Log>,
}

impl<'m> Matcher<'m> {
    pub(crate) fn new(effort: &'m mut Effort, numbers: Numbers) -> Self {
        let (path, pattern) = (Path::root(), Path::root());
        Matcher { path, pattern, effort, numbers, renamed: Vec::new(), log: None }
    }

    /// Where the matcher is in the pattern, with the keys that the user wrote.
    pub(crate) fn written_pattern(&self) -> Path {
        let now = self.pattern.segments();
        let renamed = self.renamed.iter().find(|(path, _)| now.starts_with(path.segments()));
        let Some((path, written)) = renamed else { return self.pattern.clone() };
        let (above, below) = now.split_at(path.segments().len());
        let above = above.split_last().map_or(above, |(_, above)| above);
        let written = std::iter::once(Segment::from(written.as_str()));
        above.iter().cloned().chain(written).chain(below.iter().cloned()).collect()
    }

    pub(crate) fn value(&mut self, pattern: &Value, value: &Value) -> Result<(), Mismatch> {
        self.spend()?;
        match (pattern, value) {
            (Value::Map(pattern), Value::Map(map)) => self.map(pattern, map),
            (Value::List(patterns), Value::List(list)) => self.list(patterns, list),
            (Value::Map(_) | Value::List(_), _) => {
                let wanted = format!("a {} is wanted", pattern.type_name());
                Err(self.wants(|| match value {
                    Value::Null => format!("it is missing, and {wanted}"),
                    _ => wanted,
                }))
            }
            // A leaf is asked of every element.
            (_, Value::List(list)) => {
                for (at, element) in list.iter().enumerate() {
                    self.spend()?;
                    // Kyverno: the list is at fault.
                    self.leaf(pattern, element).map_err(|mut mismatch| {
                        mismatch.at.push(at);
                        mismatch
                    })?;
                }
                Ok(())
            }
            _ => self.leaf(pattern, value),
        }
    }

    fn leaf(&mut self, pattern: &Value, value: &Value) -> Result<(), Mismatch> {
        self.spend_on_texts(pattern, value)?;
        if leaf_matches(pattern, value, self.numbers) {
            return Ok(());
        }
        let shown = kiln_value::json::to_string;
        Err(self.wants(|| match value {
            Value::Null => format!("it is missing, and {} is wanted", shown(pattern)),
            value => format!("{} does not match {}", shown(value), shown(pattern)),
        }))
    }

    fn map(&mut self, pattern: &Map, map: &Map) -> Result<(), Mismatch> {
        let expanded = self.with_label_keys(pattern, map)?;
        let pattern = expanded.as_ref().unwrap_or(pattern);
        let order = self.order(pattern)?;
        let depth = self.depth();
        let (mut met, mut passed_over) = (false, None);
        for (key, wanted, anchor) in order.anchors {
            self.enter(anchor.key, key.as_str());
            let found = map.get(anchor.key);
            let question = || PatternQuestion {
                what: key.to_string(),
                anchor: Some(anchor.kind),
                wanted,
                found,
            };
            match self.logged(question, |matcher| matcher.anchor(anchor, wanted, found)) {
                Ok(()) => met = true,
                Err(mismatch) if mismatch.passes_over() && mismatch.below => {
                    passed_over.get_or_insert(mismatch);
                }
                Err(mismatch) => return Err(Mismatch { below: true, ..mismatch }),
            }
            self.back_to(depth);
        }
        if let Some(mismatch) = passed_over.filter(|_| !met) {
            return Err(mismatch);
        }
        for (key, wanted, anchor) in order.fields {
            let name = anchor.map_or(key.as_str(), |anchor| anchor.key);
            let found = map.get(name);
            self.enter(name, key.as_str());
            let kind = anchor.map(|anchor| anchor.kind);
            let question =
                || PatternQuestion { what: key.to_string(), anchor: kind, wanted, found };
            self.logged(question, |matcher| match anchor {
                Some(anchor) => matcher.anchor(anchor, wanted, found),
                None => matcher.field(key, wanted, found),
            })?;
            self.back_to(depth);
        }
        Ok(())
    }

    fn field(&mut self, key: &Key, wanted: &Value, found: Option<&Value>) -> Result<(), Mismatch> {
        // Kyverno: a star alone takes whatever is there, also maps and lists.
        if wanted.as_str() == Some("*") {
            return match found {
                None | Some(Value::Null) => {
                    // Kyverno: the map that lacks it is at fault.
                    let at = self.path.clone();
                    self.path.pop();
                    let missing = self.wants(|| format!("{:?} is not there", key.as_str()));
                    Err(Mismatch { at, ..missing })
                }
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
                .map_err(|mismatch| Mismatch { condition: true, below: false, ..mismatch }),
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
        for (number, pattern) in patterns.iter().enumerate() {
            if !matches!(pattern, Value::Map(_)) {
                return Err(self.wants(|| "the pattern must be a list of maps".into()));
            }
            let mut met = false;
            for (at, element) in list.iter().enumerate() {
                let depth = self.depth();
                self.enter(at, number);
                let question = || PatternQuestion::element(at, pattern, element);
                let outcome = self.logged(question, |matcher| matcher.value(pattern, element));
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
            Some(first @ Value::Map(_)) => {
                self.elements(list.iter().map(|value| (0, first, value)))
            }
            Some(Value::List(_)) if list.len() < patterns.len() => {
                Err(self.wants(|| format!("at least {} elements are wanted", patterns.len())))
            }
            Some(Value::List(_)) => {
                let pairs = patterns.iter().zip(list.iter()).enumerate();
                self.elements(pairs.map(|(at, (pattern, value))| (at, pattern, value)))
            }
            Some(leaf) => {
                self.pattern.push(0);
                self.value(leaf, &Value::List(list.clone()))?;
                self.pattern.pop();
                Ok(())
            }
        }
    }

    /// Elements whose conditions do not hold are skipped, as long as one is left.
    fn elements<'v>(
        &mut self,
        pairs: impl Iterator<Item = (usize, &'v Value, &'v Value)>,
    ) -> Result<(), Mismatch> {
        let mut met = false;
        let mut passed_over = None;
        for (at, (number, pattern, element)) in pairs.enumerate() {
            let depth = self.depth();
            self.enter(at, number);
            let question = || PatternQuestion::element(at, pattern, element);
            let outcome = self.logged(question, |matcher| matcher.value(pattern, element));
            self.back_to(depth);
            match outcome {
                Ok(()) => met = true,
                Err(mismatch) if mismatch.passes_over() => {
                    passed_over.get_or_insert(mismatch);
                }
                Err(mismatch) => return Err(mismatch),
            }
        }
        match passed_over {
            Some(mismatch) if !met => Err(Mismatch { below: true, ..mismatch }),
            _ => Ok(()),
        }
    }

    fn depth(&self) -> (usize, usize) {
        (self.path.segments().len(), self.pattern.segments().len())
    }

    /// Goes one step down in the object and in the pattern.
    fn enter(&mut self, step: impl Into<Segment>, written: impl Into<Segment>) {
        self.path.push(step);
        self.pattern.push(written);
    }

    fn back_to(&mut self, (path, pattern): (usize, usize)) {
        while self.path.segments().len() > path {
            self.path.pop();
        }
        while self.pattern.segments().len() > pattern {
            self.pattern.pop();
        }
    }

    /// Keys of labels and annotations may have wildcards: a label is meant that meets the key and has a value as wanted, or
    /// else the first that meets the key. Kyverno takes any that meets the key.
    fn with_label_keys(&mut self, pattern: &Map, map: &Map) -> Result<Option<Map>, Mismatch> {
        let numbers = self.numbers;
        let Some(metadata_key) = pattern.keys().find(|key| plain(key) == "metadata").cloned()
        else {
            return Ok(None);
        };
        let Some(metadata) = map.get("metadata") else { return Ok(None) };
        let mut expanded = pattern.clone();
        let mut changed = false;
        let Some(wanted) = expanded.get_mut(&metadata_key).and_then(Value::as_map_mut) else {
            return Ok(None);
        };
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
            // Each key may meet each label.
            self.spend_steps(pairs.len().saturating_mul(there.len()))?;
            let mut named = Map::new();
            for (key, value) in pairs {
                for (name, found) in there {
                    self.spend_on_texts(&Value::from(plain(key)), &Value::from(name.as_str()))?;
                    self.spend_on_texts(value, found)?;
                }
                let meets = |(name, _): &(&Key, &Value)| wildcard::matches(plain(key), name);
                let meant = there
                    .iter()
                    .filter(meets)
                    .find(|(_, found)| leaf_matches(value, found, numbers))
                    .or_else(|| there.iter().find(meets))
                    .map(|(name, _)| name);
                let asked = key;
                let key = match (Anchor::parse(key), meant) {
                    (Some(anchor), Some(meant)) => Anchor { key: meant, ..anchor }.to_string(),
                    (None, Some(meant)) => meant.to_string(),
                    (_, None) => key.to_string(),
                };
                // Two keys may mean one label: the one that it does not meet decides.
                let is_met = meant
                    .and_then(|meant| there.get(meant))
                    .is_some_and(|found| leaf_matches(value, found, numbers));
                if !(is_met && named.contains_key(&key)) {
                    let label = self.pattern.join(&metadata_key).join(&written).join(key.as_str());
                    self.renamed.retain(|(path, _)| *path != label);
                    if key != asked.as_str() {
                        self.renamed.push((label, asked.clone()));
                    }
                    named.insert(key, value.clone());
                }
            }
            wanted.insert(written, named);
            changed = true;
        }
        Ok(changed.then_some(expanded))
    }

    /// A pattern in the order it is asked: anchors, then what else asks for conditions, then the rest.
    fn order<'k>(&mut self, pattern: &'k Map) -> Result<Order<'k>, Mismatch> {
        let (mut anchors, mut fields) = (Vec::new(), Vec::new());
        for (key, wanted) in pattern {
            let anchor =
                Anchor::parse(key).filter(|anchor| anchor.kind != AnchorKind::AddIfNotPresent);
            match anchor {
                Some(anchor) if anchor.kind != AnchorKind::Global => {
                    anchors.push((key, wanted, anchor));
                }
                _ => {
                    let last = anchor.is_none() && !self.holds_anchors(wanted)?;
                    fields.push((last, key, wanted, anchor));
                }
            }
        }
        anchors.sort_by_key(|(key, ..)| *key);
        // Kyverno: those with conditions are asked from the last key to the first.
        fields.sort_by(|(a_last, a, ..), (b_last, b, ..)| {
            a_last.cmp(b_last).then_with(|| if *a_last { a.cmp(b) } else { b.cmp(a) })
        });
        Ok(Order {
            anchors,
            fields: fields
                .into_iter()
                .map(|(_, key, wanted, anchor)| (key, wanted, anchor))
                .collect(),
        })
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
        self.spend_steps(1)
    }

    /// Long texts take as long as many short ones, and wildcards may look at a text once for each.
    fn spend_on_texts(&mut self, pattern: &Value, value: &Value) -> Result<(), Mismatch> {
        let (Some(pattern), Some(text)) = (pattern.as_str(), value.as_str()) else {
            return Ok(());
        };
        let looks = match wildcard::contains_wildcard(pattern) {
            true => pattern.len().saturating_mul(text.len()),
            false => pattern.len().saturating_add(text.len()),
        };
        self.spend_steps(looks / BYTES_A_STEP)
    }

    fn spend_steps(&mut self, steps: usize) -> Result<(), Mismatch> {
        self.effort.spend(steps).map_err(|too_much| Mismatch {
            path: Path::root(),
            at: Path::root(),
            pattern: Path::root(),
            why: too_much.to_string(),
            condition: false,
            too_much: Some(too_much),
            below: false,
        })
    }

    fn wants(&self, why: impl FnOnce() -> String) -> Mismatch {
        let (path, pattern) = (self.path.clone(), self.written_pattern());
        Mismatch {
            at: path.clone(),
            path,
            pattern,
            why: why(),
            condition: false,
            too_much: None,
            below: false,
        }
    }
}

/// The keys of a map pattern in the order they are asked.
struct Order<'k> {
    anchors: Vec<(&'k Key, &'k Value, Anchor<'k>)>,
    /// Plain keys and global anchors.
    fields: Vec<(&'k Key, &'k Value, Option<Anchor<'k>>)>,
}

fn plain(key: &str) -> &str {
    Anchor::parse(key).map_or(key, |anchor| anchor.key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    fn check(pattern: &Value, value: &Value) -> Result<(), String> {
        matches(pattern, value, &PatternLimits::default()).map_err(|mismatch| {
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
        // Two keys that mean one label are both asked.
        let both = |first: Value, second: Value| {
            let labels = Map::from_iter([("app.io/a", first), ("app.io/*", second)]);
            check(&value!({"metadata": {"labels": labels}}), &pod)
        };
        assert_eq!(both("x".into(), "?*".into()), Ok(()));
        assert!(both("y".into(), "?*".into()).is_err());
        assert!(both("x".into(), "y".into()).is_err());
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
        let found = matches(&pattern, &value, &PatternLimits { steps: 10_000 });
        assert_eq!(found.unwrap_err().too_much, Some(TooMuchWork { limit: 10_000 }));
    }
}
