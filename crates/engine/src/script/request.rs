//! What the expressions of a rule are bound to: the objects, the request and the namespace.

use kiln_cel::{Session, Val};
use kiln_object::Gvk;
use kiln_rules::{Operation, Script, usual_plural};
use kiln_value::{Map, Str, Value};

use super::Bound;
use crate::context::EvalShared;
use crate::event::{Event, User};
use crate::failure::Failure;

pub(super) fn bind(
    session: &mut Session<'_>,
    script: &Script,
    shared: &EvalShared<'_>,
    bound: &Bound<'_>,
) -> Result<(), Failure> {
    let value = |object: Option<&Value>| object.map_or(Val::Null, Val::from);
    session.set("object", value(bound.object));
    session.set("oldObject", value(bound.old));
    session.set("request", request(shared, bound));
    if script.params.is_some() {
        session.set("params", bound.params.clone());
    }
    if script.asks_for_namespace {
        session.set("namespaceObject", namespace(shared, bound.event)?);
    }
    Ok(())
}

/// The request with every field that expressions may mention.
fn request(shared: &EvalShared<'_>, bound: &Bound<'_>) -> Value {
    let event = bound.event;
    let Value::Map(mut request) = event.request(bound.object, bound.old) else {
        return Value::map();
    };
    let Gvk { group, version, kind } = &event.kind;
    let known = shared.eval_env.kinds.get(&event.kind);
    let plural = known.map_or_else(|| usual_plural(kind), |known| known.plural().to_owned());
    let resource = Map::from_iter([
        ("group", Value::from(group.clone())),
        ("version", Value::from(version.clone())),
        ("resource", Value::from(plural)),
    ]);
    request.insert("resource", resource.clone());
    request.insert("requestResource", resource);
    request.insert("subResource", event.subresource.clone());
    request.insert("requestSubResource", event.subresource.clone());
    // Kyverno: an event without a request counts as a create.
    request.insert("operation", event.operation.unwrap_or(Operation::Create).as_str());
    request.insert("userInfo", user(event.user.as_ref()));
    Value::Map(request)
}

fn user(user: Option<&User>) -> Value {
    // Kyverno: what is not known of a request is not part of it; nothing is made in the name of an unknown user.
    let Some(User { username, uid, groups, extra, .. }) = user else { return Value::map() };
    let mut info = Map::new();
    info.insert("username", username.clone());
    info.insert("uid", uid.clone());
    info.insert("groups", Value::from_iter(groups.iter().cloned()));
    info.insert("extra", extra.clone());
    Value::Map(info)
}

/// The namespace of the trigger; null when it is in none, or when it is unknown.
fn namespace(shared: &EvalShared<'_>, event: &Event) -> Result<Value, Failure> {
    let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
    let Some(name) = event.namespace.as_ref().filter(|_| !is_namespace) else {
        return Ok(Value::Null);
    };
    let kind = Gvk { group: Str::default(), version: "v1".into(), kind: "Namespace".into() };
    // The namespace that a policy lives in is within its reach, though it is in none itself.
    let found = shared.gate.namespace(&kind, name)?;
    Ok(found.unwrap_or(Value::Null))
}
