//! The recorded ModRules: what KubeMod's own code makes of rules and objects, and where Kiln does better.

use crate::support::{Fixed, Objects, documents};
use kiln_dialects::compile;
use kiln_engine::{Effect, EvalEnv, Event, Mutated, RuleOutcome, RuleSet};
use kiln_object::Kinds;
use kiln_rules::Operation;
use kiln_testkit::{Tally, corpus, difference};
use kiln_value::{Value, json};
use kiln_yaml::{Document, emit_documents};

#[test]
fn modrules_act_as_recorded() {
    let Some(folder) = corpus("kubemod") else { return };
    let mut tally = Tally::new("kubemod rules");
    let on_purpose = "on purpose: what an object says is text";
    tally.known_failure("edge-template-colon-injection", on_purpose);
    let mut cases: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    cases.sort();
    for case in cases.iter().filter(|case| case.join("case.json").exists()) {
        let name = case.file_name().unwrap().to_string_lossy().into_owned();
        tally.case(&name, || {
            let read = |file: &str| std::fs::read_to_string(case.join(file)).unwrap();
            let parse = |file: &str| json::parse(&read(file)).unwrap();
            run(
                &parse("case.json"),
                &read("modrules.yaml"),
                &parse("resource.json"),
                &parse("expected.json"),
            )
        });
    }
    tally.finish();
}

/// The documents of the rules, each in a namespace.
pub(crate) fn rules_of(text: &str, namespace: &str) -> Vec<Document> {
    let mut values: Vec<Value> =
        documents("modrules.yaml", text).into_iter().map(Document::into_value).collect();
    values.retain(|value| !value.is_null());
    for value in &mut values {
        if value.str_at(["metadata", "namespace"]).is_none() {
            value.set(["metadata", "namespace"], namespace).unwrap();
        }
    }
    documents("modrules.yaml", &emit_documents(&values))
}

fn run(case: &Value, rules: &str, resource: &Value, expected: &Value) -> Result<(), String> {
    let text = |key: &str| case.str_at([key]).unwrap_or_default();
    let kinds = Kinds::builtin();
    let compiled = compile(&rules_of(rules, text("ruleNamespace")), &kinds);
    let problems: Vec<String> = compiled.diagnostics.iter().map(ToString::to_string).collect();
    let wanted = expected.get("recommended").unwrap_or(expected);
    let outcome = wanted.str_at(["outcome"]).unwrap();
    if outcome == "load-error" {
        return if compiled.has_errors() { Ok(()) } else { Err("the rule loads".into()) };
    }
    if compiled.has_errors() {
        return Err(format!("{problems:?}"));
    }
    // The request says which namespace the object is in, whatever the object says.
    let given = resource.str_at(["metadata", "namespace"]).map(str::to_owned);
    let mut object = resource.clone();
    match text("namespace") {
        "" => {
            object.remove(["metadata", "namespace"]);
        }
        namespace => object.set(["metadata", "namespace"], namespace).unwrap(),
    }
    let event = match text("operation").parse::<Operation>() {
        Ok(Operation::Update) => Event::updated(object.clone(), object.clone()),
        Ok(Operation::Delete) => Event::deleted(object.clone()),
        _ => Event::created(object.clone()),
    };
    let view = Objects::default();
    let sources = Fixed(std::cell::Cell::new(0));
    let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
    let set = RuleSet::new(compiled.policies);
    let Mutated { object: mut after, outcomes } = set.mutate(&event, &eval_env);
    let rejections = rejections(&outcomes);
    // An object that goes away is not changed.
    if after.is_null() {
        after = object.clone();
    }
    if let Value::Map(_) = after {
        match &given {
            Some(namespace) => after.set(["metadata", "namespace"], namespace.as_str()).unwrap(),
            None => {
                after.remove(["metadata", "namespace"]);
            }
        }
    }
    if expected.get("undefined").is_some() {
        return Ok(());
    }
    let matched = outcomes.iter().any(|o| o.verdict.as_str() != "no match");
    match outcome {
        "match" if matched => Ok(()),
        "no-match" if !matched => Ok(()),
        "rejected" => {
            let wanted: Vec<&str> = expected
                .get("rejections")
                .and_then(Value::as_list)
                .unwrap()
                .iter()
                .filter_map(Value::as_str)
                .collect();
            let mut sorted = wanted.clone();
            sorted.sort_unstable();
            let mut got = rejections;
            got.sort();
            if got == sorted { Ok(()) } else { Err(format!("{got:?} instead of {wanted:?}")) }
        }
        "allowed" if rejections.is_empty() => Ok(()),
        "unchanged" | "error-allowed-unchanged" => same(resource, &after, &outcomes),
        "patched" => same(wanted.get("object").unwrap(), &after, &outcomes),
        _ => Err(format!("not {outcome}: {outcomes:?} {rejections:?}")),
    }
}

pub(crate) fn rejections(outcomes: &[RuleOutcome]) -> Vec<String> {
    let effects = outcomes.iter().flat_map(|outcome| &outcome.effects);
    effects
        .filter_map(|effect| match effect {
            Effect::Reject { message, .. } => Some(message.clone()),
            _ => None,
        })
        .collect()
}

pub(crate) fn same(wanted: &Value, got: &Value, outcomes: &[RuleOutcome]) -> Result<(), String> {
    let shown = |value: &Value| json::to_go_string_pretty(value);
    match difference(&shown(wanted), &shown(got)) {
        None => Ok(()),
        Some(diff) => {
            let failures: Vec<_> = outcomes.iter().flat_map(|outcome| &outcome.failures).collect();
            Err(format!("{diff} {failures:?}"))
        }
    }
}
