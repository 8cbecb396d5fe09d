//! Moving over from Kyverno and KubeMod: what they made is there, with their labels, before an engine starts.

use std::process::{Command, Output};
use std::time::Duration;

use http::Method;
use kiln_testkit::{MadeBy, copied_by_kyverno, made_by_kyverno};
use kiln_value::{Value, json, value};

use crate::harness::{Cluster, cluster, namespaces};
use crate::proxy::{Fault, Proxy};

/// Rules in all the ways that leave different labels.
const POLICIES: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: adopted}
spec:
  rules:
  - name: limits
    match: {any: [{resources: {kinds: [Namespace], names: ["adopted-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: LimitRange
      name: limits
      namespace: "{{request.object.metadata.name}}"
      data: {spec: {limits: [{type: Container, default: {cpu: 100m}}]}}
  - name: token
    match: {any: [{resources: {kinds: [Namespace], names: ["adopted-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: Secret
      name: token
      namespace: "{{request.object.metadata.name}}"
      clone: {namespace: adoption, name: token}
  - name: each
    match: {any: [{resources: {kinds: [Namespace], names: ["adopted-*"]}}]}
    generate:
      synchronize: true
      foreach:
      - list: "['one', 'two']"
        apiVersion: v1
        kind: ConfigMap
        name: "{{element}}"
        namespace: "{{request.object.metadata.name}}"
        data: {data: {tier: "{{request.object.metadata.labels.tier || 'none'}}"}}
  - name: all
    match: {any: [{resources: {kinds: [Namespace], names: ["adopted-*"]}}]}
    generate:
      synchronize: true
      namespace: "{{request.object.metadata.name}}"
      cloneList: {namespace: adoption, kinds: [v1/ConfigMap], selector: {matchLabels: {share: all}}}
---
apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: adopted-cel}
spec:
  evaluation: {synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps], resourceNames: [trigger]}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.namespace, [{'apiVersion': 'networking.k8s.io/v1', 'kind': 'NetworkPolicy',
        'metadata': {'name': 'cel'}, 'spec': {'podSelector': {'matchLabels': {'k': object.data.k}}}}])
  - expression: generator.Apply(object.metadata.namespace, [resource.Get('v1', 'secrets', 'adoption', 'key')])
---
apiVersion: policies.kyverno.io/v1
kind: NamespacedGeneratingPolicy
metadata: {name: adopted-own, namespace: adopted-a}
spec:
  evaluation: {synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps], resourceNames: [trigger]}]
  generate:
  - expression: >-
      generator.Apply([{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'own'}, 'data': {'k': object.data.k}}])
---
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: adopted-cost, namespace: adopted-a}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: ConfigMap}
  - {select: $.metadata.name, matchValues: [one, own, plain]}
  patch:
  - {op: add, path: /data/cost, value: '"7"'}
"#;

const SOURCES: &str = "
{apiVersion: v1, kind: Secret, metadata: {name: token, namespace: adoption}, stringData: {k: old}}
---
{apiVersion: v1, kind: Secret, metadata: {name: key, namespace: adoption}, stringData: {k: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: shared, namespace: adoption, labels: {share: all}}, data: {k: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: trigger, namespace: adopted-a}, data: {k: old}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: plain, namespace: adopted-a}, data: {k: old, cost: '7'}}
";

/// What the rules made, as kubectl names it.
const MADE: [&str; 8] = [
    "limitrange/limits",
    "secret/token",
    "configmap/one",
    "configmap/two",
    "configmap/shared",
    "networkpolicy/cel",
    "secret/key",
    "configmap/own",
];

fn object(api_version: &str, kind: &str, name: &str, rest: &Value) -> Value {
    let mut object = value!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "adopted-a"},
    });
    for (key, part) in rest.as_map().unwrap().iter() {
        object.set([key.as_str()], part.clone()).unwrap();
    }
    object
}

/// Puts what Kyverno would have made into the namespace, and KubeMod would have changed.
fn leave_made(cluster: &Cluster) {
    let get = |args: &[&str]| cluster.object(args).unwrap();
    let namespace = get(&["namespace", "adopted-a"]);
    let trigger = get(&["-n", "adopted-a", "configmap", "trigger"]);
    let source = |what: &str| get(&["-n", "adoption", what]);
    let by_rule = |object: Value, rule: &str, source: Option<&Value>| {
        let by = MadeBy::Rule { policy: "adopted", namespace: "", rule };
        made_by_kyverno(object, by, &namespace, source)
    };
    let by_cel = |object: Value, policy: &str, source: Option<&Value>| {
        made_by_kyverno(object, MadeBy::GeneratingPolicy(policy), &trigger, source)
    };
    let copy = |source: &Value, name: &str| copied_by_kyverno(source, "adopted-a", name);
    let (token, key, shared) =
        (source("secret/token"), source("secret/key"), source("configmap/shared"));
    let limits = value!({"spec": {"limits": [{"type": "Container", "default": {"cpu": "100m"}}]}});
    let tier = |cost: bool| match cost {
        true => value!({"data": {"tier": "none", "cost": "7"}}),
        false => value!({"data": {"tier": "none"}}),
    };
    let selects = value!({"spec": {"podSelector": {"matchLabels": {"k": "old"}}}});
    let own = value!({"data": {"k": "old", "cost": "7"}});
    for made in [
        by_rule(object("v1", "LimitRange", "limits", &limits), "limits", None),
        by_rule(copy(&token, "token"), "token", Some(&token)),
        by_rule(object("v1", "ConfigMap", "one", &tier(true)), "each", None),
        by_rule(object("v1", "ConfigMap", "two", &tier(false)), "each", None),
        by_rule(copy(&shared, "shared"), "all", Some(&shared)),
        by_cel(
            object("networking.k8s.io/v1", "NetworkPolicy", "cel", &selects),
            "adopted-cel",
            None,
        ),
        by_cel(copy(&key, "key"), "adopted-cel", Some(&key)),
        by_cel(object("v1", "ConfigMap", "own", &own), "adopted-own", None),
    ] {
        cluster.kubectl_with_input(&["create", "-f", "-"], &json::to_string(&made)).unwrap();
    }
}

fn adopt(cluster: &Cluster) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kiln"));
    command.args(["adopt", "--plan", "--kubeconfig"]).arg(cluster.kubeconfig());
    command.output().unwrap()
}

/// UID and version of an object in the namespace.
fn life(cluster: &Cluster, what: &str) -> (String, String) {
    let object =
        cluster.object(&["-n", "adopted-a", what]).unwrap_or_else(|| panic!("{what} is gone"));
    let text = |field| object.str_at(["metadata", field]).unwrap().to_owned();
    (text("uid"), text("resourceVersion"))
}

#[test]
fn what_kyverno_and_kubemod_left_goes_on_without_a_write() {
    let Some(cluster) = cluster() else { return };
    // Engines that were killed leave webhooks that are not answered.
    for kind in ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"] {
        cluster.kubectl(&["delete", kind, "--all"]).unwrap();
    }
    cluster.apply(&namespaces(["adoption", "adopted-a"].map(str::to_owned))).unwrap();
    cluster.apply(SOURCES).unwrap();
    cluster.kubectl_with_input(&["create", "-f", "-"], POLICIES).unwrap();
    leave_made(&cluster);

    let plan = adopt(&cluster);
    let words = String::from_utf8_lossy(&plan.stdout).into_owned();
    for wanted in ["ClusterPolicy/adopted\n", "adopted-cel\n", "adopted-own\n", "adopted-cost\n"] {
        assert!(words.contains(wanted), "{wanted:?} is missing in\n{words}");
    }
    for line in words.lines() {
        let unwanted = ["change", "create", "delete", "not done", "differs", "not run"];
        assert!(!unwanted.iter().any(|word| line.starts_with(word)), "{words}");
    }

    let before = MADE.map(|what| life(&cluster, what));
    let plain = life(&cluster, "configmap/plain");
    // Where API servers do not know yet where to ask, a trial write lacks what mutating rules add.
    let proxy = Proxy::start(&cluster.kubeconfig(), cluster.directory());
    let registers =
        |method: &Method, path: &str| *method == Method::POST && path.contains("webhookconfig");
    proxy.fault(registers, 0, 2, Fault::Slow(Duration::from_secs(3)));
    let mut engine = cluster.whole_at(proxy.kubeconfig(), &[]);
    cluster.wait("the policy is ready", || cluster.ready("adopted"));
    // Who comes now gets everything, so all that was there has been looked at.
    cluster.apply(&namespaces(["adopted-b".to_owned()])).unwrap();
    for what in &MADE[..5] {
        cluster.wait(what, || cluster.object(&["-n", "adopted-b", what]).is_some());
    }
    let after = MADE.map(|what| life(&cluster, what));
    assert_eq!(after, before, "{MADE:?}");
    assert_eq!(life(&cluster, "configmap/plain"), plain);

    // From now on it is kept in step, and is still the same object.
    let merge = |what: &[&str], patch: &str| {
        let args = [&["patch", "--type=merge", "-p", patch], what].concat();
        cluster.wait("the change is accepted", || cluster.kubectl(&args).is_ok());
    };
    for source in ["secret/token", "secret/key"] {
        merge(&["-n", "adoption", source], r#"{"data": {"k": "bmV3"}}"#);
    }
    merge(&["-n", "adoption", "configmap/shared"], r#"{"data": {"k": "new"}}"#);
    merge(&["-n", "adopted-a", "configmap/trigger"], r#"{"data": {"k": "new"}}"#);
    merge(&["namespace", "adopted-a"], r#"{"metadata": {"labels": {"tier": "new"}}}"#);
    let expected: [(&str, &[&str], &str); 8] = [
        ("secret/token", &["data", "k"], "bmV3"),
        ("secret/key", &["data", "k"], "bmV3"),
        ("configmap/shared", &["data", "k"], "new"),
        ("configmap/one", &["data", "tier"], "new"),
        ("configmap/one", &["data", "cost"], "7"),
        ("configmap/two", &["data", "tier"], "new"),
        ("configmap/own", &["data", "k"], "new"),
        ("networkpolicy/cel", &["spec", "podSelector", "matchLabels", "k"], "new"),
    ];
    for (what, path, text) in expected {
        cluster.wait(what, || {
            let object = cluster.object(&["-n", "adopted-a", what]);
            object.is_some_and(|object| object.str_at(path.iter().copied()) == Some(text))
        });
    }
    for (what, (uid, _)) in MADE.iter().zip(&before) {
        assert_eq!(life(&cluster, what).0, *uid, "{what}");
    }
    assert_eq!(life(&cluster, "limitrange/limits"), before[0], "its source did not change");

    // What follows a trigger goes with it, and nothing else.
    cluster.kubectl(&["delete", "configmap", "trigger", "-n", "adopted-a"]).unwrap();
    for what in &MADE[5..] {
        cluster.wait(what, || cluster.object(&["-n", "adopted-a", what]).is_none());
    }
    for what in &MADE[..5] {
        assert!(cluster.object(&["-n", "adopted-a", what]).is_some(), "{what}");
    }
    cluster.kubectl(&["delete", "clusterpolicy", "adopted"]).unwrap();
    cluster.kubectl(&["delete", "generatingpolicy", "adopted-cel"]).unwrap();
    for kind in ["modrules", "namespacedgeneratingpolicies"] {
        cluster.kubectl(&["delete", kind, "--all", "--all-namespaces"]).unwrap();
    }
    engine.terminate();
}
