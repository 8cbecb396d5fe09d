//! Shadows: policies that are evaluated beside the rules of another policy, on the requests that reach those, so that
//! users see where both differ before one takes the place of the other. Nothing that a shadow decides has an effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use kiln_engine::{EvalEnv, Event, RuleSet};
use kiln_equivalence::{DifferenceKind, Word, difference, judges, outcome_of, with_rules};
use kiln_rules::{AdmissionPart, Exception, Policy, PolicyId, ShadowOf};

use crate::hook_group::with_rules_of;

/// The policies of a host that are shadows.
#[derive(Debug, Default)]
pub(crate) struct Shadows(Vec<(ShadowOf, Arc<Policy>)>);

impl Shadows {
    /// Takes the shadows out of policies; the others are given back.
    pub(crate) fn taken_from(
        policies: impl IntoIterator<Item = Arc<Policy>>,
    ) -> (Self, Vec<Arc<Policy>>) {
        let mut shadows = Shadows::default();
        let mut others = Vec::new();
        for policy in policies {
            match policy.delivery.shadow_of.clone() {
                Some(of) => shadows.0.push((of, policy)),
                None => others.push(policy),
            }
        }
        (shadows, others)
    }

    /// The shadows of a policy.
    pub(crate) fn of<'s>(&'s self, policy: &'s Policy) -> impl Iterator<Item = &'s Arc<Policy>> {
        self.0.iter().filter(move |(of, _)| is_meant(of, policy)).map(|(_, shadow)| shadow)
    }

    /// What is to be compared when a request reaches some policies, of each with the rules of one webhook.
    pub(crate) fn pairs(
        &self,
        members: &[Arc<Policy>],
        exceptions: &[Arc<Exception>],
    ) -> Vec<ShadowPair> {
        let set = |policy: Arc<Policy>| {
            RuleSet::new([policy]).with_exceptions(exceptions.iter().cloned())
        };
        let mut pairs = Vec::new();
        for policy in members {
            for (of, shadow) in self.0.iter().filter(|(of, _)| is_meant(of, policy)) {
                let compared = match of.rules.is_empty() {
                    true => Arc::clone(policy),
                    false => Arc::new(with_rules(policy, &of.rules)),
                };
                for part in AdmissionPart::ALL {
                    let (Some(old), Some(new)) =
                        (with_rules_of(&compared, part), with_rules_of(shadow, part))
                    else {
                        continue;
                    };
                    let (old, new) = (set(old), set(new));
                    let judges = judges(&old) || judges(&new);
                    pairs.push(ShadowPair {
                        policy: policy.id.clone(),
                        shadow: shadow.id.clone(),
                        names: [named(policy), named(shadow)],
                        old,
                        new,
                        judges,
                    });
                }
            }
        }
        pairs
    }
}

/// Whether an annotation means a policy.
fn is_meant(of: &ShadowOf, policy: &Policy) -> bool {
    *of.policy == named(policy)
}

/// A policy as annotations and metrics name it: `Kind/name`, or `Kind/namespace/name`.
fn named(policy: &Policy) -> String {
    format!("{}/{}", policy.kind, policy.id.key())
}

/// Rules of a policy, and the shadow that is compared with them.
#[derive(Debug)]
pub(crate) struct ShadowPair {
    policy: PolicyId,
    shadow: PolicyId,
    names: [String; 2],
    old: RuleSet,
    new: RuleSet,
    judges: bool,
}

/// What became of a request with a policy and with its shadow.
#[derive(Clone, Debug, PartialEq)]
pub struct ShadowResult {
    /// The policy that is in force.
    pub policy: PolicyId,
    /// Its shadow.
    pub shadow: PolicyId,
    /// Both as `Kind/name` or `Kind/namespace/name`.
    pub names: [String; 2],
    /// In which way they differ; none if they do not.
    pub difference: Option<DifferenceKind>,
    /// How the object fares with the policy in force.
    pub old: Word,
    /// How it would fare with the shadow.
    pub new: Word,
    /// What rules of one of them say of the object, if they differ.
    pub message: String,
}

impl ShadowPair {
    /// Whether a request may concern one of both.
    pub(crate) fn concerns(&self, event: &Event) -> bool {
        [&self.old, &self.new].into_iter().any(|rules| rules.candidates(event).next().is_some())
    }

    /// Evaluates both; none if neither has to do with the request, or if one of them cannot be evaluated.
    pub(crate) fn compared(&self, event: &Event, eval_env: &EvalEnv<'_>) -> Option<ShadowResult> {
        if !self.concerns(event) {
            return None;
        }
        let both =
            || (outcome_of(&self.old, event, eval_env), outcome_of(&self.new, event, eval_env));
        let (old, new) = catch_unwind(AssertUnwindSafe(both)).ok()?;
        let difference = difference(&old, &new, self.judges);
        if difference.is_none() && old.word == Word::Skip && new.word == Word::Skip {
            return None;
        }
        let said = old.messages.iter().chain(&new.messages).next().filter(|_| difference.is_some());
        Some(ShadowResult {
            policy: self.policy.clone(),
            shadow: self.shadow.clone(),
            names: self.names.clone(),
            difference,
            old: old.word,
            new: new.word,
            message: said.cloned().unwrap_or_default(),
        })
    }
}
