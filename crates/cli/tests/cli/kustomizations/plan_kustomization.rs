//! `kiln plan --kustomize` against another revision, and `kiln apply --kustomize`. Against clusters, see `live::plans`.

use std::process::Command;

use crate::harness::Folder;

const BASE: &str = "apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: quiet}
---
apiVersion: v1
kind: Secret
metadata: {name: token}
stringData: {password: hush-1}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
";

const POLICIES: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owners}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap, Service]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: shop}}}}
  - name: network
    match: {any: [{resources: {kinds: [Service]}}]}
    generate:
      apiVersion: networking.k8s.io/v1
      kind: NetworkPolicy
      name: 'for-{{request.object.metadata.name}}'
      namespace: '{{request.namespace}}'
      data: {spec: {podSelector: {}}}
  - name: quiet
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    validate: {failureAction: Enforce, message: too loud, pattern: {=(data): {=(mode): '!loud'}}}
";

fn git(folder: &Folder, args: &[&str]) -> bool {
    let output = Command::new("git")
        .args(["-c", "user.name=t", "-c", "user.email=t@example.com"])
        .args(args)
        .current_dir(folder.path())
        .output();
    output.is_ok_and(|output| output.status.success())
}

/// A repository with a kustomization and policies; none where there is no git.
fn repository() -> Option<Folder> {
    let folder = Folder::with(&[
        ("base/all.yaml", BASE),
        ("base/kustomization.yaml", "resources: [all.yaml]\n"),
        ("prod/kustomization.yaml", "namespace: shop\nresources: [../base]\n"),
        ("policies/owners.yaml", POLICIES),
    ]);
    let made = git(&folder, &["init", "-q", "-b", "main"])
        && git(&folder, &["add", "."])
        && git(&folder, &["commit", "-q", "-m", "one"]);
    if !made {
        kiln_testkit::skip("git does not work here", "install git");
    }
    made.then_some(folder)
}

const PLAN: [&str; 6] = ["plan", "-k", "prod", "policies", "--base", "HEAD"];

#[test]
fn nothing_changes_where_nothing_was_changed() {
    let Some(folder) = repository() else { return };
    let run = folder.kiln(&PLAN);
    assert_eq!((run.code, run.stdout.as_str()), (0, "nothing would change\n"), "{}", run.stderr);
}

#[test]
fn a_plan_says_what_a_branch_changes_with_what_rules_make_of_it() {
    let Some(folder) = repository() else { return };
    let more =
        "apiVersion: v1\nkind: Service\nmetadata: {name: api}\nspec: {ports: [{port: 81}]}\n";
    folder.write("prod/api.yaml", more);
    folder.write(
        "prod/kustomization.yaml",
        "namespace: shop\nresources: [../base, api.yaml]\npatches:\n- patch: |\n    {apiVersion: v1, kind: ConfigMap, metadata: {name: settings}, data: {size: big}}\n",
    );
    folder.write("base/all.yaml", BASE.replace("hush-1", "hush-2"));
    let run = folder.kiln(&[&PLAN[..], &["--brief"]].concat());
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (
            1,
            "change v1/ConfigMap/shop/settings (policy owners, rule owner)\n\
             (rules set metadata.labels)\n\
             change v1/Secret/shop/token\n\
             create v1/Service/shop/api (policy owners, rule owner)\n\
             (rules set metadata.labels)\n\
             create networking.k8s.io/v1/NetworkPolicy/shop/for-api (policy owners, rule network)\n\
             2 to create, 2 to change, 0 to delete\n"
        ),
        "{}",
        run.stderr
    );
    let run = folder.kiln(&PLAN);
    assert!(run.stdout.contains("+  size: big\n"), "{}", run.stdout);
    assert!(!run.stdout.contains("hush"), "values of Secrets are not shown: {}", run.stdout);
    // The work tree and the repository are as they were.
    assert!(folder.path().join("prod/api.yaml").exists());

    let json = folder.kiln(&[&PLAN[..], &["--format", "json"]].concat());
    let plan = kiln_value::json::parse(&json.stdout).unwrap();
    let changes = plan.get("changes").unwrap().as_list().unwrap();
    let service = changes.iter().find(|it| it.str_at(["object"]) == Some("v1/Service/shop/api"));
    let service = service.unwrap();
    assert_eq!(service.str_at(["after", "metadata", "labels", "owner"]), Some("shop"));
    assert!(!json.stdout.contains("hush"), "{}", json.stdout);
}

#[test]
fn what_is_denied_and_what_goes_is_said() {
    let Some(folder) = repository() else { return };
    folder.write("base/all.yaml", BASE.replace("quiet", "loud").replace("name: web", "name: site"));
    let run = folder.kiln(&[&PLAN[..], &["--format", "markdown"]].concat());
    assert_eq!(run.code, 1, "{}", run.stderr);
    for wanted in [
        "**2 to create, 0 to change, 2 to delete; 1 object is denied**\n",
        "| create | v1/Service/shop/site | policy owners, rule owner | sets metadata.labels |\n",
        "| delete | v1/Service/shop/web |",
        "| deny | v1/ConfigMap/shop/settings | policy owners, rule quiet |",
        "too loud",
        "<details><summary>create <code>v1/Service/shop/site</code></summary>",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted}\n{}", run.stdout);
    }
}

#[test]
fn policies_of_the_base_count_there() {
    let Some(folder) = repository() else { return };
    folder.write("policies/owners.yaml", POLICIES.replace("owner: shop", "owner: team"));
    let run = folder.kiln(&[&PLAN[..], &["--brief"]].concat());
    assert!(
        run.stdout.contains("change v1/ConfigMap/shop/settings (policy owners, rule owner)"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("0 to create, 2 to change, 0 to delete"), "{}", run.stdout);
}

#[test]
fn wrong_revisions_and_directories_are_named() {
    let Some(folder) = repository() else { return };
    for (args, message) in [
        (["plan", "-k", "prod", "--base", "nowhere"], "has no revision nowhere"),
        (["plan", "-k", "prod", "--base", "--output=x"], ""),
        (["plan", "-k", "missing", "--base", "HEAD"], "missing"),
    ] {
        let run = folder.kiln(&args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
        assert!(run.stderr.contains(message), "{args:?}: {}", run.stderr);
    }
    let alone = Folder::with(&[("kustomization.yaml", "namePrefix: a-\n")]);
    let run = alone.kiln(&["plan", "-k", ".", "--base", "HEAD"]);
    assert_eq!(run.code, 2);
    assert!(run.stderr.contains("--base needs a directory in a git repository"), "{}", run.stderr);
}

#[test]
fn policies_are_applied_to_what_a_kustomization_builds() {
    let folder = Folder::with(&[
        ("base/all.yaml", BASE),
        ("base/kustomization.yaml", "resources: [all.yaml]\n"),
        ("prod/kustomization.yaml", "namespace: shop\nresources: [../base]\n"),
        ("owners.yaml", POLICIES),
    ]);
    let run = folder.kiln(&["apply", "owners.yaml", "-k", "prod", "--format", "yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stdout.contains("name: for-web\n  namespace: shop\n"), "{}", run.stdout);
    assert!(run.stdout.contains("labels:\n    owner: shop\n"), "{}", run.stdout);
    folder.write("base/all.yaml", BASE.replace("quiet", "loud"));
    let run = folder.kiln(&["apply", "owners.yaml", "-k", "prod"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stdout.contains("too loud"), "{}", run.stdout);
}

/// Charts see the objects of the cluster that a plan is for, and none without a cluster.
#[test]
fn charts_look_objects_up_in_the_cluster_of_the_plan() {
    let folder = Folder::with(&[
        (
            "settings.yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: default}\ndata: {color: red}\n",
        ),
        ("prod/kustomization.yaml", "helmCharts:\n- name: shop\n  releaseName: shop\n"),
        ("prod/charts/shop/Chart.yaml", "apiVersion: v2\nname: shop\nversion: 1.0.0\n"),
        ("prod/charts/shop/values.yaml", ""),
        (
            "prod/charts/shop/templates/shop.yaml",
            "{{- $found := lookup \"v1\" \"ConfigMap\" \"default\" \"settings\" }}\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: shop, namespace: default}\ndata: {color: {{ dig \"data\" \"color\" \"none\" $found }}}\n",
        ),
    ]);
    let plan = ["kiln", "plan", "-k", "prod", "--enable-helm", "--format", "yaml"];
    let run = folder.kiln(&[&["up", "--resource", "settings.yaml", "--"], &plan[..]].concat());
    assert!(run.stdout.contains("color: red\n"), "{}{}", run.stdout, run.stderr);
    let run = folder.kiln(&["build", "prod", "--enable-helm"]);
    assert!(run.stdout.contains("color: none\n"), "{}{}", run.stdout, run.stderr);
}

/// Pipelines check out few commits, of which none leads to the base.
#[test]
fn a_base_can_be_a_commit_that_was_fetched_alone() {
    let Some(folder) = repository() else { return };
    let changed = BASE.replace("quiet", "calm");
    assert!(git(&folder, &["checkout", "-q", "-b", "feature"]));
    folder.write("base/all.yaml", &changed);
    assert!(git(&folder, &["commit", "-q", "-a", "-m", "two"]));
    let pipeline = Folder::with(&[]);
    let url = format!("file://{}", folder.path().display());
    let clone = ["clone", "-q", "--depth", "1", "-b", "feature", url.as_str(), "."];
    assert!(git(&pipeline, &clone));
    let fetch = ["fetch", "-q", "--depth", "1", "origin", "main:refs/remotes/origin/main"];
    assert!(git(&pipeline, &fetch));
    let run = pipeline.kiln(&["plan", "-k", "prod", "policies", "--base", "origin/main"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(run.stdout.contains("-  mode: quiet\n+  mode: calm\n"), "{}", run.stdout);
    assert!(
        git(&pipeline, &["diff", "--quiet", "HEAD"]),
        "the work tree and its index are as before"
    );
}

#[test]
fn policies_with_errors_make_no_plan() {
    let Some(folder) = repository() else { return };
    folder.write("policies/owners.yaml", POLICIES.replace("generate:", "genrate:"));
    let run = folder.kiln(&PLAN);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{}", run.stderr);
    assert!(run.stderr.contains("there is no plan for policies with errors"), "{}", run.stderr);
}

#[test]
fn a_plan_is_a_page() {
    let Some(folder) = repository() else { return };
    folder.write("base/all.yaml", BASE.replace("quiet", "loud").replace("name: web", "name: site"));
    let run = folder.kiln(&[&PLAN[..], &["--format", "html"]].concat());
    assert_eq!(run.code, 1, "{}", run.stderr);
    for wanted in [
        "<b>2</b> create",
        "<b>2</b> delete",
        "<b>1</b> deny",
        "<th scope=\"row\">shop</th>",
        ">owners</text>",
        "too loud",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted}\n{}", run.stdout);
    }
    assert!(!run.stdout.contains("hush") && !run.stdout.contains("<script"), "{}", run.stdout);
}
