//! Requests that must not be lost: UpdateRequests that admission creates and the controller consumes.
//!
//! The replica that answers admission requests and the leader may be different processes, and each may end at any time. What no
//! watch tells again (who sent a request, the end of an object, a subresource, a request that changes nothing, that
//! a user is excluded) is therefore stored before the API server is answered. The controller takes such
//! requests in their order, each when it knows the rules and the kind, and deletes one when the work is done, or when
//! it turns out to have changed nothing. Until then it waits, however long rules, kinds and rights take to come, but
//! no longer than [`crate::Settings::carrier_life`].

use std::collections::{BTreeMap, BTreeSet};

use kiln_cluster::{ApiError, Call, KindKey, Reason, Reply};
use kiln_engine::{ContentHash, RuleSet};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{PolicyId, RuleId};
use kiln_value::{Map, Str, Value, value};

use crate::cache::revision_of;
use crate::controller::{Controller, Purpose, Start};
use crate::observed_requests::ObservedRequest;
use crate::ownership::{read_user, write_user};
use crate::triggers::created_at;
use crate::work_queue::{KeyState, Waiting};

/// The label on requests that carry a hint.
pub const CARRIES: &str = "kiln.dev/carries";
/// How often finished requests are looked for.
const SWEEP: u64 = 250;

impl ObservedRequest {
    /// The UpdateRequest that carries the hint, for the rules that need it. Those of requests that store nothing
    /// are identified by the identity of the request; of the others, the same one sent again says nothing new.
    pub fn to_request(&self, namespace: &str, rules: &[RuleId], identity: &str) -> Value {
        let id = self.about();
        let uid = self.uid().unwrap_or_default();
        let object = |object: &Option<Value>| {
            let mut object = object.clone()?;
            // Who set which field is of no use to rules, and often the larger part.
            object.remove(["metadata", "managedFields"]);
            Some(object)
        };
        let mut request = Map::new();
        request.insert("operation", self.operation.as_str());
        request.insert("kind", gvk(&id.gvk));
        request.insert("namespace", self.namespace.clone());
        request.insert("name", self.name.clone());
        request.insert("subResource", self.subresource.clone());
        // Of what is stored the rest is read from the cluster.
        if self.stores_nothing() {
            request.extend_some("object", object(&self.object));
        } else if self.object.is_some() {
            request.insert("object", value!({"metadata": {"uid": uid}}));
        }
        request.extend_some("oldObject", object(&self.old_object));
        let trigger = value!({
            "apiVersion": id.gvk.api_version(), "kind": id.gvk.kind.as_str(),
            "namespace": id.namespace.as_str(), "name": id.name.as_str(), "uid": uid,
        });
        let policy = rules.first().map(|rule| rule.policy.key()).unwrap_or_default();
        let contexts = rules.iter().map(|rule| {
            let mut context = Map::new();
            context.insert("rule", rule.rule.clone());
            context.insert("trigger", trigger.clone());
            Value::Map(context)
        });
        let mut info = Map::new();
        info.insert("operation", self.operation.as_str());
        info.insert("admissionRequest", Value::Map(request.clone()));
        let user = write_user(&self.user);
        let mut context = Map::new();
        context.insert("userInfo", value!({"userInfo": user}));
        context.insert("admissionRequestInfo", Value::Map(info));
        context.insert("passedOver", self.passed_over);
        context.insert("changesNothing", self.changes_nothing());
        let hash = ContentHash::of(&Value::from_iter([
            Value::Map(request),
            user,
            Value::from(self.passed_over),
            Value::from(if self.stores_nothing() { identity } else { uid }),
        ]));
        let mut spec = Map::new();
        spec.insert("requestType", "generate");
        spec.insert("policy", policy);
        spec.insert("resource", trigger.clone());
        spec.insert("ruleContext", Value::from_iter(contexts));
        spec.insert("context", Value::Map(context));
        let name = format!("ur-request-{}", &hash.to_string()[..20]);
        let mut labels = Map::new();
        labels.insert(CARRIES, "true");
        let mut about = Map::new();
        about.insert("name", name);
        about.insert("namespace", namespace);
        about.insert("labels", labels);
        let mut object = Map::new();
        object.insert("apiVersion", crate::update_request_status::kind().api_version());
        object.insert("kind", "UpdateRequest");
        object.insert("metadata", about);
        object.insert("spec", spec);
        Value::Map(object)
    }

    /// The hint that an UpdateRequest carries; none when it carries none.
    pub fn of_request(request: &Value) -> Option<Self> {
        metadata::label(request, CARRIES)?;
        let context = request.get_path(["spec", "context"])?;
        let sent = context.get_path(["admissionRequestInfo", "admissionRequest"])?;
        let text = |key: &str| Str::from(sent.str_at([key]).unwrap_or_default());
        let part = |key: &str| Str::from(sent.str_at(["kind", key]).unwrap_or_default());
        let flag = |key: &str| context.get(key).and_then(Value::as_bool) == Some(true);
        let object = |key: &str| sent.get(key).filter(|object| !object.is_null()).cloned();
        let old_object = object("oldObject");
        Some(ObservedRequest {
            operation: sent.str_at(["operation"])?.parse().ok()?,
            kind: Gvk { group: part("group"), version: part("version"), kind: part("kind") },
            subresource: text("subResource"),
            namespace: text("namespace"),
            name: text("name"),
            // What was sent again as it is stored, is the old object.
            object: if flag("changesNothing") { old_object.clone() } else { object("object") },
            old_object,
            user: context.get_path(["userInfo", "userInfo"]).and_then(read_user)?,
            dry_run: false,
            passed_over: flag("passedOver"),
            request: Some(metadata::name(request)?.into()),
        })
    }
}

fn gvk(gvk: &Gvk) -> Value {
    value!({"group": gvk.group.as_str(), "version": gvk.version.as_str(), "kind": gvk.kind.as_str()})
}

trait ExtendSome {
    fn extend_some(&mut self, key: &str, value: Option<Value>);
}

impl ExtendSome for Map {
    fn extend_some(&mut self, key: &str, value: Option<Value>) {
        if let Some(value) = value {
            self.insert(key, value);
        }
    }
}

/// Requests that are there to be consumed.
#[derive(Debug, Default)]
pub(crate) struct RequestInbox {
    requests: BTreeMap<Str, InboxEntry>,
    next_sweep: u64,
}

#[derive(Debug)]
struct InboxEntry {
    /// What it says, as long as a policy is still to observe it.
    hint: Option<ObservedRequest>,
    /// The policies that are still to hear of it, because they did not act when the others did; none while no policy has.
    late: Option<BTreeSet<PolicyId>>,
    order: RequestOrder,
    /// When it came.
    since: u64,
    /// It is kept until the checkpoint names this object.
    until_stored: Option<Str>,
    /// Its deletion was asked for.
    going: bool,
}

/// When a request was written down: by the second, then by the revision that it brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RequestOrder {
    second: Option<i64>,
    revision: u64,
}

impl RequestOrder {
    pub(crate) fn of(request: &Value) -> Self {
        RequestOrder { second: created_at(request), revision: revision_of(request) }
    }
}

impl RequestInbox {
    /// A request whose effect is to be in the checkpoint before it goes.
    pub(crate) fn keep_until_stored(&mut self, carrier: &Str, uid: Str) {
        if let Some(carrier) = self.requests.get_mut(carrier) {
            carrier.until_stored = Some(uid);
        }
    }

    pub(crate) fn next_time(&self) -> Option<u64> {
        (!self.requests.is_empty()).then_some(self.next_sweep)
    }
}

impl Controller {
    pub(crate) fn carrier_gone(&mut self, name: &Str) {
        self.carried.requests.remove(name);
    }

    /// An UpdateRequest that admission created is there.
    pub(crate) fn carrier_came(
        &mut self,
        id: &ObjectId,
        hint: ObservedRequest,
        order: RequestOrder,
    ) {
        if self.carried.requests.contains_key(&id.name) {
            return;
        }
        let (late, until_stored) = (None, None);
        let mut carrier =
            InboxEntry { hint: None, late, order, since: self.now, until_stored, going: false };
        if hint.passed_over {
            // Known before anything is begun because of it.
            self.carried.requests.insert(id.name.clone(), carrier);
            return self.hint(hint, self.now);
        }
        carrier.hint = Some(hint);
        self.carried.requests.insert(id.name.clone(), carrier);
    }

    /// An object as the user of a request left it: as the next stored request found it, or as it is.
    pub(crate) fn as_left_by(&self, hint: Option<&ObservedRequest>, live: &Value) -> Value {
        let order = |name: &Str| self.carried.requests.get(name).map(|carrier| carrier.order);
        let sent = hint.and_then(|hint| Some((hint.uid()?, order(hint.request.as_ref()?)?)));
        let Some((uid, order)) = sent else { return live.clone() };
        let later = self.carried.requests.values().filter(|carrier| carrier.order > order);
        let later = later.filter_map(|carrier| Some((carrier.order, carrier.hint.as_ref()?)));
        let later = later.filter(|(_, later)| later.uid() == Some(uid));
        let next = later.min_by_key(|(order, _)| *order);
        next.and_then(|(_, next)| next.old_object.clone()).unwrap_or_else(|| live.clone())
    }

    /// Takes requests whose rules and kinds are known, and lets go of those that are done.
    pub(crate) fn consume_requests(&mut self) {
        if self.carried.requests.is_empty() {
            return;
        }
        if self.start == Start::Running {
            self.take_requests();
        }
        if self.carried.next_sweep <= self.now {
            self.carried.next_sweep = self.now + SWEEP;
            self.sweep();
        }
    }

    /// Tells rules what the requests say, in the order in which they came.
    fn take_requests(&mut self) {
        let untold = self.carried.requests.iter().filter(|(_, carrier)| carrier.hint.is_some());
        let mut untold: Vec<(RequestOrder, Str)> =
            untold.map(|(name, carrier)| (carrier.order, name.clone())).collect();
        if untold.is_empty() {
            return;
        }
        untold.sort();
        let idle = self.idle_policies();
        for (_, name) in untold {
            let Some(carrier) = self.carried.requests.get_mut(&name) else { continue };
            let Some(hint) = carrier.hint.clone() else { continue };
            let Some(late) = &mut carrier.late else {
                if !self.is_ready_for(&hint) {
                    continue;
                }
                let late = wanting(&idle, &hint);
                if let Some(carrier) = self.carried.requests.get_mut(&name) {
                    carrier.hint = Some(hint.clone()).filter(|_| !late.is_empty());
                    carrier.late = Some(late);
                }
                self.hint(hint, self.now);
                continue;
            };
            // Whatever is not idle any more acts now, or is gone.
            let is_idle = |policy: &PolicyId| idle.iter().any(|(id, _)| id == policy);
            let told: BTreeSet<PolicyId> =
                late.iter().filter(|policy| !is_idle(policy)).cloned().collect();
            late.retain(is_idle);
            if late.is_empty() {
                carrier.hint = None;
            }
            if !told.is_empty() {
                self.hint_late(hint, told);
            }
        }
    }

    /// The policies whose rules do not act yet.
    fn idle_policies(&self) -> Vec<(PolicyId, RuleSet)> {
        let idle = self.policies.values().filter(|held| !held.active);
        idle.filter_map(|held| held.policy.clone())
            .map(|policy| (policy.id.clone(), RuleSet::new([policy])))
            .collect()
    }

    fn is_ready_for(&self, hint: &ObservedRequest) -> bool {
        self.is_seen(hint) && self.rules.candidates(&hint.event()).next().is_some()
    }

    /// Whether what became of a request can be seen.
    fn is_seen(&self, hint: &ObservedRequest) -> bool {
        hint.stores_nothing() || self.cache.is_known(&KindKey::of(&hint.kind))
    }

    /// Whether a request is still to be observed.
    fn waits(&self, carrier: &InboxEntry, idle: &[(PolicyId, RuleSet)]) -> bool {
        let Some(hint) = &carrier.hint else { return false };
        let born = carrier
            .order
            .second
            .and_then(|second| u64::try_from(second.saturating_mul(1_000)).ok());
        let age = self.now.saturating_sub(born.unwrap_or(carrier.since).min(carrier.since));
        if age >= self.settings.carrier_life {
            return false;
        }
        let wanted = carrier.late.is_some()
            || self.start != Start::Running
            || self.rules.candidates(&hint.event()).next().is_some()
            || !wanting(idle, hint).is_empty();
        // Admission may know of a policy a moment earlier.
        wanted || self.now < carrier.since + self.settings.hint_life
    }

    fn sweep(&mut self) {
        let mut needed: BTreeSet<&Str> = self.hints.carriers().collect();
        needed.extend(
            self.keys
                .iter()
                .filter(|(_, state)| !has_given_up(state, self.settings.retries))
                .flat_map(|(_, state)| state.pending.iter().flat_map(|pending| &pending.carriers)),
        );
        let working = self.jobs.values().flat_map(|job| &job.pending);
        needed.extend(working.flat_map(|pending| &pending.carriers));
        let idle = self.idle_policies();
        let done: Vec<Str> = self
            .carried
            .requests
            .iter()
            .filter(|(name, carrier)| {
                let stored = carrier.until_stored.as_ref().is_none_or(|uid| {
                    self.checkpoint.stored.passed_over.contains_key(uid)
                        || self.passed_over.get(uid).is_none()
                });
                !carrier.going && !self.waits(carrier, &idle) && stored && !needed.contains(name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in done {
            if let Some(carrier) = self.carried.requests.get_mut(&name) {
                carrier.going = true;
            }
            let id = ObjectId::new(
                crate::update_request_status::kind(),
                &self.settings.namespace,
                &name,
            );
            self.ask(Purpose::InboxEntry(name), Call::delete(id));
        }
    }

    pub(crate) fn carrier_answered(&mut self, name: &Str, answer: Result<Reply, ApiError>) {
        match answer {
            // The watch tells that it is gone; until then it is not taken again.
            Ok(_) => {}
            Err(error) if error.reason == Reason::NotFound => {
                self.carried.requests.remove(name);
            }
            Err(_) => {
                self.carried.next_sweep = self.now + self.settings.backoff * 4;
                if let Some(carrier) = self.carried.requests.get_mut(name) {
                    carrier.going = false;
                }
            }
        }
    }
}

/// The policies that have rules for a request.
fn wanting(policies: &[(PolicyId, RuleSet)], hint: &ObservedRequest) -> BTreeSet<PolicyId> {
    let event = hint.event();
    let wanting = policies.iter().filter(|(_, rules)| rules.candidates(&event).next().is_some());
    wanting.map(|(id, _)| id.clone()).collect()
}

/// Whether the work on a key failed so often that it waits for something to change.
fn has_given_up(state: &KeyState, retries: u32) -> bool {
    let reason = state.condition.as_ref().map(|condition| condition.reason);
    match reason {
        Some(Waiting::Failed) => state.failures > retries,
        Some(Waiting::Loop) => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_engine::User;
    use kiln_rules::{Dialect, Operation};

    #[test]
    fn hints_are_read_as_they_were_written() {
        let user = User { username: "ann".into(), groups: vec!["a".into()], ..User::default() };
        let pod =
            value!({"metadata": {"uid": "u", "name": "web", "managedFields": [1]}, "spec": {}});
        let mut stored = pod.clone();
        stored.remove(["metadata", "managedFields"]);
        let of = |operation, object: Option<&Value>, old: Option<&Value>| ObservedRequest {
            operation,
            kind: Gvk::new("apps/v1", "Deployment"),
            subresource: Str::default(),
            namespace: "shop".into(),
            name: "web".into(),
            object: object.cloned(),
            old_object: old.cloned(),
            user: user.clone(),
            dry_run: false,
            passed_over: false,
            request: None,
        };
        let only_uid = value!({"metadata": {"uid": "u"}});
        let exec = ObservedRequest {
            subresource: "exec".into(),
            ..of(Operation::Connect, Some(&pod), None)
        };
        for (hint, object, old) in [
            (of(Operation::Create, Some(&pod), None), Some(&only_uid), None),
            (of(Operation::Delete, None, Some(&pod)), None, Some(&stored)),
            (of(Operation::Update, Some(&pod), Some(&pod)), Some(&stored), Some(&stored)),
            (exec, Some(&stored), None),
            (
                ObservedRequest { passed_over: true, ..of(Operation::Create, Some(&pod), None) },
                Some(&only_uid),
                None,
            ),
        ] {
            let policy = PolicyId { dialect: Dialect::Kyverno, namespace: None, name: "p".into() };
            let rule = RuleId { policy, rule: "r".into() };
            let request = hint.to_request("kyverno", std::slice::from_ref(&rule), "1");
            assert_eq!(request.str_at(["spec", "policy"]), Some("p"));
            let name = metadata::name(&request).map(Str::from);
            let read = ObservedRequest::of_request(&request).unwrap();
            let changes_nothing = hint.changes_nothing();
            let wanted = ObservedRequest {
                object: object.cloned(),
                old_object: old.cloned(),
                request: name,
                ..hint.clone()
            };
            assert_eq!(read, wanted);
            assert_eq!(read.changes_nothing(), changes_nothing);
            let again = hint.to_request("kyverno", &[], "2");
            let same = metadata::name(&again) == metadata::name(&request);
            assert_eq!(same, !hint.stores_nothing(), "sent again");
        }
        assert_eq!(
            ObservedRequest::of_request(&value!({"metadata": {"name": "a"}, "spec": {}})),
            None
        );
    }
}
