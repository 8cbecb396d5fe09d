//! ResourceQuotas: how much of everything a namespace may hold.

use kiln_text::Quantity;
use kiln_text::quantity::QuantityFormat;
use kiln_value::{Map, Value};

use super::{Review, WriteOperation};
use crate::server::{Server, ServerState};
use crate::status::RequestFailure;
use crate::storage::TableKey;

/// Refuses what would exceed a quota.
pub(super) fn check(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
) -> Result<(), RequestFailure> {
    let target = review.target;
    if review.operation != WriteOperation::Create
        || !target.kind.is_namespaced()
        || !target.subresource.is_empty()
    {
        return Ok(());
    }
    let state = server.read();
    let Some(quotas) = state.store.table(&TableKey::new("", "resourcequotas")) else {
        return Ok(());
    };
    for ((_, name), quota) in quotas.range(&target.namespace, None) {
        let hard =
            quota.get_path(["spec", "hard"]).and_then(Value::as_map).cloned().unwrap_or_default();
        let mut over: Vec<(String, Quantity, Quantity, Quantity)> = Vec::new();
        for (resource, limit) in &hard {
            let Some(limit) = limit.as_str().and_then(|text| Quantity::parse(text).ok()) else {
                continue;
            };
            let Some(asked) = usage(object, &target.kind.gvk(), target.kind.plural(), resource)
            else {
                continue;
            };
            let used = used(&state, &target.namespace, resource);
            let Ok(total) = used.checked_add(&asked) else { continue };
            if total.checked_sub(&limit).is_ok_and(|over| over.sign() > 0) {
                over.push((resource.to_string(), asked, used, limit));
            }
        }
        if over.is_empty() {
            continue;
        }
        over.sort_by(|a, b| a.0.cmp(&b.0));
        let list = |pick: fn(&(String, Quantity, Quantity, Quantity)) -> &Quantity| {
            over.iter()
                .map(|entry| format!("{}={}", entry.0, pick(entry)))
                .collect::<Vec<_>>()
                .join(",")
        };
        let why = format!(
            "exceeded quota: {name}, requested: {}, used: {}, limited: {}",
            list(|entry| &entry.1),
            list(|entry| &entry.2),
            list(|entry| &entry.3)
        );
        let object_name = object.str_at(["metadata", "name"]).unwrap_or_default();
        return Err(RequestFailure::forbidden(&target.about_name(object_name), &why));
    }
    Ok(())
}

/// Whether a quota counts objects of a resource under a name.
fn counts(resource: &str, group: &str, plural: &str) -> bool {
    const SHORT: [&str; 9] = [
        "pods",
        "services",
        "replicationcontrollers",
        "resourcequotas",
        "secrets",
        "configmaps",
        "persistentvolumeclaims",
        "serviceaccounts",
        "endpoints",
    ];
    let qualified = crate::status::qualified(plural, group);
    resource.strip_prefix("count/") == Some(qualified.as_str())
        || group.is_empty() && resource == plural && SHORT.contains(&plural)
}

fn one() -> Quantity {
    Quantity::new(1, QuantityFormat::DecimalSI)
}

fn zero() -> Quantity {
    Quantity::new(0, QuantityFormat::DecimalSI)
}

/// How much of a resource an object takes; none when it takes nothing of it.
fn usage(object: &Value, gvk: &kiln_object::Gvk, plural: &str, resource: &str) -> Option<Quantity> {
    if counts(resource, &gvk.group, plural) {
        return Some(one());
    }
    if plural != "pods" || !gvk.group.is_empty() {
        return None;
    }
    let (part, name) = match resource.split_once('.') {
        Some((part @ ("requests" | "limits"), name)) => (part, name),
        _ if matches!(resource, "cpu" | "memory" | "ephemeral-storage") => ("requests", resource),
        _ => return None,
    };
    let containers = object.get_path(["spec", "containers"]).and_then(Value::as_list)?;
    let amounts = containers.iter().filter_map(|container| {
        let text = container.str_at(["resources", part, name])?;
        Quantity::parse(text).ok()
    });
    amounts.reduce(|sum, amount| sum.checked_add(&amount).unwrap_or(sum))
}

/// How much of a resource a namespace holds.
fn used(state: &ServerState, namespace: &str, resource: &str) -> Quantity {
    let mut total = zero();
    for (key, table) in state.store.tables() {
        let gvk = kiln_object::Gvk { group: key.group.clone(), ..kiln_object::Gvk::default() };
        for (_, object) in table.range(namespace, None) {
            match usage(object, &gvk, &key.plural, resource) {
                Some(amount) => total = total.checked_add(&amount).unwrap_or(total),
                None if key.plural != "pods" => break,
                None => {}
            }
        }
    }
    total
}

/// The `status` of a quota, as it should be.
pub(crate) fn status(state: &ServerState, quota: &Value) -> Value {
    let namespace = quota.str_at(["metadata", "namespace"]).unwrap_or_default();
    let hard =
        quota.get_path(["spec", "hard"]).and_then(Value::as_map).cloned().unwrap_or_default();
    let used: Map = hard
        .iter()
        .map(|(resource, _)| {
            (resource.clone(), Value::from(used(state, namespace, resource).to_string()))
        })
        .collect();
    let mut status = Map::new();
    status.insert("hard", Value::Map(hard));
    status.insert("used", Value::Map(used));
    Value::Map(status)
}
