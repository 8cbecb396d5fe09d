//! What policies say of themselves in their status.

use std::fmt;

use kiln_value::Value;

/// The condition that says which kinds cannot fire a policy.
pub(crate) const READABLE: &str = "TriggersReadable";

/// The condition that says which rules of a policy are not run.
const ALL_RUN: &str = "AllRulesRun";
/// Its reason, and that of `Ready` where no rule is run.
pub(crate) const NOT_RUN: &str = "RulesNotRun";

/// Something that a policy's status says does not hold.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct PolicyCondition {
    /// `name`, or `namespace/name`.
    pub(crate) policy: String,
    pub(crate) condition: String,
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether the policy acts all the same.
    pub(crate) is_ready: bool,
}

impl fmt::Display for PolicyCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PolicyCondition { policy, condition, message, .. } = self;
        match condition.as_str() {
            ALL_RUN => write!(f, "policy {policy}: {message}"),
            READABLE => {
                write!(f, "policy {policy} is not triggered by all kinds that it names: {message}")
            }
            "Ready" => write!(f, "policy {policy} is not ready: {message}"),
            _ => write!(f, "policy {policy} is not {condition}: {message}"),
        }
    }
}

/// The conditions in a policy's status that do not hold: those of rules, and those of policies in CEL, which have
/// another place.
pub(crate) fn unmet(policy: &Value) -> Vec<PolicyCondition> {
    let places = [&["status"][..], &["status", "conditionStatus"]];
    let places = places.into_iter().filter_map(|path| policy.get_path(path.iter().copied()));
    places.flat_map(|status| unmet_in(policy, status)).collect()
}

fn unmet_in(policy: &Value, status: &Value) -> Vec<PolicyCondition> {
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
    let name = match policy.str_at(["metadata", "namespace"]) {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let is_ready = status.get("ready").and_then(Value::as_bool);
    let read = |condition: &Value, kind: &str| {
        let text = |key: &str| condition.str_at([key]).unwrap_or_default().to_owned();
        PolicyCondition {
            policy: name.clone(),
            condition: kind.to_owned(),
            reason: text("reason"),
            message: text("message"),
            is_ready: is_ready == Some(true),
        }
    };
    let conditions = status.get("conditions").and_then(Value::as_list);
    let mut found: Vec<PolicyCondition> = conditions
        .into_iter()
        .flat_map(|list| list.iter())
        .filter(|condition| condition.str_at(["status"]) == Some("False"))
        .map(|condition| read(condition, condition.str_at(["type"]).unwrap_or_default()))
        .collect();
    // Some say so in one word.
    let is_beside =
        |condition: &PolicyCondition| [READABLE, ALL_RUN].contains(&condition.condition.as_str());
    if is_ready == Some(false) && found.iter().all(is_beside) {
        found.insert(0, read(status, "Ready"));
    }
    // One sentence says both.
    if found.iter().any(|found| found.condition == "Ready" && found.reason == NOT_RUN) {
        found.retain(|found| found.condition != ALL_RUN);
    }
    found
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    #[test]
    fn both_places_are_read() {
        let no =
            |kind: &str| value!({"type": kind, "status": "False", "reason": "R", "message": "m"});
        let yes = value!({"type": "Other", "status": "True"});
        for (status, wanted) in [
            (value!({}), vec![]),
            (value!({"ready": true, "conditions": [yes]}), vec![]),
            (value!({"conditions": [no("Ready"), yes]}), vec![("Ready", false)]),
            (value!({"ready": true, "conditions": [yes, no(READABLE)]}), vec![(READABLE, true)]),
            (
                value!({"conditionStatus": {"ready": true, "conditions": [no("WebhookConfigured")]}}),
                vec![("WebhookConfigured", true)],
            ),
            (
                value!({"conditionStatus": {"ready": false, "message": "m", "conditions": [no(READABLE)]}}),
                vec![("Ready", false), (READABLE, false)],
            ),
            (value!({"ready": false}), vec![("Ready", false)]),
        ] {
            let policy = value!({"metadata": {"name": "p", "namespace": "shop"}, "status": status});
            let found = unmet(&policy);
            let found: Vec<_> =
                found.iter().map(|found| (found.condition.as_str(), found.is_ready)).collect();
            assert_eq!(found, wanted, "{policy:?}");
        }
    }
}
