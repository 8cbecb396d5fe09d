//! What Envoy asks, and how it is answered.

use kiln_value::{Str, Value, value};

use super::{is, part, with_entry, with_field};
use crate::env::{EnvBuilder, Structure};
use crate::error::{EvalFailure, no_such_overload};
use crate::eval::Context;
use crate::library::Registry;
use crate::{Type, Val};

pub(super) const RESPONSE: &str = "envoy.service.auth.v3.CheckResponse";
const OK: &str = "envoy.service.auth.v3.OkHttpResponse";
const DENIED: &str = "envoy.service.auth.v3.DeniedHttpResponse";
const HEADER: &str = "envoy.config.core.v3.HeaderValueOption";
const PARAMETER: &str = "envoy.config.core.v3.QueryParameter";

pub(super) fn register(registry: &mut Registry) {
    registry
        .add(|_, _| Ok(part(OK, [])), &["envoy.Allowed(): envoy.service.auth.v3.OkHttpResponse"]);
    registry.add(denied, &["envoy.Denied(int): envoy.service.auth.v3.DeniedHttpResponse"]);
    registry.add(
        |_, args| pair(args, HEADER),
        &["envoy.Header(string, string): envoy.config.core.v3.HeaderValueOption"],
    );
    registry.add(
        |_, args| pair(args, PARAMETER),
        &["envoy.QueryParam(string, string): envoy.config.core.v3.QueryParameter"],
    );
    registry.add(
        with_body,
        &["(envoy.service.auth.v3.DeniedHttpResponse).WithBody(string): envoy.service.auth.v3.DeniedHttpResponse"],
    );
    registry.add(
        |_, args| add(args, "headers", HEADER),
        &[
            "(envoy.service.auth.v3.OkHttpResponse).WithHeader(envoy.config.core.v3.HeaderValueOption): envoy.service.auth.v3.OkHttpResponse",
            "(envoy.service.auth.v3.OkHttpResponse).WithHeader(string, string): envoy.service.auth.v3.OkHttpResponse",
            "(envoy.service.auth.v3.DeniedHttpResponse).WithHeader(envoy.config.core.v3.HeaderValueOption): envoy.service.auth.v3.DeniedHttpResponse",
            "(envoy.service.auth.v3.DeniedHttpResponse).WithHeader(string, string): envoy.service.auth.v3.DeniedHttpResponse",
        ],
    );
    registry.add(
        |_, args| name(args, "headers_to_remove"),
        &["(envoy.service.auth.v3.OkHttpResponse).WithoutHeader(string): envoy.service.auth.v3.OkHttpResponse"],
    );
    registry.add(
        |_, args| add(args, "response_headers_to_add", HEADER),
        &[
            "(envoy.service.auth.v3.OkHttpResponse).WithResponseHeader(envoy.config.core.v3.HeaderValueOption): envoy.service.auth.v3.OkHttpResponse",
            "(envoy.service.auth.v3.OkHttpResponse).WithResponseHeader(string, string): envoy.service.auth.v3.OkHttpResponse",
        ],
    );
    registry.add(
        |_, args| add(args, "query_parameters_to_set", PARAMETER),
        &[
            "(envoy.service.auth.v3.OkHttpResponse).WithQueryParam(envoy.config.core.v3.QueryParameter): envoy.service.auth.v3.OkHttpResponse",
            "(envoy.service.auth.v3.OkHttpResponse).WithQueryParam(string, string): envoy.service.auth.v3.OkHttpResponse",
        ],
    );
    registry.add(
        |_, args| name(args, "query_parameters_to_remove"),
        &["(envoy.service.auth.v3.OkHttpResponse).WithoutQueryParam(string): envoy.service.auth.v3.OkHttpResponse"],
    );
    registry.add(
        keep_empty_value,
        &[
            "(envoy.config.core.v3.HeaderValueOption).KeepEmptyValue(): envoy.config.core.v3.HeaderValueOption",
            "(envoy.config.core.v3.HeaderValueOption).KeepEmptyValue(bool): envoy.config.core.v3.HeaderValueOption",
        ],
    );
    registry.add(
        response,
        &[
            "(envoy.service.auth.v3.OkHttpResponse).Response(): envoy.service.auth.v3.CheckResponse",
            "(envoy.service.auth.v3.DeniedHttpResponse).Response(): envoy.service.auth.v3.CheckResponse",
        ],
    );
    registry.add(
        with_message,
        &["(envoy.service.auth.v3.CheckResponse).WithMessage(string): envoy.service.auth.v3.CheckResponse"],
    );
    registry.add(
        with_metadata,
        &["(envoy.service.auth.v3.CheckResponse).WithMetadata(map(string, dyn)): envoy.service.auth.v3.CheckResponse"],
    );
}

/// Declares `object`, the request.
pub(super) fn declare(builder: EnvBuilder) -> EnvBuilder {
    let text = || Type::String;
    let texts = || Type::map(Type::String, Type::String);
    let message = |name: &'static str| Type::Struct(Str::new_static(name));
    let http = [
        ("id", text()),
        ("method", text()),
        ("headers", texts()),
        ("path", text()),
        ("host", text()),
        ("scheme", text()),
        ("query", text()),
        ("fragment", text()),
        ("size", Type::Int),
        ("protocol", text()),
        ("body", text()),
        ("raw_body", Type::Bytes),
        ("header_map", Type::Dyn),
    ];
    let peer = [
        ("address", Type::Dyn),
        ("service", text()),
        ("labels", texts()),
        ("principal", text()),
        ("certificate", text()),
    ];
    let attributes = [
        ("source", message("envoy.service.auth.v3.AttributeContext.Peer")),
        ("destination", message("envoy.service.auth.v3.AttributeContext.Peer")),
        ("request", message("envoy.service.auth.v3.AttributeContext.Request")),
        ("context_extensions", texts()),
        ("metadata_context", Type::Dyn),
        ("route_metadata_context", Type::Dyn),
        ("tls_session", Type::Dyn),
    ];
    let request = [
        ("time", Type::Dyn),
        ("http", message("envoy.service.auth.v3.AttributeContext.HttpRequest")),
    ];
    builder
        .structure("envoy.service.auth.v3.AttributeContext.HttpRequest", Structure::new(http))
        .structure("envoy.service.auth.v3.AttributeContext.Peer", Structure::new(peer))
        .structure("envoy.service.auth.v3.AttributeContext.Request", Structure::new(request))
        .structure("envoy.service.auth.v3.AttributeContext", Structure::new(attributes))
        .structure(
            "envoy.service.auth.v3.CheckRequest",
            Structure::new([("attributes", message("envoy.service.auth.v3.AttributeContext"))]),
        )
        .variable("object", message("envoy.service.auth.v3.CheckRequest"))
}

fn denied(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [Val::Int(status)] = args else { return Err(no_such_overload()) };
    Ok(part(DENIED, [("status", Value::from(*status))]))
}

fn pair(args: &[Val], kind: &'static str) -> Result<Val, EvalFailure> {
    let [Val::String(key), Val::String(value)] = args else { return Err(no_such_overload()) };
    Ok(part(kind, [("key", Value::from(key.clone())), ("value", Value::from(value.clone()))]))
}

fn with_body(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [denied, Val::String(body)] = args else { return Err(no_such_overload()) };
    with_field(denied, DENIED, "body", Value::from(body.clone()))
}

/// Adds a header or a parameter to a list of a response.
fn add(args: &[Val], list: &'static str, kind: &'static str) -> Result<Val, EvalFailure> {
    let (response, entry) = match args {
        [response, entry] => (response, Value::Map(is(entry, kind)?)),
        [response, Val::String(key), Val::String(value)] => {
            (response, value!({"key": key.as_str(), "value": value.as_str()}))
        }
        _ => return Err(no_such_overload()),
    };
    let of = if is(response, DENIED).is_ok() { DENIED } else { OK };
    with_entry(response, of, list, entry)
}

fn name(args: &[Val], list: &'static str) -> Result<Val, EvalFailure> {
    let [ok, Val::String(name)] = args else { return Err(no_such_overload()) };
    with_entry(ok, OK, list, Value::from(name.clone()))
}

fn keep_empty_value(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let keep = match args {
        [_] => true,
        [_, Val::Bool(keep)] => *keep,
        _ => return Err(no_such_overload()),
    };
    with_field(&args[0], HEADER, "keep_empty_value", Value::from(keep))
}

fn response(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [inner] = args else { return Err(no_such_overload()) };
    match is(inner, OK) {
        Ok(ok) => Ok(part(RESPONSE, [("ok", Value::Map(ok))])),
        Err(_) => Ok(part(RESPONSE, [("denied", Value::Map(is(inner, DENIED)?))])),
    }
}

fn with_message(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [response, Val::String(message)] = args else { return Err(no_such_overload()) };
    with_field(response, RESPONSE, "message", Value::from(message.clone()))
}

fn with_metadata(context: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [response, metadata] = args else { return Err(no_such_overload()) };
    let metadata = context.json(metadata)?;
    with_field(response, RESPONSE, "dynamic_metadata", metadata)
}
