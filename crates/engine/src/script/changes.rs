//! Changes that expressions make to objects: to the object of the event, or to stored ones.

use std::sync::Arc;

use kiln_object::{Gvk, ObjectId};
use kiln_patch::{Atomic, JsonPatch, JsonPatchProblem, JsonPatchRules, structured_merge};
use kiln_rules::{
    Exception, FilteredTargets, Filters, Mutate, Mutation, NamedExpression, PatchForm, Rule,
    Script, ScriptedPatch, Targets, Unmet,
};
use kiln_schema::types::undeclared;
use kiln_schema::{KubernetesVersion, Schema};
use kiln_value::{Map, Str, Value};

use super::{Bound, OUTPUT, ScriptSession, in_session, params};
use crate::context::EvalShared;
use crate::input::event::{Event, EventContext};
use crate::matching::Matcher;
use crate::mutate::size;
use crate::output::claim::ObjectRef;
use crate::output::effect::{PatchEffect, PatchTarget};
use crate::output::failure::{Failure, FailureKind};
use crate::output::outcome::Verdict;
use crate::output::trace::{TraceAnswer, TraceStep};
use crate::protected_namespaces;
use crate::write_gate::stringify_changed_metadata;

/// What came of changing objects.
#[derive(Default)]
pub(crate) struct Changed {
    pub(crate) patches: Vec<PatchEffect>,
    pub(crate) failures: Vec<Failure>,
    pub(crate) properties: Vec<(Str, Str)>,
    /// How it ended when nothing was tried, and why.
    pub(crate) state: Option<(Verdict, String)>,
}

/// A rule that changes objects, for one event.
pub(crate) struct Changing<'c> {
    pub(crate) rule: &'c Rule,
    pub(crate) script: &'c Script,
    pub(crate) exceptions: &'c [Arc<Exception>],
    pub(crate) event: &'c Event,
    pub(crate) shared: &'c EvalShared<'c>,
}

impl Changing<'_> {
    pub(crate) fn run(&self, program: &Mutate, object: &Value) -> Result<Changed, Failure> {
        let Mutation::Steps(steps) = &program.change else { return Ok(Changed::default()) };
        match &program.targets {
            None => self.trigger(steps, object),
            Some(Targets::Filtered(taken)) => self.taken(steps, taken, object),
            Some(Targets::Matching { but_the_trigger }) => {
                self.matching(steps, *but_the_trigger, object)
            }
            Some(Targets::FromExpression(asked)) => {
                let found = self.asked(&asked.expression, object)?;
                match found {
                    Ok(targets) => {
                        let chosen_by = Some(asked.expression.program.source());
                        self.targets(steps, &asked.conditions, targets, chosen_by)
                    }
                    Err(state) => Ok(Changed { state: Some(state), ..Changed::default() }),
                }
            }
            // Those belong to rules without a script.
            Some(Targets::Named(_)) => Ok(Changed::default()),
        }
    }

    /// Asks exceptions and conditions for the trigger; why nothing is to be done, if so.
    fn passed_over(
        &self,
        running: &mut ScriptSession<'_>,
    ) -> Result<Option<(Verdict, String)>, Failure> {
        if let Some(excepted) = running.exceptions(self.exceptions)? {
            return Ok(Some((excepted.verdict(), excepted.message())));
        }
        Ok((!running.conditions_hold()?).then(|| {
            let verdict = match self.script.unmet {
                Unmet::NoMatch => Verdict::NoMatch,
                Unmet::Skip => Verdict::Skip,
            };
            (verdict, "the conditions do not hold".to_owned())
        }))
    }

    fn bound<'b>(&'b self, object: &'b Value) -> Bound<'b> {
        Bound {
            event: self.event,
            object: Some(object).filter(|_| self.event.object.is_some()),
            old: self.event.old_object.as_ref(),
            params: Value::Null,
        }
    }

    /// Changes the object of the event, once for each object of parameters.
    fn trigger(&self, steps: &[ScriptedPatch], object: &Value) -> Result<Changed, Failure> {
        let mut changed = Changed::default();
        let mut after = object.clone();
        let mut state = None;
        let mut ran = false;
        let Some(all) = params::find(self.script, self.event, self.shared)? else {
            let why = "there are no parameters".to_owned();
            return Ok(Changed { state: Some((Verdict::Skip, why)), ..changed });
        };
        for params in all {
            let bound = Bound { params, ..self.bound(&after) };
            let result = in_session(self.script, self.shared, &bound, |running| {
                if let Some(why) = self.passed_over(running)? {
                    return Ok(Err(why));
                }
                let after = change(running, steps, &after)?;
                Ok(Ok((after, running.annotations()?)))
            })?;
            match result {
                Ok((next, properties)) => {
                    ran = true;
                    after = next;
                    changed.properties = properties;
                }
                Err(why) => drop(state.get_or_insert(why)),
            }
        }
        if !ran {
            changed.state = state;
        }
        if after != *object {
            let target = PatchTarget::Trigger;
            changed.patches.push(PatchEffect { target, before: object.clone(), after });
        }
        Ok(changed)
    }

    /// The objects that an expression gives, unless the trigger is passed over.
    fn asked(
        &self,
        expression: &kiln_rules::Expression,
        object: &Value,
    ) -> Result<Result<Vec<Value>, (Verdict, String)>, Failure> {
        // Of a deleted trigger, the old object stands for it.
        let bound = Bound { object: Some(object), ..self.bound(object) };
        in_session(self.script, self.shared, &bound, |running| {
            if let Some(why) = self.passed_over(running)? {
                return Ok(Err(why));
            }
            Ok(Ok(match running.eval_json(expression)? {
                Value::Null => Vec::new(),
                list if list.get("items").is_some() => {
                    let items = list.get("items").and_then(Value::as_list).cloned();
                    items.map(kiln_value::List::into_vec).unwrap_or_default()
                }
                one => vec![one],
            }))
        })
    }

    /// Every object that the filters take.
    fn taken(
        &self,
        steps: &[ScriptedPatch],
        taken: &FilteredTargets,
        object: &Value,
    ) -> Result<Changed, Failure> {
        let why = self.unmet(object)?;
        if why.is_some() {
            return Ok(Changed { state: why, ..Changed::default() });
        }
        let found = self.stored(&taken.include, &taken.exclude)?;
        self.targets(steps, &taken.conditions, found, None)
    }

    /// Every object that matches the rule itself, each as if it were updated as it is. What was there before the rule has
    /// its own turn, and stands for itself alone; after a request, all others are looked at.
    fn matching(
        &self,
        steps: &[ScriptedPatch],
        but_the_trigger: bool,
        object: &Value,
    ) -> Result<Changed, Failure> {
        if self.event.operation.is_none() {
            let event = self.update_of(object);
            let why = self.of(&event).unmet(object)?;
            if why.is_some() {
                return Ok(Changed { state: why, ..Changed::default() });
            }
            return self.of(&event).targets(steps, &[], vec![object.clone()], None);
        }
        let why = self.unmet(object)?;
        if why.is_some() {
            return Ok(Changed { state: why, ..Changed::default() });
        }
        let trigger = ObjectRef::of(object).id;
        let mut found = self.stored(&self.rule.trigger.include, &self.rule.trigger.exclude)?;
        found.retain(|target| !(but_the_trigger && ObjectRef::of(target).id == trigger));
        if found.is_empty() {
            let why = "no other object matches".to_owned();
            return Ok(Changed { state: Some((Verdict::NoMatch, why)), ..Changed::default() });
        }
        let mut all = Changed::default();
        for target in found {
            let event = self.update_of(&target);
            let conditions = &self.script.conditions;
            let one = self.of(&event).targets(steps, conditions, vec![target], None)?;
            all.patches.extend(one.patches);
            let stop = one.failures.iter().any(Failure::is_final);
            all.failures.extend(one.failures);
            if stop {
                break;
            }
        }
        Ok(all)
    }

    /// The same rule for another event.
    fn of<'e>(&'e self, event: &'e Event) -> Changing<'e> {
        Changing { event, ..*self }
    }

    /// Why nothing is to be done for a trigger, if so. Of a deleted one, the old object stands for it.
    fn unmet(&self, object: &Value) -> Result<Option<(Verdict, String)>, Failure> {
        let bound = Bound { object: Some(object), ..self.bound(object) };
        in_session(self.script, self.shared, &bound, |running| self.passed_over(running))
    }

    /// An update that leaves an object as it is, by the user of the event.
    fn update_of(&self, object: &Value) -> Event {
        let Event { user, context, .. } = self.event.clone();
        // What the event is about is another object, and has no form of its own that match blocks look at.
        let context = EventContext { tier_snapshot: None, given_each: Map::new(), ..context };
        Event { user, context, ..Event::updated(object.clone(), object.clone()) }
    }

    /// The stored objects within the rule's reach that filters take.
    fn stored(&self, include: &Filters, exclude: &Filters) -> Result<Vec<Value>, Failure> {
        let mut found = Vec::new();
        for kind in self.kinds(include) {
            let all = kiln_object::Selector::everything();
            let namespace = self.rule.scope.namespace();
            for target in self.shared.gate.list(&kind, namespace, &all, None)?.objects {
                let event = Event::existing(target);
                let Some(target) = &event.object else { continue };
                let matcher = Matcher::new(&event, self.shared.eval_env.view, self.shared.tracer);
                // Kyverno: which operations are named says nothing about targets.
                if matcher.would_take("target", include, target)?
                    && !matcher.would_take("excluded target", exclude, target)?
                {
                    found.push(target.clone());
                }
            }
        }
        Ok(found)
    }

    /// The kinds that filters name.
    fn kinds(&self, filters: &Filters) -> Vec<Gvk> {
        let patterns: Vec<_> = filters.filters().iter().flat_map(|filter| &filter.kinds).collect();
        let kinds = self.shared.eval_env.kinds.iter();
        let named = kinds.filter(|kind| {
            patterns.iter().any(|p| p.matches(kind.group(), kind.version(), kind.kind(), ""))
        });
        let mut found: Vec<Gvk> = Vec::new();
        for kind in named.map(kiln_object::Kind::gvk) {
            if !found.iter().any(|other| other.group == kind.group && other.kind == kind.kind) {
                found.push(kind);
            }
        }
        found
    }

    /// Changes stored objects. What fails for one leaves the others alone.
    fn targets(
        &self,
        steps: &[ScriptedPatch],
        conditions: &[NamedExpression],
        targets: Vec<Value>,
        chosen_by: Option<&str>,
    ) -> Result<Changed, Failure> {
        let mut changed = Changed::default();
        for target in targets {
            let id: ObjectId = ObjectRef::of(&target).id;
            let own = self.event.namespace.as_deref().unwrap_or_default();
            let allowed =
                protected_namespaces::check(&id, self.rule, own, self.shared.eval_env, |_| {
                    chosen_by.is_none_or(|source| {
                        protected_namespaces::in_targets(source, self.rule, &id)
                    })
                });
            if let Err(failure) = allowed {
                changed.failures.push(failure.while_doing(format_args!("target {id}")));
                continue;
            }
            let bound = Bound { object: Some(&target), ..self.bound(&target) };
            let result = in_session(self.script, self.shared, &bound, |running| {
                if let Some(excepted) = running.exceptions(self.exceptions)? {
                    return Ok((None, Some(excepted.message())));
                }
                if !running.hold(conditions, "targetMatchConditions")? {
                    return Ok((None, Some("the conditions do not hold".to_owned())));
                }
                Ok((Some(change(running, steps, &target)?), None))
            });
            let (after, why) = match result {
                Ok(result) => result,
                Err(failure) => {
                    let stop = failure.is_final();
                    changed.failures.push(failure.while_doing(format_args!("target {id}")));
                    if stop {
                        break;
                    }
                    continue;
                }
            };
            self.shared.tracer.note(|| TraceStep {
                what: format!("target {id}"),
                answer: after.is_some().into(),
                why,
                steps: Vec::new(),
            });
            let Some(after) = after.filter(|after| *after != target) else { continue };
            if ObjectRef::of(&after).id != id {
                let message = format!("the patch makes another object of {id}");
                changed
                    .failures
                    .push(Failure::new(FailureKind::Patch, message).hint(
                        "leave apiVersion, kind, metadata.name and metadata.namespace alone",
                    ));
                continue;
            }
            self.shared.counters.object()?;
            let target_place = PatchTarget::Stored { object: id, subresource: None };
            changed.patches.push(PatchEffect { target: target_place, before: target, after });
        }
        Ok(changed)
    }
}

/// What patches make of an object. Nothing of it is kept when one of them fails.
fn change(
    running: &mut ScriptSession<'_>,
    steps: &[ScriptedPatch],
    object: &Value,
) -> Result<Value, Failure> {
    let mut after = object.clone();
    for (at, step) in steps.iter().enumerate() {
        if at > 0 {
            running.rebind_object(&after);
        }
        after = patched(running, step, &after)?;
    }
    stringify_changed_metadata(&mut after, object);
    Ok(after)
}

fn patched(
    running: &mut ScriptSession<'_>,
    step: &ScriptedPatch,
    object: &Value,
) -> Result<Value, Failure> {
    let wrong =
        |message: String| Failure::new(FailureKind::Patch, message).at(&step.expression.path);
    running.shared.counters.patched(size(object))?;
    let value = running.eval(&step.expression)?;
    let mut after = object.clone();
    let patch = match step.form {
        PatchForm::Configuration { over_atomic } => {
            let patch = value.to_patch_object(OUTPUT).map_err(wrong)?;
            // Kubernetes: such a patch cannot be typed, so nothing of it is applied.
            let (version, kind) = (object.str_at(["apiVersion"]), object.str_at(["kind"]));
            let unknown = version.zip(kind).and_then(|(v, k)| undeclared(v, k, &patch));
            if let Some(path) = unknown {
                return Err(wrong(format!(
                    "error applying patch: failed to convert patch object to typed object: {path}: field not \
                     declared in schema"
                )));
            }
            let atomic = if over_atomic { Atomic::Replaced } else { Atomic::Refused };
            let schema = Schema::builtin(KubernetesVersion::NEWEST);
            structured_merge(&mut after, &patch, &schema, atomic)
                .map_err(|error| wrong(format!("error applying patch: {error}")))?;
            patch
        }
        PatchForm::Operations => {
            let operations =
                value.to_json(OUTPUT).map_err(|error| wrong(format!("JSON Patch: {error}")))?;
            let patch = JsonPatch::parse(&operations, JsonPatchRules::kubernetes())
                .map_err(|error| wrong(format!("JSON Patch: {error}")))?;
            match patch.apply(&mut after) {
                Ok(()) => {}
                // Kubernetes: a test that does not hold leaves everything as it is.
                Err(error) if matches!(*error.problem, JsonPatchProblem::TestFailed { .. }) => {
                    after = object.clone();
                }
                Err(error) => return Err(wrong(format!("JSON Patch: {error}"))),
            }
            operations
        }
    };
    running.shared.counters.patched(size(&patch))?;
    running.shared.tracer.note(|| TraceStep {
        what: "patch".into(),
        answer: TraceAnswer::Value(patch),
        ..TraceStep::default()
    });
    if !matches!(after, Value::Map(_)) {
        return Err(wrong(format!("the patch leaves a {} of the object", after.type_name())));
    }
    Ok(after)
}
