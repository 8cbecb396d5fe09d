//! Floats as Go prints and reads them (`strconv.FormatFloat`, `fmt`'s `%v`, `strconv.ParseFloat`).

/// How a float is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// `-d.dddde±dd`
    Exponent,
    /// `-ddd.dddd`
    Fixed,
    /// With an exponent where that is large, else without.
    General,
}

/// Decimal places beyond this one are left out; a float has no more than 1074 of them.
pub const MAX_PRECISION: usize = 1100;

/// Prints with so many decimal places (for [`Style::General`]: digits), or as few as say it exactly.
pub fn format(value: f64, style: Style, precision: Option<usize>) -> String {
    special(value).unwrap_or_else(|| {
        let digits = match precision {
            None => Digits::shortest(value),
            Some(places) => Digits::rounded(value, style, places.min(MAX_PRECISION)),
        };
        digits.print(value.is_sign_negative(), style, precision.map(|p| p.min(MAX_PRECISION)))
    })
}

/// Prints a 32-bit float with as few digits as say it exactly.
pub fn format_f32(value: f32, style: Style) -> String {
    special(f64::from(value)).unwrap_or_else(|| {
        let shortest = Digits::of(&format!("{value:e}"));
        let even = format!("{value:.places$e}", places = shortest.digits.len() - 1);
        let same = even.parse() == Ok(value);
        let digits = if same { Digits::of(&even) } else { shortest };
        digits.print(value.is_sign_negative(), style, None)
    })
}

/// Prints as Go's `%v`: `5`, `0.1`, `1e+06`, `NaN`, `+Inf`.
pub fn print(value: f64) -> String {
    format(value, Style::General, None)
}

fn special(value: f64) -> Option<String> {
    match value {
        _ if value.is_nan() => Some("NaN".to_owned()),
        f64::INFINITY => Some("+Inf".to_owned()),
        f64::NEG_INFINITY => Some("-Inf".to_owned()),
        _ => None,
    }
}

/// Decimal digits without a sign; the point is behind the first, moved by the exponent.
struct Digits {
    digits: String,
    exponent: i32,
}

impl Digits {
    /// From Rust's own exponent form.
    fn of(text: &str) -> Self {
        let (mantissa, exponent) = text.split_once('e').unwrap_or((text, "0"));
        let digits = mantissa.chars().filter(char::is_ascii_digit).collect();
        Digits { digits, exponent: exponent.parse().unwrap_or(0) }
    }

    /// As few digits as read back to the value; of two such texts at equal distance the even one.
    fn shortest(value: f64) -> Self {
        let shortest = Digits::of(&format!("{value:e}"));
        let even = format!("{value:.places$e}", places = shortest.digits.len() - 1);
        if even.parse() == Ok(value) { Digits::of(&even) } else { shortest }
    }

    fn rounded(value: f64, style: Style, places: usize) -> Self {
        match style {
            Style::Exponent => Digits::of(&format!("{value:.places$e}")),
            Style::General => Digits::of(&format!("{value:.digits$e}", digits = places.max(1) - 1)),
            Style::Fixed => {
                let text = format!("{:.places$}", value.abs());
                let whole = text.split('.').next().map_or(0, str::len);
                let digits = text.replace('.', "");
                Digits { digits, exponent: i32::try_from(whole).unwrap_or(0) - 1 }
            }
        }
    }

    fn print(mut self, negative: bool, style: Style, precision: Option<usize>) -> String {
        let sign = if negative { "-" } else { "" };
        match style {
            Style::Exponent => format!("{sign}{}", self.with_exponent()),
            Style::Fixed => format!("{sign}{}", self.without_exponent(precision)),
            Style::General => {
                let significant = self.digits.trim_end_matches('0').len().max(1);
                self.digits.truncate(significant);
                // Go: the shortest form has an exponent from the seventh digit on.
                let limit = i32::try_from(precision.map_or(6, |digits| digits.max(1)));
                if self.exponent < -4 || self.exponent >= limit.unwrap_or(i32::MAX) {
                    format!("{sign}{}", self.with_exponent())
                } else {
                    format!("{sign}{}", self.without_exponent(None))
                }
            }
        }
    }

    fn with_exponent(&self) -> String {
        let (first, rest) = self.digits.split_at(1.min(self.digits.len()));
        let point = if rest.is_empty() { "" } else { "." };
        let sign = if self.exponent < 0 { '-' } else { '+' };
        format!("{first}{point}{rest}e{sign}{:02}", self.exponent.abs())
    }

    /// With so many decimal places, or as many as there are digits for.
    fn without_exponent(&self, places: Option<usize>) -> String {
        let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
        let length = i32::try_from(self.digits.len()).unwrap_or(i32::MAX);
        let padded = format!(
            "{}{}{}",
            zeros(-self.exponent),
            self.digits,
            zeros(self.exponent + 1 - length)
        );
        let point = usize::try_from(self.exponent.max(0) + 1).unwrap_or(1).min(padded.len());
        let (whole, fraction) = padded.split_at(point);
        let places = places.unwrap_or(fraction.len());
        match places {
            0 => whole.to_owned(),
            _ => format!("{whole}.{fraction:0<places$}"),
        }
    }
}

/// Reads a float as Go's `ParseFloat`: decimal or hexadecimal, underscores between digits, `Inf` and
/// `NaN` in any case. `None` for anything else, also for what is too large for a float.
pub fn parse(text: &str) -> Option<f64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let lower = unsigned.to_ascii_lowercase();
    let value = match lower.as_str() {
        "inf" | "infinity" => f64::INFINITY,
        // Go: not-a-number has no sign.
        "nan" => return (unsigned.len() == text.len()).then_some(f64::NAN),
        number => parse_number(number).filter(|value| value.is_finite())?,
    };
    Some(if text.starts_with('-') { -value } else { value })
}

/// Reads a number in lower case without a sign.
fn parse_number(text: &str) -> Option<f64> {
    if text.contains('_') && !underscores_separate_digits(text) {
        return None;
    }
    let plain = text.replace('_', "");
    if let Some(hexadecimal) = plain.strip_prefix("0x") {
        return parse_hexadecimal(hexadecimal);
    }
    // Rust also reads its own spellings of infinity, and signs, here.
    let decimal = |byte: u8| matches!(byte, b'0'..=b'9' | b'.' | b'e' | b'+' | b'-');
    let begins = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    (begins && plain.bytes().all(decimal)).then(|| plain.parse().ok())?
}

/// Whether every underscore stands between digits, or between `0x` and a digit.
fn underscores_separate_digits(text: &str) -> bool {
    let (hexadecimal, digits) = match text.strip_prefix("0x") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let is_digit = |byte: u8| byte.is_ascii_digit() || (hexadecimal && byte.is_ascii_hexdigit());
    let bytes = digits.as_bytes();
    bytes.iter().enumerate().filter(|(_, byte)| **byte == b'_').all(|(at, _)| {
        let before = match at.checked_sub(1) {
            Some(before) => is_digit(bytes[before]),
            None => hexadecimal,
        };
        before && bytes.get(at + 1).is_some_and(|&after| is_digit(after))
    })
}

/// Reads `h.hhhp±d`; the exponent is required.
fn parse_hexadecimal(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once('p')?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    // Exponents beyond all floats are as good as these.
    let size: i64 = digits.parse().unwrap_or(i64::MAX).min(1 << 40);
    let mut exponent = if exponent.starts_with('-') { -size } else { size };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let mut bits = 0_u64;
    let mut lost = false;
    for (digit, in_fraction) in
        whole.chars().map(|c| (c, false)).chain(fraction.chars().map(|c| (c, true)))
    {
        let digit = u64::from(digit.to_digit(16)?);
        if in_fraction {
            exponent -= 4;
        }
        if bits >> 58 == 0 {
            bits = bits << 4 | digit;
        } else {
            exponent += 4;
            lost |= digit != 0;
        }
    }
    Some(scale(bits << 1 | u64::from(lost), exponent - 1))
}

/// The float nearest to `bits` times two to the power of `exponent`, half to even.
fn scale(bits: u64, exponent: i64) -> f64 {
    if bits == 0 {
        return 0.0;
    }
    // The exponent of the highest bit decides how many bits the float keeps.
    let top = exponent + 63 - i64::from(bits.leading_zeros());
    if top > 1023 {
        return f64::INFINITY;
    }
    let lowest = (top - 52).max(-1074);
    let dropped = lowest - exponent;
    let kept = match u32::try_from(dropped) {
        Err(_) | Ok(0) => bits,
        Ok(64..) => return if dropped == 64 && bits > 1 << 63 { f64::from_bits(1) } else { 0.0 },
        Ok(dropped) => {
            let rest = bits & ((1 << dropped) - 1);
            let half = 1_u64 << (dropped - 1);
            let kept = bits >> dropped;
            kept + u64::from(rest > half || (rest == half && kept & 1 == 1))
        }
    };
    let exponent = if dropped > 0 { lowest } else { exponent };
    // Two exact steps, because two to the power of -1074 alone is hard to write.
    let half = i32::try_from(exponent / 2).unwrap_or(0);
    let other = i32::try_from(exponent - exponent / 2).unwrap_or(0);
    kept as f64 * 2_f64.powi(half) * 2_f64.powi(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_go() {
        use Style::{Exponent, Fixed, General};
        for (value, style, precision, text) in [
            (0.0, General, None, "0"),
            (-0.0, General, None, "-0"),
            (100_000.0, General, None, "100000"),
            (1_000_000.0, General, None, "1e+06"),
            (1_234_567.8, General, None, "1.2345678e+06"),
            (0.0001, General, None, "0.0001"),
            (0.00001, General, None, "1e-05"),
            (5.5, Exponent, None, "5.5e+00"),
            (0.0, Exponent, None, "0e+00"),
            (1e100, Exponent, None, "1e+100"),
            (1e21, Fixed, None, "1000000000000000000000"),
            (0.000_001, Fixed, None, "0.000001"),
            (123.456, Fixed, Some(2), "123.46"),
            (0.5, Fixed, Some(0), "0"),
            (2.5, Fixed, Some(0), "2"),
            (99.99, Fixed, Some(1), "100.0"),
            (0.04, Fixed, Some(1), "0.0"),
            (5.0, Fixed, Some(6), "5.000000"),
            (123_456.0, General, Some(3), "1.23e+05"),
            (100.0, General, Some(3), "100"),
            (0.5, General, Some(0), "0.5"),
            (999.9, Exponent, Some(1), "1.0e+03"),
            (f64::NAN, Fixed, None, "NaN"),
            (f64::NEG_INFINITY, General, None, "-Inf"),
        ] {
            assert_eq!(format(value, style, precision), text, "{value} {style:?} {precision:?}");
        }
        assert_eq!(format_f32(16_777_217.0_f64 as f32, Style::Fixed), "16777216");
        assert_eq!(format_f32(0.1, Style::Fixed), "0.1");
        assert!(format(1.0, Style::Fixed, Some(usize::MAX)).len() < 2 * MAX_PRECISION);
    }

    #[test]
    fn reads_what_go_reads() {
        for (text, value) in [
            ("5", 5.0),
            ("+5", 5.0),
            ("-.5", -0.5),
            ("1.", 1.0),
            ("1e3", 1000.0),
            ("1E-2", 0.01),
            ("1_000", 1000.0),
            ("5_0.0", 50.0),
            ("0x1p4", 16.0),
            ("0X_1.8P1", 3.0),
            ("0x1p-1074", 5e-324),
            ("0x123456789abcdef01p0", 20_988_295_479_420_645_000.0),
            ("Inf", f64::INFINITY),
            ("-infinity", f64::NEG_INFINITY),
            ("1e-999", 0.0),
            ("0x1p-1075", 0.0),
            ("0x1.8p-1075", 5e-324),
            ("0x1.00000000000008p0", 1.0),
            ("0x1.000000000000081p0", 1.000_000_000_000_000_2),
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        assert!(parse("nAn").is_some_and(f64::is_nan));
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "",
            "+",
            "-",
            ".",
            "e5",
            "1e",
            " 5",
            "5 ",
            "0x10",
            "0xp1",
            "0x1p",
            "1e999",
            "0x1p9999",
            "0x1.fffffffffffff8p1023",
            "+nan",
            "1__0",
            "_1",
            "1_",
            "1_.0",
            "1e1_",
            "--1",
            "+-1",
            "infinit",
            "1f",
            "०",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
