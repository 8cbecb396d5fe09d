//! Reading quantities.
//!
//! The original has a quick way for amounts that fit a scaled `i64` and a slow one for the rest.
//! They differ in what they keep (the text, the decimal places), so both are here.

use smol_str::SmolStr;

use super::{Quantity, QuantityFormat};

/// Why a text is not a quantity; the texts are those of Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseQuantityError {
    /// A character that has no place in a quantity, or no text at all.
    #[error(
        "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
    )]
    Format,
    /// The number is missing.
    #[error("unable to parse numeric part of quantity")]
    Number,
    /// A suffix that is none: `1K`, `1ki`, `1e`.
    #[error("unable to parse quantity's suffix")]
    Suffix,
    /// More than 38 significant digits.
    #[error("quantity out of range: more than 38 significant digits")]
    OutOfRange,
}

/// The smallest unit, as a power of ten.
pub(super) const NANO: i32 = -9;
/// How many decimal digits surely fit `i64`.
const I64_DIGITS: i64 = 18;

pub(super) fn parse(text: &str) -> Result<Quantity, ParseQuantityError> {
    if text.is_empty() {
        return Err(ParseQuantityError::Format);
    }
    let parts = Parts::split(text)?;
    let unit = Unit::parse(parts.suffix).ok_or(ParseQuantityError::Suffix)?;
    match quick(text, &parts, unit) {
        Some(quantity) => Ok(quantity),
        None if parts.has_digits => slow(&parts, unit),
        None => Err(ParseQuantityError::Number),
    }
}

struct Parts<'a> {
    negative: bool,
    /// Before the point, without leading zeros; `0` if nothing is left.
    whole: &'a str,
    /// After the point.
    fraction: &'a str,
    suffix: &'a str,
    /// Whether there was any digit at all, also a leading zero.
    has_digits: bool,
}

impl<'a> Parts<'a> {
    fn split(text: &'a str) -> Result<Self, ParseQuantityError> {
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let (all_whole, rest) = digits(unsigned);
        let (fraction, suffix) = match rest.strip_prefix('.') {
            Some(after) => digits(after),
            None => ("", rest),
        };
        let whole = all_whole.trim_start_matches('0');
        let exponent = suffix.trim_start_matches(|c| "eEinumkKMGTP".contains(c));
        let exponent = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        if !digits(exponent).1.is_empty() {
            return Err(ParseQuantityError::Format);
        }
        Ok(Parts {
            negative: text.starts_with('-'),
            whole: if whole.is_empty() { "0" } else { whole },
            fraction,
            suffix,
            has_digits: !(all_whole.is_empty() && fraction.is_empty()),
        })
    }
}

/// Splits after the leading decimal digits.
fn digits(text: &str) -> (&str, &str) {
    let end = text.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    text.split_at(end)
}

#[derive(Clone, Copy)]
enum Unit {
    /// A power of 1024.
    Binary(u32),
    /// A power of ten.
    Decimal(i32, QuantityFormat),
}

impl Unit {
    fn parse(suffix: &str) -> Option<Unit> {
        let decimal = |exponent| Some(Unit::Decimal(exponent, QuantityFormat::DecimalSI));
        match suffix {
            "n" => decimal(-9),
            "u" => decimal(-6),
            "m" => decimal(-3),
            "" => decimal(0),
            "k" => decimal(3),
            "M" => decimal(6),
            "G" => decimal(9),
            "T" => decimal(12),
            "P" => decimal(15),
            "E" => decimal(18),
            "Ki" => Some(Unit::Binary(1)),
            "Mi" => Some(Unit::Binary(2)),
            "Gi" => Some(Unit::Binary(3)),
            "Ti" => Some(Unit::Binary(4)),
            "Pi" => Some(Unit::Binary(5)),
            "Ei" => Some(Unit::Binary(6)),
            // Kubernetes wraps exponents beyond 32 bits around; they are refused here.
            _ => suffix
                .strip_prefix(['e', 'E'])
                .and_then(|exponent| exponent.parse().ok())
                .map(|exponent| Unit::Decimal(exponent, QuantityFormat::DecimalExponent)),
        }
    }
}

/// The quick way, where the original takes it.
fn quick(text: &str, parts: &Parts<'_>, unit: Unit) -> Option<Quantity> {
    let length = |part: &str| i64::try_from(part.len()).unwrap_or(i64::MAX);
    let (whole, fraction) = (length(parts.whole), length(parts.fraction));
    let (precision, factor, exponent, format) = match unit {
        Unit::Decimal(exponent, format) => {
            let precision = I64_DIGITS.saturating_sub(whole.saturating_add(fraction));
            (precision, 1, i64::from(exponent).saturating_sub(fraction), format)
        }
        // 1Ki has three decimal digits, 1Mi six, and so on.
        Unit::Binary(power) if parts.fraction.is_empty() => (
            14_i64.saturating_sub(whole) - i64::from(power) * 3,
            1_i64 << (10 * power),
            0,
            QuantityFormat::BinarySI,
        ),
        Unit::Binary(_) => return None,
    };
    let exponent = i32::try_from(exponent).ok().filter(|&exponent| exponent >= NANO)?;
    if precision < 0 {
        return None;
    }
    let digits = format!("{}{}", parts.whole, parts.fraction);
    let value: i64 = digits.parse().ok()?;
    let signed = value.checked_mul(factor)? * if parts.negative { -1 } else { 1 };
    // The original keeps a text that looks canonical, so `+1`, `007` and `1.` print as given.
    let keeps_text = match unit {
        Unit::Binary(_) => value & 7 != 0,
        Unit::Decimal(..) => {
            exponent % 3 == 0 && !digits.ends_with("000") && !digits.starts_with('0')
        }
    };
    Some(Quantity {
        digits: i128::from(signed),
        exponent,
        format,
        small: true,
        text: keeps_text.then(|| SmolStr::new(text)),
    })
}

/// The slow way: any number of digits, brought to nanos.
fn slow(parts: &Parts<'_>, unit: Unit) -> Result<Quantity, ParseQuantityError> {
    let out_of_range = ParseQuantityError::OutOfRange;
    let mut digits: Vec<u8> =
        parts.whole.bytes().chain(parts.fraction.bytes()).map(|digit| digit - b'0').collect();
    let mut exponent = -i64::try_from(parts.fraction.len()).map_err(|_| out_of_range)?;
    let mut format = QuantityFormat::BinarySI;
    match unit {
        Unit::Binary(power) => (0..power).for_each(|_| multiply_by_1024(&mut digits)),
        Unit::Decimal(unit_exponent, unit_format) => {
            exponent += i64::from(unit_exponent);
            format = unit_format;
        }
    }
    let zero = digits.iter().all(|&digit| digit == 0);
    // A nonzero amount never rounds to nothing: a request for some gets some.
    let (mut amount, mut exponent) = if zero {
        (Some(0), exponent)
    } else {
        round_up_to_nano(&mut digits, &mut exponent);
        (to_number(&digits), exponent)
    };
    if format == QuantityFormat::BinarySI {
        let max = i128::from(i64::MAX);
        let places = u32::try_from(-exponent).ok().and_then(|places| 10_i128.checked_pow(places));
        let limit = places.map_or(i128::MAX, |unit| unit.saturating_mul(max));
        // Kubernetes: amounts with a binary suffix are capped, others are not.
        if amount.is_none_or(|amount| amount > limit) {
            (amount, exponent) = (Some(max), 0);
        }
        let one = places.unwrap_or(i128::MAX);
        if amount.is_some_and(|amount| amount > 0 && amount < one) {
            format = QuantityFormat::DecimalSI;
        }
    } else if amount.is_none() {
        while digits.last() == Some(&0) {
            digits.pop();
            exponent += 1;
        }
        amount = to_number(&digits);
    }
    let mut amount = amount.ok_or(out_of_range)?;
    let mut exponent = i32::try_from(exponent).map_err(|_| out_of_range)?;
    // The original counts nanos from here on, which shows in later divisions.
    let capped = format == QuantityFormat::BinarySI && amount == i128::from(i64::MAX);
    if exponent > NANO && !zero && !capped {
        let power = 10_i128.checked_pow(exponent.abs_diff(NANO));
        if let Some(nanos) = power.and_then(|power| amount.checked_mul(power)) {
            (amount, exponent) = (nanos, NANO);
        }
    }
    let digits = if parts.negative { -amount } else { amount };
    Ok(Quantity { digits, exponent, format, small: false, text: None })
}

/// Multiplies decimal digits in place.
fn multiply_by_1024(digits: &mut Vec<u8>) {
    let mut carry = 0_u32;
    for digit in digits.iter_mut().rev() {
        let product = u32::from(*digit) * 1024 + carry;
        *digit = (product % 10) as u8;
        carry = product / 10;
    }
    let mut front = Vec::new();
    while carry > 0 {
        front.insert(0, (carry % 10) as u8);
        carry /= 10;
    }
    digits.splice(0..0, front);
}

/// Drops what is below a nano, rounding away from zero.
fn round_up_to_nano(digits: &mut Vec<u8>, exponent: &mut i64) {
    let surplus = i64::from(NANO).saturating_sub(*exponent);
    let Ok(surplus) = usize::try_from(surplus) else { return };
    if surplus == 0 {
        return;
    }
    let kept = digits.len().saturating_sub(surplus);
    let inexact = digits[kept..].iter().any(|&digit| digit != 0);
    digits.truncate(kept);
    *exponent = i64::from(NANO);
    if inexact {
        for digit in digits.iter_mut().rev() {
            if *digit < 9 {
                *digit += 1;
                return;
            }
            *digit = 0;
        }
        digits.insert(0, 1);
    }
}

/// The number, if it has at most 38 digits.
fn to_number(digits: &[u8]) -> Option<i128> {
    let start = digits.iter().position(|&digit| digit != 0).unwrap_or(digits.len());
    let significant = &digits[start..];
    (significant.len() <= 38)
        .then(|| significant.iter().fold(0, |number, &digit| number * 10 + i128::from(digit)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_those_of_kubernetes() {
        use ParseQuantityError::{Format, Number, OutOfRange, Suffix};
        for (text, error) in [
            ("", Format),
            (" 1", Format),
            ("1h", Format),
            ("1e1Ki", Format),
            ("1,5", Format),
            ("1K", Suffix),
            ("1ki", Suffix),
            ("1e", Suffix),
            ("1e99999999999", Suffix),
            ("1-", Suffix),
            ("e-10", Number),
            ("Ei", Number),
            ("1234567890123456789012345678901234567890", OutOfRange),
        ] {
            assert_eq!(Quantity::parse(text).unwrap_err(), error, "{text}");
        }
    }

    #[test]
    fn a_missing_number_is_zero_on_the_quick_way() {
        for text in [".", "+", "-", "k", "Ki", "e3", ".m"] {
            assert!(Quantity::parse(text).unwrap().is_zero(), "{text}");
        }
    }

    #[test]
    fn long_inputs_are_exact_and_cheap() {
        let ones = "1".repeat(1_000_000);
        assert_eq!(Quantity::parse(&ones), Err(ParseQuantityError::OutOfRange));
        assert_eq!(
            Quantity::parse(&format!("{ones}Ei")).unwrap().to_string(),
            i64::MAX.to_string()
        );
        assert_eq!(Quantity::parse(&format!("0.{ones}")).unwrap().to_string(), "111111112n");
        let zeros = "0".repeat(1_000_000);
        assert_eq!(Quantity::parse(&format!("0.{zeros}1")).unwrap().to_string(), "1n");
        assert_eq!(Quantity::parse("1e-2000000000").unwrap().to_string(), "1e-9");
        assert_eq!(Quantity::parse("1e2000000000").unwrap().to_string(), "100e1999999998");
    }
}
