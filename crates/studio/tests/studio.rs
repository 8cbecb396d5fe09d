//! The playground as the web application calls it.

use std::fs;
use std::path::Path;

use kiln_jmespath::AmbientSources;
use kiln_studio::playground::Playground;
use kiln_testkit::project_root;
use kiln_value::{Value, json, value};

/// A clock and chance that stand still.
struct Still;

impl AmbientSources for Still {
    fn now(&self) -> Option<std::time::SystemTime> {
        Some(std::time::UNIX_EPOCH)
    }

    fn random(&self) -> Option<u64> {
        Some(7)
    }
}

fn call(request: &Value) -> Value {
    json::parse(&Playground::default().call(&json::to_string(request), &Still)).unwrap()
}

fn file(path: &str, role: &str, text: &str) -> Value {
    value!({"path": path, "role": role, "text": text})
}

fn evaluate(files: Vec<Value>) -> Value {
    let workspace = value!({"files": []});
    let mut request = value!({"method": "evaluate", "trace": true, "plan": true, "lineage": true});
    request.set(["workspace"], workspace).unwrap();
    request.set(["workspace", "files"], Value::from(files)).unwrap();
    call(&request)
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
      data: {data: {a: b}}
";
const SHOP: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n";

#[test]
fn results_objects_plan_and_lineage_are_answered() {
    let answer =
        evaluate(vec![file("p.yaml", "policies", POLICY), file("r.yaml", "resources", SHOP)]);
    assert_eq!(answer.get_path(["summary", "pass"]).and_then(Value::as_i64), Some(1), "{answer:?}");
    let made = answer.get("objects").and_then(|objects| objects.index(0)).unwrap();
    assert_eq!(made.str_at(["object"]), Some("v1/ConfigMap/shop/settings"));
    assert!(made.str_at(["diff"]).unwrap().contains("+  a: b"), "{made:?}");
    let result = answer.get("results").and_then(|results| results.index(0)).unwrap();
    assert!(result.get("trace").is_some());
    assert_eq!(result.get_path(["rulePlace", "line"]).and_then(Value::as_i64), Some(6));
    for html in ["planHtml", "lineageHtml"] {
        assert!(answer.str_at([html]).unwrap().contains("settings"), "{html}");
    }
}

#[test]
fn a_wrong_field_has_a_place_and_a_hint() {
    let wrong = POLICY.replace("generate:", "generat:");
    let answer =
        evaluate(vec![file("p.yaml", "policies", &wrong), file("r.yaml", "resources", SHOP)]);
    let problems = answer.get("problems").and_then(Value::as_list).unwrap();
    let problem = problems.iter().find(|it| it.get("place").is_some()).unwrap();
    assert_eq!(problem.get_path(["place", "line"]).and_then(Value::as_i64), Some(8), "{problem:?}");
    assert!(problem.str_at(["hint"]).is_some_and(|hint| hint.contains("generate")), "{problem:?}");
}

#[test]
fn results_become_a_suite_that_passes() {
    let files = vec![file("p.yaml", "policies", POLICY), file("r.yaml", "resources", SHOP)];
    let mut request = value!({"method": "suite", "workspace": {"files": []}});
    request.set(["workspace", "files"], Value::from(files.clone())).unwrap();
    let suite = call(&request);
    let suite = suite.str_at(["text"]).unwrap();
    let with_suite = [files, vec![file("kyverno-test.yaml", "tests", suite)]].concat();
    let answer = evaluate(with_suite);
    let summary = answer.get_path(["tests", "summary"]).unwrap();
    assert_eq!(summary.get("passed").and_then(Value::as_i64), Some(1), "{suite}\n{answer:?}");
    assert_eq!(summary.get("failed").and_then(Value::as_i64), Some(0), "{suite}");
}

#[test]
fn a_kustomization_is_built_and_its_objects_are_resources() {
    let answer = evaluate(vec![
        file("p.yaml", "policies", POLICY),
        file(
            "app/kustomization.yaml",
            "tree",
            "commonAnnotations: {made: here}\nresources: [n.yaml]\n",
        ),
        file("app/n.yaml", "tree", SHOP),
    ]);
    assert!(answer.str_at(["build"]).unwrap().contains("made: here"), "{answer:?}");
    assert_eq!(answer.get_path(["summary", "pass"]).and_then(Value::as_i64), Some(1), "{answer:?}");
    let broken = evaluate(vec![file("kustomization.yaml", "tree", "resources: [none.yaml]\n")]);
    let problems = broken.get("problems").and_then(Value::as_list).unwrap();
    assert!(!problems.is_empty(), "{broken:?}");
}

#[test]
fn what_is_not_a_request_is_told() {
    for text in ["", "{", "[]", r#"{"method":"x"}"#, r#"{"method":"evaluate"}"#] {
        let answer = Playground::default().call(text, &Still);
        assert!(answer.contains("\"error\""), "{text}: {answer}");
    }
    let large = "x".repeat(5 << 20);
    let answer = evaluate(vec![file("p.yaml", "policies", &large)]);
    assert!(answer.str_at(["error", "message"]).unwrap().contains("too large"));
}

/// The counts at the end of what `kiln apply` prints for an example.
fn expected_summary(directory: &Path) -> Option<String> {
    let text = fs::read_to_string(directory.join("expected.txt")).ok()?;
    text.lines().rev().find(|line| line.starts_with("pass: ")).map(str::to_owned)
}

#[test]
fn examples_give_the_counts_of_the_command() {
    let mut count = 0;
    for group in
        ["generate", "generating-policy", "modrule", "mutate", "validate", "validating-policy"]
    {
        for entry in fs::read_dir(project_root().join("examples").join(group)).unwrap() {
            let directory = entry.unwrap().path();
            let Some(wanted) = expected_summary(&directory) else { continue };
            let mut files = Vec::new();
            for (name, role) in [
                ("rules.yaml", "policies"),
                ("resources.yaml", "resources"),
                ("others.yaml", "cluster"),
                ("values.yaml", "values"),
            ] {
                if let Ok(text) = fs::read_to_string(directory.join(name)) {
                    files.push(file(name, role, &text));
                }
            }
            let answer = evaluate(files);
            // A trace counts rules that do not match among none of these.
            let of =
                |key: &str| answer.get_path(["summary", key]).and_then(Value::as_i64).unwrap_or(-1);
            let got = format!(
                "pass: {}, fail: {}, warn: {}, error: {}, skip: {}",
                of("pass"),
                of("fail"),
                of("warn"),
                of("error"),
                of("skip")
            );
            assert_eq!(got, wanted, "{}", directory.display());
            count += 1;
        }
    }
    assert!(count >= 50, "{count}");
}
