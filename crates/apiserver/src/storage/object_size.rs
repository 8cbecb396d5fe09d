//! How large objects are, counted with an end.

use kiln_value::Value;

/// The most bytes of an object that is stored, roughly as JSON.
// etcd: 1.5 MiB; here as much as a request may have.
pub(crate) const HEAVIEST: usize = crate::request::media::LONGEST_BODY;

/// The bytes of a value as JSON, roughly. What is shared counts wherever it stands; counting ends behind `most`, so
/// that a value that repeats a large part a million times is cheap.
pub(crate) fn weight(value: &Value, most: usize) -> usize {
    let mut sum = 0;
    add(value, most, &mut sum);
    sum
}

fn add(value: &Value, most: usize, sum: &mut usize) {
    if *sum > most {
        return;
    }
    *sum += match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 5,
        Value::String(text) => text.len() + 3,
        Value::List(_) | Value::Map(_) => 3,
    };
    match value {
        Value::List(list) => {
            for item in list {
                add(item, most, sum);
                if *sum > most {
                    return;
                }
            }
        }
        Value::Map(map) => {
            for (key, value) in map {
                *sum += key.len() + 3;
                add(value, most, sum);
                if *sum > most {
                    return;
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::{json, value};

    use super::*;

    #[test]
    fn weighs_about_as_much_as_json_has_bytes() {
        let value = value!({"a": {"b": [1, 2, "three"], "c": null}, "d": "long enough to count"});
        let (weight, bytes) = (weight(&value, 1000), json::to_string(&value).len());
        assert!(weight.abs_diff(bytes) < bytes / 2, "{weight} for {bytes}");
    }

    #[test]
    fn what_repeats_itself_is_not_counted_to_its_end() {
        // Two to the power of sixty-four.
        let value =
            (0..64).fold(Value::from("x"), |inner, _| Value::from(vec![inner.clone(), inner]));
        assert!(weight(&value, 10_000) < 20_000);
    }
}
