//! `kiln plan` and `kiln apply --cluster`, on a real control plane without an engine.

use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{Folder, Run};

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
             note: policy defaults, rule token acts on new objects only; --all shows what it makes of those that are there\n\
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
        run.stdout.contains("on their next write:\nrefuse v1/ConfigMap/team-a/settings (policy label, rule owner; policy team-a/no-loud"),
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
        cluster.apply(&kiln_yaml::emit(change.get("after").unwrap())).unwrap();
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

#[test]
fn bad_input_is_told() {
    let folder = Folder::with(&[("c.yaml", OBJECTS), ("g.yaml", GENERATE)]);
    for (args, wanted) in [
        (&["plan", "c.yaml"][..], "there is no policy in c.yaml"),
        (&["plan", "absent.yaml"], "cannot read absent.yaml"),
        (&["plan", "g.yaml", "--kubeconfig", "none"], "cannot use the kubeconfig none"),
        (&["apply", "g.yaml", "--cluster", "--resource", "c.yaml"], "cannot be used with"),
    ] {
        let run = folder.kiln(args);
        assert_eq!(run.code, 2, "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(wanted), "{args:?}: {}", run.stderr);
    }
}
