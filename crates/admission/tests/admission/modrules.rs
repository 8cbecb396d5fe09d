//! ModRules at admission: one webhook for all of them, for the kinds that they leave.

use kiln_admission::webhooks::{Address, configurations};

use super::*;

fn rule(name: &str, namespace: &str, spec: &str) -> String {
    format!(
        "apiVersion: api.kubemod.io/v1beta1\nkind: ModRule\nmetadata: {{name: {name}, namespace: {namespace}}}\nspec: {spec}\n---\n"
    )
}

fn reject(name: &str, namespace: &str, fields: &str) -> String {
    rule(name, namespace, &format!("{{type: Reject, {fields}}}"))
}

/// The webhook for these rules.
fn dragnet(rules: &str) -> Value {
    let settings = Settings::new("kyverno");
    let hooks = hooks_with(rules, &settings);
    let all = configurations(&hooks, &settings, &Address::usual("kyverno"), "Q0E=");
    let webhooks = all[0].get("webhooks").and_then(Value::as_list).unwrap().to_vec();
    assert_eq!(webhooks.len(), 1, "{webhooks:?}");
    webhooks.into_iter().next().unwrap()
}

#[test]
fn rules_of_namespaces_share_a_webhook_for_these() {
    let rules = [
        reject("a", "dev", "match: [{select: $.kind, matchValue: Deployment}]"),
        reject(
            "b",
            "prod",
            "admissionOperations: [DELETE], match: [{select: $.kind, matchValues: [Ingress, Pod]}]",
        ),
    ];
    let expected = yaml(
        "
name: dragnet.kubemod.io
admissionReviewVersions: [v1]
clientConfig:
  service: {name: kyverno-svc, namespace: kyverno, path: /dragnet-webhook, port: 443}
  caBundle: Q0E=
failurePolicy: Ignore
matchPolicy: Equivalent
namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kyverno]}
  - {key: admission.kubemod.io/ignore, operator: NotIn, values: ['true']}
  - {key: kubernetes.io/metadata.name, operator: In, values: [dev, prod]}
objectSelector: {}
reinvocationPolicy: IfNeeded
rules:
- {apiGroups: [''], apiVersions: ['*'], operations: [DELETE], resources: [pods], scope: Namespaced}
- {apiGroups: [apps], apiVersions: ['*'], operations: [CREATE, UPDATE], resources: [deployments], scope: Namespaced}
- {apiGroups: [networking.k8s.io], apiVersions: ['*'], operations: [DELETE], resources: [ingresses], scope: Namespaced}
sideEffects: NoneOnDryRun
timeoutSeconds: 10
",
    );
    assert_eq!(dragnet(&rules.concat()), expected);
}

/// The resources of a webhook, as `group/resource`.
fn resources(webhook: &Value) -> Vec<String> {
    let mut found = Vec::new();
    for rule in webhook.get("rules").and_then(Value::as_list).unwrap() {
        let group = rule.get("apiGroups").and_then(|list| list.index(0)?.as_str()).unwrap();
        for resource in rule.get("resources").and_then(Value::as_list).unwrap() {
            found.push(format!("{group}/{}", resource.as_str().unwrap()));
        }
    }
    found
}

#[test]
fn kinds_are_those_that_the_items_leave() {
    for (items, there, absent) in [
        ("{select: $.kind, matchValue: Event}", &["/events"][..], &["/pods"][..]),
        ("{select: $.kind, matchRegex: ^Stateful}", &["apps/statefulsets"], &["apps/deployments"]),
        (
            "{select: $.kind, matchRegex: Set$}, {select: $.kind, matchValue: ReplicaSet, negate: true}",
            &["apps/statefulsets", "apps/daemonsets"],
            &["apps/replicasets", "/pods"],
        ),
        (
            "{select: $.metadata.name, matchValue: x}",
            &["/pods", "/secrets", "apps/replicasets", "/nodes"],
            &["/events", "events.k8s.io/events", "coordination.k8s.io/leases"],
        ),
        ("{select: $.kind, matchValue: Pod, negate: true}", &["/services"], &["/pods", "/events"]),
        ("{select: '$.kind == \"Pod\"'}", &["/pods", "/services"], &["/events"]),
    ] {
        let fields = format!("targetNamespaceRegex: .*, match: [{items}]");
        let webhook = dragnet(&reject("r", "kubemod-system", &fields));
        let found = resources(&webhook);
        for resource in there {
            assert!(found.iter().any(|r| r == resource), "{items}: {resource} of {found:?}");
        }
        for resource in absent {
            assert!(!found.iter().any(|r| r == resource), "{items}: {resource} of {found:?}");
        }
        let own = json::to_string(webhook.get("namespaceSelector").unwrap());
        assert!(!own.contains("\"In\""), "rules for a cluster are asked about all namespaces");
    }
    // What is in no namespace is nothing to a rule of one.
    let own = dragnet(&reject("r", "dev", "match: [{select: $.metadata.name, matchValue: x}]"));
    assert!(!resources(&own).iter().any(|resource| resource == "/nodes"));
}

#[test]
fn all_rules_that_reject_are_named_and_others_only_warn() {
    let rules = [
        reject("b", "dev", "match: [{select: $.kind, matchValue: Pod}]"),
        reject(
            "a",
            "dev",
            "rejectMessage: 'no {{ .Target.metadata.name }}', match: [{select: $.kind, matchValue: Pod}]",
        ),
        rule(
            "broken",
            "dev",
            "{type: Patch, match: [{select: $.kind, matchValue: ConfigMap}], patch: [{op: replace, path: /a/b, value: x}]}",
        ),
        rule(
            "good",
            "dev",
            "{type: Patch, match: [{select: $.kind, matchValue: ConfigMap}], patch: [{op: add, path: /data/a, value: x}]}",
        ),
    ];
    let hooks = hooks(&rules.concat());
    let path = "/dragnet-webhook";
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: dev}}";
    let refused = send(&hooks, path, &format!("object: {pod}"));
    let refusal = refused.response.refusal.unwrap();
    assert_eq!(
        refusal.message,
        "operation rejected by the following ModRule(s): dev/a: \"no p\", dev/b"
    );
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: c, namespace: dev}}";
    let patched = send(&hooks, path, &format!("object: {map}"));
    assert!(patched.response.is_allowed());
    assert_eq!(patch(&patched), r#"[{"op":"add","path":"/data","value":{"a":"x"}}]"#);
    assert!(patched.response.warnings[0].contains("dev/broken"), "{:?}", patched.response.warnings);
}

#[test]
fn nobody_and_nothing_is_exempt() {
    let hooks =
        hooks(&reject("r", "kubemod-system", "match: [{select: $.kind, matchValue: Node}]"));
    let node = "object: {apiVersion: v1, kind: Node, metadata: {name: n}}\nuserInfo: {username: system:node:n, groups: [system:nodes]}";
    assert!(!send(&hooks, "/dragnet-webhook", node).response.is_allowed());
}
