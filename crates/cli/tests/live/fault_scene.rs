//! The scene of the fault tests: rules of each kind at work behind a proxy, and what holds at the end whatever happened.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, SystemTime};

use http::Method;
use kiln_value::{Value, json};

use crate::harness::{Cluster, Engine, namespaces};
use crate::proxy::Proxy;
use crate::report_faults::{Results, reported};

/// Whether the long form runs.
pub(crate) fn long() -> bool {
    std::env::var_os("KILN_FAULTS").is_some_and(|form| form == "long")
}

/// Whether a request only tells what rules found: in a report or an Event.
fn tells(path: &str) -> bool {
    ["/policyreports", "/events"].iter().any(|resource| path.contains(resource))
}

/// How many objects rules make for each Namespace.
pub(crate) const EACH: usize = 3;

/// Policies with a rule of each kind, some Namespaces that fire it, and an engine behind a proxy.
pub(crate) struct Scene<'c> {
    cluster: &'c Cluster,
    name: &'static str,
    pub(crate) proxy: Proxy,
    /// Further arguments of its engine.
    args: &'static [&'static str],
    pub(crate) engine: Arc<Mutex<Option<Engine>>>,
    /// How many Namespaces there are.
    pub(crate) count: usize,
    /// Those of them that the rules of the ClusterPolicy leave out.
    left_out: BTreeSet<usize>,
    /// What rules are to make.
    pub(crate) data: String,
    pub(crate) source: String,
    /// Objects that only their creators may touch, by their UIDs.
    pub(crate) foreign: BTreeMap<String, String>,
}

impl<'c> Scene<'c> {
    pub(crate) fn new(cluster: &'c Cluster, name: &'static str) -> Self {
        Scene::with(cluster, name, &[])
    }

    /// A scene whose engine has more arguments.
    pub(crate) fn with(
        cluster: &'c Cluster,
        name: &'static str,
        args: &'static [&'static str],
    ) -> Self {
        let proxy = Proxy::start(&cluster.kubeconfig(), cluster.directory());
        let mut scene = Scene {
            cluster,
            name,
            proxy,
            args,
            engine: Arc::default(),
            count: 0,
            left_out: BTreeSet::new(),
            data: "1".to_owned(),
            source: "MQ==".to_owned(),
            foreign: BTreeMap::new(),
        };
        scene.set_source("MQ==");
        scene.start();
        cluster.policy(&scene.policy());
        cluster.apply(&scene.script()).unwrap();
        let ready = r#"jsonpath={.status.conditionStatus.ready}"#;
        cluster.apply(&scene.checks()).unwrap();
        cluster.wait("the GeneratingPolicy is ready", || {
            let ready = cluster.kubectl(&["get", "generatingpolicy", name, "-o", ready]);
            ready.is_ok_and(|ready| ready == "true")
        });
        scene
    }

    pub(crate) fn start(&mut self) {
        // A watch that is silent for five seconds is begun anew; quiet ones get a bookmark every minute.
        let args = ["--only", "controller", "--stale-after", "5"];
        let args = [&args, self.args].concat();
        let engine = self.cluster.engine_at(self.proxy.kubeconfig(), &args);
        *self.engine.lock().unwrap() = Some(engine);
    }

    fn policy(&self) -> String {
        let Scene { name, data, .. } = self;
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n\
             \x20 - name: data\n    match: {{any: [{{resources: {{kinds: [Namespace], names: [\"{name}-*\"]}}}}]}}\n\
             \x20   exclude: {{any: [{{resources: {{selector: {{matchLabels: {{out: \"yes\"}}}}}}}}]}}\n\
             \x20   generate:\n      synchronize: true\n      apiVersion: v1\n      kind: ConfigMap\n      name: made\n\
             \x20     namespace: \"{{{{request.object.metadata.name}}}}\"\n      data: {{data: {{a: \"{data}\"}}}}\n\
             \x20 - name: copy\n    match: {{any: [{{resources: {{kinds: [Namespace], names: [\"{name}-*\"]}}}}]}}\n\
             \x20   exclude: {{any: [{{resources: {{selector: {{matchLabels: {{out: \"yes\"}}}}}}}}]}}\n\
             \x20   generate:\n      synchronize: true\n      apiVersion: v1\n      kind: Secret\n      name: copy\n\
             \x20     namespace: \"{{{{request.object.metadata.name}}}}\"\n\
             \x20     clone: {{namespace: default, name: source-{name}}}\n"
        )
    }

    /// The same in CEL.
    fn script(&self) -> String {
        let Scene { name, data, .. } = self;
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: GeneratingPolicy\nmetadata: {{name: {name}}}\nspec:\n\
             \x20 evaluation: {{synchronize: {{enabled: true}}}}\n\
             \x20 matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}}]}}\n\
             \x20 matchConditions: [{{name: ours, expression: \"object.metadata.name.startsWith('{name}-')\"}}]\n\
             \x20 generate:\n  - expression: >-\n\
             \x20     generator.Apply(object.metadata.name, [{{'apiVersion': dyn('v1'), 'kind': dyn('ConfigMap'),\n\
             \x20     'metadata': dyn({{'name': 'scripted'}}), 'data': dyn({{'a': '{data}'}})}}])\n"
        )
    }

    /// Policies that check what is generated, and what is not: their reports must be whole at the end as well.
    fn checks(&self) -> String {
        let Scene { name, .. } = self;
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}-checks}}\nspec:\n  rules:\n\
             \x20 - name: filled\n    match: {{any: [{{resources: {{kinds: [ConfigMap], namespaces: [\"{name}-*\"]}}}}]}}\n\
             \x20   validate: {{failureAction: Audit, message: fill it, pattern: {{data: {{a: \"?*\"}}}}}}\n\
             ---\napiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {{name: {name}-checks}}\nspec:\n\
             \x20 validationActions: [Audit]\n\
             \x20 matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}}]}}\n\
             \x20 matchConditions: [{{name: ours, expression: \"object.metadata.namespace.startsWith('{name}-')\"}}]\n\
             \x20 validations: [{{expression: \"object.metadata.name != 'foreign'\", message: it is foreign}}]\n"
        )
    }

    /// What reports say of the ConfigMaps of a scene, and what they should say.
    fn reports(&self) -> [BTreeMap<String, Results>; 2] {
        let found = reported(self.cluster, "configmaps", &format!("{}-", self.name));
        let name = self.name;
        let wanted = found.keys().map(|object| {
            let word = if object.ends_with("/foreign") { "fail" } else { "pass" };
            let results = [
                (format!("{name}-checks filled"), "pass".to_owned()),
                (format!("{name}-checks"), word.to_owned()),
            ];
            (object.clone(), Results::from(results))
        });
        let wanted = wanted.collect();
        [found, wanted]
    }

    /// Lets the rules of the ClusterPolicy leave a Namespace out, or not any more.
    pub(crate) fn leave_out(&mut self, number: usize, out: bool) {
        let label = if out { "out=yes" } else { "out-" };
        let namespace = format!("{}-{number}", self.name);
        self.cluster.kubectl(&["label", "namespace", &namespace, label]).unwrap();
        match out {
            true => self.left_out.insert(number),
            false => self.left_out.remove(&number),
        };
    }

    pub(crate) fn set_source(&mut self, value: &str) {
        value.clone_into(&mut self.source);
        let name = self.name;
        self.cluster
            .apply(&format!(
                "apiVersion: v1\nkind: Secret\nmetadata: {{name: source-{name}, namespace: default}}\n\
                 data: {{a: {value}}}\n"
            ))
            .unwrap();
    }

    pub(crate) fn set_data(&mut self, data: &str) {
        data.clone_into(&mut self.data);
        self.cluster.apply(&self.policy()).unwrap();
        self.cluster.apply(&self.script()).unwrap();
    }

    /// Adds Namespaces, each with something foreign in it that looks almost like what a rule makes.
    pub(crate) fn add(&mut self, more: usize) {
        let names: Vec<String> =
            (self.count..self.count + more).map(|n| format!("{}-{n}", self.name)).collect();
        self.count += more;
        self.cluster.apply(&namespaces(names.iter().cloned())).unwrap();
        let foreign: String = names
            .iter()
            .map(|namespace| {
                format!(
                    "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: foreign, namespace: {namespace}, \
                     labels: {{app.kubernetes.io/managed-by: kyverno}}}}\ndata: {{a: b}}\n"
                )
            })
            .collect();
        self.cluster.apply(&foreign).unwrap();
        for namespace in &names {
            let uid = self.uid_of_foreign(namespace).expect("it was just made");
            self.foreign.insert(namespace.clone(), uid);
        }
    }

    fn uid_of_foreign(&self, namespace: &str) -> Option<String> {
        let args =
            ["get", "configmap", "foreign", "-n", namespace, "-o", "jsonpath={.metadata.uid}"];
        self.cluster.kubectl(&args).ok()
    }

    /// What rules made: kind, namespace and name, with the content.
    pub(crate) fn made(&self) -> Vec<(String, String)> {
        let ours = format!("generate.kyverno.io/policy-name={}", self.name);
        let args = ["get", "configmaps,secrets", "-A", "-l", &ours, "-o", "json"];
        let Ok(listed) = self.cluster.kubectl(&args) else { return Vec::new() };
        let listed = json::parse(&listed).unwrap();
        let mut made: Vec<(String, String)> = listed
            .get("items")
            .and_then(Value::as_list)
            .into_iter()
            .flat_map(|items| items.iter())
            .map(|object| {
                let text = |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default();
                let place = ["namespace", "name"].map(|key| text(&["metadata", key]));
                (
                    format!("{} {}/{}", text(&["kind"]), place[0], place[1]),
                    text(&["data", "a"]).into(),
                )
            })
            .collect();
        made.sort();
        made
    }

    pub(crate) fn wanted(&self) -> Vec<(String, String)> {
        let of = |n: usize| {
            let namespace = format!("{}-{n}", self.name);
            let mut wanted = vec![(format!("ConfigMap {namespace}/scripted"), self.data.clone())];
            if !self.left_out.contains(&n) {
                wanted.push((format!("ConfigMap {namespace}/made"), self.data.clone()));
                wanted.push((format!("Secret {namespace}/copy"), self.source.clone()));
            }
            wanted
        };
        let mut wanted: Vec<_> = (0..self.count).flat_map(of).collect();
        wanted.sort();
        wanted
    }

    /// The five things that hold at the end, whatever happened before.
    pub(crate) fn ends_well(&self, most_writes: usize) {
        let mut last = Vec::new();
        self.cluster.wait(&format!("{}: the actual state is the desired one", self.name), || {
            let (made, wanted) = (self.made(), self.wanted());
            let is_well = made == wanted;
            if !is_well && made != last {
                eprintln!("{:?}: {made:?}, where {wanted:?} is wanted", SystemTime::now());
                last = made;
            }
            is_well
        });
        sleep(Duration::from_secs(2));
        // Nothing is there twice either: the lists are equal, entry by entry.
        assert_eq!(self.made(), self.wanted(), "and it stays so");
        for (namespace, uid) in &self.foreign {
            assert_eq!(self.uid_of_foreign(namespace).as_ref(), Some(uid), "nothing foreign goes");
        }
        self.cluster.wait(&format!("{}: no report is missing", self.name), || {
            let [found, wanted] = self.reports();
            found == wanted
        });
        let writes = self.writes();
        assert!(
            writes.len() <= most_writes,
            "{} writes where {most_writes} are bearable: {writes:#?}",
            writes.len()
        );
    }

    /// Writes to what rules make, since the last [`Proxy::forget`].
    pub(crate) fn writes(&self) -> Vec<String> {
        let all = self.proxy.writes(&format!("/namespaces/{}-", self.name));
        all.into_iter().filter(|write| !tells(write)).collect()
    }

    /// Whether a request writes what rules make.
    pub(crate) fn meant(&self) -> impl Fn(&Method, &str) -> bool + Send + Sync + use<> {
        let place = format!("/namespaces/{}-", self.name);
        move |method, path| *method != Method::GET && path.contains(&place) && !tells(path)
    }

    /// Leaves the cluster to the next test.
    pub(crate) fn clean_up(mut self) {
        self.proxy.calm();
        if self.engine.lock().unwrap().is_none() {
            self.start();
        }
        self.cluster.kubectl(&["delete", "clusterpolicy", self.name]).unwrap();
        self.cluster.kubectl(&["delete", "generatingpolicy", self.name]).unwrap();
        let checks = format!("{}-checks", self.name);
        self.cluster.kubectl(&["delete", "clusterpolicy,validatingpolicy", &checks]).unwrap();
        let ours = format!(
            "generate.kyverno.io/policy-name={},generate.kyverno.io/rule-name=data",
            self.name
        );
        self.cluster.wait("what was made goes with its policy", || {
            self.cluster.count("configmaps", &ours) == 0
        });
        let names: Vec<String> = (0..self.count).map(|n| format!("{}-{n}", self.name)).collect();
        let mut delete = vec!["delete", "namespace", "--wait=false", "--ignore-not-found"];
        delete.extend(names.iter().map(String::as_str));
        self.cluster.kubectl(&delete).unwrap();
    }
}
