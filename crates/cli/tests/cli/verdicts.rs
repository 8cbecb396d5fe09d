//! `kiln apply` on files, `kiln explain` and `kiln plan` on a cluster, and the webhook say the same of the same rule and
//! object: held over every rule of the examples.
//!
//! The objects are stored in a sandbox without an engine, so that no rule has changed them, and are explained there. Then
//! they are stored in one with an engine: what it rejects is what `apply` fails, and when it has come to rest, a plan for
//! all objects has nothing left to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_object::{ObjectId, list};
use kiln_sandbox::{Options, Sandbox};
use kiln_testkit::project_root;
use kiln_value::{Value, json, value};
use kiln_yaml::{ReadOptions, read_bytes};

use crate::harness::{Folder, Run};

/// What each rule says of an object, by policy and rule.
type Verdicts = BTreeMap<(String, String), String>;

/// An example in a sandbox.
struct Stage {
    folder: Folder,
    example: PathBuf,
    runtime: tokio::runtime::Runtime,
    sandbox: Sandbox,
}

impl Stage {
    fn new(example: &Path) -> Self {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let sandbox = runtime.block_on(Sandbox::start(&Options::default())).unwrap();
        let folder = Folder::with(&[]);
        folder.write("kubeconfig", sandbox.kubeconfig());
        let stage = Stage { folder, example: example.to_path_buf(), runtime, sandbox };
        for definition in kiln_install::definitions() {
            stage.sandbox.apply(&definition, "default").unwrap();
        }
        stage
    }

    fn path(&self, name: &str) -> String {
        self.example.join(name).display().to_string()
    }

    /// The objects of a file; none if it is not there.
    fn objects(&self, name: &str) -> Vec<Value> {
        let Ok(bytes) = std::fs::read(self.example.join(name)) else { return Vec::new() };
        let documents = read_bytes(name, &bytes, ReadOptions::kubernetes()).unwrap();
        documents.into_iter().flat_map(|document| list::flatten(document.into_value())).collect()
    }

    /// Stores an object, and the namespace that it is in; whether the server takes it.
    fn store(&self, object: &Value) -> bool {
        if let Some(namespace) = object.str_at(["metadata", "namespace"]) {
            let namespace =
                value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            let _ = self.sandbox.apply(&namespace, "default");
        }
        self.sandbox.apply(object, "default").is_ok()
    }

    fn kiln(&self, args: &[&str]) -> Run {
        let variables = [("KUBECONFIG", "kubeconfig")];
        self.folder.kiln_with_variables(args, &variables)
    }

    /// What `kiln apply` says, by object.
    fn applied(&self) -> BTreeMap<String, Verdicts> {
        let (rules, resources, others) =
            (self.path("rules.yaml"), self.path("resources.yaml"), self.path("others.yaml"));
        let mut args = vec!["apply", &rules, "--resource", &resources, "--trace", "--format=json"];
        if Path::new(&others).exists() {
            args.extend(["--target-resource", &others]);
        }
        let run = self.kiln(&args);
        let report = json::parse(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
        let mut said: BTreeMap<String, Verdicts> = BTreeMap::new();
        for result in report.get("results").and_then(Value::as_list).unwrap() {
            let text = |key: &str| result.str_at([key]).unwrap().to_owned();
            // The result of rules later on, when others have changed it, is another object.
            let verdicts = said.entry(text("resource")).or_default();
            verdicts.entry((text("policy"), text("rule"))).or_insert_with(|| text("result"));
        }
        said
    }
}

/// Holds the commands to each other over one example, and the engine to them if wanted; how many verdicts were compared.
fn compare(example: &Path, with_engine: bool, wrong: &mut Vec<String>) -> usize {
    let name = example.file_name().unwrap().to_string_lossy().into_owned();
    let stage = Stage::new(example);
    let _runtime = stage.runtime.enter();
    let applied = stage.applied();
    let mut given = [stage.objects("others.yaml"), stage.objects("resources.yaml")].concat();
    given.sort_by_key(|object| object.str_at(["kind"]) != Some("CustomResourceDefinition"));
    if !given.iter().all(|object| stage.store(object)) {
        // An API server refuses a part of it, which rules on files may still read.
        return 0;
    }
    for mut rule in stage.objects("rules.yaml") {
        if rule.str_at(["kind"]) == Some("PolicyException") {
            // Where exceptions hold for policies of the cluster.
            rule.set(["metadata", "namespace"], "kyverno").unwrap();
        }
        assert!(stage.store(&rule), "{name}: the policy is not stored");
    }
    let plan = stage.kiln(&["plan", "--format=json"]);
    let plan =
        json::parse(&plan.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {plan:?}"));
    let next = plan.get("nextWrite").and_then(Value::as_list).unwrap();
    let mut compared = 0;
    for object in &given {
        let Ok(id) = ObjectId::of(object) else { continue };
        let kind = format!("{}/{}", id.gvk.kind, id.name);
        let kind = match id.gvk.group.as_str() {
            "" => kind,
            group => format!("{}.{group}/{}", id.gvk.kind, id.name),
        };
        let namespace = if id.namespace.is_empty() { "default" } else { &id.namespace };
        let run = stage.kiln(&["explain", &kind, "--namespace", namespace, "--format=json"]);
        let Ok(explained) = json::parse(&run.stdout) else {
            wrong.push(format!("{name}: {kind} is not explained: {run:?}"));
            continue;
        };
        let called = explained.str_at(["object"]).unwrap().to_owned();
        let Some(applied) = applied.get(&called) else { continue };
        let mut is_no = explained.get("refused").is_some_and(|why| !why.is_null());
        for rule in explained.get("rules").and_then(Value::as_list).unwrap() {
            let text = |key: &str| rule.str_at([key]).unwrap().to_owned();
            let (key, said) = ((text("policy"), text("rule")), text("verdict"));
            is_no |= matches!(said.as_str(), "fail" | "error");
            let wanted = applied.get(&key).map_or("no match", String::as_str);
            compared += 1;
            if said != wanted {
                let why = rule.get("why").map(json::to_string).unwrap_or_default();
                wrong.push(format!(
                    "{name}: {called}: rule {key:?}: explain says {said} ({why}), apply {wanted}"
                ));
            }
        }
        if run.code != i32::from(is_no) {
            wrong.push(format!("{name}: {called}: explain ends with {}", run.code));
        }
        let refused = next.iter().any(|write| {
            write.str_at(["action"]) == Some("refuse")
                && write.str_at(["object"]) == Some(called.as_str())
        });
        let fails = applied.values().any(|verdict| verdict == "fail");
        if fails && !refused || refused && !is_no {
            wrong.push(format!("{name}: {called}: plan refuses it: {refused}, apply: {fails}"));
        }
    }
    if with_engine {
        engine(&stage, &name, &applied, wrong);
    }
    compared
}

/// Holds a sandbox with an engine to what `kiln apply` says.
fn engine(
    stage: &Stage,
    name: &str,
    applied: &BTreeMap<String, Verdicts>,
    wrong: &mut Vec<String>,
) {
    let given = ["others.yaml", "resources.yaml"].map(|file| stage.path(file));
    let given = given.iter().filter(|path| Path::new(path).exists()).map(String::as_str);
    let rules = stage.path("rules.yaml");
    let mut args = vec!["up", &rules];
    args.extend(given.flat_map(|path| ["--resource", path]));
    args.extend(["--", "kiln", "plan", "--all", "--format=json"]);
    let up = stage.kiln(&args);
    let fails = applied.values().flat_map(BTreeMap::values).any(|verdict| verdict == "fail");
    if up.stderr.contains("denied the request") != fails {
        wrong.push(format!("{name}: apply fails: {fails}, the webhook says: {}", up.stderr));
    }
    let left = json::parse(&up.stdout).unwrap_or_else(|error| panic!("{name}: {error}: {up:?}"));
    for list in ["changes", "nextWrite"] {
        let left = left.get(list).and_then(Value::as_list).unwrap();
        if !left.is_empty() {
            let left: Vec<_> = left.iter().map(json::to_string).collect();
            wrong.push(format!("{name}: the engine left {list}: {}", left.join("\n")));
        }
    }
}

/// Holds all examples of a group; there are at least so many verdicts. An engine takes a second to start, so that only
/// one example out of so many has one: all of them with `KILN_VERDICTS=all`.
fn hold(group: &str, least: usize, every: usize) {
    let all = std::env::var("KILN_VERDICTS").is_ok_and(|which| which == "all");
    let every = if all { 1 } else { every };
    let folder = project_root().join("examples").join(group);
    let mut examples: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    examples.sort();
    let mut wrong = Vec::new();
    // Rules that cannot be compiled have no verdicts.
    let runs = |example: &PathBuf| {
        let code = std::fs::read_to_string(example.join("expected-exit-code.txt"));
        !code.is_ok_and(|code| code.trim() == "2")
    };
    let examples = examples.iter().filter(|example| runs(example)).enumerate();
    let compared: usize =
        examples.map(|(at, example)| compare(example, at % every == 0, &mut wrong)).sum();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared >= least, "only {compared} verdicts were compared");
}

#[test]
fn generate_rules_are_judged_alike_everywhere() {
    hold("generate", 12, 4);
}

#[test]
fn generating_policies_are_judged_alike_everywhere() {
    hold("generating-policy", 12, 4);
}

#[test]
fn mutate_rules_are_judged_alike_everywhere() {
    hold("mutate", 1, 1);
}

#[test]
fn mod_rules_are_judged_alike_everywhere() {
    hold("modrule", 3, 1);
}
