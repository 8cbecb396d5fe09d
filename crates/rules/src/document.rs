//! Documents with expressions in them: `name: (( object.metadata.name ))-defaults`.

use kiln_value::{Key, Value};

use crate::script::Expression;

#[derive(Clone, Debug)]
pub enum DocumentPart {
    /// Without expressions.
    Plain(Value),
    /// The value of an expression, whatever its type.
    Whole(Expression),
    /// Text with the values of expressions in it.
    Text(Vec<TextPiece>),
    Map(Vec<(Key, DocumentPart)>),
    List(Vec<DocumentPart>),
}

#[derive(Clone, Debug)]
pub enum TextPiece {
    /// As written.
    Plain(String),
    /// The value of an expression, which must be text, a number or a boolean.
    Value(Expression),
}

impl DocumentPart {
    /// The value at a path, if it is known before anything runs.
    pub fn plain<const N: usize>(&self, path: [&str; N]) -> Option<&Value> {
        let mut part = self;
        for (at, key) in path.iter().enumerate() {
            part = match part {
                DocumentPart::Plain(value) => return value.get_path(path[at..].iter().copied()),
                DocumentPart::Map(entries) => {
                    &entries.iter().find(|(known, _)| known.as_str() == *key)?.1
                }
                _ => return None,
            };
        }
        match part {
            DocumentPart::Plain(value) => Some(value),
            _ => None,
        }
    }
}
