//! Floats as `sigs.k8s.io/yaml` prints them.

use std::fmt::Write;

use kiln_text::float::{Style, format_f32, print};
use kiln_value::Number;

/// Appends a float: first it goes through JSON, where integral floats are integers, then go-yaml v2
/// prints what it reads there.
pub(crate) fn write(out: &mut String, float: f64) {
    if float.is_nan() {
        out.push_str(".nan");
    } else if float.is_infinite() {
        out.push_str(if float > 0.0 { ".inf" } else { "-.inf" });
    } else if float == 0.0 {
        out.push('0');
    } else if float.fract() == 0.0 && float.abs() < 1e20 {
        // JSON prints the shortest digits padded with zeros; beyond 64 bits that is not an integer.
        let start = out.len();
        let _ = write!(out, "{}", Number::Float(float));
        let digits = &out[start..];
        if digits.parse::<i64>().is_err() && digits.parse::<u64>().is_err() {
            out.truncate(start);
            out.push_str(&print(float));
        }
    } else {
        out.push_str(&print(float));
    }
}

/// A float as the text of a map key, for which `sigs.k8s.io/yaml` rounds to 32 bits.
pub(crate) fn key_text(float: f64) -> String {
    let single = float as f32;
    if single.is_finite() {
        return format_f32(single, Style::General);
    }
    let mut text = String::new();
    write(&mut text, f64::from(single));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_go_through_json() {
        for (float, wanted) in [
            (-0.0, "0"),
            (1.0, "1"),
            (1e19, "10000000000000000000"),
            (1e20, "1e+20"),
            (18_446_744_073_709_551_616.0, "1.8446744073709552e+19"),
            (-9_223_372_036_854_775_808.0, "-9.223372036854776e+18"),
            (1_234_567.5, "1.2345675e+06"),
            (123_456.5, "123456.5"),
            (0.00001, "1e-05"),
            (f64::INFINITY, ".inf"),
            (f64::NEG_INFINITY, "-.inf"),
            (f64::NAN, ".nan"),
        ] {
            let mut text = String::new();
            write(&mut text, float);
            assert_eq!(text, wanted);
        }
    }

    #[test]
    fn keys_have_32_bits() {
        for (float, wanted) in
            [(1.5, "1.5"), (0.1, "0.1"), (16_777_217.0, "1.6777216e+07"), (1e300, ".inf")]
        {
            assert_eq!(key_text(float), wanted);
        }
    }
}
