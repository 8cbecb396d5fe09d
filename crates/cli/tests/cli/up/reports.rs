//! Reports in the sandbox: from requests and from scans, and gone when there is nothing to say.

use nix::sys::signal::Signal;

use super::Up;
use crate::harness::Folder;

const SHOP: &str = "{apiVersion: v1, kind: Namespace, metadata: {name: shop}}";

fn policy(name: &str, label: &str, spec: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}, annotations: {{policies.kyverno.io/severity: high}}}}\n\
         spec:\n  {spec}\n  rules:\n  - name: check\n    match: {{any: [{{resources: {{kinds: [ConfigMap], namespaces: [shop]}}}}]}}\n    \
         validate: {{failureAction: Audit, message: no {label}, pattern: {{metadata: {{labels: {{{label}: '?*'}}}}}}}}\n"
    )
}

/// The results of the reports of a namespace: object, policy, result and process.
fn results(up: &Up) -> Vec<String> {
    let path = "/apis/wgpolicyk8s.io/v1alpha2/namespaces/shop/policyreports";
    let list: serde_json::Value = serde_json::from_str(&up.get(path).1).unwrap();
    let mut found = Vec::new();
    let of_test = |report: &&serde_json::Value| report["scope"]["name"] != "kube-root-ca.crt";
    for report in list["items"].as_array().unwrap().iter().filter(of_test) {
        assert_eq!(report["metadata"]["name"], report["scope"]["uid"]);
        assert_eq!(report["metadata"]["ownerReferences"][0]["uid"], report["scope"]["uid"]);
        for result in report["results"].as_array().unwrap() {
            assert_eq!(
                (&result["severity"], &result["source"]),
                (&"high".into(), &"kyverno".into())
            );
            let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
            found.push(format!(
                "{} {} {} ({})",
                text(&report["scope"]["name"]),
                text(&result["policy"]),
                text(&result["result"]),
                text(&result["properties"]["process"])
            ));
        }
    }
    found.sort();
    found
}

#[test]
fn objects_are_reported_as_they_come_and_as_they_are() {
    let old = "{apiVersion: v1, kind: ConfigMap, metadata: {name: old, namespace: shop, labels: {owner: me}}}";
    let folder = Folder::with(&[("shop.yaml", SHOP), ("old.yaml", old)]);
    let up = Up::start(&folder, &["shop.yaml", "--resource", "old.yaml"], "Ctrl-C");
    let policies = "/apis/kyverno.io/v1/clusterpolicies";
    // One that is scanned, and one that only sees requests.
    for (name, label, spec) in
        [("owned", "owner", "background: true"), ("team", "team", "background: false")]
    {
        let stored = up.create(policies, &policy(name, label, spec));
        assert_eq!(stored.status, 201, "{}", stored.text);
        let path = format!("{policies}/{name}");
        up.wait_until("the policy is ready", || up.conditions(&path) == ["Ready True Succeeded"]);
    }
    up.wait_until("what was there is scanned", || {
        results(&up) == ["old owned pass (background scan)"]
    });
    let maps = "/api/v1/namespaces/shop/configmaps";
    let new = "{apiVersion: v1, kind: ConfigMap, metadata: {name: new}}";
    assert_eq!(up.create(maps, new).status, 201);
    let expected = [
        "new owned fail (background scan)",
        "new team fail (admission review)",
        "old owned pass (background scan)",
    ];
    up.wait_until("the request is reported", || results(&up) == expected);
    // A policy that goes takes its results along, and the last one its report.
    assert_eq!(up.delete(&format!("{policies}/owned")), 200);
    up.wait_until("the results of the policy are gone", || {
        results(&up) == ["new team fail (admission review)"]
    });
    assert_eq!(up.delete(&format!("{maps}/new")), 200);
    up.wait_until("the report goes with its object", || results(&up).is_empty());
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}

/// What a rule says of an object in its report: result, message and a property.
fn said(up: &Up, name: &str, policy: &str, property: &str) -> Option<[String; 3]> {
    let path = "/apis/wgpolicyk8s.io/v1alpha2/namespaces/shop/policyreports";
    let list: serde_json::Value = serde_json::from_str(&up.get(path).1).unwrap();
    let reports = list["items"].as_array().unwrap();
    let report = reports.iter().find(|report| report["scope"]["name"] == name)?;
    let results = report["results"].as_array().unwrap();
    let result = results.iter().find(|result| result["policy"] == policy)?;
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    Some([text(&result["result"]), text(&result["message"]), text(&result["properties"][property])])
}

fn acting(name: &str, kind: &str, action: &str) -> String {
    format!(
        "apiVersion: kyverno.io/v1\nkind: ClusterPolicy\nmetadata: {{name: {name}}}\nspec:\n  rules:\n  - name: r\n    \
         match: {{any: [{{resources: {{kinds: [{kind}], namespaces: [shop], names: [trigger*]}}}}]}}\n    {action}\n"
    )
}

#[test]
fn rules_that_change_and_generate_are_reported_and_can_be_switched_off() {
    let folder = Folder::with(&[("shop.yaml", SHOP)]);
    let up = Up::start(&folder, &["shop.yaml"], "Ctrl-C");
    let policies = "/apis/kyverno.io/v1/clusterpolicies";
    let maps = "/api/v1/namespaces/shop/configmaps";
    let target = "{apiVersion: v1, kind: ConfigMap, metadata: {name: target}}";
    assert_eq!(up.create(maps, target).status, 201);
    let labels = "mutate: {patchStrategicMerge: {metadata: {labels: {a: b}}}}";
    let existing = "mutate: {targets: [{apiVersion: v1, kind: ConfigMap, name: target, namespace: shop}], patchStrategicMerge: {data: {k: v}}}";
    let generate = "generate: {apiVersion: v1, kind: ConfigMap, name: made, namespace: shop, synchronize: true, data: {data: {k: v}}}";
    for (name, action) in [("labels", labels), ("existing", existing), ("makes", generate)] {
        let stored = up.create(policies, &acting(name, "ConfigMap", action));
        assert_eq!(stored.status, 201, "{}", stored.text);
        let path = format!("{policies}/{name}");
        up.wait_until("the policy is ready", || up.conditions(&path) == ["Ready True Succeeded"]);
    }
    let trigger = "{apiVersion: v1, kind: ConfigMap, metadata: {name: trigger}}";
    assert_eq!(up.create(maps, trigger).status, 201);
    for (policy, message, property, objects) in [
        ("labels", "mutated ConfigMap/trigger in namespace shop", "patched-target", ""),
        (
            "existing",
            "mutated ConfigMap/target in namespace shop",
            "patched-target",
            "/v1, Kind=ConfigMap Name=target Namespace=shop",
        ),
        (
            "makes",
            "generated ConfigMap/made in namespace shop",
            "generated-resources",
            "/v1, Kind=ConfigMap Name=made Namespace=shop",
        ),
    ] {
        let wanted = ["pass", message, objects].map(str::to_owned);
        up.wait_until(policy, || said(&up, "trigger", policy, property) == Some(wanted.clone()));
    }
    // A rule that is about another kind now says nothing of this one.
    let path = format!("{policies}/labels");
    let edited = acting("labels", "Secret", labels);
    let patched = up.apply(&path, &edited);
    assert_eq!(patched.status, 200, "{}", patched.text);
    up.wait_until("its result goes", || said(&up, "trigger", "labels", "").is_none());
    assert!(said(&up, "trigger", "makes", "").is_some());
    // What is switched off goes, and what is left on stays.
    let config = "{apiVersion: v1, kind: ConfigMap, metadata: {name: kyverno}, data: {kiln.enableReporting: 'validate,mutateExisting'}}";
    let config_map = "/api/v1/namespaces/kyverno/configmaps/kyverno";
    let patched = up.apply(config_map, config);
    assert!([200, 201].contains(&patched.status), "{}", patched.text);
    up.wait_until("its result goes", || said(&up, "trigger", "makes", "").is_none());
    assert!(said(&up, "trigger", "existing", "").is_some());
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
