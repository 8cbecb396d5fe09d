//! Rules whose expressions are in CEL: one session per evaluation, for conditions, values and programs.
//!
//! | module | holds |
//! |---|---|
//! | here | the session, its failures and its trace |
//! | `request` | what expressions are bound to |
//! | `host` | what functions ask the world |
//! | `read_log` | what expressions read, and which objects came from it |
//! | `documents` | documents with expressions in them |
//! | `changes` | patches that a rule gives |
//! | `judge` | whether expressions are true |
//! | `params` | the objects that a rule is given as parameters |
//! | `generator` | the objects that a rule asks for |

mod changes;
mod documents;
mod generator;
mod host;
mod judge;
mod params;
mod read_log;
mod request;

use std::cell::RefCell;
use std::sync::Arc;

use kiln_cel::{Budget, Effect, EvalError, EvalErrorKind, Session, Val};
use kiln_object::ObjectId;
use kiln_rules::{Exception, Exempts, Expression, NamedExpression, ReportResult, Script};
use kiln_value::{Map, Str, Value};

use self::host::CelHost;
use self::read_log::ReadLog;
use crate::context::EvalShared;
use crate::input::event::Event;
use crate::output::claim::ObjectRef;
use crate::output::failure::{Failure, FailureKind, MissingSource};
use crate::output::outcome::Verdict;
use crate::output::trace::{TraceAnswer, TraceStep};

pub(crate) use changes::Changing;
pub(crate) use judge::{Judged, Judging};

/// What one session is about.
pub(crate) struct Bound<'b> {
    pub(crate) event: &'b Event,
    /// What `object` is.
    pub(crate) object: Option<&'b Value>,
    /// What `oldObject` is.
    pub(crate) old: Option<&'b Value>,
    /// What `params` is.
    pub(crate) params: Value,
}

/// A session in which the expressions of a rule run for one trigger.
pub(crate) struct ScriptSession<'r> {
    pub(crate) script: &'r Script,
    pub(crate) shared: &'r EvalShared<'r>,
    session: Session<'r>,
    read_log: &'r RefCell<ReadLog>,
    /// The trigger, for those who read about failures.
    about: ObjectId,
}

/// What exceptions make of a rule.
pub(crate) struct Excepted {
    pub(crate) reported: ReportResult,
    pub(crate) names: Vec<Str>,
}

impl Excepted {
    /// How it is reported.
    pub(crate) fn verdict(&self) -> Verdict {
        match self.reported {
            ReportResult::Skip => Verdict::Skip,
            ReportResult::Pass => Verdict::Pass,
        }
    }

    /// What is reported of it.
    // Kyverno's words.
    pub(crate) fn message(&self) -> String {
        let word = match self.reported {
            ReportResult::Skip => "skipped",
            ReportResult::Pass => "passed",
        };
        format!("rule is {word} due to policy exception: {}", self.names.join(", "))
    }
}

/// The most that one value of an expression may have, in nodes and bytes.
const OUTPUT: u64 = 4 << 20;

/// Runs something in a session of its own.
pub(crate) fn in_session<T>(
    script: &Script,
    shared: &EvalShared<'_>,
    bound: &Bound<'_>,
    run: impl FnOnce(&mut ScriptSession<'_>) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let read_log = RefCell::default();
    let mut host = CelHost { shared, read_log: &read_log, user: bound.event.user.as_ref() };
    // What earlier sessions of the evaluation have spent is gone.
    let steps = shared.eval_env.limits.steps.saturating_sub(shared.counters.steps());
    let expression = script.expression_cost.map_or(steps, |cost| cost.min(steps));
    let budget = Budget { expression, total: steps, output: OUTPUT };
    let mut session = Session::with_budget(&script.env, &mut host, budget);
    request::bind(&mut session, script, shared, bound)?;
    for variable in &script.variables {
        session.set_policy_variable(&variable.name, variable.expression.program.clone());
    }
    let about = ObjectRef::of(bound.event.trigger().unwrap_or(&Value::Null)).id;
    let mut running = ScriptSession { script, shared, session, read_log: &read_log, about };
    if !script.has_no_request {
        running.allow(&[]);
    }
    let outcome = run(&mut running);
    running.trace_variables();
    shared.counters.spent(running.session.cost());
    outcome
}

impl<'r> ScriptSession<'r> {
    /// Binds what exceptions allow.
    fn allow(&mut self, exceptions: &[&Exception]) {
        let (mut allowed_images, mut allowed_values) = (Vec::new(), Vec::new());
        for exception in exceptions {
            if let Exempts::Some { images, values } = &exception.exempts {
                allowed_images.extend(images.iter().cloned());
                allowed_values.extend(values.iter().cloned());
            }
        }
        let mut allowed = Map::new();
        allowed.insert("allowedImages", Value::from_iter(allowed_images));
        allowed.insert("allowedValues", Value::from_iter(allowed_values));
        self.session.set("exceptions", Value::Map(allowed));
    }

    /// Whether the rule does nothing because of exceptions. Those that only allow something are bound.
    pub(crate) fn exceptions(
        &mut self,
        exceptions: &[Arc<Exception>],
    ) -> Result<Option<Excepted>, Failure> {
        let mut full: Vec<&Exception> = Vec::new();
        let mut partial: Vec<&Exception> = Vec::new();
        let mut failed = None;
        for exception in exceptions {
            if self.has_expired(exception) {
                continue;
            }
            match self.hold(&exception.conditions, &format!("exception {}", exception.name)) {
                Ok(true) if matches!(exception.exempts, Exempts::All(_)) => full.push(exception),
                Ok(true) => partial.push(exception),
                Ok(false) => {}
                Err(failure) => drop(failed.get_or_insert(failure)),
            }
        }
        if let Some(first) = full.iter().max_by_key(|exception| exception.priority) {
            let Exempts::All(reported) = first.exempts else { return Ok(None) };
            let names = full.iter().map(|exception| exception.name.clone()).collect();
            return Ok(Some(Excepted { reported, names }));
        }
        // Kyverno: a condition that fails is a failure, unless another exception holds anyway.
        if let Some(failure) = failed {
            // It was written in another document than the rule.
            return Err(Failure { path: None, part: None, ..failure });
        }
        if !partial.is_empty() {
            self.allow(&partial);
        }
        Ok(None)
    }

    /// The first exception that means the object, whatever it allows.
    pub(crate) fn any_exception(
        &mut self,
        exceptions: &[Arc<Exception>],
    ) -> Result<Option<Str>, Failure> {
        for exception in exceptions {
            if self.has_expired(exception) {
                continue;
            }
            let what = format!("exception {}", exception.name);
            // It was written in another document than the rule.
            let held = self.hold(&exception.conditions, &what);
            if held.map_err(|failure| Failure { path: None, part: None, ..failure })? {
                return Ok(Some(exception.name.clone()));
            }
        }
        Ok(None)
    }

    fn has_expired(&self, exception: &Exception) -> bool {
        let now = self.shared.eval_env.sources.now().and_then(|now| {
            now.duration_since(std::time::UNIX_EPOCH).ok().map(|since| since.as_secs())
        });
        exception
            .expires
            .is_some_and(|end| now.is_some_and(|now| i64::try_from(now).is_ok_and(|now| now > end)))
    }

    /// Whether the rule's conditions hold.
    pub(crate) fn conditions_hold(&mut self) -> Result<bool, Failure> {
        let script = self.script;
        self.hold(&script.conditions, "matchConditions")
    }

    /// Whether conditions hold. Kubernetes: one that is false counts more than those that fail.
    pub(crate) fn hold(
        &mut self,
        conditions: &[NamedExpression],
        what: &str,
    ) -> Result<bool, Failure> {
        let mut failed: Option<Failure> = None;
        for condition in conditions {
            let held = self.eval(&condition.expression).and_then(|value| {
                value.as_bool().ok_or_else(|| {
                    let message = format!("the condition gives {}, not a bool", value.type_name());
                    Failure::new(FailureKind::Value, message).at(&condition.expression.path)
                })
            });
            self.shared.tracer.note(|| TraceStep {
                what: format!("{what} {:?}", condition.name.as_str()),
                answer: held.as_ref().map_or(TraceAnswer::Failed, |held| (*held).into()),
                why: Some(condition.expression.program.source().trim().to_owned()),
                steps: Vec::new(),
            });
            match held {
                Ok(true) => {}
                Ok(false) => return Ok(false),
                Err(failure) if failure.is_final() => return Err(failure),
                Err(failure) => {
                    let name = condition.name.as_str();
                    failed.get_or_insert(failure.while_doing(format_args!("{what} {name:?}")));
                }
            }
        }
        failed.map_or(Ok(true), Err)
    }

    /// Runs an expression.
    pub(crate) fn eval(&mut self, expression: &Expression) -> Result<Val, Failure> {
        self.try_eval(expression).map_err(|error| self.failed(error, expression))
    }

    /// Runs an expression; a failure is as the expression gives it.
    fn try_eval(&mut self, expression: &Expression) -> Result<Val, EvalError> {
        self.session.eval(&expression.program)
    }

    /// Runs an expression and gives its value as plain data.
    pub(crate) fn eval_json(&mut self, expression: &Expression) -> Result<Value, Failure> {
        let value = self.eval(expression)?;
        value.to_json(OUTPUT).map_err(|error| {
            Failure::new(FailureKind::Value, error.to_string()).at(&expression.path)
        })
    }

    /// What expressions have asked for since the last time.
    pub(crate) fn take_effects(&mut self) -> Vec<Effect> {
        self.session.take_effects()
    }

    /// Makes `object` another one.
    pub(crate) fn rebind_object(&mut self, object: &Value) {
        self.session.set("object", object.clone());
        if self.script.renew_for_each_patch {
            self.session.forget_variables();
        }
    }

    /// The values for reports; what is empty is left out.
    pub(crate) fn annotations(&mut self) -> Result<Vec<(Str, Str)>, Failure> {
        let script = self.script;
        let mut found = Vec::new();
        for annotation in &script.annotations {
            match self.eval(&annotation.expression)? {
                Val::String(text) if !text.is_empty() => {
                    found.push((annotation.name.clone(), text));
                }
                _ => {}
            }
        }
        Ok(found)
    }

    /// A failed expression, with its place: that of the value whose expression it was, if it was one.
    fn failed(&self, error: EvalError, expression: &Expression) -> Failure {
        let variable = error.variable.as_deref().and_then(|name| self.script.variable(name));
        let place = variable.map_or(expression, |variable| &variable.expression);
        let kind = match error.kind {
            EvalErrorKind::Value => {
                self.read_log.borrow_mut().refused.take().unwrap_or(FailureKind::Value)
            }
            EvalErrorKind::Budget | EvalErrorKind::Interrupted => FailureKind::Limit,
        };
        let failure = Failure::new(kind, format!("{error}, for {}", self.about));
        let mut failure = self.blame(failure);
        failure.hint = error.hint.or(failure.hint);
        failure.path = Some(place.path.clone());
        failure.part = error.span.map(|span| {
            let range = span.range();
            place.offset + range.start..place.offset + range.end
        });
        failure
    }

    /// A failure, laid to an object that is not there if the expressions asked for one: what cannot be made
    /// without it cannot be made for that reason.
    pub(crate) fn blame(&self, failure: Failure) -> Failure {
        let blamable = matches!(failure.kind, FailureKind::Value | FailureKind::Target);
        let missing = self.read_log.borrow().missing.last().cloned().filter(|_| blamable);
        let Some(source) = missing else { return failure };
        let message = format!("source resource {source} not found: {}", failure.message);
        let missing = MissingSource { source, target: None };
        Failure {
            kind: FailureKind::SourceMissing(Box::new(missing)),
            message,
            hint: Some("create the source, or test for null".into()),
            ..failure
        }
    }

    /// Shows the values that expressions asked for.
    fn trace_variables(&self) {
        for variable in &self.script.variables {
            let Some(computed) = self.session.computed(&format!("variables.{}", variable.name))
            else {
                continue;
            };
            self.shared.tracer.note(|| TraceStep {
                what: format!("variables.{}", variable.name),
                answer: match computed {
                    Ok(value) => {
                        value.to_json(OUTPUT).map_or(TraceAnswer::Done, TraceAnswer::Value)
                    }
                    Err(_) => TraceAnswer::Failed,
                },
                ..TraceStep::default()
            });
        }
    }
}
