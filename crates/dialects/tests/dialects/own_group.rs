//! Policies of Kiln's own API group mean what the same ones of Kyverno's groups mean.

use kiln_object::Kinds;
use kiln_object::policy_kinds::policy_kind;
use kiln_rules::LabelOwner;

use crate::support::documents;

const POLICIES: [&str; 4] = [
    "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: p}\nspec:\n  rules:\n  - name: r\n    match: {any: \
     [{resources: {kinds: [Namespace]}}]}\n    generate: {apiVersion: v1, kind: ConfigMap, name: c, namespace: x, data: {data: {a: \
     b}}}\n",
    "apiVersion: kyverno.io/v2\nkind: CleanupPolicy\nmetadata: {name: p, namespace: shop}\nspec:\n  schedule: '0 * * * *'\n  match: \
     {any: [{resources: {kinds: [Pod]}}]}\n",
    "apiVersion: policies.kyverno.io/v1\nkind: ValidatingPolicy\nmetadata: {name: p}\nspec:\n  matchConstraints: {resourceRules: \
     [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}]}\n  validations: [{expression: 'true'}]\n",
    "apiVersion: policies.kyverno.io/v1\nkind: DeletingPolicy\nmetadata: {name: p}\nspec:\n  schedule: '0 * * * *'\n  \
     matchConstraints: {resourceRules: [{apiGroups: [''], apiVersions: [v1], resources: [pods]}]}\n",
];

#[test]
fn both_groups_compile_to_the_same_model() {
    for text in POLICIES {
        let version = text.split(['\n', ' ']).nth(1).unwrap();
        // As long as the other, so that everything is at the same place.
        let own = text.replace(version, &format!("{:<1$}", "kiln.dev/v1", version.len()));
        let compile = |text: &str| {
            let documents = documents("p.yaml", text);
            let compiled = kiln_dialects::compile(&documents, &Kinds::builtin());
            assert!(!compiled.has_errors(), "{:?}", compiled.diagnostics);
            compiled.policies[0].clone()
        };
        let (theirs, ours) = (compile(text), compile(&own));
        assert_eq!(theirs.id, ours.id);
        assert_eq!(ours.api_version, "kiln.dev/v1");
        assert_eq!(theirs.rules.len(), ours.rules.len());
        for (theirs, ours) in theirs.rules.iter().zip(&ours.rules) {
            assert_eq!(format!("{:?}", theirs.trigger), format!("{:?}", ours.trigger));
            assert_eq!(format!("{:?}", theirs.program), format!("{:?}", ours.program));
            assert_eq!(theirs.lifecycle.labels.owner, LabelOwner::Kyverno);
            assert_eq!(ours.lifecycle.labels.owner, LabelOwner::Kiln);
        }
    }
}

#[test]
fn one_kind_holds_both_forms_of_exceptions() {
    let rules = "apiVersion: kiln.dev/v1\nkind: PolicyException\nmetadata: {name: e}\nspec:\n  match: {any: [{resources: {kinds: \
                 [Pod]}}]}\n  exceptions: [{policyName: p, ruleNames: [r]}]\n";
    let cel = "apiVersion: kiln.dev/v1\nkind: PolicyException\nmetadata: {name: e, namespace: shop}\nspec:\n  policyRefs: [{name: p, \
               kind: ValidatingPolicy}]\n";
    for text in [rules, cel] {
        let compiled = kiln_dialects::compile(&documents("e.yaml", text), &Kinds::builtin());
        assert!(compiled.diagnostics.is_empty(), "{:?}", compiled.diagnostics);
        assert!(!compiled.exceptions.is_empty(), "{text}");
    }
}

#[test]
fn the_own_group_has_one_version_and_no_kinds_that_are_not_run() {
    let text = POLICIES[0].replace("kyverno.io/v1", "kiln.dev/v2");
    let compiled = kiln_dialects::compile(&documents("p.yaml", &text), &Kinds::builtin());
    let found: Vec<_> = compiled.diagnostics.iter().map(ToString::to_string).collect();
    let wanted = "p.yaml:1:13: Kiln's own API group has no such version";
    assert!(found.len() == 1 && found[0].starts_with(wanted), "{found:?}");
    assert!(compiled.policies.is_empty());
    let images =
        "apiVersion: kiln.dev/v1\nkind: ImageValidatingPolicy\nmetadata: {name: p}\nspec: {}\n";
    assert!(!kiln_dialects::is_policy(&documents("i.yaml", images)[0]));
}

#[test]
fn every_language_of_kyvernos_kinds_has_a_place_in_both_groups() {
    let of_kyverno = |group: &str| group == "kyverno.io" || group == "policies.kyverno.io";
    let read = kiln_dialects::POLICY_KINDS.iter().filter(|kind| of_kyverno(kind.group));
    for kind in read {
        let row = policy_kind(&kind.gvk()).unwrap_or_else(|| panic!("{} has no row", kind.kind));
        assert_eq!(row.in_kyverno(), kind.gvk());
        assert_eq!((row.namespaced, row.own), (kind.namespaced, kind.dialect.is_some()));
    }
}

#[test]
fn misspelt_kinds_and_kinds_of_other_groups_are_named() {
    let found = |version: &str, kind: &str| {
        let text = format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: p}}\n");
        kiln_dialects::misplaced_kind(&documents("p.yaml", &text)[0]).map(|it| it.to_string())
    };
    for (version, kind, wanted) in [
        (
            "kyverno.io/v1",
            "ClusterPolcy",
            "p.yaml:2:7: kyverno.io has no kind ClusterPolcy (did you mean \"ClusterPolicy\"?)",
        ),
        (
            "kyverno.io/v1",
            "GeneratingPolicy",
            "p.yaml:1:13: kyverno.io has no kind GeneratingPolicy (use apiVersion: policies.kyverno.io/v1)",
        ),
        (
            "policies.kyverno.io/v1",
            "ClusterPolicy",
            "p.yaml:1:13: policies.kyverno.io has no kind ClusterPolicy (use apiVersion: kyverno.io/v1)",
        ),
        (
            "kiln.dev/v1",
            "ImageValidatingPolicy",
            "p.yaml:1:13: kiln.dev has no kind ImageValidatingPolicy (use apiVersion: policies.kyverno.io/v1)",
        ),
        (
            "api.kubemod.io/v1beta1",
            "ModRules",
            "p.yaml:2:7: api.kubemod.io has no kind ModRules (did you mean \"ModRule\"?)",
        ),
    ] {
        assert_eq!(found(version, kind).as_deref(), Some(wanted));
    }
    // Others have a ClusterPolicy as well, and Kyverno has had kinds that are no policies.
    for (version, kind) in [
        ("kyverno.io/v1", "ClusterPolicy"),
        ("kyverno.io/v2", "UpdateRequest"),
        ("kyverno.io/v1alpha2", "AdmissionReport"),
        ("kyverno.io/v1", "GenerateRequest"),
        ("nvidia.com/v1", "ClusterPolicy"),
        ("v1", "ConfigMap"),
    ] {
        assert_eq!(found(version, kind), None, "{kind}");
    }
}
