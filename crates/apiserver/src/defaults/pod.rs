//! Defaults of pods and of the templates that make them.

use kiln_text::Quantity;
use kiln_value::{Value, value};

use super::{default, each, text};

/// Defaults of a pod.
pub(super) fn pod(object: &mut Value) {
    spec(object, &["spec"]);
    default(object, &["spec", "enableServiceLinks"], true);
    let Some(spec) = object.get_mut("spec") else { return };
    for field in ["containers", "initContainers"] {
        for container in each(spec, &[field]) {
            requests(container);
        }
    }
}

/// Where only limits are given, they are the requests too.
fn requests(container: &mut Value) {
    let limits = container.get_path(["resources", "limits"]).and_then(Value::as_map).cloned();
    for (resource, quantity) in &limits.unwrap_or_default() {
        default(container, &["resources", "requests", resource.as_str()], quantity.clone());
    }
}

/// Defaults of a template.
pub(super) fn template(object: &mut Value, at: &[&str]) {
    let path: Vec<&str> = at.iter().copied().chain(["spec"]).collect();
    if object.get_path(path.iter().copied()).is_some() {
        spec(object, &path);
    }
}

fn spec(object: &mut Value, at: &[&str]) {
    let Some(spec) = object.get_path_mut(at.iter().copied()) else { return };
    default(spec, &["restartPolicy"], "Always");
    default(spec, &["terminationGracePeriodSeconds"], 30);
    default(spec, &["dnsPolicy"], "ClusterFirst");
    default(spec, &["securityContext"], Value::map());
    default(spec, &["schedulerName"], "default-scheduler");
    // The old name of the account, and the new one.
    let (old, new) = (
        text(spec, &["serviceAccount"]).to_owned(),
        text(spec, &["serviceAccountName"]).to_owned(),
    );
    if new.is_empty() && !old.is_empty() {
        let _ = spec.set(["serviceAccountName"], old);
    } else if !new.is_empty() {
        let _ = spec.set(["serviceAccount"], new);
    }
    each(spec, &["volumes"]).for_each(volume);
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for field in ["containers", "initContainers", "ephemeralContainers"] {
        for one in each(spec, &[field]) {
            container(one, host_network);
        }
    }
}

fn container(container: &mut Value, host_network: bool) {
    let image = text(container, &["image"]);
    let last = image.rsplit('/').next().unwrap_or_default();
    let latest = match last.split('@').next().unwrap_or_default().split_once(':') {
        Some((_, tag)) => tag == "latest",
        None => !last.contains('@'),
    };
    default(container, &["imagePullPolicy"], if latest { "Always" } else { "IfNotPresent" });
    default(container, &["terminationMessagePath"], "/dev/termination-log");
    default(container, &["terminationMessagePolicy"], "File");
    default(container, &["resources"], Value::map());
    for part in ["limits", "requests"] {
        if let Some(amounts) =
            container.get_path_mut(["resources", part]).and_then(Value::as_map_mut)
        {
            amounts.iter_mut().for_each(|(_, amount)| round_up(amount));
        }
    }
    for port in each(container, &["ports"]) {
        default(port, &["protocol"], "TCP");
        if host_network && let Some(number) = port.get("containerPort").cloned() {
            default(port, &["hostPort"], number);
        }
    }
    for env in each(container, &["env"]) {
        if env.get_path(["valueFrom", "fieldRef"]).is_some_and(|field| !field.is_null()) {
            default(env, &["valueFrom", "fieldRef", "apiVersion"], "v1");
        }
    }
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(probe) = container.get_mut(probe).filter(|probe| !probe.is_null()) {
            default(probe, &["timeoutSeconds"], 1);
            default(probe, &["periodSeconds"], 10);
            default(probe, &["successThreshold"], 1);
            default(probe, &["failureThreshold"], 3);
            http_get(probe);
            if probe.get("grpc").is_some_and(|grpc| !grpc.is_null()) {
                default(probe, &["grpc", "service"], "");
            }
        }
    }
    for hook in ["postStart", "preStop"] {
        if let Some(hook) = container.get_path_mut(["lifecycle", hook]) {
            http_get(hook);
        }
    }
}

/// Kubernetes: amounts are counted in thousandths.
fn round_up(amount: &mut Value) {
    let Some(quantity) = amount.as_str().and_then(|text| Quantity::parse(text).ok()) else {
        return;
    };
    if let Some(thousandths) = quantity.scaled_value(-3) {
        let rounded = Quantity::from_parts(i128::from(thousandths), -3, quantity.format());
        if rounded.checked_sub(&quantity).is_ok_and(|more| more.sign() > 0) {
            *amount = Value::from(rounded.to_string());
        }
    }
}

fn http_get(handler: &mut Value) {
    if handler.get("httpGet").is_some_and(|get| !get.is_null()) {
        default(handler, &["httpGet", "path"], "/");
        default(handler, &["httpGet", "scheme"], "HTTP");
    }
}

fn volume(volume: &mut Value) {
    let has_source = volume.as_map().is_some_and(|map| {
        map.iter().any(|(key, value)| key.as_str() != "name" && !value.is_null())
    });
    if !has_source {
        let _ = volume.set(["emptyDir"], Value::map());
        return;
    }
    for source in ["configMap", "secret", "downwardAPI", "projected"] {
        if volume.get(source).is_some_and(|source| !source.is_null()) {
            default(volume, &[source, "defaultMode"], 420);
        }
    }
    if volume.get("hostPath").is_some_and(|path| !path.is_null()) {
        default(volume, &["hostPath", "type"], "");
    }
    let fields = |items: &mut Value, at: &[&str]| {
        for item in each(items, at) {
            if item.get("fieldRef").is_some_and(|field| !field.is_null()) {
                default(item, &["fieldRef", "apiVersion"], "v1");
            }
        }
    };
    fields(volume, &["downwardAPI", "items"]);
    for source in each(volume, &["projected", "sources"]) {
        fields(source, &["downwardAPI", "items"]);
        if source.get("serviceAccountToken").is_some_and(|token| !token.is_null()) {
            default(source, &["serviceAccountToken", "expirationSeconds"], 3600);
        }
    }
    for (source, field, usual) in [
        ("iscsi", "iscsiInterface", "default"),
        ("rbd", "pool", "rbd"),
        ("rbd", "user", "admin"),
        ("rbd", "keyring", "/etc/ceph/keyring"),
        ("azureDisk", "cachingMode", "ReadWrite"),
        ("azureDisk", "fsType", "ext4"),
        ("azureDisk", "kind", "Shared"),
        ("scaleIO", "storageMode", "ThinProvisioned"),
        ("scaleIO", "fsType", "xfs"),
    ] {
        if volume.get(source).is_some_and(|source| !source.is_null()) {
            default(volume, &[source, field], usual);
        }
    }
}

/// The status of a pod that no kubelet has seen yet.
pub(super) fn first_status(object: &mut Value) {
    let class = quality(object);
    let _ = object.set(["status"], value!({"phase": "Pending", "qosClass": class}));
}

/// How well the resources of a pod are known.
fn quality(pod: &Value) -> &'static str {
    let lists = ["containers", "initContainers"];
    let containers = lists.iter().filter_map(|field| pod.get_path(["spec", *field])?.as_list());
    let containers: Vec<&Value> = containers.flat_map(|list| list.iter()).collect();
    let part = |container: &Value, part: &str, resource: &str| {
        container.get_path(["resources", part, resource]).cloned().unwrap_or_default()
    };
    let any = containers.iter().any(|container| {
        ["limits", "requests"].iter().any(|of| {
            ["cpu", "memory"].iter().any(|resource| !part(container, of, resource).is_null())
        })
    });
    let guaranteed = containers.iter().all(|container| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = part(container, "limits", resource);
            !limit.is_null() && limit == part(container, "requests", resource)
        })
    });
    match (any, guaranteed && !containers.is_empty()) {
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
        (false, _) => "BestEffort",
    }
}
