//! The math extension.

use std::cmp::Ordering;

use super::Registry;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::value::{CelList, compare};

pub(super) fn register(registry: &mut Registry) {
    for (run, name) in
        [(greatest as super::FunctionBody, "max"), (least as super::FunctionBody, "min")]
    {
        let signatures: &[&'static str] = if name == "max" {
            &["math.@max(A): A", "math.@max(list(A)): A", "math.@max(dyn, dyn): dyn"]
        } else {
            &["math.@min(A): A", "math.@min(list(A)): A", "math.@min(dyn, dyn): dyn"]
        };
        registry.add(run, signatures);
    }
    registry.add(|_, args| rounded(args, f64::ceil), &["math.ceil(double): double"]);
    registry.add(|_, args| rounded(args, f64::floor), &["math.floor(double): double"]);
    registry.add(|_, args| rounded(args, f64::round), &["math.round(double): double"]);
    registry.add(|_, args| rounded(args, f64::trunc), &["math.trunc(double): double"]);
    registry.add(|_, args| tested(args, f64::is_infinite), &["math.isInf(double): bool"]);
    registry.add(|_, args| tested(args, f64::is_nan), &["math.isNaN(double): bool"]);
    registry.add(|_, args| tested(args, f64::is_finite), &["math.isFinite(double): bool"]);
    registry.add(
        square_root,
        &["math.sqrt(double): double", "math.sqrt(int): double", "math.sqrt(uint): double"],
    );
    registry
        .add(absolute, &["math.abs(int): int", "math.abs(uint): uint", "math.abs(double): double"]);
    registry
        .add(sign, &["math.sign(int): int", "math.sign(uint): uint", "math.sign(double): double"]);
    registry.add(
        |_, args| bits(args, |a, b| a & b),
        &["math.bitAnd(int, int): int", "math.bitAnd(uint, uint): uint"],
    );
    registry.add(
        |_, args| bits(args, |a, b| a | b),
        &["math.bitOr(int, int): int", "math.bitOr(uint, uint): uint"],
    );
    registry.add(
        |_, args| bits(args, |a, b| a ^ b),
        &["math.bitXor(int, int): int", "math.bitXor(uint, uint): uint"],
    );
    registry.add(bit_not, &["math.bitNot(int): int", "math.bitNot(uint): uint"]);
    registry.add(
        |_, args| shift(args, u64::checked_shl),
        &["math.bitShiftLeft(int, int): int", "math.bitShiftLeft(uint, int): uint"],
    );
    // Shifting right fills with zeros, for negative numbers too.
    registry.add(
        |_, args| shift(args, u64::checked_shr),
        &["math.bitShiftRight(int, int): int", "math.bitShiftRight(uint, int): uint"],
    );
}

fn greatest(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    extreme(context, args, Ordering::Greater)
}

fn least(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    extreme(context, args, Ordering::Less)
}

/// The number that comes first in this order; of equal ones the first.
fn extreme(context: &mut Context<'_>, args: &[Val], wanted: Ordering) -> Result<Val, EvalFailure> {
    match args {
        [Val::List(list)] => {
            context.meter.charge(list.len() as u64)?;
            let mut best = number(list_first(list)?)?;
            for value in list.iter().skip(1) {
                best = better(best, number(value)?, wanted)?;
            }
            Ok(best)
        }
        [value] => number(value.clone()),
        [a, b] => better(number(a.clone())?, number(b.clone())?, wanted),
        _ => Err(no_such_overload()),
    }
}

fn list_first(list: &CelList) -> Result<Val, EvalFailure> {
    list.get(0).ok_or_else(|| failure("math.greatest and math.least need at least one argument"))
}

fn number(value: Val) -> Result<Val, EvalFailure> {
    match value {
        Val::Int(_) | Val::UInt(_) | Val::Double(_) => Ok(value),
        _ => Err(no_such_overload()),
    }
}

fn better(best: Val, value: Val, wanted: Ordering) -> Result<Val, EvalFailure> {
    let order = compare(&value, &best)?;
    let order = order.ok_or_else(|| failure("NaN values cannot be ordered"))?;
    Ok(if order == wanted { value } else { best })
}

fn rounded(args: &[Val], round: impl Fn(f64) -> f64) -> Result<Val, EvalFailure> {
    match &args[0] {
        Val::Double(x) => Ok(Val::Double(round(*x))),
        _ => Err(no_such_overload()),
    }
}

fn tested(args: &[Val], test: impl Fn(f64) -> bool) -> Result<Val, EvalFailure> {
    match &args[0] {
        Val::Double(x) => Ok(Val::Bool(test(*x))),
        _ => Err(no_such_overload()),
    }
}

fn square_root(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(Val::Double(match &args[0] {
        Val::Double(x) => x.sqrt(),
        Val::Int(i) => (*i as f64).sqrt(),
        Val::UInt(u) => (*u as f64).sqrt(),
        _ => return Err(no_such_overload()),
    }))
}

fn absolute(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(match &args[0] {
        Val::Int(i) => Val::Int(i.checked_abs().ok_or_else(|| failure("integer overflow"))?),
        Val::UInt(u) => Val::UInt(*u),
        Val::Double(x) => Val::Double(x.abs()),
        _ => return Err(no_such_overload()),
    })
}

fn sign(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(match &args[0] {
        Val::Int(i) => Val::Int(i.signum()),
        Val::UInt(u) => Val::UInt(u64::from(*u > 0)),
        Val::Double(x) if x.is_nan() => Val::Double(*x),
        Val::Double(0.0) => Val::Double(0.0),
        Val::Double(x) => Val::Double(x.signum()),
        _ => return Err(no_such_overload()),
    })
}

fn bits(args: &[Val], combine: impl Fn(u64, u64) -> u64) -> Result<Val, EvalFailure> {
    match args {
        [Val::Int(a), Val::Int(b)] => {
            Ok(Val::Int(combine(a.cast_unsigned(), b.cast_unsigned()).cast_signed()))
        }
        [Val::UInt(a), Val::UInt(b)] => Ok(Val::UInt(combine(*a, *b))),
        _ => Err(no_such_overload()),
    }
}

fn bit_not(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    match &args[0] {
        Val::Int(i) => Ok(Val::Int(!i)),
        Val::UInt(u) => Ok(Val::UInt(!u)),
        _ => Err(no_such_overload()),
    }
}

/// Shifting by 64 or more leaves nothing.
fn shift(args: &[Val], by: impl Fn(u64, u32) -> Option<u64>) -> Result<Val, EvalFailure> {
    let [value, Val::Int(count)] = args else { return Err(no_such_overload()) };
    if *count < 0 {
        return Err(failure(format!("math.bitShift: negative offset: {count}")));
    }
    let count = u32::try_from(*count).unwrap_or(u32::MAX);
    match value {
        Val::Int(i) => Ok(Val::Int(by(i.cast_unsigned(), count).unwrap_or(0).cast_signed())),
        Val::UInt(u) => Ok(Val::UInt(by(*u, count).unwrap_or(0))),
        _ => Err(no_such_overload()),
    }
}
