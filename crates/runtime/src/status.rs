//! Writes the status of policies: whether their rules act.

mod policy_status;

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use kiln_cluster::{Call, ObjectPatch, Reason};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_text::time::Time;
use kiln_value::{Value, value};

use crate::autogen_status;
use crate::calls::carry_out;
use crate::client::Client;
use crate::controller_loop::now;
use crate::events::Happened;
use crate::policy_store::{Registry, StoredPolicy};
use crate::scan_permissions::{self, ScanPermissions, Scannable};
use crate::state::AppState;

use policy_status::{
    Admission, newly_not_run, wanted, with_not_run, with_scan_permissions, with_troubles,
};

/// How often a process without webhooks looks whether another one has them.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the status of all policies as it should be, until the process is to end.
pub(crate) async fn keep(shared: AppState, client: Client, with_webhooks: bool) {
    let mut registry = shared.registry.clone();
    let mut webhooks = shared.progress.webhooks.subscribe();
    let mut troubles = shared.progress.troubles.subscribe();
    let mut kinds = shared.kinds.clone();
    let mut shutdown = shared.shutdown.clone();
    // What was written and not seen yet, so that nothing is written twice.
    let mut written: HashMap<ObjectId, (String, Value)> = HashMap::new();
    let mut permissions = ScanPermissions::default();
    loop {
        let stored = registry.borrow_and_update().clone();
        let registered = webhooks.borrow_and_update().clone();
        let troubled = troubles.borrow_and_update().clone();
        let known = kinds.borrow_and_update().clone();
        let admission = match with_webhooks {
            true => Admission::Here(&registered),
            false if is_admission_elsewhere(&shared, &client).await => Admission::Elsewhere,
            false => Admission::Nowhere,
        };
        let mut failed = false;
        // Whether a policy waits for permissions, of which nothing tells when they come.
        let mut lacks = false;
        written.retain(|id, _| stored.policies.iter().any(|policy| policy.id == *id));
        count(&shared, &stored);
        // The leader says of policies on a schedule how their runs ended.
        let is_scheduled = |policy: &&StoredPolicy| {
            policy.compiled.as_ref().is_ok_and(|policy| policy.is_scheduled())
        };
        let others = stored.policies.iter().filter(|policy| !is_scheduled(policy));
        for policy in others.filter(|_| stored.complete) {
            let unserved = policy.compiled.as_deref().map(|sound| sound.unserved_kinds(&known));
            let unserved = unserved.unwrap_or_default();
            if !unserved.is_empty() && !policy.is_known_to_be_incomplete() {
                // It may have been defined just now.
                shared.rumours.spread();
            }
            let Some(status) = wanted(policy, &admission, &unserved) else { continue };
            let status = with_troubles(policy, status, troubled.as_ref());
            let status = with_not_run(policy, status);
            let scannable =
                permissions.of(&shared.clients.controller, &known, &policy.object).await;
            lacks |= matches!(scannable, Some(Scannable::No(_)));
            let status = with_scan_permissions(status, scannable.as_ref());
            let status = autogen_status::added(&policy.object, status);
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
            match carry_out(&client, &known, &call).await {
                Ok(_) => {
                    if let Some(what) = newly_not_run(policy) {
                        let news = Happened::NotRun { policy: policy.id.clone(), what };
                        // Events are for people: when there are too many of them, some are left out.
                        let _ = shared.news.happened.try_send(news);
                    }
                    written.insert(policy.id.clone(), (life, status));
                }
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => {
                    tracing::warn!(policy = %policy.id, %error, "cannot write the status");
                    failed = true;
                }
            }
        }
        let pause = match (failed, with_webhooks) {
            (true, _) => Duration::from_secs(2),
            (false, true) => scan_permissions::COUNTS,
            (false, false) => LOOK,
        };
        tokio::select! {
            changed = registry.changed() => if changed.is_err() { return },
            changed = webhooks.changed() => if changed.is_err() { return },
            changed = troubles.changed() => if changed.is_err() { return },
            changed = kinds.changed() => if changed.is_err() { return },
            _ = shutdown.changed() => return,
            () = tokio::time::sleep(pause), if failed || lacks || !with_webhooks => {}
        }
    }
}

/// Whether some process answers requests: then there is a webhook for policies.
async fn is_admission_elsewhere(shared: &AppState, client: &Client) -> bool {
    let kind = Gvk::new("admissionregistration.k8s.io/v1", "ValidatingWebhookConfiguration");
    let [_, _, (_, name), ..] = shared.options.names.webhook_configurations();
    let call = Call::Get(ObjectId::new(kind, "", &name));
    let kinds = shared.kinds.borrow().clone();
    carry_out(client, &kinds, &call).await.is_ok()
}

fn count(shared: &AppState, stored: &Registry) {
    let count = |wanted: fn(&StoredPolicy) -> bool| {
        stored.policies.iter().filter(|policy| wanted(policy)).count()
    };
    let broken = count(StoredPolicy::is_broken);
    let not_run = count(|policy| policy.runs_nothing().is_some());
    let sound = stored.policies.len() - broken - not_run;
    #[allow(clippy::cast_precision_loss, reason = "a count for people")]
    for (state, number) in [("broken", broken), ("not run", not_run), ("sound", sound)] {
        shared.metrics.set("kiln_policies", &[("state", state)], number as f64);
    }
    let mut not_run: BTreeMap<&str, u32> = BTreeMap::new();
    for rule in stored.policies.iter().flat_map(|policy| policy.not_run.iter()) {
        *not_run.entry(rule.operation()).or_default() += 1;
    }
    shared.metrics.clear("kiln_rules_not_run");
    for (operation, number) in not_run {
        let labels = [("operation", operation)];
        shared.metrics.set("kiln_rules_not_run", &labels, f64::from(number));
    }
}

/// Whether a status says what it should, whatever else it says.
pub(crate) fn covers(live: &Value, wanted: &Value) -> bool {
    match (live, wanted) {
        (Value::Map(live), Value::Map(wanted)) => wanted.iter().all(|(key, value)| {
            match live.get(key.as_str()) {
                // A patch with null removes what is there.
                None => value.is_null(),
                Some(live) => covers(live, value),
            }
        }),
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
