//! Writing: how objects come, change and go.
//!
//! ```text
//! body ─▶ understood ─▶ defaults ─▶ managers ─▶ admission changes it, and each change is understood again
//!      ─▶ checks ─▶ admission agrees ─▶ stored
//! ```
//!
//! Nothing is locked while admission thinks: what was read is compared with the stored object when it is stored.

mod create;
mod delete;
pub(crate) mod managed_fields;
mod patch;
pub(crate) mod scale;
mod subresource;
mod update;

use kiln_object::{Gvk, Kind};
use kiln_value::{Map, Value};

pub(crate) use create::{Creation, create, create_object};
pub(crate) use delete::{delete, delete_collection, remove_object};
pub(crate) use patch::patch;
pub(crate) use subresource::create_subresource;
pub(crate) use update::{is_over, update, update_object};

use crate::crd::Customs;
use crate::defaults;
use crate::request::media;
use crate::request::options::{FieldValidation, WriteOptions};
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall, ServerState};
use crate::status::{FieldProblem, RequestFailure};
use crate::storage::object_size::{HEAVIEST, weight};
use crate::types::{decode, types};
use crate::write::managed_fields::{Keeping, Kinded};

/// How often a write is tried again because another client wrote.
const TRIES: usize = 8;

/// Reads the body of a write as an object of its kind.
fn read_body(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
) -> Result<Value, RequestFailure> {
    let kind = call.target.kind.clone();
    let body = media::read(call.request, kind.kind())?;
    if server.read().is_custom(&kind.gvk()) && body.value.as_map().is_some() {
        // Kubernetes: custom objects have no type that could say what they are.
        for (field, name) in [("kind", "Kind"), ("apiVersion", "apiVersion")] {
            if body.value.str_at([field]).unwrap_or_default().is_empty() {
                let text = String::from_utf8_lossy(&call.request.body);
                let why = format!("Object '{name}' is missing in '{text}'");
                return Err(media::unrecognized(call.request, kind.kind(), &why));
            }
        }
    }
    let mut unknown = Vec::new();
    let object = understand(&server.read(), &kind, body.value, &mut unknown)
        .map_err(RequestFailure::bad_request)?;
    let mut strict: Vec<String> =
        unknown.iter().map(|field| format!("unknown field {field:?}")).collect();
    strict.extend(body.duplicate.iter().map(|field| format!("duplicate field {field:?}")));
    tell_strict(call, options, (kind.kind(), kind.version()), strict)?;
    Ok(object)
}

/// Tells what is strictly wrong with a body as the client wishes: as a failure, as warnings, not at all.
fn tell_strict(
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
    (kind, version): (&str, &str),
    strict: Vec<String>,
) -> Result<(), RequestFailure> {
    match options.validation {
        FieldValidation::Strict if !strict.is_empty() => Err(RequestFailure::bad_request(format!(
            "{kind} in version {version:?} cannot be handled as a {kind}: strict decoding error: {}",
            strict.join(", ")
        ))),
        FieldValidation::Warn => {
            call.warnings.extend(strict);
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Takes a value for an object of a kind: its types hold, unknown fields are dropped.
fn understand(
    state: &ServerState,
    kind: &Kind,
    mut object: Value,
    unknown: &mut Vec<String>,
) -> Result<Value, String> {
    let (name, gvk) = (kind.kind(), kind.gvk());
    let handled = |version: &str, found: &str, why: &str| {
        format!("{found} in version {version:?} cannot be handled as a {name}: {why}")
    };
    if object.as_map().is_none() {
        let why =
            format!("json: cannot unmarshal {} into Go value of type v1.{name}", go_kind(&object));
        return Err(handled(kind.version(), name, &why));
    }
    let text =
        |object: &Value, field: &str| object.str_at([field]).map(str::to_owned).unwrap_or_default();
    let (found_version, found_kind) = (text(&object, "apiVersion"), text(&object, "kind"));
    let api_version = gvk.api_version();
    if !found_kind.is_empty()
        && found_kind != name
        && types().kind(&found_version, &found_kind).is_some()
    {
        let group = if gvk.group.is_empty() {
            "core"
        } else {
            gvk.group.split('.').next().unwrap_or_default()
        };
        let version = found_version.rsplit('/').next().unwrap_or_default();
        let why =
            format!("converting ({version}.{found_kind}) to ({group}.{name}): unknown conversion");
        return Err(handled(version, &found_kind, &why));
    }
    if !found_version.is_empty() && found_version != api_version
        || !found_kind.is_empty() && found_kind != name
    {
        if state.is_custom(&gvk) {
            return Err(format!(
                "the API version in the data ({found_version}) does not match the expected API version ({api_version})"
            ));
        }
        let found_kind = if found_kind.is_empty() { name } else { &found_kind };
        let why = format!(
            "no kind {found_kind:?} is registered for version {found_version:?} in scheme \"pkg/api/legacyscheme/scheme.go:30\""
        );
        let version = found_version.rsplit('/').next().unwrap_or_default();
        return Err(handled(version, found_kind, &why));
    }
    if let Some(map) = object.as_map_mut() {
        map.insert("kind", name);
        map.insert("apiVersion", api_version.as_str());
    }
    let mut object = decode_as(&state.customs, &gvk, object, unknown)
        .map_err(|why| handled(kind.version(), name, &why))?;
    // Kubernetes: zero stands for no version.
    if object.str_at(["metadata", "resourceVersion"]) == Some("0") {
        object.remove(["metadata", "resourceVersion"]);
    }
    Ok(object)
}

/// Decodes an object that says of what kind it is, in Go's words where it cannot be.
pub(crate) fn decode_as(
    customs: &Customs,
    gvk: &Gvk,
    mut object: Value,
    unknown: &mut Vec<String>,
) -> Result<Value, String> {
    if let Some(custom) = customs.get(gvk) {
        let metadata = object.get("metadata").cloned().unwrap_or_else(Value::map);
        let metadata = decode_metadata(&metadata, unknown)?;
        let given = object.clone();
        let _ = object.set(["metadata"], metadata);
        keep_reset(&given, &mut object);
        unknown.extend(custom.prune(&mut object));
        return Ok(object);
    }
    let id = types().kind(&gvk.api_version(), &gvk.kind).ok_or("its type is not known here")?;
    let decoded = decode(&object, id)?;
    unknown.extend(decoded.unknown);
    let mut decoded = decoded.object;
    keep_reset(&object, &mut decoded);
    Ok(decoded)
}

/// Decodes an object again after a webhook or a policy changed it, and fills in its defaults: what rules make has the
/// types that clients are held to.
///
/// # Errors
/// In the words of Kubernetes, which decodes the result of each mutation and calls a failure internal.
pub(crate) fn decode_mutated(
    server: &Server,
    target: &RequestTarget,
    before: &Value,
    after: Value,
) -> Result<Value, RequestFailure> {
    let gvk = target.kind.gvk();
    // Evictions and the like are of another kind than the object that they belong to.
    if before.str_at(["kind"]) != Some(gvk.kind.as_str()) || *before == after {
        return Ok(after);
    }
    let internal = |why: String| {
        RequestFailure::new(500, "InternalError", format!("Internal error occurred: {why}"))
    };
    let found = Gvk::of(&after).unwrap_or_default();
    if found != gvk {
        return Err(internal(format!(
            "a mutation made {} {} of {} {}",
            found.api_version(),
            found.kind,
            gvk.api_version(),
            gvk.kind
        )));
    }
    let state = server.read();
    // Kubernetes: unknown fields go without a word here.
    let mut decoded = decode_as(&state.customs, &gvk, after, &mut Vec::new()).map_err(internal)?;
    fill_defaults(&state, &gvk, &mut decoded)?;
    Ok(decoded)
}

/// An empty list of managers, which typed objects do not have, means that all are to go.
fn keep_reset(given: &Value, read: &mut Value) {
    let list = given.get_path(["metadata", "managedFields"]).and_then(Value::as_list);
    if list.is_some_and(|list| list.is_empty()) {
        let _ = read.set(["metadata", "managedFields"], Value::list());
    }
}

/// Metadata of a custom object, with the types of all others.
fn decode_metadata(metadata: &Value, unknown: &mut Vec<String>) -> Result<Value, String> {
    let mut holder = Map::new();
    holder.insert("metadata", metadata.clone());
    let id = types().kind("v1", "ConfigMap").ok_or("no types")?;
    let decoded = decode(&Value::Map(holder), id)?;
    unknown.extend(decoded.unknown);
    Ok(decoded.object.get("metadata").cloned().unwrap_or_else(Value::map))
}

fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "array",
        Value::String(_) => "string",
        Value::Number(_) => "number",
        Value::Bool(_) => "bool",
        _ => "object",
    }
}

/// Fills in what the kind has defaults for.
fn fill_defaults(state: &ServerState, gvk: &Gvk, object: &mut Value) -> Result<(), RequestFailure> {
    let filled = match state.customs.get(gvk) {
        Some(custom) => custom.fill_defaults(object),
        None => {
            defaults::fill(gvk, object);
            true
        }
    };
    if filled { check_weight(object) } else { Err(too_large()) }
}

/// Refuses what is too large to be stored.
fn check_weight(object: &Value) -> Result<(), RequestFailure> {
    if weight(object, HEAVIEST) > HEAVIEST { Err(too_large()) } else { Ok(()) }
}

fn too_large() -> RequestFailure {
    let message =
        format!("the object is too large to be stored, with its defaults: limit is {HEAVIEST}");
    RequestFailure::new(413, "RequestEntityTooLarge", message)
}

/// The metadata of an object, to be edited; made if it is missing.
pub(crate) fn metadata_mut(object: &mut Value) -> Option<&mut Map> {
    if object.get("metadata").and_then(Value::as_map).is_none() {
        let _ = object.set(["metadata"], Value::map());
    }
    object.get_mut("metadata").and_then(Value::as_map_mut)
}

/// Whether a kind keeps its status apart from the rest.
pub(crate) fn has_status(kind: &Kind) -> bool {
    kind.subresource("status").is_some()
}

/// Who keeps the managers of an object, for one write.
struct Keeper {
    gvk: Gvk,
    kinded: Option<Kinded>,
    manager: String,
    subresource: String,
    has_status: bool,
    now: String,
}

impl Keeper {
    fn new(server: &Server, target: &RequestTarget, options: &WriteOptions) -> Self {
        let gvk = target.kind.gvk();
        Keeper {
            kinded: Kinded::of(&server.read(), &gvk),
            gvk,
            manager: options.manager.clone(),
            subresource: target.subresource.clone(),
            has_status: has_status(&target.kind),
            now: server.timestamp(),
        }
    }

    fn keeping(&self) -> Option<Keeping<'_>> {
        Some(Keeping {
            gvk: &self.gvk,
            kinded: self.kinded.as_ref()?,
            manager: &self.manager,
            subresource: &self.subresource,
            has_status: self.has_status,
            now: &self.now,
        })
    }

    fn update(&self, old: Option<&Value>, new: &mut Value) {
        if let Some(keeping) = self.keeping() {
            keeping.update(old, new);
        }
    }
}

/// Objects that cannot be accepted, as a failure.
fn invalid(kind: &Kind, object: &Value, problems: &[FieldProblem]) -> Result<(), RequestFailure> {
    if problems.is_empty() {
        return Ok(());
    }
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    Err(RequestFailure::invalid(kind.group(), kind.kind(), name, problems))
}

/// A random UID of version 4.
pub(crate) fn new_uid(server: &Server) -> String {
    let (a, b) = (server.host.random(), server.host.random());
    format!(
        "{:08x}-{:04x}-4{:03x}-{:04x}-{:012x}",
        a >> 32,
        (a >> 16) & 0xffff,
        a & 0xfff,
        0x8000 | (b >> 48) & 0x3fff,
        b & 0xffff_ffff_ffff
    )
}

/// The end of a name that the server makes up.
pub(crate) fn name_end(server: &Server) -> String {
    const LETTERS: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";
    let mut bits = server.host.random();
    let mut end = String::with_capacity(5);
    for _ in 0..5 {
        let at = usize::try_from(bits % 27).unwrap_or(0);
        end.push(char::from(LETTERS[at]));
        bits /= 27;
    }
    end
}

/// Whether objects of a kind count their changes.
pub(crate) fn has_generation(state: &ServerState, gvk: &Gvk) -> bool {
    state.is_custom(gvk)
        || matches!(
            gvk.kind.as_str(),
            "Pod"
                | "Deployment"
                | "ReplicaSet"
                | "StatefulSet"
                | "DaemonSet"
                | "ReplicationController"
                | "Job"
                | "CronJob"
                | "PodDisruptionBudget"
                | "NetworkPolicy"
                | "Ingress"
                | "IngressClass"
                | "PriorityClass"
                | "EndpointSlice"
                | "CustomResourceDefinition"
                | "ValidatingWebhookConfiguration"
                | "MutatingWebhookConfiguration"
                | "ValidatingAdmissionPolicy"
                | "MutatingAdmissionPolicy"
                | "ValidatingAdmissionPolicyBinding"
                | "MutatingAdmissionPolicyBinding"
                | "FlowSchema"
                | "PriorityLevelConfiguration"
        )
}

/// Writes an object under a lock that is held already, and takes into account what it means for others.
pub(crate) fn store(
    state: &mut ServerState,
    target_group: &str,
    plural: &str,
    object: Value,
) -> Value {
    let key = crate::storage::TableKey::new(target_group, plural);
    let stored = state.store.put(&key, object);
    if (target_group, plural) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        state.define(&stored);
    }
    stored
}

/// Takes an object away under a lock that is held already.
pub(crate) fn take(
    state: &mut ServerState,
    group: &str,
    plural: &str,
    namespace: &str,
    name: &str,
) -> Option<Value> {
    let key = crate::storage::TableKey::new(group, plural);
    let gone = state.store.remove(&key, namespace, name)?;
    if (group, plural) == ("apiextensions.k8s.io", "customresourcedefinitions") {
        state.undefine(&gone);
    }
    Some(gone)
}
