//! Writes the status of policies: whether their rules act.

mod policy_status;

use std::collections::{BTreeMap, HashMap};

use kiln_cluster::{ApiError, Call, ObjectPatch, Reason};
use kiln_object::{Kinds, ObjectId, metadata};
use kiln_text::time::Time;
use kiln_value::{Str, Value, value};

use crate::api::Api;
use crate::autogen_status;
use crate::calls::carry_out;
use crate::events::Happened;
use crate::policy_store::{Registry, StoredPolicy};
use crate::scan_permissions::{ScanPermissions, Scannable};

use policy_status::{newly_not_run, wanted, with_not_run, with_scan_permissions, with_troubles};

/// Who answers admission requests.
#[derive(Clone, Copy, Debug)]
pub enum Admission<'a> {
    /// This process: these policies are registered.
    Here(&'a RegisteredPolicies),
    /// Another one, which says when policies are ready.
    Elsewhere,
    /// No replica.
    Nowhere,
}

/// Policies by their object: the UID and the generation whose webhooks the API server has.
pub type RegisteredPolicies = BTreeMap<ObjectId, (Str, i64)>;

/// What keeps policies from firing, by policy: kinds that cannot be followed.
pub type Troubles = BTreeMap<ObjectId, Vec<String>>;

/// What the status of policies goes by.
#[derive(Clone, Copy, Debug)]
pub struct StatusBasis<'b> {
    pub stored: &'b Registry,
    pub admission: Admission<'b>,
    /// None where another process acts.
    pub troubles: Option<&'b Troubles>,
    /// What the cluster serves.
    pub kinds: &'b Kinds,
}

/// Writes the status of policies.
#[derive(Debug, Default)]
pub struct StatusWriter {
    /// What was written and not seen yet, so that nothing is written twice.
    written: HashMap<ObjectId, (String, Value)>,
    permissions: ScanPermissions,
}

/// What came of a look at the status of all policies.
#[derive(Debug, Default)]
pub struct StatusRound {
    /// What users are to hear of.
    pub happened: Vec<Happened>,
    /// A policy names a kind that is not served: it may have been defined just now.
    pub expects_kinds: bool,
    /// A policy waits for permissions, of which nothing tells when they come.
    pub lacks: bool,
    /// What could not be written, and why.
    pub failed: Vec<(ObjectId, ApiError)>,
}

impl StatusWriter {
    /// Writes the status of every policy that has another one than it should. What may be scanned is asked as `scanner`.
    pub async fn write<A: Api>(
        &mut self,
        api: &A,
        scanner: &A,
        basis: &StatusBasis<'_>,
    ) -> StatusRound {
        let StatusBasis { stored, admission, troubles, kinds } = basis;
        let mut round = StatusRound::default();
        self.written.retain(|id, _| stored.policies.iter().any(|policy| policy.id == *id));
        // The leader says of policies on a schedule how their runs ended.
        let is_scheduled = |policy: &&StoredPolicy| {
            policy.compiled.as_ref().is_ok_and(|policy| policy.is_scheduled())
        };
        let others = stored.policies.iter().filter(|policy| !is_scheduled(policy));
        for policy in others.filter(|_| stored.complete) {
            let unserved = policy.compiled.as_deref().map(|sound| sound.unserved_kinds(kinds));
            let unserved = unserved.unwrap_or_default();
            round.expects_kinds |= !unserved.is_empty() && !policy.is_known_to_be_incomplete();
            let Some(status) = wanted(policy, admission, &unserved) else { continue };
            let status = with_troubles(policy, status, *troubles);
            let status = with_not_run(policy, status);
            let scannable = self.permissions.of(scanner, kinds, &policy.object).await;
            round.lacks |= matches!(scannable, Some(Scannable::No(_)));
            let status = with_scan_permissions(status, scannable.as_ref());
            let status = autogen_status::added(&policy.object, status);
            let life = metadata::uid(&policy.object).unwrap_or_default().to_owned();
            if self.written.get(&policy.id) == Some(&(life.clone(), status.clone()))
                || covers(policy.object.get("status").unwrap_or(&Value::Null), &status)
            {
                continue;
            }
            let timed = timed(&policy.object, status.clone(), api.now());
            let call = Call::Patch {
                target: policy.id.clone(),
                patch: ObjectPatch::Merge(value!({"status": timed})),
                subresource: "status".into(),
            };
            match carry_out(api, kinds, &call).await {
                Ok(_) => {
                    if let Some(what) = newly_not_run(policy) {
                        round.happened.push(Happened::NotRun { policy: policy.id.clone(), what });
                    }
                    self.written.insert(policy.id.clone(), (life, status));
                }
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => round.failed.push((policy.id.clone(), error)),
            }
        }
        round
    }
}

/// Whether a status says what it should, whatever else it says.
pub fn covers(live: &Value, wanted: &Value) -> bool {
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

/// A time in milliseconds, as objects have it.
pub fn rfc3339(now: u64) -> String {
    let seconds = i64::try_from(now / 1000).unwrap_or(0);
    Time::from_unix(seconds, 0).map(|time| time.rfc3339()).unwrap_or_default()
}

/// The status with the times at which its conditions became what they are: `now`, if they are other ones than before.
pub fn timed(policy: &Value, mut status: Value, now: u64) -> Value {
    let time = rfc3339(now);
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
