//! Base64.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Registry;
use crate::Val;
use crate::error::{Failure, failure, no_such_overload};
use crate::eval::Context;

/// Writes padding, reads with or without it.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

pub(super) fn register(registry: &mut Registry) {
    registry.add(encode, &["base64.encode(bytes): string"]);
    registry.add(decode, &["base64.decode(string): bytes"]);
}

fn encode(context: &mut Context<'_>, args: &[Val]) -> Result<Val, Failure> {
    let Val::Bytes(bytes) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(2 * bytes.len() as u64)?;
    Ok(Val::from(ENGINE.encode(bytes)))
}

fn decode(context: &mut Context<'_>, args: &[Val]) -> Result<Val, Failure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    let bytes = ENGINE.decode(text.as_bytes());
    Ok(Val::Bytes(Arc::from(
        bytes.map_err(|error| failure(format!("illegal base64 data: {error}")))?,
    )))
}
