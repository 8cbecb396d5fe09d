//! What is told of rules that act on stored objects, for policy reports: what each came to for its trigger.
//!
//! The controller only tells; who keeps reports puts results together with those of other rules, and writes. The same is
//! told once, and again after a resync, so that what was lost heals.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use kiln_engine::{Effect, Ownership, PatchTarget, RuleOutcome, Status, Verdict};
use kiln_object::report_form::is_report_group;
use kiln_object::{Gvk, ObjectId};
use kiln_rules::{Program, Rule, RuleId};
use kiln_value::Str;

use crate::controller::Controller;
use crate::work_queue::{Condition, Waiting, WorkKey};

/// What a rule came to for a trigger.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerReport {
    pub rule: RuleId,
    pub trigger: ObjectId,
    /// The identity of the trigger.
    pub uid: Str,
    /// None when the rule has nothing to do with the trigger any more.
    pub result: Option<TriggerResult>,
}

/// How a rule that acts on stored objects ended.
#[derive(Clone, Debug, PartialEq)]
pub struct TriggerResult {
    pub status: Status,
    pub message: String,
    /// What is added to reports: what the rule says, and what it made or changed.
    pub properties: Vec<(Str, Str)>,
    /// The exceptions that mean the trigger.
    pub exceptions: Vec<Str>,
}

/// What an evaluation says for reports.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Said {
    /// The policy acts on the object. Whether it could is known when the work is done.
    Acts {
        properties: Vec<(Str, Str)>,
        /// The stored objects that it changes.
        patched: Vec<ObjectId>,
    },
    /// Exceptions mean the object.
    Excepted { status: Status, why: String, exceptions: Vec<Str> },
    /// The policy has nothing to do with the object any more.
    Nothing,
}

impl Said {
    /// What an outcome says; none when what is said already still holds.
    pub(crate) fn of(outcome: &RuleOutcome) -> Option<Self> {
        if outcome.is_excepted() {
            return Some(Said::Excepted {
                status: outcome.status(),
                why: outcome.why.clone().unwrap_or_default().into_owned(),
                exceptions: outcome.exceptions.clone(),
            });
        }
        match outcome.verdict {
            Verdict::Pass | Verdict::Error => {
                let patched = outcome.effects.iter().filter_map(|effect| match effect {
                    Effect::Patch(patch) => match &patch.target {
                        PatchTarget::Stored { object, .. } => Some(object.clone()),
                        PatchTarget::Trigger => None,
                    },
                    _ => None,
                });
                let properties = outcome.properties.clone();
                Some(Said::Acts { properties, patched: patched.collect() })
            }
            Verdict::Lapsed => Some(Said::Nothing),
            Verdict::Skip | Verdict::NoMatch => None,
        }
    }
}

/// What waits to be told, and what was.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    waiting: BTreeMap<WorkKey, TriggerReport>,
    /// A hash of what was told last.
    told: HashMap<WorkKey, u64>,
}

impl Reports {
    fn tell(&mut self, key: &WorkKey, report: TriggerReport) {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", report.result).hash(&mut hasher);
        let hash = hasher.finish();
        if self.told.insert(key.clone(), hash) != Some(hash) {
            self.waiting.insert(key.clone(), report);
        }
    }

    /// A key is forgotten. What waits is still told.
    pub(crate) fn forget(&mut self, key: &WorkKey) {
        self.told.remove(key);
    }

    /// Everything is told again when it is looked at.
    pub(crate) fn resync(&mut self) {
        self.told.clear();
    }
}

impl Controller {
    /// The next thing that is to be reported, and was not taken before.
    pub fn take_report(&mut self) -> Option<TriggerReport> {
        self.reports.waiting.pop_first().map(|(_, report)| report)
    }

    /// Whether something waits to be taken by [`Controller::take_report`].
    pub fn has_reports(&self) -> bool {
        !self.reports.waiting.is_empty()
    }

    /// Reports how the work on a key ended.
    pub(crate) fn report(&mut self, key: &WorkKey, said: Option<Said>, worst: Option<&Condition>) {
        let Some(said) = said else { return };
        let Some(rule) = self.policies.rules.rule(&key.rule).cloned() else { return };
        let Some((trigger, _)) = self.cache.by_uid(&key.trigger) else { return };
        // Reports about reports would have no end.
        if is_report_group(&trigger.gvk.group) {
            return;
        }
        let result = match (said, worst) {
            (Said::Nothing, _) => None,
            (Said::Excepted { status, why, exceptions }, _) => {
                let properties = Vec::new();
                Some(TriggerResult { status, message: why, properties, exceptions })
            }
            (Said::Acts { properties, .. }, Some(worst)) => {
                let tries = self.queue.get(key).map_or(0, |state| state.tries);
                if worst.reason == Waiting::Unavailable && tries < 2 {
                    // It may well go through the next time.
                    return;
                }
                let in_cel = rule.script.is_some();
                let begin = if in_cel { "failed to evaluate policy: " } else { "" };
                Some(TriggerResult {
                    status: Status::Error,
                    message: format!("{begin}{}", worst.message),
                    properties,
                    exceptions: Vec::new(),
                })
            }
            (Said::Acts { properties, patched }, None) => {
                Some(self.acted(key, &rule, properties, patched))
            }
        };
        let (rule, uid) = (key.rule.clone(), key.trigger.clone());
        let report = TriggerReport { rule, trigger: trigger.clone(), uid, result };
        self.reports.tell(key, report);
    }

    /// What is said of work that is done.
    fn acted(
        &self,
        key: &WorkKey,
        rule: &Rule,
        mut properties: Vec<(Str, Str)>,
        patched: Vec<ObjectId>,
    ) -> TriggerResult {
        let generates = matches!(rule.program, Program::Generate(_));
        let (verb, property, objects) = match generates {
            true => ("generated", "generated-resources", self.made_for(key)),
            false => ("mutated", "patched-target", patched),
        };
        if !objects.is_empty() {
            let list: Vec<String> = objects.iter().map(go_text).collect();
            properties.push((property.into(), list.join("; ").into()));
        }
        let message = match rule.script {
            Some(_) if generates => "policy evaluated successfully".to_owned(),
            Some(_) => "success".to_owned(),
            None if objects.is_empty() => String::new(),
            None => {
                let list: Vec<String> = objects.iter().map(subject).collect();
                format!("{verb} {}", list.join(", "))
            }
        };
        TriggerResult { status: Status::Pass, message, properties, exceptions: Vec::new() }
    }

    /// The objects that a rule made of a trigger.
    fn made_for(&self, key: &WorkKey) -> Vec<ObjectId> {
        let wants = self.queue.get(key).map(|state| state.wants.as_slice()).unwrap_or_default();
        let own = wants.iter().filter(|id| {
            let mark = self.cache.get(id).and_then(Ownership::read);
            mark.is_some_and(|mark| mark.is_by(&key.rule, &key.trigger))
        });
        own.cloned().collect()
    }
}

/// An object as Kyverno names it in properties, where Go prints its kind.
fn go_text(id: &ObjectId) -> String {
    let ObjectId { gvk: Gvk { group, version, kind }, namespace, name } = id;
    let text = format!("{group}/{version}, Kind={kind} Name={name}");
    if namespace.is_empty() { text } else { format!("{text} Namespace={namespace}") }
}

/// An object as Kyverno names it in messages.
fn subject(id: &ObjectId) -> String {
    let ObjectId { gvk, namespace, name } = id;
    let text = format!("{}/{name}", gvk.kind);
    if namespace.is_empty() { text } else { format!("{text} in namespace {namespace}") }
}
