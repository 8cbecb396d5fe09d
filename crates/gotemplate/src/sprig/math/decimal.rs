//! Exact decimals, so that 0.1 and 0.2 make 0.3.

use kiln_text::float::{self, Style};

use crate::error::Refusal;

/// A number: digits times a power of ten. What does not fit any more goes on as a float.
#[derive(Clone, Copy, Debug)]
pub(super) enum Decimal {
    Exact(i128, i32),
    Float(f64),
}

pub(super) type DecimalOperation = fn(Decimal, Decimal) -> Result<Decimal, Refusal>;

/// Quotients have so many places.
const PLACES: i32 = 16;

impl Decimal {
    pub(super) fn from_float(value: f64) -> Decimal {
        let text = float::format(value, Style::Exponent, None);
        let Some((mantissa, exponent)) = text.split_once('e') else { return Decimal::Float(value) };
        let places = mantissa.split_once('.').map_or(0, |(_, places)| places.len());
        match (mantissa.replace('.', "").parse(), exponent.parse::<i32>()) {
            (Ok(digits), Ok(exponent)) => {
                Decimal::Exact(digits, exponent - i32::try_from(places).unwrap_or(0))
            }
            _ => Decimal::Float(value),
        }
    }

    pub(super) fn to_float(self) -> f64 {
        match self {
            Decimal::Float(value) => value,
            Decimal::Exact(digits, exponent) => {
                format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN)
            }
        }
    }
}

fn power(exponent: i32) -> Option<i128> {
    10_i128.checked_pow(u32::try_from(exponent).ok()?)
}

/// Both with the same, smaller power of ten.
fn aligned(a: Decimal, b: Decimal) -> Option<(i128, i128, i32)> {
    let (Decimal::Exact(a, x), Decimal::Exact(b, y)) = (a, b) else { return None };
    let exponent = x.min(y);
    let a = a.checked_mul(power(x - exponent)?)?;
    let b = b.checked_mul(power(y - exponent)?)?;
    Some((a, b, exponent))
}

pub(super) fn add(a: Decimal, b: Decimal) -> Result<Decimal, Refusal> {
    let exact = aligned(a, b).and_then(|(a, b, e)| Some(Decimal::Exact(a.checked_add(b)?, e)));
    Ok(exact.unwrap_or_else(|| Decimal::Float(a.to_float() + b.to_float())))
}

pub(super) fn subtract(a: Decimal, b: Decimal) -> Result<Decimal, Refusal> {
    let exact = aligned(a, b).and_then(|(a, b, e)| Some(Decimal::Exact(a.checked_sub(b)?, e)));
    Ok(exact.unwrap_or_else(|| Decimal::Float(a.to_float() - b.to_float())))
}

pub(super) fn multiply(a: Decimal, b: Decimal) -> Result<Decimal, Refusal> {
    let exact = match (a, b) {
        (Decimal::Exact(a, x), Decimal::Exact(b, y)) => {
            a.checked_mul(b).map(|product| Decimal::Exact(product, x + y))
        }
        _ => None,
    };
    Ok(exact.unwrap_or_else(|| Decimal::Float(a.to_float() * b.to_float())))
}

pub(super) fn divide(a: Decimal, b: Decimal) -> Result<Decimal, Refusal> {
    if b.to_float() == 0.0 {
        return Err("decimal division by 0".into());
    }
    let exact = aligned(a, b).and_then(|(a, b, _)| {
        let scaled = a.checked_mul(power(PLACES)?)?;
        let (quotient, rest) = (scaled / b, scaled % b);
        let away = rest.unsigned_abs() * 2 >= b.unsigned_abs();
        let direction = if (scaled < 0) == (b < 0) { 1 } else { -1 };
        let quotient = if away { quotient + direction } else { quotient };
        Some(Decimal::Exact(quotient, -PLACES))
    });
    Ok(exact.unwrap_or_else(|| Decimal::Float(a.to_float() / b.to_float())))
}
