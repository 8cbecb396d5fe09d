//! The cluster in the page, as the web application calls it.

use kiln_jmespath::AmbientSources;
use kiln_studio::playground::Playground;
use kiln_value::{Value, json, value};

struct Still;

impl AmbientSources for Still {
    fn now(&self) -> Option<std::time::SystemTime> {
        Some(std::time::UNIX_EPOCH)
    }

    fn random(&self) -> Option<u64> {
        Some(7)
    }
}

const POLICY: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: defaults}
spec:
  rules:
  - name: settings
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: '{{request.object.metadata.name}}'
      synchronize: true
      data: {data: {a: b}}
";
const SHOP: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";
const SETTINGS: &str = "v1|ConfigMap|shop|settings";

struct Page(Playground);

impl Page {
    fn call(&mut self, request: &Value) -> Value {
        json::parse(&self.0.call(&json::to_string(request), &Still)).unwrap()
    }

    /// A page whose cluster began with files.
    fn with(policies: &str, resources: &str) -> Self {
        let mut page = Page(Playground::default());
        let answer = page.call(&value!({
            "method": "cluster.start",
            "workspace": {"files": [
                {"path": "p.yaml", "role": "policies", "text": policies},
                {"path": "r.yaml", "role": "resources", "text": resources},
            ]},
        }));
        assert!(answer.get("error").is_none(), "{answer:?}");
        page
    }

    fn apply(&mut self, text: &str) -> Value {
        self.call(&value!({"method": "cluster.apply", "yaml": text}))
    }

    fn has(&mut self, id: &str) -> bool {
        let listing = self.call(&value!({"method": "cluster.list"}));
        let objects = listing.get("objects").and_then(Value::as_list).unwrap();
        objects.iter().any(|object| object.str_at(["id"]) == Some(id))
    }

    fn get(&mut self, id: &str) -> Value {
        self.call(&value!({"method": "cluster.get", "object": id}))
    }

    fn timeline(&mut self) -> (i64, i64, String) {
        let timeline = self.call(&value!({"method": "cluster.timeline"}));
        let number = |key: &str| timeline.get(key).and_then(Value::as_i64).unwrap();
        (number("position"), number("end"), json::to_string(&timeline))
    }

    fn seek(&mut self, step: i64) {
        self.call(&value!({"method": "cluster.seek", "step": step}));
    }

    fn lineage(&mut self) -> String {
        let answer = self.call(&value!({"method": "cluster.lineage"}));
        answer.str_at(["html"]).unwrap().to_owned()
    }
}

#[test]
fn a_downstream_comes_returns_and_can_be_looked_back_at() {
    let mut page = Page::with(POLICY, "");
    assert!(!page.has(SETTINGS));
    let (_, before, _) = page.timeline();
    assert_eq!(page.apply(SHOP).str_at(["message"]), Some("applied 1 object"));
    assert!(page.has(SETTINGS));
    let first = page.get(SETTINGS);
    let explain = first.str_at(["explain"]).unwrap();
    assert!(explain.contains("made by policy defaults, rule settings"), "{explain}");
    assert!(explain.contains("Kiln "), "{explain}");
    assert!(page.lineage().contains("synchronized"));

    page.call(&value!({"method": "cluster.delete", "object": SETTINGS}));
    assert!(page.has(SETTINGS), "it returns");
    let second = page.get(SETTINGS);
    let uid = |found: &Value| {
        let yaml = found.str_at(["yaml"]).unwrap();
        yaml.lines().find(|line| line.starts_with("  uid: ")).map(str::to_owned)
    };
    assert_ne!(uid(&first), uid(&second));

    let (position, end, shown) = page.timeline();
    assert_eq!(position, end);
    assert!(shown.contains("\"actor\":\"you\"") && shown.contains("\"actor\":\"Kiln\""), "{shown}");
    page.seek(before);
    assert!(!page.has(SETTINGS), "before the namespace there is no downstream");
    assert_eq!(page.get(SETTINGS).get("exists"), Some(&Value::from(false)));
    page.seek(end);
    assert_eq!(uid(&page.get(SETTINGS)), uid(&second));
}

#[test]
fn held_time_goes_on_step_by_step() {
    let mut page = Page::with(POLICY, "");
    page.call(&value!({"method": "cluster.pause", "paused": true}));
    page.apply(SHOP);
    assert!(!page.has(SETTINGS), "nothing happens while time is held");
    for _ in 0..50 {
        page.call(&value!({"method": "cluster.step"}));
    }
    assert!(page.has(SETTINGS));
    // Somebody changes it, and nobody has put it right yet.
    page.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: shop}\ndata: {a: c}\n");
    assert!(page.lineage().contains("drifted"));
    page.call(&value!({"method": "cluster.pause", "paused": false}));
    assert!(page.lineage().contains("synchronized"));
    assert!(page.get(SETTINGS).str_at(["yaml"]).unwrap().contains("a: b"));
}

#[test]
fn what_a_rule_waits_for_is_in_its_lineage() {
    let clone = POLICY.replace("data: {data: {a: b}}", "clone: {namespace: default, name: source}");
    let mut page = Page::with(&clone, SHOP);
    let picture = page.lineage();
    assert!(picture.contains("waiting"), "{picture}");
    page.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: source, namespace: default}\ndata: {a: b}\n");
    let picture = page.lineage();
    assert!(picture.contains("synchronized") && picture.contains(">Source<"), "{picture}");
}

#[test]
fn refusals_are_told_and_recorded() {
    let mut page = Page::with(POLICY, SHOP);
    let refused = page.apply(&SHOP.replace("shop", "Bad Name"));
    assert!(refused.str_at(["error", "message"]).unwrap().contains("Bad Name"), "{refused:?}");
    let (_, _, shown) = page.timeline();
    assert!(shown.contains("\"refused\":true"), "{shown}");
    for request in [
        value!({"method": "cluster.nothing"}),
        value!({"method": "cluster.get", "object": "x"}),
        value!({"method": "cluster.apply", "yaml": ""}),
        value!({"method": "cluster.apply", "yaml": "a: [1"}),
        value!({"method": "cluster.delete", "object": "v1|ConfigMap|shop|none"}),
    ] {
        let answer = page.call(&request);
        assert!(answer.get("error").is_some(), "{request:?}: {answer:?}");
    }
    let mut none = Page(Playground::default());
    let answer = none.call(&value!({"method": "cluster.list"}));
    assert!(answer.str_at(["error", "message"]).unwrap().contains("has not started"), "{answer:?}");
}

#[test]
fn values_of_secrets_are_not_shown() {
    let mut page = Page::with(POLICY, SHOP);
    page.apply("apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: shop}\nstringData: {p: hush}\n");
    let shown = page.get("v1|Secret|shop|s");
    let yaml = shown.str_at(["yaml"]).unwrap();
    assert!(yaml.contains("***") && !yaml.contains("hush") && !yaml.contains("aHVzaA"), "{yaml}");
}

#[test]
fn the_same_calls_give_the_same_cluster() {
    let run = || {
        let mut page = Page::with(POLICY, SHOP);
        page.call(&value!({"method": "cluster.delete", "object": SETTINGS}));
        (page.timeline().2, page.get(SETTINGS), page.lineage())
    };
    assert_eq!(run(), run());
}
