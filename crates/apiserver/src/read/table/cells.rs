//! The cells of built-in kinds.

use kiln_text::Time;
use kiln_value::{Map, Value};

use super::small_tables;
use crate::write::scale::selector_text;

pub(super) const NONE: &str = "<none>";

pub(super) fn text<'v>(object: &'v Value, path: &[&str]) -> &'v str {
    object.str_at(path.iter().copied()).unwrap_or_default()
}

pub(super) fn number(object: &Value, path: &[&str]) -> i64 {
    object.get_path(path.iter().copied()).and_then(Value::as_i64).unwrap_or(0)
}

pub(super) fn list<'v>(object: &'v Value, path: &[&str]) -> impl Iterator<Item = &'v Value> {
    let list = object.get_path(path.iter().copied()).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter())
}

pub(super) fn or_none(text: String) -> String {
    if text.is_empty() { NONE.to_owned() } else { text }
}

/// How long ago something was, as people say it.
pub(crate) fn age(since: Option<&str>, now: i64) -> String {
    let Some(then) = since.and_then(|text| Time::parse_rfc3339(text).ok()) else {
        return "<unknown>".to_owned();
    };
    span(now - then.unix())
}

/// A span of time: two units at most, and one when it is long.
pub(super) fn span(seconds: i64) -> String {
    let seconds = seconds.max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{large}{unit}")
        } else {
            format!("{large}{unit}{small}{small_unit}")
        }
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if days < 8 => two(days, "d", hours % 24, "h"),
        _ if days < 730 => format!("{days}d"),
        _ => two(days / 365, "y", days % 365, "d"),
    }
}

/// The cell of a column.
pub(super) fn cell(kind: &str, column: &str, object: &Value, now: i64) -> Value {
    let created = object.str_at(["metadata", "creationTimestamp"]);
    match column {
        "Name" if kind == "StorageClass" => {
            let default = text(
                object,
                &["metadata", "annotations", "storageclass.kubernetes.io/is-default-class"],
            );
            let mark = if default == "true" { " (default)" } else { "" };
            return Value::from(format!("{}{mark}", text(object, &["metadata", "name"])));
        }
        "Name" => return object.get_path(["metadata", "name"]).cloned().unwrap_or_default(),
        "Age" => return Value::from(age(created, now)),
        "Created At" => return Value::from(created.unwrap_or_default()),
        "Containers" => return Value::from(containers(kind, object, "name")),
        "Images" => return Value::from(containers(kind, object, "image")),
        "Selector" if matches!(kind, "CronJob") => return Value::from(NONE),
        "Selector" => {
            return Value::from(or_none(selector_text(object.get_path(["spec", "selector"]))));
        }
        _ => {}
    }
    match kind {
        "Pod" => pod(column, object, now),
        "Deployment" | "ReplicaSet" | "ReplicationController" | "StatefulSet" | "DaemonSet" => {
            workload(kind, column, object)
        }
        "Job" => job(column, object, now),
        "CronJob" => cron_job(column, object, now),
        "Service" => service(column, object),
        "Event" => event(column, object, now),
        "Node" => node(column, object),
        "PersistentVolume" | "PersistentVolumeClaim" => volume(kind, column, object),
        "HorizontalPodAutoscaler" => autoscaler(column, object),
        "RoleBinding" | "ClusterRoleBinding" => binding(column, object),
        "Ingress" | "IngressClass" => ingress(column, object),
        _ => small_tables::cell(kind, column, object),
    }
}

fn containers(kind: &str, object: &Value, field: &str) -> String {
    let path: &[&str] = match kind {
        "CronJob" => &["spec", "jobTemplate", "spec", "template", "spec", "containers"],
        "PodTemplate" => &["template", "spec", "containers"],
        _ => &["spec", "template", "spec", "containers"],
    };
    list(object, path).map(|container| text(container, &[field])).collect::<Vec<_>>().join(",")
}

fn pod(column: &str, object: &Value, now: i64) -> Value {
    let statuses: Vec<&Value> = list(object, &["status", "containerStatuses"]).collect();
    let total = list(object, &["spec", "containers"]).count();
    Value::from(match column {
        "Ready" => {
            let ready = statuses
                .iter()
                .filter(|status| status.get("ready").and_then(Value::as_bool) == Some(true));
            format!("{}/{total}", ready.count())
        }
        "Status" => {
            let reason = text(object, &["status", "reason"]);
            let waiting = statuses.iter().find_map(|status| {
                status
                    .str_at(["state", "waiting", "reason"])
                    .or_else(|| status.str_at(["state", "terminated", "reason"]))
            });
            let deleted = object.get_path(["metadata", "deletionTimestamp"]).is_some();
            match (deleted, waiting) {
                (true, _) => "Terminating".to_owned(),
                (false, Some(why)) => why.to_owned(),
                (false, None) if !reason.is_empty() => reason.to_owned(),
                (false, None) => text(object, &["status", "phase"]).to_owned(),
            }
        }
        "Restarts" => {
            let restarts: i64 =
                statuses.iter().map(|status| number(status, &["restartCount"])).sum();
            let last = statuses
                .iter()
                .filter_map(|status| status.str_at(["lastState", "terminated", "finishedAt"]))
                .max();
            match last {
                Some(last) if restarts > 0 => format!("{restarts} ({} ago)", age(Some(last), now)),
                _ => restarts.to_string(),
            }
        }
        "IP" => or_none(text(object, &["status", "podIP"]).to_owned()),
        "Node" => or_none(text(object, &["spec", "nodeName"]).to_owned()),
        "Nominated Node" => or_none(text(object, &["status", "nominatedNodeName"]).to_owned()),
        _ => {
            let gates = list(object, &["spec", "readinessGates"]).count();
            if gates == 0 { NONE.to_owned() } else { format!("0/{gates}") }
        }
    })
}

fn workload(kind: &str, column: &str, object: &Value) -> Value {
    let wanted = object.get_path(["spec", "replicas"]).and_then(Value::as_i64).unwrap_or(1);
    let status = |field: &str| Value::from(number(object, &["status", field]));
    match (kind, column) {
        ("Deployment" | "StatefulSet", "Ready") => {
            Value::from(format!("{}/{wanted}", number(object, &["status", "readyReplicas"])))
        }
        ("Deployment", "Up-to-date") => status("updatedReplicas"),
        ("Deployment", "Available") => status("availableReplicas"),
        ("DaemonSet", "Desired") => status("desiredNumberScheduled"),
        ("DaemonSet", "Current") => status("currentNumberScheduled"),
        ("DaemonSet", "Ready") => status("numberReady"),
        ("DaemonSet", "Up-to-date") => status("updatedNumberScheduled"),
        ("DaemonSet", "Available") => status("numberAvailable"),
        ("DaemonSet", _) => Value::from(or_none(selector_text(object.get_path([
            "spec",
            "template",
            "spec",
            "nodeSelector",
        ])))),
        (_, "Desired") => Value::from(wanted),
        (_, "Current") => status("replicas"),
        _ => status("readyReplicas"),
    }
}

fn job(column: &str, object: &Value, now: i64) -> Value {
    let condition = |kind: &str| {
        list(object, &["status", "conditions"]).any(|condition| {
            text(condition, &["type"]) == kind && text(condition, &["status"]) == "True"
        })
    };
    Value::from(match column {
        "Status" => {
            let words = ["Complete", "Failed", "Suspended", "FailureTarget", "SuccessCriteriaMet"];
            words.iter().find(|word| condition(word)).map_or("Running", |word| word).to_owned()
        }
        "Completions" => {
            let done = number(object, &["status", "succeeded"]);
            match object.get_path(["spec", "completions"]).and_then(Value::as_i64) {
                Some(wanted) => format!("{done}/{wanted}"),
                None => format!("{done}/1 of {}", number(object, &["spec", "parallelism"])),
            }
        }
        _ => match object.str_at(["status", "startTime"]) {
            None => String::new(),
            Some(start) => {
                let end = object
                    .str_at(["status", "completionTime"])
                    .and_then(|end| Time::parse_rfc3339(end).ok());
                age(Some(start), end.map_or(now, |end| end.unix()))
            }
        },
    })
}

fn cron_job(column: &str, object: &Value, now: i64) -> Value {
    match column {
        "Schedule" => Value::from(text(object, &["spec", "schedule"])),
        "Timezone" => Value::from(or_none(text(object, &["spec", "timeZone"]).to_owned())),
        "Suspend" => {
            let suspended =
                object.get_path(["spec", "suspend"]).and_then(Value::as_bool) == Some(true);
            Value::from(if suspended { "True" } else { "False" })
        }
        "Active" => Value::from(list(object, &["status", "active"]).count()),
        _ => Value::from(match object.str_at(["status", "lastScheduleTime"]) {
            None => NONE.to_owned(),
            some => age(some, now),
        }),
    }
}

fn service(column: &str, object: &Value) -> Value {
    let kind = text(object, &["spec", "type"]);
    Value::from(match column {
        "Type" => kind.to_owned(),
        "Cluster-IP" => or_none(text(object, &["spec", "clusterIP"]).to_owned()),
        "External-IP" => {
            let mut found: Vec<String> = list(object, &["spec", "externalIPs"])
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect();
            match kind {
                "ExternalName" => text(object, &["spec", "externalName"]).to_owned(),
                "LoadBalancer" => {
                    let given = list(object, &["status", "loadBalancer", "ingress"]);
                    found.extend(given.map(|one| {
                        let ip = text(one, &["ip"]);
                        if ip.is_empty() {
                            text(one, &["hostname"]).to_owned()
                        } else {
                            ip.to_owned()
                        }
                    }));
                    if found.is_empty() { "<pending>".to_owned() } else { found.join(",") }
                }
                _ => or_none(found.join(",")),
            }
        }
        _ => {
            let ports = list(object, &["spec", "ports"]).map(|port| {
                let node = number(port, &["nodePort"]);
                let (own, protocol) = (number(port, &["port"]), text(port, &["protocol"]));
                if node > 0 {
                    format!("{own}:{node}/{protocol}")
                } else {
                    format!("{own}/{protocol}")
                }
            });
            or_none(ports.collect::<Vec<_>>().join(","))
        }
    })
}

fn event(column: &str, object: &Value, now: i64) -> Value {
    let first_of = |paths: &[&[&str]]| {
        paths
            .iter()
            .map(|path| text(object, path))
            .find(|text| !text.is_empty())
            .unwrap_or_default()
            .to_owned()
    };
    let ago =
        |time: String| if time.is_empty() { "<unknown>".to_owned() } else { age(Some(&time), now) };
    Value::from(match column {
        "Last Seen" => ago(first_of(&[
            &["series", "lastObservedTime"],
            &["lastTimestamp"],
            &["deprecatedLastTimestamp"],
            &["eventTime"],
        ])),
        "First Seen" => {
            ago(first_of(&[&["firstTimestamp"], &["deprecatedFirstTimestamp"], &["eventTime"]]))
        }
        "Type" => text(object, &["type"]).to_owned(),
        "Reason" => text(object, &["reason"]).to_owned(),
        "Object" => {
            let kind =
                first_of(&[&["involvedObject", "kind"], &["regarding", "kind"]]).to_lowercase();
            format!("{kind}/{}", first_of(&[&["involvedObject", "name"], &["regarding", "name"]]))
        }
        "Subobject" => first_of(&[&["involvedObject", "fieldPath"], &["regarding", "fieldPath"]]),
        "Source" => {
            let source = first_of(&[
                &["source", "component"],
                &["reportingComponent"],
                &["reportingController"],
            ]);
            let host = text(object, &["source", "host"]);
            if host.is_empty() { source } else { format!("{source}, {host}") }
        }
        "Message" => first_of(&[&["message"], &["note"]]).trim().to_owned(),
        _ => {
            let count = number(object, &["count"]).max(number(object, &["deprecatedCount"]));
            return Value::from(count.max(number(object, &["series", "count"])).max(1));
        }
    })
}

fn node(column: &str, object: &Value) -> Value {
    let address = |kind: &str| {
        let found =
            list(object, &["status", "addresses"]).find(|address| text(address, &["type"]) == kind);
        or_none(found.map(|address| text(address, &["address"]).to_owned()).unwrap_or_default())
    };
    let info = |field: &str| {
        let text = text(object, &["status", "nodeInfo", field]);
        if text.is_empty() { "<unknown>".to_owned() } else { text.to_owned() }
    };
    Value::from(match column {
        "Status" => {
            let ready = list(object, &["status", "conditions"])
                .find(|condition| text(condition, &["type"]) == "Ready");
            let mut word = match ready.map(|condition| text(condition, &["status"])) {
                Some("True") => "Ready".to_owned(),
                Some(_) => "NotReady".to_owned(),
                None => "Unknown".to_owned(),
            };
            if object.get_path(["spec", "unschedulable"]).and_then(Value::as_bool) == Some(true) {
                word.push_str(",SchedulingDisabled");
            }
            word
        }
        "Roles" => {
            let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map);
            let keys = labels.into_iter().flat_map(Map::keys);
            let roles: Vec<&str> =
                keys.filter_map(|key| key.strip_prefix("node-role.kubernetes.io/")).collect();
            or_none(roles.join(","))
        }
        "Version" => text(object, &["status", "nodeInfo", "kubeletVersion"]).to_owned(),
        "Internal-IP" => address("InternalIP"),
        "External-IP" => address("ExternalIP"),
        "OS-Image" => info("osImage"),
        "Kernel-Version" => info("kernelVersion"),
        _ => info("containerRuntimeVersion"),
    })
}

fn volume(kind: &str, column: &str, object: &Value) -> Value {
    let modes = |path: &[&str]| {
        let modes = list(object, path).filter_map(Value::as_str).map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        });
        modes.collect::<Vec<_>>().join(",")
    };
    let claim = kind == "PersistentVolumeClaim";
    let bound = !text(object, &["spec", "volumeName"]).is_empty();
    Value::from(match column {
        "Status" if object.get_path(["metadata", "deletionTimestamp"]).is_some() => {
            "Terminating".to_owned()
        }
        "Status" => text(object, &["status", "phase"]).to_owned(),
        "Volume" => text(object, &["spec", "volumeName"]).to_owned(),
        "Capacity" if claim => {
            if bound {
                text(object, &["status", "capacity", "storage"]).to_owned()
            } else {
                String::new()
            }
        }
        "Capacity" => text(object, &["spec", "capacity", "storage"]).to_owned(),
        "Access Modes" if claim => {
            if bound {
                modes(&["status", "accessModes"])
            } else {
                String::new()
            }
        }
        "Access Modes" => modes(&["spec", "accessModes"]),
        "Reclaim Policy" => text(object, &["spec", "persistentVolumeReclaimPolicy"]).to_owned(),
        "Claim" => {
            let (namespace, name) = (
                text(object, &["spec", "claimRef", "namespace"]),
                text(object, &["spec", "claimRef", "name"]),
            );
            if name.is_empty() { String::new() } else { format!("{namespace}/{name}") }
        }
        "StorageClass" => text(object, &["spec", "storageClassName"]).to_owned(),
        "VolumeAttributesClass" => {
            let name = text(object, &["spec", "volumeAttributesClassName"]);
            if name.is_empty() { "<unset>".to_owned() } else { name.to_owned() }
        }
        "Reason" => text(object, &["status", "reason"]).to_owned(),
        _ => text(object, &["spec", "volumeMode"]).to_owned(),
    })
}

fn autoscaler(column: &str, object: &Value) -> Value {
    match column {
        "Reference" => {
            let part = |field: &str| text(object, &["spec", "scaleTargetRef", field]);
            Value::from(format!("{}/{}", part("kind"), part("name")))
        }
        "Targets" => {
            let metrics = list(object, &["spec", "metrics"]).map(|metric| {
                let name = text(metric, &["resource", "name"]);
                let target = number(metric, &["resource", "target", "averageUtilization"]);
                if target > 0 {
                    format!("{name}: <unknown>/{target}%")
                } else {
                    format!(
                        "{name}: <unknown>/{}",
                        text(metric, &["resource", "target", "averageValue"])
                    )
                }
            });
            let mut all = metrics.collect::<Vec<_>>().join(", ");
            let percent = number(object, &["spec", "targetCPUUtilizationPercentage"]);
            if all.is_empty() && percent > 0 {
                all = format!("cpu: <unknown>/{percent}%");
            }
            Value::from(or_none(all))
        }
        "MinPods" => {
            Value::from(match object.get_path(["spec", "minReplicas"]).and_then(Value::as_i64) {
                Some(least) => least.to_string(),
                None => "<unset>".to_owned(),
            })
        }
        "MaxPods" => Value::from(number(object, &["spec", "maxReplicas"])),
        _ => Value::from(number(object, &["status", "currentReplicas"])),
    }
}

fn binding(column: &str, object: &Value) -> Value {
    let subjects = |kind: &str| {
        let of = list(object, &["subjects"]).filter(|subject| text(subject, &["kind"]) == kind);
        let names = of.map(|subject| {
            let name = text(subject, &["name"]);
            if kind == "ServiceAccount" {
                format!("{}/{name}", text(subject, &["namespace"]))
            } else {
                name.to_owned()
            }
        });
        names.collect::<Vec<_>>().join(", ")
    };
    Value::from(match column {
        "Role" => {
            format!("{}/{}", text(object, &["roleRef", "kind"]), text(object, &["roleRef", "name"]))
        }
        "Users" => subjects("User"),
        "Groups" => subjects("Group"),
        _ => subjects("ServiceAccount"),
    })
}

fn ingress(column: &str, object: &Value) -> Value {
    Value::from(match column {
        "Class" => or_none(text(object, &["spec", "ingressClassName"]).to_owned()),
        "Hosts" => {
            let hosts: Vec<&str> = list(object, &["spec", "rules"])
                .map(|rule| text(rule, &["host"]))
                .filter(|host| !host.is_empty())
                .collect();
            if hosts.is_empty() { "*".to_owned() } else { hosts.join(",") }
        }
        "Address" => {
            let given = list(object, &["status", "loadBalancer", "ingress"]);
            given
                .map(|one| {
                    let ip = text(one, &["ip"]);
                    if ip.is_empty() { text(one, &["hostname"]) } else { ip }
                })
                .collect::<Vec<_>>()
                .join(",")
        }
        "Ports" => {
            if list(object, &["spec", "tls"]).next().is_some() {
                "80, 443".to_owned()
            } else {
                "80".to_owned()
            }
        }
        "Controller" => text(object, &["spec", "controller"]).to_owned(),
        _ => {
            let part = |field: &str| text(object, &["spec", "parameters", field]);
            match (part("kind"), part("apiGroup"), part("name")) {
                ("", ..) => NONE.to_owned(),
                (kind, "", name) => format!("{kind}/{name}"),
                (kind, group, name) => format!("{kind}.{group}/{name}"),
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::span;

    #[test]
    fn spans_are_short() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (130, "2m10s"),
            (180, "3m"),
            (660, "11m"),
            (3 * 3600 + 120, "3h2m"),
            (10 * 3600, "10h"),
            (3 * 86_400, "3d"),
            (3 * 86_400 + 3600, "3d1h"),
            (30 * 86_400, "30d"),
            (800 * 86_400, "2y70d"),
        ] {
            assert_eq!(span(seconds), text, "{seconds}");
        }
    }
}
