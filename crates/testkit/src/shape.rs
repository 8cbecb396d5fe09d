//! What readers with types of their own accept, to be compared with the tables of fields.

use std::cell::RefCell;
use std::fmt;

use kiln_fields::{FieldTable, FieldType};
use serde::Deserialize;
use serde::de::value::StrDeserializer;
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};

/// What a type can be read from.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum TypeShape {
    /// Anything.
    #[default]
    Any,
    /// Text.
    String,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    List(Box<TypeShape>),
    /// A map with any keys.
    Map,
    /// A map with these fields.
    Fields(Vec<(&'static str, TypeShape)>),
}

impl TypeShape {
    /// The shape of a type that serde reads, found by reading it. Of the fields in `open` it is known that they hold a
    /// map with any keys: their types ask for anything, and then want a map.
    ///
    /// # Panics
    /// If the type cannot be read from what it asks for.
    pub fn of<T: for<'de> Deserialize<'de>>(open: &'static [&'static str]) -> TypeShape {
        let shape = RefCell::default();
        let tracer = Tracer { shape: &shape, open, is_open: false };
        T::deserialize(tracer).map(drop).expect("a type is read from what it asks for");
        shape.into_inner()
    }

    /// What a table says and the reader does not do, and the other way around, each with its path.
    pub fn differences(&self, table: &'static FieldTable) -> Vec<String> {
        let mut found = Vec::new();
        self.compare_table(table, "", &mut found);
        found
    }

    fn compare_table(&self, table: &'static FieldTable, path: &str, found: &mut Vec<String>) {
        let TypeShape::Fields(fields) = self else {
            return found.push(format!("{path}: the table has fields, the reader has {self:?}"));
        };
        for (name, shape) in fields {
            match table.field(name) {
                Some(field) => shape.compare(&field.holds, &format!("{path}.{name}"), found),
                None => found.push(format!("{path}.{name}: the table lacks it")),
            }
        }
        let unread = table.names().filter(|name| !fields.iter().any(|(known, _)| known == name));
        found.extend(unread.map(|name| format!("{path}.{name}: the reader lacks it")));
    }

    fn compare(&self, holds: &FieldType, path: &str, found: &mut Vec<String>) {
        match (holds, self) {
            (
                FieldType::String | FieldType::Expression(_) | FieldType::Enum(_),
                TypeShape::String,
            )
            | (FieldType::Boolean, TypeShape::Boolean)
            | (FieldType::Integer, TypeShape::Integer)
            | (FieldType::Any, TypeShape::Any | TypeShape::Map)
            | (FieldType::Map(_), TypeShape::Map)
            // Several forms are read by hand.
            | (FieldType::Either(_), TypeShape::Any) => {}
            (FieldType::List(element), TypeShape::List(shape)) => {
                shape.compare(element, &format!("{path}[]"), found);
            }
            (FieldType::Table(table), shape) => shape.compare_table(table, path, found),
            (FieldType::Tables(table), TypeShape::List(shape)) => {
                shape.compare_table(table, &format!("{path}[]"), found);
            }
            (holds, shape) => {
                found.push(format!("{path}: the table has {holds:?}, the reader has {shape:?}"));
            }
        }
    }
}

/// Gives a type whatever it asks for, and notes what that was.
#[derive(Clone, Copy)]
struct Tracer<'t> {
    shape: &'t RefCell<TypeShape>,
    open: &'static [&'static str],
    /// Whether the value belongs to a field that is open.
    is_open: bool,
}

#[derive(Debug)]
struct Refused(String);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Refused {}

impl de::Error for Refused {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Refused(message.to_string())
    }
}

impl Tracer<'_> {
    fn is(self, shape: TypeShape) {
        self.shape.replace(shape);
    }
}

macro_rules! integers {
    ($($method:ident)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
            self.is(TypeShape::Integer);
            visitor.visit_u8(0)
        })*
    };
}

impl<'de> Deserializer<'de> for Tracer<'_> {
    type Error = Refused;

    // Types that take anything take text, too.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        if self.is_open {
            return self.deserialize_map(visitor);
        }
        self.is(TypeShape::Any);
        visitor.visit_str("")
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.is(TypeShape::String);
        visitor.visit_str("")
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.is(TypeShape::Boolean);
        visitor.visit_bool(false)
    }

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        visitor.visit_some(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        let element = RefCell::default();
        let read = visitor.visit_seq(One(Some(Tracer { shape: &element, ..self })))?;
        self.is(TypeShape::List(Box::new(element.into_inner())));
        Ok(read)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refused> {
        self.is(TypeShape::Map);
        visitor.visit_map(&mut Each { names: &[], found: Vec::new(), open: self.open })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refused> {
        let mut each = Each { names, found: Vec::new(), open: self.open };
        let read = visitor.visit_map(&mut each)?;
        self.is(TypeShape::Fields(each.found));
        Ok(read)
    }

    serde::forward_to_deserialize_any! {
        i128 u128 f32 f64 char bytes byte_buf unit unit_struct newtype_struct tuple tuple_struct
        enum identifier ignored_any
    }
}

struct One<'t>(Option<Tracer<'t>>);

impl<'de> SeqAccess<'de> for One<'_> {
    type Error = Refused;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refused> {
        self.0.take().map(|element| seed.deserialize(element)).transpose()
    }
}

/// The fields of a struct, one after the other.
struct Each {
    names: &'static [&'static str],
    found: Vec<(&'static str, TypeShape)>,
    open: &'static [&'static str],
}

impl<'de> MapAccess<'de> for Each {
    type Error = Refused;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refused> {
        let name = self.names.get(self.found.len());
        name.map(|name| seed.deserialize(StrDeserializer::new(name))).transpose()
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refused> {
        let shape = RefCell::default();
        let name = self.names[self.found.len()];
        let is_open = self.open.contains(&name);
        let read = seed.deserialize(Tracer { shape: &shape, open: self.open, is_open })?;
        self.found.push((name, shape.into_inner()));
        Ok(read)
    }
}
