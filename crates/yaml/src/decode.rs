//! From bytes to text: byte order marks, UTF-16, what is no text at all, and the size limit.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Place, Source};

use crate::options::Limits;

/// The source of these bytes. go-yaml reads UTF-8 and, behind a byte order mark, UTF-16.
///
/// # Errors
/// When there are too many bytes or they are no text.
pub(crate) fn source(name: &str, bytes: &[u8], limits: &Limits) -> Result<Arc<Source>, Diagnostic> {
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

/// Checks a source that is text already.
pub(crate) fn check_size(source: &Source, limits: &Limits) -> Result<(), Diagnostic> {
    match source.text().len() {
        size if size > limits.bytes => Err(too_large(source.name(), size, limits)),
        _ => Ok(()),
    }
}

fn too_large(name: &str, size: usize, limits: &Limits) -> Diagnostic {
    // The text is not kept, so the place is the beginning of the file.
    let place = Place::new(Arc::new(Source::new(name, "")), 0..0);
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
    let place = Place::new(Arc::new(Source::new(name, before)), end..end);
    Diagnostic::error(problem).at(place).hint("save the file as UTF-8")
}
