//! JSON text in and out.

use std::fmt;

use serde::de::{self, DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use crate::{Key, KeyTable, List, MAX_DEPTH, Map, Number, Value};

/// Text that is not JSON, or JSON that nests too deep.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonError {
    /// What is wrong, without the place.
    pub message: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
}

impl fmt::Display for JsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}: {}", self.line, self.column, self.message)
    }
}

impl std::error::Error for JsonError {}

/// Reads one JSON value. Of duplicate keys the last one counts, as for Go and most others.
pub fn parse(text: &str) -> Result<Value, JsonError> {
    parse_bytes(text.as_bytes(), &mut KeyTable::new())
}

/// Reads one JSON value from bytes, sharing keys with what was read through the same table before.
pub fn parse_bytes(text: &[u8], keys: &mut KeyTable) -> Result<Value, JsonError> {
    parse_seed(text, Seed { keys, depth: 0, unique: false })
}

/// Like [`parse_bytes`], but a key that occurs twice in one map is an error.
pub fn parse_bytes_unique(text: &[u8], keys: &mut KeyTable) -> Result<Value, JsonError> {
    parse_seed(text, Seed { keys, depth: 0, unique: true })
}

fn parse_seed(text: &[u8], seed: Seed<'_>) -> Result<Value, JsonError> {
    let mut reader = serde_json::Deserializer::from_slice(text);
    // Our own seed counts the depth.
    reader.disable_recursion_limit();
    let value = seed.deserialize(&mut reader);
    value.and_then(|value| reader.end().map(|()| value)).map_err(|error| {
        let full = error.to_string();
        let place = format!(" at line {} column {}", error.line(), error.column());
        JsonError {
            message: full.strip_suffix(&place).unwrap_or(&full).to_owned(),
            line: error.line(),
            column: error.column().max(1),
        }
    })
}

/// Writes JSON on one line, keys in their order.
pub fn to_string(value: &Value) -> String {
    write(value, GoNumbers { inner: CompactFormatter, escape_html: false })
}

/// Writes JSON with two spaces of indentation, keys in their order.
pub fn to_string_pretty(value: &Value) -> String {
    write(value, GoNumbers { inner: PrettyFormatter::new(), escape_html: false })
}

/// Writes JSON exactly as Go's `json.Marshal` does: one line, keys sorted by bytes, `<`, `>`, `&`
/// and the two line separators of Unicode escaped.
pub fn to_go_string(value: &Value) -> String {
    write(&Sorted(value), GoNumbers { inner: CompactFormatter, escape_html: true })
}

/// The same with two spaces of indentation, as Go's `json.MarshalIndent` does.
pub fn to_go_string_pretty(value: &Value) -> String {
    write(&Sorted(value), GoNumbers { inner: PrettyFormatter::new(), escape_html: true })
}

/// Writes JSON on one line with sorted keys and no HTML escapes: a canonical form to compare or hash.
pub fn to_canonical_string(value: &Value) -> String {
    write(&Sorted(value), GoNumbers { inner: CompactFormatter, escape_html: false })
}

fn write(value: &impl Serialize, formatter: impl Formatter) -> String {
    let mut text = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut text, formatter);
    value.serialize(&mut serializer).expect("writing a value to memory cannot fail");
    String::from_utf8(text).expect("JSON is UTF-8")
}

/// Numbers as Go prints them, on top of another formatter.
struct GoNumbers<F> {
    inner: F,
    escape_html: bool,
}

macro_rules! forward {
    ($($name:ident($($arg:ident: $type:ty),*)),* $(,)?) => {$(
        fn $name<W: ?Sized + std::io::Write>(&mut self, writer: &mut W $(, $arg: $type)*) -> std::io::Result<()> {
            self.inner.$name(writer $(, $arg)*)
        }
    )*};
}

impl<F: Formatter> Formatter for GoNumbers<F> {
    forward!(
        begin_array(),
        end_array(),
        begin_array_value(first: bool),
        end_array_value(),
        begin_object(),
        end_object(),
        begin_object_key(first: bool),
        begin_object_value(),
        end_object_value(),
    );

    fn write_f64<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        float: f64,
    ) -> std::io::Result<()> {
        write!(writer, "{}", Number::Float(float))
    }

    fn write_string_fragment<W: ?Sized + std::io::Write>(
        &mut self,
        writer: &mut W,
        fragment: &str,
    ) -> std::io::Result<()> {
        if !self.escape_html {
            return writer.write_all(fragment.as_bytes());
        }
        let mut plain = 0;
        for (at, c) in fragment.char_indices() {
            if matches!(c, '<' | '>' | '&' | '\u{2028}' | '\u{2029}') {
                writer.write_all(&fragment.as_bytes()[plain..at])?;
                write!(writer, "\\u{:04x}", c as u32)?;
                plain = at + c.len_utf8();
            }
        }
        writer.write_all(&fragment.as_bytes()[plain..])
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Value::List(list) => list.serialize(serializer),
            Value::Map(map) => map.serialize(serializer),
            scalar => serialize_scalar(scalar, serializer),
        }
    }
}

impl Serialize for List {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self)
    }
}

impl Serialize for Map {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self)
    }
}

impl Serialize for Key {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

fn serialize_scalar<S: Serializer>(value: &Value, serializer: S) -> Result<S::Ok, S::Error> {
    match value {
        Value::Bool(b) => serializer.serialize_bool(*b),
        Value::Number(Number::Int(i)) => serializer.serialize_i64(*i),
        Value::Number(Number::UInt(u)) => serializer.serialize_u64(*u),
        Value::Number(Number::Float(f)) => serializer.serialize_f64(*f),
        Value::String(s) => serializer.serialize_str(s),
        Value::Null | Value::List(_) | Value::Map(_) => serializer.serialize_unit(),
    }
}

struct Sorted<'v>(&'v Value);

impl Serialize for Sorted<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::List(list) => {
                let mut out = serializer.serialize_seq(Some(list.len()))?;
                for element in list {
                    out.serialize_element(&Sorted(element))?;
                }
                out.end()
            }
            Value::Map(map) => {
                let mut entries: Vec<_> = map.iter().collect();
                entries.sort_by_key(|(key, _)| *key);
                let mut out = serializer.serialize_map(Some(map.len()))?;
                for (key, value) in entries {
                    out.serialize_entry(key.as_str(), &Sorted(value))?;
                }
                out.end()
            }
            scalar => serialize_scalar(scalar, serializer),
        }
    }
}

/// Builds values while counting depth and sharing keys.
struct Seed<'t> {
    keys: &'t mut KeyTable,
    depth: usize,
    /// Whether a key that occurs twice is an error.
    unique: bool,
}

impl Seed<'_> {
    fn deeper<E: de::Error>(&mut self) -> Result<Seed<'_>, E> {
        if self.depth == MAX_DEPTH {
            return Err(E::custom(format!("lists and maps nest deeper than {MAX_DEPTH} levels")));
        }
        Ok(Seed { keys: self.keys, depth: self.depth + 1, unique: self.unique })
    }
}

impl<'de> DeserializeSeed<'de> for Seed<'_> {
    type Value = Value;
    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Seed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: de::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(Value::Bool(b))
    }

    fn visit_i64<E>(self, i: i64) -> Result<Value, E> {
        Ok(Value::from(i))
    }

    fn visit_u64<E>(self, u: u64) -> Result<Value, E> {
        Ok(Value::from(u))
    }

    fn visit_f64<E>(self, f: f64) -> Result<Value, E> {
        Ok(Value::from(f))
    }

    fn visit_str<E>(self, s: &str) -> Result<Value, E> {
        Ok(Value::from(s))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(self.deeper()?)? {
            elements.push(element);
        }
        elements.shrink_to_fit();
        Ok(Value::List(List::from(elements)))
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(key) = entries.next_key_seed(KeySeed(self.keys))? {
            if self.unique && map.contains_key(&key) {
                return Err(de::Error::custom(format!("the key {:?} occurs twice", key.as_str())));
            }
            let value = entries.next_value_seed(self.deeper()?)?;
            map.insert(key, value);
        }
        map.shrink_to_fit();
        Ok(Value::Map(map))
    }
}

struct KeySeed<'t>(&'t mut KeyTable);

impl<'de> DeserializeSeed<'de> for KeySeed<'_> {
    type Value = Key;
    fn deserialize<D: de::Deserializer<'de>>(self, reader: D) -> Result<Key, D::Error> {
        reader.deserialize_str(self)
    }
}

impl Visitor<'_> for KeySeed<'_> {
    type Value = Key;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string key")
    }
    fn visit_str<E>(self, text: &str) -> Result<Key, E> {
        Ok(self.0.intern(text))
    }
}

impl<'de> de::Deserialize<'de> for Value {
    fn deserialize<D: de::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        Seed { keys: &mut KeyTable::new(), depth: 0, unique: false }.deserialize(reader)
    }
}

impl<'de> de::Deserialize<'de> for Map {
    fn deserialize<D: de::Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        match Value::deserialize(reader)? {
            Value::Map(map) => Ok(map),
            other => {
                Err(de::Error::custom(format!("expected a map, found a {}", other.type_name())))
            }
        }
    }
}

impl From<serde_json::Value> for Value {
    fn from(json: serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Value::Null,
            serde_json::Value::Bool(b) => Value::Bool(b),
            serde_json::Value::Number(n) => match (n.as_i64(), n.as_u64()) {
                (Some(i), _) => Value::from(i),
                (None, Some(u)) => Value::from(u),
                (None, None) => Value::from(n.as_f64().unwrap_or(f64::NAN)),
            },
            serde_json::Value::String(s) => Value::from(s),
            serde_json::Value::Array(elements) => elements.into_iter().collect(),
            serde_json::Value::Object(entries) => Value::Map(entries.into_iter().collect()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_comes_back_as_it_was() {
        let text = r#"{"b":1,"a":[null,true,-5,18446744073709551615,0.5,"x\n"],"c":{}}"#;
        assert_eq!(to_string(&parse(text).unwrap()), text);
    }

    #[test]
    fn go_text_sorts_keys_and_escapes_html() {
        let value = parse("{\"b\":\"<a&b>\u{2028}\",\"a\":1.0,\"B\":1e21}").unwrap();
        assert_eq!(to_go_string(&value), r#"{"B":1e+21,"a":1,"b":"\u003ca\u0026b\u003e\u2028"}"#);
        let value = parse(r#"{"a":"<"}"#).unwrap();
        assert_eq!(to_go_string_pretty(&value), "{\n  \"a\": \"\\u003c\"\n}");
    }

    #[test]
    fn floats_are_read_to_the_last_bit() {
        assert_eq!(parse("1.8311178275756417e-62").unwrap(), Value::from(1.8311178275756417e-62));
    }

    #[test]
    fn errors_say_where() {
        let error = parse("{\n  \"a\": tru }").unwrap_err();
        assert_eq!((error.line, error.message.as_str()), (2, "expected ident"));
        assert_eq!(parse("1 2").unwrap_err().message, "trailing characters");
    }

    #[test]
    fn depth_is_limited_without_overflowing_the_stack() {
        let deepest = "[".repeat(MAX_DEPTH) + &"]".repeat(MAX_DEPTH);
        assert!(parse(&deepest).is_ok());
        let error = parse(&"[".repeat(1_000_000)).unwrap_err();
        assert_eq!(error.message, "lists and maps nest deeper than 500 levels");
    }

    #[test]
    fn the_last_of_duplicate_keys_counts() {
        let text = r#"{"a":1,"b":2,"a":3}"#;
        assert_eq!(to_string(&parse(text).unwrap()), r#"{"a":3,"b":2}"#);
        let error = parse_bytes_unique(text.as_bytes(), &mut KeyTable::new()).unwrap_err();
        assert_eq!(error.message, "the key \"a\" occurs twice");
    }
}
