//! `http`: requests of expressions.

use std::any::Any;
use std::sync::Arc;

use kiln_value::{Map, Str, Value};

use super::string_pairs;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::eval::Context;
use crate::host::HttpRequest;
use crate::library::Registry;
use crate::value::Opaque;
use crate::{Type, Val};

pub(super) const CLIENT: &str = "kyverno.Http";

/// Where requests go out, perhaps with certificates of its own.
#[derive(Debug, PartialEq, Eq)]
struct Client {
    ca_bundle: Option<Str>,
}

impl Opaque for Client {
    fn type_name(&self) -> &'static str {
        CLIENT
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.as_any().downcast_ref::<Client>() == Some(self)
    }
    fn to_text(&self) -> Option<String> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn client(ca_bundle: Option<Str>) -> Val {
    Arc::new(Client { ca_bundle }).into()
}

pub(super) fn register(registry: &mut Registry) {
    registry.type_name(Type::opaque(CLIENT));
    registry.add(
        |context, args| match args {
            [client, Val::String(url)] => send(context, "GET", client, url, None, None),
            [client, Val::String(url), headers] => {
                send(context, "GET", client, url, None, Some(headers))
            }
            _ => Err(no_such_overload()),
        },
        &[
            "(kyverno.Http).Get(string): dyn",
            "(kyverno.Http).get(string): dyn",
            "(kyverno.Http).Get(string, map(string, string)): dyn",
            "(kyverno.Http).get(string, map(string, string)): dyn",
        ],
    );
    registry.add(
        |context, args| with_body(context, "POST", args),
        &[
            "(kyverno.Http).Post(string, dyn): dyn",
            "(kyverno.Http).post(string, dyn): dyn",
            "(kyverno.Http).Post(string, dyn, map(string, string)): dyn",
            "(kyverno.Http).post(string, dyn, map(string, string)): dyn",
        ],
    );
    registry.add(
        |context, args| with_body(context, "PUT", args),
        &[
            "(kyverno.Http).Put(string, dyn): dyn",
            "(kyverno.Http).put(string, dyn): dyn",
            "(kyverno.Http).Put(string, dyn, map(string, string)): dyn",
            "(kyverno.Http).put(string, dyn, map(string, string)): dyn",
        ],
    );
    registry.add(
        new_client,
        &[
            "(kyverno.Http).Client(string): kyverno.Http",
            "(kyverno.Http).client(string): kyverno.Http",
        ],
    );
}

fn new_client(_: &mut Context<'_>, args: &[Val]) -> Result<Val, EvalFailure> {
    let [receiver, Val::String(pem)] = args else { return Err(no_such_overload()) };
    if pem.is_empty() {
        return Ok(receiver.clone());
    }
    if !pem.contains("-----BEGIN CERTIFICATE-----") {
        return Err(failure("failed to parse PEM CA bundle for APICall"));
    }
    Ok(client(Some(pem.clone())))
}

fn with_body(
    context: &mut Context<'_>,
    method: &'static str,
    args: &[Val],
) -> Result<Val, EvalFailure> {
    match args {
        [client, Val::String(url), body] => send(context, method, client, url, Some(body), None),
        [client, Val::String(url), body, headers] => {
            send(context, method, client, url, Some(body), Some(headers))
        }
        _ => Err(no_such_overload()),
    }
}

fn send(
    context: &mut Context<'_>,
    method: &'static str,
    client: &Val,
    url: &str,
    body: Option<&Val>,
    headers: Option<&Val>,
) -> Result<Val, EvalFailure> {
    context.meter.charge(10_000)?;
    let client = client.as_opaque::<Client>().ok_or_else(no_such_overload)?;
    let body = body.map(|body| context.json(body)).transpose()?;
    let headers = headers.map(string_pairs).transpose()?.unwrap_or_default();
    let ca_bundle = client.ca_bundle.as_deref();
    let response = context
        .host
        .http(HttpRequest { method, url, headers, body, ca_bundle })
        .map_err(|error| failure(format!("request failed: {}", error.message)))?;
    let status = i64::from(response.status);
    // Kyverno: an object gets the status beside its own fields, anything else is wrapped.
    let mut answer = match response.body {
        Some(Value::Map(map)) => map,
        other => {
            let mut wrapped = Map::new();
            wrapped.insert("body", other.unwrap_or_default());
            wrapped
        }
    };
    answer.insert("statusCode", status);
    Ok(Val::from(Value::Map(answer)))
}
