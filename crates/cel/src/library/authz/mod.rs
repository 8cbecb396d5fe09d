//! The language of policies that authorise requests: `http.Denied("…").Response()`, `envoy.Allowed()`, `jwt.Decode`.
//!
//! An expression gives an answer, or null to leave it to the next one.

mod envoy;
mod http;
mod jwt;

use std::any::Any;
use std::sync::{Arc, LazyLock};

use kiln_value::{Map, Str, Value};

use super::{PolicyScope, Registry, Texts, dialect, kubernetes, kyverno, language};
use crate::env::{Env, EnvBuilder, Structure};
use crate::error::{EvalFailure, no_such_overload};
use crate::syntax::Dialect;
use crate::value::Opaque;
use crate::{Type, Val};

/// Who asks about requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// A web server.
    Http,
    Envoy,
}

impl Asker {
    pub fn answer_type(self) -> Type {
        Type::opaque(match self {
            Asker::Http => http::RESPONSE,
            Asker::Envoy => envoy::RESPONSE,
        })
    }
}

/// What an expression answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AuthzAnswer {
    /// The request may go on.
    Allowed,
    /// The request is denied.
    Denied {
        /// The status of the response, for Envoy.
        status: Option<i64>,
        /// Why not, as the policy says.
        reason: Str,
    },
}

/// A message that is being put together.
#[derive(Debug)]
struct MessageDraft {
    kind: &'static str,
    fields: Map,
}

impl Opaque for MessageDraft {
    fn type_name(&self) -> &'static str {
        self.kind
    }
    fn equals(&self, other: &dyn Opaque) -> bool {
        let other = other.as_any().downcast_ref::<MessageDraft>();
        other.is_some_and(|other| other.kind == self.kind && other.fields == self.fields)
    }
    fn to_text(&self) -> Option<String> {
        None
    }
    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn part(kind: &'static str, fields: impl IntoIterator<Item = (&'static str, Value)>) -> Val {
    Arc::new(MessageDraft { kind, fields: fields.into_iter().collect() }).into()
}

fn is(value: &Val, kind: &'static str) -> Result<Map, EvalFailure> {
    let part = value.as_opaque::<MessageDraft>().filter(|part| part.kind == kind);
    part.map(|part| part.fields.clone()).ok_or_else(no_such_overload)
}

/// The part with one more entry in a list.
fn with_entry(
    value: &Val,
    kind: &'static str,
    list: &'static str,
    entry: Value,
) -> Result<Val, EvalFailure> {
    let mut fields = is(value, kind)?;
    let entries = fields.get_or_insert_with(list, Value::list);
    entries.as_list_mut().ok_or_else(no_such_overload)?.push(entry);
    Ok(Arc::new(MessageDraft { kind, fields }).into())
}

/// The part with a field set.
fn with_field(
    value: &Val,
    kind: &'static str,
    field: &'static str,
    to: Value,
) -> Result<Val, EvalFailure> {
    let mut fields = is(value, kind)?;
    fields.insert(field, to);
    Ok(Arc::new(MessageDraft { kind, fields }).into())
}

/// The answer that a value is; none when it is none.
pub(crate) fn answer(value: &Val) -> Option<AuthzAnswer> {
    let part = value.as_opaque::<MessageDraft>()?;
    let denied = match part.kind {
        http::RESPONSE | envoy::RESPONSE => part.fields.get("denied"),
        _ => return None,
    };
    Some(match denied {
        None => AuthzAnswer::Allowed,
        Some(denied) => AuthzAnswer::Denied {
            status: denied.get("status").and_then(Value::as_i64),
            reason: denied.str_at(["reason"]).unwrap_or_default().into(),
        },
    })
}

/// The environment of policies that answer this asker.
pub(crate) fn env(asker: Asker) -> Env {
    static HTTP: LazyLock<Env> = LazyLock::new(|| make(Asker::Http));
    static ENVOY: LazyLock<Env> = LazyLock::new(|| make(Asker::Envoy));
    match asker {
        Asker::Http => HTTP.clone(),
        Asker::Envoy => ENVOY.clone(),
    }
}

fn make(asker: Asker) -> Env {
    let mut registry: Registry = language(Texts::Newest);
    kubernetes::register_values(&mut registry);
    kyverno::register_for_requests(&mut registry, &PolicyScope::Cluster);
    jwt::register(&mut registry);
    match asker {
        Asker::Http => http::register(&mut registry),
        Asker::Envoy => envoy::register(&mut registry),
    }
    let dialect = Dialect { blocks: false, kubernetes: true, ..dialect() };
    let builder = EnvBuilder::new(dialect, registry.functions, registry.types);
    let builder = kyverno::declare_receivers(builder.homogeneous_literals(true));
    let builder = match asker {
        Asker::Http => http::declare(builder),
        Asker::Envoy => envoy::declare(builder),
    };
    builder
        .structure(jwt::TOKEN, Structure::new([("Claims", Type::Dyn), ("Valid", Type::Bool)]))
        .build()
}
