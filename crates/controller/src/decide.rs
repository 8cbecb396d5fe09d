//! What is to be done about one key: what its rule wants of its trigger, against what there is.

use std::collections::BTreeSet;

use kiln_cluster::{KindKey, Reason};
use kiln_engine::{Ensure, Failure, FailureKind};
use kiln_object::{Gvk, ObjectId};
use kiln_rules::{PolicyId, Rule, RuleId};

use crate::controller::Controller;
use crate::keys::{Condition, Key, KeyState};
use crate::left::Sender;
use crate::mark::{Mark, may_make, patterns};
use crate::mirror::{KindMirror, State};
use crate::plan::{Plan, Step};
use crate::questions::Asked;
use crate::signature::Proof;
use crate::triggers::created_at;

/// What came of looking at a key.
pub(crate) enum Decision {
    /// There is nothing to it.
    Forget,
    /// Nobody knows enough yet.
    Wait(Option<Condition>),
    /// These kinds have to be listed first.
    Follow(BTreeSet<Gvk>),
    /// Services, or the API server about rights, have to be asked this first.
    Ask(Vec<Asked>),
    /// It cannot be decided, because of a mistake in Kiln itself.
    Fail(Condition),
    /// This is to be done.
    Do(Box<Plan>),
}

impl Controller {
    pub(crate) fn decide(&self, key: &Key) -> Decision {
        let Some(state) = self.keys.get(key) else { return Decision::Forget };
        if key.trigger.is_empty() {
            return self.decide_removed(key);
        }
        let Some(rule) = self.rules.rule(&key.rule).cloned() else { return Decision::Forget };
        let sight = self.sight(key);
        let wanted = if rule.lifecycle.synchronize {
            self.wanted_in_step(&rule, key, state, &sight)
        } else {
            self.wanted_once(&rule, key, state, &sight)
        };
        let missing = sight.missing.take();
        if !missing.is_empty() {
            return Decision::Follow(missing);
        }
        let mut questions = sight.answers.missing.take();
        // What may not be read must not be sent to services either.
        if questions.iter().any(|asked| matches!(asked, Asked::Right(_))) {
            questions.retain(|asked| matches!(asked, Asked::Right(_)));
        }
        if !questions.is_empty() {
            return Decision::Ask(questions);
        }
        let mut wanted = match wanted {
            Ok(wanted) => wanted,
            Err(condition) => return Decision::Wait(condition),
        };
        let adopted = wanted.only_claimed.then(|| self.adopted(key, state, &wanted.ensures));
        if let Some(adopted) = &adopted {
            wanted.ensures.retain(|(ensure, _)| adopted.contains(&ensure.target));
            wanted.patches.clear();
        }
        let claimed: Vec<(ObjectId, Mark, Proof)> = self
            .mirror
            .claimed_by(&key.trigger)
            .filter_map(|(id, object)| Some((id.clone(), Mark::read(object)?, self.proof(object))))
            .filter(|(_, mark, _)| mark.is_of(&rule.id))
            .collect();
        if wanted.nothing && wanted.failures.is_empty() {
            let member = rule.lifecycle.synchronize && !claimed.is_empty() && state.cause.is_some();
            return match member || wanted.skipped || wanted.said.is_some() {
                true => Decision::Do(Box::new(Plan {
                    skipped: wanted.skipped,
                    said: wanted.said,
                    keep: member,
                    ..Plan::default()
                })),
                false => Decision::Forget,
            };
        }
        let missing_kinds: BTreeSet<Gvk> = wanted
            .ensures
            .iter()
            .map(|(ensure, _)| ensure.target.gvk.clone())
            .filter(|gvk| !self.mirror.kinds.contains_key(&KindKey::of(gvk)))
            .collect();
        if !missing_kinds.is_empty() {
            return Decision::Follow(missing_kinds);
        }
        let targets: BTreeSet<(KindKey, &str, &str)> =
            wanted.ensures.iter().map(|(ensure, _)| place(&ensure.target)).collect();
        let mut removals = Vec::new();
        if wanted.settle && rule.lifecycle.synchronize {
            let whole = wanted.failures.is_empty();
            let life = self.life_of(&rule);
            for (id, mark, proof) in &claimed {
                let unwanted = !targets.contains(&place(id))
                    && (*proof == Proof::Proven || self.trigger_is_known(mark))
                    && !mark.is_final()
                    && mark.is_of_life(&life)
                    && !self.may_be_anothers(&rule.id, id, mark)
                    && (whole || self.lost_its_source(&wanted.failures, id, mark));
                // Whoever wrote an unsigned claim, the rule touches only what it could have made.
                if !unwanted || (*proof != Proof::Proven && !may_make(&rule, id)) {
                    continue;
                }
                let written_now = match &mark.pattern {
                    Some(pattern) => patterns(&rule, id).contains(pattern),
                    None => targets.is_empty() || self.would_go(&rule, mark),
                };
                removals.push(if written_now {
                    Step::Delete(id.clone())
                } else {
                    Step::Release(id.clone())
                });
            }
        }
        let over = wanted.settle
            && wanted.ensures.is_empty()
            && wanted.failures.is_empty()
            && wanted.cause.is_none();
        let wants = wanted.ensures.iter().map(|(ensure, _)| ensure.target.clone()).collect();
        // Namespaces first: what goes into them needs them.
        let (namespaces, others): (Vec<_>, Vec<_>) = wanted
            .ensures
            .into_iter()
            .partition(|(ensure, _)| ensure.target.gvk.kind == "Namespace");
        let steps = namespaces
            .into_iter()
            .chain(others)
            .map(|(ensure, user)| Step::Ensure(Box::new(ensure), user))
            .chain(wanted.patches.into_iter().map(|patch| Step::Patch(Box::new(patch))))
            .chain(removals)
            .collect();
        Decision::Do(Box::new(Plan {
            steps,
            wants,
            reads: wanted.reads,
            failures: wanted.failures,
            cause: wanted.cause,
            keep: rule.lifecycle.synchronize,
            over,
            skipped: wanted.skipped,
            said: wanted.said,
            adopted: adopted.unwrap_or_default(),
        }))
    }

    /// Of what a rule wants of a trigger that only claims name: what carries such a claim, or did.
    fn adopted(
        &self,
        key: &Key,
        state: &KeyState,
        ensures: &[(Ensure, Option<Sender>)],
    ) -> BTreeSet<ObjectId> {
        let targets = ensures.iter().map(|(ensure, _)| &ensure.target);
        let is_claimed = |target: &&ObjectId| {
            let mark = self.mirror.get(target).and_then(Mark::read);
            state.adopted.contains(*target) || mark.is_some_and(|mark| mark.is_by(key))
        };
        targets.filter(is_claimed).cloned().collect()
    }

    /// Whether the kind of the trigger that a claim names is followed, so that an absent one is gone.
    fn trigger_is_known(&self, mark: &Mark) -> bool {
        let kind = KindKey::of(&mark.labels.trigger_kind);
        kind.kind.is_empty() || self.mirror.is_known(&kind)
    }

    /// Whether another engine, which made an object, would delete it when its rule makes others of the trigger.
    fn would_go(&self, rule: &Rule, mark: &Mark) -> bool {
        // Kyverno: rules let go of what they no longer make, unless it is a copy whose source is gone.
        self.source_is_gone(mark) || rule.lifecycle.clears_adopted
    }

    /// Whether labels name a source that is not there.
    fn source_is_gone(&self, mark: &Mark) -> bool {
        let source = mark.labels.source_uid.as_ref();
        source.is_some_and(|source| self.mirror.by_uid(source).is_none())
    }

    /// Whether an object is a copy of something that is gone.
    fn lost_its_source(&self, failures: &[Failure], id: &ObjectId, mark: &Mark) -> bool {
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
    fn decide_removed(&self, key: &Key) -> Decision {
        let removed = self.removed(key);
        let kinds: BTreeSet<Gvk> = removed
            .iter()
            .flat_map(|removed| &removed.leaving.kinds)
            .filter(|kind| match self.mirror.kinds.get(&KindKey::of(kind)) {
                Some(known) if known.revision > 0 => false,
                // Of a kind that is gone nothing is left.
                Some(KindMirror { state: State::Failed(error), .. }) => {
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
        for (id, object) in self.mirror.claimed() {
            let Some(mark) = Mark::read(object).filter(|mark| mark.is_of(&key.rule)) else {
                continue;
            };
            let proven = self.proof(object) == Proof::Proven;
            let goes = removed.iter().any(|removed| {
                let leaving = &removed.leaving;
                // An unsigned claim on something that the rule does not make is nobody's.
                let could_be =
                    leaving.kinds.iter().any(|kind| KindKey::of(kind) == KindKey::of(&id.gvk));
                leaving.synchronize
                    && (proven || could_be)
                    && mark.is_of_life(&removed.uid)
                    && leaving.on_policy_delete.deletes(mark.copied)
            });
            if goes && !self.may_be_anothers(&key.rule, id, &mark) {
                steps.push(Step::Delete(id.clone()));
            }
        }
        Decision::Do(Box::new(Plan { steps: steps.into(), ..Plan::default() }))
    }

    /// Whether the labels that another engine gave an object may mean a rule of another stored policy as well. Nobody
    /// knows then whose it is, and it stays as it is.
    fn may_be_anothers(&self, rule: &RuleId, id: &ObjectId, mark: &Mark) -> bool {
        if mark.names_its_rule() {
            return false;
        }
        let made = self.mirror.get(id).and_then(created_at);
        // Whoever stores a policy in a namespace must not keep there what a policy of the cluster made before.
        let came_later = |policy: &ObjectId| {
            let came = self.mirror.get(policy).and_then(created_at);
            !policy.namespace.is_empty() && came.zip(made).is_some_and(|(came, made)| came > made)
        };
        self.stored_beside(&rule.policy)
            .any(|(policy, other)| mark.is_of(&other) && !came_later(policy))
    }

    /// The rules of all stored policies but one, also of those that cannot be compiled.
    fn stored_beside(&self, own: &PolicyId) -> impl Iterator<Item = (&ObjectId, RuleId)> {
        let held = self.policies.iter().flat_map(|(id, held)| {
            let record = &held.record;
            record.rules.keys().map(move |rule| (id, record.rule_id(rule)))
        });
        let kind = self.policies.values().find(|held| held.record.policy == *own);
        let kind = kind.map(|held| kind_wherever_it_is(&held.record.object));
        let unknown = self.broken.keys().filter(move |id| {
            !self.policies.contains_key(*id) && Some(kind_wherever_it_is(id)) == kind
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

fn place(id: &ObjectId) -> (KindKey, &str, &str) {
    (KindKey::of(&id.gvk), &id.namespace, &id.name)
}
