//! Rules that check objects, in the sandbox: refused, warned of, audited, told of.

use nix::sys::signal::Signal;

use super::Up;
use crate::harness::Folder;

/// Two policies that refuse, one that warns and one that audits, about ConfigMaps of one namespace.
const POLICIES: &str = "
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: owned}
spec:
  rules:
  - name: owner
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [shop]}}]}
    validate: {failureAction: Enforce, message: set the label owner, pattern: {metadata: {labels: {owner: '?*'}}}}
---
apiVersion: policies.kyverno.io/v1
kind: ValidatingPolicy
metadata: {name: small}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: shop}}
    resourceRules: [{apiGroups: [''], apiVersions: [v1], operations: [CREATE, UPDATE], resources: [configmaps]}]
  validations:
  - {expression: '!has(object.data) || object.data.size() < 3', message: at most two keys}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: loud}
spec:
  emitWarning: true
  rules:
  - name: team
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [shop]}}]}
    validate: {failureAction: Audit, message: no team, pattern: {metadata: {labels: {team: '?*'}}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: quiet}
spec:
  rules:
  - name: color
    match: {any: [{resources: {kinds: [ConfigMap], namespaces: [shop]}}]}
    validate: {failureAction: Audit, message: no color, pattern: {metadata: {labels: {color: '?*'}}}}
---
{apiVersion: v1, kind: Namespace, metadata: {name: shop}}
";

fn config_map(name: &str, labels: &str, data: &str) -> String {
    format!(
        "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: {name}, labels: {{{labels}}}}}, data: {{{data}}}}}"
    )
}

#[test]
fn rules_refuse_warn_and_audit() {
    let folder = Folder::with(&[("policies.yaml", POLICIES)]);
    let up = Up::start(&folder, &["policies.yaml"], "Ctrl-C");
    let path = "/api/v1/namespaces/shop/configmaps";

    let bad = up.create(path, &config_map("bad", "", "a: b"));
    assert_eq!(bad.status, 400, "{}", bad.text);
    let said: serde_json::Value = serde_json::from_str(&bad.text).unwrap();
    assert_eq!(
        said["message"].as_str().unwrap(),
        "admission webhook \"validate.kyverno.svc-fail\" denied the request: \n\n\
         resource ConfigMap/shop/bad was blocked due to the following policies \n\nowned:\n  \
         owner: 'validation error: set the label owner. rule owner failed at path /metadata/labels/'\n"
    );
    let large = up.create(path, &config_map("large", "owner: me", "a: b, c: d, e: f"));
    let said: serde_json::Value = serde_json::from_str(&large.text).unwrap();
    assert_eq!(
        said["message"].as_str().unwrap(),
        "admission webhook \"vpol.validate.kyverno.svc-fail\" denied the request: Policy small failed: at most two keys"
    );
    let good = up.create(path, &config_map("good", "owner: me", "a: b"));
    assert_eq!(good.status, 201, "{}", good.text);
    assert!(
        good.warnings.contains("policy loud.team: validation error: no team. rule team failed at path /metadata/labels/team/"),
        "{}",
        good.warnings
    );
    assert!(!good.warnings.contains("color"), "{}", good.warnings);
    // Elsewhere the rules have nothing to say.
    let other = up.create("/api/v1/namespaces/default/configmaps", &config_map("bad", "", ""));
    assert_eq!((other.status, other.warnings.as_str()), (201, ""), "{}", other.text);

    let events = |namespace: &str| -> Vec<String> {
        let path = format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events");
        let list: serde_json::Value = serde_json::from_str(&up.get(&path).1).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let text = |event: &serde_json::Value, key: &str| event[key].as_str().unwrap().to_owned();
        items
            .filter(|event| event["reason"] == "PolicyViolation")
            .map(|event| {
                let about = event["regarding"]["name"].as_str().unwrap();
                let (action, note) = (text(event, "action"), text(event, "note"));
                format!("{about}: {action}: {note} ({})", text(event, "reportingController"))
            })
            .collect()
    };
    let blocked = "owned: Resource Blocked: ConfigMap shop/bad: [owner] fail (blocked); validation error: \
                   set the label owner. rule owner failed at path /metadata/labels/ (kyverno-admission)";
    up.wait_until("the event about the refusal", || {
        events("default").contains(&blocked.to_owned())
    });
    let audited = "good: Resource Passed: policy quiet/color fail: validation error: no color. \
                   rule color failed at path /metadata/labels/color/ (kyverno-admission)";
    up.wait_until("the event about the audit", || events("shop").contains(&audited.to_owned()));

    let metrics = up.metrics();
    for line in [
        "kiln_rule_results_total{policy=\"owned\",rule=\"owner\",result=\"fail\"} 1",
        // Also for the object that the other webhook refused: an API server asks both.
        "kiln_rule_results_total{policy=\"quiet\",rule=\"color\",result=\"fail\"} 2",
        "kiln_rule_results_total{policy=\"small\",rule=\"small\",result=\"fail\"} 1",
        "kiln_policies{state=\"not run\"} 0",
        "kiln_policies{state=\"sound\"} 4",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line}\n{metrics}");
    }
    let policy: serde_json::Value =
        serde_json::from_str(&up.get("/apis/kyverno.io/v1/clusterpolicies/owned").1).unwrap();
    assert_eq!(policy["status"]["rulecount"]["validate"], 1);
    let conditions = up.conditions("/apis/policies.kyverno.io/v1/validatingpolicies/small");
    let expected = ["WebhookConfigured True Succeeded", "RBACPermissionsGranted True Succeeded"];
    assert_eq!(conditions, expected);

    // Commands that only look say the same.
    let explained =
        folder.kiln(&["explain", "configmap/good", "-n", "shop", "--kubeconfig", "config"]);
    assert!(explained.stdout.contains("no color. rule color failed"), "{}", explained.stdout);
    let checked = folder.kiln(&["doctor", "--kubeconfig", "config"]);
    assert!(!checked.stdout.contains("not run"), "{}", checked.stdout);
    assert_eq!(up.end(Signal::SIGTERM), Some(0));
}
