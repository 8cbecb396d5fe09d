//! Numbers as the dialect has them: 64-bit floats.
//!
//! Numbers that an expression makes (literals, results of functions) go through `f64`. Numbers of
//! documents that are only passed on stay as they are, so that no integer is lost on the way.

use kiln_value::{Key, Map, Number, Value};

/// Integers up to this size are the same as floats.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// The value of a float. Integral ones are integers, so that every writer prints them alike.
pub(crate) fn number(float: f64) -> Value {
    let integral = float.fract() == 0.0 && float.abs() < EXACT;
    // Go prints a negative zero as "-0".
    if integral && !(float == 0.0 && float.is_sign_negative()) {
        Value::from(float as i64)
    } else {
        Value::from(float)
    }
}

/// The value with every number in it made a float of the dialect. Shares what needs no change.
pub(crate) fn as_floats(value: &Value) -> Value {
    if is_plain(value) { value.clone() } else { rebuild(value) }
}

fn is_plain(value: &Value) -> bool {
    match value {
        Value::Number(Number::Int(i)) => i.unsigned_abs() < EXACT as u64,
        Value::Number(Number::UInt(_)) => false,
        Value::Number(Number::Float(f)) => f.fract() != 0.0 || f.abs() >= EXACT,
        Value::List(list) => list.iter().all(is_plain),
        Value::Map(map) => map.values().all(is_plain),
        Value::Null | Value::Bool(_) | Value::String(_) => true,
    }
}

fn rebuild(value: &Value) -> Value {
    match value {
        Value::Number(n) => number(n.as_f64()),
        Value::List(list) => list.iter().map(rebuild).collect(),
        Value::Map(map) => {
            let entries: Vec<(Key, Value)> =
                map.iter().map(|(key, value)| (key.clone(), rebuild(value))).collect();
            Value::Map(Map::from_unique(entries))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::{json, value};

    #[test]
    fn integral_floats_are_integers_while_exact() {
        for (float, text) in
            [(3.0, "3"), (-0.0, "-0"), (0.5, "0.5"), (1e21, "1e+21"), (9e15, "9000000000000000")]
        {
            assert_eq!(json::to_string(&number(float)), text);
        }
        assert_eq!(number(3.0), value!(3));
    }

    #[test]
    fn whole_values_go_through_floats() {
        let value = json::parse(r#"{"a":[1.0,12345678901234567890],"b":"x"}"#).unwrap();
        assert_eq!(
            json::to_string(&as_floats(&value)),
            r#"{"a":[1,12345678901234567000],"b":"x"}"#
        );
        let plain = value!({"a": [1, 2.5]});
        assert!(as_floats(&plain).same(&plain));
    }
}
