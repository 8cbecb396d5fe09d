//! New objects.

use kiln_value::Value;

use super::{
    Keeper, check_weight, fill_defaults, has_generation, has_status, invalid, metadata_mut,
    name_end, new_uid, read_body, store,
};
use crate::access::escalation;
use crate::admission::{self, Review, WriteOperation};
use crate::controllers::furnish;
use crate::read;
use crate::request::Response;
use crate::request::media;
use crate::request::options::WriteOptions;
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::RequestFailure;
use crate::types::convert::{from_storage, to_storage};
use crate::write::managed_fields;
use crate::{defaults, validate};

/// How often a made-up name is made up anew because it is taken.
const NAMES: usize = 8;

/// An object that is being created.
pub(crate) struct Creation<'c> {
    pub(crate) target: &'c RequestTarget,
    pub(crate) options: &'c WriteOptions,
    pub(crate) user: &'c crate::access::authorization::User,
    /// Whether its managers are written already.
    pub(crate) managed: bool,
    pub(crate) warnings: &'c mut Vec<String>,
}

/// Answers a creation.
pub(crate) fn create(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let (form, _) = media::accepted(call.request)?;
    let options = WriteOptions::read(call.request, &call.parameters, "CreateOptions")?;
    let object = read_body(server, call, &options)?;
    let version = object.str_at(["metadata", "resourceVersion"]).unwrap_or_default();
    // Kubernetes: it is the storage that minds, and a dry run does not reach it.
    if version.parse::<u64>().is_ok() && !options.dry_run {
        return Err(RequestFailure::internal(
            "resourceVersion should not be set on objects to be created",
        ));
    }
    let creation = Creation {
        target: &call.target,
        options: &options,
        user: &call.user,
        managed: false,
        warnings: &mut call.warnings,
    };
    let stored = create_object(server, creation, object)?;
    read::respond(server, call, 201, &stored, form)
}

/// Creates an object that is understood already; the object as it is then.
pub(crate) fn create_object(
    server: &Server,
    creation: Creation<'_>,
    mut object: Value,
) -> Result<Value, RequestFailure> {
    let Creation { target, options, user, managed, warnings } = creation;
    let kind = &target.kind;
    let gvk = kind.gvk();
    check_namespace(&mut object, target)?;
    let named = object.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
    if !target.name.is_empty() && named != target.name {
        return Err(RequestFailure::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            target.name
        )));
    }
    let keeper = Keeper::new(server, target, options);
    {
        let state = server.read();
        fill_defaults(&state, &gvk, &mut object)?;
    }
    if !managed {
        managed_fields::strip(&mut object);
        let mut tracked = object.clone();
        if has_status(kind)
            && let Some(map) = tracked.as_map_mut()
        {
            map.remove("status");
        }
        keeper.update(None, &mut tracked);
        if let Some(entries) = tracked.get_path(["metadata", "managedFields"]) {
            let _ = object.set(["metadata", "managedFields"], entries.clone());
        }
    }
    let review = Review {
        target,
        user,
        operation: WriteOperation::Create,
        old: None,
        dry_run: options.dry_run,
    };
    admission::change(server, &review, &mut object, warnings)?;
    check_weight(&object)?;
    check_namespace(&mut object, target)?;
    fill_system_fields(server, target, &mut object);
    {
        let state = server.read();
        defaults::prepare(server, &state, &gvk, &mut object);
        // Kubernetes: stored objects are defaulted when they are read, also the status that a client may not send.
        if let Some(custom) = state.customs.get(&gvk) {
            custom.fill_defaults(&mut object);
        }
        if !has_generation(&state, &gvk) {
            // A generation that the client sent stays, where generations are not counted.
        } else if let Some(metadata) = metadata_mut(&mut object) {
            metadata.insert("generation", 1);
        }
    }
    let generated = name_it(server, target, &mut object);
    if generated && gvk.group.is_empty() && gvk.kind == "Namespace" {
        // The label of a namespace is its name.
        defaults::fill(&gvk, &mut object);
    }
    escalation::check(server, user, target, None, &object)?;
    {
        let state = server.read();
        let problems = validate::created(&state, kind, &object);
        invalid(kind, &object, &problems)?;
    }
    admission::check(server, &review, &mut object, warnings)?;
    let mut object = to_storage(object, kind);
    let mut names_left = if generated { NAMES } else { 0 };
    let stored = loop {
        match commit(server, target, options, object.clone()) {
            Err(failure) if failure.reason == "AlreadyExists" && names_left > 0 => {
                names_left -= 1;
                if let Some(metadata) = metadata_mut(&mut object) {
                    metadata.remove("name");
                }
                name_it(server, target, &mut object);
            }
            outcome => break outcome?,
        }
    };
    if !options.dry_run {
        server.host.changed(server.revision());
        if kind.kind() == "Namespace" && kind.group().is_empty() {
            furnish(server, stored.str_at(["metadata", "name"]).unwrap_or_default());
        }
    }
    Ok(from_storage(&stored, kind))
}

fn commit(
    server: &Server,
    target: &RequestTarget,
    options: &WriteOptions,
    object: Value,
) -> Result<Value, RequestFailure> {
    let mut state = server.write();
    let name = object.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
    if state.store.get(&ServerState::key(target), &target.namespace, &name).is_some() {
        return Err(RequestFailure::exists(&target.about_name(&name)));
    }
    if options.dry_run {
        return Ok(object);
    }
    Ok(store(&mut state, target.kind.group(), target.kind.plural(), object))
}

fn check_namespace(object: &mut Value, target: &RequestTarget) -> Result<(), RequestFailure> {
    let given = object.str_at(["metadata", "namespace"]).unwrap_or_default();
    if target.kind.is_namespaced() {
        if !given.is_empty() && given != target.namespace {
            return Err(RequestFailure::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if target.namespace.is_empty() {
            return Err(RequestFailure::bad_request(
                "an empty namespace may not be set during creation",
            ));
        }
        if let Some(metadata) = metadata_mut(object) {
            metadata.insert("namespace", target.namespace.as_str());
        }
    } else if let Some(metadata) = metadata_mut(object) {
        metadata.remove("namespace");
    }
    Ok(())
}

/// What the server sets, whatever the client says.
fn fill_system_fields(server: &Server, target: &RequestTarget, object: &mut Value) {
    let (uid, now) = (new_uid(server), server.timestamp());
    if has_status(&target.kind)
        && let Some(map) = object.as_map_mut()
    {
        map.remove("status");
    }
    if let Some(metadata) = metadata_mut(object) {
        for field in
            ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"]
        {
            metadata.remove(field);
        }
        metadata.insert("uid", uid);
        metadata.insert("creationTimestamp", now);
    }
}

/// Makes a name up if only its beginning is given; whether it did.
fn name_it(server: &Server, target: &RequestTarget, object: &mut Value) -> bool {
    let has_name = object.str_at(["metadata", "name"]).is_some_and(|name| !name.is_empty());
    let prefix = object.str_at(["metadata", "generateName"]).unwrap_or_default().to_owned();
    if has_name || prefix.is_empty() || !target.name.is_empty() {
        return false;
    }
    let prefix: String = prefix.chars().take(58).collect();
    let name = format!("{prefix}{}", name_end(server));
    if let Some(metadata) = metadata_mut(object) {
        metadata.insert("name", name);
    }
    true
}
