//! Simulates a write through the hooks, for commands that only report.

use kiln_engine::{Effect, EvalEnv, Event, RuleOutcome, Verdict};
use kiln_object::Selector;
use kiln_rules::{FailurePolicy, RuleId};
use kiln_value::{Map, Value};

use crate::hooks::{Hook, Hooks, Purpose, Visibility};
use crate::settings::Settings;

/// What became of a write.
#[derive(Debug)]
pub struct SimulatedWrite {
    /// The object that would be stored.
    pub object: Value,
    /// The rules that changed or refused it.
    pub rules: Vec<RuleId>,
    pub refused: Option<SimulatedRefusal>,
}

/// Why a write would be refused.
#[derive(Debug)]
pub struct SimulatedRefusal {
    /// The rules that refuse it; none if it is not known who writes.
    pub rules: Vec<RuleId>,
    pub why: String,
}

/// The labels of a namespace, or none if they cannot be known.
pub type NamespaceLabels<'l> = dyn Fn(&str) -> Option<Map> + 'l;

impl Hooks {
    /// Simulates a write through all hooks that change, check or refuse objects, each with the result of the one before.
    ///
    /// Selectors count as the API server reads them. Match conditions of the settings do not: only requests have all that
    /// these may be about.
    pub fn simulate(
        &self,
        event: &Event,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
        labels: &NamespaceLabels<'_>,
    ) -> SimulatedWrite {
        let object = event.object.clone().unwrap_or(Value::Null);
        let mut simulated = SimulatedWrite { object, rules: Vec::new(), refused: None };
        // Objects are checked as they are after all changes.
        for purpose in [Purpose::Mutate, Purpose::Observe] {
            for hook in self.iter().filter(|hook| hook.webhook.purpose == purpose) {
                if simulated.refused.is_some() {
                    break;
                }
                let mut event = event.clone();
                event.object = event.object.map(|_| simulated.object.clone());
                if hook.is_called(&event, labels) {
                    hook.simulate(&mut event, eval_env, settings, &mut simulated);
                }
            }
        }
        simulated.rules.dedup();
        simulated
    }
}

impl Hook {
    /// Whether the API server asks it, as far as labels decide.
    fn is_called(&self, event: &Event, labels: &NamespaceLabels<'_>) -> bool {
        // One that cannot be read is not published either; a webhook without one is asked about everything.
        let reads = |selector| Selector::from_value(selector).ok();
        let labels_of = |object: &Value| {
            object.get_path(["metadata", "labels"]).and_then(Value::as_map).cloned()
        };
        let is_namespace = event.kind.group.is_empty() && event.kind.kind == "Namespace";
        let objects = || event.object.iter().chain(&event.old_object);
        let in_namespace = reads(&self.webhook.namespace_selector).is_none_or(|selector| {
            match event.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
                _ if selector.is_everything() => true,
                _ if is_namespace => {
                    let own = objects().next().and_then(labels_of);
                    selector.matches(own.as_ref())
                }
                Some(namespace) => match labels(namespace) {
                    Some(labels) => selector.matches(Some(&labels)),
                    // Kubernetes: without its labels it cannot be known to be excluded.
                    None => true,
                },
                None => true,
            }
        });
        in_namespace
            && reads(&self.webhook.object_selector).is_none_or(|selector| {
                objects().any(|object| selector.matches(labels_of(object).as_ref()))
            })
    }

    fn simulate(
        &self,
        event: &mut Event,
        eval_env: &EvalEnv<'_>,
        settings: &Settings,
        simulated: &mut SimulatedWrite,
    ) {
        match self.look(event, eval_env, settings) {
            Visibility::Visible => {}
            Visibility::Excluded { .. } => return,
            Visibility::UserUnknown(why) => {
                if self.webhook.failure == FailurePolicy::Fail {
                    simulated.refused = Some(SimulatedRefusal { rules: Vec::new(), why });
                }
                return;
            }
        }
        if self.webhook.purpose == Purpose::Observe {
            let validated = self.validate(event, eval_env);
            if let Some(refusal) = validated.response.refusal {
                let blocking = validated.results.iter().filter(|r| r.is_bad() && r.actions.deny);
                let blocking: Vec<_> = blocking.collect();
                // What one rule says is enough; of several, users know the words of the webhook.
                let why = match blocking.as_slice() {
                    [only] => only.message.clone(),
                    _ => refusal.message.trim().to_owned(),
                };
                let rules: Vec<RuleId> =
                    blocking.into_iter().map(|result| result.rule.clone()).collect();
                simulated.rules.extend(rules.iter().cloned());
                simulated.refused = Some(SimulatedRefusal { rules, why });
            }
            return;
        }
        let mutated = self.rules().mutate(event, eval_env);
        for outcome in &mutated.outcomes {
            let refused = refusal(outcome, self.webhook.failure);
            let changed = outcome.effects.iter().any(|effect| match effect {
                Effect::Patch(patch) => patch.before != patch.after,
                _ => false,
            });
            if changed || refused.is_some() {
                simulated.rules.push(outcome.rule.clone());
            }
            if let Some(why) = refused {
                let rules = vec![outcome.rule.clone()];
                simulated.refused.get_or_insert(SimulatedRefusal { rules, why });
            }
        }
        simulated.object = mutated.object;
    }
}

/// Why a rule keeps the object from being stored.
fn refusal(outcome: &RuleOutcome, failure: FailurePolicy) -> Option<String> {
    let rejected = outcome.refusal().map(str::to_owned);
    let failed = || {
        let fails = outcome.verdict == Verdict::Error && failure == FailurePolicy::Fail;
        let first = outcome.failures.first().filter(|_| fails)?;
        Some(format!("the rule fails: {}", first.message))
    };
    rejected.or_else(failed)
}
