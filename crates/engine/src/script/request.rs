//! What the expressions of a rule are bound to: the objects, the request and the namespace.

use kiln_cel::{AuthorizationCheck, Session, Val};
use kiln_object::Gvk;
use kiln_rules::{Operation, Payload, Script, usual_plural};
use kiln_value::{Map, Str, Value, value};

use super::Bound;
use crate::context::EvalShared;
use crate::input::event::{Event, User};
use crate::output::failure::Failure;

pub(super) fn bind(
    session: &mut Session<'_>,
    script: &Script,
    shared: &EvalShared<'_>,
    bound: &Bound<'_>,
) -> Result<(), Failure> {
    let value = |object: Option<&Value>| object.map_or(Val::Null, Val::from);
    session.set("object", value(bound.object));
    if script.has_no_request {
        // What is not bound fails when an expression asks for it.
        return bind_namespace(session, script, shared, bound);
    }
    session.set("oldObject", value(bound.old));
    if bound.event.payload == Payload::Kubernetes {
        let request = request(shared, bound);
        session.set("authorizer.requestResource", request_resource(&request, bound.event));
        session.set("request", request);
    } else {
        session.set("request", Val::Null);
    }
    if script.params.is_some() {
        session.set("params", bound.params.clone());
    }
    bind_namespace(session, script, shared, bound)
}

fn bind_namespace(
    session: &mut Session<'_>,
    script: &Script,
    shared: &EvalShared<'_>,
    bound: &Bound<'_>,
) -> Result<(), Failure> {
    if script.asks_for_namespace {
        session.set("namespaceObject", namespace(script, shared, bound)?);
    }
    Ok(())
}

/// The request with every field that expressions may mention.
fn request(shared: &EvalShared<'_>, bound: &Bound<'_>) -> Value {
    let event = bound.event;
    let Value::Map(mut request) = event.to_request(bound.object, bound.old) else {
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
fn namespace(
    script: &Script,
    shared: &EvalShared<'_>,
    bound: &Bound<'_>,
) -> Result<Value, Failure> {
    let event = bound.event;
    let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
    if is_namespace && script.namespaces_are_their_own {
        return Ok(bound.object.cloned().unwrap_or(Value::Null));
    }
    let Some(name) = event.namespace.as_ref().filter(|_| !is_namespace) else {
        return Ok(Value::Null);
    };
    let kind = Gvk { group: Str::default(), version: "v1".into(), kind: "Namespace".into() };
    // The namespace that a policy lives in is within its reach, though it is in none itself.
    let found = shared.gate.namespace(&kind, name)?;
    Ok(found.unwrap_or_else(|| match script.supposes_namespace {
        true => value!({"metadata": {
            "name": name.as_str(),
            "labels": {"kubernetes.io/metadata.name": name.as_str()},
        }}),
        false => Value::Null,
    }))
}

/// What `authorizer.requestResource` asks about.
fn request_resource(request: &Value, event: &Event) -> Val {
    Val::request_resource(AuthorizationCheck {
        group: event.kind.group.to_string(),
        resource: request.str_at(["resource", "resource"]).unwrap_or_default().to_owned(),
        subresource: event.subresource.to_string(),
        namespace: event.namespace.clone().unwrap_or_default().to_string(),
        name: event.name.to_string(),
        ..AuthorizationCheck::default()
    })
}
