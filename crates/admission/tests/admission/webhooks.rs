//! The webhook configurations that policies need.

use kiln_admission::webhooks::{Address, configurations, is_current};
use kiln_value::value;

use super::*;

fn published(policies: &str) -> Vec<Value> {
    published_with(policies, &Settings::new("kyverno"))
}

fn published_with(policies: &str, settings: &Settings) -> Vec<Value> {
    let hooks = hooks_with(policies, settings);
    configurations(&hooks, settings, &Address::usual("kyverno"), "Q0E=")
}

fn webhooks(configuration: &Value) -> Vec<Value> {
    configuration.get("webhooks").and_then(Value::as_list).unwrap().to_vec()
}

fn policy(name: &str, spec: &str, rule: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n  rules:\n  - name: r\n    {rule}\n"
    )
}

const MUTATE: &str = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}";

fn on(kinds: &str, operations: &str, what: &str) -> String {
    let operations = match operations {
        "" => String::new(),
        words => format!(", operations: [{words}]"),
    };
    format!("match: {{any: [{{resources: {{kinds: [{kinds}]{operations}}}}}]}}\n    {what}")
}

#[test]
fn a_mutate_rule_is_registered_with_what_it_names() {
    let all = published(&policy("p", "background: true", &on("ConfigMap", "", MUTATE)));
    let expected = yaml(
        "
name: mutate.kyverno.svc-fail
admissionReviewVersions: [v1]
clientConfig:
  service: {name: kyverno-svc, namespace: kyverno, path: /mutate/fail, port: 443}
  caBundle: Q0E=
failurePolicy: Fail
matchPolicy: Equivalent
namespaceSelector:
  matchExpressions:
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kube-system]}
  - {key: kubernetes.io/metadata.name, operator: NotIn, values: [kyverno]}
objectSelector: {}
reinvocationPolicy: IfNeeded
rules:
- {apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps], scope: Namespaced}
sideEffects: NoneOnDryRun
timeoutSeconds: 10
",
    );
    assert_eq!(all[0].str_at(["metadata", "name"]), Some("kyverno-resource-mutating-webhook-cfg"));
    assert_eq!(
        all[0].str_at(["metadata", "labels", "webhook.kyverno.io/managed-by"]),
        Some("kyverno")
    );
    assert_eq!(webhooks(&all[0]), [expected]);
    assert_eq!(webhooks(&all[1]), []);
    assert_eq!(all[2].str_at(["metadata", "name"]), Some("kyverno-policy-validating-webhook-cfg"));
    assert_eq!(webhooks(&all[2])[0].str_at(["name"]), Some("validate-policy.kyverno.svc"));
    assert_eq!(all[4].str_at(["metadata", "name"]), Some("kyverno-ttl-validating-webhook-cfg"));
    let ttl = &webhooks(&all[4])[0];
    assert_eq!(ttl.str_at(["failurePolicy"]), Some("Ignore"));
    let labelled =
        value!({"matchExpressions": [{"key": "cleanup.kyverno.io/ttl", "operator": "Exists"}]});
    assert_eq!(ttl.get("objectSelector"), Some(&labelled));
}

#[test]
fn kinds_become_resources() {
    for (kinds, operations, expected) in [
        // Rules for Pods act on their controllers, too.
        (
            "Pod",
            "CREATE",
            r#"[["","v1","CREATE","pods pods/ephemeralcontainers replicationcontrollers"],["apps","v1","CREATE","daemonsets deployments replicasets statefulsets"],["batch","v1","CREATE","cronjobs jobs"]]"#,
        ),
        ("Deployment", "CREATE", r#"[["apps","v1","CREATE","deployments"]]"#),
        (
            "apps/v1/Deployment, StatefulSet",
            "",
            r#"[["apps","v1","CREATE UPDATE","deployments statefulsets"]]"#,
        ),
        ("Pod/exec", "CONNECT", r#"[["","v1","CONNECT","pods/exec"]]"#),
        ("Node/status", "", r#"[["","v1","CREATE UPDATE","nodes/status"]]"#),
        ("'*/scale'", "", r#"[["*","*","CREATE UPDATE","*/scale"]]"#),
        (
            "ConfigMap, Ingress",
            "",
            r#"[["","v1","CREATE UPDATE","configmaps"],["networking.k8s.io","v1","CREATE UPDATE","ingresses"]]"#,
        ),
        ("NetworkPol*", "", r#"[["networking.k8s.io","v1","CREATE UPDATE","networkpolicies"]]"#),
        ("UnknownThing", "", "[]"),
    ] {
        let all = published(&policy("p", "background: false", &on(kinds, operations, MUTATE)));
        let mut found = Vec::new();
        for rule in webhooks(&all[0])
            .iter()
            .flat_map(|hook| hook.get("rules").and_then(Value::as_list).unwrap().to_vec())
        {
            let list = |key: &str| {
                let list = rule.get(key).and_then(Value::as_list).unwrap();
                list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" ")
            };
            found.push(Value::from_iter([
                list("apiGroups"),
                list("apiVersions"),
                list("operations"),
                list("resources"),
            ]));
        }
        assert_eq!(json::to_string(&Value::from_iter(found)), expected, "{kinds}");
    }
}

#[test]
fn triggers_of_generate_rules_are_only_looked_at() {
    let generate = "generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: default, synchronize: true, data: {}}";
    let all = published(&policy("p", "background: true", &on("Namespace", "CREATE", generate)));
    assert_eq!(webhooks(&all[0]), []);
    let hook = &webhooks(&all[1])[0];
    assert_eq!(hook.str_at(["name"]), Some("validate.kyverno.svc-ignore"));
    assert_eq!(hook.str_at(["failurePolicy"]), Some("Ignore"));
    assert_eq!(hook.get("reinvocationPolicy"), None);
    assert_eq!(
        hook.get_path(["rules"])
            .and_then(|rules| rules.index(0))
            .and_then(|rule| rule.get("operations")),
        Some(&yaml("[CREATE, DELETE, UPDATE]"))
    );
    let strict = published(&policy("p", "failurePolicy: Fail", &on("Namespace", "", generate)));
    assert_eq!(webhooks(&strict[1])[0].str_at(["name"]), Some("validate.kyverno.svc-fail"));
}

#[test]
fn failure_policies_timeouts_and_conditions_are_told_apart() {
    let text = [
        policy("a", "failurePolicy: Ignore", &on("ConfigMap", "", MUTATE)),
        policy("b", "webhookConfiguration: {timeoutSeconds: 20}", &on("Secret", "", MUTATE)),
        policy("c", "webhookConfiguration: {timeoutSeconds: 5}", &on("Service", "", MUTATE)),
        policy(
            "d",
            "webhookConfiguration: {matchConditions: [{name: x, expression: 'true'}]}",
            &on("Pod", "", MUTATE),
        ),
    ]
    .join("---\n");
    let all = published(&text);
    let found: Vec<_> = webhooks(&all[0])
        .iter()
        .map(|hook| {
            let text =
                |path: &[&str]| hook.str_at(path.iter().copied()).unwrap_or_default().to_owned();
            (
                text(&["name"]),
                text(&["clientConfig", "service", "path"]),
                hook.get("timeoutSeconds").and_then(Value::as_i64).unwrap(),
            )
        })
        .collect();
    let expected = [
        ("mutate.kyverno.svc-fail", "/mutate/fail", 20),
        ("mutate.kyverno.svc-fail-finegrained-d", "/mutate/fail/finegrained/d", 10),
        ("mutate.kyverno.svc-ignore", "/mutate/ignore", 10),
    ];
    assert_eq!(found, expected.map(|(name, path, time)| (name.to_owned(), path.to_owned(), time)));
    assert_eq!(
        webhooks(&all[0])[1].get("matchConditions"),
        Some(&yaml("[{name: x, expression: 'true'}]"))
    );
    assert_eq!(webhooks(&all[0])[0].get("matchConditions"), None);
}

#[test]
fn policies_of_namespaces_are_only_asked_about_them() {
    let text = policy("p", "background: true", &on("ConfigMap", "", MUTATE)).replace(
        "kind: ClusterPolicy\nmetadata: {name: p}",
        "kind: Policy\nmetadata: {name: p, namespace: dev}",
    );
    let hook = &webhooks(&published(&text)[0])[0];
    let expressions =
        hook.get_path(["namespaceSelector", "matchExpressions"]).and_then(Value::as_list).unwrap();
    assert_eq!(
        expressions.last(),
        Some(&yaml("{key: kubernetes.io/metadata.name, operator: In, values: [dev]}"))
    );
    assert_eq!(
        hook.get_path(["rules"]).and_then(|r| r.index(0)).and_then(|r| r.str_at(["scope"])),
        Some("Namespaced")
    );
    let both = format!("{text}---\n{}", policy("q", "background: true", &on("Secret", "", MUTATE)));
    let hook = &webhooks(&published(&both)[0])[0];
    assert_eq!(
        hook.get_path(["namespaceSelector", "matchExpressions"])
            .and_then(Value::as_list)
            .map(|l| l.len()),
        Some(2)
    );
}

#[test]
fn settings_reach_every_webhook() {
    let data = yaml(
        r#"{data: {webhooks: '{"namespaceSelector": {"matchLabels": {"a": "b"}}, "objectSelector": {"matchLabels": {"c": "d"}}}',
        matchConditions: '[{"name": "all", "expression": "true"}]', webhookLabels: '{"x": "y"}', webhookAnnotations: '{"z": "1"}'}}"#,
    );
    let (settings, warnings) = Settings::new("kyverno").read(Some(&data));
    assert_eq!(warnings, Vec::<String>::new());
    let all =
        published_with(&policy("p", "background: true", &on("ConfigMap", "", MUTATE)), &settings);
    let hook = &webhooks(&all[0])[0];
    assert_eq!(hook.get("namespaceSelector"), Some(&yaml("{matchLabels: {a: b}}")));
    assert_eq!(hook.get("objectSelector"), Some(&yaml("{matchLabels: {c: d}}")));
    assert_eq!(hook.get("matchConditions"), Some(&yaml("[{name: all, expression: 'true'}]")));
    assert_eq!(all[0].str_at(["metadata", "labels", "x"]), Some("y"));
    assert_eq!(all[0].str_at(["metadata", "annotations", "z"]), Some("1"));
}

#[test]
fn a_url_takes_the_place_of_the_service() {
    let settings = Settings::new("kyverno");
    let hooks = hooks(&policy("p", "background: true", &on("ConfigMap", "", MUTATE)));
    let address = Address::Url("https://127.0.0.1:9443/".into());
    let all = configurations(&hooks, &settings, &address, "Q0E=");
    let config = webhooks(&all[0])[0].get("clientConfig").cloned().unwrap();
    assert_eq!(config, yaml("{url: 'https://127.0.0.1:9443/mutate/fail', caBundle: Q0E=}"));
}

#[test]
fn what_others_add_to_metadata_is_no_difference() {
    let wanted = &published(&policy("p", "background: true", &on("ConfigMap", "", MUTATE)))[0];
    let mut there = wanted.clone();
    there.set(["metadata", "resourceVersion"], "7").unwrap();
    there.set(["metadata", "labels", "other"], "x").unwrap();
    assert!(is_current(&there, wanted));
    let mut edited = there.clone();
    edited.set(["webhooks"], Value::list()).unwrap();
    assert!(!is_current(&edited, wanted));
    there.remove(["metadata", "labels", "webhook.kyverno.io/managed-by"]);
    assert!(!is_current(&there, wanted));
}

#[test]
fn mutating_policies_for_pods_are_asked_about_their_controllers_too() {
    let text = |rest: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {{name: p}}
spec:
  {rest}
  matchConstraints:
    resourceRules:
    - {{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}
  matchConditions:
  - {{name: named, expression: 'has(object.spec.hostPID) // comment'}}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{spec: Object.spec{{hostPID: false}}}}'}}
"
        )
    };
    let resources = |hook: &Value| -> Vec<String> {
        let rules = hook.get("rules").and_then(Value::as_list).unwrap();
        let of = |rule: &Value| rule.get("resources").and_then(Value::as_list).unwrap().to_vec();
        let mut all: Vec<String> =
            rules.iter().flat_map(of).map(|name| name.as_str().unwrap().to_owned()).collect();
        all.sort();
        all
    };
    let all = published(&text(""));
    let hook = &webhooks(&all[0])[0];
    let controllers = ["cronjobs", "daemonsets", "deployments", "jobs", "pods", "replicasets"];
    assert_eq!(resources(hook), [&controllers[..], &["statefulsets"]].concat());
    assert_eq!(
        hook.get("matchConditions"),
        Some(&yaml(
            r#"
- name: named
  expression: "!(request.kind.kind in [\"Pod\"]) || (has(object.spec.hostPID) // comment\n)"
- name: autogen-named
  expression: "!(request.kind.kind in [\"DaemonSet\", \"Deployment\", \"ReplicaSet\", \"StatefulSet\", \"Job\"]) || (has(object.spec.template.spec.hostPID) // comment\n)"
- name: autogen-cronjob-named
  expression: "!(request.kind.kind in [\"CronJob\"]) || (has(object.spec.jobTemplate.spec.template.spec.hostPID) // comment\n)"
"#
        ))
    );
    let all = published(&text("autogen: {podControllers: {controllers: []}}"));
    let hook = &webhooks(&all[0])[0];
    assert_eq!(resources(hook), ["pods"]);
    assert_eq!(
        hook.get("matchConditions"),
        Some(&yaml("[{name: named, expression: 'has(object.spec.hostPID) // comment'}]"))
    );
}
