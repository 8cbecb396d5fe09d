//! Admission on a real control plane. Skipped, and loudly, where there is none.

use std::net::{Ipv4Addr, TcpListener};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use kiln_live::Options;
use kiln_testkit::control_plane::ControlPlane;
use kiln_value::{Value, json};
use tokio::sync::oneshot;

const KINDS: [(&str, &str, &str, &str); 4] = [
    ("clusterpolicies", "ClusterPolicy", "v1", "Cluster"),
    ("policies", "Policy", "v1", "Namespaced"),
    ("updaterequests", "UpdateRequest", "v2", "Namespaced"),
    ("policyexceptions", "PolicyException", "v2", "Namespaced"),
];

fn definition(plural: &str, kind: &str, version: &str, scope: &str) -> String {
    format!(
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n\
         metadata: {{name: {plural}.kyverno.io}}\n\
         spec:\n  group: kyverno.io\n  scope: {scope}\n\
         \x20 names: {{plural: {plural}, singular: {}, kind: {kind}}}\n\
         \x20 versions:\n  - name: {version}\n    served: true\n    storage: true\n\
         \x20   subresources: {{status: {{}}}}\n\
         \x20   schema: {{openAPIV3Schema: {{type: object, x-kubernetes-preserve-unknown-fields: true}}}}\n",
        kind.to_lowercase()
    )
}

/// An engine that ends, and takes its webhooks with it, when this value goes.
struct Engine {
    end: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Engine {
    fn start(cluster: &ControlPlane) -> Self {
        let port =
            TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
        let options = Options {
            kubeconfig: Some(cluster.kubeconfig()),
            listen: (Ipv4Addr::LOCALHOST, port).into(),
            webhook_url: Some(format!("https://127.0.0.1:{port}")),
            ..Options::default()
        };
        let (end, ended) = oneshot::channel();
        let thread = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
            let end = async {
                let _ = ended.await;
            };
            runtime.block_on(kiln_live::run(options, end)).unwrap();
        });
        Engine { end: Some(end), thread: Some(thread) }
    }

    fn stop(mut self) {
        let _ = self.end.take().unwrap().send(());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(120), "{what} does not come to hold");
        sleep(Duration::from_millis(100));
    }
}

fn get(cluster: &ControlPlane, what: &[&str]) -> Value {
    let text = cluster.kubectl(&[&["get", "-o", "json"], what].concat()).unwrap();
    json::parse(&text).unwrap()
}

fn ready(cluster: &ControlPlane, policy: &str) -> bool {
    let path = "jsonpath={.status.conditions[*].status}";
    let found = cluster.kubectl(&["get", "clusterpolicy", policy, "-o", path]);
    found.is_ok_and(|found| found == "True")
}

const LABEL: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: label}
spec:
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [shop]}}]}
    mutate: {patchStrategicMerge: {metadata: {labels: {team: '{{ request.namespace }}'}}}}
";

const ACCOUNTS: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: accounts}
spec:
  rules:
  - name: make
    match: {any: [{resources: {kinds: [Namespace]}}]}
    generate: {apiVersion: v1, kind: ServiceAccount, name: robot, namespace: default, data: {}}
";

/// Starting a control plane takes longer than all of this together.
#[test]
fn webhooks_are_published_answer_and_go() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    for (plural, kind, version, scope) in KINDS {
        cluster.apply(&definition(plural, kind, version, scope)).unwrap();
    }
    for (plural, ..) in KINDS {
        let name = format!("crd/{plural}.kyverno.io");
        cluster.kubectl(&["wait", "--for=condition=Established", &name]).unwrap();
    }
    cluster.kubectl(&["create", "namespace", "kyverno"]).unwrap();
    cluster.kubectl(&["create", "namespace", "shop"]).unwrap();
    let engine = Engine::start(&cluster);
    let policy_webhook =
        ["validatingwebhookconfiguration", "kyverno-policy-validating-webhook-cfg"];
    wait("the webhook for policies", || {
        cluster.kubectl(&[&["get"], &policy_webhook[..]].concat()).is_ok()
    });

    // A mutate rule acts as soon as its policy is ready.
    cluster.apply(LABEL).unwrap();
    wait("the policy", || ready(&cluster, "label"));
    cluster.kubectl(&["create", "configmap", "prices", "-n", "shop"]).unwrap();
    let stored = get(&cluster, &["configmap", "prices", "-n", "shop"]);
    assert_eq!(stored.str_at(["metadata", "labels", "team"]), Some("shop"));

    // The registration names what the rule names, and nothing else.
    let name = ["mutatingwebhookconfiguration", "kyverno-resource-mutating-webhook-cfg"];
    let webhook =
        get(&cluster, &name).get("webhooks").and_then(|list| list.index(0)).cloned().unwrap();
    let rules = webhook.get("rules").map(json::to_canonical_string).unwrap();
    assert_eq!(
        rules,
        r#"[{"apiGroups":[""],"apiVersions":["v1"],"operations":["CREATE","UPDATE"],"resources":["configmaps"],"scope":"*"}]"#
    );
    assert_eq!(webhook.str_at(["failurePolicy"]), Some("Fail"));

    // What somebody else changes is put right.
    cluster.kubectl(&[&["delete"], &name[..]].concat()).unwrap();
    wait("the webhook that was deleted", || {
        cluster.kubectl(&[&["get"], &name[..]].concat()).is_ok()
    });

    // A policy that is wrong is refused, with a reason that users can act on.
    let wrong = LABEL
        .replace("name: label", "name: wrong")
        .replace("{{ request.namespace }}", "{{ nothing }}");
    let refusal = cluster.apply(&wrong).unwrap_err().to_string();
    assert!(refusal.contains("validate-policy.kyverno.svc"), "{refusal}");
    assert!(refusal.contains("nothing"), "{refusal}");

    // One whose rights are missing, with the role to apply.
    let refusal = cluster.apply(ACCOUNTS).unwrap_err().to_string();
    assert!(
        refusal.contains("requires permissions get,create for resource v1/ServiceAccount"),
        "{refusal}"
    );
    let start = refusal.find("apiVersion: rbac.authorization.k8s.io/v1").unwrap();
    let role = &refusal[start..];
    assert!(
        role.contains("rbac.kyverno.io/aggregate-to-background-controller: \"true\""),
        "{role}"
    );
    cluster.apply(role).unwrap();
    let account = "system:serviceaccount:kyverno:kyverno-background-controller";
    let binding = [
        "create",
        "clusterrolebinding",
        "b",
        "--clusterrole=kyverno:background-controller:accounts",
    ];
    cluster.kubectl(&[&binding[..], &[&format!("--user={account}")]].concat()).unwrap();
    wait("the policy with its rights", || cluster.apply(ACCOUNTS).is_ok());

    // An engine that is told to end leaves nobody waiting for it.
    engine.stop();
    assert!(cluster.kubectl(&[&["get"], &name[..]].concat()).is_err());
    cluster.kubectl(&["create", "configmap", "after", "-n", "shop"]).unwrap();
}
