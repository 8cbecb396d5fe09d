//! Whether an object is as expressions want it, and whether a request is answered.

use std::sync::Arc;

use kiln_cel::{AuthzAnswer, EvalError, Val};
use kiln_rules::{
    Answers, Exception, Expression, Expressions, NamedExpression, Script, Validation,
};
use kiln_value::Str;

use super::{Bound, Excepted, ScriptSession, in_session, params};
use crate::context::EvalShared;
use crate::input::event::Event;
use crate::output::failure::{Failure, FailureKind};
use crate::validate::{Checked, Failed, ValidationFault};

/// The longest message that an expression may give where messages are limited.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// What is wrong with an expression that fails.
const UNKNOWN: &str = "this expression cannot be evaluated";

/// A rule whose expressions judge what an event brings.
pub(crate) struct Judging<'j> {
    pub(crate) script: &'j Script,
    /// Those whose conditions are expressions.
    pub(crate) exceptions: Vec<Arc<Exception>>,
    pub(crate) event: &'j Event,
    pub(crate) shared: &'j EvalShared<'j>,
}

/// What came of judging.
pub(crate) enum Judged {
    /// Exceptions mean the object.
    Excepted(Excepted),
    /// How the expressions ended, with what is added to reports.
    Checked(Checked, Vec<(Str, Str)>),
    /// An expression failed, and what is said about that.
    Error(Box<Failure>, String, Vec<(Str, Str)>),
}

impl Judging<'_> {
    /// Judges by expressions that must be true, once for each object of parameters. The first that is not as wanted
    /// decides.
    pub(crate) fn expressions(&self, wanted: &Expressions) -> Result<Judged, Failure> {
        let found = params::find(self.script, self.event, self.shared);
        let found = found.map_err(|failure| match failure.is_final() {
            true => failure,
            false => failure.while_doing("error in parameterized resource"),
        })?;
        let Some(all) = found else {
            let why = "there are no parameters".to_owned();
            return Ok(Judged::Checked(Checked::Skip(why), Vec::new()));
        };
        let mut ended = None;
        for params in all {
            let bound = Bound { params, ..self.bound() };
            let judged =
                in_session(self.script, self.shared, &bound, |running| self.one(running, wanted))?;
            match judged {
                Judged::Checked(Checked::Pass(_), _) => ended = Some(judged),
                Judged::Checked(Checked::Skip(_), _) => drop(ended.get_or_insert(judged)),
                decided => return Ok(decided),
            }
        }
        Ok(ended.unwrap_or_else(|| {
            Judged::Checked(Checked::Pass(wanted.passed.to_string()), Vec::new())
        }))
    }

    fn bound(&self) -> Bound<'_> {
        Bound {
            event: self.event,
            object: self.event.object.as_ref(),
            old: self.event.old_object.as_ref(),
            params: kiln_value::Value::Null,
        }
    }

    fn one(
        &self,
        running: &mut ScriptSession<'_>,
        wanted: &Expressions,
    ) -> Result<Judged, Failure> {
        match running.exceptions(&self.exceptions) {
            Ok(None) => {}
            Ok(Some(excepted)) => return Ok(Judged::Excepted(excepted)),
            // Kyverno: where failures are ignored, such an exception means nothing.
            Err(failure) if wanted.ignores_errors && !failure.is_final() => {}
            Err(failure) => return Err(failure),
        }
        let unmet = || Judged::Checked(Checked::Skip(wanted.unmet.to_owned()), Vec::new());
        match self.conditions(running)? {
            Ok(true) => {}
            Ok(false) => return Ok(unmet()),
            Err((condition, error)) if wanted.errors_fail => {
                return Ok(failed(error.message, UNKNOWN, &condition.expression, Vec::new()));
            }
            Err(_) if wanted.ignores_errors => return Ok(unmet()),
            Err((condition, error)) => {
                let said = format!("failed to load context: {}", error.message);
                let failure = running.failed(error, &condition.expression);
                let name = condition.name.as_str();
                let failure = failure.while_doing(format_args!("condition {name:?}"));
                return Ok(Judged::Error(Box::new(failure), said, Vec::new()));
            }
        }
        for (index, validation) in wanted.validations.iter().enumerate() {
            if let Some(judged) = self.validation(running, wanted, index, validation)? {
                return Ok(judged);
            }
        }
        let properties = match running.annotations() {
            Ok(properties) => properties,
            Err(failure) if failure.is_final() => return Err(failure),
            Err(failure) => {
                let said = format!("failed to evaluate auditAnnotation: {}", failure.message);
                return Ok(Judged::Error(Box::new(failure), said, Vec::new()));
            }
        };
        Ok(Judged::Checked(Checked::Pass(wanted.passed.to_string()), properties))
    }

    /// Whether the conditions hold, or the first that cannot be evaluated. One that is false counts more.
    fn conditions<'s>(
        &'s self,
        running: &mut ScriptSession<'_>,
    ) -> Result<Result<bool, (&'s NamedExpression, EvalError)>, Failure> {
        let mut first = None;
        for condition in &self.script.conditions {
            match running.try_eval(&condition.expression) {
                Ok(Val::Bool(true)) => {}
                Ok(Val::Bool(false)) => return Ok(Ok(false)),
                Ok(other) => {
                    let message = format!("the condition gives {}, not a bool", other.type_name());
                    return Err(
                        Failure::new(FailureKind::Value, message).at(&condition.expression.path)
                    );
                }
                Err(error) => drop(first.get_or_insert((condition, error))),
            }
        }
        Ok(first.map_or(Ok(true), Err))
    }

    /// What comes of one expression; nothing when it is true.
    fn validation(
        &self,
        running: &mut ScriptSession<'_>,
        wanted: &Expressions,
        index: usize,
        validation: &Validation,
    ) -> Result<Option<Judged>, Failure> {
        let expression = &validation.expression;
        let source = expression.program.source().trim();
        let number = || match wanted.numbered {
            true => vec![(Str::new_static("cel.validationIndex"), Str::from(index.to_string()))],
            false => Vec::new(),
        };
        let error = match running.try_eval(expression) {
            Ok(Val::Bool(true)) => return Ok(None),
            Ok(Val::Bool(false)) => {
                let mut message = words(running, wanted, index, validation);
                let mut properties = number();
                // Kyverno: an annotation that fails hides what is wrong with the object.
                match running.annotations() {
                    Ok(annotations) => properties.extend(annotations),
                    Err(failure) => {
                        message = format!(
                            "{message} (failed to evaluate auditAnnotation: {})",
                            failure.message
                        );
                    }
                }
                return Ok(Some(failed(
                    message,
                    "this expression is false",
                    expression,
                    properties,
                )));
            }
            Ok(other) => {
                let message = format!("the expression gives {}, not a bool", other.type_name());
                return Err(Failure::new(FailureKind::Value, message).at(&expression.path));
            }
            Err(error) => error,
        };
        let said = match wanted.numbered {
            true => format!("error: {}", error.message),
            false => format!("expression '{source}' resulted in error: {}", error.message),
        };
        if wanted.errors_fail {
            return Ok(Some(failed(said, UNKNOWN, expression, number())));
        }
        let failure = Box::new(running.failed(error, expression));
        Ok(Some(Judged::Error(failure, said, number())))
    }

    /// Judges a request by the first expression that answers it.
    pub(crate) fn answers(&self, wanted: &Answers) -> Result<Judged, Failure> {
        in_session(self.script, self.shared, &self.bound(), |running| {
            if let Some(excepted) = running.exceptions(&self.exceptions)? {
                return Ok(Judged::Excepted(excepted));
            }
            let unanswered = || {
                let why = "request does not match".to_owned();
                Ok(Judged::Checked(Checked::Skip(why), Vec::new()))
            };
            match running.conditions_hold() {
                Ok(true) => {}
                Ok(false) => return unanswered(),
                Err(failure) if wanted.ignores_errors && !failure.is_final() => {
                    return unanswered();
                }
                Err(failure) => return Err(failure),
            }
            for expression in &wanted.expressions {
                let answer = match running.eval(expression) {
                    Ok(value) => value.as_answer(),
                    Err(failure) if wanted.ignores_errors && !failure.is_final() => {
                        return unanswered();
                    }
                    Err(failure) => return Err(failure),
                };
                // Kyverno's words.
                match answer {
                    None => {}
                    Some(AuthzAnswer::Allowed) => {
                        let passed = Checked::Pass("request allowed".to_owned());
                        return Ok(Judged::Checked(passed, Vec::new()));
                    }
                    Some(AuthzAnswer::Denied { status: Some(status), .. }) => {
                        let message = format!("request denied with status code {status}");
                        return Ok(failed(
                            message,
                            "this expression denies the request",
                            expression,
                            Vec::new(),
                        ));
                    }
                    Some(AuthzAnswer::Denied { reason, .. }) => {
                        let message = format!("request denied, reason: {reason}");
                        return Ok(failed(
                            message,
                            "this expression denies the request",
                            expression,
                            Vec::new(),
                        ));
                    }
                }
            }
            unanswered()
        })
    }
}

fn failed(
    message: String,
    why: &str,
    expression: &Expression,
    properties: Vec<(Str, Str)>,
) -> Judged {
    let fault =
        ValidationFault { at: None, wanted: Some(expression.path.clone()), why: why.to_owned() };
    Judged::Checked(Checked::Fail(Failed { message, faults: vec![fault], fix: None }), properties)
}

/// What is said of an expression that is false.
fn words(
    running: &mut ScriptSession<'_>,
    wanted: &Expressions,
    index: usize,
    validation: &Validation,
) -> String {
    let made = validation.message_expression.as_ref().map(|made| running.try_eval(made));
    match made {
        Some(Ok(Val::String(text))) if wanted.any_message && !text.is_empty() => {
            return text.to_string();
        }
        Some(Ok(Val::String(text))) => {
            // Kubernetes: a message expression that gives no usable text is ignored; the plain message counts.
            let text = text.trim();
            if !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains('\n') {
                return text.to_owned();
            }
        }
        Some(Err(error)) if wanted.any_message => {
            return format!("failed to evaluate message expression: {}", error.message);
        }
        _ => {}
    }
    match validation.message.as_deref().map(str::trim) {
        Some(message) if !message.is_empty() => message.to_owned(),
        _ if wanted.numbered => format!("CEL expression validation failed at index {index}"),
        _ => format!("failed expression: {}", validation.expression.program.source().trim()),
    }
}
