//! Values of expressions.
//!
//! Objects are not converted: a list, map or string of a [`kiln_value::Value`] is shared as it is,
//! and its parts become values only when an expression looks at them.

mod compare;
mod convert;
mod list;
mod map;
pub(crate) mod time;

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use kiln_text::Duration;
use kiln_value::{Number, Str, Value};

pub(crate) use self::compare::{compare, equal};
pub use self::convert::ToJsonError;
pub(crate) use self::convert::{JsonForm, Keys, to_json};
pub use self::list::CelList;
pub use self::map::{Map, MapKey};
pub(crate) use self::map::{MapBuilder, MapPart};
pub use self::time::Timestamp;
use crate::Type;
use crate::error::{EvalFailure, failure};

/// A value of an expression. Cloning copies at most a pointer.
#[derive(Clone, Debug)]
pub enum Val {
    Null,
    /// True or false.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A float.
    Double(f64),
    /// Text.
    String(Str),
    Bytes(Arc<[u8]>),
    List(CelList),
    Map(Map),
    /// A span of time.
    Duration(Duration),
    /// A moment.
    Timestamp(Timestamp),
    /// A type, by its name.
    Type(Str),
    /// Something or nothing.
    Optional(Option<Arc<Nested>>),
    /// A message: a type name and fields.
    Struct(Arc<Message>),
    /// A value that only library functions look into.
    Opaque(Arc<dyn Opaque>),
}

/// A value inside an optional, with the depth of what it holds.
#[derive(Debug)]
pub struct Nested {
    pub(crate) value: Val,
    pub(crate) depth: u32,
}

impl Nested {
    /// What the optional holds.
    pub fn value(&self) -> &Val {
        &self.value
    }
}

/// A message value, such as `Object.spec{…}`.
#[derive(Debug)]
pub struct Message {
    pub(crate) name: Str,
    pub(crate) fields: Vec<(Str, Val)>,
    pub(crate) depth: u32,
}

impl Message {
    /// The name of its type.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A field that was set.
    pub fn get(&self, field: &str) -> Option<&Val> {
        self.fields.iter().find(|(name, _)| name == field).map(|(_, value)| value)
    }
}

/// A value of a library's own type.
pub trait Opaque: Any + fmt::Debug + Send + Sync {
    fn type_name(&self) -> &'static str;
    /// Whether both are equal; other types never are.
    fn equals(&self, other: &dyn Opaque) -> bool;
    /// The text of the value, where it has one.
    fn to_text(&self) -> Option<String>;
    /// The value for downcasts.
    fn as_any(&self) -> &dyn Any;
}

/// How deep values may nest that an expression builds. Walking them is recursive.
pub(crate) const MAX_DEPTH: u32 = 150;

impl Val {
    /// Text.
    pub fn string(text: impl AsRef<str>) -> Self {
        Val::String(Str::new(text))
    }

    /// A list of these elements; what nests too deep becomes null.
    pub fn from_elements(elements: impl IntoIterator<Item = Val>) -> Self {
        Val::list(elements.into_iter().collect()).unwrap_or(Val::Null)
    }

    /// A map of these entries. Of equal keys the first counts; keys of other types than booleans,
    /// integers and strings are left out; what nests too deep becomes null.
    pub fn from_entries(entries: impl IntoIterator<Item = (Val, Val)>) -> Self {
        let mut map = MapBuilder::default();
        for (key, value) in entries {
            if let Ok(key) = MapKey::from_val(&key) {
                // Only a key that is there already is refused.
                let _ = map.insert(key, value);
            }
        }
        map.finish().unwrap_or(Val::Null)
    }

    /// A list of these elements.
    pub(crate) fn list(elements: Vec<Val>) -> Result<Self, EvalFailure> {
        Ok(Val::List(CelList::new(elements)?))
    }

    /// An optional with something in it.
    pub(crate) fn some(value: Val) -> Result<Self, EvalFailure> {
        let depth = deeper(value.depth())?;
        Ok(Val::Optional(Some(Arc::new(Nested { value, depth }))))
    }

    /// The empty optional.
    pub(crate) fn none() -> Self {
        Val::Optional(None)
    }

    /// A message; the caller has checked the fields.
    pub(crate) fn message(name: Str, fields: Vec<(Str, Val)>) -> Result<Self, EvalFailure> {
        let depth = deeper(deepest(fields.iter().map(|(_, value)| value)))?;
        Ok(Val::Struct(Arc::new(Message { name, fields, depth })))
    }

    /// How deep lists, maps, optionals and messages made by expressions nest in it.
    pub(crate) fn depth(&self) -> u32 {
        match self {
            Val::List(list) => list.depth(),
            Val::Map(map) => map.depth(),
            Val::Optional(Some(nested)) => nested.depth,
            Val::Struct(message) => message.depth,
            _ => 0,
        }
    }

    /// The name that `type(x)` gives.
    pub fn type_name(&self) -> &str {
        match self {
            Val::Null => Type::Null.runtime_name(),
            Val::Bool(_) => "bool",
            Val::Int(_) => "int",
            Val::UInt(_) => "uint",
            Val::Double(_) => "double",
            Val::String(_) => "string",
            Val::Bytes(_) => "bytes",
            Val::List(_) => "list",
            Val::Map(_) => "map",
            Val::Duration(_) => Type::Duration.runtime_name(),
            Val::Timestamp(_) => Type::Timestamp.runtime_name(),
            Val::Type(_) => "type",
            Val::Optional(_) => crate::types::OPTIONAL,
            Val::Struct(message) => &message.name,
            Val::Opaque(opaque) => opaque.type_name(),
        }
    }

    /// The boolean, if it is one.
    pub fn as_bool(&self) -> Option<bool> {
        match self {
            Val::Bool(b) => Some(*b),
            _ => None,
        }
    }

    /// The text, if it is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Val::String(text) => Some(text),
            _ => None,
        }
    }

    /// A question to the authorizer about the resource of a request: what `authorizer.requestResource` is.
    pub fn request_resource(check: crate::AuthorizationCheck) -> Self {
        crate::library::request_resource(check)
    }

    /// The answer to a request that it is; none for other values.
    pub fn as_answer(&self) -> Option<crate::AuthzAnswer> {
        crate::library::authz::answer(self)
    }

    /// A library's own value, if it is one of this Rust type.
    pub(crate) fn as_opaque<T: Opaque>(&self) -> Option<&T> {
        match self {
            Val::Opaque(opaque) => opaque.as_any().downcast_ref(),
            _ => None,
        }
    }

    /// Whether a function that wants this type may be called with the value.
    pub(crate) fn has_type(&self, ty: &Type) -> bool {
        match (self, ty) {
            (_, Type::Dyn | Type::Error | Type::Param(_) | Type::Variable(_))
            | (Val::Null, Type::Null)
            | (Val::Bool(_), Type::Bool)
            | (Val::Int(_), Type::Int)
            | (Val::UInt(_), Type::UInt)
            | (Val::Double(_), Type::Double)
            | (Val::String(_), Type::String)
            | (Val::Bytes(_), Type::Bytes)
            | (Val::List(_), Type::List(_))
            // What hosts bind for a message is a map.
            | (Val::Map(_), Type::Map(_) | Type::Struct(_))
            | (Val::Duration(_), Type::Duration)
            | (Val::Timestamp(_), Type::Timestamp)
            | (Val::Type(_), Type::Type) => true,
            (Val::Optional(_), Type::Opaque(..)) => ty.as_optional().is_some(),
            (Val::Struct(message), Type::Struct(name)) => message.name == *name,
            (Val::Opaque(opaque), Type::Opaque(name, _)) => opaque.type_name() == name,
            _ => false,
        }
    }

    /// The size that costs are counted in: bytes of text, elements of lists and maps, else 1.
    pub(crate) fn cost_size(&self) -> u64 {
        let size = match self {
            Val::String(text) => text.len(),
            Val::Bytes(bytes) => bytes.len(),
            Val::List(list) => list.len(),
            Val::Map(map) => map.len(),
            _ => 1,
        };
        size as u64
    }
}

/// One more level around something this deep.
pub(crate) fn deeper(depth: u32) -> Result<u32, EvalFailure> {
    if depth >= MAX_DEPTH {
        return Err(failure(format!("values nest more than {MAX_DEPTH} levels deep")));
    }
    Ok(depth + 1)
}

pub(crate) fn deepest<'v>(values: impl IntoIterator<Item = &'v Val>) -> u32 {
    values.into_iter().map(Val::depth).max().unwrap_or(0)
}

/// Shares the value; nothing below it is looked at.
impl From<&Value> for Val {
    fn from(value: &Value) -> Self {
        match value {
            Value::Null => Val::Null,
            Value::Bool(b) => Val::Bool(*b),
            Value::Number(Number::Int(i)) => Val::Int(*i),
            Value::Number(Number::UInt(u)) => Val::UInt(*u),
            Value::Number(Number::Float(x)) => Val::Double(*x),
            Value::String(text) => Val::String(text.clone()),
            Value::List(list) => Val::List(CelList::Json(list.clone())),
            Value::Map(map) => Val::Map(Map::Json(map.clone())),
        }
    }
}

impl From<Value> for Val {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => Val::String(text),
            Value::List(list) => Val::List(CelList::Json(list)),
            Value::Map(map) => Val::Map(Map::Json(map)),
            other => Val::from(&other),
        }
    }
}

impl From<bool> for Val {
    fn from(b: bool) -> Self {
        Val::Bool(b)
    }
}

impl From<i64> for Val {
    fn from(i: i64) -> Self {
        Val::Int(i)
    }
}

impl From<&str> for Val {
    fn from(text: &str) -> Self {
        Val::string(text)
    }
}

impl From<String> for Val {
    fn from(text: String) -> Self {
        Val::String(Str::from(text))
    }
}

/// A library's own value.
impl<T: Opaque> From<Arc<T>> for Val {
    fn from(opaque: Arc<T>) -> Self {
        Val::Opaque(opaque)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_four_words() {
        assert_eq!(size_of::<Val>(), 32);
        assert_eq!(size_of::<Result<Val, EvalFailure>>(), 32);
    }

    #[test]
    fn parts_of_objects_are_shared() {
        let object = kiln_value::value!({"a": {"b": [1, 2]}});
        let Val::Map(map) = Val::from(&object) else { panic!("a map") };
        let Some(Val::Map(inner)) = map.get_str("a") else { panic!("a map inside") };
        let Map::Json(inner) = inner else { panic!("not converted") };
        assert!(inner.ptr_eq(object.get("a").and_then(Value::as_map).unwrap()));
    }
}
