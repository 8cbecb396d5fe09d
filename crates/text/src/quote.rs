//! Go's quoted strings: `strconv.Quote`, `QuoteToASCII` and `Unquote`.

use std::fmt::Write as _;

/// Why a text is not a Go string literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid syntax")]
pub struct UnquoteError;

/// Quotes as Go's `%q`: escapes quotes, backslashes and what cannot be printed.
pub fn quote(text: &str) -> String {
    quote_with(text, |c| c != '\u{FEFF}' && is_print(c))
}

/// Quotes as Go's `%+q`: also escapes everything that is not ASCII.
pub fn quote_to_ascii(text: &str) -> String {
    quote_with(text, |c| c.is_ascii() && is_print(c))
}

fn quote_with(text: &str, plain: impl Fn(char) -> bool) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if plain(c) => out.push(c),
            '\x07' => out.push_str("\\a"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x0b' => out.push_str("\\v"),
            c => {
                let _ = match u32::from(c) {
                    code @ (..0x20 | 0x7F) => write!(out, "\\x{code:02x}"),
                    code @ ..0x1_0000 => write!(out, "\\u{code:04x}"),
                    code => write!(out, "\\U{code:08x}"),
                };
            }
        }
    }
    out.push('"');
    out
}

/// Whether Go prints the character: letters, marks, numbers, punctuation, symbols and the space.
fn is_print(c: char) -> bool {
    match c {
        ' '..='~' => true,
        // Rust's own escaping keeps what Unicode calls printable, but treats marks at the start of a
        // text as extenders; after a letter they count as what they are.
        _ if c.is_ascii() => false,
        '\u{AD}' => false,
        _ if c.is_whitespace() => false,
        _ => !c.escape_debug().to_string().starts_with("\\u{") || is_mark(c),
    }
}

/// Whether the character is escaped by Rust only because it joins the one before it.
fn is_mark(c: char) -> bool {
    let mut text = String::from("a");
    text.push(c);
    !text.escape_debug().to_string().contains("\\u{")
}

/// Reads a Go string literal in double quotes, back quotes, or single quotes (one character).
///
/// # Errors
/// On anything that Go's `strconv.Unquote` refuses, and on escapes that make bytes which are not
/// UTF-8.
pub fn unquote(text: &str) -> Result<String, UnquoteError> {
    let mut inside = text.chars();
    let (Some(quote), Some(last)) = (inside.next(), inside.next_back()) else {
        return Err(UnquoteError);
    };
    if quote != last {
        return Err(UnquoteError);
    }
    let inside = inside.as_str();
    match quote {
        '`' if inside.contains('`') => Err(UnquoteError),
        // Go: carriage returns vanish from raw strings.
        '`' => Ok(inside.replace('\r', "")),
        '"' | '\'' => {
            let mut out = Vec::with_capacity(inside.len());
            let mut rest = inside.chars();
            let mut count = 0;
            while !rest.as_str().is_empty() {
                unquote_char(&mut rest, quote, &mut out)?;
                count += 1;
            }
            // Go: nothing between single quotes is taken for one character.
            if quote == '\'' && count > 1 {
                return Err(UnquoteError);
            }
            String::from_utf8(out).map_err(|_| UnquoteError)
        }
        _ => Err(UnquoteError),
    }
}

fn unquote_char(
    rest: &mut std::str::Chars<'_>,
    quote: char,
    out: &mut Vec<u8>,
) -> Result<(), UnquoteError> {
    let mut push = |c: char| out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
    match rest.next().ok_or(UnquoteError)? {
        '\n' => return Err(UnquoteError),
        c if c == quote => return Err(UnquoteError),
        '\\' => {}
        c => {
            push(c);
            return Ok(());
        }
    }
    match rest.next().ok_or(UnquoteError)? {
        'a' => push('\x07'),
        'b' => push('\x08'),
        'f' => push('\x0c'),
        'n' => push('\n'),
        'r' => push('\r'),
        't' => push('\t'),
        'v' => push('\x0b'),
        '\\' => push('\\'),
        c @ ('"' | '\'') if c == quote => push(c),
        'x' => {
            let code = number(rest, 2, 16)?;
            out.push(u8::try_from(code).map_err(|_| UnquoteError)?);
        }
        'u' => push(char::from_u32(number(rest, 4, 16)?).ok_or(UnquoteError)?),
        'U' => push(char::from_u32(number(rest, 8, 16)?).ok_or(UnquoteError)?),
        c @ '0'..='7' => {
            let code = c.to_digit(8).unwrap_or(0) * 64 + number(rest, 2, 8)?;
            out.push(u8::try_from(code).map_err(|_| UnquoteError)?);
        }
        _ => return Err(UnquoteError),
    }
    Ok(())
}

fn number(rest: &mut std::str::Chars<'_>, digits: usize, radix: u32) -> Result<u32, UnquoteError> {
    (0..digits).try_fold(0_u32, |number, _| {
        let digit = rest.next().and_then(|c| c.to_digit(radix)).ok_or(UnquoteError)?;
        Ok(number.wrapping_mul(radix) | digit)
    })
}

/// Quotes as the errors of Go's `time` package do: bytes beyond ASCII in hexadecimal.
pub(crate) fn go_time_quote(text: &[u8]) -> String {
    let mut out = String::from("\"");
    for &byte in text {
        match byte {
            b'"' | b'\\' => out.extend(['\\', char::from(byte)]),
            b' '..=0x7F => out.push(char::from(byte)),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_as_go() {
        for (text, quoted, ascii) in [
            ("", r#""""#, r#""""#),
            ("a\"b\\", r#""a\"b\\""#, r#""a\"b\\""#),
            ("\n\t\x07\x00\x7f", r#""\n\t\a\x00\x7f""#, r#""\n\t\a\x00\x7f""#),
            ("é☺", "\"é☺\"", r#""\u00e9\u263a""#),
            ("\u{1F600}", "\"\u{1F600}\"", r#""\U0001f600""#),
            ("\u{A0}\u{2028}\u{FEFF}", r#""\u00a0\u2028\ufeff""#, r#""\u00a0\u2028\ufeff""#),
            ("e\u{301}", "\"e\u{301}\"", r#""e\u0301""#),
            ("'", r#""'""#, r#""'""#),
            ("\u{85}", r#""\u0085""#, r#""\u0085""#),
        ] {
            assert_eq!(quote(text), quoted);
            assert_eq!(quote_to_ascii(text), ascii);
            assert_eq!(unquote(&quote(text)).as_deref(), Ok(text));
            assert_eq!(unquote(&quote_to_ascii(text)).as_deref(), Ok(text));
        }
    }

    #[test]
    fn unquotes_as_go() {
        for (literal, text) in [
            (r#""\x41\101\u0041""#, Some("AAA")),
            (r#""\xc3\xa9""#, Some("é")),
            (r#""\xff""#, None),
            (r#""\'""#, None),
            (r"'\''", Some("'")),
            ("'ab'", None),
            ("''", Some("")),
            ("`a\\n\r`", Some("a\\n")),
            ("`a`b`", None),
            (r#""\ud800""#, None),
            (r#""\400""#, None),
            (r#""\U99999999""#, None),
            (r#""a"#, None),
            ("\"a\nb\"", None),
            ("\"", None),
            ("a", None),
        ] {
            assert_eq!(unquote(literal).ok().as_deref(), text, "{literal}");
        }
    }
}
