//! Defaults of what makes pods.

use kiln_value::{Value, value};

use super::{claim, default, each, pod, text};

const TEMPLATE: &[&str] = &["spec", "template"];

pub(super) fn deployment(object: &mut Value) {
    default(object, &["spec", "replicas"], 1);
    let empty = text(object, &["spec", "strategy", "type"]).is_empty();
    if empty {
        let _ = object.set(["spec", "strategy", "type"], "RollingUpdate");
    }
    if text(object, &["spec", "strategy", "type"]) == "RollingUpdate" {
        default(object, &["spec", "strategy", "rollingUpdate", "maxUnavailable"], "25%");
        default(object, &["spec", "strategy", "rollingUpdate", "maxSurge"], "25%");
    }
    default(object, &["spec", "revisionHistoryLimit"], 10);
    default(object, &["spec", "progressDeadlineSeconds"], 600);
    pod::template(object, TEMPLATE);
}

pub(super) fn replica_set(object: &mut Value) {
    default(object, &["spec", "replicas"], 1);
    pod::template(object, TEMPLATE);
}

pub(super) fn replication_controller(object: &mut Value) {
    default(object, &["spec", "replicas"], 1);
    let labels = object.get_path(["spec", "template", "metadata", "labels"]).cloned();
    if let Some(labels) = labels {
        default(object, &["spec", "selector"], labels.clone());
        default(object, &["metadata", "labels"], labels);
    }
    pod::template(object, TEMPLATE);
}

pub(super) fn stateful_set(object: &mut Value) {
    default(object, &["spec", "replicas"], 1);
    default(object, &["spec", "podManagementPolicy"], "OrderedReady");
    if text(object, &["spec", "updateStrategy", "type"]).is_empty() {
        let _ = object.set(["spec", "updateStrategy", "type"], "RollingUpdate");
    }
    if text(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        default(object, &["spec", "updateStrategy", "rollingUpdate", "partition"], 0);
    }
    default(object, &["spec", "revisionHistoryLimit"], 10);
    for when in ["whenDeleted", "whenScaled"] {
        default(object, &["spec", "persistentVolumeClaimRetentionPolicy", when], "Retain");
    }
    for template in each(object, &["spec", "volumeClaimTemplates"]) {
        default(template, &["apiVersion"], "v1");
        default(template, &["kind"], "PersistentVolumeClaim");
        claim(template);
    }
    pod::template(object, TEMPLATE);
}

pub(super) fn daemon_set(object: &mut Value) {
    if text(object, &["spec", "updateStrategy", "type"]).is_empty() {
        let _ = object.set(["spec", "updateStrategy", "type"], "RollingUpdate");
    }
    if text(object, &["spec", "updateStrategy", "type"]) == "RollingUpdate" {
        default(object, &["spec", "updateStrategy", "rollingUpdate", "maxUnavailable"], 1);
        default(object, &["spec", "updateStrategy", "rollingUpdate", "maxSurge"], 0);
    }
    default(object, &["spec", "revisionHistoryLimit"], 10);
    pod::template(object, TEMPLATE);
}

pub(super) fn job(object: &mut Value, at: &[&str]) {
    let Some(spec) = object.get_path_mut(at.iter().copied()) else { return };
    let is_set = |spec: &Value, field: &str| spec.get(field).is_some_and(|value| !value.is_null());
    if !is_set(spec, "completions") && !is_set(spec, "parallelism") {
        default(spec, &["completions"], 1);
    }
    default(spec, &["parallelism"], 1);
    default(spec, &["backoffLimit"], 6);
    default(spec, &["completionMode"], "NonIndexed");
    default(spec, &["suspend"], false);
    default(spec, &["manualSelector"], false);
    default(spec, &["podReplacementPolicy"], "TerminatingOrFailed");
    pod::template(spec, &["template"]);
}

pub(super) fn cron_job(object: &mut Value) {
    default(object, &["spec", "concurrencyPolicy"], "Allow");
    default(object, &["spec", "suspend"], false);
    default(object, &["spec", "successfulJobsHistoryLimit"], 3);
    default(object, &["spec", "failedJobsHistoryLimit"], 1);
    // Kubernetes: of the template of a Job only the pod gets its defaults.
    pod::template(object, &["spec", "jobTemplate", "spec", "template"]);
}

/// The labels by which a Job knows its pods.
pub(super) fn give_selector(object: &mut Value, uid: &str) {
    if object.get_path(["spec", "manualSelector"]).and_then(Value::as_bool) == Some(true) {
        return;
    }
    let name = text(object, &["metadata", "name"]).to_owned();
    let pairs = [
        ("batch.kubernetes.io/controller-uid", uid),
        ("batch.kubernetes.io/job-name", name.as_str()),
        ("controller-uid", uid),
        ("job-name", name.as_str()),
    ];
    for (key, value) in pairs {
        let _ = object.set(["spec", "template", "metadata", "labels", key], value);
    }
    let labels = object.get_path(["metadata", "labels"]).and_then(Value::as_map).is_some();
    if !labels {
        for (key, value) in pairs {
            let _ = object.set(["metadata", "labels", key], value);
        }
    }
    let _ = object.set(
        ["spec", "selector"],
        value!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}),
    );
}
