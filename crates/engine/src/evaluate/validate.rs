//! Whether an object passes the check of a rule, and what becomes of one that fails.

use std::sync::Arc;

use kiln_pattern::Fix;
use kiln_rules::{
    Actions, Exception, Exempts, Operation, Payload, PodSecurity, Script, Validate, ValidateCheck,
};
use kiln_value::{Str, Value};

use super::{Evaluation, evaluate_except, skipped_by};
use crate::context::Context;
use crate::input::eval_env::EvalEnv;
use crate::input::event::{Event, User};
use crate::input::limits::EvaluationLimits;
use crate::matching::{Compare, Matcher};
use crate::output::effect::{Effect, Violation};
use crate::output::failure::Failure;
use crate::output::outcome::{Status, Verdict};
use crate::output::trace::TraceAnswer;
use crate::script::{Judged, Judging};
use crate::validate::{Checked, Checking, pod_security};

impl Evaluation<'_> {
    /// What becomes of an object that could not be checked. If not even that can be found out, the strictest.
    pub(super) fn actions_on_error(&self, program: &Validate) -> Actions {
        let on_failure = &program.on_failure;
        let matcher = Matcher::new(self.event, self.shared.eval_env.view, self.shared.tracer);
        matcher.actions(on_failure).unwrap_or_else(|_| {
            let denies = on_failure.overrides.iter().any(|entry| entry.actions.deny);
            Actions { deny: on_failure.usual.deny || denies, ..on_failure.usual }
        })
    }

    pub(super) fn validate(&mut self, program: &Validate) -> Result<Verdict, Failure> {
        let event = self.event;
        let Some(object) = event.trigger() else {
            return Ok(self.because(Verdict::NoMatch, "there is no object"));
        };
        let matcher = Matcher::new(event, self.shared.eval_env.view, self.shared.tracer);
        if self.rule.trigger.payload == Payload::Kubernetes {
            if !matcher.matches(self.rule, object, Compare::Operations)? {
                return Ok(Verdict::NoMatch);
            }
            self.shared.gate.trigger("get", event, object)?;
        }
        let context = self.context_of(event.object.as_ref(), event.old_object.as_ref());
        if let Some(guard) = &self.rule.guard {
            let asked = self.shared.tracer.within(
                || "preconditions".to_owned(),
                || context.ask(guard),
                |asked| {
                    (asked.as_ref().map_or(TraceAnswer::Failed, |asked| asked.holds.into()), None)
                },
            );
            let asked =
                asked.map_err(|failure| failure.while_doing("failed to evaluate preconditions"))?;
            if !asked.holds {
                let why = match asked.message.as_str() {
                    "" => "preconditions not met".to_owned(),
                    said => format!("preconditions not met; {said}"),
                };
                return Ok(self.because(Verdict::Skip, why));
            }
        }
        self.add_report_properties(&context);
        self.state.lineage = event.context.lineage.clone();
        let deleting = event.object.is_none();
        let checked = if let ValidateCheck::PodSecurity(wanted) = &program.check {
            self.shared.tracer.acts();
            if deleting {
                let why = "Pod Security does not apply to DELETE";
                return Ok(self.because(Verdict::NoMatch, why));
            }
            match self.secured(wanted, object, &context)? {
                Ok(checked) => checked,
                Err(verdict) => return Ok(verdict),
            }
        } else {
            if let Some(exception) = self.excepted(object, &context)? {
                self.state.exceptions = vec![exception.name.clone()];
                return Ok(self.because(Verdict::Skip, skipped_by(&exception)));
            }
            self.shared.tracer.acts();
            match (&self.rule.script, &program.check) {
                (Some(script), ValidateCheck::Expressions(_) | ValidateCheck::Answers(_)) => {
                    match self.judged(script, &program.check)? {
                        Ok(checked) => checked,
                        Err(verdict) => return Ok(verdict),
                    }
                }
                _ => Checking { rule: self.rule, program, object, deleting }.run(&context)?,
            }
        };
        let failed = match checked {
            Checked::Nothing(why) => return Ok(self.because(Verdict::NoMatch, why)),
            Checked::Skip(why) => return Ok(self.because(Verdict::Skip, why)),
            Checked::Pass(why) => return Ok(self.because(Verdict::Pass, why)),
            Checked::Fail(failed) => failed,
        };
        // After the check, not before: it is asked only of objects that fail, and costs a second evaluation.
        if program.allows_existing
            && program.on_failure.usual.deny
            && let Some(why) = self.failed_before()
        {
            return Ok(self.because(Verdict::Skip, why));
        }
        let actions = matcher.actions(&program.on_failure)?;
        let fix = failed.fix.and_then(|fix| self.verified(fix, object));
        self.state.why = Some(failed.message.clone().into());
        self.state.effects.push(Effect::Violation(Box::new(Violation {
            message: failed.message,
            faults: failed.faults,
            actions,
            scored: program.scored,
            fix,
        })));
        Ok(Verdict::Pass)
    }

    /// A fix with which the rule passes. It may take further changes, which the next evaluation finds: a loop ends at the
    /// first element that fails.
    fn verified(&self, fix: Fix, object: &Value) -> Option<Fix> {
        self.event.object.as_ref()?;
        let event = Event { object: Some(fix.applied(object)?), ..self.event.clone() };
        let eval_env = self.shared.eval_env;
        let limits = eval_env.limits;
        // Each fix is tried by evaluating the rule again, which may offer a further fix; `fixes` counts down, so that this ends.
        let limits = EvaluationLimits { trace: 0, fixes: limits.fixes.checked_sub(1)?, ..limits };
        let eval_env = EvalEnv { limits, ..*eval_env };
        let after = evaluate_except(self.rule, self.exceptions, &event, &eval_env);
        match after.status() {
            Status::Pass => Some(fix),
            Status::Fail | Status::Warn => fix.then(after.violation()?.fix.clone()?),
            Status::Skip | Status::Error | Status::NoMatch => None,
        }
    }

    /// Holds an object against the Pod Security Standards, with what exceptions leave out.
    fn secured(
        &mut self,
        wanted: &PodSecurity,
        object: &Value,
        context: &Context<'_>,
    ) -> Result<Result<Checked, Verdict>, Failure> {
        let mut exclusions = Vec::new();
        let mut names = Vec::new();
        for exception in self.all_excepted(object, context)? {
            let Exempts::PodSecurity(excluded) = &exception.exempts else {
                self.state.exceptions = vec![exception.name.clone()];
                return Ok(Err(self.because(Verdict::Skip, skipped_by(&exception))));
            };
            exclusions.extend(excluded.iter().cloned());
            names.push(exception.name.clone());
        }
        let secured = pod_security::check(&self.rule.id.rule, wanted, object, &exclusions)?;
        if secured.excepted {
            // Kyverno's words.
            let why = format!("rule is skipped due to policy exceptions {}", names.join(", "));
            self.state.exceptions = names;
            return Ok(Err(self.because(Verdict::Skip, why)));
        }
        self.state.properties.extend(secured.properties);
        Ok(Ok(secured.checked))
    }

    /// Judges by expressions: how they ended, or how the rule did.
    fn judged(
        &mut self,
        script: &Script,
        check: &ValidateCheck,
    ) -> Result<Result<Checked, Verdict>, Failure> {
        let in_cel = |exception: &&Arc<Exception>| exception.include.is_none();
        let judging = Judging {
            script,
            exceptions: self.exceptions.iter().filter(in_cel).cloned().collect(),
            event: self.event,
            shared: self.shared,
        };
        let judged = match check {
            ValidateCheck::Expressions(expressions) => judging.expressions(expressions)?,
            ValidateCheck::Answers(answers) => judging.answers(answers)?,
            _ => return Ok(Err(Verdict::NoMatch)),
        };
        match judged {
            Judged::Excepted(excepted) => {
                let verdict = self.because(excepted.verdict(), excepted.message());
                self.state.exceptions = excepted.names;
                Ok(Err(verdict))
            }
            Judged::Checked(checked, properties) => {
                self.state.properties.extend(properties);
                Ok(Ok(checked))
            }
            Judged::Error(failure, said, properties) => {
                self.state.properties.extend(properties);
                self.state.failures.push(*failure);
                Ok(Err(self.because(Verdict::Error, said)))
            }
        }
    }

    /// Why an update is let through although the object fails: it failed before, too.
    fn failed_before(&mut self) -> Option<&'static str> {
        let (Some(_), Some(old)) = (&self.event.object, &self.event.old_object) else {
            return None;
        };
        // Kyverno: as if it were created, by no user that a rule could name.
        let mut context = self.event.context.clone();
        context.given.remove("request.operation");
        let before = Event {
            operation: Some(Operation::Create),
            matched_as: Operation::Create,
            // A rule about a subresource says nothing of how an object came about.
            subresource: Str::default(),
            object: Some(old.clone()),
            old_object: None,
            user: Some(User::default()),
            context,
            ..self.event.clone()
        };
        let before = evaluate_except(self.rule, self.exceptions, &before, self.shared.eval_env);
        let status = before.status();
        self.shared.gate.reads.borrow_mut().extend(before.reads);
        match status {
            Status::Fail | Status::Warn => {
                Some("skipping the rule evaluation as pre-existing violations are allowed")
            }
            Status::Error => Some("failed to validate old object"),
            Status::Pass | Status::Skip | Status::NoMatch => None,
        }
    }
}
