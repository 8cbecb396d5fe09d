//! Pods, and the Pod Security policies of the policy library.

use anyhow::{Context, Result};
use kiln_testkit::corpus;
use kiln_yaml::{ReadOptions, read_bytes};
use serde_json::{Value, json};

use super::POLICIES;
use super::contender::{Contender, Stage};
use crate::bench::kyverno_validate::pod_security;

/// So many namespaces have Pods.
pub(super) const TEAMS: usize = 20;

/// The policies, as JSON: they audit, and are run on what exists.
pub(super) struct PodSecurity {
    policies: Vec<Value>,
}

impl PodSecurity {
    /// Those of the recorded cases; none if they are missing.
    pub(super) fn find() -> Result<Option<Self>> {
        let Some(library) = corpus("policy-library") else { return Ok(None) };
        let text = pod_security(&library)?;
        let documents = read_bytes("policies", text.as_bytes(), ReadOptions::kubernetes());
        let documents = documents.ok().context("the policies of the library cannot be read")?;
        let mut policies = Vec::new();
        for document in &documents {
            let text = kiln_value::json::to_string(document.value());
            let mut policy: Value = serde_json::from_str(&text)?;
            policy["spec"]["validationFailureAction"] = json!("Audit");
            policy["spec"]["background"] = json!(true);
            policies.push(policy);
        }
        Ok(Some(PodSecurity { policies }))
    }

    pub(super) fn count(&self) -> usize {
        self.policies.len()
    }

    /// Stores all policies, and waits until the contender says that each is ready.
    pub(super) fn store(&self, stage: &Stage<'_>, contender: &Contender) -> Result<()> {
        for policy in &self.policies {
            let name = policy["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            contender.wait("storing policies", || {
                stage.client.post(POLICIES, &policy.to_string()).is_ok()
                    || stage.client.object(&format!("{POLICIES}/{name}")).is_ok()
            })?;
        }
        contender.wait("ready with all policies", || {
            let stored = stage.client.object(POLICIES).unwrap_or_default();
            let items = stored["items"].as_array().cloned().unwrap_or_default();
            items.len() == self.count() && items.iter().all(is_ready)
        })
    }
}

fn is_ready(policy: &Value) -> bool {
    let conditions = policy["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.iter().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// A Pod as people write them: some break rules, most do not.
pub(super) fn pod(number: usize) -> Value {
    let containers: Vec<Value> = (0..=number % 3)
        .map(|container| {
            let mut made = json!({
                "name": format!("c{container}"),
                "image": format!("registry-{}.example/app:{number}", (number + container) % 4),
                "resources": {"limits": {"memory": format!("{}Mi", 100 + number % 300)}},
            });
            if number.is_multiple_of(4) {
                made["securityContext"] =
                    json!({"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}});
            }
            made
        })
        .collect();
    let mut spec = json!({"containers": containers});
    if number.is_multiple_of(11) {
        spec["hostNetwork"] = json!(true);
    }
    if number.is_multiple_of(3) {
        spec["securityContext"] =
            json!({"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}});
    }
    if number.is_multiple_of(7) {
        spec["volumes"] = json!([{"name": "host", "hostPath": {"path": "/var/log"}}]);
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": {
            "name": format!("p-{number}"), "namespace": format!("team-{}", number % TEAMS),
            "labels": {"app": format!("app-{}", number % 50)},
        },
    })
}
