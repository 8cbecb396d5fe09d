//! Encodings and sums.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use data_encoding::BASE32;
use sha1::Digest as _;

use crate::error::Refusal;
use crate::functions::Type::Text;
use crate::functions::{Call, Function, function, text};
use crate::value::Dyn;

pub(super) const TABLE: &[Function] = &[
    function("adler32sum", &[Text], None, adler32, "the Adler-32 sum"),
    function("b32dec", &[Text], None, b32dec, "what Base32 says"),
    function("b32enc", &[Text], None, b32enc, "as Base32"),
    function("b64dec", &[Text], None, b64dec, "what Base64 says"),
    function("b64enc", &[Text], None, b64enc, "as Base64"),
    function("sha1sum", &[Text], None, sha1sum, "the SHA-1 sum"),
    function("sha256sum", &[Text], None, sha256sum, "the SHA-256 sum"),
];

type Result = std::result::Result<Dyn, Refusal>;

fn charged<'a>(call: &Call<'_>, a: &'a [Dyn]) -> std::result::Result<&'a [u8], Refusal> {
    let bytes = text(a, 0).as_bytes();
    call.meter.step(bytes.len() as u64 / 64)?;
    call.meter.make(bytes.len() as u64 * 2)?;
    Ok(bytes)
}

fn b64enc(call: &Call<'_>, a: &[Dyn]) -> Result {
    Ok(STANDARD.encode(charged(call, a)?).into())
}

fn b64dec(call: &Call<'_>, a: &[Dyn]) -> Result {
    let encoded = charged(call, a)?;
    // Go passes over new lines.
    let plain: Vec<u8> =
        encoded.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n')).collect();
    Ok(match STANDARD.decode(&plain) {
        Ok(bytes) => Dyn::bytes(&bytes),
        Err(_) => format!("illegal base64 data at input byte {}", first_illegal(encoded)).into(),
    })
}

/// Where Go's decoder stops.
fn first_illegal(encoded: &[u8]) -> usize {
    let digit =
        |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/' | b'\r' | b'\n');
    encoded.iter().position(|byte| !digit(byte)).unwrap_or(encoded.len() / 4 * 4)
}

fn b32enc(call: &Call<'_>, a: &[Dyn]) -> Result {
    Ok(BASE32.encode(charged(call, a)?).into())
}

fn b32dec(call: &Call<'_>, a: &[Dyn]) -> Result {
    let encoded = charged(call, a)?;
    Ok(match BASE32.decode(encoded) {
        Ok(bytes) => Dyn::bytes(&bytes),
        Err(error) => format!("illegal base32 data at input byte {}", error.position).into(),
    })
}

fn hexadecimal(bytes: &[u8]) -> Dyn {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn sha1sum(call: &Call<'_>, a: &[Dyn]) -> Result {
    Ok(hexadecimal(&sha1::Sha1::digest(charged(call, a)?)))
}

fn sha256sum(call: &Call<'_>, a: &[Dyn]) -> Result {
    Ok(hexadecimal(&sha2::Sha256::digest(charged(call, a)?)))
}

fn adler32(call: &Call<'_>, a: &[Dyn]) -> Result {
    let (mut low, mut high) = (1_u32, 0_u32);
    for byte in charged(call, a)? {
        low = (low + u32::from(*byte)) % 65_521;
        high = (high + low) % 65_521;
    }
    Ok((high << 16 | low).to_string().into())
}
