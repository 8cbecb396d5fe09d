//! Objects in the place of old ones.

use kiln_object::Kind;
use kiln_value::{Map, Value};

use super::create::Creation;
use super::{
    Keeper, TRIES, check_weight, create_object, fill_defaults, has_generation, has_status, invalid,
    metadata_mut, read_body, store, take,
};
use crate::access::authorization::{self, User};
use crate::access::escalation;
use crate::admission::{self, Review, WriteOperation};
use crate::read::{self, current};
use crate::request::Response;
use crate::request::media;
use crate::request::options::WriteOptions;
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::{FieldProblem, RequestFailure};
use crate::types::convert::{from_storage, to_storage};
use crate::{defaults, validate};

/// Answers a replacement.
pub(crate) fn update(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let options = WriteOptions::read(call.request, &call.parameters, "UpdateOptions")?;
    if call.target.subresource == "scale" {
        return super::scale::update(server, call, &options);
    }
    let body = read_body(server, call, &options)?;
    let has_version =
        body.str_at(["metadata", "resourceVersion"]).is_some_and(|version| !version.is_empty());
    // Kubernetes: before it looks whether there is such an object.
    check_identity(&body, &call.target)?;
    let mut tries = 0;
    loop {
        let found = current(&server.read(), &call.target);
        let old = match found {
            Err(_) if may_be_created(call) => return create_in_place(server, call, &options, body),
            found => found?,
        };
        let custom = server.read().is_custom(&call.target.kind.gvk());
        if custom && !has_version {
            let kind = &call.target.kind;
            let problem = FieldProblem::invalid(
                "metadata.resourceVersion",
                0,
                "must be specified for an update",
            );
            return Err(RequestFailure::invalid(
                kind.group(),
                kind.plural(),
                &call.target.name,
                &[problem],
            ));
        }
        let uid = body.str_at(["metadata", "uid"]).unwrap_or_default();
        let known = old.str_at(["metadata", "uid"]).unwrap_or_default();
        if !uid.is_empty() && uid != known {
            let (plural, namespace, name) =
                (call.target.kind.plural(), &call.target.namespace, &call.target.name);
            let why = format!(
                "StorageError: invalid object, Code: 4, Key: /registry/{plural}/{namespace}/{name}, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: UID in precondition: {uid}, UID in object meta: {known}"
            );
            return Err(RequestFailure::conflict(&call.target.about(), &why));
        }
        let change = ObjectUpdate {
            target: &call.target,
            options: &options,
            user: &call.user,
            managed: false,
            warnings: &mut call.warnings,
        };
        match update_object(server, change, &old, body.clone()) {
            Err(failure) if failure.reason == "Conflict" && !has_version && tries < TRIES => {
                tries += 1;
            }
            outcome => return read::respond(server, call, 200, &outcome?, form),
        }
    }
}

/// Why nothing is created for an object that names a UID.
pub(super) fn nothing_with_uid(uid: &str) -> String {
    format!(
        "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
    )
}

/// Whether a replacement of what is not there creates it.
fn may_be_created(call: &ServerCall<'_>) -> bool {
    let kind = &call.target.kind;
    call.target.subresource.is_empty()
        && match kind.group() {
            "" => matches!(kind.kind(), "Endpoints" | "Event" | "LimitRange" | "Service"),
            "coordination.k8s.io" => kind.kind() == "Lease",
            group => group == "rbac.authorization.k8s.io",
        }
}

fn create_in_place(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
    mut body: Value,
) -> Result<Response, RequestFailure> {
    let uid = body.str_at(["metadata", "uid"]).unwrap_or_default();
    if !uid.is_empty() {
        return Err(RequestFailure::conflict(&call.target.about(), &nothing_with_uid(uid)));
    }
    // Kubernetes: a version is not compared with what is not there.
    body.remove(["metadata", "resourceVersion"]);
    let (form, _) = media::accepted(call.request)?;
    authorization::authorize(server, &call.user, "create", &call.target)?;
    let creation = Creation {
        target: &call.target,
        options,
        user: &call.user,
        managed: false,
        warnings: &mut call.warnings,
    };
    let stored = create_object(server, creation, body)?;
    read::respond(server, call, 201, &stored, form)
}

/// An object that is to replace another.
pub(crate) struct ObjectUpdate<'c> {
    pub(crate) target: &'c RequestTarget,
    pub(crate) options: &'c WriteOptions,
    pub(crate) user: &'c User,
    /// Whether its managers are written already.
    pub(crate) managed: bool,
    pub(crate) warnings: &'c mut Vec<String>,
}

/// The name and namespace of what is written are those of the path.
pub(super) fn check_identity(object: &Value, target: &RequestTarget) -> Result<(), RequestFailure> {
    let text = |field: &str| object.str_at(["metadata", field]).unwrap_or_default();
    let (name, namespace) = (text("name"), text("namespace"));
    if name.is_empty() {
        return Err(RequestFailure::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    if name != target.name {
        return Err(RequestFailure::bad_request(format!(
            "the name of the object ({name}) does not match the name on the URL ({})",
            target.name
        )));
    }
    if !namespace.is_empty() && namespace != target.namespace {
        return Err(RequestFailure::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    Ok(())
}

/// Puts an object, understood already, in the place of `old`; the object as it is then.
pub(crate) fn update_object(
    server: &Server,
    change: ObjectUpdate<'_>,
    old: &Value,
    mut new: Value,
) -> Result<Value, RequestFailure> {
    let ObjectUpdate { target, options, user, managed, warnings } = change;
    let kind = &target.kind;
    let gvk = kind.gvk();
    let version = new.str_at(["metadata", "resourceVersion"]).unwrap_or_default();
    // Everything from here on works on a copy and without a lock; the version decides at the end whether it still holds.
    let known = old.str_at(["metadata", "resourceVersion"]).unwrap_or_default().to_owned();
    if !version.is_empty() && version.parse::<u64>().is_err() {
        let why = format!("strconv.ParseUint: parsing {version:?}: invalid syntax");
        return Err(RequestFailure::internal(why));
    }
    if !version.is_empty() && version != known {
        return Err(RequestFailure::modified(&target.about()));
    }
    let uid = new.str_at(["metadata", "uid"]).unwrap_or_default();
    if !uid.is_empty() && Some(uid) != old.str_at(["metadata", "uid"]) {
        let problem = FieldProblem::invalid("metadata.uid", uid, "field is immutable");
        return Err(RequestFailure::invalid(kind.group(), kind.kind(), &target.name, &[problem]));
    }
    keep_system_fields(old, &mut new, target);
    let keeper = Keeper::new(server, target, options);
    {
        let state = server.read();
        keep_other_parts(target, old, &mut new);
        fill_defaults(&state, &gvk, &mut new)?;
        defaults::prepare_change(server, &state, &gvk, old, &mut new);
    }
    if !managed {
        keeper.update(Some(old), &mut new);
    }
    let review = Review {
        target,
        user,
        operation: WriteOperation::Update,
        old: Some(old),
        dry_run: options.dry_run,
    };
    admission::change(server, &review, &mut new, warnings)?;
    check_weight(&new)?;
    // Again, since admission may have changed them.
    keep_system_fields(old, &mut new, target);
    escalation::check(server, user, target, Some(old), &new)?;
    {
        let state = server.read();
        if has_generation(&state, &gvk) && content_differs(kind, old, &new) {
            let generation =
                old.get_path(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
            let _ = new.set(["metadata", "generation"], generation + 1);
        }
        let problems = validate::changed(&state, kind, &target.subresource, old, &new);
        invalid(kind, &new, &problems)?;
    }
    admission::check(server, &review, &mut new, warnings)?;
    // With the old version, so that an update that changes nothing is equal to the stored object and makes no event.
    let _ = new.set(["metadata", "resourceVersion"], known.as_str());
    if new == *old {
        return Ok(old.clone());
    }
    if options.dry_run {
        return Ok(new);
    }
    let mut state = server.write();
    let stored = state.store.get(&ServerState::key(target), &target.namespace, &target.name);
    match stored.and_then(|stored| stored.str_at(["metadata", "resourceVersion"])) {
        Some(stored) if stored == known => {}
        Some(_) => return Err(RequestFailure::modified(&target.about())),
        None => return Err(RequestFailure::not_found(&target.about())),
    }
    let object = to_storage(new, kind);
    let stored = if is_over(&object) {
        take(&mut state, kind.group(), kind.plural(), &target.namespace, &target.name);
        object
    } else {
        store(&mut state, kind.group(), kind.plural(), object)
    };
    let revision = state.store.revision();
    drop(state);
    server.host.changed(revision);
    Ok(from_storage(&stored, kind))
}

/// Whether a deleted object has no finalizers any more.
pub(crate) fn is_over(object: &Value) -> bool {
    let list = |path: [&'static str; 2]| {
        object.get_path(path).and_then(Value::as_list).is_some_and(|l| !l.is_empty())
    };
    let waits = list(["metadata", "finalizers"])
        || object.str_at(["kind"]) == Some("Namespace") && list(["spec", "finalizers"]);
    kiln_object::metadata::is_deleted(object) && !waits
}

/// What only the server writes stays as it was.
fn keep_system_fields(old: &Value, new: &mut Value, target: &RequestTarget) {
    let fields = [
        "uid",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "generation",
        "selfLink",
    ];
    if let Some(metadata) = metadata_mut(new) {
        for field in fields {
            match old.get_path(["metadata", field]) {
                Some(value) => metadata.insert(field, value.clone()),
                None => metadata.remove(field),
            };
        }
        if target.kind.is_namespaced() {
            metadata.insert("namespace", target.namespace.as_str());
        }
        metadata.insert("name", target.name.as_str());
        if metadata.get("generateName").is_none()
            && let Some(prefix) = old.get_path(["metadata", "generateName"])
        {
            metadata.insert("generateName", prefix.clone());
        }
    }
}

/// A write to one part leaves the others as they were.
fn keep_other_parts(target: &RequestTarget, old: &Value, new: &mut Value) {
    match target.subresource.as_str() {
        "" if has_status(&target.kind) => {
            keep(old, new, "status");
            if target.kind.group().is_empty() && target.kind.kind() == "Namespace" {
                // Its finalizers change through a path of their own.
                keep(old, new, "spec");
            }
        }
        "finalize" => {
            let finalizers = new.get_path(["spec", "finalizers"]).cloned();
            *new = old.clone();
            let _ = new.set(["spec", "finalizers"], finalizers.unwrap_or_else(Value::list));
        }
        "approval" => {
            let conditions = new.get_path(["status", "conditions"]).cloned();
            let managed = new.get_path(["metadata", "managedFields"]).cloned();
            *new = old.clone();
            if let Some(conditions) = conditions {
                let _ = new.set(["status", "conditions"], conditions);
            }
            keep_managed(new, managed);
        }
        "ephemeralcontainers" => {
            let containers = new.get_path(["spec", "ephemeralContainers"]).cloned();
            let managed = new.get_path(["metadata", "managedFields"]).cloned();
            *new = old.clone();
            if let Some(containers) = containers {
                let _ = new.set(["spec", "ephemeralContainers"], containers);
            }
            keep_managed(new, managed);
        }
        "status" if keeps_metadata(&target.kind) => {
            for field in old.as_map().into_iter().chain(new.clone().as_map()).flat_map(Map::keys) {
                if !matches!(field.as_str(), "metadata" | "status") {
                    keep(old, new, field.as_str());
                }
            }
            if target.kind.kind() == "Deployment" {
                let labels = old.get_path(["metadata", "labels"]).cloned();
                match labels {
                    Some(labels) => drop(new.set(["metadata", "labels"], labels)),
                    None => drop(new.remove(["metadata", "labels"])),
                }
            }
        }
        "status" => {
            let status = new.get("status").cloned();
            let managed = new.get_path(["metadata", "managedFields"]).cloned();
            *new = old.clone();
            match status {
                Some(status) => {
                    let _ = new.set(["status"], status);
                }
                None => {
                    new.remove(["status"]);
                }
            }
            keep_managed(new, managed);
        }
        _ => {}
    }
}

/// Whether a write to the status of a kind may change labels, annotations and finalizers, too.
fn keeps_metadata(kind: &Kind) -> bool {
    match kind.group() {
        "" | "apps" | "batch" | "autoscaling" | "policy" => true,
        "networking.k8s.io" => kind.kind() == "Ingress",
        _ => false,
    }
}

fn keep_managed(new: &mut Value, managed: Option<Value>) {
    match managed {
        Some(managed) => {
            let _ = new.set(["metadata", "managedFields"], managed);
        }
        None => crate::write::managed_fields::strip(new),
    }
}

fn keep(old: &Value, new: &mut Value, field: &str) {
    if let Some(map) = new.as_map_mut() {
        match old.get(field) {
            Some(value) => map.insert(field, value.clone()),
            None => map.remove(field),
        };
    }
}

/// Whether what counts as a new generation changed.
fn content_differs(kind: &kiln_object::Kind, old: &Value, new: &Value) -> bool {
    let apart = has_status(kind);
    let content = |object: &Value| {
        let mut object = object.clone();
        if let Some(root) = object.as_map_mut() {
            root.remove("metadata");
            if apart {
                root.remove("status");
            }
        }
        object
    };
    // Kubernetes: annotations of Deployments count too.
    let annotations = |object: &Value| object.get_path(["metadata", "annotations"]).cloned();
    content(old) != content(new)
        || kind.kind() == "Deployment" && annotations(old) != annotations(new)
}
