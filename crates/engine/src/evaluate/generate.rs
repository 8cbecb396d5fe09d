//! Whether an object fires a generate rule, and what happens when it no longer does.

use kiln_rules::{Operation, Program, Script, Unmet};
use kiln_value::{Map, Value};

use super::{Evaluation, namespace_of_trigger, skipped_by};
use crate::context::Context;
use crate::generate::GenerateRun;
use crate::matching::{Compare, Matcher};
use crate::output::effect::{Delete, DeleteReason, Effect};
use crate::output::failure::Failure;
use crate::output::outcome::Verdict;
use crate::output::trace::TraceAnswer;
use crate::script::{Bound, ScriptSession, in_session};

impl Evaluation<'_> {
    pub(super) fn generate(&mut self) -> Result<Verdict, Failure> {
        let event = self.event;
        let matcher = Matcher::new(event, self.shared.eval_env.view, self.shared.tracer);
        let old = event.old_object.as_ref();
        let Some(object) = &event.object else {
            let Some(old) = old else {
                return Ok(self.because(Verdict::NoMatch, "there is no object"));
            };
            // Kyverno: a deleted object fires a rule only if the rule asks for that by name.
            let on_delete = self.rule.trigger.named_operations().contains(Operation::Delete);
            return if on_delete && matcher.matches(self.rule, old, Compare::Operations)? {
                self.fire(old, None)
            } else if matcher.matches(self.rule, old, Compare::NoOperations)? {
                Ok(self.lapse(old, DeleteReason::Deleted))
            } else {
                Ok(Verdict::NoMatch)
            };
        };
        if matcher.matches(self.rule, object, Compare::Operations)? {
            return self.fire(object, old);
        }
        let Some(old) = old else { return Ok(Verdict::NoMatch) };
        // Without operations on both sides. An UPDATE that a rule for CREATE does not match leaves a trigger what it was; only
        // a change of the object itself ends that.
        let was = matcher.matches(self.rule, old, Compare::NoOperations)?;
        if was && !matcher.matches(self.rule, object, Compare::NoOperations)? {
            return Ok(self.lapse(old, DeleteReason::NoMatch));
        }
        Ok(Verdict::NoMatch)
    }

    /// The object matches: asks the guards, then runs the program.
    fn fire(&mut self, object: &Value, old: Option<&Value>) -> Result<Verdict, Failure> {
        // Before anything is evaluated: a condition would tell an author what is in an object that they may not read.
        self.shared.gate.trigger("get", self.event, object)?;
        if let Some(script) = self.rule.script.clone() {
            return self.fire_script(&script, object, old);
        }
        let context = self.context(object, old);
        if let Some(exception) = self.excepted(object, &context)? {
            self.state.exceptions = vec![exception.name.clone()];
            return Ok(self.because(Verdict::Skip, skipped_by(&exception)));
        }
        if !self.guards_hold(&context, "preconditions")? {
            // What it was may have met the guards.
            let Some(old) = old else { return Ok(Verdict::Skip) };
            let before = self.context(old, Some(old));
            return Ok(match self.guards_hold(&before, "preconditions, with the old object") {
                // Downstreams are deleted only if the guards certainly held before; an error does not say that.
                Ok(true) => self.lapse(old, DeleteReason::Guards),
                Ok(false) | Err(_) => Verdict::Skip,
            });
        }
        self.add_report_properties(&context);
        self.make(object, &context, None)
    }

    /// Asks the conditions of a script, then runs the program in its session.
    fn fire_script(
        &mut self,
        script: &Script,
        object: &Value,
        old: Option<&Value>,
    ) -> Result<Verdict, Failure> {
        let (event, shared) = (self.event, self.shared);
        // Kubernetes: of a deleted object, only the old one is there.
        let deleted = event.object.is_none();
        let bound = Bound {
            event,
            object: Some(object).filter(|_| !deleted),
            old: if deleted { Some(object) } else { old },
            params: Value::Null,
        };
        let context = Context::new(shared, Map::new(), &[], deleted);
        let verdict = in_session(script, shared, &bound, |running| {
            if let Some(excepted) = running.exceptions(self.exceptions)? {
                let verdict = self.because(excepted.verdict(), excepted.message());
                self.state.exceptions = excepted.names;
                return Ok(Some(verdict));
            }
            if !running.conditions_hold()? {
                return Ok(None);
            }
            let verdict = self.make(object, &context, Some(running))?;
            if self.state.failures.is_empty() {
                self.state.properties = running.annotations()?;
            }
            Ok(Some(verdict))
        })?;
        if let Some(verdict) = verdict {
            return Ok(verdict);
        }
        // What it was may have met the conditions.
        let unmet = match script.unmet {
            Unmet::NoMatch => Verdict::NoMatch,
            Unmet::Skip => Verdict::Skip,
        };
        let why = "the conditions do not hold";
        let Some(old) = old else { return Ok(self.because(unmet, why)) };
        let before = Bound { event, object: Some(old), old: Some(old), params: Value::Null };
        let met = in_session(script, shared, &before, |running| {
            running.hold(&script.conditions, "matchConditions, with the old object")
        });
        Ok(match met {
            Ok(true) => self.lapse(old, DeleteReason::Guards),
            Ok(false) | Err(_) => self.because(unmet, why),
        })
    }

    /// Runs the program for an object that fires the rule.
    fn make(
        &mut self,
        object: &Value,
        context: &Context<'_>,
        running: Option<&mut ScriptSession<'_>>,
    ) -> Result<Verdict, Failure> {
        self.shared.tracer.acts();
        let trigger = self.trigger(object);
        self.state.lineage = self.event.context.lineage.then(
            &self.rule.id,
            &trigger.to_string(),
            &self.shared.eval_env.limits,
        )?;
        let Program::Generate(program) = &self.rule.program else { return Ok(Verdict::NoMatch) };
        let mut run = GenerateRun {
            rule: self.rule,
            trigger_namespace: namespace_of_trigger(&trigger),
            trigger,
            operation: self.event.operation,
            made: Vec::new(),
            failures: Vec::new(),
        };
        self.shared.tracer.within(
            || "generate".to_owned(),
            || run.program(program, context, running),
            |()| (TraceAnswer::Done, None),
        );
        self.state.effects.extend(run.made.into_iter().map(|made| Effect::Ensure(Box::new(made))));
        self.state.failures.extend(run.failures);
        Ok(Verdict::Pass)
    }

    /// The object was a trigger: its downstreams are deleted if they are synchronized.
    fn lapse(&mut self, old: &Value, reason: DeleteReason) -> Verdict {
        if self.rule.lifecycle.synchronize {
            let (rule, trigger) = (self.rule.id.clone(), self.trigger(old));
            let delete = Delete { rule, trigger, reason };
            self.state.effects.push(Effect::Delete(Box::new(delete)));
        }
        self.because(Verdict::Lapsed, reason.as_str())
    }
}
