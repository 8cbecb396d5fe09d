//! The end of objects.

use kiln_object::metadata::is_deleted;
use kiln_value::{Map, Value};

use super::update::is_over;
use super::{TRIES, has_generation, metadata_mut, store, take};
use crate::access::authorization::User;
use crate::admission::{self, Review, WriteOperation};
use crate::read::listing;
use crate::read::{self, Filter, current};
use crate::request::Response;
use crate::request::media;
use crate::request::options::{DeleteOptions, Propagation};
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::{About, RequestFailure};
use crate::types::convert::{from_storage, to_storage};

/// What became of an object.
pub(crate) enum Gone {
    /// It is gone; its last state.
    Now(Value),
    /// It waits for finalizers.
    Later(Value),
}

/// The namespaces that stay.
const LASTING: [&str; 3] = ["default", "kube-system", "kube-public"];

fn options(call: &ServerCall<'_>) -> Result<DeleteOptions, RequestFailure> {
    let empty = call.request.body.iter().all(u8::is_ascii_whitespace);
    let body = if empty { Value::map() } else { media::read(call.request, "DeleteOptions")?.value };
    DeleteOptions::read(&call.parameters, &body)
}

/// Answers a deletion.
pub(crate) fn delete(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let options = options(call)?;
    let (target, user) = (call.target.clone(), call.user.clone());
    let always_object = answers_with_object(&target);
    match remove_object(server, &target, &user, &options, &mut call.warnings)? {
        Gone::Now(object) if !always_object => {
            let mut details = Map::new();
            details.insert("name", target.name.as_str());
            if !target.kind.group().is_empty() {
                details.insert("group", target.kind.group());
            }
            details.insert("kind", target.kind.plural());
            if let Some(uid) = object.get_path(["metadata", "uid"]) {
                details.insert("uid", uid.clone());
            }
            Ok(Response::json(200, &success(Some(details), None)))
        }
        Gone::Now(object) | Gone::Later(object) => read::respond(server, call, 200, &object, form),
    }
}

/// Whether the answer to a deletion is the object also when it is gone.
fn answers_with_object(target: &RequestTarget) -> bool {
    match (target.kind.group(), target.kind.kind()) {
        ("", kind) => matches!(
            kind,
            "Namespace"
                | "PersistentVolume"
                | "PersistentVolumeClaim"
                | "Pod"
                | "PodTemplate"
                | "ResourceQuota"
                | "Service"
                | "ServiceAccount"
        ),
        ("storage.k8s.io", kind) => {
            matches!(kind, "CSIDriver" | "CSINode" | "StorageClass" | "VolumeAttachment")
        }
        (_, kind) => kind == "CustomResourceDefinition",
    }
}

/// A `Status` that says that something went well.
pub(crate) fn success(details: Option<Map>, code: Option<u16>) -> Value {
    let mut status = Map::new();
    status.insert("kind", "Status");
    status.insert("apiVersion", "v1");
    status.insert("metadata", Value::map());
    status.insert("status", "Success");
    if let Some(details) = details {
        status.insert("details", Value::Map(details));
    }
    if let Some(code) = code {
        status.insert("code", i64::from(code));
    }
    Value::Map(status)
}

/// Answers the deletion of many.
pub(crate) fn delete_collection(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    // Kubernetes reads the selectors first.
    Filter::read(&server.read(), &call.target, &call.parameters)?;
    let options = options(call)?;
    let page = read::page(server, call)?;
    // Kubernetes: the answer has the objects as they were listed.
    let mut items = page.objects.clone();
    for object in page.objects {
        let name = object.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
        let namespace = object.str_at(["metadata", "namespace"]).unwrap_or_default().to_owned();
        let target = RequestTarget { name, namespace, ..call.target.clone() };
        match remove_object(server, &target, &call.user, &options, &mut call.warnings) {
            Err(failure) if failure.code != 404 => return Err(failure),
            _ => {}
        }
    }
    let custom = server.read().is_custom(&call.target.kind.gvk());
    for item in &mut items {
        if !custom && let Some(map) = item.as_map_mut() {
            map.remove("kind");
            map.remove("apiVersion");
        }
    }
    let mut metadata = Map::new();
    metadata.insert("resourceVersion", server.revision().to_string());
    if custom {
        metadata.insert("continue", "");
    }
    let list = listing(&call.target.kind.list_kind(), &call.target.api_version(), metadata, items);
    Ok(Response::json(200, &list))
}

/// Deletes an object, or marks it as deleted.
pub(crate) fn remove_object(
    server: &Server,
    target: &RequestTarget,
    user: &User,
    options: &DeleteOptions,
    warnings: &mut Vec<String>,
) -> Result<Gone, RequestFailure> {
    let kind = &target.kind;
    let is_namespace = kind.kind() == "Namespace" && kind.group().is_empty();
    for _ in 0..TRIES {
        let old = current(&server.read(), target)?;
        check_preconditions(target, &old, options)?;
        if is_namespace && LASTING.contains(&target.name.as_str()) {
            return Err(RequestFailure::forbidden(
                &target.about(),
                "this namespace may not be deleted",
            ));
        }
        let review = Review {
            target,
            user,
            operation: WriteOperation::Delete,
            old: Some(&old),
            dry_run: options.dry_run,
        };
        let mut nothing = Value::Null;
        admission::change(server, &review, &mut nothing, warnings)?;
        admission::check(server, &review, &mut nothing, warnings)?;
        let new = marked(server, target, &old, options);
        let over = is_over(&new);
        if options.dry_run {
            return Ok(if over { Gone::Now(new) } else { Gone::Later(new) });
        }
        if !over && new == old {
            return Ok(Gone::Later(old));
        }
        let mut state = server.write();
        let version =
            |object: &Value| object.str_at(["metadata", "resourceVersion"]).map(str::to_owned);
        let key = ServerState::key(target);
        let stored = state.store.get(&key, &target.namespace, &target.name);
        if stored.and_then(version) != version(&old) {
            continue;
        }
        let gone = if over {
            let gone =
                take(&mut state, kind.group(), kind.plural(), &target.namespace, &target.name);
            let revision = gone.as_ref().and_then(version);
            let mut last = new;
            if let Some(revision) = revision {
                let _ = last.set(["metadata", "resourceVersion"], revision);
            }
            Gone::Now(last)
        } else {
            let stored = store(&mut state, kind.group(), kind.plural(), to_storage(new, kind));
            Gone::Later(from_storage(&stored, kind))
        };
        let revision = state.store.revision();
        drop(state);
        server.host.changed(revision);
        return Ok(gone);
    }
    Err(RequestFailure::modified(&target.about()))
}

/// The object as a deletion leaves it.
fn marked(server: &Server, target: &RequestTarget, old: &Value, options: &DeleteOptions) -> Value {
    let kind = &target.kind;
    let mut new = old.clone();
    let counts = has_generation(&server.read(), &kind.gvk());
    let fresh = !is_deleted(old);
    let now = server.timestamp();
    let is_namespace = kind.kind() == "Namespace" && kind.group().is_empty();
    let mut finalizers: Vec<Value> = old
        .get_path(["metadata", "finalizers"])
        .and_then(Value::as_list)
        .map(|list| list.to_vec())
        .unwrap_or_default();
    let has = |name: &str| finalizers.iter().any(|one| one.as_str() == Some(name));
    let own = match options.propagation {
        Some(Propagation::Foreground) => Some("foregroundDeletion"),
        Some(Propagation::Orphan) => Some("orphan"),
        Some(Propagation::Background) => None,
        None => ["orphan", "foregroundDeletion"].into_iter().find(|name| has(name)),
    };
    // Kubernetes: a later deletion may say otherwise, but for namespaces.
    if fresh || !is_namespace {
        finalizers.retain(|name| !matches!(name.as_str(), Some("foregroundDeletion" | "orphan")));
        finalizers.extend(own.map(Value::from));
    }
    if fresh && kind.kind() == "CustomResourceDefinition" {
        let cleanup = Value::from("customresourcecleanup.apiextensions.k8s.io");
        if !finalizers.contains(&cleanup) {
            finalizers.push(cleanup);
        }
    }
    if let Some(metadata) = metadata_mut(&mut new) {
        if finalizers.is_empty() {
            metadata.remove("finalizers");
        } else {
            metadata.insert("finalizers", finalizers);
        }
        if fresh {
            metadata.insert("deletionTimestamp", now);
            if !is_namespace {
                metadata.insert("deletionGracePeriodSeconds", 0);
            }
            if counts {
                let generation = metadata.get("generation").and_then(Value::as_i64).unwrap_or(0);
                metadata.insert("generation", generation + 1);
            }
        }
    }
    if is_namespace && fresh {
        let _ = new.set(["status", "phase"], "Terminating");
    }
    new
}

fn check_preconditions(
    target: &RequestTarget,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), RequestFailure> {
    let is_namespace = target.kind.kind() == "Namespace" && target.kind.group().is_empty();
    if let (true, Some(uid), Some(known)) =
        (is_namespace, &options.uid, old.str_at(["metadata", "uid"]))
        && uid != known
    {
        let why =
            format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {known}");
        return Err(RequestFailure::conflict(&target.about(), &why));
    }
    // The one place where the kind stands for the resource.
    let about = About::new(target.kind.group(), target.kind.kind(), &target.name);
    let text = |field: &str| old.str_at(["metadata", field]).unwrap_or_default();
    if let Some(uid) = &options.uid
        && uid != text("uid")
    {
        let why = format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted and then recreated",
            text("uid")
        );
        return Err(RequestFailure::conflict(&about, &why));
    }
    if let Some(version) = &options.resource_version
        && version != text("resourceVersion")
    {
        let why = format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The object might have been modified",
            text("resourceVersion")
        );
        return Err(RequestFailure::conflict(&about, &why));
    }
    Ok(())
}
