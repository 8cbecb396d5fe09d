//! `kiln storm`

use crate::harness::Folder;

const APPENDS: &str = r#"apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: appends}
spec:
  rules:
  - name: r
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {annotations: {trail: "{{ request.object.metadata.annotations.trail || '' }}x"}}}}
"#;

#[test]
fn mistake_is_told_with_its_story_which_can_be_replayed() {
    let folder = Folder::with(&[("p.yaml", APPENDS)]);
    let run = folder.kiln(&["storm", "p.yaml", "--for", "20s", "--save", "out"]);
    assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("not-idempotent: "), "{}", run.stdout);
    assert!(run.stdout.contains("metadata.annotations.trail"), "{}", run.stdout);
    let replay = folder.kiln(&[
        "storm",
        "p.yaml",
        "--replay",
        "out/01-not-idempotent/story.yaml",
        "--format",
        "json",
    ]);
    assert_eq!(replay.code, 1, "{}{}", replay.stdout, replay.stderr);
    assert!(replay.stdout.contains("\"not-idempotent\""), "{}", replay.stdout);
    let bad = folder.kiln(&["storm", "p.yaml", "--replay", "p.yaml"]);
    assert_eq!(bad.code, 2);
    assert!(bad.stderr.contains("cannot read the story"), "{}", bad.stderr);
}

#[test]
fn invalid_policies_are_named() {
    let folder =
        Folder::with(&[("c.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}\n")]);
    let run = folder.kiln(&["storm", "c.yaml"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("there is no policy in the files"), "{}", run.stderr);
}
