//! Policies in the form that the API server runs itself.

use kiln_admission::native_policies::{NativeForm, NativePolicy, native_form};
use kiln_object::EngineNames;
use kiln_value::value;

use super::*;

const VALIDATING: &str = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: replicas, uid: u, labels: {reports.kyverno.io/disabled: ''}}
spec:
  autogen: {validatingAdmissionPolicy: {enabled: true}}
  failurePolicy: Ignore
  validationActions: [Audit]
  matchConstraints:
    resourceRules: [{apiGroups: [apps], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [deployments]}]
  variables: [{name: replicas, expression: object.spec.replicas}]
  validations: [{expression: variables.replicas <= 5, message: too many}]
";

const RULE: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: ports, uid: u}
spec:
  rules:
  - name: no-node-ports
    match: {any: [{resources: {kinds: [Service], namespaces: [shop], operations: [CREATE]}}]}
    exclude: {any: [{resources: {kinds: [Service], names: [ingress]}}]}
    validate:
      failureAction: Enforce
      cel:
        generate: true
        expressions: [{expression: object.spec.type != 'NodePort', message: no node ports}]
";

fn form(policy: &str, exceptions: &str) -> NativeForm {
    let stored = yaml(policy);
    let policies = compiled(policy);
    let documents = read_bytes("e", exceptions.as_bytes(), ReadOptions::kubernetes()).unwrap();
    let found = kiln_dialects::compile(&documents, &Kinds::builtin()).exceptions;
    native_form(&stored, &policies[0], &found, &Kinds::builtin(), &EngineNames::default())
}

#[track_caller]
fn possible(policy: &str, exceptions: &str) -> NativePolicy {
    match form(policy, exceptions) {
        NativeForm::Possible(native) => *native,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn impossible(policy: &str, exceptions: &str) -> String {
    match form(policy, exceptions) {
        NativeForm::Impossible(why) => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_validating_policy_keeps_what_it_says() {
    let NativePolicy { policy, binding } = possible(VALIDATING, "");
    let stored = yaml(VALIDATING);
    for key in ["failurePolicy", "matchConstraints", "variables", "validations"] {
        assert_eq!(policy.get_path(["spec", key]), stored.get_path(["spec", key]), "{key}");
    }
    assert_eq!(policy.str_at(["metadata", "name"]), Some("vpol-replicas"));
    assert_eq!(
        policy.get_path(["metadata", "labels"]),
        Some(
            &value!({"app.kubernetes.io/managed-by": "kyverno", "reports.kyverno.io/disabled": "true"})
        )
    );
    let owner = value!([{"apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy", "name": "replicas", "uid": "u"}]);
    assert_eq!(policy.get_path(["metadata", "ownerReferences"]), Some(&owner));
    assert_eq!(binding.str_at(["metadata", "name"]), Some("vpol-replicas-binding"));
    assert_eq!(
        binding.get("spec"),
        Some(&value!({"policyName": "vpol-replicas", "validationActions": ["Audit"]}))
    );
    let unasked = VALIDATING.replace("enabled: true", "enabled: false");
    assert_eq!(form(&unasked, ""), NativeForm::Unasked);
}

#[test]
fn a_rule_becomes_constraints() {
    let NativePolicy { policy, binding } = possible(RULE, "");
    let spec = yaml(
        "
failurePolicy: Fail
matchConstraints:
  resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [services]}]
  excludeResourceRules:
  - {apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE, CONNECT, DELETE], resources: [services], resourceNames: [ingress]}
  namespaceSelector: {matchExpressions: [{key: kubernetes.io/metadata.name, operator: In, values: [shop]}]}
validations: [{expression: object.spec.type != 'NodePort', message: no node ports}]
",
    );
    assert_eq!(policy.get("spec"), Some(&spec));
    let spec = yaml("{policyName: cpol-ports, validationActions: [Deny]}");
    assert_eq!(binding.get("spec"), Some(&spec));
    let audit = possible(&RULE.replace("Enforce", "Audit"), "").binding;
    assert_eq!(audit.get_path(["spec", "validationActions"]), Some(&value!(["Audit", "Warn"])));
    assert_eq!(form(&RULE.replace("generate: true", "generate: false"), ""), NativeForm::Unasked);
}

#[test]
fn exceptions_are_conditions_that_all_must_hold() {
    let exception = |more: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: PolicyException\nmetadata: {{name: e}}\nspec:\n  \
             policyRefs: [{{name: replicas, kind: ValidatingPolicy}}]\n  {more}\n"
        )
    };
    let both = "matchConditions: [{name: a, expression: object.metadata.name == 'big'}, {name: b, expression: 'true'}]";
    let NativePolicy { policy, .. } = possible(VALIDATING, &exception(both));
    let condition = policy.get_path(["spec", "matchConditions"]).unwrap().index(0).unwrap();
    assert_eq!(
        condition.str_at(["expression"]),
        Some("!((object.metadata.name == 'big') && (true))")
    );
    let some = "images: ['reg.example.com/*']\n  matchConditions: [{name: a, expression: 'true'}]";
    assert!(impossible(VALIDATING, &exception(some)).contains("allows some values"));
}

#[test]
fn what_the_api_server_would_judge_otherwise_is_not_generated() {
    let edit = |from: &str, to: &str| RULE.replace(from, to);
    for (policy, why) in [
        (edit("namespaces: [shop]", "namespaces: ['shop-*']"), "wildcards in namespace name"),
        (edit("names: [ingress]", "names: ['ingress-*']"), "wildcards in resource name"),
        (edit("namespaces: [shop]", "annotations: {a: b}"), "Annotations in resource description"),
        (
            edit("operations: [CREATE]}}]", "operations: [CREATE]}, clusterRoles: [edit]}]")
                .replace("  rules:", "  background: false\n  rules:"),
            "Roles / ClusterRoles / Subjects",
        ),
        (
            edit(
                "kinds: [Service], names: [ingress]",
                "kinds: [Service], selector: {matchLabels: {a: b}}",
            ),
            "in the exclude block is not applicable",
        ),
        (
            edit("kinds: [Service], namespaces: [shop], operations: [CREATE]", "kinds: [Pod]")
                .replace(
                    "    exclude: {any: [{resources: {kinds: [Service], names: [ingress]}}]}\n",
                    "",
                ),
            "pod controllers autogen",
        ),
        (
            VALIDATING
                .replace("apiGroups: [apps]", "apiGroups: ['']")
                .replace("deployments", "pods"),
            "pod controllers autogen is enabled.",
        ),
        (
            VALIDATING.replace(
                "variables.replicas <= 5",
                "\"resource.Get('v1', 'configmaps', 'a', 'b').data.x == 'y'\"",
            ),
            "the API server would refuse it",
        ),
    ] {
        let found = impossible(&policy, "");
        assert!(found.contains(why), "{found} instead of {why}");
    }
}
