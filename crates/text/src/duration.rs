//! Go durations: `1h30m`, `1.5s`, `-2µs`.
//!
//! A [`Duration`] is a signed number of nanoseconds in 64 bits, read, printed and rounded as Go's
//! `time.Duration`. There are no days. Arithmetic is checked.

use std::fmt;

use crate::quote::go_time_quote;

/// A signed span of time in nanoseconds, about 292 years either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(i64);

/// Why a text is not a duration; the texts are Go's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseDurationError {
    /// No number where one is needed, or more than 292 years.
    #[error("time: invalid duration {0}")]
    Invalid(String),
    /// A number without a unit.
    #[error("time: missing unit in duration {0}")]
    MissingUnit(String),
    /// A unit that Go does not know, such as `d`.
    #[error("time: unknown unit {unit} in duration {text}")]
    UnknownUnit {
        /// The unit, quoted.
        unit: String,
        /// The whole text, quoted.
        text: String,
    },
}

pub const NANOSECOND: Duration = Duration(1);
pub const MICROSECOND: Duration = Duration(1_000);
pub const MILLISECOND: Duration = Duration(1_000_000);
pub const SECOND: Duration = Duration(1_000_000_000);
pub const MINUTE: Duration = Duration(60 * SECOND.0);
pub const HOUR: Duration = Duration(60 * MINUTE.0);

impl Duration {
    /// No time at all.
    pub const ZERO: Duration = Duration(0);
    /// The longest span.
    pub const MAX: Duration = Duration(i64::MAX);
    /// The longest span backwards.
    pub const MIN: Duration = Duration(i64::MIN);

    /// A number of nanoseconds.
    pub const fn from_nanos(nanos: i64) -> Self {
        Duration(nanos)
    }

    /// A number of seconds; `None` beyond about 292 years.
    pub fn from_secs(seconds: i64) -> Option<Self> {
        seconds.checked_mul(SECOND.0).map(Duration)
    }

    /// A number of seconds cut off at nanoseconds; `None` when it does not fit.
    pub fn from_secs_f64(seconds: f64) -> Option<Self> {
        let nanos = seconds * SECOND.0 as f64;
        // 2^63 itself is beyond the range, -2^63 is within.
        let limit = 9_223_372_036_854_775_808.0;
        (nanos >= -limit && nanos < limit).then_some(Duration(nanos as i64))
    }

    /// The number of nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The number of seconds as Go's `Seconds` computes it.
    pub fn as_secs_f64(self) -> f64 {
        (self.0 / SECOND.0) as f64 + (self.0 % SECOND.0) as f64 / 1e9
    }

    /// The sum, if it fits.
    pub fn checked_add(self, other: Duration) -> Option<Duration> {
        self.0.checked_add(other.0).map(Duration)
    }

    /// The difference, if it fits.
    pub fn checked_sub(self, other: Duration) -> Option<Duration> {
        self.0.checked_sub(other.0).map(Duration)
    }

    /// The opposite, if it fits.
    pub fn checked_neg(self) -> Option<Duration> {
        self.0.checked_neg().map(Duration)
    }

    /// The product, if it fits.
    pub fn checked_mul(self, factor: i64) -> Option<Duration> {
        self.0.checked_mul(factor).map(Duration)
    }

    /// The remainder, with the sign of `self`; `None` for a zero divisor.
    pub fn checked_rem(self, divisor: Duration) -> Option<Duration> {
        match divisor.0 {
            0 => None,
            divisor => Some(Duration(self.0.checked_rem(divisor).unwrap_or(0))),
        }
    }

    /// The span rounded toward zero to a multiple of `unit`; unchanged unless `unit` is positive.
    pub fn truncate(self, unit: Duration) -> Duration {
        if unit.0 <= 0 { self } else { Duration(self.0 - self.0 % unit.0) }
    }

    /// Reads a duration as Go's `time.ParseDuration`.
    ///
    /// # Errors
    /// With Go's texts: no number, no unit or an unknown one, or out of range.
    pub fn parse(text: &str) -> Result<Self, ParseDurationError> {
        let quoted = || go_time_quote(text.as_bytes());
        let invalid = || ParseDurationError::Invalid(quoted());
        let negative = text.starts_with('-');
        let mut rest = text.strip_prefix(['+', '-']).unwrap_or(text);
        if rest == "0" {
            return Ok(Duration(0));
        }
        if rest.is_empty() {
            return Err(invalid());
        }
        let mut total: u64 = 0;
        while !rest.is_empty() {
            let number = Decimal::read(&mut rest).ok_or_else(invalid)?;
            let end = rest.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(rest.len());
            let (unit, after) = rest.split_at(end);
            rest = after;
            let unit = match unit {
                "" => return Err(ParseDurationError::MissingUnit(quoted())),
                "ns" => NANOSECOND,
                // Both the micro sign and the Greek letter.
                "us" | "µs" | "μs" => MICROSECOND,
                "ms" => MILLISECOND,
                "s" => SECOND,
                "m" => MINUTE,
                "h" => HOUR,
                _ => {
                    let unit = go_time_quote(unit.as_bytes());
                    return Err(ParseDurationError::UnknownUnit { unit, text: quoted() });
                }
            };
            let part = number.times(unit.0.unsigned_abs()).ok_or_else(invalid)?;
            total =
                total.checked_add(part).filter(|&total| total <= 1 << 63).ok_or_else(invalid)?;
        }
        let nanos =
            if negative { 0_i64.checked_sub_unsigned(total) } else { total.try_into().ok() };
        nanos.map(Duration).ok_or_else(invalid)
    }
}

/// A decimal number in a duration: the part before the point, and `fraction / scale`.
struct Decimal {
    whole: u64,
    fraction: u64,
    scale: f64,
}

impl Decimal {
    /// Takes a number off the front; `None` when there is none or it is too large.
    fn read(rest: &mut &str) -> Option<Decimal> {
        let digits = |rest: &mut &str| {
            let end = rest.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(rest.len());
            let (digits, after) = rest.split_at(end);
            *rest = after;
            digits.to_owned()
        };
        let before = digits(rest);
        let whole = match before.as_str() {
            "" => 0,
            digits => digits.parse().ok().filter(|&whole: &u64| whole <= 1 << 63)?,
        };
        let mut number = Decimal { whole, fraction: 0, scale: 1.0 };
        let mut after = String::new();
        if let Some(behind) = rest.strip_prefix('.') {
            *rest = behind;
            after = digits(rest);
            for digit in after.bytes() {
                // Go: digits that would overflow are dropped, not an error.
                let Some(next) = number
                    .fraction
                    .checked_mul(10)
                    .and_then(|tens| tens.checked_add(u64::from(digit - b'0')))
                    .filter(|&next| next <= i64::MAX.unsigned_abs())
                else {
                    break;
                };
                number.fraction = next;
                number.scale *= 10.0;
            }
        }
        (!before.is_empty() || !after.is_empty()).then_some(number)
    }

    fn times(&self, unit: u64) -> Option<u64> {
        let whole = self.whole.checked_mul(unit).filter(|&nanos| nanos <= 1 << 63)?;
        // Go computes the fraction in floats.
        let fraction = (self.fraction as f64 * (unit as f64 / self.scale)) as u64;
        let nanos = if self.fraction > 0 { whole.checked_add(fraction)? } else { whole };
        (nanos <= 1 << 63).then_some(nanos)
    }
}

impl fmt::Display for Duration {
    /// Prints as Go: `1h30m0s`, `1.5s`, `100ms`, `0s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let below_a_second = [(1_000_000, "ms", 6), (1_000, "µs", 3), (1, "ns", 0)];
        match nanos {
            0 => f.write_str("0s"),
            1..1_000_000_000 => {
                let (size, unit, places) = below_a_second
                    .into_iter()
                    .find(|(size, ..)| nanos >= *size)
                    .unwrap_or((1, "ns", 0));
                write!(f, "{}{}{unit}", nanos / size, Fraction(nanos % size, places))
            }
            _ => {
                let seconds = nanos / 1_000_000_000;
                if seconds >= 3600 {
                    write!(f, "{}h", seconds / 3600)?;
                }
                if seconds >= 60 {
                    write!(f, "{}m", seconds / 60 % 60)?;
                }
                write!(f, "{}{}s", seconds % 60, Fraction(nanos % 1_000_000_000, 9))
            }
        }
    }
}

/// Decimal places without trailing zeros, and without the point when nothing is left.
struct Fraction(u64, usize);

impl fmt::Display for Fraction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0 == 0 {
            return Ok(());
        }
        let digits = format!("{:0width$}", self.0, width = self.1);
        write!(f, ".{}", digits.trim_end_matches('0'))
    }
}

impl std::str::FromStr for Duration {
    type Err = ParseDurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Duration::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_gos() {
        for (text, error) in [
            ("", r#"time: invalid duration """#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            ("1", r#"time: missing unit in duration "1""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("1h\"", r#"time: unknown unit "h\"" in duration "1h\"""#),
            ("99999999999999999999s", r#"time: invalid duration "99999999999999999999s""#),
        ] {
            assert_eq!(Duration::parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn arithmetic_is_checked() {
        assert_eq!(Duration::MAX.checked_add(NANOSECOND), None);
        assert_eq!(Duration::MIN.checked_neg(), None);
        assert_eq!(Duration::MIN.checked_rem(Duration::from_nanos(-1)), Some(Duration::ZERO));
        assert_eq!(SECOND.checked_rem(Duration::ZERO), None);
        assert_eq!(Duration::from_secs(i64::MAX), None);
        assert_eq!(Duration::from_secs_f64(f64::NAN), None);
        assert_eq!(Duration::from_secs_f64(1e10), None);
        assert_eq!(Duration::from_secs_f64(-1.5), Some(Duration::from_nanos(-1_500_000_000)));
        assert_eq!(Duration::from_nanos(-1_999).truncate(MICROSECOND).as_nanos(), -1_000);
        assert_eq!(MINUTE.as_secs_f64(), 60.0);
    }

    #[test]
    fn a_long_input_is_read_once() {
        let long = "1h".repeat(500_000);
        assert_eq!(Duration::parse(&long).unwrap().to_string(), "500000h0m0s");
        assert!(Duration::parse(&"9".repeat(1_000_000)).is_err());
        let fraction = format!("0.{}s", "3".repeat(1_000_000));
        assert_eq!(Duration::parse(&fraction).unwrap().to_string(), "333.333333ms");
    }
}
