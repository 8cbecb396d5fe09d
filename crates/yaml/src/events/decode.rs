//! From bytes to text: byte order marks, UTF-16, what is not text at all, and the size limit.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source, SourceLocation};

use crate::options::YamlLimits;

/// The source of these bytes. go-yaml reads UTF-8 and, behind a byte order mark, UTF-16.
///
/// # Errors
/// When there are too many bytes or they are not text.
pub(crate) fn source(
    name: &str,
    bytes: &[u8],
    limits: &YamlLimits,
) -> Result<Arc<Source>, Diagnostic> {
    if bytes.len() > limits.bytes {
        return Err(too_large(name, bytes.len(), limits));
    }
    let text = match bytes {
        [0xff, 0xfe, rest @ ..] => utf16(name, rest, u16::from_le_bytes)?.into(),
        [0xfe, 0xff, rest @ ..] => utf16(name, rest, u16::from_be_bytes)?.into(),
        [0xef, 0xbb, 0xbf, rest @ ..] | rest => utf8(name, rest)?,
    };
    Ok(Arc::new(Source::new(name, text)))
}

/// Checks the size and the characters of a source.
///
/// # Errors
/// When it is too large, or at the first control character that YAML does not allow, not even in
/// quotes or comments.
pub(crate) fn check(source: &Arc<Source>, limits: &YamlLimits) -> Result<(), Diagnostic> {
    let text = source.text();
    if text.len() > limits.bytes {
        return Err(too_large(source.name(), text.len(), limits));
    }
    match first_forbidden(text) {
        None => Ok(()),
        Some((at, c)) => {
            let place = SourceLocation::new(Arc::clone(source), at..at + c.len_utf8());
            let problem = format!("the control character U+{:04X} is not allowed", c as u32);
            let escape = match c as u32 {
                code @ ..=0xff => format!("\\x{code:02X}"),
                code => format!("\\u{code:04X}"),
            };
            let hint = format!("in double quotes it can be written as an escape: \"{escape}\"");
            Err(Diagnostic::error(problem).at(place).hint(hint))
        }
    }
}

fn first_forbidden(text: &str) -> Option<(usize, char)> {
    // Whole pieces at a time, which compilers turn into wide instructions.
    const PIECE: usize = 64;
    let suspicious = |b: u8| b >= 0x7f || b < b' ' && !matches!(b, b'\t' | b'\n' | b'\r');
    let mut checked = 0;
    for piece in text.as_bytes().chunks(PIECE) {
        let end = checked + piece.len();
        if piece.iter().fold(false, |found, b| found | suspicious(*b)) {
            let from = text.floor_char_boundary(checked);
            let found = text[from..text.ceil_char_boundary(end)]
                .char_indices()
                .find(|(_, c)| is_forbidden(*c));
            if let Some((at, c)) = found {
                return Some((from + at, c));
            }
        }
        checked = end;
    }
    None
}

fn is_forbidden(c: char) -> bool {
    !matches!(c,
        '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..)
}

fn too_large(name: &str, size: usize, limits: &YamlLimits) -> Diagnostic {
    // The text is not kept, so the place is the beginning of the file.
    let place = SourceLocation::new(Arc::new(Source::new(name, "")), 0..0);
    Diagnostic::error(format!("the input has {size} bytes, and {} is the most", limits.bytes))
        .at(place)
        .hint("raise the limit with --max-input-size")
}

fn utf8(name: &str, bytes: &[u8]) -> Result<Arc<str>, Diagnostic> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Ok(text.into()),
        Err(error) => {
            let (valid, rest) = bytes.split_at(error.valid_up_to());
            let problem = match error.error_len() {
                Some(_) => format!("the byte 0x{:02X} is not UTF-8", rest[0]),
                None => "the text ends in the middle of a UTF-8 character".to_owned(),
            };
            Err(not_text(name, String::from_utf8_lossy(valid).into_owned(), problem))
        }
    }
}

fn utf16(name: &str, bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, Diagnostic> {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let mut text = String::with_capacity(bytes.len());
    for decoded in char::decode_utf16(pairs.iter().map(|pair| unit(*pair))) {
        match decoded {
            Ok(c) => text.push(c),
            Err(_) => {
                let problem = "half a surrogate pair is not UTF-16".to_owned();
                return Err(not_text(name, text, problem));
            }
        }
    }
    if rest.is_empty() {
        Ok(text)
    } else {
        let problem = "the text ends in the middle of a UTF-16 character".to_owned();
        Err(not_text(name, text, problem))
    }
}

fn not_text(name: &str, before: String, problem: String) -> Diagnostic {
    let end = before.len();
    let place = SourceLocation::new(Arc::new(Source::new(name, before)), end..end);
    Diagnostic::error(problem).at(place).hint("save the file as UTF-8")
}
