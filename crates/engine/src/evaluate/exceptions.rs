//! The exceptions that mean an object.

use std::sync::Arc;

use kiln_rules::{Exception, Exempts};
use kiln_value::Value;

use super::Evaluation;
use crate::context::Context;
use crate::matching::Matcher;
use crate::output::failure::Failure;
use crate::output::trace::{TraceAnswer, TraceStep};

impl Evaluation<'_> {
    /// The first exception that means the object.
    pub(super) fn excepted(
        &self,
        object: &Value,
        context: &Context<'_>,
    ) -> Result<Option<Arc<Exception>>, Failure> {
        self.excepted_among(self.exceptions, object, context)
    }

    /// All exceptions that mean the object, those that leave the rule nothing to do first.
    pub(super) fn all_excepted(
        &self,
        object: &Value,
        context: &Context<'_>,
    ) -> Result<Vec<Arc<Exception>>, Failure> {
        let mut found = Vec::new();
        let mut rest = self.exceptions;
        while let Some(exception) = self.excepted_among(rest, object, context)? {
            let at = rest.iter().position(|other| Arc::ptr_eq(other, &exception));
            rest = rest.get(at.map_or(rest.len(), |at| at + 1)..).unwrap_or_default();
            found.push(exception);
        }
        found.sort_by_key(|exception| matches!(exception.exempts, Exempts::PodSecurity(_)));
        Ok(found)
    }

    fn excepted_among(
        &self,
        exceptions: &[Arc<Exception>],
        object: &Value,
        context: &Context<'_>,
    ) -> Result<Option<Arc<Exception>>, Failure> {
        let matcher = Matcher::new(self.event, self.shared.eval_env.view, self.shared.tracer);
        for exception in exceptions {
            // Those whose conditions are expressions are asked in the session of the rule.
            let Some(include) = &exception.include else { continue };
            let asked = || -> Result<bool, Failure> {
                let taken = matcher.takes("match", include, object)?;
                match &exception.guard {
                    Some(guard) if taken => context.holds(guard),
                    _ => Ok(taken),
                }
            };
            let holds = self.shared.tracer.within(
                || format!("exception {}", exception.name),
                asked,
                |held| (held.as_ref().map_or(TraceAnswer::Failed, |held| (*held).into()), None),
            );
            match holds {
                Ok(true) => return Ok(Some(Arc::clone(exception))),
                Ok(false) => {}
                // A missing permission or an exceeded budget says nothing about whether the exception applies.
                Err(failure) if failure.bars_defaults() => return Err(failure),
                // Kyverno: an exception that cannot be evaluated excepts nothing.
                Err(failure) => {
                    self.shared.tracer.note(|| TraceStep {
                        what: failure.message.clone(),
                        answer: TraceAnswer::Failed,
                        why: failure.hint.clone(),
                        steps: Vec::new(),
                    });
                    if failure.leaves_doubt() {
                        self.shared.gate.uncertain(failure);
                    }
                }
            }
        }
        Ok(None)
    }
}
