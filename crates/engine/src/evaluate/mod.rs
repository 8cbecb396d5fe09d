//! Evaluating one rule for one event.
//!
//! ```text
//! match ── yes ──▶ context, guards ── yes ──▶ program ──▶ effects
//!   │ no                 │ no
//!   ▼                    ▼
//!  was it a trigger before? then what it made lapses; otherwise nothing happens
//! ```

mod delete;
mod exceptions;
mod generate;
mod modify;
mod mutate;
mod validate;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::{JmesPathLimits as ExpressionLimits, Meter};
use kiln_object::{Gvk, metadata};
use kiln_rules::{Actions, Exception, Program, Rule};
use kiln_value::{Map, Str, Value, json};

use crate::context::{Context, EvalShared, place};
use crate::input::eval_env::EvalEnv;
use crate::input::event::Event;
use crate::input::limits::Counters;
use crate::input::view::{Gate, RecordedRead, is_own_secret};
use crate::output::claim::ObjectRef;
use crate::output::effect::Effect;
use crate::output::failure::{Failure, FailureKind};
use crate::output::lineage::Lineage;
use crate::output::outcome::{RuleOutcome, Status, Verdict};
use crate::output::trace::{TraceAnswer, TraceStep, Tracer};
use crate::script::{Bound, in_session};

/// A Namespace is in itself.
fn namespace_of_trigger(trigger: &ObjectRef) -> Str {
    match trigger.id.gvk.kind.as_str() {
        "Namespace" if trigger.id.gvk.group.is_empty() => trigger.id.name.clone(),
        _ => trigger.id.namespace.clone(),
    }
}

/// The request's namespace counts if the object names none.
fn namespace_of_event(event: &Event) -> Str {
    let object = event.object.as_ref().or(event.old_object.as_ref());
    let own = object.map(|object| namespace_of_trigger(&ObjectRef::of(object)));
    let own = own.filter(|namespace| !namespace.is_empty());
    own.or_else(|| event.namespace.clone()).unwrap_or_default()
}

/// Evaluates a rule for an event. The same input gives the same outcome.
pub fn evaluate(rule: &Rule, event: &Event, eval_env: &EvalEnv<'_>) -> RuleOutcome {
    evaluate_except(rule, &[], event, eval_env)
}

/// Evaluates a rule for an event, unless one of the exceptions means the object.
pub(crate) fn evaluate_except(
    rule: &Rule,
    exceptions: &[Arc<Exception>],
    event: &Event,
    eval_env: &EvalEnv<'_>,
) -> RuleOutcome {
    let began = eval_env.sources.now();
    let counters = Counters::new(&eval_env.limits);
    // One meter for all expressions of the rule: many cheap ones cost as much as one that is dear.
    let meter = Meter::new(&ExpressionLimits {
        steps: eval_env.limits.steps,
        bytes: eval_env.limits.bytes,
        ..ExpressionLimits::default()
    });
    let tracer = Tracer::new(&eval_env.limits);
    let gate = Gate {
        view: eval_env.view,
        policy: &rule.id.policy,
        scope: &rule.scope,
        protected_namespaces: eval_env.protected_namespaces,
        home: eval_env.home,
        trigger_namespace: namespace_of_event(event),
        counters: &counters,
        reads: RefCell::default(),
        seen: RefCell::default(),
        unread: RefCell::default(),
    };
    let shared = EvalShared {
        eval_env,
        rule,
        gate: &gate,
        counters: &counters,
        meter: &meter,
        tracer: &tracer,
        given: &event.context.given,
        given_each: &event.context.given_each,
        levels: Cell::new(0),
        remarks: RefCell::new(Vec::new()),
        moved: Cell::new(false),
    };
    let mut evaluation =
        Evaluation { rule, exceptions, event, shared: &shared, state: EvalState::default() };
    let verdict = evaluation.run();
    // The order counts. Doubt first, since it keeps deletions back; then a missing permission of the author, which takes
    // back everything; and of failures that are left, messages lose the values of Secrets.
    if let Some(unread) = gate.unread.take().filter(|_| rule.lifecycle.synchronize) {
        evaluation.state.keep_what_is_there(unread);
    }
    if let Some(denied) = evaluation.state.denied(rule) {
        evaluation.pass_over(&denied);
    } else if evaluation.read_secret() {
        evaluation.state.failures.iter_mut().for_each(Failure::leave_out_values);
    }
    let verdict = if evaluation.state.passed_over { Verdict::Skip } else { verdict };
    let EvalState {
        mut effects,
        failures,
        on_error,
        uncertain,
        lineage,
        why,
        exceptions,
        unasked,
        properties,
        ..
    } = evaluation.state;
    let verdict = if failures.is_empty() { verdict } else { Verdict::Error };
    let remarks = shared.remarks.take();
    effects.extend(remarks.into_iter().map(|remark| {
        let path = remark.path.as_ref().unwrap_or(rule.origin.path());
        Effect::Warn(Diagnostic::warning(remark.text).at(rule.origin.place_of(path)))
    }));
    for failure in &failures {
        tracer.note(|| TraceStep {
            what: failure.message.clone(),
            answer: TraceAnswer::Failed,
            why: failure.hint.clone(),
            steps: Vec::new(),
        });
    }
    let mut cost = counters.cost();
    cost.steps += meter.steps_used();
    cost.bytes += meter.bytes_used();
    let reads = gate.reads.take();
    let violates = effects.iter().any(|effect| matches!(effect, Effect::Violation(_)));
    let word = if violates { Status::Fail.as_str() } else { verdict.as_str() };
    let trace = tracer.finish(|| {
        let shown = match &why {
            Some(why) => format!("{word}: {why}"),
            None => word.to_owned(),
        };
        (format!("rule {}", rule.id), shown)
    });
    RuleOutcome {
        rule: rule.id.clone(),
        verdict,
        why,
        exceptions,
        asked: !unasked,
        effects,
        failures,
        on_error,
        uncertain,
        reads,
        properties,
        lineage,
        cost,
        took: began.zip(eval_env.sources.now()).map(|(began, now)| {
            // Clocks may be set back.
            now.duration_since(began).unwrap_or_default()
        }),
        trace,
    }
}

struct Evaluation<'e> {
    rule: &'e Rule,
    exceptions: &'e [Arc<Exception>],
    event: &'e Event,
    shared: &'e EvalShared<'e>,
    state: EvalState,
}

#[derive(Default)]
struct EvalState {
    effects: Vec<Effect>,
    failures: Vec<Failure>,
    on_error: Option<Actions>,
    uncertain: Option<Failure>,
    lineage: Lineage,
    why: Option<Cow<'static, str>>,
    properties: Vec<(Str, Str)>,
    exceptions: Vec<Str>,
    unasked: bool,
    passed_over: bool,
}

impl EvalState {
    /// What the author of a namespaced policy may not do, where that is all that keeps a rule from changing what is sent.
    fn denied(&self, rule: &Rule) -> Option<Failure> {
        let is_denied = |failure: &Failure| failure.kind == FailureKind::Denied;
        let is_theirs = rule.program.changes_trigger() && rule.id.policy.namespace.is_some();
        let first = self.failures.first().filter(|_| is_theirs)?;
        self.failures.iter().all(is_denied).then(|| first.clone())
    }

    /// Of what is kept in step, nothing goes because of a default that stands in for something that could not be read: it
    /// may well be there. What a rule makes of the default is made, and the doubt says the rest.
    fn keep_what_is_there(&mut self, unread: Failure) {
        self.effects.retain(|effect| !matches!(effect, Effect::Delete(_)));
        for failure in &mut self.failures {
            // Which source is meant may come of the default.
            if matches!(failure.kind, FailureKind::SourceMissing(_)) {
                failure.kind = FailureKind::Read;
            }
        }
        let message = format!(
            "nothing is removed, since a default stands in for a value: {}",
            unread.message
        );
        self.uncertain = Some(Failure { message, ..unread });
    }
}

impl<'e> Evaluation<'e> {
    /// Skips a rule whose author lacks a permission. The user who sends the request has permissions of their own, and an author who
    /// may change nothing may stop nothing either.
    fn pass_over(&mut self, denied: &Failure) {
        let message = format!("the rule is skipped: {}", denied.message);
        let path = denied.path.as_ref().unwrap_or(self.rule.origin.path());
        let warning = Diagnostic::warning(&message).at(self.rule.origin.place_of(path));
        self.state.passed_over = true;
        self.state.failures.clear();
        self.state.effects = vec![Effect::Warn(warning)];
        self.state.why = Some(message.into());
    }

    /// Whether a rule of a cluster saw a Secret, whose values must not appear in messages.
    fn read_secret(&self) -> bool {
        let is_secret = |kind: &Gvk| kind.kind == "Secret" && kind.group.is_empty();
        let saw = |read: &RecordedRead| match read {
            RecordedRead::Object(id) => is_secret(&id.gvk),
            RecordedRead::List { kind, .. } => is_secret(kind),
            RecordedRead::Global(_) => false,
        };
        !self.shared.eval_env.home.is_empty()
            && (is_secret(&self.event.kind) || self.shared.gate.reads.borrow().iter().any(saw))
    }

    fn run(&mut self) -> Verdict {
        if self.event.context.own && self.rule.trigger.ignore_own_requests {
            return self.because(Verdict::NoMatch, "the request was sent by the engine itself");
        }
        if self.event.request.dry_run && !self.rule.program.acts_at_admission() {
            return self.because(Verdict::NoMatch, "the request is a dry run");
        }
        // Before any condition of the rule: not even that may look at what only the engine needs.
        if self.is_about_own_secret() {
            return self
                .because(Verdict::NoMatch, "it holds keys of the engine, which rules cannot read");
        }
        if !self.is_admitted() {
            self.state.unasked = true;
            return self.because(Verdict::NoMatch, "the conditions on requests do not hold");
        }
        let verdict = match &self.rule.program {
            Program::Generate(_) => self.generate(),
            Program::Mutate(program) => self.mutate(program),
            Program::Modify(program) => self.modify(program),
            Program::Validate(program) => {
                let checked = self.validate(program);
                if checked.is_err() || !self.state.failures.is_empty() {
                    self.state.on_error = Some(self.actions_on_error(program));
                }
                checked
            }
            Program::Delete(program) => self.delete(program),
        };
        verdict.unwrap_or_else(|failure| {
            self.state.failures.push(failure);
            Verdict::Error
        })
    }

    fn is_about_own_secret(&self) -> bool {
        let event = self.event;
        let object = event.object.as_ref().or(event.old_object.as_ref());
        let namespace = object.and_then(metadata::namespace).or(event.namespace.as_deref());
        let name = object.and_then(metadata::name).unwrap_or(&event.name);
        is_own_secret(self.shared.eval_env.home, &event.kind, namespace, name)
    }

    /// Whether an API server would ask about the request.
    fn is_admitted(&self) -> bool {
        let Some(script) = &self.rule.trigger.match_conditions else { return true };
        let (event, params) = (self.event, Value::Null);
        let (object, old) = (event.object.as_ref(), event.old_object.as_ref());
        let bound = Bound { event, object, old, params };
        let held = in_session(script, self.shared, &bound, |running| {
            running.hold(&script.conditions, "conditions on requests")
        });
        held.unwrap_or(false)
    }

    fn because(&mut self, verdict: Verdict, why: impl Into<Cow<'static, str>>) -> Verdict {
        self.state.why = Some(why.into());
        verdict
    }

    /// Fills in what the rule adds to reports.
    fn add_report_properties(&mut self, context: &Context<'_>) {
        for (key, template) in &self.rule.report_properties {
            let filled = match context.fill(template) {
                Ok(Value::String(text)) => text,
                Ok(other) => json::to_string(&other).into(),
                // Kyverno: a property that cannot be filled in does not stop the rule.
                Err(_) => template.document().as_str().unwrap_or_default().into(),
            };
            self.state.properties.push((key.clone(), filled));
        }
    }

    fn guards_hold(&self, context: &Context<'_>, what: &str) -> Result<bool, Failure> {
        let Some(guard) = &self.rule.guard else { return Ok(true) };
        self.shared.tracer.within(
            || what.to_owned(),
            || context.holds(guard),
            |held| (held.as_ref().map_or(TraceAnswer::Failed, |held| (*held).into()), None),
        )
    }

    /// The identity of a trigger; what it does not say itself, the request does.
    fn trigger(&self, object: &Value) -> ObjectRef {
        let mut trigger = ObjectRef::of(object);
        if trigger.id.gvk.kind.is_empty() {
            trigger.id.gvk = self.event.kind.clone();
        }
        let sent_to_subresource = !self.event.subresource.is_empty();
        if sent_to_subresource
            && trigger.id.namespace.is_empty()
            && let Some(namespace) = &self.event.namespace
        {
            trigger.id.namespace = namespace.clone();
        }
        if trigger.id.name.is_empty() {
            trigger.id.name = self.event.name.clone();
        }
        trigger
    }

    fn context(&self, object: &Value, old: Option<&Value>) -> Context<'e> {
        // Kyverno: of a deleted object, both spellings find what is left.
        let deleting = self.event.object.is_none();
        self.context_of(Some(object), old.or(Some(object).filter(|_| deleting)))
    }

    fn context_of(&self, object: Option<&Value>, old: Option<&Value>) -> Context<'e> {
        let deleting = self.event.object.is_none();
        let mut values = Map::new();
        values.insert("request", self.event.to_request(object, old));
        let user = self.event.user.clone().unwrap_or_default();
        let (namespace, name) = user.service_account();
        values.insert("serviceAccountName", name);
        values.insert("serviceAccountNamespace", namespace);
        let mut values = Value::Map(values);
        for (path, value) in self.event.context.given.iter() {
            place(&mut values, path, value.clone());
        }
        let values = values.as_map().cloned().unwrap_or_default();
        Context::new(self.shared, values, &self.rule.context, deleting)
    }
}

fn skipped_by(exception: &Exception) -> String {
    format!("rule is skipped due to policy exception {}", exception.name)
}
