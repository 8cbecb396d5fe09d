//! Budgets that are used up, and rules that fire on one another.

use kiln_engine::{EvaluationLimits, Event};

use crate::scene::{Scene, assert_said, one};

const MANY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      foreach:
      - list: "['a', 'b', 'c', 'd']"
        apiVersion: v1
        kind: ConfigMap
        name: "{{ element }}"
        namespace: "{{ request.object.metadata.name }}"
        data: {data: {of: "{{ element }}"}}
"#;

const SHOP: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: n-1}}";

fn within(policy: &str, limits: EvaluationLimits) -> Scene {
    let mut scene = Scene::of(policy);
    scene.limits = limits;
    scene
}

#[test]
fn a_rule_makes_no_more_objects_than_it_may() {
    let scene = within(MANY, EvaluationLimits { objects: 2, ..EvaluationLimits::default() });
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: error
ensures v1/ConfigMap/shop/a (Keep)
  apiVersion: v1
  data:
    of: a
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: a
    namespace: shop
ensures v1/ConfigMap/shop/b (Keep)
  apiVersion: v1
  data:
    of: b
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: b
    namespace: shop
fails: test.yaml:11:9: the rule makes more than 2 objects (narrow the match or the list, or raise the limit)
"#,
    );
}

#[test]
fn a_rule_runs_for_no_more_elements_than_it_may() {
    let scene = within(MANY, EvaluationLimits { elements: 3, ..EvaluationLimits::default() });
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: error
ensures v1/ConfigMap/shop/a (Keep)
  apiVersion: v1
  data:
    of: a
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: a
    namespace: shop
ensures v1/ConfigMap/shop/b (Keep)
  apiVersion: v1
  data:
    of: b
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: b
    namespace: shop
ensures v1/ConfigMap/shop/c (Keep)
  apiVersion: v1
  data:
    of: c
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: c
    namespace: shop
fails: test.yaml:11:15: the rule runs for more than 3 elements (narrow the match or the list, or raise the limit)
"#,
    );
}

#[test]
fn expressions_take_no_more_steps_than_they_may() {
    let scene = within(MANY, EvaluationLimits { steps: 5, ..EvaluationLimits::default() });
    assert_said(&scene.create(SHOP), "
kyverno:p/r: error
fails: test.yaml:14:15: cannot resolve {{ element }} at spec.rules[0].generate.foreach[0].name: the expression takes more than 5 steps
");
}

#[test]
fn a_rule_lists_no_more_objects_than_it_may() {
    let policy = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace]}}]}
    context:
    - name: pods
      apiCall: {urlPath: /api/v1/pods, jmesPath: length(items)}
    mutate: {patchStrategicMerge: {metadata: {labels: {pods: "{{ pods }}"}}}}
"#;
    let scene = within(policy, EvaluationLimits { listed: 1, ..EvaluationLimits::default() }).with(
        "
{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: two, namespace: shop}}
",
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: error
fails: test.yaml:10:7: cannot load the context entry "pods": the rule reads more than 1 objects
"#,
    );
}

#[test]
fn expressions_of_a_script_have_the_same_budget() {
    let policy = r#"
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration:
      expression: >-
        Object{metadata: Object.metadata{labels: {"n": string([1, 2, 3, 4, 5, 6, 7, 8].map(a, [1, 2, 3, 4, 5, 6, 7, 8].map(b, a * b)).size())}}}
"#;
    let scene = within(policy, EvaluationLimits { steps: 20, ..EvaluationLimits::default() });
    assert_said(
        &scene.create(SHOP),
        "
mpol:p/p: error
fails: test.yaml:11:19: operation cancelled: actual cost limit exceeded, for v1/Namespace/shop
",
    );
}

#[test]
fn a_rule_that_fires_on_what_it_made_is_stopped() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: echo}
spec:
  rules:
  - name: again
    skipBackgroundRequests: false
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: "{{ request.object.metadata.name }}-x"
      namespace: shop
      data: {data: {a: b}}
"#,
    );
    let first = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, uid: c-1}}";
    let mut event = Event::created(one(first));
    for made in ["c-x", "c-x-x", "c-x-x-x", "c-x-x-x-x"] {
        let outcome = scene.outcomes(&event).remove(0);
        assert!(outcome.failures.is_empty(), "{:?}", outcome.failures);
        let object = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {made}, namespace: shop}}}}"
        );
        event = Event::created(one(&object)).by_engine(outcome.lineage);
    }
    assert_said(&scene.tell(&event), "
kyverno:echo/again: error
fails: test.yaml:7:5: rule kyverno:echo/again fires on objects that it made itself: v1/ConfigMap/shop/c → echo/again → v1/ConfigMap/shop/c-x → echo/again → v1/ConfigMap/shop/c-x-x → echo/again → v1/ConfigMap/shop/c-x-x-x → echo/again → v1/ConfigMap/shop/c-x-x-x-x (exclude the objects that the rule makes, or leave skipBackgroundRequests on)
");
}
