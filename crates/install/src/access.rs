//! Accounts, roles and bindings.
//!
//! Each acting account has one aggregated ClusterRole. It collects the roles with the label
//! `rbac.kyverno.io/aggregate-to-<account>: "true"` or with the three labels of the component; ours for what the
//! engine itself needs, and those that users add for what their rules need.

use kiln_value::{Value, value};

use crate::{Grant, Options, labels};

/// The accounts that act, by component. The last two are only subjects of users' bindings and of reviews.
const COMPONENTS: [&str; 4] =
    ["admission-controller", "background-controller", "reports-controller", "cleanup-controller"];

const READ: &[&str] = &["get", "list", "watch"];
const KEEP: &[&str] = &["get", "list", "watch", "create", "update", "patch", "delete"];

/// The kinds that rules commonly make or change.
const COMMON_TARGETS: &[&str] = &[
    "configmaps",
    "networkpolicies",
    "resourcequotas",
    "secrets",
    "roles",
    "rolebindings",
    "clusterroles",
    "clusterrolebindings",
    "limitranges",
    "namespaces",
    "nodes",
    "nodes/status",
    "pods",
];

/// The account of the pod.
pub(crate) const POD_ACCOUNT: &str = "kiln";

/// The user name of a component's account.
pub(crate) fn user(options: &Options, component: &str) -> String {
    format!("system:serviceaccount:{}:kyverno-{component}", options.namespace)
}

/// One rule of a role.
fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    value!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// What both acting accounts read to know which rules there are and whom they are about.
fn common() -> Vec<Value> {
    vec![
        rule(
            &["kyverno.io"],
            &["clusterpolicies", "policies", "policyexceptions", "globalcontextentries"],
            READ,
        ),
        rule(
            &["policies.kyverno.io"],
            &[
                "generatingpolicies",
                "namespacedgeneratingpolicies",
                "mutatingpolicies",
                "namespacedmutatingpolicies",
                "policyexceptions",
            ],
            READ,
        ),
        rule(&["api.kubemod.io"], &["modrules"], READ),
        rule(&[""], &["namespaces", "configmaps"], READ),
        rule(
            &["rbac.authorization.k8s.io"],
            &["roles", "rolebindings", "clusterroles", "clusterrolebindings"],
            READ,
        ),
        rule(&["apiextensions.k8s.io"], &["customresourcedefinitions"], READ),
        rule(&["", "events.k8s.io"], &["events"], &["create", "patch", "update"]),
        // Asks what another account may do; it grants nothing.
        rule(&["authorization.k8s.io"], &["subjectaccessreviews"], &["create"]),
    ]
}

fn status(verbs: &[&str]) -> Vec<Value> {
    vec![
        rule(
            &["kyverno.io"],
            &["clusterpolicies/status", "policies/status", "globalcontextentries/status"],
            verbs,
        ),
        rule(
            &["policies.kyverno.io"],
            &[
                "generatingpolicies/status",
                "namespacedgeneratingpolicies/status",
                "mutatingpolicies/status",
                "namespacedmutatingpolicies/status",
            ],
            verbs,
        ),
        rule(&["api.kubemod.io"], &["modrules/status"], verbs),
    ]
}

/// What the engine itself needs for one component.
fn core(component: &str) -> Vec<Value> {
    let requests = rule(
        &["kyverno.io"],
        &["updaterequests", "updaterequests/status"],
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
    );
    let reports = rule(&["wgpolicyk8s.io"], &["policyreports", "clusterpolicyreports"], KEEP);
    match component {
        "admission-controller" => {
            let mut rules = common();
            rules.extend(status(&["get", "update", "patch"]));
            rules.push(requests);
            rules.push(rule(
                &["admissionregistration.k8s.io"],
                &["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
                KEEP,
            ));
            // What ModRules see of the node of a Pod.
            rules.push(rule(&[""], &["nodes"], &["get"]));
            rules
        }
        "background-controller" => {
            let mut rules = common();
            rules.extend(status(&["get", "update", "patch"]));
            rules.push(requests);
            rules.push(reports);
            // Whether a replica answers admission requests decides when policies are ready.
            rules.push(rule(
                &["admissionregistration.k8s.io"],
                &["validatingwebhookconfigurations"],
                &["get"],
            ));
            rules
        }
        "reports-controller" => vec![reports],
        _ => Vec::new(),
    }
}

/// What the peers' standard configuration gives its accounts.
fn standard(component: &str) -> Vec<Value> {
    // Rules that make policies are checked for all rights on the status too.
    let policies = rule(&["kyverno.io"], &["clusterpolicies/status", "policies/status"], KEEP);
    match component {
        "admission-controller" => vec![rule(&["*"], &["secrets"], KEEP), policies],
        // Rules that make cleanup policies follow them; to write them is for users to grant.
        "background-controller" => {
            let cleanup = &["cleanuppolicies", "clustercleanuppolicies"];
            vec![rule(&["*"], COMMON_TARGETS, KEEP), policies, rule(&["kyverno.io"], cleanup, READ)]
        }
        _ => Vec::new(),
    }
}

pub(crate) fn objects(options: &Options) -> Vec<Value> {
    let namespace = &options.namespace;
    let mut objects = vec![account(namespace, POD_ACCOUNT, "pod")];
    for component in COMPONENTS {
        let name = format!("kyverno-{component}");
        objects.push(account(namespace, &name, component));
        objects.push(collected(component));
        objects.push(binding(namespace, &format!("kyverno:{component}"), &name, component));
        objects.push(part(component, "core", &core(component)));
        if component != "cleanup-controller" {
            let mut view = binding(namespace, "view", &name, component);
            let _ =
                view.set(["metadata", "name"], Value::from(format!("kyverno:{component}:view")));
            objects.push(view);
        }
        let granted = standard(component);
        if options.grant == Grant::Standard && !granted.is_empty() {
            objects.push(part(component, "standard", &granted));
        }
    }
    objects.extend(pod_rights(options));
    objects
}

fn account(namespace: &str, name: &str, component: &str) -> Value {
    value!({
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {"name": name, "namespace": namespace, "labels": labels(component)},
    })
}

/// The role that collects others.
fn collected(component: &str) -> Value {
    let own_label = format!("rbac.kyverno.io/aggregate-to-{component}");
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": format!("kyverno:{component}"),
            // Without the component, or it would collect itself.
            "labels": {"app.kubernetes.io/part-of": "kyverno", "app.kubernetes.io/name": "kiln"},
        },
        "aggregationRule": {"clusterRoleSelectors": [
            {"matchLabels": {own_label: "true"}},
            {"matchLabels": {
                "app.kubernetes.io/component": component,
                "app.kubernetes.io/instance": "kyverno",
                "app.kubernetes.io/part-of": "kyverno",
            }},
        ]},
        // The cluster collects its rules, and no other manager is to own them.
    })
}

/// A role that the component's role collects.
fn part(component: &str, name: &str, rules: &[Value]) -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": format!("kyverno:{component}:{name}"), "labels": labels(component)},
        "rules": rules,
    })
}

fn binding(namespace: &str, role: &str, account: &str, component: &str) -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": role, "labels": labels(component)},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": namespace}],
    })
}

/// Inside the engine's own namespace: the pod acts as the two accounts, which keep keys, records and the lease there.
fn pod_rights(options: &Options) -> Vec<Value> {
    let namespace = &options.namespace;
    let role = |name: &str, component: &str, rules: &[Value]| {
        value!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": name, "namespace": namespace, "labels": labels(component)},
            "rules": rules,
        })
    };
    let bound = |name: &str, component: &str, accounts: &[&str]| {
        let subjects: Vec<Value> = accounts
            .iter()
            .map(|account| value!({"kind": "ServiceAccount", "name": account, "namespace": namespace}))
            .collect();
        value!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": namespace, "labels": labels(component)},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": subjects,
        })
    };
    let acting = ["kyverno-admission-controller", "kyverno-background-controller"];
    let act_as = value!({
        "apiGroups": [""],
        "resources": ["serviceaccounts"],
        "resourceNames": acting,
        "verbs": ["impersonate"],
    });
    vec![
        role("kiln:act-as", "pod", &[act_as]),
        bound("kiln:act-as", "pod", &[POD_ACCOUNT]),
        role(
            "kiln:own-namespace",
            "pod",
            &[
                rule(&["coordination.k8s.io"], &["leases"], KEEP),
                rule(&[""], &["secrets", "configmaps"], KEEP),
                rule(&[""], &["services"], READ),
            ],
        ),
        bound("kiln:own-namespace", "pod", &acting),
    ]
}
