//! Why Kyverno has an error where a pattern of Kiln fails: the causes that docs/reference/differences/kyverno.md names.

use std::collections::BTreeMap;

use kiln_pattern::{Anchor, AnchorKind, value_matches};
use kiln_value::{Map, Value};

/// A cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatternError {
    /// A key with a condition or existence anchor is in no map of the resource that the pattern comes to.
    MissingAnchorKey,
    /// A list of lists is shorter than its pattern.
    ShortListOfLists,
    /// An existence anchor is on something that is not a list.
    ExistenceOfNoList,
}

/// The cause of an error of Kyverno about a pattern and a resource; none if there is none that is known.
pub(super) fn cause(pattern: &Value, resource: &Value) -> Option<PatternError> {
    let mut walk = Walk::default();
    walk.value(pattern, resource);
    let is_missing = walk.anchors.values().any(|is_there| !is_there);
    is_missing.then_some(PatternError::MissingAnchorKey).or(walk.cause)
}

/// The same for patterns that are about parts of a resource: some part has the cause.
pub(super) fn cause_in_parts(pattern: &Value, resource: &Value) -> Option<PatternError> {
    cause(pattern, resource).or_else(|| match resource {
        Value::Map(map) => map.iter().find_map(|(_, part)| cause_in_parts(pattern, part)),
        Value::List(list) => list.iter().find_map(|part| cause_in_parts(pattern, part)),
        _ => None,
    })
}

#[derive(Default)]
struct Walk<'p> {
    /// Whether a key with an anchor was found in some map.
    anchors: BTreeMap<&'p str, bool>,
    cause: Option<PatternError>,
}

impl<'p> Walk<'p> {
    fn value(&mut self, pattern: &'p Value, value: &Value) {
        match (pattern, value) {
            (Value::Map(pattern), Value::Map(map)) => self.map(pattern, map),
            (Value::List(patterns), Value::List(list)) => {
                let is_of_lists = matches!(patterns.first(), Some(Value::List(_)));
                if is_of_lists && list.len() < patterns.len() {
                    self.cause.get_or_insert(PatternError::ShortListOfLists);
                }
                for pattern in patterns {
                    list.iter().for_each(|value| self.value(pattern, value));
                }
            }
            _ => {}
        }
    }

    fn map(&mut self, pattern: &'p Map, map: &Map) {
        for (key, wanted) in pattern {
            let anchor = Anchor::parse(key);
            let name = anchor.map_or(key.as_str(), |anchor| anchor.key);
            // Labels and annotations may be named with wildcards.
            let meets = |key: &str| value_matches(&Value::from(name), &Value::from(key));
            let by_wildcard =
                || map.iter().find(|(key, _)| name.contains(['*', '?']) && meets(key));
            let found = map.get(name).or_else(|| by_wildcard().map(|(_, value)| value));
            let kind = anchor.map(|anchor| anchor.kind);
            if matches!(kind, Some(AnchorKind::Condition | AnchorKind::Existence)) {
                *self.anchors.entry(key.as_str()).or_default() |= found.is_some();
            }
            let is_list = found.is_some_and(|found| found.as_list().is_some());
            if kind == Some(AnchorKind::Existence) && found.is_some() && !is_list {
                self.cause.get_or_insert(PatternError::ExistenceOfNoList);
            }
            if let Some(found) = found {
                self.value(wanted, found);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn only_named_causes_excuse_an_error() {
        let resource = value!({"a": {"b": 1}, "l": [{"k": 1}, {}], "m": [[1]]});
        for (pattern, wanted) in [
            (value!({"(x)": 1, "a": {"b": 2}}), Some(PatternError::MissingAnchorKey)),
            (value!({"a": {"^(x)": [{"y": 1}]}}), Some(PatternError::MissingAnchorKey)),
            (value!({"m": [[1], [2]]}), Some(PatternError::ShortListOfLists)),
            (value!({"^(a)": [{"b": 1}]}), Some(PatternError::ExistenceOfNoList)),
            // One element that has the key is enough, and other anchors do not count.
            (value!({"l": [{"(k)": 2}]}), None),
            (value!({"=(x)": 1, "X(y)": 2, "a": {"b": 2}}), None),
            (value!({"a": {"b": 2}}), None),
        ] {
            assert_eq!(cause(&pattern, &resource), wanted, "{pattern:?}");
        }
        assert_eq!(
            cause_in_parts(&value!({"(y)": 1}), &value!({"y": {"z": 1}})),
            Some(PatternError::MissingAnchorKey)
        );
    }
}
