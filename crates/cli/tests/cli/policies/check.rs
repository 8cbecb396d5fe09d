//! `kiln check` on trees as they are.

use std::io::{BufRead, BufReader};

use crate::harness::Folder;

fn policy(name: &str, from: &str, to: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n  - name: r\n    skipBackgroundRequests: false\n    \
         match: {{any: [{{resources: {{kinds: [{from}]}}}}]}}\n    \
         generate: {{apiVersion: v1, kind: {to}, name: x, namespace: default, data: {{}}}}\n"
    )
}

#[test]
fn a_tree_is_checked_whatever_else_is_in_it() {
    let tree = Folder::with(&[
        ("rules/good.yaml", &policy("good", "Namespace", "ConfigMap")),
        (
            "rules/.chainsaw-test/crd-assert.yaml",
            "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: x}\n",
        ),
        (
            "rules/tests/crd.yaml",
            "kind: CustomResourceDefinition\napiVersion: apiextensions.k8s.io/v1\nmetadata: {name: x}\n",
        ),
        ("rules/charts/web/Chart.yaml", "name: web\nversion: 1.0.0\n"),
        ("rules/charts/web/templates/d.yaml", "apiVersion: v1\nmetadata: {{ .Values.x }}\n"),
        ("rules/loose/t.yaml", "a: {{ .Values.x }}\nb: {{- if }}\n"),
        ("rules/values.yaml", "replicas: 3\n"),
        (
            "rules/old/bad.yaml",
            "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: b}\nspec: {ruls: []}\n",
        ),
    ]);
    let run = tree.kiln(&["check", "rules", "--exclude", "old"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (0, "1 policy with 1 rule: 0 problems, 0 not run by Kiln; 7 entries skipped\n"),
        "{}",
        run.stderr
    );
    let mut said: Vec<&str> = run.stderr.lines().collect();
    said.sort_unstable();
    assert_eq!(
        said,
        [
            ".chainsaw-test is hidden: 1 entry of this name is skipped below rules",
            "rules/charts/web/Chart.yaml is skipped: it holds no Kubernetes object",
            "rules/charts/web/templates is skipped: it holds the templates of a Helm chart",
            "rules/loose/t.yaml is skipped: it is a template to be filled in, not YAML",
            "rules/old is skipped: it is excluded",
            "rules/tests/crd.yaml is skipped: a part of a definition: CustomResourceDefinition x: spec.group is missing; give it",
            "rules/values.yaml is skipped: it holds no Kubernetes object",
        ]
    );
    // What is wrong with one file keeps no other from being checked.
    let run = tree.kiln(&["check", "rules"]);
    assert_eq!(run.code, 2);
    assert!(run.stdout.starts_with("1 policy with 1 rule: "), "{}", run.stdout);
    assert!(run.stderr.contains("unknown field spec.ruls"), "{}", run.stderr);
    // What a user names is read, whatever it is.
    let run = tree.kiln(&["check", "rules/good.yaml", "rules/tests/crd.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("spec.group is missing"), "{}", run.stderr);
}

#[test]
fn broken_yaml_is_told_and_the_rest_is_checked() {
    let tree = Folder::with(&[
        ("rules/a.yaml", &policy("a", "Namespace", "ConfigMap")),
        ("rules/b.yaml", "apiVersion: v1\nkind: [\n"),
    ]);
    let run = tree.kiln(&["check", "rules"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("rules/b.yaml:"), "{}", run.stderr);
    assert_eq!(run.stdout, "1 policy with 1 rule: 1 problem, 0 not run by Kiln\n");
}

#[test]
fn circles_are_told_across_files() {
    let tree = Folder::with(&[
        ("a.yaml", &policy("a", "ConfigMap", "Secret")),
        ("b.yaml", &policy("b", "Secret", "ConfigMap")),
    ]);
    let run = tree.kiln(&["check", "."]);
    assert_eq!(run.code, 0);
    assert!(
        run.stderr.contains("rules fire on each other's objects in a cycle: kyverno:a/r -> kyverno:b/r -> kyverno:a/r"),
        "{}",
        run.stderr
    );
    assert_eq!(run.stdout, "2 policies with 2 rules: 1 problem, 0 not run by Kiln\n");
}

#[test]
fn files_are_watched() {
    let tree = Folder::with(&[("rules/a.yaml", &policy("a", "Namespace", "ConfigMap"))]);
    let mut child = tree.leave_running(&["check", "rules", "--watch"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    tree.write("rules/b.yaml", policy("b", "Namespace", "Secret"));
    let second = lines.next().unwrap().unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(first, "1 policy with 1 rule: 0 problems, 0 not run by Kiln");
    assert_eq!(second, "2 policies with 2 rules: 0 problems, 0 not run by Kiln");
}

/// A policy of a kind that does not exist is not seen as a policy: files with others beside it would pass without it.
#[test]
fn kinds_that_their_group_does_not_have_are_errors() {
    let good = "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {name: good}\nspec:\n  rules:\n  - name: r\n    \
        match: {any: [{resources: {kinds: [Pod]}}]}\n    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}\n";
    let folder = Folder::with(&[
        ("good.yaml", good),
        ("misspelt.yaml", &good.replace("ClusterPolicy", "ClusterPolcy")),
        ("misplaced.yaml", &good.replace("ClusterPolicy", "MutatingPolicy")),
        ("pod.yaml", "apiVersion: v1\nkind: Pod\nmetadata: {name: p}\n"),
    ]);
    for (args, said) in [
        (&["check", "."][..], "kyverno.io has no kind ClusterPolcy"),
        (&["check", "."], "help: use apiVersion: policies.kyverno.io/v1"),
        (&["check", "misspelt.yaml"], "help: did you mean \"ClusterPolicy\"?"),
        (&["apply", "good.yaml", "misspelt.yaml", "-r", "pod.yaml"], "misspelt.yaml:2:7"),
        (&["apply", "misplaced.yaml", "-r", "pod.yaml"], "misplaced.yaml:1:13"),
    ] {
        let run = folder.kiln(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stdout);
        assert!(run.stderr.contains(said), "{args:?}: {}", run.stderr);
    }
}
