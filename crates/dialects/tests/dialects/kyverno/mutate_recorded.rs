//! Recorded cases of mutate rules: Kyverno's unit tests.

use crate::support::{Fixed, Objects};
use kiln_engine::{Effect, EvalEnv, Event, Mutated, RuleOutcome, RuleSet};
use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus_json, difference};
use kiln_value::{Value, json, value};
use kiln_yaml::emit;

fn rules_of(policy: &Value) -> Result<RuleSet, String> {
    let compiled = crate::support::compiled(&emit(policy));
    match compiled.has_errors() {
        true => Err(crate::support::messages(&compiled).join("; ")),
        false => Ok(RuleSet::new(compiled.policies)),
    }
}

fn mutated(rules: &RuleSet, event: &Event, view: &Objects) -> Mutated {
    let (kinds, sources) = (Kinds::builtin(), Fixed(std::cell::Cell::new(0)));
    rules.mutate(event, &EvalEnv { sources: &sources, ..EvalEnv::of(view, &kinds) })
}

fn failures(outcomes: &[RuleOutcome]) -> Result<(), String> {
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
            let outcomes =
                crate::support::run(&rules, &Event::created(trigger.clone()), &Objects(view));
            failures(&outcomes)?;
            let got: Value = outcomes.iter().flat_map(patched).collect();
            compare(case.get("patchedTargets").unwrap(), &got)
        });
    }
    tally.finish();
}

fn patched(outcome: &RuleOutcome) -> Vec<Value> {
    let after = |effect: &Effect| match effect {
        Effect::Patch(patch) => Some(patch.after.clone()),
        _ => None,
    };
    outcome.effects.iter().filter_map(after).collect()
}
