//! What mutate rules, mutating policies and ModRules make of an object, or of others.

use crate::scene::{Scene, assert_said};

const SETTINGS: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {a: '1'}}";

#[test]
fn rules_change_the_object_one_after_the_other() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: b-second}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {b: "after {{ request.object.data.a }}"}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: a-first}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchesJson6902: '[{op: replace, path: /data/a, value: "2"}]'}
"#,
    );
    assert_said(
        &scene.create(SETTINGS),
        r#"
kyverno:a-first/r: pass
changes the object to
  apiVersion: v1
  data:
    a: "2"
  kind: ConfigMap
  metadata:
    name: settings
    namespace: shop
kyverno:b-second/r: pass
changes the object to
  apiVersion: v1
  data:
    a: "2"
    b: after 2
  kind: ConfigMap
  metadata:
    name: settings
    namespace: shop
"#,
    );
}

#[test]
fn a_rule_that_fails_changes_nothing_and_the_next_goes_on() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: fails
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {b: "{{ request.object.data.none }}"}}}
  - name: works
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {c: d}}}
"#,
    );
    assert_said(
        &scene.create(SETTINGS),
        r#"
kyverno:p/fails: error
fails: test.yaml:9:46: cannot resolve {{ request.object.data.none }} at spec.rules[0].mutate.patchStrategicMerge.data.b: no key "none" here (give a default with `|| ''`)
kyverno:p/works: pass
changes the object to
  apiVersion: v1
  data:
    a: "1"
    c: d
  kind: ConfigMap
  metadata:
    name: settings
    namespace: shop
"#,
    );
}

#[test]
fn numbers_in_labels_become_text() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {size: "{{ length(request.object.data) }}"}}}}
"#,
    );
    assert_said(
        &scene.create(SETTINGS),
        r#"
kyverno:p/r: pass
changes the object to
  apiVersion: v1
  data:
    a: "1"
  kind: ConfigMap
  metadata:
    labels:
      size: "1"
    name: settings
    namespace: shop
"#,
    );
}

#[test]
fn a_patch_that_changes_nothing_is_skipped() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {+(a): "9"}}}
"#,
    );
    assert_said(
        &scene.create(SETTINGS),
        "
kyverno:p/r: skip: no patches applied
",
    );
}

#[test]
fn stored_targets_are_changed_and_the_object_is_not() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets:
      - {apiVersion: apps/v1, kind: Deployment, name: "web*", namespace: "{{ request.namespace }}"}
      patchStrategicMerge:
        spec: {template: {metadata: {annotations: {a: "{{ request.object.data.a }}", of: "{{ target.metadata.name }}"}}}}
"#,
    )
    .with(
        "
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-1, namespace: shop}, spec: {replicas: 1}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-2, namespace: shop}, spec: {replicas: 2}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: db, namespace: shop}, spec: {replicas: 3}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web-1, namespace: bank}, spec: {replicas: 4}}
",
    );
    assert_said(
        &scene.create(SETTINGS),
        r#"
kyverno:p/r: pass
lists Deployment in shop
changes apps/v1/Deployment/shop/web-1 to
  apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web-1
    namespace: shop
  spec:
    replicas: 1
    template:
      metadata:
        annotations:
          a: "1"
          of: web-1
changes apps/v1/Deployment/shop/web-2 to
  apiVersion: apps/v1
  kind: Deployment
  metadata:
    name: web-2
    namespace: shop
  spec:
    replicas: 2
    template:
      metadata:
        annotations:
          a: "1"
          of: web-2
"#,
    );
}

#[test]
fn a_mutating_policy_sees_who_sends_the_request() {
    let scene = Scene::of(
        r#"
apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: '[JSONPatch{op: "add", path: "/metadata/annotations", value: {"by": request.userInfo.username}}]'
"#,
    )
    .sent_by("alice");
    assert_said(
        &scene.create(SETTINGS),
        r#"
mpol:p/p: pass
changes the object to
  apiVersion: v1
  data:
    a: "1"
  kind: ConfigMap
  metadata:
    annotations:
      by: alice
    name: settings
    namespace: shop
"#,
    );
}

#[test]
fn a_modrule_rejects_with_its_own_words() {
    let scene = Scene::of(
        r#"
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: no-ones, namespace: shop}
spec:
  type: Reject
  rejectMessage: 'no {{ .Target.data.a }} here'
  match:
  - select: $.kind
    matchValue: ConfigMap
  - select: $.data.a
    matchValue: "1"
"#,
    );
    assert_said(
        &scene.create(SETTINGS),
        r#"
modrule:shop/no-ones/no-ones: pass
rejects: shop/no-ones: "no 1 here"
"#,
    );
}

#[test]
fn a_trial_is_changed_and_nothing_is_made_of_it() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: change
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {data: {b: c}}}
  - name: make
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: "{{ request.namespace }}"
      data: {stringData: {a: b}}
"#,
    );
    let event = kiln_engine::Event::created(crate::scene::one(SETTINGS));
    let trial = event.as_dry_run();
    assert_said(
        &scene.tell(&trial),
        r#"
kyverno:p/change: pass
changes the object to
  apiVersion: v1
  data:
    a: "1"
    b: c
  kind: ConfigMap
  metadata:
    name: settings
    namespace: shop
"#,
    );
}
