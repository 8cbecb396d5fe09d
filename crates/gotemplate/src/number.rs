//! Number literals: one text that may stand for an integer, a float or a complex number.

use kiln_text::float;
use kiln_value::Str;

/// A literal, with every form that it has.
#[derive(Clone, Debug)]
pub(crate) struct Number {
    pub(crate) text: Str,
    pub(crate) int: Option<i64>,
    pub(crate) uint: Option<u64>,
    pub(crate) float: Option<f64>,
    pub(crate) complex: Option<(f64, f64)>,
}

impl Number {
    /// Reads a number.
    pub(crate) fn parse(text: &str) -> Result<Number, String> {
        let mut number =
            Number { text: Str::new(text), int: None, uint: None, float: None, complex: None };
        if let Some(imaginary) = text.strip_suffix('i').and_then(float::parse) {
            number.set_complex(0.0, imaginary);
            return Ok(number);
        }
        number.uint = parse_uint(text);
        number.int = parse_int(text);
        if number.int == Some(0) {
            number.uint = Some(0);
        }
        if let Some(int) = number.int {
            number.float = Some(int as f64);
        } else if let Some(uint) = number.uint {
            number.float = Some(uint as f64);
        } else if let Some(value) = float::parse(text) {
            if !text.contains(['.', 'e', 'E', 'p', 'P']) {
                return Err(format!("integer overflow: {}", kiln_text::quote::quote(text)));
            }
            number.float = Some(value);
            number.set_integers(value);
        } else {
            return Err(format!("illegal number syntax: {}", kiln_text::quote::quote(text)));
        }
        Ok(number)
    }

    /// Reads a pair such as `1+2i`.
    pub(crate) fn parse_complex(text: &str) -> Result<Number, String> {
        let illegal = || format!("illegal number syntax: {}", kiln_text::quote::quote(text));
        let body = text.strip_suffix('i').ok_or_else(illegal)?;
        let is_exponent = |at: usize| matches!(body.as_bytes()[at - 1], b'e' | b'E' | b'p' | b'P');
        let sign = body
            .char_indices()
            .rfind(|&(at, c)| at > 0 && matches!(c, '+' | '-') && !is_exponent(at))
            .map(|(at, _)| at)
            .ok_or_else(illegal)?;
        let real = float::parse(&body[..sign]).ok_or_else(illegal)?;
        let imaginary = float::parse(&body[sign..]).ok_or_else(illegal)?;
        let mut number =
            Number { text: Str::new(text), int: None, uint: None, float: None, complex: None };
        number.set_complex(real, imaginary);
        Ok(number)
    }

    /// A character constant such as `'a'`.
    pub(crate) fn character(literal: &str) -> Result<Number, String> {
        let Some(c) = only_character(literal) else {
            let inside = literal.get(1..literal.len().saturating_sub(1)).unwrap_or_default();
            let mut starts = inside.char_indices().take(10).map(|(end, _)| &inside[..end]);
            // Go reads one character and then looks for the quote.
            return Err(
                match starts.any(|start| only_character(&format!("'{start}'")).is_some()) {
                    true => format!("malformed character constant: {literal}"),
                    false => "invalid syntax".to_owned(),
                },
            );
        };
        let code = u32::from(c);
        Ok(Number {
            text: Str::new(literal),
            int: Some(i64::from(code)),
            uint: Some(u64::from(code)),
            float: Some(f64::from(code)),
            complex: None,
        })
    }

    fn set_complex(&mut self, real: f64, imaginary: f64) {
        self.complex = Some((real, imaginary));
        if imaginary == 0.0 {
            self.float = Some(real);
            self.set_integers(real);
        }
    }

    fn set_integers(&mut self, value: f64) {
        if value as i64 as f64 == value && value.abs() < 9.3e18 {
            self.int = Some(value as i64);
        }
        if value >= 0.0 && value as u64 as f64 == value && value < 1.85e19 {
            self.uint = Some(value as u64);
        }
    }

    /// Whether the text can only be a float: it has a point or an exponent and is not a hexadecimal integer or character.
    pub(crate) fn looks_like_float(&self) -> bool {
        let text = self.text.as_str();
        let hexadecimal = text.len() > 2
            && text.starts_with('0')
            && matches!(text.as_bytes()[1], b'x' | b'X')
            && !text.contains(['p', 'P']);
        !hexadecimal && !text.starts_with('\'') && text.contains(['.', 'e', 'E', 'p', 'P'])
    }
}

/// The character of a literal that has just one.
fn only_character(literal: &str) -> Option<char> {
    let inside = literal.strip_prefix("'\\").and_then(|rest| rest.strip_suffix('\''));
    let byte = inside.and_then(|code| match code.as_bytes() {
        [b'x', high, low] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
            u8::from_str_radix(&code[1..], 16).ok()
        }
        [b'0'..=b'3', b'0'..=b'7', b'0'..=b'7'] => u8::from_str_radix(code, 8).ok(),
        _ => None,
    });
    if let Some(byte) = byte {
        return Some(char::from(byte));
    }
    let text = kiln_text::quote::unquote(literal).ok()?;
    let mut chars = text.chars();
    chars.next().filter(|_| chars.next().is_none())
}

/// Go's `ParseInt` with base 0: prefixes, and underscores between digits.
pub(crate) fn parse_int(text: &str) -> Option<i64> {
    let (negative, digits) = match text.strip_prefix(['+', '-']) {
        Some(digits) => (text.starts_with('-'), digits),
        None => (false, text),
    };
    let size = i128::from(parse_uint(digits)?);
    i64::try_from(if negative { -size } else { size }).ok()
}

/// Go's `ParseUint` with base 0.
pub(crate) fn parse_uint(text: &str) -> Option<u64> {
    let lower = text.to_ascii_lowercase();
    let (radix, digits) = match lower.as_bytes() {
        [b'0', b'x', ..] => (16, &lower[2..]),
        [b'0', b'o', ..] => (8, &lower[2..]),
        [b'0', b'b', ..] => (2, &lower[2..]),
        [b'0', _, ..] => (8, &lower[1..]),
        _ => (10, lower.as_str()),
    };
    let prefixed = radix != 10;
    if digits.contains('_') {
        let bytes = digits.as_bytes();
        let fine = (0..bytes.len()).filter(|&at| bytes[at] == b'_').all(|at| {
            (at > 0 && bytes[at - 1] != b'_' || at == 0 && prefixed)
                && bytes.get(at + 1).is_some_and(|&next| next != b'_')
        });
        if !fine {
            return None;
        }
    }
    let plain = digits.replace('_', "");
    if plain.is_empty() || !plain.chars().all(|c| c.is_digit(radix)) {
        return None;
    }
    u64::from_str_radix(&plain, radix).ok()
}
