//! Which names custom kinds get, and what they cannot take the place of.

use kiln_apiserver::{ApiRequest, Authorization, Record, Response, Server, Settings};
use kiln_testkit::server::{Still, create, get, send, start, start_with};
use kiln_value::{Value, json, value};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const POLICIES: &str = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";

fn definition(group: &str, plural: &str, kind: &str) -> Value {
    let (name, list) = (format!("{plural}.{group}"), format!("{kind}List"));
    value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
        "spec": {"group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": (plural.trim_end_matches('s')), "kind": kind, "listKind": list},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}}]}})
}

/// One that says that it is not approved.
fn unapproved(group: &str, plural: &str, kind: &str) -> Value {
    let mut definition = definition(group, plural, kind);
    let at = ["metadata", "annotations", "api-approved.kubernetes.io"];
    definition.set(at, "unapproved, a trial").unwrap();
    definition
}

/// A condition of a stored definition: its status, reason and message.
fn condition(server: &Server, name: &str, kind: &str) -> (String, String, String) {
    let stored = get(server, &format!("{DEFINITIONS}/{name}")).value();
    let list = stored.get_path(["status", "conditions"]).and_then(Value::as_list).unwrap();
    let found = list.iter().find(|one| one.str_at(["type"]) == Some(kind));
    let found = found.unwrap_or_else(|| panic!("{name} has no condition {kind}"));
    let text = |field: &str| found.str_at([field]).unwrap_or_default().to_owned();
    (text("status"), text("reason"), text("message"))
}

fn told(response: &Response) -> String {
    response.value().str_at(["message"]).unwrap_or_default().to_owned()
}

fn network_policy() -> Value {
    value!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "keep"},
        "spec": {"podSelector": {}}})
}

#[test]
fn groups_without_a_domain_are_refused() {
    let server = start();
    for (group, plural, kind) in
        [("apps", "deployments", "Deployment"), ("batch", "things", "Thing")]
    {
        let refused = send(&server, "POST", DEFINITIONS, &definition(group, plural, kind));
        assert_eq!(refused.status, 422);
        let why = format!(
            "spec.group: Invalid value: {group:?}: should be a domain with at least one dot"
        );
        assert!(told(&refused).contains(&why), "{}", told(&refused));
    }
}

#[test]
fn groups_of_kubernetes_ask_for_an_approval() {
    let server = start();
    let mut gateways = definition("gateway.networking.k8s.io", "gateways", "Gateway");
    let refused = send(&server, "POST", DEFINITIONS, &gateways);
    assert_eq!(refused.status, 422);
    let why = "metadata.annotations[api-approved.kubernetes.io]: Required value: protected groups must have approval annotation";
    assert!(told(&refused).contains(why), "{}", told(&refused));
    let at = ["metadata", "annotations", "api-approved.kubernetes.io"];
    gateways.set(at, "yes").unwrap();
    let refused = send(&server, "POST", DEFINITIONS, &gateways);
    assert!(told(&refused).contains("Invalid value: \"yes\": protected groups must have"));
    gateways.set(at, "https://example.com/approved/1").unwrap();
    create(&server, DEFINITIONS, &gateways);
    let name = "gateways.gateway.networking.k8s.io";
    let conformant = condition(&server, name, "KubernetesAPIApprovalPolicyConformant");
    assert_eq!((conformant.0.as_str(), conformant.1.as_str()), ("True", "ApprovedAnnotation"));
    assert_eq!(condition(&server, name, "Established").0, "True");
    // Groups that only sound alike are free.
    create(&server, DEFINITIONS, &definition("wgpolicyk8s.io", "policyreports", "PolicyReport"));
}

#[test]
fn no_definition_takes_the_place_of_a_built_in_kind() {
    let server = start();
    create(&server, POLICIES, &network_policy());
    for (group, plural, kind, reason, used) in [
        ("networking.k8s.io", "networkpolicies", "Policy", "PluralConflict", "networkpolicies"),
        ("networking.k8s.io", "things", "NetworkPolicy", "ListKindConflict", "NetworkPolicyList"),
        (
            "rbac.authorization.k8s.io",
            "clusterrolebindings",
            "Free",
            "SingularConflict",
            "clusterrolebinding",
        ),
    ] {
        let name = format!("{plural}.{group}");
        let answer = send(&server, "POST", DEFINITIONS, &unapproved(group, plural, kind));
        assert_eq!(answer.status, 201, "{name}: {}", told(&answer));
        let warning = format!("299 - \"not all names of {name} are accepted: ");
        let warned = answer.headers.iter().any(|(_, text)| text.starts_with(&warning));
        assert!(warned, "{name}: {:?}", answer.headers);
        let (status, found, message) = condition(&server, &name, "NamesAccepted");
        assert_eq!(status, "False", "{name}");
        assert_eq!((found.as_str(), message), (reason, format!("{used:?} is already in use")));
        let established = condition(&server, &name, "Established");
        assert_eq!((established.0.as_str(), established.1.as_str()), ("False", "NotAccepted"));
    }
    server.settle();
    assert_eq!(get(&server, &format!("{POLICIES}/keep")).status, 200);
    assert_eq!(get(&server, "/apis/networking.k8s.io/v1/things").status, 404);
    // Nonsense is still refused, and bindings are still of the cluster.
    let nonsense = value!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": "x"},
        "spec": {"podSelector": 1}});
    assert_eq!(send(&server, "POST", POLICIES, &nonsense).status, 400);
    let inside = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/clusterrolebindings";
    assert_eq!(get(&server, inside).status, 404);
    // Nor does anything go with such a definition.
    for name in
        ["networkpolicies.networking.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io"]
    {
        let gone = server.call(&ApiRequest::new("DELETE", &format!("{DEFINITIONS}/{name}")));
        assert_eq!(gone.status, 200);
    }
    server.settle();
    assert_eq!(
        get(&server, &format!("{DEFINITIONS}/networkpolicies.networking.k8s.io")).status,
        404
    );
    assert_eq!(get(&server, &format!("{POLICIES}/keep")).status, 200);
    assert_eq!(get(&server, &format!("{BINDINGS}/cluster-admin")).status, 200);
}

#[test]
fn whoever_was_first_has_the_name() {
    let server = start();
    create(&server, DEFINITIONS, &definition("x.io", "as", "Thing"));
    let path = "/apis/x.io/v1/namespaces/default/as";
    let thing = value!({"apiVersion": "x.io/v1", "kind": "Thing", "metadata": {"name": "t"}});
    create(&server, path, &thing);
    create(&server, DEFINITIONS, &definition("x.io", "bs", "Thing"));
    server.settle();
    let there = || get(&server, &format!("{path}/t")).status;
    assert_eq!(there(), 200, "the first goes on");
    assert_eq!(condition(&server, "as.x.io", "NamesAccepted").0, "True");
    let refused = condition(&server, "bs.x.io", "NamesAccepted");
    let wanted = ("False", "ListKindConflict", "\"ThingList\" is already in use");
    assert_eq!((refused.0.as_str(), refused.1.as_str(), refused.2.as_str()), wanted);
    assert_eq!(get(&server, "/apis/x.io/v1/bs").status, 404);
    // No header changes that.
    let forged = value!({"status": {"conditions": [{"type": "Established", "status": "True",
        "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "x", "message": "x"}]}});
    let patch = ApiRequest::new("PATCH", &format!("{DEFINITIONS}/bs.x.io/status"))
        .with_body("application/merge-patch+json", json::to_string(&forged));
    assert_eq!(server.call(&patch).status, 200);
    assert_eq!(condition(&server, "bs.x.io", "Established").0, "False");
    // A kind that is served does not become another one.
    let mut renamed = get(&server, &format!("{DEFINITIONS}/as.x.io")).value();
    renamed.set(["spec", "names", "kind"], "Other").unwrap();
    let refused = send(&server, "PUT", &format!("{DEFINITIONS}/as.x.io"), &renamed);
    assert!(
        told(&refused).contains("spec.names.kind: Invalid value: \"Other\": field is immutable")
    );
    // After a restart, it is as it was.
    let restarted = Server::with_records(
        Settings { workloads: false, ..Settings::default() },
        Box::new(Still::default()),
        server.snapshot(),
    );
    assert_eq!(get(&restarted, &format!("{path}/t")).status, 200);
    assert_eq!(get(&restarted, "/apis/x.io/v1/bs").status, 404);
    // The second gets what the first gives up.
    let gone = server.call(&ApiRequest::new("DELETE", &format!("{DEFINITIONS}/as.x.io")));
    assert_eq!(gone.status, 200);
    server.settle();
    assert_eq!(condition(&server, "bs.x.io", "Established").0, "True");
    assert_eq!(get(&server, "/apis/x.io/v1/bs").status, 200);
    assert_eq!(get(&server, "/apis/x.io/v1/as").status, 404);
}

/// What an earlier version let in does no more than what is let in now.
#[test]
fn stored_definitions_of_built_in_kinds_give_nobody_rights() {
    let settings =
        Settings { authorization: Authorization::Rbac, workloads: false, ..Settings::default() };
    let group = "rbac.authorization.k8s.io";
    let record = |group: &str, plural: &str, namespace: &str, object: Value| Record {
        group: group.into(),
        plural: plural.into(),
        namespace: namespace.into(),
        name: object.str_at(["metadata", "name"]).unwrap().into(),
        object: Some(object),
        revision: 1,
    };
    let binding = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "free", "namespace": "evil", "uid": "1", "resourceVersion": "1"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "User", "apiGroup": group, "name": "jane"}]});
    let crd = unapproved(group, "clusterrolebindings", "ClusterRoleBinding");
    let records = vec![
        record("apiextensions.k8s.io", "customresourcedefinitions", "", crd),
        record(group, "clusterrolebindings", "evil", binding),
    ];
    let server = Server::with_records(settings.clone(), Box::new(Still::default()), records);
    server.settle();
    let secrets = ApiRequest::new("GET", "/api/v1/secrets").with_header("Impersonate-User", "jane");
    assert_eq!(server.call(&secrets).status, 403);
    let inside = format!("/apis/{group}/v1/namespaces/evil/clusterrolebindings");
    assert_eq!(get(&server, &inside).status, 404);
    assert_eq!(get(&server, BINDINGS).status, 200);
    assert_eq!(start_with(settings).call(&secrets).status, 403);
}
