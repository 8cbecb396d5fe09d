//! `kiln build --as`, `--compare`, `--diff` and `--watch`.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use kiln_testkit::{project_root, skip};

use crate::harness::Folder;

const STATEFUL_SET: &str = "\
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: db, image: 'postgres@sha512:abc'}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: same}
";

const OVERLAY: &str = "\
resources: [sts.yaml]
labels:
- pairs: {team: a}
  includeTemplates: true
images:
- {name: postgres, newTag: '17'}
";

fn folder() -> Folder {
    Folder::with(&[("kustomization.yaml", OVERLAY), ("sts.yaml", STATEFUL_SET)])
}

#[test]
fn an_older_release_is_built_by_its_name() {
    let folder = folder();
    let new = folder.kiln(&["build"]);
    assert!(new.stdout.contains("image: postgres:17"), "{}", new.stdout);
    for release in ["kustomize@5.8.1", "5.8.1", "v5.8.1"] {
        let old = folder.kiln(&["build", "--as", release]);
        assert!(old.stdout.contains("image: postgres@sha512:abc"), "{}", old.stdout);
        assert_eq!(old.stdout.matches("team: a").count(), 4, "{}", old.stdout);
    }
    assert_eq!(folder.kiln(&["build", "--as", "kustomize@5.8.2"]).stdout, new.stdout);
    for (release, part) in [
        ("kustomize@4.5.7", "the versions are 5.8.1 to 5.8.2"),
        ("helm@3", "only releases of kustomize"),
        ("new", "is not a version"),
    ] {
        let refused = folder.kiln(&["build", "--as", release]);
        assert_eq!(refused.code, 2);
        assert!(refused.stderr.contains(part), "{}", refused.stderr);
    }
}

#[test]
fn releases_are_compared_object_by_object() {
    let folder = folder();
    let compared = folder.kiln(&["build", "--as", "kustomize@5.8.1", "--compare"]);
    assert_eq!(
        (compared.code, compared.stdout.as_str()),
        (
            1,
            "\
StatefulSet/db changes
  since 5.8.2: images matches images with a digest of any algorithm (any-digest-algorithm)
  since 5.8.2: includeTemplates leaves volumeClaimTemplates alone; includeVolumeClaimTemplates labels them (claim-templates-apart)
1 object differs of 2 between kustomize 5.8.1 and 5.8.2
"
        ),
        "{}",
        compared.stderr
    );
    let json = folder.kiln(&["build", "--as", "5.8.1", "--compare", "--format", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["objects"][0]["differences"][0]["name"], "any-digest-algorithm");
    folder.write("kustomization.yaml", "resources: [sts.yaml]\n");
    let same = folder.kiln(&["build", "--as", "5.8.1", "--compare"]);
    assert_eq!(same.code, 0);
    assert_eq!(same.stdout, "0 objects differ of 2 between kustomize 5.8.1 and 5.8.2\n");
    // What only one of them builds.
    folder.write(
        "kustomization.yaml",
        "resources: [sts.yaml]\nlabels: [{pairs: {a: b}, includeVolumeClaimTemplates: true}]\n",
    );
    let fails = folder.kiln(&["build", "--as", "5.8.1", "--compare"]);
    assert_eq!(fails.code, 1);
    assert!(fails.stdout.starts_with("only kustomize 5.8.1 fails: "), "{}", fails.stdout);
    assert!(fails.stdout.contains("(claim-templates-apart)"), "{}", fails.stdout);
}

#[test]
fn a_renamed_object_is_one_object() {
    let folder = Folder::with(&[
        (
            "base/kustomization.yaml",
            "resources: [s.yaml]\nsecretGenerator: [{name: t, literals: [a=b]}]\n",
        ),
        (
            "base/s.yaml",
            "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {b: two}\n",
        ),
        (
            "over/kustomization.yaml",
            "resources: [../base]\nsecretGenerator: [{name: s, behavior: merge, literals: [a=1]}]\ngeneratorOptions: {disableNameSuffixHash: true}\n",
        ),
    ]);
    let compared = folder.kiln(&["build", "over", "--as", "5.8.1", "--compare"]);
    assert!(compared.stdout.starts_with("Secret/s changes\n"), "{}", compared.stdout);
    assert!(compared.stdout.contains("(merged-secrets-keep-string-data)"), "{}", compared.stdout);
}

#[test]
fn output_is_compared_with_a_file() {
    let folder = folder();
    folder.write("rendered.yaml", folder.kiln(&["build"]).stdout);
    let same = folder.kiln(&["build", "--diff", "rendered.yaml", "--exit-code"]);
    assert_eq!((same.code, same.stdout.as_str()), (0, ""));
    folder.write("kustomization.yaml", OVERLAY.replace("'17'", "'18'"));
    let other = folder.kiln(&["build", "--diff", "rendered.yaml"]);
    assert_eq!(other.code, 0);
    assert!(
        other.stdout.contains("-      - image: postgres:17\n+      - image: postgres:18\n"),
        "{}",
        other.stdout
    );
    assert_eq!(folder.kiln(&["build", "--diff", "rendered.yaml", "--exit-code"]).code, 1);
}

#[test]
fn output_is_compared_with_a_revision() {
    if Command::new("git").arg("--version").output().is_err() {
        return skip("git is missing", "install git");
    }
    let folder = folder();
    let git = |words: &[&str]| {
        let ran = Command::new("git")
            .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
            .args(words)
            .current_dir(folder.path())
            .output()
            .unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    };
    git(&["init", "--quiet"]);
    let first = folder.kiln(&["build", "--diff", "HEAD"]);
    assert_eq!(first.code, 0, "{}", first.stderr);
    assert!(first.stdout.contains("+kind: StatefulSet"), "{}", first.stdout);
    git(&["add", "."]);
    git(&["commit", "--quiet", "-m", "first"]);
    assert_eq!(folder.kiln(&["build", "--diff", "HEAD", "--exit-code"]).code, 0);
    folder.write("kustomization.yaml", OVERLAY.replace("'17'", "'18'"));
    let changed = folder.kiln(&["build", "--diff", "HEAD", "--exit-code"]);
    assert_eq!(changed.code, 1);
    assert!(changed.stdout.contains("+      - image: postgres:18"), "{}", changed.stdout);
    let missing = folder.kiln(&["build", "--diff", "no-such-branch"]);
    assert_eq!(missing.code, 2);
    assert!(missing.stderr.contains("no revision no-such-branch"), "{}", missing.stderr);
}

/// A base outside of the directory is watched, too.
#[test]
fn a_build_runs_again_when_a_file_changes_that_it_read() {
    let folder = Folder::with(&[
        ("base/kustomization.yaml", "resources: [c.yaml]\n"),
        ("base/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: first}\n"),
        ("over/kustomization.yaml", "resources: [../base]\n"),
    ]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_kiln"))
        .args(["build", "over", "--watch"])
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line == "  name: first"));
    folder.write("base/c.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second-name}\n");
    assert!(lines.any(|line| line == "  name: second-name"));
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The page of differences is the table of the program.
#[test]
fn the_documentation_lists_every_difference_between_releases() {
    let page = project_root().join("docs/reference/differences/kustomize-releases.md");
    let page = std::fs::read_to_string(page).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with("| `")).collect();
    let wanted: Vec<String> = kiln_kustomize::DIFFERENCES
        .iter()
        .map(|one| format!("| `{}` | {} | {} |", one.name, one.since, one.what))
        .collect();
    assert_eq!(rows, wanted);
}
