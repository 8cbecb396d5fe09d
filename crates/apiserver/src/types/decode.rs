//! Reads an object as a Go program with these types would, and writes it as one: unknown fields go,
//! empty ones go or come as their tags say, numbers and quantities get their one form.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_text::quantity::Quantity;
use kiln_text::time::Time;
use kiln_value::{Map, Value, json};

use super::{SchemaOr, SchemaType, StructId, TypeField, types};

/// An object as it was understood.
#[derive(Debug)]
pub(crate) struct Decoded {
    pub(crate) object: Value,
    /// Fields that no type has, as paths.
    pub(crate) unknown: Vec<String>,
}

/// Reads an object as a struct.
///
/// # Errors
/// When a value has another type than its field; in Go's words.
pub(crate) fn decode(object: &Value, id: StructId) -> Result<Decoded, String> {
    let mut decoder = Decoder { unknown: Vec::new() };
    let at = At { owner: short(types().get(id).name), path: String::new(), go: String::new() };
    let mut decoded = decoder.fields(object, id, &at)?;
    let mut map = Map::new();
    for field in ["kind", "apiVersion"] {
        match object.get(field) {
            Some(text @ Value::String(_)) => {
                map.insert(field, text.clone());
            }
            None | Some(Value::Null) => {}
            Some(other) => {
                let owner = At {
                    owner: "TypeMeta".to_owned(),
                    path: field.to_owned(),
                    go: field.to_owned(),
                };
                return Err(mismatch(other, "string", &owner));
            }
        }
    }
    map.extend(
        std::mem::take(&mut decoded).iter().map(|(key, value)| (key.clone(), value.clone())),
    );
    Ok(Decoded { object: Value::Map(map), unknown: decoder.unknown })
}

/// Where the decoder is.
#[derive(Clone)]
struct At {
    /// The Go name of the struct that holds the field.
    owner: String,
    /// The path with indices, for unknown fields.
    path: String,
    /// The path as Go's decoder writes it, without indices.
    go: String,
}

impl At {
    fn field(&self, owner: &str, name: &str) -> At {
        let join = |path: &str| {
            if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
        };
        At { owner: short(owner), path: join(&self.path), go: join(&self.go) }
    }

    fn index(&self, index: usize) -> At {
        At { path: format!("{}[{index}]", self.path), ..self.clone() }
    }

    fn key(&self, key: &str) -> At {
        At { path: format!("{}.{key}", self.path), ..self.clone() }
    }
}

fn short(name: &str) -> String {
    name.rsplit('.').next().unwrap_or(name).to_owned()
}

struct Decoder {
    unknown: Vec<String>,
}

impl Decoder {
    fn fields(&mut self, value: &Value, id: StructId, at: &At) -> Result<Map, String> {
        let of = types().get(id);
        let map = match value {
            Value::Map(map) => map.clone(),
            Value::Null => Map::new(),
            other => return Err(mismatch(other, &format!("v1.{}", short(of.name)), at)),
        };
        let fields = types().fields(id);
        let root = at.path.is_empty();
        for (key, _) in &map {
            let known = fields.iter().any(|field| field.name == key.as_str())
                || root && matches!(key.as_str(), "kind" | "apiVersion");
            let embedded = matches!(key.as_str(), "kind" | "apiVersion")
                && of.name == "core/v1.PersistentVolumeClaim";
            if !known && !embedded {
                self.unknown.push(at.field(of.name, key).path);
            }
        }
        let mut out = Map::new();
        if !root && of.name == "core/v1.PersistentVolumeClaim" {
            for field in ["kind", "apiVersion"] {
                if let Some(text @ Value::String(_)) = map.get(field) {
                    out.insert(field, text.clone());
                }
            }
        }
        for field in fields {
            let given = map.get(field.name).filter(|value| !value.is_null());
            let at = at.field(of.name, field.name);
            if let Some(value) = self.field(field, given, &at)? {
                out.insert(field.name, value);
            }
        }
        Ok(out)
    }

    /// The field as it is written, if it is.
    fn field(
        &mut self,
        field: &TypeField,
        given: Option<&Value>,
        at: &At,
    ) -> Result<Option<Value>, String> {
        let Some(given) = given else {
            return Ok(match &field.ty {
                _ if field.pointer => (!field.omit_empty).then_some(Value::Null),
                SchemaType::Struct(_) if field.omit_zero => None,
                SchemaType::Struct(id) => Some(Value::Map(self.fields(&Value::Null, *id, at)?)),
                SchemaType::Time | SchemaType::MicroTime if field.omit_zero => None,
                SchemaType::Time
                | SchemaType::MicroTime
                | SchemaType::Raw
                | SchemaType::Json
                | SchemaType::Fields => (!field.omit_empty
                    || matches!(field.ty, SchemaType::Time | SchemaType::MicroTime))
                .then_some(Value::Null),
                SchemaType::Quantity => Some(Value::from("0")),
                SchemaType::IntOrString => Some(Value::from(0)),
                SchemaType::Duration => Some(Value::from("0s")),
                SchemaType::SchemaOr(_) => None,
                _ if field.omit_empty => None,
                ty => Some(zero(ty)),
            });
        };
        let mut value = self.value(given, &field.ty, at)?;
        // What is stored is protobuf, which has no empty lists and maps.
        if !field.pointer
            && matches!(field.ty, SchemaType::List(_) | SchemaType::Map(_))
            && is_empty(&value, &field.ty)
        {
            value = Value::Null;
        }
        let drop = !field.pointer
            && (field.omit_empty && is_empty(&value, &field.ty)
                || field.omit_zero && value.as_map().is_some_and(Map::is_empty));
        Ok((!drop).then_some(value))
    }

    fn value(&mut self, value: &Value, ty: &SchemaType, at: &At) -> Result<Value, String> {
        match (ty, value) {
            (SchemaType::String, Value::String(_)) | (SchemaType::Bool, Value::Bool(_)) |
(SchemaType::Json, _) | (SchemaType::Raw | SchemaType::Fields, Value::Map(_)) => Ok(value.clone()),
            (SchemaType::String, other) => Err(mismatch(other, "string", at)),
            (SchemaType::Bool, other) => Err(mismatch(other, "bool", at)),
            (SchemaType::Int32, Value::Number(_)) => integer(value, "int32", i64::from(i32::MIN), i64::from(i32::MAX), at),
            (SchemaType::Int64, Value::Number(_)) => integer(value, "int64", i64::MIN, i64::MAX, at),
            (SchemaType::Int32, other) => Err(mismatch(other, "int32", at)),
            (SchemaType::Int64, other) => Err(mismatch(other, "int64", at)),
            (SchemaType::Double, Value::Number(_)) => Ok(value.clone()),
            (SchemaType::Double, other) => Err(mismatch(other, "float64", at)),
            (SchemaType::Bytes, Value::String(text)) => match STANDARD.decode(text.as_bytes()) {
                Ok(_) => Ok(value.clone()),
                Err(_) => Err(format!("illegal base64 data at input byte {}", bad_base64(text))),
            },
            (SchemaType::Bytes, other) => Err(mismatch(other, "[]uint8", at)),
            (SchemaType::Quantity, Value::String(text)) => quantity(text),
            (SchemaType::Quantity, Value::Number(_)) => quantity(&json::to_string(value)),
            (SchemaType::Quantity, _) => Err(
                "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'".to_owned(),
            ),
            (SchemaType::IntOrString, Value::String(_)) => Ok(value.clone()),
            (SchemaType::IntOrString, Value::Number(_)) => integer(value, "int32", i64::from(i32::MIN), i64::from(i32::MAX), at),
            (SchemaType::IntOrString, other) => Err(mismatch(other, "intstr.IntOrString", at)),
            (SchemaType::Time | SchemaType::MicroTime, Value::String(text)) => time(text, *ty == SchemaType::MicroTime),
            (SchemaType::Time | SchemaType::MicroTime, other) => Err(mismatch(other, "string", at)),
            (SchemaType::Duration, Value::String(_)) => Ok(value.clone()),
            (SchemaType::Duration, other) => Err(mismatch(other, "string", at)),
            (SchemaType::Raw | SchemaType::Fields, other) => Ok(other.clone()),
            (SchemaType::SchemaOr(or), value) => self.schema_or(value, *or, at),
            (SchemaType::Struct(id), value) => self.fields(value, *id, at).map(Value::Map),
            (SchemaType::List(items), Value::List(list)) => {
                let mut out = Vec::with_capacity(list.len());
                for (i, item) in list.iter().enumerate() {
                    out.push(self.element(item, items, &at.index(i))?);
                }
                Ok(Value::from(out))
            }
            (SchemaType::Map(values), Value::Map(map)) => {
                let mut out = Map::new();
                for (key, value) in map {
                    out.insert(key.clone(), self.element(value, values, &at.key(key))?);
                }
                out.sort_keys();
                Ok(Value::Map(out))
            }
            (ty, other) => Err(mismatch(other, &go_type(ty), at)),
        }
    }

    /// An element of a list or map: null is the zero of its type.
    fn element(&mut self, value: &Value, ty: &SchemaType, at: &At) -> Result<Value, String> {
        match (value, ty) {
            (Value::Null, SchemaType::Struct(id)) => self.fields(value, *id, at).map(Value::Map),
            (Value::Null, SchemaType::Json | SchemaType::Raw) => Ok(Value::Null),
            (Value::Null, SchemaType::Bytes) => Ok(Value::from("")),
            (Value::Null, ty) => Ok(zero(ty)),
            _ => self.value(value, ty, at),
        }
    }

    fn schema_or(&mut self, value: &Value, or: SchemaOr, at: &At) -> Result<Value, String> {
        let schema = types().named("apiextensions/v1.JSONSchemaProps");
        match (value, or, schema) {
            (Value::Map(_), _, Some(id)) => self.fields(value, id, at).map(Value::Map),
            (Value::List(list), SchemaOr::Array, Some(id)) => {
                let all = list.iter().map(|item| self.fields(item, id, at).map(Value::Map));
                Ok(Value::from(all.collect::<Result<Vec<_>, _>>()?))
            }
            _ => Ok(value.clone()),
        }
    }
}

fn zero(ty: &SchemaType) -> Value {
    match ty {
        SchemaType::String => Value::from(""),
        SchemaType::Bool => Value::from(false),
        SchemaType::Int32 | SchemaType::Int64 | SchemaType::Double | SchemaType::IntOrString => {
            Value::from(0)
        }
        SchemaType::Quantity => Value::from("0"),
        SchemaType::Duration => Value::from("0s"),
        _ => Value::Null,
    }
}

/// Whether Go leaves a value out that may be left out when empty.
fn is_empty(value: &Value, ty: &SchemaType) -> bool {
    match (ty, value) {
        (
            SchemaType::Struct(_)
            | SchemaType::Time
            | SchemaType::MicroTime
            | SchemaType::Quantity
            | SchemaType::IntOrString
            | SchemaType::Raw
            | SchemaType::Json
            | SchemaType::Fields
            | SchemaType::SchemaOr(_),
            _,
        ) => false,
        (_, Value::Null) => true,
        (_, Value::Bool(bool)) => !bool,
        (_, Value::String(text)) => text.is_empty(),
        (_, Value::List(list)) => list.is_empty(),
        (_, Value::Map(map)) => map.is_empty(),
        (_, number) => number.as_f64() == Some(0.0),
    }
}

fn integer(value: &Value, ty: &str, least: i64, most: i64, at: &At) -> Result<Value, String> {
    let bad = || {
        format!(
            "json: cannot unmarshal number {} into Go struct field {}.{} of type {ty}",
            json::to_string(value),
            at.owner,
            at.go
        )
    };
    let whole = value.as_i64();
    whole.filter(|whole| (least..=most).contains(whole)).map(Value::from).ok_or_else(bad)
}

fn quantity(text: &str) -> Result<Value, String> {
    Quantity::parse(text)
        .map(|quantity| Value::from(quantity.to_string()))
        .map_err(|error| error.to_string())
}

fn time(text: &str, micro: bool) -> Result<Value, String> {
    let time = Time::parse_rfc3339(text).map_err(|error| error.to_string())?.utc();
    Ok(Value::from(if micro {
        time.format("2006-01-02T15:04:05.000000Z07:00")
    } else {
        time.rfc3339()
    }))
}

/// Where Go's decoder says that base64 is wrong.
fn bad_base64(text: &str) -> usize {
    let bytes = text.as_bytes();
    let skip = |mut at: usize| {
        while matches!(bytes.get(at), Some(b'\n' | b'\r')) {
            at += 1;
        }
        at
    };
    let (mut at, mut read) = (0, 0);
    loop {
        at = skip(at);
        match bytes.get(at) {
            // The four characters that belong together begin at the ones before.
            None => return at - read,
            Some(b'=') if read == 2 => {
                let second = skip(at + 1);
                return match bytes.get(second) {
                    None => bytes.len(),
                    Some(b'=') => skip(second + 1),
                    Some(_) => second - 1,
                };
            }
            Some(b'=') if read == 3 => return skip(at + 1),
            Some(byte) if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/') => {
                at += 1;
                read = (read + 1) % 4;
            }
            Some(_) => return at,
        }
    }
}

/// Go's words for a value of the wrong type.
fn mismatch(value: &Value, ty: &str, at: &At) -> String {
    let found = match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::List(_) => "array",
        Value::Map(_) => "object",
    };
    format!(
        "json: cannot unmarshal {found} into Go struct field {}.{} of type {ty}",
        at.owner, at.go
    )
}

fn go_type(ty: &SchemaType) -> String {
    match ty {
        SchemaType::List(items) => format!("[]{}", go_type(items)),
        SchemaType::Map(values) => format!("map[string]{}", go_type(values)),
        SchemaType::Struct(id) => format!("v1.{}", short(types().get(*id).name)),
        SchemaType::Bool => "bool".to_owned(),
        SchemaType::Int32 => "int32".to_owned(),
        SchemaType::Int64 => "int64".to_owned(),
        SchemaType::Bytes => "[]uint8".to_owned(),
        _ => "string".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn read(object: &Value) -> Result<Decoded, String> {
        let text = |field| object.get(field).and_then(Value::as_str).unwrap();
        decode(object, types().kind(text("apiVersion"), text("kind")).unwrap())
    }

    #[test]
    fn what_is_empty_comes_or_goes_as_in_go() {
        let read = read(&value!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "labels": {}, "extra": 1},
            "data": {}, "dta": null, "immutable": false,
        }))
        .unwrap();
        assert_eq!(
            read.object,
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "a"}, "immutable": false})
        );
        assert_eq!(read.unknown, ["dta", "metadata.extra"]);
    }

    #[test]
    fn wrong_types_are_told_in_gos_words() {
        let config = |data: Value| {
            let mut object = value!({"apiVersion": "v1", "kind": "ConfigMap"});
            object.set(["data"], data).unwrap();
            read(&object).unwrap_err()
        };
        assert_eq!(
            config(value!({"a": 1})),
            "json: cannot unmarshal number into Go struct field ConfigMap.data of type string"
        );
        assert_eq!(
            config(value!(["a"])),
            "json: cannot unmarshal array into Go struct field ConfigMap.data of type map[string]string"
        );
    }
}
