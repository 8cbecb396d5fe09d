//! Which rule made an object, for what, and whether the object is as the rule wants it.

use kiln_engine::{Effect, Ensure, Status};
use kiln_object::{ObjectId, metadata};
use kiln_offline::blocked_by;
use kiln_rules::Rule;
use kiln_runtime::provenance::{Provenance, is_in_step};
use kiln_studio::LinkState;
use kiln_value::Value;

use super::Looking;

/// The rule that made an object, as the object says. The engine signs what it makes; without its key it is unknown
/// whether the object speaks the truth, so it is always shown as what the object says.
pub(super) struct MadeBy {
    /// `name`, or `namespace/name`.
    pub(super) policy: String,
    pub(super) rule: Option<String>,
    pub(super) trigger: Option<String>,
    pub(super) sources: Vec<String>,
    /// How it stands to what the rule wants now.
    pub(super) state: String,
    pub(super) link_state: LinkState,
}

impl Looking<'_> {
    /// Which rule made an object; none when it carries no claim.
    pub(super) fn made_by(&self, id: &ObjectId, object: &Value) -> Option<MadeBy> {
        let made = Provenance::read(object)?;
        let rule = self.rules.rules().find(|rule| made.names(&rule.id));
        let labels = made.labels();
        let policy = match &labels.policy_namespace {
            Some(namespace) => format!("{namespace}/{}", labels.policy),
            None => labels.policy.to_string(),
        };
        let trigger = self.trigger(&made);
        let named = trigger.as_ref().ok().and_then(|trigger| ObjectId::of(trigger.as_ref()?).ok());
        let (link_state, state) = match (rule, trigger) {
            (None, _) => (
                LinkState::Waiting,
                "the cluster has no such rule any more; nothing synchronizes the object".to_owned(),
            ),
            (_, Err(why)) => (LinkState::Failed, format!("its trigger cannot be read: {why}")),
            (_, Ok(None)) => (LinkState::Waiting, "its trigger is gone".to_owned()),
            (Some(rule), Ok(Some(trigger))) => self.state(rule, &made, trigger, id, object),
        };
        Some(MadeBy {
            policy: rule.map_or(policy, |rule| rule.id.policy.key()),
            rule: rule
                .map(|rule| rule.id.rule.to_string())
                .or_else(|| labels.rule.as_ref().map(ToString::to_string)),
            trigger: named.or_else(|| made.trigger()).map(|trigger| trigger.to_string()),
            sources: made.sources().to_vec(),
            state,
            link_state,
        })
    }

    /// The trigger as it is now; none when it is gone.
    fn trigger(&self, made: &Provenance) -> Result<Option<Value>, String> {
        let told = |error: kiln_cluster::ApiError| error.to_string();
        if let Some(id) = made.trigger() {
            let found = self.reader.object(&id).map_err(told)?;
            return Ok(found.filter(|trigger| made.is_trigger(trigger)));
        }
        // Labels of other engines may have only its UID.
        let labels = made.labels();
        let Some(uid) = labels.trigger_uid.as_deref() else { return Ok(None) };
        let namespace = labels.trigger_namespace.as_deref().unwrap_or_default();
        let all = self.reader.all(&labels.trigger_kind, namespace).map_err(told)?;
        Ok(all.into_iter().find(|trigger| metadata::uid(trigger) == Some(uid)))
    }

    fn state(
        &self,
        rule: &Rule,
        made: &Provenance,
        trigger: Value,
        id: &ObjectId,
        object: &Value,
    ) -> (LinkState, String) {
        if !rule.lifecycle.synchronize {
            let once = "created once: the rule does not synchronize it";
            return (LinkState::InStep, once.to_owned());
        }
        let Some(event) = made.event(trigger) else {
            let once =
                "created when its trigger was deleted or connected to; it is not synchronized";
            return (LinkState::InStep, once.to_owned());
        };
        let outcome =
            self.with_eval_env(|eval_env| self.rules.evaluate_rule(&rule.id, &event, eval_env));
        // The rule is one of the set.
        let Some(outcome) = outcome else { return (LinkState::InStep, String::new()) };
        if let Some(failure) = outcome.failures.first() {
            return (LinkState::Failed, format!("the rule fails: {}", failure.message));
        }
        let wanted = outcome.effects.iter().find_map(|effect| match effect {
            Effect::Ensure(ensure) if ensure.target.same_object(id) => Some(ensure),
            _ => None,
        });
        match wanted.map(|ensure| -> &Ensure { ensure }) {
            Some(ensure) if is_in_step(&ensure.object, object) => {
                (LinkState::InStep, "as the rule wants it".to_owned())
            }
            Some(_) => {
                let differs = "not as the rule wants it; `kiln plan` shows the difference";
                (LinkState::Drifted, differs.to_owned())
            }
            None if outcome.status() == Status::Pass => {
                let others = "the rule generates other objects for its trigger now";
                (LinkState::Waiting, others.to_owned())
            }
            None => {
                let why = outcome.trace.as_ref().and_then(blocked_by);
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                let nothing = format!("the rule generates nothing for its trigger any more{why}");
                (LinkState::Waiting, nothing)
            }
        }
    }
}
