//! Signatures of library functions, written as people read them.
//!
//! `size(string): int` is a plain function, `math.abs(int): int` one with a namespace, and
//! `(list(T)).first(): optional(T)` one with a receiver. Single capital letters are type parameters.

use kiln_value::Str;

use crate::Type;

pub(super) struct Signature {
    pub(super) name: Str,
    pub(super) params: Vec<Type>,
    pub(super) result: Type,
    pub(super) member: bool,
}

/// Reads a signature of this crate's own tables.
///
/// # Panics
/// When a table is wrong; building any environment shows it.
pub(super) fn parse(text: &'static str) -> Signature {
    let mut reader = SignatureReader { text, rest: text };
    let mut params = Vec::new();
    let member = reader.accept("(");
    if member {
        params.push(reader.ty());
        reader.expect(").");
    }
    let name = Str::new_static(reader.until("("));
    reader.expect("(");
    if !reader.accept(")") {
        loop {
            params.push(reader.ty());
            if reader.accept(")") {
                break;
            }
            reader.expect(", ");
        }
    }
    reader.expect(": ");
    let result = reader.ty();
    assert!(reader.rest.is_empty(), "signature {text:?}: {:?} is left over", reader.rest);
    Signature { name, params, result, member }
}

struct SignatureReader {
    text: &'static str,
    rest: &'static str,
}

impl SignatureReader {
    fn accept(&mut self, token: &str) -> bool {
        let found = self.rest.strip_prefix(token);
        self.rest = found.unwrap_or(self.rest);
        found.is_some()
    }

    fn expect(&mut self, token: &str) {
        assert!(self.accept(token), "signature {:?}: {token:?} is missing", self.text);
    }

    fn until(&mut self, token: &str) -> &'static str {
        let at = self.rest.find(token);
        let at = at.unwrap_or_else(|| panic!("signature {:?}: {token:?} is missing", self.text));
        let (before, rest) = self.rest.split_at(at);
        self.rest = rest;
        before
    }

    fn word(&mut self) -> &'static str {
        let end = self.rest.find(|c: char| !(c.is_alphanumeric() || c == '.' || c == '_'));
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    fn ty(&mut self) -> Type {
        match self.word() {
            "dyn" => Type::Dyn,
            "null" => Type::Null,
            "bool" => Type::Bool,
            "int" => Type::Int,
            "uint" => Type::UInt,
            "double" => Type::Double,
            "string" => Type::String,
            "bytes" => Type::Bytes,
            "duration" => Type::Duration,
            "timestamp" => Type::Timestamp,
            "type" => Type::Type,
            "list" => {
                self.expect("(");
                let element = self.ty();
                self.expect(")");
                Type::list(element)
            }
            "map" => {
                self.expect("(");
                let key = self.ty();
                self.expect(", ");
                let value = self.ty();
                self.expect(")");
                Type::map(key, value)
            }
            "message" => {
                self.expect("(");
                let name = self.word();
                self.expect(")");
                Type::Struct(Str::new_static(name))
            }
            "optional" => {
                self.expect("(");
                let held = self.ty();
                self.expect(")");
                Type::optional(held)
            }
            word if word.len() == 1 && word.chars().all(char::is_uppercase) => Type::param(word),
            "" => panic!("signature {:?}: a type is missing at {:?}", self.text, self.rest),
            name => Type::opaque(name),
        }
    }
}
