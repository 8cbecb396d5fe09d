//! Policies of any shape: whatever compiles judges a Pod, a Deployment, data, and requests to other servers, within its
//! budget.

use std::sync::LazyLock;

use kiln_dialects::compile;
use kiln_engine::{EmptyView, EvalEnv, EvaluationLimits, Event, RuleSet};
use kiln_object::Kinds;
use kiln_rules::Payload;
use kiln_value::{Value, value};
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
    let world = EvalEnv { limits, ..EvalEnv::of(&EmptyView, kinds) };
    let pod = value!({"containers": [{"name": "a", "image": "b", "ports": [{"hostPort": 1}]}]});
    let object = |version: &str, kind: &str, spec: Value| {
        let mut object = value!({"apiVersion": version, "kind": kind, "metadata": {"name": "p", "namespace": "n"}});
        object.set(["spec"], spec).expect("a map");
        object
    };
    let template = Value::from(kiln_value::Map::from_iter([("spec", pod.clone())]));
    let template = Value::from(kiln_value::Map::from_iter([("template", template)]));
    let deployment = object("apps/v1", "Deployment", template);
    let pod = object("v1", "Pod", pod);
    let request = value!({"attributes": {"method": "GET", "header": {}, "request": {"http": {"headers": {}}}}});
    let events = [
        Event::created(pod.clone()),
        Event::deleted(pod.clone()),
        Event::updated(pod.clone(), pod.clone()),
        Event::created(deployment),
        Event::brought(Payload::Json, "data", pod),
        Event::brought(Payload::Http, "request", request.clone()),
        Event::brought(Payload::Envoy, "request", request),
    ];
    for event in events {
        for outcome in rules.mutate(&event, &world).outcomes {
            let _ = outcome.trace.map(|trace| trace.to_string());
        }
    }
}
