//! What generate rules and generating policies make.

use crate::scene::{Scene, assert_said};

const SHOP: &str =
    "{apiVersion: v1, kind: Namespace, metadata: {name: shop, uid: n-1, labels: {team: till}}}";

/// A ClusterPolicy with one rule for Namespaces; the text is its `generate` and whatever stands beside it.
fn for_namespaces(rest: &str) -> Scene {
    let rest = rest.replace('\n', "\n    ");
    Scene::of(&format!(
        "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: p}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [Namespace]}}}}]}}
{rest}
"
    ))
}

#[test]
fn data_is_made_with_labels_that_say_by_whom_and_of_what() {
    let scene = for_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: ConfigMap
  name: "about-{{ request.object.metadata.name }}"
  namespace: "{{ request.object.metadata.name }}"
  synchronize: true
  data:
    metadata: {labels: {team: "{{ request.object.metadata.labels.team }}"}}
    data: {number: "{{ length(request.object.metadata.labels) }}"}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: pass
ensures v1/ConfigMap/shop/about-shop (Update)
  apiVersion: v1
  data:
    number: 1
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
      team: till
    name: about-shop
    namespace: shop
"#,
    );
}

#[test]
fn without_synchronize_what_is_there_stays_as_it_is() {
    let scene = for_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: ConfigMap
  name: once
  namespace: "{{ request.object.metadata.name }}"
  synchronize: false
  data: {data: {a: b}}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: pass
ensures v1/ConfigMap/shop/once (Keep)
  apiVersion: v1
  data:
    a: b
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
    name: once
    namespace: shop
"#,
    );
}

#[test]
fn a_copy_leaves_behind_what_belongs_to_its_source_alone() {
    let scene = for_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: Secret
  name: registry
  namespace: "{{ request.object.metadata.name }}"
  synchronize: true
  clone: {namespace: platform, name: registry-main}
"#,
    )
    .with(
        "
apiVersion: v1
kind: Secret
metadata:
  name: registry-main
  namespace: platform
  uid: s-1
  resourceVersion: '7'
  creationTimestamp: '2025-01-01T00:00:00Z'
  finalizers: [example.com/hold]
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: owner, uid: o-1}]
  labels: {keep: me}
  annotations: {kubectl.kubernetes.io/last-applied-configuration: '{}', note: keep}
type: Opaque
data: {k: dg==}
",
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: pass
reads v1/Secret/platform/registry-main
ensures v1/Secret/shop/registry (Update)
  apiVersion: v1
  data:
    k: dg==
  kind: Secret
  metadata:
    annotations:
      note: keep
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/source-group: ""
      generate.kyverno.io/source-kind: Secret
      generate.kyverno.io/source-namespace: platform
      generate.kyverno.io/source-uid: s-1
      generate.kyverno.io/source-version: v1
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
      keep: me
    name: registry
    namespace: shop
  type: Opaque
"#,
    );
}

#[test]
fn a_copy_of_nothing_says_what_is_missing() {
    let scene = for_namespaces(
        r#"
generate:
  apiVersion: v1
  kind: Secret
  name: registry
  namespace: "{{ request.object.metadata.name }}"
  synchronize: true
  clone: {namespace: platform, name: registry-main}
"#,
    );
    assert_said(&scene.create(SHOP), "
kyverno:p/r: error
reads v1/Secret/platform/registry-main
fails: test.yaml:16:14: source resource v1/Secret/platform/registry-main not found, so v1/Secret/shop/registry is not made (create the source)
");
}

#[test]
fn a_list_of_copies_takes_what_the_selector_means() {
    let scene = for_namespaces(
        r#"
generate:
  namespace: "{{ request.object.metadata.name }}"
  synchronize: true
  cloneList:
    namespace: platform
    kinds: [v1/ConfigMap, v1/Secret]
    selector: {matchLabels: {share: "yes"}}
"#,
    )
    .with(
        r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: banner, namespace: platform, uid: c-1, labels: {share: "yes"}}, data: {a: b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: private, namespace: platform, uid: c-2}, data: {a: b}}
---
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: platform, uid: s-1, labels: {share: "yes"}}, data: {t: dA==}}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: pass
lists ConfigMap in platform
lists Secret in platform
ensures v1/ConfigMap/shop/banner (Update)
  apiVersion: v1
  data:
    a: b
  kind: ConfigMap
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/source-group: ""
      generate.kyverno.io/source-kind: ConfigMap
      generate.kyverno.io/source-namespace: platform
      generate.kyverno.io/source-uid: c-1
      generate.kyverno.io/source-version: v1
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
      share: "yes"
    name: banner
    namespace: shop
ensures v1/Secret/shop/token (Update)
  apiVersion: v1
  data:
    t: dA==
  kind: Secret
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/source-group: ""
      generate.kyverno.io/source-kind: Secret
      generate.kyverno.io/source-namespace: platform
      generate.kyverno.io/source-uid: s-1
      generate.kyverno.io/source-version: v1
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
      share: "yes"
    name: token
    namespace: shop
"#,
    );
}

#[test]
fn elements_without_a_value_fail_alone_and_the_others_are_made() {
    let scene = for_namespaces(
        r#"
generate:
  foreach:
  - list: "[{name: 'a', size: '1'}, {name: 'b'}, {name: 'c', size: '3'}]"
    apiVersion: v1
    kind: ConfigMap
    name: "{{ element.name }}"
    namespace: "{{ request.object.metadata.name }}"
    data: {data: {size: "{{ element.size }}"}}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: error
ensures v1/ConfigMap/shop/a (Keep)
  apiVersion: v1
  data:
    size: "1"
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
ensures v1/ConfigMap/shop/c (Keep)
  apiVersion: v1
  data:
    size: "3"
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
fails: test.yaml:17:29: cannot resolve {{ element.size }} at spec.rules[0].generate.foreach[0].data.data.size: no key "size" here (give a default with `|| ''`)
"#,
    );
}

#[test]
fn preconditions_that_do_not_hold_make_nothing() {
    let scene = for_namespaces(
        r#"
preconditions: {all: [{key: "{{ request.object.metadata.labels.team }}", operator: Equals, value: bank}]}
generate:
  apiVersion: v1
  kind: ConfigMap
  name: made
  namespace: "{{ request.object.metadata.name }}"
  data: {data: {a: b}}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        "
kyverno:p/r: skip
",
    );
}

#[test]
fn an_exception_leaves_the_object_alone_and_is_named() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: made
      namespace: "{{ request.object.metadata.name }}"
      data: {data: {a: b}}
---
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: not-the-shop, namespace: platform}
spec:
  exceptions: [{policyName: p, ruleNames: [r]}]
  match: {any: [{resources: {kinds: [Namespace], names: [shop]}}]}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        "
kyverno:p/r: skip: rule is skipped due to policy exception platform/not-the-shop
",
    );
}

#[test]
fn a_context_is_loaded_where_it_is_needed_and_what_was_read_is_told() {
    let scene = for_namespaces(
        r#"
context:
- name: settings
  configMap: {name: settings, namespace: platform}
- name: pods
  apiCall: {urlPath: "/api/v1/namespaces/shop/pods", jmesPath: "items[].metadata.name"}
- name: never
  configMap: {name: nowhere, namespace: platform}
generate:
  apiVersion: v1
  kind: ConfigMap
  name: made
  namespace: "{{ request.object.metadata.name }}"
  data: {data: {zone: "{{ settings.data.zone }}", pods: "{{ pods }}"}}
"#,
    )
    .with(
        r#"
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: platform}, data: {zone: north}}
---
{apiVersion: v1, kind: Pod, metadata: {name: one, namespace: shop}}
---
{apiVersion: v1, kind: Pod, metadata: {name: two, namespace: shop}}
"#,
    );
    assert_said(
        &scene.create(SHOP),
        r#"
kyverno:p/r: pass
reads v1/ConfigMap/platform/settings
lists Pod in shop
ensures v1/ConfigMap/shop/made (Keep)
  apiVersion: v1
  data:
    pods:
    - one
    - two
    zone: north
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
    name: made
    namespace: shop
"#,
    );
}

#[test]
fn two_parts_that_want_one_object_otherwise_are_a_conflict() {
    let scene = Scene::of(
        r#"
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.name, [{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "made"}), "data": dyn({"a": "1"})}])
  - expression: >-
      generator.Apply(object.metadata.name, [{"apiVersion": dyn("v1"), "kind": dyn("ConfigMap"), "metadata": dyn({"name": "made"}), "data": dyn({"a": "2"})}])
"#,
    );
    assert_said(&scene.create(SHOP), "
gpol:p/p: error
fails: test.yaml:11:5: two parts of the rule make different objects of the name v1/ConfigMap/shop/made: spec.generate[0] for element 0 and spec.generate[1] for element 0 (give them different names, for example with the number of the element)
");
}

#[test]
fn a_generating_policy_copies_what_it_reads() {
    let scene = Scene::of(
        r#"
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: p}
spec:
  evaluation: {synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  variables:
  - {name: source, expression: "resource.Get('v1', 'secrets', 'platform', 'registry')"}
  generate:
  - expression: generator.Apply(object.metadata.name, [variables.source])
"#,
    )
    .with(
        "
{apiVersion: v1, kind: Secret, metadata: {name: registry, namespace: platform, uid: s-1}, type: Opaque, data: {k: dg==}}
",
    );
    assert_said(
        &scene.create(SHOP),
        r#"
gpol:p/p: pass
reads v1/Secret/platform/registry
ensures v1/Secret/shop/registry (UpdateOwn)
  apiVersion: v1
  data:
    k: dg==
  kind: Secret
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/source-uid: s-1
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: Namespace
      generate.kyverno.io/trigger-name: shop
      generate.kyverno.io/trigger-namespace: ""
      generate.kyverno.io/trigger-uid: n-1
      generate.kyverno.io/trigger-version: v1
    name: registry
    namespace: shop
  type: Opaque
"#,
    );
}
