//! `kiln explain`, on a real control plane without an engine: what it says comes from the cluster alone.

use kiln_testkit::control_plane::ControlPlane;

use crate::harness::{Folder, Run};

const REQUEST: &str = "
apiVersion: kyverno.io/v2
kind: UpdateRequest
metadata: {name: ur-1, namespace: kyverno}
spec:
  requestType: generate
  policy: zk-kafka-address
  resource: {apiVersion: v1, kind: Namespace, name: shop}
";

#[test]
fn says_of_every_rule_why_it_acts_or_not() {
    let Some(cluster) = ControlPlane::for_test() else { return };
    let folder = Folder::with(&[]);
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let explain = |args: &[&str]| -> Run {
        let mut all = vec!["explain", "--kubeconfig", &kubeconfig];
        all.extend(args);
        folder.kiln(&all)
    };
    let run = explain(&["namespace/default"]);
    assert_eq!(run.stdout, "v1/Namespace/default\n  the cluster has no rules\n", "{}", run.stderr);

    let install = folder.kiln(&["install", "--no-workload"]);
    cluster.apply(&install.stdout).unwrap();
    let rules = kiln_testkit::project_root().join("examples/generate/zk-kafka-address/rules.yaml");
    cluster.kubectl(&["create", "-f", &rules.display().to_string()]).unwrap();
    cluster.kubectl(&["create", "namespace", "shop"]).unwrap();
    cluster.kubectl_with_input(&["create", "-f", "-"], REQUEST).unwrap();
    let status = r#"{"status": {"state": "Failed", "message": "no room", "retryCount": 3}}"#;
    let patch = ["--subresource=status", "--type=merge", "--patch", status];
    let patch = [&["patch", "updaterequest", "ur-1", "--namespace=kyverno"][..], &patch].concat();
    cluster.kubectl(&patch).unwrap();

    let run = explain(&["ns/shop"]);
    assert_eq!(
        run.stdout,
        "v1/Namespace/shop\n\
         policy zk-kafka-address, rule k-kafka-address\n  pass\n    \
         v1/ConfigMap/shop/zk-kafka-address is not there: UpdateRequest ur-1 says why\n\
         UpdateRequest ur-1 of policy zk-kafka-address: Failed, retried 3 times: no room\n",
        "{}",
        run.stderr
    );
    for (object, hint) in [
        ("ns/none", "`kubectl get namespace` lists the existing ones"),
        ("cm/none", "give its namespace with --namespace"),
    ] {
        let run = explain(&[object]);
        assert_eq!(run.code, 2);
        assert!(run.stderr.contains(hint), "{}", run.stderr);
        assert_eq!(run.stderr.contains("--namespace"), hint.contains("--namespace"));
    }
    let run = explain(&["namespace/default"]);
    assert!(
        run.stdout.contains("no match: excluded by namespaces: \"default\" is one of"),
        "{}",
        run.stdout
    );
    let run = explain(&["configmap/kyverno", "--namespace=kyverno", "--all"]);
    assert!(
        run.stdout.contains("a resource filter in the ConfigMap kyverno/kyverno"),
        "{}",
        run.stdout
    );
    assert!(run.stdout.contains("no match: it does not match kind v1/ConfigMap"), "{}", run.stdout);
    let run = explain(&["namespace/shop", "--user=system:node:one", "--group=system:nodes"]);
    assert!(run.stdout.contains("excludes the user system:node:one"), "{}", run.stdout);
    let run = explain(&["configmap", "kyverno", "--namespace=kyverno"]);
    assert!(run.stdout.contains("1 policy does not match; --all shows why"), "{}", run.stdout);
    let set = ["config", "set-context", "--current", "--namespace=kyverno"];
    cluster.kubectl(&set).unwrap();
    let run = explain(&["configmap/kyverno"]);
    assert!(run.stdout.starts_with("v1/ConfigMap/kyverno/kyverno\n"), "{}", run.stderr);
    cluster.kubectl(&["config", "set-context", "--current", "--namespace=default"]).unwrap();
    let run = explain(&["namespace/shop", "--trace"]);
    assert!(run.stdout.contains("kinds: yes"), "{}", run.stdout);
    let run = explain(&["namespace/shop", "--format=json"]);
    assert!(run.stdout.contains("\"verdict\": \"pass\""), "{}", run.stdout);

    for (object, wanted) in [
        ("namespace/nobody", "there is no v1/Namespace/nobody"),
        ("shop", "is not KIND/NAME"),
        ("gadget/one", "does not serve the kind"),
    ] {
        let run = explain(&[object]);
        assert_eq!(run.code, 2, "{object}");
        assert!(run.stderr.contains(wanted), "{object}: {}", run.stderr);
    }
}
