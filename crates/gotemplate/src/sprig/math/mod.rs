//! Numbers. Sprig computes with 64-bit integers that wrap, and with decimals where a name ends in `f`.

mod decimal;

use std::num::IntErrorKind;

use super::convert::{float_of, int_of};
use decimal::Decimal;

use crate::error::Refusal;
use crate::format;
use crate::functions::ParameterType::{Any, Float, Int, Text};
use crate::functions::{FunctionCall, TemplateFunction, any, function, int, text};
use crate::value::{Dyn, Elem};

pub(super) const TABLE: &[TemplateFunction] = &[
    function("add", &[], Some(Any), add, "the sum"),
    function("add1", &[Any], None, add1, "one more"),
    function("add1f", &[Any], None, add1f, "one more, as a float"),
    function("addf", &[], Some(Any), addf, "the sum, as a float"),
    function("atoi", &[Text], None, atoi, "the integer that a text says, or 0"),
    function("biggest", &[Any], Some(Any), max, "the greatest integer"),
    function("ceil", &[Any], None, ceil, "rounded up"),
    function("div", &[Any, Any], None, div, "the integer quotient"),
    function("divf", &[Any], Some(Any), divf, "the quotient, as a float"),
    function("float64", &[Any], None, float64, "as a float"),
    function("floor", &[Any], None, floor, "rounded down"),
    function("int", &[Any], None, to_int, "as an int"),
    function("int64", &[Any], None, to_int64, "as an int64"),
    function("max", &[Any], Some(Any), max, "the greatest integer"),
    function("maxf", &[Any], Some(Any), maxf, "the greatest float"),
    function("min", &[Any], Some(Any), min, "the least integer"),
    function("minf", &[Any], Some(Any), minf, "the least float"),
    function("mod", &[Any, Any], None, modulo, "the rest of a division"),
    function("mul", &[Any], Some(Any), mul, "the product"),
    function("mulf", &[Any], Some(Any), mulf, "the product, as a float"),
    function("round", &[Any, Int], Some(Float), round, "rounded to so many places"),
    function("seq", &[], Some(Int), seq, "numbers in a row, as text"),
    function("sub", &[Any, Any], None, sub, "the difference"),
    function("subf", &[Any], Some(Any), subf, "the difference, as a float"),
    function("toDecimal", &[Any], None, to_decimal, "what octal digits say"),
    function("until", &[Int], None, until, "the numbers from 0 up to this"),
    function("untilStep", &[Int, Int, Int], None, until_step, "the numbers from one to another"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

fn add(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(a.iter().map(int_of).fold(0, i64::wrapping_add)))
}

fn add1(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(int_of(any(a, 0)).wrapping_add(1)))
}

fn sub(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(int_of(any(a, 0)).wrapping_sub(int_of(any(a, 1)))))
}

fn mul(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(a.iter().map(int_of).fold(1, i64::wrapping_mul)))
}

fn divisor(a: &[Dyn]) -> Result<i64> {
    match int_of(any(a, 1)) {
        0 => Err("runtime error: integer divide by zero".into()),
        divisor => Ok(divisor),
    }
}

fn div(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(int_of(any(a, 0)).wrapping_div(divisor(a)?)))
}

fn modulo(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(int_of(any(a, 0)).wrapping_rem(divisor(a)?)))
}

fn max(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(a.iter().map(int_of).max().unwrap_or(0)))
}

fn min(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(a.iter().map(int_of).min().unwrap_or(0)))
}

fn maxf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Float(a.iter().map(float_of).fold(f64::NEG_INFINITY, f64::max)))
}

fn minf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Float(a.iter().map(float_of).fold(f64::INFINITY, f64::min)))
}

fn decimal_of(float: f64) -> Result<Decimal> {
    if !float.is_finite() {
        let shown = kiln_text::float::print(float);
        return Err(format!("Cannot create a Decimal from {shown}").into());
    }
    Ok(Decimal::from_float(float))
}

fn folded(a: &[Dyn], by: decimal::DecimalOperation) -> Result {
    let mut numbers = a.iter().map(|value| decimal_of(float_of(value)));
    let first = numbers.next().unwrap_or_else(|| decimal_of(0.0))?;
    let result = numbers.try_fold(first, |left, right| by(left, right?))?;
    Ok(Dyn::Float(result.to_float()))
}

fn addf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    folded(a, decimal::add)
}

fn add1f(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    folded(&[any(a, 0).clone(), Dyn::Int(1)], decimal::add)
}

fn subf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    folded(a, decimal::subtract)
}

fn mulf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    folded(a, decimal::multiply)
}

fn divf(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    folded(a, decimal::divide)
}

fn ceil(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Float(float_of(any(a, 0)).ceil()))
}

fn floor(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Float(float_of(any(a, 0)).floor()))
}

fn round(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let up_from = a.get(2).map_or(0.5, float_of);
    let power = 10_f64.powf(int(a, 1) as f64);
    let digits = power * float_of(any(a, 0));
    // The part behind the point keeps its sign, so negative halves go down.
    let rounded = if digits.fract() >= up_from { digits.ceil() } else { digits.floor() };
    Ok(Dyn::Float(rounded / power))
}

fn to_int(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int(int_of(any(a, 0))))
}

fn to_int64(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int64(int_of(any(a, 0))))
}

fn float64(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Float(float_of(any(a, 0))))
}

fn atoi(_: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(Dyn::Int(match text(a, 0).parse::<i64>() {
        Ok(int) => int,
        Err(error) => match error.kind() {
            IntErrorKind::PosOverflow => i64::MAX,
            IntErrorKind::NegOverflow => i64::MIN,
            _ => 0,
        },
    }))
}

fn to_decimal(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let digits = format::plain(any(a, 0), call.meter)?;
    Ok(Dyn::Int64(i64::from_str_radix(&digits, 8).unwrap_or(0)))
}

fn numbers(call: &FunctionCall<'_>, start: i64, stop: i64, step: i64) -> Result<Vec<i64>> {
    let mut numbers = Vec::new();
    if step == 0 || (stop < start) != (step < 0) {
        return Ok(numbers);
    }
    let mut at = start;
    while if step > 0 { at < stop } else { at > stop } {
        call.meter.step(1)?;
        call.meter.make(24)?;
        numbers.push(at);
        let Some(next) = at.checked_add(step) else { break };
        at = next;
    }
    Ok(numbers)
}

fn list(numbers: Vec<i64>) -> Dyn {
    Dyn::list_of(Elem::Int, numbers.into_iter().map(Dyn::Int).collect())
}

fn until(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let stop = int(a, 0);
    numbers(call, 0, stop, if stop < 0 { -1 } else { 1 }).map(list)
}

fn until_step(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    numbers(call, int(a, 0), int(a, 1), int(a, 2)).map(list)
}

fn seq(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (start, step, end) = match a.len() {
        1 => (1, None, int(a, 0)),
        2 => (int(a, 0), None, int(a, 1)),
        3 => (int(a, 0), Some(int(a, 1)), int(a, 2)),
        _ => return Ok("".into()),
    };
    let direction = if end < start { -1 } else { 1 };
    let step = step.unwrap_or(direction);
    if end < start && step > 0 {
        return Ok("".into());
    }
    let numbers = numbers(call, start, end.saturating_add(direction), step)?;
    let texts: Vec<String> = numbers.iter().map(ToString::to_string).collect();
    Ok(texts.join(" ").into())
}
