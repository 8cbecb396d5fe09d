//! Why a rule ended as it did.

use crate::scene::{Scene, assert_said};

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], names: ["set*"]}}, {resources: {kinds: [Secret]}}]}
    exclude: {any: [{resources: {namespaces: [bank]}}]}
    context:
    - name: zone
      variable: {jmesPath: request.object.data.zone, default: south}
    preconditions:
      all:
      - {key: "{{ zone }}", operator: AnyIn, value: [north, south]}
      - {key: "{{ request.object.data.size || `0` }}", operator: GreaterThan, value: 3}
    mutate: {patchStrategicMerge: {metadata: {labels: {zone: "{{ zone }}"}}}}
"#;

#[test]
fn a_trace_shows_every_question_of_a_rule_that_acts() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {size: 4}}";
    assert_said(
        &Scene::of(POLICY).traced().create(object),
        r#"
kyverno:p/r: pass
changes the object to
  apiVersion: v1
  data:
    size: 4
  kind: ConfigMap
  metadata:
    labels:
      zone: south
    name: settings
    namespace: shop
because
  rule kyverno:p/r (pass)
  ├─ match: yes
  │  └─ any[0]: yes
  │     ├─ kinds: yes (v1/ConfigMap is one of ConfigMap)
  │     └─ names: yes ("settings" is one of set*)
  ├─ exclude: no
  │  └─ any[0]: no
  │     └─ namespaces: no ("shop" is none of bank)
  ├─ preconditions: yes
  │  ├─ context zone (variable) = "south"
  │  ├─ {{ zone }} = "south"
  │  ├─ {{ request.object.data.size || `0` }} = 4
  │  ├─ spec.rules[0].preconditions.all[0]: "south" AnyIn ["north","south"] holds, compared as elements with wildcards: yes
  │  └─ spec.rules[0].preconditions.all[1]: 4 GreaterThan 3 holds, compared as numbers: yes
  ├─ {{ zone }} = "south"
  └─ patch = {"metadata":{"labels":{"zone":"south"}}}
"#,
    );
}

#[test]
fn a_trace_shows_which_condition_does_not_hold() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {zone: north}}";
    assert_said(
        &Scene::of(POLICY).traced().create(object),
        r#"
kyverno:p/r: skip: preconditions not met
because
  rule kyverno:p/r (skip: preconditions not met)
  ├─ match: yes
  │  └─ any[0]: yes
  │     ├─ kinds: yes (v1/ConfigMap is one of ConfigMap)
  │     └─ names: yes ("settings" is one of set*)
  ├─ exclude: no
  │  └─ any[0]: no
  │     └─ namespaces: no ("shop" is none of bank)
  └─ preconditions: no
     ├─ context zone (variable) = "north"
     ├─ {{ zone }} = "north"
     ├─ {{ request.object.data.size || `0` }} = 0
     ├─ spec.rules[0].preconditions.all[0]: "north" AnyIn ["north","south"] holds, compared as elements with wildcards: yes
     └─ spec.rules[0].preconditions.all[1]: 0 GreaterThan 3 does not hold, compared as numbers: no
"#,
    );
}

#[test]
fn a_trace_shows_what_excludes_an_object() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: bank}}";
    assert_said(
        &Scene::of(POLICY).traced().create(object),
        r#"
kyverno:p/r: no match
because
  rule kyverno:p/r (no match)
  ├─ match: yes
  │  └─ any[0]: yes
  │     ├─ kinds: yes (v1/ConfigMap is one of ConfigMap)
  │     └─ names: yes ("settings" is one of set*)
  └─ exclude: yes
     └─ any[0]: yes
        └─ namespaces: yes ("bank" is one of bank)
"#,
    );
}

#[test]
fn a_trace_shows_what_does_not_match() {
    let object = "{apiVersion: v1, kind: ConfigMap, metadata: {name: other, namespace: shop}}";
    assert_said(
        &Scene::of(POLICY).traced().create(object),
        r#"
kyverno:p/r: no match
because
  rule kyverno:p/r (no match)
  └─ match: no
     ├─ any[0]: no
     │  ├─ kinds: yes (v1/ConfigMap is one of ConfigMap)
     │  └─ names: no ("other" is none of set*)
     └─ any[1]: no
        └─ kinds: no (v1/ConfigMap is none of Secret)
"#,
    );
}
