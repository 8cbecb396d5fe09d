//! Lists, watches, deletion, custom kinds, access: what clients rely on.

use kiln_apiserver::{ApiRequest, Authorization, ResponseOrWatch, Server, Settings};
use kiln_testkit::server::{create, get, send, start, start_with};
use kiln_value::{Value, json, value};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";

fn config_map(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "labels": {"app": name}}})
}

fn names(list: &Value) -> Vec<String> {
    let items = list.get("items").and_then(Value::as_list).expect("items");
    items
        .iter()
        .map(|item| item.str_at(["metadata", "name"]).unwrap_or_default().to_owned())
        .collect()
}

fn watch(server: &Server, path: &str) -> Box<kiln_apiserver::Watch> {
    match server.handle(&ApiRequest::new("GET", path)) {
        ResponseOrWatch::Watch(watch) => watch,
        ResponseOrWatch::Response(response) => {
            panic!("{}", String::from_utf8_lossy(&response.body))
        }
    }
}

/// What a watch says, as type and name.
fn heard(bytes: &[u8]) -> Vec<(String, String)> {
    let text = std::str::from_utf8(bytes).expect("text");
    text.lines()
        .map(|line| {
            let event = json::parse(line).expect("an event");
            let text =
                |path: &[&str]| event.str_at(path.iter().copied()).unwrap_or_default().to_owned();
            (text(&["type"]), text(&["object", "metadata", "name"]))
        })
        .collect()
}

#[test]
fn pages_show_the_state_of_the_first_one() {
    let server = start();
    for name in ["a", "b", "c"] {
        create(&server, CONFIG_MAPS, &config_map(name));
    }
    let first = get(&server, &format!("{CONFIG_MAPS}?limit=2")).value();
    assert_eq!(names(&first), ["a", "b"]);
    assert_eq!(first.get_path(["metadata", "remainingItemCount"]), Some(&value!(1)));
    create(&server, CONFIG_MAPS, &config_map("bb"));
    let token = first.str_at(["metadata", "continue"]).expect("a token");
    let second = get(&server, &format!("{CONFIG_MAPS}?limit=2&continue={token}")).value();
    assert_eq!(names(&second), ["c"]);
    assert_eq!(
        second.get_path(["metadata", "resourceVersion"]),
        first.get_path(["metadata", "resourceVersion"])
    );
    server.compact(server.revision());
    let late = get(&server, &format!("{CONFIG_MAPS}?limit=2&continue={token}"));
    assert_eq!(late.status, 410);
}

#[test]
fn pages_of_every_kind_come_to_an_end() {
    let server = start();
    for name in ["a", "b", "c"] {
        create(&server, CONFIG_MAPS, &config_map(name));
        let labels = value!({"metadata": {"name": name}, "apiVersion": "v1", "kind": "Namespace"});
        create(&server, "/api/v1/namespaces", &labels);
    }
    let definition = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "planets.example.com"}, "spec": {"group": "example.com", "scope": "Cluster",
        "names": {"plural": "planets", "singular": "planet", "kind": "Planet", "listKind": "PlanetList"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    let planets = "/apis/example.com/v1/planets";
    for name in ["earth", "mars", "venus"] {
        let planet =
            value!({"apiVersion": "example.com/v1", "kind": "Planet", "metadata": {"name": name}});
        create(&server, planets, &planet);
    }
    for path in [
        "/api/v1/namespaces",
        "/api/v1/configmaps",
        CONFIG_MAPS,
        "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        planets,
    ] {
        let all = names(&get(&server, path).value());
        for limit in 1..=all.len() {
            let mut found = Vec::new();
            let mut resume = String::new();
            for page in 1.. {
                assert!(page <= all.len(), "{path} by {limit} has no end: {found:?}");
                let list = get(&server, &format!("{path}?limit={limit}{resume}")).value();
                found.extend(names(&list));
                // Later pages are read from the past.
                let secret = value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"generateName": "s-"}});
                create(&server, "/api/v1/namespaces/default/secrets", &secret);
                match list.str_at(["metadata", "continue"]).filter(|token| !token.is_empty()) {
                    Some(token) => resume = format!("&continue={token}"),
                    None => break,
                }
            }
            assert_eq!(found, all, "{path} by {limit}");
        }
    }
}

#[test]
fn selectors_select() {
    let server = start();
    for name in ["a", "b", "c"] {
        create(&server, CONFIG_MAPS, &config_map(name));
    }
    for (query, wanted) in [
        ("labelSelector=app%3Da", vec!["a"]),
        ("labelSelector=app%20in%20(a,b)", vec!["a", "b"]),
        ("labelSelector=app!%3Da", vec!["b", "c"]),
        ("fieldSelector=metadata.name%3Dc", vec!["c"]),
        ("fieldSelector=metadata.name!%3Dc", vec!["a", "b"]),
    ] {
        assert_eq!(
            names(&get(&server, &format!("{CONFIG_MAPS}?{query}")).value()),
            wanted,
            "{query}"
        );
    }
    let refused = get(&server, &format!("{CONFIG_MAPS}?fieldSelector=spec.foo%3D1"));
    assert_eq!(refused.status, 400);
    assert_eq!(get(&server, &format!("{CONFIG_MAPS}?labelSelector=a%20in")).status, 400);
}

#[test]
fn watches_tell_what_enters_and_leaves_a_selection() {
    let server = start();
    create(&server, CONFIG_MAPS, &config_map("a"));
    let mut all = watch(
        &server,
        &format!(
            "{CONFIG_MAPS}?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
        ),
    );
    let mut some = watch(&server, &format!("{CONFIG_MAPS}?watch=true&labelSelector=app%3Da"));
    let pair = |kind: &str, name: &str| (kind.to_owned(), name.to_owned());
    assert_eq!(heard(&all.next(&server)), [pair("ADDED", "a"), pair("BOOKMARK", "")]);
    assert_eq!(heard(&some.next(&server)), [pair("ADDED", "a")]);
    create(&server, CONFIG_MAPS, &config_map("b"));
    let leave = ApiRequest::new("PATCH", &format!("{CONFIG_MAPS}/a"))
        .with_body("application/merge-patch+json", r#"{"metadata":{"labels":{"app":"x"}}}"#);
    assert_eq!(server.call(&leave).status, 200);
    let come = ApiRequest::new("PATCH", &format!("{CONFIG_MAPS}/b"))
        .with_body("application/merge-patch+json", r#"{"metadata":{"labels":{"app":"a"}}}"#);
    assert_eq!(server.call(&come).status, 200);
    server.call(&ApiRequest::new("DELETE", &format!("{CONFIG_MAPS}/b")));
    assert_eq!(
        heard(&some.next(&server)),
        [pair("DELETED", "a"), pair("ADDED", "b"), pair("DELETED", "b")]
    );
    assert_eq!(
        heard(&all.next(&server)),
        [pair("ADDED", "b"), pair("MODIFIED", "a"), pair("MODIFIED", "b"), pair("DELETED", "b")]
    );
    assert!(all.next(&server).is_empty());
    server.compact(server.revision());
    create(&server, CONFIG_MAPS, &config_map("c"));
    let mut late = watch(&server, &format!("{CONFIG_MAPS}?watch=true&resourceVersion=1"));
    let text = String::from_utf8(late.next(&server)).expect("text");
    assert!(
        text.contains(r#""type":"ERROR""#) && text.contains("too old resource version: 1"),
        "{text}"
    );
    assert!(late.is_over());
}

#[test]
fn a_write_that_changes_nothing_is_none() {
    let server = start();
    let made = create(&server, CONFIG_MAPS, &config_map("a"));
    let revision = server.revision();
    let same = send(&server, "PUT", &format!("{CONFIG_MAPS}/a"), &made);
    assert_eq!(same.status, 200);
    assert_eq!(server.revision(), revision);
    assert_eq!(
        same.value().get_path(["metadata", "resourceVersion"]),
        made.get_path(["metadata", "resourceVersion"])
    );
}

#[test]
fn finalizers_hold_objects_and_namespaces() {
    let server = start();
    create(
        &server,
        "/api/v1/namespaces",
        &value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "term"}}),
    );
    server.settle();
    let mut held = config_map("held");
    held.set(["metadata", "finalizers"], value!(["example.com/hold"])).unwrap();
    create(&server, "/api/v1/namespaces/term/configmaps", &held);
    let gone = server.call(&ApiRequest::new("DELETE", "/api/v1/namespaces/term"));
    assert_eq!(gone.value().str_at(["status", "phase"]), Some("Terminating"));
    server.settle();
    let refused = send(&server, "POST", "/api/v1/namespaces/term/configmaps", &config_map("new"));
    assert_eq!(refused.status, 403);
    let namespace = get(&server, "/api/v1/namespaces/term").value();
    assert!(json::to_string(&namespace).contains("example.com/hold in 1 resource instances"));
    let free = ApiRequest::new("PATCH", "/api/v1/namespaces/term/configmaps/held").with_body(
        "application/json-patch+json",
        r#"[{"op":"remove","path":"/metadata/finalizers"}]"#,
    );
    assert_eq!(server.call(&free).status, 200);
    server.settle();
    assert_eq!(get(&server, "/api/v1/namespaces/term").status, 404);
    assert_eq!(server.call(&ApiRequest::new("DELETE", "/api/v1/namespaces/default")).status, 403);
    // A finalizer of the namespace itself.
    let metadata = value!({"name": "own", "finalizers": ["example.com/hold"]});
    let own = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata});
    create(&server, "/api/v1/namespaces", &own);
    create(&server, "/api/v1/namespaces/own/configmaps", &config_map("inside"));
    server.call(&ApiRequest::new("DELETE", "/api/v1/namespaces/own"));
    server.settle();
    assert_eq!(get(&server, "/api/v1/namespaces/own/configmaps/inside").status, 404);
    let held = get(&server, "/api/v1/namespaces/own");
    assert_eq!(held.value().str_at(["status", "phase"]), Some("Terminating"), "{}", held.status);
    let free = ApiRequest::new("PATCH", "/api/v1/namespaces/own")
        .with_body("application/merge-patch+json", r#"{"metadata":{"finalizers":null}}"#);
    assert_eq!(server.call(&free).status, 200);
    server.settle();
    assert_eq!(get(&server, "/api/v1/namespaces/own").status, 404);
}

#[test]
fn a_namespace_is_furnished_when_it_is_answered_for() {
    let settings = Settings { ca: "certificates".to_owned(), ..Settings::default() };
    let server = start_with(settings);
    let shop = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
    let rehearsal = send(&server, "POST", "/api/v1/namespaces?dryRun=All", &shop);
    assert_eq!(rehearsal.status, 201);
    let account = "/api/v1/namespaces/shop/serviceaccounts/default";
    assert_eq!(get(&server, account).status, 404);
    create(&server, "/api/v1/namespaces", &shop);
    assert_eq!(get(&server, account).status, 200);
    let authority = "/api/v1/namespaces/shop/configmaps/kube-root-ca.crt";
    assert_eq!(get(&server, authority).value().str_at(["data", "ca.crt"]), Some("certificates"));
    // No controller has run yet.
    let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    create(&server, "/api/v1/namespaces/shop/pods", &pod);
    // What is taken away comes back.
    server.call(&ApiRequest::new("DELETE", authority));
    server.settle();
    assert_eq!(get(&server, authority).status, 200);
    let applied = ApiRequest::new("PATCH", "/api/v1/namespaces/bank?fieldManager=me").with_body(
        "application/apply-patch+yaml",
        r#"{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"bank"}}"#,
    );
    assert_eq!(server.call(&applied).status, 201);
    create(&server, "/api/v1/namespaces/bank/pods", &pod);
}

#[test]
fn what_lost_its_owner_goes_unless_it_is_orphaned() {
    for (policy, stays) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
        let server = start();
        let owner = create(&server, CONFIG_MAPS, &config_map("owner"));
        let uid = owner.str_at(["metadata", "uid"]).unwrap();
        let mut child = config_map("child");
        child.set(["metadata", "ownerReferences"], value!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid, "blockOwnerDeletion": true}])).unwrap();
        create(&server, CONFIG_MAPS, &child);
        let body = value!({"propagationPolicy": policy});
        assert_eq!(send(&server, "DELETE", &format!("{CONFIG_MAPS}/owner"), &body).status, 200);
        server.settle();
        assert_eq!(get(&server, &format!("{CONFIG_MAPS}/owner")).status, 404, "{policy}");
        assert_eq!(get(&server, &format!("{CONFIG_MAPS}/child")).status == 200, stays, "{policy}");
    }
}

#[test]
fn custom_kinds_are_served_as_soon_as_they_are_defined() {
    let server = start();
    let crd = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "widgets.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget", "shortNames": ["wd"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}, "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}},
                "additionalPrinterColumns": [{"name": "Color", "type": "string", "jsonPath": ".spec.color"}],
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {
                    "spec": {"type": "object", "required": ["color"], "properties": {"color": {"type": "string", "enum": ["red", "green"]}, "replicas": {"type": "integer", "default": 1}},
                        "x-kubernetes-validations": [{"rule": "self.color != 'green' || self.replicas > 1", "message": "green is small"}]},
                    "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}}}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &crd);
    let widgets = "/apis/example.com/v1/namespaces/default/widgets";
    let widget = |color: &str| value!({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"name": "w"}, "spec": {"color": color, "typo": 1}, "status": {"replicas": 9}});
    let made = create(&server, widgets, &widget("red"));
    assert_eq!(made.get("spec"), Some(&value!({"color": "red", "replicas": 1})));
    assert!(made.get("status").is_none());
    assert_eq!(made.get_path(["metadata", "generation"]), Some(&value!(1)));
    let strict =
        send(&server, "POST", &format!("{widgets}?fieldValidation=Strict"), &widget("red"));
    assert!(
        strict
            .value()
            .str_at(["message"])
            .unwrap()
            .ends_with(r#"strict decoding error: unknown field "spec.typo""#)
    );
    server.call(&ApiRequest::new("DELETE", &format!("{widgets}/w")));
    let blue = send(&server, "POST", widgets, &widget("blue")).value();
    assert!(
        blue.str_at(["message"])
            .unwrap()
            .contains(r#"spec.color: Unsupported value: "blue": supported values: "red", "green""#)
    );
    let green = send(&server, "POST", widgets, &widget("green")).value();
    assert!(green.str_at(["message"]).unwrap().contains("green is small"), "{green:?}");
    create(&server, widgets, &widget("red"));
    let status = ApiRequest::new("PATCH", &format!("{widgets}/w/status")).with_body(
        "application/merge-patch+json",
        r#"{"spec":{"color":"green"},"status":{"replicas":4}}"#,
    );
    let status = server.call(&status).value();
    assert_eq!(
        (status.str_at(["spec", "color"]), status.get_path(["status", "replicas"])),
        (Some("red"), Some(&value!(4)))
    );
    let scale = ApiRequest::new("PATCH", &format!("{widgets}/w/scale"))
        .with_body("application/merge-patch+json", r#"{"spec":{"replicas":3}}"#);
    assert_eq!(server.call(&scale).value().get("spec"), Some(&value!({"replicas": 3})));
    let table =
        server
            .call(&ApiRequest::new("GET", widgets).with_header(
                "Accept",
                "application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
            ))
            .value();
    let cells = table.get("rows").unwrap().index(0).unwrap().get("cells").cloned();
    assert_eq!(cells, Some(value!(["w", "red"])));
    let strategic = ApiRequest::new("PATCH", &format!("{widgets}/w"))
        .with_body("application/strategic-merge-patch+json", "{}");
    assert_eq!(server.call(&strategic).status, 415);
    let discovery = get(&server, "/apis/example.com/v1").value();
    assert!(json::to_string(&discovery).contains("widgets/scale"));
    server.call(&ApiRequest::new(
        "DELETE",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com",
    ));
    server.settle();
    assert_eq!(get(&server, widgets).status, 404);
}

#[test]
fn roles_decide_when_they_are_asked_for() {
    let server = start_with(Settings {
        authorization: Authorization::Rbac,
        workloads: false,
        ..Settings::default()
    });
    let as_jane = |path: &str| {
        server.call(&ApiRequest::new("GET", path).with_header("Impersonate-User", "jane")).status
    };
    assert_eq!(as_jane(CONFIG_MAPS), 403);
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/default";
    create(
        &server,
        &format!("{rbac}/rolebindings"),
        &value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "jane"},
        "roleRef": {"kind": "ClusterRole", "name": "view"}, "subjects": [{"kind": "User", "name": "jane"}]}),
    );
    assert_eq!(as_jane(CONFIG_MAPS), 200);
    assert_eq!(as_jane("/api/v1/namespaces/default/secrets"), 403);
    assert_eq!(as_jane("/api/v1/namespaces/kube-system/configmaps"), 403);
    let token = send(
        &server,
        "POST",
        "/api/v1/namespaces/default/serviceaccounts/default/token",
        &value!({}),
    )
    .value();
    let token = token.str_at(["status", "token"]).expect("a token").to_owned();
    let who = ApiRequest::new("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .with_header("Authorization", &format!("Bearer {token}"))
        .with_body("application/json", "{}");
    let who = server.call(&who).value();
    assert_eq!(
        who.str_at(["status", "userInfo", "username"]),
        Some("system:serviceaccount:default:default")
    );
}

#[test]
fn deployments_make_pods_that_wait() {
    let server = start_with(Settings::default());
    let deployment = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {"replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    create(&server, "/apis/apps/v1/namespaces/default/deployments", &deployment);
    server.settle();
    let pods = get(&server, "/api/v1/namespaces/default/pods").value();
    assert_eq!(names(&pods).len(), 2);
    assert_eq!(
        pods.get("items").unwrap().index(0).unwrap().str_at(["status", "phase"]),
        Some("Pending")
    );
    let stored = get(&server, "/apis/apps/v1/namespaces/default/deployments/web").value();
    assert_eq!(stored.get_path(["status", "replicas"]), Some(&value!(2)));
    let scale = ApiRequest::new("PATCH", "/apis/apps/v1/namespaces/default/deployments/web/scale")
        .with_body("application/merge-patch+json", r#"{"spec":{"replicas":1}}"#);
    assert_eq!(server.call(&scale).status, 200);
    server.settle();
    assert_eq!(names(&get(&server, "/api/v1/namespaces/default/pods").value()).len(), 1);
    server.call(&ApiRequest::new("DELETE", "/apis/apps/v1/namespaces/default/deployments/web"));
    server.settle();
    assert!(names(&get(&server, "/api/v1/namespaces/default/pods").value()).is_empty());
}

#[test]
fn parameters_are_read_as_kubernetes_does() {
    let server = start();
    let invalid = |text: &str| format!("strconv.ParseInt: parsing \"{text}\": invalid syntax");
    for (method, query, status, words) in [
        ("GET", "limit=x", 400, invalid("x")),
        ("GET", "limit=", 400, invalid("")),
        ("GET", "limit=1.5", 400, invalid("1.5")),
        (
            "GET",
            "limit=99999999999999999999",
            400,
            "strconv.ParseInt: parsing \"99999999999999999999\": value out of range".to_owned(),
        ),
        ("GET", "limit=-1", 200, String::new()),
        ("GET", "limit=%2B1", 200, String::new()),
        ("GET", "timeoutSeconds=x", 400, invalid("x")),
        ("GET", "limit=x&timeoutSeconds=y", 400, invalid("y")),
        ("GET", "watch=x&limit=y", 400, invalid("y")),
        ("GET", "watch=true&timeoutSeconds=z", 400, invalid("z")),
        ("GET", "watch=False", 200, String::new()),
        ("GET", "watch=0", 200, String::new()),
        ("DELETE", "limit=x", 400, invalid("x")),
        ("DELETE", "gracePeriodSeconds=x", 400, invalid("x")),
    ] {
        let answer = server.call(&ApiRequest::new(method, &format!("{CONFIG_MAPS}?{query}")));
        let said = answer.value().str_at(["message"]).unwrap_or_default().to_owned();
        assert_eq!((answer.status, said), (status, words), "{method} {query}");
    }
    // Whatever else is given turns a switch on.
    for on in ["watch=x", "watch=", "watch=TRUE"] {
        watch(&server, &format!("{CONFIG_MAPS}?{on}"));
    }
}

#[test]
fn bad_requests_are_answered_and_nothing_breaks() {
    let server = start();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    for (body, kind) in [
        (deep.as_bytes().to_vec(), "application/json"),
        (b"\xff\xfe".to_vec(), "application/json"),
        (b"k8s\0\x0a\xff\xff\xff\xff".to_vec(), "application/vnd.kubernetes.protobuf"),
        (b"a: &a [*a, *a]".to_vec(), "application/yaml"),
        (vec![b'x'; 4 << 20], "application/json"),
    ] {
        let answer = server.call(&ApiRequest::new("POST", CONFIG_MAPS).with_body(kind, body));
        assert!((400..500).contains(&answer.status), "{kind}: {}", answer.status);
        assert_eq!(answer.value().str_at(["kind"]), Some("Status"));
    }
    for path in [
        "/api/v1/namespaces/%zz/pods/%00",
        "//api//v1//pods",
        "/apis/%2e%2e/v1/x",
        "/api/v1/pods?continue=%00&limit=99999999999999999999",
    ] {
        let answer = server.call(&ApiRequest::new("GET", path));
        assert!(answer.status < 500, "{path}: {}", answer.status);
    }
}

/// Kubernetes asks of most names that they are subdomains, and of some no more than that a path may hold them.
#[test]
fn names_of_some_kinds_need_no_more_than_a_path() {
    let server = start();
    let budget = |name: &str| {
        value!({
            "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
            "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}
        })
    };
    let event = value!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "Pod.X_1", "namespace": "default"},
        "involvedObject": {"kind": "Pod", "name": "x", "namespace": "default"}
    });
    let answer = |path: &str, object: &Value| send(&server, "POST", path, object).status;
    let budgets = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";
    assert_eq!(answer(budgets, &budget("good-maxUnavailable_1")), 201);
    assert_eq!(answer(budgets, &budget("not/so")), 422);
    assert_eq!(answer("/api/v1/namespaces/default/events", &event), 201);
    assert_eq!(answer(CONFIG_MAPS, &config_map("Upper")), 422);
}
