//! What a test waits for in vain because a rule would have to do it that Kiln does not run.

use kiln_dialects::{NotRun, PolicyHost, compile_for, not_run_in_words};
use kiln_object::{Gvk, Kinds};
use kiln_value::{Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

use super::TestCluster;
use super::format::Verb;

/// The groups whose policies are for the engine. Those of the API server are run by the sandbox.
const GROUPS: [&str; 2] = ["kyverno.io", "policies.kyverno.io"];
/// The groups of reports about what rules think of objects.
const REPORTS: [&str; 3] = ["wgpolicyk8s.io", "openreports.io", "reports.kyverno.io"];
/// Where policies are stored that may have rules that are run beside rules that are not, and their kinds.
const POLICIES: [(&str, &str); 2] = [
    ("/apis/kyverno.io/v1/clusterpolicies", "ClusterPolicy"),
    ("/apis/kyverno.io/v1/policies", "Policy"),
];

/// Why nothing comes of a policy: Kiln runs none of its kind.
pub(super) fn of_kind(policy: &Value) -> Option<String> {
    let group = Gvk::of(policy)?.group;
    if !GROUPS.contains(&group.as_str()) {
        return None;
    }
    let whole = not_run(policy).into_iter().find(|not_run| not_run.rule.is_none())?;
    Some(format!("not run by Kiln: {}", whole.what))
}

/// What Kiln says of a policy beside `Ready`: that some of its rules are not run.
const ALL_RUN: &str = "AllRulesRun";

/// Whether rules that check objects would have brought about what is asserted: what is in a report, or that a policy is
/// ready none of whose rules is run.
pub(super) fn is_for_checks(cluster: &dyn TestCluster, verb: Verb, wanted: &Value) -> bool {
    let Some(Gvk { group, kind, .. }) = Gvk::of(wanted) else { return false };
    let name = wanted.str_at(["metadata", "name"]).unwrap_or_default();
    match POLICIES.iter().find(|(_, policy)| group == "kyverno.io" && kind == *policy) {
        _ if verb == Verb::Error => false,
        Some((path, _)) => {
            let list = cluster.send("GET", path, "", None).value;
            let items = list.get("items").and_then(Value::as_list);
            items.into_iter().flat_map(|items| items.iter()).any(|policy| {
                policy.str_at(["metadata", "name"]) == Some(name)
                    && conditions(policy).any(|condition| {
                        condition.str_at(["type"]) == Some("Ready")
                            && condition.str_at(["reason"]) == Some("RulesNotRun")
                    })
            })
        }
        None => REPORTS.contains(&group.as_str()),
    }
}

fn conditions(policy: &Value) -> impl Iterator<Item = &Value> {
    let list = policy.get_path(["status", "conditions"]).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter())
}

/// A policy without the condition that Kyverno does not have: tests tell how many conditions there are.
pub(super) fn without_own_condition(found: &Value, wanted: &Value) -> Value {
    let is_own = |condition: &Value| condition.str_at(["type"]) == Some(ALL_RUN);
    if !conditions(found).any(is_own) || json::to_string(wanted).contains(ALL_RUN) {
        return found.clone();
    }
    let others: Value = conditions(found).filter(|one| !is_own(one)).cloned().collect();
    let mut found = found.clone();
    let _ = found.set(["status", "conditions"], others);
    found
}

/// The rules of policies on this cluster that check objects and are not run, in words.
pub(super) fn checks(cluster: &dyn TestCluster) -> Option<String> {
    let mut words = Vec::new();
    for (path, kind) in POLICIES {
        let list = cluster.send("GET", path, "", None).value;
        let items = list.get("items").and_then(Value::as_list);
        for policy in items.into_iter().flat_map(|items| items.iter()) {
            // Lists do not say of every item what it is.
            let mut policy = policy.clone();
            let _ = policy.set(["apiVersion"], "kyverno.io/v1");
            let _ = policy.set(["kind"], kind);
            if let Some(said) = not_run_in_words(&not_run(&policy)) {
                let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
                words.push(format!("{said} of {name}"));
            }
        }
    }
    (!words.is_empty()).then(|| format!("not run by Kiln: {}", words.join(", ")))
}

/// What of a policy is not run.
fn not_run(policy: &Value) -> Vec<NotRun> {
    let text = json::to_string(policy);
    let documents = read_bytes("policy", text.as_bytes(), ReadOptions::kubernetes());
    let documents = documents.unwrap_or_default();
    compile_for(PolicyHost::Cluster, &documents, &Kinds::builtin()).not_run
}
