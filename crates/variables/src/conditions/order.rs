//! `GreaterThan`, `LessThan` and their relatives, also for durations alone.

use kiln_text::duration::Duration;
use kiln_text::float;
use kiln_text::quantity::Quantity;
use kiln_text::semver::Version;
use kiln_value::Value;

use super::compare::{Compared, ComparisonRule, durations, seconds};
use super::operator::Order;

/// Whether key and value are in an order: as durations, quantities, numbers or versions.
pub(super) fn ordered(order: Order, key: &Value, value: &Value) -> Compared {
    match key {
        Value::Number(number) => number_ordered(order, number.as_f64(), value),
        Value::String(text) => text_ordered(order, text, key, value),
        _ => ComparisonRule::WrongKey.decides(false),
    }
}

fn number_ordered(order: Order, key: f64, value: &Value) -> Compared {
    match value {
        Value::Number(number) => {
            floats_ordered(ComparisonRule::Numbers, order, key, number.as_f64())
        }
        Value::String(text) => {
            if let Some((key, value)) = durations(&Value::from(key), value) {
                return seconds_ordered(order, key, value);
            }
            match float::parse(text) {
                Some(number) => floats_ordered(ComparisonRule::Numbers, order, key, number),
                None => ComparisonRule::WrongValue.decides(false),
            }
        }
        _ => ComparisonRule::WrongValue.decides(false),
    }
}

fn text_ordered(order: Order, text: &str, key: &Value, value: &Value) -> Compared {
    if let Some((key, value)) = durations(key, value) {
        return seconds_ordered(order, key, value);
    }
    let other = value.as_str();
    if let (Ok(key), Some(Ok(value))) = (Quantity::parse(text), other.map(Quantity::parse)) {
        return ComparisonRule::Quantities.decides(order.accepts(key.cmp(&value)));
    }
    if let Some(number) = float::parse(text) {
        return number_ordered(order, number, value);
    }
    if let Ok(key) = Version::parse(text) {
        return match other.map(Version::parse) {
            Some(Ok(value)) => ComparisonRule::Versions.decides(order.accepts(key.cmp(&value))),
            _ => ComparisonRule::WrongValue.decides(false),
        };
    }
    ComparisonRule::WrongKey.decides(false)
}

/// Kyverno: durations are compared by their seconds as floats, which takes very long ones that differ
/// by a nanosecond for equal.
fn seconds_ordered(order: Order, key: Duration, value: Duration) -> Compared {
    floats_ordered(ComparisonRule::Durations, order, key.as_secs_f64(), value.as_secs_f64())
}

fn floats_ordered(rule: ComparisonRule, order: Order, key: f64, value: f64) -> Compared {
    rule.decides(key.partial_cmp(&value).is_some_and(|ordering| order.accepts(ordering)))
}

/// Whether two durations are in an order. Numbers are seconds.
pub(super) fn durations_ordered(order: Order, key: &Value, value: &Value) -> Compared {
    let read = |value: &Value| match value {
        Value::Number(number) => Some(seconds(number.as_f64())),
        Value::String(text) => Duration::parse(text).ok(),
        _ => None,
    };
    match (read(key), read(value)) {
        (Some(key), Some(value)) => {
            ComparisonRule::Durations.decides(order.accepts(key.cmp(&value)))
        }
        (None, _) => ComparisonRule::WrongKey.decides(false),
        (_, None) => ComparisonRule::WrongValue.decides(false),
    }
}
