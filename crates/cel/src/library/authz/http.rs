//! What a web server asks, and how it is answered.

use kiln_value::{Str, Value};

use super::{is, part};
use crate::env::{EnvBuilder, Structure};
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::{Type, Val};

pub(super) const RESPONSE: &str = "http.CheckResponse";
const OK: &str = "http.CheckResponseOk";
const DENIED: &str = "http.CheckResponseDenied";

pub(super) fn register(registry: &mut Registry) {
    registry.add(|_, _| Ok(part(OK, [])), &["http.Allowed(): http.CheckResponseOk"]);
    registry.add(denied, &["http.Denied(string): http.CheckResponseDenied"]);
    registry.add(
        response,
        &[
            "(http.CheckResponseOk).Response(): http.CheckResponse",
            "(http.CheckResponseDenied).Response(): http.CheckResponse",
        ],
    );
    registry.add(
        |_, args| values(args, "header", canonical),
        &["(message(http.CheckRequestAttributes)).Header(string): list(string)"],
    );
    registry.add(
        |_, args| values(args, "query", |name| Str::from(name)),
        &["(message(http.CheckRequestAttributes)).QueryParam(string): list(string)"],
    );
}

/// Declares `object`, the request.
pub(super) fn declare(builder: EnvBuilder) -> EnvBuilder {
    let text = || Type::String;
    let lists = || Type::map(Type::String, Type::list(Type::String));
    let attributes = [
        ("method", text()),
        ("header", lists()),
        ("host", text()),
        ("protocol", text()),
        ("contentLength", Type::Int),
        ("body", Type::Bytes),
        ("scheme", text()),
        ("path", text()),
        ("query", lists()),
        ("fragment", text()),
    ];
    let request = Type::Struct(Str::new_static("http.CheckRequest"));
    builder
        .structure("http.CheckRequestAttributes", Structure::new(attributes))
        .structure(
            "http.CheckRequest",
            Structure::new([(
                "attributes",
                Type::Struct(Str::new_static("http.CheckRequestAttributes")),
            )]),
        )
        .variable("object", request)
}

fn denied(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::String(reason)] = args else { return Err(no_such_overload()) };
    Ok(part(DENIED, [("reason", Value::from(reason.clone()))]))
}

fn response(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [inner] = args else { return Err(no_such_overload()) };
    match is(inner, OK) {
        Ok(ok) => Ok(part(RESPONSE, [("ok", Value::Map(ok))])),
        Err(_) => Ok(part(RESPONSE, [("denied", Value::Map(is(inner, DENIED)?))])),
    }
}

/// The values of a header or a parameter; none when it is not there.
fn values(args: &[Val], field: &str, key: fn(&str) -> Str) -> Result<Val, EvalFailure> {
    let [Val::Map(attributes), Val::String(name)] = args else { return Err(no_such_overload()) };
    let found = match attributes.get_str(field) {
        Some(Val::Map(all)) => all.get_str(&key(name)),
        _ => None,
    };
    Ok(found.unwrap_or_else(|| Val::from_elements([])))
}

/// The name of a header as Go's HTTP server writes it: `x-request-id` is `X-Request-Id`.
fn canonical(name: &str) -> Str {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if !name.bytes().all(is_token) {
        return Str::from(name);
    }
    let mut upper = true;
    let letters = name.chars().map(|c| {
        let c = if upper { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
        upper = c == '-';
        c
    });
    letters.collect::<String>().into()
}
