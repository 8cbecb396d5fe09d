//! `kiln doctor`, on a real control plane without an engine and with one.

use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{Folder, Run, SETTINGS_POLICY};
use crate::live::Running;

const BROKEN: &str = "
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingWebhookConfiguration
metadata: {name: kyverno-resource-mutating-webhook-cfg}
webhooks:
- name: mutate.kyverno.svc-fail
  admissionReviewVersions: [v1]
  sideEffects: None
  objectSelector: {matchLabels: {nobody: has-this}}
  clientConfig: {service: {namespace: kyverno, name: kyverno-svc, path: /mutate}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: kyverno-admission-controller, namespace: kyverno}
spec:
  selector: {matchLabels: {a: b}}
  template:
    metadata: {labels: {a: b}}
    spec: {containers: [{name: kyverno, image: 'reg.example.com/kyverno/kyverno:v1.15.0'}]}
";

const LEASE: &str = "
apiVersion: coordination.k8s.io/v1
kind: Lease
metadata: {name: kiln-controller, namespace: kyverno}
spec: {holderIdentity: kiln-0, leaseDurationSeconds: 10, renewTime: '2020-01-01T00:00:00.000000Z'}
";

const REQUESTS: &str = "
apiVersion: kyverno.io/v2
kind: UpdateRequest
metadata: {name: ur-1, namespace: kyverno}
spec: {requestType: generate, policy: zk-kafka-address, resource: {apiVersion: v1, kind: Namespace, name: shop}}
";

#[test]
fn says_what_is_wrong_and_what_to_do() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let doctor = |args: &[&str]| -> Run {
        folder.kiln(&[&["doctor", "--kubeconfig", &kubeconfig], args].concat())
    };
    let run = doctor(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stdout
            .starts_with("problem  definitions: the cluster does not know clusterpolicies.kyverno.io, policies.kyverno.io"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("kiln install | kubectl apply"), "{}", run.stdout);

    cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
    let rules = kiln_testkit::project_root().join("examples/generate/zk-kafka-address/rules.yaml");
    cluster.kubectl(&["create", "-f", &rules.display().to_string()]).unwrap();
    let run = doctor(&[]);
    for wanted in [
        "ok       definitions: the cluster knows every kind of rules, UpdateRequests and reports",
        "problem  controller: nobody holds the Lease kiln-controller",
        "warning  watches: the engine cannot be asked",
        "ok       other engines: neither Kyverno nor KubeMod runs",
        "warning  webhooks: kyverno-resource-mutating-webhook-cfg is not registered",
        "holds no certificate",
        "ok       policies: 1 policy can be run",
        "problem  rights: policy zk-kafka-address:",
        "aggregate-to-background-controller",
        "ok       work: no work waits or failed",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }

    cluster.apply(BROKEN).unwrap();
    cluster.apply(LEASE).unwrap();
    cluster.kubectl_with_input(&["create", "-f", "-"], REQUESTS).unwrap();
    // Words alone decide nothing.
    let status = r#"{"status": {"state": "Failed", "message": "somebody else keeps changing it"}}"#;
    let patch = ["--subresource=status", "--type=merge", "--patch", status];
    let patch = [&["patch", "updaterequest", "ur-1", "--namespace=kyverno"][..], &patch].concat();
    cluster.kubectl(&patch).unwrap();
    let run = doctor(&[]);
    for wanted in [
        "problem  controller: kiln-0 held the Lease, and renewed it",
        "problem  other engines: Kyverno runs too: Deployment kyverno/kyverno-admission-controller",
        "problem  certificates: kyverno-resource-mutating-webhook-cfg trusts no certificate",
        "problem  work: policy zk-kafka-address: work failed (1 time): somebody else keeps changing it",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    assert_eq!(run.code, 1);
    let run = doctor(&["--format=json"]);
    assert!(run.stdout.contains("\"about\": \"other engines\""), "{}", run.stdout);

    // A clock that is behind says nothing about who acts.
    cluster.apply(&LEASE.replace("2020-", "2099-")).unwrap();
    let run = doctor(&[]);
    let wanted = "warning  controller: kiln-0 renewed the Lease ";
    assert!(run.stdout.contains(wanted), "{}", run.stdout);
    assert!(!run.stdout.contains("ok       controller"), "{}", run.stdout);

    let gone = ["generatingpolicies.policies.kyverno.io", "modrules.api.kubemod.io"];
    let reports = "policyreports.wgpolicyk8s.io";
    cluster.kubectl(&["delete", "crd", gone[0], gone[1], reports]).unwrap();
    let run = doctor(&[]);
    for wanted in [
        format!("problem  definitions: the cluster does not know {}, {}\n", gone[0], gone[1]),
        format!("warning  definitions: the cluster does not know {reports}: nothing is reported\n"),
        "ok       policies: 1 policy can be run\n".to_owned(),
    ] {
        assert!(run.stdout.contains(&wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
}

/// The least that doctor needs.
const HALF: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: half}
rules:
- {apiGroups: [kyverno.io], resources: [clusterpolicies, policies, policyexceptions, cleanuppolicies, clustercleanuppolicies], verbs: [list]}
- {apiGroups: [policies.kyverno.io, api.kubemod.io], resources: ['*'], verbs: [list]}
- {apiGroups: [''], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: half}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: half}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: half}]
";

#[test]
fn what_may_not_be_read_is_neither_missing_nor_well() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    cluster.apply(&folder.kiln(&["install", "--no-workload"]).stdout).unwrap();
    cluster.apply(HALF).unwrap();
    let kubeconfig = cluster.kubeconfig_as("half").unwrap().display().to_string();
    let run = folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
    for about in ["controller", "other engines", "webhooks", "certificates", "watches", "work"] {
        let said =
            run.stdout.lines().filter(|line| line.get(9..).is_some_and(|l| l.starts_with(about)));
        let said: Vec<_> = said.collect();
        let unread = |line: &&str| {
            line.starts_with("warning  ")
                && (line.contains("cannot read ") || line.contains("cannot be asked"))
        };
        assert!(!said.is_empty() && said.iter().all(unread), "{about}: {said:#?}");
    }
    assert!(run.stdout.contains("\n0 problems, "), "{}", run.stdout);
    assert_eq!(run.code, 0, "{}", run.stderr);
}

/// Two policies that want different things of one ConfigMap, and one that fires on what it makes.
const AT_ODDS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: first}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace], names: [odd]}}]}
    generate: {synchronize: true, apiVersion: v1, kind: ConfigMap, name: shared, namespace: odd, data: {data: {by: first}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: second}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace], names: [odd]}}]}
    generate: {synchronize: true, apiVersion: v1, kind: ConfigMap, name: shared, namespace: odd, data: {data: {by: second}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: round}
spec:
  rules:
  - name: again
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [odd], names: ['r*']}}]}
    skipBackgroundRequests: false
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: '{{request.object.metadata.name}}r'
      namespace: odd
      data: {data: {a: b}}
";

#[test]
fn rules_at_odds_and_loops_are_found_by_what_the_engine_writes() {
    let Some(running) = Running::start(&["--grant=standard", "--no-workload"], &[]) else { return };
    running.cluster.apply(AT_ODDS).unwrap();
    running.cluster.kubectl(&["create", "namespace", "odd"]).unwrap();
    running.cluster.kubectl(&["create", "configmap", "r", "-n", "odd"]).unwrap();
    let kubeconfig = running.cluster.kubeconfig().display().to_string();
    let mut said = String::new();
    let contested = "loops: policy second: what it makes is contested (1 time): v1/ConfigMap/odd/shared is made by \
                     kyverno:first/make for v1/Namespace/odd as well";
    let contested_too =
        contested.replace("second", "first").replace("kyverno:first", "kyverno:second");
    let looping = "problem  loops: policy round: it was stopped (1 time): rule kyverno:round/again fires on objects that it made itself";
    running.wait("both are found", || {
        let run = running.folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
        said = run.stdout;
        (said.contains(contested) || said.contains(&contested_too)) && said.contains(looping)
    });
    assert!(!said.contains("problem  work:"), "{said}");
    for hint in ["or two rules, want different things", "narrow what the rule fires on"] {
        assert!(said.contains(hint), "{hint:?} is missing in\n{said}");
    }
    let born = running.get(&["updaterequests", "-n", "kyverno"]);
    let reasons = born.get("items").unwrap().as_list().unwrap().iter();
    let mut reasons: Vec<_> = reasons
        .filter_map(|ur| ur.str_at(["status", "reason"]))
        .filter(|reason| !reason.is_empty())
        .collect();
    reasons.sort_unstable();
    assert_eq!(reasons, ["Contested", "Loop"]);
}

#[test]
fn the_engine_of_a_sandbox_is_asked_where_its_webhooks_are() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS_POLICY)]);
    let run = folder.kiln(&["up", "rules.yaml", "--", "kiln", "doctor"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said = run.stdout.lines().filter(|line| line.contains(" watches: ")).collect::<Vec<_>>();
    let good = "the engine says that all is well";
    assert!(said.len() == 1 && said[0].ends_with(good), "{}", run.stdout);
    assert!(run.stdout.contains("\n0 problems, "), "{}", run.stdout);
}

#[test]
fn a_cluster_in_which_rules_work_has_no_problems_and_is_in_step() {
    let Some(running) = Running::start(&["--grant=standard", "--no-workload"], &[]) else { return };
    running.cluster.apply(SETTINGS_POLICY).unwrap();
    running.cluster.kubectl(&["create", "namespace", "team-a"]).unwrap();
    running.wait("what the rule makes", || {
        running.cluster.kubectl(&["get", "configmap", "settings", "-n", "team-a"]).is_ok()
    });
    let kubeconfig = running.cluster.kubeconfig().display().to_string();
    let kiln = |command: &str| running.folder.kiln(&[command, "--kubeconfig", &kubeconfig]);
    let run = kiln("doctor");
    for wanted in [
        "acts, and renewed the Lease",
        "ok       webhooks: kyverno-policy-validating-webhook-cfg is registered",
        "ok       certificates: the certificate in the Secret kyverno-svc.kyverno.svc.kyverno-tls-pair counts for",
        "ok       rights: the engine's accounts may do what policies need",
        "0 problems, ",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }
    assert_eq!(run.code, 0, "{}", run.stdout);
    let run = kiln("plan");
    assert!(run.stdout.contains("nothing would change\n"), "{}", run.stdout);
    assert_eq!(run.code, 0, "{}", run.stderr);
}
