//! `AnyIn`, `AllIn`, `AnyNotIn`, `AllNotIn`, and the deprecated `In` and `NotIn`.
//!
//! A key is one element or a list of them; a value is a list, a text that holds a JSON list, a range,
//! or one element. Everything is compared as text, as Go prints it.

use std::collections::HashSet;

use kiln_text::wildcard;
use kiln_value::{List, Value, json};

use super::compare::{Compared, ComparisonRule, Effort, Exhausted};
use super::operator::ConditionOperator;
use super::range::Range;
use super::text;

/// Whether the elements of the key are in the value, as the operator wants it.
pub(super) fn contains(
    operator: ConditionOperator,
    key: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    let exact = matches!(operator, ConditionOperator::In | ConditionOperator::NotIn);
    match key {
        Value::Null | Value::Map(_) => Ok(ComparisonRule::WrongKey.decides(false)),
        Value::List(keys) if exact => exact_list(operator, keys, value, effort),
        Value::List(keys) => list(operator, keys, value, effort),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            let key = text::printed(key, effort)?;
            let (found, rule) = if exact {
                exact_scalar(&key, value, effort)?
            } else {
                scalar(&key, value, effort)?
            };
            // A value of the wrong kind fails the negated operators too.
            let wanted = !is_negated(operator);
            Ok(rule.decides(rule != ComparisonRule::WrongValue && found == wanted))
        }
    }
}

fn is_negated(operator: ConditionOperator) -> bool {
    matches!(
        operator,
        ConditionOperator::NotIn | ConditionOperator::AnyNotIn | ConditionOperator::AllNotIn
    )
}

fn scalar(
    key: &str,
    value: &Value,
    effort: &mut Effort,
) -> Result<(bool, ComparisonRule), Exhausted> {
    let Value::String(value) = value else {
        return listed(key, value, effort);
    };
    if effort.matches(value, key)? {
        return Ok((true, ComparisonRule::Wildcard));
    }
    if let Some(range) = Range::parse(value) {
        return Ok((range.contains(key), Range::RULE));
    }
    effort.spend(value.len())?;
    Ok(match json_texts(value) {
        JsonTexts::NotJson => (key == value.as_str(), ComparisonRule::Wildcard),
        JsonTexts::NotTexts => (false, ComparisonRule::WrongValue),
        JsonTexts::Texts(texts) => {
            (texts.iter().any(|text| text == key), ComparisonRule::ExactElements)
        }
    })
}

/// No ranges, and text that is not a pattern for the key has to hold a JSON list.
fn exact_scalar(
    key: &str,
    value: &Value,
    effort: &mut Effort,
) -> Result<(bool, ComparisonRule), Exhausted> {
    let Value::String(value) = value else {
        return listed(key, value, effort);
    };
    if effort.matches(value, key)? {
        return Ok((true, ComparisonRule::Wildcard));
    }
    effort.spend(value.len())?;
    Ok(match json_texts(value) {
        JsonTexts::NotJson | JsonTexts::NotTexts => (false, ComparisonRule::WrongValue),
        JsonTexts::Texts(texts) => {
            (texts.iter().any(|text| text == key), ComparisonRule::ExactElements)
        }
    })
}

/// Whether an element of a list matches the key, or the key as a pattern an element.
fn listed(
    key: &str,
    value: &Value,
    effort: &mut Effort,
) -> Result<(bool, ComparisonRule), Exhausted> {
    let Value::List(elements) = value else {
        return Ok((false, ComparisonRule::WrongValue));
    };
    for element in elements {
        let element = text::printed(element, effort)?;
        if effort.matches(&element, key)? || effort.matches(key, &element)? {
            return Ok((true, ComparisonRule::Elements));
        }
    }
    Ok((false, ComparisonRule::Elements))
}

fn list(
    operator: ConditionOperator,
    keys: &List,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    let keys = text::all_printed(keys, effort)?;
    let any = matches!(operator, ConditionOperator::AnyIn | ConditionOperator::AnyNotIn);
    let values = match value {
        Value::List(values) => text::all_printed(values, effort)?,
        // Kyverno: only the operators for any element take a single number or boolean.
        Value::Number(_) | Value::Bool(_) if any => vec![text::printed(value, effort)?],
        Value::String(value) => {
            if keys.len() == 1 && keys[0] == value.as_str() {
                return Ok(ComparisonRule::ExactElements.decides(!is_negated(operator)));
            }
            if let Some(range) = Range::parse(value) {
                return Ok(range_holds(operator, &keys, &range));
            }
            effort.spend(value.len())?;
            match json_texts(value) {
                JsonTexts::NotJson => vec![value.to_string()],
                JsonTexts::NotTexts => return Ok(ComparisonRule::WrongValue.decides(false)),
                JsonTexts::Texts(texts) => texts,
            }
        }
        _ => return Ok(ComparisonRule::WrongValue.decides(false)),
    };
    let values = Elements::new(&values);
    // Each operator asks for the first key that settles it.
    let (settles_when_found, settled) = match operator {
        ConditionOperator::AnyIn => (true, true),
        ConditionOperator::AllIn => (false, false),
        ConditionOperator::AnyNotIn => (false, true),
        _ => (true, false),
    };
    for key in &keys {
        if values.has_match(key, effort)? == settles_when_found {
            return Ok(ComparisonRule::Elements.decides(settled));
        }
    }
    Ok(ComparisonRule::Elements.decides(!settled))
}

fn range_holds(operator: ConditionOperator, keys: &[String], range: &Range<'_>) -> Compared {
    let mut keys = keys.iter();
    Range::RULE.decides(match operator {
        ConditionOperator::AnyIn => keys.any(|key| range.contains(key)),
        ConditionOperator::AllIn => keys.all(|key| range.contains(key)),
        // Not the opposite of being inside: what cannot be compared is neither inside nor outside.
        ConditionOperator::AnyNotIn => keys.any(|key| range.excludes(key)),
        _ => !keys.any(|key| range.contains(key)),
    })
}

/// `In` and `NotIn` for lists: exact text, and only text.
fn exact_list(
    operator: ConditionOperator,
    keys: &List,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    // Kyverno crashes on elements that are not strings; here they are compared as they are printed.
    let keys = text::all_printed(keys, effort)?;
    let values: Vec<String> = match value {
        Value::List(values) if values.iter().all(|value| value.as_str().is_some()) => {
            text::all_printed(values, effort)?
        }
        Value::String(value) => {
            // Kyverno: this holds for both operators.
            if keys.len() == 1 && keys[0] == value.as_str() {
                return Ok(ComparisonRule::ExactElements.decides(true));
            }
            effort.spend(value.len())?;
            match json_texts(value) {
                JsonTexts::Texts(texts) => texts,
                _ => return Ok(ComparisonRule::WrongValue.decides(false)),
            }
        }
        _ => return Ok(ComparisonRule::WrongValue.decides(false)),
    };
    let values: HashSet<&str> = values.iter().map(String::as_str).collect();
    let all_in = keys.iter().all(|key| values.contains(key.as_str()));
    Ok(ComparisonRule::ExactElements.decides(all_in != is_negated(operator)))
}

/// Elements to be found by text or by wildcard. Plain texts are looked up rather than tried one by one,
/// so that two long lists are not a quadratic trap.
struct Elements<'v> {
    all: &'v [String],
    plain: HashSet<&'v str>,
    patterns: Vec<&'v str>,
}

impl<'v> Elements<'v> {
    fn new(all: &'v [String]) -> Self {
        let patterns =
            all.iter().map(String::as_str).filter(|text| wildcard::contains_wildcard(text));
        let plain = all.iter().map(String::as_str).collect();
        Elements { all, plain, patterns: patterns.collect() }
    }

    fn has_match(&self, key: &str, effort: &mut Effort) -> Result<bool, Exhausted> {
        effort.spend(key.len())?;
        if self.plain.contains(key) {
            return Ok(true);
        }
        for pattern in &self.patterns {
            if effort.matches(pattern, key)? {
                return Ok(true);
            }
        }
        if wildcard::contains_wildcard(key) {
            for element in self.all {
                if effort.matches(key, element)? {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }
}

/// A text, read as JSON.
enum JsonTexts {
    NotJson,
    /// JSON, but no list of strings.
    NotTexts,
    Texts(Vec<String>),
}

fn json_texts(text: &str) -> JsonTexts {
    let list = match json::parse(text) {
        Err(_) => return JsonTexts::NotJson,
        // Go: null is an empty list, and an empty string inside one.
        Ok(Value::Null) => return JsonTexts::Texts(Vec::new()),
        Ok(Value::List(list)) => list,
        Ok(_) => return JsonTexts::NotTexts,
    };
    let texts = list.iter().map(|element| match element {
        Value::String(text) => Some(text.to_string()),
        Value::Null => Some(String::new()),
        _ => None,
    });
    texts.collect::<Option<_>>().map_or(JsonTexts::NotTexts, JsonTexts::Texts)
}
