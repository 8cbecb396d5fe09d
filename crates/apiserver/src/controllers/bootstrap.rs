//! What every cluster begins with: namespaces, priorities, its own Service, the roles that people bind users to.

use kiln_value::{Value, value};

use crate::controllers::{accounts, ensure};
use crate::server::Server;

/// What every cluster begins with.
pub(crate) fn seed(server: &Server) {
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        ensure(
            server,
            value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}),
        );
    }
    for (name, priority) in
        [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
    {
        ensure(
            server,
            value!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": priority}),
        );
    }
    ensure(
        server,
        value!({"apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "kubernetes", "namespace": "default", "labels": {"component": "apiserver", "provider": "kubernetes"}},
            "spec": {"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"],
                "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}]}}),
    );
    roles(server);
    accounts(server);
}

/// The roles that people bind users to.
fn roles(server: &Server) {
    let role = |name: &str, rules: Value| {
        let mut role = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}});
        let _ = role.set(["rules"], rules);
        ensure(server, role);
    };
    let bind = |name: &str, role: &str, groups: &[&str]| {
        let mut binding = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"}},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role}});
        let subjects: Vec<Value> = groups
            .iter()
            .map(|group| value!({"kind": "Group", "apiGroup": "rbac.authorization.k8s.io", "name": group}))
            .collect();
        let _ = binding.set(["subjects"], subjects);
        ensure(server, binding);
    };
    role(
        "cluster-admin",
        value!([
            {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
            {"nonResourceURLs": ["*"], "verbs": ["*"]},
        ]),
    );
    let read = value!(["get", "list", "watch"]);
    let write =
        value!(["create", "delete", "deletecollection", "patch", "update", "get", "list", "watch"]);
    let core = value!([
        "configmaps",
        "endpoints",
        "persistentvolumeclaims",
        "persistentvolumeclaims/status",
        "pods",
        "pods/log",
        "pods/status",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "serviceaccounts",
        "services",
        "services/status",
        "events",
        "limitranges",
        "resourcequotas",
        "namespaces",
        "namespaces/status"
    ]);
    let grouped = |verbs: &Value| -> Vec<Value> {
        [
            ("apps", vec!["*"]),
            ("autoscaling", vec!["*"]),
            ("batch", vec!["*"]),
            ("networking.k8s.io", vec!["ingresses", "ingresses/status", "networkpolicies"]),
            ("policy", vec!["*"]),
            ("discovery.k8s.io", vec!["endpointslices"]),
        ]
        .into_iter()
        .map(|(group, resources)| {
            let mut rule = value!({"apiGroups": [group], "resources": resources});
            let _ = rule.set(["verbs"], verbs.clone());
            rule
        })
        .collect()
    };
    let rule = |resources: &Value, verbs: &Value| {
        let mut rule = value!({"apiGroups": [""]});
        let _ = rule.set(["resources"], resources.clone());
        let _ = rule.set(["verbs"], verbs.clone());
        rule
    };
    let mut view = vec![rule(&core, &read)];
    view.extend(grouped(&read));
    role("view", Value::from(view.clone()));
    let writable = value!([
        "configmaps",
        "endpoints",
        "events",
        "persistentvolumeclaims",
        "pods",
        "pods/attach",
        "pods/exec",
        "pods/portforward",
        "pods/proxy",
        "pods/eviction",
        "replicationcontrollers",
        "replicationcontrollers/scale",
        "secrets",
        "serviceaccounts",
        "serviceaccounts/token",
        "services",
        "services/proxy"
    ]);
    let mut edit = view;
    edit.push(rule(&writable, &write));
    edit.extend(grouped(&write));
    role("edit", Value::from(edit.clone()));
    let mut admin = edit;
    admin.push(value!({"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"],
        "verbs": ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]}));
    admin.push(value!({"apiGroups": ["authorization.k8s.io"], "resources": ["localsubjectaccessreviews"], "verbs": ["create"]}));
    role("admin", Value::from(admin));
    role(
        "system:basic-user",
        value!([
            {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"], "verbs": ["create"]},
            {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]},
        ]),
    );
    role(
        "system:discovery",
        value!([
            {"nonResourceURLs": ["/api", "/api/*", "/apis", "/apis/*", "/healthz", "/livez", "/openapi", "/openapi/*", "/readyz", "/version", "/version/"], "verbs": ["get"]},
        ]),
    );
    role(
        "system:public-info-viewer",
        value!([
            {"nonResourceURLs": ["/healthz", "/livez", "/readyz", "/version", "/version/"], "verbs": ["get"]},
        ]),
    );
    bind("cluster-admin", "cluster-admin", &["system:masters"]);
    bind("system:basic-user", "system:basic-user", &["system:authenticated"]);
    bind("system:discovery", "system:discovery", &["system:authenticated"]);
    bind(
        "system:public-info-viewer",
        "system:public-info-viewer",
        &["system:authenticated", "system:unauthenticated"],
    );
}
