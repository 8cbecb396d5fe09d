//! Policies and objects as text, a view of them, and outcomes as text.
#![allow(dead_code)]

pub(crate) mod policies;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use kiln_dialects::{Compiled, compile};
use kiln_engine::{
    Effect, EvalEnv, EvaluationLimits, Event, ListPage, ListQuery, ReadError, RuleOutcome, RuleSet,
    View,
};
use kiln_jmespath::AmbientSources;
use kiln_object::{Gvk, Kinds, ObjectId};
use kiln_value::Value;
use kiln_yaml::{Document, ReadOptions, emit, read_bytes};

/// The documents of a text.
pub(crate) fn documents(name: &str, text: &str) -> Vec<Document> {
    read_bytes(name, text.as_bytes(), ReadOptions::kubernetes()).unwrap_or_else(|e| panic!("{e}"))
}

/// The objects of a text.
pub(crate) fn objects(text: &str) -> Vec<Value> {
    documents("objects.yaml", text).into_iter().map(Document::into_value).collect()
}

/// The policies of a text.
pub(crate) fn compiled(text: &str) -> Compiled {
    compile(&documents("policy.yaml", text), &Kinds::builtin())
}

/// The policies of a text that has no errors.
pub(crate) fn rules(text: &str) -> RuleSet {
    let compiled = compiled(text);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    RuleSet::new(compiled.policies)
}

/// What compiling had to say, one line each.
pub(crate) fn messages(compiled: &Compiled) -> Vec<String> {
    compiled
        .diagnostics
        .iter()
        .map(|found| format!("{}: {found}", found.severity.as_str()))
        .collect()
}

/// Objects that can be read.
#[derive(Default)]
pub(crate) struct Objects(pub(crate) Vec<Value>);

impl View for Objects {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let wanted = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        Ok(self.0.iter().find(|o| ObjectId::of(o).is_ok_and(|id| id == wanted)).cloned())
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let objects = self.0.iter().filter(|object| {
            Gvk::of(object).as_ref() == Some(query.kind)
                && query.namespace.is_none_or(|namespace| {
                    object.str_at(["metadata", "namespace"]) == Some(namespace)
                })
                && query
                    .selector
                    .matches(object.get_path(["metadata", "labels"]).and_then(Value::as_map))
        });
        Ok(ListPage { objects: objects.cloned().collect(), resume: None })
    }
}

/// The third of May 2025 at noon, and numbers that count up.
pub(crate) struct Fixed(pub(crate) std::cell::Cell<u64>);

impl AmbientSources for Fixed {
    fn now(&self) -> Option<SystemTime> {
        Some(SystemTime::UNIX_EPOCH + Duration::from_secs(1_746_273_600))
    }

    fn random(&self) -> Option<u64> {
        self.0.set(self.0.get() + 1);
        Some(self.0.get().wrapping_mul(0x9E37_79B9_7F4A_7C15))
    }
}

/// Evaluates all rules for an event.
pub(crate) fn run(rules: &RuleSet, event: &Event, view: &Objects) -> Vec<RuleOutcome> {
    run_within(rules, event, view, EvaluationLimits::default())
}

/// Evaluates all rules for an event, within limits.
pub(crate) fn run_within(
    rules: &RuleSet,
    event: &Event,
    view: &Objects,
    limits: EvaluationLimits,
) -> Vec<RuleOutcome> {
    let kinds = Kinds::builtin();
    let sources = Fixed(std::cell::Cell::new(0));
    let eval_env = EvalEnv { sources: &sources, limits, ..EvalEnv::of(view, &kinds) };
    rules.evaluate(event, &eval_env)
}

/// What rules make of a trigger, as YAML without ownership labels; failures and other effects as comments.
pub(crate) fn shown(outcomes: &[RuleOutcome], rules: &RuleSet) -> String {
    let mut text = String::new();
    for outcome in outcomes {
        text.push_str(&format!("# {}: {}\n", outcome.rule.rule, outcome.verdict.as_str()));
        for effect in &outcome.effects {
            match effect {
                Effect::Ensure(ensure) => {
                    let mut object = ensure.object.clone();
                    kiln_engine::strip(&mut object);
                    text.push_str(&emit(&object));
                    text.push_str("---\n");
                }
                Effect::Delete(delete) => {
                    text.push_str(&format!(
                        "# delete of {}: {}\n",
                        delete.trigger,
                        delete.reason.as_str()
                    ));
                }
                Effect::DeleteObject(delete) => {
                    text.push_str(&format!("# delete {}\n", delete.target));
                }
                Effect::Warn(warning) => text.push_str(&format!("# warning: {warning}\n")),
                other => text.push_str(&format!("# {other:?}\n")),
            }
        }
        let rule = rules.rule(&outcome.rule).map(Arc::clone);
        for failure in &outcome.failures {
            let failure = rule.as_ref().map_or_else(
                || failure.to_string(),
                |rule| failure.diagnose(&rule.origin).to_string(),
            );
            text.push_str(&format!("# failed: {failure}\n"));
        }
    }
    text
}

/// What a policy makes of a new object among others.
pub(crate) fn made(policy: &str, trigger: &str, others: &str) -> String {
    let rules = rules(policy);
    let trigger = objects(trigger).remove(0);
    let mut view = objects(others);
    view.push(trigger.clone());
    let outcomes = run(&rules, &Event::created(trigger), &Objects(view));
    shown(&outcomes, &rules)
}
