//! The kinds of histories, and random objects of them.

use kiln_value::{Value, value};

use crate::compare::dice::Dice;

/// A kind that histories are about.
pub(super) struct Kind {
    /// Where its group and version are served.
    pub(super) root: &'static str,
    pub(super) plural: &'static str,
    pub(super) api_version: &'static str,
    pub(super) kind: &'static str,
    pub(super) is_namespaced: bool,
    pub(super) has_status: bool,
    pub(super) has_scale: bool,
    /// Whether it may be patched strategically: built-in kinds.
    pub(super) is_builtin: bool,
    /// What it holds besides metadata.
    fill: fn(&mut Dice, &mut Value),
    /// Parts of it that patches set.
    pub(super) edits: &'static [&'static str],
}

macro_rules! kind {
    ($root:literal $plural:literal $version:literal $kind:literal $scope:literal $subs:literal $builtin:literal $fill:expr, $edits:expr) => {
        Kind {
            root: $root,
            plural: $plural,
            api_version: $version,
            kind: $kind,
            is_namespaced: $scope,
            has_status: $subs >= 1,
            has_scale: $subs == 2,
            is_builtin: $builtin,
            fill: $fill,
            edits: $edits,
        }
    };
}

/// What is written into objects as merge patches, as JSON.
const METADATA_EDITS: [&str; 8] = [
    r#"{"metadata":{"labels":{"app":"b"}}}"#,
    r#"{"metadata":{"labels":null}}"#,
    r#"{"metadata":{"annotations":{"note":"1"}}}"#,
    r#"{"metadata":{"annotations":{"note":null,"other":"2"}}}"#,
    r#"{"metadata":{"finalizers":["example.com/hold"]}}"#,
    r#"{"metadata":{"finalizers":null}}"#,
    r#"{"metadata":{"labels":{"app":"not a label"}}}"#,
    r#"{}"#,
];

const DATA_EDITS: &[&str] = &[
    r#"{"data":{"a":"1"}}"#,
    r#"{"data":{"b":"2","a":null}}"#,
    r#"{"data":null}"#,
    r#"{"data":{"c":3}}"#,
    r#"{"immutable":true}"#,
    r#"{"unknown":{"x":1}}"#,
];

const WORKLOAD_EDITS: &[&str] = &[
    r#"{"spec":{"replicas":3}}"#,
    r#"{"spec":{"replicas":-1}}"#,
    r#"{"spec":{"template":{"metadata":{"annotations":{"restarted":"1"}}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}"#,
    r#"{"spec":{"template":{"spec":{"containers":[{"name":"extra","image":"extra:1"}]}}}}"#,
    r#"{"spec":{"selector":{"matchLabels":{"app":"c"}}}}"#,
    r#"{"spec":{"minReadySeconds":5}}"#,
    r#"{"spec":{"replicas":null}}"#,
    r#"{"spec":{"unknown":true}}"#,
];

const SERVICE_EDITS: &[&str] = &[
    r#"{"spec":{"ports":[{"name":"web","port":80},{"name":"tls","port":443}]}}"#,
    r#"{"spec":{"selector":{"app":"b"}}}"#,
    r#"{"spec":{"sessionAffinity":"ClientIP"}}"#,
    r#"{"spec":{"sessionAffinity":"Never"}}"#,
    r#"{"spec":{"ports":[]}}"#,
];

const WIDGET_EDITS: &[&str] = &[
    r#"{"spec":{"size":5}}"#,
    r#"{"spec":{"size":50}}"#,
    r#"{"spec":{"size":"big"}}"#,
    r#"{"spec":{"color":"green"}}"#,
    r#"{"spec":{"color":"purple"}}"#,
    r#"{"spec":{"parts":[{"name":"a","count":2},{"name":"b"}]}}"#,
    r#"{"spec":{"parts":[{"name":"b","count":4}]}}"#,
    r#"{"spec":{"tags":["x","y"]}}"#,
    r#"{"spec":{"tags":["x","x"]}}"#,
    r#"{"spec":{"options":{"nested":{}}}}"#,
    r#"{"spec":{"free":{"any":[1,{"x":null}]}}}"#,
    r#"{"spec":{"gone":1}}"#,
    r#"{"spec":{"port":"http"}}"#,
    r#"{"spec":{"port":80}}"#,
    r#"{"spec":{"limit":2,"size":3}}"#,
    r#"{"spec":null}"#,
    r#"{"status":{"phase":"Ready"}}"#,
];

const GADGET_EDITS: &[&str] = &[
    r#"{"spec":{"text":"one"}}"#,
    r#"{"spec":{"text":"two","list":[1,2]}}"#,
    r#"{"spec":{"text":7}}"#,
    r#"{"status":{"seen":true}}"#,
    r#"{"extra":1}"#,
];

const ROLE_EDITS: &[&str] = &[
    r#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get"]}]}"#,
    r#"{"rules":[{"apiGroups":[""],"resources":["pods"],"verbs":["get","list"]},{"nonResourceURLs":["/x"],"verbs":["get"]}]}"#,
    r#"{"rules":[{"resources":["pods"]}]}"#,
    r#"{"rules":null}"#,
];

const BINDING_EDITS: &[&str] = &[
    r#"{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"ann"}]}"#,
    r#"{"subjects":[{"kind":"ServiceAccount","name":"ann"}]}"#,
    r#"{"roleRef":{"name":"other"}}"#,
    r#"{"subjects":null}"#,
];

const POLICY_EDITS: &[&str] = &[
    r#"{"spec":{"policyTypes":["Egress"]}}"#,
    r#"{"spec":{"podSelector":{"matchLabels":{"app":"b"}}}}"#,
    r#"{"spec":{"ingress":[{"from":[{"podSelector":{}}],"ports":[{"port":80}]}]}}"#,
    r#"{"spec":{"ingress":[{"ports":[{"port":"no port"}]}]}}"#,
    r#"{"spec":{"policyTypes":["Other"]}}"#,
];

const BUDGET_EDITS: &[&str] = &[
    r#"{"spec":{"minAvailable":1}}"#,
    r#"{"spec":{"maxUnavailable":"50%"}}"#,
    r#"{"spec":{"minAvailable":null,"maxUnavailable":1}}"#,
    r#"{"spec":{"minAvailable":"x%"}}"#,
    r#"{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}"#,
];

const LEASE_EDITS: &[&str] = &[
    r#"{"spec":{"holderIdentity":"one"}}"#,
    r#"{"spec":{"leaseDurationSeconds":0}}"#,
    r#"{"spec":{"leaseDurationSeconds":15,"renewTime":"2026-01-01T00:00:00.000000Z"}}"#,
    r#"{"spec":{"renewTime":"soon"}}"#,
];

const POD_EDITS: &[&str] = &[
    r#"{"spec":{"activeDeadlineSeconds":30}}"#,
    r#"{"spec":{"containers":[{"name":"web","image":"web:2"}]}}"#,
    r#"{"spec":{"terminationGracePeriodSeconds":5}}"#,
    r#"{"spec":{"restartPolicy":"Never"}}"#,
    r#"{"spec":{"tolerations":[{"key":"a","operator":"Exists"}]}}"#,
];

const ACCOUNT_EDITS: &[&str] = &[
    r#"{"automountServiceAccountToken":false}"#,
    r#"{"imagePullSecrets":[{"name":"a"}]}"#,
    r#"{"imagePullSecrets":[{"name":"a"},{"name":"b"}]}"#,
];

const CLASS_EDITS: &[&str] =
    &[r#"{"value":20}"#, r#"{"description":"one"}"#, r#"{"preemptionPolicy":"Never"}"#];

const CRON_EDITS: &[&str] = &[
    r#"{"spec":{"schedule":"*/5 * * * *"}}"#,
    r#"{"spec":{"schedule":"often"}}"#,
    r#"{"spec":{"suspend":true}}"#,
    r#"{"spec":{"concurrencyPolicy":"Maybe"}}"#,
];

const CLAIM_EDITS: &[&str] = &[
    r#"{"spec":{"resources":{"requests":{"storage":"2Gi"}}}}"#,
    r#"{"spec":{"storageClassName":"fast"}}"#,
    r#"{"spec":{"accessModes":["ReadOnlyMany"]}}"#,
];

const INGRESS_EDITS: &[&str] = &[
    r#"{"spec":{"ingressClassName":"x"}}"#,
    r#"{"spec":{"rules":[{"host":"a.example.com"}]}}"#,
    r#"{"spec":{"rules":[{"host":"Not A Host"}]}}"#,
    r#"{"spec":{"defaultBackend":{"service":{"name":"a","port":{"number":80}}}}}"#,
];

const SCALER_EDITS: &[&str] = &[
    r#"{"spec":{"maxReplicas":7}}"#,
    r#"{"spec":{"minReplicas":9}}"#,
    r#"{"spec":{"minReplicas":null}}"#,
];

/// Those that histories choose from; the first ones more often.
pub(super) static KINDS: &[Kind] = &[
    kind!("/api/v1" "configmaps" "v1" "ConfigMap" true 0 true config_map, DATA_EDITS),
    kind!("/apis/histories.example.com/v1" "widgets" "histories.example.com/v1" "Widget" true 2 false widget, WIDGET_EDITS),
    kind!("/apis/apps/v1" "deployments" "apps/v1" "Deployment" true 2 true deployment, WORKLOAD_EDITS),
    kind!("/apis/histories.example.com/v1" "gadgets" "histories.example.com/v1" "Gadget" false 0 false gadget, GADGET_EDITS),
    kind!("/api/v1" "secrets" "v1" "Secret" true 0 true secret, DATA_EDITS),
    kind!("/api/v1" "pods" "v1" "Pod" true 1 true pod, POD_EDITS),
    kind!("/api/v1" "services" "v1" "Service" true 1 true service, SERVICE_EDITS),
    kind!("/api/v1" "serviceaccounts" "v1" "ServiceAccount" true 0 true account, ACCOUNT_EDITS),
    kind!("/api/v1" "persistentvolumeclaims" "v1" "PersistentVolumeClaim" true 1 true claim, CLAIM_EDITS),
    kind!("/apis/apps/v1" "replicasets" "apps/v1" "ReplicaSet" true 2 true replica_set, WORKLOAD_EDITS),
    kind!("/apis/apps/v1" "statefulsets" "apps/v1" "StatefulSet" true 2 true stateful_set, WORKLOAD_EDITS),
    kind!("/apis/batch/v1" "cronjobs" "batch/v1" "CronJob" true 1 true cron_job, CRON_EDITS),
    kind!("/apis/policy/v1" "poddisruptionbudgets" "policy/v1" "PodDisruptionBudget" true 1 true budget, BUDGET_EDITS),
    kind!("/apis/networking.k8s.io/v1" "networkpolicies" "networking.k8s.io/v1" "NetworkPolicy" true 0 true network_policy, POLICY_EDITS),
    kind!("/apis/networking.k8s.io/v1" "ingresses" "networking.k8s.io/v1" "Ingress" true 1 true ingress, INGRESS_EDITS),
    kind!("/apis/autoscaling/v2" "horizontalpodautoscalers" "autoscaling/v2" "HorizontalPodAutoscaler" true 1 true scaler, SCALER_EDITS),
    kind!("/apis/rbac.authorization.k8s.io/v1" "roles" "rbac.authorization.k8s.io/v1" "Role" true 0 true role, ROLE_EDITS),
    kind!("/apis/rbac.authorization.k8s.io/v1" "rolebindings" "rbac.authorization.k8s.io/v1" "RoleBinding" true 0 true role_binding, BINDING_EDITS),
    kind!("/apis/rbac.authorization.k8s.io/v1" "clusterroles" "rbac.authorization.k8s.io/v1" "ClusterRole" false 0 true role, ROLE_EDITS),
    kind!("/apis/coordination.k8s.io/v1" "leases" "coordination.k8s.io/v1" "Lease" true 0 true lease, LEASE_EDITS),
    kind!("/apis/scheduling.k8s.io/v1" "priorityclasses" "scheduling.k8s.io/v1" "PriorityClass" false 0 true priority_class, CLASS_EDITS),
    kind!("/api/v1" "namespaces" "v1" "Namespace" false 1 true |_, _| {}, &[]),
];

impl Kind {
    /// The path of its objects.
    pub(super) fn collection(&self) -> String {
        let place = if self.is_namespaced { "/namespaces/${ns}" } else { "" };
        format!("{}{place}/{}", self.root, self.plural)
    }

    /// A name of an object; those of cluster-wide kinds hold the namespace of the history.
    pub(super) fn name(&self, dice: &mut Dice) -> String {
        let name = dice.one(&["a", "b", "c"]);
        if self.is_namespaced { name.to_owned() } else { format!("${{ns}}-{name}") }
    }

    /// A random object, mostly a good one.
    pub(super) fn object(&self, dice: &mut Dice, name: &str) -> Value {
        let mut metadata =
            value!({"name": name, "labels": {"app": (dice.one(&["a", "b"])), "history": "${ns}"}});
        if dice.once_in(5) {
            let _ = metadata.set(["finalizers"], value!(["example.com/hold"]));
        }
        if dice.once_in(6) {
            let _ = metadata.set(["annotations"], value!({"note": "1", "long": "two words"}));
        }
        let mut object =
            value!({"apiVersion": (self.api_version), "kind": (self.kind), "metadata": metadata});
        (self.fill)(dice, &mut object);
        if dice.once_in(12) {
            spoil(dice, &mut object);
        }
        object
    }

    /// A part that a patch sets, as a merge patch.
    pub(super) fn edit(&self, dice: &mut Dice) -> Value {
        let all = self.edits.len();
        let text = if all == 0 || dice.once_in(3) {
            dice.one(&METADATA_EDITS)
        } else {
            self.edits[dice.roll(all)]
        };
        kiln_value::json::parse(text).unwrap_or_else(|_| Value::map())
    }
}

/// Makes something of an object wrong.
fn spoil(dice: &mut Dice, object: &mut Value) {
    match dice.roll(9) {
        0 => drop(object.set(["metadata", "name"], "Not_A_Name")),
        1 => drop(object.set(["metadata", "labels"], value!({"-x": "y"}))),
        2 => drop(object.set(["metadata", "annotations"], value!({"n": 1}))),
        3 => drop(object.set(["kind"], "Other")),
        4 => drop(object.set(["apiVersion"], "example.com/v9")),
        5 => drop(object.set(["unknown"], value!({"x": [1]}))),
        6 => drop(object.set(["metadata", "namespace"], "elsewhere")),
        7 => drop(object.set(["metadata", "resourceVersion"], "7")),
        _ => drop(object.set(["metadata", "finalizers"], value!(["plain"]))),
    }
}

fn set(object: &mut Value, field: &'static str, value: Value) {
    let _ = object.set([field], value);
}

fn config_map(dice: &mut Dice, object: &mut Value) {
    if !dice.once_in(5) {
        set(object, "data", value!({"a": (dice.one(&["1", "2"])), "b": "x"}));
    }
    if dice.once_in(6) {
        set(object, "immutable", Value::from(true));
    }
    if dice.once_in(8) {
        set(object, "binaryData", value!({"c": "AAEC"}));
    }
}

fn secret(dice: &mut Dice, object: &mut Value) {
    match dice.roll(5) {
        0 => set(object, "stringData", value!({"a": "text", "b": ""})),
        1 => set(object, "type", Value::from("kubernetes.io/basic-auth")),
        2 => set(object, "data", value!({"a": "not base64!"})),
        _ => set(object, "data", value!({"a": "MQ==", "b": "Mg=="})),
    }
}

fn containers(dice: &mut Dice) -> Value {
    let mut web = value!({"name": "web", "image": "web:1"});
    if dice.once_in(3) {
        let _ = web
            .set(["ports"], value!([{"containerPort": 80}, {"containerPort": 443, "name": "tls"}]));
    }
    if dice.once_in(3) {
        let _ =
            web.set(["env"], value!([{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]));
    }
    if dice.once_in(4) {
        let _ = web.set(["resources"], value!({"limits": {"cpu": "500m", "memory": "64Mi"}}));
    }
    if dice.once_in(4) { value!([web, {"name": "extra", "image": "extra"}]) } else { value!([web]) }
}

fn template(dice: &mut Dice) -> Value {
    value!({"metadata": {"labels": {"app": "a"}}, "spec": {"containers": (containers(dice))}})
}

fn workload(dice: &mut Dice, object: &mut Value) {
    let mut spec =
        value!({"selector": {"matchLabels": {"app": "a"}}, "template": (template(dice))});
    if !dice.once_in(4) {
        let _ = spec.set(["replicas"], value!(dice.roll(3)));
    }
    if dice.once_in(10) {
        spec.remove(["selector"]);
    }
    set(object, "spec", spec);
}

fn deployment(dice: &mut Dice, object: &mut Value) {
    workload(dice, object);
    if dice.once_in(4) {
        let _ = object.set(
            ["spec", "strategy"],
            value!({"type": (dice.one(&["Recreate", "RollingUpdate", "Other"]))}),
        );
    }
}

fn replica_set(dice: &mut Dice, object: &mut Value) {
    workload(dice, object);
}

fn stateful_set(dice: &mut Dice, object: &mut Value) {
    workload(dice, object);
    let _ = object.set(["spec", "serviceName"], "web");
}

fn pod(dice: &mut Dice, object: &mut Value) {
    set(object, "spec", value!({"containers": (containers(dice))}));
    if dice.once_in(4) {
        let _ =
            object.set(["spec", "restartPolicy"], dice.one(&["Never", "OnFailure", "Sometimes"]));
    }
    if dice.once_in(5) {
        let _ = object.set(["spec", "terminationGracePeriodSeconds"], value!(0));
    }
}

fn service(dice: &mut Dice, object: &mut Value) {
    let mut spec = value!({"clusterIP": "None", "selector": {"app": "a"}, "ports": [{"name": "web", "port": 80}]});
    if dice.once_in(4) {
        let _ = spec.set(["ports"], value!([{"name": "web", "port": 80, "targetPort": "http"}, {"name": "dns", "port": 53, "protocol": "UDP"}]));
    }
    if dice.once_in(6) {
        spec = value!({"type": "ExternalName", "externalName": "web.example.com"});
    }
    set(object, "spec", spec);
}

fn account(dice: &mut Dice, object: &mut Value) {
    if dice.once_in(2) {
        set(object, "automountServiceAccountToken", Value::from(true));
    }
}

fn claim(dice: &mut Dice, object: &mut Value) {
    let mut spec =
        value!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    if dice.once_in(3) {
        let _ = spec.set(["storageClassName"], "slow");
    }
    set(object, "spec", spec);
}

fn cron_job(dice: &mut Dice, object: &mut Value) {
    let mut spec =
        value!({"schedule": "0 0 * * *", "jobTemplate": {"spec": {"template": (template(dice))}}});
    let _ = spec.set(["jobTemplate", "spec", "template", "spec", "restartPolicy"], "Never");
    set(object, "spec", spec);
}

fn budget(dice: &mut Dice, object: &mut Value) {
    let mut spec = value!({"selector": {"matchLabels": {"app": "a"}}});
    let _ = spec.set([dice.one(&["minAvailable", "maxUnavailable"])], value!(dice.roll(3)));
    set(object, "spec", spec);
}

fn network_policy(dice: &mut Dice, object: &mut Value) {
    let mut spec = value!({"podSelector": {}});
    if dice.once_in(2) {
        let _ = spec.set(
            ["ingress"],
            value!([{"from": [{"namespaceSelector": {"matchLabels": {"a": "b"}}}]}]),
        );
    }
    set(object, "spec", spec);
}

fn ingress(dice: &mut Dice, object: &mut Value) {
    let backend = value!({"service": {"name": "web", "port": {"number": 80}}});
    let spec = if dice.once_in(3) {
        value!({"defaultBackend": backend})
    } else {
        value!({"rules": [{"host": "a.example.com", "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}]})
    };
    set(object, "spec", spec);
}

fn scaler(dice: &mut Dice, object: &mut Value) {
    let mut spec = value!({"maxReplicas": 5, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "a"}});
    if dice.once_in(2) {
        let _ = spec.set(["minReplicas"], value!(2));
    }
    set(object, "spec", spec);
}

fn role(dice: &mut Dice, object: &mut Value) {
    if !dice.once_in(4) {
        set(
            object,
            "rules",
            value!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "watch"]}]),
        );
    }
}

fn role_binding(dice: &mut Dice, object: &mut Value) {
    set(
        object,
        "roleRef",
        value!({"apiGroup": "rbac.authorization.k8s.io", "kind": (dice.one(&["Role", "ClusterRole"])), "name": "view"}),
    );
    if dice.once_in(2) {
        set(
            object,
            "subjects",
            value!([{"kind": "ServiceAccount", "name": "ann", "namespace": "default"}]),
        );
    }
}

fn lease(dice: &mut Dice, object: &mut Value) {
    if dice.once_in(2) {
        set(object, "spec", value!({"holderIdentity": "two", "leaseDurationSeconds": 10}));
    }
}

fn priority_class(dice: &mut Dice, object: &mut Value) {
    set(object, "value", value!(dice.roll(3) * 10));
}

fn widget(dice: &mut Dice, object: &mut Value) {
    let mut spec = value!({"size": (1 + dice.roll(9))});
    if dice.once_in(2) {
        let _ = spec.set(["color"], dice.one(&["red", "green", "pink"]));
    }
    if dice.once_in(2) {
        let _ = spec.set(["parts"], value!([{"name": "a", "count": 1}, {"name": "b"}]));
    }
    if dice.once_in(3) {
        let _ = spec.set(["tags"], value!(["x"]));
    }
    if dice.once_in(4) {
        let _ = spec.set(["options"], value!({"nested": {"extra": 1}, "lost": 2}));
    }
    if dice.once_in(4) {
        let _ = spec.set(["replicas"], value!(dice.roll(4)));
    }
    if dice.once_in(5) {
        let _ = spec.set(["free"], value!({"a": {"b": [1, null]}}));
    }
    if dice.once_in(10) {
        spec.remove(["size"]);
    }
    set(object, "spec", spec);
    if dice.once_in(5) {
        set(object, "status", value!({"phase": "New"}));
    }
}

fn gadget(dice: &mut Dice, object: &mut Value) {
    if dice.once_in(2) {
        set(object, "spec", value!({"text": (dice.one(&["one", "two"])), "list": [3, 1]}));
    }
    if dice.once_in(4) {
        set(object, "status", value!({"seen": false}));
    }
}

/// The definitions of the custom kinds that all histories share.
pub(super) fn definitions() -> [Value; 2] {
    let widget = value!({"type": "object", "required": ["spec"], "properties": {
        "spec": {"type": "object", "required": ["size"],
            "x-kubernetes-validations": [{"rule": "!has(self.limit) || self.size <= self.limit", "message": "larger than its limit"}],
            "properties": {
            "size": {"type": "integer", "minimum": 1, "maximum": 10},
            "limit": {"type": "integer"},
            "replicas": {"type": "integer", "default": 1},
            "color": {"type": "string", "enum": ["red", "green", "blue"], "default": "blue"},
            "port": {"x-kubernetes-int-or-string": true},
            "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
            "parts": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name"], "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}}}},
            "options": {"type": "object", "properties": {"nested": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                "properties": {"level": {"type": "integer", "default": 3}}}}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
        "status": {"type": "object", "properties": {"phase": {"type": "string", "enum": ["New", "Ready"]}, "replicas": {"type": "integer"}, "selector": {"type": "string"}}}}});
    let gadget = value!({"type": "object", "properties": {
        "spec": {"type": "object", "properties": {"text": {"type": "string", "maxLength": 5}, "list": {"type": "array", "items": {"type": "integer"}}}},
        "status": {"type": "object", "properties": {"seen": {"type": "boolean"}}}}});
    let mut widgets = definition("widgets", "Widget", "Namespaced", &widget);
    let version = widgets.get_path_mut(["spec", "versions"]).and_then(Value::as_list_mut);
    if let Some(version) = version.and_then(|list| list.first_mut()) {
        let _ = version.set(
            ["subresources"],
            value!({"status": {}, "scale": {"specReplicasPath": ".spec.replicas",
            "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.selector"}}),
        );
        let _ = version.set(
            ["additionalPrinterColumns"],
            value!([{"name": "Size", "type": "integer", "jsonPath": ".spec.size"}]),
        );
        let _ = version.set(["selectableFields"], value!([{"jsonPath": ".spec.color"}]));
    }
    [widgets, definition("gadgets", "Gadget", "Cluster", &gadget)]
}

/// The definition of a kind with one version.
pub(super) fn definition(plural: &str, kind: &str, scope: &str, schema: &Value) -> Value {
    value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": (format!("{plural}.histories.example.com"))},
        "spec": {"group": "histories.example.com", "scope": scope, "names": {"plural": plural, "kind": kind},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]}})
}
