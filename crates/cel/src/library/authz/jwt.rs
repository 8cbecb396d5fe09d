//! Tokens that requests carry.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use kiln_value::{Map, Value, json};
use sha2::{Sha256, Sha384, Sha512};

use crate::Val;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::library::kyverno::with_floats;

pub(super) const TOKEN: &str = "jwt.Token";

/// Claims that are times.
const TIMES: [&str; 3] = ["exp", "nbf", "iat"];

pub(super) fn register(registry: &mut Registry) {
    registry.add(decode, &["jwt.Decode(string, string): message(jwt.Token)"]);
}

/// A token that was signed with a secret: what it claims, and whether it is in force. One with another signature fails.
fn decode(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(token), Val::String(secret)] = args else { return Err(no_such_overload()) };
    context.meter.charge((token.len() + secret.len()) as u64)?;
    let claims = verified(token, secret).map_err(|why| failure(format!("jwt.Decode: {why}")))?;
    let now = context.host.now().map_err(|error| failure(error.message))?.seconds();
    let at = |claim: &str| claims.get(claim).and_then(Value::as_f64);
    #[allow(clippy::cast_precision_loss, reason = "seconds since 1970 fit for some million years")]
    let now = now as f64;
    let valid = at("exp").is_none_or(|end| now < end)
        && at("nbf").is_none_or(|begin| begin <= now)
        && at("iat").is_none_or(|issued| issued <= now);
    let mut token = Map::new();
    token.insert("Claims", Value::Map(claims));
    token.insert("Valid", valid);
    Ok(Val::from(Value::Map(token)))
}

fn verified(token: &str, secret: &str) -> Result<Map, String> {
    let mut parts = token.split('.');
    let (Some(header), Some(payload), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err("a token has three parts, with dots between them".to_owned());
    };
    let bytes = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|error| error.to_string());
    let read = |text: &str| -> Result<Value, String> {
        let text = String::from_utf8(bytes(text)?).map_err(|error| error.to_string())?;
        json::parse(&text).map_err(|error| error.to_string())
    };
    let algorithm = read(header)?;
    let signed = &token[..header.len() + 1 + payload.len()];
    let signature = bytes(signature)?;
    let key = secret.as_bytes();
    let matches = match algorithm.str_at(["alg"]).unwrap_or_default() {
        "HS256" => Hmac::<Sha256>::new_from_slice(key)
            .is_ok_and(|mac| mac.chain_update(signed).verify_slice(&signature).is_ok()),
        "HS384" => Hmac::<Sha384>::new_from_slice(key)
            .is_ok_and(|mac| mac.chain_update(signed).verify_slice(&signature).is_ok()),
        "HS512" => Hmac::<Sha512>::new_from_slice(key)
            .is_ok_and(|mac| mac.chain_update(signed).verify_slice(&signature).is_ok()),
        other => return Err(format!("a secret verifies HS256, HS384 and HS512, not {other:?}")),
    };
    if !matches {
        return Err("the signature is not that of the secret".to_owned());
    }
    let Value::Map(claims) = read(payload)? else {
        return Err("the claims are not a map".to_owned());
    };
    // Kyverno: numbers of claims are floats.
    for name in TIMES {
        if claims.get(name).is_some_and(|time| time.as_f64().is_none()) {
            return Err(format!("the claim {name} is not a timestamp"));
        }
    }
    Ok(claims.iter().map(|(key, value)| (key.clone(), with_floats(value.clone()))).collect())
}
