//! What a test waits for in vain because a rule would have to do it that Kiln does not run.

use kiln_dialects::{NotRun, compile, not_run_in_words};
use kiln_object::{Gvk, Kinds};
use kiln_value::{Value, json};
use kiln_yaml::{ReadOptions, read_bytes};

use super::Bed;
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

/// Whether rules that check objects would have brought about what is asserted.
pub(super) fn is_for_checks(verb: Verb, wanted: &Value) -> bool {
    let group = Gvk::of(wanted).map(|gvk| gvk.group);
    verb != Verb::Error && group.is_some_and(|group| REPORTS.contains(&group.as_str()))
}

/// The rules of policies on this cluster that check objects and are not run, in words.
pub(super) fn checks(bed: &dyn Bed) -> Option<String> {
    let mut words = Vec::new();
    for (path, kind) in POLICIES {
        let list = bed.send("GET", path, "", None).value;
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
    compile(documents.unwrap_or_default().iter(), &Kinds::builtin()).not_run
}
