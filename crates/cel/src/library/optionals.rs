//! Optional values.

use super::Registry;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::{Type, Val};

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::optional(Type::Dyn));
    registry.add(|_, args| Val::some(args[0].clone()), &["optional.of(A): optional(A)"]);
    registry.add(
        |_, args| if is_zero(&args[0]) { Ok(Val::none()) } else { Val::some(args[0].clone()) },
        &["optional.ofNonZeroValue(A): optional(A)"],
    );
    registry.add(|_, _| Ok(Val::none()), &["optional.none(): optional(A)"]);
    registry.add(has_value, &["(optional(A)).hasValue(): bool"]);
    registry.add(value, &["(optional(A)).value(): A"]);
    // The evaluator does these itself: it looks at the other value only when there is none.
    registry.add(
        |_, _| Err(no_such_overload()),
        &["(optional(A)).or(optional(A)): optional(A)", "(optional(A)).orValue(A): A"],
    );
    // Kyverno: the receiver may be no optional at all, and the result is dyn.
    registry.add(lenient_or_value, &["@orValue(dyn, dyn): dyn"]);
    registry.add(
        unwrap,
        &[
            "optional.unwrap(list(optional(A))): list(A)",
            "(list(optional(A))).unwrapOpt(): list(A)",
        ],
    );
}

fn has_value(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    match &args[0] {
        Val::Optional(held) => Ok(Val::Bool(held.is_some())),
        _ => Err(no_such_overload()),
    }
}

fn value(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    match &args[0] {
        Val::Optional(Some(nested)) => Ok(nested.value.clone()),
        Val::Optional(None) => Err(failure("optional.none() dereference")),
        _ => Err(no_such_overload()),
    }
}

fn lenient_or_value(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(match &args[0] {
        Val::Optional(Some(nested)) => nested.value.clone(),
        Val::Optional(None) => args[1].clone(),
        plain => plain.clone(),
    })
}

fn unwrap(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::List(list) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge(list.len() as u64)?;
    let mut elements = Vec::new();
    for element in list {
        match element {
            Val::Optional(Some(nested)) => elements.push(nested.value.clone()),
            Val::Optional(None) => {}
            _ => return Err(no_such_overload()),
        }
    }
    Val::list(elements)
}

/// Whether a value is the zero of its type.
fn is_zero(value: &Val) -> bool {
    match value {
        Val::Null | Val::Optional(None) => true,
        Val::Bool(b) => !b,
        Val::Int(i) => *i == 0,
        Val::UInt(u) => *u == 0,
        Val::Double(x) => *x == 0.0,
        Val::String(text) => text.is_empty(),
        Val::Bytes(bytes) => bytes.is_empty(),
        Val::List(list) => list.is_empty(),
        Val::Map(map) => map.is_empty(),
        Val::Duration(duration) => duration.as_nanos() == 0,
        Val::Struct(message) => message.fields.is_empty(),
        Val::Timestamp(_) | Val::Type(_) | Val::Optional(Some(_)) | Val::Opaque(_) => false,
    }
}
