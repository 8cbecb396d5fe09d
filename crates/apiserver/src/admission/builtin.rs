//! What is built in: namespaces that must be there, accounts and tolerations of pods, limits, priorities.

use kiln_object::metadata::is_deleted;
use kiln_value::{Map, Value, value};

use super::webhooks::answered_at;
use super::{Review, WriteOperation};
use crate::defaults::{default, each};
use crate::server::Server;
use crate::status::{About, RequestFailure};
use crate::storage::TableKey;
use crate::write::name_end;

pub(super) fn change(
    server: &Server,
    review: &Review<'_>,
    object: &mut Value,
) -> Result<(), RequestFailure> {
    namespace(server, review, object)?;
    let target = review.target;
    let is_pod = target.kind.kind() == "Pod"
        && target.kind.group().is_empty()
        && target.subresource.is_empty();
    if is_pod && review.operation == WriteOperation::Create {
        limits(server, &target.namespace, object);
        if server.settings.accounts {
            account(server, review, object)?;
        }
        priority(server, object)?;
    }
    if is_pod && review.operation != WriteOperation::Delete {
        tolerations(object);
    }
    if target.kind.kind() == "PersistentVolumeClaim" && review.operation == WriteOperation::Create {
        storage_class(server, object);
    }
    Ok(())
}

/// Says what will not come of an object, though it is stored.
pub(super) fn warn(
    server: &Server,
    review: &Review<'_>,
    object: &Value,
    warnings: &mut Vec<String>,
) {
    if review.operation == WriteOperation::Delete {
        return;
    }
    let name = object.str_at(["metadata", "name"]).unwrap_or_default();
    let target = review.target;
    match (target.kind.group(), target.kind.kind(), target.subresource.as_str()) {
        ("apiextensions.k8s.io", "CustomResourceDefinition", "") => {
            if object.str_at(["spec", "conversion", "strategy"]) == Some("Webhook") {
                warnings.push(format!(
                    "conversion webhooks are not called here: versions of {name} differ in nothing but their name"
                ));
            }
            let conditions = object.get_path(["status", "conditions"]).and_then(Value::as_list);
            let refused = conditions.into_iter().flat_map(|list| list.iter()).find(|one| {
                one.str_at(["type"]) == Some("NamesAccepted")
                    && one.str_at(["status"]) == Some("False")
            });
            if let Some(why) = refused.and_then(|one| one.str_at(["message"])) {
                warnings.push(format!("not all names of {name} are accepted: {why}"));
            }
        }
        ("apiregistration.k8s.io", "APIService", "")
            if object.get_path(["spec", "service"]).is_some_and(|service| !service.is_null()) =>
        {
            warnings.push(format!(
                "no pods run here, so nothing answers behind the service of APIService {name}"
            ));
        }
        (
            "admissionregistration.k8s.io",
            "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration",
            "",
        ) => {
            let list = object.get("webhooks").and_then(Value::as_list);
            let behind = list.into_iter().flat_map(|list| list.iter()).filter(|webhook| {
                let service = webhook.get_path(["clientConfig", "service"]);
                service.is_some_and(|service| {
                    !service.is_null() && answered_at(server, service).is_none()
                })
            });
            warnings.extend(behind.map(|webhook| {
                let (webhook, fails) = (
                    webhook.str_at(["name"]).unwrap_or_default(),
                    webhook.str_at(["failurePolicy"]) != Some("Ignore"),
                );
                let follows =
                    if fails { "matching requests are denied" } else { "it is skipped" };
                format!(
                    "no pods run here, so nothing answers behind the service of webhook {webhook}, and {follows}; with clientConfig.url it is called"
                )
            }));
        }
        _ => {}
    }
}

/// New objects need a namespace that is there and stays.
fn namespace(server: &Server, review: &Review<'_>, object: &Value) -> Result<(), RequestFailure> {
    let target = review.target;
    if review.operation != WriteOperation::Create || !target.kind.is_namespaced() {
        return Ok(());
    }
    let state = server.read();
    let name = &target.namespace;
    let Some(namespace) = state.store.get(&TableKey::new("", "namespaces"), "", name) else {
        return Err(RequestFailure::not_found(&About::new("", "namespaces", name)));
    };
    if is_deleted(namespace) {
        let object_name = object.str_at(["metadata", "name"]).unwrap_or_default();
        let why = format!(
            "unable to create new content in namespace {name} because it is being terminated"
        );
        let mut failure = RequestFailure::forbidden(&target.about_name(object_name), &why);
        if let Some(details) = failure.details.as_mut().and_then(Value::as_map_mut) {
            let message = format!("namespace {name} is being terminated");
            let cause = value!({"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"});
            details.insert("causes", vec![cause]);
        }
        return Err(failure);
    }
    Ok(())
}

/// Resources that a LimitRange gives to containers that say nothing.
fn limits(server: &Server, namespace: &str, pod: &mut Value) {
    let ranges: Vec<Value> = {
        let state = server.read();
        let table = state.store.table(&TableKey::new("", "limitranges"));
        table
            .into_iter()
            .flat_map(|table| table.range(namespace, None))
            .map(|(_, range)| range.clone())
            .collect()
    };
    for range in ranges {
        let list = range.get_path(["spec", "limits"]).and_then(Value::as_list);
        for limit in list.into_iter().flat_map(|list| list.iter()) {
            if limit.str_at(["type"]) != Some("Container") {
                continue;
            }
            for field in ["containers", "initContainers"] {
                for container in each(pod, &["spec", field]) {
                    for (from, to) in [("default", "limits"), ("defaultRequest", "requests")] {
                        let given =
                            limit.get(from).and_then(Value::as_map).cloned().unwrap_or_default();
                        for (resource, quantity) in &given {
                            default(
                                container,
                                &["resources", to, resource.as_str()],
                                quantity.clone(),
                            );
                        }
                    }
                }
            }
        }
    }
}

/// The account of a pod, and the token that it finds.
fn account(server: &Server, review: &Review<'_>, pod: &mut Value) -> Result<(), RequestFailure> {
    default(pod, &["spec", "serviceAccountName"], "default");
    let name = pod.str_at(["spec", "serviceAccountName"]).unwrap_or_default().to_owned();
    let _ = pod.set(["spec", "serviceAccount"], name.as_str());
    let namespace = &review.target.namespace;
    let key = TableKey::new("", "serviceaccounts");
    let account = server.read().store.get(&key, namespace, &name).cloned();
    let Some(account) = account else {
        let pod_name = pod.str_at(["metadata", "name"]).unwrap_or_default();
        let why = format!(
            "error looking up service account {namespace}/{name}: serviceaccount {name:?} not found"
        );
        return Err(RequestFailure::forbidden(&review.target.about_name(pod_name), &why));
    };
    let wants = |object: &Value, path: &[&str]| {
        object.get_path(path.iter().copied()).and_then(Value::as_bool)
    };
    let mounts = wants(pod, &["spec", "automountServiceAccountToken"])
        .or_else(|| wants(&account, &["automountServiceAccountToken"]))
        .unwrap_or(true);
    if !mounts {
        return Ok(());
    }
    const PLACE: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let volume = format!("kube-api-access-{}", name_end(server));
    let mut used = false;
    for field in ["initContainers", "containers"] {
        for container in each(pod, &["spec", field]) {
            let mounts = container.get("volumeMounts").and_then(Value::as_list);
            let has = mounts
                .into_iter()
                .flat_map(|list| list.iter())
                .any(|m| m.str_at(["mountPath"]) == Some(PLACE));
            if has {
                continue;
            }
            used = true;
            let mount = value!({"name": (volume.as_str()), "readOnly": true, "mountPath": PLACE});
            push(container, "volumeMounts", mount);
        }
    }
    if used && let Some(spec) = pod.get_mut("spec") {
        let projected = value!({
            "name": (volume.as_str()),
            "projected": {"sources": [
                {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
            ], "defaultMode": 420},
        });
        push(spec, "volumes", projected);
    }
    Ok(())
}

fn push(value: &mut Value, field: &str, element: Value) {
    match value.get_mut(field).and_then(Value::as_list_mut) {
        Some(list) => list.push(element),
        None => {
            let _ = value.set([field], Value::from(vec![element]));
        }
    }
}

fn priority(server: &Server, pod: &mut Value) -> Result<(), RequestFailure> {
    let name = pod.str_at(["spec", "priorityClassName"]).unwrap_or_default().to_owned();
    let classes: Vec<Value> = {
        let state = server.read();
        let table = state.store.table(&TableKey::new("scheduling.k8s.io", "priorityclasses"));
        table
            .into_iter()
            .flat_map(|table| table.range("", None))
            .map(|(_, class)| class.clone())
            .collect()
    };
    let named = |class: &&Value| class.str_at(["metadata", "name"]) == Some(name.as_str());
    let global = |class: &&Value| class.get("globalDefault").and_then(Value::as_bool) == Some(true);
    let class =
        if name.is_empty() { classes.iter().find(global) } else { classes.iter().find(named) };
    if class.is_none() && !name.is_empty() {
        let pod_name = pod.str_at(["metadata", "name"]).unwrap_or_default();
        let why = format!("no PriorityClass with name {name} was found");
        return Err(RequestFailure::forbidden(&About::new("", "pods", pod_name), &why));
    }
    if name.is_empty()
        && let Some(class) = class
    {
        let _ =
            pod.set(["spec", "priorityClassName"], class.get_path(["metadata", "name"]).cloned());
    }
    let value =
        class.and_then(|class| class.get("value").cloned()).unwrap_or_else(|| Value::from(0));
    let preemption = class
        .and_then(|class| class.str_at(["preemptionPolicy"]))
        .unwrap_or("PreemptLowerPriority");
    default(pod, &["spec", "priority"], value);
    default(pod, &["spec", "preemptionPolicy"], preemption);
    Ok(())
}

fn tolerations(pod: &mut Value) {
    let list =
        pod.get_path(["spec", "tolerations"]).and_then(Value::as_list).map(|list| list.to_vec());
    let mut list = list.unwrap_or_default();
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let tolerated = list.iter().any(|toleration| {
            let text = |field: &str| toleration.str_at([field]).unwrap_or_default();
            (text("key") == key || text("key").is_empty())
                && matches!(text("effect"), "NoExecute" | "")
        });
        if !tolerated {
            list.push(value!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}));
        }
    }
    let _ = pod.set(["spec", "tolerations"], list);
}

fn storage_class(server: &Server, claim: &mut Value) {
    if claim.get_path(["spec", "storageClassName"]).is_some() {
        return;
    }
    const DEFAULT: &str = "storageclass.kubernetes.io/is-default-class";
    let state = server.read();
    let table = state.store.table(&TableKey::new("storage.k8s.io", "storageclasses"));
    let class = table.into_iter().flat_map(|table| table.range("", None)).find(|(_, class)| {
        let annotations = class.get_path(["metadata", "annotations"]).and_then(Value::as_map);
        annotations.and_then(|map: &Map| map.get(DEFAULT)).and_then(Value::as_str) == Some("true")
    });
    if let Some(((_, name), _)) = class {
        let _ = claim.set(["spec", "storageClassName"], name.clone());
    }
}
