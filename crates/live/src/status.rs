//! Writes the status of policies: whether their rules act.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kiln_cluster::{Call, ObjectPatch, Reason};
use kiln_object::{ObjectId, metadata};
use kiln_rules::{Policy, Program};
use kiln_text::time::Time;
use kiln_value::{Str, Value, value};

use crate::calls::carry_out;
use crate::client::Client;
use crate::drive::now;
use crate::registry::{Registry, StoredPolicy};
use crate::state::Shared;

/// Keeps the status of all policies as it should be, until the process is to end. Without webhooks a policy
/// is ready when it is read; with them, when they are registered for it.
pub(crate) async fn keep(shared: Shared, client: Client, with_webhooks: bool) {
    let mut registry = shared.registry.clone();
    let mut webhooks = shared.webhooks.subscribe();
    let mut shutdown = shared.shutdown.clone();
    // What was written and not seen yet, so that nothing is written twice.
    let mut written: HashMap<ObjectId, (String, Value)> = HashMap::new();
    loop {
        let stored = registry.borrow_and_update().clone();
        let registered = webhooks.borrow_and_update().clone();
        let mut failed = false;
        written.retain(|id, _| stored.policies.iter().any(|policy| policy.id == *id));
        count(&shared, &stored);
        for policy in stored.policies.iter().filter(|_| stored.complete) {
            let Some(status) = wanted(policy, with_webhooks.then_some(&registered)) else {
                continue;
            };
            let life = metadata::uid(&policy.object).unwrap_or_default().to_owned();
            if written.get(&policy.id) == Some(&(life.clone(), status.clone()))
                || covers(policy.object.get("status").unwrap_or(&Value::Null), &status)
            {
                continue;
            }
            let call = Call::Patch {
                target: policy.id.clone(),
                patch: ObjectPatch::Merge(
                    value!({"status": timed(&policy.object, status.clone())}),
                ),
                subresource: "status".into(),
            };
            let kinds = shared.kinds.borrow().clone();
            match carry_out(&client, &kinds, &call).await {
                Ok(_) => drop(written.insert(policy.id.clone(), (life, status))),
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => {
                    tracing::warn!(policy = %policy.id, %error, "cannot write the status");
                    failed = true;
                }
            }
        }
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            changed = webhooks.changed() => if changed.is_err() { return },
            _ = shutdown.changed() => return,
            () = tokio::time::sleep(Duration::from_secs(2)), if failed => {}
        }
    }
}

fn count(shared: &Shared, stored: &Registry) {
    let broken = stored.policies.iter().filter(|policy| policy.compiled.is_err()).count();
    #[allow(clippy::cast_precision_loss, reason = "a count for people")]
    for (state, number) in [("broken", broken), ("sound", stored.policies.len() - broken)] {
        shared.metrics.set("kiln_policies", &[("state", state)], number as f64);
    }
}

/// The status that a policy should have; none while it is not known.
fn wanted(
    policy: &StoredPolicy,
    webhooks: Option<&BTreeMap<ObjectId, (Str, i64)>>,
) -> Option<Value> {
    let scripted = policy.id.gvk.group == "policies.kyverno.io";
    let of_paths = policy.id.gvk.group == "api.kubemod.io";
    let sound = match &policy.compiled {
        Ok(sound) => sound,
        Err(why) if of_paths => return Some(value!({"conditions": ready_condition(false, why)})),
        Err(why) if scripted => return Some(condition_status(Some(why))),
        Err(why) => return Some(status(false, why, None)),
    };
    if let Some(registered) = webhooks {
        let uid = metadata::uid(&policy.object).unwrap_or_default();
        let generation =
            policy.object.get_path(["metadata", "generation"]).and_then(Value::as_i64).unwrap_or(0);
        let ready = registered
            .get(&policy.id)
            .is_some_and(|(known, upto)| known == uid && *upto >= generation);
        if !ready {
            return None;
        }
    }
    Some(match (scripted, of_paths) {
        (true, _) => condition_status(None),
        (_, true) => value!({"conditions": ready_condition(true, "Ready")}),
        _ => status(true, "Ready", Some(sound)),
    })
}

/// The status of policies that are written in CEL.
fn condition_status(problem: Option<&str>) -> Value {
    let (word, reason) =
        if problem.is_none() { ("True", "Succeeded") } else { ("False", "Failed") };
    let condition = |kind: &str, message: &str| value!({"type": kind, "status": word, "reason": reason, "message": message});
    let conditions = [
        condition("WebhookConfigured", problem.unwrap_or("Webhook configured.")),
        condition("RBACPermissionsGranted", problem.unwrap_or("Policy is ready for reporting.")),
    ];
    value!({"conditionStatus": {
        "ready": problem.is_none(), "message": problem.unwrap_or_default(),
        "conditions": Value::from_iter(conditions),
    }})
}

fn ready_condition(ready: bool, message: &str) -> Value {
    let (word, reason) = if ready { ("True", "Succeeded") } else { ("False", "Failed") };
    value!([{"type": "Ready", "status": word, "reason": reason, "message": message}])
}

fn status(ready: bool, message: &str, policy: Option<&Policy>) -> Value {
    let of = |wanted: fn(&Program) -> bool| {
        let rules = policy.into_iter().flat_map(|policy| &policy.rules);
        i64::try_from(rules.filter(|rule| wanted(&rule.program)).count()).unwrap_or(i64::MAX)
    };
    let generate = of(|program| matches!(program, Program::Generate(_)));
    let mutate = of(|program| matches!(program, Program::Mutate(_)));
    value!({
        "ready": ready,
        "autogen": {},
        "conditions": ready_condition(ready, message),
        "rulecount": {"generate": generate, "mutate": mutate, "validate": 0, "verifyimages": 0},
    })
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

/// The time, as objects have it.
pub(crate) fn rfc3339() -> String {
    let seconds = i64::try_from(now() / 1000).unwrap_or(0);
    Time::from_unix(seconds, 0).map(|time| time.rfc3339()).unwrap_or_default()
}

/// The status with the times at which its conditions became what they are.
pub(crate) fn timed(policy: &Value, mut status: Value) -> Value {
    let time = rfc3339();
    for place in [&["conditions"][..], &["conditionStatus", "conditions"]] {
        let Some(conditions) = status.get_path(place.iter().copied()).and_then(Value::as_list)
        else {
            continue;
        };
        let path = ["status"].iter().chain(place.iter()).copied();
        let before = policy.get_path(path).and_then(Value::as_list);
        let timed = conditions.iter().map(|condition| {
            let same = before.into_iter().flat_map(|before| before.iter()).find(|before| {
                ["type", "status"].iter().all(|key| before.get(key) == condition.get(key))
            });
            let since = same.and_then(|same| same.str_at(["lastTransitionTime"])).unwrap_or(&time);
            let mut condition = condition.clone();
            if let Some(condition) = condition.as_map_mut() {
                condition.insert("lastTransitionTime", since);
            }
            condition
        });
        let timed = Value::from_iter(timed.collect::<Vec<_>>());
        // It is there, or it would not have been found.
        let _ = status.set(place.iter().copied(), timed);
    }
    status
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_keep_the_time_since_when_they_hold() {
        let policy = value!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z"},
        ]}});
        let time = |status: &Value, path: &[&str]| {
            let list = status.get_path(path.iter().copied()).unwrap();
            list.index(0).unwrap().str_at(["lastTransitionTime"]).unwrap().to_owned()
        };
        let good = timed(&policy, status(true, "Ready", None));
        assert_eq!(time(&good, &["conditions"]), "2020-01-01T00:00:00Z");
        let bad = timed(&policy, status(false, "why", None));
        assert_ne!(time(&bad, &["conditions"]), "2020-01-01T00:00:00Z");
        let scripted = timed(&policy, condition_status(None));
        assert!(!time(&scripted, &["conditionStatus", "conditions"]).is_empty());
        assert!(covers(&good, &status(true, "Ready", None)));
        assert!(!covers(&bad, &status(true, "Ready", None)));
    }
}
