//! `kiln install`

use kiln_testkit::control_plane::ControlPlane;

use crate::clusters::doctor_patient::patiently;
use crate::harness::{Folder, Run};

/// Runs `kiln install` with an image.
fn install(folder: &Folder, args: &[&str]) -> Run {
    folder.kiln(&[&["install", "--image=example.com/kiln:7"], args].concat())
}

#[test]
fn prints_everything_in_an_order_that_can_be_applied() {
    let run = install(&Folder::with(&[]), &[]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let kinds: Vec<&str> =
        run.stdout.lines().filter_map(|line| line.strip_prefix("kind: ")).collect();
    let first = |kind: &str| kinds.iter().position(|k| *k == kind);
    let order = [
        "CustomResourceDefinition",
        "Namespace",
        "ServiceAccount",
        "ConfigMap",
        "Service",
        "Deployment",
    ];
    for pair in order.windows(2) {
        assert!(first(pair[0]) < first(pair[1]), "{pair:?} in {kinds:?}");
    }
    assert!(first("PodDisruptionBudget").is_some() && first("NetworkPolicy").is_some());
}

#[test]
fn what_was_installed_can_be_installed_again() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let printed = Folder::with(&[]).kiln(&["install", "--no-workload"]).stdout;
    let apply = || cluster.kubectl_with_input(&["apply", "--server-side", "-f", "-"], &printed);
    apply().unwrap();
    // The cluster collects the rules of the role, which are its own from then on.
    let role = ["get", "clusterrole", "kyverno:background-controller", "-o", "jsonpath={.rules}"];
    patiently(|| cluster.kubectl(&role).unwrap_or_default(), |rules| rules.contains("apiGroups"));
    apply().unwrap();
}

#[test]
fn options_reach_the_objects() {
    let folder = Folder::with(&[]);
    let run = folder.kiln(&["install", "--namespace=rules", "--image=here/kiln:7", "--replicas=3"]);
    for text in [
        "image: here/kiln:7",
        "replicas: 3",
        "namespace: rules",
        "--as-admission=system:serviceaccount:rules:kyverno-admission-controller",
        "[*/*,rules,*]",
    ] {
        assert!(run.stdout.contains(text), "{text}");
    }
    assert!(!run.stdout.contains("namespace: kyverno"));
    let run = folder.kiln(&["install", "--no-workload"]);
    assert!(!run.stdout.contains("kind: Deployment") && !run.stdout.contains("kind: Service\n"));
    assert_eq!(folder.kiln(&["install", "--namespace=No Such"]).code, 2);
}

#[test]
fn without_an_image_nothing_is_printed() {
    let folder = Folder::with(&[]);
    for args in [&["install"][..], &["install", "--split"], &["install", "--image="]] {
        let run = folder.kiln(args);
        assert_eq!((run.code, run.stdout.as_str()), (2, ""), "{args:?}");
    }
    let run = folder.kiln(&["install", "--image=here/kiln:7", "--no-workload"]);
    assert_eq!(run.code, 2, "there is nothing that would run it");
}

#[test]
fn the_two_sides_are_split_on_demand() {
    let folder = Folder::with(&[]);
    let run = install(&folder, &["--split", "--replicas=3", "--namespace=rules"]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let deployments: Vec<&str> =
        run.stdout.split("---\n").filter(|text| text.contains("kind: Deployment")).collect();
    assert_eq!(deployments.len(), 2);
    for (deployment, texts) in deployments.iter().zip([
        [
            "name: kiln-admission",
            "replicas: 3",
            "- --only=admission",
            "- --as-admission=system:serviceaccount:rules",
        ],
        [
            "name: kiln-controller",
            "replicas: 1",
            "- --only=controller",
            "- --as-controller=system:serviceaccount:rules",
        ],
    ]) {
        for text in texts {
            assert!(deployment.contains(text), "{text} in {deployment}");
        }
    }
    for with in ["--no-workload", "--only=alerts"] {
        assert_eq!(folder.kiln(&["install", "--split", with]).code, 2, "{with}");
    }
}

#[test]
fn rights_to_write_are_asked_for() {
    let folder = Folder::with(&[]);
    let narrow = install(&folder, &[]).stdout;
    assert!(!narrow.contains("networkpolicies"), "rules may write nothing from the start");
    assert!(install(&folder, &["--grant=standard"]).stdout.contains("networkpolicies"));
    for never in ["escalate", "bind\n", "- '*'\n  verbs", "cluster-admin"] {
        assert!(!narrow.contains(never), "{never}");
    }
}

#[test]
fn monitoring_is_printed_on_demand() {
    let folder = Folder::with(&[]);
    let without = install(&folder, &[]).stdout;
    assert!(!without.contains("monitoring.coreos.com"), "a cluster may not have these kinds");
    let with = install(&folder, &["--monitoring", "--namespace=rules"]).stdout;
    for text in [
        "kind: ServiceMonitor",
        "kind: PrometheusRule",
        "grafana_dashboard: \"1\"",
        "serverName: kyverno-svc.rules.svc",
        "name: kyverno-svc.rules.svc.kyverno-tls-ca",
    ] {
        assert!(with.contains(text), "{text}");
    }
    let monitors = |text: &str| text.matches("kind: ServiceMonitor").count();
    assert_eq!(monitors(&with), 1);
    let split = install(&folder, &["--monitoring", "--split"]).stdout;
    assert_eq!(monitors(&split), 2, "each side has its own numbers");
    assert!(split.contains("insecureSkipVerify: true"), "one of them serves its own certificate");
    // An engine outside of the cluster has no Service that could be selected.
    let outside = folder.kiln(&["install", "--monitoring", "--no-workload"]);
    assert_eq!(outside.code, 0);
    assert!(outside.stdout.contains("kind: PrometheusRule"));
    assert!(!outside.stdout.contains("kind: ServiceMonitor"));
    assert!(outside.stderr.contains("no ServiceMonitor is printed"), "{}", outside.stderr);
    let definitions = folder.kiln(&["install", "--only=crds"]);
    let all = definitions.stdout.lines().filter(|line| line.starts_with("kind: ")).count();
    let wanted = definitions.stdout.matches("\nkind: CustomResourceDefinition\n").count();
    assert!(wanted > 10 && all == wanted, "{all} objects, {wanted} definitions");
    let alerts = folder.kiln(&["install", "--only=alerts"]);
    assert!(alerts.stdout.starts_with("groups:\n- name: kiln\n  rules:\n"), "{}", alerts.stdout);
    let dashboard = folder.kiln(&["install", "--only=dashboard"]);
    let dashboard: serde_json::Value = serde_json::from_str(&dashboard.stdout).unwrap();
    assert_eq!(dashboard["title"], "Kiln");
    assert_eq!(folder.kiln(&["install", "--only=alerts", "--monitoring"]).code, 2);
}

#[test]
fn values_of_the_chart_and_options_give_the_same_objects() {
    let values = "image: {repository: here/kiln, tag: '7'}\nreplicas: 3\nsplit: true\nnetworkPolicy: {apiServers: \
                  [10.0.0.1/32]}\npriorityClassName: system-cluster-critical\npermissions: {grant: standard}\n\
                  exceptionNamespaces: [a, 'b-*']\nmonitoring: {serviceMonitor: true, prometheusRule: true, dashboard: \
                  true, runbookUrl: 'https://a.example/alerts'}\n";
    let folder = Folder::with(&[("values.yaml", values), ("replicas.yaml", "replicas: 5\n")]);
    let by_values = folder.kiln(&["install", "--values", "values.yaml"]);
    assert_eq!(by_values.code, 0, "{}", by_values.stderr);
    let by_options = folder.kiln(&[
        "install",
        "--image=here/kiln:7",
        "--replicas=3",
        "--split",
        "--api-server=10.0.0.1/32",
        "--priority-class=system-cluster-critical",
        "--grant=standard",
        "--exceptions=a, b-*",
        "--monitoring",
        "--runbooks=https://a.example/alerts",
    ]);
    assert_eq!(by_values.stdout, by_options.stdout);
    for text in ["cidr: 10.0.0.1/32", "runbook_url: https://a.example/alerts#kilnabsent"] {
        assert!(by_values.stdout.contains(text), "{text}");
    }
    let both = folder.kiln(&["install", "--image=a", "--values=replicas.yaml", "--replicas=4"]);
    assert!(both.stdout.contains("replicas: 4"), "an option takes precedence");
}

#[test]
fn only_accounts_that_act_are_installed() {
    let printed = install(&Folder::with(&[]), &["--grant=standard"]).stdout;
    assert!(!printed.contains("reports-controller"), "{printed}");
}
