//! Documents with expressions in them: `name: (( object.metadata.name ))-defaults`.

use kiln_value::{Key, Value};

use crate::script::Expression;

/// A part of a document.
#[derive(Clone, Debug)]
pub enum Part {
    /// Without expressions.
    Plain(Value),
    /// The value of an expression, whatever its type.
    Whole(Expression),
    /// Text with the values of expressions in it.
    Text(Vec<Piece>),
    /// A map.
    Map(Vec<(Key, Part)>),
    /// A list.
    List(Vec<Part>),
}

/// A piece of a text.
#[derive(Clone, Debug)]
pub enum Piece {
    /// As written.
    Plain(String),
    /// The value of an expression, which must be text, a number or a boolean.
    Value(Expression),
}

impl Part {
    /// The value at a key, if it is known before anything runs.
    pub fn plain(&self, key: &str) -> Option<&Value> {
        match self {
            Part::Plain(value) => value.get(key),
            Part::Map(entries) => {
                entries.iter().find(|(k, _)| k.as_str() == key).and_then(|(_, part)| match part {
                    Part::Plain(value) => Some(value),
                    _ => None,
                })
            }
            _ => None,
        }
    }
}
