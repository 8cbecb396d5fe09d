//! Policies as they come, change and go: which rules act, since when, and what is left of those that do not.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_cluster::{ApiError, KindKey, Reason, Reply};
use kiln_engine::{ContentHash, RuleSet, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Emission, Policy, Program, Rule};
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::author::author_of;
use crate::cache::{State, revision_of};
use crate::controller::{Controller, PolicyState, Saving, Start};
use crate::left::{Left, ended_name};
use crate::ownership::Ownership;
use crate::record::{Checkpoint, Leaving, Record, Removed, RuleRecord};
use crate::request_inbox::RequestOrder;
use crate::signature::Proof;
use crate::triggers::created_at;
use crate::work_queue::{Cause, Evidence, Key};

impl Controller {
    pub(crate) fn is_policy_kind(&self, gvk: &Gvk) -> bool {
        self.compile.kinds().iter().any(|kind| KindKey::of(kind) == KindKey::of(gvk))
    }

    pub(crate) fn records_answered(&mut self, answer: Result<Reply, ApiError>) {
        let Ok(reply) = answer else {
            self.start = Start::Records { at: self.now + self.settings.backoff, asked: false };
            return;
        };
        for object in reply.listing().unwrap_or_default().objects {
            let version = metadata::resource_version(&object).map(Str::from);
            if let Some(checkpoint) = Checkpoint::read(&object) {
                self.checkpoint.version = version;
                self.checkpoint.stored = checkpoint.clone();
                self.passed_over = checkpoint.passed_over.clone().into_iter().collect();
                self.ended = checkpoint.ended.clone().into_iter().collect();
                self.checkpoint.at_start = checkpoint;
            } else if let Some(record) = Record::read(&object) {
                let held = PolicyState {
                    from_before: record.rules.keys().cloned().collect(),
                    record,
                    policy: None,
                    author: None,
                    version,
                    saving: Saving::Stored,
                    active: false,
                };
                self.policies.insert(held.record.object.clone(), held);
            }
        }
        self.start = Start::Policies;
        for kind in self.compile.kinds() {
            self.cache.follow(&kind);
        }
        self.cache.follow(&Gvk::new("v1", "Namespace"));
        self.cache.follow(&crate::update_request_status::kind());
    }

    /// Rules act when records, policies and requests are known.
    pub(crate) fn start_if_known(&mut self) {
        if self.start != Start::Policies {
            return;
        }
        let kinds = self.compile.kinds();
        let known = |kind: &Gvk| {
            let state = self.cache.kinds.get(&KindKey::of(kind)).map(|kind| &kind.state);
            matches!(state, Some(State::Synced))
                || matches!(state, Some(State::Failed(error))
                    if error.reason == Reason::UnknownKind)
        };
        // Requests say which changes are ignored.
        let requests = self.cache.kinds.get(&KindKey::of(&crate::update_request_status::kind()));
        let requests_known = requests.is_none_or(|kind| match &kind.state {
            State::Failed(error) => {
                matches!(error.reason, Reason::UnknownKind | Reason::Forbidden)
            }
            state => matches!(state, State::Synced),
        });
        if requests_known && kinds.iter().all(known) {
            self.start = Start::Running;
            let stored: Vec<(ObjectId, Value)> = kinds
                .iter()
                .flat_map(|kind| self.cache.entries(&KindKey::of(kind)))
                .filter_map(|entry| Some((ObjectId::of(&entry.object).ok()?, entry.object.clone())))
                .collect();
            for (id, object) in &stored {
                self.policy_changed(id, Some(object));
            }
            let lost: Vec<ObjectId> = self
                .policies
                .iter()
                .filter(|(id, _)| self.cache.get(id).is_none())
                .map(|(id, _)| id.clone())
                .collect();
            for id in lost {
                self.policy_changed(&id, None);
            }
        }
    }

    /// A kind is known: rules that it fires may begin.
    pub(crate) fn kind_synced(&mut self, key: &KindKey, first: bool) {
        if *key == KindKey::of(&crate::update_request_status::kind()) {
            let mut stored: Vec<Value> =
                self.cache.entries(key).map(|entry| entry.object.clone()).collect();
            stored.sort_by_key(RequestOrder::of);
            for object in stored {
                if let Ok(id) = ObjectId::of(&object) {
                    self.request_changed(&id, Some(&object));
                }
            }
        }
        self.start_if_known();
        if first && self.start == Start::Running {
            self.prune_reports();
            if self.is_policy_kind(&Gvk {
                group: key.group.clone(),
                version: Str::default(),
                kind: key.kind.clone(),
            }) {
                let stored: Vec<Value> =
                    self.cache.entries(key).map(|entry| entry.object.clone()).collect();
                for object in stored {
                    if let Ok(id) = ObjectId::of(&object)
                        && !self.policies.get(&id).is_some_and(|held| held.active)
                    {
                        self.policy_changed(&id, Some(&object));
                    }
                }
            }
            self.scan_known_kinds();
        }
    }

    /// A policy is there, is another one, or is gone.
    pub(crate) fn policy_changed(&mut self, id: &ObjectId, object: Option<&Value>) {
        if self.start != Start::Running {
            return;
        }
        let Some(object) = object.filter(|object| !metadata::is_deleted(object)) else {
            self.broken.remove(id);
            let Some(held) = self.policies.get_mut(id) else { return };
            held.record.leave_all();
            held.policy = None;
            held.change();
            // Nothing fires any more; what is left is seen to when the record is stored.
            self.rebuild_rules();
            self.follow_reports();
            self.prune_reports();
            return;
        };
        let policy = match self.compile.compile(object, &self.kinds) {
            Ok(policy) => policy,
            // The rules that were good go on.
            Err(why) => return drop(self.broken.insert(id.clone(), why)),
        };
        self.broken.remove(id);
        let uid: Str = metadata::uid(object).unwrap_or_default().into();
        let spec: Str =
            ContentHash::of(object.get("spec").unwrap_or(&Value::Null)).to_string().into();
        let born = created_at(object).unwrap_or_default();
        let now = i64::try_from(self.now / 1000).unwrap_or(i64::MAX);
        let held = self.policies.entry(id.clone()).or_insert_with(|| PolicyState {
            record: Record {
                object: id.clone(),
                policy: policy.id.clone(),
                uid: uid.clone(),
                spec: Str::default(),
                rules: Default::default(),
                removed: Vec::new(),
            },
            policy: None,
            author: None,
            version: None,
            saving: Saving::Stored,
            from_before: BTreeSet::new(),
            active: false,
        });
        if held.record.uid != uid {
            held.record.leave_all();
            held.from_before.clear();
            self.begun.retain(|(rule, _)| rule.policy != held.record.policy);
            held.record.uid = uid;
            held.record.spec = Str::default();
        }
        held.author = author_of(object);
        let unchanged = held.record.spec == spec;
        held.policy = Some(Arc::clone(&policy));
        if unchanged {
            if !held.active && held.saving == Saving::Stored {
                self.activate(id);
            }
            return;
        }
        let brand_new = held.record.spec.is_empty();
        held.record.spec = spec;
        let revision = revision_of(object);
        let time = if brand_new { born } else { now };
        let names: BTreeSet<&Str> = policy.rules.iter().map(|rule| &rule.id.rule).collect();
        let uid = held.record.uid.clone();
        let gone: Vec<Str> =
            held.record.rules.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in gone {
            if let Some(rule) = held.record.rules.remove(&name) {
                held.from_before.remove(&name);
                held.record.removed.push(Removed {
                    rule: name,
                    uid: uid.clone(),
                    leaving: rule.leaving,
                });
            }
        }
        for rule in &policy.rules {
            let leaving = leaving(rule);
            let known = held.record.rules.get(&rule.id.rule);
            let starts_to_synchronise =
                known.is_some_and(|known| !known.leaving.synchronize && leaving.synchronize);
            let (revision, time) = match known {
                Some(known) if !starts_to_synchronise => (known.revision, known.time),
                _ => (revision, time),
            };
            let existing = rule.lifecycle.existing;
            let entry = RuleRecord { revision, time, existing, leaving };
            held.record.rules.insert(rule.id.rule.clone(), entry);
        }
        held.change();
    }

    /// The record is stored: the rules act, and what removed ones left is seen to.
    pub(crate) fn activate(&mut self, id: &ObjectId) {
        let Some(held) = self.policies.get_mut(id) else { return };
        held.active = true;
        let removed: Vec<(Key, Vec<Gvk>)> = held
            .record
            .removed
            .iter()
            .map(|removed| {
                let rule = held.record.rule_id(&removed.rule);
                (Key { rule, trigger: Str::default() }, removed.leaving.kinds.clone())
            })
            .collect();
        self.rebuild_rules();
        self.follow_reports();
        for (key, kinds) in removed {
            for kind in kinds {
                self.cache.follow(&kind);
            }
            self.keys.enqueue(&key, self.now);
        }
        let Some(policy) = self.policies.get(id).and_then(|held| held.policy.clone()) else {
            return;
        };
        for rule in &policy.rules {
            let rule = Arc::clone(rule);
            for kind in kinds_of(&rule) {
                self.cache.follow(&kind);
            }
            for kind in self.trigger_kinds(&rule) {
                if !self.cache.follow(&kind) && self.cache.is_known(&KindKey::of(&kind)) {
                    self.scan_existing(&rule, &KindKey::of(&kind));
                }
            }
            let known: Vec<Key> = self
                .keys
                .iter()
                .map(|(key, _)| key)
                .filter(|key| key.rule == rule.id)
                .cloned()
                .collect();
            let claimed: Vec<(Key, Ownership, Proof)> = self
                .cache
                .claimed()
                .filter(|_| rule.lifecycle.synchronize)
                .filter_map(|(_, object)| {
                    let mark = Ownership::read(object).filter(|mark| mark.is_of(&rule.id))?;
                    let trigger = mark.labels.trigger_uid.clone()?;
                    Some((Key { rule: rule.id.clone(), trigger }, mark, self.proof(object)))
                })
                .collect();
            for (key, mark, proof) in &claimed {
                self.remember_cause(key, mark, *proof);
            }
            for key in known.iter().chain(claimed.iter().map(|(key, _, _)| key)) {
                self.keys.entry(key).failures = 0;
                self.enqueue_in_pass(key);
            }
        }
        self.end_pass_if_done();
    }

    pub(crate) fn rebuild_rules(&mut self) {
        let policies: Vec<Arc<Policy>> = self
            .policies
            .values()
            .filter(|held| held.active)
            .filter_map(|held| held.policy.clone())
            .collect();
        let exceptions = self.exceptions.iter().cloned();
        self.rules = RuleSet::new(policies).with_exceptions(exceptions);
        self.begun.retain(|(rule, _)| self.rules.rule(rule).is_some());
        self.checkpoint.dirty = true;
        let gone: Vec<Key> = self
            .keys
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !key.trigger.is_empty() && self.rules.rule(&key.rule).is_none())
            .cloned()
            .collect();
        for key in gone {
            self.forget(&key);
        }
    }

    pub(crate) fn record_of(&self, rule: &Rule) -> Option<(RuleRecord, bool)> {
        let held = self.held(rule)?;
        let record = held.record.rules.get(&rule.id.rule)?.clone();
        Some((record, held.from_before.contains(&rule.id.rule)))
    }

    pub(crate) fn held(&self, rule: &Rule) -> Option<&PolicyState> {
        self.policies.values().find(|held| held.record.policy == rule.id.policy)
    }

    /// Whose rights the reads and writes of a key are held to.
    pub(crate) fn author(&self, key: &Key) -> Option<User> {
        if !self.settings.authors.hold_those(key.rule.policy.namespace.is_some()) {
            return None;
        }
        let held = self.policies.values().find(|held| held.record.policy == key.rule.policy)?;
        held.author.clone()
    }

    /// The UID of a rule's policy.
    pub(crate) fn life_of(&self, rule: &Rule) -> Str {
        self.held(rule).map(|held| held.record.uid.clone()).unwrap_or_default()
    }

    /// A removed rule, as it was.
    pub(crate) fn removed(&self, key: &Key) -> Vec<Removed> {
        let held = self.policies.values().find(|held| held.record.policy == key.rule.policy);
        let removed = held.into_iter().flat_map(|held| &held.record.removed);
        removed.filter(|removed| removed.rule == key.rule.rule).cloned().collect()
    }

    /// What a removed rule left is seen to.
    pub(crate) fn removed_is_done(&mut self, key: &Key, done: &[Removed]) {
        let held = self.policies.values_mut().find(|held| held.record.policy == key.rule.policy);
        if let Some(held) = held {
            held.record.removed.retain(|removed| !done.contains(removed));
            held.change();
        }
    }

    /// What is known of the claim on an object.
    pub(crate) fn proof(&self, object: &Value) -> Proof {
        self.settings.claim_keys.proof(object)
    }

    /// What a claim says made its trigger one. An unsigned claim names no user, nor does one that was
    /// true once: what was caused in a user's name has ended, or the claim does not say what they caused it of.
    pub(crate) fn claimed_cause(&self, key: &Key, mark: &Ownership, proof: Proof) -> Cause {
        let ended = self.ended.get(&ended_name(key));
        let counts = |left: &Left| ended.is_none_or(|ended| ended < left.revision);
        let left = mark.left.clone().filter(|_| mark.user.is_some());
        if proof != Proof::Proven || (mark.user.is_some() && !left.as_ref().is_some_and(counts)) {
            let evidence = Evidence::Claimed;
            return Cause { operation: None, user: None, evidence, left: None };
        }
        let (operation, user) = (mark.operation, mark.user.clone());
        Cause { operation, user, evidence: Evidence::Known, left }
    }

    /// What was caused in a user's name has ended up to a revision of the trigger: claims of that time name no user any more.
    pub(crate) fn end_cause(&mut self, key: &Key, revision: u64) {
        self.ended.insert(&ended_name(key), revision);
        self.checkpoint.dirty = true;
    }

    /// Takes from a claim what made its trigger one, unless something better is known.
    pub(crate) fn remember_cause(&mut self, key: &Key, mark: &Ownership, proof: Proof) {
        let rule = self.rules.rule(&key.rule);
        let lives = rule.is_none_or(|rule| mark.is_of_life(&self.life_of(rule)));
        if mark.is_final() || !lives {
            return;
        }
        let cause = self.claimed_cause(key, mark, proof);
        let state = self.keys.entry(key);
        if state.cause.as_ref().is_none_or(|known| known.evidence > cause.evidence) {
            if cause.evidence == Evidence::Known {
                // What was guessed is known now.
                state.pending.retain(|event| !event.guessed);
            }
            state.cause = Some(cause);
        }
    }

    pub(crate) fn enqueue_in_pass(&mut self, key: &Key) {
        let state = self.keys.entry(key);
        if !std::mem::replace(&mut state.in_pass, true) {
            self.pass += 1;
        }
        self.keys.enqueue(key, self.now);
    }

    /// A key was looked at.
    pub(crate) fn leave_pass(&mut self, key: &Key) {
        if let Some(state) = self.keys.get_mut(key)
            && std::mem::take(&mut state.in_pass)
        {
            self.pass = self.pass.saturating_sub(1);
            self.end_pass_if_done();
        }
    }

    pub(crate) fn forget(&mut self, key: &Key) {
        self.leave_pass(key);
        self.unshow(key);
        self.keys.remove(key);
        self.forget_replaced(key);
        if self.rules.rule(&key.rule).is_some_and(|rule| !rule.lifecycle.synchronize) {
            self.checkpoint.dirty = true;
        }
    }

    fn end_pass_if_done(&mut self) {
        if self.pass > 0 {
            return;
        }
        for key in std::mem::take(&mut self.deferred) {
            self.keys.enqueue(&key, self.now);
        }
        // What was there before has been run for, as far as it is known.
        let rules: Vec<Arc<Rule>> = self.rules.rules().cloned().collect();
        for rule in rules {
            let known = self
                .trigger_kinds(&rule)
                .iter()
                .all(|kind| self.cache.is_known(&KindKey::of(kind)));
            let held = self.policies.values_mut().find(|held| held.record.policy == rule.id.policy);
            if known
                && let Some(held) = held
                && held.active
                && let Some(record) = held.record.rules.get_mut(&rule.id.rule)
                && std::mem::take(&mut record.existing)
            {
                held.change();
            }
        }
    }
}

impl PolicyState {
    /// The record is to be stored.
    fn change(&mut self) {
        self.saving = match self.saving {
            Saving::Sent { .. } => Saving::Sent { again: true },
            _ => Saving::Dirty,
        };
    }
}

impl Record {
    /// Every rule is gone.
    fn leave_all(&mut self) {
        let uid = self.uid.clone();
        let rules = std::mem::take(&mut self.rules);
        self.removed.extend(rules.into_iter().map(|(rule, record)| Removed {
            rule,
            uid: uid.clone(),
            leaving: record.leaving,
        }));
    }
}

fn leaving(rule: &Rule) -> Leaving {
    Leaving {
        synchronize: rule.lifecycle.synchronize,
        on_policy_delete: rule.lifecycle.on_policy_delete,
        kinds: kinds_of(rule),
    }
}

/// The kinds that a rule makes or copies, as far as they are written down.
pub(crate) fn kinds_of(rule: &Rule) -> Vec<Gvk> {
    let Program::Generate(program) = &rule.program else { return Vec::new() };
    fn plain(template: &Template) -> Option<&str> {
        template.document().as_str().filter(|_| template.is_plain())
    }
    let mut kinds = Vec::new();
    for (_, _, emitter) in program.emitters() {
        match &emitter.emission {
            Emission::Data { target, .. } | Emission::Clone { target, .. } => {
                if let (Some(api_version), Some(kind)) =
                    (plain(&target.api_version), plain(&target.kind))
                {
                    let kind = kind.split('/').next().unwrap_or(kind);
                    kinds.push(Gvk::new(api_version, kind));
                }
            }
            Emission::CloneSelect(select) => {
                kinds.extend(select.plain_kinds());
            }
            Emission::FromExpression { .. } | Emission::Documents(_) => {
                kinds.extend(emitter.target_kinds());
            }
        }
        if let Emission::Clone { source, .. } = &emitter.emission
            && let (Some(api_version), Some(kind)) =
                (plain(&source.api_version), plain(&source.kind))
        {
            kinds.push(Gvk::new(api_version, kind));
        }
    }
    kinds.sort();
    kinds.dedup();
    kinds
}
