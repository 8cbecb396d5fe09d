//! `kiln test`: tests with live steps.

use std::path::Path;

use crate::harness::{Folder, Run, SETTINGS_POLICY};

const READY: &str = "
apiVersion: chainsaw.kyverno.io/v1alpha1
kind: StepTemplate
metadata: {name: ready}
spec:
  try:
  - assert:
      resource:
        apiVersion: kyverno.io/v1
        kind: ClusterPolicy
        metadata: {name: ($name)}
        status:
          (conditions[?type == 'Ready']): [{status: \"True\"}]
";

/// A test with these steps behind the policy.
fn folder(steps: &str) -> Folder {
    let test = format!(
        "
apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {{name: settings}}
spec:
  bindings:
  - {{name: team, value: team-a}}
  steps:
  - name: policy
    try:
    - apply: {{file: policy.yaml}}
  - name: ready
    use:
      template: ../templates/ready.yaml
      with: {{bindings: [{{name: name, value: settings}}]}}
{steps}"
    );
    Folder::with(&[
        ("t/policy.yaml", SETTINGS_POLICY),
        ("templates/ready.yaml", READY),
        ("t/chainsaw-test.yaml", &test),
    ])
}

fn run(steps: &str, args: &[&str]) -> Run {
    folder(steps).kiln(&[&["test", "t"], args].concat())
}

const MADE: &str = "
  - name: a team
    try:
    - create: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: ($team)}}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: ($team)}, data: {mode: quiet}}}
  - name: what was made comes back
    try:
    - delete: {ref: {apiVersion: v1, kind: ConfigMap, name: settings, namespace: team-a}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: team-a}}}
  - name: others get nothing
    try:
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: other}}}
    - sleep: {duration: 2s}
    - error: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: other}}}
  - name: what is wrong is refused
    try:
    - apply:
        resource: {apiVersion: v1, kind: Namespace, metadata: {name: Not A Name}}
        expect: [{check: {($error != null): true}}]
";

#[test]
fn steps_run_on_a_sandbox_with_rules_at_work() {
    let run = run(MADE, &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("t/chainsaw-test.yaml\n"), "{}", run.stdout);
    assert!(
        run.stdout.contains("create Namespace team-a") && run.stdout.contains("sleep 2s"),
        "{}",
        run.stdout
    );
    assert!(
        run.stdout.ends_with("1 suite: 10 passed, 0 failed; 4 objects compared\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn what_does_not_hold_fails_with_the_reason_and_ends_its_test() {
    let steps = "
  - try:
    - create: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: team-a}}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: team-a}, data: {mode: loud}}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: never, namespace: team-a}}}
";
    let failed = run(steps, &[]);
    assert_eq!(failed.code, 1, "{}{}", failed.stdout, failed.stderr);
    assert!(failed.stdout.contains(r#"data.mode is "quiet", not "loud""#), "{}", failed.stdout);
    assert!(!failed.stdout.contains("never"), "what follows is not run: {}", failed.stdout);
    let junit = run(steps, &["--format", "junit"]);
    assert_eq!(junit.code, 1);
    assert!(junit.stdout.contains("failures=\"1\""), "{}", junit.stdout);
    let json = run(steps, &["--format", "json", "--fail-only"]);
    assert!(json.stdout.contains(r#""failed": 1"#), "{}", json.stdout);
}

/// Some of the peers' own tests, one of each kind; `conformance/README.md` tells how to run all of them.
#[test]
fn tests_of_the_peers_run_unchanged() {
    let Some(corpus) = kiln_testkit::corpus("chainsaw") else { return };
    let tests = [
        "generate/clusterpolicy/standard/data/sync/cpol-data-sync-create",
        "generate/clusterpolicy/standard/data/sync/cpol-data-sync-delete-downstream",
        "generate/clusterpolicy/standard/data/sync/cpol-data-sync-modify-rule",
        "generate/clusterpolicy/standard/clone/sync/cpol-clone-sync-modify-source",
        "generate/foreach/clusterpolicy/data/sync/cpol-data-sync-create",
        "generate/policy/standard/data/sync/pol-data-sync-delete-trigger",
        "generate/validation/clusterpolicy/immutable-rule-spec",
        "generate/clusterpolicy/standard/existing/existing-basic-add-rule-data",
    ];
    let folders: Vec<String> = tests
        .iter()
        .map(|test| corpus.join(test))
        .filter(|path: &std::path::PathBuf| Path::new(path).is_dir())
        .map(|path| path.display().to_string())
        .collect();
    assert!(folders.len() >= 4, "{folders:?}");
    let mut args = vec!["test", "--require-tests"];
    args.extend(folders.iter().map(String::as_str));
    let run = Folder::with(&[]).kiln(&args);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    eprintln!("corpus: chainsaw with kiln test: {} of {} tests pass", folders.len(), folders.len());
}

const LABELS: &str = "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: label}
spec:
  evaluation: {mutateExisting: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{metadata: Object.metadata{labels: {\"mykey\": \"myvalue\"}}}'}
";

#[test]
fn a_mutating_policy_without_targets_changes_what_is_there() {
    let test = "apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {name: label}
spec:
  steps:
  - try:
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: one}}}
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: two, labels: {mykey: foo}}}}
    - apply: {file: policy.yaml}
    - assert: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: one, labels: {mykey: myvalue}}}}
    - assert: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: two, labels: {mykey: myvalue}}}}
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: three}}}
    - assert: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: three, labels: {mykey: myvalue}}}}
";
    let folder = Folder::with(&[("t/policy.yaml", LABELS), ("t/chainsaw-test.yaml", test)]);
    let run = folder.kiln(&["test", "t"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

/// Lets the engine make sheep.
const ROLE: &str = "apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: sheep, labels: {rbac.kyverno.io/aggregate-to-background-controller: 'true'}}
rules: [{apiGroups: [farm.example.com], resources: [sheep], verbs: ['*']}]
";

const DEFINITION: &str = "apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: sheep.farm.example.com}
spec:
  group: farm.example.com
  scope: Namespaced
  names: {kind: Sheep, plural: sheep, singular: sheep, listKind: SheepList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

const COUNTS: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: count}
spec:
  background: false
  rules:
  - name: legs
    match: {any: [{resources: {kinds: [farm.example.com/v1/Sheep]}}]}
    mutate: {patchStrategicMerge: {spec: {legs: 4}}}
  - name: lamb
    match: {any: [{resources: {kinds: [Namespace], names: [meadow]}}]}
    generate:
      apiVersion: farm.example.com/v1
      kind: Sheep
      name: lamb
      namespace: meadow
      data: {spec: {wool: white}}
";

/// Definition, policy and object in a row, as a chart brings them.
#[test]
fn a_policy_that_is_ready_is_at_work_on_kinds_that_were_just_defined() {
    let test = "apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {name: defined}
spec:
  steps:
  - try:
    - apply: {file: role.yaml}
    - apply: {file: definition.yaml}
    - apply: {file: policy.yaml}
    - assert:
        resource:
          apiVersion: kyverno.io/v1
          kind: ClusterPolicy
          metadata: {name: count}
          status:
            (conditions[?type == 'Ready']): [{status: 'True'}]
    - apply: {resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}}}
    - assert: {timeout: 1s, resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}, spec: {legs: 4}}}
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: meadow}}}
    - assert: {timeout: 10s, resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: lamb, namespace: meadow}, spec: {wool: white}}}
";
    let folder = Folder::with(&[
        ("t/role.yaml", ROLE),
        ("t/definition.yaml", DEFINITION),
        ("t/policy.yaml", COUNTS),
        ("t/chainsaw-test.yaml", test),
    ]);
    let run = folder.kiln(&["test", "t"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

/// The step after a policy, and a definition before it, finds it at work.
#[test]
fn a_policy_counts_for_the_next_step() {
    let test = "apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {name: next}
spec:
  steps:
  - try:
    - apply: {file: labels.yaml}
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: one}}}
    - assert: {timeout: 1s, resource: {apiVersion: v1, kind: Namespace, metadata: {name: one, labels: {mykey: myvalue}}}}
    - apply: {file: definition.yaml}
    - apply: {file: legs.yaml}
    - apply: {resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}}}
    - assert: {timeout: 1s, resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}, spec: {legs: 4}}}
";
    let folder = Folder::with(&[
        ("t/labels.yaml", &LABELS.replace("mutateExisting: {enabled: true}", "")),
        ("t/definition.yaml", DEFINITION),
        ("t/legs.yaml", COUNTS.split("  - name: lamb").next().unwrap()),
        ("t/chainsaw-test.yaml", test),
    ]);
    let run = folder.kiln(&["test", "t"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

/// What is missing is said, and what made the policy wait for it goes on when it comes.
#[test]
fn a_policy_is_not_ready_before_its_kinds_are_defined() {
    let test = "apiVersion: chainsaw.kyverno.io/v1alpha1
kind: Test
metadata: {name: undefined}
spec:
  steps:
  - try:
    - apply: {file: role.yaml}
    - apply: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: meadow}}}
    - apply: {file: policy.yaml}
    - assert: {resource: {apiVersion: policies.kyverno.io/v1, kind: MutatingPolicy, metadata: {name: legs}, status: {conditionStatus: {ready: false, message: 'The cluster serves no resource farm.example.com/v1/sheep. The policy acts on it once it is defined.'}}}}
    - apply: {file: generating.yaml}
    - apply: {file: definition.yaml}
    - assert: {resource: {apiVersion: policies.kyverno.io/v1, kind: MutatingPolicy, metadata: {name: legs}, status: {conditionStatus: {ready: true}}}}
    - apply: {resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}}}
    - assert: {timeout: 1s, resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}, spec: {legs: 4}}}
    - assert: {timeout: 10s, resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: lamb, namespace: meadow}}}
";
    let legs = "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: legs}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [farm.example.com], apiVersions: [v1], operations: [CREATE], resources: [sheep]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch: {expression: '[JSONPatch{op: \"add\", path: \"/spec\", value: {\"legs\": 4}}]'}
";
    let lamb = "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: lamb}
spec:
  evaluation: {generateExisting: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces], resourceNames: [meadow]}]
  generate:
  - expression: 'generator.Apply(object.metadata.name, [{\"apiVersion\": dyn(\"farm.example.com/v1\"), \"kind\": dyn(\"Sheep\"), \"metadata\": dyn({\"name\": \"lamb\"})}])'
";
    let folder = Folder::with(&[
        ("t/role.yaml", ROLE),
        ("t/definition.yaml", DEFINITION),
        ("t/policy.yaml", legs),
        ("t/generating.yaml", lamb),
        ("t/chainsaw-test.yaml", test),
    ]);
    let run = folder.kiln(&["test", "t"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

/// A test with these steps, and these files beside it.
fn test_with(spec: &str, files: &[(&str, &str)], args: &[&str]) -> Run {
    let test = format!(
        "apiVersion: chainsaw.kyverno.io/v1alpha1\nkind: Test\nmetadata: {{name: t}}\nspec:\n{spec}"
    );
    let mut all = vec![("t/chainsaw-test.yaml", test.as_str())];
    all.extend(files);
    Folder::with(&all).kiln(&[&["test", "t"], args].concat())
}

const CHECKS: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owned}
spec:
  background: false
  rules:
  - name: has-owner
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    verifyImages: [{imageReferences: ['*']}]
  - name: mark
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}
";

/// Kiln does not verify images: a refusal that was expected is not a failure of the rules that it runs, and no success.
#[test]
fn a_refusal_that_is_for_rules_that_are_not_run_is_not_run() {
    let steps = "  steps:
  - try:
    - apply: {file: policy.yaml}
    - assert: {resource: {apiVersion: kyverno.io/v1, kind: ClusterPolicy, metadata: {name: owned}, status: {conditions: [{reason: Succeeded, status: 'True', type: Ready}]}}}
    - apply: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: default, labels: {owner: me}}}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: good, namespace: default, labels: {seen: 'yes'}}}}
    - apply:
        resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: bad, namespace: default}}
        expect: [{check: {($error != null): true}}]
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: never, namespace: default}}}
";
    let files = [("t/policy.yaml", CHECKS)];
    let run = test_with(steps, &files, &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(
        run.stdout.contains("not run by Kiln: rule has-owner (verifyImages) of owned\n"),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains("never"), "what follows is not run: {}", run.stdout);
    assert!(run.stdout.contains("4 passed, 0 failed, 1 not run"), "{}", run.stdout);
    assert_eq!(test_with(steps, &files, &["--strict"]).code, 1);
    // A policy none of whose rules is run is never ready.
    let checks = CHECKS.split("  - name: mark").next().unwrap();
    let run = test_with(steps, &[("t/policy.yaml", checks)], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("1 passed, 0 failed, 1 not run"), "{}", run.stdout);
    assert!(run.stdout.contains("rule has-owner (verifyImages) of owned\n"), "{}", run.stdout);
    // Without such a rule, it has failed.
    let mark = CHECKS.replace(
        "  - name: has-owner
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    verifyImages: [{imageReferences: ['*']}]\n",
        "",
    );
    let run = test_with(steps, &[("t/policy.yaml", &mark)], &[]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("($error != null) is false, not true"), "{}", run.stdout);
}

/// Kinds are not waited for if no policy would be run.
#[test]
fn policies_of_kinds_that_are_not_run_are_said_to_be() {
    let steps = "  steps:
  - try:
    - apply: {file: policy.yaml}
    - assert: {file: policy.yaml}
";
    let kind = "policies.kyverno.io/v1alpha1, kind: ImageValidatingPolicy";
    let policy = format!("{{apiVersion: {kind}, metadata: {{name: p}}, spec: {{}}}}");
    let run = test_with(steps, &[("t/policy.yaml", &policy)], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("not run   not run by Kiln: verifyImages\n"), "{}", run.stdout);
    assert!(run.stdout.contains("0 passed, 0 failed, 1 not run"), "{}", run.stdout);
}

/// `template` of a test, a step and an operation: the nearest one counts.
#[test]
fn a_test_says_whether_objects_have_expressions() {
    let apply = |name: &str, template: &str| {
        let object = format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default}}, data: {{x: \"(join('-', ['a', 'b']))\"}}}}"
        );
        // What is asserted is an expression in any case.
        let wanted = match name.starts_with("as-it-is") {
            true => "\"(starts_with(data.x, '(join'))\": true",
            false => "data: {x: a-b}",
        };
        format!(
            "    - apply: {{{template}resource: {object}}}\n    - assert: {{resource: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, namespace: default}}, {wanted}}}}}\n"
        )
    };
    let steps = format!(
        "  template: false\n  steps:\n  - try:\n{}{}  - template: true\n    try:\n{}{}",
        apply("as-it-is", ""),
        apply("filled", "template: true, "),
        apply("filled-2", ""),
        apply("as-it-is-2", "template: false, "),
    );
    let run = test_with(&steps, &[], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn a_test_may_wait_for_conditions_fields_and_deletions() {
    let node = "{apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: dolly, namespace: default}, status: {phase: Grazing, conditions: [{type: Shorn, status: 'True'}]}}";
    let wait = |name: &str, wanted: &str| {
        format!(
            "    - wait: {{apiVersion: farm.example.com/v1, kind: Sheep, {name}namespace: default, timeout: 1m, for: {wanted}}}\n"
        )
    };
    let steps = |more: &str| {
        format!(
            "  steps:\n  - try:\n    - apply: {{file: definition.yaml}}\n    - apply: {{resource: {node}}}\n{}{}{}{more}",
            wait("name: dolly, ", "{condition: {name: Shorn, value: 'true'}}"),
            wait("", "{condition: {name: Shorn}}"),
            wait("name: dolly, ", "{jsonPath: {path: '{.status.phase}', value: Grazing}}"),
        )
    };
    let files = [("t/definition.yaml", DEFINITION)];
    let gone = "    - delete: {ref: {apiVersion: farm.example.com/v1, kind: Sheep, name: dolly, namespace: default}}\n";
    let gone = format!("{gone}{}", wait("name: dolly, ", "{deletion: {}}"));
    let run = test_with(&steps(&gone), &files, &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    // All that are meant must be so.
    let other = "    - apply: {resource: {apiVersion: farm.example.com/v1, kind: Sheep, metadata: {name: shaun, namespace: default}}}\n";
    let other = format!("{other}{}", wait("", "{condition: {name: Shorn}}"));
    let run = test_with(&steps(&other), &files, &[]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    let run = test_with(
        &format!(
            "  steps:\n  - try:\n{}",
            wait("", "{jsonPath: {path: '{.a[?(@.b)]}', value: x}}")
        ),
        &[],
        &[],
    );
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(
        run.stderr
            .contains("wait is understood for deletion, a condition, or a jsonPath of fields"),
        "{}",
        run.stderr
    );
}

#[test]
fn definitions_by_name_fill_in_what_those_of_clusters_do() {
    let steps = "  steps:
  - try:
    - apply: {resource: {apiVersion: external-secrets.io/v1beta1, kind: ExternalSecret, metadata: {name: db, namespace: default}, spec: {secretStoreRef: {name: vault}, data: [{secretKey: a, remoteRef: {key: b}}]}}}
    - assert: {resource: {apiVersion: external-secrets.io/v1beta1, kind: ExternalSecret, metadata: {name: db, namespace: default}, spec: {refreshInterval: 1h0m0s, target: {creationPolicy: Owner, deletionPolicy: Retain}, data: [{secretKey: a, remoteRef: {key: b, conversionStrategy: Default, decodingStrategy: None, metadataPolicy: None}}]}}}
    - apply: {resource: {apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: shop, namespace: default}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: web, port: 80}]}]}}}
    - assert: {resource: {apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {name: shop, namespace: default}, spec: {parentRefs: [{name: edge, group: gateway.networking.k8s.io, kind: Gateway}], rules: [{backendRefs: [{name: web, port: 80, group: '', kind: Service, weight: 1}], matches: [{path: {type: PathPrefix, value: /}}]}]}}}
    - apply: {resource: {apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: shop, namespace: default}, spec: {url: https://example.com/shop, interval: 1m}}}
    - assert: {resource: {apiVersion: source.toolkit.fluxcd.io/v1, kind: GitRepository, metadata: {name: shop, namespace: default}, spec: {timeout: 60s}, status: {observedGeneration: -1}}}
";
    let run = test_with(steps, &[], &["--crds", "external-secrets,gateway-api,flux"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}

#[test]
fn definitions_that_many_clusters_have_are_given_by_name() {
    let steps = "  steps:
  - try:
    - assert: {resource: {apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: applications.argoproj.io}, status: {acceptedNames: {kind: Application, listKind: ApplicationList, plural: applications, singular: application}, storedVersions: [v1alpha1]}}}
    - apply: {resource: {apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: shop, namespace: default}, spec: {project: p, source: {path: x}}}}
    - assert: {resource: {apiVersion: argoproj.io/v1alpha1, kind: Application, metadata: {name: shop, namespace: default}, spec: {source: {path: x}}}}
    - apply: {resource: {apiVersion: cert-manager.io/v1, kind: ClusterIssuer, metadata: {name: letters}}}
    - apply: {file: definition.yaml}
";
    let files = [("t/definition.yaml", DEFINITION)];
    let run = test_with(steps, &files, &["--crds", "argo,cert-manager"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let run =
        test_with(steps, &files, &["--crds", "argo,cert-manager", "--crds", "t/definition.yaml"]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    let run = test_with(steps, &files, &["--crds", "cert-manger"]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    for said in [
        "--crds cert-manger: there is no such file, and Kiln knows no definitions of that name",
        "did you mean cert-manager? the names are argo, cert-manager, ",
        "istio",
    ] {
        assert!(run.stderr.contains(said), "{}", run.stderr);
    }
    let page = include_str!("../../../../../docs/guides/testing-policies.md");
    let names = run.stderr.split("the names are ").nth(1).unwrap().trim();
    for name in names.split(", ") {
        assert!(
            page.contains(&format!("`{name}`")),
            "docs/guides/testing-policies.md does not name {name}"
        );
    }
}

/// What comes before a script counts; what comes after it would be about another cluster than the test means.
#[test]
fn what_no_sandbox_has_is_not_run() {
    let pod = "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: default}, spec: {containers: [{name: c, image: \"ghcr.io/a/b:1\"}]}}";
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: images}
spec:
  rules:
  - name: digest
    match: {any: [{resources: {kinds: [Pod]}}]}
    context: [{name: data, imageRegistry: {reference: '{{ request.object.spec.containers[0].image }}'}}]
    mutate: {patchStrategicMerge: {metadata: {labels: {digest: '{{ data.manifest.digest }}'}}}}
";
    let nodes = format!(
        "
  steps:
  - try:
    - apply: {{resource: {pod}}}
    - wait: {{apiVersion: v1, kind: Pod, name: p, namespace: default, timeout: 1s, for: {{condition: {{name: Ready, value: 'true'}}}}}}
    - assert: {{resource: {{apiVersion: v1, kind: ConfigMap, metadata: {{name: never}}}}}}
"
    );
    let run = test_with(&nodes, &[], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("the sandbox has no nodes"), "{}", run.stdout);
    let registry = format!(
        "
  steps:
  - try:
    - apply: {{file: policy.yaml}}
    - apply: {{resource: {pod}}}
"
    );
    let run = test_with(&registry, &[("t/policy.yaml", policy)], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("calls the registry of \"ghcr.io/a/b:1\""), "{}", run.stdout);
    let strict = test_with(&registry, &[("t/policy.yaml", policy)], &["--strict"]);
    assert_eq!(strict.code, 1, "{}{}", strict.stdout, strict.stderr);
}

#[test]
fn a_script_ends_its_test_where_it_stands() {
    let steps = "  steps:
  - try:
    - create: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: one}}}
    - describe: {apiVersion: v1, kind: Namespace, name: one}
    finally:
    - script: {content: kubectl delete namespace one}
  - try:
    - create: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: two}}}
    - script: {content: kubectl get pods}
    - command: {entrypoint: kubectl, args: [get, pods]}
    - assert: {resource: {apiVersion: v1, kind: Namespace, metadata: {name: never}}}
";
    let run = test_with(steps, &[], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("2 passed, 0 failed, 1 not run"), "{}", run.stdout);
    assert!(!run.stdout.contains("never"), "{}", run.stdout);
    assert_eq!(run.stderr.matches("warning: ").count(), 1, "{}", run.stderr);
    assert!(
        run.stderr.contains("warning: script is not run here, because nothing outside the sandbox is: the test ends there\n  --> t/chainsaw-test.yaml:13:7"),
        "{}",
        run.stderr
    );
    assert_eq!(test_with(steps, &[], &["--strict"]).code, 1);
    let run = test_with("  steps:\n  - try:\n    - skript: {content: ls}\n", &[], &[]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
    assert!(run.stderr.contains("skript is not run here"), "{}", run.stderr);
}

#[test]
fn scripts_run_where_the_user_allows_them() {
    let steps = "
  steps:
  - try:
    - script:
        env: [{name: WORD, value: hello}]
        content: |
          test -s \"$KUBECONFIG\" && echo $WORD
        check: {($error == null): true, ($stdout): hello}
        outputs: [{name: word, value: ($stdout)}]
    - create: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: ($word)}}}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: hello}}}
    - command: {entrypoint: 'false', check: {($error != null): true}}
    - script: {content: exit 3}
";
    let refused = test_with(steps, &[], &[]);
    assert!(refused.stdout.contains("not run by Kiln"), "{}", refused.stdout);
    let run = test_with(steps, &[], &["--allow-scripts"]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("exit status: 3"), "{}", run.stdout);
    assert!(run.stdout.contains("4 passed, 1 failed"), "{}", run.stdout);
}

/// Time passes in the test, and not for those who wait for it.
#[test]
fn schedules_come_within_a_test() {
    let steps = "
  steps:
  - try:
    - apply: {resource: {apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: cleaner, labels: {rbac.kyverno.io/aggregate-to-cleanup-controller: 'true'}}, rules: [{apiGroups: [''], resources: [configmaps], verbs: [get, list, watch, delete]}]}}
    - apply: {resource: {apiVersion: kyverno.io/v2, kind: ClusterCleanupPolicy, metadata: {name: nightly}, spec: {schedule: '0 3 * * *', match: {any: [{resources: {kinds: [ConfigMap], names: [old]}}]}}}}
    - create: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: old}}}
    - sleep: {duration: 1h}
    - assert: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: old}}}
    - sleep: {duration: 3h}
    - error: {resource: {apiVersion: v1, kind: ConfigMap, metadata: {name: old}}}
";
    let run = test_with(steps, &[], &[]);
    assert_eq!(run.code, 0, "{}{}", run.stdout, run.stderr);
}
