//! Base64 and digests.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use kiln_value::Value;
use md5::Md5;
use sha1::Sha1;
use sha2::Sha256;
use sha2::digest::Digest;

use super::{Arguments, JmesPathFunction, STRING, function, parameter};
use crate::eval::EvalFault;

pub(super) static FUNCTIONS: &[JmesPathFunction] = &[
    function(
        "base64_decode",
        &[parameter("text", STRING)],
        "string",
        "the text that a base64 text with padding stands for; line breaks are ignored",
        base64_decode,
    ),
    function(
        "base64_encode",
        &[parameter("text", STRING)],
        "string",
        "the text in base64 with padding",
        base64_encode,
    ),
    function(
        "md5",
        &[parameter("text", STRING)],
        "string",
        "the MD5 digest of a text, in hexadecimal",
        digest::<Md5>,
    ),
    function(
        "sha1",
        &[parameter("text", STRING)],
        "string",
        "the SHA-1 digest of a text, in hexadecimal",
        digest::<Sha1>,
    ),
    function(
        "sha256",
        &[parameter("text", STRING)],
        "string",
        "the SHA-256 digest of a text, in hexadecimal",
        digest::<Sha256>,
    ),
];

fn base64_decode(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    // Go: line breaks may stand anywhere.
    let joined: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
    let bytes = STANDARD.decode(joined).map_err(|error| args.fail(error))?;
    args.text(replace_invalid(&bytes))
}

fn base64_encode(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    args.text(STANDARD.encode(text))
}

/// Bytes as text. Go: every single byte that is not UTF-8 becomes U+FFFD.
fn replace_invalid(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|_| char::REPLACEMENT_CHARACTER));
    }
    text
}

fn digest<D: Digest>(args: &Arguments<'_>) -> Result<Value, EvalFault> {
    let text = args.string(0)?;
    let bytes = D::digest(text);
    args.text(bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::replace_invalid;

    #[test]
    fn each_bad_byte_is_replaced_alone() {
        assert_eq!(replace_invalid(b"a\xe2\x82b"), "a\u{fffd}\u{fffd}b");
        assert_eq!(replace_invalid("é✓".as_bytes()), "é✓");
    }
}
