//! Which of several processes acts: the one that holds the Lease.

use std::time::{Duration, Instant};

use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_object::{Gvk, ObjectId};
use kiln_text::time::Time;
use kiln_value::{Value, value};

use crate::calls::carry_out;
use crate::drive::now;
use crate::state::Shared;

/// The Lease of the controller, and this process's part in it.
pub(crate) struct Lease {
    shared: Shared,
    id: ObjectId,
    holder: String,
    /// What the Lease last said, and since when.
    seen: Option<(Value, Instant)>,
    /// How long it counts if nobody renews it.
    life: Duration,
}

/// The Lease of an engine that lives in a namespace.
pub fn id(namespace: &str) -> ObjectId {
    ObjectId::new(Gvk::new("coordination.k8s.io/v1", "Lease"), namespace, "kiln-controller")
}

impl Lease {
    pub(crate) fn new(shared: Shared) -> Self {
        let id = id(&shared.options.namespace);
        let host = std::env::var("HOSTNAME").unwrap_or_else(|_| "kiln".to_owned());
        let holder = format!("{host}-{}-{:x}", std::process::id(), now());
        let life = shared.options.lease;
        Lease { shared, id, holder, seen: None, life }
    }

    /// How often it is renewed, and how often others look.
    fn pause(&self) -> Duration {
        self.life / 5
    }

    /// A holder that could not renew for so long stops before others begin.
    fn give_up(&self) -> Duration {
        self.life * 7 / 10
    }

    /// Waits until this process holds the Lease. Where Leases are forbidden, it acts without one.
    pub(crate) async fn acquire(&mut self) {
        let mut told = false;
        loop {
            match self.try_once().await {
                Ok(true) => return tracing::info!(holder = self.holder, "holds the Lease"),
                Ok(false) if !told => {
                    told = true;
                    tracing::info!("another process holds the Lease; this one stands by");
                }
                Ok(false) => {}
                Err(error) if matches!(error.reason, Reason::Forbidden | Reason::UnknownKind) => {
                    tracing::warn!(%error, "acts without a Lease: no second process may run");
                    return;
                }
                Err(error) => tracing::warn!(%error, "cannot ask for the Lease"),
            }
            tokio::time::sleep(self.pause()).await;
        }
    }

    /// Renews the Lease, and comes back when it is lost.
    pub(crate) async fn hold(&mut self) {
        let mut renewed = Instant::now();
        loop {
            tokio::time::sleep(self.pause()).await;
            let asked = Instant::now();
            // A server that does not answer in time is no reason to go on without the Lease.
            let left = self.give_up().saturating_sub(renewed.elapsed());
            let answer = tokio::time::timeout(left.max(self.pause() / 2), self.try_once()).await;
            let late = || Err(ApiError::new(Reason::Unavailable, "no answer in time"));
            match answer.unwrap_or_else(|_| late()) {
                Ok(true) => renewed = asked,
                Ok(false) => return tracing::warn!("another process took the Lease"),
                Err(error) if matches!(error.reason, Reason::Forbidden | Reason::UnknownKind) => {
                    renewed = Instant::now();
                }
                Err(error) if renewed.elapsed() > self.give_up() => {
                    return tracing::warn!(%error, "could not renew the Lease in time");
                }
                Err(error) => tracing::debug!(%error, "cannot renew the Lease"),
            }
        }
    }

    /// Gives the Lease back, so that others need not wait.
    pub(crate) async fn give_back(&mut self) {
        if let Some((spec, _)) = self.seen.take()
            && spec.str_at(["holderIdentity"]) == Some(&self.holder)
        {
            self.holder = String::new();
            let _ = self.try_once().await;
        }
    }

    /// Takes or renews the Lease; whether this process holds it now.
    async fn try_once(&mut self) -> Result<bool, ApiError> {
        let live = match self.call(&Call::Get(self.id.clone())).await {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::NotFound => None,
            Err(error) => return Err(error),
        };
        let spec = live.as_ref().and_then(|live| live.get("spec")).cloned().unwrap_or(Value::Null);
        let since = match &self.seen {
            Some((seen, since)) if *seen == spec => *since,
            _ => Instant::now(),
        };
        self.seen = Some((spec.clone(), since));
        let holder = spec.str_at(["holderIdentity"]).unwrap_or_default();
        let ours = holder == self.holder || self.holder.is_empty();
        if !(ours || holder.is_empty() || since.elapsed() > self.life) {
            return Ok(false);
        }
        let object = self.wanted(live.as_ref(), &spec, ours);
        let call = if live.is_some() { Call::update(object) } else { Call::create(object) };
        match self.call(&call).await {
            Ok(reply) => {
                let spec = reply.object().and_then(|object| object.get("spec").cloned());
                self.seen = spec.map(|spec| (spec, Instant::now()));
                Ok(true)
            }
            Err(error) if matches!(error.reason, Reason::Conflict | Reason::AlreadyExists) => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn wanted(&self, live: Option<&Value>, spec: &Value, ours: bool) -> Value {
        let milliseconds = now();
        let nanos = u32::try_from(milliseconds % 1000 * 1_000_000).unwrap_or(0);
        let time = Time::from_unix(i64::try_from(milliseconds / 1000).unwrap_or(0), nanos);
        let time =
            time.map(|time| time.format("2006-01-02T15:04:05.000000Z07:00")).unwrap_or_default();
        let changes = spec.get("leaseTransitions").and_then(Value::as_i64).unwrap_or(0);
        let since = spec.str_at(["acquireTime"]).filter(|_| ours).unwrap_or(&time).to_owned();
        let mut object = live.cloned().unwrap_or_else(|| {
            value!({
                "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": self.id.name.as_str(), "namespace": self.id.namespace.as_str()},
            })
        });
        if let Some(map) = object.as_map_mut() {
            let seconds = i64::try_from(self.life.as_secs().max(1)).unwrap_or(10);
            map.insert(
                "spec",
                value!({
                    "holderIdentity": self.holder.as_str(), "leaseDurationSeconds": seconds,
                    "acquireTime": since, "renewTime": time,
                    "leaseTransitions": changes + i64::from(!ours),
                }),
            );
        }
        object
    }

    async fn call(&self, call: &Call) -> Result<Reply, ApiError> {
        let kinds = self.shared.kinds.borrow().clone();
        carry_out(&self.shared.controller, &kinds, call).await
    }
}
