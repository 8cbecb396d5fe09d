//! What string, bytes and number tokens mean.

use kiln_value::Str;

use crate::Span;
use crate::error::Issue;

/// The text of a string token.
pub(super) fn string(token: &str, span: Span) -> Result<Str, Issue> {
    let (body, raw) = body(token);
    if raw || !body.contains('\\') {
        return Ok(Str::new(body));
    }
    let mut text = String::with_capacity(body.len());
    unescape(body, span, |piece, problem| match piece {
        Piece::Char(c) | Piece::Unicode(c) => {
            text.push(c);
            Ok(())
        }
        // In strings `\377` and `\xff` name code points, in bytes they name bytes.
        Piece::Code(code) => match char::from_u32(code) {
            Some(c) => {
                text.push(c);
                Ok(())
            }
            None => Err(problem("invalid unicode code point")),
        },
    })?;
    Ok(Str::from(text))
}

/// The bytes of a bytes token.
pub(super) fn bytes(token: &str, span: Span) -> Result<Vec<u8>, Issue> {
    let (body, raw) = body(&token[1..]);
    if raw || !body.contains('\\') {
        return Ok(body.as_bytes().to_vec());
    }
    let mut bytes = Vec::with_capacity(body.len());
    unescape(body, span, |piece, problem| match piece {
        Piece::Char(c) => {
            bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            Ok(())
        }
        Piece::Code(code) => match u8::try_from(code) {
            Ok(byte) => {
                bytes.push(byte);
                Ok(())
            }
            Err(_) => Err(problem("invalid escape sequence")),
        },
        Piece::Unicode(_) => Err(problem("unicode escapes are not allowed in bytes literals")),
    })?;
    Ok(bytes)
}

/// The inside of the quotes, and whether it is raw.
fn body(token: &str) -> (&str, bool) {
    let (token, raw) = match token.strip_prefix(['r', 'R']) {
        Some(rest) => (rest, true),
        None => (token, false),
    };
    let triple = token.starts_with("\"\"\"") || token.starts_with("'''");
    let width = if triple { 3 } else { 1 };
    (&token[width..token.len() - width], raw)
}

enum Piece {
    /// A character that stands for itself, or a named escape.
    Char(char),
    /// An octal or hexadecimal escape.
    Code(u32),
    /// A unicode escape.
    Unicode(char),
}

fn unescape(
    body: &str,
    span: Span,
    mut take: impl FnMut(Piece, &dyn Fn(&str) -> Issue) -> Result<(), Issue>,
) -> Result<(), Issue> {
    let problem = |message: &str| Issue::new(format!("Syntax error: {message}"), span);
    let mut rest = body.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            take(Piece::Char(c), &problem)?;
            continue;
        }
        let escape = rest.next().ok_or_else(|| problem("unterminated escape sequence"))?;
        let digits = |rest: &mut std::str::Chars<'_>, count: usize, radix: u32, first: u32| {
            let mut code = first;
            for _ in 0..count {
                let digit = rest.next().and_then(|c| c.to_digit(radix));
                code = code * radix + digit.ok_or_else(|| problem("invalid escape sequence"))?;
            }
            Ok(code)
        };
        let piece = match escape {
            'a' => Piece::Char('\x07'),
            'b' => Piece::Char('\x08'),
            'f' => Piece::Char('\x0c'),
            'n' => Piece::Char('\n'),
            'r' => Piece::Char('\r'),
            't' => Piece::Char('\t'),
            'v' => Piece::Char('\x0b'),
            '\\' | '?' | '"' | '\'' | '`' => Piece::Char(escape),
            'x' | 'X' => Piece::Code(digits(&mut rest, 2, 16, 0)?),
            'u' | 'U' => {
                let code = digits(&mut rest, if escape == 'u' { 4 } else { 8 }, 16, 0)?;
                let c = char::from_u32(code);
                Piece::Unicode(c.ok_or_else(|| problem("invalid unicode code point"))?)
            }
            '0'..='3' => Piece::Code(digits(&mut rest, 2, 8, u32::from(escape) - u32::from('0'))?),
            _ => return Err(problem("invalid escape sequence")),
        };
        take(piece, &problem)?;
    }
    Ok(())
}

/// The value of an integer token, with the sign in front of it.
pub(super) fn int(token: &str, negative: bool) -> Option<i64> {
    let (digits, radix) = radix(token);
    let size = u64::from_str_radix(digits, radix).ok()?;
    if negative { 0i64.checked_sub_unsigned(size) } else { i64::try_from(size).ok() }
}

/// The value of an unsigned token.
pub(super) fn uint(token: &str) -> Option<u64> {
    let (digits, radix) = radix(token.trim_end_matches(['u', 'U']));
    u64::from_str_radix(digits, radix).ok()
}

fn radix(token: &str) -> (&str, u32) {
    token.strip_prefix("0x").map_or((token, 10), |digits| (digits, 16))
}
