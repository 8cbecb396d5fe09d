//! Definition, policy and objects, stored one right after the other as a chart brings them: no step waits for `Ready`.

use nix::sys::signal::Signal;

use super::Up;
use crate::harness::Folder;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sheep.farm.example.com}
spec:
  group: farm.example.com
  scope: Namespaced
  names: {plural: sheep, kind: Sheep}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

/// One rule for each way in which the new kind is of use: as what is changed, as what is made, and as a trigger of rules
/// that do not synchronize and that do.
const POLICY: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: farm}
spec:
  rules:
  - name: legs
    match: {any: [{resources: {kinds: [farm.example.com/v1/Sheep]}}]}
    mutate: {patchStrategicMerge: {spec: {legs: 4}}}
  - name: lamb
    match: {any: [{resources: {kinds: [Namespace], names: [meadow]}}]}
    generate: {apiVersion: farm.example.com/v1, kind: Sheep, name: lamb, namespace: meadow, data: {spec: {wool: white}}}
  - name: pen
    match: {any: [{resources: {kinds: [farm.example.com/v1/Sheep]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: 'pen-{{request.object.metadata.name}}'
      namespace: default
      data: {data: {a: b}}
  - name: shed
    match: {any: [{resources: {kinds: [farm.example.com/v1/Sheep]}}]}
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: 'shed-{{request.object.metadata.name}}'
      namespace: default
      synchronize: true
      data: {data: {a: b}}
";

const POLICIES: &str = "/apis/kyverno.io/v1/clusterpolicies";
const SHEEP: &str = "/apis/farm.example.com/v1/namespaces/default/sheep";

fn sheep(name: &str) -> String {
    format!("apiVersion: farm.example.com/v1\nkind: Sheep\nmetadata: {{name: {name}}}\n")
}

#[test]
fn what_is_stored_right_after_its_definition_and_its_policy_is_not_left_out() {
    let folder = Folder::with(&[]);
    let up = Up::start(&folder, &[], "Ctrl-C");
    let definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    assert_eq!(up.create(definitions, DEFINITION).status, 201);
    let policy = up.create(POLICIES, POLICY);
    assert_eq!(policy.status, 201, "{}", policy.text);
    // A server serves a kind a moment after it has stored the definition; clients ask again.
    up.wait_until("the kind is served", || up.create(SHEEP, &sheep("dolly")).status == 201);
    up.create_namespace("meadow");
    up.wait_for("/apis/farm.example.com/v1/namespaces/meadow/sheep/lamb");
    for name in ["pen-dolly", "shed-dolly"] {
        up.wait_for(&format!("/api/v1/namespaces/default/configmaps/{name}"));
    }
    // What comes before the webhook is registered cannot be changed on its way; what comes after `Ready` always is.
    let is_ready = || {
        let conditions = up.conditions(&format!("{POLICIES}/farm"));
        conditions.iter().any(|condition| condition == "Ready True Succeeded")
    };
    up.wait_until("the policy is ready", is_ready);
    let stored = up.create(SHEEP, &sheep("molly"));
    assert!(stored.text.contains("\"legs\":4"), "{}", stored.text);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
