//! Evaluating one rule for one event.
//!
//! ```text
//! match ── yes ──▶ context, guards ── yes ──▶ program ──▶ effects
//!   │ no                 │ no
//!   ▼                    ▼
//!  was it a trigger before? then what it made lapses; otherwise nothing happens
//! ```

mod delete;
mod validate;

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_jmespath::{Limits as ExpressionLimits, Meter};
use kiln_object::{Gvk, metadata};
use kiln_rules::{
    Actions, Exception, Exempts, Modify, ModifyAction, Mutate, Operation, Program, Rule, Script,
    Unmet,
};
use kiln_value::{Map, Str, Value, json};

use crate::claim::ObjectRef;
use crate::context::{Context, EvalShared, place};
use crate::effect::{Delete, DeleteReason, Effect, PatchTarget};
use crate::eval_env::EvalEnv;
use crate::event::Event;
use crate::failure::{Failure, FailureKind};
use crate::generate::GenerateRun;
use crate::limits::Counters;
use crate::lineage::Lineage;
use crate::matching::{Compare, Matcher};
use crate::modify::Modifying;
use crate::mutate;
use crate::outcome::{RuleOutcome, Status, Verdict};
use crate::script::{Bound, Changing, ScriptSession, in_session};
use crate::trace::{TraceAnswer, TraceStep, Tracer};
use crate::view::{Gate, RecordedRead, is_own_secret};

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
    let counters = Counters::new(&eval_env.limits);
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
        given: &event.given,
        given_each: &event.given_each,
        levels: Cell::new(0),
        remarks: RefCell::new(Vec::new()),
        moved: Cell::new(false),
    };
    let mut evaluation =
        Evaluation { rule, exceptions, event, shared: &shared, state: EvalState::default() };
    let verdict = evaluation.run();
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
        if self.event.own && self.rule.trigger.ignore_own_requests {
            return self.because(Verdict::NoMatch, "the request was sent by the engine itself");
        }
        if self.event.dry_run && !self.rule.program.acts_at_admission() {
            return self.because(Verdict::NoMatch, "the request is a dry run");
        }
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

    fn mutate(&mut self, program: &Mutate) -> Result<Verdict, Failure> {
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
            self.state.lineage = event.lineage.clone();
            let patch = mutate::changed_object(program, object, &context)?;
            self.state.effects.extend(patch.map(|patch| Effect::Patch(Box::new(patch))));
        } else {
            let trigger = self.trigger(object);
            self.state.lineage = event.lineage.then(
                &self.rule.id,
                &trigger.to_string(),
                &self.shared.eval_env.limits,
            )?;
            let mut run = mutate::MutateRun {
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
            true => self.event.lineage.clone(),
            false => self.event.lineage.then(
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

    fn modify(&mut self, program: &Modify) -> Result<Verdict, Failure> {
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
            || !modifying.holds(event.tier_snapshot.as_ref().unwrap_or(object))?
        {
            return Ok(Verdict::NoMatch);
        }
        self.state.lineage = event.lineage.clone();
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

    /// The first exception that means the object.
    fn excepted(
        &self,
        object: &Value,
        context: &Context<'_>,
    ) -> Result<Option<Arc<Exception>>, Failure> {
        self.excepted_among(self.exceptions, object, context)
    }

    /// All exceptions that mean the object, those that leave the rule nothing to do first.
    fn all_excepted(
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

    fn generate(&mut self) -> Result<Verdict, Failure> {
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
        let was = matcher.matches(self.rule, old, Compare::NoOperations)?;
        if was && !matcher.matches(self.rule, object, Compare::NoOperations)? {
            return Ok(self.lapse(old, DeleteReason::NoMatch));
        }
        Ok(Verdict::NoMatch)
    }

    /// The object matches: asks the guards, then runs the program.
    fn fire(&mut self, object: &Value, old: Option<&Value>) -> Result<Verdict, Failure> {
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
        self.state.lineage = self.event.lineage.then(
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

    /// The object was a trigger: its downstreams are deleted if they are synchronized.
    fn lapse(&mut self, old: &Value, reason: DeleteReason) -> Verdict {
        if self.rule.lifecycle.synchronize {
            let (rule, trigger) = (self.rule.id.clone(), self.trigger(old));
            let delete = Delete { rule, trigger, reason };
            self.state.effects.push(Effect::Delete(Box::new(delete)));
        }
        self.because(Verdict::Lapsed, reason.as_str())
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
        values.insert("request", self.event.request(object, old));
        let user = self.event.user.clone().unwrap_or_default();
        let (namespace, name) = user.service_account();
        values.insert("serviceAccountName", name);
        values.insert("serviceAccountNamespace", namespace);
        let mut values = Value::Map(values);
        for (path, value) in self.event.given.iter() {
            place(&mut values, path, value.clone());
        }
        let values = values.as_map().cloned().unwrap_or_default();
        Context::new(self.shared, values, &self.rule.context, deleting)
    }
}

fn skipped_by(exception: &Exception) -> String {
    format!("rule is skipped due to policy exception {}", exception.name)
}
