//! Operators on two values.

use std::cmp::Ordering;
use std::sync::Arc;

use kiln_value::Str;

use super::session::Context;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::syntax::ast::BinaryOp;
use crate::value::{CelList, compare, equal};

pub(super) fn binary(
    op: BinaryOp,
    left: &Val,
    right: &Val,
    context: &mut Context<'_>,
) -> Result<Val, EvalFailure> {
    match op {
        BinaryOp::Equal | BinaryOp::NotEqual => {
            charge_smaller(left, right, context)?;
            let equal = equal(left, right, &mut context.meter)?;
            Ok(Val::Bool(equal == (op == BinaryOp::Equal)))
        }
        BinaryOp::Less | BinaryOp::LessEqual | BinaryOp::Greater | BinaryOp::GreaterEqual => {
            charge_smaller(left, right, context)?;
            let order = compare(left, right)?;
            Ok(Val::Bool(order.is_some_and(|order| match op {
                BinaryOp::Less => order == Ordering::Less,
                BinaryOp::LessEqual => order != Ordering::Greater,
                BinaryOp::Greater => order == Ordering::Greater,
                _ => order != Ordering::Less,
            })))
        }
        BinaryOp::In => contains(left, right, context),
        BinaryOp::Add => add(left, right, context),
        _ => {
            context.meter.charge(1)?;
            arithmetic(op, left, right)
        }
    }
}

/// Comparing costs a tenth of the smaller side.
fn charge_smaller(left: &Val, right: &Val, context: &mut Context<'_>) -> Result<(), EvalFailure> {
    context.meter.charge_text(left.cost_size().min(right.cost_size()).max(1))
}

fn contains(element: &Val, container: &Val, context: &mut Context<'_>) -> Result<Val, EvalFailure> {
    match container {
        Val::List(list) => {
            context.meter.charge(list.len() as u64)?;
            // The common case without making values of the elements.
            if let (Val::String(text), CelList::Json(list)) = (element, list) {
                let found = list.iter().any(|value| value.as_str() == Some(text.as_str()));
                return Ok(Val::Bool(found));
            }
            for value in list {
                if equal(element, &value, &mut context.meter)? {
                    return Ok(Val::Bool(true));
                }
            }
            Ok(Val::Bool(false))
        }
        Val::Map(map) => {
            context.meter.charge(1)?;
            Ok(Val::Bool(map.contains(element)))
        }
        _ => Err(no_such_overload()),
    }
}

fn add(left: &Val, right: &Val, context: &mut Context<'_>) -> Result<Val, EvalFailure> {
    match (left, right) {
        (Val::String(a), Val::String(b)) => {
            context.meter.charge_text((a.len() + b.len()) as u64)?;
            if b.is_empty() {
                return Ok(left.clone());
            }
            let mut text = String::with_capacity(a.len() + b.len());
            text.push_str(a);
            text.push_str(b);
            Ok(Val::String(Str::from(text)))
        }
        (Val::Bytes(a), Val::Bytes(b)) => {
            context.meter.charge_text((a.len() + b.len()) as u64)?;
            Ok(Val::Bytes(Arc::from([&a[..], &b[..]].concat())))
        }
        (Val::List(a), Val::List(b)) => {
            // Kubernetes counts 1; but joined lists can double and double again, so their elements
            // are counted here.
            context.meter.charge(1 + (a.len() + b.len()) as u64)?;
            Ok(Val::List(a.concat(b)?))
        }
        _ => {
            context.meter.charge(1)?;
            arithmetic(BinaryOp::Add, left, right)
        }
    }
}

pub(crate) fn arithmetic(op: BinaryOp, left: &Val, right: &Val) -> Result<Val, EvalFailure> {
    match (left, right) {
        (Val::Int(a), Val::Int(b)) => int(op, *a, *b).map(Val::Int),
        (Val::UInt(a), Val::UInt(b)) => uint(op, *a, *b).map(Val::UInt),
        (Val::Double(a), Val::Double(b)) => double(op, *a, *b).map(Val::Double),
        _ => time(op, left, right),
    }
}

fn int(op: BinaryOp, a: i64, b: i64) -> Result<i64, EvalFailure> {
    let result = match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Subtract => a.checked_sub(b),
        BinaryOp::Multiply => a.checked_mul(b),
        BinaryOp::Divide if b == 0 => return Err(failure("division by zero")),
        BinaryOp::Modulo if b == 0 => return Err(failure("modulus by zero")),
        BinaryOp::Divide => a.checked_div(b),
        BinaryOp::Modulo => a.checked_rem(b),
        _ => return Err(no_such_overload()),
    };
    result.ok_or_else(|| failure("integer overflow"))
}

fn uint(op: BinaryOp, a: u64, b: u64) -> Result<u64, EvalFailure> {
    let result = match op {
        BinaryOp::Add => a.checked_add(b),
        BinaryOp::Subtract => a.checked_sub(b),
        BinaryOp::Multiply => a.checked_mul(b),
        BinaryOp::Divide if b == 0 => return Err(failure("division by zero")),
        BinaryOp::Modulo if b == 0 => return Err(failure("modulus by zero")),
        BinaryOp::Divide => a.checked_div(b),
        BinaryOp::Modulo => a.checked_rem(b),
        _ => return Err(no_such_overload()),
    };
    result.ok_or_else(|| failure("unsigned integer overflow"))
}

fn double(op: BinaryOp, a: f64, b: f64) -> Result<f64, EvalFailure> {
    Ok(match op {
        BinaryOp::Add => a + b,
        BinaryOp::Subtract => a - b,
        BinaryOp::Multiply => a * b,
        BinaryOp::Divide => a / b,
        _ => return Err(no_such_overload()),
    })
}

fn time(op: BinaryOp, left: &Val, right: &Val) -> Result<Val, EvalFailure> {
    let duration = |found| match found {
        Some(duration) => Ok(Val::Duration(duration)),
        None => Err(failure("duration overflow")),
    };
    let timestamp = |found| match found {
        Some(timestamp) => Ok(Val::Timestamp(timestamp)),
        None => Err(failure("timestamp overflow")),
    };
    match (op, left, right) {
        (BinaryOp::Add, Val::Duration(a), Val::Duration(b)) => duration(a.checked_add(*b)),
        (BinaryOp::Subtract, Val::Duration(a), Val::Duration(b)) => duration(a.checked_sub(*b)),
        (BinaryOp::Add, Val::Timestamp(t), Val::Duration(d))
        | (BinaryOp::Add, Val::Duration(d), Val::Timestamp(t)) => timestamp(t.checked_add(*d)),
        (BinaryOp::Subtract, Val::Timestamp(t), Val::Duration(d)) => timestamp(t.checked_sub(*d)),
        (BinaryOp::Subtract, Val::Timestamp(a), Val::Timestamp(b)) => duration(a.since(*b)),
        _ => Err(no_such_overload()),
    }
}
