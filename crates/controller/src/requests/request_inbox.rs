//! Requests that must not be lost: UpdateRequests that admission creates and the controller consumes.
//!
//! The replica that answers admission requests and the leader may be different processes, and each may end at any time. What no
//! watch tells again (who sent a request, the end of an object, a subresource, a request that changes nothing, that
//! a user is excluded) is therefore stored before the API server is answered. The controller takes such
//! requests in their order, each when it knows the rules and the kind, and deletes one when the work is done, or when
//! it turns out to have changed nothing. Until then it waits, however long rules, kinds and rights take to come, but
//! no longer than [`crate::RequestSettings::carrier_life`].

use std::collections::{BTreeMap, BTreeSet};

use kiln_cluster::{ApiError, Call, KindKey, Reason, Reply};
use kiln_engine::{ObservedRequest, RuleSet};
use kiln_object::ObjectId;
use kiln_rules::PolicyId;
use kiln_value::{Str, Value};

use crate::cache::revision_of;
use crate::controller::Controller;
use crate::outbox::Purpose;
use crate::reconcile::triggers::created_at;
use crate::work_queue::{KeyState, Waiting};

/// How often finished requests are looked for.
const SWEEP: u64 = 250;

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

    pub(crate) fn next_deadline(&self) -> Option<u64> {
        (!self.requests.is_empty()).then_some(self.next_sweep)
    }
}

impl Controller {
    pub(crate) fn carrier_gone(&mut self, name: &Str) {
        self.requests.inbox.requests.remove(name);
    }

    /// An UpdateRequest that admission created is there.
    pub(crate) fn carrier_came(
        &mut self,
        id: &ObjectId,
        hint: ObservedRequest,
        order: RequestOrder,
    ) {
        if self.requests.inbox.requests.contains_key(&id.name) {
            return;
        }
        let (late, until_stored) = (None, None);
        let mut carrier =
            InboxEntry { hint: None, late, order, since: self.now, until_stored, going: false };
        if hint.passed_over {
            // Known before anything is begun because of it.
            self.requests.inbox.requests.insert(id.name.clone(), carrier);
            return self.hint(hint, self.now);
        }
        carrier.hint = Some(hint);
        self.requests.inbox.requests.insert(id.name.clone(), carrier);
    }

    /// An object as the user of a request left it: as the next stored request found it, or as it is.
    pub(crate) fn as_left_by(&self, hint: Option<&ObservedRequest>, live: &Value) -> Value {
        let order =
            |name: &Str| self.requests.inbox.requests.get(name).map(|carrier| carrier.order);
        let sent = hint.and_then(|hint| Some((hint.uid()?, order(hint.request.as_ref()?)?)));
        let Some((uid, order)) = sent else { return live.clone() };
        let later = self.requests.inbox.requests.values().filter(|carrier| carrier.order > order);
        let later = later.filter_map(|carrier| Some((carrier.order, carrier.hint.as_ref()?)));
        let later = later.filter(|(_, later)| later.uid() == Some(uid));
        let next = later.min_by_key(|(order, _)| *order);
        next.and_then(|(_, next)| next.old_object.clone()).unwrap_or_else(|| live.clone())
    }

    /// Takes requests whose rules and kinds are known, and lets go of those that are done.
    pub(crate) fn consume_requests(&mut self) {
        if self.requests.inbox.requests.is_empty() {
            return;
        }
        if self.policies.is_running() {
            self.take_requests();
        }
        if self.requests.inbox.next_sweep <= self.now {
            self.requests.inbox.next_sweep = self.now + SWEEP;
            self.sweep();
        }
    }

    /// Tells rules what the requests say, in the order in which they came.
    fn take_requests(&mut self) {
        let untold =
            self.requests.inbox.requests.iter().filter(|(_, carrier)| carrier.hint.is_some());
        let mut untold: Vec<(RequestOrder, Str)> =
            untold.map(|(name, carrier)| (carrier.order, name.clone())).collect();
        if untold.is_empty() {
            return;
        }
        untold.sort();
        let idle = self.idle_policies();
        for (_, name) in untold {
            let Some(carrier) = self.requests.inbox.requests.get_mut(&name) else { continue };
            let Some(hint) = carrier.hint.clone() else { continue };
            let Some(late) = &mut carrier.late else {
                if !self.is_ready_for(&hint) {
                    continue;
                }
                let late = wanting(&idle, &hint);
                if let Some(carrier) = self.requests.inbox.requests.get_mut(&name) {
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
        let idle = self.policies.states.values().filter(|held| !held.active);
        idle.filter_map(|held| held.policy.clone())
            .map(|policy| (policy.id.clone(), RuleSet::new([policy])))
            .collect()
    }

    fn is_ready_for(&self, hint: &ObservedRequest) -> bool {
        self.is_seen(hint) && self.policies.rules.candidates(&hint.event()).next().is_some()
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
        if age >= self.env.settings.requests.carrier_life {
            return false;
        }
        let wanted = carrier.late.is_some()
            || !self.policies.is_running()
            || self.policies.rules.candidates(&hint.event()).next().is_some()
            || !wanting(idle, hint).is_empty();
        // Admission may know of a policy a moment earlier.
        wanted || self.now < carrier.since + self.env.settings.requests.hint_life
    }

    fn sweep(&mut self) {
        let mut needed: BTreeSet<&Str> = self.requests.observed.carriers().collect();
        needed.extend(
            self.queue
                .iter()
                .filter(|(_, state)| !has_given_up(state, self.env.settings.retry.retries))
                .flat_map(|(_, state)| state.pending.iter().flat_map(|pending| &pending.carriers)),
        );
        let working = self.work.jobs().flat_map(|job| &job.pending);
        needed.extend(working.flat_map(|pending| &pending.carriers));
        let idle = self.idle_policies();
        let done: Vec<Str> = self
            .requests
            .inbox
            .requests
            .iter()
            .filter(|(name, carrier)| {
                let stored = carrier.until_stored.as_ref().is_none_or(|uid| {
                    self.checkpoint.stored().passed_over.contains_key(uid)
                        || self.checkpoint.ignored.get(uid).is_none()
                });
                !carrier.going && !self.waits(carrier, &idle) && stored && !needed.contains(name)
            })
            .map(|(name, _)| name.clone())
            .collect();
        for name in done {
            if let Some(carrier) = self.requests.inbox.requests.get_mut(&name) {
                carrier.going = true;
            }
            let id = ObjectId::new(
                self.env.settings.requests.kind.clone(),
                &self.env.settings.namespace,
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
                self.requests.inbox.requests.remove(name);
            }
            Err(_) => {
                self.requests.inbox.next_sweep = self.now + self.env.settings.retry.backoff * 4;
                if let Some(carrier) = self.requests.inbox.requests.get_mut(name) {
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
