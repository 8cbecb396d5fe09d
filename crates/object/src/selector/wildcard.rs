//! Kyverno's selectors, whose `matchLabels` may have wildcards in keys and values.

use kiln_text::wildcard;
use kiln_value::{Map, Value};

use super::{
    Requirement, Selector, SelectorError, SelectorOperator, expect_map, label_requirement,
    match_expressions, match_labels,
};
use crate::metadata::scalar_text;

/// A selector in the form with `matchLabels` and `matchExpressions`; the former may have wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WildcardSelector {
    plain: Selector,
    patterns: Vec<WildcardPattern>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct WildcardPattern {
    key: String,
    value: String,
    /// What Kyverno would look for if no label matched; a mistake in it is an error only then.
    // Kyverno: wildcard characters become `0`, so that nothing is found.
    unmatched: Result<Requirement, SelectorError>,
}

impl WildcardSelector {
    /// Reads a selector. An empty map selects everything, null selects nothing.
    ///
    /// # Errors
    /// As [`Selector::from_value`]; pairs with wildcards are not checked here.
    pub fn from_value(selector: &Value) -> Result<Self, SelectorError> {
        let fields = match selector {
            Value::Null => {
                return Ok(WildcardSelector { plain: Selector::nothing(), patterns: Vec::new() });
            }
            selector => expect_map(selector, "the selector")?,
        };
        let mut patterns = Vec::new();
        let mut requirements = Vec::new();
        for (key, value) in match_labels(fields)? {
            if wildcard::contains_wildcard(&key) || wildcard::contains_wildcard(&value) {
                let zeros = |text: &str| text.replace(['*', '?'], "0");
                let unmatched = label_requirement(&zeros(&key), &zeros(&value));
                patterns.push(WildcardPattern { key, value, unmatched });
            } else {
                requirements.push(label_requirement(&key, &value)?);
            }
        }
        requirements.extend(match_expressions(fields)?);
        Ok(WildcardSelector { plain: Selector::new(requirements), patterns })
    }

    /// The labels that every selected object has, each with its possible values. Those of pairs with wildcards are left
    /// out.
    pub fn required_labels(&self) -> impl Iterator<Item = (&str, &[String])> {
        let requirements = self.plain.requirements().iter();
        requirements.filter(|one| one.asks_for_a_value()).map(|one| (one.key(), one.values()))
    }

    /// Labels of an object that it selects, unless its requirements exclude each other.
    pub fn example_labels(&self) -> Vec<(String, String)> {
        let plain = self.plain.requirements().iter().filter_map(|one| {
            let value = one.values().first();
            let value = match one.operator() {
                SelectorOperator::Equals
                | SelectorOperator::DoubleEquals
                | SelectorOperator::In => value?.clone(),
                SelectorOperator::Exists => "true".to_owned(),
                SelectorOperator::GreaterThan => (value?.parse::<i64>().ok()? + 1).to_string(),
                SelectorOperator::LessThan => (value?.parse::<i64>().ok()? - 1).to_string(),
                SelectorOperator::NotEquals
                | SelectorOperator::NotIn
                | SelectorOperator::DoesNotExist => return None,
            };
            Some((one.key().to_owned(), value))
        });
        let instance = |wildcard: &str| wildcard.replace(['*', '?'], "x");
        let patterns = self.patterns.iter().map(|one| (instance(&one.key), instance(&one.value)));
        plain.chain(patterns).collect()
    }

    /// Whether it selects an object with these labels.
    ///
    /// # Errors
    /// When a pair with wildcards matches no label and is not a possible label itself.
    pub fn matches(&self, labels: Option<&Map>) -> Result<bool, SelectorError> {
        let mut all = true;
        for pattern in &self.patterns {
            let found = labels.is_some_and(|labels| {
                labels.iter().any(|(key, value)| {
                    wildcard::matches(&pattern.key, key.as_str())
                        && scalar_text(value).is_some_and(|v| wildcard::matches(&pattern.value, &v))
                })
            });
            if !found {
                pattern.unmatched.clone()?;
                all = false;
            }
        }
        Ok(all && self.plain.matches(labels))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn wildcards_stand_for_labels_that_exist() {
        let labels = value!({"app.kubernetes.io/name": "web-1", "tier": "front"});
        for (pairs, selected) in [
            (value!({"app.*/name": "web-?"}), true),
            (value!({"*": "front"}), true),
            (value!({"tier": "?*"}), true),
            (value!({"tier": "b*"}), false),
            (value!({"none*": "*"}), false),
            (value!({"tier": "front", "app*": "*"}), true),
            (value!({"tier": "back", "app*": "*"}), false),
        ] {
            let selector = WildcardSelector::from_value(&value!({"matchLabels": pairs})).unwrap();
            assert_eq!(selector.matches(labels.as_map()), Ok(selected), "{selector:?}");
        }
        let nothing = WildcardSelector::from_value(&value!(null)).unwrap();
        assert_eq!(nothing.matches(labels.as_map()), Ok(false));
    }

    #[test]
    fn objects_with_the_labels_of_an_example_are_selected() {
        let selector = value!({"matchLabels": {"app": "web", "team-?": "a*"}, "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["front", "back"]},
            {"key": "owner", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
            {"key": "zone", "operator": "NotIn", "values": ["x"]},
        ]});
        let selector = WildcardSelector::from_value(&selector).unwrap();
        let labels = selector.example_labels();
        assert_eq!(labels.len(), 4, "{labels:?}");
        let labels: Map =
            labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        assert_eq!(selector.matches(Some(&labels)), Ok(true));
    }

    #[test]
    fn impossible_pairs_fail_only_when_unmatched() {
        let selector = value!({"matchLabels": {"*/a b": "*"}});
        let selector = WildcardSelector::from_value(&selector).unwrap();
        assert!(selector.matches(value!({"x": "y"}).as_map()).is_err());
        assert!(selector.matches(None).is_err());
        assert_eq!(selector.matches(value!({"x/a b": "y"}).as_map()), Ok(true));
    }
}
