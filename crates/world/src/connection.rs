//! The way of a replica to the server: a function call, with the faults of a story.

use std::future::{Future, ready};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use http::{Method, StatusCode};
use kiln_apiserver::{ApiRequest, Response};
use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_object::Kinds;
use kiln_replica::api::{Api, at_once, reason_of, sort};
use kiln_replica::calls::carry_out;
use kiln_value::{Value, json};

use crate::clock::locked;
use crate::core::Core;
use crate::faults::{CRASHED, CallFate};
use crate::timeline::TimelineEvent;

/// How a replica is connected.
#[derive(Debug, Default)]
pub(crate) struct Link {
    /// It has crashed: nothing of it happens any more.
    crashed: AtomicBool,
    /// Until when it cannot reach the server.
    cut_until: AtomicU64,
}

impl Link {
    pub(crate) fn is_crashed(&self) -> bool {
        self.crashed.load(Ordering::Relaxed)
    }

    pub(crate) fn crash(&self) {
        self.crashed.store(true, Ordering::Relaxed);
    }

    pub(crate) fn cut(&self, until: u64) {
        self.cut_until.fetch_max(until, Ordering::Relaxed);
    }

    pub(crate) fn is_cut(&self, now: u64) -> bool {
        self.cut_until.load(Ordering::Relaxed) > now
    }
}

/// A connection of a replica to the server, as one of its accounts.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    pub(crate) core: Arc<Core>,
    pub(crate) user: String,
    pub(crate) link: Arc<Link>,
}

impl Connection {
    /// Carries out a call.
    pub(crate) fn call(&self, kinds: &Kinds, call: &Call) -> Result<Reply, ApiError> {
        now_or_never(carry_out(self, kinds, call))
    }

    /// Whether the replica can reach the server.
    pub(crate) fn reaches(&self) -> bool {
        !self.link.is_crashed() && !self.link.is_cut(self.core.now())
    }

    fn exchange(
        &self,
        method: &Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> Result<Value, ApiError> {
        if self.link.is_crashed() {
            return Err(ApiError::new(Reason::Unavailable, CRASHED));
        }
        if self.link.is_cut(self.core.now()) {
            return Err(ApiError::new(Reason::Unavailable, "the server cannot be reached"));
        }
        let fate = self.fate(method, path);
        let mut request = ApiRequest::new(method.as_str(), path);
        if let Some(body) = body {
            let form = if content_type.is_empty() { "application/json" } else { content_type };
            request = request.with_body(form, json::to_string(body));
        }
        let answer = match fate.arrives() {
            true => read(&self.core.send(request, Some(&self.user))),
            false => Ok(Value::Null),
        };
        match fate.failure() {
            Some(failure) => Err(failure),
            None => answer,
        }
    }

    fn fate(&self, method: &Method, path: &str) -> CallFate {
        let rates = self.core.rates();
        if rates.are_none() {
            return CallFate::Fine;
        }
        let fate = self.core.ambience.decide(|chance| CallFate::draw(&rates, chance));
        if matches!(fate, CallFate::CrashBefore | CallFate::CrashAfter) {
            self.link.crash();
        }
        if fate != CallFate::Fine {
            let what = format!("{fate:?} at {method} {path} by {}", self.user);
            self.core.tell(TimelineEvent::Fault { what });
        }
        fate
    }
}

impl Api for Connection {
    fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
        content_type: &str,
    ) -> impl Future<Output = Result<Value, ApiError>> + Send {
        ready(self.exchange(&method, path, body, content_type))
    }

    fn now(&self) -> u64 {
        self.core.now()
    }
}

/// What an answer of the server says.
pub(crate) fn read(response: &Response) -> Result<Value, ApiError> {
    let value = response.value();
    let status = StatusCode::from_u16(response.status).unwrap_or(StatusCode::BAD_GATEWAY);
    if status.is_success() {
        return Ok(value);
    }
    if value.str_at(["kind"]) == Some("Status") {
        return Err(sort(status, &value));
    }
    let reason = match status {
        StatusCode::NOT_FOUND => Reason::UnknownKind,
        _ => reason_of(status),
    };
    Err(ApiError::new(reason, String::from_utf8_lossy(&response.body).trim().to_owned()))
}

/// The result of work that asks nothing but this world, where every answer is there at once.
pub(crate) fn now_or_never<T>(
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let waits = || Err(ApiError::new(Reason::Unavailable, "an answer of the world is missing"));
    at_once(work).unwrap_or_else(waits)
}

/// Marks a fault that is not one of a call.
pub(crate) fn tell_fault(core: &Core, what: String) {
    locked(&core.timeline).add(core.now(), TimelineEvent::Fault { what });
}
