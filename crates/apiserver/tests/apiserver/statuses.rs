//! Hand-made requests whose answers were recorded from a real API server: status, reason, message, details.

use kiln_apiserver::{ApiRequest, Authorization, Server, Settings};
use kiln_testkit::server::{create, send, start_with};
use kiln_testkit::{Tally, corpus_json, difference};
use kiln_value::{Value, json, value};

const CONFIG_MAPS: &str = "/api/v1/namespaces/brk/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/brk/deployments";

fn config_map(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

fn with(mut object: Value, path: &[&str], value: Value) -> Value {
    object.set(path.iter().copied(), value).expect("a path");
    object
}

fn prepared() -> Server {
    let settings =
        Settings { workloads: false, authorization: Authorization::Rbac, ..Settings::default() };
    let server = start_with(settings);
    create(
        &server,
        "/api/v1/namespaces",
        &value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "brk"}}),
    );
    server.settle();
    create(&server, CONFIG_MAPS, &config_map("e1"));
    let deployment = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c", "image": "nginx"}]}}}});
    create(&server, DEPLOYMENTS, &deployment);
    server
}

fn json_request(method: &str, path: &str, body: &Value) -> ApiRequest {
    ApiRequest::new(method, path).with_body("application/json", json::to_string(body))
}

fn patch_request(path: &str, kind: &str, body: &str) -> ApiRequest {
    ApiRequest::new("PATCH", path).with_body(kind, body)
}

/// What was asked, by the name of the recorded answer.
fn requests(server: &Server) -> Vec<(&'static str, ApiRequest)> {
    let post = |body: &Value| json_request("POST", CONFIG_MAPS, body);
    let one = format!("{CONFIG_MAPS}/e1");
    let apply = "application/apply-patch+yaml";
    let applied =
        r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"e2"},"data":{"a":"1"}}"#;
    let e2 = format!("{CONFIG_MAPS}/e2");
    // A manager applies what others come into conflict with.
    server.call(&patch_request(&format!("{e2}?fieldManager=m1"), apply, applied));
    let as_jane = |request: ApiRequest| request.with_header("Impersonate-User", "jane");
    vec![
        ("get missing object", ApiRequest::new("GET", &format!("{CONFIG_MAPS}/nope"))),
        ("get missing grouped object", ApiRequest::new("GET", &format!("{DEPLOYMENTS}/nope"))),
        ("unknown path under known group", ApiRequest::new("GET", "/apis/apps/v1/nope")),
        ("unknown group", ApiRequest::new("GET", "/apis/nope.example.com/v1/things")),
        ("unknown version of known group", ApiRequest::new("GET", "/apis/apps/v9/deployments")),
        ("unknown subresource", ApiRequest::new("GET", &format!("{one}/nope"))),
        ("method not allowed", ApiRequest::new("POST", &one)),
        ("PUT on collection", json_request("PUT", CONFIG_MAPS, &config_map("e1"))),
        ("already exists", post(&config_map("e1"))),
        ("create in missing namespace", json_request("POST", "/api/v1/namespaces/nons/configmaps", &config_map("x"))),
        ("namespace mismatch", post(&with(config_map("x"), &["metadata", "namespace"], value!("other")))),
        ("name mismatch on PUT", json_request("PUT", &one, &config_map("e9"))),
        ("resourceVersion on create", post(&with(config_map("x"), &["metadata", "resourceVersion"], value!("1")))),
        ("no name", post(&value!({"apiVersion": "v1", "kind": "ConfigMap"}))),
        ("bad name", post(&config_map("Bad_Name"))),
        ("bad label", post(&with(config_map("e5"), &["metadata", "labels", "a b"], value!("c")))),
        ("bad annotation key", post(&with(config_map("e5"), &["metadata", "annotations", "a b"], value!("c")))),
        ("bad finalizer", post(&with(config_map("e5"), &["metadata", "finalizers"], value!(["nodomain"])))),
        ("wrong kind in body", post(&value!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}))),
        ("wrong apiVersion in body", post(&value!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "x"}}))),
        ("broken JSON", ApiRequest::new("POST", CONFIG_MAPS).with_body("application/json", r#"{"a":"#)),
        ("empty body", ApiRequest::new("POST", CONFIG_MAPS).with_body("application/json", "")),
        ("wrong field type", post(&with(config_map("x"), &["data", "a"], value!(1)))),
        ("unknown field strict", json_request("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict"), &with(config_map("x"), &["dta"], value!({})))),
        ("duplicate field strict", ApiRequest::new("POST", &format!("{CONFIG_MAPS}?fieldValidation=Strict")).with_body("application/json", r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{},"data":{}}"#)),
        ("bad fieldValidation", json_request("POST", &format!("{CONFIG_MAPS}?fieldValidation=Foo"), &config_map("x"))),
        ("bad dryRun", json_request("POST", &format!("{CONFIG_MAPS}?dryRun=Some"), &config_map("x"))),
        ("unsupported media type", ApiRequest::new("POST", CONFIG_MAPS).with_body("text/plain", "x")),
        ("unsupported patch type", patch_request(&one, "application/json", "{}")),
        ("not acceptable", ApiRequest::new("GET", &one).with_header("Accept", "text/html")),
        ("PUT stale resourceVersion", json_request("PUT", &one, &with(config_map("e1"), &["metadata", "resourceVersion"], value!("1")))),
        ("PUT missing object (no create on update)", json_request("PUT", &format!("{CONFIG_MAPS}/e77"), &config_map("e77"))),
        ("SSA without fieldManager", patch_request(&e2, apply, applied)),
        ("SSA conflict", patch_request(&format!("{e2}?fieldManager=m2"), apply, &applied.replace(r#""a":"1""#, r#""a":"2""#))),
        ("SSA with managedFields", patch_request(&format!("{e2}?fieldManager=m2"), apply, r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"e2","managedFields":[{"manager":"x"}]}}"#)),
        ("json patch bad path", patch_request(&one, "application/json-patch+json", r#"[{"op":"remove","path":"/data/zz"}]"#)),
        ("json patch test fails", patch_request(&one, "application/json-patch+json", r#"[{"op":"test","path":"/data/a","value":"9"}]"#)),
        ("json patch malformed", patch_request(&one, "application/json-patch+json", "{}")),
        ("patch missing", patch_request(&format!("{CONFIG_MAPS}/nope"), "application/merge-patch+json", "{}")),
        ("patch stale rv", patch_request(&one, "application/merge-patch+json", r#"{"metadata":{"resourceVersion":"1"}}"#)),
        ("force on merge patch", patch_request(&format!("{one}?force=true"), "application/merge-patch+json", "{}")),
        ("immutable field", patch_request(&format!("{DEPLOYMENTS}/web"), "application/merge-patch+json", r#"{"spec":{"selector":{"matchLabels":{"q":"r"}}}}"#)),
        ("delete bad propagation", json_request("DELETE", &one, &value!({"propagationPolicy": "Foo"}))),
        ("delete missing", ApiRequest::new("DELETE", &format!("{CONFIG_MAPS}/e1x"))),
        ("forbidden", as_jane(ApiRequest::new("GET", CONFIG_MAPS))),
        ("forbidden named", as_jane(ApiRequest::new("DELETE", &format!("{DEPLOYMENTS}/web")))),
        ("forbidden cluster scope", as_jane(ApiRequest::new("GET", "/api/v1/nodes"))),
        ("forbidden nonresource", as_jane(ApiRequest::new("GET", "/metrics"))),
        ("bad token", ApiRequest::new("GET", CONFIG_MAPS).with_header("Authorization", "Bearer nope")),
        ("too large", post(&with(config_map("big"), &["data", "a"], Value::from("x".repeat(1_100_000))))),
        ("healthz", ApiRequest::new("GET", "/healthz")),
        ("apps group", ApiRequest::new("GET", "/apis/apps")),
    ]
}

#[test]
fn failures_are_told_in_the_recorded_words() {
    let Some(recordings) = corpus_json("kubectl/recordings.json") else { return };
    let recorded = recordings.get("status_bodies").expect("bodies");
    let server = prepared();
    let mut tally = Tally::new("answers to hand-made requests");
    for (name, request) in requests(&server) {
        tally.case(name, || {
            let wanted = recorded.get(name).ok_or("it was not recorded")?;
            let answer = server.call(&request);
            let status = wanted.get("status").and_then(Value::as_i64).unwrap_or(0);
            let text = String::from_utf8_lossy(&answer.body).into_owned();
            if i64::from(answer.status) != status {
                return Err(format!("{} instead of {status}: {text}", answer.status));
            }
            let body = wanted.get("body").cloned().unwrap_or_default();
            if let Value::String(wanted) = &body {
                return if *wanted == text.as_str() {
                    Ok(())
                } else {
                    Err(format!("{text:?} instead of {wanted:?}"))
                };
            }
            let pretty = |value: &Value| {
                let sorted = json::parse(&json::to_canonical_string(value)).expect("JSON");
                json::to_string_pretty(&sorted).replace("e1x", "e1")
            };
            difference(&pretty(&body), &pretty(&answer.value())).map_or(Ok(()), Err)
        });
    }
    tally.finish();
}

#[test]
fn dry_runs_store_nothing() {
    let server = prepared();
    let revision = server.revision();
    let answer = send(&server, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("dry"));
    assert_eq!(answer.status, 201);
    assert!(answer.value().get_path(["metadata", "resourceVersion"]).is_none());
    assert!(answer.value().get_path(["metadata", "uid"]).is_some());
    assert_eq!(server.revision(), revision);
}
