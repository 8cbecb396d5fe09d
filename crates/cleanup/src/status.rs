//! What the status of a policy that deletes objects says.

use kiln_text::Time;
use kiln_value::{Map, Value, value};

use crate::cleaner::{CleanupPolicy, RunReport};

/// The condition that says what came of the last run.
const LAST_RUN: &str = "LastRunSucceeded";

/// The status that a policy should have.
pub(crate) fn wanted(
    policy: &CleanupPolicy,
    last_run: Option<i64>,
    report: Option<&RunReport>,
) -> Value {
    let (ready, reason, message) = match policy.lacks.as_slice() {
        [] => ("True", "Succeeded", "Ready".to_owned()),
        lacks => {
            ("False", "MissingPermissions", format!("missing permissions: {}", lacks.join(", ")))
        }
    };
    let condition = |kind: &str, status: &str, reason: &str, message: &str| value!({"type": kind, "status": status, "reason": reason, "message": message});
    let mut conditions = vec![condition("Ready", ready, reason, &message)];
    conditions.extend(match report {
        Some(report) => Some(last_run_condition(report)),
        // A new leader has not seen the last run; what it left stays.
        None => stored(policy, LAST_RUN),
    });
    let conditions = Value::from(conditions);
    let mut status = Map::new();
    if kiln_object::policy_kinds::is_cel(&policy.object.gvk) {
        let message = if ready == "True" { String::new() } else { message };
        status.insert(
            "conditionStatus",
            value!({"ready": ready == "True", "message": message, "conditions": conditions}),
        );
    } else {
        status.insert("conditions", conditions);
    }
    let time = last_run.and_then(|seconds| Time::from_unix(seconds, 0));
    if let Some(time) = time {
        status.insert("lastExecutionTime", time.rfc3339());
    }
    Value::Map(status)
}

fn last_run_condition(report: &RunReport) -> Value {
    let RunReport { seen, deleted, failed, .. } = report;
    let (status, reason, message) = match &report.first_failure {
        None => ("True", "Succeeded", format!("deleted {deleted} of {seen} objects")),
        Some(first) => (
            "False",
            "Failed",
            format!("deleted {deleted} of {seen} objects; {failed} failed, the first is {first}"),
        ),
    };
    // A condition has at most so many characters.
    let message: String = message.chars().take(1_024).collect();
    value!({"type": LAST_RUN, "status": status, "reason": reason, "message": message})
}

/// A condition of the stored status, without its time.
fn stored(policy: &CleanupPolicy, kind: &str) -> Option<Value> {
    let status = &policy.status;
    let list =
        status.get("conditions").or_else(|| status.get_path(["conditionStatus", "conditions"]));
    let found = list?.as_list()?.iter().find(|one| one.str_at(["type"]) == Some(kind))?;
    let mut condition = found.clone();
    condition.as_map_mut()?.remove("lastTransitionTime");
    Some(condition)
}

/// Whether a status says what it should, whatever else it says.
pub(crate) fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Map(live), Value::Map(wanted)) => wanted
            .iter()
            .all(|(key, value)| live.get(key.as_str()).is_some_and(|live| covers(live, value))),
        (Value::List(live), Value::List(wanted)) => {
            live.len() == wanted.len() && live.iter().zip(wanted.iter()).all(|(l, w)| covers(l, w))
        }
        _ => live == wanted,
    }
}
