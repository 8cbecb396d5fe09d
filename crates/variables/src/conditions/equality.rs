//! `Equals` and `NotEquals`.

use kiln_text::float;
use kiln_text::quantity::Quantity;
use kiln_value::Value;

use super::compare::{Compared, ComparisonRule, Effort, Exhausted, durations};

/// Whether both are equal, as the kind of the key understands it.
pub(super) fn equals(
    key: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    Ok(match (key, value) {
        (Value::Bool(key), Value::Bool(value)) => ComparisonRule::Booleans.decides(key == value),
        (Value::Number(key), Value::Number(value)) => {
            ComparisonRule::Numbers.decides(key.as_f64() == value.as_f64())
        }
        (Value::Number(key), Value::String(value)) => match float::parse(value) {
            Some(value) => ComparisonRule::Numbers.decides(key.as_f64() == value),
            None => ComparisonRule::WrongValue.decides(false),
        },
        (Value::String(text), _) => return text_equals(text, key, value, effort),
        (Value::List(_), Value::List(_)) => {
            ComparisonRule::Lists.decides(deep_equal(key, value, effort)?)
        }
        (Value::Map(_), Value::Map(_)) => {
            ComparisonRule::Maps.decides(deep_equal(key, value, effort)?)
        }
        (Value::Null, _) => ComparisonRule::WrongKey.decides(false),
        _ => ComparisonRule::WrongValue.decides(false),
    })
}

/// The opposite, except that a key that is null is neither equal nor unequal to anything.
pub(super) fn not_equals(
    key: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    let equal = equals(key, value, effort)?;
    Ok(Compared { holds: !equal.holds && equal.rule != ComparisonRule::WrongKey, ..equal })
}

fn text_equals(
    text: &str,
    key: &Value,
    value: &Value,
    effort: &mut Effort,
) -> Result<Compared, Exhausted> {
    // Durations come first: they are the only text that is compared with something else than text.
    if let Some((key, value)) = durations(key, value) {
        return Ok(ComparisonRule::Durations.decides(key.as_secs_f64() == value.as_secs_f64()));
    }
    let Some(pattern) = value.as_str() else {
        return Ok(ComparisonRule::WrongValue.decides(false));
    };
    if let Ok(key) = Quantity::parse(text) {
        // A quantity is compared with a quantity or not at all, not even with `*`.
        return Ok(match Quantity::parse(pattern) {
            Ok(value) => ComparisonRule::Quantities.decides(key == value),
            Err(_) => ComparisonRule::WrongValue.decides(false),
        });
    }
    Ok(ComparisonRule::Wildcard.decides(effort.matches(pattern, text)?))
}

/// Equality of whole values, in which numbers are equal by what they are worth.
fn deep_equal(a: &Value, b: &Value, effort: &mut Effort) -> Result<bool, Exhausted> {
    if !matches!(a, Value::Number(_)) && a.same(b) {
        return Ok(true);
    }
    effort.spend(1)?;
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(a.as_f64() == b.as_f64()),
        (Value::String(a), Value::String(b)) => {
            effort.spend(a.len().min(b.len()))?;
            Ok(a == b)
        }
        (Value::List(a), Value::List(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (a, b) in a.iter().zip(b) {
                if !deep_equal(a, b, effort)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, a) in a {
                let Some(b) = b.get(key) else { return Ok(false) };
                if !deep_equal(a, b, effort)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        _ => Ok(false),
    }
}
