//! Equality and order.

use std::cmp::Ordering;

use kiln_value::{Number, Value};

use super::{CelList, Map, Val};
use crate::budget::Meter;
use crate::error::{EvalFailure, failure};

/// Whether two values are equal. Values of different types are not; numbers compare by number.
///
/// Shared parts can make a value far larger than its memory, so the walk is charged.
pub(crate) fn equal(a: &Val, b: &Val, meter: &mut Meter<'_>) -> Result<bool, EvalFailure> {
    Ok(match (a, b) {
        (Val::Null, Val::Null) => true,
        (Val::Bool(a), Val::Bool(b)) => a == b,
        (Val::String(a), Val::String(b)) => a == b,
        (Val::Bytes(a), Val::Bytes(b)) => a == b,
        (Val::Duration(a), Val::Duration(b)) => a == b,
        (Val::Timestamp(a), Val::Timestamp(b)) => a == b,
        (Val::Type(a), Val::Type(b)) => a == b,
        (Val::Int(_) | Val::UInt(_) | Val::Double(_), _) => {
            compare_numbers(a, b) == Some(Ordering::Equal)
        }
        (Val::List(a), Val::List(b)) => return equal_lists(a, b, meter),
        (Val::Map(a), Val::Map(b)) => return equal_maps(a, b, meter),
        (Val::Optional(None), Val::Optional(None)) => true,
        (Val::Optional(Some(a)), Val::Optional(Some(b))) => {
            meter.charge(1)?;
            return equal(&a.value, &b.value, meter);
        }
        (Val::Struct(a), Val::Struct(b)) => {
            if a.name != b.name || a.fields.len() != b.fields.len() {
                return Ok(false);
            }
            for (field, value) in &a.fields {
                meter.charge(1)?;
                match b.get(field) {
                    Some(other) if equal(value, other, meter)? => {}
                    _ => return Ok(false),
                }
            }
            true
        }
        (Val::Opaque(a), Val::Opaque(b)) => a.equals(b.as_ref()),
        _ => false,
    })
}

fn equal_lists(a: &CelList, b: &CelList, meter: &mut Meter<'_>) -> Result<bool, EvalFailure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    if let (CelList::Json(a), CelList::Json(b)) = (a, b)
        && a.ptr_eq(b)
    {
        return Ok(!has_nan(&Value::List(a.clone())));
    }
    for (a, b) in a.iter().zip(b.iter()) {
        meter.charge(1)?;
        if !equal(&a, &b, meter)? {
            return Ok(false);
        }
    }
    Ok(true)
}

fn equal_maps(a: &Map, b: &Map, meter: &mut Meter<'_>) -> Result<bool, EvalFailure> {
    if a.len() != b.len() {
        return Ok(false);
    }
    for (key, value) in a.iter() {
        meter.charge(1)?;
        match b.get(&key) {
            Some(other) if equal(&value, &other, meter)? => {}
            _ => return Ok(false),
        }
    }
    Ok(true)
}

/// JSON has no NaN, YAML does; it is not even equal to itself.
fn has_nan(value: &Value) -> bool {
    match value {
        Value::Number(Number::Float(x)) => x.is_nan(),
        Value::List(list) => list.iter().any(has_nan),
        Value::Map(map) => map.values().any(has_nan),
        _ => false,
    }
}

/// The order of two values; `None` when NaN is involved.
///
/// # Errors
/// When the types have no order, or not the same one.
pub(crate) fn compare(a: &Val, b: &Val) -> Result<Option<Ordering>, EvalFailure> {
    Ok(match (a, b) {
        (Val::Bool(a), Val::Bool(b)) => Some(a.cmp(b)),
        (Val::String(a), Val::String(b)) => Some(a.cmp(b)),
        (Val::Bytes(a), Val::Bytes(b)) => Some(a.cmp(b)),
        (Val::Duration(a), Val::Duration(b)) => Some(a.cmp(b)),
        (Val::Timestamp(a), Val::Timestamp(b)) => Some(a.cmp(b)),
        (
            Val::Int(_) | Val::UInt(_) | Val::Double(_),
            Val::Int(_) | Val::UInt(_) | Val::Double(_),
        ) => compare_numbers(a, b),
        _ => return Err(failure("no such overload")),
    })
}

/// Compares numbers of any kinds. `None` when one is NaN or no number.
// cel-go: an integer within the range of the other type is compared as a float, which is lossy
// above 2^53.
pub(crate) fn compare_numbers(a: &Val, b: &Val) -> Option<Ordering> {
    match (a, b) {
        (Val::Int(a), Val::Int(b)) => Some(a.cmp(b)),
        (Val::UInt(a), Val::UInt(b)) => Some(a.cmp(b)),
        (Val::Double(a), Val::Double(b)) => a.partial_cmp(b),
        (Val::Int(a), Val::UInt(b)) => Some(u64::try_from(*a).map_or(Ordering::Less, |a| a.cmp(b))),
        (Val::UInt(_), Val::Int(_)) => compare_numbers(b, a).map(Ordering::reverse),
        (Val::Int(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        (Val::UInt(a), Val::Double(b)) => (*a as f64).partial_cmp(b),
        (Val::Double(_), Val::Int(_) | Val::UInt(_)) => {
            compare_numbers(b, a).map(Ordering::reverse)
        }
        _ => None,
    }
}
