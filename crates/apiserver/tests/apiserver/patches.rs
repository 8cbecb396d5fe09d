//! What a real API server answered to patches, at the level of whole requests.

use std::collections::HashMap;

use kiln_apiserver::{ApiRequest, Server, Settings};
use kiln_testkit::server::{create, get, send, start_with};
use kiln_testkit::{Tally, corpus, corpus_json, difference};
use kiln_value::{Value, json, value};

/// A server with the namespace and the kinds of the recorded cases.
fn prepared() -> Option<Server> {
    let definitions = corpus_json("apiserver/crds.json")?;
    // Recorded without accounts.
    let server = start_with(Settings { workloads: false, accounts: false, ..Settings::default() });
    create(
        &server,
        "/api/v1/namespaces",
        &value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "patches"}}),
    );
    server.settle();
    let list = definitions.as_list().or_else(|| definitions.get("items").and_then(Value::as_list));
    let list: Vec<Value> = match list {
        Some(list) => list.to_vec(),
        None => definitions.as_map().expect("definitions").values().cloned().collect(),
    };
    for definition in list.iter().filter(|definition| definition.get("kind").is_some()) {
        create(&server, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition);
    }
    Some(server)
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// The path of the objects of a kind, and whether they belong to a namespace.
fn collection(server: &Server, api_version: &str, kind: &str) -> String {
    let prefix = if api_version.contains('/') {
        format!("/apis/{api_version}")
    } else {
        format!("/api/{api_version}")
    };
    let resources = get(server, &prefix).value();
    let resources =
        resources.get("resources").and_then(Value::as_list).expect("resources").to_vec();
    let of = |one: &&Value| text(one, "kind") == kind && !text(one, "name").contains('/');
    let found =
        resources.iter().find(of).unwrap_or_else(|| panic!("{api_version} {kind} is not served"));
    let name = text(found, "name");
    match found.get("namespaced").and_then(Value::as_bool) {
        Some(true) => format!("{prefix}/namespaces/patches/{name}"),
        _ => format!("{prefix}/{name}"),
    }
}

/// An object as the recorder wrote it down.
fn recorded(object: &Value, keep_status: bool) -> Value {
    let uid = object.str_at(["metadata", "uid"]).unwrap_or_default().to_owned();
    let mut object = object.clone();
    for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
        object.remove(["metadata", field]);
    }
    if !keep_status {
        object.remove(["status"]);
    }
    let text = json::to_string(&object);
    let text = if uid.is_empty() { text } else { text.replace(&uid, "<uid>") };
    json::parse(&text).expect("JSON")
}

fn pretty(value: &Value) -> String {
    let sorted = json::parse(&json::to_canonical_string(value)).expect("JSON");
    json::to_string_pretty(&sorted).replace(" -0\n", " 0\n")
}

fn same(wanted: &Value, got: &Value, what: &str) -> Result<(), String> {
    match difference(&pretty(wanted), &pretty(got)) {
        None => Ok(()),
        Some(difference) => Err(format!("{what}: {difference}")),
    }
}

/// The patches of a file, as they were sent: `1.0` is not `1`.
fn bodies(file: &str) -> Option<HashMap<String, String>> {
    let text = std::fs::read_to_string(corpus(file)?).ok()?;
    let recorded: serde_json::Value = serde_json::from_str(&text).ok()?;
    let cases = recorded["cases"].as_array()?.iter();
    Some(
        cases
            .map(|case| {
                (case["name"].as_str().unwrap_or_default().to_owned(), case["patch"].to_string())
            })
            .collect(),
    )
}

/// Takes an object away, whatever holds it.
fn clear(server: &Server, one: &str) {
    server.call(&ApiRequest::new("DELETE", one));
    if get(server, one).status == 404 {
        return;
    }
    let patch = r#"{"metadata":{"finalizers":null}}"#;
    server.call(&ApiRequest::new("PATCH", one).with_body("application/merge-patch+json", patch));
    server.settle();
}

/// Runs a file of single patches.
fn patches(file: &str, content_type: &str, name: &str) {
    let Some(cases) = corpus_json(file) else { return };
    let Some(bodies) = bodies(file) else { return };
    let Some(server) = prepared() else { return };
    let mut tally = Tally::new(name);
    for case in cases.get("cases").and_then(Value::as_list).expect("cases") {
        let case_name = text(case, "name").to_owned();
        tally.case(&case_name, || {
            let object = case.get("object").expect("an object");
            let path = collection(&server, text(object, "apiVersion"), text(object, "kind"));
            let one = format!("{path}/t");
            clear(&server, &one);
            let mut fresh = object.clone();
            // A Job's selector and labels are the server's.
            if text(object, "kind") == "Job" {
                fresh.remove(["metadata", "labels"]);
                fresh.remove(["spec", "selector"]);
                fresh.remove(["spec", "template", "metadata", "labels"]);
            }
            let made = send(&server, "POST", &path, &fresh);
            if made.status != 201 {
                return Err(format!("not created: {}", String::from_utf8_lossy(&made.body)));
            }
            let live = made.value();
            let substitute = |text: &str| {
                let field =
                    |name: &str| live.str_at(["metadata", name]).unwrap_or_default().to_owned();
                text.replace("<uid>", &field("uid")).replace("<version>", &field("resourceVersion"))
            };
            let body = match case.get("patchText").and_then(Value::as_str) {
                Some(body) => body.to_owned(),
                None => bodies[&case_name].clone(),
            };
            let request = ApiRequest::new("PATCH", &one)
                .with_header("User-Agent", "recorder/1")
                .with_body(content_type, substitute(&body));
            let answer = server.call(&request);
            if let Some(error) = case.get("error") {
                let status = error.get("status").and_then(Value::as_i64).unwrap_or(0);
                // A panic of the original is any refusal here.
                let fits =
                    status == 0 && answer.status >= 400 || i64::from(answer.status) == status;
                return if fits {
                    Ok(())
                } else {
                    Err(format!(
                        "{} instead of {status}: {}",
                        answer.status,
                        String::from_utf8_lossy(&answer.body)
                    ))
                };
            }
            if answer.status != 200 {
                return Err(format!("refused: {}", String::from_utf8_lossy(&answer.body)));
            }
            let got = recorded(&answer.value(), false);
            if let Some(Value::List(outcomes)) = case.get("outcomes") {
                let fits = outcomes.iter().any(|outcome| {
                    same(outcome.get("result").unwrap_or(outcome), &got, "").is_ok()
                });
                return if fits { Ok(()) } else { Err(format!("none of the outcomes: {got:?}")) };
            }
            let wanted = case.get("result").or_else(|| case.get("object"));
            same(wanted.expect("a result"), &got, "result")
        });
    }
    tally.finish();
}

#[test]
fn json_patches() {
    patches(
        "apiserver/json-patch.json",
        "application/json-patch+json",
        "requests with a JSON patch",
    );
}

#[test]
fn merge_patches() {
    patches(
        "apiserver/merge-patch.json",
        "application/merge-patch+json",
        "requests with a merge patch",
    );
}

#[test]
fn strategic_merge_patches() {
    patches(
        "apiserver/strategic-merge.json",
        "application/strategic-merge-patch+json",
        "requests with a strategic merge patch",
    );
}

/// The managers of an object as the recorder wrote them down.
fn managers(object: &Value) -> Value {
    let list = object.get_path(["metadata", "managedFields"]).and_then(Value::as_list);
    let mut all: Vec<Value> = list.map(|list| list.to_vec()).unwrap_or_default();
    for entry in &mut all {
        entry.remove(["time"]);
        entry.remove(["fieldsType"]);
    }
    all.sort_by_key(|entry| {
        ["operation", "manager", "subresource", "apiVersion"]
            .map(|field| text(entry, field).to_owned())
    });
    Value::from(all)
}

#[test]
fn applies() {
    let Some(cases) = corpus_json("apiserver/apply.json") else { return };
    let Some(server) = prepared() else { return };
    let mut tally = Tally::new("sequences of apply");
    tally.known_failure(
        "widget: scale subresource by apply",
        "the original cannot convert what it made; here it works",
    );
    for case in cases.get("cases").and_then(Value::as_list).expect("cases") {
        let case_name = text(case, "name").to_owned();
        tally.case(&case_name, || sequence(&server, case));
    }
    tally.finish();
}

fn sequence(server: &Server, case: &Value) -> Result<(), String> {
    let path = collection(server, text(case, "apiVersion"), text(case, "kind"));
    let one = format!("{path}/t");
    clear(server, &one);
    let steps = case.get("steps").and_then(Value::as_list).expect("steps").to_vec();
    let mut before = (Value::Null, Value::from(Vec::<Value>::new()));
    for (i, step) in steps.iter().enumerate() {
        let mut parameters: Vec<String> = Vec::new();
        if let Some(manager) = step.get("manager").and_then(Value::as_str) {
            let encoded: String = manager.bytes().map(|byte| format!("%{byte:02X}")).collect();
            parameters.push(format!("fieldManager={encoded}"));
        }
        if let Some(force) = step.get("force").and_then(Value::as_bool) {
            parameters.push(format!("force={force}"));
        }
        for (key, value) in
            step.get("query").and_then(Value::as_map).into_iter().flat_map(kiln_value::Map::iter)
        {
            parameters.push(format!("{key}={}", value.as_str().unwrap_or_default()));
        }
        let mut target = match step.get("version").and_then(Value::as_str) {
            Some(version) => {
                let version = if version.contains('/') {
                    version.to_owned()
                } else {
                    let group =
                        text(case, "apiVersion").split_once('/').map_or("", |(group, _)| group);
                    format!("{group}/{version}")
                };
                format!("{}/t", collection(server, &version, text(case, "kind")))
            }
            None => one.clone(),
        };
        if let Some(subresource) = step.get("subresource").and_then(Value::as_str) {
            target = format!("{target}/{subresource}");
        }
        let query = parameters.join("&");
        let body = step.get("body").cloned().unwrap_or_default();
        let (method, content_type) = match text(step, "verb") {
            "apply" => ("PATCH", "application/apply-patch+yaml"),
            "create" => ("POST", "application/json"),
            "update" => ("PUT", "application/json"),
            "json-patch" => ("PATCH", "application/json-patch+json"),
            "merge-patch" => ("PATCH", "application/merge-patch+json"),
            _ => ("PATCH", "application/strategic-merge-patch+json"),
        };
        let target = if method == "POST" { path.clone() } else { target };
        let live = get(server, &one).value();
        let body = match body {
            Value::String(text) => text.to_string(),
            mut body => {
                if text(step, "verb") == "update" {
                    let version =
                        live.get_path(["metadata", "resourceVersion"]).cloned().unwrap_or_default();
                    let _ = body.set(["metadata", "resourceVersion"], version);
                }
                json::to_string(&body)
            }
        };
        let uid = live.str_at(["metadata", "uid"]).unwrap_or_default();
        let body = if uid.is_empty() { body } else { body.replace("<uid>", uid) };
        let request = ApiRequest::new(method, &format!("{target}?{query}"))
            .with_header("User-Agent", "recorder/1")
            .with_body(content_type, body);
        let answer = server.call(&request);
        let status = step.get("status").and_then(Value::as_i64).unwrap_or(0);
        if i64::from(answer.status) != status {
            return Err(format!(
                "step {i}: {} instead of {status}: {}",
                answer.status,
                String::from_utf8_lossy(&answer.body)
            ));
        }
        if let Some(message) = step.get("message").and_then(Value::as_str)
            && status == 409
        {
            let got = answer.value();
            let got = text(&got, "message");
            if got != message && !message.ends_with("...") {
                return Err(format!("step {i}: says {got:?} instead of {message:?}"));
            }
        }
        let stored = get(server, &one);
        let is_last = i + 1 == steps.len();
        let (wanted, wanted_managers) = if is_last {
            (
                case.get("final").cloned().unwrap_or_default(),
                case.get("managedFields").cloned().unwrap_or_default(),
            )
        } else if step.get("unchanged").is_some() {
            before.clone()
        } else if step.get("after").is_some() {
            (Value::Null, Value::Null)
        } else {
            (
                step.get("object").cloned().unwrap_or_default(),
                step.get("managedFields").cloned().unwrap_or_default(),
            )
        };
        let object =
            if stored.status == 200 { recorded(&stored.value(), false) } else { Value::Null };
        same(&wanted, &object, &format!("step {i}, object"))?;
        if stored.status == 200 {
            let got = managers(&stored.value());
            same(&wanted_managers, &got, &format!("step {i}, managers"))?;
        }
        before = (wanted, wanted_managers);
    }
    clear(server, &one);
    Ok(())
}
