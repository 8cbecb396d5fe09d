//! Definitions, objects and bodies that are meant to break a server: each is answered with a `Status`, after bounded
//! work, and the server goes on.

use std::time::Duration;

use kiln_apiserver::{ApiRequest, Response, Server, Settings};
use kiln_testkit::server::{create, get, send, start, start_with};
use kiln_value::{Map, Value, json, value};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const THINGS: &str = "/apis/example.com/v1/namespaces/default/things";
/// No request may compute for longer, with the slowest build.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long this thread has computed, where the system tells: other processes of the machine do not count.
fn computed() -> Duration {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = told.split_whitespace().next().and_then(|first| first.parse().ok());
    Duration::from_nanos(nanoseconds.unwrap_or(0))
}

/// A definition whose `spec` has this schema.
fn definition(spec: Value) -> Value {
    let mut definition = value!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced",
            "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {}}}}}]}});
    let schema = definition
        .get_path_mut(["spec", "versions"])
        .and_then(Value::as_list_mut)
        .and_then(|versions| versions.first_mut())
        .and_then(|version| version.get_path_mut(["schema", "openAPIV3Schema", "properties"]));
    let _ = schema.expect("a schema").set(["spec"], spec);
    definition
}

fn thing(spec: Value) -> Value {
    let mut thing =
        value!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "t"}});
    let _ = thing.set(["spec"], spec);
    thing
}

/// Sends something that must be answered soon.
fn soon(server: &Server, method: &str, path: &str, body: &Value) -> Response {
    let before = computed();
    let response = send(server, method, path, body);
    let took = computed().saturating_sub(before);
    assert!(took < PATIENCE, "{method} {path} computed for {took:?}");
    assert!(response.body.len() < 4 << 20, "an answer of {} bytes", response.body.len());
    let health = get(server, "/healthz");
    assert_eq!(health.status, 200, "the server is well");
    response
}

/// Asserts that an answer is a refusal with these words in its message.
fn assert_refused(response: &Response, status: u16, words: &str) {
    let value = response.value();
    let message = value.str_at(["message"]).unwrap_or_default();
    let short: String = message.chars().take(500).collect();
    assert_eq!(response.status, status, "{short}");
    assert_eq!(value.str_at(["kind"]), Some("Status"));
    assert!(message.contains(words), "{short}");
}

/// A server that has this definition.
fn defined(spec: Value) -> Server {
    let server = start();
    create(&server, DEFINITIONS, &definition(spec));
    server
}

#[test]
fn references_bad_patterns_and_bad_rules_are_refused() {
    for (spec, words) in [
        (
            value!({"type": "object", "properties": {"a": {"$ref": "#/properties/spec"}}}),
            "properties[spec].properties[a].$ref: Forbidden: $ref is not supported",
        ),
        (
            value!({"type": "string", "pattern": "(a"}),
            "properties[spec].pattern: Invalid value: \"(a\": must be a valid regular expression",
        ),
        (
            value!({"type": "string", "pattern": "((a{1,1000}){1,1000}){1,1000}"}),
            "must be a valid regular expression",
        ),
        (
            value!({"type": "object", "x-kubernetes-validations": [{"rule": "self.all("}]}),
            "x-kubernetes-validations[0].rule: Invalid value: \"self.all(\": compilation failed",
        ),
    ] {
        let server = start();
        let refused = soon(&server, "POST", DEFINITIONS, &definition(spec));
        assert_refused(&refused, 422, words);
        assert_eq!(get(&server, THINGS).status, 404);
    }
}

#[test]
fn huge_schemas_are_refused_or_used() {
    let server = start();
    let mut wide = value!({"type": "string"});
    let any = vec![value!({"enum": ["a"]}); 60_000];
    let _ = wide.set(["anyOf"], Value::from(any));
    assert!(soon(&server, "POST", DEFINITIONS, &definition(wide)).status == 201);
    let server = start();
    let mut wider = value!({"type": "string"});
    let _ = wider.set(["anyOf"], Value::from(vec![value!({}); 300_000]));
    let refused = soon(&server, "POST", DEFINITIONS, &definition(wider));
    assert_refused(&refused, 422, "must have at most 200000 parts");
    let mut patterns = value!({"type": "string"});
    let all = (0..6000).map(|i| {
        let mut one = Value::map();
        let _ = one.set(["pattern"], format!("^a{{{i}}}$"));
        one
    });
    let _ = patterns.set(["anyOf"], all.collect::<Value>());
    let refused = soon(&server, "POST", DEFINITIONS, &definition(patterns));
    assert_refused(&refused, 422, "");
}

#[test]
fn deep_schemas_and_objects_are_bounded() {
    let server = start();
    let schema = |depth: usize| {
        let field = |inner: Value, _: usize| {
            let mut schema = value!({"type": "object", "properties": {"a": {}}});
            let _ = schema.set(["properties", "a"], inner);
            schema
        };
        (0..depth).fold(value!({"type": "string"}), field)
    };
    let object = |depth: usize| {
        (0..depth).fold(Value::from("x"), |inner, _| {
            let mut object = Value::map();
            let _ = object.set(["a"], inner);
            object
        })
    };
    // Each level of a schema is two of JSON.
    let created = soon(&server, "POST", DEFINITIONS, &definition(schema(40)));
    assert_eq!(created.status, 201, "{}", String::from_utf8_lossy(&created.body));
    assert_eq!(soon(&server, "POST", THINGS, &thing(object(40))).status, 201);
    let text = |open: &str, depth: usize| open.repeat(depth);
    for open in ["[", "{\"properties\":{\"a\":", "{\"allOf\":[", "{\"items\":"] {
        let body = text(open, 60_000);
        let request = ApiRequest::new("POST", DEFINITIONS).with_body("application/json", body);
        assert_refused(&server.call(&request), 400, "");
    }
}

#[test]
fn alternatives_of_alternatives_cost_a_bounded_number_of_steps() {
    // Every element is compared with nine hundred schemas, twice.
    let alternative = value!({"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"});
    let alternatives = Value::from(vec![alternative; 900]);
    let mut items = value!({"type": "string"});
    let _ = items.set(["allOf"], alternatives.clone());
    let _ = items.set(["oneOf"], alternatives);
    let mut spec = value!({"type": "array"});
    let _ = spec.set(["items"], items);
    let server = defined(spec);
    let many = Value::from(vec![Value::from("abc"); 100_000]);
    let refused = soon(&server, "POST", THINGS, &thing(many));
    assert_refused(&refused, 422, "Thing.example.com \"t\" is invalid");
    assert_eq!(get(&server, &format!("{THINGS}/t")).status, 404);
}

#[test]
fn alternatives_against_many_fields_cost_a_bounded_number_of_steps() {
    const FIELDS: usize = 12_000;
    let fields: Map = (0..FIELDS).map(|i| (format!("f{i}"), Value::from(1))).collect();
    let alternatives =
        |one: fn(String) -> Value| -> Value { (0..FIELDS).map(|i| one(format!("f{i}"))).collect() };
    // All of them fit. The first says nothing of what is in the fields; the second would have to look at all of them each
    // time.
    for (one, status) in [
        ((|field| value!({"required": [field]})) as fn(String) -> Value, 201),
        (
            |field| {
                let mut one = value!({"required": [(field.as_str())], "properties": {}});
                one.set(["properties", field.as_str()], value!({"type": "integer"})).unwrap();
                one
            },
            422,
        ),
    ] {
        let mut spec = value!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        spec.set(["allOf"], alternatives(one)).unwrap();
        let server = defined(spec);
        let before = computed();
        let answer = soon(&server, "POST", THINGS, &thing(Value::Map(fields.clone())));
        match status {
            201 => assert_eq!(answer.status, 201),
            _ => assert_refused(&answer, status, "too many checks of such an object"),
        }
        let took = computed().saturating_sub(before);
        assert!(took < Duration::from_secs(10), "computed for {took:?}");
    }
}

#[test]
fn one_number_makes_no_more_pods_than_the_server_holds() {
    let server = start_with(Settings { pods: 20, ..Settings::default() });
    let template = value!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut deployment = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": 2_147_483_647, "selector": {"matchLabels": {"a": "b"}}}});
    deployment.set(["spec", "template"], template.clone()).unwrap();
    deployment
        .set(["spec", "strategy"], value!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "9223372036854775807%"}}))
        .unwrap();
    let mut job = value!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "run"},
        "spec": {"parallelism": 2_147_483_647}});
    job.set(["spec", "template"], template).unwrap();
    job.set(["spec", "template", "spec", "restartPolicy"], "Never").unwrap();
    create(&server, "/apis/apps/v1/namespaces/default/deployments", &deployment);
    create(&server, "/apis/batch/v1/namespaces/default/jobs", &job);
    for _ in 0..3 {
        server.settle();
    }
    let items = |path: &str| {
        get(&server, path).value().get("items").and_then(Value::as_list).unwrap().to_vec()
    };
    assert_eq!(items("/api/v1/pods").len(), 20);
    let warnings: Vec<(String, String)> = items("/api/v1/events?fieldSelector=type=Warning")
        .iter()
        .map(|event| {
            let text =
                |path: &[&str]| event.str_at(path.iter().copied()).unwrap_or_default().to_owned();
            (text(&["involvedObject", "kind"]), text(&["message"]))
        })
        .collect();
    let mut kinds: Vec<&str> = warnings.iter().map(|(kind, _)| kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["Job", "ReplicaSet"], "each is reported once");
    let why = "a sandbox makes at most 20 pods for workloads, and there are 20 already";
    assert!(warnings.iter().all(|(_, message)| message == why), "{warnings:?}");
    // What no Go program could read is not a number of replicas.
    let scale = "/apis/apps/v1/namespaces/default/deployments/web/scale";
    for replicas in ["99999999999999", "1.5", "\"x\""] {
        let request = ApiRequest::new("PATCH", scale).with_body(
            "application/merge-patch+json",
            format!(r#"{{"spec":{{"replicas":{replicas}}}}}"#),
        );
        assert_refused(&server.call(&request), 400, "ScaleSpec.spec.replicas of type int32");
    }
    // And when less is asked for, there is less.
    let request = ApiRequest::new("PATCH", scale)
        .with_body("application/merge-patch+json", r#"{"spec":{"replicas":3}}"#);
    assert_eq!(server.call(&request).status, 200);
    server.settle();
    let sets = items("/api/v1/pods?labelSelector=a=b,pod-template-hash");
    assert_eq!(sets.len(), 3);
}

#[test]
fn names_of_roles_are_parts_of_a_path() {
    let server = start();
    let roles = "/apis/rbac.authorization.k8s.io/v1/clusterroles";
    for (name, why) in [
        ("a\0b", "may not contain control characters"),
        ("a\nb", "may not contain control characters"),
        ("a\u{85}b", "may not contain control characters"),
        ("a/b", "may not contain '/'"),
        ("a%2fb", "may not contain '%'"),
        (".", "may not be '.'"),
        ("..", "may not be '..'"),
    ] {
        let role = value!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name}});
        assert_refused(&send(&server, "POST", roles, &role), 422, why);
    }
}

#[test]
fn answers_about_huge_enumerations_are_short() {
    let known: Value = (0..100_000).map(|i| Value::from(format!("value-{i}"))).collect();
    let mut items = value!({"type": "string"});
    let _ = items.set(["enum"], known);
    let mut spec = value!({"type": "array"});
    let _ = spec.set(["items"], items);
    let server = defined(spec);
    let long = "x".repeat(500_000);
    let refused =
        soon(&server, "POST", THINGS, &thing(Value::from(vec![Value::from(long.as_str()); 4])));
    assert_refused(&refused, 422, "Unsupported value");
    assert!(refused.body.len() < 1 << 20, "{} bytes", refused.body.len());
}

#[test]
fn giant_defaults_are_refused_when_they_would_be_stored() {
    // A megabyte for each of a thousand elements.
    let mut spec = value!({"type": "array", "items": {"type": "object", "properties": {"x": {"type": "string"}}}});
    let _ = spec.set(["items", "properties", "x", "default"], "y".repeat(1 << 20));
    let server = defined(spec);
    assert_eq!(soon(&server, "POST", THINGS, &thing(value!([{}]))).status, 201);
    let mut second = thing(Value::from(vec![Value::map(); 1000]));
    let _ = second.set(["metadata", "name"], "u");
    let refused = soon(&server, "POST", THINGS, &second);
    assert_refused(&refused, 413, "too large to be stored");
    // Defaults of defaults: a hundred to the power of six.
    let hundred = Value::from(vec![Value::map(); 100]);
    let spec = (0..6).fold(value!({"type": "object"}), |inner, _| {
        let mut schema = value!({"type": "object", "properties": {"x": {"type": "array"}}});
        let _ = schema.set(["properties", "x", "default"], hundred.clone());
        let _ = schema.set(["properties", "x", "items"], inner);
        schema
    });
    let server = defined(spec);
    assert_refused(&soon(&server, "POST", THINGS, &thing(value!({}))), 413, "with its defaults");
}

#[test]
fn rules_have_a_budget_for_the_whole_object() {
    // Each element is looked at by every element.
    let spec = value!({"type": "array", "items": {"type": "integer"},
        "x-kubernetes-validations": [{"rule": "self.all(x, self.all(y, x + y >= 0))"}]});
    let server = defined(spec);
    let many: Value = (0..20_000).map(Value::from).collect();
    let refused = soon(&server, "POST", THINGS, &thing(many));
    assert_refused(&refused, 422, "cost limit exceeded");
    // A cheap rule, very often.
    let spec = value!({"type": "array", "items": {"type": "integer",
        "x-kubernetes-validations": [{"rule": "self >= 0 && self < 10000000"}]}});
    let server = defined(spec);
    let few: Value = (0..1000).map(Value::from).collect();
    assert_eq!(soon(&server, "POST", THINGS, &thing(few)).status, 201);
    let mut second = thing(Value::from(vec![Value::from(1); 500_000]));
    let _ = second.set(["metadata", "name"], "u");
    let refused = soon(&server, "POST", THINGS, &second);
    assert_refused(&refused, 422, "running out of cost budget");
}

#[test]
fn unknown_fields_by_the_hundred_thousand_are_taken_away() {
    let server = defined(value!({"type": "object"}));
    let many: Map = (0..100_000).map(|i| (format!("field-{i}"), Value::from(1))).collect();
    let created = soon(&server, "POST", THINGS, &thing(Value::Map(many.clone())));
    assert_eq!(created.status, 201);
    assert_eq!(created.value().get("spec"), Some(&Value::map()));
    let headers: usize = created
        .headers
        .iter()
        .filter(|(name, _)| name == "Warning")
        .map(|(_, text)| text.len())
        .sum();
    assert!(headers < 8192, "{headers} bytes of warnings");
    let path = format!("{THINGS}?fieldValidation=Strict");
    let refused = soon(&server, "POST", &path, &thing(Value::Map(many.clone())));
    assert_refused(&refused, 400, "strict decoding error: unknown field \"spec.field-");
    // The same in a built-in kind.
    let mut map = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m"}});
    let fields = map.as_map_mut().expect("a map");
    fields.extend(many.iter().map(|(key, value)| (key.clone(), value.clone())));
    let path = "/api/v1/namespaces/default/configmaps";
    let created = soon(&server, "POST", path, &map);
    assert_eq!(created.status, 201);
}

#[test]
fn long_keys_above_many_values_are_not_copied_for_each() {
    let spec = value!({"type": "object", "additionalProperties": {"type": "object",
        "additionalProperties": {"type": "string", "maxLength": 1}}});
    let server = defined(spec);
    let inner: Map = (0..50_000).map(|i| (format!("k{i}"), Value::from("v"))).collect();
    let mut outer = Map::new();
    outer.insert("x".repeat(1 << 20), Value::Map(inner));
    let answer = soon(&server, "POST", THINGS, &thing(Value::Map(outer)));
    assert!([201, 413, 422].contains(&answer.status), "{}", answer.status);
}

/// Bodies that kubectl sends, with bytes changed by a fixed rule.
#[test]
fn mangled_protobuf_is_refused_or_understood() {
    let server = start();
    // A ConfigMap with a name and data, in its envelope.
    let inner = b"\x0a\x05\x0a\x01m\x1a\x00\x12\x08\x0a\x01k\x12\x03val";
    let mut body = b"k8s\0\x0a\x0f\x0a\x02v1\x12\x09ConfigMap\x12".to_vec();
    body.push(u8::try_from(inner.len()).expect("short"));
    body.extend_from_slice(inner);
    let path = "/api/v1/namespaces/default/configmaps";
    let ask = |body: Vec<u8>| {
        let request =
            ApiRequest::new("POST", path).with_body("application/vnd.kubernetes.protobuf", body);
        server.call(&request)
    };
    assert_eq!(ask(body.clone()).status, 201);
    let (mut refused, mut seed) = (0, 0x2545_f491_4f6c_dd1d_u64);
    for _ in 0..4000 {
        let mut mangled = body.clone();
        for _ in 0..=(seed % 3) {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let at = usize::try_from(seed >> 33).expect("small") % mangled.len();
            let byte = u8::try_from((seed >> 20) & 0xff).expect("a byte");
            match seed % 4 {
                0 => mangled.truncate(at.max(1)),
                1 => mangled.insert(at, byte),
                _ => mangled[at] = byte,
            }
        }
        let response = ask(mangled);
        assert!(response.status < 500, "{}", String::from_utf8_lossy(&response.body));
        refused += usize::from(response.status >= 400);
        let parsed = json::parse(&String::from_utf8_lossy(&response.body));
        assert!(parsed.is_ok(), "an answer is JSON");
    }
    assert!(refused > 1000, "{refused} of 4000");
}
