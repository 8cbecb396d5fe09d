//! Kubernetes quantities: `500m`, `1.5Gi`, `12e6`.
//!
//! A [`Quantity`] is an exact decimal number with the [`QuantityFormat`] it prints in. It is held as it was
//! written, digits and a power of ten, because the original does so and shows it in a few places:
//! division keeps the decimal places of its operands, and only an amount without a fraction counts
//! as an integer.
//!
//! Amounts have up to 38 significant digits. Whatever needs more is refused ([`OutOfRange`]) and
//! never wraps around; Kubernetes itself promises nothing beyond `i64`.

mod parse;
mod print;

use std::cmp::Ordering;
use std::fmt;

use smol_str::SmolStr;

pub use parse::ParseQuantityError;

/// How a quantity prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuantityFormat {
    /// Powers of 1024: `12Mi`.
    BinarySI,
    /// Powers of 1000: `12M`.
    DecimalSI,
    /// A power of ten: `12e6`.
    DecimalExponent,
}

impl fmt::Display for QuantityFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            QuantityFormat::BinarySI => "BinarySI",
            QuantityFormat::DecimalSI => "DecimalSI",
            QuantityFormat::DecimalExponent => "DecimalExponent",
        })
    }
}

/// A result that needs more than 38 significant digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("quantity out of range: more than 38 significant digits")]
pub struct OutOfRange;

/// An exact amount and the format it prints in. Equality and order are those of the amounts:
/// `1Gi` equals `1024Mi`.
#[derive(Clone, Debug)]
pub struct Quantity {
    /// The amount is `digits` times ten to the power of `exponent`.
    digits: i128,
    exponent: i32,
    format: QuantityFormat,
    /// Whether Kubernetes would hold the amount as a scaled `i64`; decides [`Quantity::as_i64`].
    small: bool,
    /// The text it was read from, where that is what it prints.
    text: Option<SmolStr>,
}

impl Quantity {
    /// Reads a quantity as Kubernetes does.
    ///
    /// # Errors
    /// The errors of the original parser, and one for more than 38 significant digits.
    pub fn parse(text: &str) -> Result<Self, ParseQuantityError> {
        parse::parse(text)
    }

    /// A whole amount.
    pub fn new(value: i64, format: QuantityFormat) -> Self {
        Quantity::from_parts(i128::from(value), 0, format)
    }

    /// `digits` times ten to the power of `exponent`.
    pub fn from_parts(digits: i128, exponent: i32, format: QuantityFormat) -> Self {
        Quantity { digits, exponent, format, small: i64::try_from(digits).is_ok(), text: None }
    }

    /// The format in which it prints.
    pub fn format(&self) -> QuantityFormat {
        self.format
    }

    /// -1, 0 or 1.
    pub fn sign(&self) -> i32 {
        self.digits.signum() as i32
    }

    /// Whether the amount is zero.
    pub fn is_zero(&self) -> bool {
        self.digits == 0
    }

    /// The amount, if it is an integer in the eyes of Kubernetes.
    ///
    /// That depends on the writing: `1` and `1k` are, `1.0` and `1000m` are not, nor is anything that
    /// Kubernetes keeps as a big decimal (`1.5Gi`, `9Ei`).
    pub fn as_i64(&self) -> Option<i64> {
        if !self.small || self.exponent < 0 {
            return None;
        }
        i64::try_from(scale_up(self.digits, self.exponent.cast_unsigned())?).ok()
    }

    /// The amount in units of ten to the power of `scale`, rounded away from zero; `None` when that
    /// does not fit `i64`.
    pub fn scaled_value(&self, scale: i32) -> Option<i64> {
        let shift = i64::from(self.exponent) - i64::from(scale);
        let scaled = match u32::try_from(shift) {
            Ok(up) => scale_up(self.digits, up)?,
            Err(_) => scale_down(self.digits, shift.unsigned_abs()).0,
        };
        i64::try_from(scaled).ok()
    }

    /// The nearest integer, rounded away from zero; `None` when it does not fit `i64`.
    pub fn value(&self) -> Option<i64> {
        self.scaled_value(0)
    }

    /// The float that Kubernetes computes, which need not be the nearest one.
    pub fn as_approximate_f64(&self) -> f64 {
        match self.exponent {
            0 => self.digits as f64,
            exponent => self.digits as f64 * pow10(exponent),
        }
    }

    /// The sum; in the format of `self`, unless that is zero.
    ///
    /// # Errors
    /// When the sum has more than 38 digits.
    pub fn checked_add(&self, other: &Quantity) -> Result<Quantity, OutOfRange> {
        let format = if self.is_zero() { other.format } else { self.format };
        let small = self.small && other.small;
        if other.is_zero() && small {
            return Ok(Quantity { format, small, text: None, ..*self });
        }
        if self.is_zero() && small {
            return Ok(Quantity { format, small, text: None, ..*other });
        }
        let (a, b, exponent) = align(self, other).ok_or(OutOfRange)?;
        let digits = a.checked_add(b).ok_or(OutOfRange)?;
        let fits = [a, b, digits].iter().all(|&part| i64::try_from(part).is_ok());
        Ok(Quantity { digits, exponent, format, small: small && fits, text: None })
    }

    /// The difference; in the format of `self`, unless that is zero.
    ///
    /// # Errors
    /// When the difference has more than 38 digits.
    pub fn checked_sub(&self, other: &Quantity) -> Result<Quantity, OutOfRange> {
        self.checked_add(&other.checked_neg()?)
    }

    /// The amount with the other sign.
    ///
    /// # Errors
    /// When the amount has no counterpart; no parsed amount is that large.
    pub fn checked_neg(&self) -> Result<Quantity, OutOfRange> {
        let digits = self.digits.checked_neg().ok_or(OutOfRange)?;
        Ok(Quantity { digits, text: None, ..*self })
    }

    /// The exact product, in the format of `self`.
    ///
    /// # Errors
    /// When the product has more than 38 digits.
    pub fn checked_mul(&self, factor: &Quantity) -> Result<Quantity, OutOfRange> {
        let product = |(a, a_exponent): (i128, i32), (b, b_exponent): (i128, i32)| {
            Some((a.checked_mul(b)?, a_exponent.checked_add(b_exponent)?))
        };
        let (digits, exponent) =
            product((self.digits, self.exponent), (factor.digits, factor.exponent))
                .or_else(|| product(self.normalized(), factor.normalized()))
                .ok_or(OutOfRange)?;
        Ok(Quantity { digits, exponent, format: self.format, small: false, text: None })
    }

    /// The quotient, in the format of `self`, cut off at the larger number of decimal places of the
    /// two operands; `None` for a zero divisor.
    // Kyverno: `12 / 5` is 2, `12.0 / 5` is 2400m.
    pub fn checked_div(&self, divisor: &Quantity) -> Option<Result<Quantity, OutOfRange>> {
        if divisor.is_zero() {
            return None;
        }
        Some(self.divide(divisor).ok_or(OutOfRange))
    }

    fn divide(&self, divisor: &Quantity) -> Option<Quantity> {
        let exponent = self.exponent.min(divisor.exponent);
        // self / divisor / 10^exponent, as one fraction of integers that are as small as can be.
        let ((over, over_exponent), (under, under_exponent)) =
            (self.normalized(), divisor.normalized());
        let shift = i64::from(over_exponent) - i64::from(under_exponent) - i64::from(exponent);
        let digits = match u32::try_from(shift) {
            Ok(places) => divide_with_places(over, under, places)?,
            Err(_) => match u32::try_from(-shift).ok().and_then(|up| scale_up(under, up)) {
                Some(under) => over.checked_div(under)?,
                // The divisor is beyond all digits of the dividend.
                None => 0,
            },
        };
        Some(Quantity { digits, exponent, format: self.format, small: false, text: None })
    }

    /// Digits without trailing zeros, and the exponent that goes with them.
    fn normalized(&self) -> (i128, i32) {
        let (mut digits, mut exponent) = (self.digits, self.exponent);
        if digits == 0 {
            return (0, 0);
        }
        while digits % 10 == 0 && exponent < i32::MAX {
            digits /= 10;
            exponent += 1;
        }
        (digits, exponent)
    }
}

/// The digits of both at the smaller of their exponents.
fn align(a: &Quantity, b: &Quantity) -> Option<(i128, i128, i32)> {
    let exponent = a.exponent.min(b.exponent);
    let up = |q: &Quantity| scale_up(q.digits, q.exponent.checked_sub(exponent)?.cast_unsigned());
    Some((up(a)?, up(b)?, exponent))
}

/// The quotient times a power of ten, cut off; digit by digit, so that only the result must fit.
fn divide_with_places(over: i128, under: i128, places: u32) -> Option<i128> {
    let mut quotient = over.checked_div(under)?;
    let mut rest = over.checked_rem(under)?;
    for done in 0..places {
        if rest == 0 {
            return scale_up(quotient, places - done);
        }
        rest = rest.checked_mul(10)?;
        quotient = quotient.checked_mul(10)?.checked_add(rest / under)?;
        rest %= under;
    }
    Some(quotient)
}

fn scale_up(digits: i128, places: u32) -> Option<i128> {
    if digits == 0 {
        return Some(0);
    }
    digits.checked_mul(10_i128.checked_pow(places)?)
}

/// Divides by a power of ten, rounding away from zero; also whether nothing was lost.
fn scale_down(digits: i128, places: u64) -> (i128, bool) {
    let power = u32::try_from(places).ok().and_then(|places| 10_i128.checked_pow(places));
    let Some(power) = power else {
        return (digits.signum(), digits == 0);
    };
    let rest = digits % power;
    (digits / power + rest.signum(), rest == 0)
}

/// Ten to the power of `exponent` as Go's `math.Pow10` gives it: from two rounded factors.
fn pow10(exponent: i32) -> f64 {
    let power = |n: i32| format!("1e{n}").parse().unwrap_or(f64::NAN);
    match exponent {
        ..-323 => 0.0,
        -323..0 => power(-(-exponent / 32 * 32)) / power(-exponent % 32),
        0..=308 => power(exponent / 32 * 32) * power(exponent % 32),
        309.. => f64::INFINITY,
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_sign = self.sign().cmp(&other.sign());
        if by_sign.is_ne() || self.is_zero() {
            return by_sign;
        }
        let magnitude = |q: &Quantity| {
            let digits = q.digits.unsigned_abs();
            (digits, i64::from(q.exponent), i64::from(digits.ilog10()) + i64::from(q.exponent))
        };
        let (a, a_exponent, a_magnitude) = magnitude(self);
        let (b, b_exponent, b_magnitude) = magnitude(other);
        let absolute = a_magnitude.cmp(&b_magnitude).then_with(|| {
            // Equal magnitudes: the exponents differ by at most the number of digits.
            let up = |digits: u128, by: i64| {
                let power = u32::try_from(by).ok().and_then(|by| 10_u128.checked_pow(by));
                // Too large for 128 bits is larger than the other one, which fits.
                power.and_then(|power| digits.checked_mul(power)).unwrap_or(u128::MAX)
            };
            up(a, (a_exponent - b_exponent).max(0)).cmp(&up(b, (b_exponent - a_exponent).max(0)))
        });
        if self.digits < 0 { absolute.reverse() } else { absolute }
    }
}

impl std::str::FromStr for Quantity {
    type Err = ParseQuantityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Quantity::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn q(text: &str) -> Quantity {
        Quantity::parse(text).unwrap_or_else(|e| panic!("{text}: {e}"))
    }

    #[test]
    fn sums_keep_the_format_of_the_left_unless_it_is_zero() {
        for (a, b, sum) in [
            ("1Gi", "1G", "2073741824"),
            ("1G", "1Gi", "2073741824"),
            ("0", "1Gi", "1Gi"),
            ("0Ki", "1k", "1k"),
            ("1", "0", "1"),
            ("500m", "500m", "1"),
            ("1e3", "1", "1001"),
            ("9223372036854775807", "1", "9223372036854775808"),
        ] {
            assert_eq!(q(a).checked_add(&q(b)).unwrap().to_string(), sum, "{a} + {b}");
        }
        assert_eq!(q("1").checked_sub(&q("1500m")).unwrap().to_string(), "-500m");
    }

    #[test]
    fn quotients_are_cut_off_at_the_places_of_the_operands() {
        for (a, b, quotient) in [
            ("12", "5", "2"),
            ("12.0", "5", "2400m"),
            ("1.5", "2", "700m"),
            ("1Gi", "3", "357913941"),
            ("1.5Gi", "7", "230087533714285714n"),
            ("12k", "5", "2400"),
            ("12k", "5k", "0"),
            ("-7", "2", "-3"),
            ("-200000000T", "969Pi", "-183318559277n"),
        ] {
            let got = q(a).checked_div(&q(b)).unwrap().unwrap();
            assert_eq!(got.to_string(), quotient, "{a} / {b}");
        }
        assert!(q("1").checked_div(&q("0m")).is_none());
    }

    #[test]
    fn products_are_exact() {
        for (a, b, product) in [
            ("1.5", "1.5", "2250m"),
            ("1Gi", "2", "2Gi"),
            ("3m", "0.001", "3u"),
            ("1n", "0.5", "1n"),
        ] {
            assert_eq!(q(a).checked_mul(&q(b)).unwrap().to_string(), product, "{a} * {b}");
        }
    }

    #[test]
    fn integers_are_what_kubernetes_takes_for_integers() {
        for (text, integer) in [
            ("1", Some(1)),
            ("1k", Some(1000)),
            ("1Gi", Some(1 << 30)),
            ("1.0", None),
            ("1000m", None),
            ("1.5Gi", None),
            ("9223372036854775807", None),
            ("10E", None),
        ] {
            assert_eq!(q(text).as_i64(), integer, "{text}");
        }
        assert_eq!(q("1.1").value(), Some(2));
        assert_eq!(q("-1.1").value(), Some(-2));
        assert_eq!(q("1.1").scaled_value(-3), Some(1100));
        assert_eq!(q("1e30").value(), None);
    }

    #[test]
    fn order_is_exact_at_any_distance() {
        let ascending = [
            "-1e2000000000",
            "-1",
            "-1n",
            "0",
            "1n",
            "999999999n",
            "1",
            "1000000001n",
            "1Ki",
            "1e99",
        ];
        for pair in ascending.windows(2) {
            assert!(q(pair[0]) < q(pair[1]), "{pair:?}");
        }
        assert_eq!(q("1Gi"), q("1024Mi"));
        assert_eq!(q("1e30"), q("1000000000000000000000000000000"));
        assert_eq!(q("0"), q("0e5"));
    }

    #[test]
    fn results_beyond_the_range_are_refused() {
        let huge = q("99999999999999999999999999999999999999");
        assert_eq!(huge.checked_mul(&huge), Err(OutOfRange));
        assert_eq!(huge.checked_add(&q("1n")), Err(OutOfRange));
        assert_eq!(q("1e2000000000").checked_add(&q("1")), Err(OutOfRange));
        assert_eq!(q("1e2000000000").checked_div(&q("1n")), Some(Err(OutOfRange)));
    }

    #[test]
    fn floats_are_those_of_kubernetes() {
        for (text, float) in
            [("1500m", 1.5), ("0.1", 0.1), ("1Ki", 1024.0), ("1e400", f64::INFINITY)]
        {
            assert_eq!(q(text).as_approximate_f64(), float, "{text}");
        }
    }
}
