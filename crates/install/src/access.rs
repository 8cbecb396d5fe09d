//! Accounts, roles and bindings.
//!
//! Each acting account has one aggregated ClusterRole. It collects the roles with the label
//! `rbac.kyverno.io/aggregate-to-<account>: "true"` or with the three labels of the component; ours for what the
//! engine itself needs, and those that users add for what their rules need.

use kiln_object::policy_kinds::{OWN_GROUP, POLICY_KINDS, PolicyFamily, PolicyKind, PolicyRole};
use kiln_value::{Value, value};

use crate::{Grant, InstallOptions, marked, merged, metadata};

/// The accounts that act, by component.
const COMPONENTS: [&str; 3] =
    ["admission-controller", "background-controller", "cleanup-controller"];

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

/// The user name of a component's account.
pub(crate) fn user(options: &InstallOptions, component: &str) -> String {
    options.names().user(&options.namespace, component)
}

/// One rule of a role.
fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> Value {
    value!({"apiGroups": groups, "resources": resources, "verbs": verbs})
}

/// One rule of a role about objects with these names.
fn named(group: &str, resource: &str, names: &[String], verbs: &[&str]) -> Value {
    value!({
        "apiGroups": [group], "resources": [resource], "resourceNames": names, "verbs": verbs,
    })
}

/// The resource of a kind of webhook configurations, and the names of those that the engine keeps.
fn webhooks(options: &InstallOptions, kind: &str) -> (String, Vec<String>) {
    let ours = options.names().webhook_configurations().into_iter().filter(|(of, _)| *of == kind);
    (format!("{}s", kind.to_lowercase()), ours.map(|(_, name)| name).collect())
}

/// Whether the status of a kind is written.
fn has_status(row: &PolicyKind) -> bool {
    !matches!(row.role, PolicyRole::Exempts | PolicyRole::Request)
}

/// The resources of kinds of policies, by group: Kyverno's, then Kiln's own.
fn policies(is_wanted: impl Fn(&PolicyKind) -> bool) -> Vec<(&'static str, Vec<&'static str>)> {
    let wanted = || POLICY_KINDS.iter().filter(|row| is_wanted(row));
    let of = |family: PolicyFamily| -> Vec<&str> {
        wanted().filter(|row| row.family == family).map(|row| row.plural).collect()
    };
    let mut own: Vec<&str> = wanted().filter(|row| row.own).map(|row| row.plural).collect();
    own.sort_unstable();
    own.dedup();
    vec![
        ("kyverno.io", of(PolicyFamily::Rules)),
        ("policies.kyverno.io", of(PolicyFamily::Cel)),
        (OWN_GROUP, own),
    ]
}

/// What both acting accounts read to know which rules there are and whom they are about.
fn common() -> Vec<Value> {
    let policies = policies(|row| row.role != PolicyRole::Request).into_iter();
    let mut rules: Vec<Value> =
        policies.map(|(group, resources)| rule(&[group], &resources, READ)).collect();
    rules.extend([
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
    ]);
    rules
}

fn status(verbs: &[&str]) -> Vec<Value> {
    let of = |group: &str, resources: &[&str]| {
        let resources: Vec<String> =
            resources.iter().map(|resource| format!("{resource}/status")).collect();
        let resources: Vec<&str> = resources.iter().map(String::as_str).collect();
        rule(&[group], &resources, verbs)
    };
    let policies = policies(has_status).into_iter();
    let mut rules: Vec<Value> = policies.map(|(group, resources)| of(group, &resources)).collect();
    rules.push(of("api.kubemod.io", &["modrules"]));
    rules
}

/// What the engine itself needs for one component.
fn core(options: &InstallOptions, component: &str) -> Vec<Value> {
    let requests = rule(
        &["kyverno.io", OWN_GROUP],
        &["updaterequests", "updaterequests/status"],
        &["get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"],
    );
    let kept = ["policyreports", "clusterpolicyreports", "reports", "clusterreports"];
    let reports = rule(&["wgpolicyk8s.io", "openreports.io"], &kept, KEEP);
    match component {
        "admission-controller" => {
            let mut rules = common();
            rules.extend(status(&["get", "update", "patch"]));
            rules.push(requests);
            rules.push(reports);
            let group = "admissionregistration.k8s.io";
            for kind in ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"] {
                let (resource, names) = webhooks(options, kind);
                rules.push(named(group, &resource, &names, &["get", "update", "patch", "delete"]));
                // RBAC cannot limit it by name: the name is not known yet when it is checked.
                rules.push(rule(&[group], &[&resource], &["create"]));
            }
            // What ModRules see of the node of a Pod.
            rules.push(rule(&[""], &["nodes"], &["get"]));
            rules
        }
        "background-controller" => {
            let mut rules = common();
            rules.extend(status(&["get", "update", "patch"]));
            rules.push(requests);
            rules.push(reports);
            // Whether the policy webhook is registered decides when policies are ready.
            let (resource, names) = webhooks(options, "ValidatingWebhookConfiguration");
            let group = "admissionregistration.k8s.io";
            rules.push(named(group, &resource, &names, &["get"]));
            // What policies that ask for it are generated as.
            let native = ["validatingadmissionpolicies", "validatingadmissionpolicybindings"];
            let verbs = ["get", "list", "create", "update", "delete"];
            rules.push(rule(&[group], &native, &verbs));
            rules
        }
        // What policies read of the cluster besides what they delete; what they delete, users grant.
        "cleanup-controller" => vec![
            rule(&[""], &["namespaces"], READ),
            rule(&["kyverno.io", OWN_GROUP], &["globalcontextentries"], READ),
        ],
        _ => Vec::new(),
    }
}

/// What the peers' standard configuration gives its accounts.
fn standard(component: &str) -> Vec<Value> {
    // Rules that make policies are checked for all rights on the status too.
    let policies = rule(&["kyverno.io"], &["clusterpolicies/status", "policies/status"], KEEP);
    match component {
        "admission-controller" => vec![rule(&["*"], &["secrets"], KEEP), policies],
        "background-controller" => vec![rule(&["*"], COMMON_TARGETS, KEEP), policies],
        "cleanup-controller" => {
            vec![rule(&[""], &["pods"], &["get", "list", "watch", "delete"])]
        }
        _ => Vec::new(),
    }
}

/// What users add to what a component may do.
fn additional<'o>(options: &'o InstallOptions, component: &str) -> &'o [Value] {
    match component {
        "admission-controller" => &options.permissions.admission,
        // What objects policies delete, users say with ClusterRoles that the account's role collects.
        "cleanup-controller" => &[],
        _ => &options.permissions.controller,
    }
}

pub(crate) fn objects(options: &InstallOptions) -> Vec<Value> {
    let names = options.names();
    let mut objects = vec![account(options, &options.service_account.name, "pod")];
    for component in COMPONENTS {
        let name = names.account(component);
        objects.push(account(options, &name, component));
        objects.push(collected(options, component));
        let role = names.role(component);
        objects.push(binding(options, &role, &role, &name, component));
        objects.push(part(options, component, "core", &core(options, component)));
        let view = format!("{role}:view");
        objects.push(binding(options, &view, "view", &name, component));
        if options.permissions.grant == Grant::Standard {
            objects.push(part(options, component, "standard", &standard(component)));
        }
        let additional = additional(options, component);
        if !additional.is_empty() {
            objects.push(part(options, component, "additional", additional));
        }
    }
    objects.extend(pod_rights(options));
    objects
}

/// What version 0.1.0 installed and later ones do not: accounts and roles of controllers that do not exist.
pub fn no_longer_installed(options: &InstallOptions) -> Vec<Value> {
    let components = ["reports-controller"].into_iter();
    let objects = components.flat_map(|component| {
        let names = options.names();
        let (name, role) = (names.account(component), names.role(component));
        let view = format!("{role}:view");
        [
            account(options, &name, component),
            collected(options, component),
            binding(options, &role, &role, &name, component),
            part(options, component, "core", &[]),
            binding(options, &view, "view", &name, component),
        ]
    });
    objects.collect()
}

fn account(options: &InstallOptions, name: &str, component: &str) -> Value {
    let mut metadata = metadata(options, &options.namespace, name, component);
    let own = &options.service_account.annotations;
    if !own.is_empty() {
        let _ = metadata.set(["annotations"], merged(options.annotations.clone(), own));
    }
    value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata})
}

/// The role that collects others.
fn collected(options: &InstallOptions, component: &str) -> Value {
    let (names, name) = (options.names(), options.name.as_str());
    let own_label = names.aggregation_label(component);
    let role = value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": names.role(component),
            // Without the component, or it would collect itself.
            "labels": {"app.kubernetes.io/part-of": name, "app.kubernetes.io/name": "kiln"},
        },
        "aggregationRule": {"clusterRoleSelectors": [
            {"matchLabels": {own_label: "true"}},
            {"matchLabels": {
                "app.kubernetes.io/component": component,
                "app.kubernetes.io/instance": name,
                "app.kubernetes.io/part-of": name,
            }},
        ]},
        // The cluster collects its rules, and owns them alone.
    });
    marked(options, role)
}

/// A role that the component's role collects.
fn part(options: &InstallOptions, component: &str, name: &str, rules: &[Value]) -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": metadata(options, "", &format!("{}:{name}", options.names().role(component)), component),
        "rules": rules,
    })
}

fn binding(
    options: &InstallOptions,
    name: &str,
    role: &str,
    account: &str,
    component: &str,
) -> Value {
    value!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata(options, "", name, component),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject(options, account)],
    })
}

fn subject(options: &InstallOptions, account: &str) -> Value {
    value!({"kind": "ServiceAccount", "name": account, "namespace": options.namespace.as_str()})
}

/// Inside the engine's own namespace: the pod acts as the accounts, of which two keep keys, records and the lease there.
fn pod_rights(options: &InstallOptions) -> Vec<Value> {
    let namespace = &options.namespace;
    let role = |name: &str, rules: &[Value]| {
        value!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": metadata(options, namespace, name, "pod"),
            "rules": rules,
        })
    };
    let bound = |name: &str, accounts: &[String]| {
        let subjects: Vec<Value> =
            accounts.iter().map(|account| subject(options, account)).collect();
        value!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": metadata(options, namespace, name, "pod"),
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": subjects,
        })
    };
    let all = COMPONENTS.map(|component| options.names().account(component));
    let acting = &all[..2];
    vec![
        role("kiln:act-as", &[named("", "serviceaccounts", &all, &["impersonate"])]),
        bound("kiln:act-as", std::slice::from_ref(&options.service_account.name)),
        role(
            "kiln:own-namespace",
            &[
                rule(&["coordination.k8s.io"], &["leases"], KEEP),
                rule(&[""], &["secrets", "configmaps"], KEEP),
                rule(&[""], &["services"], READ),
            ],
        ),
        bound("kiln:own-namespace", acting),
    ]
}
