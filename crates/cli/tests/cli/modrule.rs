//! ModRules: patches, refusals, the stream of a post-renderer, and the languages of their fields.

use kiln_yaml::{ReadOptions, read_bytes};

use crate::harness::Folder;

const RULES: &str = "\
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: label}
spec:
  type: Patch
  match:
  - select: $.kind
    matchValue: ConfigMap
  - select: $.metadata.labels.team
    negate: true
  patch:
  - op: add
    path: /metadata/labels/team
    value: '{{ .Target.metadata.name | upper }}'
";

const REJECT: &str = "\
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: no-secrets}
spec:
  type: Reject
  rejectMessage: 'no Secret named {{ .Target.metadata.name }} here'
  match:
  - select: $.kind
    matchValue: Secret
";

const STREAM: &str = "\
apiVersion: v1
kind: Service
metadata: {name: first}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: second}
---
apiVersion: v1
kind: Service
metadata: {name: third, namespace: other}
";

fn names(text: &str) -> Vec<String> {
    let documents = read_bytes("out", text.as_bytes(), ReadOptions::kubernetes()).unwrap();
    documents.iter().map(|d| d.value().str_at(["metadata", "name"]).unwrap().to_owned()).collect()
}

#[test]
fn what_is_piped_in_comes_out_in_order() {
    let folder = Folder::with(&[("rules.yaml", RULES)]);
    let run = folder.kiln_with_input(
        &["apply", "rules.yaml", "--resource", "-", "--format", "yaml"],
        STREAM.as_bytes(),
    );
    assert_eq!((run.code, run.stderr.as_str()), (0, ""));
    assert_eq!(names(&run.stdout), ["first", "second", "third"]);
    assert!(run.stdout.contains("labels:\n    team: SECOND\n"), "{}", run.stdout);
    // Where it will live is for whoever takes the stream to say.
    assert!(!run.stdout.contains("default"), "{}", run.stdout);
    let again = folder.kiln_with_input(
        &["apply", "rules.yaml", "--resource", "-", "--format", "yaml"],
        run.stdout.as_bytes(),
    );
    assert_eq!(again.stdout, run.stdout);
}

#[test]
fn a_refused_resource_ends_with_1_and_says_why() {
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: key}\n---\n";
    let folder = Folder::with(&[("rules.yaml", &format!("{RULES}---\n{REJECT}"))]);
    let run = folder.kiln_with_input(
        &["apply", "rules.yaml", "--resource", "-", "--format", "yaml"],
        format!("{secret}{STREAM}").as_bytes(),
    );
    assert_eq!(run.code, 1);
    assert_eq!(names(&run.stdout), ["first", "second", "third"]);
    let wanted =
        "Secret default/key is rejected by default/no-secrets: \"no Secret named key here\"";
    assert!(run.stderr.contains(wanted), "{}", run.stderr);
    folder.write("secret.yaml", secret);
    let text = folder.kiln(&["apply", "rules.yaml", "-r", "secret.yaml"]);
    assert_eq!(text.code, 1);
    assert!(text.stdout.contains("fail: rejected by default/no-secrets"), "{}", text.stdout);
    assert!(text.stdout.ends_with("fail: 1, warn: 0, error: 0, skip: 0\n"), "{}", text.stdout);
}

#[test]
fn other_rules_see_the_patched_object() {
    let generate = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: copies}
spec:
  rules:
  - name: copy-team
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: made
      namespace: '{{ request.object.metadata.namespace }}'
      data: {stringData: {team: '{{ request.object.metadata.labels.team }}'}}
";
    let folder = Folder::with(&[("rules.yaml", &format!("{generate}---\n{RULES}"))]);
    let run = folder.kiln_with_input(
        &["apply", "rules.yaml", "--resource", "-", "--format", "yaml"],
        STREAM.as_bytes(),
    );
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(names(&run.stdout), ["first", "second", "third", "made"]);
    assert!(run.stdout.contains("team: SECOND\n"), "{}", run.stdout);
    // A refused object leads to nothing.
    let refuse = REJECT.replace("Secret\n", "ConfigMap\n");
    folder.write("rules.yaml", format!("{generate}---\n{RULES}---\n{refuse}"));
    let run = folder.kiln_with_input(
        &["apply", "rules.yaml", "--resource", "-", "--format", "yaml"],
        STREAM.as_bytes(),
    );
    assert_eq!(run.code, 1);
    assert_eq!(names(&run.stdout), ["first", "third"]);
}

#[test]
fn rules_that_are_rarely_meant_are_warned_about() {
    let repeats = "\
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: repeats}
spec:
  type: Patch
  match:
  - select: $.kind
    matchValue: ConfigMap
  - select: $.data.mode != \"off\"
  patch:
  - op: add
    path: /metadata/finalizers/-1
    value: kiln.example/guard
  - op: add
    path: /metadata/labels/team
    value: b
";
    let folder = Folder::with(&[
        ("rules.yaml", &format!("{RULES}---\n{repeats}")),
        ("object.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"),
    ]);
    let run = folder.kiln(&["apply", "rules.yaml", "-r", "object.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    for said in [
        "`!=` also holds where $.data.mode is not there",
        "rules default/label and default/repeats can both write /metadata/labels/team of one object",
        "rule default/repeats changes v1/ConfigMap/default/a again each time it is updated",
    ] {
        assert!(run.stderr.contains(said), "{said}: {}", run.stderr);
    }
    assert!(!run.stderr.contains("rule default/label changes"), "{}", run.stderr);
    let check = folder.kiln(&["check", "rules.yaml"]);
    assert_eq!(check.code, 0, "{}", check.stderr);
    assert!(check.stderr.contains("can both write"), "{}", check.stderr);
}
