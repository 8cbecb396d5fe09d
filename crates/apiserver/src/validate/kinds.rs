//! What must hold of the kinds that people write every day.

use kiln_object::{Kind, Selector};
use kiln_value::{Map, Value};

use super::definition;
use super::pod::{port_range, spec, template};
use crate::read::field_selector::labels;
use crate::status::{FieldProblem, FieldProblemKind};

/// The most data of a ConfigMap or Secret.
const DATA: usize = 1024 * 1024;
const RESTART: [&str; 3] = ["Always", "OnFailure", "Never"];
const KEY: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    value.str_at(path.iter().copied()).unwrap_or_default()
}

/// What is wrong with an object of a built-in kind.
pub(super) fn check(kind: &Kind, object: &Value, old: Option<&Value>) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    match (kind.group(), kind.kind()) {
        ("", "ConfigMap") => config_map(object, &mut problems),
        ("", "Secret") => secret(object, &mut problems),
        ("", "Pod") => {
            let empty = Value::map();
            spec(object.get("spec").unwrap_or(&empty), "spec", &RESTART, &mut problems);
        }
        ("", "Service") => service(object, &mut problems),
        ("apps", "Deployment") => {
            workload(object, &mut problems);
            strategy(object, &mut problems);
        }
        ("apps", "ReplicaSet" | "DaemonSet") => workload(object, &mut problems),
        ("apps", "StatefulSet") => {
            workload(object, &mut problems);
            let rolling = object
                .get_path(["spec", "updateStrategy", "rollingUpdate"])
                .filter(|rolling| !rolling.is_null());
            if let (Some(rolling), "OnDelete") =
                (rolling, text(object, &["spec", "updateStrategy", "type"]))
            {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                problems.push(FieldProblem::invalid(
                    "spec.updateStrategy.rollingUpdate",
                    rolling.clone(),
                    why,
                ));
            }
        }
        ("batch", "Job") => {
            if let Some(spec) = object.get("spec") {
                template(spec, "spec", &["OnFailure", "Never"], &mut problems);
            }
        }
        ("batch", "CronJob") => cron_job(object, &mut problems),
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            binding(kind, object, &mut problems);
        }
        ("rbac.authorization.k8s.io", "Role" | "ClusterRole") => role(kind, object, &mut problems),
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            definition::check(object, old, &mut problems);
        }
        ("networking.k8s.io", "Ingress") => ingress(object, &mut problems),
        ("coordination.k8s.io", "Lease") => lease(object, &mut problems),
        _ => {}
    }
    problems
}

fn lease(object: &Value, problems: &mut Vec<FieldProblem>) {
    let number = |field: &str| object.get_path(["spec", field]).and_then(Value::as_i64);
    if let Some(seconds) = number("leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        let why = "must be greater than 0";
        problems.push(FieldProblem::invalid("spec.leaseDurationSeconds", seconds, why));
    }
    if let Some(count) = number("leaseTransitions").filter(|count| *count < 0) {
        let why = "must be greater than or equal to 0";
        problems.push(FieldProblem::invalid("spec.leaseTransitions", count, why));
    }
}

fn config_map(object: &Value, problems: &mut Vec<FieldProblem>) {
    let map = |field: &str| object.get(field).and_then(Value::as_map);
    let mut size = 0;
    for field in ["data", "binaryData"] {
        for (key, value) in map(field).into_iter().flat_map(Map::iter) {
            size += value.as_str().map_or(0, str::len);
            key_problem(field, key, problems);
            if field == "data" && map("binaryData").is_some_and(|other| other.contains_key(key)) {
                let why = "duplicate of key present in binaryData";
                problems.push(FieldProblem::invalid(format!("data[{key}]"), key.as_str(), why));
            }
        }
    }
    if size > DATA {
        problems.push(FieldProblem::new("[]", FieldProblemKind::TooLong(DATA)));
    }
}

fn key_problem(field: &str, key: &str, problems: &mut Vec<FieldProblem>) {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let at = format!("{field}[{key}]");
    if key.is_empty() || !key.chars().all(good) {
        problems.push(FieldProblem::invalid(at, key, KEY));
    } else if key == "." || key.starts_with("..") {
        problems.push(FieldProblem::invalid(
            at,
            key,
            if key == "." { "must not be '.'" } else { "must not start with '..'" },
        ));
    }
}

fn secret(object: &Value, problems: &mut Vec<FieldProblem>) {
    let data = object.get("data").and_then(Value::as_map);
    let mut size = 0;
    for (key, value) in data.into_iter().flat_map(Map::iter) {
        size += value.as_str().map_or(0, str::len) / 4 * 3;
        key_problem("data", key, problems);
    }
    if size > DATA {
        problems.push(FieldProblem::new("data", FieldProblemKind::TooLong(DATA)));
    }
    let needed: &[&str] = match text(object, &["type"]) {
        "kubernetes.io/tls" => &["tls.crt", "tls.key"],
        "kubernetes.io/dockerconfigjson" => &[".dockerconfigjson"],
        "kubernetes.io/dockercfg" => &[".dockercfg"],
        "kubernetes.io/ssh-auth" => &["ssh-privatekey"],
        _ => &[],
    };
    if text(object, &["type"]) == "kubernetes.io/basic-auth"
        && !data.is_some_and(|data| data.contains_key("username") || data.contains_key("password"))
    {
        for key in ["username", "password"] {
            problems.push(FieldProblem::required(format!("data[{key}]"), ""));
        }
    }
    for key in needed {
        if data.is_none_or(|data| !data.contains_key(key)) {
            problems.push(FieldProblem::required(format!("data[{key}]"), ""));
        }
    }
}

fn service(object: &Value, problems: &mut Vec<FieldProblem>) {
    let ports = object.get_path(["spec", "ports"]).and_then(Value::as_list);
    let ports: Vec<&Value> = ports.into_iter().flat_map(|list| list.iter()).collect();
    let kind = text(object, &["spec", "type"]);
    let headless = text(object, &["spec", "clusterIP"]) == "None";
    if ports.is_empty() && kind != "ExternalName" && !headless {
        problems.push(FieldProblem::required("spec.ports", ""));
    }
    let known = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !known.contains(&kind) {
        problems.push(FieldProblem::unsupported("spec.type", kind, &known));
    }
    let mut names: Vec<&str> = Vec::new();
    let mut numbers: Vec<(i64, &str)> = Vec::new();
    for (i, port) in ports.iter().enumerate() {
        let at = format!("spec.ports[{i}]");
        let name = text(port, &["name"]);
        if ports.len() > 1 && name.is_empty() {
            problems.push(FieldProblem::required(format!("{at}.name"), ""));
        } else if !name.is_empty() && names.contains(&name) {
            problems.push(FieldProblem::duplicate(format!("{at}.name"), name));
        }
        names.push(name);
        let number = port.get("port").and_then(Value::as_i64).unwrap_or(0);
        if !(1..=65535).contains(&number) {
            problems.push(port_range(format!("{at}.port"), number));
        }
        let pair = (number, text(port, &["protocol"]));
        if numbers.contains(&pair) {
            let mut key = Map::new();
            key.insert("port", pair.0);
            key.insert("protocol", pair.1);
            problems.push(FieldProblem::duplicate(at, Value::Map(key)));
        }
        numbers.push(pair);
    }
}

/// A selector that fits its template, and a sound template.
fn workload(object: &Value, problems: &mut Vec<FieldProblem>) {
    let Some(spec) = object.get("spec") else { return };
    if let Some(replicas) = spec.get("replicas").and_then(Value::as_i64)
        && replicas < 0
    {
        let why = "must be greater than or equal to 0";
        problems.push(FieldProblem::invalid("spec.replicas", replicas, why));
    }
    let selector = spec.get("selector").filter(|selector| !selector.is_null());
    if selector.is_none() {
        problems.push(FieldProblem::required("spec.selector", ""));
    } else if selector.and_then(Value::as_map).is_some_and(Map::is_empty) {
        let why = "empty selector is invalid for deployment";
        problems.push(FieldProblem::invalid("spec.selector", Value::map(), why));
    }
    let pod_labels = spec.get("template").and_then(labels);
    let matches = selector
        .and_then(|selector| Selector::from_value(selector).ok())
        .is_some_and(|selector| selector.matches(pod_labels));
    if !matches {
        let shown = pod_labels.map_or(Value::Null, |labels| Value::Map(labels.clone()));
        let why = "`selector` does not match template `labels`";
        problems.push(FieldProblem::invalid("spec.template.metadata.labels", shown, why));
    }
    template(spec, "spec", &["Always"], problems);
}

fn strategy(object: &Value, problems: &mut Vec<FieldProblem>) {
    let kind = text(object, &["spec", "strategy", "type"]);
    let rolling = object
        .get_path(["spec", "strategy", "rollingUpdate"])
        .is_some_and(|rolling| !rolling.is_null());
    match kind {
        "Recreate" if rolling => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            problems.push(FieldProblem::forbidden("spec.strategy.rollingUpdate", why));
        }
        "Recreate" | "RollingUpdate" => {}
        other => problems.push(FieldProblem::unsupported(
            "spec.strategy.type",
            other,
            &["Recreate", "RollingUpdate"],
        )),
    }
}

fn cron_job(object: &Value, problems: &mut Vec<FieldProblem>) {
    let schedule = text(object, &["spec", "schedule"]);
    if schedule.is_empty() {
        problems.push(FieldProblem::required("spec.schedule", ""));
    } else if !schedule.starts_with('@') && schedule.split_whitespace().count() != 5 {
        let found = schedule.split_whitespace().count();
        let why = format!("expected exactly 5 fields, found {found}: {schedule:?}");
        problems.push(FieldProblem::invalid("spec.schedule", schedule, why));
    }
    if let Some(spec) = object.get_path(["spec", "jobTemplate", "spec"]) {
        template(spec, "spec.jobTemplate.spec", &["OnFailure", "Never"], problems);
    }
}

fn binding(kind: &Kind, object: &Value, problems: &mut Vec<FieldProblem>) {
    let known: &[&str] =
        if kind.kind() == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    let role = text(object, &["roleRef", "kind"]);
    if !known.contains(&role) {
        problems.push(FieldProblem::unsupported("roleRef.kind", role, known));
    }
    if text(object, &["roleRef", "name"]).is_empty() {
        problems.push(FieldProblem::required("roleRef.name", ""));
    }
    let subjects = object.get("subjects").and_then(Value::as_list);
    for (i, subject) in subjects.into_iter().flat_map(|list| list.iter()).enumerate() {
        if text(subject, &["name"]).is_empty() {
            problems.push(FieldProblem::required(format!("subjects[{i}].name"), ""));
        }
        let of = text(subject, &["kind"]);
        if of == "ServiceAccount"
            && text(subject, &["namespace"]).is_empty()
            && kind.kind() == "ClusterRoleBinding"
        {
            problems.push(FieldProblem::required(format!("subjects[{i}].namespace"), ""));
        }
        if !["ServiceAccount", "User", "Group"].contains(&of) {
            problems.push(FieldProblem::unsupported(
                format!("subjects[{i}].kind"),
                of,
                &["ServiceAccount", "User", "Group"],
            ));
        }
    }
}

fn role(kind: &Kind, object: &Value, problems: &mut Vec<FieldProblem>) {
    let rules = object.get("rules").and_then(Value::as_list);
    for (i, rule) in rules.into_iter().flat_map(|list| list.iter()).enumerate() {
        let empty = |field: &str| {
            rule.get(field).and_then(Value::as_list).is_none_or(|list| list.is_empty())
        };
        if empty("verbs") {
            problems.push(FieldProblem::required(
                format!("rules[{i}].verbs"),
                "verbs must contain at least one value",
            ));
        }
        if !empty("nonResourceURLs") {
            if kind.kind() == "Role" {
                let why = "namespaced rules cannot apply to non-resource URLs";
                let urls = rule.get("nonResourceURLs").cloned().unwrap_or_default();
                problems.push(FieldProblem::invalid(
                    format!("rules[{i}].nonResourceURLs"),
                    urls,
                    why,
                ));
            }
            continue;
        }
        if empty("apiGroups") {
            let why = "resource rules must supply at least one api group";
            problems.push(FieldProblem::required(format!("rules[{i}].apiGroups"), why));
        }
        if empty("resources") {
            let why = "resource rules must supply at least one resource";
            problems.push(FieldProblem::required(format!("rules[{i}].resources"), why));
        }
    }
}

fn ingress(object: &Value, problems: &mut Vec<FieldProblem>) {
    let has = |path: [&'static str; 2]| object.get_path(path).is_some_and(|value| !value.is_null());
    if !has(["spec", "defaultBackend"]) && !has(["spec", "rules"]) {
        let why = "either `defaultBackend` or `rules` must be specified";
        problems.push(FieldProblem::invalid("spec", Value::map(), why));
    }
}

/// What must not change.
pub(super) fn check_change(kind: &Kind, old: &Value, new: &Value) -> Vec<FieldProblem> {
    let mut problems = Vec::new();
    let get = |object: &Value, path: &[&str]| {
        object.get_path(path.iter().copied()).cloned().unwrap_or_default()
    };
    let fixed: &[&[&str]] = match (kind.group(), kind.kind()) {
        ("", "Secret") => &[&["type"]],
        ("apps", "Deployment" | "ReplicaSet" | "DaemonSet") => &[&["spec", "selector"]],
        ("batch", "Job") => &[&["spec", "selector"], &["spec", "completionMode"]],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => definition::fixed(old),
        ("", "PersistentVolumeClaim") => {
            // A claim without a class may get one later.
            match old.get_path(["spec", "storageClassName"]) {
                Some(_) => &[
                    &["spec", "accessModes"],
                    &["spec", "storageClassName"],
                    &["spec", "volumeMode"],
                ],
                None => &[&["spec", "accessModes"], &["spec", "volumeMode"]],
            }
        }
        _ => &[],
    };
    for path in fixed {
        let (before, after) = (get(old, path), get(new, path));
        if before != after {
            problems.push(FieldProblem::invalid(path.join("."), after, "field is immutable"));
        }
    }
    match (kind.group(), kind.kind()) {
        ("", "ConfigMap" | "Secret")
            if old.get("immutable").and_then(Value::as_bool) == Some(true) =>
        {
            let why = "field is immutable when `immutable` is set";
            for field in ["immutable", "data", "binaryData"] {
                if get(old, &[field]) != get(new, &[field]) {
                    problems.push(FieldProblem::forbidden(field, why));
                }
            }
        }
        ("rbac.authorization.k8s.io", "RoleBinding" | "ClusterRoleBinding") => {
            let after = get(new, &["roleRef"]);
            if get(old, &["roleRef"]) != after {
                problems.push(FieldProblem::invalid("roleRef", after, "cannot change roleRef"));
            }
        }
        ("scheduling.k8s.io", "PriorityClass") if get(old, &["value"]) != get(new, &["value"]) => {
            problems.push(FieldProblem::forbidden("value", "may not be changed in an update."));
        }
        ("", "Service") => {
            let (before, after) =
                (get(old, &["spec", "clusterIP"]), get(new, &["spec", "clusterIP"]));
            let set = before.as_str().is_some_and(|before| !before.is_empty());
            if set
                && before != after
                && text(new, &["spec", "type"]) != "ExternalName"
                && text(old, &["spec", "type"]) != "ExternalName"
            {
                let list = Value::from(vec![after]);
                problems.push(FieldProblem::invalid(
                    "spec.clusterIPs[0]",
                    list,
                    "may not change once set",
                ));
            }
        }
        ("batch", "Job") if get(old, &["spec", "template"]) != get(new, &["spec", "template"]) => {
            let after = get(new, &["spec", "template"]);
            problems.push(FieldProblem::invalid("spec.template", after, "field is immutable"));
        }
        ("apps", "StatefulSet") => {
            let rest = |object: &Value| {
                let mut spec = get(object, &["spec"]);
                for field in [
                    "replicas",
                    "ordinals",
                    "template",
                    "updateStrategy",
                    "revisionHistoryLimit",
                    "persistentVolumeClaimRetentionPolicy",
                    "minReadySeconds",
                ] {
                    spec.remove([field]);
                }
                spec
            };
            if rest(old) != rest(new) {
                let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden";
                problems.push(FieldProblem::forbidden("spec", why));
            }
        }
        ("", "Pod") => pod_change(old, new, &mut problems),
        _ => {}
    }
    problems
}

fn pod_change(old: &Value, new: &Value, problems: &mut Vec<FieldProblem>) {
    let tolerations = |object: &Value| -> Vec<Value> {
        let list = object.get_path(["spec", "tolerations"]).and_then(Value::as_list);
        list.map(|list| list.to_vec()).unwrap_or_default()
    };
    let now = tolerations(new);
    if tolerations(old).iter().any(|toleration| !now.contains(toleration)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        problems.push(FieldProblem::forbidden("spec.tolerations", why));
    }
    let fixed = |object: &Value| {
        let mut spec = object.get("spec").cloned().unwrap_or_default();
        for field in [
            "activeDeadlineSeconds",
            "terminationGracePeriodSeconds",
            "tolerations",
            "ephemeralContainers",
            "schedulingGates",
        ] {
            spec.remove([field]);
        }
        for field in ["containers", "initContainers"] {
            for container in crate::defaults::each(&mut spec, &[field]) {
                container.remove(["image"]);
            }
        }
        spec
    };
    if fixed(old) != fixed(new) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        problems.push(FieldProblem::forbidden("spec", why));
    }
}
