//! Which kinds fire rules, and which objects are triggers when a rule begins.

use std::collections::BTreeSet;
use std::sync::Arc;

use kiln_cluster::{KindKey, Reason};
use kiln_engine::Ownership;
use kiln_object::{Gvk, ObjectId, metadata};
use kiln_rules::{Operation, Rule};
use kiln_text::time::Time;
use kiln_value::{Str, Value};

use crate::cache::{CacheEntry, KindMirror, KindState, revision_of};
use crate::controller::Controller;
use crate::policies::kinds_of;
use crate::policies::record::RuleRecord;
use crate::work_queue::{Cause, Evidence, Pending, WorkKey};

impl Controller {
    /// Follows kinds that rules fire on and that were not there before.
    pub(crate) fn follow_trigger_kinds(&mut self) {
        let rules: Vec<Arc<Rule>> = self.policies.rules.rules().cloned().collect();
        for rule in rules {
            for kind in self.trigger_kinds(&rule) {
                self.cache.follow(&kind);
            }
        }
    }

    /// The kinds whose objects may fire a rule.
    pub(crate) fn trigger_kinds(&self, rule: &Rule) -> Vec<Gvk> {
        let patterns: Vec<_> = rule
            .trigger
            .include
            .filters()
            .iter()
            .flat_map(|filter| &filter.kinds)
            .filter(|pattern| pattern.subresource.is_empty() || &*pattern.subresource == "*")
            .collect();
        let mut seen = BTreeSet::new();
        self.env
            .kinds
            .iter()
            .filter(|kind| {
                let watched = kind.verbs().contains(&"watch");
                watched
                    && patterns
                        .iter()
                        .any(|p| p.matches(kind.group(), kind.version(), kind.kind(), ""))
            })
            .filter(|kind| seen.insert(KindKey::of(&kind.gvk())))
            .map(kiln_object::Kind::gvk)
            .collect()
    }

    /// Why objects that should fire a rule do not.
    pub(crate) fn trigger_problems(&self, rule: &Rule) -> Vec<String> {
        if rule.program.acts_at_admission() {
            return Vec::new();
        }
        let mut problems = Vec::new();
        let written = rule.trigger.include.filters().iter().flat_map(|filter| &filter.kinds);
        for pattern in written {
            let is_served = self.env.kinds.iter().any(|kind| {
                let takes =
                    |sub: &str| pattern.matches(kind.group(), kind.version(), kind.kind(), sub);
                takes("") || takes(&pattern.subresource)
            });
            if !is_served {
                problems.push(format!("the cluster serves no kind {pattern}"));
            }
        }
        for kind in self.trigger_kinds(rule) {
            if let Some(KindMirror { state: KindState::Failed(error), revision: 0, .. }) =
                self.cache.kinds.get(&KindKey::of(&kind))
                && error.reason != Reason::Unavailable
            {
                problems.push(format!("{kind} cannot be listed: {}", error.message));
            }
        }
        problems
    }

    /// Lets rules begin for kinds that are known and that they have not looked at.
    pub(crate) fn scan_known_kinds(&mut self) {
        let rules: Vec<Arc<Rule>> = self.policies.rules.rules().cloned().collect();
        for rule in rules {
            for kind in self.trigger_kinds(&rule).iter().map(KindKey::of) {
                if self.cache.is_known(&kind)
                    && !self.policies.begun.contains(&(rule.id.clone(), kind.clone()))
                {
                    self.scan_existing(&rule, &kind);
                }
            }
        }
    }

    /// Whether something that a rule makes or copies is still being listed: claims on it are not known yet.
    fn awaits_claims(&self, rule: &Rule) -> bool {
        let is_awaited = |kind: &Gvk| {
            let known = self.cache.kinds.get(&KindKey::of(kind));
            known.is_some_and(|known| {
                known.revision == 0 && !matches!(known.state, KindState::Failed(_))
            })
        };
        rule.lifecycle.synchronize && kinds_of(rule).iter().any(is_awaited)
    }

    /// Runs a rule for the objects of a kind that are its triggers already: at start, for a new policy, and for a kind that
    /// is served from now on.
    ///
    /// There is no stored list of triggers. Whether an object is one is found out from what is stored anyway, in this
    /// order: the checkpoint says that an event of it was waiting; a claim of the rule names it; it changed after the
    /// rule came, by its revision; or the rule runs for existing objects. A stored list would have to be written before
    /// each event is acted on, and would be wrong after a backup of the cluster is restored.
    ///
    /// What must stay true: the kinds of downstreams are listed before (`awaits_claims`), or a trigger with a claim would
    /// look new and its rule would fire again; and an object that the engine itself made does not become a trigger by a
    /// restart (`made_by_us`).
    pub(crate) fn scan_existing(&mut self, rule: &Arc<Rule>, kind: &KindKey) {
        if !self.trigger_kinds(rule).iter().any(|known| KindKey::of(known) == *kind)
            || self.awaits_claims(rule)
        {
            return;
        }
        let Some(scan) = self.scan_of(rule, kind) else { return };
        let begun: Vec<Begun> =
            self.cache.entries(kind).filter_map(|entry| self.begins(rule, &scan, entry)).collect();
        for begun in begun {
            self.begin(rule, &scan, begun);
        }
    }

    /// What a scan goes by.
    fn scan_of(&mut self, rule: &Rule, kind: &KindKey) -> Option<Scan> {
        let (record, from_before) = self.record_of(rule)?;
        let seen = self.checkpoint.at_start().seen.get(kind).copied().unwrap_or(0);
        let served = self.env.kinds.preferred(&kind.group, &kind.kind);
        let has_status = served.is_some_and(|kind| kind.subresource("status").is_some());
        let name = rule.id.to_string();
        let waiting = self.checkpoint.at_start().waiting.iter();
        let waiting = waiting.filter(|(waits, _, _)| from_before && *waits == name);
        let waiting = waiting.map(|(_, uid, word)| (uid.clone(), word.clone())).collect();
        let again = !self.policies.begun.insert((rule.id.clone(), kind.clone()));
        // From which revision on a change counts. A rule that synchronizes can safely look at everything since it came,
        // since it only repairs. One that does not would act twice, so it begins where the last process stopped.
        let since = match (rule.lifecycle.synchronize, from_before) {
            (true, _) => record.revision,
            // What happened since then was seen as it happened.
            (false, _) if again => u64::MAX,
            (false, true) => record.revision.max(seen),
            (false, false) => record.revision,
        };
        Some(Scan { record, since, waiting, has_status, again })
    }

    /// Whether an object is a trigger of a rule already, and what made it one as far as that is known.
    fn begins(&self, rule: &Arc<Rule>, scan: &Scan, entry: &CacheEntry) -> Option<Begun> {
        let object = &entry.object;
        let (uid, id) = (metadata::uid(object)?, ObjectId::of(object).ok()?);
        if metadata::is_deleted(object)
            || !rule.may_be_fired_from(metadata::namespace(object), namespace_itself(&id))
            || self.is_filtered(&id, "")
        {
            return None;
        }
        let key = WorkKey { rule: rule.id.clone(), trigger: uid.into() };
        let claims = self.cache.claimed_by(uid).filter_map(|(_, object)| {
            let mark = Ownership::read(object)?;
            let ours = self.counts_for(rule, &mark) && self.lives(rule, &mark);
            ours.then(|| self.claimed_cause(&key, &mark, self.proof(object)))
        });
        let mut claim = claims.min_by_key(|cause| cause.evidence);
        let made_by_us = rule.trigger.ignore_own_requests
            && Ownership::read(object).is_some_and(|mark| {
                self.is_own(object, &mark) || self.is_wanted_as_claimed(object, &mark)
            });
        let sync = rule.lifecycle.synchronize;
        let mut guessed = false;
        let waited = scan.waiting.iter().filter(|_| !scan.again).find(|(waits, _)| *waits == uid);
        let came_later = !rule.trigger.existing_only && scan.came_later(entry);
        let runs_for_existing = scan.record.existing
            || (sync && rule.lifecycle.existing && !rule.trigger.existing_only);
        if let Some(claim) = &mut claim
            && (came_later || runs_for_existing)
        {
            // Whatever the claim is worth, it is a trigger.
            claim.evidence = claim.evidence.min(Evidence::Guessed);
        }
        let operation = if let Some((_, operation)) = waited {
            operation.as_deref().and_then(|word| word.parse().ok())
        } else if sync && claim.is_some() {
            None
        } else if made_by_us {
            return None;
        } else if came_later {
            let new = created_at(object).is_none_or(|time| time >= scan.record.time);
            guessed = true;
            Some(if new { Operation::Create } else { Operation::Update })
        } else if runs_for_existing {
            None
        } else {
            return None;
        };
        Some(Begun { key, id, claim, operation, guessed })
    }

    /// Begins for one trigger, unless its change is ignored because its author is excluded.
    fn begin(&mut self, rule: &Rule, scan: &Scan, begun: Begun) {
        let Begun { key, id, claim, operation, guessed } = begun;
        let signed = claim.as_ref().is_some_and(|claim| claim.evidence == Evidence::Known);
        if !signed && let Some(hint) = self.requests.observed.take_passed_over(&id, &key.trigger) {
            let revision = self.cache.get(&id).map_or(0, revision_of);
            self.remember_passed_over(&key.trigger, revision, hint.request);
        }
        let touched = self.cache.get(&id).map_or(0, revision_of);
        // Where the status changes, a later revision says nothing.
        let ignored = self.checkpoint.ignored.get(&key.trigger);
        let ignored =
            ignored.is_some_and(|upto| upto >= touched || (scan.has_status && !scan.again));
        if ignored && !signed && (claim.is_some() || operation.is_some()) {
            return;
        }
        let hint = operation.and_then(|operation| {
            let live = self.cache.get(&id);
            self.requests.observed.take(&id, operation, Some(&key.trigger), [None, live])
        });
        let left = self.cache.get(&id).map(|live| self.as_left_by(hint.as_ref(), live));
        let known = self.queue.get(&key).is_some_and(|state| state.cause.is_some());
        let state = self.queue.entry(&key);
        state.trigger = Some(id);
        match claim {
            Some(claim) if rule.lifecycle.synchronize => {
                if state.cause.as_ref().is_none_or(|known| known.evidence > claim.evidence) {
                    state.cause = Some(claim);
                }
            }
            _ if known => {}
            _ => {
                let event = Pending {
                    left: left.filter(|_| hint.is_some() || rule.asks_for_user()),
                    old: hint.as_ref().and_then(|hint| hint.old_object.clone()),
                    user: hint.as_ref().map(|hint| hint.user.clone()),
                    // The request behind it knows better, if one was written down.
                    guessed: guessed && hint.is_none(),
                    carriers: hint.and_then(|hint| hint.request).into_iter().collect(),
                    ..Pending::of(operation, self.now)
                };
                state.add(event, rule.asks_for_user());
            }
        }
        self.enqueue_in_pass(&key);
    }
}

/// What a scan for triggers goes by.
struct Scan {
    record: RuleRecord,
    /// The revision from which on a change counts.
    since: u64,
    /// Triggers that an earlier process had not served, and the operation as far as there was one.
    waiting: Vec<(Str, Option<Str>)>,
    /// Objects of the kind have a status, which changes without making them triggers.
    has_status: bool,
    /// The rule has looked at the kind before.
    again: bool,
}

impl Scan {
    /// Whether an object changed since the rule came. A list does not tell a change of the status from one that counts.
    fn came_later(&self, entry: &CacheEntry) -> bool {
        let made = created_at(&entry.object).unwrap_or(i64::MAX);
        let may_be_status = entry.listed && self.has_status && made < self.record.time;
        entry.touched > self.since && !may_be_status
    }
}

/// A trigger that a rule begins with.
struct Begun {
    key: WorkKey,
    id: ObjectId,
    /// What a claim says made it one.
    claim: Option<Cause>,
    /// The operation; none for an object that was there before.
    operation: Option<Operation>,
    guessed: bool,
}

/// The name of a Namespace; none of anything else.
pub(crate) fn namespace_itself(id: &ObjectId) -> Option<&str> {
    (id.gvk.group.is_empty() && id.gvk.kind == "Namespace").then_some(id.name.as_str())
}

/// When an object was made, in seconds.
pub(crate) fn created_at(object: &Value) -> Option<i64> {
    let text = object.str_at(["metadata", "creationTimestamp"])?;
    Time::parse_rfc3339(text).ok().map(|time| time.unix())
}
