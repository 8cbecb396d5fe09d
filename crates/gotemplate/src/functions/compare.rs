//! Comparison: strict about types, as Go is.

use std::cmp::Ordering;

use super::{FunctionCall, any};
use crate::error::Refusal;
use crate::format;
use crate::value::Dyn;

/// The kinds that can be compared; signed and unsigned integers are one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Basic {
    Bool,
    Complex,
    Integer,
    Float,
    Text,
}

fn basic(value: &Dyn) -> Option<Basic> {
    Some(match value {
        Dyn::Bool(_) => Basic::Bool,
        Dyn::Complex(..) => Basic::Complex,
        Dyn::Float(_) => Basic::Float,
        Dyn::Text(_) => Basic::Text,
        _ => {
            value.as_integer()?;
            Basic::Integer
        }
    })
}

fn incompatible(a: &Dyn, b: &Dyn) -> Refusal {
    let (a, b) = (a.type_name(), b.type_name());
    format!("incompatible types for comparison: {a} and {b}").into()
}

pub(super) fn eq(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    let first = any(arguments, 0);
    let others = arguments.get(1..).unwrap_or_default();
    if others.is_empty() {
        return Err("missing argument for comparison".into());
    }
    for other in others {
        if equal(call, first, other)? {
            return Ok(true.into());
        }
    }
    Ok(false.into())
}

fn equal(call: &FunctionCall<'_>, a: &Dyn, b: &Dyn) -> Result<bool, Refusal> {
    if a.is_nil() || b.is_nil() {
        return Ok(a.is_nil() == b.is_nil());
    }
    match (basic(a), basic(b)) {
        (Some(x), Some(y)) if x == y => {}
        (None, None) => return equal_others(call, a, b),
        _ => return Err(incompatible(a, b)),
    }
    Ok(match (a, b) {
        (Dyn::Bool(a), Dyn::Bool(b)) => a == b,
        (Dyn::Text(a), Dyn::Text(b)) => a.as_str() == b.as_str(),
        (Dyn::Float(a), Dyn::Float(b)) => a == b,
        (Dyn::Complex(a, x), Dyn::Complex(b, y)) => a == b && x == y,
        _ => a.as_integer() == b.as_integer(),
    })
}

fn equal_others(call: &FunctionCall<'_>, a: &Dyn, b: &Dyn) -> Result<bool, Refusal> {
    let as_text = |value: &Dyn| format::printf("%s", std::slice::from_ref(value), call.meter);
    match (a, b) {
        (Dyn::Time(a), Dyn::Time(b)) => Ok(a == b),
        (Dyn::Version(a), Dyn::Version(b)) => Ok(std::rc::Rc::ptr_eq(a, b)),
        _ if a.kind_name() != b.kind_name() => {
            let (one, other) = (as_text(a)?, format::plain(b, call.meter)?);
            let (a, b) = (a.type_name(), b.type_name());
            let (one, other) = (one.as_str(), other.as_str());
            Err(format!("non-comparable types {one}: {a}, {b}: {other}").into())
        }
        _ => Err(format!("non-comparable type {}: {}", as_text(b)?.as_str(), b.type_name()).into()),
    }
}

pub(super) fn ne(call: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok((!equal(call, any(arguments, 0), any(arguments, 1))?).into())
}

fn order(arguments: &[Dyn]) -> Result<Option<Ordering>, Refusal> {
    let (a, b) = (any(arguments, 0), any(arguments, 1));
    let (Some(x), Some(y)) = (basic(a), basic(b)) else {
        return Err("invalid type for comparison".into());
    };
    if x != y {
        return Err(incompatible(a, b));
    }
    match (a, b) {
        (Dyn::Text(a), Dyn::Text(b)) => Ok(Some(a.as_str().cmp(b.as_str()))),
        (Dyn::Float(a), Dyn::Float(b)) => Ok(a.partial_cmp(b)),
        _ => match (a.as_integer(), b.as_integer()) {
            (Some(a), Some(b)) => Ok(Some(a.cmp(&b))),
            _ => Err("invalid type for comparison".into()),
        },
    }
}

pub(super) fn lt(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok((order(arguments)? == Some(Ordering::Less)).into())
}

pub(super) fn le(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok(order(arguments)?.is_some_and(Ordering::is_le).into())
}

// Go: greater is not less-or-equal, also for what is not a number.

pub(super) fn gt(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok((!order(arguments)?.is_some_and(Ordering::is_le)).into())
}

pub(super) fn ge(_: &FunctionCall<'_>, arguments: &[Dyn]) -> Result<Dyn, Refusal> {
    Ok((order(arguments)? != Some(Ordering::Less)).into())
}
