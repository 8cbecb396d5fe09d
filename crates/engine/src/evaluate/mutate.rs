//! Whether a mutate rule changes an object, and which rights that takes.

use kiln_rules::{Mutate, Operation, Script};
use kiln_value::Value;

use super::{Evaluation, namespace_of_trigger, skipped_by};
use crate::matching::{Compare, Matcher};
use crate::mutate::{MutateRun, changed_object};
use crate::output::effect::{Effect, PatchTarget};
use crate::output::failure::Failure;
use crate::output::outcome::Verdict;
use crate::script::Changing;

impl Evaluation<'_> {
    pub(super) fn mutate(&mut self, program: &Mutate) -> Result<Verdict, Failure> {
        let event = self.event;
        let matcher = Matcher::new(event, self.shared.eval_env.view, self.shared.tracer);
        // Kyverno: a deleted object fires a rule only if the rule asks for that by name, and then there
        // is nothing left of it to change.
        let on_delete = self.rule.trigger.named_operations().contains(Operation::Delete);
        let gone = event.old_object.as_ref().filter(|_| on_delete && !program.changes_trigger());
        let Some(object) = event.object.as_ref().or(gone) else {
            return Ok(self.because(Verdict::NoMatch, "there is no object"));
        };
        if !matcher.matches(self.rule, object, Compare::Operations)? {
            return Ok(Verdict::NoMatch);
        }
        // A rule that changes the request writes the trigger. One with targets only reads it here; whether its author may write
        // the targets is asked where they are written.
        let verb = if program.changes_trigger() { "update" } else { "get" };
        self.shared.gate.trigger(verb, event, object)?;
        if let Some(script) = self.rule.script.clone() {
            return self.mutate_script(&script, program, object);
        }
        let context = self.context(object, event.old_object.as_ref());
        if let Some(exception) = self.excepted(object, &context)? {
            self.state.exceptions = vec![exception.name.clone()];
            return Ok(self.because(Verdict::Skip, skipped_by(&exception)));
        }
        if !self.guards_hold(&context, "preconditions")? {
            return Ok(self.because(Verdict::Skip, "preconditions not met"));
        }
        self.add_report_properties(&context);
        self.shared.tracer.acts();
        if program.changes_trigger() {
            self.state.lineage = event.context.lineage.clone();
            let patch = changed_object(program, object, &context)?;
            self.state.effects.extend(patch.map(|patch| Effect::Patch(Box::new(patch))));
        } else {
            let trigger = self.trigger(object);
            self.state.lineage = event.context.lineage.then(
                &self.rule.id,
                &trigger.to_string(),
                &self.shared.eval_env.limits,
            )?;
            let mut run = MutateRun {
                rule: self.rule,
                trigger_namespace: namespace_of_trigger(&trigger),
                patches: Vec::new(),
                failures: Vec::new(),
            };
            run.targets(program, &context);
            self.state.failures.extend(run.failures);
            let patches = run.patches.into_iter();
            self.state.effects.extend(patches.map(|patch| Effect::Patch(Box::new(patch))));
        }
        self.mutated(program)
    }

    fn mutated(&mut self, program: &Mutate) -> Result<Verdict, Failure> {
        let (gate, event) = (self.shared.gate, self.event);
        // Asked of finished patches, since only they show what a Role or a binding grants. A refusal takes back all of them: half
        // of what a rule changes is worse than nothing.
        let allowed = self.state.effects.iter().try_for_each(|effect| match effect {
            Effect::Patch(patch) if patch.target == PatchTarget::Trigger => {
                gate.grants_rights(event, patch)
            }
            _ => Ok(()),
        });
        if let Err(refused) = allowed {
            self.state.effects.clear();
            return Err(refused.into());
        }
        // Kyverno: a loop whose elements undo each other's changes has done its work.
        let nothing = self.state.effects.is_empty()
            && self.state.failures.is_empty()
            && !self.shared.moved.get();
        if nothing && !program.pass_unchanged {
            return Ok(self.because(Verdict::Skip, "no patches applied"));
        }
        Ok(Verdict::Pass)
    }

    /// Changes objects in the session of a script.
    fn mutate_script(
        &mut self,
        script: &Script,
        program: &Mutate,
        object: &Value,
    ) -> Result<Verdict, Failure> {
        self.state.lineage = match program.changes_trigger() {
            true => self.event.context.lineage.clone(),
            false => self.event.context.lineage.then(
                &self.rule.id,
                &self.trigger(object).to_string(),
                &self.shared.eval_env.limits,
            )?,
        };
        let changing = Changing {
            rule: self.rule,
            script,
            exceptions: self.exceptions,
            event: self.event,
            shared: self.shared,
        };
        let changed = changing.run(program, object)?;
        if let Some((verdict, why)) = changed.state {
            return Ok(self.because(verdict, why));
        }
        let patches = changed.patches.into_iter();
        self.state.effects.extend(patches.map(|patch| Effect::Patch(Box::new(patch))));
        self.state.failures.extend(changed.failures);
        self.state.properties.extend(changed.properties);
        self.mutated(program)
    }
}
