//! Floats as Go's `strconv` reads them and its `fmt` prints them.

/// Reads a float as Go's `ParseFloat`: decimal or hexadecimal, underscores between digits, `Inf` and
/// `NaN` in any case. `None` for anything else, also for what is too large for a float.
pub fn parse(text: &str) -> Option<f64> {
    let (negative, unsigned) = match text.as_bytes().first()? {
        b'-' => (true, &text[1..]),
        b'+' => (false, &text[1..]),
        _ => (false, text),
    };
    let signed = unsigned.len() < text.len();
    let sign = |value: f64| if negative { -value } else { value };
    if ["inf", "infinity"].iter().any(|name| unsigned.eq_ignore_ascii_case(name)) {
        return Some(sign(f64::INFINITY));
    }
    if unsigned.eq_ignore_ascii_case("nan") {
        return (!signed).then_some(f64::NAN);
    }
    let hex = unsigned.len() > 1 && unsigned.as_bytes()[..2].eq_ignore_ascii_case(b"0x");
    let plain = without_underscores(unsigned, hex)?;
    let value = if hex {
        parse_hex(&plain[2..])?
    } else {
        // Rust also reads its own spellings of infinity, and signs, here.
        let decimal = |b: u8| b.is_ascii_digit() || matches!(b, b'.' | b'e' | b'E' | b'+' | b'-');
        let begins = plain.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        (begins && plain.bytes().all(decimal)).then(|| plain.parse().ok())??
    };
    f64::is_finite(value).then(|| sign(value))
}

/// The text without underscores, if each of them lies between two digits (or behind `0x`).
fn without_underscores(text: &str, hex: bool) -> Option<String> {
    let digit = |b: u8| if hex { b.is_ascii_hexdigit() } else { b.is_ascii_digit() };
    let bytes = text.as_bytes();
    for (at, _) in text.match_indices('_') {
        let before = at.checked_sub(1).is_some_and(|b| digit(bytes[b]) || (hex && b == 1));
        let after = bytes.get(at + 1).is_some_and(|b| digit(*b));
        if !before || !after {
            return None;
        }
    }
    Some(text.replace('_', ""))
}

/// Hexadecimal digits, maybe with a point, and an exponent to the base of two.
fn parse_hex(text: &str) -> Option<f64> {
    let (mantissa, exponent) = text.split_once(['p', 'P'])?;
    let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    // An exponent that does not fit is as good as any that is far out of range.
    let far = if exponent.starts_with('-') { -100_000 } else { 100_000 };
    let mut power: i64 = exponent.parse::<i64>().unwrap_or(far).clamp(-100_000, 100_000);
    let (mut value, mut seen, mut point, mut lost) = (0_u64, false, false, false);
    for byte in mantissa.bytes() {
        if byte == b'.' && !point {
            point = true;
            continue;
        }
        let digit = u64::from(char::from(byte).to_digit(16)?);
        seen = true;
        if value >> 58 == 0 {
            value = value << 4 | digit;
            power -= if point { 4 } else { 0 };
        } else {
            lost |= digit != 0;
            power += if point { 0 } else { 4 };
        }
    }
    // The lowest bit stands for everything that was cut off, so that rounding comes out right.
    let rounded = (value | u64::from(lost)) as f64;
    seen.then(|| scale(rounded, power))
}

/// A float times a power of two.
fn scale(mut value: f64, mut power: i64) -> f64 {
    while power > 0 && value.is_finite() && value != 0.0 {
        let step = power.min(1000);
        value *= 2_f64.powi(step as i32);
        power -= step;
    }
    while power < 0 && value != 0.0 {
        let step = (-power).min(1000);
        value /= 2_f64.powi(step as i32);
        power += step;
    }
    value
}

/// Prints a float as Go's `%v` and `%g` do: the shortest digits that read back, with an exponent below
/// 1e-4 and from a million on.
pub fn print(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf".into() } else { "-Inf".into() };
    }
    let scientific = format!("{value:e}");
    match scientific.split_once('e').map(|(digits, exponent)| (digits, exponent.parse::<i32>())) {
        Some((digits, Ok(exponent))) if !(-4..6).contains(&exponent) => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{digits}e{sign}{:02}", exponent.abs())
        }
        _ => format!("{value}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(parse(text), Some(value), "{text}");
        }
        assert!(parse("nAn").is_some_and(f64::is_nan));
    }

    #[test]
    fn refuses_what_go_refuses() {
        for text in [
            "", "+", "-", ".", "e5", "1e", " 5", "5 ", "0x10", "0xp1", "0x1p", "1e999", "0x1p9999",
            "+nan", "1__0", "_1", "1_", "1_.0", "1e1_", "--1", "+-1", "infinit", "1f", "०",
        ] {
            assert_eq!(parse(text), None, "{text}");
        }
    }

    #[test]
    fn prints_as_go_prints() {
        for (value, text) in [
            (1e6, "1e+06"),
            (999_999.0, "999999"),
            (123_456_789.0, "1.23456789e+08"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1.5, "1.5"),
            (0.0, "0"),
            (-5.0, "-5"),
            (1e21, "1e+21"),
        ] {
            assert_eq!(print(value), text);
        }
    }
}
