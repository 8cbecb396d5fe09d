//! Values as text, the way Go prints them.

use std::fmt::Write;

use kiln_text::float;
use kiln_value::{List, Value};

use super::compare::{Effort, Exhausted};

/// A value as Go's `fmt` prints it: `1e+06`, `<nil>`, `[a b]`, `map[k:v]`.
pub(super) fn printed(value: &Value, effort: &mut Effort) -> Result<String, Exhausted> {
    let mut text = String::new();
    print(value, &mut text, effort)?;
    Ok(text)
}

/// Every element of a list as text.
pub(super) fn all_printed(list: &List, effort: &mut Effort) -> Result<Vec<String>, Exhausted> {
    list.iter().map(|element| printed(element, effort)).collect()
}

fn print(value: &Value, text: &mut String, effort: &mut Effort) -> Result<(), Exhausted> {
    effort.spend(1)?;
    match value {
        Value::Null => text.push_str("<nil>"),
        Value::Bool(b) => text.push_str(if *b { "true" } else { "false" }),
        Value::Number(number) => text.push_str(&float::print(number.as_f64())),
        Value::String(s) => {
            effort.spend(s.len())?;
            text.push_str(s);
        }
        Value::List(list) => {
            text.push('[');
            for (at, element) in list.iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                print(element, text, effort)?;
            }
            text.push(']');
        }
        Value::Map(map) => {
            text.push_str("map[");
            let mut entries: Vec<_> = map.iter().collect();
            entries.sort_by_key(|(key, _)| *key);
            for (at, (key, element)) in entries.into_iter().enumerate() {
                if at > 0 {
                    text.push(' ');
                }
                effort.spend(key.len())?;
                let _ = write!(text, "{key}:");
                print(element, text, effort)?;
            }
            text.push(']');
        }
    }
    Ok(())
}
