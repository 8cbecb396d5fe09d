//! Floats as Go prints them.

use std::fmt::Write;

/// Appends a float as `sigs.k8s.io/yaml` prints it: first as JSON, where integral floats are
/// integers, then as go-yaml v2 prints what it reads there.
pub(crate) fn write(out: &mut String, float: f64) {
    if float.is_nan() {
        out.push_str(".nan");
    } else if float.is_infinite() {
        out.push_str(if float > 0.0 { ".inf" } else { "-.inf" });
    } else if float == 0.0 {
        out.push('0');
    } else if float.fract() == 0.0 && float.abs() < 1e20 {
        // JSON prints the shortest digits padded with zeros; beyond 64 bits that is no integer.
        let start = out.len();
        let _ = write!(out, "{float}");
        let digits = &out[start..];
        if digits.parse::<i64>().is_err() && digits.parse::<u64>().is_err() {
            out.truncate(start);
            write_shortest(out, &format!("{float:e}"));
        }
    } else {
        write_shortest(out, &format!("{float:e}"));
    }
}

/// A float as the text of a map key, for which `sigs.k8s.io/yaml` rounds to 32 bits.
pub(crate) fn key_text(float: f64) -> String {
    let single = float as f32;
    if single.is_nan() {
        ".nan".to_owned()
    } else if single.is_infinite() {
        if single > 0.0 { ".inf" } else { "-.inf" }.to_owned()
    } else {
        let mut text = String::new();
        write_shortest(&mut text, &format!("{single:e}"));
        text
    }
}

/// Go's `%g` with the fewest digits that identify the float: an exponent below -4 and from 6 on.
fn write_shortest(out: &mut String, scientific: &str) {
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if !(-4..6).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        let _ = write!(out, "{mantissa}e{sign}{:02}", exponent.abs());
        return;
    }
    let (sign, digits) = match mantissa.strip_prefix('-') {
        Some(digits) => ("-", digits.replace('.', "")),
        None => ("", mantissa.replace('.', "")),
    };
    out.push_str(sign);
    let point = exponent + 1;
    if point <= 0 {
        out.push_str("0.");
        out.extend(std::iter::repeat_n('0', point.unsigned_abs() as usize));
        out.push_str(&digits);
        return;
    }
    let point = point.unsigned_abs() as usize;
    if digits.len() <= point {
        out.push_str(&digits);
        out.extend(std::iter::repeat_n('0', point - digits.len()));
    } else {
        out.push_str(&digits[..point]);
        out.push('.');
        out.push_str(&digits[point..]);
    }
}
