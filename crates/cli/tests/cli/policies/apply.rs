//! `kiln apply` and `kiln check`

use kiln_value::{Value, json};

use crate::harness::Folder;

const POLICY: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: settings
spec:
  rules:
  - name: for-each-namespace
    match:
      any:
      - resources:
          kinds: [Namespace]
    context:
    - name: owner
      configMap: {name: owner, namespace: default}
    preconditions:
      all:
      - key: '{{ request.object.metadata.name }}'
        operator: NotEquals
        value: quiet
    generate:
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: '{{ request.object.metadata.name }}'
      synchronize: true
      data:
        data:
          owner: '{{ owner.data.name }}'
";

const NAMESPACES: &str = "\
apiVersion: v1
kind: Namespace
metadata: {name: team-a}
---
apiVersion: v1
kind: Namespace
metadata: {name: quiet}
";

fn folder() -> Folder {
    Folder::with(&[("policy.yaml", POLICY), ("namespaces.yaml", NAMESPACES)])
}

#[test]
fn objects_alone_are_a_yaml_stream_that_reads_back() {
    let folder = folder();
    let run = folder.kiln(&[
        "apply",
        "policy.yaml",
        "-r",
        "namespaces.yaml",
        "-s",
        "owner.data.name=jane",
        "--format",
        "yaml",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let again = folder.kiln_with_input(&["fmt", "-"], run.stdout.as_bytes());
    assert_eq!(again.stdout, run.stdout);

    let run = folder.kiln(&[
        "apply",
        "policy.yaml",
        "-r",
        "namespaces.yaml",
        "-s",
        "owner.data.name=jane",
        "--format",
        "json",
    ]);
    let result = json::parse(&run.stdout).unwrap();
    assert_eq!(result.get_path(["summary", "pass"]), Some(&Value::from(1)));
    assert_eq!(
        result.get("objects").and_then(Value::as_list).map(|objects| objects.len()),
        Some(1)
    );
}

#[test]
fn objects_go_to_a_file_or_a_folder() {
    let folder = folder();
    folder.write("out/keep", "");
    let base =
        ["apply", "policy.yaml", "-r", "namespaces.yaml", "-s", "owner.data.name=jane", "-o"];
    assert_eq!(folder.kiln(&[&base[..], &["objects.yaml"]].concat()).code, 0);
    assert!(folder.read("objects.yaml").starts_with("apiVersion: v1\ndata:\n  owner: jane\n"));
    assert_eq!(folder.kiln(&[&base[..], &["out"]].concat()).code, 0);
    assert_eq!(folder.read("out/settings-generated.yaml"), folder.read("objects.yaml"));
}

#[test]
fn given_objects_are_updated_or_left_alone_and_the_difference_is_shown() {
    let folder = folder();
    folder.write(
        "old.yaml",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings, namespace: team-a}\ndata: {owner: joe}\n",
    );
    let base = [
        "apply",
        "policy.yaml",
        "-r",
        "namespaces.yaml",
        "-s",
        "owner.data.name=jane",
        "--target-resource",
        "old.yaml",
    ];
    let run = folder.kiln(&[&base[..], &["--diff"]].concat());
    assert!(run.stdout.contains("updated v1/ConfigMap/team-a/settings"), "{}", run.stdout);
    assert!(run.stdout.contains("-  owner: joe\n+  owner: jane\n"), "{}", run.stdout);

    folder.write("policy.yaml", POLICY.replace("synchronize: true", "synchronize: false"));
    let run = folder.kiln(&base);
    assert!(run.stdout.contains("left alone v1/ConfigMap/team-a/settings"), "{}", run.stdout);
}

#[test]
fn the_trace_says_why_a_resource_does_not_match() {
    let folder = folder();
    folder.write(
        "pod.yaml",
        "apiVersion: v1\nkind: Namespace\nmetadata: {name: x, labels: {a: b}}\n",
    );
    folder.write(
        "policy.yaml",
        POLICY.replace("kinds: [Namespace]", "kinds: [Namespace]\n          names: ['team-*']"),
    );
    let run = folder.kiln(&["apply", "policy.yaml", "-r", "pod.yaml", "--trace"]);
    assert_eq!(run.code, 0);
    assert!(run.stdout.contains("Namespace x: no match"), "{}", run.stdout);
    assert!(run.stdout.contains("no match: names: \"x\" is none of team-*"), "{}", run.stdout);

    let excluded = POLICY.replace(
        "    context:",
        "    exclude:\n      any:\n      - resources: {names: [x]}\n    context:",
    );
    folder.write("policy.yaml", excluded);
    folder.write("other.yaml", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\n");
    let run =
        folder.kiln(&["apply", "policy.yaml", "-r", "pod.yaml", "-r", "other.yaml", "--trace"]);
    assert!(
        run.stdout.contains("no match: excluded by names: \"x\" is one of x"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("Secret default/s: no rule names this kind"), "{}", run.stdout);
}

const LABELS: &str = "\
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata:
  name: labels
spec:
  rules:
  - name: add-team
    match:
      any:
      - resources:
          kinds: [Namespace, ConfigMap]
    mutate:
      patchStrategicMerge:
        metadata:
          labels:
            +(team): shop
";

#[test]
fn mutate_rules_patch_resources_and_what_other_rules_make() {
    let folder = folder();
    folder.write("labels.yaml", LABELS);
    let run = folder.kiln(&[
        "apply",
        "policy.yaml",
        "labels.yaml",
        "-r",
        "namespaces.yaml",
        "-s",
        "owner.data.name=jane",
        "--format",
        "json",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let result = json::parse(&run.stdout).unwrap();
    let objects = result.get("objects").and_then(Value::as_list).unwrap();
    let seen: Vec<[String; 3]> = objects
        .iter()
        .map(|object| {
            let at =
                |path: &[&str]| object.str_at(path.iter().copied()).unwrap_or_default().to_owned();
            [at(&["kind"]), at(&["metadata", "name"]), at(&["metadata", "labels", "team"])]
        })
        .collect();
    assert_eq!(seen.len(), 3, "{seen:?}");
    for (kind, name) in [("Namespace", "team-a"), ("ConfigMap", "settings"), ("Namespace", "quiet")]
    {
        assert!(seen.contains(&[kind, name, "shop"].map(String::from)), "{kind} {name}: {seen:?}");
    }
}

#[test]
fn a_policy_name_is_no_way_out_of_the_folder() {
    let folder = folder();
    folder.write("a/b/keep", "");
    folder.write(
        "policy.yaml",
        POLICY.replace("name: settings\nspec", "name: '../../escaped'\nspec"),
    );
    folder.kiln(&[
        "apply",
        "policy.yaml",
        "-r",
        "namespaces.yaml",
        "-s",
        "owner.data.name=jane",
        "-o",
        "a/b",
    ]);
    assert!(!folder.path().join("escaped-generated.yaml").exists());
}

#[test]
fn policies_that_are_not_run_are_named_once() {
    let folder = folder();
    folder.write(
        "ivpol.yaml",
        "apiVersion: policies.kyverno.io/v1\nkind: ImageValidatingPolicy\nmetadata: {name: v}\n",
    );
    folder.write(
        "nivpol.yaml",
        "apiVersion: policies.kyverno.io/v1\nkind: NamespacedImageValidatingPolicy\nmetadata: {name: m}\n",
    );
    let run = folder.kiln(&["check", "ivpol.yaml", "nivpol.yaml", "policy.yaml"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    assert_eq!(run.stderr.matches("not run by Kiln").count(), 2, "{}", run.stderr);
    assert!(run.stdout.ends_with("0 problems, 2 not run by Kiln\n"), "{}", run.stdout);
}

#[test]
fn a_kind_that_nobody_knows_is_a_warning_unless_it_is_given() {
    let folder = folder();
    let check = |kinds: &str, args: &[&str]| {
        folder.write("policy.yaml", POLICY.replace("kinds: [Namespace]", kinds));
        let run = folder.kiln(args);
        assert_eq!(run.code, 0, "{}", run.stderr);
        run.stderr
    };
    let apply =
        |resource| ["apply", "policy.yaml", "--set=owner.data.name=jane", "--resource", resource];
    let said = check("kinds: [Namespace, Widget]", &["check", "policy.yaml"]);
    assert!(said.contains("no kind \"Widget\" is known"), "{said}");
    assert!(said.contains("give its CustomResourceDefinition along"), "{said}");
    let said = check("kinds: [Widget]", &apply("namespaces.yaml"));
    assert!(said.contains("no kind \"Widget\" is known"), "{said}");
    folder.write("widget.yaml", "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: a}\n");
    let said = check("kinds: [Widget]", &apply("widget.yaml"));
    assert!(!said.contains("is known"), "{said}");
    for known in ["kinds: [example.com/v1/Widget]", "kinds: [UpdateRequest]", "kinds: ['W*']"] {
        let said = check(known, &["check", "policy.yaml"]);
        assert!(!said.contains("is known"), "{known}: {said}");
    }
}

#[test]
fn rules_that_warn_are_counted_and_may_have_an_exit_code() {
    let policy = POLICY.replace(
        "      configMap: {name: owner, namespace: default}",
        "      apiCall: {urlPath: '/api/v1/namespaces?labelSelector=a%3Db?limit=5', jmesPath: 'length(items)'}",
    );
    let folder = Folder::with(&[
        ("policy.yaml", &policy.replace("owner.data.name", "to_string(owner)")),
        ("namespaces.yaml", NAMESPACES),
    ]);
    let args = ["apply", "policy.yaml", "--resource", "namespaces.yaml", "--warn-exit-code", "3"];
    let run = folder.kiln(&args);
    assert!(run.stdout.contains("Namespace team-a: warn"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with("pass: 0, fail: 0, warn: 1, error: 0, skip: 1\n"),
        "{}",
        run.stdout
    );
    assert_eq!(run.code, 3, "{}", run.stderr);
}

#[test]
fn json_has_reasons_traces_and_untouched_resources() {
    let folder = folder();
    folder.write("pod.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}}");
    let args =
        ["apply", "policy.yaml", "-r", "namespaces.yaml,pod.yaml", "--set", "owner.data.name=x"];
    let run = folder.kiln(&[&args[..], &["--format", "json", "--trace"]].concat());
    let report = json::parse(&run.stdout).unwrap();
    let results = report.get("results").and_then(Value::as_list).unwrap();
    let quiet =
        results.iter().find(|r| r.str_at(["resource"]) == Some("v1/Namespace/quiet")).unwrap();
    assert_eq!(quiet.str_at(["result"]), Some("skip"));
    assert!(quiet.str_at(["why"]).is_some() && quiet.get("trace").is_some(), "{}", run.stdout);
    let untouched = report.get("untouched").and_then(Value::as_list).unwrap();
    assert_eq!(untouched[0].as_str(), Some("v1/Pod/default/p"));
    let plain = folder.kiln(&[&args[..], &["--format", "json"]].concat()).stdout;
    assert!(!plain.contains("\"trace\""), "{plain}");
}

#[test]
fn values_of_objects_are_no_structure() {
    let rule = "\
apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: agent, namespace: dev}
spec:
  type: Patch
  match: [{select: $.kind, matchValue: Pod}]
  patch:
  - op: add
    path: /spec/containers/-1
    value: |-
      name: agent
      image: agent:{{ .Target.metadata.annotations.v }}
";
    let pod = "\
apiVersion: v1
kind: Pod
metadata:
  name: p
  namespace: dev
  annotations: {v: \"1\\nsecurityContext: {privileged: true}\"}
spec: {containers: [{name: app, image: app}]}
";
    let counting = rule.replace(
        "image: agent:{{ .Target.metadata.annotations.v }}",
        "{{ .Target.metadata.annotations.v }}",
    );
    let folder =
        Folder::with(&[("rule.yaml", rule), ("counting.yaml", &counting), ("pod.yaml", pod)]);
    let run = folder.kiln(&["apply", "rule.yaml", "--resource", "pod.yaml", "--format", "json"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(
        run.stdout.contains(r#""agent:1\nsecurityContext: {privileged: true}""#),
        "{}",
        run.stdout
    );
    assert!(!run.stdout.contains(r#""privileged""#), "{}", run.stdout);
    let run = folder.kiln(&["check", "counting.yaml"]);
    let said = format!("{}{}", run.stdout, run.stderr);
    assert!(said.contains("stands where structure would"), "{said}");
}

#[test]
fn names_cannot_steer_the_terminal() {
    let hostile = r#""\e[31mteam\a-\u009b2J-x\npass: 9""#;
    let policy = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
  - name: NAME
    match: {any: [{resources: {kinds: [ConfigMap]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}
"
    .replace("NAME", r#""add\e[2J""#);
    let map = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {hostile}}}\n");
    let folder = Folder::with(&[("p.yaml", &policy), ("r.yaml", &map)]);
    for more in
        [&[][..], &["--diff"], &["--table"], &["--table", "--detailed-results"], &["--trace"]]
    {
        let run = folder.kiln(&[&["apply", "p.yaml", "--resource", "r.yaml"], more].concat());
        for text in [&run.stdout, &run.stderr] {
            let obeyed = text.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(obeyed, None, "{more:?}: {text}");
            assert!(!text.lines().any(|line| line.starts_with("pass: 9")), "{more:?}: {text}");
        }
    }
}

#[test]
fn a_mutating_policy_without_targets_changes_target_resources() {
    let policy = |evaluation: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {{name: label}}
spec:
  evaluation: {{mutateExisting: {{enabled: true}}{evaluation}}}
  matchConstraints:
    resourceRules: [{{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces]}}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {{expression: 'Object{{metadata: Object.metadata{{labels: {{\"mykey\": \"myvalue\"}}}}}}'}}
"
        )
    };
    let namespace = |name: &str| {
        format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}, labels: {{mykey: foo}}}}}}\n---\n"
        )
    };
    let patched = |name: &str| format!("patched v1/Namespace/{name}\n");
    let given = [namespace("one"), namespace("two")].concat();
    let others = namespace("three");
    for evaluation in ["", ", admission: {enabled: false}"] {
        let folder = Folder::with(&[
            ("policy.yaml", &policy(evaluation)),
            ("given.yaml", &given),
            ("others.yaml", &others),
        ]);
        let run = folder.kiln(&[
            "apply",
            "policy.yaml",
            "-r",
            "given.yaml",
            "--target-resource",
            "others.yaml",
        ]);
        assert_eq!(run.code, 0, "{evaluation}: {}{}", run.stdout, run.stderr);
        for name in ["one", "two", "three"] {
            assert_eq!(run.stdout.matches(&patched(name)).count(), 1, "{name}: {}", run.stdout);
        }
        assert_eq!(run.stdout.matches("mykey: myvalue").count(), 3, "{}", run.stdout);
        // Without others, each resource stands for itself.
        let run = folder.kiln(&["apply", "policy.yaml", "-r", "given.yaml"]);
        assert!(run.stdout.contains("pass: 2"), "{evaluation}: {}", run.stdout);
    }
}
