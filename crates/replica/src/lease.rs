//! The Lease: asked for, taken, renewed and given back. What follows from it is in `election`.

use kiln_cluster::{ApiError, Call, Reason};
use kiln_object::{EngineNames, Gvk, Kinds, ObjectId};
use kiln_text::time::Time;
use kiln_value::{Value, value};

use crate::api::Api;
use crate::calls::carry_out;
use crate::election::{Election, Moment};

/// The Lease of an engine that lives in a namespace.
pub fn id(namespace: &str, names: &EngineNames) -> ObjectId {
    ObjectId::new(Gvk::new("coordination.k8s.io/v1", "Lease"), namespace, &names.lease())
}

/// Takes or renews the Lease; whether this process holds it now.
///
/// # Errors
/// When that is not known.
pub async fn try_once<A: Api, I: Moment>(
    api: &A,
    kinds: &Kinds,
    id: &ObjectId,
    election: &mut Election<I>,
    now: impl Fn() -> I,
) -> Result<bool, ApiError> {
    let live = match carry_out(api, kinds, &Call::Get(id.clone())).await {
        Ok(reply) => reply.object(),
        Err(error) if error.reason == Reason::NotFound => None,
        Err(error) => return Err(error),
    };
    let spec = live.as_ref().and_then(|live| live.get("spec")).unwrap_or(&Value::Null);
    if !election.may_take(spec, now()) {
        return Ok(false);
    }
    let object = wanted(id, election, live.as_ref(), election.identity(), api.now());
    let call = if live.is_some() { Call::update(object) } else { Call::create(object) };
    match carry_out(api, kinds, &call).await {
        Ok(reply) => {
            let spec = reply.object().and_then(|object| object.get("spec").cloned());
            election.stored(spec, now());
            Ok(true)
        }
        Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Gives the Lease back, if this process holds it.
pub async fn give_back<A: Api, I: Moment>(
    api: &A,
    kinds: &Kinds,
    id: &ObjectId,
    election: &Election<I>,
) {
    if !election.is_ours() {
        return;
    }
    let Ok(reply) = carry_out(api, kinds, &Call::Get(id.clone())).await else { return };
    let Some(live) = reply.object() else { return };
    if live.str_at(["spec", "holderIdentity"]) == Some(election.identity()) {
        let free = wanted(id, election, Some(&live), "", api.now());
        let _ = carry_out(api, kinds, &Call::update(free)).await;
    }
}

/// The Lease as it is to be, at a time in milliseconds.
fn wanted<I: Moment>(
    id: &ObjectId,
    election: &Election<I>,
    live: Option<&Value>,
    holder: &str,
    now: u64,
) -> Value {
    let nanos = u32::try_from(now % 1000 * 1_000_000).unwrap_or(0);
    let time = Time::from_unix(i64::try_from(now / 1000).unwrap_or(0), nanos);
    let time = time.map(|time| time.format("2006-01-02T15:04:05.000000Z07:00")).unwrap_or_default();
    let spec = live.and_then(|live| live.get("spec")).unwrap_or(&Value::Null);
    let ours = spec.str_at(["holderIdentity"]) == Some(election.identity());
    let changes = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
    let since = spec.str_at(["acquireTime"]).filter(|_| ours).unwrap_or(&time).to_owned();
    let mut object = live.cloned().unwrap_or_else(|| {
        value!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": id.name.as_str(), "namespace": id.namespace.as_str()},
        })
    });
    if let Some(map) = object.as_map_mut() {
        // Others go by it: it is never shorter than what this process goes by.
        let duration = election.times.lease_duration;
        let seconds = duration.as_secs() + u64::from(duration.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds.max(1)).unwrap_or(10);
        map.insert(
            "spec",
            value!({
                "holderIdentity": holder, "leaseDurationSeconds": seconds,
                "acquireTime": since, "renewTime": time,
                "leaseTransitions": changes + i64::from(!ours),
            }),
        );
    }
    object
}
