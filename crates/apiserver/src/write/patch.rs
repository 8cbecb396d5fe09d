//! The four kinds of patches.

use kiln_patch::{
    JsonPatch, JsonPatchRules, MergeRules, Merged, StrategicRules, merge_patch, strategic_merge,
};
use kiln_value::{KeyTable, Number, Value, json};

use super::create::Creation;
use super::update::{ObjectUpdate, check_identity, nothing_with_uid};
use super::{Keeper, TRIES, create_object, understand, update_object};
use crate::access::authorization;
use crate::read::{self, current};
use crate::request::Response;
use crate::request::media;
use crate::request::options::{FieldValidation, WriteOptions};
use crate::server::{Server, ServerCall};
use crate::status::{FieldProblem, RequestFailure};
use crate::write::managed_fields;

/// The most operations of a JSON patch.
const MOST_OPERATIONS: usize = 10_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    Json,
    Merge,
    Strategic,
    Apply,
}

/// Answers a patch.
pub(crate) fn patch(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let custom = server.read().is_custom(&call.target.kind.gvk());
    let header = call.request.header("Content-Type").unwrap_or_default();
    let kind = match media::media_type(header) {
        "application/json-patch+json" => PatchKind::Json,
        "application/merge-patch+json" => PatchKind::Merge,
        "application/strategic-merge-patch+json" if !custom => PatchKind::Strategic,
        "application/strategic-merge-patch+json" => {
            return Err(RequestFailure::unsupported(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ));
        }
        "application/apply-patch+yaml" | "application/apply-patch+json" => PatchKind::Apply,
        _ => {
            let failure =
                RequestFailure::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
            return Err(failure.with_details(Value::map()));
        }
    };
    let options = WriteOptions::read(call.request, &call.parameters, "PatchOptions")?;
    let mut problems = Vec::new();
    if kind == PatchKind::Apply && !options.named_manager {
        problems.push(FieldProblem::required("fieldManager", "is required for apply patch"));
    }
    if kind != PatchKind::Apply && options.force.is_some() {
        problems.push(FieldProblem::forbidden("force", "may not be specified for non-apply patch"));
    }
    if !problems.is_empty() {
        return Err(RequestFailure::options("PatchOptions", &problems));
    }
    if call.request.body.len() > media::LONGEST_BODY {
        let message = format!("Request entity too large: limit is {}", media::LONGEST_BODY);
        return Err(RequestFailure::new(413, "RequestEntityTooLarge", message));
    }
    if call.target.subresource == "scale" {
        return super::scale::patch(server, call, &options, kind);
    }
    let (status, object) = if kind == PatchKind::Apply {
        apply(server, call, &options)?
    } else {
        (200, change(server, call, &options, kind)?)
    };
    read::respond(server, call, status, &object, form)
}

fn change(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
    kind: PatchKind,
) -> Result<Value, RequestFailure> {
    let mut tries = 0;
    loop {
        let old = current(&server.read(), &call.target)?;
        let patched = patched(server, call, &old, kind)?;
        let mut unknown = Vec::new();
        let target_kind = call.target.kind.clone();
        check_kind(&patched, call)?;
        let new = understand(&server.read(), &target_kind, patched.clone(), &mut unknown)
            .map_err(|why| unreadable(&patched, &why))?;
        if !unknown.is_empty() {
            let strict: Vec<String> =
                unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
            match options.validation {
                FieldValidation::Strict => {
                    let why = format!("strict decoding error: {}", strict.join(", "));
                    return Err(unreadable(&patched, &why));
                }
                FieldValidation::Warn => call.warnings.extend(strict),
                FieldValidation::Ignore => {}
            }
        }
        check_identity(&new, &call.target)?;
        let version = new.str_at(["metadata", "resourceVersion"]).unwrap_or_default();
        if version.is_empty() && server.read().is_custom(&target_kind.gvk()) {
            let problem = FieldProblem::invalid(
                "metadata.resourceVersion",
                0,
                "must be specified for an update",
            );
            let name = &call.target.name;
            return Err(RequestFailure::invalid(
                target_kind.group(),
                target_kind.plural(),
                name,
                &[problem],
            ));
        }
        let names_version =
            version != old.str_at(["metadata", "resourceVersion"]).unwrap_or_default();
        let change = ObjectUpdate {
            target: &call.target,
            options,
            user: &call.user,
            managed: false,
            warnings: &mut call.warnings,
        };
        // A patch is meant for whatever is stored, so it is computed again when another client was faster. A client that names a
        // version wants to hear of that instead.
        match update_object(server, change, &old, new) {
            Err(failure)
                if failure.reason == "Conflict"
                    && failure.code == 409
                    && !names_version
                    && tries < TRIES =>
            {
                tries += 1;
            }
            outcome => return outcome,
        }
    }
}

/// What a patch makes of an object.
pub(super) fn patched(
    server: &Server,
    call: &ServerCall<'_>,
    old: &Value,
    kind: PatchKind,
) -> Result<Value, RequestFailure> {
    let body = &call.request.body;
    let undecodable =
        |why: &str| RequestFailure::bad_request(format!("error decoding patch: {why}"));
    let patch = json::parse_bytes(body, &mut KeyTable::new()).map_err(|error| {
        let why = media::go_json_error(body, &error.to_string());
        if kind == PatchKind::Strategic {
            RequestFailure::bad_request(why)
        } else {
            undecodable(&why)
        }
    })?;
    let mut new = old.clone();
    match kind {
        PatchKind::Json => {
            let count = match &patch {
                Value::List(list) => list.len(),
                Value::Null => 0,
                other => {
                    let found = super::go_kind(other);
                    let why = format!(
                        "json: cannot unmarshal {found} into Go value of type []handlers.jsonPatchOp"
                    );
                    return Err(undecodable(&why));
                }
            };
            if count > MOST_OPERATIONS {
                let message = format!(
                    "Request entity too large: The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {count}"
                );
                return Err(RequestFailure::new(413, "RequestEntityTooLarge", message));
            }
            let rejected = || {
                let message = "the server rejected our request due to an error in our request";
                RequestFailure::new(422, "Invalid", message).with_details(Value::map())
            };
            malformed_operation(&patch).map_or(Ok(()), |why| Err(undecodable(&why)))?;
            let patch =
                JsonPatch::parse(&patch, JsonPatchRules::kubernetes()).map_err(|_| rejected())?;
            patch.apply(&mut new).map_err(|_| rejected())?;
        }
        PatchKind::Merge => {
            if patch.is_null() {
                return Err(RequestFailure::bad_request("Invalid JSON Patch"));
            }
            if patch.as_map().is_none() {
                let found = super::go_kind(&patch);
                let why = format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                );
                return Err(undecodable(&why));
            }
            merge_patch(&mut new, &patch, MergeRules::kubernetes());
        }
        PatchKind::Strategic => {
            if !matches!(patch, Value::Map(_) | Value::Null) {
                let found = super::go_kind(&patch);
                let why = format!(
                    "json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
                );
                return Err(RequestFailure::bad_request(why));
            }
            let schema = server.read().schema.clone();
            let patch = if patch.is_null() { Value::map() } else { patch };
            let rules = StrategicRules::kubernetes();
            let merged = strategic_merge(&mut new, &patch, &schema, &rules).map_err(|error| {
                let text = error.to_string();
                if ["retainKeys", "primitive list", "must be followed by"]
                    .iter()
                    .any(|words| text.contains(words))
                {
                    RequestFailure::bad_request(text)
                } else {
                    RequestFailure::internal(text)
                }
            })?;
            if merged == Merged::Deleted {
                new = Value::map();
            }
            whole_numbers(&mut new);
            // Kubernetes: typed objects keep their kind.
            for field in ["kind", "apiVersion"] {
                if new.get(field).is_some() {
                    let _ = new.set([field], old.get(field).cloned());
                }
            }
        }
        PatchKind::Apply => {}
    }
    Ok(new)
}

/// Kubernetes: a strategic merge takes `80.0` for `80`.
fn whole_numbers(value: &mut Value) {
    match value {
        Value::Number(Number::Float(float)) if float.fract() == 0.0 && float.abs() < 9e15 => {
            #[allow(clippy::cast_possible_truncation, reason = "it was just measured")]
            let whole = *float as i64;
            *value = Value::from(whole);
        }
        Value::Map(map) if map.values().any(has_float) => {
            map.iter_mut().for_each(|(_, value)| whole_numbers(value));
        }
        Value::List(list) if list.iter().any(has_float) => {
            list.make_mut().iter_mut().for_each(whole_numbers);
        }
        _ => {}
    }
}

fn has_float(value: &Value) -> bool {
    match value {
        Value::Number(Number::Float(_)) => true,
        Value::Map(map) => map.values().any(has_float),
        Value::List(list) => list.iter().any(has_float),
        _ => false,
    }
}

/// An operation whose parts have types that Go cannot read.
fn malformed_operation(patch: &Value) -> Option<String> {
    let list = patch.as_list()?;
    for operation in list {
        if !matches!(operation, Value::Map(_) | Value::Null) {
            let found = super::go_kind(operation);
            return Some(format!(
                "json: cannot unmarshal {found} into Go value of type handlers.jsonPatchOp"
            ));
        }
        for field in ["op", "path", "from"] {
            if let Some(value) = operation.get(field)
                && !matches!(value, Value::String(_) | Value::Null)
            {
                let found = super::go_kind(value);
                return Some(format!(
                    "json: cannot unmarshal {found} into Go struct field jsonPatchOp.{field} of type string"
                ));
            }
        }
    }
    None
}

/// A patch does not make another kind of an object.
fn check_kind(patched: &Value, call: &ServerCall<'_>) -> Result<(), RequestFailure> {
    let kind = &call.target.kind;
    let text = |field: &str| patched.str_at([field]).unwrap_or_default();
    let (found, version) = (text("kind"), text("apiVersion"));
    if version.is_empty() {
        let name = &call.target.name;
        return Err(RequestFailure::bad_request(format!(
            "the name of the object ({name} based on URL) was undeterminable: name must be provided"
        )));
    }
    if !found.is_empty() && found != kind.kind()
        || !version.is_empty() && version != call.target.api_version()
    {
        let why = format!("no kind {found:?} is registered for version {version:?}");
        return Err(unreadable(patched, &why));
    }
    Ok(())
}

/// What a patch made cannot be read as an object of its kind.
fn unreadable(patched: &Value, why: &str) -> RequestFailure {
    let why = why
        .split_once(": ")
        .filter(|(before, _)| before.contains("cannot be handled"))
        .map_or(why, |(_, why)| why);
    let problem = FieldProblem::invalid("patch", json::to_canonical_string(patched), why);
    RequestFailure::invalid("", "", "", &[problem])
}

fn apply(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
) -> Result<(u16, Value), RequestFailure> {
    let applied = applied(call)?;
    let target_kind = call.target.kind.clone();
    let force = options.force.unwrap_or(false);
    let mut tries = 0;
    loop {
        let old = current(&server.read(), &call.target).ok();
        let uid = applied.str_at(["metadata", "uid"]).unwrap_or_default();
        if old.is_none() && !uid.is_empty() {
            let why = nothing_with_uid(uid);
            return Err(RequestFailure::conflict(&call.target.about(), &why));
        }
        if old.is_none() && !call.target.subresource.is_empty() {
            return Err(RequestFailure::not_found(&call.target.about()));
        }
        if old.is_none() {
            // Kubernetes: a client that creates an object by apply needs both permissions.
            authorization::authorize(server, &call.user, "create", &call.target)?;
        }
        let keeper = Keeper::new(server, &call.target, options);
        let Some(keeping) = keeper.keeping() else {
            return Err(RequestFailure::internal("the types of this kind are not known here"));
        };
        let merged = keeping.apply(old.as_ref(), &applied, force)?;
        // Carried past decoding: they are in their final form already.
        let entries = merged.get_path(["metadata", "managedFields"]).cloned();
        let mut unknown = Vec::new();
        let mut new = understand(&server.read(), &target_kind, merged, &mut unknown)
            .map_err(RequestFailure::internal)?;
        match entries {
            Some(entries) => {
                let _ = new.set(["metadata", "managedFields"], entries);
            }
            None => managed_fields::strip(&mut new),
        }
        let Some(old) = old else {
            let creation = Creation {
                target: &call.target,
                options,
                user: &call.user,
                managed: true,
                warnings: &mut call.warnings,
            };
            match create_object(server, creation, new) {
                Err(failure) if failure.reason == "AlreadyExists" && tries < TRIES => tries += 1,
                outcome => return outcome.map(|object| (201, object)),
            }
            continue;
        };
        let names_version =
            applied.str_at(["metadata", "resourceVersion"]).is_some_and(|text| !text.is_empty());
        let change = ObjectUpdate {
            target: &call.target,
            options,
            user: &call.user,
            managed: true,
            warnings: &mut call.warnings,
        };
        match update_object(server, change, &old, new) {
            Err(failure) if failure.code == 409 && !names_version && tries < TRIES => tries += 1,
            outcome => return outcome.map(|object| (200, object)),
        }
    }
}

/// The body of an apply, checked.
pub(super) fn applied(call: &ServerCall<'_>) -> Result<Value, RequestFailure> {
    let body = &call.request.body;
    let target = &call.target;
    let value = match json::parse_bytes(body, &mut KeyTable::new()) {
        Ok(value) => value,
        Err(_) => media::yaml(body).map_err(|why| {
            RequestFailure::bad_request(format!(
                "error decoding YAML: error converting YAML to JSON: yaml: {why}"
            ))
        })?,
    };
    if !matches!(value, Value::Map(_) | Value::Null) {
        let found = super::go_kind(&value);
        return Err(RequestFailure::bad_request(format!(
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {found} into Go value of type map[string]interface {{}}"
        )));
    }
    let mut value = if value.is_null() { Value::map() } else { value };
    let text = |field: &str| value.str_at([field]).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    let (wanted_version, wanted_kind) = match target.subresource.as_str() {
        "scale" => ("autoscaling/v1".to_owned(), "Scale".to_owned()),
        _ => (target.api_version(), target.kind.kind().to_owned()),
    };
    if version != wanted_version || kind != wanted_kind {
        let (group, version) = version.split_once('/').unwrap_or(("", version));
        return Err(RequestFailure::bad_request(format!(
            "invalid object type: {group}/{version}, Kind={kind}"
        )));
    }
    let managed = value.get_path(["metadata", "managedFields"]);
    if managed.is_some_and(|managed| !managed.is_null()) {
        return Err(RequestFailure::bad_request("metadata.managedFields must be nil"));
    }
    check_identity(&value, target)?;
    managed_fields::strip(&mut value);
    Ok(value)
}
