//! What is created below an object: evictions, bindings, tokens.

use kiln_object::Selector;
use kiln_value::{Value, value};

use super::delete::success;
use super::{remove_object, tell_strict, update::ObjectUpdate, update_object};
use crate::access::tokens;
use crate::admission::{self, Review, WriteOperation};
use crate::read::field_selector::labels;
use crate::read::{self, current};
use crate::request::Response;
use crate::request::media;
use crate::request::options::{DeleteOptions, WriteOptions};
use crate::request::paths::RequestTarget;
use crate::server::{Server, ServerCall};
use crate::status::RequestFailure;
use crate::storage::TableKey;
use crate::types::{decode, types};

/// Answers a creation below an object.
pub(crate) fn create_subresource(
    server: &Server,
    call: &mut ServerCall<'_>,
) -> Result<Response, RequestFailure> {
    let options = WriteOptions::read(call.request, &call.parameters, "CreateOptions")?;
    match call.target.subresource.as_str() {
        "eviction" => evict(server, call, &options),
        "binding" => bind(server, call, &options),
        "token" => tokens::create(server, call),
        // What is connected to is asked for by GET or POST alike.
        _ => read::get(server, call),
    }
}

fn evict(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
) -> Result<Response, RequestFailure> {
    let mut eviction = media::read(call.request, "Eviction")?.value;
    if let Some(id) = types().kind("policy/v1", "Eviction")
        && let Ok(decoded) = decode(&eviction, id)
    {
        let unknown = decoded.unknown.iter().map(|field| format!("unknown field {field:?}"));
        tell_strict(call, options, ("Eviction", "v1"), unknown.collect())?;
    }
    let target = RequestTarget { subresource: String::new(), ..call.target.clone() };
    let pod = current(&server.read(), &target)?;
    // Clients may leave out what it is.
    let _ = eviction.set(["apiVersion"], "policy/v1");
    let _ = eviction.set(["kind"], "Eviction");
    let _ = eviction.set(["metadata", "name"], target.name.as_str());
    let _ = eviction.set(["metadata", "namespace"], target.namespace.as_str());
    let review = Review {
        target: &call.target,
        user: &call.user,
        operation: WriteOperation::Create,
        old: None,
        dry_run: options.dry_run,
    };
    admission::change(server, &review, &mut eviction, &mut call.warnings)?;
    admission::check(server, &review, &mut eviction, &mut call.warnings)?;
    let pending = pod.str_at(["status", "phase"]) == Some("Pending");
    if !pending && let Some((budget, healthy, needed)) = blocking_budget(server, &target, &pod) {
        let message = format!(
            "The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently"
        );
        let details = value!({"causes": [{"reason": "DisruptionBudget", "message": message}]});
        let words = "Cannot evict pod as it would violate the pod's disruption budget.";
        return Err(RequestFailure::new(429, "TooManyRequests", words).with_details(details));
    }
    let mut deletion = DeleteOptions::read(
        &call.parameters,
        eviction.get("deleteOptions").unwrap_or(&Value::Null),
    )?;
    deletion.dry_run |= options.dry_run;
    remove_object(server, &target, &call.user, &deletion, &mut call.warnings)?;
    Ok(Response::json(201, &success(None, Some(201))))
}

/// A budget that an eviction would break: its name, how many pods are healthy, how many must be.
fn blocking_budget(
    server: &Server,
    target: &RequestTarget,
    pod: &Value,
) -> Option<(String, i64, i64)> {
    let state = server.read();
    let budgets = state.store.table(&TableKey::new("policy", "poddisruptionbudgets"))?;
    for ((_, name), budget) in budgets.range(&target.namespace, None) {
        let selector = Selector::from_value(budget.get_path(["spec", "selector"])?).ok()?;
        if !selector.matches(labels(pod)) {
            continue;
        }
        let number =
            |field: &str| budget.get_path(["status", field]).and_then(Value::as_i64).unwrap_or(0);
        if number("disruptionsAllowed") <= 0 {
            return Some((name.to_string(), number("currentHealthy"), number("desiredHealthy")));
        }
    }
    None
}

fn bind(
    server: &Server,
    call: &mut ServerCall<'_>,
    options: &WriteOptions,
) -> Result<Response, RequestFailure> {
    let binding = media::read(call.request, "Binding")?.value;
    let node = binding.str_at(["target", "name"]).unwrap_or_default().to_owned();
    let target = RequestTarget { subresource: String::new(), ..call.target.clone() };
    let old = current(&server.read(), &target)?;
    if old.str_at(["spec", "nodeName"]).is_some_and(|node| !node.is_empty()) {
        let why = format!(
            "pod {} is already assigned to node {:?}",
            target.name,
            old.str_at(["spec", "nodeName"]).unwrap_or_default()
        );
        return Err(RequestFailure::conflict(&target.about(), &why));
    }
    let mut new = old.clone();
    let _ = new.set(["spec", "nodeName"], node);
    let now = server.timestamp();
    let condition = value!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now});
    let list =
        new.get_path(["status", "conditions"]).and_then(Value::as_list).map(|list| list.to_vec());
    let mut list = list.unwrap_or_default();
    list.retain(|old| old.str_at(["type"]) != Some("PodScheduled"));
    list.push(condition);
    let _ = new.set(["status", "conditions"], list);
    let target = RequestTarget { subresource: "binding".to_owned(), ..target };
    let change = ObjectUpdate {
        target: &target,
        options,
        user: &call.user,
        managed: true,
        warnings: &mut call.warnings,
    };
    update_object(server, change, &old, new)?;
    Ok(Response::json(201, &success(None, Some(201))))
}
