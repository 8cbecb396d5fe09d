//! Arithmetic on numbers, Kubernetes quantities and durations.
//!
//! A text that is a quantity is one, even where it could be a duration: `30m` is 30 thousandths.

use kiln_text::quantity::OutOfRange;
use kiln_text::{Duration, Quantity, float};
use kiln_value::Value;

use super::{ANY, ARRAY, Arguments, JmesPathFunction, NUMBER, Parameter, function, parameter};
use crate::eval::EvalFault;

const OPERANDS: &[Parameter] = &[parameter("a", ANY), parameter("b", ANY)];

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "add",
        OPERANDS,
        "number|string",
        "the sum of two numbers, two quantities or two durations",
        |args| add(args, args.value(0)?, args.value(1)?),
    ),
    function(
        "divide",
        OPERANDS,
        "number|string",
        "the quotient of two of a kind, or of a quantity or duration by a number",
        divide,
    ),
    function(
        "modulo",
        OPERANDS,
        "number|string",
        "the remainder of integers, whole quantities or durations; it has the sign of the first",
        modulo,
    ),
    function(
        "multiply",
        OPERANDS,
        "number|string",
        "the product of two numbers, or of a quantity or duration and a number",
        multiply,
    ),
    function(
        "round",
        &[parameter("number", NUMBER), parameter("places", NUMBER)],
        "number",
        "the number rounded to this many decimal places, halves away from zero",
        round,
    ),
    function(
        "subtract",
        OPERANDS,
        "number|string",
        "the difference of two numbers, two quantities or two durations",
        subtract,
    ),
    function(
        "sum",
        &[parameter("list", ARRAY)],
        "number|string",
        "the sum of a list of numbers, quantities or durations, which must not be empty",
        sum,
    ),
];

enum Operand {
    Scalar(f64),
    Quantity(Quantity),
    Duration(Duration),
}

use Operand::{Duration as D, Quantity as Q, Scalar as S};

fn operand(args: &Arguments<'_>, value: &Value) -> Result<Operand, EvalFault> {
    let parsed = match value {
        Value::Number(number) => Some(S(number.as_f64())),
        Value::String(text) => {
            Quantity::parse(text).map(Q).ok().or_else(|| Duration::parse(text).map(D).ok())
        }
        _ => None,
    };
    parsed.ok_or_else(|| {
        let found = match value {
            Value::String(text) if text.len() < 64 => format!("{:?}", text.as_str()),
            other => other.type_name().to_owned(),
        };
        args.fail(format_args!("{found} is not a number, a quantity or a duration"))
    })
}

fn operands(args: &Arguments<'_>) -> Result<(Operand, Operand), EvalFault> {
    Ok((operand(args, args.value(0)?)?, operand(args, args.value(1)?)?))
}

fn mismatch(args: &Arguments<'_>, a: &Operand, b: &Operand) -> EvalFault {
    let name = |operand: &Operand| match operand {
        S(_) => "a number",
        Q(_) => "a quantity",
        D(_) => "a duration",
    };
    args.fail(format_args!("{} and {} do not go together", name(a), name(b)))
}

fn quantity(
    args: &Arguments<'_>,
    result: Result<Quantity, OutOfRange>,
) -> Result<Value, EvalFault> {
    args.text(result.map_err(|error| args.fail(error))?.to_string())
}

fn duration(args: &Arguments<'_>, result: Option<Duration>) -> Result<Value, EvalFault> {
    let result = result.ok_or_else(|| args.fail("the duration is beyond 292 years"))?;
    args.text(result.to_string())
}

/// A number as the quantity that Kyverno makes of its text; the writing decides how many places a
/// quotient has.
fn scalar(args: &Arguments<'_>, number: f64) -> Result<Quantity, EvalFault> {
    Quantity::parse(&float::print(number)).map_err(|error| args.fail(error))
}

fn zero(args: &Arguments<'_>) -> EvalFault {
    args.fail("division by zero")
}

fn add(args: &Arguments<'_>, a: &Value, b: &Value) -> Result<Value, EvalFault> {
    match (operand(args, a)?, operand(args, b)?) {
        (S(a), S(b)) => args.float(a + b),
        (Q(a), Q(b)) => quantity(args, a.checked_add(&b)),
        (D(a), D(b)) => duration(args, a.checked_add(b)),
        (a, b) => Err(mismatch(args, &a, &b)),
    }
}

fn subtract(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    match operands(args)? {
        (S(a), S(b)) => args.float(a - b),
        (Q(a), Q(b)) => quantity(args, a.checked_sub(&b)),
        (D(a), D(b)) => duration(args, a.checked_sub(b)),
        (a, b) => Err(mismatch(args, &a, &b)),
    }
}

fn multiply(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    match operands(args)? {
        (S(a), S(b)) => args.float(a * b),
        (Q(amount), S(factor)) | (S(factor), Q(amount)) => {
            quantity(args, amount.checked_mul(&scalar(args, factor)?))
        }
        (D(span), S(factor)) | (S(factor), D(span)) => {
            duration(args, Duration::from_secs_f64(span.as_secs_f64() * factor))
        }
        (a, b) => Err(mismatch(args, &a, &b)),
    }
}

fn divide(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    match operands(args)? {
        (S(_) | Q(_) | D(_), S(0.0)) => Err(zero(args)),
        (S(a), S(b)) => args.float(a / b),
        (Q(a), Q(b)) => match b.as_approximate_f64() {
            0.0 => Err(zero(args)),
            divisor => args.float(a.as_approximate_f64() / divisor),
        },
        (Q(a), S(b)) => {
            let quotient = a.checked_div(&scalar(args, b)?).ok_or_else(|| zero(args))?;
            quantity(args, quotient)
        }
        (D(a), D(b)) => match b.as_secs_f64() {
            0.0 => Err(zero(args)),
            divisor => args.float(a.as_secs_f64() / divisor),
        },
        (D(a), S(b)) => duration(args, Duration::from_secs_f64(a.as_secs_f64() / b)),
        (a, b) => Err(mismatch(args, &a, &b)),
    }
}

fn modulo(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    match operands(args)? {
        (S(a), S(b)) => args.float(remainder(args, a, b)? as f64),
        (Q(a), Q(b)) => {
            let rest = remainder(args, a.as_approximate_f64(), b.as_approximate_f64())?;
            args.text(Quantity::new(rest, a.format()).to_string())
        }
        (D(a), D(b)) => {
            let rest = a.checked_rem(b).ok_or_else(|| zero(args))?;
            duration(args, Some(rest))
        }
        (a, b) => Err(mismatch(args, &a, &b)),
    }
}

fn remainder(args: &Arguments<'_>, a: f64, b: f64) -> Result<i64, EvalFault> {
    let (whole_a, whole_b) = (a as i64, b as i64);
    if whole_a as f64 != a || whole_b as f64 != b {
        return Err(args.fail("both operands must be integers"));
    }
    match whole_b {
        0 => Err(zero(args)),
        // The smallest integer by -1 leaves nothing, and would overflow.
        _ => Ok(whole_a.checked_rem(whole_b).unwrap_or(0)),
    }
}

fn round(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (number, places) = (args.number(0)?, args.number(1)?);
    if places.fract() != 0.0 || places < 0.0 {
        return Err(args.fail("the number of places must be an integer that is not negative"));
    }
    // Beyond this many places no float has digits left, and the shift would be infinite.
    if places > 300.0 {
        return args.float(number);
    }
    let shift = 10_f64.powi(places as i32);
    args.float((number * shift).round() / shift)
}

// Kyverno: a list of one gives its element back, whatever it is; each step goes through text.
fn sum(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let (first, rest) = args
        .list(0)?
        .split_first()
        .ok_or_else(|| args.fail("the list must have at least one element"))?;
    let mut total = first.clone();
    for value in rest {
        args.step(1)?;
        total = add(args, &total, value)?;
    }
    Ok(total)
}
