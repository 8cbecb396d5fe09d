//! Recorded cases of mutate rules: Kyverno's unit tests, and its command line tests.

mod support;

use std::path::{Path, PathBuf};

use kiln_dialects::compile;
use kiln_engine::{Effect, Event, Mutated, Outcome, RuleSet, Verdict, World};
use kiln_object::{Kinds, ObjectId};
use kiln_testkit::{Tally, corpus, corpus_json, difference};
use kiln_value::{Map, Value, json, value};
use kiln_yaml::{Document, emit};
use support::{Fixed, Objects, documents};

fn rules_of(policy: &Value) -> Result<RuleSet, String> {
    let compiled = support::compiled(&emit(policy));
    match compiled.has_errors() {
        true => Err(support::messages(&compiled).join("; ")),
        false => Ok(RuleSet::new(compiled.policies)),
    }
}

fn mutated(rules: &RuleSet, event: &Event, view: &Objects) -> Mutated {
    let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
    rules.mutate(event, &World { sources: &sources, ..World::of(view, &kinds) })
}

fn failures(outcomes: &[Outcome]) -> Result<(), String> {
    let all: Vec<_> = outcomes.iter().flat_map(|o| &o.failures).map(ToString::to_string).collect();
    if all.is_empty() { Ok(()) } else { Err(all.join("; ")) }
}

fn compare(wanted: &Value, got: &Value) -> Result<(), String> {
    let shown = |value: &Value| {
        let sorted = json::parse(&json::to_canonical_string(value)).expect("JSON");
        json::to_string_pretty(&sorted)
    };
    difference(&shown(wanted), &shown(got)).map_or(Ok(()), Err)
}

#[test]
fn policies_change_the_object_of_a_request() {
    let Some(recorded) = corpus_json("mutate/policies.json") else { return };
    let mut tally = Tally::new("mutate policies");
    let dictionary = value!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "mycmap", "namespace": "default"}, "data": {"env": "dev1"}});
    for case in recorded.as_list().unwrap() {
        tally.case(case.str_at(["id"]).unwrap(), || {
            let rules = rules_of(case.get("policy").unwrap())?;
            let resource = case.get("resource").unwrap();
            let view = Objects(vec![dictionary.clone(), resource.clone()]);
            let run = mutated(&rules, &Event::created(resource.clone()), &view);
            if case.get("error").is_some() {
                return failures(&run.outcomes).map_or(Ok(()), |()| Err("no failure".into()));
            }
            failures(&run.outcomes)?;
            if let Some(wanted) = case.get("expected") {
                compare(wanted, &run.object)?;
            }
            // First all rules, then with `applyRules: One`.
            if let Some(Value::List(steps)) = case.get("expectedSteps") {
                compare(&steps[0], &run.object)?;
                let mut policy = case.get("policy").unwrap().clone();
                policy.set(["spec", "applyRules"], "One").unwrap();
                let event = Event::created(resource.clone());
                compare(&steps[1], &mutated(&rules_of(&policy)?, &event, &view).object)?;
            }
            for set in case.get("expectedSet").and_then(Value::as_list).into_iter().flatten() {
                let path: Vec<&str> = set
                    .get("path")
                    .unwrap()
                    .as_list()
                    .unwrap()
                    .iter()
                    .filter_map(Value::as_str)
                    .collect();
                let got = run.object.get_path(path.iter().copied());
                if got != set.get("value") {
                    return Err(format!("{path:?} is {got:?}"));
                }
            }
            Ok(())
        });
    }
    tally.finish();
}

#[test]
fn policies_change_existing_objects() {
    let Some(recorded) = corpus_json("mutate/mutate-existing.json") else { return };
    let mut tally = Tally::new("mutate existing");
    for case in recorded.as_list().unwrap() {
        tally.case(case.str_at(["id"]).unwrap(), || {
            let rules = rules_of(case.get("policy").unwrap())?;
            let trigger = case.get("trigger").unwrap();
            let targets = case.get("targets").unwrap().as_list().unwrap();
            let mut view = targets.to_vec();
            view.push(trigger.clone());
            let outcomes = support::run(&rules, &Event::created(trigger.clone()), &Objects(view));
            failures(&outcomes)?;
            let got: Value = outcomes.iter().flat_map(patched).collect();
            compare(case.get("patchedTargets").unwrap(), &got)
        });
    }
    tally.finish();
}

fn patched(outcome: &Outcome) -> Vec<Value> {
    let after = |effect: &Effect| match effect {
        Effect::Patch(patch) => Some(patch.after.clone()),
        _ => None,
    };
    outcome.effects.iter().filter_map(after).collect()
}

// Kyverno's command line tests.

fn read(path: &Path) -> Result<Vec<Document>, String> {
    let text = std::fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(documents(&path.file_name().unwrap_or_default().to_string_lossy(), &text))
}

fn load(folder: &Path, value: Option<&Value>) -> Result<Vec<Document>, String> {
    let paths: Vec<&str> = match value {
        Some(Value::String(one)) => vec![one],
        Some(Value::List(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let mut all = Vec::new();
    for path in paths {
        all.extend(read(&folder.join(path))?);
    }
    Ok(all)
}

fn values(folder: &Path, value: Option<&Value>) -> Result<Vec<Value>, String> {
    let loaded = load(folder, value)?.into_iter().map(Document::into_value);
    Ok(loaded.map(with_namespace).collect())
}

/// Kyverno's command line puts objects without a namespace into `default`.
fn with_namespace(mut object: Value) -> Value {
    let namespaced = ObjectId::of(&object)
        .is_ok_and(|id| Kinds::builtin().is_namespaced(&id.gvk) != Some(false));
    if namespaced && object.get_path(["metadata", "namespace"]).is_none() {
        let _ = object.set(["metadata", "namespace"], "default");
    }
    object
}

/// The values that a test gives for a rule and a resource.
fn given(test: &Value, folder: &Path, rule: &kiln_rules::RuleId, resource: &str) -> Map {
    let file = load(folder, test.get("variables")).unwrap_or_default();
    let file = file.first().map_or(Value::Null, |d| d.value().clone());
    let mut given = Map::new();
    let mut take = |values: Option<&Value>| {
        for (key, value) in values.and_then(Value::as_map).into_iter().flatten() {
            given.insert(key.clone(), value.clone());
        }
    };
    take(file.get("globalValues"));
    let named = |list: Option<&Value>, name: &str| -> Option<Value> {
        let list = list?.as_list()?;
        list.iter().find(|entry| entry.str_at(["name"]) == Some(name)).cloned()
    };
    if let Some(policy) = named(file.get("policies"), &rule.policy.name) {
        let resource = named(policy.get("resources"), resource);
        take(resource.as_ref().and_then(|entry| entry.get("values")));
        let rule = named(policy.get("rules"), &rule.rule);
        take(rule.as_ref().and_then(|entry| entry.get("values")));
    }
    given
}

fn tidy(value: &Value) -> Option<Value> {
    match value {
        Value::Map(map) => {
            let kept = map.iter().filter_map(|(key, value)| Some((key.clone(), tidy(value)?)));
            let kept: Map = kept.collect();
            (!kept.is_empty()).then_some(Value::Map(kept))
        }
        Value::List(list) => {
            let kept: Vec<_> = list.iter().filter_map(tidy).collect();
            (!kept.is_empty()).then_some(Value::from(kept))
        }
        Value::Null => None,
        other => Some(other.clone()),
    }
}

/// False for rules that Kiln does not run.
fn check(folder: &Path, test: &Value, result: &Value) -> Result<bool, String> {
    let policies = load(folder, test.get("policies"))?;
    let resources = values(folder, test.get("resources"))?;
    let targets = values(folder, test.get("targetResources"))?;
    let compiled = compile(&policies, &Kinds::builtin());
    let policy = result.str_at(["policy"]).unwrap_or_default();
    let policy = policy.rsplit('/').next().unwrap_or(policy);
    let rule = result.str_at(["rule"]).unwrap_or_default();
    // A rule may be meant by the name of the one it was rewritten from.
    let is_meant = |id: &kiln_rules::RuleId| {
        let bare = id.rule.strip_prefix("autogen-cronjob-");
        let bare = bare.or_else(|| id.rule.strip_prefix("autogen-")).unwrap_or(&id.rule);
        id.policy.name == policy && (id.rule == rule || bare == rule)
    };
    if compiled.not_run.iter().any(|n| n.rule.as_ref().is_some_and(|name| name == rule)) {
        return Ok(false);
    }
    if compiled.has_errors() {
        return Err(support::messages(&compiled).join("; "));
    }
    let rules = RuleSet::new(compiled.policies);
    let expected: Vec<Value> =
        values(folder, result.get("patchedResources"))?.iter().filter_map(tidy).collect();
    let wanted: Vec<&str> = match result.get("resources") {
        Some(Value::List(list)) => list.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    let kinds = Kinds::builtin();
    let sources = Fixed(std::cell::Cell::new(0));
    let mut seen = Vec::new();
    let mut view = resources.clone();
    view.extend(targets.iter().cloned());
    let view = Objects(view);
    let world = World { sources: &sources, ..World::of(&view, &kinds) };
    for resource in &resources {
        let name = resource.str_at(["metadata", "name"]).unwrap_or_default();
        let all = wanted.is_empty();
        let named = |name: Option<&str>| all || wanted.iter().any(|w| w.rsplit('/').next() == name);
        let of_kind = result
            .str_at(["kind"])
            .is_none_or(|kind| kind.is_empty() || resource.str_at(["kind"]) == Some(kind));
        let event = Event::created(resource.clone());
        let prepare = |rule: &kiln_rules::Rule, event: &Event| {
            let mut event = event.clone();
            event.given = given(test, folder, &rule.id, name);
            event
        };
        let run = rules.mutate_each(&event, &world, prepare);
        let mut object = resource.clone();
        for outcome in &run.outcomes {
            // The object as the whole policy leaves it.
            for other in run.outcomes.iter().filter(|o| o.rule.policy == outcome.rule.policy) {
                object = patched(other).pop().unwrap_or(object);
            }
            if is_meant(&outcome.rule) && named(Some(name)) && of_kind {
                seen.push((outcome.clone(), vec![object.clone()]));
            }
        }
        // Kyverno counts what happens to a target as a result of the target.
        for outcome in rules.evaluate_each(&event, &world, prepare) {
            if is_meant(&outcome.rule) {
                let objects = patched(&outcome).into_iter();
                let objects = objects.filter(|o| named(o.str_at(["metadata", "name"]))).collect();
                seen.push((outcome, objects));
            }
        }
    }
    let wanted_result = result.str_at(["result"]).unwrap_or("pass");
    let mut states = Vec::new();
    for (outcome, objects) in &seen {
        let state = match outcome.verdict {
            Verdict::Error => "error",
            Verdict::Skip => "skip",
            _ if objects.is_empty() => continue,
            _ if expected.is_empty() => "pass",
            _ if objects.iter().filter_map(tidy).all(|o| expected.contains(&o)) => "pass",
            _ => "fail",
        };
        if state == wanted_result {
            return Ok(true);
        }
        let why = outcome.failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
        states.push(format!(
            "{state} {why} got {}",
            objects.iter().map(emit).collect::<Vec<_>>().join("---\n")
        ));
    }
    match states.is_empty() {
        true if wanted_result == "skip" => Ok(true),
        true => Err("no rule matched".into()),
        false => Err(format!("wanted {wanted_result}, found {}", states.join("\n"))),
    }
}

fn tests_below(folder: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> =
        std::fs::read_dir(folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            tests_below(&path, found);
        } else if path.file_name().is_some_and(|name| name == "kyverno-test.yaml") {
            found.push(path);
        }
    }
}

#[test]
fn mutate_tests_of_the_command_line_pass() {
    let (Some(root), Some(index)) =
        (corpus("kyverno-cli/cases"), corpus_json("kyverno-cli/index.json"))
    else {
        return;
    };
    let mut tally = Tally::new("command line mutate tests");
    let mut found = Vec::new();
    tests_below(&root, &mut found);
    for path in found {
        let folder = path.parent().unwrap_or(&root).to_owned();
        let dir = folder.strip_prefix(&root).unwrap_or(&folder).display().to_string();
        let entry = index.as_list().unwrap().iter().find(|e| e.str_at(["dir"]) == Some(&dir));
        let mutates = |entry: &Value| entry.get("kinds") == Some(&value!(["mutate"]));
        if !entry.is_some_and(mutates) {
            continue;
        }
        let documents = read(&path).unwrap_or_else(|e| panic!("{e}"));
        let test = documents[0].value();
        let results = test.get("results").and_then(Value::as_list).expect("a test has results");
        for (at, result) in results.iter().enumerate() {
            match check(&folder, test, result) {
                Ok(false) => tally.leave_out(),
                other => tally.case(&format!("{dir} {at}"), || other.map(drop)),
            }
        }
    }
    tally.finish();
}
