//! Policies as they come, change and go: which rules act, since when, and what is left of those that do not.

pub(crate) mod persist;
pub(crate) mod policy_moves;
pub(crate) mod policy_set;
pub(crate) mod record;
pub(crate) mod stored_policies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kiln_cluster::{ApiError, KindKey, Reason, Reply};
use kiln_engine::author::author_of;
use kiln_engine::{ContentHash, Ownership, User};
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Emission, Policy, Program, Rule, allows_rule_changes};
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::cache::{KindState, revision_of};
use crate::controller::Controller;
use crate::ownership::left::{Left, ended_name};
use crate::ownership::left_of;
use crate::ownership::signature::Proof;
use crate::policies::policy_set::{PolicyState, Saving, Start};
use crate::policies::record::{Checkpoint, Leaving, Record, Removed, RuleRecord};
use crate::policies::stored_policies::{PolicySnapshot, StoredPolicy};
use crate::reconcile::triggers::created_at;
use crate::requests::request_inbox::RequestOrder;
use crate::work_queue::{Cause, Evidence, WorkKey};

impl Controller {
    /// Tells which policies are stored, each with what came of compiling it. It may be told as often as a host likes:
    /// only what is new counts.
    ///
    /// Policies of kinds that are not served right now stay as they were. An API server that just started does not serve
    /// its custom resources for a moment, and a controller that took that for the end of all policies would delete their downstreams.
    pub fn set_policies(&mut self, snapshot: PolicySnapshot, now: u64) {
        self.now = self.now.max(now);
        let PolicySnapshot { stored, ended, unserved } = snapshot;
        let mut stored: BTreeMap<ObjectId, StoredPolicy> =
            stored.into_iter().map(|policy| (policy.id.clone(), policy)).collect();
        let before = self.policies.given.take().unwrap_or_default();
        for (id, known) in &before {
            if unserved.contains(&KindKey::of(&id.gvk)) {
                stored.entry(id.clone()).or_insert_with(|| known.clone());
            }
        }
        // One that was deleted and stored again under its name is another policy: the first one is gone before it comes.
        let is_gone =
            |known: &&StoredPolicy| stored.get(&known.id).is_none_or(|now| !now.is_life_of(known));
        let gone: Vec<ObjectId> =
            before.values().filter(is_gone).map(|known| known.id.clone()).collect();
        let is_new =
            |policy: &&StoredPolicy| before.get(&policy.id).is_none_or(|known| !known.is(policy));
        let new: Vec<StoredPolicy> = stored.values().filter(is_new).cloned().collect();
        self.policies.given = Some(stored);
        if !self.policies.is_running() {
            return self.start_if_known();
        }
        for ended in ended {
            if before.get(&ended.id).is_some_and(|known| known.is_life_of(&ended)) {
                self.policy_ends(&ended);
            }
        }
        for id in gone {
            self.policy_gone(&id);
        }
        let compiled_anew = new.iter().filter(|policy| self.policy_stored(policy)).count();
        if compiled_anew > 0 {
            // The same text can mean other kinds now: a resource whose kind was not served before.
            self.rebuild_rules();
            self.follow_trigger_kinds();
            self.scan_known_kinds();
        }
    }

    pub(crate) fn records_answered(&mut self, answer: Result<Reply, ApiError>) {
        let Ok(reply) = answer else {
            self.policies.start =
                Start::Records { at: self.now + self.env.settings.retry.backoff, asked: false };
            return;
        };
        for object in reply.listing().unwrap_or_default().objects {
            let version = metadata::resource_version(&object).map(Str::from);
            if let Some(checkpoint) = Checkpoint::read(&object) {
                self.checkpoint.restore(checkpoint, version);
            } else if let Some(record) = Record::read(&object) {
                let mut held = PolicyState::of(record, version);
                held.from_before = held.record.rules.keys().cloned().collect();
                self.policies.states.insert(held.record.object.clone(), held);
            }
        }
        self.policies.start = Start::Policies;
        self.cache.follow(&Gvk::new("v1", "Namespace"));
        let requests = self.env.settings.requests.kind.clone();
        self.cache.follow(&requests);
    }

    /// Rules act when records, policies and requests are known.
    ///
    /// Each must be complete before the next counts. A policy that is seen before its record looks new: its rules would
    /// run for existing objects again, and what its removed rules left would be forgotten. Requests say which changes
    /// are ignored and who made them: a rule that acts before they are known fires for users whom the settings exclude.
    /// Letting each policy act as soon as its own record is there was weighed; but whether an object of another engine
    /// may belong to some other policy (`may_be_anothers`) takes the records of all.
    pub(crate) fn start_if_known(&mut self) {
        if self.policies.start != Start::Policies {
            return;
        }
        let Some(given) = &self.policies.given else { return };
        // Requests say which changes are ignored.
        let requests = self.cache.kinds.get(&KindKey::of(&self.env.settings.requests.kind));
        let requests_known = requests.is_none_or(|kind| match &kind.state {
            // Without the definition or the right there will be none, and waiting for them would keep every rule from
            // acting for ever. Other failures pass.
            KindState::Failed(error) => {
                matches!(error.reason, Reason::UnknownKind | Reason::Forbidden)
            }
            state => matches!(state, KindState::Synced),
        });
        if !requests_known {
            return;
        }
        let stored: Vec<StoredPolicy> = given.values().cloned().collect();
        self.policies.start = Start::Running;
        for policy in &stored {
            self.policy_stored(policy);
        }
        let is_lost = |id: &&ObjectId| self.policies.stored(id).is_none();
        let lost: Vec<ObjectId> = self.policies.states.keys().filter(is_lost).cloned().collect();
        for id in lost {
            self.policy_gone(&id);
        }
    }

    /// A kind is known: rules that it fires may begin.
    pub(crate) fn kind_synced(&mut self, key: &KindKey, first: bool) {
        if *key == KindKey::of(&self.env.settings.requests.kind) {
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
        if first && self.policies.is_running() {
            self.scan_known_kinds();
        }
    }

    /// A policy is gone: nothing fires any more, and what is left is seen to when the record is stored.
    fn policy_gone(&mut self, id: &ObjectId) {
        self.policies.broken.remove(id);
        if self.hand_over(id) {
            return;
        }
        let Some(held) = self.policies.states.get_mut(id) else { return };
        held.record.leave_all();
        held.policy = None;
        held.change();
        self.rebuild_rules();
    }

    /// A policy is about to be gone: what it says last decides about its downstreams.
    fn policy_ends(&mut self, last: &StoredPolicy) {
        let Some(held) = self.policies.states.get(&last.id) else { return };
        let is_of_life = metadata::uid(&last.object) == Some(held.record.uid.as_str());
        let is_seen = held.record.spec == spec_of(&last.object) || held.record.rules.is_empty();
        if is_of_life && !is_seen {
            self.policy_changed(last);
        }
    }

    /// A policy is there, or is another one. Whether only its rules were compiled anew, and act already.
    fn policy_stored(&mut self, stored: &StoredPolicy) -> bool {
        if metadata::is_deleted(&stored.object) {
            self.policy_ends(stored);
            self.policy_gone(&stored.id);
            return false;
        }
        self.policy_changed(stored)
    }

    pub(crate) fn policy_changed(&mut self, stored: &StoredPolicy) -> bool {
        let StoredPolicy { id, object, compiled } = stored;
        if self.is_displaced(id) {
            self.policies.broken.remove(id);
            return false;
        }
        let policy = match compiled {
            Ok(policy) => Arc::clone(policy),
            Err(why) => {
                // The rules that were good go on. Removing them would delete downstreams for a slip of the pen in the
                // policy, and users would only read of it afterwards.
                self.policies.broken.insert(id.clone(), why.clone());
                return false;
            }
        };
        self.policies.broken.remove(id);
        let uid: Str = metadata::uid(object).unwrap_or_default().into();
        let spec = spec_of(object);
        self.take_over(id, &uid);
        let born = created_at(object).unwrap_or_default();
        let now = i64::try_from(self.now / 1000).unwrap_or(i64::MAX);
        let held = self.policies.states.entry(id.clone()).or_insert_with(|| {
            let record = Record {
                object: id.clone(),
                policy: policy.id.clone(),
                uid: uid.clone(),
                moved_from: None,
                spec: Str::default(),
                rules: Default::default(),
                removed: Vec::new(),
            };
            PolicyState::of(record, None)
        });
        if held.record.uid != uid {
            // Deleted and stored again under its name: the first one's downstreams are left as it said, and the second one
            // begins as a new policy does.
            held.record.leave_all();
            held.from_before.clear();
            self.policies.begun.retain(|(rule, _)| rule.policy != held.record.policy);
            held.record.uid = uid;
            held.record.moved_from = None;
            held.record.spec = Str::default();
        }
        held.author = author_of(object);
        held.adopts = allows_rule_changes(object);
        let unchanged = held.record.spec == spec;
        let before = held.policy.replace(Arc::clone(&policy));
        if unchanged {
            if !held.active && held.saving == Saving::Stored {
                self.activate(id);
                return false;
            }
            return held.active && before.is_none_or(|before| !Arc::ptr_eq(&before, &policy));
        }
        let brand_new = held.record.spec.is_empty();
        held.record.spec = spec;
        // A new policy acts since it was stored, by the clock that also dates its triggers. When it was edited, no object
        // says; that is about now.
        let since =
            RuleSince { revision: revision_of(object), time: if brand_new { born } else { now } };
        let gone = held.record.take_rules(&policy, since);
        for name in gone {
            held.from_before.remove(&name);
        }
        held.change();
        false
    }

    /// The record is stored: the rules act, and what removed ones left is seen to.
    ///
    /// Never before: a process that dies between acting and storing would leave downstreams that the next one cannot tell
    /// from those of an earlier version, and would fire again for triggers that are served.
    pub(crate) fn activate(&mut self, id: &ObjectId) {
        let Some(held) = self.policies.states.get_mut(id) else { return };
        held.active = true;
        let removed: Vec<(WorkKey, Vec<Gvk>)> = held
            .record
            .removed
            .iter()
            .map(|removed| {
                let rule = held.record.rule_id(&removed.rule);
                (WorkKey { rule, trigger: Str::default() }, removed.leaving.kinds.clone())
            })
            .collect();
        self.rebuild_rules();
        for (key, kinds) in removed {
            for kind in kinds {
                self.cache.follow(&kind);
            }
            self.queue.enqueue(&key, self.now);
        }
        let Some(policy) = self.policies.states.get(id).and_then(|held| held.policy.clone()) else {
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
            let known: Vec<WorkKey> = self
                .queue
                .iter()
                .map(|(key, _)| key)
                .filter(|key| key.rule == rule.id)
                .cloned()
                .collect();
            let claimed: Vec<(WorkKey, Ownership, Proof)> = self
                .cache
                .claimed()
                .filter(|_| rule.lifecycle.synchronize)
                .filter_map(|(_, object)| {
                    let mark =
                        Ownership::read(object).filter(|mark| self.counts_for(&rule, mark))?;
                    let trigger = mark.labels.trigger_uid.clone()?;
                    Some((WorkKey { rule: rule.id.clone(), trigger }, mark, self.proof(object)))
                })
                .collect();
            for (key, mark, proof) in &claimed {
                self.remember_cause(key, mark, *proof);
            }
            for key in known.iter().chain(claimed.iter().map(|(key, _, _)| key)) {
                self.queue.entry(key).failures = 0;
                self.enqueue_in_pass(key);
            }
        }
        self.end_pass_if_done();
    }

    pub(crate) fn rebuild_rules(&mut self) {
        self.policies.rebuild();
        self.checkpoint.touch();
        let gone: Vec<WorkKey> = self
            .queue
            .iter()
            .map(|(key, _)| key)
            .filter(|key| !key.trigger.is_empty() && self.policies.rules.rule(&key.rule).is_none())
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
        self.policies.of(&rule.id.policy)
    }

    /// Whose rights the reads and writes of a key are held to.
    pub(crate) fn author(&self, key: &WorkKey) -> Option<User> {
        if !self.env.settings.rules.authors.hold_those(key.rule.policy.namespace.is_some()) {
            return None;
        }
        let held = self.policies.of(&key.rule.policy)?;
        held.author.clone()
    }

    /// The UID of a rule's policy.
    pub(crate) fn life_of(&self, rule: &Rule) -> Str {
        self.held(rule).map(|held| held.record.uid.clone()).unwrap_or_default()
    }

    /// Whether a claim comes from the life of a rule's policy, or from the one that it was moved from.
    pub(crate) fn lives(&self, rule: &Rule, mark: &Ownership) -> bool {
        let Some(held) = self.held(rule) else { return mark.is_of_life("") };
        let before = held.record.moved_from.as_ref();
        mark.is_of_life(&held.record.uid) || before.is_some_and(|uid| mark.is_of_life(uid))
    }

    /// Whether a claim counts for a rule: of the rule itself, or of one that was removed from its policy, if the policy
    /// lets its generate rules be edited. An object that the rule makes as well is adopted then, before what the removed
    /// rule left is seen to.
    pub(crate) fn counts_for(&self, rule: &Rule, mark: &Ownership) -> bool {
        let of_removed = |held: &PolicyState| {
            let mut removed = held.record.removed.iter();
            held.adopts && removed.any(|gone| mark.is_of(&held.record.rule_id(&gone.rule)))
        };
        mark.is_of(&rule.id) || self.held(rule).is_some_and(of_removed)
    }

    /// A removed rule, as it was.
    pub(crate) fn removed(&self, key: &WorkKey) -> Vec<Removed> {
        let held = self.policies.of(&key.rule.policy);
        let removed = held.into_iter().flat_map(|held| &held.record.removed);
        removed.filter(|removed| removed.rule == key.rule.rule).cloned().collect()
    }

    /// What a removed rule left is seen to.
    pub(crate) fn removed_is_done(&mut self, key: &WorkKey, done: &[Removed]) {
        let held = self.policies.of_mut(&key.rule.policy);
        if let Some(held) = held {
            held.record.removed.retain(|removed| !done.contains(removed));
            held.change();
        }
    }

    /// What is known of the claim on an object.
    pub(crate) fn proof(&self, object: &Value) -> Proof {
        self.env.settings.claim_keys.proof(object)
    }

    /// What a claim says made its trigger one. An unsigned claim names no user, nor does one that was
    /// true once: what was caused in a user's name has ended, or the claim does not say what they caused it of.
    pub(crate) fn claimed_cause(&self, key: &WorkKey, mark: &Ownership, proof: Proof) -> Cause {
        let ended = self.checkpoint.ended.get(&ended_name(key));
        let counts = |left: &Left| ended.is_none_or(|ended| ended < left.revision);
        let left = left_of(mark).filter(|_| mark.user.is_some());
        if proof != Proof::Proven || (mark.user.is_some() && !left.as_ref().is_some_and(counts)) {
            let evidence = Evidence::Claimed;
            return Cause { operation: None, user: None, evidence, left: None };
        }
        let (operation, user) = (mark.operation, mark.user.clone());
        Cause { operation, user, evidence: Evidence::Known, left }
    }

    /// What was caused in a user's name has ended up to a revision of the trigger: claims of that time name no user any more.
    pub(crate) fn end_cause(&mut self, key: &WorkKey, revision: u64) {
        self.checkpoint.end(&ended_name(key), revision);
    }

    /// Takes from a claim what made its trigger one, unless something better is known.
    pub(crate) fn remember_cause(&mut self, key: &WorkKey, mark: &Ownership, proof: Proof) {
        let rule = self.policies.rules.rule(&key.rule);
        let lives = rule.is_none_or(|rule| self.lives(rule, mark));
        if mark.is_final() || !lives {
            return;
        }
        let cause = self.claimed_cause(key, mark, proof);
        let state = self.queue.entry(key);
        if state.cause.as_ref().is_none_or(|known| known.evidence > cause.evidence) {
            if cause.evidence == Evidence::Known {
                // What was guessed is known now.
                state.pending.retain(|event| !event.guessed);
            }
            state.cause = Some(cause);
        }
    }

    pub(crate) fn enqueue_in_pass(&mut self, key: &WorkKey) {
        let state = self.queue.entry(key);
        if !std::mem::replace(&mut state.in_pass, true) {
            self.work.enter_pass();
        }
        self.queue.enqueue(key, self.now);
    }

    /// A key was looked at.
    pub(crate) fn leave_pass(&mut self, key: &WorkKey) {
        if let Some(state) = self.queue.get_mut(key)
            && std::mem::take(&mut state.in_pass)
        {
            self.work.leave_pass();
            self.end_pass_if_done();
        }
    }

    pub(crate) fn forget(&mut self, key: &WorkKey) {
        self.leave_pass(key);
        self.unshow(key);
        self.queue.remove(key);
        self.reports.forget(key);
        self.forget_replaced(key);
        if self.policies.rules.rule(&key.rule).is_some_and(|rule| !rule.lifecycle.synchronize) {
            self.checkpoint.touch();
        }
    }

    fn end_pass_if_done(&mut self) {
        if self.work.is_in_pass() {
            return;
        }
        for key in self.work.end_pass() {
            self.queue.enqueue(&key, self.now);
        }
        // What was there before has been run for, as far as it is known.
        let rules: Vec<Arc<Rule>> = self.policies.rules.rules().cloned().collect();
        for rule in rules {
            let known = self
                .trigger_kinds(&rule)
                .iter()
                .all(|kind| self.cache.is_known(&KindKey::of(kind)));
            let held = self.policies.of_mut(&rule.id.policy);
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

/// What tells versions of a policy apart.
fn spec_of(object: &Value) -> Str {
    ContentHash::of(object.get("spec").unwrap_or(&Value::Null)).to_string().into()
}

/// Since when a rule acts.
#[derive(Clone, Copy)]
struct RuleSince {
    revision: u64,
    /// In seconds.
    time: i64,
}

impl Record {
    /// Remembers the rules of a new version of the policy, the new ones since `since`. Which ones are gone.
    fn take_rules(&mut self, policy: &Policy, since: RuleSince) -> Vec<Str> {
        let names: BTreeSet<&Str> = policy.rules.iter().map(|rule| &rule.id.rule).collect();
        let gone: Vec<Str> =
            self.rules.keys().filter(|name| !names.contains(name)).cloned().collect();
        for name in &gone {
            if let Some(rule) = self.rules.remove(name) {
                let (uid, leaving) = (self.uid.clone(), rule.leaving);
                self.removed.push(Removed { rule: name.clone(), uid, leaving });
            }
        }
        for rule in &policy.rules {
            let leaving = leaving(rule);
            let known = self.rules.get(&rule.id.rule);
            // A rule that begins to synchronise counts as new: what it made while it did not is not kept in step
            // backwards, since it is unknown which edits of those objects were meant to stay.
            let starts_to_synchronise =
                known.is_some_and(|known| !known.leaving.synchronize && leaving.synchronize);
            let RuleSince { revision, time } = match known {
                Some(known) if !starts_to_synchronise => {
                    RuleSince { revision: known.revision, time: known.time }
                }
                _ => since,
            };
            let existing = rule.lifecycle.existing;
            let entry = RuleRecord { revision, time, existing, leaving };
            self.rules.insert(rule.id.rule.clone(), entry);
        }
        gone
    }

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
