//! Whether a ModRule patches or rejects an object.

use kiln_rules::{Modify, ModifyAction};

use super::Evaluation;
use crate::matching::{Compare, Matcher};
use crate::modify::Modifying;
use crate::output::effect::Effect;
use crate::output::failure::Failure;
use crate::output::outcome::Verdict;

impl Evaluation<'_> {
    pub(super) fn modify(&mut self, program: &Modify) -> Result<Verdict, Failure> {
        let event = self.event;
        let gone = event.old_object.as_ref().filter(|_| !program.changes_trigger());
        let Some(object) = event.object.as_ref().or(gone) else {
            return Ok(self.because(Verdict::NoMatch, "there is no object"));
        };
        let matcher = Matcher::new(event, self.shared.eval_env.view, self.shared.tracer);
        if !matcher.matches(self.rule, object, Compare::Operations)? {
            return Ok(Verdict::NoMatch);
        }
        let modifying = Modifying::new(program, event, object, self.shared)?;
        if !modifying.reached()
            || !modifying.holds(event.context.tier_snapshot.as_ref().unwrap_or(object))?
        {
            return Ok(Verdict::NoMatch);
        }
        self.state.lineage = event.context.lineage.clone();
        match &program.action {
            ModifyAction::Patch(items) => {
                let patch = modifying.patch(items, object)?;
                self.state.effects.extend(patch.map(|patch| Effect::Patch(Box::new(patch))));
                if self.state.effects.is_empty() {
                    return Ok(self.because(Verdict::Skip, "no patches applied"));
                }
            }
            ModifyAction::Reject(message) => {
                let policy = self.rule.id.policy.key();
                let refusal = modifying.rejection(policy, message.as_ref(), object);
                self.state.effects.push(refusal);
            }
        }
        Ok(Verdict::Pass)
    }
}
