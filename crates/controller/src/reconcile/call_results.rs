//! What follows from the answers to the calls of a key.

use kiln_cluster::{ApiError, Call, Reason, Reply};
use kiln_engine::{Ensure, RecordedRead};
use kiln_object::{Change, Gvk, ObjectId, metadata};
use kiln_value::Value;

use crate::controller::{Controller, ControllerEvent};
use crate::outbox::Purpose;
use crate::reconcile::compare::{fingerprint, live_form, same, taken_over, wanted_form};
use crate::reconcile::plan::{CallPhase, InFlight, PlanStep};
use crate::reconcile::retry::backoff;
use crate::work_queue::{Condition, Pending, Waiting, WorkKey};

impl Controller {
    pub(crate) fn step_answered(&mut self, key: &WorkKey, answer: Result<Reply, ApiError>) {
        for waiting in self.work.has_written(key) {
            if self.queue.get(&waiting).is_some() {
                self.queue.enqueue(&waiting, self.now);
            }
        }
        let Some(in_flight) = self.work.job(key).and_then(|job| job.current.take()) else { return };
        let InFlight { step, phase } = in_flight;
        match (phase, answer) {
            (CallPhase::Write { sent }, Ok(reply)) => self.written(key, &step, &sent, reply),
            (CallPhase::Try { sent }, Ok(reply)) => self.tried(key, step, sent, reply),
            (CallPhase::Verify { trigger }, answer) => self.verified(key, step, &trigger, answer),
            // Accepted, not gone: finalizers may keep it. Until a watch says that it went, it counts as going.
            (CallPhase::Delete { uid }, Ok(_)) => {
                self.downstreams.deletes(uid);
                self.go_on(key);
            }
            (phase, Err(error)) => match (&step, &phase) {
                (PlanStep::Delete(id), CallPhase::Delete { .. })
                    if error.reason == Reason::NotFound =>
                {
                    self.refresh(key, id.clone());
                }
                _ => self.step_failed(key, &InFlight { step, phase }, &error),
            },
        }
    }

    /// An object is written: what the server stored is remembered, and the next step has its turn.
    fn written(&mut self, key: &WorkKey, step: &PlanStep, sent: &Value, reply: Reply) {
        let Some(object) = reply.object() else { return self.go_on(key) };
        if let PlanStep::Ensure(ensure, _) = step {
            self.tell_of(key, ensure);
            if let Some(job) = self.work.job(key) {
                job.made.push(ensure.target.clone());
            }
            let form = wanted_form(&marked_again(sent));
            let live = live_form(&object, &form);
            if same(&form, &live, &self.env.schema) {
                self.downstreams.is_as_sent(&ensure.target);
            } else {
                let (wanted, stored) = (fingerprint(&form), fingerprint(&live));
                self.downstreams.settle(&ensure.target, wanted, stored);
            }
        }
        if let (PlanStep::Patch(_), Ok(target)) = (step, ObjectId::of(&object)) {
            self.tell(ControllerEvent::Changed { rule: key.rule.clone(), target });
        }
        if let Some(difference) = self.cache.note_answer(&object) {
            self.on_difference(&difference, true);
        }
        self.go_on(key);
    }

    /// A trial says what the server would store: if that is what is stored, the server adds the difference, and nothing
    /// is written; otherwise the same object is.
    fn tried(&mut self, key: &WorkKey, step: PlanStep, sent: Value, reply: Reply) {
        let Some(object) = reply.object() else { return self.go_on(key) };
        let PlanStep::Ensure(ensure, user) = step else { return self.go_on(key) };
        let form = wanted_form(&marked_again(&sent));
        let stored = self.cache.get(&ensure.target).cloned().unwrap_or(Value::Null);
        let stored = taken_over(&stored, &form);
        let (tried, live) = (live_form(&object, &form), live_form(&stored, &form));
        if tried == live {
            let (wanted, stored) = (fingerprint(&form), fingerprint(&live));
            self.downstreams.settle(&ensure.target, wanted, stored);
            return self.go_on(key);
        }
        if let Some(wait) = self.contested(key, &ensure.target) {
            self.queue.enqueue_at(key, wait);
            let message = format!("another writer keeps changing {}", ensure.target);
            if let Some(job) = self.work.job(key) {
                job.conditions.push(Condition { reason: Waiting::Contested, message });
            }
            return self.go_on(key);
        }
        let subresource = ensure.subresource.clone().unwrap_or_default();
        let call = Call::Update { object: sent.clone(), subresource, dry_run: false };
        if let Some(job) = self.work.job(key) {
            let step = PlanStep::Ensure(ensure, user);
            job.current = Some(InFlight { step, phase: CallPhase::Write { sent } });
        }
        self.ask(Purpose::Step(key.clone()), call);
    }

    /// The trigger was read again: what is to be deleted because of it is, unless it is another one by now.
    ///
    /// Once per job, before its first deletion. A cache that lags may show a trigger which stopped matching and matches
    /// again by now; a write on its word would be corrected with the next event, a deletion cannot be taken back.
    fn verified(
        &mut self,
        key: &WorkKey,
        step: PlanStep,
        trigger: &ObjectId,
        answer: Result<Reply, ApiError>,
    ) {
        let live = match answer {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::Unavailable => {
                let phase = CallPhase::Verify { trigger: trigger.clone() };
                return self.step_failed(key, &InFlight { step, phase }, &error);
            }
            // What cannot be read is taken from the cache.
            Err(_) => None,
        };
        let newer = live.filter(|live| {
            let known = self.cache.get(trigger).and_then(metadata::resource_version);
            metadata::uid(live) == Some(&key.trigger) && metadata::resource_version(live) != known
        });
        if let Some(live) = newer
            && let Some(difference) = self.cache.note_answer(&live)
        {
            self.on_difference(&difference, false);
            return self.begin_again(key);
        }
        if let Some(job) = self.work.job(key) {
            job.verified = true;
            job.plan.steps.push_front(step);
        }
        self.go_on(key);
    }

    /// Tells of an object that a rule made, if it was not there before.
    fn tell_of(&mut self, key: &WorkKey, ensure: &Ensure) {
        if self.cache.get(&ensure.target).is_some() {
            return;
        }
        let (rule, target) = (key.rule.clone(), ensure.target.clone());
        if let Some(owner) = self.owner_elsewhere(ensure) {
            self.tell(ControllerEvent::OwnerElsewhere {
                rule: rule.clone(),
                target: target.clone(),
                owner,
            });
        }
        self.tell(ControllerEvent::Made { rule, target });
    }

    /// An owner that Kubernetes does not honour: one in another namespace, or a namespaced one of a
    /// cluster-scoped object. The garbage collector takes such an object for an orphan and deletes it.
    fn owner_elsewhere(&self, ensure: &Ensure) -> Option<String> {
        let owners = ensure.object.get_path(["metadata", "ownerReferences"])?.as_list()?;
        let text = |owner: &Value, key: &str| owner.str_at([key]).unwrap_or_default().to_owned();
        let elsewhere = owners.iter().find(|owner| {
            let gvk = Gvk::new(&text(owner, "apiVersion"), &text(owner, "kind"));
            let namespaced = self.env.kinds.is_namespaced(&gvk) == Some(true);
            let here = self.cache.by_uid(&text(owner, "uid")).map(|(id, _)| id.namespace.clone());
            namespaced && here.is_some_and(|namespace| namespace != ensure.target.namespace)
        })?;
        Some(format!("{} {}", text(elsewhere, "kind"), text(elsewhere, "name")))
    }

    /// What follows from a failure, by its class.
    fn step_failed(&mut self, key: &WorkKey, in_flight: &InFlight, error: &ApiError) {
        let (id, creates) = match (&in_flight.step, &in_flight.phase) {
            (_, CallPhase::Verify { trigger }) => (trigger.clone(), false),
            (PlanStep::Ensure(ensure, _), CallPhase::Write { sent } | CallPhase::Try { sent }) => {
                (ensure.target.clone(), metadata::resource_version(sent).is_none())
            }
            (PlanStep::Release(id) | PlanStep::Delete(id), _) => (id.clone(), false),
            (_, CallPhase::Write { sent } | CallPhase::Try { sent }) => match ObjectId::of(sent) {
                Ok(id) => (id, false),
                Err(_) => return self.go_on(key),
            },
            (PlanStep::Ensure(ensure, _), CallPhase::Delete { .. }) => {
                (ensure.target.clone(), false)
            }
            (PlanStep::Patch(_), CallPhase::Delete { .. }) => return self.go_on(key),
        };
        let condition = |reason| Condition { reason, message: format!("{id}: {}", error.message) };
        let later = match error.reason {
            Reason::Conflict | Reason::AlreadyExists => return self.refresh(key, id),
            Reason::NotFound if !creates => return self.refresh(key, id),
            Reason::NotFound => {
                let namespace = ObjectId::new(Gvk::new("v1", "Namespace"), "", &id.namespace);
                let is_there = self.cache.get(&namespace).is_some_and(|n| !metadata::is_deleted(n));
                self.add_read(key, RecordedRead::Object(namespace));
                // A server looks for what an object refers to: the role of a binding, say, which another
                // rule may be about to make.
                condition(if is_there { Waiting::Unavailable } else { Waiting::Missing })
            }
            // A namespace that is being deleted accepts nothing, and what would go there goes with it. A namespace of
            // this name may come again.
            Reason::NamespaceTerminating => {
                let namespace = ObjectId::new(Gvk::new("v1", "Namespace"), "", &id.namespace);
                self.add_read(key, RecordedRead::Object(namespace));
                condition(Waiting::Missing)
            }
            Reason::Forbidden => condition(Waiting::Forbidden),
            Reason::Invalid => condition(Waiting::Failed),
            Reason::UnknownKind => condition(Waiting::Missing),
            Reason::Unavailable | Reason::Gone => {
                let condition = condition(Waiting::Unavailable);
                if let Some(job) = self.work.job(key) {
                    job.conditions.push(condition);
                    job.plan.steps.clear();
                }
                // Whether it was done is unknown, and the steps that follow were planned as if it were. What is left is
                // decided anew from what the watches show.
                return self.finish(key);
            }
        };
        if let Some(job) = self.work.job(key) {
            job.conditions.push(later);
        }
        self.go_on(key);
    }

    /// Reads an object that is another one than the mirror says, and begins again.
    fn refresh(&mut self, key: &WorkKey, id: ObjectId) {
        self.ask(Purpose::Refresh(key.clone(), id.clone()), Call::Get(id));
    }

    pub(crate) fn refreshed(
        &mut self,
        key: &WorkKey,
        id: &ObjectId,
        answer: Result<Reply, ApiError>,
    ) {
        let difference = match answer {
            Ok(reply) => reply.object().and_then(|object| self.cache.note_answer(&object)),
            Err(error) if error.reason == Reason::NotFound => {
                self.cache.get(id).cloned().and_then(|old| self.cache.note(&old, Change::Deleted))
            }
            Err(_) => None,
        };
        if let Some(difference) = difference {
            self.on_difference(&difference, false);
        }
        self.begin_again(key);
    }

    /// Decides anew about a key.
    fn begin_again(&mut self, key: &WorkKey) {
        let Some(job) = self.work.end(key) else { return };
        self.put_back(key, job.pending);
        let Some(state) = self.queue.get_mut(key) else { return };
        state.tries += 1;
        // A few conflicts in a row happen where others write the same object, and trying at once costs less than waiting.
        // More of them are a fight, or a cache that does not catch up.
        if state.tries > 5 {
            let time = self.now + backoff(self.env.settings.retry, state.tries - 5);
            self.queue.enqueue_at(key, time);
        } else {
            self.queue.enqueue(key, self.now);
        }
    }

    pub(crate) fn put_back(&mut self, key: &WorkKey, pending: Vec<Pending>) {
        let by_user = self.policies.rules.rule(&key.rule).is_some_and(|rule| rule.asks_for_user());
        let Some(state) = self.queue.get_mut(key) else { return };
        let later = std::mem::replace(&mut state.pending, pending);
        for event in later {
            state.add(event, by_user);
        }
    }
}

/// What was sent, without what names the version it replaced.
fn marked_again(sent: &Value) -> Value {
    let mut sent = sent.clone();
    for field in ["uid", "resourceVersion"] {
        sent.remove(["metadata", field]);
    }
    sent
}
