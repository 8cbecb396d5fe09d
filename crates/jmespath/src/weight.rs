//! How large a value is when it is written out, and whether two are equal: both counted, because
//! values share their parts and a small one in memory can be astronomic when walked.

use kiln_value::Value;

use crate::meter::{Exhausted, Meter};

/// About how many bytes a value takes as JSON.
pub(crate) fn weight(value: &Value) -> u64 {
    match value {
        Value::Null | Value::Bool(_) => 4,
        Value::Number(_) => 8,
        Value::String(text) => text.len() as u64 + 2,
        Value::List(list) => list.iter().map(|element| weight(element) + 1).sum::<u64>() + 2,
        Value::Map(map) => {
            map.iter().map(|(key, value)| key.len() as u64 + 4 + weight(value)).sum::<u64>() + 2
        }
    }
}

/// Charges the weight of a value, and a step for every few parts of it.
pub(crate) fn charge(value: &Value, meter: &Meter) -> Result<(), Exhausted> {
    match value {
        Value::Null | Value::Bool(_) => meter.make(4),
        Value::Number(_) => meter.make(8),
        Value::String(text) => meter.make(text.len() as u64 + 2),
        Value::List(list) => {
            meter.step(list.len() as u64 / 16 + 1)?;
            meter.make(list.len() as u64 + 2)?;
            list.iter().try_for_each(|element| charge(element, meter))
        }
        Value::Map(map) => {
            meter.step(map.len() as u64 / 16 + 1)?;
            meter.make(2)?;
            map.iter().try_for_each(|(key, value)| {
                meter.make(key.len() as u64 + 4)?;
                charge(value, meter)
            })
        }
    }
}

/// Deep equality by type; numbers are equal when their floats are.
pub(crate) fn equal(a: &Value, b: &Value, meter: &Meter) -> Result<bool, Exhausted> {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => Ok(a.as_f64() == b.as_f64()),
        (Value::String(a), Value::String(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            meter.read(a.len() as u64)?;
            Ok(a == b)
        }
        (Value::List(a), Value::List(b)) => {
            if a.ptr_eq(b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            meter.step(a.len() as u64 / 4 + 1)?;
            for (a, b) in a.iter().zip(b) {
                if !equal(a, b, meter)? {
                    return Ok(false);
                }
            }
            Ok(true)
        }
        (Value::Map(a), Value::Map(b)) => {
            if a.ptr_eq(b) {
                return Ok(true);
            }
            if a.len() != b.len() {
                return Ok(false);
            }
            meter.step(a.len() as u64 / 4 + 1)?;
            for (key, value) in a {
                match b.get(key) {
                    Some(other) if equal(value, other, meter)? => {}
                    _ => return Ok(false),
                }
            }
            Ok(true)
        }
        (Value::Null, Value::Null) => Ok(true),
        (Value::Bool(a), Value::Bool(b)) => Ok(a == b),
        _ => Ok(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::JmesPathLimits;
    use kiln_value::{json, value};

    #[test]
    fn a_weight_is_near_the_written_length() {
        let value = value!({"name": "web", "list": [1, null, "text"], "map": {"a": {}}});
        let written = json::to_string(&value).len() as u64;
        assert!(weight(&value).abs_diff(written) < 20);
        let meter = Meter::new(&JmesPathLimits::default());
        charge(&value, &meter).unwrap();
        assert_eq!(meter.bytes_used(), weight(&value));
    }

    #[test]
    fn comparing_what_is_small_but_vast_is_counted() {
        let doubled =
            || (0..60).fold(value!([1]), |inner, _| Value::from(vec![inner.clone(), inner]));
        let limits = JmesPathLimits { steps: 1000, ..JmesPathLimits::default() };
        let meter = Meter::new(&limits);
        assert_eq!(equal(&doubled(), &doubled(), &meter), Err(Exhausted::Steps(1000)));
        assert_eq!(charge(&doubled(), &Meter::new(&limits)), Err(Exhausted::Steps(1000)));
    }
}
