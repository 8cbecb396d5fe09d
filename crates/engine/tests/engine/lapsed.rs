//! Objects that were triggers and no longer are.

use crate::scene::{Scene, assert_said};

const POLICY: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap], selector: {matchLabels: {share: "yes"}}}}]}
    preconditions: {all: [{key: "{{ request.object.data.open || 'yes' }}", operator: Equals, value: "yes"}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: "{{ request.object.metadata.namespace }}"
      synchronize: true
      data: {stringData: {a: b}}
"#;

const SHARED: &str = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, uid: c-1, labels: {share: 'yes'}}}";

#[test]
fn a_trigger_that_is_deleted_takes_what_was_made_with_it() {
    assert_said(
        &Scene::of(POLICY).delete(SHARED),
        "
kyverno:p/r: lapsed: the trigger is deleted
deletes what it made of v1/ConfigMap/shop/c: the trigger is deleted
",
    );
}

#[test]
fn a_trigger_that_loses_its_label_takes_what_was_made_with_it() {
    let unshared =
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, uid: c-1}}";
    assert_said(
        &Scene::of(POLICY).update(SHARED, unshared),
        "
kyverno:p/r: lapsed: the trigger no longer matches
deletes what it made of v1/ConfigMap/shop/c: the trigger no longer matches
",
    );
}

#[test]
fn preconditions_that_hold_no_longer_take_what_was_made_with_them() {
    let closed = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: shop, uid: c-1, labels: {share: 'yes'}}, data: {open: 'no'}}";
    assert_said(
        &Scene::of(POLICY).update(SHARED, closed),
        "
kyverno:p/r: lapsed: the preconditions no longer hold
deletes what it made of v1/ConfigMap/shop/c: the preconditions no longer hold
",
    );
}

#[test]
fn an_object_that_never_was_a_trigger_lapses_nothing() {
    let other = "{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: shop, uid: d-1}}";
    let changed = "{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: shop, uid: d-1}, data: {a: b}}";
    assert_said(&Scene::of(POLICY).update(other, changed), "");
}

#[test]
fn without_synchronize_a_deleted_trigger_leaves_what_was_made() {
    let policy = POLICY.replace("synchronize: true", "synchronize: false");
    assert_said(
        &Scene::of(&policy).delete(SHARED),
        "
kyverno:p/r: lapsed: the trigger is deleted
",
    );
}

#[test]
fn a_default_for_what_cannot_be_read_removes_nothing() {
    let policy = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: p}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    context:
    - name: open
      apiCall: {urlPath: /api/v1/namespaces/platform/secrets/switch, jmesPath: data.open, default: "no"}
    preconditions: {all: [{key: "{{ open }}", operator: Equals, value: "yes"}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: "{{ request.object.metadata.namespace }}"
      synchronize: true
      data: {stringData: {a: b}}
"#;
    let scene = Scene::of(policy).without_access_to("Secret");
    assert_said(&scene.update(SHARED, SHARED), "
kyverno:p/r: skip
doubts: nothing is removed, since a default stands in for a value: objects cannot be read at the moment: the server is starting
");
}
