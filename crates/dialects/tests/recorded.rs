//! Recorded cases: the policies of Kyverno's conformance suite and command line tests.

mod support;

use std::path::{Path, PathBuf};

use kiln_dialects::{compile, is_policy};
use kiln_engine::{Effect, Event, RuleSet};
use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus};
use kiln_value::{Value, json};
use kiln_yaml::{Document, ReadOptions, read_bytes};
use support::{Objects, run};

fn read(path: &Path) -> Result<Vec<Document>, String> {
    let text = std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    read_bytes(&name, &text, ReadOptions::kubernetes()).map_err(|e| e.to_string())
}

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "yaml") {
            found.push(path);
        }
    }
}

/// The kinds that the steps of a test define.
fn custom_kinds(folder: &Path) -> Kinds {
    let mut found = Vec::new();
    files(folder, &mut found);
    let documents = found.iter().filter_map(|path| read(path).ok()).flatten();
    documents.fold(Kinds::builtin(), |kinds, document| {
        let is_definition = document.value().str_at(["kind"]) == Some("CustomResourceDefinition");
        match is_definition {
            // What a step waits for is a definition without its spec.
            true => kinds.clone().with_crd(document.value()).unwrap_or(kinds),
            false => kinds,
        }
    })
}

/// Policies that a step of the suite expects to be refused, by a part of their path.
fn refused(case: &str) -> bool {
    let name = case.rsplit('/').next().unwrap_or_default();
    ["fail", "bad", "no-targets"].iter().any(|word| name.contains(word))
        || case.contains("use-generate-existing-on-policy-update")
        || case.contains("cross-namespace-denied/")
        || case.contains("generating-policies/validate/")
        || case.contains("-invalid/")
}

#[test]
fn policies_of_the_conformance_suite_compile() {
    let Some(root) = corpus("chainsaw") else { return };
    let mut tally = Tally::new("conformance policies");
    for suite in ["generate", "mutate", "generating-policies", "namespaced-generating-policies"] {
        let mut found = Vec::new();
        files(&root.join(suite), &mut found);
        for path in found {
            let case = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
            let Ok(documents) = read(&path) else { continue };
            // What a step waits for is a policy without its spec.
            let whole = |d: &Document| is_policy(d) && d.value().get("spec").is_some();
            if !documents.iter().any(whole) {
                continue;
            }
            tally.case(&case, || {
                let kinds = custom_kinds(path.parent().unwrap_or(&root));
                let compiled = compile(&documents, &kinds);
                let errors: Vec<_> = support::messages(&compiled)
                    .into_iter()
                    .filter(|m| m.starts_with("error"))
                    .collect();
                match (errors.is_empty(), refused(&case)) {
                    (true, false) | (false, true) => Ok(()),
                    (true, true) => Err("compiles, and should not".into()),
                    (false, false) => Err(errors.join("; ")),
                }
            });
        }
    }
    tally.finish();
}

/// Kyverno's comparison: ownership labels and empty things do not count.
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

fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    kiln_engine::strip(&mut object);
    tidy(&object).unwrap_or(Value::Null)
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

fn check(folder: &Path, test: &Value, result: &Value) -> Result<(), String> {
    let policies = load(&paths(folder, test.get("policies")))?;
    let resources = values(&paths(folder, test.get("resources")))?;
    let mut view = resources.clone();
    view.extend(values(&paths(folder, result.get("cloneSourceResource")))?);
    let view = Objects(view);
    let compiled = compile(&policies, &Kinds::builtin());
    if compiled.has_errors() {
        return Err(support::messages(&compiled).join("; "));
    }
    let rules = RuleSet::new(compiled.policies);
    let mut expected = values(&paths(folder, result.get("generatedResource")))?;
    expected.extend(values(&paths(folder, result.get("generatedResources")))?);
    let expected: Vec<_> = expected.iter().map(comparable).collect();
    let wanted: Vec<&str> = result
        .get("resources")
        .and_then(Value::as_list)
        .map(|list| list.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let mut matched = 0;
    for resource in &resources {
        let name = resource.str_at(["metadata", "name"]).unwrap_or_default();
        let named = |w: &&str| w.rsplit('/').next() == Some(name);
        if !wanted.is_empty() && !wanted.iter().any(named) {
            continue;
        }
        for outcome in run(&rules, &Event::created(resource.clone()), &view) {
            if Some(outcome.rule.rule.as_str()) != result.str_at(["rule"])
                || Some(outcome.rule.policy.name.as_str())
                    != result.str_at(["policy"]).map(|p| p.rsplit('/').next().unwrap_or(p))
            {
                continue;
            }
            matched += 1;
            if !outcome.failures.is_empty() {
                return Err(outcome.failures[0].to_string());
            }
            for effect in &outcome.effects {
                let Effect::Ensure(ensure) = effect else { continue };
                let got = comparable(&ensure.object);
                if !expected.contains(&got) {
                    let all: Vec<_> = expected.iter().map(json::to_string_pretty).collect();
                    return Err(format!(
                        "made {}\nwanted one of {}",
                        json::to_string_pretty(&got),
                        all.join("\n")
                    ));
                }
            }
        }
    }
    if matched == 0 { Err("no rule matched".into()) } else { Ok(()) }
}

#[test]
fn generate_tests_of_the_command_line_pass() {
    let Some(root) = corpus("kyverno-cli/cases") else { return };
    let mut tally = Tally::new("command line generate tests");
    let mut found = Vec::new();
    files(&root.join("test-generate"), &mut found);
    for path in found {
        if path.file_name().is_none_or(|name| name != "kyverno-test.yaml") {
            continue;
        }
        let folder = path.parent().unwrap_or(&root).to_owned();
        let documents = read(&path).unwrap_or_else(|e| panic!("{e}"));
        let test = documents[0].value();
        let results = test.get("results").and_then(Value::as_list).expect("a test has results");
        for (at, result) in results.iter().enumerate() {
            let case = format!("{} {at}", folder.strip_prefix(&root).unwrap_or(&folder).display());
            tally.case(&case, || check(&folder, test, result));
        }
    }
    tally.finish();
}
