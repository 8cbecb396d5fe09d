//! What happens to checks and reports when the engine is down, is killed in a scan, or cannot write: no report is
//! missing when everything has come to rest, and nothing is written then.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use http::Method;
use kiln_object::metadata;
use kiln_value::Value;

use crate::harness::{Cluster, Engine, cluster, namespaces};
use crate::proxy::{Fault, Proxy};

/// The results of a report, by policy and rule.
pub(crate) type Results = BTreeMap<String, String>;

fn items(list: &Value) -> Vec<Value> {
    let items = list.get("items").and_then(Value::as_list);
    items.map(|items| items.iter().cloned().collect()).unwrap_or_default()
}

/// What reports say of the objects of a resource whose namespace begins with some words, by object; objects without a
/// report have no results.
pub(crate) fn reported(
    cluster: &Cluster,
    resource: &str,
    namespaces: &str,
) -> BTreeMap<String, Results> {
    let within = |object: &Value| {
        metadata::namespace(object).is_some_and(|namespace| namespace.starts_with(namespaces))
    };
    let objects = cluster.object(&[resource, "-A"]).map(|list| items(&list)).unwrap_or_default();
    let reports = cluster.object(&["policyreports", "-A"]).map(|list| items(&list));
    let reports: BTreeMap<String, Value> = reports
        .unwrap_or_default()
        .into_iter()
        .filter_map(|report| Some((metadata::name(&report)?.to_owned(), report)))
        .collect();
    let text = |value: &Value, key: &str| value.str_at([key]).unwrap_or_default().to_owned();
    let results = |object: &Value| -> Results {
        let report = metadata::uid(object).and_then(|uid| reports.get(uid));
        let results = report.and_then(|report| report.get("results")).and_then(Value::as_list);
        let results = results.into_iter().flat_map(|results| results.iter());
        let named = |result: &Value| {
            let rule = text(result, "rule");
            (format!("{} {rule}", text(result, "policy")).trim().to_owned(), text(result, "result"))
        };
        results.map(named).collect()
    };
    let named = |object: &Value| {
        format!(
            "{}/{}",
            metadata::namespace(object).unwrap_or_default(),
            metadata::name(object).unwrap_or_default()
        )
    };
    objects.iter().filter(|object| within(object)).map(|one| (named(one), results(one))).collect()
}

fn checks(name: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  background: true\n  rules:\n\
         \x20 - name: owner\n    match: {{any: [{{resources: {{kinds: [ConfigMap], namespaces: [\"{name}-*\"]}}}}]}}\n\
         \x20   validate: {{failureAction: Audit, message: set the label owner, pattern: {{metadata: {{labels: {{owner: \"?*\"}}}}}}}}\n\
         \x20 - name: data\n    match: {{any: [{{resources: {{kinds: [ConfigMap], namespaces: [\"{name}-*\"]}}}}]}}\n\
         \x20   validate: {{failureAction: Audit, message: fill it, pattern: {{data: {{a: \"?*\"}}}}}}\n"
    )
}

/// ConfigMaps of which every third has an owner.
fn config_maps(name: &str, count: usize) -> String {
    let one = |number: usize| {
        let labels = if number.is_multiple_of(3) { "{owner: me}" } else { "{}" };
        format!(
            "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: m-{number}, namespace: {name}-0, labels: {labels}}}\n\
             data: {{a: b}}\n"
        )
    };
    (0..count).map(one).collect()
}

/// What reports are to say of them.
fn wanted(name: &str, count: usize) -> BTreeMap<String, Results> {
    let one = |number: usize| {
        let owner = if number.is_multiple_of(3) { "pass" } else { "fail" };
        let results = [
            (format!("{name} owner"), owner.to_owned()),
            (format!("{name} data"), "pass".to_owned()),
        ];
        (format!("{name}-0/m-{number}"), Results::from(results))
    };
    (0..count).map(one).collect()
}

/// ConfigMaps, a policy that checks them, and an engine behind a proxy.
struct Scene<'c> {
    cluster: &'c Cluster,
    name: &'static str,
    proxy: Proxy,
    engine: Arc<Mutex<Option<Engine>>>,
    count: usize,
}

impl<'c> Scene<'c> {
    /// Everything is there before the engine, so that it begins with a scan.
    fn new(cluster: &'c Cluster, name: &'static str, count: usize) -> Self {
        let proxy = Proxy::start(&cluster.kubeconfig(), cluster.directory());
        cluster.apply(&namespaces([format!("{name}-0")])).unwrap();
        cluster.apply(&config_maps(name, count)).unwrap();
        cluster.apply(&checks(name)).unwrap();
        Scene { cluster, name, proxy, engine: Arc::default(), count }
    }

    fn start(&self) {
        let args = ["--only", "controller", "--stale-after", "5"];
        let engine = self.cluster.engine_at(self.proxy.kubeconfig(), &args);
        *self.engine.lock().unwrap() = Some(engine);
    }

    /// The reports are as they should be, and nothing more is written.
    fn ends_well(&self) {
        let mut last = BTreeMap::new();
        self.cluster.wait(&format!("{}: every report is there", self.name), || {
            let now = reported(self.cluster, "configmaps", &format!("{}-", self.name));
            let is_well = now == wanted(self.name, self.count);
            if !is_well && now != last {
                let missing = now.values().filter(|results| results.is_empty()).count();
                eprintln!("{}: {missing} of {} have no report yet", self.name, self.count);
                last = now;
            }
            is_well
        });
        // What was found while the last report was written is written in two seconds.
        sleep(Duration::from_secs(4));
        self.proxy.forget();
        sleep(Duration::from_secs(3));
        assert_eq!(self.writes(), [""; 0], "nothing is written when nothing changes");
        let now = reported(self.cluster, "configmaps", &format!("{}-", self.name));
        assert_eq!(now, wanted(self.name, self.count), "and it stays so");
    }

    fn writes(&self) -> Vec<String> {
        self.proxy.writes("/policyreports")
    }

    fn clean_up(self) {
        self.proxy.calm();
        if self.engine.lock().unwrap().is_none() {
            self.start();
        }
        self.cluster.kubectl(&["delete", "clusterpolicy", self.name]).unwrap();
        let namespace = format!("{}-0", self.name);
        self.cluster.wait("reports go with their policy", || {
            let left = self.cluster.object(&["policyreports", "-n", &namespace]);
            left.is_some_and(|left| items(&left).is_empty())
        });
        self.cluster.kubectl(&["delete", "namespace", &namespace, "--wait=false"]).unwrap();
    }
}

fn is_report_write(method: &Method, path: &str) -> bool {
    *method != Method::GET && path.contains("/policyreports")
}

#[test]
fn killed_in_a_scan_no_report_is_lost() {
    let Some(cluster) = cluster() else { return };
    let count = if crate::fault_scene::long() { 200 } else { 40 };
    let scene = Scene::new(&cluster, "scanned", count);
    // Once before anything is written, once in the middle, and once when all but a few are.
    for (number, after) in [0, count / 2, count / 4].into_iter().enumerate() {
        let killed = Arc::new(AtomicBool::new(false));
        let (engine, seen) = (Arc::clone(&scene.engine), Arc::clone(&killed));
        let kill = move || {
            drop(engine.lock().unwrap().take());
            seen.store(true, Ordering::Relaxed);
        };
        // Some writes never arrive, and some are done although the answer is lost.
        let lost = if number % 2 == 0 { Fault::LostBefore } else { Fault::LostAfter };
        scene.proxy.fault(is_report_write, after, 1, Fault::Do(Arc::new(kill), Box::new(lost)));
        scene.start();
        cluster.wait("it is killed in its scan", || killed.load(Ordering::Relaxed));
        scene.proxy.calm();
    }
    scene.proxy.forget();
    scene.start();
    scene.ends_well();
    scene.clean_up();
}

#[test]
fn reports_that_cannot_be_written_are_written_later() {
    let Some(cluster) = cluster() else { return };
    let scene = Scene::new(&cluster, "withheld", 20);
    // Many fail at first, each in its own way.
    for (skip, times, fault) in [
        (0, 4, Fault::Status(503)),
        (0, 4, Fault::Status(403)),
        (2, 3, Fault::LostAfter),
        (4, 3, Fault::Status(429)),
        (6, 3, Fault::Status(409)),
        (8, 3, Fault::LostBefore),
    ] {
        scene.proxy.fault(is_report_write, skip, times, fault);
    }
    scene.start();
    scene.ends_well();
    scene.clean_up();
}

const DOWN: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: down-fail}
spec:
  webhookConfiguration: {failurePolicy: Fail}
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [down-0]}}]}
    validate: {failureAction: Enforce, message: set the label owner, pattern: {metadata: {labels: {owner: '?*'}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: down-ignore}
spec:
  webhookConfiguration: {failurePolicy: Ignore}
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [Secret], namespaces: [down-0]}}]}
    validate: {failureAction: Enforce, message: set the label owner, pattern: {metadata: {labels: {owner: '?*'}}}}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: down-ignore}
spec:
  failurePolicy: Ignore
  validationActions: [Deny]
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: down-0}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]
  validations: [{expression: \"object.spec.?type.orValue('ClusterIP') != 'NodePort'\", message: no node ports}]
";

const NODE_PORT: &str = "{apiVersion: v1, kind: Service, metadata: {name: open, namespace: down-0}, \
                         spec: {type: NodePort, ports: [{port: 80}]}}";

#[test]
fn a_webhook_that_is_down_blocks_only_what_must_not_pass() {
    let Some(cluster) = cluster() else { return };
    cluster.apply(&namespaces(["down-0".to_owned()])).unwrap();
    let mut engine = cluster.whole(&[]);
    cluster.wait("the policies are accepted", || cluster.apply(DOWN).is_ok());
    let create = |resource: &[&str], name: &str| {
        let args = [&["create"], resource, &[name, "-n", "down-0"]].concat();
        cluster.kubectl(&args).map_err(|why| why.to_string())
    };
    let (map, secret) = (&["configmap"][..], &["secret", "generic"][..]);
    let says = |words: &'static str| {
        move |done: Result<String, String>| done.is_err_and(|why| why.contains(words))
    };
    cluster.wait("ConfigMaps are checked", || says("set the label owner")(create(map, "probe")));
    cluster.wait("Secrets are checked", || says("set the label owner")(create(secret, "probe")));
    cluster.wait("Services are checked", || {
        let said =
            cluster.kubectl_with_input(&["create", "--dry-run=server", "-f", "-"], NODE_PORT);
        said.is_err_and(|why| why.to_string().contains("no node ports"))
    });

    engine.kill();
    let why = create(map, "blocked").unwrap_err();
    assert!(why.contains("failed calling webhook \"validate.kyverno.svc-fail\""), "{why}");
    create(secret, "passed").unwrap();
    cluster.apply(NODE_PORT).unwrap();

    // Another one checks again, and its scan finds what came in meanwhile.
    let engine = cluster.whole(&[]);
    cluster
        .wait("ConfigMaps are checked again", || says("set the label owner")(create(map, "probe")));
    cluster
        .wait("Secrets are checked again", || says("set the label owner")(create(secret, "probe")));
    for (resource, object, policy) in [
        ("secrets", "down-0/passed", "down-ignore owner"),
        ("services", "down-0/open", "down-ignore"),
    ] {
        cluster.wait("what passed meanwhile is reported", || {
            let found = reported(&cluster, resource, "down-");
            let results = found.get(object);
            results.and_then(|results| results.get(policy)).is_some_and(|one| one == "fail")
        });
    }
    let found = reported(&cluster, "configmaps", "down-");
    assert!(!found.contains_key("down-0/blocked"), "{found:?}");

    cluster.kubectl(&["delete", "clusterpolicy", "down-fail", "down-ignore"]).unwrap();
    cluster.kubectl(&["delete", "vpol", "down-ignore"]).unwrap();
    drop(engine);
    let kinds = "validatingwebhookconfigurations,mutatingwebhookconfigurations";
    cluster.kubectl(&["delete", kinds, "--all"]).unwrap();
    cluster.kubectl(&["delete", "namespace", "down-0", "--wait=false"]).unwrap();
}
