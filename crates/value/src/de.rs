//! A serde `Deserializer` over values, so that typed readers of documents are one derive away.
//!
//! A type error carries the [`Path`] of the value at fault; the reader of the document turns the
//! path into a line and a column. Strings are borrowed, nothing is copied before serde asks.

use std::fmt;

use serde::de::{
    self, Deserialize, DeserializeSeed, Deserializer, EnumAccess, Expected, IntoDeserializer,
    MapAccess, SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;

use crate::{Key, Number, Path, Segment, Value};

/// A value that does not fit the type it was read into.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeError {
    /// The place of the value (for an unknown field: of the field).
    pub path: Path,
    /// What is wrong there.
    pub problem: Problem,
}

/// What can be wrong with a value.
#[derive(Clone, Debug, PartialEq)]
pub enum Problem {
    /// A field that the type does not have, and the ones it has.
    UnknownField {
        /// The field as written.
        field: String,
        /// The fields that would be right here.
        expected: &'static [&'static str],
    },
    /// A text that is none of the allowed ones.
    UnknownVariant {
        /// The text as written.
        variant: String,
        /// The allowed texts.
        expected: &'static [&'static str],
    },
    /// A field that must be there and is not.
    MissingField(&'static str),
    /// Anything else, in words.
    Other(String),
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Problem::UnknownField { field, .. } => write!(f, "unknown field {field:?}"),
            Problem::UnknownVariant { variant, expected } => {
                write!(f, "{variant:?} is not one of {}", expected.join(", "))
            }
            Problem::MissingField(field) => write!(f, "missing field {field:?}"),
            Problem::Other(message) => f.write_str(message),
        }
    }
}

impl fmt::Display for TypeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_root() {
            self.problem.fmt(f)
        } else {
            write!(f, "{}: {}", self.path, self.problem)
        }
    }
}

impl std::error::Error for TypeError {}

impl TypeError {
    fn new(problem: Problem) -> Self {
        TypeError { path: Path::root(), problem }
    }

    fn below(mut self, segment: Segment) -> Self {
        self.path.prepend(segment);
        self
    }
}

impl de::Error for TypeError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        TypeError::new(Problem::Other(message.to_string()))
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        TypeError::custom(format_args!("expected {expected}, found {}", FoundValue(found)))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        TypeError::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        TypeError::new(Problem::UnknownField { field: field.to_owned(), expected })
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        TypeError::new(Problem::UnknownVariant { variant: variant.to_owned(), expected })
    }

    fn missing_field(field: &'static str) -> Self {
        TypeError::new(Problem::MissingField(field))
    }
}

/// What was found, in the words of the documents rather than of Rust.
struct FoundValue<'u>(Unexpected<'u>);

impl fmt::Display for FoundValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Unexpected::Bool(b) => write!(f, "the boolean {b}"),
            Unexpected::Signed(i) => write!(f, "the number {i}"),
            Unexpected::Unsigned(u) => write!(f, "the number {u}"),
            Unexpected::Float(x) => write!(f, "the number {}", Number::Float(x)),
            Unexpected::Str(s) => write!(f, "the string {s:?}"),
            Unexpected::Unit | Unexpected::Option => f.write_str("null"),
            Unexpected::Seq => f.write_str("a list"),
            Unexpected::Map => f.write_str("a map"),
            other => other.fmt(f),
        }
    }
}

/// Reads a typed thing from a value.
///
/// # Errors
/// When the value does not have the form of the type; the error names the place inside the value.
pub fn from_value<'v, T: Deserialize<'v>>(value: &'v Value) -> Result<T, TypeError> {
    T::deserialize(value)
}

impl<'de> Deserializer<'de> for &'de Value {
    type Error = TypeError;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        match self {
            Value::Null => visitor.visit_unit(),
            Value::Bool(b) => visitor.visit_bool(*b),
            Value::Number(Number::Int(i)) => visitor.visit_i64(*i),
            Value::Number(Number::UInt(u)) => visitor.visit_u64(*u),
            Value::Number(Number::Float(f)) => visitor.visit_f64(*f),
            Value::String(s) => visitor.visit_borrowed_str(s),
            Value::List(list) => visitor.visit_seq(Elements { rest: list.iter().enumerate() }),
            Value::Map(map) => {
                visitor.visit_map(Entries { rest: map.as_slice().iter(), current: None })
            }
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, TypeError> {
        if self.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        match self {
            Value::String(s) => visitor.visit_enum(s.as_str().into_deserializer()),
            Value::Map(map) if map.len() == 1 => visitor.visit_enum(Variant(&map.as_slice()[0])),
            other => Err(de::Error::invalid_type(
                unexpected(other),
                &"a string or a map with exactly one key",
            )),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, TypeError> for &'de Value {
    type Deserializer = Self;
    fn into_deserializer(self) -> Self {
        self
    }
}

fn unexpected(value: &Value) -> Unexpected<'_> {
    match value {
        Value::Null => Unexpected::Unit,
        Value::Bool(b) => Unexpected::Bool(*b),
        Value::Number(Number::Int(i)) => Unexpected::Signed(*i),
        Value::Number(Number::UInt(u)) => Unexpected::Unsigned(*u),
        Value::Number(Number::Float(f)) => Unexpected::Float(*f),
        Value::String(s) => Unexpected::Str(s),
        Value::List(_) => Unexpected::Seq,
        Value::Map(_) => Unexpected::Map,
    }
}

struct Elements<'de> {
    rest: std::iter::Enumerate<std::slice::Iter<'de, Value>>,
}

impl<'de> SeqAccess<'de> for Elements<'de> {
    type Error = TypeError;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, TypeError> {
        self.rest
            .next()
            .map(|(at, value)| seed.deserialize(value).map_err(|e| e.below(Segment::Index(at))))
            .transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Entries<'de> {
    rest: std::slice::Iter<'de, (Key, Value)>,
    current: Option<&'de (Key, Value)>,
}

impl<'de> MapAccess<'de> for Entries<'de> {
    type Error = TypeError;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, TypeError> {
        self.current = self.rest.next();
        self.current
            .map(|(key, _)| {
                seed.deserialize(de::value::BorrowedStrDeserializer::new(key.as_str()))
                    .map_err(|error: TypeError| error.below(Segment::from(key)))
            })
            .transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, TypeError> {
        match self.current.take() {
            Some((key, value)) => {
                seed.deserialize(value).map_err(|error| error.below(Segment::from(key)))
            }
            None => Err(de::Error::custom("a value was asked for before its key")),
        }
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

struct Variant<'de>(&'de (Key, Value));

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = TypeError;
    type Variant = Self;

    fn variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<(T::Value, Self), TypeError> {
        let name = de::value::BorrowedStrDeserializer::new(self.0.0.as_str());
        let variant = seed.deserialize(name).map_err(|error: TypeError| self.locate(error))?;
        Ok((variant, self))
    }
}

impl Variant<'_> {
    fn locate(&self, error: TypeError) -> TypeError {
        error.below(Segment::from(&self.0.0))
    }
}

impl<'de> VariantAccess<'de> for Variant<'de> {
    type Error = TypeError;

    fn unit_variant(self) -> Result<(), TypeError> {
        <()>::deserialize(&self.0.1).map_err(|error| self.locate(error))
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, TypeError> {
        seed.deserialize(&self.0.1).map_err(|error| self.locate(error))
    }

    fn tuple_variant<V: Visitor<'de>>(
        self,
        _len: usize,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.0.1.deserialize_any(visitor).map_err(|error| self.locate(error))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.0.1.deserialize_any(visitor).map_err(|error| self.locate(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value;

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    struct TestRule {
        name: String,
        #[serde(default)]
        weight: Option<u32>,
        #[serde(default)]
        steps: Vec<Step>,
    }

    #[derive(Debug, serde::Deserialize, PartialEq)]
    #[serde(rename_all = "camelCase")]
    enum Step {
        Skip,
        Wait(u8),
        Set { key: String },
    }

    #[test]
    fn reads_typed_things() {
        let value = value!({"name": "r", "steps": ["skip", {"wait": 3}, {"set": {"key": "k"}}]});
        let rule: TestRule = from_value(&value).unwrap();
        let steps = vec![Step::Skip, Step::Wait(3), Step::Set { key: "k".into() }];
        assert_eq!(rule, TestRule { name: "r".into(), weight: None, steps });
    }

    #[test]
    fn errors_name_the_place_and_what_was_found() {
        let cases = [
            (value!({"name": "r", "wieght": 1}), "wieght: unknown field \"wieght\""),
            (value!({"name": "r", "weight": "x"}), "weight: expected u32, found the string \"x\""),
            (value!({"name": "r", "weight": -1}), "weight: expected u32, found the number -1"),
            (value!({"name": 5}), "name: expected a string, found the number 5"),
            (value!({"steps": []}), "missing field \"name\""),
            (
                value!({"name": "r", "steps": ["skip", {"wait": 300}]}),
                "steps[1].wait: expected u8, found the number 300",
            ),
            (
                value!({"name": "r", "steps": ["jump"]}),
                "steps[0]: \"jump\" is not one of skip, wait, set",
            ),
        ];
        for (value, message) in cases {
            assert_eq!(from_value::<TestRule>(&value).unwrap_err().to_string(), message);
        }
    }
}
