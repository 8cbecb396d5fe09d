//! What pipelines that called Kyverno's command line give to `kiln apply`.

use crate::harness::Folder;

const LABEL: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: add-label}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: shop}}}}
";
const QUOTA: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: quota}
spec:
  rules:
  - name: quota
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: '{{ request.object.metadata.name }}', data: {data: {a: b}}}
";
const IMAGES: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: require-team}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    verifyImages: [{imageReferences: ['*']}]
";
const EXCEPTION: &str = "\
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: e, namespace: a}
spec:
  exceptions: [{policyName: add-label, ruleNames: [label]}]
  match: {any: [{resources: {kinds: [ConfigMap], names: [one]}}]}
";

fn object(kind: &str, name: &str, namespace: &str) -> String {
    format!("apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}{namespace}}}\n")
}

fn folder() -> Folder {
    let map = |name: &str| object("ConfigMap", name, ", namespace: a");
    Folder::with(&[
        ("label.yaml", LABEL),
        ("quota.yaml", QUOTA),
        ("images.yaml", IMAGES),
        ("exception.yaml", EXCEPTION),
        ("one.yaml", &map("one")),
        ("two.yaml", &map("two")),
        ("ns.yaml", &object("Namespace", "shop", "")),
        ("both.yaml", &format!("{EXCEPTION}---\n{}", map("one"))),
    ])
}

#[test]
fn nothing_to_try_rules_on_is_an_error() {
    let run = folder().kiln(&["apply", "label.yaml"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(
        run.stderr.contains("there are no resources to apply the policies to"),
        "{}",
        run.stderr
    );
    assert!(run.stderr.contains("--resource"), "{}", run.stderr);
}

#[test]
fn a_policy_that_is_not_run_is_not_green() {
    let folder = folder();
    let run = folder.kiln(&["apply", "images.yaml", "-r", "one.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stderr.contains(
            "warning: no rule of policy require-team is run: nothing here was evaluated by it"
        ),
        "{}",
        run.stderr
    );
    // Beside rules that are run it is a warning.
    let run = folder.kiln(&["apply", "images.yaml", "label.yaml", "-r", "one.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(run.stderr.contains("no rule of policy require-team is run"), "{}", run.stderr);
    let strict = ["apply", "images.yaml", "label.yaml", "-r", "two.yaml", "--warnings-as-errors"];
    assert_eq!(folder.kiln(&strict).code, 1);
}

#[test]
fn lists_with_commas_and_exceptions_hold() {
    let folder = folder();
    let run = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml,two.yaml"]);
    assert!(
        run.stdout.ends_with("pass: 2, fail: 0, warn: 0, error: 0, skip: 0\n"),
        "{}",
        run.stdout
    );
    for args in [
        vec!["apply", "label.yaml", "-r", "one.yaml", "-e", "exception.yaml"],
        vec!["apply", "label.yaml", "-r", "one.yaml", "--exceptions", "exception.yaml"],
        vec!["apply", "label.yaml", "-r", "both.yaml", "--exceptions-within-resources"],
        vec![
            "apply",
            "label.yaml",
            "exception.yaml",
            "-r",
            "one.yaml",
            "--exceptions-within-policies",
        ],
    ] {
        let run = folder.kiln(&args);
        assert!(
            run.stdout.ends_with("pass: 0, fail: 0, warn: 0, error: 0, skip: 1\n"),
            "{args:?}: {} {}",
            run.stdout,
            run.stderr
        );
    }
    let run = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml", "-e", "two.yaml"]);
    assert!(
        run.code == 2 && run.stderr.contains("this is not a PolicyException"),
        "{}",
        run.stderr
    );
}

#[test]
fn words_of_forms_are_forms_and_folders_are_made() {
    let folder = folder();
    let run = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml", "-o", "json"]);
    assert!(run.stdout.starts_with('{') && !folder.path().join("json").exists(), "{}", run.stdout);
    let run = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml", "-i"]);
    assert!(run.stdout.starts_with("apiVersion: v1\n"), "{}", run.stdout);
    let run = folder.kiln(&[
        "apply",
        "label.yaml",
        "quota.yaml",
        "-r",
        "two.yaml,ns.yaml",
        "-o",
        "out/new/",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(folder.read("out/new/two-mutated.yaml").contains("team: shop"));
    assert!(folder.read("out/new/quota-generated.yaml").contains("name: made"));
}

#[test]
fn reports_are_of_the_group_that_is_asked_for() {
    let folder = folder();
    let run = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml", "-p"]);
    assert!(
        run.stdout.starts_with("apiVersion: openreports.io/v1alpha1\nkind: ClusterReport\n"),
        "{}",
        run.stdout
    );
    let old = ["apply", "label.yaml", "-r", "one.yaml", "-p", "--report-group", "wgpolicyk8s.io"];
    let run = folder.kiln(&[&old[..], &["--output-format", "json"]].concat());
    assert!(run.stdout.contains("\"apiVersion\": \"wgpolicyk8s.io/v1alpha2\""), "{}", run.stdout);
}

#[test]
fn options_without_effect_are_taken_and_those_that_cannot_be_had_say_so() {
    let folder = folder();
    let usual = ["apply", "label.yaml", "-r", "one.yaml"];
    let harmless = ["--remove-color", "--audit-warn", "--continue-on-fail", "-v", "2", "-n", "a"];
    assert_eq!(folder.kiln(&[&usual[..], &harmless].concat()).code, 0);
    let run = folder.kiln(&[&usual[..], &["--registry"]].concat());
    assert!(run.code == 0 && run.stderr.contains("asks no registries"), "{}", run.stderr);
    let run = folder.kiln(&[&usual[..], &["--password", "x"]].concat());
    assert!(run.code == 2 && run.stderr.contains("no passwords"), "{}", run.stderr);
    let run = folder.kiln_with_input(&["jp", "a.b"], b"{\"a\": {\"b\": 1}}");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n"));
    // As `kyverno jp` has it.
    folder.write("data.json", "{\"a\": {\"b\": 1}}");
    let run = folder.kiln(&["jp", "query", "-i", "data.json", "a.b", "a"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n{\n  \"b\": 1\n}\n"));
    let run = folder.kiln_with_input(&["jp", "query", "a", "b"], b"{\"a\": 1, \"b\": 2}");
    assert_eq!((run.code, run.stdout.as_str()), (0, "1\n2\n"));
    let run = folder.kiln(&["jp", "function", "to_upper"]);
    assert!(run.code == 0 && run.stdout.starts_with("to_upper("), "{}", run.stdout);
    assert_eq!(run.stdout.lines().count(), 1, "{}", run.stdout);
    let parsed = folder.kiln(&["jp", "parse", "a.b"]);
    assert_eq!((parsed.code, parsed.stdout), (0, folder.kiln(&["jp", "--parse", "a.b"]).stdout));
}

/// One value for each occurrence of an option, as pflag has it: what follows is a policy, not another resource.
#[test]
fn options_before_the_policies_leave_them_alone() {
    let folder = folder();
    let after = folder.kiln(&["apply", "label.yaml", "-r", "one.yaml"]);
    let before = folder.kiln(&["apply", "-r", "one.yaml", "label.yaml"]);
    assert_eq!((before.code, &before.stdout), (after.code, &after.stdout), "{}", before.stderr);
    folder.write("t/kyverno-test.yaml", "kind: Test\nnonsense: [\n");
    let run = folder.kiln(&["test", "--crds", "argo", "t"]);
    assert_eq!(run.code, 2, "{}{}", run.stdout, run.stderr);
}

#[test]
fn the_variable_for_offline_builds_takes_the_usual_words() {
    let folder = folder();
    folder.write("k/kustomization.yaml", "resources: [https://example.com/a.yaml]\n");
    for (value, offline) in [("1", true), ("true", true), ("yes", true)] {
        let run = folder.kiln_with_variables(&["build", "k"], &[("KILN_OFFLINE", value)]);
        assert_eq!(run.stderr.contains("offline"), offline, "{value:?}: {}", run.stderr);
    }
    folder.write("l/kustomization.yaml", "namePrefix: a-\nresources: [cm.yaml]\n");
    folder.write("l/cm.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}");
    for value in ["", "0", "false", "1"] {
        let run = folder.kiln_with_variables(&["build", "l"], &[("KILN_OFFLINE", value)]);
        assert_eq!(run.code, 0, "{value:?}: {}", run.stderr);
    }
}

#[test]
fn policies_come_from_repositories() {
    let folder = folder();
    let git = |args: &[&str]| {
        let done = std::process::Command::new("git")
            .args([
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@example.com",
                "-c",
                "init.defaultBranch=main",
            ])
            .args(args)
            .current_dir(folder.path().join("r.git"))
            .output();
        done.is_ok_and(|done| done.status.success())
    };
    folder.write("r.git/policies/label.yaml", LABEL);
    if !(git(&["init"]) && git(&["add", "."]) && git(&["commit", "-m", "x"])) {
        kiln_testkit::skip("git does not work here", "install git");
        return;
    }
    let address = format!("file://{}/r.git//policies", folder.path().display());
    let run = folder.kiln(&["apply", &address, "-b", "main", "-r", "one.yaml"]);
    assert!(run.stdout.contains("pass: 1"), "{} {}", run.stdout, run.stderr);
}

#[test]
fn resources_that_a_server_would_name_are_taken() {
    let folder = folder();
    folder.write(
        "unnamed.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {generateName: web-, namespace: a}\n",
    );
    let run = folder.kiln(&["apply", "label.yaml", "-r", "unnamed.yaml", "--format", "yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert!(
        run.stdout.contains("generateName: web-") && run.stdout.contains("team: shop"),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains(" name: "), "{}", run.stdout);
}

#[test]
fn fields_that_a_kind_does_not_have_fail_in_apply_configurations() {
    let policy = |field: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: MutatingPolicy\nmetadata: {{name: scale}}\nspec:\n  matchConstraints:\n    resourceRules:\n    \
             - {{apiGroups: [apps], apiVersions: [v1], operations: [CREATE], resources: [deployments]}}\n  mutations:\n  - patchType: ApplyConfiguration\n    \
             applyConfiguration: {{expression: 'Object{{spec: Object.spec{{{field}: 3}}}}'}}\n"
        )
    };
    let folder = Folder::with(&[
        ("good.yaml", &policy("replicas")),
        ("typo.yaml", &policy("replicaz")),
        (
            "web.yaml",
            "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web, namespace: a}\nspec: {template: {}}\n",
        ),
    ]);
    let run = folder.kiln(&["apply", "good.yaml", "-r", "web.yaml"]);
    assert!(run.code == 0 && run.stdout.contains("replicas: 3"), "{}", run.stdout);
    let run = folder.kiln(&["apply", "typo.yaml", "-r", "web.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(
        run.stdout.contains("failed to convert patch object to typed object: .spec.replicaz: field not declared in schema"),
        "{}",
        run.stdout
    );
}

/// A plan of stored policies says which of their rules it leaves out.
#[test]
fn stored_rules_that_are_not_run_are_named() {
    let policy = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: mixed}
spec:
  rules:
  - name: label
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: a}}}}
  - name: images
    match: {any: [{resources: {kinds: [Pod]}}]}
    verifyImages: [{imageReferences: ['*']}]
";
    let folder = Folder::with(&[("rules.yaml", policy)]);
    let run = folder.kiln(&["up", "rules.yaml", "--", "kiln", "plan"]);
    let said = "not run by Kiln, and not part of this plan: mixed/images (verifyImages)\n";
    assert!(run.stderr.contains(said), "{} {}", run.stdout, run.stderr);
}

#[test]
fn a_policy_that_cannot_be_fetched_is_named_once() {
    let folder =
        Folder::with(&[("r.yaml", "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}")]);
    // Nothing listens there.
    let address = "http://127.0.0.1:1/policy.yaml";
    let run = folder.kiln(&["apply", address, "--resource", "r.yaml"]);
    assert_eq!((run.code, run.stderr.matches(address).count()), (2, 1), "{}", run.stderr);
    assert!(run.stderr.contains(&format!("cannot fetch {address}: ")), "{}", run.stderr);
}
