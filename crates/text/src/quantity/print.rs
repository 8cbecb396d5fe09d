//! Printing quantities in canonical form: no fraction, the largest suffix that leaves an integer.

use std::fmt;

use super::parse::NANO;
use super::{Quantity, QuantityFormat, scale_down, scale_up};

/// The largest suffix of the decimal kind, `E`.
const EXA: i32 = 18;
/// How many zeros a decimal suffix may leave; beyond it the exponent form is printed instead.
const MAX_ZEROS: i32 = 400;

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(text) = &self.text {
            return f.write_str(text);
        }
        if self.is_zero() {
            return f.write_str("0");
        }
        match self.format {
            QuantityFormat::BinarySI => match self.binary_integer() {
                Some(integer) => print_binary(integer, f),
                None => self.print_decimal(f),
            },
            QuantityFormat::DecimalSI => self.print_decimal(f),
            QuantityFormat::DecimalExponent => self.print_exponent(f),
        }
    }
}

impl Quantity {
    /// The amount, if it prints with a binary suffix: an integer of at least 1024.
    fn binary_integer(&self) -> Option<i128> {
        let integer = match u32::try_from(self.exponent) {
            Ok(up) => scale_up(self.digits, up)?,
            Err(_) => match scale_down(self.digits, u64::from(self.exponent.unsigned_abs())) {
                (integer, true) => integer,
                (_, false) => return None,
            },
        };
        (integer.unsigned_abs() >= 1024).then_some(integer)
    }

    fn print_decimal(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mut digits, mut exponent) = self.normalized();
        if exponent < NANO {
            // Only products and quotients get here; nothing below a nano has a suffix.
            digits = scale_down(digits, u64::from(exponent.abs_diff(NANO))).0;
            (digits, exponent) = Quantity::from_parts(digits, NANO, self.format).normalized();
        }
        if exponent > EXA + MAX_ZEROS {
            return self.print_exponent(f);
        }
        let thousands = exponent.div_euclid(3).min(EXA / 3);
        let zeros = usize::try_from(exponent - thousands * 3).unwrap_or(0);
        let suffix = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
        let suffix = usize::try_from(thousands + 3).ok().and_then(|i| suffix.get(i)).unwrap_or(&"");
        write!(f, "{digits}{}{suffix}", "0".repeat(zeros))
    }

    fn print_exponent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (digits, exponent) = self.normalized();
        let zeros = "0".repeat(usize::try_from(exponent.rem_euclid(3)).unwrap_or(0));
        write!(f, "{digits}{zeros}")?;
        match i64::from(exponent.div_euclid(3)) * 3 {
            0 => Ok(()),
            exponent => write!(f, "e{exponent}"),
        }
    }
}

fn print_binary(mut integer: i128, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let suffixes = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let mut power = 0;
    while integer % 1024 == 0 && power + 1 < suffixes.len() {
        integer /= 1024;
        power += 1;
    }
    write!(f, "{integer}{}", suffixes[power])
}
