//! Policies of any shape: whatever compiles is run for a Pod and for a Namespace.

use std::sync::LazyLock;

use kiln_dialects::compile;
use kiln_engine::{EmptyView, EvalEnv, EvaluationLimits, Event, RuleSet};
use kiln_object::Kinds;
use kiln_value::value;
use kiln_yaml::{ReadOptions, read_bytes};

static KINDS: LazyLock<Kinds> = LazyLock::new(Kinds::builtin);

pub(crate) fn check(text: &[u8]) {
    let Ok(documents) = read_bytes("policy.yaml", text, ReadOptions::kubernetes()) else { return };
    let kinds = &*KINDS;
    let compiled = compile(&documents, kinds);
    for found in &compiled.diagnostics {
        let _ = found.to_string();
    }
    let rules = RuleSet::new(compiled.policies).with_exceptions(compiled.exceptions);
    let limits =
        EvaluationLimits { steps: 10_000, bytes: 1 << 20, ..EvaluationLimits::default() }.traced();
    let eval_env = EvalEnv { limits, ..EvalEnv::of(&EmptyView, kinds) };
    let pod = value!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}},
    });
    let namespace = value!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}});
    for object in [pod, namespace] {
        let events = [
            Event::created(object.clone()),
            Event::deleted(object.clone()),
            Event::updated(object.clone(), object),
        ];
        for event in events {
            let mutated = rules.mutate(&event, &eval_env);
            for outcome in rules.evaluate(&event, &eval_env).into_iter().chain(mutated.outcomes) {
                let _ = outcome.trace.map(|trace| trace.to_string());
            }
        }
    }
}
