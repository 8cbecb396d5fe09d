//! Reads protobuf bodies: the envelope that Kubernetes puts around them, and the message of a kind.
//!
//! What cannot be read is an error with the position; nothing is guessed, and nesting is bounded.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_text::time::Time;
use kiln_value::{Map, Str, Value, json};

use super::{SchemaOr, SchemaType, StructId, types};

/// The four bytes before every protobuf body of Kubernetes.
const MAGIC: &[u8] = b"k8s\0";
/// How deep messages may nest.
const DEPTH: usize = 100;

/// What a body says it is, and the message inside.
#[derive(Debug)]
pub(crate) struct Envelope<'b> {
    pub(crate) api_version: Str,
    pub(crate) kind: Str,
    raw: &'b [u8],
}

/// Why a body cannot be read.
type WireProblem = String;

/// Reads the envelope.
pub(crate) fn envelope(body: &[u8]) -> Result<Envelope<'_>, WireProblem> {
    let message = body.strip_prefix(MAGIC).ok_or(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]",
    )?;
    let mut envelope = Envelope { api_version: Str::default(), kind: Str::default(), raw: &[] };
    for part in parts(message)? {
        match (part.number, part.content) {
            (1, Content::Bytes(meta)) => {
                for part in parts(meta)? {
                    if let Content::Bytes(text) = part.content {
                        match part.number {
                            1 => envelope.api_version = utf8(text)?,
                            2 => envelope.kind = utf8(text)?,
                            _ => {}
                        }
                    }
                }
            }
            (2, Content::Bytes(raw)) => envelope.raw = raw,
            _ => {}
        }
    }
    Ok(envelope)
}

impl Envelope<'_> {
    /// Reads the message as a struct.
    pub(crate) fn decode(&self, id: StructId) -> Result<Value, WireProblem> {
        let mut object = Map::new();
        object.insert("kind", self.kind.clone());
        object.insert("apiVersion", self.api_version.clone());
        read_struct(self.raw, id, &mut object, 0)?;
        Ok(Value::Map(object))
    }
}

struct WirePart<'b> {
    number: u32,
    content: Content<'b>,
}

enum Content<'b> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'b [u8]),
}

fn parts(mut bytes: &[u8]) -> Result<Vec<WirePart<'_>>, WireProblem> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let number = u32::try_from(key >> 3).map_err(|_| "proto: illegal field number")?;
        let content = match key & 7 {
            0 => Content::Varint(varint(&mut bytes)?),
            1 => {
                Content::Fixed(u64::from_le_bytes(take(&mut bytes, 8)?.try_into().map_err(|_| "")?))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).map_err(|_| "unexpected EOF")?;
                Content::Bytes(take(&mut bytes, length)?)
            }
            5 => {
                let four: [u8; 4] = take(&mut bytes, 4)?.try_into().map_err(|_| "")?;
                Content::Fixed(u64::from(u32::from_le_bytes(four)))
            }
            other => return Err(format!("proto: illegal wireType {other}")),
        };
        all.push(WirePart { number, content });
    }
    Ok(all)
}

fn take<'b>(bytes: &mut &'b [u8], length: usize) -> Result<&'b [u8], WireProblem> {
    let (taken, rest) = bytes.split_at_checked(length).ok_or("unexpected EOF")?;
    *bytes = rest;
    Ok(taken)
}

fn varint(bytes: &mut &[u8]) -> Result<u64, WireProblem> {
    let mut value = 0u64;
    for shift in (0..64).step_by(7) {
        let byte = take(bytes, 1)?[0];
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err("proto: integer overflow".to_owned())
}

fn utf8(bytes: &[u8]) -> Result<Str, WireProblem> {
    std::str::from_utf8(bytes).map(Str::new).map_err(|_| "proto: invalid UTF-8".to_owned())
}

fn read_struct(bytes: &[u8], id: StructId, out: &mut Map, depth: usize) -> Result<(), WireProblem> {
    if depth > DEPTH {
        return Err("proto: nesting too deep".to_owned());
    }
    let of = types().get(id);
    for part in parts(bytes)? {
        if let Some(field) = of.fields.iter().find(|field| field.number == part.number) {
            match &field.ty {
                SchemaType::List(items) => {
                    let list = out.get_or_insert_with(field.name, Value::list);
                    if let Some(list) = list.as_list_mut() {
                        read_items(&part.content, items, list, depth)?;
                    }
                }
                SchemaType::Map(values) => {
                    let Content::Bytes(entry) = part.content else { continue };
                    let (mut key, mut value) = (Str::default(), None);
                    for part in parts(entry)? {
                        match (part.number, part.content) {
                            (1, Content::Bytes(text)) => key = utf8(text)?,
                            (2, content) => value = Some(read(&content, values, depth)?),
                            _ => {}
                        }
                    }
                    let map = out.get_or_insert_with(field.name, Value::map);
                    if let Some(map) = map.as_map_mut() {
                        map.insert(key.as_str(), value.unwrap_or_else(|| default_of(values)));
                    }
                }
                ty => {
                    let value = read(&part.content, ty, depth)?;
                    // proto2: texts that are not optional come even when empty.
                    let absent = !field.pointer && value.as_str().is_some_and(str::is_empty);
                    if !absent && !value.is_null() {
                        out.insert(field.name, value);
                    }
                }
            }
        } else if let Some((_, inner)) = of.inline.iter().find(|(number, _)| *number == part.number)
            && let Content::Bytes(bytes) = part.content
        {
            read_struct(bytes, *inner, out, depth + 1)?;
        }
    }
    Ok(())
}

fn default_of(ty: &SchemaType) -> Value {
    match ty {
        SchemaType::String | SchemaType::Bytes => Value::from(""),
        SchemaType::Quantity => Value::from("0"),
        SchemaType::List(_) => Value::list(),
        _ => Value::map(),
    }
}

fn read_items(
    content: &Content<'_>,
    ty: &SchemaType,
    list: &mut Vec<Value>,
    depth: usize,
) -> Result<(), WireProblem> {
    match (ty, content) {
        // Numbers may come packed.
        (SchemaType::Int32 | SchemaType::Int64 | SchemaType::Bool, Content::Bytes(packed)) => {
            let mut packed = *packed;
            while !packed.is_empty() {
                let number = varint(&mut packed)?;
                list.push(read(&Content::Varint(number), ty, depth)?);
            }
            Ok(())
        }
        _ => {
            list.push(read(content, ty, depth)?);
            Ok(())
        }
    }
}

fn read(content: &Content<'_>, ty: &SchemaType, depth: usize) -> Result<Value, WireProblem> {
    match (ty, content) {
        (SchemaType::String, Content::Bytes(text)) => utf8(text).map(Value::from),
        (SchemaType::Bytes, Content::Bytes(bytes)) => Ok(Value::from(STANDARD.encode(bytes))),
        (SchemaType::Bool, Content::Varint(number)) => Ok(Value::from(*number != 0)),
        (SchemaType::Int32 | SchemaType::Int64, Content::Varint(number)) => {
            Ok(Value::from(number.cast_signed()))
        }
        (SchemaType::Double, Content::Fixed(bits)) => Ok(Value::from(f64::from_bits(*bits))),
        (SchemaType::Quantity, Content::Bytes(message)) => {
            let text = text_of(message, 1)?;
            Ok(Value::from(if text.is_empty() { Str::new("0") } else { text }))
        }
        (SchemaType::IntOrString, Content::Bytes(message)) => {
            let (mut is_text, mut number, mut text) = (false, 0, Str::default());
            for part in parts(message)? {
                match (part.number, part.content) {
                    (1, Content::Varint(kind)) => is_text = kind == 1,
                    (2, Content::Varint(value)) => number = value.cast_signed(),
                    (3, Content::Bytes(value)) => text = utf8(value)?,
                    _ => {}
                }
            }
            Ok(if is_text { Value::from(text) } else { Value::from(number) })
        }
        (SchemaType::Time | SchemaType::MicroTime, Content::Bytes(message)) => {
            let (mut seconds, mut nanos) = (0, 0);
            for part in parts(message)? {
                match (part.number, part.content) {
                    (1, Content::Varint(value)) => seconds = value.cast_signed(),
                    (2, Content::Varint(value)) => nanos = u32::try_from(value).unwrap_or(0),
                    _ => {}
                }
            }
            // Go's zero time is nothing.
            if message.is_empty() || seconds == -62_135_596_800 {
                return Ok(Value::Null);
            }
            let time = Time::from_unix(seconds, nanos).ok_or("proto: time out of range")?;
            Ok(Value::from(if *ty == SchemaType::Time {
                time.rfc3339()
            } else {
                time.format("2006-01-02T15:04:05.000000Z07:00")
            }))
        }
        (SchemaType::Duration, Content::Bytes(message)) => {
            let nanos = parts(message)?.into_iter().find_map(|part| match part.content {
                Content::Varint(value) if part.number == 1 => Some(value.cast_signed()),
                _ => None,
            });
            Ok(Value::from(
                kiln_text::duration::Duration::from_nanos(nanos.unwrap_or(0)).to_string(),
            ))
        }
        (SchemaType::Raw | SchemaType::Json | SchemaType::Fields, Content::Bytes(message)) => {
            let raw = parts(message)?.into_iter().find_map(|part| match part.content {
                Content::Bytes(raw) if part.number == 1 => Some(raw),
                _ => None,
            });
            let text = utf8(raw.unwrap_or(b"null"))?;
            json::parse(&text).map_err(|error| error.to_string())
        }
        (SchemaType::SchemaOr(or), Content::Bytes(message)) => schema_or(message, *or, depth),
        (SchemaType::Struct(id), Content::Bytes(message)) => {
            let mut map = Map::new();
            read_struct(message, *id, &mut map, depth + 1)?;
            Ok(Value::Map(map))
        }
        // A list inside a map: a message with the items under 1.
        (SchemaType::List(items), Content::Bytes(message)) => {
            let mut list = Vec::new();
            for part in parts(message)? {
                if part.number == 1 {
                    read_items(&part.content, items, &mut list, depth + 1)?;
                }
            }
            Ok(Value::from(list))
        }
        _ => Err("proto: wrong wireType for a field".to_owned()),
    }
}

fn schema_or(message: &[u8], or: SchemaOr, depth: usize) -> Result<Value, WireProblem> {
    let schema = types()
        .kind("apiextensions.k8s.io/v1", "CustomResourceDefinition")
        .and(types().named("apiextensions/v1.JSONSchemaProps"));
    let Some(schema) = schema else { return Ok(Value::Null) };
    let (mut allows, mut one, mut many) = (true, None, Vec::new());
    for part in parts(message)? {
        match (or, part.number, part.content) {
            (SchemaOr::Bool, 1, Content::Varint(number)) => allows = number != 0,
            (SchemaOr::Bool, 2, content)
            | (SchemaOr::Array | SchemaOr::StringArray, 1, content) => {
                one = Some(read(&content, &SchemaType::Struct(schema), depth + 1)?);
            }
            (SchemaOr::Array, 2, content) => {
                many.push(read(&content, &SchemaType::Struct(schema), depth + 1)?);
            }
            (SchemaOr::StringArray, 2, Content::Bytes(text)) => many.push(Value::from(utf8(text)?)),
            _ => {}
        }
    }
    Ok(match (or, one) {
        (_, Some(schema)) => schema,
        (SchemaOr::Bool, None) => Value::from(allows),
        (_, None) => Value::from(many),
    })
}

fn text_of(message: &[u8], number: u32) -> Result<Str, WireProblem> {
    for part in parts(message)? {
        if let Content::Bytes(text) = part.content
            && part.number == number
        {
            return utf8(text);
        }
    }
    Ok(Str::default())
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    fn message(number: u8, bytes: &[u8]) -> Vec<u8> {
        let mut out = vec![number << 3 | 2, u8::try_from(bytes.len()).unwrap()];
        out.extend_from_slice(bytes);
        out
    }

    #[test]
    fn a_config_map_is_read() {
        let meta = [message(1, b"v1"), message(2, b"ConfigMap")].concat();
        let entry = [message(1, b"a"), message(2, b"1")].concat();
        let object =
            [message(1, &[message(1, b"x"), message(3, b"")].concat()), message(2, &entry)]
                .concat();
        let body = [MAGIC.to_vec(), message(1, &meta), message(2, &object)].concat();
        let read = envelope(&body).unwrap();
        let id = types().kind(&read.api_version, &read.kind).unwrap();
        assert_eq!(
            read.decode(id).unwrap(),
            value!({"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "x"}, "data": {"a": "1"}})
        );
    }

    #[test]
    fn broken_bodies_are_errors() {
        let id = types().kind("v1", "Pod").unwrap();
        for body in [&b"{}"[..], b"k8s", b"k8s\0\x0a\xff", b"k8s\0\x12\x02\x12\x7f", b"k8s\0\x0b"] {
            let read = envelope(body).and_then(|envelope| envelope.decode(id));
            assert!(read.is_err(), "{body:?}");
        }
    }
}
