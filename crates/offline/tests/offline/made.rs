//! What rules make of resources, and of what rules made.

use crate::run::{Given, assert_said};

const LABEL: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap, Secret]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: "yes"}}}}
"#;

const COPY: &str = r#"
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: pair}
spec:
  rules:
  - name: pair
    match: {any: [{resources: {kinds: [ConfigMap], names: [settings]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: pair
      namespace: "{{ request.namespace }}"
      synchronize: true
      data: {stringData: {of: "{{ request.object.metadata.name }}", seen: "{{ request.object.metadata.labels.seen || 'no' }}"}}
"#;

const SETTINGS: &str =
    "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}}";

#[test]
fn what_is_made_sees_the_changed_resource_and_is_changed_itself() {
    let policies = format!("{LABEL}{COPY}");
    let given = Given { policies: &policies, resources: SETTINGS, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:label/label on v1/ConfigMap/shop/settings: pass
  patched v1/ConfigMap/shop/settings
kyverno:pair/pair on v1/ConfigMap/shop/settings: pass
  created v1/Secret/shop/pair
kyverno:label/label on v1/Secret/shop/pair: pass
  patched v1/Secret/shop/pair
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    seen: "yes"
  name: settings
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: pair
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: pair
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
    seen: "yes"
  name: pair
  namespace: shop
stringData:
  of: settings
  seen: "yes"
"#,
    );
}

#[test]
fn a_resource_without_a_namespace_is_in_default_and_printed_as_it_was_given() {
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: settings}}";
    let policies = format!("{LABEL}{COPY}");
    let given = Given { policies: &policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:label/label on v1/ConfigMap/default/settings: pass
  patched v1/ConfigMap/default/settings
kyverno:pair/pair on v1/ConfigMap/default/settings: pass
  created v1/Secret/default/pair
kyverno:label/label on v1/Secret/default/pair: pass
  patched v1/Secret/default/pair
---
apiVersion: v1
kind: ConfigMap
metadata:
  labels:
    seen: "yes"
  name: settings
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: pair
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: pair
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: default
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
    seen: "yes"
  name: pair
  namespace: default
stringData:
  of: settings
  seen: "yes"
"#,
    );
}

const FIRST_AND_SECOND: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: first}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: first
      namespace: "{{ request.object.metadata.name }}"
      data: {data: {a: b}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: second}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: "of-{{ request.object.metadata.name }}"
      namespace: "{{ request.namespace }}"
      data: {stringData: {a: "{{ request.object.data.a }}"}}
"#;

#[test]
fn rules_do_not_fire_on_what_others_made() {
    let resources = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let given = Given { policies: FIRST_AND_SECOND, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:first/r on v1/Namespace/shop: pass
  created v1/ConfigMap/shop/first
---
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: first
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: r
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: Namespace
    generate.kyverno.io/trigger-namespace: ""
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: first
  namespace: shop
"#,
    );
}

#[test]
fn rules_that_ask_for_it_fire_on_what_others_made() {
    let policies =
        FIRST_AND_SECOND.replace("- name: r", "- name: r\n    skipBackgroundRequests: false");
    let resources = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";
    let given = Given { policies: &policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:first/r on v1/Namespace/shop: pass
  created v1/ConfigMap/shop/first
kyverno:second/r on v1/ConfigMap/shop/first: pass
  created v1/Secret/shop/of-first
---
apiVersion: v1
kind: Namespace
metadata:
  name: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: first
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: r
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: Namespace
    generate.kyverno.io/trigger-namespace: ""
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: first
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: second
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: r
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: of-first
  namespace: shop
stringData:
  a: b
"#,
    );
}

#[test]
fn a_rule_that_fires_on_itself_stops_and_names_the_chain() {
    let policies = r#"
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
      namespace: "{{ request.namespace }}"
      data: {data: {a: b}}
"#;
    let resources = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop}}";
    let given = Given { policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:echo/again on v1/ConfigMap/shop/c: pass
  created v1/ConfigMap/shop/c-x
kyverno:echo/again on v1/ConfigMap/shop/c-x: pass
  created v1/ConfigMap/shop/c-x-x
kyverno:echo/again on v1/ConfigMap/shop/c-x-x: pass
  created v1/ConfigMap/shop/c-x-x-x
kyverno:echo/again on v1/ConfigMap/shop/c-x-x-x: pass
  created v1/ConfigMap/shop/c-x-x-x-x
kyverno:echo/again on v1/ConfigMap/shop/c-x-x-x-x: error
  test.yaml:7:5: rule kyverno:echo/again fires on objects that it made itself: v1/ConfigMap/shop/c → echo/again → v1/ConfigMap/shop/c-x → echo/again → v1/ConfigMap/shop/c-x-x → echo/again → v1/ConfigMap/shop/c-x-x-x → echo/again → v1/ConfigMap/shop/c-x-x-x-x (exclude the objects that the rule makes, or leave skipBackgroundRequests on)
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: c
  namespace: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: echo
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: again
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: c-x
  namespace: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: echo
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: again
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: c-x-x
  namespace: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: echo
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: again
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: c-x-x-x
  namespace: shop
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: echo
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: again
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: c-x-x-x-x
  namespace: shop
"#,
    );
}

#[test]
fn what_is_given_already_is_left_alone_without_synchronize() {
    let policies = COPY.replace("synchronize: true", "synchronize: false");
    let others = "{apiVersion: v1, kind: Secret, metadata: {name: pair, namespace: shop}, stringData: {of: me}}";
    let given = Given { policies: &policies, resources: SETTINGS, others, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:pair/pair on v1/ConfigMap/shop/settings: pass
  left alone v1/Secret/shop/pair
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  name: pair
  namespace: shop
stringData:
  of: me
",
    );
}

#[test]
fn what_is_given_already_is_updated_with_synchronize() {
    let others = "{apiVersion: v1, kind: Secret, metadata: {name: pair, namespace: shop}, stringData: {of: me}}";
    let given = Given { policies: COPY, resources: SETTINGS, others, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:pair/pair on v1/ConfigMap/shop/settings: pass
  updated v1/Secret/shop/pair
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: pair
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: pair
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: pair
  namespace: shop
stringData:
  of: settings
  seen: "no"
"#,
    );
}

#[test]
fn stored_targets_are_changed_among_what_is_given() {
    let policies = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: roll}
spec:
  rules:
  - name: roll
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate:
      targets: [{apiVersion: apps/v1, kind: Deployment, name: web, namespace: "{{ request.namespace }}"}]
      patchStrategicMerge: {metadata: {annotations: {settings: "{{ request.object.data.version }}"}}}
"#;
    let resources = "
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: shop}, data: {version: v2}}
---
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}, spec: {replicas: 1}}
";
    let given = Given { policies, resources, ..Given::default() };
    assert_said(
        &given.shown(),
        "
kyverno:roll/roll on v1/ConfigMap/shop/settings: pass
  patched apps/v1/Deployment/shop/web
---
apiVersion: v1
data:
  version: v2
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
---
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    settings: v2
  name: web
  namespace: shop
spec:
  replicas: 1
",
    );
}

#[test]
fn a_refused_resource_is_left_out_and_nothing_follows_from_it() {
    let policies = format!(
        r#"
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {{name: closed, namespace: shop}}
spec:
  type: Reject
  rejectMessage: not today
  match: [{{select: $.kind, matchValue: ConfigMap}}]
{COPY}"#
    );
    let given = Given { policies: &policies, resources: SETTINGS, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
modrule:shop/closed/closed on v1/ConfigMap/shop/settings: fail: rejected by shop/closed: "not today"
refused v1/ConfigMap/shop/settings
"#,
    );
}

#[test]
fn a_modrule_that_adds_each_time_is_warned_of() {
    let policies = r#"
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: grow, namespace: shop}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: Service}]
  patch:
  - {op: add, path: /spec/ports/-, value: "{port: 1}"}
"#;
    let resources = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {ports: [{port: 80}]}}";
    let given = Given { policies, resources, ..Given::default() };
    assert_said(&given.shown(), "
modrule:shop/grow/grow on v1/Service/shop/web: pass
  patched v1/Service/shop/web
warning: test.yaml:2:1: rule shop/grow changes v1/Service/shop/web again each time it is updated (add a match item with negate: true that sees what the rule has done)
---
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
spec:
  ports:
  - port: 80
  - port: 1
");
}

#[test]
fn a_failure_names_its_place_and_the_other_rules_run() {
    let policies = format!(
        r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {{name: broken}}
spec:
  rules:
  - name: r
    match: {{any: [{{resources: {{kinds: [ConfigMap]}}}}]}}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: made
      namespace: shop
      data: {{data: {{owner: "{{{{ request.object.metadata.annotations.owner }}}}"}}}}
{COPY}"#
    );
    let given = Given { policies: &policies, resources: SETTINGS, ..Given::default() };
    assert_said(
        &given.shown(),
        r#"
kyverno:broken/r on v1/ConfigMap/shop/settings: error
  test.yaml:14:28: cannot resolve {{ request.object.metadata.annotations.owner }} at spec.rules[0].generate.data.data.owner: no key "annotations" here (give a default with `|| ''`)
kyverno:pair/pair on v1/ConfigMap/shop/settings: pass
  created v1/Secret/shop/pair
---
apiVersion: v1
kind: ConfigMap
metadata:
  name: settings
  namespace: shop
---
apiVersion: v1
kind: Secret
metadata:
  labels:
    app.kubernetes.io/managed-by: kyverno
    generate.kyverno.io/policy-name: pair
    generate.kyverno.io/policy-namespace: ""
    generate.kyverno.io/rule-name: pair
    generate.kyverno.io/trigger-group: ""
    generate.kyverno.io/trigger-kind: ConfigMap
    generate.kyverno.io/trigger-namespace: shop
    generate.kyverno.io/trigger-uid: ""
    generate.kyverno.io/trigger-version: v1
  name: pair
  namespace: shop
stringData:
  of: settings
  seen: "no"
"#,
    );
}
