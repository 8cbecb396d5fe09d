//! The standard library: operators, conversions, sizes and the basic functions of strings.

use std::sync::Arc;

use kiln_text::float;
use kiln_value::Str;

use super::Registry;
use crate::budget::Meter;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::value::time::format_duration;
use crate::{Timestamp, Type, Val};

pub(super) fn register(registry: &mut Registry) {
    operators(registry);
    for ty in [
        Type::Null,
        Type::Bool,
        Type::Int,
        Type::UInt,
        Type::Double,
        Type::String,
        Type::Bytes,
        Type::Duration,
        Type::Timestamp,
        Type::Type,
        Type::list(Type::Dyn),
        Type::map(Type::Dyn, Type::Dyn),
    ] {
        registry.type_name(ty);
    }
    registry.add(
        size,
        &[
            "size(string): int",
            "size(bytes): int",
            "size(list(A)): int",
            "size(map(A, B)): int",
            "(string).size(): int",
            "(bytes).size(): int",
            "(list(A)).size(): int",
            "(map(A, B)).size(): int",
        ],
    );
    registry.add(|_, args| Ok(Val::Type(Str::new(args[0].type_name()))), &["type(A): type"]);
    registry.add(|_, args| Ok(args[0].clone()), &["dyn(A): dyn"]);
    registry.add(
        to_int,
        &[
            "int(int): int",
            "int(uint): int",
            "int(double): int",
            "int(string): int",
            "int(timestamp): int",
        ],
    );
    registry.add(
        to_uint,
        &["uint(uint): uint", "uint(int): uint", "uint(double): uint", "uint(string): uint"],
    );
    registry.add(
        to_double,
        &[
            "double(double): double",
            "double(int): double",
            "double(uint): double",
            "double(string): double",
        ],
    );
    registry.add(to_bool, &["bool(bool): bool", "bool(string): bool"]);
    registry.add(to_bytes, &["bytes(bytes): bytes", "bytes(string): bytes"]);
    registry.add(
        to_string,
        &[
            "string(string): string",
            "string(bool): string",
            "string(int): string",
            "string(uint): string",
            "string(double): string",
            "string(bytes): string",
            "string(timestamp): string",
            "string(duration): string",
            // Everything that a library gives a text: addresses, quantities, versions.
            "string(net.IP): string",
            "string(net.CIDR): string",
            "string(kubernetes.Quantity): string",
            "string(kubernetes.Semver): string",
        ],
    );
    registry.add(
        to_timestamp,
        &[
            "timestamp(timestamp): timestamp",
            "timestamp(string): timestamp",
            "timestamp(int): timestamp",
        ],
    );
    registry.add(to_duration, &["duration(duration): duration", "duration(string): duration"]);
    registry.add(contains, &["(string).contains(string): bool"]);
    registry.add(ends_with, &["(string).endsWith(string): bool"]);
    registry.add(starts_with, &["(string).startsWith(string): bool"]);
    registry.add(matches, &["(string).matches(string): bool", "matches(string, string): bool"]);
}

/// Operators are evaluated by the evaluator itself; the checker needs their signatures.
fn operators(registry: &mut Registry) {
    let run = |_: &mut Context<'_>, _: &[Val]| Err(no_such_overload());
    registry.add(
        run,
        &[
            "!_(bool): bool",
            "-_(int): int",
            "-_(double): double",
            "_?_:_(bool, A, A): A",
            "_[_](list(A), int): A",
            "_[_](map(A, B), A): B",
            "_[_](optional(list(A)), int): optional(A)",
            "_[_](optional(map(A, B)), A): optional(B)",
            "_[?_](list(A), int): optional(A)",
            "_[?_](map(A, B), A): optional(B)",
            "_[?_](optional(list(A)), int): optional(A)",
            "_[?_](optional(map(A, B)), A): optional(B)",
            "@in(A, list(A)): bool",
            "@in(A, map(A, B)): bool",
            "_==_(A, A): bool",
            "_!=_(A, A): bool",
            "_+_(int, int): int",
            "_+_(uint, uint): uint",
            "_+_(double, double): double",
            "_+_(string, string): string",
            "_+_(bytes, bytes): bytes",
            "_+_(list(A), list(A)): list(A)",
            "_+_(timestamp, duration): timestamp",
            "_+_(duration, timestamp): timestamp",
            "_+_(duration, duration): duration",
            "_-_(int, int): int",
            "_-_(uint, uint): uint",
            "_-_(double, double): double",
            "_-_(timestamp, timestamp): duration",
            "_-_(timestamp, duration): timestamp",
            "_-_(duration, duration): duration",
            "_*_(int, int): int",
            "_*_(uint, uint): uint",
            "_*_(double, double): double",
            "_/_(int, int): int",
            "_/_(uint, uint): uint",
            "_/_(double, double): double",
            "_%_(int, int): int",
            "_%_(uint, uint): uint",
        ],
    );
    for operator in ["_<_", "_<=_", "_>_", "_>=_"] {
        let numbers = [Type::Int, Type::UInt, Type::Double];
        let others = [Type::Bool, Type::String, Type::Bytes, Type::Timestamp, Type::Duration];
        let mixed = numbers.iter().flat_map(|a| numbers.iter().map(move |b| (a, b)));
        let group = registry.groups;
        registry.groups += 1;
        for (a, b) in mixed.chain(others.iter().map(|ty| (ty, ty))) {
            registry.functions.entry(Str::new_static(operator)).or_default().push(
                crate::env::Overload {
                    params: vec![a.clone(), b.clone()],
                    result: Type::Bool,
                    member: false,
                    run,
                    group,
                },
            );
        }
    }
}

fn size(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let size = match &args[0] {
        Val::String(text) => {
            context.meter.charge_text(text.len() as u64)?;
            text.chars().count()
        }
        Val::Bytes(bytes) => bytes.len(),
        Val::List(list) => list.len(),
        Val::Map(map) => map.len(),
        _ => return Err(no_such_overload()),
    };
    Ok(Val::Int(i64::try_from(size).unwrap_or(i64::MAX)))
}

/// Charges for the text that a conversion reads.
fn charge_reading(context: &mut Context<'_>, args: &[Val]) -> Result<(), EvalFailure> {
    match args.first() {
        Some(Val::String(text)) => context.meter.charge_text(text.len() as u64),
        _ => Ok(()),
    }
}

fn to_int(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    charge_reading(context, args)?;
    let overflow = || failure("integer overflow");
    Ok(Val::Int(match &args[0] {
        Val::Int(i) => *i,
        Val::UInt(u) => i64::try_from(*u).map_err(|_| overflow())?,
        // cel-go: both ends of the range are out, because floats cannot tell them from what is.
        Val::Double(x) if *x > -9_223_372_036_854_775_808.0 && *x < 9_223_372_036_854_775_808.0 => {
            *x as i64
        }
        Val::Double(_) => return Err(overflow()),
        Val::String(text) => parse_int(text).ok_or_else(|| {
            failure(format!("type conversion error from 'string' to 'int': {text:?}"))
        })?,
        Val::Timestamp(timestamp) => timestamp.seconds(),
        _ => return Err(no_such_overload()),
    }))
}

/// Go's `ParseInt` takes digits and one sign, nothing else.
fn parse_int(text: &str) -> Option<i64> {
    text.parse().ok()
}

fn to_uint(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    charge_reading(context, args)?;
    let overflow = || failure("unsigned integer overflow");
    Ok(Val::UInt(match &args[0] {
        Val::UInt(u) => *u,
        Val::Int(i) => u64::try_from(*i).map_err(|_| overflow())?,
        Val::Double(x) if *x >= 0.0 && *x < 18_446_744_073_709_551_616.0 => *x as u64,
        Val::Double(_) => return Err(overflow()),
        Val::String(text) => {
            text.strip_prefix('+').map_or_else(|| text.parse().ok(), |_| None).ok_or_else(|| {
                failure(format!("type conversion error from 'string' to 'uint': {text:?}"))
            })?
        }
        _ => return Err(no_such_overload()),
    }))
}

fn to_double(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    charge_reading(context, args)?;
    Ok(Val::Double(match &args[0] {
        Val::Double(x) => *x,
        Val::Int(i) => *i as f64,
        Val::UInt(u) => *u as f64,
        Val::String(text) => float::parse(text).ok_or_else(|| {
            failure(format!("type conversion error from 'string' to 'double': {text:?}"))
        })?,
        _ => return Err(no_such_overload()),
    }))
}

fn to_bool(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(Val::Bool(match &args[0] {
        Val::Bool(b) => *b,
        // Go's `ParseBool`.
        Val::String(text) => match text.as_str() {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                return Err(failure(format!(
                    "type conversion error from 'string' to 'bool': {text:?}"
                )));
            }
        },
        _ => return Err(no_such_overload()),
    }))
}

fn to_bytes(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(match &args[0] {
        Val::Bytes(bytes) => Val::Bytes(bytes.clone()),
        Val::String(text) => {
            context.meter.charge_text(text.len() as u64)?;
            Val::Bytes(Arc::from(text.as_bytes()))
        }
        _ => return Err(no_such_overload()),
    })
}

fn to_string(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    Ok(match &args[0] {
        Val::String(text) => Val::String(text.clone()),
        Val::Bool(b) => Val::string(if *b { "true" } else { "false" }),
        Val::Int(i) => Val::from(i.to_string()),
        Val::UInt(u) => Val::from(u.to_string()),
        Val::Double(x) => Val::from(float::print(*x)),
        Val::Bytes(bytes) => {
            context.meter.charge_text(bytes.len() as u64)?;
            let text = std::str::from_utf8(bytes);
            Val::string(
                text.map_err(|_| failure("invalid UTF-8 in bytes, cannot convert to string"))?,
            )
        }
        Val::Timestamp(timestamp) => Val::from(timestamp.text()?),
        Val::Duration(duration) => Val::from(format_duration(*duration)),
        Val::Opaque(opaque) => Val::from(opaque.to_text().ok_or_else(no_such_overload)?),
        _ => return Err(no_such_overload()),
    })
}

fn to_timestamp(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    charge_reading(context, args)?;
    Ok(Val::Timestamp(match &args[0] {
        Val::Timestamp(timestamp) => *timestamp,
        Val::String(text) => Timestamp::parse(text)
            .ok_or_else(|| failure(format!("invalid timestamp {text:?}: RFC 3339 is expected")))?,
        Val::Int(seconds) => {
            Timestamp::new(*seconds, 0).ok_or_else(|| failure("timestamp overflow"))?
        }
        _ => return Err(no_such_overload()),
    }))
}

fn to_duration(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    charge_reading(context, args)?;
    Ok(Val::Duration(match &args[0] {
        Val::Duration(duration) => *duration,
        Val::String(text) => {
            kiln_text::Duration::parse(text).map_err(|error| failure(error.to_string()))?
        }
        _ => return Err(no_such_overload()),
    }))
}

fn contains(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(part)] = args else { return Err(no_such_overload()) };
    let (text_cost, part_cost) = (text.len().div_ceil(10), part.len().div_ceil(10));
    context.meter.charge((text_cost as u64).saturating_mul(part_cost as u64))?;
    Ok(Val::Bool(text.contains(part.as_str())))
}

fn starts_with(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(part)] = args else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::Bool(text.starts_with(part.as_str())))
}

fn ends_with(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(part)] = args else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::Bool(text.ends_with(part.as_str())))
}

fn matches(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(text), Val::String(pattern)] = args else { return Err(no_such_overload()) };
    charge_regex(&mut context.meter, text, pattern)?;
    let regex = context.regex(pattern)?;
    Ok(Val::Bool(regex.is_match(text)))
}

/// A match costs a tenth of the text times a quarter of the pattern.
pub(crate) fn charge_regex(
    meter: &mut Meter<'_>,
    text: &str,
    pattern: &str,
) -> Result<(), EvalFailure> {
    let text = (1 + text.len()).div_ceil(10) as u64;
    meter.charge(text.saturating_mul(pattern.len().div_ceil(4) as u64))
}
