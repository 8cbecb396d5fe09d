//! `kiln doctor`, on a real control plane without an engine and with one.

use std::collections::BTreeSet;

use crate::clusters::doctor_patient::{Patient, patiently};
use crate::clusters::live::Running;
use crate::harness::{Folder, Run, SETTINGS_POLICY};

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
    let Some(patient) = Patient::bare() else { return };
    let (cluster, folder) = (&patient.cluster, &patient.folder);
    let doctor = |args: &[&str]| patient.doctor(args);
    let run = doctor(&[]);
    assert_eq!(run.code, 1, "{}", run.stderr);
    assert!(
        run.stdout
            .starts_with("problem  definitions: the cluster does not know clusterpolicies.kyverno.io, policies.kyverno.io"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("kiln install --image IMAGE | kubectl apply"), "{}", run.stdout);

    // A reader may close the pipe, as in `kiln doctor | true`.
    let mut unread = folder.leave_running(&["doctor", "--kubeconfig", &patient.kubeconfig()]);
    drop(unread.stdout.take());
    assert_eq!(unread.wait().unwrap().code(), Some(0));

    patient.install();
    let rules = kiln_testkit::project_root().join("examples/generate/zk-kafka-address/rules.yaml");
    cluster.kubectl(&["create", "-f", &rules.display().to_string()]).unwrap();
    let run = doctor(&[]);
    for wanted in [
        "ok       definitions: the cluster knows every kind of rules, UpdateRequests and reports",
        "problem  controller: no replica holds the Lease kiln-controller",
        "warning  watches: cannot reach the engine",
        "ok       other engines: neither Kyverno nor KubeMod runs",
        "warning  webhooks: kyverno-resource-mutating-webhook-cfg is not registered",
        "holds no certificate",
        "ok       policies: 1 policy can be run",
        "problem  permissions: policy zk-kafka-address:",
        "aggregate-to-background-controller",
        "ok       work: no work waits or failed",
    ] {
        assert!(run.stdout.contains(wanted), "{wanted:?} is missing in\n{}", run.stdout);
    }

    cluster.apply(BROKEN).unwrap();
    cluster.apply(LEASE).unwrap();
    cluster.kubectl_with_input(&["create", "-f", "-"], REQUESTS).unwrap();
    // Words alone decide nothing.
    let status =
        r#"{"status": {"state": "Failed", "message": "another writer keeps changing it"}}"#;
    let patch = ["--subresource=status", "--type=merge", "--patch", status];
    let patch = [&["patch", "updaterequest", "ur-1", "--namespace=kyverno"][..], &patch].concat();
    cluster.kubectl(&patch).unwrap();
    let run = doctor(&[]);
    for wanted in [
        "problem  controller: kiln-0 held the Lease, and renewed it",
        "problem  other engines: Kyverno runs too: Deployment kyverno/kyverno-admission-controller",
        "problem  certificates: kyverno-resource-mutating-webhook-cfg trusts no valid certificate",
        "problem  work: policy zk-kafka-address: work failed (1 time): another writer keeps changing it",
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
    let wanted = [
        format!("problem  definitions: the cluster does not know {}, {}\n", gone[0], gone[1]),
        format!("warning  definitions: the cluster does not know {reports}: nothing is reported\n"),
        "ok       policies: 1 policy can be run\n".to_owned(),
    ];
    // What is gone is served for a moment.
    patiently(|| doctor(&[]), |run| wanted.iter().all(|wanted| run.stdout.contains(wanted)));
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
    let Some(patient) = Patient::new() else { return };
    let (cluster, folder) = (&patient.cluster, &patient.folder);
    cluster.apply(HALF).unwrap();
    // The API server takes a moment to know new roles.
    for right in [
        ["get", "configmaps"],
        ["list", "clusterpolicies.kyverno.io"],
        ["list", "generatingpolicies.policies.kyverno.io"],
        ["list", "modrules.api.kubemod.io"],
    ] {
        let ask = [&["auth", "can-i", "--as=half", "--namespace=kyverno"], &right[..]].concat();
        let _ = patiently(|| cluster.kubectl(&ask), Result::is_ok);
    }
    let kubeconfig = cluster.kubeconfig_as("half").unwrap().display().to_string();
    let run = folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
    for about in ["controller", "other engines", "webhooks", "certificates", "watches", "work"] {
        let said =
            run.stdout.lines().filter(|line| line.get(9..).is_some_and(|l| l.starts_with(about)));
        let said: Vec<_> = said.collect();
        let unread = |line: &&str| {
            line.starts_with("warning  ")
                && (line.contains("cannot read ") || line.contains("cannot reach the engine"))
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
    let contested = "loops: policy second: its downstreams have conflicting writers (1 time): v1/ConfigMap/odd/shared is also generated by \
                     kyverno:first/make for v1/Namespace/odd";
    let contested_too =
        contested.replace("second", "first").replace("kyverno:first", "kyverno:second");
    let looping = "problem  loops: policy round: it was stopped (1 time): rule kyverno:round/again fires on objects that it made itself";
    running.wait("both are found", || {
        let run = running.folder.kiln(&["doctor", "--kubeconfig", &kubeconfig]);
        said = run.stdout;
        let is_found = said.contains(contested) || said.contains(&contested_too);
        // What failed meanwhile, because something was not there yet, is tried again.
        is_found && said.contains(looping) && !said.contains("problem  work:")
    });
    for hint in ["want different values", "narrow what the rule fires on"] {
        assert!(said.contains(hint), "{hint:?} is missing in\n{said}");
    }
    let reasons = || {
        let born = running.get(&["updaterequests", "-n", "kyverno"]);
        let born = born.get("items").unwrap().as_list().unwrap().iter();
        let reasons = born.filter_map(|ur| ur.str_at(["status", "reason"]).map(str::to_owned));
        reasons.collect::<BTreeSet<_>>()
    };
    patiently(reasons, |reasons| reasons.contains("Contested") && reasons.contains("Loop"));
}

#[test]
fn the_engine_of_a_sandbox_is_asked_where_its_webhooks_are() {
    let folder = Folder::with(&[("rules.yaml", SETTINGS_POLICY)]);
    let good = "ok       watches: the engine says that everything is healthy";
    // The engine has just begun, which may take a while on a busy machine.
    let until_well = format!(
        "for attempt in $(seq 100); do kiln doctor > said; grep -q '^{good}$' said && grep -q '^0 problems' said && break; \
         sleep 0.2; done; cat said"
    );
    let run = folder.kiln(&["up", "rules.yaml", "--", "sh", "-c", &until_well]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let said = run.stdout.lines().filter(|line| line.contains(" watches: ")).collect::<Vec<_>>();
    assert_eq!(said, [good], "{}", run.stdout);
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
    let wanted = [
        "acts, and renewed the Lease",
        "ok       webhooks: kyverno-policy-validating-webhook-cfg is registered",
        "ok       certificates: the certificate in the Secret kyverno-svc.kyverno.svc.kyverno-tls-pair is valid for",
        "ok       permissions: the engine's accounts may do what policies need",
        "0 problems, ",
    ];
    // Status and webhooks follow what the rule made.
    let is_well = |run: &Run| run.code == 0 && wanted.iter().all(|it| run.stdout.contains(it));
    patiently(|| kiln("doctor"), is_well);
    let is_same = |run: &Run| run.code == 0 && run.stdout.contains("nothing would change\n");
    patiently(|| kiln("plan"), is_same);
}
