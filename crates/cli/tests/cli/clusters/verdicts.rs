//! `kiln apply` on files, `kiln explain` and `kiln plan` on a cluster, and the webhook say the same of the same rule and
//! object: held over every rule of the examples.
//!
//! The objects are stored in a sandbox without an engine, so that no rule has changed them, and are explained there. Then
//! they are stored in one with an engine: what it rejects is what `apply` fails, and when it has come to rest, a plan for
//! all objects has nothing left to do.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kiln_object::{ObjectId, list};
use kiln_sandbox::{Sandbox, SandboxOptions};
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
        let sandbox = runtime.block_on(Sandbox::start(&SandboxOptions::default())).unwrap();
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

const DEPLOYMENT: &str =
    "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {
  replicas: 1, selector: {matchLabels: {app: web}},
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: main, image: web:1}]}}}}";

const WIDGETS: &str = "{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition,
  metadata: {name: widgets.example.com}, spec: {group: example.com, scope: Namespaced,
  names: {kind: Widget, listKind: WidgetList, plural: widgets, singular: widget},
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object,
    properties: {spec: {type: object, properties: {size: {type: integer}}}}}}}]}}";

const REPLICAS: &str =
    "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32";
const LABELS: &str =
    "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string";
const DATA: &str =
    "json: cannot unmarshal number into Go struct field ConfigMap.data of type string";
const SIZE: &str =
    "spec.size: Invalid value: \"string\": spec.size in body must be of type integer: \"string\"";

/// What rules make of the Deployment `web`, and what a server says of it.
const NOT_STORABLE: [(&str, &str, &str); 7] = [
    (
        "a ModRule that sets text",
        r#"{apiVersion: api.kubemod.io/v1beta1, kind: ModRule, metadata: {name: bad, namespace: shop}, spec: {type: Patch,
  match: [{select: "$.kind", matchValue: Deployment}],
  patch: [{op: replace, path: /spec/replicas, value: '"lots"'}]}}"#,
        REPLICAS,
    ),
    (
        "a ModRule that sets a number",
        r#"{apiVersion: api.kubemod.io/v1beta1, kind: ModRule, metadata: {name: bad, namespace: shop}, spec: {type: Patch,
  match: [{select: "$.kind", matchValue: Deployment}],
  patch: [{op: add, path: /metadata/labels, value: '{"count": 1}'}]}}"#,
        LABELS,
    ),
    (
        "a mutate rule",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: bad}, spec: {rules: [{name: bad,
  match: {any: [{resources: {kinds: [Deployment]}}]},
  mutate: {patchStrategicMerge: {spec: {replicas: lots}}}}]}}",
        REPLICAS,
    ),
    (
        "a mutate rule that removes what must be there",
        r#"{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: bad}, spec: {rules: [{name: bad,
  match: {any: [{resources: {kinds: [Deployment]}}]},
  mutate: {patchesJson6902: "[{op: remove, path: /spec/selector}]"}}]}}"#,
        "spec.selector: Required value",
    ),
    (
        "a MutatingPolicy",
        r#"{apiVersion: policies.kyverno.io/v1, kind: MutatingPolicy, metadata: {name: bad}, spec: {
  matchConstraints: {resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]},
  mutations: [{patchType: JSONPatch, jsonPatch: {expression: '[JSONPatch{op: "replace", path: "/spec/replicas", value: dyn("lots")}]'}}]}}"#,
        REPLICAS,
    ),
    (
        "a generate rule",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: bad}, spec: {rules: [{name: bad,
  match: {any: [{resources: {kinds: [Deployment]}}]},
  generate: {generateExisting: true, apiVersion: v1, kind: ConfigMap, name: made, namespace: shop, data: {data: {count: 1}}}}]}}",
        DATA,
    ),
    (
        "a generate rule for a custom kind",
        "{apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: bad}, spec: {rules: [{name: bad,
  match: {any: [{resources: {kinds: [Deployment]}}]},
  generate: {generateExisting: true, apiVersion: example.com/v1, kind: Widget, name: made, namespace: shop, data: {spec: {size: big}}}}]}}",
        SIZE,
    ),
];

#[test]
fn results_that_a_server_does_not_store_are_errors_everywhere() {
    let mut wrong = Vec::new();
    for (name, rule, reason) in NOT_STORABLE {
        let files = Folder::with(&[
            ("rules.yaml", rule),
            ("resources.yaml", DEPLOYMENT),
            ("others.yaml", WIDGETS),
        ]);
        let mut check = |command: &str, run: &Run| {
            if run.code != 1 || !format!("{}{}", run.stdout, run.stderr).contains(reason) {
                wrong.push(format!("{name}: {command}: {run:?}"));
            }
        };
        let stage = Stage::new(files.path());
        let _runtime = stage.runtime.enter();
        let [rules, resources, others] =
            ["rules.yaml", "resources.yaml", "others.yaml"].map(|file| stage.path(file));
        let apply = ["apply", &rules, "--resource", &resources, "--target-resource", &others];
        let applied = stage.kiln(&apply);
        check("apply", &applied);
        for form in ["--format=yaml", "--format=json", "--table"] {
            let run = stage.kiln(&[&apply[..], &[form]].concat());
            assert_eq!(run.code, 1, "{name}: {form}: {run:?}");
        }
        assert!(applied.stdout.contains("Deployment shop/web: error"), "{name}: {applied:?}");
        for object in ["others.yaml", "resources.yaml", "rules.yaml"] {
            assert!(stage.objects(object).iter().all(|object| stage.store(object)), "{name}");
        }
        let explained = stage.kiln(&["explain", "deploy/web", "-n", "shop"]);
        check("explain", &explained);
        assert!(explained.stdout.contains("error: the API server rejects"), "{explained:?}");
        let plan = stage.kiln(&["plan", "--format=json"]);
        let in_json = json::to_string(&Value::from(reason));
        let in_json = in_json.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap();
        if !plan.stdout.contains(in_json) {
            wrong.push(format!("{name}: plan: {plan:?}"));
        }
        // The sandbox refuses the object; the UpdateRequest shows what the controller cannot write.
        let namespace = stage.folder.path().join("namespace.yaml");
        std::fs::write(&namespace, "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}")
            .unwrap();
        let namespace = namespace.display().to_string();
        let given = ["--resource", &namespace, "--resource", &others, "--resource", &resources];
        let asked = ["--", "kiln", "explain", "deploy/web", "-n", "shop", "--format=json"];
        let up = [&["up", &rules][..], &given, &asked].concat();
        let up = stage.kiln(&up);
        let told = json::parse(&up.stdout).ok();
        let told = told.and_then(|told| told.get("updateRequests").map(json::to_string));
        if !up.stderr.contains(reason) && !told.is_some_and(|told| told.contains(in_json)) {
            wrong.push(format!("{name}: up: {up:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn what_a_later_rule_mends_is_no_error() {
    let rule = |name: &str, value: &str| {
        format!(
            "{{apiVersion: api.kubemod.io/v1beta1, kind: ModRule, metadata: {{name: {name}, namespace: shop}},
  spec: {{type: Patch, match: [{{select: $.kind, matchValue: Deployment}}],
  patch: [{{op: replace, path: /spec/replicas, value: '{value}'}}]}}}}"
        )
    };
    let rules = [rule("a-breaks", "\"lots\""), rule("b-mends", "2")].join("\n---\n");
    let files = Folder::with(&[("rules.yaml", &rules), ("resources.yaml", DEPLOYMENT)]);
    let run = files.kiln(&["apply", "rules.yaml", "--resource", "resources.yaml"]);
    assert_eq!((run.code, run.stdout.contains("replicas: 2")), (0, true), "{run:?}");
    // What was wrong before is not the rule's doing.
    let broken = DEPLOYMENT.replace("replicas: 1", "replicas: many");
    let label = rule("label", "")
        .replace("op: replace, path: /spec/replicas", "op: add, path: /metadata/labels")
        .replace("''", "'{\"a\": \"b\"}'");
    let files = Folder::with(&[("rules.yaml", &label), ("resources.yaml", &broken)]);
    let run = files.kiln(&["apply", "rules.yaml", "--resource", "resources.yaml"]);
    assert_eq!((run.code, run.stdout.contains("a: b")), (0, true), "{run:?}");
}
