//! What is to be done about one key: what its rule wants of its trigger, against what there is.

use std::collections::BTreeSet;

use kiln_cluster::{KindKey, Reason};
use kiln_engine::{Failure, FailureKind, Ownership};
use kiln_object::{Gvk, ObjectId};
use kiln_rules::{PolicyId, Rule, RuleId};

use crate::cache::{CacheView, KindMirror, KindState};
use crate::controller::Controller;
use crate::lookups::Lookup;
use crate::ownership::signature::Proof;
use crate::ownership::{may_make, patterns};
use crate::reconcile::plan::{Plan, PlanStep};
use crate::reconcile::triggers::created_at;
use crate::work_queue::{Condition, KeyState, WorkKey};

/// What came of looking at a key.
pub(crate) enum Decision {
    /// There is nothing to it.
    Forget,
    /// Not enough is known yet.
    Wait(Option<Condition>),
    /// These kinds have to be listed first.
    Follow(BTreeSet<Gvk>),
    /// Services, or the API server about rights, have to be asked this first.
    Ask(Vec<Lookup>),
    /// It cannot be decided, because of a mistake in Kiln itself.
    Fail(Condition),
    /// This is to be done.
    Do(Box<Plan>),
}

impl Controller {
    /// Compares what a key's rule wants of its trigger with what the cluster has, and says what to do.
    ///
    /// It changes nothing and reads only memory, so it can be repeated at any time: a decision that lacks something says
    /// what to follow or look up, and is made anew when that is known. Causes that must survive a restart are in the
    /// claims of downstreams and in the checkpoint, never in the decision.
    ///
    /// What must stay true:
    /// - Nothing is deleted because of something unknown: an unlisted kind, a lookup without a result, a failed
    ///   evaluation or an unsigned claim on an object that the rule could not have made all end before a deletion.
    /// - Every deletion rests on a claim of this very rule and trigger; names and content never suffice.
    /// - Writes come before deletions, so that a downstream that is renamed is never missing in between.
    pub(crate) fn decide(&self, key: &WorkKey) -> Decision {
        let Some(state) = self.queue.get(key) else { return Decision::Forget };
        if key.trigger.is_empty() {
            return self.decide_removed(key);
        }
        let Some(rule) = self.policies.rules.rule(&key.rule).cloned() else {
            return Decision::Forget;
        };
        let sight = self.sight(key);
        let desired = if rule.lifecycle.synchronize {
            self.desired_synchronized(&rule, key, state, &sight)
        } else {
            self.desired_once(&rule, key, state, &sight)
        };
        if let Some(lacking) = lacking(&sight) {
            return lacking;
        }
        let mut plan = match desired {
            Ok(plan) => plan,
            Err(condition) => return Decision::Wait(condition),
        };
        // Any user can write an unsigned claim. If nothing else says that the trigger is one, the rule may repair what
        // carries the claim, but the claim must not make it create objects elsewhere or patch others.
        if plan.only_claimed {
            plan.adopted = self.adopted(key, state, &plan);
            let Plan { steps, adopted, .. } = &mut plan;
            steps.retain(|step| {
                matches!(step, PlanStep::Ensure(ensure, _) if adopted.contains(&ensure.target))
            });
        }
        let claimed = self.claims(key);
        // Nothing happened that concerns the rule. A key with claims stays in the work queue, since drift of its
        // downstreams has to be noticed; any other is forgotten, so that memory follows the number of real triggers.
        if plan.nothing && plan.failures.is_empty() {
            let member = rule.lifecycle.synchronize && !claimed.is_empty() && state.cause.is_some();
            let Plan { skipped, said, .. } = plan;
            return match member || skipped || said.is_some() {
                true => {
                    let plan = Plan { skipped, said, keep: member, ..Plan::default() };
                    Decision::Do(Box::new(plan))
                }
                false => Decision::Forget,
            };
        }
        let missing_kinds: BTreeSet<Gvk> = plan
            .wants()
            .map(|target| target.gvk.clone())
            .filter(|gvk| !self.cache.kinds.contains_key(&KindKey::of(gvk)))
            .collect();
        if !missing_kinds.is_empty() {
            return Decision::Follow(missing_kinds);
        }
        // The trigger is none any more and nothing is left to do: the key can be forgotten when the plan is done.
        plan.over = plan.settle
            && plan.wants().next().is_none()
            && plan.failures.is_empty()
            && plan.cause.is_none();
        plan.keep = rule.lifecycle.synchronize;
        let removals = self.removals(&rule, &plan, &claimed);
        plan.finish_with(removals);
        Decision::Do(Box::new(plan))
    }

    /// The claims of a rule on downstreams of a trigger, and what each is worth.
    fn claims(&self, key: &WorkKey) -> Vec<(ObjectId, Ownership, Proof)> {
        let claimed = self.cache.claimed_by(&key.trigger);
        claimed
            .filter_map(|(id, object)| {
                Some((id.clone(), Ownership::read(object)?, self.proof(object)))
            })
            .filter(|(_, mark, _)| mark.is_of(&key.rule))
            .collect()
    }

    /// What becomes of owned objects that the rule does not want any more.
    ///
    /// All of these must hold before an owned object goes: it is not wanted any more; its claim is proven, or the kind of
    /// the trigger is listed, so that an absent trigger is really gone; the claim is not final; it belongs to this life of
    /// the policy and not to an earlier one of the same name; no other stored policy may own it; and the evaluation was
    /// complete, or what failed is the source of this very object.
    fn removals(
        &self,
        rule: &Rule,
        plan: &Plan,
        claimed: &[(ObjectId, Ownership, Proof)],
    ) -> Vec<PlanStep> {
        if !plan.settle || !rule.lifecycle.synchronize {
            return Vec::new();
        }
        let targets: BTreeSet<(KindKey, &str, &str)> = plan.wants().map(place).collect();
        let whole = plan.failures.is_empty();
        let mut removals = Vec::new();
        for (id, mark, proof) in claimed {
            let unwanted = !targets.contains(&place(id))
                && (*proof == Proof::Proven || self.trigger_is_known(mark))
                && !mark.is_final()
                && self.lives(rule, mark)
                && !self.may_be_anothers(&rule.id, id, mark)
                && (whole || self.lost_its_source(&plan.failures, id, mark));
            // Whatever an unsigned claim says, the rule touches only what it could have made.
            if !unwanted || (*proof != Proof::Proven && !may_make(rule, id)) {
                continue;
            }
            // Kyverno: a downstream that the rule still describes is deleted with its cause; one that an earlier
            // version of the rule described is orphaned.
            let written_now = match &mark.pattern {
                Some(pattern) => patterns(rule, id).contains(pattern),
                None => targets.is_empty() || self.would_go(rule, mark),
            };
            removals.push(if written_now {
                PlanStep::Delete(id.clone())
            } else {
                PlanStep::Release(id.clone())
            });
        }
        removals
    }

    /// Of what a rule wants of a trigger that only claims name: what carries such a claim, or did.
    fn adopted(&self, key: &WorkKey, state: &KeyState, plan: &Plan) -> BTreeSet<ObjectId> {
        let is_claimed = |target: &&ObjectId| {
            let mark = self.cache.get(target).and_then(Ownership::read);
            state.adopted.contains(*target)
                || mark.is_some_and(|mark| mark.is_by(&key.rule, &key.trigger))
        };
        plan.wants().filter(is_claimed).cloned().collect()
    }

    /// Whether the kind of the trigger that a claim names is followed, so that an absent one is gone.
    fn trigger_is_known(&self, mark: &Ownership) -> bool {
        let kind = KindKey::of(&mark.labels.trigger_kind);
        kind.kind.is_empty() || self.cache.is_known(&kind)
    }

    /// Whether another engine, which made an object, would delete it when its rule makes others of the trigger.
    fn would_go(&self, rule: &Rule, mark: &Ownership) -> bool {
        // Kyverno: rules let go of what they no longer make, unless it is a copy whose source is gone.
        self.source_is_gone(mark) || rule.lifecycle.clears_adopted
    }

    /// Whether labels name a source that is not there.
    fn source_is_gone(&self, mark: &Ownership) -> bool {
        let source = mark.labels.source_uid.as_ref();
        source.is_some_and(|source| self.cache.by_uid(source).is_none())
    }

    /// Whether an object is a copy of something that is gone.
    fn lost_its_source(&self, failures: &[Failure], id: &ObjectId, mark: &Ownership) -> bool {
        failures.iter().any(|failure| match &failure.kind {
            FailureKind::SourceMissing(missing) => match &missing.target {
                Some(target) => target.same_object(id),
                None if mark.names_sources() => mark.is_made_of(&missing.source),
                None => self.source_is_gone(mark),
            },
            _ => false,
        })
    }

    /// What a rule that is gone left behind.
    ///
    /// The rule cannot be evaluated any more, so its record says what it made and what is to happen with it. Kinds that
    /// were never listed are followed first: a policy may be deleted while this process starts.
    fn decide_removed(&self, key: &WorkKey) -> Decision {
        let removed = self.removed(key);
        let kinds: BTreeSet<Gvk> = removed
            .iter()
            .flat_map(|removed| &removed.leaving.kinds)
            .filter(|kind| match self.cache.kinds.get(&KindKey::of(kind)) {
                Some(known) if known.revision > 0 => false,
                // Of a kind that is gone nothing is left.
                Some(KindMirror { state: KindState::Failed(error), .. }) => {
                    error.reason != Reason::UnknownKind
                }
                _ => true,
            })
            .cloned()
            .collect();
        if !kinds.is_empty() {
            return Decision::Follow(kinds);
        }
        let mut steps = Vec::new();
        for (id, object) in self.cache.claimed() {
            let Some(mark) = Ownership::read(object).filter(|mark| mark.is_of(&key.rule)) else {
                continue;
            };
            let proven = self.proof(object) == Proof::Proven;
            let goes = removed.iter().any(|removed| {
                let leaving = &removed.leaving;
                // An unsigned claim on something that the rule does not make has no owner.
                let could_be =
                    leaving.kinds.iter().any(|kind| KindKey::of(kind) == KindKey::of(&id.gvk));
                leaving.synchronize
                    && (proven || could_be)
                    && mark.is_of_life(&removed.uid)
                    && leaving.on_policy_delete.deletes(mark.copied)
            });
            if goes && !self.may_be_anothers(&key.rule, id, &mark) {
                steps.push(PlanStep::Delete(id.clone()));
            }
        }
        Decision::Do(Box::new(Plan { steps: steps.into(), ..Plan::default() }))
    }

    /// Whether the labels that another engine gave an object may mean a rule of another stored policy as well. Its
    /// owner is unknown then, and it stays as it is.
    fn may_be_anothers(&self, rule: &RuleId, id: &ObjectId, mark: &Ownership) -> bool {
        if mark.names_its_rule() {
            return false;
        }
        let made = self.cache.get(id).and_then(created_at);
        // A policy in a namespace must not keep there what a policy of the cluster made before.
        let came_later = |policy: &ObjectId| {
            let came = self.policies.stored(policy).and_then(|stored| created_at(&stored.object));
            !policy.namespace.is_empty() && came.zip(made).is_some_and(|(came, made)| came > made)
        };
        self.stored_beside(&rule.policy)
            .any(|(policy, other)| mark.is_of(&other) && !came_later(policy))
    }

    /// The rules of all stored policies but one, also of those that cannot be compiled.
    fn stored_beside(&self, own: &PolicyId) -> impl Iterator<Item = (&ObjectId, RuleId)> {
        let held = self.policies.states.iter().flat_map(|(id, held)| {
            let record = &held.record;
            record.rules.keys().map(move |rule| (id, record.rule_id(rule)))
        });
        let kind = self.policies.states.values().find(|held| held.record.policy == *own);
        let kind = kind.map(|held| kind_wherever_it_is(&held.record.object));
        let unknown = self.policies.broken.keys().filter(move |id| {
            !self.policies.states.contains_key(*id) && Some(kind_wherever_it_is(id)) == kind
        });
        // Rules whose labels mean several policies are called as these are.
        let unknown = unknown.map(|id| {
            let namespace = Some(id.namespace.clone()).filter(|namespace| !namespace.is_empty());
            let policy = PolicyId { dialect: own.dialect, namespace, name: id.name.clone() };
            (id, RuleId { policy, rule: id.name.clone() })
        });
        held.chain(unknown).filter(move |(_, rule)| rule.policy != *own)
    }
}

/// The kind of a policy: GeneratingPolicy for a NamespacedGeneratingPolicy as well.
fn kind_wherever_it_is(policy: &ObjectId) -> &str {
    let kind = policy.gvk.kind.as_str();
    kind.strip_prefix("Namespaced").unwrap_or(kind)
}

/// What has to be known before a decision counts. The evaluation went on with what was known, so its result counts only
/// if nothing was missing. Following comes before lookups: with the objects the rule may ask other questions, or none.
fn lacking(sight: &CacheView<'_>) -> Option<Decision> {
    let missing = sight.missing.take();
    if !missing.is_empty() {
        return Some(Decision::Follow(missing));
    }
    let mut questions = sight.answers.missing.take();
    // What may not be read must not be sent to services either.
    if questions.iter().any(|asked| matches!(asked, Lookup::Access(_))) {
        questions.retain(|asked| matches!(asked, Lookup::Access(_)));
    }
    (!questions.is_empty()).then_some(Decision::Ask(questions))
}

fn place(id: &ObjectId) -> (KindKey, &str, &str) {
    (KindKey::of(&id.gvk), &id.namespace, &id.name)
}
