//! What random histories of requests beside a real server showed: answers as kube-apiserver 1.36 gives them.

use kiln_apiserver::{ApiRequest, Response, Server};
use kiln_testkit::server::{create, get, send, start};
use kiln_value::{Value, json, value};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PLANETS: &str = "/apis/example.com/v1/namespaces/default/planets";

/// A server with a custom kind that has a scale.
fn with_planets() -> Server {
    let server = start();
    let schema = value!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "replicas": {"type": "integer", "default": 1}, "size": {"type": "integer", "minimum": 1}}}}});
    let definition = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "planets.example.com"}, "spec": {"group": "example.com", "scope": "Namespaced",
        "names": {"plural": "planets", "kind": "Planet"},
        "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            "subresources": {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}}]}});
    create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &definition);
    server
}

fn message(response: &Response) -> String {
    response.value().str_at(["message"]).unwrap_or_default().to_owned()
}

fn config_map(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn patch(server: &Server, path: &str, kind: &str, body: &Value) -> Response {
    server.call(&ApiRequest::new("PATCH", path).with_body(kind, json::to_string(body)))
}

#[test]
fn a_replacement_without_a_name_is_refused_before_the_object_is_looked_for() {
    let server = start();
    let refused = send(&server, "PUT", &format!("{CONFIG_MAPS}/none"), &value!({}));
    assert_eq!(refused.status, 400);
    assert!(message(&refused).ends_with("was undeterminable: name must be provided"));
}

#[test]
fn some_kinds_are_created_by_their_replacement() {
    let server = start();
    let role = value!({"metadata": {"name": "a"}});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/a";
    assert_eq!(send(&server, "PUT", path, &role).status, 201);
    assert_eq!(send(&server, "PUT", path, &role).status, 200);
    let versioned = value!({"metadata": {"name": "b", "resourceVersion": "1"}});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/b";
    assert_eq!(send(&server, "PUT", path, &versioned).status, 201);
    let named = value!({"metadata": {"name": "c", "uid": "other"}});
    let path = "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/c";
    assert_eq!(send(&server, "PUT", path, &named).status, 409);
    let refused = send(&server, "PUT", &format!("{CONFIG_MAPS}/a"), &config_map("a"));
    assert_eq!(refused.status, 404);
}

#[test]
fn lists_say_how_they_end_as_go_writes_them() {
    let server = with_planets();
    let list = get(&server, PLANETS).value();
    assert_eq!(list.str_at(["metadata", "continue"]), Some(""));
    let list = get(&server, CONFIG_MAPS).value();
    assert_eq!(list.get_path(["metadata", "continue"]), None);
    let partial = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
    let request = ApiRequest::new("GET", CONFIG_MAPS).with_header("Accept", partial);
    assert_eq!(server.call(&request).value().get("items"), Some(&Value::Null));
    let refused = get(&server, &format!("{CONFIG_MAPS}?labelSelector=x%20in"));
    assert_eq!(message(&refused), "unable to parse requirement: found '' expected: '('");
}

#[test]
fn namespaces_keep_the_finalizers_of_their_spec() {
    let server = start();
    let other = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": ["example.com/x"]}});
    let made = create(&server, "/api/v1/namespaces", &other);
    let finalizers = |namespace: &Value| namespace.get_path(["spec", "finalizers"]).cloned();
    assert_eq!(finalizers(&made), Some(value!(["example.com/x", "kubernetes"])));
    let none = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}, "spec": {"finalizers": []}});
    let kept = send(&server, "PUT", "/api/v1/namespaces/a", &none).value();
    assert_eq!(finalizers(&kept), finalizers(&made));
    let finalized = send(&server, "PUT", "/api/v1/namespaces/a/finalize", &none).value();
    assert!(finalizers(&finalized).is_none_or(|list| list == Value::list()));
    assert_eq!(finalizers(&get(&server, "/api/v1/namespaces/a").value()), finalizers(&finalized));
    let generated =
        value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "team-"}});
    let made = create(&server, "/api/v1/namespaces", &generated);
    assert_eq!(
        made.str_at(["metadata", "labels", "kubernetes.io/metadata.name"]),
        made.str_at(["metadata", "name"])
    );
}

#[test]
fn a_deleted_namespace_waits_for_its_dependents_if_that_is_asked_for() {
    let server = start();
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}});
    create(&server, "/api/v1/namespaces", &namespace);
    let other = value!({"preconditions": {"uid": "other"}});
    let refused = send(&server, "DELETE", "/api/v1/namespaces/a", &other);
    assert_eq!(refused.status, 409);
    assert!(
        message(&refused).starts_with(
            "Operation cannot be fulfilled on namespaces \"a\": Precondition failed: UID in precondition: other, "
        ),
        "{}",
        message(&refused)
    );
    let gone =
        send(&server, "DELETE", "/api/v1/namespaces/a?propagationPolicy=Foreground", &Value::Null);
    assert_eq!(
        gone.value().get_path(["metadata", "finalizers"]),
        Some(&value!(["foregroundDeletion"]))
    );
    assert_eq!(gone.value().get_path(["metadata", "deletionGracePeriodSeconds"]), None);
    server.settle();
    assert_eq!(get(&server, "/api/v1/namespaces/a").status, 404);
}

#[test]
fn the_answer_to_a_deleted_collection_has_the_objects_as_they_were() {
    let server = start();
    let mut held = config_map("a");
    held.set(["metadata", "finalizers"], value!(["example.com/hold"])).unwrap();
    let made = create(&server, CONFIG_MAPS, &held);
    let gone = send(&server, "DELETE", CONFIG_MAPS, &Value::Null).value();
    let mut listed = made;
    listed.remove(["kind"]);
    listed.remove(["apiVersion"]);
    assert_eq!(gone.get("items").and_then(|items| items.index(0)), Some(&listed));
    let left = get(&server, &format!("{CONFIG_MAPS}/a")).value();
    assert!(left.str_at(["metadata", "deletionTimestamp"]).is_some());
}

#[test]
fn preconditions_name_the_kind_with_its_group() {
    let server = with_planets();
    let planet =
        value!({"apiVersion": "example.com/v1", "kind": "Planet", "metadata": {"name": "a"}});
    create(&server, PLANETS, &planet);
    let other = value!({"preconditions": {"uid": "other"}});
    let refused = send(&server, "DELETE", &format!("{PLANETS}/a"), &other);
    assert!(
        message(&refused)
            .starts_with("Operation cannot be fulfilled on Planet.example.com \"a\": ")
    );
}

#[test]
fn a_custom_object_says_what_it_is() {
    let server = with_planets();
    let refused =
        send(&server, "POST", PLANETS, &value!({"metadata": {"name": "a", "labels": {"n": "1"}}}));
    assert_eq!(
        message(&refused),
        "the object provided is unrecognized (must be of type Planet): Object 'Kind' is missing in \
         '{\"metadata\":{\"name\":\"a\",\"labels\":{\"n\":\"1\"}}}' ({\"metadata\":{\"name\":\"a\",\"label ...)"
    );
    let refused =
        send(&server, "POST", PLANETS, &value!({"kind": "Planet", "metadata": {"name": "a"}}));
    assert!(message(&refused).contains("Object 'apiVersion' is missing in"));
}

#[test]
fn a_conflict_about_a_scale_comes_before_its_numbers() {
    let server = with_planets();
    let planet = value!({"apiVersion": "example.com/v1", "kind": "Planet", "metadata": {"name": "a"}, "spec": {"replicas": 2}});
    create(&server, PLANETS, &planet);
    let scale = value!({"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": -1}});
    let path = format!("{PLANETS}/a/scale?fieldManager=bob");
    let apply = "application/apply-patch+yaml";
    assert_eq!(patch(&server, &path, apply, &scale).status, 409);
    assert_eq!(patch(&server, &format!("{path}&force=true"), apply, &scale).status, 422);
}

#[test]
fn secrets_for_basic_authentication_have_a_name_or_a_password() {
    let server = start();
    let path = "/api/v1/namespaces/default/secrets";
    let mut secret = value!({"metadata": {"name": "a"}, "type": "kubernetes.io/basic-auth"});
    assert_eq!(send(&server, "POST", path, &secret).status, 422);
    secret.set(["stringData"], value!({"password": "x"})).unwrap();
    assert_eq!(send(&server, "POST", path, &secret).status, 201);
}

#[test]
fn the_version_zero_is_none() {
    let server = start();
    let mut object = config_map("a");
    object.set(["metadata", "resourceVersion"], "0").unwrap();
    create(&server, CONFIG_MAPS, &object);
    object.set(["data"], value!({"a": "1"})).unwrap();
    assert_eq!(send(&server, "PUT", &format!("{CONFIG_MAPS}/a"), &object).status, 200);
    object.set(["metadata", "resourceVersion"], "7").unwrap();
    assert_eq!(send(&server, "PUT", &format!("{CONFIG_MAPS}/a"), &object).status, 409);
    object.set(["metadata", "name"], "b").unwrap();
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &object).status, 500);
    assert_eq!(send(&server, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), &object).status, 201);
}

#[test]
fn what_protects_a_claim_is_added_to_its_finalizers() {
    let server = start();
    let claim = value!({"apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "a", "finalizers": ["example.com/hold"]},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claims = "/api/v1/namespaces/default/persistentvolumeclaims";
    let made = create(&server, claims, &claim);
    assert_eq!(
        made.get_path(["metadata", "finalizers"]),
        Some(&value!(["example.com/hold", "kubernetes.io/pvc-protection"]))
    );
    let mut classed = made;
    classed.set(["spec", "storageClassName"], "fast").unwrap();
    assert_eq!(send(&server, "PUT", &format!("{claims}/a"), &classed).status, 200);
}

#[test]
fn selectors_are_read_before_the_options_of_a_deletion() {
    let server = start();
    let refused = send(
        &server,
        "DELETE",
        &format!("{CONFIG_MAPS}?labelSelector=x%20in"),
        &value!({"propagationPolicy": "Other"}),
    );
    assert_eq!(refused.status, 400);
}

#[test]
fn a_status_of_most_kinds_is_written_with_its_metadata() {
    let server = start();
    let ingress = value!({"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "a"},
        "spec": {"rules": [{"host": "a.example.com"}]}});
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    let mut changed = create(&server, ingresses, &ingress);
    changed.set(["metadata", "labels"], value!({"from": "status"})).unwrap();
    changed.set(["spec", "rules"], value!([{"host": "b.example.com"}])).unwrap();
    let stored = send(&server, "PUT", &format!("{ingresses}/a/status"), &changed).value();
    assert_eq!(stored.str_at(["metadata", "labels", "from"]), Some("status"));
    let host = stored.get_path(["spec", "rules"]).and_then(|rules| rules.index(0)?.get("host"));
    assert_eq!(host, Some(&value!("a.example.com")));
}

#[test]
fn an_apply_that_changes_nothing_has_no_time() {
    let server = start();
    let mut object = config_map("a");
    object.set(["metadata", "labels"], value!({"app": "a"})).unwrap();
    create(&server, CONFIG_MAPS, &object);
    let path = format!("{CONFIG_MAPS}/a?fieldManager=ann");
    let applied = patch(&server, &path, "application/apply-patch+yaml", &object).value();
    let managers =
        applied.get_path(["metadata", "managedFields"]).and_then(Value::as_list).unwrap();
    let time = |name: &str| {
        let entry = managers.iter().find(|entry| entry.str_at(["manager"]) == Some(name));
        entry.expect("a manager").get("time").cloned()
    };
    assert_eq!(time("ann"), None);
    assert!(time("unknown").is_some());
}

#[test]
fn a_later_deletion_decides_about_dependents() {
    let server = start();
    create(&server, CONFIG_MAPS, &config_map("a"));
    let path = format!("{CONFIG_MAPS}/a");
    let orphaned = send(&server, "DELETE", &path, &value!({"propagationPolicy": "Orphan"})).value();
    assert_eq!(orphaned.get_path(["metadata", "finalizers"]), Some(&value!(["orphan"])));
    let again = send(&server, "DELETE", &path, &Value::Null).value();
    assert_eq!(again.get_path(["metadata", "finalizers"]), Some(&value!(["orphan"])));
    let gone = send(&server, "DELETE", &path, &value!({"propagationPolicy": "Background"})).value();
    assert_eq!(gone.str_at(["status"]), Some("Success"));
}

#[test]
fn bad_versions_and_bad_base64_are_told_as_go_tells_them() {
    let server = start();
    let mut object = config_map("a");
    create(&server, CONFIG_MAPS, &object);
    object.set(["metadata", "resourceVersion"], "x").unwrap();
    assert_eq!(send(&server, "PUT", &format!("{CONFIG_MAPS}/a"), &object).status, 500);
    for (text, at) in
        [("2", 0), ("MQ=", 3), ("MQ==x", 4), ("MQ!=", 2), ("MTIzN", 4), ("M===", 1), ("MQ=x", 2)]
    {
        let secret = value!({"metadata": {"name": "a"}, "data": {"a": text}});
        let refused = send(&server, "POST", "/api/v1/namespaces/default/secrets", &secret);
        assert!(
            message(&refused).ends_with(&format!("illegal base64 data at input byte {at}")),
            "{text}: {}",
            message(&refused)
        );
    }
}

#[test]
fn the_bookmark_after_the_first_events_is_a_typed_object() {
    let server = start();
    let request = ApiRequest::new(
        "GET",
        "/apis/apps/v1/deployments?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true",
    );
    let kiln_apiserver::ResponseOrWatch::Watch(mut watch) = server.handle(&request) else {
        panic!("no watch")
    };
    let told = watch.next(&server);
    let event = json::parse(std::str::from_utf8(&told).unwrap().trim()).unwrap();
    assert_eq!(event.str_at(["type"]), Some("BOOKMARK"));
    assert_eq!(event.get_path(["object", "status"]), Some(&Value::map()));
}
