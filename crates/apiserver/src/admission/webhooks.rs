//! Webhooks: others who change or refuse what is written.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_cel::{Env, NoHost, Session, Type};
use kiln_object::{Gvk, Selector};
use kiln_patch::{JsonPatch, JsonPatchRules};
use kiln_value::{Map, Value, json, value};

use super::{Review, WriteOperation};
use crate::read::field_selector::labels;
use crate::server::{Server, WebhookCall};
use crate::status::RequestFailure;
use crate::storage::TableKey;
use crate::write::{decode_mutated, new_uid};

/// Lets mutating webhooks change the object.
pub(super) fn change(
    server: &Server,
    review: &Review<'_>,
    object: &mut Value,
    warnings: &mut Vec<String>,
) -> Result<(), RequestFailure> {
    for webhook in configured(server, review, "mutatingwebhookconfigurations") {
        if !meant(server, review, object, &webhook)? {
            continue;
        }
        let Some(response) = ask(server, review, object, &webhook, warnings)? else { continue };
        let Some(patch) = response.str_at(["patch"]) else { continue };
        let name = webhook.str_at(["name"]).unwrap_or_default();
        if review.operation == WriteOperation::Delete {
            let message = format!(
                "Internal error occurred: admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
            );
            return Err(RequestFailure::new(500, "InternalError", message));
        }
        let bad = |why: String| {
            RequestFailure::new(
                500,
                "InternalError",
                format!("Internal error occurred: jsonpatch of webhook {name:?}: {why}"),
            )
        };
        let bytes = STANDARD.decode(patch).map_err(|error| bad(error.to_string()))?;
        let text = String::from_utf8(bytes).map_err(|error| bad(error.to_string()))?;
        let patch = json::parse(&text).map_err(|error| bad(error.to_string()))?;
        let patch = JsonPatch::parse(&patch, JsonPatchRules::kubernetes())
            .map_err(|error| bad(error.to_string()))?;
        let mut patched = object.clone();
        patch.apply(&mut patched).map_err(|error| bad(error.to_string()))?;
        *object = decode_mutated(server, review.target, object, patched)?;
    }
    Ok(())
}

/// Asks validating webhooks.
pub(super) fn check(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) -> Result<(), RequestFailure> {
    for webhook in configured(server, review, "validatingwebhookconfigurations") {
        if meant(server, review, object, &webhook)? {
            ask(server, review, object, &webhook, warnings)?;
        }
    }
    Ok(())
}

/// The webhooks of all configurations, by name and place.
fn configured(server: &Server, review: &Review<'_>, plural: &str) -> Vec<Value> {
    // Configurations and policies are beyond the reach of webhooks, or they could not be repaired.
    if review.target.kind.group() == "admissionregistration.k8s.io" {
        return Vec::new();
    }
    let state = server.read();
    let table = state.store.table(&TableKey::new("admissionregistration.k8s.io", plural));
    let all = table.into_iter().flat_map(|table| table.range("", None));
    all.flat_map(|(_, configuration)| {
        let list = configuration.get("webhooks").and_then(Value::as_list);
        list.map(|list| list.to_vec()).unwrap_or_default()
    })
    .collect()
}

/// Whether rules of the form that webhooks and policies share cover a request.
pub(super) fn covered(review: &Review<'_>, rules: Option<&Value>) -> bool {
    let target = review.target;
    let resource = match target.subresource.as_str() {
        "" => target.kind.plural().to_owned(),
        sub => format!("{}/{sub}", target.kind.plural()),
    };
    let rules = rules.and_then(Value::as_list);
    rules.into_iter().flat_map(|rules| rules.iter()).any(|rule| {
        let list = |field: &str| -> Vec<&str> {
            let list = rule.get(field).and_then(Value::as_list);
            list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).collect()
        };
        let has =
            |field: &str, text: &str| list(field).iter().any(|one| *one == "*" || *one == text);
        let resources = list("resources").iter().any(|pattern| match pattern.split_once('/') {
            _ if *pattern == "*/*" => true,
            None => target.subresource.is_empty() && (*pattern == "*" || *pattern == resource),
            Some((of, "*")) => of == target.kind.plural(),
            Some(("*", sub)) => sub == target.subresource,
            Some(_) => *pattern == resource,
        });
        let scope = match rule.str_at(["scope"]).unwrap_or("*") {
            "Cluster" => !target.kind.is_namespaced(),
            "Namespaced" => target.kind.is_namespaced(),
            _ => true,
        };
        let names = list("resourceNames");
        let named = names.is_empty() || names.contains(&target.name.as_str());
        has("operations", review.operation.as_str())
            && has("apiGroups", target.kind.group())
            && has("apiVersions", target.kind.version())
            && resources
            && scope
            && named
    })
}

/// Whether selectors for namespaces and objects cover a request.
pub(super) fn selected(server: &Server, review: &Review<'_>, object: &Value, from: &Value) -> bool {
    let selector = |field: &str| {
        let selector = from.get(field).filter(|selector| !selector.is_null());
        selector
            .and_then(|selector| Selector::from_value(selector).ok())
            .unwrap_or_else(Selector::everything)
    };
    let target = review.target;
    let namespaces = selector("namespaceSelector");
    if !namespaces.is_everything() {
        let is_namespace = target.kind.kind() == "Namespace" && target.kind.group().is_empty();
        let fits = if is_namespace {
            let of = if object.is_null() { review.old } else { Some(object) };
            namespaces.matches(of.and_then(labels))
        } else if target.kind.is_namespaced() {
            let state = server.read();
            let namespace =
                state.store.get(&TableKey::new("", "namespaces"), "", &target.namespace);
            namespaces.matches(namespace.and_then(labels))
        } else {
            // Kubernetes: cluster-wide objects pass.
            true
        };
        if !fits {
            return false;
        }
    }
    let objects = selector("objectSelector");
    objects.is_everything()
        || !object.is_null() && objects.matches(labels(object))
        || review.old.is_some_and(|old| objects.matches(labels(old)))
}

/// Whether a webhook is to be asked.
fn meant(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
) -> Result<bool, RequestFailure> {
    if !covered(review, webhook.get("rules")) || !selected(server, review, object, webhook) {
        return Ok(false);
    }
    match conditions_hold(server, review, object, webhook.get("matchConditions")) {
        Ok(hold) => Ok(hold),
        Err(_) if webhook.str_at(["failurePolicy"]) == Some("Ignore") => Ok(false),
        Err(why) => {
            let name = object.str_at(["metadata", "name"]).unwrap_or(&review.target.name);
            Err(RequestFailure::forbidden(&review.target.about_name(name), &why))
        }
    }
}

/// Whether all conditions in CEL hold. One that is false decides, also beside some that cannot be evaluated.
pub(super) fn conditions_hold(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    conditions: Option<&Value>,
) -> Result<bool, String> {
    let Some(list) = conditions.and_then(Value::as_list).filter(|list| !list.is_empty()) else {
        return Ok(true);
    };
    let env = Env::suite()
        .extend()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::Dyn)
        .build();
    let mut host = NoHost;
    let mut session = Session::new(&env, &mut host);
    let deleted = review.operation == WriteOperation::Delete;
    session.set("object", if deleted { Value::Null } else { object.clone() });
    session.set("oldObject", review.old.cloned().unwrap_or_default());
    session.set("request", request(server, review, object, ""));
    let mut wrong = None;
    for condition in list {
        let source = condition.str_at(["expression"]).unwrap_or_default();
        let holds = env
            .compile(source)
            .map_err(|error| error.to_string())
            .and_then(|program| session.eval(&program).map_err(|error| error.to_string()))
            .map(|value| value.as_bool() == Some(true));
        match holds {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(why) => {
                // Kubernetes' words.
                wrong.get_or_insert_with(|| {
                    format!("expression '{source}' resulted in error: {why}")
                });
            }
        }
    }
    wrong.map_or(Ok(true), Err)
}

/// What is asked, as an admission request.
pub(super) fn request(server: &Server, review: &Review<'_>, object: &Value, uid: &str) -> Value {
    let target = review.target;
    let gvk = target.kind.gvk();
    // Below an object there may be objects of other kinds: evictions, scales.
    let named = |field: &str| object.str_at([field]).filter(|text| !text.is_empty());
    let shown = match (named("apiVersion"), named("kind")) {
        (Some(version), Some(kind)) if !target.subresource.is_empty() => Gvk::new(version, kind),
        _ => gvk.clone(),
    };
    let kind = value!({"group": (shown.group.as_str()), "version": (shown.version.as_str()), "kind": (shown.kind.as_str())});
    let resource = value!({"group": (gvk.group.as_str()), "version": (gvk.version.as_str()), "resource": (target.kind.plural())});
    let mut request = Map::new();
    request.insert("uid", uid);
    request.insert("kind", kind.clone());
    request.insert("resource", resource.clone());
    if !target.subresource.is_empty() {
        request.insert("subResource", target.subresource.as_str());
    }
    request.insert("requestKind", kind);
    request.insert("requestResource", resource);
    if !target.subresource.is_empty() {
        request.insert("requestSubResource", target.subresource.as_str());
    }
    let name = if target.name.is_empty() {
        object.str_at(["metadata", "name"]).unwrap_or_default()
    } else {
        &target.name
    };
    if !name.is_empty() {
        request.insert("name", name);
    }
    let is_namespace = gvk.kind == "Namespace" && gvk.group.is_empty();
    let namespace = if is_namespace { name } else { &target.namespace };
    if !namespace.is_empty() {
        request.insert("namespace", namespace);
    }
    request.insert("operation", review.operation.as_str());
    request.insert("userInfo", review.user.to_value());
    request.insert(
        "object",
        if review.operation == WriteOperation::Delete { Value::Null } else { object.clone() },
    );
    request.insert("oldObject", review.old.cloned().unwrap_or_default());
    request.insert("dryRun", review.dry_run);
    let options = match review.operation {
        WriteOperation::Create => "CreateOptions",
        WriteOperation::Update => "UpdateOptions",
        WriteOperation::Delete => "DeleteOptions",
    };
    request.insert("options", value!({"kind": options, "apiVersion": "meta.k8s.io/v1"}));
    let _ = server;
    Value::Map(request)
}

/// Asks one webhook; its response when it lets the request pass.
fn ask(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    webhook: &Value,
    warnings: &mut Vec<String>,
) -> Result<Option<Value>, RequestFailure> {
    let name = webhook.str_at(["name"]).unwrap_or_default().to_owned();
    let effects = webhook.str_at(["sideEffects"]).unwrap_or_default();
    if review.dry_run && !matches!(effects, "None" | "NoneOnDryRun") {
        let message = format!("admission webhook {name:?} does not support dry run");
        return Err(RequestFailure::bad_request(message));
    }
    let uid = new_uid(server);
    let body = value!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1"});
    let mut body = body;
    let _ = body.set(["request"], request(server, review, object, &uid));
    let answer = call(server, webhook, &body).and_then(|answer| {
        let response = answer.get("response").cloned().ok_or("the answer has no response")?;
        if response.str_at(["uid"]) != Some(uid.as_str()) {
            return Err(format!("expected response.uid={uid:?}"));
        }
        Ok(response)
    });
    let response = match answer {
        Ok(response) => response,
        Err(_) if webhook.str_at(["failurePolicy"]) == Some("Ignore") => return Ok(None),
        Err(why) => {
            let message = format!(
                "Internal error occurred: failed calling webhook {name:?}: failed to call webhook: {why}"
            );
            let cause = value!({"message": (format!("failed calling webhook {name:?}: failed to call webhook: {why}"))});
            let mut details = Map::new();
            details.insert("causes", vec![cause]);
            return Err(RequestFailure::new(500, "InternalError", message).with_details(details));
        }
    };
    let told = response.get("warnings").and_then(Value::as_list);
    warnings.extend(
        told.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).map(str::to_owned),
    );
    if response.get("allowed").and_then(Value::as_bool) == Some(true) {
        return Ok(Some(response));
    }
    Err(denied(&name, response.get("status")))
}

fn denied(name: &str, status: Option<&Value>) -> RequestFailure {
    let text = |field: &str| status.and_then(|status| status.str_at([field])).unwrap_or_default();
    let why = match (text("message"), text("reason")) {
        ("", "") => " without explanation".to_owned(),
        ("", reason) => format!(": {reason}"),
        (message, _) => format!(": {message}"),
    };
    let code = status.and_then(|status| status.get("code")).and_then(Value::as_i64);
    // Kubernetes: the reason is the webhook's own, also none; its code is at least 400.
    let code = code
        .and_then(|code| u16::try_from(code).ok())
        .filter(|code| (400..600).contains(code))
        .unwrap_or(400);
    let reason = match text("reason") {
        "BadRequest" => "BadRequest",
        "Invalid" => "Invalid",
        "NotFound" => "NotFound",
        "Conflict" => "Conflict",
        "InternalError" => "InternalError",
        "Unauthorized" => "Unauthorized",
        "Forbidden" => "Forbidden",
        _ => "",
    };
    let mut failure = RequestFailure::new(
        code,
        reason,
        format!("admission webhook {name:?} denied the request{why}"),
    );
    failure.details = status.and_then(|status| status.get("details")).cloned();
    failure
}

fn call(server: &Server, webhook: &Value, body: &Value) -> Result<Value, String> {
    let config = webhook.get("clientConfig").cloned().unwrap_or_default();
    let seconds = webhook.get("timeoutSeconds").and_then(Value::as_i64).unwrap_or(10).clamp(1, 30);
    let bundle =
        config.str_at(["caBundle"]).and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default();
    let (url, connect_to) = match config.str_at(["url"]) {
        Some(url) => (url.to_owned(), None),
        None => {
            let service = config.get("service").unwrap_or(&Value::Null);
            let (url, to) = behind_service(server, service)?;
            (url, Some(to))
        }
    };
    let mark = if url.contains('?') { '&' } else { '?' };
    let answer = server.host.call(&WebhookCall {
        url: format!("{url}{mark}timeout={seconds}s"),
        connect_to,
        ca_bundle: bundle,
        body: json::to_string(body).into_bytes(),
        timeout_seconds: u32::try_from(seconds).unwrap_or(10),
    })?;
    let text = String::from_utf8(answer).map_err(|_| "the answer is not a text")?;
    json::parse(&text).map_err(|error| error.to_string())
}

/// The URL of a Service that a webhook names, and where it is answered.
fn behind_service(server: &Server, service: &Value) -> Result<(String, String), String> {
    let text = |field: &str| service.str_at([field]).unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    let to = answered_at(server, service).ok_or_else(|| {
        format!(
            "no pods run here, so nothing answers behind service {:?}; give the webhook a url",
            format!("{namespace}/{name}")
        )
    })?;
    let path = text("path").trim_start_matches('/');
    Ok((format!("https://{name}.{namespace}.svc/{path}"), to))
}

/// Where the Service of a webhook is answered, as `host:port`: by the host of this server, or, as a Service of the type
/// ExternalName says, elsewhere.
pub(super) fn answered_at(server: &Server, service: &Value) -> Option<String> {
    let text = |field: &str| service.str_at([field]).unwrap_or_default();
    let port = service.get("port").and_then(Value::as_i64).unwrap_or(443);
    if let Some(place) = server.host.service(text("namespace"), text("name"), port) {
        return Some(place);
    }
    let state = server.read();
    let key = TableKey::new("", "services");
    let stored = state.store.get(&key, text("namespace"), text("name"))?;
    let external = stored.str_at(["spec", "externalName"])?;
    (stored.str_at(["spec", "type"]) == Some("ExternalName")).then(|| format!("{external}:{port}"))
}
