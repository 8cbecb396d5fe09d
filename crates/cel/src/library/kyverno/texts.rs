//! Digests, random texts, compression, times and rounding.

use std::io::Read;
use std::sync::Arc;

use flate2::Compression;
use flate2::read::{GzDecoder, GzEncoder};
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};

use kiln_text::regex::{Generator, OutputTooLarge};
use kiln_value::Str;

use super::host_failure;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;

pub(super) fn register(registry: &mut Registry) {
    registry.add(digest::<Sha1>, &["sha1(string): string", "hash.sha1(string): string"]);
    registry.add(digest::<Sha256>, &["sha256(string): string", "hash.sha256(string): string"]);
    registry.add(digest::<Md5>, &["md5(string): string", "hash.md5(string): string"]);
    registry.add(
        random,
        &[
            "random(): string",
            "random(string): string",
            "random.random(): string",
            "random.random(string): string",
        ],
    );
    registry.add(compress, &["gzip.compress(dyn): bytes"]);
    registry.add(decompress, &["gzip.decompress(bytes): string"]);
    registry.add(now, &["time.now(): timestamp"]);
    registry.add(truncate, &["time.truncate(timestamp, duration): timestamp"]);
    registry.add(to_cron, &["time.toCron(timestamp): string"]);
    registry.add(round, &["math.round(double, int): double"]);
}

fn digest<D: Digest>(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    let digest = D::digest(text.as_bytes());
    Ok(Val::from(digest.iter().map(|byte| format!("{byte:02x}")).collect::<String>()))
}

/// Why a random text could not be made.
enum NoText {
    TooLarge(OutputTooLarge),
    Host(EvalFailure),
}

impl From<OutputTooLarge> for NoText {
    fn from(error: OutputTooLarge) -> Self {
        NoText::TooLarge(error)
    }
}

fn random(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let pattern = match args {
        [] => Str::new_static("[0-9a-z]{8}"),
        [Val::String(pattern)] if !pattern.is_empty() => pattern.clone(),
        [Val::String(_)] => return Err(failure("the pattern is empty")),
        _ => return Err(no_such_overload()),
    };
    context.meter.charge(100 + pattern.len() as u64)?;
    let generator = Generator::new(&pattern).map_err(|error| failure(error.to_string()))?;
    let host = &mut *context.host;
    let mut bits =
        || host.random().map_err(|error| NoText::Host(host_failure("make a random text", &error)));
    let text = generator.generate(&mut bits).map_err(|error| match error {
        NoText::TooLarge(error) => failure(error.to_string()),
        NoText::Host(error) => error,
    })?;
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::from(text))
}

fn compress(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    // Kyverno: texts only, though the signature promises anything.
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    let bytes = text.as_bytes();
    context.meter.charge(bytes.len() as u64)?;
    // Without a name and a time, so that the same text always gives the same bytes.
    let mut compressed = Vec::new();
    GzEncoder::new(bytes, Compression::default())
        .read_to_end(&mut compressed)
        .map_err(|error| failure(format!("failed to compress: {error}")))?;
    Ok(Val::Bytes(Arc::from(compressed)))
}

/// Inflates piece by piece, each one paid for: a small text can hide a huge one.
fn decompress(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::Bytes(bytes) = &args[0] else { return Err(no_such_overload()) };
    let mut decoder = GzDecoder::new(&bytes[..]);
    let mut text = Vec::new();
    let mut piece = [0; 4096];
    loop {
        let problem = |error| failure(format!("failed to decompress: {error}"));
        let count = decoder.read(&mut piece).map_err(problem)?;
        if count == 0 {
            break;
        }
        context.meter.charge_text(count as u64)?;
        text.extend_from_slice(&piece[..count]);
    }
    let text = String::from_utf8(text);
    Ok(Val::from(text.map_err(|_| failure("failed to decompress: the text is not UTF-8"))?))
}

fn now(context: &mut Context<'_>, _: &[Val]) -> Result<Val, EvalFailure> {
    let now = context.host.now();
    Ok(Val::Timestamp(now.map_err(|error| host_failure("read the clock", &error))?))
}

fn truncate(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::Timestamp(timestamp), Val::Duration(unit)] = args else {
        return Err(no_such_overload());
    };
    let truncated = timestamp.truncate(*unit);
    Ok(Val::Timestamp(truncated.ok_or_else(|| failure("timestamp overflow"))?))
}

fn to_cron(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::Timestamp(timestamp) = &args[0] else { return Err(no_such_overload()) };
    let time = timestamp.written().ok_or_else(|| failure("timestamp overflow"))?;
    Ok(Val::from(time.to_cron()))
}

// Kyverno: half away from zero, after scaling.
fn round(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::Double(x), Val::Int(places)] = args else { return Err(no_such_overload()) };
    let scale = 10f64.powi(i32::try_from(*places).unwrap_or(i32::MAX));
    Ok(Val::Double((x * scale).round() / scale))
}
