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
    // Where it will live is decided by the reader of the stream.
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
fn expressions_and_templates_run_on_their_own() {
    let folder = Folder::with(&[(
        "pod.yaml",
        "kind: Pod\nspec: {containers: [{name: a}, {name: b}], size: 1000000}\n",
    )]);
    for (arguments, code, out, err) in [
        (vec!["jsonpath", "$.spec.containers[? @.name == \"b\"].name"], 0, "[\n  \"b\"\n]\n", ""),
        (vec!["jsonpath", "$.spec.nothing"], 0, "undefined\n", ""),
        (vec!["jsonpath", "$.kind = \"Pod\""], 1, "", "write == to compare"),
        (vec!["jsonpath", "$.kind.x"], 1, "", "a string has no members"),
        (vec!["gotemplate", "{{ .kind | lower }} {{ .spec.size }}"], 0, "pod 1e+06\n", ""),
        (vec!["gotemplate", "{{ .spec.size }}", "--integers"], 0, "1000000\n", ""),
        (
            vec!["gotemplate", "{{ .kind | lower }}", "--functions", "builtin"],
            1,
            "",
            "sprig's functions",
        ),
        (
            vec!["gotemplate", "{{ .no }}", "--option", "missingkey=error"],
            1,
            "",
            "map has no entry for key",
        ),
        (vec!["gotemplate", "{{ .no }}", "--option", "missing"], 2, "", "missingkey=error"),
        (vec!["gotemplate", "{{ if }}"], 1, "", "missing value for if"),
    ] {
        let mut all = vec!["eval"];
        all.extend(&arguments);
        all.extend(["--input", "pod.yaml"]);
        let run = folder.kiln(&all);
        assert_eq!((run.code, run.stdout.as_str()), (code, out), "{arguments:?}: {}", run.stderr);
        assert!(run.stderr.contains(err), "{arguments:?}: {}", run.stderr);
    }
    let keys = folder.kiln(&[
        "eval",
        "jsonpath",
        "--select",
        "$.spec.containers[*].name",
        "-i",
        "pod.yaml",
    ]);
    assert!(keys.stdout.contains("\"keys\": [\n      \"1\"\n    ]"), "{}", keys.stdout);
    assert!(folder.kiln(&["eval", "gotemplate", "--list"]).stdout.contains("regexReplaceAll "));
}
