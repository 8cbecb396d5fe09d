//! Rules that check objects: who is refused, in which words, and what is registered for them.

use kiln_admission::webhooks::{Address, configurations};
use kiln_engine::Status;
use kiln_rules::Exception;

use super::*;

const POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: shop}, spec: {hostNetwork: true, containers: [{name: c, image: nginx}]}}";

/// A policy with a rule that fails every Pod that uses the network of its node.
fn policy(name: &str, spec: &str, validate: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  background: false\n  {spec}\n  \
         rules:\n  - name: network\n    match: {{any: [{{resources: {{kinds: [Pod]}}}}]}}\n    \
         validate: {{{validate}, message: no host network, pattern: {{spec: {{=(hostNetwork): false}}}}}}\n"
    )
}

fn cel_policy(name: &str, spec: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {{name: {name}}}\nspec:\n  {spec}\n  \
         matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}}]}}\n"
    )
}

const NO_HOST: &str =
    "validations: [{expression: 'object.spec.hostNetwork != true', message: no host network}]";

fn created(hooks: &Hooks, path: &str, object: &str) -> Reviewed {
    send(hooks, path, &format!("object: {object}"))
}

fn refusal(reviewed: &Reviewed) -> (u16, String) {
    reviewed
        .response
        .refusal
        .as_ref()
        .map(|refusal| (refusal.code, refusal.message.clone()))
        .unwrap_or_default()
}

#[test]
fn enforced_rules_refuse_in_kyvernos_words() {
    let text = [
        policy("b", "emitWarning: false", "failureAction: Enforce"),
        policy("a", "emitWarning: false", "failureAction: Enforce"),
        policy("audits", "emitWarning: true", "failureAction: Audit"),
    ]
    .join("---\n");
    let reviewed = created(&hooks(&text), "/validate/fail", POD);
    let failed =
        "'validation error: no host network. rule network failed at path /spec/hostNetwork/'";
    let expected = format!(
        "\n\nresource Pod/shop/web was blocked due to the following policies \n\na:\n  network: {failed}\nb:\n  network: {failed}\n"
    );
    assert_eq!(refusal(&reviewed), (400, expected));
    assert_eq!(reviewed.response.warnings, Vec::<String>::new(), "only when it is allowed");
    assert_eq!(reviewed.results.len(), 3);
    let good = POD.replace("hostNetwork: true, ", "");
    let reviewed = created(&hooks(&text), "/validate/fail", &good);
    assert!(reviewed.response.is_allowed() && reviewed.response.warnings.is_empty());
    assert!(reviewed.results.iter().all(|result| result.status == Status::Pass));
}

#[test]
fn audited_rules_allow_and_warn_if_they_are_told_to() {
    let text = [
        policy("quiet", "emitWarning: false", "failureAction: Audit"),
        policy("loud", "emitWarning: true", "failureAction: Audit"),
    ]
    .join("---\n");
    let hooks = hooks(&text);
    let reviewed = created(&hooks, "/validate/fail", POD);
    assert!(reviewed.response.is_allowed());
    assert_eq!(
        reviewed.response.warnings,
        [
            "policy loud.network: validation error: no host network. rule network failed at path /spec/hostNetwork/"
        ]
    );
    // The answer does not wait for the other one.
    let names = |results: &[kiln_admission::ValidationResult]| -> Vec<String> {
        results.iter().map(|result| result.rule.policy.key()).collect()
    };
    assert_eq!((names(&reviewed.results), reviewed.audits), (vec!["loud".to_owned()], true));
    let kinds = Kinds::builtin();
    let settings = Settings::new("kyverno");
    let bytes = review(&format!("object: {POD}"));
    let request = ReviewRequest::read(&bytes, settings.review_bytes, &kinds).unwrap();
    let env = EvalEnv::of(&EmptyView, &kinds);
    let audited = hooks.audit("/validate/fail", &request, &env, &settings);
    assert_eq!(names(&audited), ["quiet"]);
    assert_eq!(audited[0].status, Status::Fail);
}

#[test]
fn actions_may_differ_by_namespace() {
    let text = policy(
        "p",
        "emitWarning: false",
        "failureAction: Audit, failureActionOverrides: [{action: Enforce, namespaces: [shop-*]}]",
    );
    let hooks = hooks(&text);
    assert!(created(&hooks, "/validate/fail", POD).response.is_allowed());
    let strict = POD.replace("namespace: shop", "namespace: shop-1");
    assert_eq!(refusal(&created(&hooks, "/validate/fail", &strict)).0, 400);
}

#[test]
fn updates_of_objects_that_failed_before_are_allowed() {
    let change =
        |old: &str, new: &str| format!("operation: UPDATE\nobject: {new}\noldObject: {old}");
    let labelled = POD.replace("name: web,", "name: web, labels: {a: b},");
    let good = POD.replace("hostNetwork: true, ", "");
    for (spec, old, allowed) in [
        ("failureAction: Enforce", POD, true),
        ("failureAction: Enforce", good.as_str(), false),
        ("failureAction: Enforce, allowExistingViolations: false", POD, false),
    ] {
        let hooks = hooks(&policy("p", "emitWarning: false", spec));
        let reviewed = send(&hooks, "/validate/fail", &change(old, &labelled));
        assert_eq!(reviewed.response.is_allowed(), allowed, "{spec} {old}");
    }
}

#[test]
fn what_cannot_be_evaluated_follows_the_failure_policy() {
    let broken = |failure: &str, action: &str| {
        policy("p", failure, action).replace("pattern: {spec: {=(hostNetwork): false}}",
            "deny: {conditions: {any: [{key: '{{ request.object.spec.nothing }}', operator: Equals, value: x}]}}")
    };
    let strict = hooks(&broken("failurePolicy: Fail", "failureAction: Enforce"));
    let (code, message) = refusal(&created(&strict, "/validate/fail", POD));
    assert_eq!(code, 400);
    assert!(message.contains("p:\n  network: 'failed to check deny conditions"), "{message}");
    let lenient = hooks(&broken("failurePolicy: Ignore", "failureAction: Enforce"));
    let reviewed = created(&lenient, "/validate/ignore", POD);
    assert!(reviewed.response.is_allowed());
    let warning = &reviewed.response.warnings[0];
    assert!(warning.starts_with("policy p.network: failed to check deny conditions"), "{warning}");
    let audited = hooks(&broken("failurePolicy: Fail", "failureAction: Audit"));
    assert!(created(&audited, "/validate/fail", POD).response.is_allowed());
}

#[test]
fn deletions_and_connections_are_checked_by_conditions() {
    let deny = |kinds: &str, operation: &str| {
        format!(
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: p}}\nspec:\n  background: false\n  rules:\n  \
             - name: never\n    match: {{any: [{{resources: {{kinds: [{kinds}], operations: [{operation}]}}}}]}}\n    \
             validate: {{failureAction: Enforce, message: 'not {{{{request.name}}}}', deny: {{}}}}\n"
        )
    };
    let reviewed = send(
        &hooks(&deny("ConfigMap", "DELETE")),
        "/validate/fail",
        "operation: DELETE\noldObject: {apiVersion: v1, kind: ConfigMap, metadata: {name: keep, namespace: shop}}",
    );
    let (_, message) = refusal(&reviewed);
    assert!(message.starts_with("\n\nresource ConfigMap/shop/keep was blocked"), "{message}");
    assert!(message.ends_with("p:\n  never: not keep\n"), "{message}");
    let reviewed = send(
        &hooks(&deny("Pod/exec", "CONNECT")),
        "/validate/fail",
        "operation: CONNECT\nname: web\nnamespace: shop\nsubResource: exec\n\
         kind: {group: '', version: v1, kind: PodExecOptions}\nresource: {group: '', version: v1, resource: pods}\n\
         object: {apiVersion: v1, kind: PodExecOptions, command: [sh]}",
    );
    let (_, message) = refusal(&reviewed);
    assert!(message.contains("resource PodExecOptions/shop/web was blocked"), "{message}");
}

#[test]
fn policies_of_one_name_do_not_hide_each_other() {
    let cluster = policy("p", "emitWarning: false", "failureAction: Enforce");
    let own = cluster.replace(
        "kind: ClusterPolicy\nmetadata: {name: p}",
        "kind: Policy\nmetadata: {name: p, namespace: shop}",
    );
    let (_, message) =
        refusal(&created(&hooks(&format!("{cluster}---\n{own}")), "/validate/fail", POD));
    assert!(
        message.contains("\np:\n  network:") && message.contains("\nshop/p:\n  network:"),
        "{message}"
    );
}

#[test]
fn policies_in_cel_refuse_in_sentences() {
    let text = [cel_policy("b", NO_HOST), cel_policy("a", NO_HOST)].join("---\n");
    let reviewed = created(&hooks(&text), "/vpol/a/b", POD);
    let expected = "Policy a failed: no host network; Policy b failed: no host network";
    assert_eq!(refusal(&reviewed), (400, expected.to_owned()));
    for (actions, failure, expression, refused, warned) in [
        ("[Deny]", "Fail", "object.spec.nothing == 1", true, None),
        (
            "[Deny]",
            "Ignore",
            "object.spec.nothing == 1",
            false,
            Some("Policy p error: error: no such key: nothing"),
        ),
        (
            "[Warn]",
            "Fail",
            "object.spec.hostNetwork != true",
            false,
            Some("Policy p failed: CEL expression validation failed at index 0"),
        ),
        ("[Audit]", "Fail", "object.spec.hostNetwork != true", false, None),
    ] {
        let spec = format!(
            "validationActions: {actions}\n  failurePolicy: {failure}\n  validations: [{{expression: '{expression}'}}]"
        );
        let reviewed = created(&hooks(&cel_policy("p", &spec)), "/vpol/p", POD);
        assert_eq!(!reviewed.response.is_allowed(), refused, "{spec}");
        let warnings: Vec<&str> = reviewed.response.warnings.iter().map(String::as_str).collect();
        assert_eq!(warnings, warned.into_iter().collect::<Vec<_>>(), "{spec}");
        if refused {
            assert_eq!(refusal(&reviewed).1, "Policy p error: error: no such key: nothing");
        }
    }
}

#[test]
fn exceptions_and_filters_keep_rules_from_objects() {
    let text = policy("p", "emitWarning: false", "failureAction: Enforce");
    let exception = read_bytes(
        "e",
        b"apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {name: e, namespace: shop}\nspec:\n  exceptions: [{policyName: p, ruleNames: [network]}]\n  match: {any: [{resources: {kinds: [Pod], names: [web]}}]}\n",
        ReadOptions::kubernetes(),
    )
    .unwrap();
    let exceptions: Vec<Arc<Exception>> =
        kiln_dialects::compile(&exception, &Kinds::builtin()).exceptions;
    let settings = Settings::new("kyverno");
    let hooks = Hooks::new(compiled(&text), &exceptions, &Kinds::builtin(), &settings);
    let reviewed = created(&hooks, "/validate/fail", POD);
    assert!(reviewed.response.is_allowed());
    assert_eq!(
        (reviewed.results[0].status, reviewed.results[0].exceptions.len()),
        (Status::Skip, 1)
    );
    let other = POD.replace("name: web", "name: db");
    assert!(!created(&hooks, "/validate/fail", &other).response.is_allowed());
    let own = POD.replace("namespace: shop", "namespace: kube-system");
    let reviewed = created(&hooks, "/validate/fail", &own);
    assert!(reviewed.passed_over && reviewed.response.is_allowed());
}

fn registered(policies: &str) -> Vec<Value> {
    let settings = Settings::new("kyverno");
    let all = configurations(
        &hooks_with(policies, &settings),
        &settings,
        &Address::usual("kyverno"),
        "Q0E=",
    );
    assert_eq!(all[0].get("webhooks").and_then(Value::as_list).map(|l| l.len()), Some(0));
    all[1].get("webhooks").and_then(Value::as_list).unwrap().to_vec()
}

#[test]
fn policies_share_a_webhook_by_failure_policy() {
    let plain = |name: &str, kinds: &str, failure: &str| {
        policy(name, failure, "failureAction: Audit")
            .replace("kinds: [Pod]", &format!("kinds: [{kinds}]"))
    };
    let text = [
        plain("a", "ConfigMap", "failurePolicy: Fail"),
        plain("b", "Secret", "failurePolicy: Fail"),
        plain("c", "Node", "failurePolicy: Ignore"),
        plain(
            "d",
            "ConfigMap",
            "webhookConfiguration: {matchConditions: [{name: x, expression: 'true'}]}",
        ),
        plain("unseen", "ConfigMap", "admission: false")
            .replace("background: false", "background: true"),
    ]
    .join("---\n");
    let found: Vec<(String, String)> = registered(&text)
        .iter()
        .map(|hook| {
            (hook.str_at(["name"]).unwrap().to_owned(), json::to_string(hook.get("rules").unwrap()))
        })
        .collect();
    let rule = |operations: &str, resources: &str, scope: &str| {
        format!(
            r#"[{{"apiGroups":[""],"apiVersions":["v1"],"operations":{operations},"resources":{resources},"scope":"{scope}"}}]"#
        )
    };
    let all = r#"["CONNECT","CREATE","DELETE","UPDATE"]"#;
    let expected = [
        ("validate.kyverno.svc-fail", rule(all, r#"["configmaps","secrets"]"#, "Namespaced")),
        ("validate.kyverno.svc-fail-finegrained-d", rule(all, r#"["configmaps"]"#, "Namespaced")),
        ("validate.kyverno.svc-ignore", rule(all, r#"["nodes"]"#, "*")),
    ];
    assert_eq!(found, expected.map(|(name, rules)| (name.to_owned(), rules)));
}

#[test]
fn what_a_rule_excludes_is_not_asked_about() {
    let text = policy("a", "emitWarning: false", "failureAction: Audit").replace(
        "kinds: [Pod]}}]}",
        "kinds: [ConfigMap]}}]}\n    exclude: {any: [{resources: {operations: [DELETE]}}]}",
    );
    let hook = &registered(&text)[0];
    let rule = hook.get("rules").and_then(|rules| rules.index(0)).unwrap();
    assert_eq!(rule.get("operations"), Some(&yaml("[CONNECT, CREATE, UPDATE]")));
}

#[test]
fn policies_in_cel_register_what_they_write() {
    let conditions =
        "matchConditions: [{name: prod, expression: \"object.metadata.namespace == 'prod'\"}]";
    let hook = &registered(&cel_policy("p", &format!("{conditions}\n  {NO_HOST}")))[0];
    assert_eq!(hook.str_at(["name"]), Some("vpol.validate.kyverno.svc-fail-finegrained-p"));
    assert_eq!(hook.str_at(["clientConfig", "service", "path"]), Some("/vpol/p"));
    let names: Vec<&str> = hook
        .get("matchConditions")
        .and_then(Value::as_list)
        .unwrap()
        .iter()
        .filter_map(|condition| condition.str_at(["name"]))
        .collect();
    assert_eq!(names, ["autogen-cronjobs-prod", "autogen-defaults-prod", "autogen-prod"]);
    let first = hook.get("matchConditions").and_then(|c| c.index(2)?.str_at(["expression"]));
    assert_eq!(
        first,
        Some(
            "!((object.apiVersion == 'v1' && object.kind =='Pod')) || (object.metadata.namespace == 'prod')"
        )
    );
    let rules: Vec<String> = hook
        .get("rules")
        .and_then(Value::as_list)
        .unwrap()
        .iter()
        .map(|rule| {
            format!(
                "{} {}",
                json::to_string(rule.get("apiGroups").unwrap()),
                json::to_string(rule.get("resources").unwrap())
            )
        })
        .collect();
    assert_eq!(
        rules,
        [
            r#"[""] ["pods"]"#,
            r#"["apps"] ["daemonsets","deployments","replicasets","statefulsets"]"#,
            r#"["batch"] ["cronjobs"]"#,
            r#"["batch"] ["jobs"]"#,
        ]
    );
}
