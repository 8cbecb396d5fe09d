//! What hooks would make of a write that nobody sends, for commands that only tell.

use kiln_engine::{Effect, Event, Outcome, Verdict, World};
use kiln_object::Selector;
use kiln_rules::RuleId;
use kiln_value::{Map, Value};

use crate::hooks::{Hook, Hooks, Look, Purpose};
use crate::registration::FailurePolicy;
use crate::settings::Settings;

/// What became of a write.
#[derive(Debug)]
pub struct Judged {
    /// The object that would be stored.
    pub object: Value,
    /// The rules that changed or refused it.
    pub rules: Vec<RuleId>,
    /// Why it would be refused, and by which rule if it is one.
    pub refused: Option<(Option<RuleId>, String)>,
}

/// The labels of a namespace, or none if they cannot be known.
pub type NamespaceLabels<'l> = dyn Fn(&str) -> Option<Map> + 'l;

impl Hooks {
    /// Plays a write through all hooks that change or refuse objects, each with what the one before made of it.
    ///
    /// Selectors count as the API server reads them. Match conditions of the settings do not: only requests have all that
    /// these may be about.
    pub fn judge(
        &self,
        event: &Event,
        world: &World<'_>,
        settings: &Settings,
        labels: &NamespaceLabels<'_>,
    ) -> Judged {
        let object = event.object.clone().unwrap_or(Value::Null);
        let mut judged = Judged { object, rules: Vec::new(), refused: None };
        for hook in self.iter().filter(|hook| hook.purpose == Purpose::Mutate) {
            if judged.refused.is_some() {
                break;
            }
            let mut event = event.clone();
            event.object = event.object.map(|_| judged.object.clone());
            if hook.is_called(&event, labels) {
                hook.judge(&mut event, world, settings, &mut judged);
            }
        }
        judged.rules.dedup();
        judged
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
        let in_namespace = reads(&self.namespace_selector).is_none_or(|selector| {
            match event.namespace.as_deref().filter(|namespace| !namespace.is_empty()) {
                _ if selector.is_everything() => true,
                _ if is_namespace => {
                    let own = objects().next().and_then(labels_of);
                    selector.matches(own.as_ref())
                }
                Some(namespace) => match labels(namespace) {
                    Some(labels) => selector.matches(Some(&labels)),
                    // Kubernetes: without its labels nobody can say that it is left out.
                    None => true,
                },
                None => true,
            }
        });
        in_namespace
            && reads(&self.object_selector).is_none_or(|selector| {
                objects().any(|object| selector.matches(labels_of(object).as_ref()))
            })
    }

    fn judge(
        &self,
        event: &mut Event,
        world: &World<'_>,
        settings: &Settings,
        judged: &mut Judged,
    ) {
        match self.look(event, world, settings) {
            Look::At => {}
            Look::Away { .. } => return,
            Look::Unknown(why) => {
                if self.failure == FailurePolicy::Fail {
                    judged.refused = Some((None, why));
                }
                return;
            }
        }
        let mutated = self.rules().mutate(event, world);
        for outcome in &mutated.outcomes {
            let refused = refusal(outcome, self.failure);
            let changed = outcome.effects.iter().any(|effect| match effect {
                Effect::Patch(patch) => patch.before != patch.after,
                _ => false,
            });
            if changed || refused.is_some() {
                judged.rules.push(outcome.rule.clone());
            }
            if let Some(why) = refused {
                judged.refused.get_or_insert_with(|| (Some(outcome.rule.clone()), why));
            }
        }
        judged.object = mutated.object;
    }
}

/// Why a rule keeps the object from being stored.
fn refusal(outcome: &Outcome, failure: FailurePolicy) -> Option<String> {
    let rejected = outcome.refusal().map(str::to_owned);
    let failed = || {
        let fails = outcome.verdict == Verdict::Error && failure == FailurePolicy::Fail;
        let first = outcome.failures.first().filter(|_| fails)?;
        Some(format!("the rule fails: {}", first.message))
    };
    rejected.or_else(failed)
}
