//! From values of expressions to plain values.

use std::fmt;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use kiln_value::{Key, Number, Value};

use super::time::format_duration;
use super::{CelList, Map, MapKey, Val};

/// A value that has no plain form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToJsonError {
    /// A map key that is not a string.
    Key {
        /// The key as text.
        key: String,
        /// The name of its type.
        found: &'static str,
    },
    /// More nodes or bytes than allowed.
    TooLarge,
    /// A value of a type without a plain form.
    Type(String),
    /// A number that JSON does not have.
    NotFinite,
}

impl fmt::Display for ToJsonError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ToJsonError::Key { key, found } => {
                write!(f, "map key {key} is of type {found}, not string")
            }
            ToJsonError::TooLarge => f.write_str("the result is too large"),
            ToJsonError::Type(name) => write!(f, "a value of type {name} has no JSON form"),
            ToJsonError::NotFinite => f.write_str("a number that is not finite has no JSON form"),
        }
    }
}

impl std::error::Error for ToJsonError {}

/// How to write values that have no JSON form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct JsonForm {
    pub(crate) keys: Keys,
    /// Refuse NaN and infinities instead of writing them as words, as protobuf's JSON form does.
    pub(crate) finite_only: bool,
}

/// What to do with map keys that are not strings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keys {
    /// Write them as text.
    AsText,
    /// Refuse them.
    StringsOnly,
}

/// The plain form of a value: bytes in base64, times as text, types by name, an empty optional as
/// null. Parts of objects are shared. `room` counts down nodes and bytes of text.
pub(crate) fn to_json(value: &Val, form: JsonForm, room: &mut u64) -> Result<Value, ToJsonError> {
    take(room, 1)?;
    Ok(match value {
        Val::Null | Val::Optional(None) => Value::Null,
        Val::Bool(b) => Value::Bool(*b),
        Val::Int(i) => Value::from(*i),
        Val::UInt(u) => Value::from(*u),
        Val::Double(x) if x.is_finite() => Value::from(*x),
        Val::Double(_) if form.finite_only => return Err(ToJsonError::NotFinite),
        Val::Double(x) if x.is_nan() => Value::from("NaN"),
        Val::Double(x) => Value::from(if *x > 0.0 { "Infinity" } else { "-Infinity" }),
        Val::String(text) => {
            take(room, text.len())?;
            Value::String(text.clone())
        }
        Val::Bytes(bytes) => {
            take(room, bytes.len())?;
            Value::from(BASE64_STANDARD.encode(bytes))
        }
        Val::List(CelList::Json(list)) => Value::List(list.clone()),
        Val::List(list) => {
            list.iter().map(|element| to_json(&element, form, room)).collect::<Result<_, _>>()?
        }
        Val::Map(Map::Json(map)) => Value::Map(map.clone()),
        Val::Map(map) => map_to_json(map, form, room)?,
        Val::Duration(duration) => Value::from(format_duration(*duration)),
        Val::Timestamp(timestamp) => match timestamp.text() {
            Ok(text) => Value::from(text),
            Err(_) => return Err(ToJsonError::Type("timestamp that is out of range".to_owned())),
        },
        Val::Type(name) => Value::String(name.clone()),
        Val::Optional(Some(nested)) => to_json(&nested.value, form, room)?,
        Val::Struct(message) => {
            let mut map = kiln_value::Map::new();
            for (field, value) in &message.fields {
                map.insert(Key::new(field), to_json(value, form, room)?);
            }
            Value::Map(map)
        }
        Val::Opaque(opaque) => match opaque.to_text() {
            Some(text) => Value::from(text),
            None => return Err(ToJsonError::Type(opaque.type_name().to_owned())),
        },
    })
}

fn map_to_json(map: &Map, form: JsonForm, room: &mut u64) -> Result<Value, ToJsonError> {
    let mut plain = kiln_value::Map::new();
    for (key, value) in map.iter() {
        let (text, found) = match MapKey::from_val(&key) {
            Ok(MapKey::String(text)) => (text.to_string(), None),
            Ok(MapKey::Bool(b)) => (b.to_string(), Some("bool")),
            Ok(MapKey::Int(i)) => (Number::Int(i).to_string(), Some("int")),
            Ok(MapKey::UInt(u)) => (u.to_string(), Some("uint")),
            Err(_) => return Err(ToJsonError::Type(key.type_name().to_owned())),
        };
        if let (Some(found), Keys::StringsOnly) = (found, form.keys) {
            return Err(ToJsonError::Key { key: text, found });
        }
        take(room, text.len())?;
        plain.insert(Key::from(text), to_json(&value, form, room)?);
    }
    Ok(Value::Map(plain))
}

fn take(room: &mut u64, amount: usize) -> Result<(), ToJsonError> {
    *room = room.checked_sub(amount as u64).ok_or(ToJsonError::TooLarge)?;
    Ok(())
}

impl Val {
    /// The plain form of the value: bytes in base64, times as text, types by name, optionals as
    /// their value or null. At most `limit` nodes and bytes.
    ///
    /// # Errors
    /// When the value is larger, or has no plain form.
    pub fn to_json(&self, limit: u64) -> Result<Value, ToJsonError> {
        let mut room = limit;
        to_json(self, JsonForm { keys: Keys::AsText, finite_only: false }, &mut room)
    }
}
