//! What must hold of pods and of the templates that make them.

use kiln_text::{Quantity, names};
use kiln_value::{Map, Value};

use super::metadata::labels;
use crate::status::{FieldProblem, FieldProblemKind};

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.str_at([field]).unwrap_or_default()
}

fn list<'v>(value: &'v Value, field: &str) -> impl Iterator<Item = (usize, &'v Value)> {
    let list = value.get(field).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).enumerate()
}

/// Checks a template and what it selects itself by.
pub(super) fn template(
    object: &Value,
    path: &str,
    restart: &[&str],
    problems: &mut Vec<FieldProblem>,
) {
    let Some(template) = object.get("template") else {
        problems.push(FieldProblem::required(format!("{path}.template"), ""));
        return;
    };
    let at = format!("{path}.template");
    let pairs = template.get_path(["metadata", "labels"]).and_then(Value::as_map);
    problems.extend(labels(pairs, &format!("{at}.labels")));
    let empty = Value::map();
    spec(template.get("spec").unwrap_or(&empty), &format!("{at}.spec"), restart, problems);
}

/// Checks a pod's spec.
pub(super) fn spec(spec: &Value, path: &str, restart: &[&str], problems: &mut Vec<FieldProblem>) {
    let volumes = volumes(spec, path, problems);
    if list(spec, "containers").next().is_none() {
        problems.push(FieldProblem::required(format!("{path}.containers"), ""));
    }
    let mut seen: Vec<&str> = Vec::new();
    for field in ["initContainers", "containers"] {
        let mut local: Vec<&str> = Vec::new();
        for (i, container) in list(spec, field) {
            let at = format!("{path}.{field}[{i}]");
            let name = text(container, "name");
            if !name.is_empty() && (local.contains(&name) || seen.contains(&name)) {
                problems.push(FieldProblem::duplicate(format!("{at}.name"), name));
            }
            local.push(name);
            self::container(container, &at, &volumes, problems);
        }
        seen.extend(local);
    }
    let policy = text(spec, "restartPolicy");
    if policy.is_empty() {
        problems.push(FieldProblem::required(format!("{path}.restartPolicy"), ""));
    } else if !restart.contains(&policy) {
        problems.push(FieldProblem::unsupported(format!("{path}.restartPolicy"), policy, restart));
    }
    let dns = text(spec, "dnsPolicy");
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    if !dns.is_empty() && !policies.contains(&dns) {
        problems.push(FieldProblem::unsupported(format!("{path}.dnsPolicy"), dns, &policies));
    }
    let selector = spec.get("nodeSelector").and_then(Value::as_map);
    problems.extend(labels(selector, &format!("{path}.nodeSelector")));
    tolerations(spec, path, problems);
    spread(spec, path, problems);
    for (i, secret) in list(spec, "imagePullSecrets") {
        if text(secret, "name").is_empty() {
            // Allowed by Kubernetes, with a warning.
            let _ = i;
        }
    }
    let account = text(spec, "serviceAccountName");
    if !account.is_empty() {
        let wrong = names::dns1123_subdomain(account);
        let at = format!("{path}.serviceAccountName");
        problems
            .extend(wrong.into_iter().map(|why| FieldProblem::invalid(at.as_str(), account, why)));
    }
}

fn tolerations(spec: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    for (i, toleration) in list(spec, "tolerations") {
        let at = format!("{path}.tolerations[{i}]");
        let (key, operator) = (text(toleration, "key"), text(toleration, "operator"));
        if key.is_empty() && operator != "Exists" {
            let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
            problems.push(FieldProblem::invalid(format!("{at}.operator"), operator, why));
        }
        if operator == "Exists" && !text(toleration, "value").is_empty() {
            let why = "value must be empty when `operator` is 'Exists'";
            problems.push(FieldProblem::invalid(
                format!("{at}.operator"),
                text(toleration, "value"),
                why,
            ));
        }
        let effect = text(toleration, "effect");
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        if !effect.is_empty() && !effects.contains(&effect) {
            problems.push(FieldProblem::unsupported(format!("{at}.effect"), effect, &effects));
        }
    }
}

fn spread(spec: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    let mut seen = Vec::new();
    for (i, constraint) in list(spec, "topologySpreadConstraints") {
        let pair = (text(constraint, "topologyKey"), text(constraint, "whenUnsatisfiable"));
        if seen.contains(&pair) {
            let at =
                format!("{path}.topologySpreadConstraints[{i}].{{topologyKey, whenUnsatisfiable}}");
            problems.push(FieldProblem::duplicate(at, format!("{{{}, {}}}", pair.0, pair.1)));
        }
        seen.push(pair);
    }
}

/// The names of volumes.
fn volumes<'v>(spec: &'v Value, path: &str, problems: &mut Vec<FieldProblem>) -> Vec<&'v str> {
    let mut names_seen: Vec<&str> = Vec::new();
    for (i, volume) in list(spec, "volumes") {
        let at = format!("{path}.volumes[{i}]");
        let name = text(volume, "name");
        if name.is_empty() {
            problems.push(FieldProblem::required(format!("{at}.name"), ""));
        } else {
            let wrong = names::dns1123_label(name);
            let at = format!("{at}.name");
            problems
                .extend(wrong.into_iter().map(|why| FieldProblem::invalid(at.as_str(), name, why)));
        }
        if !name.is_empty() && names_seen.contains(&name) {
            problems.push(FieldProblem::duplicate(format!("{at}.name"), name));
        }
        names_seen.push(name);
        let sources = volume.as_map().into_iter().flat_map(Map::iter);
        let sources: Vec<&str> = sources
            .filter(|(key, value)| key.as_str() != "name" && !value.is_null())
            .map(|(key, _)| key.as_str())
            .collect();
        for extra in order(&sources).into_iter().skip(1) {
            problems.push(FieldProblem::forbidden(
                format!("{at}.{extra}"),
                "may not specify more than 1 volume type",
            ));
        }
    }
    names_seen
}

/// Volume sources in the order in which the server looks at them.
fn order<'s>(sources: &[&'s str]) -> Vec<&'s str> {
    const ORDER: [&str; 9] = [
        "emptyDir",
        "hostPath",
        "gitRepo",
        "secret",
        "nfs",
        "persistentVolumeClaim",
        "downwardAPI",
        "configMap",
        "projected",
    ];
    let mut sorted = sources.to_vec();
    sorted.sort_by_key(|source| {
        ORDER.iter().position(|known| known == source).unwrap_or(ORDER.len())
    });
    sorted
}

fn container(container: &Value, path: &str, volumes: &[&str], problems: &mut Vec<FieldProblem>) {
    let name = text(container, "name");
    if name.is_empty() {
        problems.push(FieldProblem::required(format!("{path}.name"), ""));
    } else {
        let at = format!("{path}.name");
        let wrong = names::dns1123_label(name);
        problems.extend(wrong.into_iter().map(|why| FieldProblem::invalid(at.as_str(), name, why)));
    }
    let image = text(container, "image");
    if image.is_empty() {
        problems.push(FieldProblem::required(format!("{path}.image"), ""));
    } else if image.trim() != image {
        let why = "must not have leading or trailing whitespace";
        problems.push(FieldProblem::invalid(format!("{path}.image"), image, why));
    }
    let mut seen: Vec<&str> = Vec::new();
    for (i, port) in list(container, "ports") {
        let at = format!("{path}.ports[{i}]");
        let name = text(port, "name");
        if !name.is_empty() && seen.contains(&name) {
            problems.push(FieldProblem::duplicate(format!("{at}.name"), name));
        }
        seen.push(name);
        match port.get("containerPort").and_then(Value::as_i64).unwrap_or(0) {
            0 => problems.push(FieldProblem::required(format!("{at}.containerPort"), "")),
            1..=65535 => {}
            number => problems.push(port_range(format!("{at}.containerPort"), number)),
        }
        let protocol = text(port, "protocol");
        let known = ["SCTP", "TCP", "UDP"];
        if !protocol.is_empty() && !known.contains(&protocol) {
            problems.push(FieldProblem::unsupported(format!("{at}.protocol"), protocol, &known));
        }
    }
    for (i, env) in list(container, "env") {
        let at = format!("{path}.env[{i}]");
        if text(env, "name").is_empty() {
            problems.push(FieldProblem::required(format!("{at}.name"), ""));
        }
        let from = env.get("valueFrom").filter(|from| !from.is_null());
        if from.is_some() && !text(env, "value").is_empty() {
            let why = "may not be specified when `value` is not empty";
            problems.push(FieldProblem::invalid(format!("{at}.valueFrom"), "", why));
        }
    }
    let policy = text(container, "imagePullPolicy");
    let policies = ["Always", "IfNotPresent", "Never"];
    if !policy.is_empty() && !policies.contains(&policy) {
        problems.push(FieldProblem::unsupported(
            format!("{path}.imagePullPolicy"),
            policy,
            &policies,
        ));
    }
    mounts(container, path, volumes, problems);
    for probe in ["livenessProbe", "readinessProbe", "startupProbe"] {
        if let Some(inner) = container.get(probe).filter(|probe| !probe.is_null()) {
            handler(inner, &format!("{path}.{probe}"), problems);
        }
    }
    resources(container, path, problems);
}

pub(super) fn port_range(at: String, number: i64) -> FieldProblem {
    FieldProblem::invalid(at, number, "must be between 1 and 65535, inclusive")
}

fn mounts(container: &Value, path: &str, volumes: &[&str], problems: &mut Vec<FieldProblem>) {
    let mut seen: Vec<&str> = Vec::new();
    for (i, mount) in list(container, "volumeMounts") {
        let at = format!("{path}.volumeMounts[{i}]");
        let (name, place) = (text(mount, "name"), text(mount, "mountPath"));
        if name.is_empty() {
            problems.push(FieldProblem::required(format!("{at}.name"), ""));
        } else if !volumes.contains(&name) {
            problems.push(FieldProblem::new(
                format!("{at}.name"),
                FieldProblemKind::NotFound(Value::from(name)),
            ));
        }
        if place.is_empty() {
            problems.push(FieldProblem::required(format!("{at}.mountPath"), ""));
        } else if seen.contains(&place) {
            let why = "must be unique";
            problems.push(FieldProblem::invalid(format!("{at}.mountPath"), place, why));
        }
        seen.push(place);
    }
}

fn handler(probe: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    let mut found = 0;
    for kind in ["exec", "httpGet", "tcpSocket", "grpc"] {
        if probe.get(kind).is_some_and(|handler| !handler.is_null()) {
            found += 1;
            if found > 1 {
                let why = "may not specify more than 1 handler type";
                problems.push(FieldProblem::forbidden(format!("{path}.{kind}"), why));
            }
        }
    }
    if found == 0 {
        problems.push(FieldProblem::required(path, "must specify a handler type"));
    }
}

fn resources(container: &Value, path: &str, problems: &mut Vec<FieldProblem>) {
    let part = |part: &str| container.get_path(["resources", part]).and_then(Value::as_map);
    let limits = part("limits");
    for (resource, request) in part("requests").into_iter().flat_map(Map::iter) {
        let quantity = |value: &Value| value.as_str().and_then(|text| Quantity::parse(text).ok());
        let Some(limit) = limits.and_then(|limits| limits.get(resource)).and_then(quantity) else {
            continue;
        };
        if quantity(request)
            .is_some_and(|request| request.checked_sub(&limit).is_ok_and(|over| over.sign() > 0))
        {
            let why = format!("must be less than or equal to {resource} limit of {limit}");
            problems.push(FieldProblem::invalid(
                format!("{path}.resources.requests"),
                request.clone(),
                why,
            ));
        }
    }
}
