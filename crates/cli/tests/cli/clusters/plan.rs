//! `kiln plan` and `kiln apply --cluster`, on a real control plane without an engine.

use kiln_testkit::control_plane::ControlPlane;

use crate::clusters::adopt::made;
use crate::harness::{Folder, Run, SETTINGS_POLICY, install};

const GENERATE: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: defaults}
spec:
  rules:
  - name: limits
    match: {any: [{resources: {kinds: [Namespace], names: ['team-*']}}]}
    generate:
      generateExisting: true
      synchronize: true
      apiVersion: v1
      kind: LimitRange
      name: limits
      namespace: '{{request.object.metadata.name}}'
      data: {spec: {limits: [{type: Container, default: {cpu: 100m}}]}}
  - name: token
    match: {any: [{resources: {kinds: [Namespace], names: [team-a]}}]}
    generate:
      apiVersion: v1
      kind: Secret
      name: token
      namespace: '{{request.object.metadata.name}}'
      data: {stringData: {password: hush}}
";

const MUTATE: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [team-a], names: [settings]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {owner: a}}}}
";

const REJECT: &str = "apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: no-loud, namespace: team-a}
spec:
  type: Reject
  match:
  - {select: '$.kind', matchValue: ConfigMap}
  - {select: '$.data.mode', matchValue: loud}
  rejectMessage: too loud
";

const OBJECTS: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: team-b}}
---
{apiVersion: v1, kind: ConfigMap, metadata: {name: settings, namespace: team-a}, data: {mode: loud}}
";

#[test]
fn says_what_would_change_and_changes_nothing() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster.apply(OBJECTS).unwrap();
    let folder = Folder::with(&[("g.yaml", GENERATE), ("m.yaml", MUTATE), ("r.yaml", REJECT)]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let kiln = |command: &str, args: &[&str]| -> Run {
        folder.kiln(&[&[command, "--kubeconfig", &kubeconfig], args].concat())
    };
    let run = kiln("plan", &["g.yaml", "--brief"]);
    assert_eq!(
        (run.code, run.stdout.as_str()),
        (
            1,
            "create v1/LimitRange/team-a/limits (policy defaults, rule limits)\n\
             create v1/LimitRange/team-b/limits (policy defaults, rule limits)\n\
             note: policy defaults, rule token acts on new objects only; --all shows what it does with existing ones\n\
             2 to create, 0 to change, 0 to delete\n"
        ),
        "{}",
        run.stderr
    );
    let run = kiln("plan", &["g.yaml"]);
    assert!(run.stdout.contains("+  - default:\n+      cpu: 100m\n"), "{}", run.stdout);
    for (command, flag) in [("plan", "--all"), ("apply", "--cluster")] {
        let run = kiln(command, &["g.yaml", flag]);
        assert_eq!(run.code, 1, "{}", run.stderr);
        assert!(
            run.stdout.contains("create v1/Secret/team-a/token (policy defaults, rule token)\n"),
            "{}",
            run.stdout
        );
        assert!(run.stdout.contains("+  password: '*** (as it would be)'\n"), "{}", run.stdout);
        assert!(run.stdout.ends_with("3 to create, 0 to change, 0 to delete\n"), "{}", run.stdout);
    }
    let run = kiln("plan", &["m.yaml", "r.yaml"]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stdout.contains("on their next write:\ndeny v1/ConfigMap/team-a/settings (policy label, rule owner; policy team-a/no-loud"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("too loud"), "{}", run.stdout);
    let run = kiln("plan", &["m.yaml"]);
    assert!(run.stdout.contains("+  labels:\n+    owner: a\n"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with(
            "0 to create, 0 to change, 0 to delete; 1 object changes on its next write\n"
        ),
        "{}",
        run.stdout
    );
    let run = kiln("plan", &["m.yaml", "--format=table"]);
    assert!(
        run.stdout.contains("change later   v1/ConfigMap/team-a/settings   label"),
        "{}",
        run.stdout
    );
    let run = kiln("plan", &["g.yaml", "--format=json"]);
    assert!(run.stdout.contains("\"create\": 2"), "{}", run.stdout);

    // Nothing was written.
    assert_eq!(cluster.kubectl(&["get", "limitrange,secret", "-A", "-o", "name"]).unwrap(), "");

    // What is as the rules want it would not change, though the server added to it.
    let made = kiln("plan", &["g.yaml", "--all", "--format=json"]);
    let made = kiln_value::json::parse(&made.stdout).unwrap();
    for change in made.get("changes").unwrap().as_list().unwrap() {
        let mut after = change.get("after").unwrap().clone();
        if after.str_at(["kind"]) == Some("Secret") {
            after.set(["data", "password"], "aHVzaA==").unwrap();
        }
        cluster.apply(&kiln_yaml::emit(&after)).unwrap();
    }
    let run = kiln("plan", &["g.yaml", "--all"]);
    assert_eq!((run.code, run.stdout.as_str()), (0, "nothing would change\n"), "{}", run.stderr);
    cluster
        .kubectl(&[
            "patch",
            "limitrange",
            "limits",
            "-n",
            "team-b",
            "--type=merge",
            "-p",
            r#"{"spec":{"limits":[]}}"#,
        ])
        .unwrap();
    let run = kiln("plan", &["g.yaml", "--all", "--brief"]);
    assert_eq!(run.code, 1, "{}", run.stdout);
    assert!(run.stdout.starts_with("change v1/LimitRange/team-b/limits"), "{}", run.stdout);
}

const SECRET: &str = "apiVersion: v1
kind: Secret
metadata: {name: login, namespace: team-a}
stringData: {same: hush-same, old: hush-old}
";

/// What a stored Secret gets now, and on its next write.
const SECRETIVE: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: secretive}
spec:
  rules:
  - name: now
    match: {any: [{resources: {kinds: [Namespace], names: [team-a]}}]}
    mutate:
      mutateExistingOnPolicyUpdate: true
      targets: [{apiVersion: v1, kind: Secret, name: login, namespace: team-a}]
      patchStrategicMerge: {stringData: {old: hush-new}}
  - name: later
    match: {any: [{resources: {kinds: [Secret], namespaces: [team-a], names: [login]}}]}
    mutate: {patchStrategicMerge: {stringData: {later: hush-later}}}
";

#[test]
fn values_of_secrets_are_shown_in_no_form() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster.apply(OBJECTS).unwrap();
    // kubectl keeps what it applied.
    cluster.kubectl_with_input(&["apply", "--server-side=false", "-f", "-"], SECRET).unwrap();
    let folder = Folder::with(&[("g.yaml", GENERATE), ("s.yaml", SECRETIVE)]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let plan = |form: &str| {
        let args = ["plan", "g.yaml", "s.yaml", "--all", "--kubeconfig", &kubeconfig, form];
        let run = folder.kiln(&args);
        assert_eq!(run.code, 1, "{}", run.stderr);
        for hidden in ["hush", "aHVzaA", "aHVza"] {
            assert!(!run.stdout.contains(hidden), "{form}: {hidden:?} in\n{}", run.stdout);
        }
        run.stdout
    };
    let text = plan("--format=text");
    for wanted in [
        "create v1/Secret/team-a/token (policy defaults, rule token)\n",
        "change v1/Secret/team-a/login (policy secretive, rule now",
        "-  old: '*** (as it is)'\n",
        "+  old: '*** (as it would be)'\n",
        "   same: '***'\n",
        "on their next write:\nchange v1/Secret/team-a/login (policy secretive, rule later)\n",
        "+  later: '*** (as it would be)'\n",
    ] {
        assert!(text.contains(wanted), "{wanted:?} is missing in\n{text}");
    }
    plan("--format=table");
    let all = kiln_value::json::parse(&plan("--format=json")).unwrap();
    let changes = all.get("changes").unwrap().as_list().unwrap();
    let change = changes
        .iter()
        .find(|change| change.str_at(["object"]) == Some("v1/Secret/team-a/login"))
        .unwrap();
    for (side, old) in [("before", "*** (as it is)"), ("after", "*** (as it would be)")] {
        assert_eq!(change.str_at([side, "data", "same"]), Some("***"), "{change:?}");
        assert_eq!(change.str_at([side, "data", "old"]), Some(old), "{change:?}");
    }
}

const GENERATING: &str = "apiVersion: policies.kyverno.io/v1
kind: GeneratingPolicy
metadata: {name: notes}
spec:
  evaluation: {generateExisting: {enabled: true}, synchronize: {enabled: true}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [namespaces]}]
  matchConditions: [{name: teams, expression: object.metadata.name.startsWith('team-')}]
  generate:
  - expression: >-
      generator.Apply(object.metadata.name, [{'apiVersion': 'v1', 'kind': 'ConfigMap', 'metadata': {'name': 'note'}, 'data': {'k': 'v'}}])
";

const MUTATING: &str = "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: owner}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps], resourceNames: [note, settings]}]
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: Object.data{owner: \"cel\"}}'}
";

const TARGETS: &str = "apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: calm}
spec:
  rules:
  - name: quiet
    match: {any: [{resources: {kinds: [Namespace], names: [team-a]}}]}
    mutate:
      mutateExistingOnPolicyUpdate: true
      targets: [{apiVersion: v1, kind: ConfigMap, name: settings, namespace: team-a}]
      patchStrategicMerge: {data: {mode: quiet}}
";

const MUTATING_STORED: &str = "apiVersion: policies.kyverno.io/v1
kind: MutatingPolicy
metadata: {name: stored}
spec:
  evaluation: {mutateExisting: {enabled: true}, admission: {enabled: false}}
  matchConstraints:
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [namespaces], resourceNames: [team-a]}]
  targetMatchConstraints: {expression: \"resource.Get('v1', 'configmaps', object.metadata.name, 'settings')\"}
  mutations:
  - patchType: ApplyConfiguration
    applyConfiguration: {expression: 'Object{data: Object.data{mode: \"calm\"}}'}
";

const COST: &str = "apiVersion: api.kubemod.io/v1beta1
kind: ModRule
metadata: {name: cost, namespace: team-a}
spec:
  type: Patch
  match:
  - {select: $.kind, matchValue: ConfigMap}
  - {select: $.metadata.name, matchValue: note}
  patch:
  - {op: add, path: /data/cost, value: '\"7\"'}
";

#[test]
fn every_dialect_is_played() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster.apply(OBJECTS).unwrap();
    let folder = Folder::with(&[
        ("g.yaml", GENERATING),
        ("m.yaml", MUTATING),
        ("t.yaml", TARGETS),
        ("c.yaml", COST),
        ("s.yaml", MUTATING_STORED),
        (
            "r.yaml",
            &REJECT.replace("$.data.mode', matchValue: loud", "$.metadata.name', matchValue: note"),
        ),
    ]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let created = "create v1/ConfigMap/team-a/note (policy notes, rule notes)\n\
                   create v1/ConfigMap/team-b/note (policy notes, rule notes)\n";
    let later =
        "on their next write:\nchange v1/ConfigMap/team-a/settings (policy owner, rule owner)\n";
    for (rules, wanted) in [
        (&["g.yaml"][..], format!("{created}2 to create, 0 to change, 0 to delete\n")),
        (
            &["m.yaml"],
            format!(
                "{later}0 to create, 0 to change, 0 to delete; 1 object changes on its next write\n"
            ),
        ),
        (
            &["t.yaml"],
            "change v1/ConfigMap/team-a/settings (policy calm, rule quiet)\n\
             0 to create, 1 to change, 0 to delete\n"
                .into(),
        ),
        (
            &["s.yaml"],
            "change v1/ConfigMap/team-a/settings (policy stored, rule stored)\n\
             0 to create, 1 to change, 0 to delete\n"
                .into(),
        ),
        (&["c.yaml"], "nothing would change\n".into()),
    ] {
        let args = ["plan", "--brief", "--kubeconfig", &kubeconfig];
        let run = folder.kiln(&[&args[..], rules].concat());
        assert_eq!(run.stdout, wanted, "{rules:?}: {}", run.stderr);
    }
    // What rules make passes those that act at admission, as it does when all are stored.
    let plan = |rules: &[&str]| {
        let args = ["plan", "--format=json", "--kubeconfig", &kubeconfig];
        let run = folder.kiln(&[&args[..], rules].concat());
        kiln_value::json::parse(&run.stdout).unwrap_or_else(|_| panic!("{}", run.stderr))
    };
    let all = plan(&["g.yaml", "m.yaml", "t.yaml", "c.yaml"]);
    let changes = all.get("changes").unwrap().as_list().unwrap();
    let data = |object: &str| {
        let named = |change: &&kiln_value::Value| change.str_at(["object"]) == Some(object);
        changes.iter().find(named).and_then(|change| change.get_path(["after", "data"])).unwrap()
    };
    for (object, wanted) in [
        ("v1/ConfigMap/team-a/note", kiln_value::value!({"k": "v", "owner": "cel", "cost": "7"})),
        ("v1/ConfigMap/team-b/note", kiln_value::value!({"k": "v", "owner": "cel"})),
        ("v1/ConfigMap/team-a/settings", kiln_value::value!({"mode": "quiet", "owner": "cel"})),
    ] {
        assert_eq!(*data(object), wanted, "{object}");
    }
    // What they refuse is not made.
    let args = ["plan", "g.yaml", "r.yaml", "--brief", "--kubeconfig", &kubeconfig];
    let run = folder.kiln(&args);
    assert!(run.stdout.starts_with("create v1/ConfigMap/team-b/note"), "{}", run.stdout);
    assert!(
        run.stdout.contains(
            "not done: gpol:notes/notes: v1/ConfigMap/team-a/note: modrule:team-a/no-loud"
        ),
        "{}",
        run.stdout
    );
}

/// A ClusterPolicy with one rule that labels objects of a kind.
fn labelling(name: &str, failure: &str, kind: &str, label: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n\
         \x20 background: false\n  failurePolicy: {failure}\n  rules:\n  - name: label\n\
         \x20   match: {{any: [{{resources: {{kinds: [{kind}]}}}}]}}\n\
         \x20   mutate: {{patchStrategicMerge: {{metadata: {{labels: {{by: \"{label}\"}}}}}}}}\n"
    )
}

#[test]
fn next_writes_are_judged_as_webhooks_would() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster.apply(OBJECTS).unwrap();
    let kept_out = "{apiVersion: v1, kind: LimitRange, metadata: {name: here, namespace: kube-system}}
---
{apiVersion: v1, kind: LimitRange, metadata: {name: here, namespace: team-a}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: none, namespace: team-a}, spec: {replicas: 0,
  selector: {matchLabels: {app: none}}, template: {metadata: {labels: {app: none}}, spec: {containers: [{name: a, image: a}]}}}}
";
    cluster.apply(kept_out).unwrap();
    let of_replica_sets = REJECT
        .replace("matchValue: ConfigMap", "matchValue: ReplicaSet")
        .replace("  - {select: '$.data.mode', matchValue: loud}\n", "");
    let who = "{{request.userInfo.username}}";
    let folder = Folder::with(&[
        (
            "fails.yaml",
            &labelling(
                "fails",
                "Fail",
                "LimitRange",
                "{{request.object.metadata.annotations.none}}",
            ),
        ),
        (
            "lets-pass.yaml",
            &labelling(
                "lets-pass",
                "Ignore",
                "LimitRange",
                "{{request.object.metadata.annotations.none}}",
            ),
        ),
        ("who.yaml", &labelling("who", "Fail", "LimitRange", who)),
        ("sets.yaml", &labelling("sets", "Fail", "ReplicaSet", "all")),
        ("rejects.yaml", &of_replica_sets),
    ]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    for (rules, code, wanted) in [
        // What fails is refused where the policy says so, and kube-system is not sent to webhooks.
        (
            "fails.yaml",
            1,
            "on their next write:\ndeny v1/LimitRange/team-a/here (policy fails, rule label): the rule fails: ",
        ),
        ("lets-pass.yaml", 0, "nothing would change\n"),
        // The user of the command is the writer.
        (
            "who.yaml",
            1,
            "on their next write:\nchange v1/LimitRange/team-a/here (policy who, rule label)\n0 to",
        ),
        // The settings keep ReplicaSets from all rules but ModRules.
        ("sets.yaml", 0, "nothing would change\n"),
        (
            "rejects.yaml",
            1,
            "on their next write:\ndeny apps/v1/ReplicaSet/team-a/none (policy team-a/no-loud, rule no-loud): team-a/no-loud: \"too loud\"\n",
        ),
    ] {
        let run = folder.kiln(&["plan", "--brief", "--kubeconfig", &kubeconfig, rules]);
        assert_eq!(run.code, code, "{rules}: {}{}", run.stdout, run.stderr);
        assert!(run.stdout.starts_with(wanted), "{rules}: {}", run.stdout);
    }
}

#[test]
fn what_is_stored_already_counts() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let second = SETTINGS_POLICY
        .replace("name: settings}", "name: second}")
        .replace("mode: quiet", "mode: loud");
    // Its rule for other objects is as good as the one that may not change.
    let narrower = SETTINGS_POLICY.replace("team-*", "team-a")
        + "  - name: label\n    match: {any: [{resources: {kinds: [ConfigMap]}}]}\n\
           \x20   mutate: {patchStrategicMerge: {metadata: {labels: {seen: 'yes'}}}}\n";
    let folder = Folder::with(&[("second.yaml", &second), ("narrower.yaml", &narrower)]);
    install(&cluster, &folder, &[]);
    cluster.kubectl_with_input(&["create", "-f", "-"], SETTINGS_POLICY).unwrap();
    for name in ["team-a", "team-b", "other"] {
        cluster.kubectl(&["create", "namespace", name]).unwrap();
        cluster.apply(&made(&cluster, name, "quiet")).unwrap();
    }
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let plan = |rules: &[&str]| {
        let run = folder.kiln(&[&["plan", "--brief", "--kubeconfig", &kubeconfig], rules].concat());
        assert_eq!(run.code, 1, "{}{}", run.stdout, run.stderr);
        run.stdout
    };
    // What was made of an object that the rule does not take any more goes.
    assert_eq!(
        plan(&[]),
        "delete v1/ConfigMap/other/settings (policy settings, rule make)\n\
         note: policy settings, rule make acts on new objects only; --all shows what it does with existing ones\n\
         0 to create, 0 to change, 1 to delete\n"
    );
    // What a policy keeps in step is not another's.
    let said = plan(&["second.yaml", "--all"]);
    for name in ["team-a", "team-b"] {
        let wanted = format!(
            "not done: kyverno:second/make: v1/ConfigMap/{name}/settings: it is also generated by policy settings, rule make, \
             with other content, and stays as it is\n"
        );
        assert!(said.contains(&wanted), "{wanted:?} is missing in\n{said}");
    }
    assert!(
        said.contains("0 to create, 0 to change, 0 to delete; 2 changes cannot be made"),
        "{said}"
    );
    // A policy that the webhook would not take has no effects.
    for args in [&["narrower.yaml"][..], &["narrower.yaml", "--all"]] {
        let said = plan(args);
        let refused = "not done: kyverno.io/v1/ClusterPolicy/settings: the update is denied: changes of immutable fields of a \
             rule spec in a generate rule is disallowed: match of rule \"make\" (annotate the policy with kiln.allowGenerateRuleChanges";
        assert!(said.starts_with(refused), "{said}");
        let rest = "\n0 to create, 0 to change, 0 to delete; 1 change cannot be made\n";
        assert!(said.ends_with(rest) && said.lines().count() == 2, "{said}");
    }
}

#[test]
fn bad_input_is_told() {
    let folder = Folder::with(&[("c.yaml", OBJECTS), ("g.yaml", GENERATE)]);
    for (args, wanted) in [
        (&["plan", "c.yaml"][..], "there is no policy in c.yaml"),
        (&["plan", "absent.yaml"], "cannot read absent.yaml"),
        (&["plan", "g.yaml", "--kubeconfig", "none"], "cannot use the kubeconfig none"),
        (&["apply", "g.yaml", "--cluster", "--resource", "c.yaml"], "cannot be used with"),
        (&["apply", "g.yaml", "--cluster", "--trace"], "cannot be used with"),
    ] {
        let run = folder.kiln(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(wanted), "{args:?}: {}", run.stderr);
    }
}

#[test]
fn every_form_says_what_is_refused_or_not_done_and_why() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    cluster.apply(OBJECTS).unwrap();
    let loud = REJECT.replace(
        "rejectMessage: too loud",
        "rejectMessage: \"too\\e[31m loud\\nnothing would change\"",
    );
    let about_notes =
        loud.replace("$.data.mode', matchValue: loud", "$.metadata.name', matchValue: note");
    let named = MUTATE.replace("name: owner", "name: \"own\\e[31mer\"");
    let folder = Folder::with(&[
        ("g.yaml", GENERATING),
        ("m.yaml", &named),
        ("loud.yaml", &loud),
        ("notes.yaml", &about_notes.replace("name: no-loud", "name: no-notes")),
    ]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let plan = |form: &str| {
        let rules = ["g.yaml", "m.yaml", "loud.yaml", "notes.yaml"];
        let args = ["plan", "--brief", "--kubeconfig", &kubeconfig, form];
        let run = folder.kiln(&[&args[..], &rules].concat());
        assert_eq!(run.code, 1, "{}", run.stderr);
        // What rules say is not obeyed by terminals, and is not a line of ours.
        assert!(!run.stdout.contains('\u{1b}'), "{form}: {:?}", run.stdout);
        assert!(!run.stdout.lines().any(|line| line == "nothing would change"), "{}", run.stdout);
        run.stdout
    };
    // KubeMod: messages are quoted.
    let why = r#""too\x1b[31m loud\nnothing would change""#;
    let text = plan("--format=text");
    for (begins, ends) in [
        (
            "deny v1/ConfigMap/team-a/settings (policy label, rule own\u{fffd}[31mer; policy team-a/no-loud",
            why,
        ),
        ("not done: gpol:notes/notes: v1/ConfigMap/team-a/note: modrule:team-a/no-notes", why),
    ] {
        let is_it = |line: &str| line.starts_with(begins) && line.ends_with(ends);
        assert!(text.lines().any(is_it), "{begins:?} is missing in\n{text}");
    }
    let table = plan("--format=table");
    assert!(table.lines().next().unwrap().ends_with("   WHY"), "{table}");
    for (begins, contains) in [
        ("deny later   v1/ConfigMap/team-a/settings ", "label, team-a/no-loud "),
        ("not done     gpol:notes/notes ", "v1/ConfigMap/team-a/note: modrule:team-a/no-notes"),
    ] {
        let is_it =
            |line: &str| line.starts_with(begins) && line.contains(contains) && line.ends_with(why);
        assert!(table.lines().any(is_it), "{begins:?} is missing in\n{table}");
    }
    assert!(
        table.ends_with("1 object is denied on its next write; 1 change cannot be made\n"),
        "{table}"
    );
    plan("--format=json");
}

/// An exception that lets one namespace be.
fn exception(name: &str, excepted: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v2\nkind: PolicyException\nmetadata: {{name: {name}, namespace: default}}\nspec:\n  \
         exceptions: [{{policyName: settings, ruleNames: [make]}}]\n  \
         match: {{any: [{{resources: {{kinds: [Namespace], names: [{excepted}]}}}}]}}\n"
    )
}

#[test]
fn exceptions_of_the_cluster_count_unless_files_take_their_place() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[
        ("rules.yaml", SETTINGS_POLICY),
        ("same.yaml", &exception("first", "team-c").replace(", namespace: default", "")),
        ("more.yaml", &exception("second", "team-b")),
        (
            "elsewhere.yaml",
            &exception("third", "team-b").replace("namespace: default", "namespace: elsewhere"),
        ),
    ]);
    install(&cluster, &folder, &["--exceptions=default"]);
    cluster.kubectl_with_input(&["create", "-f", "-"], &exception("first", "team-a")).unwrap();
    for name in ["team-a", "team-b", "team-c"] {
        cluster.kubectl(&["create", "namespace", name]).unwrap();
    }
    let kubeconfig = cluster.kubeconfig().display().to_string();
    for (more, made) in [
        (None, ["team-b", "team-c"].as_slice()),
        (Some("more.yaml"), &["team-c"]),
        (Some("same.yaml"), &["team-a", "team-b"]),
    ] {
        for (command, flag) in [("plan", "--all"), ("apply", "--cluster")] {
            let mut args =
                vec![command, "rules.yaml", flag, "--brief", "--kubeconfig", &kubeconfig];
            args.extend(more);
            let run = folder.kiln(&args);
            let created: String = made
                .iter()
                .map(|name| {
                    format!("create v1/ConfigMap/{name}/settings (policy settings, rule make)\n")
                })
                .collect();
            let wanted = format!("{created}{} to create, 0 to change, 0 to delete\n", made.len());
            assert_eq!(run.stdout, wanted, "{args:?}: {}", run.stderr);
        }
    }
    let args = ["plan", "rules.yaml", "elsewhere.yaml", "--all", "--kubeconfig", &kubeconfig];
    let run = folder.kiln(&args);
    assert!(run.stdout.contains("create v1/ConfigMap/team-b/settings"), "{}", run.stdout);
    let remark = "the PolicyException elsewhere/third would not apply";
    assert!(run.stderr.contains(remark), "{}", run.stderr);
}
