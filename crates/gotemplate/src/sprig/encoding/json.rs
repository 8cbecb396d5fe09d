//! Values to JSON and back, and deep copies and comparisons, all counted.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Key, Number, Str, Value, json};

use super::json_syntax;
use crate::Numbers;
use crate::error::Refusal;
use crate::format::{MAX_DEPTH, too_deep};
use crate::functions::{FunctionCall, any, text};
use crate::marked::{DataPart, Marked};
use crate::meter::Meter;
use crate::value::Dyn;

type Result<R = Dyn> = std::result::Result<R, Refusal>;

pub(crate) fn parse(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let source = text(a, 0);
    call.meter.make(source.len() as u64 * 4)?;
    let value = json::parse(source).map_err(|error| {
        Refusal::from(json_syntax::problem(source).unwrap_or_else(|| error.to_string()))
    })?;
    Ok(Dyn::from_value(&value, Numbers::Floats))
}

pub(crate) fn compact(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    with_strings_marked(json::to_go_string(&value_of(any(a, 0), call.meter, 0)?), call.meter)
}

pub(crate) fn pretty(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let pretty = json::to_go_string_pretty(&value_of(any(a, 0), call.meter, 0)?);
    with_strings_marked(pretty, call.meter)
}

pub(crate) fn raw(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let raw = json::to_canonical_string(&value_of(any(a, 0), call.meter, 0)?);
    // Go escapes what JavaScript takes for line ends, come what may.
    let raw = raw.replace('\u{2028}', "\\u2028").replace('\u{2029}', "\\u2029");
    with_strings_marked(raw, call.meter)
}

/// JSON whose strings count as data, wherever they come from: inside of the quotes there is no structure.
fn with_strings_marked(text: String, meter: &Meter) -> Result {
    let bytes = text.as_bytes();
    let (mut parts, mut at) = (Vec::new(), 0);
    while let Some(quote) = text[at..].find('"') {
        let start = at + quote + 1;
        let mut end = start;
        while bytes.get(end).is_some_and(|byte| *byte != b'"') {
            end += if bytes[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(bytes.len());
        let escaped = text[start..end].contains('\\');
        let whole = &text[start - 1..(end + 1).min(text.len())];
        let unescaped = match escaped.then(|| json::parse(whole)) {
            Some(Ok(Value::String(said))) => Some(said),
            _ => None,
        };
        if start < end {
            parts.push(DataPart { at: start..end, unescaped });
        }
        at = (end + 1).min(bytes.len());
    }
    meter.make(parts.len() as u64 * DataPart::COST)?;
    Ok(Dyn::Text(Marked::with_parts(Str::from(text), parts)))
}

pub(crate) fn value_of(value: &Dyn, meter: &Meter, depth: usize) -> Result<Value> {
    meter.step(1)?;
    // Indentation grows with the depth.
    meter.make(8 + 2 * depth as u64)?;
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    Ok(match value {
        Dyn::Missing | Dyn::Nil => Value::Null,
        Dyn::Bool(truth) => Value::Bool(*truth),
        Dyn::Int(int) | Dyn::Int64(int) => Value::from(*int),
        Dyn::Uint8(uint) => Value::from(u64::from(*uint)),
        Dyn::Uint64(uint) => Value::from(*uint),
        Dyn::Float(float) if !float.is_finite() => {
            let shown = kiln_text::float::print(*float);
            return Err(format!("json: unsupported value: {shown}").into());
        }
        Dyn::Float(float) => Value::Number(Number::Float(*float)),
        Dyn::Complex(..) => return Err("json: unsupported type: complex128".into()),
        Dyn::Text(text) => {
            meter.make(text.len() as u64)?;
            Value::String(text.clone().into_text())
        }
        Dyn::Bytes(bytes) => {
            meter.make(bytes.len() as u64 * 2)?;
            Value::from(STANDARD.encode(bytes))
        }
        Dyn::List(list) => {
            let items = list.items().iter().map(|item| value_of(item, meter, depth + 1));
            Value::from(items.collect::<Result<Vec<Value>>>()?)
        }
        Dyn::Map(map) if map.is_record && map.named.is_some() => {
            let fields = map.named.map_or(&[][..], |named| named.fields);
            let mut entries = Vec::with_capacity(fields.len());
            for field in fields {
                let item = map.get(field.name).unwrap_or(Dyn::Nil);
                if item.is_true() || !field.omit_empty {
                    entries.push((Key::new(field.json), value_of(&item, meter, depth + 1)?));
                }
            }
            Value::Map(kiln_value::Map::from_unique(entries))
        }
        Dyn::Map(map) => {
            let mut entries = Vec::with_capacity(map.len());
            for (key, item) in map.entries() {
                meter.make(key.len() as u64)?;
                entries.push((Key::new(&key), value_of(&item, meter, depth + 1)?));
            }
            Value::Map(kiln_value::Map::from_unique(entries))
        }
        Dyn::Time(time) => Value::from(time.rfc3339_nano()),
        Dyn::Duration(duration) => Value::from(duration.as_nanos()),
        Dyn::Version(version) => Value::from(version.to_string()),
    })
}

pub(crate) fn copy(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    if any(a, 0).is_nil() {
        return Err("reflect: call of reflect.Value.Type on zero Value".into());
    }
    copy_of(any(a, 0), call.meter, 0)
}

pub(crate) fn copy_of(value: &Dyn, meter: &Meter, depth: usize) -> Result {
    meter.step(1)?;
    meter.make(16)?;
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    Ok(match value {
        Dyn::List(list) => {
            let items = list.items().iter().map(|item| copy_of(item, meter, depth + 1));
            Dyn::list_of(list.elem, items.collect::<Result<_>>()?)
        }
        Dyn::Map(map) => {
            let entries = map.entries().into_iter();
            let copies = entries.map(|(key, item)| Ok((key, copy_of(&item, meter, depth + 1)?)));
            let Dyn::Map(copy) = Dyn::map(copies.collect::<Result<Vec<_>>>()?) else {
                return Ok(Dyn::Nil);
            };
            Dyn::Map(copy.under_type(map.named))
        }
        other => other.clone(),
    })
}

/// Go's deep equality: types must be the same, too.
pub(crate) fn equal(a: &Dyn, b: &Dyn, meter: &Meter, depth: usize) -> Result<bool> {
    meter.step(1)?;
    if depth > MAX_DEPTH {
        return Err(too_deep());
    }
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() && b.is_nil());
    }
    if a.type_name() != b.type_name() {
        return Ok(false);
    }
    Ok(match (a, b) {
        (Dyn::Bool(a), Dyn::Bool(b)) => a == b,
        (Dyn::Float(a), Dyn::Float(b)) => a == b,
        (Dyn::Complex(a, x), Dyn::Complex(b, y)) => a == b && x == y,
        (Dyn::Text(a), Dyn::Text(b)) => {
            meter.read(a.len() as u64)?;
            a.as_str() == b.as_str()
        }
        (Dyn::Time(a), Dyn::Time(b)) => a == b,
        (Dyn::Version(a), Dyn::Version(b)) => a.to_string() == b.to_string(),
        (Dyn::List(a), Dyn::List(b)) => {
            if a.items().len() != b.items().len() {
                return Ok(false);
            }
            for (a, b) in a.items().iter().zip(b.items()) {
                if !equal(a, b, meter, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Dyn::Map(a), Dyn::Map(b)) => {
            if a.len() != b.len() {
                return Ok(false);
            }
            for (key, value) in a.entries() {
                match b.get(&key) {
                    Some(other) if equal(&value, &other, meter, depth + 1)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        _ => a.as_integer() == b.as_integer(),
    })
}
