//! Typed reading of configuration, as Go's JSON decoder reads it.
//!
//! Field names match in any case, null leaves a field as it is, a wrong type is an error in Go's
//! words. Every error knows the path of the value.
//!
//! | function | unknown fields | a number where text belongs | used for |
//! |---|---|---|---|
//! | [`strict`] | refused | refused | the kustomization file |
//! | [`known`] | refused | becomes text | `configurations` |
//! | [`lenient`] | skipped | becomes text | configuration of built-in steps |

use std::collections::BTreeMap;
use std::fmt;

use kiln_diagnostic::did_you_mean;
#[cfg(test)]
use kiln_testkit::TypeShape;
use kiln_value::{Key, Number, Path, Segment, Str, Value};

/// Why a value does not fit a type.
#[derive(Clone, Debug)]
pub(crate) struct DecodeError {
    /// Where the value is.
    pub(crate) path: Path,
    /// What is wrong, in Go's words.
    pub(crate) message: String,
    /// What was probably meant.
    pub(crate) hint: Option<String>,
    /// Whether the field at the path is itself unknown (so that its key is at fault).
    pub(crate) unknown_field: bool,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Where the reader is and how strict it is.
pub(crate) struct DecodeReader {
    refuse_unknown: bool,
    numbers_to_text: bool,
    path: Path,
    /// The Go type of the struct around the value, for messages.
    owner: &'static str,
}

/// A type that can be read from a value.
pub(crate) trait Decode: Default {
    /// The Go type, for messages.
    fn go_type() -> String;

    /// Reads a value into an existing one; the value is not null.
    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError>;

    /// Values of this type, each with this text in one of the places that take any, by the names of the fields on the way:
    /// so that tests of all fields know the new ones too.
    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)>;

    /// What the type is read from, to be compared with the tables of fields.
    #[cfg(test)]
    fn shape() -> TypeShape;
}

/// Reads a value that must have exactly this form.
pub(crate) fn strict<T: Decode>(value: &Value) -> Result<T, DecodeError> {
    decode(value, true, false)
}

/// Reads a value without unknown fields.
pub(crate) fn known<T: Decode>(value: &Value) -> Result<T, DecodeError> {
    decode(value, true, true)
}

/// Reads what is known of a value.
pub(crate) fn lenient<T: Decode>(value: &Value) -> Result<T, DecodeError> {
    decode(value, false, true)
}

fn decode<T: Decode>(
    value: &Value,
    refuse_unknown: bool,
    numbers_to_text: bool,
) -> Result<T, DecodeError> {
    let mut reader =
        DecodeReader { refuse_unknown, numbers_to_text, path: Path::root(), owner: "" };
    let mut decoded = T::default();
    reader.read_into(value, &mut decoded)?;
    Ok(decoded)
}

impl DecodeReader {
    /// Reads a value unless it is null.
    pub(crate) fn read_into<T: Decode>(
        &mut self,
        value: &Value,
        into: &mut T,
    ) -> Result<(), DecodeError> {
        if value.is_null() { Ok(()) } else { into.read(value, self) }
    }

    /// Goes through the fields of a struct.
    pub(crate) fn fields(
        &mut self,
        value: &Value,
        go_type: &'static str,
        known: &'static [&'static str],
        mut read: impl FnMut(&mut Self, usize, &Value) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        let Value::Map(map) = value else {
            return Err(self.mismatch(value, go_type));
        };
        for (key, value) in map {
            let position = known
                .iter()
                .position(|name| *name == key.as_str())
                .or_else(|| known.iter().position(|name| name.eq_ignore_ascii_case(key)));
            match position {
                Some(position) => {
                    let outer = std::mem::replace(&mut self.owner, go_type);
                    self.below(Segment::from(key), |reader| read(reader, position, value))?;
                    self.owner = outer;
                }
                None if self.refuse_unknown => return Err(self.unknown(key, known)),
                None => {}
            }
        }
        Ok(())
    }

    fn below(
        &mut self,
        segment: Segment,
        read: impl FnOnce(&mut Self) -> Result<(), DecodeError>,
    ) -> Result<(), DecodeError> {
        self.path.push(segment);
        let outcome = read(self);
        self.path.pop();
        outcome
    }

    fn unknown(&self, key: &Key, known: &'static [&'static str]) -> DecodeError {
        DecodeError {
            path: self.path.join(key),
            message: format!("json: unknown field {:?}", key.as_str()),
            hint: did_you_mean(key, known.iter().copied())
                .map(|field| format!("did you mean {field:?}?")),
            unknown_field: true,
        }
    }

    fn mismatch(&self, value: &Value, go_type: &str) -> DecodeError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::List(_) => "array",
            Value::Map(_) => "object",
        };
        let field = if self.owner.is_empty() {
            "value".to_owned()
        } else {
            let names: Vec<&str> = self
                .path
                .segments()
                .iter()
                .filter_map(|segment| match segment {
                    Segment::Key(key) => Some(key.as_str()),
                    Segment::Index(_) => None,
                })
                .collect();
            format!("struct field {}.{}", self.owner, names.join("."))
        };
        let hint = match (value, go_type) {
            (Value::Number(_) | Value::Bool(_), "string") => {
                Some("put the value in quotes to make it text".to_owned())
            }
            _ => None,
        };
        DecodeError {
            path: self.path.clone(),
            message: format!("json: cannot unmarshal {found} into Go {field} of type {go_type}"),
            hint,
            unknown_field: false,
        }
    }
}

impl Decode for String {
    fn go_type() -> String {
        "string".to_owned()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        let mut text = Str::default();
        text.read(value, reader)?;
        text.as_str().clone_into(self);
        Ok(())
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::String
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        vec![(String::new(), Value::from(text))]
    }
}

impl Decode for Str {
    fn go_type() -> String {
        "string".to_owned()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        match value {
            Value::String(text) => *self = text.clone(),
            Value::Bool(_) | Value::Number(Number::Int(_) | Number::UInt(_))
                if reader.numbers_to_text =>
            {
                *self = crate::model::resource::scalar_text(value);
            }
            Value::Number(Number::Float(float)) if reader.numbers_to_text => {
                *self = kiln_text::float::print(*float).into();
            }
            other => return Err(reader.mismatch(other, "string")),
        }
        Ok(())
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::String
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        vec![(String::new(), Value::from(text))]
    }
}

impl Decode for bool {
    fn go_type() -> String {
        "bool".to_owned()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        match value {
            Value::Bool(b) => {
                *self = *b;
                Ok(())
            }
            other => Err(reader.mismatch(other, "bool")),
        }
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::Boolean
    }

    #[cfg(test)]
    fn places(_: &str) -> Vec<(String, Value)> {
        Vec::new()
    }
}

impl Decode for i64 {
    fn go_type() -> String {
        "int".to_owned()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        let whole = match value {
            Value::Number(Number::Int(i)) => Some(*i),
            // JSON knows one kind of number: 3.0 is written as 3.
            Value::Number(Number::Float(f)) if f.fract() == 0.0 && f.abs() < 9e15 => {
                Some(*f as i64)
            }
            _ => None,
        };
        match whole {
            Some(whole) => {
                *self = whole;
                Ok(())
            }
            None => Err(reader.mismatch(value, "int")),
        }
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::Integer
    }

    #[cfg(test)]
    fn places(_: &str) -> Vec<(String, Value)> {
        Vec::new()
    }
}

impl Decode for Value {
    fn go_type() -> String {
        "interface {}".to_owned()
    }

    fn read(&mut self, value: &Value, _: &mut DecodeReader) -> Result<(), DecodeError> {
        *self = value.clone();
        Ok(())
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::Any
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        vec![(String::new(), Value::from(text))]
    }
}

impl<T: Decode> Decode for Option<T> {
    fn go_type() -> String {
        T::go_type()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        self.get_or_insert_with(T::default).read(value, reader)
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        T::shape()
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        T::places(text)
    }
}

impl<T: Decode> Decode for Vec<T> {
    fn go_type() -> String {
        format!("[]{}", T::go_type())
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        let Value::List(list) = value else {
            return Err(reader.mismatch(value, &Self::go_type()));
        };
        self.clear();
        for (at, element) in list.iter().enumerate() {
            let mut decoded = T::default();
            reader.below(Segment::Index(at), |reader| reader.read_into(element, &mut decoded))?;
            self.push(decoded);
        }
        Ok(())
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::List(Box::new(T::shape()))
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        let each = T::places(text).into_iter();
        each.map(|(name, value)| (name, Value::from_iter([value]))).collect()
    }
}

/// A map of texts keeps its keys sorted, as Go's printing does.
impl Decode for BTreeMap<String, String> {
    fn go_type() -> String {
        "map[string]string".to_owned()
    }

    fn read(&mut self, value: &Value, reader: &mut DecodeReader) -> Result<(), DecodeError> {
        let Value::Map(map) = value else {
            return Err(reader.mismatch(value, &Self::go_type()));
        };
        for (key, value) in map {
            let text = self.entry(key.to_string()).or_default();
            reader.below(Segment::from(key), |reader| reader.read_into(value, text))?;
        }
        Ok(())
    }

    #[cfg(test)]
    fn shape() -> TypeShape {
        TypeShape::Map
    }

    #[cfg(test)]
    fn places(text: &str) -> Vec<(String, Value)> {
        // The one name in such a map that means a file.
        [("path", text), (text, "v")]
            .map(|(key, value)| {
                (format!(".{key}"), Value::Map([(key, value)].into_iter().collect()))
            })
            .to_vec()
    }
}

/// Declares a struct that can be read: the Go name of the type, and each field's name in files.
macro_rules! record {
    ($(#[$meta:meta])* $name:ident = $go:literal {
        $($(#[$fmeta:meta])* $field:ident: $type:ty = $key:literal),* $(,)?
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug, Default)]
        pub(crate) struct $name {
            $($(#[$fmeta])* pub(crate) $field: $type,)*
        }

        impl $name {
            /// The fields by the names that documents use.
            #[allow(dead_code, reason = "asked for of some records only")]
            pub(crate) const FIELDS: &[&str] = &[$($key),*];
        }

        impl $crate::load::decode::Decode for $name {
            fn go_type() -> String {
                concat!("types.", $go).to_owned()
            }

            fn read(
                &mut self,
                value: &kiln_value::Value,
                reader: &mut $crate::load::decode::DecodeReader,
            ) -> std::result::Result<(), $crate::load::decode::DecodeError> {
                reader.fields(value, $go, Self::FIELDS, |reader, at, value| {
                    let name = Self::FIELDS[at];
                    $(if name == $key {
                        return reader.read_into(value, &mut self.$field);
                    })*
                    Ok(())
                })
            }

            #[cfg(test)]
            fn shape() -> kiln_testkit::TypeShape {
                let fields = vec![$(($key, <$type as $crate::load::decode::Decode>::shape())),*];
                kiln_testkit::TypeShape::Fields(fields)
            }

            #[cfg(test)]
            fn places(text: &str) -> Vec<(String, kiln_value::Value)> {
                let mut places = Vec::new();
                $(for (name, value) in <$type as $crate::load::decode::Decode>::places(text) {
                    let mut map = kiln_value::Map::new();
                    map.insert($key, value);
                    places.push((format!(".{}{name}", $key), kiln_value::Value::Map(map)));
                })*
                places
            }
        }
    };
}
pub(crate) use record;

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    record! {
        Sample = "Sample" {
            name: String = "name",
            new_tag: String = "newTag",
            count: i64 = "count",
            more: Vec<Sample> = "more",
            pairs: BTreeMap<String, String> = "pairs",
        }
    }

    #[test]
    fn names_match_in_any_case_and_null_is_nothing() {
        let read: Sample = strict(&value!({"NAME": "a", "newtag": null, "Count": 3.0})).unwrap();
        assert_eq!((read.name.as_str(), read.new_tag.as_str(), read.count), ("a", "", 3));
    }

    #[test]
    fn errors_say_where_in_the_words_of_go() {
        let error = strict::<Sample>(&value!({"more": [{"newTag": 1}]})).unwrap_err();
        assert_eq!(
            error.message,
            "json: cannot unmarshal number into Go struct field Sample.more.newTag of type string"
        );
        assert_eq!(error.path.to_string(), "more[0].newTag");
        let error = strict::<Sample>(&value!({"nmae": "a"})).unwrap_err();
        assert_eq!(error.message, "json: unknown field \"nmae\"");
        assert_eq!(error.hint.as_deref(), Some("did you mean \"name\"?"));
        assert!(lenient::<Sample>(&value!({"nmae": "a"})).is_ok());
        assert!(known::<Sample>(&value!({"nmae": "a"})).is_err());
        let read: Sample = known(&value!({"name": true, "pairs": {"a": 1, "b": 1.5}})).unwrap();
        assert_eq!(read.name, "true");
        assert_eq!(format!("{:?}", read.pairs), r#"{"a": "1", "b": "1.5"}"#);
    }
}
