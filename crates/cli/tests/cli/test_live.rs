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
