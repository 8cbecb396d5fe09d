//! `kiln build`

use crate::harness::Folder;

const CONFIG_MAP: &str = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n";

#[test]
fn builds_the_current_folder_or_the_one_that_is_named() {
    let folder = Folder::with(&[
        ("app/kustomization.yaml", "namePrefix: x-\nresources: [c.yaml]\n"),
        ("app/c.yaml", CONFIG_MAP),
    ]);
    let wanted = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: x-a\n";
    let run = folder.kiln(&["build", "app"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, wanted), "{}", run.stderr);
    assert_eq!(folder.kiln(&["build", "app", "-o", "out.yaml"]).code, 0);
    assert_eq!(folder.read("out.yaml"), wanted);
    let run = folder.kiln(&["build"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("unable to find one of 'kustomization.yaml'"), "{}", run.stderr);
}

#[test]
fn no_address_and_no_revision_is_an_option_of_git() {
    for address in [
        "file:///nowhere/repo?ref=--upload-pack=touch pwned;",
        "https://127.0.0.1:1/a/b?ref=--upload-pack=touch pwned;",
        "git@127.0.0.1:a/b.git?ref=-upload",
    ] {
        let folder =
            Folder::with(&[("kustomization.yaml", &format!("resources: [\"{address}\"]\n"))]);
        let run = folder.kiln(&["build"]);
        assert_eq!(run.code, 2, "{address}");
        assert!(
            run.stderr.contains("is not an address of a repository"),
            "{address}: {}",
            run.stderr
        );
        assert!(!folder.path().join("pwned").exists(), "{address}");
    }
}

#[cfg(unix)]
#[test]
fn links_and_pipes_lead_nowhere() {
    let outside = Folder::with(&[("secret.yaml", CONFIG_MAP)]);
    let folder = Folder::with(&[
        ("link/kustomization.yaml", "resources: [a.yaml]\n"),
        ("folder/kustomization.yaml", "resources: [out/secret.yaml]\n"),
        ("loop/kustomization.yaml", "resources: [a.yaml]\n"),
        ("device/kustomization.yaml", "resources: [a.yaml]\n"),
    ]);
    let link = |from: &std::path::Path, name: &str| {
        std::os::unix::fs::symlink(from, folder.path().join(name)).unwrap();
    };
    link(&outside.path().join("secret.yaml"), "link/a.yaml");
    link(outside.path(), "folder/out");
    link(&folder.path().join("loop/a.yaml"), "loop/a.yaml");
    link("/dev/zero".as_ref(), "device/a.yaml");
    for (directory, message) in [
        ("link", "is not in or below"),
        ("folder", "is not in or below"),
        ("loop", "a.yaml"),
        ("device", "is not in or below"),
    ] {
        let run = folder.kiln(&["build", directory]);
        assert_eq!(run.code, 2, "{directory}");
        assert!(run.stderr.contains(message), "{directory}: {}", run.stderr);
    }
    let run = folder.kiln(&["build", "device", "--load-restrictor", "LoadRestrictionsNone"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("not a regular file"), "{}", run.stderr);
}
