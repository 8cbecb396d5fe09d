//! Fields and elements: `a.b`, `a.?b`, `a[b]`, `a[?b]`, `has(a.b)`.

use std::fmt::Write as _;

use kiln_value::{Str, Value};

use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::value::{CelList, Map, MapPart};

fn no_such_key(key: impl std::fmt::Display) -> EvalFailure {
    failure(format!("no such key: {key}"))
}

/// Names the first of these keys, and shows how to write all of them so that they may be missing.
fn no_such_path(keys: &[Str]) -> EvalFailure {
    let mut guarded = String::new();
    for key in keys {
        let word = key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if word && !key.starts_with(|c: char| c.is_ascii_digit()) {
            let _ = write!(guarded, ".?{key}");
        } else {
            let _ = write!(guarded, "[?'{key}']");
        }
    }
    let mut error = no_such_key(keys.first().map_or("", Str::as_str));
    error.hint = Some(format!("if it may be missing, write {guarded}.orValue(…)"));
    error
}

/// Several plain fields, one below the other; parts on the way are not copied.
pub(super) fn path(value: &Val, fields: &[Str]) -> Result<Val, EvalFailure> {
    let Some((first, rest)) = fields.split_first() else { return Ok(value.clone()) };
    let Val::Map(map) = value else {
        return rest.iter().try_fold(select(value, first)?, |value, field| select(&value, field));
    };
    let mut part = map.part(first).ok_or_else(|| no_such_path(fields))?;
    for (at, field) in rest.iter().enumerate() {
        part = match part {
            MapPart::Json(Value::Map(map)) => {
                MapPart::Json(map.get(field).ok_or_else(|| no_such_path(&rest[at..]))?)
            }
            MapPart::Val(Val::Map(map)) => {
                map.part(field).ok_or_else(|| no_such_path(&rest[at..]))?
            }
            // An optional or a message on the way.
            MapPart::Val(other) => return path_slowly(other, &rest[at..]),
            MapPart::Json(Value::List(_)) => return Err(no_such_overload()),
            MapPart::Json(_) => return Err(no_such_path(&rest[at..])),
        };
    }
    Ok(part.to_val())
}

fn path_slowly(value: &Val, fields: &[Str]) -> Result<Val, EvalFailure> {
    fields.iter().try_fold(value.clone(), |value, field| select(&value, field))
}

/// A field of a value, if it is there. Null and plain values have none.
fn field(value: &Val, field: &str) -> Result<Option<Val>, EvalFailure> {
    match value {
        Val::Map(map) => Ok(map.get_str(field)),
        Val::Struct(message) => Ok(message.get(field).cloned()),
        Val::List(_) => Err(no_such_overload()),
        _ => Ok(None),
    }
}

/// `value.field`; through an optional the result is optional too.
pub(super) fn select(value: &Val, name: &str) -> Result<Val, EvalFailure> {
    match value {
        Val::Optional(_) => select_optional(value, name),
        _ => field(value, name)?.ok_or_else(|| no_such_path(&[Str::new(name)])),
    }
}

/// Refuses to go on through an optional that holds neither fields nor elements, as the conformance
/// suite wants it; Kubernetes' release of CEL finds nothing there.
pub(super) fn refuse_plain(value: &Val) -> Result<(), EvalFailure> {
    match value {
        Val::Optional(Some(nested)) => match &nested.value {
            Val::Map(_) | Val::Struct(_) | Val::List(_) | Val::Optional(_) => Ok(()),
            _ => Err(no_such_overload()),
        },
        _ => Ok(()),
    }
}

/// `value.?field`.
pub(super) fn select_optional(value: &Val, name: &str) -> Result<Val, EvalFailure> {
    let found = match value {
        Val::Optional(None) => None,
        Val::Optional(Some(nested)) => field(&nested.value, name)?,
        _ => field(value, name)?,
    };
    found.map_or(Ok(Val::none()), Val::some)
}

/// The same, of a part that is looked at where it is.
pub(super) fn optional_part<'v>(
    part: MapPart<'v>,
    name: &str,
) -> Result<Option<MapPart<'v>>, EvalFailure> {
    match part {
        MapPart::Json(Value::Map(map)) => Ok(map.get(name).map(MapPart::Json)),
        MapPart::Val(Val::Map(map)) => Ok(map.part(name)),
        MapPart::Val(Val::Struct(message)) => Ok(message.get(name).map(MapPart::Val)),
        MapPart::Json(Value::List(_)) | MapPart::Val(Val::List(_)) => Err(no_such_overload()),
        _ => Ok(None),
    }
}

/// `has(value.field)`.
pub(super) fn has(value: &Val, name: &str) -> Result<bool, EvalFailure> {
    match value {
        Val::Map(map) => Ok(map.contains_str(name)),
        Val::Struct(message) => Ok(message.get(name).is_some()),
        Val::Optional(None) => Ok(false),
        Val::Optional(Some(nested)) => has(&nested.value, name),
        Val::List(_) => Err(no_such_overload()),
        _ => Ok(false),
    }
}

/// An element, if it is there. Null and plain values have none.
fn element(value: &Val, index: &Val) -> Result<Option<Val>, EvalFailure> {
    match value {
        Val::Map(map) => map_element(map, index),
        Val::List(list) => list_element(list, index),
        _ => Ok(None),
    }
}

fn map_element(map: &Map, key: &Val) -> Result<Option<Val>, EvalFailure> {
    match key {
        Val::String(_) | Val::Int(_) | Val::UInt(_) | Val::Bool(_) | Val::Double(_) => {
            Ok(map.get(key))
        }
        other => Err(failure(format!("unsupported key type: {}", other.type_name()))),
    }
}

fn list_element(list: &CelList, index: &Val) -> Result<Option<Val>, EvalFailure> {
    let index = match index {
        Val::Int(i) => usize::try_from(*i).ok(),
        Val::UInt(u) => usize::try_from(*u).ok(),
        Val::Double(x) if x.fract() == 0.0 && *x >= 0.0 && *x < 1e15 => Some(*x as usize),
        Val::Double(x) => return Err(failure(format!("invalid_argument: index {x}"))),
        other => {
            let name = other.type_name();
            return Err(failure(format!("unsupported index type '{name}' in list")));
        }
    };
    Ok(index.and_then(|index| list.get(index)))
}

/// `value[index]`; through an optional the result is optional too.
pub(super) fn index(value: &Val, index: &Val) -> Result<Val, EvalFailure> {
    if let Val::Optional(_) = value {
        return index_optional(value, index);
    }
    element(value, index)?.ok_or_else(|| match (value, index) {
        (Val::List(_), Val::Int(i)) => failure(format!("index out of bounds: {i}")),
        (Val::List(_), Val::UInt(u)) => failure(format!("index out of bounds: {u}")),
        (Val::List(_), _) => failure("index out of bounds"),
        (_, Val::String(key)) => no_such_path(std::slice::from_ref(key)),
        (_, Val::Int(key)) => no_such_key(key),
        (_, Val::UInt(key)) => no_such_key(key),
        (_, Val::Bool(key)) => no_such_key(key),
        (_, Val::Double(key)) => no_such_key(key),
        _ => no_such_overload(),
    })
}

/// `value[?index]`.
pub(super) fn index_optional(value: &Val, index: &Val) -> Result<Val, EvalFailure> {
    let found = match value {
        Val::Optional(None) => None,
        Val::Optional(Some(nested)) => element(&nested.value, index)?,
        _ => element(value, index)?,
    };
    found.map_or(Ok(Val::none()), Val::some)
}
