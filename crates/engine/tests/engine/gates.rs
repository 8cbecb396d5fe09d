//! What rules may not read or write.

use crate::scene::{Scene, assert_said};

/// A Policy of the namespace shop with one rule for ConfigMaps; the text is its `generate` and what stands beside it.
fn of_shop(rest: &str) -> Scene {
    let rest = rest.replace('\n', "\n    ");
    Scene::of(&format!(
        "
apiVersion: kyverno.io/v1
kind: Policy
metadata: {{name: p, namespace: shop}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
{rest}
"
    ))
}

const TRIGGER: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, uid: c-1}, data: {to: kube-system}}";

#[test]
fn a_policy_of_a_namespace_does_not_read_elsewhere() {
    let scene = of_shop(
        r#"
context:
- name: settings
  configMap: {name: settings, namespace: "{{ request.object.data.to }}"}
generate:
  apiVersion: v1
  kind: ConfigMap
  name: stolen
  namespace: shop
  data: {data: {key: "{{ settings.data.key }}"}}
"#,
    )
    .with("{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: kube-system}, data: {key: s3cret}}");
    assert_said(
        &scene.create(TRIGGER),
        r#"
kyverno:shop/p/r: error
fails: test.yaml:11:7: cannot load the context entry "settings": a policy of namespace "shop" cannot read v1/ConfigMap/kube-system/settings
"#,
    );
}

#[test]
fn a_policy_of_a_namespace_makes_objects_there_whatever_they_say() {
    let scene = Scene::of(
        r#"
apiVersion: policies.kyverno.io/v1
kind: NamespacedGeneratingPolicy
metadata: {name: p, namespace: shop}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  generate:
  - expression: >-
      generator.Apply([{"apiVersion": dyn("v1"), "kind": dyn("Secret"), "metadata": dyn({"name": "made", "namespace": object.data.to})}])
"#,
    );
    assert_said(
        &scene.create(TRIGGER),
        r#"
gpol:shop/p/p: pass
ensures v1/Secret/shop/made (UpdateOwn)
  apiVersion: v1
  kind: Secret
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: shop
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: ConfigMap
      generate.kyverno.io/trigger-name: c
      generate.kyverno.io/trigger-namespace: shop
      generate.kyverno.io/trigger-uid: c-1
      generate.kyverno.io/trigger-version: v1
    name: made
    namespace: shop
warns: test.yaml:9:5: v1/Secret/kube-system/made says namespace "kube-system" itself, and is made in "shop": the namespace of the call wins
"#,
    );
}

#[test]
fn a_policy_of_a_namespace_lists_its_own_objects_alone() {
    let scene = Scene::of(
        r#"
apiVersion: policies.kyverno.io/v1
kind: NamespacedMutatingPolicy
metadata: {name: p, namespace: shop}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [configmaps]}]
  variables:
  - {name: secrets, expression: "resource.List('v1', 'secrets')"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: {"secrets": string(size(variables.secrets.items))}}'}
"#,
    )
    .with(
        "
{apiVersion: v1, kind: Secret, metadata: {name: safe, namespace: kube-system}}
---
{apiVersion: v1, kind: Secret, metadata: {name: own, namespace: shop}}
",
    );
    assert_said(
        &scene.create(TRIGGER),
        r#"
mpol:shop/p/p: pass
lists Secret in shop
changes the object to
  apiVersion: v1
  data:
    secrets: "1"
    to: kube-system
  kind: ConfigMap
  metadata:
    name: c
    namespace: shop
    uid: c-1
"#,
    );
}

#[test]
fn a_policy_of_a_namespace_is_not_fired_from_elsewhere() {
    let scene = of_shop(
        r#"
generate:
  apiVersion: v1
  kind: Secret
  name: made
  namespace: shop
  data: {stringData: {a: b}}
"#,
    );
    let elsewhere = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: bank}}";
    assert_said(&scene.create(elsewhere), "");
}

/// A ClusterPolicy that writes where the object says.
const CHOSEN: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: "{{ request.object.data.to }}"
      data: {stringData: {a: b}}
"#;

#[test]
fn an_object_does_not_choose_a_protected_namespace() {
    let scene = Scene::of(CHOSEN).protecting(&["kube-*"]);
    assert_said(&scene.create(TRIGGER), "
kyverno:p/r: error
fails: test.yaml:10:7: cannot write into namespace kube-system: it is protected, and an object names it, not the policy (write the namespace into the rule, or remove it from kiln.protectedNamespaces)
");
}

#[test]
fn the_author_of_a_rule_may_name_a_protected_namespace() {
    let policy = CHOSEN.replace("\"{{ request.object.data.to }}\"", "kube-system");
    let scene = Scene::of(&policy).protecting(&["kube-*"]);
    assert_said(
        &scene.create(TRIGGER),
        r#"
kyverno:p/r: pass
ensures v1/Secret/kube-system/made (Keep)
  apiVersion: v1
  kind: Secret
  metadata:
    labels:
      app.kubernetes.io/managed-by: kyverno
      generate.kyverno.io/policy-name: p
      generate.kyverno.io/policy-namespace: ""
      generate.kyverno.io/rule-name: r
      generate.kyverno.io/trigger-group: ""
      generate.kyverno.io/trigger-kind: ConfigMap
      generate.kyverno.io/trigger-namespace: shop
      generate.kyverno.io/trigger-uid: c-1
      generate.kyverno.io/trigger-version: v1
    name: made
    namespace: kube-system
  stringData:
    a: b
"#,
    );
}

#[test]
fn an_object_that_is_no_valid_object_is_not_written() {
    let policy =
        CHOSEN.replace("name: made", "name: \"Made By {{ request.object.metadata.name }}\"");
    assert_said(
        &Scene::of(&policy).create(TRIGGER),
        r#"
kyverno:p/r: error
fails: test.yaml:10:7: cannot make v1/Secret/kube-system/Made By c: its name "Made By c" is not a valid name: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*') (join, cut and replace parts until it is one)
"#,
    );
}

#[test]
fn a_namespaced_object_needs_a_namespace() {
    let policy =
        CHOSEN.replace("{{ request.object.data.to }}", "{{ request.object.data.none || '' }}");
    assert_said(&Scene::of(&policy).create(TRIGGER), "
kyverno:p/r: error
fails: test.yaml:10:7: cannot make v1/Secret/made: target namespace must be set for a namespaced resource
");
}

#[test]
fn what_the_author_may_not_read_has_no_default() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: key
      apiCall: {urlPath: /api/v1/namespaces/bank/secrets/safe, jmesPath: data.key, default: none}
    mutate: {patchStrategicMerge: {data: {key: "{{ key }}"}}}
"#,
    )
    .with("{apiVersion: v1, kind: Secret, metadata: {name: safe, namespace: bank}, data: {key: czNjcmV0}}")
    .denying("get", "Secret");
    assert_said(
        &scene.create(TRIGGER),
        r#"
kyverno:p/r: error
fails: test.yaml:10:7: cannot load the context entry "key": the author of the policy may not get Secret
"#,
    );
}

#[test]
fn a_rule_whose_author_may_not_bind_does_not_change_bindings() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [RoleBinding]}}]}
    mutate:
      patchStrategicMerge:
        subjects: [{kind: User, name: mallory, apiGroup: rbac.authorization.k8s.io}]
"#,
    )
    .denying("bind", "ClusterRole");
    let binding = "
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: b, namespace: shop}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: admin}
";
    assert_said(
        &scene.create(binding),
        "
kyverno:p/r: error
fails: test.yaml:7:5: the author of the policy may not bind ClusterRole
",
    );
}

#[test]
fn a_service_is_not_asked_unless_the_host_does() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: answer
      apiCall: {method: GET, service: {url: "https://owners.example.com/owner"}}
    mutate: {patchStrategicMerge: {data: {owner: "{{ answer.owner }}"}}}
"#,
    );
    assert_said(
        &scene.create(TRIGGER),
        r#"
kyverno:p/r: error
fails: test.yaml:10:7: cannot load the context entry "answer": the service https://owners.example.com/owner is not called (give the value by name instead, or allow the host)
"#,
    );
}

#[test]
fn text_of_an_object_is_never_a_template() {
    let scene = Scene::of(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {annotations: {said: "{{ request.object.data.words }}"}}}}
"#,
    )
    .sent_by("mallory");
    let tricky = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}, data: {words: '{{ request.userInfo.username }} $(./../name)'}}";
    assert_said(
        &scene.create(tricky),
        "
kyverno:p/r: pass
changes the object to
  apiVersion: v1
  data:
    words: '{{ request.userInfo.username }} $(./../name)'
  kind: ConfigMap
  metadata:
    annotations:
      said: '{{ request.userInfo.username }} $(./../name)'
    name: c
    namespace: shop
",
    );
}
