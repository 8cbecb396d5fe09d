//! Policies with anything anywhere: they compile or are refused with a place, and never panic.

mod budgets;
mod fuzz_regressions;
mod protected;
mod scope;
mod threats;
mod values;

use crate::support::{Objects, documents, objects, run_within};
use kiln_dialects::compile;
use kiln_engine::{EvalEnv, EvaluationLimits, Event, RuleSet};
use kiln_object::Kinds;
use kiln_value::{Path, Value, value};
use kiln_yaml::emit;
use proptest::prelude::*;

const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  background: false
  generateExisting: true
  rules:
  - name: one
    match: {any: [{resources: {kinds: [Pod], names: ['*'], selector: {matchLabels: {a: '*'}}, operations: [CREATE]}}]}
    exclude: {all: [{resources: {namespaces: [x]}, subjects: [{kind: User, name: u}]}]}
    context:
    - {name: a, variable: {value: {b: 1}, jmesPath: b, default: 2}}
    - {name: c, configMap: {name: d, namespace: e}}
    - {name: f, apiCall: {urlPath: '/api/v1/pods?limit=1', jmesPath: 'items[0]', default: {}}}
    preconditions: {any: [{key: '{{ a }}', operator: Equals, value: 1}]}
    generate:
      synchronize: true
      foreach:
      - list: request.object.metadata.labels
        context: [{name: g, variable: {jmesPath: element}}]
        preconditions: {all: [{key: 1, operator: LessThan, value: 2}]}
        apiVersion: v1
        kind: ConfigMap
        name: c-{{ elementIndex }}
        namespace: '{{ request.namespace }}'
        data: {metadata: {labels: {x: '{{ g.a }}'}}, data: {y: '{{ f }}'}}
  - name: two
    match: {resources: {kinds: [Pod]}}
    generate: {namespace: ns, cloneList: {namespace: o, kinds: [v1/Secret], selector: {matchLabels: {a: b}}}}
  - name: three
    match: {any: [{resources: {kinds: [Pod]}}]}
    generate: {dataList: [{apiVersion: v1, kind: Secret, name: s, namespace: ns, data: {k: v}}]}
  - name: four
    match: {any: [{resources: {kinds: [Pod]}}]}
    generate:
      cloneList: {list: [{source: {apiVersion: v1, kind: Secret, name: s, namespace: ns}, target: {namespace: m}}]}
";

const MUTATE: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p, annotations: {pod-policies.kyverno.io/autogen-controllers: all}}
spec:
  background: false
  mutateExistingOnPolicyUpdate: false
  rules:
  - name: one
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      patchStrategicMerge:
        metadata: {(labels): {a: 'b|c'}, annotations: {+(x): '{{ @ }}', y: '{{ request.name }}'}}
        spec: {containers: [{<(name): '*', (image): '!*:latest', env: [{name: a, value: b}]}]}
  - name: two
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      foreach:
      - list: request.object.metadata.labels
        order: Descending
        context: [{name: g, variable: {jmesPath: element}}]
        preconditions: {all: [{key: 1, operator: LessThan, value: 2}]}
        patchStrategicMerge: {metadata: {labels: {'{{ elementIndex }}': '{{ to_string(g) }}'}}}
      - list: '`[[1, 2], [3]]`'
        foreach: [{list: element, patchesJson6902: '[{\"op\": \"add\", \"path\": \"/a/{{ elementIndex1 }}\", \"value\": {{ request.object }}}]'}]
  - name: three
    match: {any: [{resources: {kinds: [Pod]}}]}
    mutate:
      targets:
      - {apiVersion: '*', kind: 'Pod/status', name: '*', namespace: ns, selector: {matchLabels: {a: b}}, context: [{name: t, variable: {jmesPath: target.metadata}}], preconditions: {any: [{key: '{{ target.kind }}', operator: Equals, value: Pod}]}}
      patchStrategicMerge: {metadata: {labels: {x: '{{ t.name }}'}}}
";

const VALIDATE: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p, annotations: {policies.kyverno.io/scored: 'false'}}
spec:
  background: false
  validationFailureAction: Enforce
  validationFailureActionOverrides: [{action: Audit, namespaces: [x, 'y-*'], namespaceSelector: {matchLabels: {a: b}}}]
  emitWarning: true
  applyRules: One
  rules:
  - name: one
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: 'no {{ request.object.metadata.labels }}'
      failureAction: Audit
      allowExistingViolations: true
      pattern:
        metadata: {labels: {'a*': '?* & !b', =(c): '>1 | x'}}
        =(spec): {(hostNetwork): true, X(nodeName): 'null', ^(containers): [{name: '{{ request.name }}', <(image): '*'}]}
  - name: two
    match: {any: [{resources: {kinds: [Pod]}}]}
    preconditions: {any: [{key: '{{ request.operation }}', operator: NotEquals, value: DELETE}]}
    validate:
      anyPattern: [{spec: {a: '1-5'}}, {metadata: {name: p}}]
  - name: three
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      message: m
      foreach:
      - list: request.object.metadata.labels
        elementScope: false
        context: [{name: g, variable: {jmesPath: element}}]
        preconditions: {all: [{key: 1, operator: LessThan, value: 2}]}
        foreach: [{list: element, deny: {conditions: {any: [{key: '{{ element1 }}', operator: AnyIn, value: [b], message: '{{ g }}'}]}}}]
  - name: four
    match: {any: [{resources: {kinds: [Pod]}}]}
    celPreconditions: [{name: c, expression: 'object.metadata.name != \"x\"'}]
    validate:
      cel:
        variables: [{name: v, expression: 'object.metadata.labels'}]
        expressions: [{expression: 'has(variables.v.a)', messageExpression: '\"no \" + object.metadata.name'}]
        auditAnnotations: [{key: k, valueExpression: '\"v\"'}]
  - name: five
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate:
      podSecurity:
        level: restricted
        version: v1.29
        exclude: [{controlName: Capabilities, images: ['*'], restrictedField: 'spec.containers[*].securityContext.capabilities.add', values: [A]}]
";

#[test]
fn unedited_policies_run() {
    for policy in [POLICY, MUTATE, VALIDATE] {
        let compiled = crate::support::compiled(policy);
        assert!(!compiled.has_errors(), "{:#?}", crate::support::messages(&compiled));
    }
    let names: Vec<_> =
        crate::support::rules(MUTATE).rules().map(|rule| rule.id.rule.to_string()).collect();
    assert_eq!(names, ["one", "two", "three", "autogen-one", "autogen-cronjob-one"]);
}

fn paths(value: &Value, path: &Path, found: &mut Vec<Path>) {
    found.push(path.clone());
    match value {
        Value::Map(map) => map.iter().for_each(|(key, value)| paths(value, &path.join(key), found)),
        Value::List(list) => {
            list.iter().enumerate().for_each(|(at, value)| paths(value, &path.join(at), found));
        }
        _ => {}
    }
}

fn anything() -> impl Strategy<Value = Value> {
    let text = prop_oneof![
        Just(""),
        Just("{{"),
        Just("{{ request }}"),
        Just("{{ request.object.metadata.labels.a }}"),
        Just("{{ {{ a }} }}"),
        Just("$(./../x)"),
        Just("*"),
        Just("*/*"),
        Just("a/b/c/d/e"),
        Just("\u{0}\u{1F600}"),
        Just("/apis/a/b/c?labelSelector=((("),
        Just("request.object"),
    ];
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
        Just(value!([])),
        Just(value!({})),
        Just(value!([{}, null, "x", [1]])),
        Just(value!({"any": [], "all": {}, "name": 1, "list": "@", "{{ x }}": 1})),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]
    #[test]
    fn nothing_that_people_write_panics(written in prop_oneof![Just(POLICY), Just(MUTATE), Just(VALIDATE)], edits in proptest::collection::vec((any::<prop::sample::Index>(), anything()), 1..4)) {
        let mut policy = objects(written).remove(0);
        for (index, edit) in edits {
            let mut all = Vec::new();
            paths(&policy, &Path::root(), &mut all);
            let path = index.get(&all).clone();
            let _ = policy.set(&path, edit);
        }
        let documents = documents("policy.yaml", &emit(&policy));
        let compiled = compile(&documents, &Kinds::builtin());
        for found in &compiled.diagnostics {
            prop_assert!(found.place.is_some(), "{found}");
            prop_assert!(!found.message.is_empty());
        }
        let rules = RuleSet::new(compiled.policies);
        let pod = value!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "n", "labels": {"a": "b"}}});
        let limits = EvaluationLimits { steps: 100_000, bytes: 1 << 20, ..EvaluationLimits::default() }.traced();
        for event in [Event::created(pod.clone()), Event::deleted(pod.clone()), Event::updated(pod.clone(), pod)] {
            let view = Objects(event.object.clone().into_iter().collect());
            let (kinds, eval_env) = (Kinds::builtin(), |kinds| EvalEnv { limits, ..EvalEnv::of(&view, kinds) });
            let mutated = rules.mutate(&event, &eval_env(&kinds));
            for outcome in run_within(&rules, &event, &view, limits).into_iter().chain(mutated.outcomes) {
                prop_assert!(outcome.trace.is_some_and(|trace| !trace.to_string().is_empty()));
            }
        }
    }
}
