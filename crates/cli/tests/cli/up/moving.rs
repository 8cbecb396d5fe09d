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
            "step 4: delete ClusterPolicy settings, then store GeneratingPolicy settings with evaluation.generateExisting: the downstreams stay with their UIDs, as the old policy left them",
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
    up.wait_until("the new policy is ready", || {
        parsed(&up.get(&format!("{cel}/generatingpolicies/settings")).1)["status"]["conditionStatus"]
            ["ready"]
            == true
    });
    assert_eq!(uid(&up.get(DOWNSTREAM).1), before, "it was never deleted");
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

const SHADOW: &str = "
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: no-host, annotations: {kiln.dev/shadow-of: ClusterPolicy/no-host}}
spec:
  validationActions: [Deny]
  matchConstraints:
    resourceRules:
    - {apiGroups: [''], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  validations:
  - {expression: 'object.spec.?hostNetwork.orValue(false) == false && object.spec.?hostPID.orValue(false) == false', message: shadow}
";

/// What `kiln doctor` says of shadows: how it is, and what.
fn of_shadows(folder: &Folder) -> Vec<[String; 2]> {
    let run = folder.kiln(&["doctor", "--kubeconfig", "config", "--format", "json"]);
    let all = parsed(&run.stdout);
    let text = |found: &Value, key: &str| found[key].as_str().unwrap_or_default().to_owned();
    let all = all.as_array().unwrap().iter().filter(|found| found["about"] == "shadows");
    all.map(|found| ["state", "message"].map(|key| text(found, key))).collect()
}

#[test]
fn a_shadow_is_compared_on_real_requests_and_does_nothing() {
    let folder = Folder::with(&[("host.yaml", NO_LATEST), ("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["host.yaml", "--resource", "shop.yaml"], "Ctrl-C");
    let shadows = "/apis/policies.kyverno.io/v1/validatingpolicies";
    let stored = up.create(shadows, SHADOW);
    assert_eq!(stored.status, 201, "{}", stored.text);
    let pod = |name: &str, spec: &str| {
        format!(
            "{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, namespace: shop}}, spec: {{{spec}containers: [{{name: c, image: nginx}}]}}}}"
        )
    };
    let counted = |result: &str| -> u64 {
        let metrics = up.metrics();
        let lines = metrics.lines().filter(|line| line.starts_with("kiln_shadow_requests_total{"));
        let own = lines.filter(|line| line.contains(&format!("result=\"{result}\"")));
        own.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    };
    // Both webhooks and policies take a moment until they are in force.
    let mut number = 0;
    up.wait_until("the shadow is compared", || {
        number += 1;
        let answer = up.create("/api/v1/namespaces/shop/pods", &pod(&format!("good-{number}"), ""));
        assert_eq!(answer.status, 201, "{}", answer.text);
        counted("same") > 0
    });
    assert_eq!(counted("stricter"), 0);
    // The shadow would deny it; only the policy in force counts, which finds nothing.
    let answer = up.create("/api/v1/namespaces/shop/pods", &pod("pid", "hostPID: true, "));
    assert_eq!((answer.status, answer.warnings.as_str()), (201, ""), "{}", answer.text);
    up.wait_until("the difference is counted", || counted("stricter") == 1);
    up.wait_until("an Event says so", || {
        let events = up.get("/apis/events.k8s.io/v1/events").1;
        events.contains("ShadowDiffers") && events.contains("Pod shop/pid would be refused")
    });
    let [found] = of_shadows(&folder).try_into().unwrap();
    assert_eq!(found[0], "warning", "{found:?}");
    assert!(
        found[1].starts_with("ValidatingPolicy/no-host differs from ClusterPolicy/no-host: of "),
        "{found:?}"
    );
    assert!(found[1].ends_with(" 1 stricter"), "{found:?}");
    // Without the annotation it is in force.
    let path = format!("{shadows}/no-host");
    assert_eq!(up.delete(&path), 200);
    let in_force = SHADOW.replace(", annotations: {kiln.dev/shadow-of: ClusterPolicy/no-host}", "");
    assert_eq!(up.create(shadows, &in_force).status, 201);
    up.wait_until("the policy denies", || {
        number += 1;
        let name = format!("bad-{number}");
        let answer = up.create("/api/v1/namespaces/shop/pods", &pod(&name, "hostPID: true, "));
        answer.status != 201
    });
    assert_eq!(of_shadows(&folder), Vec::<[String; 2]>::new());
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
