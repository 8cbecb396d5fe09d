//! A cluster that moves to converted policies: the plan, the steps of the plan, and the objects that stay.

use nix::sys::signal::Signal;
use serde_json::Value;

use super::{SETTINGS, SHOP, Up};
use crate::harness::Folder;

const NO_LATEST: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: no-host}
spec:
  rules:
  - name: network
    match: {any: [{resources: {kinds: [Pod]}}]}
    validate: {failureAction: Audit, message: no host network, pattern: {spec: {=(hostNetwork): false}}}
";

const EXCEPTION: &str = "
apiVersion: kyverno.io/v2
kind: PolicyException
metadata: {name: router, namespace: shop}
spec:
  exceptions: [{policyName: no-host, ruleNames: [network]}]
  match: {any: [{resources: {kinds: [Pod], names: [router]}}]}
";

const POLICIES: &str = "/apis/kyverno.io/v1/clusterpolicies";
const DOWNSTREAM: &str = "/api/v1/namespaces/shop/configmaps/settings";

fn parsed(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

#[test]
fn a_cluster_moves_as_the_plan_says_and_keeps_its_downstreams() {
    let folder =
        Folder::with(&[("rules.yaml", SETTINGS), ("host.yaml", NO_LATEST), ("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["rules.yaml", "host.yaml", "--resource", "shop.yaml"], "Ctrl-C");
    let uid = |body: &str| parsed(body)["metadata"]["uid"].as_str().unwrap().to_owned();
    let before = uid(&up.wait_for(DOWNSTREAM));
    let stored = up.create("/apis/kyverno.io/v2/namespaces/shop/policyexceptions", EXCEPTION);
    assert_eq!(stored.status, 201, "{}", stored.text);
    let versions = |path: &str| -> Vec<String> {
        let list = parsed(&up.get(path).1);
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["metadata"]["resourceVersion"].to_string()).collect()
    };
    let stored = versions(POLICIES);
    let run = folder.kiln(&[
        "convert",
        "--cluster",
        "--kubeconfig",
        "config",
        "--inputs",
        "60",
        "-o",
        "new",
    ]);
    assert_eq!(run.code, 0, "{}", run.stderr);
    let steps: Vec<&str> = run.stderr.lines().filter(|line| line.starts_with("step ")).collect();
    assert_eq!(
        steps,
        [
            "step 1: store 1 exception for the new policies, which do nothing before those are there",
            "step 2: store ValidatingPolicy no-host, then delete ClusterPolicy no-host",
            "step 3: set orphanDownstreamOnPolicyDelete: true in the generate rules of ClusterPolicy settings, so that its downstreams stay",
            "step 4: delete ClusterPolicy settings, then store GeneratingPolicy settings with evaluation.generateExisting: the downstreams are adopted and keep their UIDs",
        ]
    );
    assert_eq!(versions(POLICIES), stored, "the plan is only read");
    let cel = "/apis/policies.kyverno.io/v1";
    assert_eq!(versions(&format!("{cel}/validatingpolicies")), Vec::<String>::new());

    let create = |path: &str, document: &str| {
        let answer = up.create(path, document);
        assert_eq!(answer.status, 201, "{path}: {}", answer.text);
    };
    create(
        "/apis/policies.kyverno.io/v1/namespaces/shop/policyexceptions",
        &folder.read("new/router-exception.yaml"),
    );
    create(&format!("{cel}/validatingpolicies"), &folder.read("new/no-host.yaml"));
    assert_eq!(up.delete(&format!("{POLICIES}/no-host")), 200);
    let orphaning = SETTINGS.replace(
        "synchronize: true",
        "synchronize: true\n      orphanDownstreamOnPolicyDelete: true",
    );
    let answer = up.apply(&format!("{POLICIES}/settings"), &orphaning);
    assert_eq!(answer.status, 200, "{}", answer.text);
    up.wait_until("the policy is ready", || {
        up.conditions(&format!("{POLICIES}/settings")) == ["Ready True Succeeded"]
    });
    assert_eq!(up.delete(&format!("{POLICIES}/settings")), 200);
    up.wait_until("the policy is gone", || up.get(&format!("{POLICIES}/settings")).0 == 404);
    let generating = folder.read("new/settings.yaml");
    assert!(generating.contains("synchronize"), "{generating}");
    let with_existing = generating
        .replace("  evaluation:\n", "  evaluation:\n    generateExisting:\n      enabled: true\n");
    assert_ne!(with_existing, generating);
    create(&format!("{cel}/generatingpolicies"), &with_existing);
    up.wait_until("the downstream has a new owner", || {
        let (_, body) = up.get(DOWNSTREAM);
        body.contains("settings") && body.contains("gpol:settings")
    });
    assert_eq!(uid(&up.get(DOWNSTREAM).1), before, "it was never deleted");
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
