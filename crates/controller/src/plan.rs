//! Doing what was decided: step by step, one call at a time per key, and what follows from each answer.

use std::collections::{BTreeSet, VecDeque};

use kiln_cluster::{ApiError, Call, Change, KindKey, Preconditions, Reason, Reply};
use kiln_engine::{Ensure, Existing, Failure, Patch, PatchTarget, Read, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::Write;
use kiln_value::{Str, Value};

use crate::compare::{covers, fingerprint, live_form, replacement, same, wanted_form};
use crate::controller::{Contest, Controller, News, Purpose};
use crate::decide::Decision;
use crate::finish::backoff;
use crate::keys::{Cause, Condition, Key, Pending, Waiting};
use crate::mark::{Mark, marked, released};
use crate::mirror::State;
use crate::reports::Said;

/// What is to be done about a key.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub(crate) steps: VecDeque<Step>,
    pub(crate) wants: Vec<ObjectId>,
    pub(crate) reads: Vec<Read>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) cause: Option<Cause>,
    /// The key is remembered afterwards.
    pub(crate) keep: bool,
    /// Labels changed, and nothing came of it.
    pub(crate) skipped: bool,
    /// What is reported of it.
    pub(crate) said: Option<Said>,
}

/// One thing to do.
#[derive(Debug)]
pub(crate) enum Step {
    Ensure(Box<Ensure>, Option<User>),
    /// A stored object is to be changed.
    Patch(Box<Patch>),
    Delete(ObjectId),
    Release(ObjectId),
}

/// Work on a key.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) plan: Plan,
    /// What is being done.
    current: Option<Doing>,
    /// Events that this work answers.
    pub(crate) pending: Vec<Pending>,
    pub(crate) conditions: Vec<Condition>,
    /// Something to delete was left for later.
    pub(crate) deferred: bool,
    /// The trigger was read again, and is as the mirror says.
    verified: bool,
    pub(crate) made: Vec<ObjectId>,
}

#[derive(Debug)]
enum Doing {
    Write {
        step: Step,
        sent: Value,
    },
    /// A trial, to see what a server would make of it.
    Try {
        step: Step,
        sent: Value,
    },
    Delete {
        id: ObjectId,
        uid: Str,
    },
    /// Reads the trigger again, before something is deleted because of it.
    Verify {
        step: Step,
        trigger: ObjectId,
    },
}

/// What to do about a step.
enum Next {
    Done,
    Call(Box<(Call, Doing)>),
    Later(Condition),
}

impl Controller {
    /// Looks at a key, and begins what is to be done.
    pub(crate) fn work(&mut self, key: &Key) {
        let now = self.now;
        if let Some(state) = self.keys.get_mut(key) {
            state.at.get_or_insert(now);
        }
        let decision = self.decide(key);
        match decision {
            Decision::Forget => self.forget(key),
            Decision::Wait(condition) => {
                let state = self.keys.entry(key);
                state.condition = condition;
                self.leave_pass(key);
            }
            Decision::Follow(kinds) => {
                let waits_for = kinds.iter().map(KindKey::of).collect();
                for kind in kinds {
                    self.mirror.follow(&kind);
                }
                // It goes on when the kinds are known, and holds nobody up until then.
                self.waiting.insert(key.clone(), waits_for);
                self.leave_pass(key);
            }
            Decision::Do(mut plan) => {
                let state = self.keys.entry(key);
                let pending = std::mem::take(&mut state.pending);
                if let Some(cause) = plan.cause.take() {
                    state.cause = Some(cause);
                }
                self.keys.set_wants(key, std::mem::take(&mut plan.wants));
                self.keys.set_reads(key, std::mem::take(&mut plan.reads));
                self.leave_pass(key);
                let job = Job {
                    plan: *plan,
                    current: None,
                    pending,
                    conditions: Vec::new(),
                    deferred: false,
                    verified: false,
                    made: Vec::new(),
                };
                self.jobs.insert(key.clone(), job);
                self.go_on(key);
            }
        }
    }

    pub(crate) fn jobs_waiting_for(&mut self, kind: &KindKey) -> Vec<Key> {
        let waiting = &mut self.waiting;
        let found: Vec<Key> = waiting
            .iter()
            .filter(|(_, kinds)| kinds.contains(kind))
            .map(|(key, _)| key.clone())
            .collect();
        for key in &found {
            waiting.remove(key);
        }
        found.into_iter().filter(|key| self.keys.get(key).is_some()).collect()
    }

    /// The next step of a job, until one needs an answer.
    fn go_on(&mut self, key: &Key) {
        loop {
            let Some(job) = self.jobs.get_mut(key) else { return };
            let Some(step) = job.plan.steps.pop_front() else { return self.finish(key) };
            let gone = !key.trigger.is_empty() && self.rules.rule(&key.rule).is_none();
            if gone {
                return self.finish(key);
            }
            match self.next(key, step) {
                Next::Done => {}
                Next::Later(condition) => {
                    if let Some(job) = self.jobs.get_mut(key) {
                        job.conditions.push(condition);
                    }
                }
                Next::Call(call) => {
                    let (call, doing) = *call;
                    let id = call.about();
                    if let Some((holder, waiting)) = self.writing.get_mut(&id)
                        && holder != key
                    {
                        // Somebody else writes it right now: looked at again when that is answered.
                        waiting.insert(key.clone());
                        if let Some(job) = self.jobs.remove(key) {
                            self.put_back(key, job.pending);
                        }
                        return;
                    }
                    self.writing.entry(id).or_insert_with(|| (key.clone(), BTreeSet::new()));
                    if let Some(job) = self.jobs.get_mut(key) {
                        job.current = Some(doing);
                    }
                    return self.ask(Purpose::Step(key.clone()), call);
                }
            }
        }
    }

    fn next(&mut self, key: &Key, step: Step) -> Next {
        match step {
            Step::Ensure(ensure, user) => self.next_ensure(key, ensure, user),
            Step::Patch(patch) => self.next_patch(patch),
            Step::Delete(id) => self.next_delete(key, id),
            Step::Release(id) => {
                let Some(live) = self.mirror.get(&id) else { return Next::Done };
                let sent = released(live);
                Next::Call(Box::new((
                    Call::update(sent.clone()),
                    Doing::Write { step: Step::Release(id), sent },
                )))
            }
        }
    }

    /// Changes a stored object, if it is still the one that the rule saw.
    fn next_patch(&self, patch: Box<Patch>) -> Next {
        let PatchTarget::Stored { object: id, subresource } = &patch.target else {
            return Next::Done;
        };
        let Some(live) = self.mirror.get(id) else { return Next::Done };
        if metadata::is_deleted(live) || patch.after == patch.before {
            return Next::Done;
        }
        let mut sent = patch.after.clone();
        if let Some(version) = metadata::resource_version(&patch.before) {
            // A patched object has metadata.
            let _ = sent.set(["metadata", "resourceVersion"], version);
        }
        let subresource = subresource.clone().unwrap_or_default();
        let call = Call::Update { object: sent.clone(), subresource, dry_run: false };
        Next::Call(Box::new((call, Doing::Write { step: Step::Patch(patch), sent })))
    }

    /// The trigger of a key, as far as its name is known.
    fn trigger_of(&self, key: &Key, made: &ObjectId) -> Option<ObjectId> {
        if key.trigger.is_empty() {
            return None;
        }
        let known = self.keys.get(key).and_then(|state| state.trigger.clone());
        known.or_else(|| Mark::read(self.mirror.get(made)?)?.trigger())
    }

    fn next_delete(&mut self, key: &Key, id: ObjectId) -> Next {
        let Some(live) = self.mirror.get(&id) else { return Next::Done };
        let Some(uid) = metadata::uid(live).map(Str::from) else { return Next::Done };
        // Whoever wants it too takes it over, unless it takes over nothing and waits until it is gone.
        let takes_over = |other: &&Key| {
            let rule = self.rules.rule(&other.rule);
            rule.is_some_and(|rule| rule.lifecycle.over == Existing::Update)
        };
        let others: Vec<Key> =
            self.keys.others_wanting(&id, key).filter(takes_over).cloned().collect();
        if !others.is_empty() {
            for other in others {
                self.keys.enqueue(&other, self.now);
            }
            return Next::Done;
        }
        if self.pass > 0 {
            if let Some(job) = self.jobs.get_mut(key) {
                job.deferred = true;
            }
            self.deferred.insert(key.clone());
            return Next::Done;
        }
        if metadata::is_deleted(live) || self.deleting.contains(&uid) {
            return Next::Done;
        }
        // The mirror may lag behind: the trigger may be one again.
        if let Some(trigger) = self.trigger_of(key, &id)
            && self.jobs.get(key).is_some_and(|job| !job.verified)
        {
            let doing = Doing::Verify { step: Step::Delete(id), trigger: trigger.clone() };
            return Next::Call(Box::new((Call::Get(trigger), doing)));
        }
        let preconditions = Preconditions {
            uid: Some(uid.clone()),
            resource_version: metadata::resource_version(live).map(Str::from),
        };
        let call = Call::Delete { target: id.clone(), preconditions };
        Next::Call(Box::new((call, Doing::Delete { id, uid })))
    }

    fn next_ensure(&mut self, key: &Key, ensure: Box<Ensure>, user: Option<User>) -> Next {
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return Next::Done };
        let id = ensure.target.clone();
        let later = |reason, message: String| Next::Later(Condition { reason, message });
        match self.mirror.kinds.get(&KindKey::of(&id.gvk)).map(|kind| (&kind.state, kind.revision))
        {
            Some((State::Failed(error), 0)) => {
                let reason = match error.reason {
                    Reason::Forbidden => Waiting::Forbidden,
                    Reason::UnknownKind => Waiting::Missing,
                    _ => Waiting::Unavailable,
                };
                return later(reason, format!("{id}: {error}"));
            }
            Some((_, revision)) if revision > 0 => {}
            _ => {
                self.waiting.entry(key.clone()).or_default().insert(KindKey::of(&id.gvk));
                return later(Waiting::Unavailable, format!("{} is not listed yet", id.gvk));
            }
        }
        let live = self.mirror.get(&id).cloned();
        if let Some(live) = &live {
            let uid = metadata::uid(live).unwrap_or_default();
            if metadata::is_deleted(live) || self.deleting.contains(uid) {
                let once = ensure.existing == Existing::Keep || !rule.lifecycle.synchronize;
                if once {
                    return Next::Done;
                }
                // It is made again when the old one is gone.
                self.keys.entry(key);
                self.add_read(key, Read::Object(id.clone()));
                return later(Waiting::Missing, format!("{id} is on its way out"));
            }
        }
        let life = self.life_of(&rule);
        let wanted = marked(&ensure, &rule, &life, user.as_ref());
        let Some(live) = live else {
            if ensure.subresource.is_some() {
                self.add_read(key, Read::Object(id.clone()));
                return later(Waiting::Missing, format!("{id} is not there"));
            }
            let call = match ensure.write {
                Write::Apply { manager } => {
                    Call::Apply { object: wanted.clone(), manager: manager.into(), force: true }
                }
                Write::Replace => Call::create(wanted.clone()),
            };
            return Next::Call(Box::new((
                call,
                Doing::Write { step: Step::Ensure(ensure, user), sent: wanted },
            )));
        };
        if ensure.existing == Existing::Keep {
            return Next::Done;
        }
        let mark = Mark::read(&live);
        let mine = mark.as_ref().is_some_and(|mark| mark.is_by(key));
        let form = wanted_form(&wanted);
        let live_form = live_form(&live, &wanted);
        let other = mark.as_ref().filter(|_| !mine).and_then(|mark| {
            let mut others = self.keys.others_wanting(&id, key);
            others.find(|other| mark.is_by(other))
        });
        if let Some(other) = other.cloned() {
            if rule.lifecycle.synchronize {
                // When the other one lets go of it, this one has its turn.
                self.add_read(key, Read::Object(id.clone()));
            }
            if content_only(&form) == content_only(&live_form) {
                return Next::Done;
            }
            return later(
                Waiting::Contested,
                format!("{id} is made by {other} as well, with other content"),
            );
        }
        if !mine && ensure.existing == Existing::UpdateOwn {
            // It is made when the other one is gone, if the rule still wants it then.
            if rule.lifecycle.synchronize {
                self.add_read(key, Read::Object(id));
            }
            return Next::Done;
        }
        let as_wanted = match ensure.write {
            Write::Replace => same(&form, &live_form, &self.schema),
            Write::Apply { .. } => covers(&form, &live_form, &self.schema),
        };
        let hashes = (fingerprint(&form), fingerprint(&live_form));
        if as_wanted || self.settled.get(&id) == Some(&hashes) {
            if self.contests.get(&id).is_some_and(|contest| contest.last + 600_000 < self.now) {
                self.contests.remove(&id);
            }
            return Next::Done;
        }
        let unchanged = mine
            && mark.as_ref().and_then(|mark| mark.content.as_deref())
                == Some(ensure.claim.content.to_string().as_str());
        let mut object = replacement(&wanted, &live);
        let subresource = ensure.subresource.clone().unwrap_or_default();
        if unchanged {
            // Perhaps the difference is only what a server adds.
            if matches!(ensure.write, Write::Replace) && covers(&form, &live_form, &self.schema) {
                let call = Call::Update { object: object.clone(), subresource, dry_run: true };
                return Next::Call(Box::new((
                    call,
                    Doing::Try { step: Step::Ensure(ensure, user), sent: object },
                )));
            }
            if let Some(wait) = self.contested(&id) {
                self.keys.enqueue_at(key, wait);
                return later(Waiting::Contested, format!("somebody else keeps changing {id}"));
            }
        }
        let call = match ensure.write {
            Write::Apply { manager } => {
                object = wanted;
                Call::Apply { object: object.clone(), manager: manager.into(), force: true }
            }
            Write::Replace => Call::Update { object: object.clone(), subresource, dry_run: false },
        };
        Next::Call(Box::new((
            call,
            Doing::Write { step: Step::Ensure(ensure, user), sent: object },
        )))
    }

    /// Counts a correction of an object; when it was put right too often, the time to wait for.
    fn contested(&mut self, id: &ObjectId) -> Option<u64> {
        let (now, most) = (self.now, self.settings.corrections);
        let contest = self.contests.entry(id.clone()).or_default();
        let quiet = if contest.corrections < most { 60_000 } else { 600_000 };
        if contest.last + quiet < now {
            *contest = Contest::default();
        }
        if contest.corrections >= most {
            let wait = 5_000_u64 << (contest.corrections - most).min(16);
            let allowed = contest.last + wait.min(self.settings.longest_backoff * 5);
            if now < allowed {
                return Some(allowed);
            }
        }
        contest.corrections += 1;
        contest.last = now;
        None
    }

    fn add_read(&mut self, key: &Key, read: Read) {
        let mut reads = self.keys.get(key).map(|state| state.reads.clone()).unwrap_or_default();
        if !reads.contains(&read) {
            reads.push(read);
            self.keys.set_reads(key, reads);
        }
    }

    pub(crate) fn step_answered(&mut self, key: &Key, answer: Result<Reply, ApiError>) {
        let written: Vec<ObjectId> = self
            .writing
            .iter()
            .filter(|(_, (holder, _))| holder == key)
            .map(|(id, _)| id.clone())
            .collect();
        for id in written {
            for waiting in self.writing.remove(&id).into_iter().flat_map(|(_, waiting)| waiting) {
                if self.keys.get(&waiting).is_some() {
                    self.keys.enqueue(&waiting, self.now);
                }
            }
        }
        let Some(doing) = self.jobs.get_mut(key).and_then(|job| job.current.take()) else { return };
        match (doing, answer) {
            (Doing::Write { step, sent }, Ok(reply)) => {
                let Some(object) = reply.object() else { return self.go_on(key) };
                if let Step::Ensure(ensure, _) = &step {
                    self.tell_of(key, ensure);
                    if let Some(job) = self.jobs.get_mut(key) {
                        job.made.push(ensure.target.clone());
                    }
                    let form = wanted_form(&marked_again(&sent));
                    let live = live_form(&object, &form);
                    if same(&form, &live, &self.schema) {
                        self.settled.remove(&ensure.target);
                    } else {
                        self.settled.insert(
                            ensure.target.clone(),
                            (fingerprint(&form), fingerprint(&live)),
                        );
                    }
                }
                if let Some(difference) = self.mirror.note(&object, Change::Modified) {
                    self.on_difference(&difference, true);
                }
                self.go_on(key);
            }
            (Doing::Try { step, sent }, Ok(reply)) => {
                let Some(object) = reply.object() else { return self.go_on(key) };
                let Step::Ensure(ensure, user) = step else { return self.go_on(key) };
                let form = wanted_form(&marked_again(&sent));
                let stored = self.mirror.get(&ensure.target).cloned().unwrap_or(Value::Null);
                let (tried, live) = (live_form(&object, &form), live_form(&stored, &form));
                if tried == live {
                    self.settled
                        .insert(ensure.target.clone(), (fingerprint(&form), fingerprint(&live)));
                    return self.go_on(key);
                }
                if let Some(wait) = self.contested(&ensure.target) {
                    self.keys.enqueue_at(key, wait);
                    let message = format!("somebody else keeps changing {}", ensure.target);
                    if let Some(job) = self.jobs.get_mut(key) {
                        job.conditions.push(Condition { reason: Waiting::Contested, message });
                    }
                    return self.go_on(key);
                }
                let subresource = ensure.subresource.clone().unwrap_or_default();
                let call = Call::Update { object: sent.clone(), subresource, dry_run: false };
                if let Some(job) = self.jobs.get_mut(key) {
                    job.current = Some(Doing::Write { step: Step::Ensure(ensure, user), sent });
                }
                self.ask(Purpose::Step(key.clone()), call);
            }
            (Doing::Verify { step, trigger }, answer) => self.verified(key, step, &trigger, answer),
            (Doing::Delete { uid, .. }, Ok(_)) => {
                self.deleting.insert(uid);
                self.go_on(key);
            }
            (Doing::Delete { id, .. }, Err(error)) if error.reason == Reason::NotFound => {
                self.refresh(key, id);
            }
            (doing, Err(error)) => self.step_failed(key, &doing, &error),
        }
    }

    /// The trigger was read again: what is to be deleted because of it is, unless it is another one by now.
    fn verified(
        &mut self,
        key: &Key,
        step: Step,
        trigger: &ObjectId,
        answer: Result<Reply, ApiError>,
    ) {
        let live = match answer {
            Ok(reply) => reply.object(),
            Err(error) if error.reason == Reason::Unavailable => {
                return self.step_failed(
                    key,
                    &Doing::Verify { step, trigger: trigger.clone() },
                    &error,
                );
            }
            // What nobody lets us read is as the mirror says.
            Err(_) => None,
        };
        let newer = live.filter(|live| {
            let known = self.mirror.get(trigger).and_then(metadata::resource_version);
            metadata::uid(live) == Some(&key.trigger) && metadata::resource_version(live) != known
        });
        if let Some(live) = newer
            && let Some(difference) = self.mirror.note(&live, Change::Modified)
        {
            self.on_difference(&difference, false);
            return self.begin_again(key);
        }
        if let Some(job) = self.jobs.get_mut(key) {
            job.verified = true;
            job.plan.steps.push_front(step);
        }
        self.go_on(key);
    }

    /// Tells of an object that a rule made, if it was not there before.
    fn tell_of(&mut self, key: &Key, ensure: &Ensure) {
        if self.mirror.get(&ensure.target).is_some() {
            return;
        }
        let (rule, target) = (key.rule.clone(), ensure.target.clone());
        if let Some(owner) = self.owner_elsewhere(ensure) {
            self.tell(News::OwnerElsewhere { rule: rule.clone(), target: target.clone(), owner });
        }
        self.tell(News::Made { rule, target });
    }

    /// An owner that Kubernetes does not honour: one in another namespace, or a namespaced one of a
    /// cluster-scoped object. The garbage collector takes such an object for an orphan and deletes it.
    fn owner_elsewhere(&self, ensure: &Ensure) -> Option<String> {
        let owners = ensure.object.get_path(["metadata", "ownerReferences"])?.as_list()?;
        let text = |owner: &Value, key: &str| owner.str_at([key]).unwrap_or_default().to_owned();
        let elsewhere = owners.iter().find(|owner| {
            let gvk = Gvk::new(&text(owner, "apiVersion"), &text(owner, "kind"));
            let namespaced = self.kinds.is_namespaced(&gvk) == Some(true);
            let here = self.mirror.by_uid(&text(owner, "uid")).map(|(id, _)| id.namespace.clone());
            namespaced && here.is_some_and(|namespace| namespace != ensure.target.namespace)
        })?;
        Some(format!("{} {}", text(elsewhere, "kind"), text(elsewhere, "name")))
    }

    /// What follows from a failure, by its class.
    fn step_failed(&mut self, key: &Key, doing: &Doing, error: &ApiError) {
        let (id, creates) = match doing {
            Doing::Write { step: Step::Ensure(ensure, _), sent }
            | Doing::Try { step: Step::Ensure(ensure, _), sent } => {
                (ensure.target.clone(), metadata::resource_version(sent).is_none())
            }
            Doing::Delete { id, .. } => (id.clone(), false),
            Doing::Write { step, sent } | Doing::Try { step, sent } => match step {
                Step::Release(id) | Step::Delete(id) => (id.clone(), false),
                Step::Patch(_) | Step::Ensure(..) => match ObjectId::of(sent) {
                    Ok(id) => (id, false),
                    Err(_) => return self.go_on(key),
                },
            },
            Doing::Verify { trigger, .. } => (trigger.clone(), false),
        };
        let condition = |reason| Condition { reason, message: format!("{id}: {}", error.message) };
        let later = match error.reason {
            Reason::Conflict | Reason::AlreadyExists => return self.refresh(key, id),
            Reason::NotFound if !creates => return self.refresh(key, id),
            Reason::NotFound => {
                let namespace = ObjectId::new(Gvk::new("v1", "Namespace"), "", &id.namespace);
                let is_there =
                    self.mirror.get(&namespace).is_some_and(|n| !metadata::is_deleted(n));
                self.add_read(key, Read::Object(namespace));
                // A server looks for what an object refers to: the role of a binding, say, which another
                // rule may be about to make.
                condition(if is_there { Waiting::Unavailable } else { Waiting::Missing })
            }
            // What is on its way out takes nothing, and what would go there goes with it. A namespace of
            // this name may come again.
            Reason::NamespaceTerminating => {
                let namespace = ObjectId::new(Gvk::new("v1", "Namespace"), "", &id.namespace);
                self.add_read(key, Read::Object(namespace));
                condition(Waiting::Missing)
            }
            Reason::Forbidden => condition(Waiting::Forbidden),
            Reason::Invalid => condition(Waiting::Failed),
            Reason::UnknownKind => condition(Waiting::Missing),
            Reason::Unavailable | Reason::Gone => {
                let condition = condition(Waiting::Unavailable);
                if let Some(job) = self.jobs.get_mut(key) {
                    job.conditions.push(condition);
                    job.plan.steps.clear();
                }
                // Whether it was done nobody knows.
                return self.finish(key);
            }
        };
        if let Some(job) = self.jobs.get_mut(key) {
            job.conditions.push(later);
        }
        self.go_on(key);
    }

    /// Reads an object that is another one than the mirror says, and begins again.
    fn refresh(&mut self, key: &Key, id: ObjectId) {
        self.ask(Purpose::Refresh(key.clone(), id.clone()), Call::Get(id));
    }

    pub(crate) fn refreshed(&mut self, key: &Key, id: &ObjectId, answer: Result<Reply, ApiError>) {
        let difference = match answer {
            Ok(reply) => {
                reply.object().and_then(|object| self.mirror.note(&object, Change::Modified))
            }
            Err(error) if error.reason == Reason::NotFound => {
                self.mirror.get(id).cloned().and_then(|old| self.mirror.note(&old, Change::Deleted))
            }
            Err(_) => None,
        };
        if let Some(difference) = difference {
            self.on_difference(&difference, false);
        }
        self.begin_again(key);
    }

    /// Decides anew about a key.
    fn begin_again(&mut self, key: &Key) {
        let Some(job) = self.jobs.remove(key) else { return };
        self.put_back(key, job.pending);
        let Some(state) = self.keys.get_mut(key) else { return };
        state.tries += 1;
        if state.tries > 5 {
            let time = self.now + backoff(&self.settings, state.tries - 5);
            self.keys.enqueue_at(key, time);
        } else {
            self.keys.enqueue(key, self.now);
        }
    }

    pub(crate) fn put_back(&mut self, key: &Key, pending: Vec<Pending>) {
        let Some(state) = self.keys.get_mut(key) else { return };
        let later = std::mem::replace(&mut state.pending, pending);
        for event in later {
            state.add(event);
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

/// An object without what says whose it is.
fn content_only(form: &Value) -> Value {
    let mut form = form.clone();
    kiln_engine::strip(&mut form);
    form.remove(["metadata", "annotations"]);
    form
}
