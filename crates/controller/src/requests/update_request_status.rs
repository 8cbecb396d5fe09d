//! UpdateRequests: what users read about work that waits, failed or was skipped, and what others ask for.
//!
//! They are a window, not the work itself: one is written only for work that did not go through at once,
//! and losing one loses nothing. Those that others create are taken as events.

use std::collections::BTreeMap;

use kiln_cluster::{ApiError, Call, ObjectPatch, Reason, Reply};
use kiln_engine::{ContentHash, ObservedRequest, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Operation, RuleId};
use kiln_value::{Map, Str, Value, value};

use crate::controller::Controller;
use crate::outbox::Purpose;
use crate::requests::request_inbox::RequestOrder;
use crate::work_queue::{Condition, Pending, Waiting, WorkKey};

/// The label on requests that the controller shows.
const SHOWN: &str = "kiln.dev/shown";
/// How long a finished request stays: users see it go.
const FINISHED_LIFE: u64 = 2_000;

/// Writes what users read about work: one UpdateRequest per key that waits, failed or was skipped.
#[derive(Debug, Default)]
pub(crate) struct StatusWriter {
    shown: BTreeMap<String, Shown>,
}

/// One request, as it is to be and as far as it is.
#[derive(Debug)]
struct Shown {
    spec: Value,
    policy: Str,
    status: Status,
    /// Not before this time.
    from: u64,
    until: Option<u64>,
    exists: bool,
    written: Option<Status>,
    in_flight: bool,
    again: u64,
}

#[derive(Clone, Debug, PartialEq)]
struct Status {
    state: &'static str,
    /// What kind of reason the message gives: programs go by it, not by words.
    reason: Option<Waiting>,
    message: String,
    retries: u32,
    made: Vec<ObjectId>,
}

impl StatusWriter {
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        let shown = self.shown.values().filter(|shown| !shown.in_flight);
        shown.filter_map(Shown::due).min()
    }

    /// Whether a request is shown, or will be.
    fn knows(&self, name: &str) -> bool {
        self.shown.contains_key(name)
    }

    /// Work is done: what was to be shown and users could not read yet needs no request.
    fn is_done(&mut self, name: &str) {
        let unseen = |shown: &Shown| !shown.exists && !shown.in_flight;
        if self.shown.get(name).is_some_and(unseen) {
            self.shown.remove(name);
        }
    }

    /// Shows a status, from one time to another.
    fn show(
        &mut self,
        name: String,
        status: Status,
        (from, until): (u64, Option<u64>),
        now: u64,
        about: impl FnOnce() -> (Value, Str),
    ) {
        let shown = self.shown.entry(name).or_insert_with(|| {
            let (spec, policy) = about();
            Shown::new(spec, policy, status.clone(), from, until)
        });
        if shown.status != status {
            shown.from = if shown.exists { now } else { from };
        }
        (shown.status, shown.until) = (status, until);
    }

    /// The work behind a request is no longer relevant.
    fn hide(&mut self, name: &str, now: u64) {
        if let Some(shown) = self.shown.get_mut(name) {
            shown.until.get_or_insert(now);
        }
    }

    /// Takes over a request that is in the cluster already.
    fn accept(&mut self, name: &str, spec: Value, status: Status, now: u64, until: u64) {
        let policy = spec.str_at(["policy"]).unwrap_or_default().into();
        let shown = Shown { exists: true, ..Shown::new(spec, policy, status, now, Some(until)) };
        self.shown.insert(name.to_owned(), shown);
    }

    /// The calls that are due: requests to create, to change and to delete.
    pub(crate) fn poll(&mut self, now: u64, kind: &Gvk, namespace: &str) -> Vec<(String, Call)> {
        let mut calls = Vec::new();
        self.shown.retain(|name, shown| {
            if shown.in_flight || shown.due().is_none_or(|time| time > now) {
                return true;
            }
            let over = shown.until.is_some_and(|until| until <= now);
            if over && !shown.exists {
                return false;
            }
            shown.in_flight = true;
            let id = ObjectId::new(kind.clone(), namespace, name);
            let call = match (over, shown.exists) {
                (true, _) => Call::delete(id),
                (false, false) => Call::create(shown.to_object(&id)),
                // No other client writes it, so that the version does not matter.
                (false, true) => Call::Patch {
                    target: id,
                    patch: ObjectPatch::Merge(value!({"status": shown.status.to_value()})),
                    subresource: "status".into(),
                },
            };
            calls.push((name.clone(), call));
            true
        });
        calls
    }

    /// What follows from the answer to a call; one that fails is tried again at `again`.
    pub(crate) fn on_reply(
        &mut self,
        name: &str,
        answer: Result<Reply, ApiError>,
        now: u64,
        again: u64,
    ) {
        let Some(shown) = self.shown.get_mut(name) else { return };
        shown.in_flight = false;
        match answer {
            Ok(Reply::Deleted) => drop(self.shown.remove(name)),
            Ok(reply) => {
                // A new object has no status yet: that takes a second call.
                shown.exists = true;
                let state = reply.object().and_then(|object| {
                    object.str_at(["status", "state"]).map(|state| state == shown.status.state)
                });
                shown.written = (state == Some(true)).then(|| shown.status.clone());
            }
            Err(error) => match error.reason {
                Reason::AlreadyExists => shown.exists = true,
                Reason::NotFound if shown.until.is_some_and(|until| until <= now) => {
                    self.shown.remove(name);
                }
                Reason::NotFound if shown.exists => shown.exists = false,
                // Where there are no requests they are not read.
                Reason::UnknownKind => drop(self.shown.remove(name)),
                _ => shown.again = again,
            },
        }
    }
}

impl Shown {
    fn new(spec: Value, policy: Str, status: Status, from: u64, until: Option<u64>) -> Self {
        let (exists, written, in_flight, again) = (false, None, false, 0);
        Shown { spec, policy, status, from, until, exists, written, in_flight, again }
    }

    fn to_object(&self, id: &ObjectId) -> Value {
        let mut labels = Map::new();
        labels.insert("generate.kyverno.io/policy-name", self.policy.clone());
        labels.insert(SHOWN, "true");
        let mut about = Map::new();
        about.insert("name", id.name.clone());
        about.insert("namespace", id.namespace.clone());
        about.insert("labels", labels);
        let mut object = Map::new();
        object.insert("apiVersion", id.gvk.api_version());
        object.insert("kind", id.gvk.kind.clone());
        object.insert("metadata", about);
        object.insert("spec", self.spec.clone());
        object.insert("status", self.status.to_value());
        Value::Map(object)
    }

    /// When something is to be written about it.
    fn due(&self) -> Option<u64> {
        let change =
            (!self.exists || self.written.as_ref() != Some(&self.status)).then_some(self.from);
        let next = [change, self.until].into_iter().flatten().min()?;
        Some(next.max(self.again))
    }
}

impl Status {
    fn of(state: &'static str) -> Self {
        Status { state, reason: None, message: String::new(), retries: 0, made: Vec::new() }
    }

    fn to_value(&self) -> Value {
        let mut status = Map::new();
        status.insert("state", self.state);
        // An empty one takes back what was there.
        status.insert("reason", self.reason.map_or("", Waiting::as_str));
        if !self.message.is_empty() {
            status.insert("message", self.message.as_str());
        }
        if self.retries > 0 {
            status.insert("retryCount", u64::from(self.retries));
        }
        if !self.made.is_empty() {
            let made = self.made.iter().map(|id| {
                value!({
                    "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind.as_str(),
                    "namespace": id.namespace.as_str(), "name": id.name.as_str(),
                })
            });
            status.insert("generatedResources", Value::from_iter(made));
        }
        Value::Map(status)
    }
}

impl Controller {
    /// Shows how the work on a key ended.
    pub(crate) fn show(
        &mut self,
        key: &WorkKey,
        condition: Option<&Condition>,
        skipped: bool,
        made: &[ObjectId],
    ) {
        let name = name_of(key);
        if condition.is_none() && !skipped {
            self.requests.status.is_done(&name);
        }
        let known = self.requests.status.knows(&name);
        let failures = self.queue.get(key).map_or(0, |state| state.failures);
        let (now, life) = (self.now, self.env.settings.requests.failed_request_life);
        let status = |state, message: &str, retries| Status {
            state,
            reason: condition.map(|condition| condition.reason),
            message: message.to_owned(),
            retries,
            made: made.to_vec(),
        };
        let (status, from, until) = match condition {
            None if skipped => {
                let message = "only labels or annotations changed, which the rule does not use";
                (status("Skip", message, 0), now, Some(now + life))
            }
            None if known => (status("Completed", "", 0), now, Some(now + FINISHED_LIFE)),
            None => return,
            Some(Condition { reason: Waiting::Failed | Waiting::Loop, message }) => {
                let last = failures >= self.env.settings.retry.retries;
                if failures > self.env.settings.retry.retries {
                    return;
                }
                (status("Failed", message, failures + 1), now, last.then_some(now + life))
            }
            // Users who can grant the permission read here which one; it stays until the work is done.
            Some(Condition { reason: Waiting::Forbidden, message }) => {
                (status("Failed", message, failures + 1), now, None)
            }
            // It may never come, and users who look for what was not made find the reason here.
            Some(Condition { reason: Waiting::Missing, message }) => (
                status("Pending", message, 0),
                now + self.env.settings.requests.missing_after,
                None,
            ),
            Some(Condition { message, .. }) => (
                status("Pending", message, 0),
                now + self.env.settings.requests.pending_after,
                None,
            ),
        };
        let (spec, policy) = (self.spec_of(key), key.rule.policy.name.clone());
        self.requests.status.show(name, status, (from, until), now, || (spec, policy));
    }

    /// The work on a key is no longer relevant.
    pub(crate) fn unshow(&mut self, key: &WorkKey) {
        self.requests.status.hide(&name_of(key), self.now);
    }

    fn spec_of(&self, key: &WorkKey) -> Value {
        let synchronize =
            self.policies.rules.rule(&key.rule).is_some_and(|rule| rule.lifecycle.synchronize);
        let trigger = self.queue.get(key).and_then(|state| state.trigger.clone());
        let trigger = trigger.map_or(Value::map(), |id| {
            value!({
                "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind.as_str(),
                "namespace": id.namespace.as_str(), "name": id.name.as_str(), "uid": key.trigger.as_str(),
            })
        });
        let mut context = Map::new();
        context.insert("rule", key.rule.rule.clone());
        context.insert("trigger", trigger.clone());
        context.insert("synchronize", synchronize);
        context.insert("deleteDownstream", false);
        let mut spec = Map::new();
        let mutates =
            self.policies.rules.rule(&key.rule).is_some_and(|rule| rule.program.is_mutate());
        spec.insert("requestType", if mutates { "mutate" } else { "generate" });
        spec.insert("policy", key.rule.policy.key());
        spec.insert("resource", trigger);
        spec.insert("ruleContext", Value::from_iter([Value::Map(context)]));
        spec.insert("deleteDownstream", false);
        spec.insert("synchronize", synchronize);
        spec.insert("context", Value::map());
        Value::Map(spec)
    }

    /// Writes what is due about requests.
    pub(crate) fn show_requests(&mut self) {
        for (name, call) in self.requests.status.poll(
            self.now,
            &self.env.settings.requests.kind,
            &self.env.settings.namespace,
        ) {
            self.ask(Purpose::UpdateRequest(name), call);
        }
    }

    pub(crate) fn request_answered(&mut self, name: &str, answer: Result<Reply, ApiError>) {
        let again = self.now + self.env.settings.retry.backoff * 4;
        self.requests.status.on_reply(name, answer, self.now, again);
    }

    /// A request is there or is another one: perhaps another client asks for something.
    pub(crate) fn request_changed(&mut self, id: &ObjectId, object: Option<&Value>) {
        // UpdateRequests of other namespaces act for no user.
        if id.namespace != self.env.settings.namespace {
            return;
        }
        let Some(object) = object else { return self.carrier_gone(&id.name) };
        if metadata::is_deleted(object) {
            return;
        }
        if let Some(hint) = ObservedRequest::of_request(object) {
            return self.carrier_came(id, hint, RequestOrder::of(object));
        }
        let name = id.name.to_string();
        let state = object.str_at(["status", "state"]).unwrap_or_default();
        let foreign = metadata::label(object, SHOWN).is_none();
        if self.requests.status.knows(&name) || (foreign && !matches!(state, "" | "Pending")) {
            return;
        }
        let spec = object.get("spec").cloned().unwrap_or(Value::Null);
        let (status, until) = if foreign {
            match self.take_request(&spec) {
                Ok(()) => ("Completed", self.now + FINISHED_LIFE),
                Err(None) => ("Completed", self.now),
                Err(Some(message)) => {
                    let until = self.now + self.env.settings.requests.failed_request_life;
                    let status = Status { message, retries: 1, ..Status::of("Failed") };
                    self.requests.status.accept(&name, spec, status, self.now, until);
                    return;
                }
            }
        } else {
            // One that an earlier process left; work that still fails shows itself again.
            ("Completed", self.now + self.env.settings.requests.failed_request_life)
        };
        self.requests.status.accept(&name, spec, Status::of(status), self.now, until);
    }

    /// Takes a request of another client as an event. What cannot be done is said; what is quietly over is
    /// `None`.
    fn take_request(&mut self, spec: &Value) -> Result<(), Option<String>> {
        let text = |path: &[&str]| spec.str_at(path.iter().copied());
        let info = ["context", "admissionRequestInfo"];
        let operation: Option<Operation> =
            text(&[info[0], info[1], "operation"]).and_then(|word| word.parse().ok());
        let user = spec.get_path(["context", "userInfo", "userInfo"]).and_then(User::of_value);
        let policy = text(&["policy"]).unwrap_or_default().to_owned();
        let contexts: Vec<Value> = match spec.get("ruleContext").and_then(Value::as_list) {
            Some(list) if !list.is_empty() => list.to_vec(),
            _ => vec![
                value!({"rule": text(&["rule"]).unwrap_or_default()})
                    .with("trigger", spec.get("resource").cloned().unwrap_or(Value::Null)),
            ],
        };
        let mut taken = Vec::new();
        for context in &contexts {
            let rule = context.str_at(["rule"]).unwrap_or_default();
            let uid = context.str_at(["trigger", "uid"]).unwrap_or_default();
            let found: Option<RuleId> = self
                .policies
                .rules
                .rules()
                .map(|known| &known.id)
                .find(|known| known.policy.key() == policy && known.rule == rule)
                .cloned();
            let part = |key: &str| context.str_at(["trigger", key]).unwrap_or_default();
            let named = ObjectId::new(
                Gvk::new(part("apiVersion"), part("kind")),
                part("namespace"),
                part("name"),
            );
            let live = match uid {
                "" => self.cache.get(&named).and_then(metadata::uid).map(Str::from),
                uid => self
                    .cache
                    .by_uid(uid)
                    .and_then(|(_, object)| metadata::uid(object))
                    .map(Str::from),
            };
            let (Some(rule), Some(uid)) = (found, live) else {
                return Err(operation.map(|_| {
                    format!(
                        "trigger resource {named} with uid {uid} not found in the cluster, the corresponding \
                         admission request may have been rejected by the API server"
                    )
                }));
            };
            taken.push(WorkKey { rule, trigger: uid });
        }
        for key in taken {
            let by_user =
                self.policies.rules.rule(&key.rule).is_some_and(|rule| rule.asks_for_user());
            let event = Pending { user: user.clone(), ..Pending::of(operation, self.now) };
            self.queue.entry(&key).add(event, by_user);
            self.queue.enqueue(&key, self.now);
        }
        Ok(())
    }
}

trait With {
    fn with(self, key: &str, value: Value) -> Value;
}

impl With for Value {
    fn with(mut self, key: &str, value: Value) -> Value {
        if let Some(map) = self.as_map_mut() {
            map.insert(key, value);
        }
        self
    }
}

/// The name of a key's request: the same in every process.
fn name_of(key: &WorkKey) -> String {
    let hash = ContentHash::of(&Value::from(key.to_string())).to_string();
    format!("ur-{}", &hash[..16])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind() -> Gvk {
        kiln_object::EngineNames::default().update_request()
    }

    fn stored(state: Option<&str>) -> Result<Reply, ApiError> {
        let status = state.map_or(value!({}), |state| value!({"state": state}));
        Ok(Reply::Object(value!({"metadata": {}}).with("status", status)))
    }

    #[test]
    fn a_request_is_created_written_and_deleted_when_its_time_has_come() {
        let mut writer = StatusWriter::default();
        let about = || (value!({"policy": "p"}), Str::from("p"));
        let waits = Status::of("Pending");
        writer.show("a".into(), waits, (500, None), 0, about);
        assert_eq!(writer.next_deadline(), Some(500));
        assert!(writer.poll(499, &kind(), "kyverno").is_empty());
        let calls = writer.poll(500, &kind(), "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Create { .. })]), "{calls:?}");
        // A new object has no status yet.
        writer.on_reply("a", stored(None), 500, 0);
        let calls = writer.poll(500, &kind(), "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Patch { .. })]), "{calls:?}");
        writer.on_reply("a", stored(Some("Pending")), 500, 0);
        assert_eq!(writer.next_deadline(), None, "it says what it should");
        writer.show("a".into(), Status::of("Completed"), (600, Some(2_600)), 600, about);
        let calls = writer.poll(600, &kind(), "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Patch { .. })]), "{calls:?}");
        writer.on_reply("a", stored(Some("Completed")), 600, 0);
        let calls = writer.poll(2_600, &kind(), "kyverno");
        assert!(matches!(calls.as_slice(), [(_, Call::Delete { .. })]), "{calls:?}");
        writer.on_reply("a", Ok(Reply::Deleted), 2_600, 0);
        assert!(!writer.knows("a"));
    }

    #[test]
    fn work_that_is_done_before_users_could_read_of_it_shows_nothing() {
        let mut writer = StatusWriter::default();
        let about = || (Value::Null, Str::default());
        writer.show("a".into(), Status::of("Pending"), (500, None), 0, about);
        writer.is_done("a");
        assert_eq!((writer.next_deadline(), writer.knows("a")), (None, false));
        // Where the cluster refuses a request for now, it is tried again.
        writer.show("b".into(), Status::of("Failed"), (0, None), 0, about);
        assert_eq!(writer.poll(0, &kind(), "kyverno").len(), 1);
        writer.is_done("b");
        assert!(writer.knows("b"), "it is under way");
        writer.on_reply("b", Err(ApiError::new(Reason::Unavailable, "")), 0, 2_000);
        assert_eq!(writer.next_deadline(), Some(2_000));
    }
}
