//! Encodings and sums.

pub(crate) mod json;
pub(crate) mod json_syntax;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::BASE32;
use sha1::Digest as _;

use crate::error::Refusal;
use crate::functions::ParameterType::Text;
use crate::functions::{FunctionCall, TemplateFunction, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("adler32sum", &[Text], None, adler32, "the Adler-32 sum"),
    function("b32dec", &[Text], None, b32dec, "what Base32 says"),
    function("b32enc", &[Text], None, b32enc, "as Base32"),
    function("b64dec", &[Text], None, b64dec, "what Base64 says"),
    function("b64enc", &[Text], None, b64enc, "as Base64"),
    function("sha1sum", &[Text], None, sha1sum, "the SHA-1 sum"),
    function("sha256sum", &[Text], None, sha256sum, "the SHA-256 sum"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn charged<'a>(call: &FunctionCall<'_>, a: &'a [Dyn]) -> std::result::Result<&'a [u8], Refusal> {
    let bytes = text(a, 0).as_bytes();
    call.meter.step(bytes.len() as u64 / 64)?;
    call.meter.make(bytes.len() as u64 * 2)?;
    Ok(bytes)
}

fn b64enc(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(STANDARD.encode(charged(call, a)?).into())
}

fn b64dec(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(match base64_decoded(charged(call, a)?) {
        Ok(bytes) => Dyn::bytes(&bytes),
        Err(problem) => problem.into(),
    })
}

fn base64_digit(byte: u8) -> Option<u32> {
    Some(u32::from(match byte {
        b'A'..=b'Z' => byte - b'A',
        b'a'..=b'z' => byte - b'a' + 26,
        b'0'..=b'9' => byte - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => return None,
    }))
}

/// What Base64 says, as Go reads it: skipping new lines and the bits that are left over, strict about `=`.
pub(super) fn base64_decoded(encoded: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let illegal = |at: usize| Err(format!("illegal base64 data at input byte {at}"));
    let after_lines = |from: usize| {
        let skipped = encoded.iter().skip(from).take_while(|byte| matches!(byte, b'\r' | b'\n'));
        from + skipped.count()
    };
    let mut out = Vec::with_capacity(encoded.len() / 4 * 3);
    let (mut bits, mut digits) = (0_u32, 0);
    for (at, byte) in encoded.iter().copied().enumerate() {
        if matches!(byte, b'\r' | b'\n') {
            continue;
        }
        if let Some(digit) = base64_digit(byte) {
            (bits, digits) = (bits << 6 | digit, digits + 1);
            if digits == 4 {
                out.extend_from_slice(&bits.to_be_bytes()[1..]);
                (bits, digits) = (0, 0);
            }
            continue;
        }
        if byte != b'=' || digits < 2 {
            return illegal(at);
        }
        let mut end = after_lines(at + 1);
        if digits == 2 {
            match encoded.get(end) {
                None => return illegal(encoded.len()),
                Some(b'=') => end = after_lines(end + 1),
                Some(_) => return illegal(end - 1),
            }
        }
        if end < encoded.len() {
            return illegal(end);
        }
        bits <<= 6 * (4 - digits);
        out.extend_from_slice(&bits.to_be_bytes()[1..digits]);
        return Ok(out);
    }
    match digits {
        0 => Ok(out),
        _ => illegal(encoded.len() - digits),
    }
}

fn b32enc(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(BASE32.encode(charged(call, a)?).into())
}

fn b32dec(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(match base32_decoded(charged(call, a)?) {
        Ok(bytes) => Dyn::bytes(&bytes),
        Err(problem) => problem.into(),
    })
}

/// What Base32 says, as Go reads it: what follows the last `=` does not matter.
fn base32_decoded(encoded: &[u8]) -> std::result::Result<Vec<u8>, String> {
    let illegal = |at: usize| Err(format!("illegal base32 data at input byte {at}"));
    let in_line = |byte: &u8| !matches!(byte, b'\r' | b'\n');
    let plain: Vec<u8> = encoded.iter().copied().filter(in_line).collect();
    let mut out = Vec::with_capacity(plain.len() / 8 * 5);
    let (mut bits, mut digits) = (0_u64, 0);
    for (at, byte) in plain.iter().copied().enumerate() {
        let rest = &plain[at + 1..];
        if byte == b'=' && digits >= 2 && rest.len() < 8 {
            if rest.len() + digits < 7 {
                return illegal(plain.len());
            }
            let padding = rest.iter().take(7 - digits);
            if let Some(wrong) = padding.enumerate().find(|(_, byte)| **byte != b'=') {
                return illegal(at + wrong.0);
            }
            if let 3 | 6 = digits {
                return illegal(at);
            }
            bits <<= 5 * (8 - digits);
            out.extend_from_slice(&bits.to_be_bytes()[3..3 + digits * 5 / 8]);
            return Ok(out);
        }
        let digit = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'2'..=b'7' => byte - b'2' + 26,
            _ => return illegal(at),
        };
        (bits, digits) = (bits << 5 | u64::from(digit), digits + 1);
        if digits == 8 {
            out.extend_from_slice(&bits.to_be_bytes()[3..]);
            (bits, digits) = (0, 0);
        }
    }
    match digits {
        0 => Ok(out),
        _ => illegal(plain.len() - digits),
    }
}

fn hexadecimal(bytes: &[u8]) -> Dyn {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn sha1sum(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(hexadecimal(&sha1::Sha1::digest(charged(call, a)?)))
}

fn sha256sum(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    Ok(hexadecimal(&sha2::Sha256::digest(charged(call, a)?)))
}

fn adler32(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in charged(call, a)? {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    Ok((high << 16 | low).to_string().into())
}
