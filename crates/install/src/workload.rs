//! Settings, and what runs: one Deployment behind one Service.

use kiln_value::{Value, value};

use crate::{Options, access, labels};

const HTTPS: u16 = 9443;

/// Kinds and namespaces that no rule sees. Users edit the ConfigMap; changes are in force at once.
const RESOURCE_FILTERS: &str = "[Event,*,*] [*/*,kube-system,*] [*/*,kube-public,*] [*/*,kube-node-lease,*] \
     [Node,*,*] [Node/?*,*,*] [APIService,*,*] [APIService/?*,*,*] [TokenReview,*,*] \
     [SubjectAccessReview,*,*] [SelfSubjectAccessReview,*,*] [Binding,*,*] [Pod/binding,*,*] \
     [ReplicaSet,*,*] [ReplicaSet/?*,*,*] [EphemeralReport,*,*] [ClusterEphemeralReport,*,*]";

/// The ConfigMap that users set the engine's behaviour with.
pub(crate) fn settings(namespace: &str) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "kyverno", "namespace": namespace, "labels": labels("config")},
        "data": {
            "excludeGroups": "system:nodes",
            "generateSuccessEvents": "false",
            "resourceFilters": format!("{RESOURCE_FILTERS} [*/*,{namespace},*]"),
        },
    })
}

pub(crate) fn objects(options: &Options) -> Vec<Value> {
    let namespace = &options.namespace;
    let named = |name: &str| value!({"name": name, "namespace": namespace, "labels": labels("admission-controller")});
    let selector = value!({"matchLabels": {"app.kubernetes.io/name": "kiln", "app.kubernetes.io/component": "engine"}});
    let service = value!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": named("kyverno-svc"),
        "spec": {
            "selector": selector.get("matchLabels"),
            "ports": [{"name": "https", "port": 443, "targetPort": "https"}],
        },
    });
    let disruption = value!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": named("kiln"),
        "spec": {"maxUnavailable": 1, "selector": selector},
    });
    let network = value!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": named("kiln"),
        "spec": {
            "podSelector": selector,
            "policyTypes": ["Ingress"],
            "ingress": [{"ports": [{"protocol": "TCP", "port": HTTPS}]}],
        },
    });
    vec![service, deployment(options, &selector), disruption, network]
}

fn deployment(options: &Options, selector: &Value) -> Value {
    let probe =
        |path: &str| value!({"httpGet": {"path": path, "port": "https", "scheme": "HTTPS"}});
    value!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kiln", "namespace": options.namespace, "labels": labels("engine")},
        "spec": {
            "replicas": options.replicas,
            "selector": selector,
            // The new one answers before the old one ends.
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}},
            "template": {
                "metadata": {"labels": labels("engine")},
                "spec": {
                    "serviceAccountName": access::POD_ACCOUNT,
                    // Longer than it lingers and lets calls come to their end.
                    "terminationGracePeriodSeconds": 60,
                    "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                    "containers": [{
                        "name": "kiln",
                        "image": options.image,
                        "args": [
                            "run",
                            format!("--namespace={}", options.namespace),
                            format!("--as-admission={}", access::user(options, "admission-controller")),
                            format!("--as-controller={}", access::user(options, "background-controller")),
                            format!("--listen=0.0.0.0:{HTTPS}"),
                        ],
                        "ports": [{"name": "https", "containerPort": HTTPS}],
                        "livenessProbe": probe("/healthz"),
                        "readinessProbe": probe("/readyz"),
                        "resources": {
                            "requests": {"cpu": "100m", "memory": "64Mi"},
                            "limits": {"memory": "512Mi"},
                        },
                        "securityContext": {
                            "allowPrivilegeEscalation": false,
                            "capabilities": {"drop": ["ALL"]},
                            "readOnlyRootFilesystem": true,
                        },
                    }],
                },
            },
        },
    })
}
