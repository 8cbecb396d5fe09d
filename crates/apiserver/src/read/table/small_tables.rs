//! The cells of kinds with few columns.

use kiln_value::{Map, Value, json};

use super::cells::{NONE, list, number, or_none, span, text};
use crate::write::scale::selector_text;

/// The cell of a column.
pub(super) fn cell(kind: &str, column: &str, object: &Value) -> Value {
    let count = |field: &str| {
        Value::from(object.get(field).map_or(0, |value| match value {
            Value::Map(map) => map.len(),
            Value::List(list) => list.len(),
            _ => 0,
        }))
    };
    match (kind, column) {
        ("ConfigMap", "Data") => {
            let size = |field: &str| object.get(field).and_then(Value::as_map).map_or(0, Map::len);
            Value::from(size("data") + size("binaryData"))
        }
        ("Secret", "Data") => count("data"),
        ("Secret", _) => Value::from(text(object, &["type"])),
        ("Namespace", _) => Value::from(text(object, &["status", "phase"])),
        ("PriorityClass", "Value") => Value::from(number(object, &["value"])),
        ("PriorityClass", "Global-Default") => {
            Value::from(object.get("globalDefault").and_then(Value::as_bool) == Some(true))
        }
        ("PriorityClass", _) => Value::from(text(object, &["preemptionPolicy"])),
        ("StorageClass", "Provisioner") => Value::from(text(object, &["provisioner"])),
        ("StorageClass", "ReclaimPolicy") => Value::from(text(object, &["reclaimPolicy"])),
        ("StorageClass", "VolumeBindingMode") => Value::from(text(object, &["volumeBindingMode"])),
        ("StorageClass", _) => {
            Value::from(object.get("allowVolumeExpansion").and_then(Value::as_bool) == Some(true))
        }
        ("Lease", _) => Value::from(text(object, &["spec", "holderIdentity"])),
        ("NetworkPolicy", _) => {
            Value::from(or_none(selector_text(object.get_path(["spec", "podSelector"]))))
        }
        ("PodDisruptionBudget", "Min Available") => int_or_text(object, "minAvailable"),
        ("PodDisruptionBudget", "Max Unavailable") => int_or_text(object, "maxUnavailable"),
        ("PodDisruptionBudget", _) => {
            Value::from(number(object, &["status", "disruptionsAllowed"]))
        }
        ("ResourceQuota", column) => quota(column, object),
        (_, "Webhooks") => count("webhooks"),
        (_, "Validations") => Value::from(list(object, &["spec", "validations"]).count()),
        (_, "Mutations") => Value::from(list(object, &["spec", "mutations"]).count()),
        (_, "ParamKind") => {
            let (version, kind) = (
                text(object, &["spec", "paramKind", "apiVersion"]),
                text(object, &["spec", "paramKind", "kind"]),
            );
            Value::from(if kind.is_empty() {
                "<unset>".to_owned()
            } else {
                format!("{version}/{kind}")
            })
        }
        (_, "PolicyName") => Value::from(text(object, &["spec", "policyName"])),
        (_, "ParamRef") => {
            let (namespace, name) = (
                text(object, &["spec", "paramRef", "namespace"]),
                text(object, &["spec", "paramRef", "name"]),
            );
            Value::from(match (namespace, name) {
                (_, "") => "<unset>".to_owned(),
                ("", name) => name.to_owned(),
                (namespace, name) => format!("{namespace}/{name}"),
            })
        }
        ("Endpoints", _) => Value::from(or_none(endpoints(object))),
        ("EndpointSlice", "AddressType") => Value::from(text(object, &["addressType"])),
        ("EndpointSlice", "Ports") => {
            let ports = list(object, &["ports"]).map(|port| number(port, &["port"]).to_string());
            Value::from(or_none(ports.collect::<Vec<_>>().join(",")).replace(NONE, "<unset>"))
        }
        ("EndpointSlice", _) => {
            let all = list(object, &["endpoints"])
                .flat_map(|one| list(one, &["addresses"]))
                .filter_map(Value::as_str);
            let all: Vec<&str> = all.collect();
            let more =
                if all.len() > 3 { format!(" + {} more...", all.len() - 3) } else { String::new() };
            let first: Vec<&str> = all.into_iter().take(3).collect();
            Value::from(if first.is_empty() {
                "<unset>".to_owned()
            } else {
                format!("{}{more}", first.join(","))
            })
        }
        ("ControllerRevision", "Revision") => Value::from(number(object, &["revision"])),
        ("RuntimeClass", _) => Value::from(text(object, &["handler"])),
        ("APIService", "Service") => {
            let name = text(object, &["spec", "service", "name"]);
            let local = "Local".to_owned();
            Value::from(if name.is_empty() {
                local
            } else {
                format!("{}/{name}", text(object, &["spec", "service", "namespace"]))
            })
        }
        ("APIService", _) => Value::from(available(object)),
        ("CertificateSigningRequest", "SignerName") => {
            Value::from(text(object, &["spec", "signerName"]))
        }
        ("CertificateSigningRequest", "Requestor") => {
            Value::from(text(object, &["spec", "username"]))
        }
        ("CertificateSigningRequest", "RequestedDuration") => {
            Value::from(match object.get_path(["spec", "expirationSeconds"]) {
                Some(seconds) => span(seconds.as_i64().unwrap_or(0)),
                None => NONE.to_owned(),
            })
        }
        ("CertificateSigningRequest", _) => {
            let kinds: Vec<&str> =
                list(object, &["status", "conditions"]).map(|one| text(one, &["type"])).collect();
            let issued = !text(object, &["status", "certificate"]).is_empty();
            let mut words = if kinds.is_empty() { "Pending".to_owned() } else { kinds.join(",") };
            if issued {
                words.push_str(",Issued");
            }
            Value::from(words)
        }
        // A column that stays empty here.
        _ => Value::from(match object.get_path(["spec", &column.to_lowercase()]) {
            Some(Value::String(text)) => text.to_string(),
            Some(other) => json::to_string(other),
            None => NONE.to_owned(),
        }),
    }
}

/// Whether an API is available; why not, if it is not.
fn available(object: &Value) -> String {
    let conditions = object.get_path(["status", "conditions"]).and_then(Value::as_list);
    let condition = conditions
        .and_then(|list| list.iter().find(|one| text(one, &["type"]) == "Available"))
        .map(|one| (text(one, &["status"]), text(one, &["reason"])));
    match condition {
        Some((status, reason)) if status != "True" && !reason.is_empty() => {
            format!("{status} ({reason})")
        }
        Some((status, _)) => status.to_owned(),
        None => "Unknown".to_owned(),
    }
}

fn int_or_text(object: &Value, field: &str) -> Value {
    Value::from(match object.get_path(["spec", field]) {
        None | Some(Value::Null) => "N/A".to_owned(),
        Some(Value::String(text)) => text.to_string(),
        Some(number) => json::to_string(number),
    })
}

fn quota(column: &str, object: &Value) -> Value {
    let limits = column == "Limit";
    let hard =
        object.get_path(["status", "hard"]).and_then(Value::as_map).cloned().unwrap_or_default();
    let mut parts: Vec<String> = hard
        .iter()
        .filter(|(resource, _)| resource.starts_with("limits.") == limits)
        .map(|(resource, hard)| {
            let used = text(object, &["status", "used", resource.as_str()]);
            format!(
                "{resource}: {}/{}",
                if used.is_empty() { "0" } else { used },
                hard.as_str().unwrap_or_default()
            )
        })
        .collect();
    parts.sort();
    Value::from(parts.join(", "))
}

fn endpoints(object: &Value) -> String {
    let mut all = Vec::new();
    for subset in list(object, &["subsets"]) {
        for address in list(subset, &["addresses"]) {
            let ip = text(address, &["ip"]);
            let ports: Vec<i64> =
                list(subset, &["ports"]).map(|port| number(port, &["port"])).collect();
            if ports.is_empty() {
                all.push(ip.to_owned());
            }
            all.extend(ports.iter().map(|port| format!("{ip}:{port}")));
        }
    }
    let more = if all.len() > 3 { format!(" + {} more...", all.len() - 3) } else { String::new() };
    all.truncate(3);
    format!("{}{more}", all.join(","))
}
