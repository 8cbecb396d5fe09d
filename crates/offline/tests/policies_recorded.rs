//! Recorded cases: Kyverno's command line tests of policies in CEL.

use std::path::{Path, PathBuf};

use kiln_dialects::{compile, is_exception, is_policy};
use kiln_engine::{Limits, RuleSet};
use kiln_object::Kinds;
use kiln_offline::{Job, Report, RuleResult, Status, Values, run};
use kiln_testkit::{Tally, corpus};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, read_bytes};

fn read(path: &Path) -> Result<Vec<Document>, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    read_bytes(&name, &text, ReadOptions::kubernetes()).map_err(|e| e.to_string())
}

fn test_files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            test_files(&path, found);
        } else if path.file_name().is_some_and(|name| name == "kyverno-test.yaml") {
            found.push(path);
        }
    }
}

fn paths(folder: &Path, value: Option<&Value>) -> Vec<PathBuf> {
    match value {
        Some(Value::String(one)) => vec![folder.join(one.as_str())],
        Some(Value::List(list)) => {
            list.iter().filter_map(Value::as_str).map(|p| folder.join(p)).collect()
        }
        _ => Vec::new(),
    }
}

fn load(paths: &[PathBuf]) -> Result<Vec<Document>, String> {
    let mut all = Vec::new();
    for path in paths {
        all.extend(read(path)?);
    }
    Ok(all)
}

fn values(paths: &[PathBuf]) -> Result<Vec<Value>, String> {
    Ok(load(paths)?.into_iter().map(Document::into_value).collect())
}

/// Objects, as Kyverno compares them: ownership labels and empty things do not count.
fn comparable(object: &Value) -> Value {
    fn tidy(value: &Value) -> Option<Value> {
        match value {
            Value::Map(map) => {
                let mut kept = kiln_value::Map::new();
                for (key, value) in map {
                    if let Some(value) = tidy(value) {
                        kept.insert(key.clone(), value);
                    }
                }
                (!kept.is_empty()).then_some(Value::Map(kept))
            }
            Value::List(list) => {
                let kept: Vec<_> = list.iter().filter_map(tidy).collect();
                (!kept.is_empty()).then_some(Value::from(kept))
            }
            other => Some(other.clone()),
        }
    }
    let mut object = object.clone();
    kiln_engine::strip(&mut object);
    // Clients put what names no namespace there.
    if object.str_at(["metadata", "namespace"]) == Some("default") {
        object.remove(["metadata", "namespace"]);
    }
    tidy(&object).unwrap_or(Value::Null)
}

struct Case {
    folder: PathBuf,
    test: Value,
    report: Report,
}

impl Case {
    fn run(folder: &Path, test: &Value) -> Result<Self, String> {
        let at = |key: &str| load(&paths(folder, test.get(key)));
        let mut documents = at("policies")?;
        documents.extend(at("exceptions")?);
        let mut others = values(&paths(folder, test.get("targetResources")))?;
        others.extend(values(&paths(folder, test.get("paramResources")))?);
        let mut kinds = Kinds::builtin();
        for document in at("context")?.into_iter().chain(at("clusterResources")?) {
            let spec = document.value().get("spec").cloned().unwrap_or(Value::Null);
            let resources = spec.get("resources").and_then(Value::as_list).cloned();
            others.extend(resources.into_iter().flat_map(kiln_value::List::into_vec));
            for definition in values(&paths(folder, spec.get("crds"))).unwrap_or_default() {
                kinds = kinds.clone().with_crd(&definition).unwrap_or(kinds);
            }
        }
        let policies = documents.iter().filter(|d| is_policy(d) || is_exception(d));
        let compiled = compile(policies, &kinds);
        if compiled.has_errors() {
            let all: Vec<_> = compiled.diagnostics.iter().map(ToString::to_string).collect();
            return Err(all.join("; "));
        }
        let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
        let given = match test.get("variables").and_then(Value::as_str) {
            Some(path) => Values::read(&read(&folder.join(path))?[0]).map_err(|e| e.to_string())?,
            None => Values::default(),
        };
        let job = Job {
            rules: &rules,
            kinds: &kinds,
            resources: values(&paths(folder, test.get("resources")))?,
            others,
            values: given,
            user: None,
            limits: Limits::default(),
            outside: &kiln_engine::Offline,
            explain: false,
            only_given_kinds: false,
        };
        let report = run(&job, &kiln_jmespath::NoSources);
        Ok(Case { folder: folder.to_owned(), test: test.clone(), report })
    }

    /// The results that an entry is about.
    fn results<'c>(&'c self, entry: &'c Value) -> impl Iterator<Item = &'c RuleResult> {
        let policy = entry.str_at(["policy"]).unwrap_or_default();
        let names: Vec<&str> = entry
            .get("resources")
            .and_then(Value::as_list)
            .map(|list| list.iter().filter_map(Value::as_str).collect())
            .unwrap_or_default();
        self.report.results.iter().filter(move |result| {
            let takes = |id: &kiln_object::ObjectId| {
                names.is_empty()
                    || names.iter().any(|name| match name.split_once('/') {
                        Some((namespace, name)) => id.namespace == namespace && id.name == name,
                        None => id.name == *name,
                    })
            };
            // Kyverno names the target, where a rule changes another object than the trigger.
            let named = takes(&result.trigger) || result.made.iter().any(|made| takes(&made.id));
            result.rule.policy.name == policy.rsplit('/').next().unwrap_or_default() && named
        })
    }

    fn check(&self, entry: &Value) -> Result<(), String> {
        let wanted = entry.str_at(["result"]).unwrap_or_default();
        let mut expected = values(&paths(&self.folder, entry.get("generatedResource")))?;
        expected.extend(values(&paths(&self.folder, entry.get("generatedResources")))?);
        expected.extend(values(&paths(&self.folder, entry.get("patchedResources")))?);
        let expected: Vec<_> = expected.iter().map(comparable).collect();
        let mut found = 0;
        for result in self.results(entry) {
            found += 1;
            let status = match result.status {
                Status::Pass => "pass",
                Status::Skip => "skip",
                Status::Fail => "fail",
                Status::Error => "error",
                Status::NoMatch => "no match",
            };
            if status != wanted {
                let problems: Vec<_> = result.problems.iter().map(ToString::to_string).collect();
                return Err(format!("want {wanted}, got {status} {}", problems.join("; ")));
            }
            for made in &result.made {
                let got = comparable(&made.object);
                if !expected.contains(&got) {
                    let all: Vec<_> = expected.iter().map(json::to_string).collect();
                    return Err(format!(
                        "made {}\nwanted one of {}",
                        json::to_string(&got),
                        all.join("\n")
                    ));
                }
            }
            if wanted == "pass" && !expected.is_empty() && result.made.is_empty() {
                return Err("made nothing".into());
            }
        }
        let _ = &self.test;
        if found == 0 { Err("no result".into()) } else { Ok(()) }
    }
}

fn run_cases(name: &str, takes: impl Fn(&str) -> bool) {
    let Some(root) = corpus("kyverno-cli/cases") else { return };
    let mut tally = Tally::new(name);
    let mut found = Vec::new();
    test_files(&root, &mut found);
    for path in found {
        let folder = path.parent().unwrap_or(&root).to_owned();
        let case = folder.strip_prefix(&root).unwrap_or(&folder).display().to_string();
        if !takes(&case) {
            continue;
        }
        let documents = read(&path).unwrap_or_else(|e| panic!("{e}"));
        let test = documents[0].value();
        let results = test.get("results").and_then(Value::as_list).expect("a test has results");
        let run = Case::run(&folder, test);
        for (at, entry) in results.iter().enumerate() {
            tally.case(&format!("{case} {at}"), || match &run {
                Ok(run) => run.check(entry),
                Err(error) => Err(error.clone()),
            });
        }
    }
    tally.finish();
}

#[test]
fn generating_policies_of_the_command_line_pass() {
    run_cases("generating policies of the command line", |case| {
        case.starts_with("test-generating-policy") || case.contains("gpol")
    });
}

#[test]
fn mutating_policies_of_the_command_line_pass() {
    run_cases("mutating policies of the command line", |case| {
        // Subresources are the business of whoever runs whole suites.
        (case.starts_with("test-mutating-policy") || case.contains("mpol"))
            && !case.ends_with("mutate-pod-binding-subresource")
    });
}

#[test]
fn mutating_admission_policies_of_the_command_line_pass() {
    run_cases("mutating admission policies of the command line", |case| {
        case.starts_with("test-mutating-admission-policy")
    });
}
