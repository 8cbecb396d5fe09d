//! What rules that act at admission make of a write, for commands that write nothing.

use kiln_engine::{Effect, Event, RuleSet, User, Verdict, World};
use kiln_live::{Around, Reader};
use kiln_object::Kinds;
use kiln_rules::RuleId;
use kiln_value::Value;

use super::eval::Surroundings;

/// Rules at admission, and what they read.
pub(super) struct AtAdmission<'a> {
    pub(super) rules: &'a RuleSet,
    pub(super) reader: &'a Reader,
    pub(super) kinds: &'a Kinds,
    pub(super) around: &'a Around,
}

/// What became of a write.
pub(super) struct Judged {
    pub(super) object: Value,
    /// The rules that changed or refused it.
    pub(super) rules: Vec<RuleId>,
    /// The first rule that refuses it, and why.
    pub(super) refused: Option<(RuleId, String)>,
}

impl AtAdmission<'_> {
    /// Runs the rules over an event. What the settings keep from rules passes as it is.
    pub(super) fn judge(&self, event: &Event) -> Judged {
        let object = event.object.clone().unwrap_or(Value::Null);
        let namespace = event.namespace.as_deref().unwrap_or_default();
        if self.around.settings.filters_out(&event.kind, "", namespace, &event.name) {
            return Judged { object, rules: Vec::new(), refused: None };
        }
        let outside = self.around.outside();
        let world = World {
            view: self.reader,
            kinds: self.kinds,
            sources: &Surroundings,
            outside: &outside,
            limits: self.around.settings.limits,
            protected: &self.around.settings.protected,
        };
        let mutated = self.rules.mutate(event, &world);
        let (mut rules, mut refused) = (Vec::new(), None);
        for outcome in &mutated.outcomes {
            for effect in &outcome.effects {
                match effect {
                    Effect::Reject { message, .. } => {
                        refused.get_or_insert_with(|| (outcome.rule.clone(), message.to_string()));
                        rules.push(outcome.rule.clone());
                    }
                    Effect::Patch(patch) if patch.before != patch.after => {
                        rules.push(outcome.rule.clone());
                    }
                    _ => {}
                }
            }
            if outcome.verdict == Verdict::Error
                && let Some(failure) = outcome.failures.first()
            {
                let why = format!("the rule fails: {}", failure.message);
                refused.get_or_insert_with(|| (outcome.rule.clone(), why));
                rules.push(outcome.rule.clone());
            }
        }
        rules.dedup();
        Judged { object: mutated.object, rules, refused }
    }

    /// What becomes of a write of the engine's own: the object that is stored, or why none is.
    pub(super) fn admit(&self, old: Option<&Value>, object: Value) -> Result<Value, String> {
        let mut event = match old {
            Some(old) => Event::updated(old.clone(), object),
            None => Event::created(object),
        };
        let username = self.around.settings.background_user().into();
        event.user = Some(User { username, ..User::default() });
        event.own = true;
        let judged = self.judge(&event);
        match judged.refused {
            None => Ok(judged.object),
            Some((rule, why)) => Err(format!("{rule} refuses it: {why}")),
        }
    }
}
