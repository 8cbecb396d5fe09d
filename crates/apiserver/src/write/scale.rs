//! The scale of an object: how many replicas it wants and has.

use kiln_object::Selector;
use kiln_value::{Map, Value, value};

use super::patch::{PatchKind, applied, patched};
use super::update::ObjectUpdate;
use super::{Keeper, TRIES, update_object};
use crate::read::current;
use crate::read::table;
use crate::request::Response;
use crate::request::media;
use crate::request::media::ResponseForm;
use crate::request::options::WriteOptions;
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::{FieldProblem, RequestFailure};
use crate::types::{decode, types};

/// Where the numbers stand.
fn paths(state: &ServerState, target: &RequestTarget) -> (Vec<String>, Vec<String>) {
    match state.customs.get(&target.kind.gvk()).and_then(|custom| custom.scale.as_ref()) {
        Some(scale) => (scale.spec.clone(), scale.status.clone()),
        None => {
            let usual = |part: &str| vec![part.to_owned(), "replicas".to_owned()];
            (usual("spec"), usual("status"))
        }
    }
}

/// The scale of an object.
pub(crate) fn of(
    state: &ServerState,
    target: &RequestTarget,
    object: &Value,
) -> Result<Value, RequestFailure> {
    let (spec, status) = paths(state, target);
    let number =
        |path: &[String]| object.get_path(path.iter().map(String::as_str)).and_then(Value::as_i64);
    let mut metadata = Map::new();
    for field in ["name", "namespace", "uid", "resourceVersion", "creationTimestamp"] {
        if let Some(value) = object.get_path(["metadata", field]) {
            metadata.insert(field, value.clone());
        }
    }
    let custom = state.customs.get(&target.kind.gvk()).and_then(|custom| custom.scale.as_ref());
    let selector = match custom {
        Some(scale) => scale
            .selector
            .as_ref()
            .and_then(|path| object.str_at(path.iter().map(String::as_str)))
            .unwrap_or_default()
            .to_owned(),
        None => selector_text(object.get_path(["spec", "selector"])),
    };
    let mut spec_part = Map::new();
    let wanted = number(&spec).unwrap_or(0);
    if wanted != 0 {
        spec_part.insert("replicas", wanted);
    }
    let mut status_part = Map::new();
    status_part.insert("replicas", number(&status).unwrap_or(0));
    if !selector.is_empty() {
        status_part.insert("selector", selector);
    }
    let mut scale = value!({"kind": "Scale", "apiVersion": "autoscaling/v1"});
    let _ = scale.set(["metadata"], Value::Map(metadata));
    let _ = scale.set(["spec"], Value::Map(spec_part));
    let _ = scale.set(["status"], Value::Map(status_part));
    Ok(scale)
}

/// A label selector as a text.
pub(crate) fn selector_text(selector: Option<&Value>) -> String {
    let Some(selector) = selector.filter(|selector| !selector.is_null()) else {
        return String::new();
    };
    let labels =
        if selector.get("matchLabels").is_some() || selector.get("matchExpressions").is_some() {
            selector.get("matchLabels").cloned().unwrap_or_else(Value::map)
        } else {
            selector.clone()
        };
    let mut parts: Vec<String> = labels
        .as_map()
        .into_iter()
        .flat_map(Map::iter)
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    parts.sort();
    let expressions = selector.get("matchExpressions").and_then(Value::as_list);
    for expression in expressions.into_iter().flat_map(|list| list.iter()) {
        let key = expression.str_at(["key"]).unwrap_or_default();
        let values = expression.get("values").and_then(Value::as_list);
        let values: Vec<&str> =
            values.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).collect();
        let values = values.join(",");
        parts.push(match expression.str_at(["operator"]).unwrap_or_default() {
            "In" => format!("{key} in ({values})"),
            "NotIn" => format!("{key} notin ({values})"),
            "Exists" => key.to_owned(),
            _ => format!("!{key}"),
        });
    }
    let text = parts.join(",");
    // A text that cannot be read back counts as none.
    if Selector::parse(&text).is_ok() { text } else { String::new() }
}

/// Answers a replacement of a scale.
pub(crate) fn update(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
) -> Result<Response, RequestFailure> {
    let body = media::read(call.request, "Scale")?.value;
    change(server, call, options, |_, _| Ok(body.clone()), None)
}

/// Answers a patch of a scale.
pub(super) fn patch(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
    kind: PatchKind,
) -> Result<Response, RequestFailure> {
    if kind == PatchKind::Apply {
        let body = applied(call)?;
        let force = options.force.unwrap_or(false);
        return change(server, call, options, |_, _| Ok(body.clone()), Some(force));
    }
    change(server, call, options, |call, scale| patched(server, call, scale, kind), None)
}

/// A scale whose numbers are such that Go can hold.
fn understood(scale: Value) -> Result<Value, RequestFailure> {
    let Some(id) = types().kind("autoscaling/v1", "Scale") else { return Ok(scale) };
    let unreadable = |why: String| {
        RequestFailure::bad_request(format!(
            "Scale in version \"v1\" cannot be handled as a Scale: {why}"
        ))
    };
    decode(&scale, id).map(|decoded| decoded.object).map_err(unreadable)
}

fn change(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
    make: impl Fn(&ServerCall<'_>, &Value) -> Result<Value, RequestFailure>,
    apply: Option<bool>,
) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let target = RequestTarget { subresource: String::new(), ..call.target.clone() };
    let mut tries = 0;
    loop {
        let old = current(&server.read(), &target)?;
        let before = of(&server.read(), &target, &old)?;
        let scale = understood(make(call, &before)?)?;
        let version = scale.str_at(["metadata", "resourceVersion"]).filter(|text| !text.is_empty());
        if version
            .is_some_and(|version| Some(version) != old.str_at(["metadata", "resourceVersion"]))
        {
            return Err(RequestFailure::modified(&target.about()));
        }
        let replicas = scale.get_path(["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(0);
        let (path, _) = paths(&server.read(), &target);
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        let mut new = old.clone();
        let keeper = Keeper::new(
            server,
            &RequestTarget { subresource: "scale".to_owned(), ..target.clone() },
            options,
        );
        match apply {
            None => {
                let _ = new.set(path, replicas);
                keeper.update(Some(&old), &mut new);
            }
            Some(force) => {
                let mut part = value!({"apiVersion": (target.api_version()), "kind": (target.kind.kind()), "metadata": {"name": (target.name.as_str())}});
                let _ = part.set(path, replicas);
                let Some(keeping) = keeper.keeping() else { return Err(RequestFailure::method()) };
                new = keeping.apply(Some(&old), &part, force)?;
            }
        }
        if replicas < 0 {
            let why = "must be greater than or equal to 0";
            let problem = FieldProblem::invalid("spec.replicas", replicas, why);
            return Err(RequestFailure::invalid("autoscaling", "Scale", &target.name, &[problem]));
        }
        let _ = new.set(
            ["metadata", "resourceVersion"],
            old.get_path(["metadata", "resourceVersion"]).cloned(),
        );
        let change = ObjectUpdate {
            target: &target,
            options,
            user: &call.user,
            managed: true,
            warnings: &mut call.warnings,
        };
        match update_object(server, change, &old, new) {
            Err(failure) if failure.code == 409 && version.is_none() && tries < TRIES => tries += 1,
            outcome => {
                let scale = of(&server.read(), &target, &outcome?)?;
                return Ok(Response::json(
                    200,
                    &if form == ResponseForm::Table {
                        table::scale(&scale, server.host.now().0)
                    } else {
                        scale
                    },
                ));
            }
        }
    }
}
