//! First inputs for a target: the examples, the tables of cases, and recorded cases where they are.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::root;

/// A seed longer than this makes every mutation of it slow.
const LONGEST: usize = 8 * 1024;
/// More seeds than this of one source say the same again.
const MOST: usize = 300;

/// Gives a target seeds when its corpus is empty, and says how many.
pub(super) fn plant(target: &str) -> Result<usize> {
    let directory = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&directory).with_context(|| directory.display().to_string())?;
    if fs::read_dir(&directory).with_context(|| directory.display().to_string())?.next().is_some() {
        return Ok(0);
    }
    let seeds = of(target)?;
    for (number, seed) in seeds.iter().enumerate() {
        let file = directory.join(format!("seed-{number:04}"));
        fs::write(&file, seed).with_context(|| file.display().to_string())?;
    }
    Ok(seeds.len())
}

/// Every target without a line here starts from the documents of the examples.
fn of(target: &str) -> Result<Vec<Vec<u8>>> {
    let mut seeds = Seeds { recorded: recorded_directory(), all: Vec::new() };
    match target {
        "admission_review" => {
            seeds.add([review(&json!({
                "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "shop"},
            }))]);
            for file in ["mutate/policies.json", "validate/policies.json"] {
                seeds.add(seeds.cases(file)?.iter().map(|case| review(&case["resource"])));
            }
        }
        "apiserver" => {
            // The first byte chooses: which path, and four times which content type.
            let first = |choice: u8, body: &[u8]| [&[choice], body].concat();
            for choice in [4, 6, 13] {
                seeds.add(
                    documents(&root().join("examples"), "resources.yaml")?
                        .iter()
                        .map(|d| first(choice, d)),
                );
            }
            seeds.add(
                seeds
                    .cases("pod-security/cases.json")?
                    .iter()
                    .map(|case| first(0, &text(&case["pod"]))),
            );
            seeds.add(seeds.cases("apiserver/crds.json")?.iter().map(|crd| first(3, &text(crd))));
            for (file, choice) in [("strategic-merge", 17), ("json-patch", 21)] {
                let cases = seeds.cases(&format!("apiserver/{file}.json"))?;
                seeds.add(cases.iter().map(|case| first(choice, &text(&case["patch"]))));
            }
        }
        "cel" => {
            seeds.tables("cel", &["expression"])?;
            seeds.recorded("cel/conformance.json", &["expr"])?;
        }
        "chart" => seeds.tables("chart", &["template"])?,
        "gotemplate" => {
            seeds.tables("gotemplate", &["data", "template"])?;
            seeds.recorded("gotemplate/cases.json", &["data", "template"])?;
        }
        "jmespath" => {
            seeds.tables("jmespath", &["data", "expression"])?;
            seeds.recorded("jmespath/cases.json", &["data", "expression"])?;
        }
        "jsonpath" => {
            seeds.tables("jsonpath", &["data", "expression"])?;
            seeds.recorded("kubemod/jsonpath-cases.json", &["data", "expr"])?;
        }
        "kustomize_build" => {
            seeds.add(trees_of_tables("kustomize", "kustomization.yaml")?.iter().map(Tree::build));
            for directory in [root().join("examples"), seeds.recorded.join("kustomize")] {
                seeds.add(
                    with_neighbours(&directory, "kustomization.yaml")?.iter().map(Tree::build),
                );
            }
        }
        "kyverno_policy" => {
            seeds.add(documents(&root().join("examples"), "rules.yaml")?);
            seeds.tables("dialects", &["modrules"])?;
            seeds.add(documents(&seeds.recorded.join("policy-library"), "yaml")?);
            seeds.recorded("mutate/policies.json", &["policy"])?;
            seeds.recorded("validate/policies.json", &["policy"])?;
            seeds.add(documents(&seeds.recorded.join("kubemod"), "modrules.yaml")?);
        }
        "patch_json" => {
            seeds.add(PATCHES.iter().map(|text| text.as_bytes().to_vec()));
            seeds.recorded("apiserver/json-patch.json", &["object", "patch"])?;
            seeds.recorded("apiserver/merge-patch.json", &["object", "patch"])?;
            seeds.recorded("mutate/json-patch.json", &["resource", "patches"])?;
        }
        "patch_strategic" => {
            seeds.tables("pattern", &["resource", "patch"])?;
            seeds.recorded("apiserver/strategic-merge.json", &["object", "patch"])?;
            seeds.recorded("mutate/strategic-merge.json", &["resource", "patch"])?;
        }
        "pattern" => {
            for fields in [["pattern", "resource"], ["pattern", "value"], ["patch", "resource"]] {
                seeds.tables("pattern", &fields)?;
            }
            seeds.recorded("validate/patterns.json", &["pattern", "resource"])?;
            seeds.recorded("mutate/preprocess.json", &["patch", "resource"])?;
            seeds.recorded("values/pattern.json", &["pattern", "value"])?;
        }
        "pod_security" => {
            seeds.recorded("validate/pod-security.json", &["podSecurity", "pod"])?;
            seeds.recorded("pod-security/cases.json", &["level", "pod"])?;
        }
        "validating_policy" => {
            seeds.add(documents(&root().join("examples"), "rules.yaml")?);
            seeds.add(documents(&seeds.recorded.join("policy-library"), "yaml")?);
            seeds.add(documents(&seeds.recorded.join("kyverno-cli-validate/cases"), "yaml")?);
        }
        "suite" => {
            seeds.add(trees_of_tables("suites", "kyverno-test.yaml")?.iter().map(Tree::suite));
            for directory in [
                root().join("examples"),
                seeds.recorded.join("kyverno-cli/cases"),
                seeds.recorded.join("kyverno-cli-validate/cases"),
            ] {
                seeds
                    .add(with_neighbours(&directory, "kyverno-test.yaml")?.iter().map(Tree::suite));
            }
        }
        "text_types" => {
            seeds.recorded("values/quantity.json", &["input"])?;
            seeds.recorded("values/duration.json", &["input"])?;
            seeds.recorded("values/wildcard.json", &["pattern", "name"])?;
            seeds.add(TEXTS.iter().map(|text| text.as_bytes().to_vec()));
        }
        "variables" => {
            seeds.add(tables("jmespath")?.iter().map(|case| {
                let data = case.get("data").map_or_else(|| b"{}".to_vec(), text);
                let variable = format!("{{{{ {} }}}}", case["expression"].as_str().unwrap_or("@"));
                [data, vec![b'\n'], variable.into_bytes()].concat()
            }));
            seeds.add(VARIABLES.iter().map(|text| text.as_bytes().to_vec()));
            seeds.recorded("variables/cases.json", &["context", "document"])?;
            seeds.add(seeds.cases("conditions/cases.json")?.iter().map(|case| {
                let condition = json!({
                    "key": case["key"], "operator": case["operator"], "value": case["value"],
                });
                [b"{}\n", text(&condition).as_slice()].concat()
            }));
        }
        "yaml_emit" => {
            seeds.tables("jmespath", &["data"])?;
            seeds.tables("pattern", &["resource"])?;
            seeds.recorded("yaml/emit.json", &["value"])?;
            seeds.recorded("apiserver/strategic-merge.json", &["object"])?;
            seeds.add([br#"{"a":["yes",1.0,null,"x: y\n"],"":{}}"#.to_vec()]);
        }
        "yaml_rewrite" => {
            let documents = documents(&root().join("examples"), "yaml")?;
            seeds.add(documents.windows(2).map(|pair| pair.join(&0)));
        }
        "yaml_read" => {
            seeds.add(documents(&root().join("examples"), "yaml")?);
            seeds.recorded("yaml/read.json", &["yaml"])?;
        }
        _ => seeds.add(documents(&root().join("examples"), "yaml")?),
    }
    Ok(seeds.all)
}

/// What the recorded values have none of: selectors, versions, images, times, regular expressions.
const TEXTS: [&str; 10] = [
    "a in (b, c),!d,e!=f",
    "app.kubernetes.io/name=web,tier notin (x)",
    ">=1.2.3 <2.0.0 || ~1.4",
    "v1.21.0-rc.1+build",
    "registry.example.com:5000/team/app:1.2@sha256:\
     0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
    "2006-01-02T15:04:05Z07:00\n2024-02-29T23:59:60+01:00",
    "Mon, 02 Jan 2006 15:04:05 MST\nTue, 10 Nov 2009 23:00:00 UTC",
    "^(?P<name>[a-z]+)-(\\d{1,3})?$\nweb-12",
    "(a|b)*?c[^\\s]\\b\naabbc",
    "\"a\\u00e9\\x41\\n\"",
];

const PATCHES: [&str; 4] = [
    r#"{"a":[1,{"b":null}],"c/d":"~"}
[{"op":"add","path":"/a/-","value":{}},{"op":"move","from":"/a/1/b","path":"/e"}]"#,
    r#"{"a":{"b":1}}
[{"op":"test","path":"/a/b","value":1.0},{"op":"copy","from":"/a","path":"/a/c"}]"#,
    r#"{"c/d":"~","l":[1,2,3]}
[{"op":"replace","path":"/c~1d","value":"x"},{"op":"remove","path":"/l/0"}]"#,
    r#"{"a":{"b":1,"c":[1]}}
{"a":{"b":null,"c":{"d":2}}}"#,
];

const VARIABLES: [&str; 3] = [
    r#"{"request":{"object":{"metadata":{"name":"web","labels":{"a/b":"c"}}}}}
{"name":"{{request.object.metadata.name}}-{{ request.object.metadata.labels.\"a/b\" || 'x' }}"}"#,
    r#"{"element":{"image":"a:1"}}
{"a":"$(./../b)","b":"\\{{ x }}","c":["{{ element.image }}","{{@}}"]}"#,
    r#"{"n":3}
{"any":[{"key":"{{ n }}","operator":"GreaterThan","value":"2"}],
 "all":[{"key":"1h","operator":"DurationLessThan","value":"90m"}]}"#,
];

struct Seeds {
    recorded: PathBuf,
    all: Vec<Vec<u8>>,
}

impl Seeds {
    /// Keeps what is short enough, evenly chosen where there is much of it.
    fn add(&mut self, seeds: impl IntoIterator<Item = Vec<u8>>) {
        let seeds: Vec<_> =
            seeds.into_iter().filter(|seed| (1..=LONGEST).contains(&seed.len())).collect();
        let step = seeds.len().div_ceil(MOST).max(1);
        self.all.extend(seeds.into_iter().step_by(step));
    }

    /// The cases of a recorded file; none where it is missing.
    fn cases(&self, file: &str) -> Result<Vec<Value>> {
        let path = self.recorded.join(file);
        if !path.exists() {
            return Ok(Vec::new());
        }
        let bytes = fs::read(&path).with_context(|| path.display().to_string())?;
        let all: Value =
            serde_json::from_slice(&bytes).with_context(|| path.display().to_string())?;
        let datasets = all.get("datasets").cloned().unwrap_or_default();
        let mut cases: Vec<Value> = match all.get("cases").unwrap_or(&all) {
            Value::Array(cases) => cases.clone(),
            Value::Object(cases) => cases.values().cloned().collect(),
            _ => Vec::new(),
        };
        // Some files say their data once and name it in the cases.
        for case in &mut cases {
            let named = case.get("data").and_then(Value::as_str);
            if let Some(data) = named.and_then(|name| datasets.get(name)) {
                case["data"] = data.clone();
            }
        }
        Ok(cases)
    }

    /// A seed of every recorded case: the fields, a line each.
    fn recorded(&mut self, file: &str, fields: &[&str]) -> Result<()> {
        self.add(self.cases(file)?.iter().filter_map(|case| lines(case, fields)));
        Ok(())
    }

    /// A seed of every case of a crate's own tables that has the last of the fields; the others are
    /// data, and empty where the case has none.
    fn tables(&mut self, of_crate: &str, fields: &[&str]) -> Result<()> {
        self.add(tables(of_crate)?.iter_mut().filter_map(|case| {
            for field in &fields[..fields.len() - 1] {
                if case.get(field).is_none() {
                    case[field] = json!({});
                }
            }
            lines(case, fields)
        }));
        Ok(())
    }
}

/// Every case of a crate's own tables.
fn tables(of_crate: &str) -> Result<Vec<Value>> {
    let directory = root().join("crates").join(of_crate).join("tests/cases");
    let mut directories: Vec<PathBuf> = files(&directory, ".yaml")?
        .iter()
        .filter_map(|file| Some(file.parent()?.to_owned()))
        .collect();
    directories.dedup();
    let cases = directories.iter().flat_map(kiln_testkit::read_cases);
    cases.map(|case| serde_json::to_value(case.fields()).context("a case as JSON")).collect()
}

fn recorded_directory() -> PathBuf {
    std::env::var_os("KILN_CORPUS").map_or_else(|| root().join("../shared/corpus"), PathBuf::from)
}

/// The fields of a case, a line each; only the last may have several lines.
fn lines(case: &Value, fields: &[&str]) -> Option<Vec<u8>> {
    let mut seed = Vec::new();
    for (place, field) in fields.iter().enumerate() {
        let mut text = text(case.get(field)?);
        if place + 1 < fields.len() {
            text.iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
            text.push(b'\n');
        }
        seed.append(&mut text);
    }
    Some(seed)
}

/// Text as it is, everything else as JSON.
fn text(value: &Value) -> Vec<u8> {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned).into_bytes()
}

fn review(object: &Value) -> Vec<u8> {
    let (group, version) = object["apiVersion"]
        .as_str()
        .map_or(("", "v1"), |text| text.split_once('/').unwrap_or(("", text)));
    let kind = object["kind"].as_str().unwrap_or("Pod");
    let resource = format!("{}s", kind.to_lowercase());
    let review = json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "u", "operation": "CREATE", "object": object, "oldObject": null,
            "kind": {"group": group, "version": version, "kind": kind},
            "resource": {"group": group, "version": version, "resource": resource},
            "name": object["metadata"]["name"], "namespace": object["metadata"]["namespace"],
            "userInfo": {"username": "kubernetes-admin", "groups": ["system:masters"]},
        },
    });
    text(&review)
}

/// The files below a directory whose names end so, in the order of their paths.
fn files(directory: &Path, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        for entry in entries {
            let path = entry.with_context(|| directory.display().to_string())?.path();
            if path.is_dir() {
                directories.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn documents(directory: &Path, ending: &str) -> Result<Vec<Vec<u8>>> {
    files(directory, ending)?.iter().map(read).collect()
}

fn read(path: &PathBuf) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| path.display().to_string())
}

/// Every file with this name, each with the YAML files beside it.
fn with_neighbours(directory: &Path, name: &str) -> Result<Vec<Tree>> {
    let mut trees = Vec::new();
    for file in files(directory, name)? {
        let others = files(file.parent().unwrap_or(directory), ".yaml")?;
        let others =
            others.iter().filter(|other| **other != file && other.parent() == file.parent());
        let mut tree =
            Tree { first: String::from_utf8_lossy(&read(&file)?).into_owned(), others: Vec::new() };
        for other in others {
            let name = other.file_name().unwrap_or_default().to_string_lossy().into_owned();
            tree.others.push((name, String::from_utf8_lossy(&read(other)?).into_owned()));
        }
        trees.push(tree);
    }
    Ok(trees)
}

/// The trees that a crate's own tables have as `files`.
fn trees_of_tables(of_crate: &str, name: &str) -> Result<Vec<Tree>> {
    let mut trees = Vec::new();
    for case in tables(of_crate)? {
        let Some(files) = case["files"].as_object() else { continue };
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (first, others): (Vec<_>, Vec<_>) =
            files.iter().partition(|(path, _)| path.ends_with(name));
        let others: Vec<_> =
            others.iter().map(|(path, file)| ((*path).clone(), text(file))).collect();
        trees.extend(
            first.iter().map(|(_, file)| Tree { first: text(file), others: others.clone() }),
        );
    }
    Ok(trees)
}

/// A kustomization or suite, and the files it can name.
struct Tree {
    first: String,
    others: Vec<(String, String)>,
}

impl Tree {
    /// The target of builds has one other file, `a.yaml`.
    fn build(&self) -> Vec<u8> {
        let first = self
            .others
            .iter()
            .fold(self.first.clone(), |first, (name, _)| first.replace(name, "a.yaml"));
        format!("{first}\0{}", self.texts().join("---\n")).into_bytes()
    }

    /// The target of suites has all of its files, each after its name.
    fn suite(&self) -> Vec<u8> {
        let mut seed = self.first.clone();
        for (name, text) in &self.others {
            seed.push_str(&format!("\0{name}\n{text}"));
        }
        seed.into_bytes()
    }

    fn texts(&self) -> Vec<&str> {
        self.others.iter().map(|(_, text)| text.as_str()).collect()
    }
}
