//! What expressions compute with: values of the data, and the value that is not there.

use std::fmt::Write as _;

use kiln_text::{Time, float};
use kiln_value::{Map, Number, Str, Value};

/// A result. Numbers count as floats, whatever their form.
#[derive(Clone, Debug, PartialEq)]
pub enum Item {
    /// What a missing key gives: a value of its own, like a number that is none.
    Undefined,
    Value(Value),
    /// A point in time.
    Time(Time),
    /// A list with an element that is not a plain value.
    List(Vec<Item>),
    /// A map with a value that is not a plain one.
    Map(Vec<(Str, Item)>),
}

impl Item {
    pub(crate) const NULL: Item = Item::Value(Value::Null);

    pub(crate) fn number(number: f64) -> Item {
        Item::Value(Value::Number(Number::Float(number)))
    }

    pub(crate) fn list(items: Vec<Item>) -> Item {
        if items.iter().all(|item| matches!(item, Item::Value(_))) {
            let plain = items.into_iter().filter_map(Item::into_value);
            return Item::Value(plain.collect());
        }
        Item::List(items)
    }

    pub(crate) fn map(entries: Vec<(Str, Item)>) -> Item {
        if entries.iter().all(|(_, item)| matches!(item, Item::Value(_))) {
            let plain = entries
                .into_iter()
                .filter_map(|(key, item)| Some((key.to_string(), item.into_value()?)));
            return Item::Value(Value::Map(plain.collect::<Map>()));
        }
        Item::Map(entries)
    }

    /// The value, if it is a plain one.
    pub fn into_value(self) -> Option<Value> {
        match self {
            Item::Value(value) => Some(value),
            _ => None,
        }
    }

    /// The value as JSON can hold it: undefined is null, a time its text.
    pub fn to_value(&self) -> Value {
        match self {
            Item::Undefined => Value::Null,
            Item::Value(value) => value.clone(),
            Item::Time(time) => Value::from(time.rfc3339_nano()),
            Item::List(items) => items.iter().map(Item::to_value).collect(),
            Item::Map(entries) => {
                let entries = entries.iter();
                Value::Map(entries.map(|(key, item)| (key.as_str(), item.to_value())).collect())
            }
        }
    }

    /// The elements, if it is a list.
    pub fn elements(&self) -> Option<Vec<Item>> {
        match self {
            Item::Value(Value::List(list)) => Some(list.iter().cloned().map(Item::Value).collect()),
            Item::List(items) => Some(items.clone()),
            _ => None,
        }
    }

    /// Whether it is null or undefined.
    pub fn is_nothing(&self) -> bool {
        matches!(self, Item::Undefined | Item::Value(Value::Null))
    }

    pub(crate) fn is_null(&self) -> bool {
        matches!(self, Item::Value(Value::Null))
    }

    pub(crate) fn as_bool(&self) -> Option<bool> {
        match self {
            Item::Value(value) => value.as_bool(),
            _ => None,
        }
    }

    /// The name of Go's type, for messages.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Item::Undefined => "undefined",
            Item::Value(value) => value.type_name(),
            Item::Time(_) => "time",
            Item::List(_) => "list",
            Item::Map(_) => "map",
        }
    }

    /// A number: of a number, or of a text that says one. Undefined is not a number, in both senses.
    pub(crate) fn to_float(&self) -> Option<f64> {
        match self {
            Item::Undefined => Some(f64::NAN),
            Item::Value(Value::Number(number)) => Some(number.as_f64()),
            Item::Value(Value::String(text)) => float::parse(text),
            _ => None,
        }
    }

    /// The value that a filter gives for it.
    pub(crate) fn to_bool(&self) -> Option<bool> {
        match self {
            Item::Value(Value::Bool(truth)) => Some(*truth),
            Item::Value(Value::Null) => Some(false),
            Item::Value(Value::String(text)) if matches!(text.as_str(), "true" | "TRUE") => {
                Some(true)
            }
            Item::Value(Value::String(text)) if matches!(text.as_str(), "false" | "FALSE") => {
                Some(false)
            }
            other => other.to_float().map(|number| number != 0.0),
        }
    }

    /// The text, as Go prints values: `5`, `1e+06`, `<nil>`, `map[a:1]`, `[a b]`.
    pub fn text(&self) -> String {
        let mut out = String::new();
        self.print(&mut out);
        out
    }

    fn print(&self, out: &mut String) {
        match self {
            Item::Undefined => {}
            Item::Value(value) => print(value, out),
            Item::Time(time) => {
                out.push_str(&time.format("2006-01-02 15:04:05.999999999 -0700 MST"));
            }
            Item::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    if at > 0 {
                        out.push(' ');
                    }
                    item.print(out);
                }
                out.push(']');
            }
            Item::Map(entries) => {
                let mut sorted: Vec<_> = entries.iter().collect();
                sorted.sort_by(|a, b| a.0.cmp(&b.0));
                out.push_str("map[");
                for (at, (key, item)) in sorted.into_iter().enumerate() {
                    let _ = write!(out, "{}{key}:", if at > 0 { " " } else { "" });
                    item.print(out);
                }
                out.push(']');
            }
        }
    }
}

fn print(value: &Value, out: &mut String) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&float::print(number.as_f64())),
        Value::String(text) => out.push_str(text),
        Value::List(list) => {
            out.push('[');
            for (at, item) in list.iter().enumerate() {
                if at > 0 {
                    out.push(' ');
                }
                print(item, out);
            }
            out.push(']');
        }
        Value::Map(map) => {
            let mut sorted: Vec<_> = map.iter().collect();
            sorted.sort_by_key(|(key, _)| *key);
            out.push_str("map[");
            for (at, (key, item)) in sorted.into_iter().enumerate() {
                let _ = write!(out, "{}{key}:", if at > 0 { " " } else { "" });
                print(item, out);
            }
            out.push(']');
        }
    }
}

/// Deep equality; numbers are equal when their floats are, and undefined equals nothing.
pub(crate) fn deep_equal(a: &Item, b: &Item) -> bool {
    match (a, b) {
        (Item::Undefined, _) | (_, Item::Undefined) => false,
        (Item::Value(a), Item::Value(b)) => equal(a, b),
        (Item::Time(a), Item::Time(b)) => a == b,
        (Item::List(a), Item::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| deep_equal(a, b))
        }
        _ => false,
    }
}

fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::List(a), Value::List(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Map(a), Value::Map(b)) => {
            let same = |(key, value)| b.get(key).is_some_and(|other| equal(value, other));
            a.len() == b.len()
                && a.iter().all(|(key, value): (&kiln_value::Key, &Value)| same((key, value)))
        }
        (a, b) => a == b,
    }
}
