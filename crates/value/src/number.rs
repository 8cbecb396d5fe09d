//! Numbers as Go programs see them: 64-bit integers and floats, never mixed up.

use std::cmp::Ordering;
use std::fmt;

/// A number. Integers that fit `i64` are always [`Number::Int`], so equal integers have one form.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An integer in the range of `i64`.
    Int(i64),
    /// An integer above `i64::MAX`.
    UInt(u64),
    /// A float; may be integral (`1.0`), infinite or not a number.
    Float(f64),
}

impl Number {
    /// The value as `i64`, if it is an integer in range.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Number::Int(i) => Some(i),
            Number::UInt(_) | Number::Float(_) => None,
        }
    }

    /// The value as `u64`, if it is an integer that is not negative.
    pub fn as_u64(self) -> Option<u64> {
        match self {
            Number::Int(i) => u64::try_from(i).ok(),
            Number::UInt(u) => Some(u),
            Number::Float(_) => None,
        }
    }

    /// The nearest float.
    pub fn as_f64(self) -> f64 {
        match self {
            Number::Int(i) => i as f64,
            Number::UInt(u) => u as f64,
            Number::Float(f) => f,
        }
    }

    /// Whether this is an integer (not merely an integral float).
    pub fn is_integer(self) -> bool {
        !matches!(self, Number::Float(_))
    }

    /// Compares by numeric value across integers and floats; `None` only for NaN.
    pub fn compare(self, other: Number) -> Option<Ordering> {
        match (self, other) {
            (Number::Int(a), Number::Int(b)) => Some(a.cmp(&b)),
            (Number::UInt(a), Number::UInt(b)) => Some(a.cmp(&b)),
            (Number::Int(_), Number::UInt(_)) => Some(Ordering::Less),
            (Number::UInt(_), Number::Int(_)) => Some(Ordering::Greater),
            (Number::Float(a), Number::Float(b)) => a.partial_cmp(&b),
            (Number::Float(a), b) => compare_float_integer(a, b.as_i128()),
            (a, Number::Float(b)) => compare_float_integer(b, a.as_i128()).map(Ordering::reverse),
        }
    }

    fn as_i128(self) -> i128 {
        match self {
            Number::Int(i) => i128::from(i),
            Number::UInt(u) => i128::from(u),
            Number::Float(f) => f as i128,
        }
    }
}

/// Exact comparison: converting a 64-bit integer to a float first would lose low bits.
fn compare_float_integer(float: f64, integer: i128) -> Option<Ordering> {
    if float.is_nan() {
        return None;
    }
    let whole = float.trunc();
    // `as` saturates, so floats beyond i128 still compare to the right side.
    match (whole as i128).cmp(&integer) {
        Ordering::Equal => (float - whole).partial_cmp(&0.0),
        unequal => Some(unequal),
    }
}

impl From<i64> for Number {
    fn from(i: i64) -> Self {
        Number::Int(i)
    }
}

impl From<u64> for Number {
    fn from(u: u64) -> Self {
        i64::try_from(u).map_or(Number::UInt(u), Number::Int)
    }
}

impl From<f64> for Number {
    fn from(f: f64) -> Self {
        Number::Float(f)
    }
}

impl fmt::Display for Number {
    /// Prints as Go's `encoding/json` does: floats in their shortest form, integral ones without a
    /// fraction, an exponent below 1e-6 and from 1e21.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Int(i) => i.fmt(f),
            Number::UInt(u) => u.fmt(f),
            Number::Float(x) if x.is_nan() => f.write_str("NaN"),
            Number::Float(x) if x.is_infinite() => {
                f.write_str(if x > 0.0 { "+Inf" } else { "-Inf" })
            }
            Number::Float(x) => fmt_float(x, f),
        }
    }
}

fn fmt_float(x: f64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let text = shortest(x);
    let (sign, unsigned) = text.strip_prefix('-').map_or(("", &*text), |rest| ("-", rest));
    let (mantissa, exponent) = unsigned.split_once('e').unwrap_or((unsigned, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    f.write_str(sign)?;
    if !(-6..21).contains(&exponent) {
        return write!(f, "{mantissa}e{exponent:+}");
    }
    let digits = mantissa.replace('.', "");
    match usize::try_from(exponent) {
        Err(_) => write!(f, "0.{:0<1$}{digits}", "", exponent.unsigned_abs() as usize - 1),
        Ok(whole) if whole + 1 >= digits.len() => {
            write!(f, "{digits}{:0<1$}", "", whole + 1 - digits.len())
        }
        Ok(whole) => write!(f, "{}.{}", &digits[..=whole], &digits[whole + 1..]),
    }
}

/// As few digits as read back to the float; halfway between two such, Go takes the even one.
fn shortest(x: f64) -> String {
    let text = format!("{x:e}");
    let digits = text.bytes().take_while(|b| *b != b'e').filter(u8::is_ascii_digit).count();
    let even = format!("{x:.places$e}", places = digits - 1);
    if even.parse() == Ok(x) { even } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_floats_as_go_json_does() {
        for (float, text) in [
            (1.0, "1"),
            (-0.0, "-0"),
            (0.1, "0.1"),
            (1e20, "100000000000000000000"),
            (1e21, "1e+21"),
            (1.5e300, "1.5e+300"),
            (1e-6, "0.000001"),
            (1e-7, "1e-7"),
            (123_456_789.125, "123456789.125"),
            (0.0, "0"),
            (123e-8, "0.00000123"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (999_999_999_999_999_900_000.0, "999999999999999900000"),
            // Halfway between two shortest forms: to the even digit.
            (70_840_742_287_050.62, "70840742287050.62"),
            (-2_080_364_226_799_236.2, "-2080364226799236.2"),
        ] {
            assert_eq!(Number::Float(float).to_string(), text);
        }
    }

    #[test]
    fn compares_integers_and_floats_exactly() {
        let max = Number::Int(i64::MAX);
        assert_eq!(max.compare(Number::Float(9_223_372_036_854_775_808.0)), Some(Ordering::Less));
        assert_eq!(Number::UInt(u64::MAX).compare(max), Some(Ordering::Greater));
        assert_eq!(Number::Int(1).compare(Number::Float(1.0)), Some(Ordering::Equal));
        assert_eq!(Number::Int(-2).compare(Number::Float(-2.5)), Some(Ordering::Greater));
        assert_eq!(Number::Float(f64::INFINITY).compare(max), Some(Ordering::Greater));
        assert_eq!(Number::Float(f64::NAN).compare(max), None);
    }
}
