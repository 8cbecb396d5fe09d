//! Chance, which the caller supplies.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::error::Refusal;
use crate::functions::ParameterType::{Int, Text};
use crate::functions::{FunctionCall, TemplateFunction, function, int, text};
use crate::value::Dyn;

pub(super) const TABLE: &[TemplateFunction] = &[
    function("randAlpha", &[Int], None, alpha, "random letters"),
    function("randAlphaNum", &[Int], None, alpha_num, "random letters and digits"),
    function("randAscii", &[Int], None, ascii, "random printable characters"),
    function("randBytes", &[Int], None, rand_bytes, "so many random bytes as Base64"),
    function(
        "randInt",
        &[Int, Int],
        None,
        rand_int,
        "a random number from the first up to the second",
    ),
    function("randNumeric", &[Int], None, numeric, "random digits"),
    function("shuffle", &[Text], None, shuffle, "the characters in random order"),
    function("uuidv4", &[], None, uuid, "a random identifier"),
];

type Result<R = Dyn> = std::result::Result<R, Refusal>;

fn bits(call: &FunctionCall<'_>) -> Result<u64> {
    call.meter.step(1)?;
    call.sources.random().ok_or_else(|| {
        Refusal::Refused(
            "there is no randomness here".into(),
            "the same input must give the same output every time: give the text as a value",
        )
    })
}

pub(super) fn fill(call: &FunctionCall<'_>, bytes: &mut [u8]) -> Result<()> {
    for chunk in bytes.chunks_mut(8) {
        let random = bits(call)?.to_le_bytes();
        chunk.copy_from_slice(&random[..chunk.len()]);
    }
    Ok(())
}

/// A number below `end`.
fn below(call: &FunctionCall<'_>, end: u64) -> Result<u64> {
    Ok(u64::try_from((u128::from(bits(call)?) * u128::from(end)) >> 64).unwrap_or(0))
}

fn characters(call: &FunctionCall<'_>, a: &[Dyn], set: &[u8]) -> Result {
    let count = u64::try_from(int(a, 0)).unwrap_or(0);
    call.meter.make(count)?;
    let mut out = String::new();
    for _ in 0..count {
        let at = below(call, set.len() as u64)?;
        out.push(char::from(set[usize::try_from(at).unwrap_or(0)]));
    }
    Ok(out.into())
}

fn alpha_num(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    characters(call, a, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
}

fn alpha(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    characters(call, a, b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")
}

fn numeric(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    characters(call, a, b"0123456789")
}

fn ascii(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let printable: Vec<u8> = (b' '..=b'~').collect();
    characters(call, a, &printable)
}

fn rand_bytes(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let count =
        usize::try_from(int(a, 0)).map_err(|_| "runtime error: makeslice: len out of range")?;
    call.meter.make((count as u64).saturating_mul(3))?;
    let mut bytes = vec![0; count];
    fill(call, &mut bytes)?;
    Ok(STANDARD.encode(bytes).into())
}

fn rand_int(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let (from, to) = (int(a, 0), int(a, 1));
    if to <= from {
        return Err("invalid argument to Intn".into());
    }
    let offset = below(call, to.wrapping_sub(from) as u64)?;
    Ok(Dyn::Int(from.wrapping_add(offset as i64)))
}

fn shuffle(call: &FunctionCall<'_>, a: &[Dyn]) -> Result {
    let mut chars: Vec<char> = text(a, 0).chars().collect();
    for last in (1..chars.len()).rev() {
        let other = below(call, last as u64 + 1)?;
        chars.swap(last, usize::try_from(other).unwrap_or(last));
    }
    Ok(chars.into_iter().collect::<String>().into())
}

fn uuid(call: &FunctionCall<'_>, _: &[Dyn]) -> Result {
    let mut bytes = [0; 16];
    fill(call, &mut bytes)?;
    bytes[6] = bytes[6] & 0x0F | 0x40;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    Ok(parts.join("-").into())
}
