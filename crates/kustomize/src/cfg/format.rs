//! The order of fields that `cfg cat` prints: what says who an object is comes first, and so on; what is not known is
//! sorted by name.

use kiln_yaml::{Node, NodeKind};

use super::meta;
use crate::error::{Error, Result};

const ANNOTATION: &str = "config.kubernetes.io/formatting";

/// Known fields in their order. Where one stands twice, the last place counts.
const FIELDS: &str = "name generateName namespace clusterName apiVersion kind metadata type labels annotations spec \
    status stringData data binaryData parallelism completions activeDeadlineSeconds backoffLimit replicas selector \
    manualSelector template ttlSecondsAfterFinished volumeClaimTemplates service serviceName podManagementPolicy \
    updateStrategy strategy minReadySeconds revision revisionHistoryLimit paused progressDeadlineSeconds \
    restartPolicy terminationGracePeriodSeconds activeDeadlineSeconds dnsPolicy serviceAccountName serviceAccount \
    automountServiceAccountToken nodeName hostNetwork hostPID hostIPC shareProcessNamespace hostname subdomain \
    schedulerName priorityClassName priority runtimeClassName enableServiceLinks nodeSelector hostAliases \
    initContainers containers volumes securityContext imagePullSecrets affinity tolerations dnsConfig readinessGates \
    image command args workingDir ports envFrom env resources volumeMounts volumeDevices livenessProbe \
    readinessProbe lifecycle terminationMessagePath terminationMessagePolicy imagePullPolicy securityContext stdin \
    stdinOnce tty clusterIP externalIPs loadBalancerIP loadBalancerSourceRanges externalName externalTrafficPolicy \
    sessionAffinity protocol port targetPort hostPort containerPort hostIP readOnly mountPath subPath subPathExpr \
    mountPropagation value valueFrom fieldRef resourceFieldRef configMapKeyRef secretKeyRef prefix configMapRef \
    secretRef";

/// Kinds and versions whose lists are sorted, too.
const KINDS: [&str; 7] = [
    "CronJob",
    "DaemonSet",
    "Deployment",
    "Job",
    "ReplicaSet",
    "StatefulSet",
    "ValidatingWebhookConfiguration",
];
const VERSIONS: [&str; 8] = [
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "batch/v1",
    "batch/v1beta1",
    "extensions/v1beta1",
    "v1",
    "admissionregistration.k8s.io/v1",
];

/// What fields are sorted by: known ones come first.
pub(super) fn rank(field: &str) -> (usize, &str) {
    match FIELDS.split_ascii_whitespace().rev().position(|known| known == field) {
        Some(from_the_end) => (FIELDS.len() - from_the_end, ""),
        None => (usize::MAX, field),
    }
}

/// Puts the fields of an object in order, unless it asks not to.
///
/// # Errors
/// When it asks for something else.
pub(super) fn format(node: &mut Node) -> Result<()> {
    match meta::annotation(node, ANNOTATION) {
        None | Some("standard") => {}
        Some("none") => return Ok(()),
        Some(other) => {
            return Err(Error::new(format!("formatting annotation has illegal value {other}"))
                .hint(format!("{ANNOTATION} is standard or none")));
        }
    }
    let root = node.root();
    if root.get("kind").is_none() || root.get("apiVersion").is_none() {
        return Ok(());
    }
    let lists = KINDS.contains(&meta::kind(node)) && VERSIONS.contains(&meta::api_version(node));
    sort(node.root_mut(), "", lists);
    Ok(())
}

fn sort(node: &mut Node, path: &str, lists: bool) {
    match node.kind {
        NodeKind::Map => {
            let mut pairs: Vec<[Node; 2]> = Vec::new();
            let mut content = std::mem::take(&mut node.content).into_iter();
            while let (Some(key), Some(mut value)) = (content.next(), content.next()) {
                sort(&mut value, &format!("{path}.{}", key.value), lists);
                pairs.push([key, value]);
            }
            pairs.sort_by_cached_key(|[key, _]| {
                let (rank, name) = rank(&key.value);
                (rank, name.to_owned())
            });
            node.content = pairs.into_iter().flatten().collect();
        }
        NodeKind::List => {
            let by = match path {
                ".spec.template.spec.containers" if lists => Some("name"),
                ".webhooks.rules.operations" if lists => Some(""),
                _ => None,
            };
            if let Some(by) = by {
                let text = |node: &Node| match by {
                    "" => node.value.clone(),
                    field => node.get(field).map(|value| value.value.clone()).unwrap_or_default(),
                };
                node.content.sort_by_cached_key(text);
            }
            for inner in &mut node.content {
                sort(inner, path, lists);
            }
        }
        _ => {}
    }
}
