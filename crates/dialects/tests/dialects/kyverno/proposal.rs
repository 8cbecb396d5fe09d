//! The samples of the proposal for foreach, as printed and corrected.

use crate::support::{compiled, made, messages};

/// A policy around the rules of a sample, which are printed from `spec` on.
fn policy(spec: &str) -> String {
    format!("apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata:\n  name: sample\n{spec}")
}

/// Warnings that compiling gives, without the place and the hint.
fn warnings(policy: &str) -> Vec<String> {
    let compiled = compiled(policy);
    assert!(!compiled.has_errors(), "{:#?}", messages(&compiled));
    compiled.diagnostics.iter().map(|found| found.message.clone()).collect()
}

const NAMESPACE: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: dev, labels: {networkpolicies: 'one,two'}}}";

const DATA_LIST: &str = "
spec:
  rules:
  - name: generate-multiple-targets
    match:
      any:
      - resources:
          kinds:
          - Namespace
    generate:
      dataList:
      - apiVersion: v1
        kind: NetworkPolicy
        name: default-networkpolicy
        namespace: \"{{ request.object.metadata.name }}\"
        data:
          spec:
            podSelector: {}
            policyTypes:
            - Ingress
            - Egress
      - apiVersion: v1
        kind: ConfigMap
        name: default-configmap
        namespace: \"{{ request.object.metadata.name }}\"
        data:
          foo: bar
";

#[test]
fn data_list_makes_several_objects() {
    let policy = policy(DATA_LIST);
    assert_eq!(
        warnings(&policy),
        [
            "dataList is understood by Kiln only, not by Kyverno",
            "NetworkPolicy is not of v1, networking.k8s.io/v1 is taken",
            "the data of this ConfigMap has none of its fields; it is taken for its data",
        ]
    );
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        "\
# generate-multiple-targets: pass
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: default-networkpolicy
  namespace: dev
spec:
  podSelector: {}
  policyTypes:
  - Ingress
  - Egress
---
apiVersion: v1
data:
  foo: bar
kind: ConfigMap
metadata:
  name: default-configmap
  namespace: dev
---
"
    );
}

const CLONE_LIST: &str = "
spec:
  rules:
  - name: clone-multiple-sources
    match:
      any:
      - resources:
          kinds:
          - Namespace
    generate:
      cloneList:
        list:
        - source:
            namespace: default
            name: default-regcred
            kind: v1
            apiVersion: Secret
          target:
            namespace: \"{{ request.object.metadata.name }}\"
            name: regcred
        - source:
            namespace: default
            name: default-configmap
            kind: v1
            apiVersion: ConfigMap
          target:
            namespace: \"{{ request.object.metadata.name }}\"
            name: cloned-configmap
";

const SOURCES: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: default-regcred, namespace: default}, type: Opaque}
---
{apiVersion: v1, kind: Secret, metadata: {name: regcred, namespace: default}, type: Opaque}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: default-configmap, namespace: default}, data: {a: b}}
";

#[test]
fn clone_list_copies_named_sources() {
    let policy = policy(CLONE_LIST);
    assert_eq!(
        warnings(&policy),
        [
            "cloneList.list is understood by Kiln only, not by Kyverno",
            "apiVersion and kind are swapped; reading them as apiVersion: v1, kind: Secret",
            "apiVersion and kind are swapped; reading them as apiVersion: v1, kind: ConfigMap",
        ]
    );
    let expected = "\
# clone-multiple-sources: pass
apiVersion: v1
kind: Secret
metadata:
  name: regcred
  namespace: dev
type: Opaque
---
apiVersion: v1
data:
  a: b
kind: ConfigMap
metadata:
  name: cloned-configmap
  namespace: dev
---
";
    assert_eq!(made(&policy, NAMESPACE, SOURCES), expected);
    let corrected = policy
        .replace(
            "kind: v1\n            apiVersion: Secret",
            "kind: Secret\n            apiVersion: v1",
        )
        .replace(
            "kind: v1\n            apiVersion: ConfigMap",
            "kind: ConfigMap\n            apiVersion: v1",
        );
    assert_eq!(warnings(&corrected).len(), 1);
    assert_eq!(made(&corrected, NAMESPACE, SOURCES), expected);
}

#[test]
fn foreach_over_a_label_makes_network_policies() {
    let policy = policy(
        "
spec:
  rules:
  - name: generate-network-policies
    match:
      any:
      - resources:
          kinds:
          - Namespace
    generate:
      foreach:
        - list: request.object.metadata.labels.networkpolicies | split(@, ',')
          dataList:
            - apiVersion: v1
              kind: NetworkPolicy
              name: my-networkpolicy-{{ elementIndex }}
              namespace: \"{{ request.object.metadata.name }}\"
              data:
                spec:
                  podSelector: {}
                  policyTypes:
                  - Ingress
                  - Egress
",
    );
    let one = |index: u8| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata:\n  name: my-networkpolicy-{index}\n  \
             namespace: dev\nspec:\n  podSelector: {{}}\n  policyTypes:\n  - Ingress\n  - Egress\n---\n"
        )
    };
    assert_eq!(
        made(&policy, NAMESPACE, ""),
        format!("# generate-network-policies: pass\n{}{}", one(0), one(1))
    );
}

const TO_NAMESPACES: &str = "
spec:
  rules:
  - name: clone-secret-to-multiple-namespace
    match:
      any:
      - resources:
          kinds:
          - Secret
          namespaces:
          - default
    context:
    - variable:
        name: selector
        jmesPath: request.object.metadata.labels.sync
        default: a=b
    - name: namespaces
      apiCall:
        urlPath: /api/v1/namespaces?labelSelector={{selector}}?limit=5
    generate:
      foreach:
        - list: \"{{ namespaces }}\"
          cloneList:
          - source:
              namespace: default
              name: regcred
              kind: v1
              apiVersion: Secret
            target:
              namespace: \"{{ element }}\"
              name: regcred
";

const SECRET: &str = "{apiVersion: v1, kind: Secret, metadata: {name: regcred, namespace: default, labels: {sync: team=x}}, type: Opaque}";

const NAMESPACES: &str = "
{apiVersion: v1, kind: Namespace, metadata: {name: n1, labels: {team: x}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: n2, labels: {team: x}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: n3, labels: {team: y}}}
";

#[test]
fn a_list_of_objects_is_no_list_of_names() {
    let policy = policy(TO_NAMESPACES);
    assert_eq!(
        warnings(&policy),
        [
            "the name \"selector\" stands inside variable; it is taken from there",
            "cloneList.list is understood by Kiln only, not by Kyverno",
            "apiVersion and kind are swapped; reading them as apiVersion: v1, kind: Secret",
        ]
    );
    assert_eq!(
        made(&policy, SECRET, NAMESPACES),
        "\
# clone-secret-to-multiple-namespace: error
# warning: policy.yaml:23:18: parameters after the first are joined with `&`: write `&limit=5`, not `?limit=5`
# failed: policy.yaml:28:13: the namespace of the target must be a string, and this is a whole NamespaceList object \
(add `jmesPath: items[].metadata.name` to the call that gave the list; parameters after the first are joined with `&`: \
write `&limit=5`, not `?limit=5`)
"
    );
    let corrected =
        policy.replace("}}?limit=5", "}}&limit=5\n        jmesPath: items[].metadata.name");
    let copy = |namespace: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  labels:\n    sync: team=x\n  name: regcred\n  namespace: \
             {namespace}\ntype: Opaque\n---\n"
        )
    };
    assert_eq!(
        made(&corrected, SECRET, NAMESPACES),
        format!("# clone-secret-to-multiple-namespace: pass\n{}{}", copy("n1"), copy("n2"))
    );
}

#[test]
fn foreach_over_containers_makes_two_objects_each() {
    let policy = policy(
        "
spec:
  rules:
  - name: generate-configmaps-and-secrets
    match:
      any:
      - resources:
          kinds:
          - Pod
    generate:
      foreach:
        - list: request.object.spec.containers
          dataList:
            - apiVersion: v1
              kind: ConfigMap
              name: my-configmap-{{ elementIndex }}
              namespace: \"{{ request.object.metadata.namespace }}\"
              data:
                foo: bar
            - apiVersion: v1
              kind: Secret
              name: my-secret-{{ elementIndex }}
              namespace: \"{{ request.object.metadata.namespace }}\"
              data:
                foo: bar
",
    );
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: dev}, spec: {containers: [{name: a}, {name: b}]}}";
    let pair = |index: u8| {
        format!(
            "apiVersion: v1\ndata:\n  foo: bar\nkind: ConfigMap\nmetadata:\n  name: my-configmap-{index}\n  namespace: \
             dev\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: my-secret-{index}\n  namespace: \
             dev\nstringData:\n  foo: bar\n---\n"
        )
    };
    assert_eq!(
        made(&policy, pod, ""),
        format!("# generate-configmaps-and-secrets: pass\n{}{}", pair(0), pair(1))
    );
}

#[test]
fn an_ingress_becomes_gateway_objects() {
    let policy = policy(
        "
spec:
  rules:
  - name: generate-gatewayapi
    match:
      any:
      - resources:
          kinds:
          - Ingress
    generate:
      foreach:
        - list: request.object.spec.rules
          dataList:
            - apiVersion: gateway.networking.k8s.io/v1beta1
              kind: HTTPRoute
              # the name must be unique
              name: httproute-{{ elementIndex }}
              namespace: \"{{ request.object.metadata.namespace }}\"
              data:
                spec:
                  hostnames: 
                    - '{{ element.host }}'
        - list: request.object.spec.ingressClassName
          dataList:
            - apiVersion: gateway.networking.k8s.io/v1beta1
              kind: Gateway
              name: gateway-{{ elementIndex }}
              data:
                spec:
                  gatewayClassName: '{{ element }}'
",
    );
    assert!(
        warnings(&policy).contains(&"no target namespace: that of the trigger is taken".to_owned())
    );
    let ingress = "{apiVersion: networking.k8s.io/v1, kind: Ingress, metadata: {name: i, namespace: dev}, \
                   spec: {ingressClassName: nginx, rules: [{host: a.example}, {host: b.example}]}}";
    assert_eq!(
        made(&policy, ingress, ""),
        "\
# generate-gatewayapi: pass
apiVersion: gateway.networking.k8s.io/v1beta1
kind: HTTPRoute
metadata:
  name: httproute-0
  namespace: dev
spec:
  hostnames:
  - a.example
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: HTTPRoute
metadata:
  name: httproute-1
  namespace: dev
spec:
  hostnames:
  - b.example
---
apiVersion: gateway.networking.k8s.io/v1beta1
kind: Gateway
metadata:
  name: gateway-0
  namespace: dev
spec:
  gatewayClassName: nginx
---
"
    );
}

#[test]
fn conditions_of_elements_decide_for_each() {
    let policy = policy(
        "
spec:
  rules:
  - name: generate-gatewayapi
    match:
      any:
      - resources:
          kinds:
          - Pod
    generate:
      foreach:
      - list: request.object.spec.containers
        context:
        - variable:
            name: selector
            jmesPath: request.object.metadata.labels.sync
            default: a=b
        preconditions:
          all:
          - key: \"{{selector}}\"
            operator: Equals
            value: foo=bar
        dataList:
          - apiVersion: v1
            kind: ConfigMap
            name: my-configmap-{{ elementIndex }}
            namespace: \"{{ request.object.metadata.namespace }}\"
            data:
              foo: bar
",
    );
    let pod = |labels: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: p, namespace: dev, labels: {labels}}}, spec: {{containers: [{{name: a}}]}}}}"
        )
    };
    assert!(made(&policy, &pod("{sync: foo=bar}"), "").contains("name: my-configmap-0"));
    assert_eq!(made(&policy, &pod("{sync: other}"), ""), "# generate-gatewayapi: pass\n");
    assert_eq!(made(&policy, &pod("{}"), ""), "# generate-gatewayapi: pass\n");
}

#[test]
fn plain_data_keeps_its_shipped_meaning() {
    let shipped = policy(
        "
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: x, data: {foo: bar}}
",
    );
    assert_eq!(warnings(&shipped), ["a ConfigMap has no field foo"]);
    assert_eq!(
        made(&shipped, NAMESPACE, ""),
        "# r: pass\napiVersion: v1\nfoo: bar\nkind: ConfigMap\nmetadata:\n  name: c\n  namespace: x\n---\n"
    );
}
