//! What the server fills in.
//!
//! [`fill`] is what a client owns that leaves a field out; [`prepare`] is what only a server knows, when an
//! object is new; [`prepare_change`] what a server keeps in step.

mod pod;
mod workload;

use kiln_object::Gvk;
use kiln_value::{Map, Value, value};

use crate::crd::names;
use crate::server::{Server, ServerState};
use crate::storage::TableKey;

/// Sets a field that is not there.
pub(crate) fn default(value: &mut Value, path: &[&str], default: impl Into<Value>) {
    let present = value.get_path(path.iter().copied()).is_some_and(|value| !value.is_null());
    if !present {
        let _ = value.set(path.iter().copied(), default.into());
    }
}

/// Adds a text to a list that does not have it.
fn add_once(object: &mut Value, path: &[&str], text: &str) {
    default(object, path, Value::list());
    let list = object.get_path_mut(path.iter().copied()).and_then(Value::as_list_mut);
    if let Some(list) = list
        && !list.iter().any(|known| known.as_str() == Some(text))
    {
        list.push(Value::from(text));
    }
}

/// The elements of a list, to be edited.
pub(crate) fn each<'v>(value: &'v mut Value, path: &[&str]) -> impl Iterator<Item = &'v mut Value> {
    let list = value.get_path_mut(path.iter().copied()).and_then(Value::as_list_mut);
    list.into_iter().flat_map(|list| list.iter_mut())
}

fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    value.str_at(path.iter().copied()).unwrap_or_default()
}

/// Fills in the defaults of a built-in kind.
pub(crate) fn fill(gvk: &Gvk, object: &mut Value) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::pod(object),
        ("", "PodTemplate") => pod::template(object, &["template"]),
        ("", "Service") => service(object),
        ("", "Secret") => {
            kiln_object::fold_string_data(object);
            default(object, &["type"], "Opaque");
        }
        ("", "Namespace") => {
            let name = text(object, &["metadata", "name"]).to_owned();
            if !name.is_empty() {
                let _ = object.set(["metadata", "labels", "kubernetes.io/metadata.name"], name);
            }
        }
        ("", "PersistentVolumeClaim") => claim(object),
        ("", "PersistentVolume") => {
            default(object, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
            default(object, &["spec", "volumeMode"], "Filesystem");
            if object.get_path(["spec", "hostPath"]).is_some() {
                default(object, &["spec", "hostPath", "type"], "");
            }
        }
        ("", "LimitRange") => limits(object),
        ("", "Endpoints") => {
            for subset in each(object, &["subsets"]) {
                each(subset, &["ports"]).for_each(|port| default(port, &["protocol"], "TCP"));
            }
        }
        ("", "ReplicationController") => workload::replication_controller(object),
        ("apps", "Deployment") => workload::deployment(object),
        ("apps", "ReplicaSet") => workload::replica_set(object),
        ("apps", "StatefulSet") => workload::stateful_set(object),
        ("apps", "DaemonSet") => workload::daemon_set(object),
        ("batch", "Job") => workload::job(object, &["spec"]),
        ("batch", "CronJob") => workload::cron_job(object),
        ("autoscaling", "HorizontalPodAutoscaler") => autoscaler(gvk, object),
        ("networking.k8s.io", "NetworkPolicy") => network_policy(object),
        ("networking.k8s.io", "Ingress") => {
            for rule in each(object, &["spec", "rules"]) {
                each(rule, &["http", "paths"])
                    .for_each(|path| default(path, &["pathType"], "ImplementationSpecific"));
            }
        }
        ("networking.k8s.io", "IngressClass")
            if object.get_path(["spec", "parameters"]).is_some() =>
        {
            default(object, &["spec", "parameters", "scope"], "Cluster");
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            const GROUP: &str = "rbac.authorization.k8s.io";
            let empty = text(object, &["roleRef", "apiGroup"]).is_empty();
            if empty {
                let _ = object.set(["roleRef", "apiGroup"], GROUP);
            }
            for subject in each(object, &["subjects"]) {
                if matches!(text(subject, &["kind"]), "User" | "Group") {
                    default(subject, &["apiGroup"], GROUP);
                }
            }
        }
        ("storage.k8s.io", "StorageClass") => {
            default(object, &["reclaimPolicy"], "Delete");
            default(object, &["volumeBindingMode"], "Immediate");
        }
        ("scheduling.k8s.io", "PriorityClass") => {
            default(object, &["preemptionPolicy"], "PreemptLowerPriority");
        }
        ("discovery.k8s.io", "EndpointSlice") => {
            for port in each(object, &["ports"]) {
                default(port, &["name"], "");
                default(port, &["protocol"], "TCP");
            }
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition(object),
        ("admissionregistration.k8s.io", _) => admission(gvk, object),
        ("apiregistration.k8s.io", "APIService")
            if object.get_path(["spec", "service"]).is_some_and(|service| !service.is_null()) =>
        {
            default(object, &["spec", "service", "port"], 443);
        }
        ("certificates.k8s.io", "CertificateSigningRequest") => {
            default(object, &["spec", "usages"], value!(["digital signature", "key encipherment"]));
        }
        _ => {}
    }
}

fn service(object: &mut Value) {
    default(object, &["spec", "sessionAffinity"], "None");
    if text(object, &["spec", "sessionAffinity"]) == "ClientIP" {
        default(object, &["spec", "sessionAffinityConfig", "clientIP", "timeoutSeconds"], 10800);
    }
    default(object, &["spec", "type"], "ClusterIP");
    for port in each(object, &["spec", "ports"]) {
        default(port, &["protocol"], "TCP");
        let target = port.get("targetPort").cloned().unwrap_or_default();
        let none = target.is_null() || target.as_i64() == Some(0) || target.as_str() == Some("");
        if none && let Some(number) = port.get("port").cloned() {
            let _ = port.set(["targetPort"], number);
        }
    }
    let kind = text(object, &["spec", "type"]).to_owned();
    let external = object
        .get_path(["spec", "externalIPs"])
        .and_then(Value::as_list)
        .is_some_and(|list| !list.is_empty());
    if matches!(kind.as_str(), "NodePort" | "LoadBalancer") || external && kind == "ClusterIP" {
        default(object, &["spec", "externalTrafficPolicy"], "Cluster");
    }
    if kind == "LoadBalancer" {
        default(object, &["spec", "allocateLoadBalancerNodePorts"], true);
    }
    if kind != "ExternalName" {
        default(object, &["spec", "internalTrafficPolicy"], "Cluster");
    }
}

fn claim(object: &mut Value) {
    default(object, &["spec", "volumeMode"], "Filesystem");
    default(object, &["status", "phase"], "Pending");
}

fn limits(object: &mut Value) {
    for limit in each(object, &["spec", "limits"]) {
        if text(limit, &["type"]) != "Container" {
            continue;
        }
        let maximum = limit.get("max").and_then(Value::as_map).cloned().unwrap_or_default();
        for (resource, quantity) in &maximum {
            default(limit, &["default", resource.as_str()], quantity.clone());
        }
        let usual = limit.get("default").and_then(Value::as_map).cloned().unwrap_or_default();
        let minimum = limit.get("min").and_then(Value::as_map).cloned().unwrap_or_default();
        for (resource, quantity) in &usual {
            default(limit, &["defaultRequest", resource.as_str()], quantity.clone());
        }
        for (resource, quantity) in &minimum {
            default(limit, &["defaultRequest", resource.as_str()], quantity.clone());
        }
    }
}

fn autoscaler(gvk: &Gvk, object: &mut Value) {
    default(object, &["spec", "minReplicas"], 1);
    if gvk.version != "v2" {
        return;
    }
    let none = object
        .get_path(["spec", "metrics"])
        .and_then(Value::as_list)
        .is_none_or(|list| list.is_empty());
    if none {
        let cpu = value!([{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}}]);
        let _ = object.set(["spec", "metrics"], cpu);
    }
    if object.get_path(["spec", "behavior"]).is_some_and(|behavior| !behavior.is_null()) {
        let percent = value!([{"type": "Percent", "value": 100, "periodSeconds": 15}]);
        let both = value!([{"type": "Pods", "value": 4, "periodSeconds": 15}, {"type": "Percent", "value": 100, "periodSeconds": 15}]);
        default(object, &["spec", "behavior", "scaleUp", "stabilizationWindowSeconds"], 0);
        default(object, &["spec", "behavior", "scaleUp", "selectPolicy"], "Max");
        default(object, &["spec", "behavior", "scaleUp", "policies"], both);
        default(object, &["spec", "behavior", "scaleDown", "selectPolicy"], "Max");
        default(object, &["spec", "behavior", "scaleDown", "policies"], percent);
    }
}

fn network_policy(object: &mut Value) {
    for field in ["ingress", "egress"] {
        for rule in each(object, &["spec", field]) {
            each(rule, &["ports"]).for_each(|port| default(port, &["protocol"], "TCP"));
        }
    }
    let missing = object.get_path(["spec", "policyTypes"]).is_none_or(Value::is_null);
    if missing {
        let egress = object
            .get_path(["spec", "egress"])
            .and_then(Value::as_list)
            .is_some_and(|list| !list.is_empty());
        let types = if egress { value!(["Ingress", "Egress"]) } else { value!(["Ingress"]) };
        let _ = object.set(["spec", "policyTypes"], types);
    }
}

fn definition(object: &mut Value) {
    let kind = text(object, &["spec", "names", "kind"]).to_owned();
    if kind.is_empty() {
        return;
    }
    default(object, &["spec", "names", "singular"], kind.to_lowercase());
    default(object, &["spec", "names", "listKind"], format!("{kind}List"));
    default(object, &["spec", "conversion", "strategy"], "None");
    if object.get_path(["spec", "conversion", "webhook", "clientConfig", "service"]).is_some() {
        default(object, &["spec", "conversion", "webhook", "clientConfig", "service", "port"], 443);
    }
}

fn admission(gvk: &Gvk, object: &mut Value) {
    match gvk.kind.as_str() {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in each(object, &["webhooks"]) {
                default(webhook, &["failurePolicy"], "Fail");
                default(webhook, &["matchPolicy"], "Equivalent");
                default(webhook, &["namespaceSelector"], Value::map());
                default(webhook, &["objectSelector"], Value::map());
                default(webhook, &["timeoutSeconds"], 10);
                if gvk.kind == "MutatingWebhookConfiguration" {
                    default(webhook, &["reinvocationPolicy"], "Never");
                }
                if webhook
                    .get_path(["clientConfig", "service"])
                    .is_some_and(|service| !service.is_null())
                {
                    default(webhook, &["clientConfig", "service", "port"], 443);
                }
                each(webhook, &["rules"]).for_each(|rule| default(rule, &["scope"], "*"));
            }
        }
        "ValidatingAdmissionPolicy" | "MutatingAdmissionPolicy" => {
            default(object, &["spec", "failurePolicy"], "Fail");
            if object
                .get_path(["spec", "matchConstraints"])
                .is_some_and(|constraints| !constraints.is_null())
            {
                constraints(object, &["spec", "matchConstraints"]);
            }
        }
        "ValidatingAdmissionPolicyBinding" | "MutatingAdmissionPolicyBinding"
            if object
                .get_path(["spec", "matchResources"])
                .is_some_and(|constraints| !constraints.is_null()) =>
        {
            constraints(object, &["spec", "matchResources"]);
        }
        _ => {}
    }
}

fn constraints(object: &mut Value, at: &[&str]) {
    let Some(inner) = object.get_path_mut(at.iter().copied()) else { return };
    default(inner, &["matchPolicy"], "Equivalent");
    default(inner, &["namespaceSelector"], Value::map());
    default(inner, &["objectSelector"], Value::map());
    for field in ["resourceRules", "excludeResourceRules"] {
        each(inner, &[field]).for_each(|rule| default(rule, &["scope"], "*"));
    }
}

/// What only a server knows of a new object: addresses, finalizers, the first status.
pub(crate) fn prepare(server: &Server, state: &ServerState, gvk: &Gvk, object: &mut Value) {
    let uid = text(object, &["metadata", "uid"]).to_owned();
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Pod") => pod::first_status(object),
        ("", "Service") => give_addresses(server, state, object),
        ("", "Namespace") => {
            add_once(object, &["spec", "finalizers"], "kubernetes");
            let _ = object.set(["status", "phase"], "Active");
        }
        ("", "PersistentVolumeClaim") => {
            add_once(object, &["metadata", "finalizers"], "kubernetes.io/pvc-protection");
            let _ = object.set(["status", "phase"], "Pending");
        }
        ("", "PersistentVolume") => {
            add_once(object, &["metadata", "finalizers"], "kubernetes.io/pv-protection");
            let _ = object.set(["status", "phase"], "Pending");
            let _ = object.set(["status", "lastPhaseTransitionTime"], server.timestamp());
        }
        ("", "Node") => {
            let taint = value!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
            match object.get_path_mut(["spec", "taints"]).and_then(Value::as_list_mut) {
                Some(list) if list.contains(&taint) => {}
                Some(list) => list.push(taint),
                None => {
                    let _ = object.set(["spec", "taints"], Value::from(vec![taint]));
                }
            }
            let first =
                object.get_path(["spec", "podCIDRs"]).and_then(|list| list.index(0).cloned());
            if let Some(first) = first {
                default(object, &["spec", "podCIDR"], first);
            }
        }
        ("apps", "DaemonSet") => {
            let key = "deprecated.daemonset.template.generation";
            let _ = object.set(["metadata", "annotations", key], "1");
        }
        ("batch", "Job") => workload::give_selector(object, &uid),
        ("", "ServiceAccount") => only_names(object),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            accept_definition(server, state, object);
        }
        ("apiregistration.k8s.io", "APIService") => tell_availability(server, object),
        _ => {}
    }
    first_status(gvk, object);
}

/// The status that a new object has: what its types always write.
fn first_status(gvk: &Gvk, object: &mut Value) {
    let types = crate::types::types();
    if let Some(id) = types.kind(&gvk.api_version(), &gvk.kind)
        && let Ok(decoded) = crate::types::decode(object, id)
    {
        *object = decoded.object;
    }
    if (gvk.group.as_str(), gvk.kind.as_str()) == ("autoscaling", "HorizontalPodAutoscaler")
        && gvk.version == "v2"
    {
        default(object, &["status", "currentMetrics"], Value::Null);
    }
}

fn give_addresses(server: &Server, state: &ServerState, object: &mut Value) {
    let kind = text(object, &["spec", "type"]).to_owned();
    let _ = object.set(["status", "loadBalancer"], Value::map());
    if kind == "ExternalName" {
        return;
    }
    let given = text(object, &["spec", "clusterIP"]).to_owned();
    let address = if given.is_empty() { free_address(server, state) } else { given };
    let _ = object.set(["spec", "clusterIP"], address.as_str());
    default(object, &["spec", "clusterIPs"], Value::from(vec![address.as_str()]));
    default(object, &["spec", "ipFamilies"], value!(["IPv4"]));
    default(object, &["spec", "ipFamilyPolicy"], "SingleStack");
    let allocates =
        object.get_path(["spec", "allocateLoadBalancerNodePorts"]).and_then(Value::as_bool)
            != Some(false);
    if kind == "NodePort" || kind == "LoadBalancer" && allocates {
        for port in each(object, &["spec", "ports"]) {
            if port.get("nodePort").and_then(Value::as_i64).unwrap_or(0) == 0 {
                let number = 30_000 + i64::try_from(server.host.random() % 2768).unwrap_or(0);
                let _ = port.set(["nodePort"], number);
            }
        }
    }
}

/// An address of the range that no Service has.
fn free_address(server: &Server, state: &ServerState) -> String {
    let key = TableKey::new("", "services");
    let taken = |address: &str| {
        let services = state.store.table(&key).into_iter().flat_map(|table| table.range("", None));
        services
            .into_iter()
            .any(|(_, service)| service.str_at(["spec", "clusterIP"]) == Some(address))
    };
    let mut tries = 0;
    loop {
        let bits = server.host.random();
        let low = 2 + bits % 250;
        // The first range is small, as in most test clusters; it grows when it is full.
        let high = if tries < 200 { 0 } else { (bits >> 16) % 256 };
        let address = format!("10.0.{high}.{low}");
        tries += 1;
        if !taken(&address) || tries > 5000 {
            return address;
        }
    }
}

/// Kubernetes: of the Secrets of an account only their names are kept.
fn only_names(account: &mut Value) {
    for secret in each(account, &["secrets"]) {
        if let Some(map) = secret.as_map_mut() {
            map.retain(|key, _| key.as_str() == "name");
        }
    }
}

fn accept_definition(server: &Server, state: &ServerState, object: &mut Value) {
    let versions = object.get_path(["spec", "versions"]).and_then(Value::as_list);
    let storage = versions
        .into_iter()
        .flat_map(|list| list.iter())
        .find(|version| version.get("storage").and_then(Value::as_bool) == Some(true));
    let storage =
        storage.and_then(|version| version.str_at(["name"])).unwrap_or_default().to_owned();
    let mut status = Map::new();
    for field in ["conditions", "acceptedNames"] {
        status.insert(field, Value::Null);
    }
    status.insert("storedVersions", vec![storage]);
    let _ = object.set(["status"], Value::Map(status));
    names::tell(&state.kinds, object, &server.timestamp());
}

/// An API of this server is there; behind the service of another one no server answers.
fn tell_availability(server: &Server, object: &mut Value) {
    let text = |field: &str| object.str_at(["spec", "service", field]).unwrap_or_default();
    let (status, reason, message) = match text("name") {
        "" => ("True", "Local", "Local APIServices are always available".to_owned()),
        name => {
            let namespace = text("namespace");
            let why = format!(
                "no pods run here, so nothing answers behind service/{name} in {namespace:?}"
            );
            ("False", "MissingEndpoints", why)
        }
    };
    let now = server.timestamp();
    let condition = value!({"type": "Available", "status": status, "lastTransitionTime": now, "reason": reason, "message": message});
    let _ = object.set(["status", "conditions"], Value::from(vec![condition]));
}

/// What a server keeps as it was, or in step, when an object changes.
pub(crate) fn prepare_change(
    server: &Server,
    state: &ServerState,
    gvk: &Gvk,
    old: &Value,
    new: &mut Value,
) {
    match (gvk.group.as_str(), gvk.kind.as_str()) {
        ("", "Service") => {
            let kind = text(new, &["spec", "type"]).to_owned();
            if kind != "ExternalName" && text(new, &["spec", "clusterIP"]).is_empty() {
                for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                    if let Some(value) = old.get_path(["spec", field]) {
                        let _ = new.set(["spec", field], value.clone());
                    }
                }
            }
            if kind == "ExternalName" && text(old, &["spec", "type"]) != "ExternalName" {
                for field in [
                    "clusterIP",
                    "clusterIPs",
                    "ipFamilies",
                    "ipFamilyPolicy",
                    "internalTrafficPolicy",
                ] {
                    new.remove(["spec", field]);
                }
            }
            if text(new, &["spec", "sessionAffinity"]) != "ClientIP" {
                new.remove(["spec", "sessionAffinityConfig"]);
            }
            for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
                if new.get_path(["spec", field]).is_none()
                    && kind != "ExternalName"
                    && let Some(value) = old.get_path(["spec", field])
                {
                    let _ = new.set(["spec", field], value.clone());
                }
            }
        }
        ("batch", "Job") => {
            for path in [&["spec", "selector"][..], &["spec", "template", "metadata", "labels"]] {
                if new.get_path(path.iter().copied()).is_none()
                    && let Some(value) = old.get_path(path.iter().copied())
                {
                    let _ = new.set(path.iter().copied(), value.clone());
                }
            }
        }
        ("", "ServiceAccount") => only_names(new),
        ("apps", "DaemonSet") => {
            let template = |object: &Value| object.get_path(["spec", "template"]).cloned();
            let key = "deprecated.daemonset.template.generation";
            let count: i64 = text(old, &["metadata", "annotations", key]).parse().unwrap_or(1);
            let count = if template(old) == template(new) { count } else { count + 1 };
            let _ = new.set(["metadata", "annotations", key], count.to_string());
        }
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            names::tell(&state.kinds, new, &server.timestamp());
            let storage =
                new.get_path(["spec", "versions"]).and_then(Value::as_list).and_then(|list| {
                    list.iter()
                        .find(|version| {
                            version.get("storage").and_then(Value::as_bool) == Some(true)
                        })
                        .and_then(|version| version.get("name").cloned())
                });
            if let Some(storage) = storage
                && let Some(stored) =
                    new.get_path_mut(["status", "storedVersions"]).and_then(Value::as_list_mut)
                && !stored.contains(&storage)
            {
                stored.push(storage);
            }
        }
        _ => {}
    }
}
