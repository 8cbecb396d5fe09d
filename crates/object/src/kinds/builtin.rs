//! The kinds that an API server of Kubernetes 1.36 serves, one line each, as its discovery lists them.
//!
//! Sorted by kind, group and version, so that lookups need no preparation.

use super::{Kind, KindNames, Subresource, Verbs};

const ALL: Verbs =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: Verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_LIST: Verbs = &["get", "list"];
const READ_WRITE: Verbs = &["get", "patch", "update"];
const PROXY: Verbs = &["create", "delete", "get", "patch", "update"];
const CONNECT: Verbs = &["create", "get"];
const CREATE: Verbs = &["create"];
const READ: Verbs = &["get"];
const UPDATE: Verbs = &["update"];

/// The verbs that come nearest to some: no more than there are.
pub(super) fn nearest_verbs(has: impl Fn(&str) -> bool) -> Verbs {
    let sets = [ALL, NO_COLLECTION, READ_LIST, READ_WRITE, CONNECT, CREATE, READ];
    sets.into_iter().find(|set| set.iter().all(|verb| has(verb))).unwrap_or(&[])
}

/// What any object of a custom kind can be asked for.
pub(super) const CUSTOM_VERBS: Verbs = ALL;
pub(super) const STATUS: Subresource = sub("status", "", "", READ_WRITE);
pub(super) const SCALE: Subresource = sub("scale", "autoscaling/v1", "Scale", READ_WRITE);

const fn sub(
    name: &'static str,
    api_version: &'static str,
    kind: &'static str,
    verbs: Verbs,
) -> Subresource {
    Subresource { name, api_version, kind, verbs }
}

type NameSlice = &'static [&'static str];
type Subresources = &'static [Subresource];

#[allow(clippy::too_many_arguments, reason = "one call is one line of the table below")]
const fn namespaced(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: NameSlice,
    categories: NameSlice,
    subresources: Subresources,
    verbs: Verbs,
) -> Kind {
    row(group, version, kind, plural, true, short_names, categories, subresources, verbs)
}

#[allow(clippy::too_many_arguments, reason = "one call is one line of the table below")]
const fn cluster(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    short_names: NameSlice,
    categories: NameSlice,
    subresources: Subresources,
    verbs: Verbs,
) -> Kind {
    row(group, version, kind, plural, false, short_names, categories, subresources, verbs)
}

#[allow(clippy::too_many_arguments, reason = "one call is one line of the table below")]
const fn row(
    group: &'static str,
    version: &'static str,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
    short_names: NameSlice,
    categories: NameSlice,
    subresources: Subresources,
    verbs: Verbs,
) -> Kind {
    use std::borrow::Cow::Borrowed;

    use kiln_value::Str;
    Kind {
        group: Str::new_static(group),
        version: Str::new_static(version),
        kind: Str::new_static(kind),
        plural: Str::new_static(plural),
        singular: None,
        list_kind: None,
        namespaced,
        short_names: KindNames::Fixed(short_names),
        categories: KindNames::Fixed(categories),
        subresources: Borrowed(subresources),
        verbs,
        served: true,
        storage: true,
    }
}

#[rustfmt::skip]
pub(super) static KINDS: [Kind; 68] = [
    cluster("apiregistration.k8s.io", "v1", "APIService", "apiservices", &[], &["api-extensions"], &[STATUS], ALL),
    namespaced("", "v1", "Binding", "bindings", &[], &[], &[], CREATE),
    cluster("storage.k8s.io", "v1", "CSIDriver", "csidrivers", &[], &[], &[], ALL),
    cluster("storage.k8s.io", "v1", "CSINode", "csinodes", &[], &[], &[], ALL),
    namespaced("storage.k8s.io", "v1", "CSIStorageCapacity", "csistoragecapacities", &[], &[], &[], ALL),
    cluster("certificates.k8s.io", "v1", "CertificateSigningRequest", "certificatesigningrequests", &["csr"], &[], &[sub("approval", "", "CertificateSigningRequest", READ_WRITE), STATUS], ALL),
    cluster("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", &[], &[], &[], ALL),
    cluster("rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", &[], &[], &[], ALL),
    cluster("", "v1", "ComponentStatus", "componentstatuses", &["cs"], &[], &[], READ_LIST),
    namespaced("", "v1", "ConfigMap", "configmaps", &["cm"], &[], &[], ALL),
    namespaced("apps", "v1", "ControllerRevision", "controllerrevisions", &[], &[], &[], ALL),
    namespaced("batch", "v1", "CronJob", "cronjobs", &["cj"], &["all"], &[STATUS], ALL),
    cluster("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", &["crd", "crds"], &["api-extensions"], &[STATUS], ALL),
    namespaced("apps", "v1", "DaemonSet", "daemonsets", &["ds"], &["all"], &[STATUS], ALL),
    namespaced("apps", "v1", "Deployment", "deployments", &["deploy"], &["all"], &[SCALE, STATUS], ALL),
    cluster("resource.k8s.io", "v1", "DeviceClass", "deviceclasses", &[], &[], &[], ALL),
    namespaced("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices", &[], &[], &[], ALL),
    namespaced("", "v1", "Endpoints", "endpoints", &["ep"], &[], &[], ALL),
    namespaced("", "v1", "Event", "events", &["ev"], &[], &[], ALL),
    namespaced("events.k8s.io", "v1", "Event", "events", &["ev"], &[], &[], ALL),
    cluster("flowcontrol.apiserver.k8s.io", "v1", "FlowSchema", "flowschemas", &[], &[], &[STATUS], ALL),
    namespaced("autoscaling", "v1", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], &["all"], &[STATUS], ALL),
    namespaced("autoscaling", "v2", "HorizontalPodAutoscaler", "horizontalpodautoscalers", &["hpa"], &["all"], &[STATUS], ALL),
    cluster("networking.k8s.io", "v1", "IPAddress", "ipaddresses", &["ip"], &[], &[], ALL),
    namespaced("networking.k8s.io", "v1", "Ingress", "ingresses", &["ing"], &[], &[STATUS], ALL),
    cluster("networking.k8s.io", "v1", "IngressClass", "ingressclasses", &[], &[], &[], ALL),
    namespaced("batch", "v1", "Job", "jobs", &[], &["all"], &[STATUS], ALL),
    namespaced("coordination.k8s.io", "v1", "Lease", "leases", &[], &[], &[], ALL),
    namespaced("", "v1", "LimitRange", "limitranges", &["limits"], &[], &[], ALL),
    namespaced("authorization.k8s.io", "v1", "LocalSubjectAccessReview", "localsubjectaccessreviews", &[], &[], &[], CREATE),
    cluster("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicy", "mutatingadmissionpolicies", &[], &["api-extensions"], &[], ALL),
    cluster("admissionregistration.k8s.io", "v1", "MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings", &[], &["api-extensions"], &[], ALL),
    cluster("admissionregistration.k8s.io", "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", &[], &["api-extensions"], &[], ALL),
    cluster("", "v1", "Namespace", "namespaces", &["ns"], &[], &[sub("finalize", "", "Namespace", UPDATE), STATUS], NO_COLLECTION),
    namespaced("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies", &["netpol"], &[], &[], ALL),
    cluster("", "v1", "Node", "nodes", &["no"], &[], &[sub("proxy", "", "NodeProxyOptions", PROXY), STATUS], ALL),
    cluster("", "v1", "PersistentVolume", "persistentvolumes", &["pv"], &[], &[STATUS], ALL),
    namespaced("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", &["pvc"], &[], &[STATUS], ALL),
    namespaced("", "v1", "Pod", "pods", &["po"], &["all"], &[sub("attach", "", "PodAttachOptions", CONNECT), sub("binding", "", "Binding", CREATE), sub("ephemeralcontainers", "", "Pod", READ_WRITE), sub("eviction", "policy/v1", "Eviction", CREATE), sub("exec", "", "PodExecOptions", CONNECT), sub("log", "", "Pod", READ), sub("portforward", "", "PodPortForwardOptions", CONNECT), sub("proxy", "", "PodProxyOptions", PROXY), sub("resize", "", "Pod", READ_WRITE), STATUS], ALL),
    namespaced("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", &["pdb"], &[], &[STATUS], ALL),
    namespaced("", "v1", "PodTemplate", "podtemplates", &[], &[], &[], ALL),
    cluster("scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", &["pc"], &[], &[], ALL),
    cluster("flowcontrol.apiserver.k8s.io", "v1", "PriorityLevelConfiguration", "prioritylevelconfigurations", &[], &[], &[STATUS], ALL),
    namespaced("apps", "v1", "ReplicaSet", "replicasets", &["rs"], &["all"], &[SCALE, STATUS], ALL),
    namespaced("", "v1", "ReplicationController", "replicationcontrollers", &["rc"], &["all"], &[SCALE, STATUS], ALL),
    namespaced("resource.k8s.io", "v1", "ResourceClaim", "resourceclaims", &[], &[], &[STATUS], ALL),
    namespaced("resource.k8s.io", "v1", "ResourceClaimTemplate", "resourceclaimtemplates", &[], &[], &[], ALL),
    namespaced("", "v1", "ResourceQuota", "resourcequotas", &["quota"], &[], &[STATUS], ALL),
    cluster("resource.k8s.io", "v1", "ResourceSlice", "resourceslices", &[], &[], &[], ALL),
    namespaced("rbac.authorization.k8s.io", "v1", "Role", "roles", &[], &[], &[], ALL),
    namespaced("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings", &[], &[], &[], ALL),
    cluster("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", &[], &[], &[], ALL),
    namespaced("", "v1", "Secret", "secrets", &[], &[], &[], ALL),
    cluster("authorization.k8s.io", "v1", "SelfSubjectAccessReview", "selfsubjectaccessreviews", &[], &[], &[], CREATE),
    cluster("authentication.k8s.io", "v1", "SelfSubjectReview", "selfsubjectreviews", &[], &[], &[], CREATE),
    cluster("authorization.k8s.io", "v1", "SelfSubjectRulesReview", "selfsubjectrulesreviews", &[], &[], &[], CREATE),
    namespaced("", "v1", "Service", "services", &["svc"], &["all"], &[sub("proxy", "", "ServiceProxyOptions", PROXY), STATUS], ALL),
    namespaced("", "v1", "ServiceAccount", "serviceaccounts", &["sa"], &[], &[sub("token", "authentication.k8s.io/v1", "TokenRequest", CREATE)], ALL),
    cluster("networking.k8s.io", "v1", "ServiceCIDR", "servicecidrs", &[], &[], &[STATUS], ALL),
    namespaced("apps", "v1", "StatefulSet", "statefulsets", &["sts"], &["all"], &[SCALE, STATUS], ALL),
    cluster("storage.k8s.io", "v1", "StorageClass", "storageclasses", &["sc"], &[], &[], ALL),
    cluster("authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", &[], &[], &[], CREATE),
    cluster("authentication.k8s.io", "v1", "TokenReview", "tokenreviews", &[], &[], &[], CREATE),
    cluster("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", &[], &["api-extensions"], &[STATUS], ALL),
    cluster("admissionregistration.k8s.io", "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings", &[], &["api-extensions"], &[], ALL),
    cluster("admissionregistration.k8s.io", "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", &[], &["api-extensions"], &[], ALL),
    cluster("storage.k8s.io", "v1", "VolumeAttachment", "volumeattachments", &[], &[], &[STATUS], ALL),
    cluster("storage.k8s.io", "v1", "VolumeAttributesClass", "volumeattributesclasses", &["vac"], &[], &[], ALL),
];
