//! Policies that are evaluated beside others: what is compared, and that nothing else comes of it.

use kiln_admission::ShadowResult;
use kiln_admission::webhooks::{Address, configurations};
use kiln_equivalence::DifferenceKind;

use super::*;

const OLD: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: no-host}
spec:
  background: false
  rules:
  - name: network
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {failureAction: Enforce, message: no host network, pattern: {spec: {=(hostNetwork): false}}}
  - name: pid
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {failureAction: Enforce, message: no host processes, pattern: {spec: {=(hostPID): false}}}
";

/// A policy in CEL with annotations.
fn shadow(name: &str, annotations: &str, resources: &str, expression: &str) -> String {
    format!(
        "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec:\n  validationActions: [Deny]\n  matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [{resources}]}}]}}\n  \
         validations: [{{expression: '{expression}', message: shadow}}]\n"
    )
}

fn pod(spec: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: web, namespace: shop}}, spec: {{{spec}, containers: [{{name: c, image: nginx}}]}}}}"
    )
}

fn compared(hooks: &Hooks, object: &str) -> Vec<ShadowResult> {
    let (kinds, settings) = (Kinds::builtin(), Settings::new("kyverno"));
    let bytes = review(&format!("object: {object}"));
    let request = ReviewRequest::read(&bytes, settings.review_bytes, &kinds).unwrap();
    hooks.shadows("/validate/fail", &request, &EvalEnv::of(&EmptyView, &kinds), &settings)
}

fn differences(results: &[ShadowResult]) -> Vec<(String, Option<DifferenceKind>)> {
    results.iter().map(|result| (result.shadow.key(), result.difference)).collect()
}

#[test]
fn a_shadow_is_compared_and_has_no_effect() {
    let same = shadow(
        "same",
        "kiln.dev/shadow-of: ClusterPolicy/no-host",
        "pods",
        "object.spec.?hostNetwork.orValue(false) == false && object.spec.?hostPID.orValue(false) == false",
    );
    let network = shadow(
        "network",
        "kiln.dev/shadow-of: ClusterPolicy/no-host, kiln.dev/shadow-of-rules: network",
        "pods",
        "object.spec.?hostNetwork.orValue(false) == false",
    );
    let weak = shadow("weak", "kiln.dev/shadow-of: ClusterPolicy/no-host", "pods", "true");
    let hooks = hooks(&[OLD, &same, &network, &weak].join("---\n"));
    let host = pod("hostNetwork: true");
    let reviewed = send(&hooks, "/validate/fail", &format!("object: {host}"));
    assert!(reviewed.shadowed);
    assert_eq!(reviewed.results.len(), 2, "only rules that are in force answer");
    assert!(reviewed.results.iter().all(|result| result.rule.policy.name == "no-host"));
    let weaker = Some(DifferenceKind::Weaker);
    assert_eq!(
        differences(&compared(&hooks, &host)),
        [("same".to_owned(), None), ("network".to_owned(), None), ("weak".to_owned(), weaker)]
    );
    // The rule that is not named is not compared.
    let processes = compared(&hooks, &pod("hostPID: true"));
    assert_eq!(
        differences(&processes),
        [("same".to_owned(), None), ("network".to_owned(), None), ("weak".to_owned(), weaker)]
    );
    let good = compared(&hooks, &pod("hostPID: false"));
    assert!(good.iter().all(|result| result.difference.is_none()), "{good:?}");
    // No webhook is registered for a shadow.
    assert_eq!(hooks.iter().count(), 1);
    assert!(send(&hooks, "/vpol/weak", &format!("object: {host}")).response.is_allowed());
}

#[test]
fn a_shadow_without_its_policy_stays_without_effect() {
    for of in ["ClusterPolicy/gone", "no-host", ""] {
        let annotation = format!("kiln.dev/shadow-of: '{of}'");
        let hooks = hooks(&[OLD, &shadow("s", &annotation, "pods", "false")].join("---\n"));
        assert_eq!(hooks.iter().count(), 1, "{of}");
        let reviewed = send(&hooks, "/validate/fail", &format!("object: {}", pod("a: 1")));
        assert!(reviewed.response.is_allowed() && !reviewed.shadowed, "{of}");
        assert_eq!(compared(&hooks, &pod("hostNetwork: true")), [], "{of}");
    }
}

#[test]
fn kinds_that_only_a_shadow_is_about_reach_it() {
    let annotation = "kiln.dev/shadow-of: ClusterPolicy/no-host";
    let hooks = hooks(&[OLD, &shadow("s", annotation, "services", "false")].join("---\n"));
    let configured = configurations(
        &hooks,
        &Settings::new("kyverno"),
        &Address::Url("https://example.com".to_owned()),
        "",
    );
    let text = json::to_string(&Value::List(configured.into()));
    assert!(text.contains("services"), "{text}");
    let service =
        "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {}}";
    let stricter = Some(DifferenceKind::Stricter);
    assert_eq!(differences(&compared(&hooks, service)), [("s".to_owned(), stricter)]);
}
