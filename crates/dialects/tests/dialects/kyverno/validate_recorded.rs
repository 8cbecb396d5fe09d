//! Recorded cases of validate rules: what Kyverno's unit tests say of policies, failure actions, matches and rules for the
//! controllers of Pods.

use std::cell::Cell;
use std::sync::Arc;

use kiln_dialects::{Compiled, compile};
use kiln_engine::{EvalEnv, Event, RuleOutcome, RuleSet, Status, User};
use kiln_object::Kinds;
use kiln_testkit::{Tally, corpus_json};
use kiln_value::{Map, Str, Value, json, value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use crate::support::{Fixed, Objects, messages};

fn document(value: &Value) -> Document {
    let text = json::to_string(value);
    let read = read_bytes("policy.json", text.as_bytes(), ReadOptions::kubernetes());
    read.unwrap().pop().unwrap()
}

fn compiled(case: &Value) -> Compiled {
    let documents = ["policy", "exception"].iter().filter_map(|key| case.get(key));
    let documents: Vec<Document> = documents.map(document).collect();
    compile(&documents, &Kinds::builtin())
}

/// The event of a case.
fn event(case: &Value) -> Event {
    let placed = |key: &str| -> Option<Value> {
        let object = case.get(key).filter(|object| !object.is_null())?.clone();
        let kinds = Kinds::builtin();
        let kind = kiln_object::Gvk::of(&object).and_then(|gvk| kinds.get(&gvk).cloned());
        let mut object = object;
        if kind.is_none_or(|kind| kind.is_namespaced())
            && object.str_at(["metadata", "namespace"]).is_none()
        {
            object.set(["metadata", "namespace"], "default").unwrap();
        }
        Some(object)
    };
    let mut event = match case.get("request") {
        Some(request) => Event::of_request(request).expect("a request"),
        None => {
            let (object, old) = (placed("resource"), placed("oldResource"));
            match case.str_at(["operation"]) {
                Some("DELETE") => Event::deleted(old.or(object).unwrap()),
                Some("UPDATE") => {
                    let object = object.unwrap();
                    Event::updated(old.unwrap_or_else(|| object.clone()), object)
                }
                _ => Event::created(object.unwrap()),
            }
        }
    };
    if let Some(info) = case.get("userInfo") {
        let texts = |path: &[&str]| -> Vec<Str> {
            let list = info.get_path(path.iter().copied()).and_then(Value::as_list);
            list.into_iter().flatten().filter_map(Value::as_str).map(Str::from).collect()
        };
        event.user = Some(User {
            username: info.str_at(["userInfo", "username"]).unwrap_or_default().into(),
            groups: texts(&["userInfo", "groups"]),
            roles: texts(&["roles"]),
            cluster_roles: texts(&["clusterRoles"]),
            ..User::default()
        });
    }
    if let Some(Value::Map(variables)) = case.get("variables") {
        event.context.given = variables.clone();
    }
    event
}

fn run(compiled: &Compiled, case: &Value) -> (RuleSet, Vec<RuleOutcome>) {
    let rules = RuleSet::new(compiled.policies.iter().map(Arc::clone))
        .with_exceptions(compiled.exceptions.iter().map(Arc::clone));
    let event = event(case);
    let labels = case.get("namespaceLabels").cloned().unwrap_or_else(Value::map);
    let namespace = event.namespace.clone().unwrap_or_default();
    let mut labelled = Map::new();
    match labels.as_map() {
        // By namespace, or of the one there is.
        Some(map) if map.values().all(|value| value.as_map().is_some()) => {
            labelled.extend(map.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        _ => {
            labelled.insert(namespace.as_str(), labels.clone());
        }
    }
    let namespaces = labelled.iter().map(|(name, labels)| {
        let mut object = value!({"apiVersion": "v1", "kind": "Namespace"});
        object.set(["metadata", "name"], name.as_str()).unwrap();
        object.set(["metadata", "labels"], labels.clone()).unwrap();
        object
    });
    let view = Objects(namespaces.collect());
    let kinds = Kinds::builtin();
    let sources = Fixed(Cell::new(0));
    let eval_env = EvalEnv { sources: &sources, ..EvalEnv::of(&view, &kinds) };
    let outcomes = rules.mutate(&event, &eval_env).outcomes;
    (rules, outcomes)
}

fn said(outcome: &RuleOutcome) -> String {
    match (outcome.failures.first(), &outcome.why) {
        (Some(failure), _) => failure.message.clone(),
        (None, Some(why)) => why.to_string(),
        (None, None) => String::new(),
    }
}

fn is_in_cel(case: &Value) -> bool {
    let rules = case.get_path(["policy", "spec", "rules"]).and_then(Value::as_list);
    rules.into_iter().flatten().any(|rule| rule.get_path(["validate", "cel"]).is_some())
}

#[test]
fn policies() {
    let Some(recorded) = corpus_json("validate/policies.json") else { return };
    let mut tally = Tally::new("validate rules");
    tally.known_failure("policies-051", "the request is for status, which the rule does not name");
    for id in ["policies-027", "policies-029", "policies-030", "policies-034"] {
        tally.known_failure(
            id,
            "a rule without kinds is refused, as Kyverno refuses it when it is stored",
        );
    }
    tally.known_failure(
        "policies-046",
        "element outside of foreach is refused, as Kyverno refuses it when it is stored",
    );
    for case in recorded.as_list().unwrap() {
        if is_in_cel(case) {
            tally.leave_out();
            continue;
        }
        tally.case(case.str_at(["id"]).unwrap(), || judged(case));
    }
    tally.finish();
}

fn judged(case: &Value) -> Result<(), String> {
    let compiled = compiled(case);
    let refused = case.get_path(["observed", "refused"]).is_some();
    if compiled.has_errors() {
        return match refused {
            true => Ok(()),
            false => Err(messages(&compiled).join("; ")),
        };
    }
    let (_, outcomes) = run(&compiled, case);
    let shown: Vec<String> = outcomes
        .iter()
        .map(|o| format!("{} {}: {}", o.rule.rule, o.status().as_str(), said(o)))
        .collect();
    let wrong = |what: &str| Err(format!("{what}: got {shown:#?}"));
    let expected = case.get("expected").unwrap();
    if let Some(count) = expected.get("count").and_then(Value::as_i64)
        && count != outcomes.len() as i64
    {
        return wrong("another number of results");
    }
    if let Some(successful) = expected.get("successful").and_then(Value::as_bool)
        && expected.get("unasserted").is_none()
    {
        let good = |o: &RuleOutcome| matches!(o.status(), Status::Pass | Status::Skip);
        if outcomes.iter().all(good) != successful {
            return wrong("another verdict");
        }
    }
    let rules = expected.get("rules").and_then(Value::as_list);
    for (at, rule) in rules.into_iter().flatten().enumerate() {
        let Some(outcome) = outcomes.get(at) else { return wrong("a result is missing") };
        let got = outcome.status();
        if rule.str_at(["result"]).is_some_and(|wanted| wanted != got.as_str()) {
            return wrong("another result");
        }
        // The reason for a failure is worded here, not taken from the original.
        let told = said(outcome);
        let as_wanted = match got {
            Status::Error => true,
            _ => {
                rule.str_at(["message"]).is_none_or(|wanted| wanted == told)
                    && rule.str_at(["messageContains"]).is_none_or(|part| told.contains(part))
            }
        };
        if !as_wanted {
            return wrong("another message");
        }
    }
    Ok(())
}

#[test]
fn failure_actions() {
    let Some(recorded) = corpus_json("validate/failure-action.json") else { return };
    let mut tally = Tally::new("failure actions");
    for case in recorded.as_list().unwrap() {
        tally.case(case.str_at(["id"]).unwrap(), || {
            let compiled = compiled(case);
            if compiled.has_errors() {
                return Err(messages(&compiled).join("; "));
            }
            let (_, outcomes) = run(&compiled, case);
            let blocked = outcomes.iter().any(|outcome| outcome.refusal().is_some());
            let wanted = case.get("blocked").and_then(Value::as_bool);
            if wanted != Some(blocked) {
                return Err(format!("blocked is {blocked}: {outcomes:#?}"));
            }
            let Some(Value::Map(wanted)) = case.get("messages") else { return Ok(()) };
            for (rule, wanted) in wanted {
                let found = outcomes.iter().find(|outcome| outcome.rule.rule == rule.as_str());
                let told = found.map(said);
                if told.as_deref() != wanted.as_str() {
                    return Err(format!("{rule} says {told:?}, and not {wanted:?}"));
                }
            }
            Ok(())
        });
    }
    tally.finish();
}

#[test]
fn rules_for_controllers_of_pods() {
    let Some(recorded) = corpus_json("validate/autogen.json") else { return };
    let mut tally = Tally::new("rules for controllers of Pods");
    for case in recorded.as_list().unwrap() {
        let Some(policy) = case.get("policy") else {
            tally.leave_out();
            continue;
        };
        let compiled = compile([&document(policy)], &Kinds::builtin());
        if !compiled.not_run.is_empty() {
            tally.leave_out();
            continue;
        }
        tally.case(case.str_at(["id"]).unwrap(), || {
            let rules = compiled.policies.iter().flat_map(|policy| &policy.rules);
            let names: Vec<&str> = rules.map(|rule| rule.id.rule.as_str()).collect();
            let derived = names.iter().any(|name| name.starts_with("autogen-"));
            if let Some(wanted) = case.get("expectedControllers").and_then(Value::as_list) {
                let all = !wanted.is_empty();
                return match derived == all {
                    true => Ok(()),
                    false => Err(format!("got {names:?}: {:?}", messages(&compiled))),
                };
            }
            let wanted = case.get("expectedRules").and_then(Value::as_list);
            let wanted: Vec<&str> =
                wanted.into_iter().flatten().filter_map(Value::as_str).collect();
            (names == wanted).then_some(()).ok_or_else(|| format!("got {names:?}"))
        });
    }
    tally.finish();
}

#[test]
fn matches() {
    let Some(recorded) = corpus_json("validate/match.json") else { return };
    let mut tally = Tally::new("matches of validate rules");
    for case in recorded.as_list().unwrap() {
        tally.case(case.str_at(["id"]).unwrap(), || {
            // What the rules do does not matter, and some do what is long gone.
            let mut policy = case.get("policy").unwrap().clone();
            let rules = policy.get_path(["spec", "rules"]).and_then(Value::as_list).cloned();
            let rules: Value = rules
                .into_iter()
                .flat_map(|rules| rules.iter().cloned().collect::<Vec<_>>())
                .map(|mut rule| {
                    rule.remove(["mutate"]);
                    rule.set(["validate"], value!({"deny": {}})).unwrap();
                    rule
                })
                .collect();
            policy.set(["spec", "rules"], rules).unwrap();
            let compiled = compile([&document(&policy)], &Kinds::builtin());
            if compiled.has_errors() {
                return Err(messages(&compiled).join("; "));
            }
            let (rules, outcomes) = run(&compiled, case);
            let own = rules.rules().filter(|rule| !rule.id.rule.starts_with("autogen-")).count();
            let matched = outcomes.iter().filter(|o| o.status() == Status::Fail).count();
            let wanted = case.get("matches").and_then(Value::as_bool);
            let got = matched >= own.max(1);
            (wanted == Some(got))
                .then_some(())
                .ok_or_else(|| format!("{matched} of {own} rules match"))
        });
    }
    tally.finish();
}

#[test]
fn refused_policies() {
    let Some(recorded) = corpus_json("validate/policy-validation.json") else { return };
    let mut tally = Tally::new("policies that are refused");
    for id in ["policy-validation-013", "policy-validation-014", "policy-validation-015"] {
        tally.known_failure(id, "the rule of the unit test does nothing, which is said first");
    }
    for id in ["policy-validation-029", "policy-validation-030", "policy-validation-050"] {
        tally.known_failure(id, "the rule of the unit test has no name, which is said first");
    }
    tally.known_failure("policy-validation-049", "verifyImages rules are not run, and not checked");
    tally.known_failure(
        "policy-validation-068",
        "the ConfigMap of the unit test has no apiVersion, which is said first",
    );
    for id in ["policy-validation-070", "policy-validation-071"] {
        tally.known_failure(id, "the rule of the unit test has no match, which is said first");
    }
    for case in recorded.as_list().unwrap() {
        let Some(policy) = case.get("policy").filter(|_| case.get("oldPolicy").is_none()) else {
            tally.leave_out();
            continue;
        };
        tally.case(case.str_at(["id"]).unwrap(), || {
            let compiled = compile([&document(policy)], &Kinds::builtin());
            let (refused, valid) = (compiled.has_errors(), case.get("valid") == Some(&true.into()));
            let told = messages(&compiled).join("; ");
            if refused == valid {
                return Err(format!("refused is {refused}: {told}"));
            }
            let texts = ["message", "messageContains"].iter().filter_map(|key| case.str_at([*key]));
            for text in texts {
                if !told.contains(text) {
                    return Err(format!("{text:?} is not said: {told}"));
                }
            }
            Ok(())
        });
    }
    tally.finish();
}

#[test]
fn conflicting_overrides() {
    let Some(recorded) = corpus_json("validate/policy-validation.json") else { return };
    let mut tally = Tally::new("overrides of failure actions");
    for case in recorded.as_list().unwrap() {
        let Some(overrides) = case.get("validationFailureActionOverrides") else { continue };
        tally.case(case.str_at(["id"]).unwrap(), || {
            let mut policy = value!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {"rules": [{
                    "name": "r", "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
                    "validate": {"deny": {}},
                }]},
            });
            policy.set(["spec", "validationFailureActionOverrides"], overrides.clone()).unwrap();
            let compiled = compile([&document(&policy)], &Kinds::builtin());
            let told = messages(&compiled).join("; ");
            let valid = case.get("valid") == Some(&true.into());
            let as_said = case.str_at(["message"]).is_none_or(|message| told.contains(message));
            (compiled.has_errors() != valid && as_said).then_some(()).ok_or(told)
        });
    }
    tally.finish();
}
