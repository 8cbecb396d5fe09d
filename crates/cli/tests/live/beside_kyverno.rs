//! Kyverno's own controllers and Kiln in one cluster that refuses every write of the old kinds: policies move to
//! Kiln's API group, what they generated stays, and both engines are at work.
//!
//! Building Kyverno takes many minutes the first time, so this runs when asked for: `cargo xtask beside-kyverno`.

use std::path::Path;
use std::process::Command;

use kiln_object::metadata;
use kiln_testkit::control_plane::kyverno::{Controller, Kyverno};
use kiln_testkit::control_plane::{ControlPlane, Watched};
use kiln_value::{Value, json};

use crate::harness::{Cluster, Engine, KILN, free_port, namespaces, on_bare};
use crate::test_webhook::TestWebhook;

/// The old kinds: a rule of each sort, in Kyverno's group.
const OLD: &str = r#"
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: tenants}
spec:
  rules:
  - name: settings
    match: {any: [{resources: {kinds: [Namespace], names: ["tenant-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: ConfigMap
      name: settings
      namespace: "{{request.object.metadata.name}}"
      data: {data: {tier: standard}}
  - name: token
    match: {any: [{resources: {kinds: [Namespace], names: ["tenant-*"]}}]}
    generate:
      synchronize: true
      apiVersion: v1
      kind: Secret
      name: token
      namespace: "{{request.object.metadata.name}}"
      clone: {namespace: default, name: token}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owners}
spec:
  background: true
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: ["tenant-*"], selector: {matchLabels: {checked: "yes"}}}}]}
    validate:
      failureAction: Enforce
      message: set the label owner
      pattern: {metadata: {labels: {owner: "?*"}}}
"#;

/// What stays with Kyverno: one of its newer kinds.
const NEW: &str = r#"
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-node-ports}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [services]}]
  validations:
  - expression: object.spec.?type.orValue('ClusterIP') != 'NodePort'
    message: no node ports
"#;

/// The webhook of a cluster that gives the old kinds up.
const REFUSES_OLD_KINDS: &str = r#"
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: no-old-kinds}
webhooks:
- name: old-kinds.test.example
  failurePolicy: Fail
  sideEffects: None
  admissionReviewVersions: [v1]
  clientConfig: CLIENT_CONFIG
  rules:
  - apiGroups: [kyverno.io]
    apiVersions: ["*"]
    operations: [CREATE, UPDATE]
    resources: [clusterpolicies, policies, cleanuppolicies, clustercleanuppolicies, policyexceptions]
"#;

/// The names under which Kiln is installed beside Kyverno.
const NAMESPACE: &str = "kiln";

/// Kyverno's admission and background controllers, which end with this value.
struct RunningKyverno {
    _processes: [Watched; 2],
}

impl RunningKyverno {
    fn start(cluster: &Cluster, kyverno: &Kyverno) -> Self {
        cluster.apply(&kyverno.manifest().unwrap()).unwrap();
        let names = cluster.kubectl(&["get", "crd", "-o", "name"]).unwrap();
        let mut wait = vec!["wait", "--for=condition=Established", "--timeout=120s"];
        wait.extend(names.lines());
        cluster.kubectl(&wait).unwrap();
        // Its standard manifest may not write what the rules here generate.
        cluster.grant("tenants", "''", "configmaps, secrets");
        let port = free_port();
        let process = |controller: Controller| {
            let started = kyverno.command(cluster, controller, port).unwrap();
            // A kubelet starts what ends again.
            let mut command = Command::new("sh");
            command.args(["-c", r#"while :; do "$@"; sleep 1; done"#, controller.name()]);
            command.arg(started.get_program()).args(started.get_args());
            command.envs(started.get_envs().filter_map(|(name, value)| Some((name, value?))));
            let log = cluster.directory().join(format!("{}.log", controller.name()));
            Watched::spawn(&command, &log).unwrap()
        };
        let running = RunningKyverno {
            _processes: [process(Controller::Admission), process(Controller::Background)],
        };
        let leads = |controller: Controller| {
            let holder = "jsonpath={.spec.holderIdentity}";
            let args = ["get", "lease", controller.name(), "-n", "kyverno", "-o", holder];
            cluster.kubectl(&args).is_ok_and(|holder| !holder.is_empty())
        };
        cluster.wait("Kyverno's background controller leads", || leads(Controller::Background));
        running
    }
}

/// Starts Kiln with names of its own.
fn start_kiln(cluster: &Cluster) -> Engine {
    let install =
        ["install", "--name=kiln", "--engine-namespace=kiln", "--no-workload", "--grant=standard"];
    cluster.apply(&kiln(&install)).unwrap();
    let own = kiln_install::own_definitions();
    let own = own.iter().filter_map(metadata::name).map(|name| format!("crd/{name}"));
    let own: Vec<String> = own.collect();
    let own: Vec<&str> = own.iter().map(String::as_str).collect();
    let wait = ["wait", "--for=condition=Established", "--timeout=120s"];
    cluster.kubectl(&[&wait[..], &own].concat()).unwrap();
    let account = |name: &str| format!("system:serviceaccount:{NAMESPACE}:kiln-{name}");
    let port = free_port();
    let (url, listen) = (format!("https://127.0.0.1:{port}"), format!("127.0.0.1:{port}"));
    let (background, admission) =
        (account("background-controller"), account("admission-controller"));
    let args = [
        "--name=kiln",
        "--engine-namespace=kiln",
        "--as-controller",
        &background,
        "--as-admission",
        &admission,
        "--webhook-url",
        &url,
        "--listen",
        &listen,
    ];
    cluster.start_as(Path::new(KILN), &cluster.kubeconfig(), &args)
}

fn kiln(args: &[&str]) -> String {
    let done = Command::new(KILN).args(args).output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The UID of what rules generated, by resource, in a namespace; none as long as one of them is missing.
fn downstreams(cluster: &Cluster, namespace: &str) -> Option<[String; 2]> {
    let uid = |resource: &str, name: &str| {
        let made = cluster.object(&[resource, name, "-n", namespace])?;
        metadata::uid(&made).map(str::to_owned)
    };
    Some([uid("configmap", "settings")?, uid("secret", "token")?])
}

fn label(cluster: &Cluster, what: &[&str], key: &str) -> Option<String> {
    metadata::label(&cluster.object(what)?, key).map(str::to_owned)
}

/// What is said to a Service with a node port, which only Kyverno's policy is about.
fn refused_by_kyverno(cluster: &Cluster) -> bool {
    let service = "{apiVersion: v1, kind: Service, metadata: {name: open, namespace: default}, \
                    spec: {type: NodePort, ports: [{port: 80}]}}";
    let dry = ["apply", "--server-side", "--dry-run=server", "--filename=-"];
    let said = cluster.kubectl_with_input(&dry, service);
    said.is_err_and(|why| why.to_string().contains("Policy no-node-ports failed: no node ports"))
}

/// What is said to a ConfigMap without an owner, if it is denied.
fn refusal(cluster: &Cluster) -> Option<String> {
    let map = "{apiVersion: v1, kind: ConfigMap, metadata: {name: nobodys, namespace: tenant-a, labels: {checked: 'yes'}}}";
    let dry = ["apply", "--server-side", "--dry-run=server", "--filename=-"];
    let said = cluster.kubectl_with_input(&dry, map).err()?.to_string();
    assert!(said.contains("set the label owner"), "{said}");
    Some(said)
}

fn old_kinds_are_refused(request: &Value) -> Option<String> {
    let kind = request.str_at(["kind", "kind"]).unwrap_or_default();
    Some(format!("{kind} of kyverno.io is gone: use policies.kyverno.io"))
}

#[test]
#[ignore = "builds Kyverno from Go modules, many minutes the first time: cargo xtask beside-kyverno"]
fn policies_leave_a_kyverno_that_refuses_the_old_kinds() {
    let kyverno = match Kyverno::find() {
        Ok(kyverno) => kyverno,
        Err(why) => {
            kiln_testkit::skip(&format!("there is no Kyverno: {why}"), "install Go 1.26 or newer");
            return;
        }
    };
    let Some(cluster) = on_bare(ControlPlane::start) else { return };
    let _kyverno = RunningKyverno::start(&cluster, &kyverno);

    // Kyverno alone: the old kinds do their work.
    cluster.kubectl(&["create", "secret", "generic", "token", "--from-literal=a=1"]).unwrap();
    cluster.wait("Kyverno stores the old kinds", || cluster.apply(OLD).is_ok());
    cluster.wait("Kyverno stores the newer kind", || cluster.apply(NEW).is_ok());
    cluster.wait("its policies are ready", || {
        ["tenants", "owners"].iter().all(|policy| cluster.ready(policy))
    });
    cluster.wait("Kyverno checks Services", || refused_by_kyverno(&cluster));
    cluster.apply(&namespaces(["tenant-a".to_owned()])).unwrap();
    cluster.wait("Kyverno generates", || downstreams(&cluster, "tenant-a").is_some());
    let before = downstreams(&cluster, "tenant-a");
    cluster.wait("Kyverno refuses", || refusal(&cluster).is_some());

    // From now on the old kinds cannot be written.
    let webhook = TestWebhook::start(old_kinds_are_refused);
    let refuses = REFUSES_OLD_KINDS.replace("CLIENT_CONFIG", &webhook.client_config());
    cluster.apply(&refuses).unwrap();
    let touch = ["label", "clusterpolicies.kyverno.io", "tenants", "probe=x", "--dry-run=server"];
    let mut said = String::new();
    cluster.wait("the old kinds are refused", || {
        let now = match cluster.kubectl(&touch) {
            Ok(done) => done,
            Err(why) => why.to_string(),
        };
        if now != said {
            eprintln!("a change of an old kind: {now}");
            said = now;
        }
        said.contains("is gone")
    });

    // Kiln beside it takes the policies over.
    let engine = start_kiln(&cluster);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let moved = kiln(&["adopt", "--move", "--kubeconfig", &kubeconfig]);
    assert!(moved.contains("apiVersion: kiln.dev/v1\n"), "{moved}");
    assert!(!moved.contains("no-node-ports"), "newer kinds stay: {moved}");
    cluster.wait("the policies are stored in kiln.dev", || cluster.apply(&moved).is_ok());
    for (resource, name) in [("configmap", "settings"), ("secret", "token")] {
        let what = [resource, name, "-n", "tenant-a"];
        cluster.wait("what Kyverno generated is Kiln's", || {
            label(&cluster, &what, "generate.kiln.dev/policy-name").as_deref() == Some("tenants")
        });
    }
    cluster.kubectl(&["delete", "clusterpolicies.kyverno.io", "tenants", "owners"]).unwrap();

    // What was generated stays, and Kiln keeps it in shape.
    let edit = r#"{"data":{"tier":"edited"}}"#;
    let patch = ["patch", "configmap", "settings", "-n", "tenant-a", "--type=merge", "-p", edit];
    cluster.kubectl(&patch).unwrap();
    cluster.wait("an edit is reverted", || {
        let made = cluster.object(&["configmap", "settings", "-n", "tenant-a"]);
        made.is_some_and(|made| made.str_at(["data", "tier"]) == Some("standard"))
    });
    cluster.apply(&namespaces(["tenant-b".to_owned()])).unwrap();
    cluster.wait("Kiln generates", || downstreams(&cluster, "tenant-b").is_some());
    let by = ["configmap", "settings", "-n", "tenant-b"];
    let manager = label(&cluster, &by, "app.kubernetes.io/managed-by");
    assert_eq!(manager.as_deref(), Some("kiln"));
    // Kyverno has no policy about ConfigMaps any more: who refuses is Kiln.
    cluster.wait("Kyverno no longer asks about ConfigMaps", || {
        let name = ["validatingwebhookconfiguration", "kyverno-resource-validating-webhook-cfg"];
        let stored = cluster.object(&name).map(|stored| json::to_string(&stored));
        !stored.unwrap_or_default().contains("configmaps")
    });
    cluster.wait("Kiln refuses", || refusal(&cluster).is_some());
    let source = r#"{"stringData":{"a":"2"}}"#;
    cluster.kubectl(&["patch", "secret", "token", "--type=merge", "-p", source]).unwrap();
    cluster.wait("clones follow their source", || {
        let copy = cluster.object(&["secret", "token", "-n", "tenant-a"]);
        copy.is_some_and(|copy| copy.str_at(["data", "a"]) == Some("Mg=="))
    });
    assert_eq!(downstreams(&cluster, "tenant-a"), before, "the same objects as before");

    // Kyverno goes on with what is left to it, and neither touches what the other one registered.
    assert!(refused_by_kyverno(&cluster), "Kyverno checks Services as before");
    let configurations = cluster
        .object(&["validatingwebhookconfigurations,mutatingwebhookconfigurations"])
        .map(|list| json::to_string(&list))
        .unwrap_or_default();
    for name in ["kyverno-policy-validating-webhook-cfg", "kiln-policy-validating-webhook-cfg"] {
        assert!(configurations.contains(name), "{name} in {configurations}");
    }
    assert!(engine.get("/livez").is_some(), "Kiln is alive");
}
