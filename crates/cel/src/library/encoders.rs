//! Base64, and values as JSON.

use std::sync::Arc;

use base64::Engine;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use super::Registry;
use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;

/// Writes padding, reads with or without it.
const ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

pub(super) fn register(registry: &mut Registry) {
    registry.add(encode, &["base64.encode(bytes): string"]);
    registry.add(decode, &["base64.decode(string): bytes"]);
    registry.add(encode_json, &["json.encode(dyn): string"]);
}

fn encode_json(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let value = context.json(&args[0])?;
    let text = kiln_value::json::to_go_string(&value);
    context.meter.charge_text(text.len() as u64)?;
    Ok(Val::from(text))
}

fn encode(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::Bytes(bytes) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(2 * bytes.len() as u64)?;
    Ok(Val::from(ENGINE.encode(bytes)))
}

fn decode(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let Val::String(text) = &args[0] else { return Err(no_such_overload()) };
    context.meter.charge_text(text.len() as u64)?;
    // Go: lines may be broken anywhere.
    let bytes = if text.contains(['\r', '\n']) {
        ENGINE.decode(text.replace(['\r', '\n'], ""))
    } else {
        ENGINE.decode(text.as_bytes())
    };
    Ok(Val::Bytes(Arc::from(
        bytes.map_err(|error| failure(format!("illegal base64 data: {error}")))?,
    )))
}
