//! Webhooks and admission policies of others, and what says that it is not there.

use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kiln_apiserver::{ApiRequest, Response, Server, ServerHost, Settings, WebhookCall};
use kiln_testkit::server::{Still, create, get, send};
use kiln_value::{Value, json, value};

const CONFIG_MAPS: &str = "/api/v1/namespaces/default/configmaps";
const REGISTRATION: &str = "/apis/admissionregistration.k8s.io/v1";

/// The addresses that were asked, and what for.
type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A world with one webhook, which writes down what it is asked.
struct Hooked {
    still: Still,
    asked: Asked,
}

impl ServerHost for Hooked {
    fn now(&self) -> (i64, u32) {
        self.still.now()
    }

    fn random(&self) -> u64 {
        self.still.random()
    }

    fn call(&self, call: &WebhookCall) -> Result<Vec<u8>, String> {
        let review = json::parse(std::str::from_utf8(&call.body).unwrap()).unwrap();
        let uid = review.str_at(["request", "uid"]).unwrap().to_owned();
        let request = review.get("request").unwrap().clone();
        self.asked.lock().unwrap().push((call.url.clone(), request));
        let mut response = value!({"uid": uid, "allowed": true});
        let deletes = review.str_at(["request", "operation"]) == Some("DELETE");
        if call.url.contains("/mutate") && !deletes || call.url.contains("/always") {
            let patch = r#"[{"op":"add","path":"/data","value":{"by":"hook"}}]"#;
            let _ = response.set(["patch"], STANDARD.encode(patch));
            let _ = response.set(["patchType"], "JSONPatch");
        } else if let Some((_, rest)) = call.url.split_once("/patch/") {
            let (patch, _) = rest.split_once('?').unwrap();
            let _ = response.set(["patch"], patch);
            let _ = response.set(["patchType"], "JSONPatch");
        } else if call.url.contains("/deny") {
            let _ = response.set(["allowed"], false);
            let _ = response.set(["status"], value!({"message": "not today", "code": 403}));
        } else if call.url.contains("/warn") {
            let _ = response.set(["warnings"], value!(["mind the gap"]));
        } else if call.url.contains("/dead") {
            return Err("connection refused".to_owned());
        }
        let mut answer = value!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"});
        let _ = answer.set(["response"], response);
        Ok(json::to_string(&answer).into_bytes())
    }
}

fn hooked() -> (Server, Asked) {
    let asked = Asked::default();
    let world = Hooked { still: Still::default(), asked: Arc::clone(&asked) };
    let settings = Settings { workloads: false, ..Settings::default() };
    (Server::new(settings, Box::new(world)), asked)
}

/// Registers a webhook for ConfigMaps; `more` are fields of its own.
fn register(server: &Server, kind: &str, name: &str, config: &Value, more: &Value) {
    let mut webhook = value!({
        "name": (format!("{name}.example.com")), "sideEffects": "None", "admissionReviewVersions": ["v1"],
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE", "UPDATE", "DELETE"], "resources": ["configmaps"]}],
    });
    let _ = webhook.set(["clientConfig"], config.clone());
    for (field, value) in more.as_map().unwrap() {
        let _ = webhook.set([field.as_str()], value.clone());
    }
    let mut configuration = value!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": (format!("{kind}WebhookConfiguration")), "metadata": {"name": name}});
    let _ = configuration.set(["webhooks"], Value::from(vec![webhook]));
    let path = format!("{REGISTRATION}/{}webhookconfigurations", kind.to_lowercase());
    create(server, &path, &configuration);
}

fn url(path: &str) -> Value {
    value!({"url": (format!("https://hooks.example.com/{path}"))})
}

fn config_map(name: &str) -> Value {
    value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}})
}

fn message(response: &Response) -> String {
    response.value().str_at(["message"]).unwrap_or_default().to_owned()
}

#[test]
fn webhooks_change_and_see_what_others_changed() {
    let (server, asked) = hooked();
    register(&server, "Mutating", "first", &url("mutate"), &value!({}));
    register(&server, "Validating", "second", &url("warn"), &value!({"timeoutSeconds": 7}));
    let answer = send(&server, "POST", CONFIG_MAPS, &config_map("a"));
    assert_eq!(answer.status, 201);
    assert_eq!(answer.value().str_at(["data", "by"]), Some("hook"));
    assert_eq!(answer.header("Warning"), Some("299 - \"mind the gap\""));
    let deleted = server.call(&ApiRequest::new("DELETE", &format!("{CONFIG_MAPS}/a")));
    assert_eq!(deleted.status, 200);
    let asked = asked.lock().unwrap();
    let told: Vec<_> = asked
        .iter()
        .map(|(url, request)| {
            let text = |path: &[&str]| request.str_at(path.iter().copied()).unwrap_or("-");
            let data = |of: &'static str| text(&[of, "data", "by"]);
            format!("{url} {} {} {}", text(&["operation"]), data("object"), data("oldObject"))
        })
        .collect();
    assert_eq!(
        told,
        [
            "https://hooks.example.com/mutate?timeout=10s CREATE - -",
            "https://hooks.example.com/warn?timeout=7s CREATE hook -",
            "https://hooks.example.com/mutate?timeout=10s DELETE - hook",
            "https://hooks.example.com/warn?timeout=7s DELETE - hook",
        ]
    );
}

#[test]
fn what_webhooks_and_policies_make_is_decoded_as_what_clients_send() {
    const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = value!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}, "spec": {
        "replicas": 1, "selector": {"matchLabels": {"app": "a"}},
        "template": {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "a", "image": "a"}]}}}});
    let replicas = "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
    let label = "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string";
    for (path, value, wrong) in [
        ("/spec/replicas", value!("lots"), replicas),
        ("/metadata/labels", value!({"b": 1}), label),
        ("/spec/nonsense", value!(1), ""),
    ] {
        let patch = value!([{"op": "add", "path": path, "value": (value.clone())}]);
        let (server, _) = hooked();
        let hook = url(&format!("patch/{}", STANDARD.encode(json::to_string(&patch))));
        let rules = value!([{"apiGroups": ["apps"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["deployments"]}]);
        // An answer that cannot be used is not a failure to call, so failurePolicy does not excuse it.
        let more = value!({"rules": (rules.clone()), "failurePolicy": "Ignore"});
        register(&server, "Mutating", "x", &hook, &more);
        let answer = send(&server, "POST", DEPLOYMENTS, &deployment);
        if wrong.is_empty() {
            assert_eq!(answer.status, 201, "{}", message(&answer));
            assert_eq!(answer.value().get_path(["spec", "nonsense"]), None, "unknown fields go");
        } else {
            assert_eq!(answer.status, 500, "{}", message(&answer));
            assert_eq!(message(&answer), format!("Internal error occurred: {wrong}"));
        }

        let (server, _) = hooked();
        let expression = format!(
            "[JSONPatch{{op: \"add\", path: {path:?}, value: dyn({})}}]",
            json::to_string(&value)
        );
        let policy = value!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicy",
            "metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail", "reinvocationPolicy": "Never",
                "matchConstraints": {"resourceRules": (rules)},
                "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]}});
        create(&server, &format!("{REGISTRATION}/mutatingadmissionpolicies"), &policy);
        let binding = value!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingAdmissionPolicyBinding",
            "metadata": {"name": "p"}, "spec": {"policyName": "p"}});
        create(&server, &format!("{REGISTRATION}/mutatingadmissionpolicybindings"), &binding);
        let answer = send(&server, "POST", DEPLOYMENTS, &deployment);
        assert_eq!(answer.status, if wrong.is_empty() { 201 } else { 403 }, "{}", message(&answer));
        assert!(message(&answer).contains(wrong), "{}", message(&answer));
    }
}

#[test]
fn webhooks_refuse_and_fail_as_they_say() {
    let behind = value!({"service": {"namespace": "shop", "name": "hooks"}});
    let never = value!({"matchConditions": [{"name": "never", "expression": "false"}]});
    let broken =
        value!({"matchConditions": [{"name": "broken", "expression": "object.data.x == '1'"}]});
    let broken_ignored = value!({"failurePolicy": "Ignore",
        "matchConditions": [{"name": "broken", "expression": "object.data.x == '1'"}]});
    let elsewhere =
        value!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}});
    for (config, more, status, words) in [
        (
            url("deny"),
            value!({}),
            403,
            "admission webhook \"x.example.com\" denied the request: not today",
        ),
        (
            url("dead"),
            value!({}),
            500,
            "failed calling webhook \"x.example.com\": failed to call webhook: connection refused",
        ),
        (url("dead"), value!({"failurePolicy": "Ignore"}), 201, ""),
        (
            behind,
            value!({}),
            500,
            "nothing answers behind service \"shop/hooks\"; give the webhook a url",
        ),
        (url("deny"), never, 201, ""),
        (url("deny"), broken, 403, "resulted in error: no such key: data"),
        (url("deny"), broken_ignored, 201, ""),
        (url("deny"), elsewhere, 201, ""),
    ] {
        let (server, _) = hooked();
        register(&server, "Validating", "x", &config, &more);
        let answer = send(&server, "POST", CONFIG_MAPS, &config_map("a"));
        assert_eq!(answer.status, status, "{more:?}");
        assert!(message(&answer).contains(words), "{}", message(&answer));
        // Others are none of its business.
        let account =
            value!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}});
        create(&server, "/api/v1/namespaces/default/serviceaccounts", &account);
    }
    let (server, _) = hooked();
    register(&server, "Mutating", "x", &url("always"), &value!({}));
    create(&server, CONFIG_MAPS, &config_map("a"));
    let answer = server.call(&ApiRequest::new("DELETE", &format!("{CONFIG_MAPS}/a")));
    assert_eq!(answer.status, 500);
    assert!(message(&answer).contains("attempted to modify the object"), "{}", message(&answer));
    let (server, _) = hooked();
    register(&server, "Validating", "x", &url("warn"), &value!({"sideEffects": "Some"}));
    let answer = send(&server, "POST", &format!("{CONFIG_MAPS}?dryRun=All"), &config_map("a"));
    assert_eq!((answer.status, message(&answer).contains("does not support dry run")), (400, true));
}

/// A policy for ConfigMaps and its binding.
fn bind(server: &Server, kind: &str, spec: &Value, binding: &Value) {
    let mut policy = value!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": (format!("{kind}AdmissionPolicy")), "metadata": {"name": "p"}});
    let _ = policy.set(["spec"], spec.clone());
    let constraints = value!({"resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"], "resources": ["configmaps"]}]});
    let _ = policy.set(["spec", "matchConstraints"], constraints);
    let path = format!("{REGISTRATION}/{}admissionpolicies", kind.to_lowercase());
    create(server, &path, &policy);
    let mut bound = value!({"apiVersion": "admissionregistration.k8s.io/v1",
        "kind": (format!("{kind}AdmissionPolicyBinding")), "metadata": {"name": "b"}});
    let _ = bound.set(["spec"], binding.clone());
    let _ = bound.set(["spec", "policyName"], "p");
    let path = format!("{REGISTRATION}/{}admissionpolicybindings", kind.to_lowercase());
    create(server, &path, &bound);
}

#[test]
fn validating_policies_decide() {
    let deny = value!({"validationActions": ["Deny"]});
    let warn = value!({"validationActions": ["Warn"]});
    let with_data =
        value!({"validations": [{"expression": "has(object.data)", "message": "it needs data"}]});
    let params = |action: &str| value!({"validationActions": ["Deny"], "paramRef": {"name": "limits", "parameterNotFoundAction": action}});
    let by_params = value!({"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "validations": [{"expression": "object.metadata.name != params.data.forbidden"}]});
    // Only who reads a variable fails with it.
    let unread = value!({"variables": [{"name": "x", "expression": "object.data.x"}],
        "validations": [{"expression": "object.metadata.name == 'a' || variables.x == '1'"}]});
    let read = value!({"variables": [{"name": "x", "expression": "object.data.x"}],
        "validations": [{"expression": "variables.x == '1'"}]});
    // Others fail with what is wrong with themselves.
    let beside = value!({"variables": [{"name": "x", "expression": "object.data.x"}],
        "validations": [{"expression": "object.nope == 'x'"}]});
    let twice = value!({"variables": [{"name": "x", "expression": "object.data.x"}, {"name": "y", "expression": "variables.x + '1'"}],
        "validations": [{"expression": "variables.y == '1'"}]});
    let broken = value!({"variables": [{"name": "x", "expression": "1 +"}, {"name": "y", "expression": "'1'"}],
        "validations": [{"expression": "variables.y == '1'"}, {"expression": "variables.x == '1'"}]});
    let mut read_ignored = read.clone();
    let _ = read_ignored.set(["failurePolicy"], "Ignore");
    let denied = "configmaps \"a\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: ";
    for (spec, binding, status, words) in [
        (&with_data, &deny, 422, "it needs data"),
        (&with_data, &warn, 201, ""),
        (&by_params, &params("Deny"), 403, "no params found for policy binding"),
        (&by_params, &params("Allow"), 201, ""),
        (&unread, &deny, 201, ""),
        (
            &read,
            &deny,
            422,
            "expression 'variables.x == '1'' resulted in error: composited variable \"x\" fails to evaluate: no such key: data",
        ),
        (
            &beside,
            &deny,
            422,
            "expression 'object.nope == 'x'' resulted in error: no such key: nope",
        ),
        (&twice, &deny, 422, "composited variable \"x\" fails to evaluate: no such key: data"),
        (
            &broken,
            &deny,
            422,
            "expression 'variables.x == '1'' resulted in error: composited variable \"x\" fails to evaluate: ERROR",
        ),
        (&read_ignored, &deny, 201, ""),
    ] {
        let (server, _) = hooked();
        bind(&server, "Validating", spec, binding);
        let answer = send(&server, "POST", CONFIG_MAPS, &config_map("a"));
        assert_eq!(answer.status, status, "{spec:?}: {}", message(&answer));
        if status > 400 {
            assert!(message(&answer).starts_with(denied), "{}", message(&answer));
            assert!(message(&answer).contains(words), "{}", message(&answer));
        }
        let warned = answer.header("Warning").is_some_and(|text| text.contains("it needs data"));
        assert_eq!(warned, binding == &warn, "{:?}", answer.headers);
    }
    let (server, _) = hooked();
    let limits = value!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "limits"}, "data": {"forbidden": "a"}});
    create(&server, CONFIG_MAPS, &limits);
    bind(&server, "Validating", &by_params, &params("Deny"));
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("a")).status, 422);
    assert_eq!(send(&server, "POST", CONFIG_MAPS, &config_map("b")).status, 201);
}

#[test]
fn mutating_policies_change() {
    let apply = value!({"patchType": "ApplyConfiguration", "applyConfiguration": {
        "expression": "Object{metadata: Object.metadata{labels: {'seen': 'yes'}}}"}});
    let patch = value!({"patchType": "JSONPatch", "jsonPatch": {
        "expression": "[JSONPatch{op: 'add', path: '/data', value: {'name': variables.name}}]"}});
    let mut spec = value!({"failurePolicy": "Fail", "reinvocationPolicy": "Never",
        "variables": [{"name": "name", "expression": "object.metadata.name"}]});
    let _ = spec.set(["mutations"], Value::from(vec![apply, patch]));
    let (server, _) = hooked();
    bind(&server, "Mutating", &spec, &value!({}));
    let made = create(&server, CONFIG_MAPS, &config_map("a"));
    assert_eq!(made.str_at(["metadata", "labels", "seen"]), Some("yes"));
    assert_eq!(made.str_at(["data", "name"]), Some("a"));
}

#[test]
fn what_is_not_there_says_so() {
    let (server, _) = hooked();
    let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"},
        "spec": {"containers": [{"name": "web", "image": "web"}]}});
    create(&server, "/api/v1/namespaces/default/pods", &pod);
    let node = value!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}});
    create(&server, "/api/v1/nodes", &node);
    let service = value!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"ports": [{"port": 80}]}});
    create(&server, "/api/v1/namespaces/default/services", &service);
    let pods = "/api/v1/namespaces/default/pods/web";
    for (method, path, status, words) in [
        ("GET", format!("{pods}/log"), 204, ""),
        ("POST", format!("{pods}/exec?command=ls"), 400, "pod web does not have a host assigned"),
        ("GET", format!("{pods}/exec?command=ls"), 400, "pod web does not have a host assigned"),
        ("POST", format!("{pods}/attach"), 400, "pod web does not have a host assigned"),
        ("POST", format!("{pods}/portforward"), 400, "pod web does not have a host assigned"),
        ("GET", format!("{pods}/proxy/"), 501, "there is no network behind this server"),
        (
            "GET",
            "/api/v1/nodes/one/proxy/metrics".to_owned(),
            501,
            "there is no network behind this server",
        ),
        (
            "GET",
            "/api/v1/namespaces/default/services/web/proxy/".to_owned(),
            501,
            "there is no network behind this server",
        ),
        ("GET", "/apis/metrics.k8s.io/v1beta1/nodes".to_owned(), 404, ""),
    ] {
        let answer = server.call(&ApiRequest::new(method, &path));
        assert_eq!(answer.status, status, "{method} {path}: {}", message(&answer));
        if !words.is_empty() {
            assert_eq!(answer.value().str_at(["kind"]), Some("Status"), "{path}");
            assert!(message(&answer).contains(words), "{path}: {}", message(&answer));
        }
    }
    // Pods wait for nodes that never come, also beside Nodes that a user stored.
    server.settle();
    assert_eq!(get(&server, pods).value().str_at(["status", "phase"]), Some("Pending"));
}

#[test]
fn what_nobody_will_do_is_warned_of() {
    let (server, _) = hooked();
    let definition = value!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": {"name": "carts.example.com"},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"plural": "carts", "singular": "cart", "kind": "Cart"},
            "conversion": {"strategy": "Webhook", "webhook": {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hooks.example.com/convert"}}},
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
                {"name": "v2", "served": true, "storage": false, "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}}},
            ]},
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let answer = send(&server, "POST", path, &definition);
    assert_eq!(answer.status, 201, "{}", message(&answer));
    let warning = answer.header("Warning").unwrap_or_default();
    assert!(warning.contains("conversion webhooks are not called here: versions of carts.example.com differ in nothing but their name"), "{warning}");
    let cart = value!({"apiVersion": "example.com/v1", "kind": "Cart", "metadata": {"name": "a"}, "spec": {"n": 1}});
    create(&server, "/apis/example.com/v1/namespaces/default/carts", &cart);
    let other = get(&server, "/apis/example.com/v2/namespaces/default/carts/a").value();
    assert_eq!(other.str_at(["apiVersion"]), Some("example.com/v2"));
    assert_eq!(other.get_path(["spec", "n"]), Some(&value!(1)));
    let service = value!({"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": {"name": "v1beta1.metrics.k8s.io"},
        "spec": {"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "kube-system", "name": "metrics-server"}}});
    let answer = send(&server, "POST", "/apis/apiregistration.k8s.io/v1/apiservices", &service);
    assert_eq!(answer.status, 201, "{}", message(&answer));
    let warning = answer.header("Warning").unwrap_or_default();
    assert!(warning.contains("nothing answers behind the service of APIService"), "{warning}");
    let path = "/apis/apiregistration.k8s.io/v1/apiservices/v1beta1.metrics.k8s.io";
    let conditions = get(&server, path).value().get_path(["status", "conditions"]).cloned();
    let condition = conditions.and_then(|list| list.index(0).cloned()).unwrap_or_default();
    assert_eq!(condition.str_at(["type"]), Some("Available"));
    assert_eq!(condition.str_at(["status"]), Some("False"));
    let table = ApiRequest::new("GET", path)
        .with_header("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    let shown = String::from_utf8(server.call(&table).body).unwrap();
    assert!(shown.contains("False (MissingEndpoints)"), "{shown}");
    for kind in ["Mutating", "Validating"] {
        let hook = |name: &str, config: Value, policy: &str| {
            value!({"name": name, "clientConfig": (config),
            "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": policy})
        };
        let inside = value!({"service": {"namespace": "shop", "name": "hooks"}});
        let hooks = vec![
            hook("a.example.com", inside.clone(), "Fail"),
            hook("b.example.com", inside, "Ignore"),
            hook("c.example.com", value!({"url": "https://127.0.0.1:1/"}), "Fail"),
        ];
        let mut configuration = value!({"apiVersion": "admissionregistration.k8s.io/v1",
            "kind": (format!("{kind}WebhookConfiguration")), "metadata": {"name": "hooks"}});
        let _ = configuration.set(["webhooks"], Value::from(hooks));
        let path = format!("{REGISTRATION}/{}webhookconfigurations", kind.to_lowercase());
        let answer = send(&server, "POST", &path, &configuration);
        assert_eq!(answer.status, 201, "{}", message(&answer));
        let told: Vec<&str> = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "Warning")
            .map(|(_, text)| text.as_str())
            .collect();
        assert_eq!(
            told,
            [
                "299 - \"no pods run here, so nothing answers behind the service of webhook a.example.com, and matching requests are denied; with clientConfig.url it is called\"",
                "299 - \"no pods run here, so nothing answers behind the service of webhook b.example.com, and it is skipped; with clientConfig.url it is called\"",
            ]
        );
    }
}

#[test]
fn events_of_both_groups_are_stored_as_one() {
    let (server, _) = hooked();
    let event = value!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1"}, "reason": "Made", "message": "made it", "type": "Normal",
        "involvedObject": {"apiVersion": "v1", "kind": "ConfigMap", "name": "web", "namespace": "default"},
        "source": {"component": "kiln"}, "firstTimestamp": "2026-11-16T00:00:00Z", "lastTimestamp": "2026-11-16T00:00:00Z", "count": 1});
    create(&server, "/api/v1/namespaces/default/events", &event);
    let path = "/apis/events.k8s.io/v1/namespaces/default/events/web.1";
    let newer = get(&server, path).value();
    assert_eq!(newer.str_at(["note"]), Some("made it"));
    assert_eq!(newer.str_at(["regarding", "name"]), Some("web"));
    let selected = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb,involvedObject.kind%3DConfigMap";
    let items =
        get(&server, selected).value().get("items").and_then(Value::as_list).map(|list| list.len());
    assert_eq!(items, Some(1));
}
