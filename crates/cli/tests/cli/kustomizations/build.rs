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

#[test]
fn the_history_of_an_object_is_found_by_any_of_its_names() {
    let folder = Folder::with(&[
        (
            "base/kustomization.yaml",
            "namePrefix: pre-\nresources: [d.yaml]\nconfigMapGenerator: [{name: settings, literals: [a=b]}]\n",
        ),
        (
            "base/d.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {template: {spec: {containers: [{name: a, envFrom: [{configMapRef: {name: settings}}]}]}}}\n",
        ),
        (
            "kustomization.yaml",
            "nameSuffix: -x\nresources: [base]\npatches:\n- target: {kind: Deployment}\n  patch: '- {op: add, path: /spec/replicas, value: 3}'\n",
        ),
    ]);
    let web = "Deployment.v1.apps/web.[noNs]: read from base/d.yaml
Deployment.v1.apps/pre-web.[noNs]: changed by PrefixTransformer in base/kustomization.yaml
Deployment.v1.apps/pre-web.[noNs]: changed by PatchTransformer in kustomization.yaml
Deployment.v1.apps/pre-web-x.[noNs]: changed by SuffixTransformer in kustomization.yaml
Deployment.v1.apps/pre-web-x.[noNs]: names of other objects updated in kustomization.yaml
";
    for named in ["Deployment/web", "deploy/pre-web", "deployments.apps/pre-web-x", "pre-web-x"] {
        let run = folder.kiln(&["build", "--explain", named]);
        assert_eq!((run.code, run.stdout.as_str()), (0, web), "{named}: {}", run.stderr);
    }
    let run = folder.kiln(&["build", "--explain", "cm/settings"]);
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert!(
        lines.first().is_some_and(|line| line.contains("made by ConfigMapGenerator")),
        "{run:?}"
    );
    assert!(run.stdout.contains(": renamed by HashTransformer\n"), "{run:?}");
    assert_eq!(folder.kiln(&["build", "--explain", "secret/settings"]).code, 2);
}

#[test]
fn a_package_that_is_not_a_chart_is_named() {
    let folder = Folder::with(&[("web.tgz", "no archive")]);
    let run = folder.kiln(&["build", "web.tgz"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("error: web.tgz: gzip: invalid header\n"), "{}", run.stderr);
}
