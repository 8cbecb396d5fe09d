//! UpdateRequests: what users read about work that waits, failed or was skipped, and what others ask for.
//!
//! They are a window, not the work itself: one is written only for work that did not go through at once,
//! and losing one loses nothing. Those that others create are taken as events.

use std::collections::BTreeMap;

use kiln_cluster::{ApiError, Call, ObjectPatch, Reason, Reply};
use kiln_engine::ContentHash;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Operation, RuleId};
use kiln_value::{Map, Str, Value, value};

use crate::controller::{Controller, Purpose};
use crate::observed_requests::ObservedRequest;
use crate::ownership::read_user;
use crate::request_inbox::RequestOrder;
use crate::work_queue::{Condition, Key, Pending, Waiting};

/// The label on requests that the controller shows.
const SHOWN: &str = "kiln.dev/shown";
/// How long a finished request stays: users see it go.
const FINISHED_LIFE: u64 = 2_000;

/// Requests that are shown.
#[derive(Debug, Default)]
pub(crate) struct Requests {
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

pub(crate) fn kind() -> Gvk {
    Gvk::new("kyverno.io/v2", "UpdateRequest")
}

pub(crate) fn is_request(gvk: &Gvk) -> bool {
    gvk.group == "kyverno.io" && gvk.kind == "UpdateRequest"
}

impl Requests {
    pub(crate) fn next_time(&self) -> Option<u64> {
        let shown = self.shown.values().filter(|shown| !shown.in_flight);
        shown.filter_map(Shown::due).min()
    }
}

impl Shown {
    /// When something is to be written about it.
    fn due(&self) -> Option<u64> {
        let change =
            (!self.exists || self.written.as_ref() != Some(&self.status)).then_some(self.from);
        let next = [change, self.until].into_iter().flatten().min()?;
        Some(next.max(self.again))
    }
}

impl Status {
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
        key: &Key,
        condition: Option<&Condition>,
        skipped: bool,
        made: &[ObjectId],
    ) {
        let name = name_of(key);
        if condition.is_none() && !skipped {
            // What was done before users could read of it needs no request.
            let unseen = |shown: &Shown| !shown.exists && !shown.in_flight;
            if self.requests.shown.get(&name).is_some_and(unseen) {
                self.requests.shown.remove(&name);
            }
        }
        let known = self.requests.shown.contains_key(&name);
        let failures = self.keys.get(key).map_or(0, |state| state.failures);
        let (now, life) = (self.now, self.settings.failed_request_life);
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
                let last = failures >= self.settings.retries;
                if failures > self.settings.retries {
                    return;
                }
                (status("Failed", message, failures + 1), now, last.then_some(now + life))
            }
            // Users who can grant the permission read here which one; it stays until the work is done.
            Some(Condition { reason: Waiting::Forbidden, message }) => {
                (status("Failed", message, failures + 1), now, None)
            }
            // It may never come, and users who look for what was not made find the reason here.
            Some(Condition { reason: Waiting::Missing, message }) => {
                (status("Pending", message, 0), now + self.settings.missing_after, None)
            }
            Some(Condition { message, .. }) => {
                (status("Pending", message, 0), now + self.settings.pending_after, None)
            }
        };
        let spec = self.spec_of(key);
        let shown = self.requests.shown.entry(name).or_insert_with(|| Shown {
            spec,
            policy: key.rule.policy.name.clone(),
            status: status.clone(),
            from,
            until,
            exists: false,
            written: None,
            in_flight: false,
            again: 0,
        });
        if shown.status != status {
            shown.from = if shown.exists { now } else { from };
        }
        (shown.status, shown.until) = (status, until);
    }

    /// The work on a key is no longer relevant.
    pub(crate) fn unshow(&mut self, key: &Key) {
        let now = self.now;
        if let Some(shown) = self.requests.shown.get_mut(&name_of(key)) {
            shown.until.get_or_insert(now);
        }
    }

    fn spec_of(&self, key: &Key) -> Value {
        let synchronize = self.rules.rule(&key.rule).is_some_and(|rule| rule.lifecycle.synchronize);
        let trigger = self.keys.get(key).and_then(|state| state.trigger.clone());
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
        let mutates = self.rules.rule(&key.rule).is_some_and(|rule| rule.program.is_mutate());
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
        let now = self.now;
        let due: Vec<String> = self
            .requests
            .shown
            .iter()
            .filter(|(_, shown)| !shown.in_flight && shown.due().is_some_and(|time| time <= now))
            .map(|(name, _)| name.clone())
            .collect();
        for name in due {
            let Some(shown) = self.requests.shown.get_mut(&name) else { continue };
            let id = ObjectId::new(kind(), &self.settings.namespace, &name);
            let over = shown.until.is_some_and(|until| until <= now);
            if over && !shown.exists {
                self.requests.shown.remove(&name);
                continue;
            }
            shown.in_flight = true;
            let mut object = Map::new();
            object.insert("apiVersion", kind().api_version());
            object.insert("kind", "UpdateRequest");
            let mut labels = Map::new();
            labels.insert("generate.kyverno.io/policy-name", shown.policy.clone());
            labels.insert(SHOWN, "true");
            let mut about = Map::new();
            about.insert("name", name.as_str());
            about.insert("namespace", self.settings.namespace.clone());
            about.insert("labels", labels);
            object.insert("metadata", about);
            object.insert("spec", shown.spec.clone());
            object.insert("status", shown.status.to_value());
            let object = Value::Map(object);
            let call = match (over, shown.exists) {
                (true, _) => Call::delete(id),
                (false, false) => Call::create(object),
                // No other client writes it, so that the version does not matter.
                (false, true) => Call::Patch {
                    target: id,
                    patch: ObjectPatch::Merge(value!({"status": shown.status.to_value()})),
                    subresource: "status".into(),
                },
            };
            self.ask(Purpose::UpdateRequest(name), call);
        }
    }

    pub(crate) fn request_answered(&mut self, name: &str, answer: Result<Reply, ApiError>) {
        let again = self.now + self.settings.backoff * 4;
        let Some(shown) = self.requests.shown.get_mut(name) else { return };
        shown.in_flight = false;
        match answer {
            Ok(Reply::Deleted) => drop(self.requests.shown.remove(name)),
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
                Reason::NotFound if shown.until.is_some_and(|until| until <= self.now) => {
                    self.requests.shown.remove(name);
                }
                Reason::NotFound if shown.exists => shown.exists = false,
                // Where there are no requests they are not read.
                Reason::UnknownKind => drop(self.requests.shown.remove(name)),
                _ => shown.again = again,
            },
        }
    }

    /// A request is there or is another one: perhaps another client asks for something.
    pub(crate) fn request_changed(&mut self, id: &ObjectId, object: Option<&Value>) {
        // UpdateRequests of other namespaces act for no user.
        if id.namespace != self.settings.namespace {
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
        if self.requests.shown.contains_key(&name) || (foreign && !matches!(state, "" | "Pending"))
        {
            return;
        }
        let spec = object.get("spec").cloned().unwrap_or(Value::Null);
        let (status, until) = if foreign {
            match self.take_request(&spec) {
                Ok(()) => ("Completed", self.now + FINISHED_LIFE),
                Err(None) => ("Completed", self.now),
                Err(Some(message)) => {
                    let until = self.now + self.settings.failed_request_life;
                    self.accept(
                        &name,
                        spec,
                        Status {
                            state: "Failed",
                            reason: None,
                            message,
                            retries: 1,
                            made: Vec::new(),
                        },
                        until,
                    );
                    return;
                }
            }
        } else {
            // One that an earlier process left; work that still fails shows itself again.
            ("Completed", self.now + self.settings.failed_request_life)
        };
        let status = Status {
            state: status,
            reason: None,
            message: String::new(),
            retries: 0,
            made: Vec::new(),
        };
        self.accept(&name, spec, status, until);
    }

    fn accept(&mut self, name: &str, spec: Value, status: Status, until: u64) {
        let policy = spec.str_at(["policy"]).unwrap_or_default().into();
        let shown = Shown {
            spec,
            policy,
            status,
            from: self.now,
            until: Some(until),
            exists: true,
            written: None,
            in_flight: false,
            again: 0,
        };
        self.requests.shown.insert(name.to_owned(), shown);
    }

    /// Takes a request of another client as an event. What cannot be done is said; what is quietly over is
    /// `None`.
    fn take_request(&mut self, spec: &Value) -> Result<(), Option<String>> {
        let text = |path: &[&str]| spec.str_at(path.iter().copied());
        let info = ["context", "admissionRequestInfo"];
        let operation: Option<Operation> =
            text(&[info[0], info[1], "operation"]).and_then(|word| word.parse().ok());
        let user = spec.get_path(["context", "userInfo", "userInfo"]).and_then(read_user);
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
            taken.push(Key { rule, trigger: uid });
        }
        for key in taken {
            let by_user = self.rules.rule(&key.rule).is_some_and(|rule| rule.asks_for_user());
            let event = Pending { user: user.clone(), ..Pending::of(operation, self.now) };
            self.keys.entry(&key).add(event, by_user);
            self.keys.enqueue(&key, self.now);
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
fn name_of(key: &Key) -> String {
    let hash = ContentHash::of(&Value::from(key.to_string())).to_string();
    format!("ur-{}", &hash[..16])
}
