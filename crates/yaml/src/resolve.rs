//! The types of scalars, by the tables of go-yaml v3 and v2.
//!
//! Compatibility is to the letter: `0o17`, `017`, `0b11` and `1_000` are integers, `08` is a float,
//! base 60 is text, and `0b-1` is minus one.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_value::{Number, Value};

use crate::events::event::Scalar;
use crate::options::{ReadOptions, ScalarTable};
use crate::timestamp;

/// What a scalar is.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Typed {
    Null,
    Bool(bool),
    Number(Number),
    /// A moment, in RFC 3339.
    Time(String),
    /// Text; the scalar's own.
    Text,
    /// The value of `!!binary`.
    Bytes(String),
}

impl Typed {
    fn name(&self) -> &'static str {
        match self {
            Typed::Null => "null",
            Typed::Bool(_) => "a boolean",
            Typed::Number(Number::Float(_)) => "a float",
            Typed::Number(_) => "an integer",
            Typed::Time(_) => "a timestamp",
            Typed::Text | Typed::Bytes(_) => "text",
        }
    }
}

/// The value of a scalar.
///
/// # Errors
/// In words, when a tag does not fit the text or the value has no place in JSON.
pub(crate) fn value(scalar: &Scalar<'_>, options: &ReadOptions) -> Result<Value, String> {
    let table = options.scalars;
    match typed(scalar, table)? {
        Typed::Null => Ok(Value::Null),
        Typed::Bool(b) => Ok(Value::Bool(b)),
        Typed::Number(Number::Float(f)) if options.non_finite && !f.is_finite() => {
            Ok(Value::Number(Number::Float(f)))
        }
        Typed::Number(number) => json_number(number, table).map(Value::Number),
        // go-yaml v2 leaves timestamps as text unless a time is asked for.
        Typed::Time(time) if table == ScalarTable::V3 => Ok(Value::from(time)),
        Typed::Time(_) | Typed::Text => Ok(Value::from(&*scalar.text)),
        Typed::Bytes(text) => Ok(Value::from(text)),
    }
}

/// The value that a plain scalar with this text has. What has no place in JSON (infinity) is text.
pub fn resolve_plain(text: &str, table: ScalarTable) -> Value {
    match plain(text, table) {
        Typed::Null => Value::Null,
        Typed::Bool(b) => Value::Bool(b),
        Typed::Number(number) => {
            json_number(number, table).map_or_else(|_| Value::from(text), Value::Number)
        }
        Typed::Time(time) if table == ScalarTable::V3 => Value::from(time),
        Typed::Time(_) | Typed::Text | Typed::Bytes(_) => Value::from(text),
    }
}

/// Gives a scalar its type.
pub(crate) fn typed(scalar: &Scalar<'_>, table: ScalarTable) -> Result<Typed, String> {
    let tag = match scalar.properties.tag.as_deref() {
        None if scalar.is_plain() => return Ok(plain(&scalar.text, table)),
        None => return Ok(Typed::Text),
        // go-yaml v3 ignores `!`, for v2 it is a tag like any other that it does not know.
        Some("!") if scalar.is_plain() && table == ScalarTable::V3 => {
            return Ok(plain(&scalar.text, table));
        }
        Some(tag) => tag,
    };
    let tag = tag.strip_prefix("tag:yaml.org,2002:").unwrap_or_default();
    let text = &*scalar.text;
    let fits = match tag {
        "binary" => {
            let folded: Cow<'_, str> = if text.contains(['\n', '\r']) {
                text.replace(['\n', '\r'], "").into()
            } else {
                text.into()
            };
            let bytes = STANDARD
                .decode(folded.as_bytes())
                .map_err(|_| "the !!binary value is not base64".to_owned())?;
            return Ok(Typed::Bytes(String::from_utf8_lossy(&bytes).into_owned()));
        }
        "null" | "bool" | "int" | "float" | "timestamp" => {
            // Only an untagged scalar or a !!timestamp can be a time.
            match (tag, plain(text, table)) {
                ("timestamp", found) => found,
                (_, Typed::Time(_)) => number(text, table).unwrap_or(Typed::Text),
                (_, found) => found,
            }
        }
        // !!str and every unknown tag.
        _ => return Ok(Typed::Text),
    };
    match (tag, fits) {
        ("null", Typed::Null) => Ok(Typed::Null),
        ("bool", Typed::Bool(b)) => Ok(Typed::Bool(b)),
        ("int", Typed::Number(n)) if n.is_integer() => Ok(Typed::Number(n)),
        ("float", Typed::Number(Number::UInt(_))) => {
            Err(format!("{text:?} is tagged !!float, but is too large an integer"))
        }
        ("float", Typed::Number(n)) => Ok(Typed::Number(Number::Float(n.as_f64()))),
        ("timestamp", Typed::Time(time)) => Ok(Typed::Time(time)),
        (_, found) => Err(format!("{text:?} is tagged !!{tag}, but is {}", found.name())),
    }
}

/// JSON has no infinity, and what went through JSON knows no integral floats.
fn json_number(number: Number, table: ScalarTable) -> Result<Number, String> {
    match number {
        Number::Float(f) if !f.is_finite() => {
            Err("infinity and NaN have no place in JSON, and so none in Kubernetes objects".into())
        }
        Number::Float(f) if table == ScalarTable::V2 => Ok(through_json(f)),
        number => Ok(number),
    }
}

fn through_json(f: f64) -> Number {
    // 2^53: below it every integral float is exact, and JSON prints its digits.
    if f.fract() == 0.0 && f.abs() <= 9_007_199_254_740_992.0 {
        Number::Int(f as i64)
    } else if f.fract() == 0.0 && f.abs() < 1e19 {
        // Go prints the shortest digits, padded with zeros, and reads them back as an integer.
        Number::Float(f).to_string().parse().map_or(Number::Float(f), Number::Int)
    } else {
        Number::Float(f)
    }
}

/// What the first byte of a plain scalar says about it.
#[derive(Clone, Copy, PartialEq)]
enum Hint {
    Text,
    Word,
    Dot,
    Number,
}

const HINTS: [Hint; 256] = {
    let mut hints = [Hint::Text; 256];
    let words = b"yYnNtTfFoO~";
    let mut at = 0;
    while at < words.len() {
        hints[words[at] as usize] = Hint::Word;
        at += 1;
    }
    let numbers = b"+-0123456789";
    at = 0;
    while at < numbers.len() {
        hints[numbers[at] as usize] = Hint::Number;
        at += 1;
    }
    hints[b'.' as usize] = Hint::Dot;
    hints
};

/// The type of an untagged plain scalar.
pub(crate) fn plain(text: &str, table: ScalarTable) -> Typed {
    let Some(&first) = text.as_bytes().first() else {
        return Typed::Null;
    };
    match HINTS[first as usize] {
        Hint::Text => Typed::Text,
        Hint::Word => word(text, table),
        Hint::Dot => match special_float(text) {
            Some(float) => Typed::Number(Number::Float(float)),
            None => kiln_text::float::parse(text)
                .map_or(Typed::Text, |f| Typed::Number(Number::Float(f))),
        },
        Hint::Number => match special_float(text) {
            Some(float) => Typed::Number(Number::Float(float)),
            None => match timestamp::to_rfc3339(text) {
                Some(time) => Typed::Time(time),
                None => number(text, table).unwrap_or(Typed::Text),
            },
        },
    }
}

fn word(text: &str, table: ScalarTable) -> Typed {
    // The longest word is "false".
    if text.len() > 5 {
        return Typed::Text;
    }
    match text {
        "true" | "True" | "TRUE" => Typed::Bool(true),
        "false" | "False" | "FALSE" => Typed::Bool(false),
        "~" | "null" | "Null" | "NULL" => Typed::Null,
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" if table == ScalarTable::V2 => {
            Typed::Bool(true)
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" if table == ScalarTable::V2 => {
            Typed::Bool(false)
        }
        _ => Typed::Text,
    }
}

fn special_float(text: &str) -> Option<f64> {
    match text {
        ".nan" | ".NaN" | ".NAN" => Some(f64::NAN),
        ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF" => Some(f64::INFINITY),
        "-.inf" | "-.Inf" | "-.INF" => Some(f64::NEG_INFINITY),
        _ => None,
    }
}

fn number(text: &str, table: ScalarTable) -> Option<Typed> {
    // Most text that begins with a digit has a letter that no number has: `100m`, `8080-8090`.
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.' | b'_')) {
        return None;
    }
    let digits: Cow<'_, str> =
        if text.contains('_') { text.replace('_', "").into() } else { text.into() };
    integer(&digits)
        .or_else(|| {
            is_yaml_float(&digits).then(|| kiln_text::float::parse(&digits).map(Number::Float))?
        })
        .or_else(|| prefixed(&digits, table))
        .map(Typed::Number)
}

/// As Go reads an integer in base 0.
fn integer(digits: &str) -> Option<Number> {
    let (negative, unsigned) = match digits.as_bytes().first()? {
        b'-' => (true, &digits[1..]),
        b'+' => (false, &digits[1..]),
        _ => (false, digits),
    };
    let signed = unsigned.len() != digits.len();
    let (radix, magnitude) = match unsigned.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &unsigned[2..]),
        [b'0', b'o' | b'O', ..] => (8, &unsigned[2..]),
        [b'0', b'b' | b'B', ..] => (2, &unsigned[2..]),
        [b'0', _, ..] => (8, &unsigned[1..]),
        _ => (10, unsigned),
    };
    let magnitude = magnitude_in(magnitude, radix)?;
    if negative {
        0i64.checked_sub_unsigned(magnitude).map(Number::Int)
    } else {
        // Go reads a uint64 only without a sign.
        i64::try_from(magnitude)
            .map(Number::Int)
            .ok()
            .or_else(|| (!signed).then_some(Number::UInt(magnitude)))
    }
}

/// Digits alone: Rust would take a sign here, too.
fn magnitude_in(digits: &str, radix: u32) -> Option<u64> {
    if digits.starts_with(['+', '-']) {
        return None;
    }
    u64::from_str_radix(digits, radix).ok()
}

/// What go-yaml reads after `0b` (and v3 after `0o`) when Go did not: digits with a sign of their own.
fn prefixed(digits: &str, table: ScalarTable) -> Option<Number> {
    let (rest, radix) = if let Some(rest) = digits.strip_prefix("0b") {
        (rest, 2)
    } else if let Some(rest) = digits.strip_prefix("0o") {
        (rest, 8)
    } else {
        return None;
    };
    if radix == 8 && table == ScalarTable::V2 {
        return None;
    }
    i64::from_str_radix(rest, radix).ok().map(Number::Int)
}

/// `[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?`
fn is_yaml_float(text: &str) -> bool {
    let rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match rest.find(['e', 'E']) {
        Some(at) => (&rest[..at], Some(&rest[at + 1..])),
        None => (rest, None),
    };
    let all_digits = |s: &str| s.bytes().all(|b| b.is_ascii_digit());
    let mantissa_fits = match mantissa.split_once('.') {
        Some(("", fraction)) => !fraction.is_empty() && all_digits(fraction),
        Some((whole, fraction)) => all_digits(whole) && all_digits(fraction),
        None => !mantissa.is_empty() && all_digits(mantissa),
    };
    let exponent_fits = exponent.is_none_or(|exponent| {
        let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        !digits.is_empty() && all_digits(digits)
    });
    mantissa_fits && exponent_fits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_can_be_typed_by_itself() {
        for (text, value) in [
            ("yes", Value::from("yes")),
            ("true", Value::from(true)),
            ("8080", Value::from(8080)),
            ("", Value::Null),
            ("2001-01-01", Value::from("2001-01-01T00:00:00Z")),
            (".inf", Value::from(".inf")),
        ] {
            assert_eq!(resolve_plain(text, ScalarTable::V3), value, "{text}");
        }
    }

    #[test]
    fn integers_are_read_as_go_reads_them() {
        let cases: &[(&str, Option<Number>)] = &[
            ("0", Some(Number::Int(0))),
            ("-0", Some(Number::Int(0))),
            ("007", Some(Number::Int(7))),
            ("0777", Some(Number::Int(511))),
            ("0o17", Some(Number::Int(15))),
            ("0O17", Some(Number::Int(15))),
            ("-0x10", Some(Number::Int(-16))),
            ("+0b11", Some(Number::Int(3))),
            ("1__0", Some(Number::Int(10))),
            ("0b-1", Some(Number::Int(-1))),
            ("9223372036854775808", Some(Number::UInt(9_223_372_036_854_775_808))),
            ("+9223372036854775808", Some(Number::Float(9_223_372_036_854_775_808.0))),
            ("-9223372036854775808", Some(Number::Int(i64::MIN))),
            ("08", Some(Number::Float(8.0))),
            ("1_0.5_0", Some(Number::Float(10.5))),
            ("1e400", None),
            ("0x", None),
            ("+", None),
            ("-", None),
            ("1e", None),
            ("1:30", None),
            ("0x1p3", None),
            ("--1", None),
            ("0x-1", None),
        ];
        for (text, wanted) in cases {
            let wanted = wanted.map_or(Typed::Text, Typed::Number);
            assert_eq!(plain(text, ScalarTable::V3), wanted, "{text}");
        }
        assert_eq!(plain("0o-7", ScalarTable::V3), Typed::Number(Number::Int(-7)));
        assert_eq!(plain("0o-7", ScalarTable::V2), Typed::Text);
    }

    #[test]
    fn only_v2_knows_the_booleans_of_yaml_1_1() {
        for (text, v3, v2) in [
            ("yes", Typed::Text, Typed::Bool(true)),
            ("N", Typed::Text, Typed::Bool(false)),
            ("On", Typed::Text, Typed::Bool(true)),
            ("oN", Typed::Text, Typed::Text),
            ("TRUE", Typed::Bool(true), Typed::Bool(true)),
            ("tRUE", Typed::Text, Typed::Text),
            ("~", Typed::Null, Typed::Null),
            ("nULL", Typed::Text, Typed::Text),
        ] {
            assert_eq!(plain(text, ScalarTable::V3), v3, "{text}");
            assert_eq!(plain(text, ScalarTable::V2), v2, "{text}");
        }
    }

    #[test]
    fn what_went_through_json_has_no_integral_floats() {
        for (float, number) in [
            (1.0, Number::Int(1)),
            (-3e3, Number::Int(-3000)),
            (1e18, Number::Int(1_000_000_000_000_000_000)),
            (1e19, Number::Float(1e19)),
            (0.5, Number::Float(0.5)),
        ] {
            assert_eq!(through_json(float), number);
        }
    }
}
