//! The libraries of Kyverno.
//!
//! Everything that looks outside goes through the host; `generator.Apply` only notes what to do.
//! Methods exist in both spellings, `Get` and `get`, forever.

mod data;
mod generator;
mod http;
mod image;
mod resource;
mod texts;

pub(super) use self::data::with_floats;

use std::any::Any;
use std::sync::Arc;

use kiln_value::Str;

use super::{PolicyScope, Registry};
use crate::env::{EnvBuilder, Structure};
use crate::error::{EvalFailure, failure};
use crate::host::HostError;
use crate::value::Opaque;
use crate::{Type, Val};

/// The receiver of a library's calls, such as `resource`.
#[derive(Debug)]
struct Receiver(&'static str);

impl Opaque for Receiver {
    fn type_name(&self) -> &'static str {
        self.0
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        other.type_name() == self.0
    }
    fn to_text(&self) -> Option<String> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

pub(super) fn register(registry: &mut Registry, scope: &PolicyScope) {
    generator::register(registry, scope);
    resource::register(registry, scope);
    http::register(registry);
    image::register(registry);
    data::register(registry);
    texts::register(registry);
}

/// Registers what policies have that authorise requests.
pub(super) fn register_for_requests(registry: &mut Registry, scope: &PolicyScope) {
    resource::register(registry, scope);
    http::register(registry);
    image::register(registry);
    data::register(registry);
}

/// Declares the receivers of the libraries and `exceptions`.
pub(super) fn declare(builder: EnvBuilder) -> EnvBuilder {
    let strings = || Type::list(Type::String);
    let exceptions = [("allowedImages", strings()), ("allowedValues", strings())];
    let builder = builder
        .structure("kyverno.Exceptions", Structure::new(exceptions))
        .variable("exceptions", Type::Struct(Str::new_static("kyverno.Exceptions")));
    declare_receivers(builder)
}

/// Declares the receivers of the libraries.
pub(super) fn declare_receivers(builder: EnvBuilder) -> EnvBuilder {
    let account = [("Name", Type::String), ("Namespace", Type::String)];
    let builder = builder.structure(data::SERVICE_ACCOUNT, Structure::new(account)).constant(
        "http",
        Type::opaque(http::CLIENT),
        http::client(None),
    );
    [
        ("generator", "kyverno.Generator"),
        ("resource", "kyverno.Resource"),
        ("globalContext", "kyverno.GlobalContext"),
        ("image", "kyverno.ImageData"),
        ("json", "kyverno.Json"),
        ("yaml", "kyverno.Yaml"),
    ]
    .into_iter()
    .fold(builder, |builder, (name, ty)| {
        builder.constant(name, Type::opaque(ty), Arc::new(Receiver(ty)).into())
    })
}

/// A failed host call in Kyverno's words.
fn host_failure(action: &str, error: &HostError) -> EvalFailure {
    let denied = if error.forbidden { "permission denied: " } else { "" };
    failure(format!("failed to {action}: {denied}{}", error.message))
}

/// String pairs of a map argument: labels or headers.
fn string_pairs(value: &Val) -> Result<Vec<(Str, Str)>, EvalFailure> {
    let Val::Map(map) = value else { return Err(crate::error::no_such_overload()) };
    map.iter()
        .map(|(key, value)| match (key, value) {
            (Val::String(key), Val::String(value)) => Ok((key, value)),
            (key, value) => Err(failure(format!(
                "invalid arg: expected strings, found {} and {}",
                key.type_name(),
                value.type_name()
            ))),
        })
        .collect()
}
