//! Under `rbac`, no user grants permissions that they do not have.

use kiln_apiserver::{ApiRequest, Authorization, Response, Server, Settings};
use kiln_testkit::server::{create, start_with};
use kiln_value::{Value, json, value};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const HERE: &str = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";

/// A server on which `jane` may read pods of the namespace `default`, and write roles and bindings everywhere.
fn prepared() -> Server {
    let server = start_with(Settings {
        authorization: Authorization::Rbac,
        workloads: false,
        ..Settings::default()
    });
    let role = cluster_role(
        "writes-roles",
        value!([{"apiGroups": ["rbac.authorization.k8s.io"], "verbs": ["create", "update", "patch", "get"],
            "resources": ["roles", "rolebindings", "clusterroles", "clusterrolebindings"]}]),
    );
    create(&server, &format!("{RBAC}/clusterroles"), &role);
    let pods =
        value!([{"apiGroups": [""], "resources": ["pods", "*/status"], "verbs": ["get", "list"]}]);
    create(&server, &format!("{HERE}/roles"), &role_of("reads-pods", pods));
    let jane = value!([{"kind": "User", "name": "jane"}]);
    let bind = |kind: &str, role: &str, name: &str| {
        let mut binding = binding(kind, name, role);
        let _ = binding.set(["subjects"], jane.clone());
        binding
    };
    let cluster = format!("{RBAC}/clusterrolebindings");
    create(&server, &cluster, &bind("ClusterRoleBinding", "writes-roles", "jane-roles"));
    let mut reads = bind("RoleBinding", "reads-pods", "jane-pods");
    let _ = reads.set(["roleRef", "kind"], "Role");
    create(&server, &format!("{HERE}/rolebindings"), &reads);
    server
}

fn role_of(name: &str, rules: Value) -> Value {
    let mut role = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}});
    let _ = role.set(["rules"], rules);
    role
}

fn cluster_role(name: &str, rules: Value) -> Value {
    let mut role = role_of(name, rules);
    let _ = role.set(["kind"], "ClusterRole");
    role
}

fn binding(kind: &str, name: &str, role: &str) -> Value {
    value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "eve"}]})
}

fn as_jane(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
    let request = ApiRequest::new(method, path).with_body(kind, json::to_string(body));
    server.call(&request.with_header("Impersonate-User", "jane"))
}

fn assert_refused(answer: &Response, message: &str) {
    let status = answer.value();
    assert_eq!(status.str_at(["message"]), Some(message));
    assert_eq!((answer.status, status.str_at(["reason"])), (403, Some("Forbidden")));
}

fn attempt(what: &str, rights: &str) -> String {
    format!(
        "{what} is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC permissions not currently held:\n{rights}"
    )
}

#[test]
fn roles_give_what_their_writer_has() {
    let server = prepared();
    let roles = format!("{HERE}/roles");
    let few = value!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["pods"], "resourceNames": ["web"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["services/status"], "verbs": ["get"]}]);
    assert_eq!(as_jane(&server, "POST", &roles, &role_of("few", few.clone())).status, 201);
    let more = value!([{"apiGroups": [""], "resources": ["secrets", "pods"], "verbs": ["get", "list", "delete"]}]);
    let what = "roles.rbac.authorization.k8s.io \"more\"";
    let rights = "{APIGroups:[\"\"], Resources:[\"pods\"], Verbs:[\"delete\"]}\n{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\" \"list\" \"delete\"]}";
    let made = as_jane(&server, "POST", &roles, &role_of("more", more.clone()));
    assert_refused(&made, &attempt(what, rights));
    // What she has here, she does not have everywhere.
    let cluster = format!("{RBAC}/clusterroles");
    assert_eq!(as_jane(&server, "POST", &cluster, &cluster_role("few", few)).status, 403);
    let paths = value!([{"nonResourceURLs": ["/healthz", "/logs/*"], "verbs": ["get", "put"]}]);
    let made = as_jane(&server, "POST", &cluster, &cluster_role("paths", paths));
    let what = "clusterroles.rbac.authorization.k8s.io \"paths\"";
    let rights = "{NonResourceURLs:[\"/healthz\"], Verbs:[\"put\"]}\n{NonResourceURLs:[\"/logs/*\"], Verbs:[\"get\"]}\n{NonResourceURLs:[\"/logs/*\"], Verbs:[\"put\"]}";
    assert_refused(&made, &attempt(what, rights));
    // Nor does she get it by changing a role.
    let everything = value!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let what = "roles.rbac.authorization.k8s.io \"few\"";
    let rights = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}";
    let one = format!("{roles}/few");
    let changed = as_jane(&server, "PUT", &one, &role_of("few", everything.clone()));
    assert_refused(&changed, &attempt(what, rights));
    let mut patch = Value::map();
    let _ = patch.set(["rules"], everything);
    assert_refused(&as_jane(&server, "PATCH", &one, &patch), &attempt(what, rights));
    let apply = ApiRequest::new("PATCH", &format!("{roles}/more?fieldManager=jane"))
        .with_body("application/apply-patch+yaml", json::to_string(&role_of("more", more)))
        .with_header("Impersonate-User", "jane");
    assert_eq!(server.call(&apply).status, 403);
    // A label on a role that gives more is a write of that role; letting it go is not.
    let label = value!({"metadata": {"labels": {"a": "b"}}});
    let admin = format!("{RBAC}/clusterroles/cluster-admin");
    assert_eq!(as_jane(&server, "PATCH", &admin, &label).status, 403);
    let finalizer = value!({"metadata": {"finalizers": ["example.com/wait"]}});
    assert_eq!(as_jane(&server, "PATCH", &admin, &finalizer).status, 200);
}

#[test]
fn bindings_give_what_their_writer_has() {
    let server = prepared();
    let rights = "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}\n{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}";
    for (path, kind) in [
        (format!("{HERE}/rolebindings"), "RoleBinding"),
        (format!("{RBAC}/clusterrolebindings"), "ClusterRoleBinding"),
    ] {
        let what = format!("{}s.rbac.authorization.k8s.io \"b\"", kind.to_lowercase());
        let made = as_jane(&server, "POST", &path, &binding(kind, "b", "cluster-admin"));
        assert_refused(&made, &attempt(&what, rights));
        // Another subject in a binding that is there is the same thing.
        create(&server, &path, &binding(kind, "there", "cluster-admin"));
        let subjects = value!({"subjects": [{"kind": "User", "name": "jane"}]});
        let changed = as_jane(&server, "PATCH", &format!("{path}/there"), &subjects);
        assert_eq!(changed.status, 403);
        let missing = as_jane(&server, "POST", &path, &binding(kind, "b", "nowhere"));
        assert_eq!(missing.status, 404);
        let message = "clusterrole.rbac.authorization.k8s.io \"nowhere\" not found";
        assert_eq!(missing.value().str_at(["message"]), Some(message));
    }
    let mut held = binding("RoleBinding", "held", "reads-pods");
    let _ = held.set(["roleRef", "kind"], "Role");
    assert_eq!(as_jane(&server, "POST", &format!("{HERE}/rolebindings"), &held).status, 201);
}

#[test]
fn whoever_may_escalate_or_bind_gives_more() {
    let server = prepared();
    let verbs = cluster_role(
        "more",
        value!([{"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]},
            {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "resourceNames": ["edit"], "verbs": ["bind"]}]),
    );
    create(&server, &format!("{RBAC}/clusterroles"), &verbs);
    let mut jane = binding("ClusterRoleBinding", "jane-more", "more");
    let _ = jane.set(["subjects"], value!([{"kind": "User", "name": "jane"}]));
    create(&server, &format!("{RBAC}/clusterrolebindings"), &jane);
    let everything = value!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let role = role_of("r", everything.clone());
    assert_eq!(as_jane(&server, "POST", &format!("{HERE}/roles"), &role).status, 201);
    let role = cluster_role("r", everything);
    assert_eq!(as_jane(&server, "POST", &format!("{RBAC}/clusterroles"), &role).status, 403);
    let bindings = format!("{HERE}/rolebindings");
    let edit = binding("RoleBinding", "e", "edit");
    assert_eq!(as_jane(&server, "POST", &bindings, &edit).status, 201);
    let admin = binding("RoleBinding", "a", "admin");
    assert_eq!(as_jane(&server, "POST", &bindings, &admin).status, 403);
    // The group that may do everything is asked nothing.
    let request = ApiRequest::new("POST", &bindings)
        .with_body("application/json", json::to_string(&admin))
        .with_header("Impersonate-User", "root")
        .with_header("Impersonate-Group", "system:masters");
    assert_eq!(server.call(&request).status, 201);
}

#[test]
fn aggregated_roles_are_for_those_who_may_do_everything() {
    let server = prepared();
    let mut role = cluster_role("all", value!([]));
    let _ = role
        .set(["aggregationRule"], value!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}));
    let made = as_jane(&server, "POST", &format!("{RBAC}/clusterroles"), &role);
    assert_refused(
        &made,
        "clusterroles.rbac.authorization.k8s.io \"all\" is forbidden: must have cluster-admin privileges to use an aggregationRule",
    );
}

#[test]
fn roles_that_multiply_are_refused() {
    let server = prepared();
    let many: Value = (0..2000).map(|at| format!("r{at}")).collect::<Vec<_>>().into();
    let mut rule = value!({"verbs": ["get"]});
    for field in ["apiGroups", "resources", "resourceNames"] {
        let _ = rule.set([field], many.clone());
    }
    let role = role_of("many", Value::from(vec![rule]));
    let made = as_jane(&server, "POST", &format!("{HERE}/roles"), &role);
    assert_eq!(made.status, 413);
}

#[test]
fn applying_something_new_asks_for_the_right_to_create() {
    let server = prepared();
    let patches = value!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["patch"]}]);
    create(&server, &format!("{HERE}/roles"), &role_of("patches", patches));
    let mut bound = binding("RoleBinding", "jane-patches", "patches");
    bound.set(["roleRef", "kind"], "Role").unwrap();
    bound.set(["subjects"], value!([{"kind": "User", "name": "jane"}])).unwrap();
    create(&server, &format!("{HERE}/rolebindings"), &bound);
    let path = "/api/v1/namespaces/default/configmaps/a";
    let map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v"}});
    let apply = |user: &str, path: &str| {
        let request = ApiRequest::new("PATCH", &format!("{path}?fieldManager=t&force=true"))
            .with_body("application/apply-patch+yaml", json::to_string(&map));
        server.call(&request.with_header("Impersonate-User", user))
    };
    let refused = apply("jane", path);
    assert_refused(
        &refused,
        "configmaps \"a\" is forbidden: User \"jane\" cannot create resource \"configmaps\" in API group \"\" in the namespace \"default\"",
    );
    assert_eq!(server.call(&ApiRequest::new("GET", path)).status, 404);
    // An existing one may be changed.
    create(&server, "/api/v1/namespaces/default/configmaps", &map);
    assert_eq!(apply("jane", path).status, 200);
}
