//! Every resource through every rule.

use std::collections::{HashMap, HashSet, VecDeque};

use kiln_diagnostic::Diagnostic;
use kiln_engine::{
    Effect, Ensure, EvalEnv, EvaluationLimits, Event, Existing, ExternalData, ObjectRef,
    PatchEffect, PatchTarget, RuleOutcome, RuleSet, Status, StorageCheck, User, WithGlobals,
    evaluate, place,
};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_rules::{Mutate, Operation, Payload, Program, RuleId, Targets};
use kiln_value::Value;

use crate::globals;
use crate::objects::{Objects, with_namespace};
use crate::payload;
use crate::report::{Deletion, Made, ObjectChange, Report, RuleResult};
use crate::values::Values;

/// What to run.
pub struct Job<'j> {
    pub rules: &'j RuleSet,
    /// The kinds that are known.
    pub kinds: &'j Kinds,
    /// The resources: each is an event, and all are there to be read.
    pub resources: Vec<Value>,
    /// What else is judged: data, and requests to other servers. Each is an event that nothing comes of.
    pub payloads: Vec<Given>,
    /// Objects that are only there to be read.
    pub others: Vec<Value>,
    /// What a cluster or the request would have known.
    pub values: Values,
    /// Who sends the requests.
    pub user: Option<User>,
    /// What each evaluation may cost, and whether it is traced.
    pub limits: EvaluationLimits,
    /// Services, registries, and answers of the API server that are ready.
    pub external_data: &'j dyn ExternalData,
    /// Whether to report rules that do not match, too.
    pub explain: bool,
    /// Whether listing objects of a kind of which nothing is given is an error, rather than an empty list.
    pub only_given_kinds: bool,
    /// Whether resources that fail and would not be refused are warned of only.
    pub audit_warns: bool,
    /// Whether rules that follow a stored object also follow one that a validate rule denies. In a cluster they do not;
    /// tests ask each rule on its own.
    pub follows_denied: bool,
    /// The schemas that a server would hold the results to; none where results are only compared, as in tests.
    pub schemas: Option<&'j dyn StorageCheck>,
}

/// Data, or a request, that is judged.
#[derive(Clone, Debug)]
pub struct Given {
    pub payload: Payload,
    /// What it is called in reports.
    pub name: String,
    /// The data.
    pub value: Value,
}

impl Given {
    /// What it is called in reports: the mode is its kind.
    pub fn id(&self) -> ObjectId {
        ObjectId::new(Gvk::new("", self.payload.word()), "", &self.name)
    }
}

/// Runs every resource through every rule, and whatever that makes through the rules that listen to it.
pub fn run(job: &Job<'_>, sources: &dyn kiln_jmespath::AmbientSources) -> Report {
    let globals = globals::given(&job.resources, &job.others, job.kinds);
    let external_data = WithGlobals { external_data: job.external_data, globals: &globals };
    let mut state = OfflineState {
        job,
        sources,
        external_data: &external_data,
        objects: Objects::known(job.only_given_kinds),
        made_by: HashMap::new(),
        written: HashSet::new(),
        given: HashSet::new(),
        report: Report::default(),
        unnamed: 0,
    };
    let mut events = VecDeque::new();
    let described = job.values.namespaces();
    for object in described.chain(job.others.iter().cloned()) {
        state.admit(object);
    }
    for resource in &job.resources {
        let object = state.admit(resource.clone());
        state.given.insert(ObjectRef::of(&object).id);
        let mut event = Event::created(object);
        if let Some((parent, subresource)) = job.values.parent_of(&event.kind) {
            event.kind = parent;
            event.subresource = subresource;
        }
        events.push_back(event);
    }
    let mut handled = Vec::with_capacity(job.resources.len());
    while let Some(event) = events.pop_front() {
        let number = Some(handled.len()).filter(|number| *number < job.resources.len());
        let object = state.handle(&event, number, &mut events);
        if handled.len() < job.resources.len() {
            handled.push(object);
        }
    }
    for (at, given) in job.payloads.iter().enumerate() {
        state.judge(given, job.resources.len() + at);
    }
    state.report.resources = job
        .resources
        .iter()
        .zip(handled)
        .filter_map(|(given, handled)| Some(state.at_the_end(given, handled?)))
        .collect();
    state.report
}

struct OfflineState<'r> {
    job: &'r Job<'r>,
    sources: &'r dyn kiln_jmespath::AmbientSources,
    /// What the job has, and the global context.
    external_data: &'r dyn ExternalData,
    objects: Objects,
    /// Which rule made an object, and of what.
    made_by: HashMap<ObjectId, (RuleId, ObjectId)>,
    /// What rules have written so far.
    written: HashSet<ObjectId>,
    /// The resources, each of which is an event.
    given: HashSet<ObjectId>,
    report: Report,
    /// How many resources came without a name.
    unnamed: usize,
}

impl OfflineState<'_> {
    /// Puts a given object where rules can read it.
    fn admit(&mut self, object: Value) -> Value {
        let object = with_namespace(object, self.job.kinds);
        if let Ok(id) = ObjectId::of(&object) {
            self.objects.insert(&id, object.clone());
        }
        object
    }

    /// A given resource as it is at the end, without the namespace that was put in for it.
    fn at_the_end(&self, given: &Value, handled: Value) -> Value {
        let id = ObjectRef::of(&handled).id;
        let mut object = match id.name.is_empty() {
            true => handled,
            false => self.objects.get(&id).cloned().unwrap_or(handled),
        };
        let own = given.str_at(["metadata", "namespace"]);
        if own.is_none() && object.str_at(["metadata", "namespace"]) == Some("default") {
            object.remove(["metadata", "namespace"]);
        }
        object
    }

    /// Data passes every rule that judges such data.
    fn judge(&mut self, given: &Given, number: usize) {
        let value = payload::completed(given.payload, &given.value);
        let event = Event::brought(given.payload, &given.name, value);
        let trigger = given.id();
        let judged = self.job.rules.mutate_each(&event, &self.eval_env(), |rule, event| {
            self.prepare(event, &rule.id, &trigger)
        });
        // Data that comes from nowhere is neither stored nor changed, but policies may still say that it is to go.
        let others = self.job.rules.evaluate_each(&event, &self.eval_env(), |rule, event| {
            self.prepare(event, &rule.id, &trigger)
        });
        for outcome in judged.outcomes.into_iter().chain(others) {
            self.carry_out(outcome, None, (true, Some(number)), &trigger, &mut VecDeque::new());
        }
    }

    /// The object first passes every rule that changes it, as at admission; the others see the result. What
    /// became of it, unless a rule refuses it.
    fn handle(
        &mut self,
        event: &Event,
        number: Option<usize>,
        events: &mut VecDeque<Event>,
    ) -> Option<Value> {
        let trigger = self.called(event.trigger().unwrap_or(&Value::Null));
        let given = event.context.lineage.is_empty();
        let mut event = event.clone();
        // What rules did to a resource before its turn came stays done.
        if given
            && event.object.is_some()
            && self.written.contains(&trigger)
            && let Some(object) = self.objects.get(&trigger)
        {
            event.object = Some(object.clone());
        }
        let mut mutated = self.job.rules.mutate_each(&event, &self.eval_env(), |rule, event| {
            self.prepare(event, &rule.id, &trigger)
        });
        let before = event.object.take();
        let is_not_storable = self
            .job
            .schemas
            .is_some_and(|schemas| mutated.fail_if_not_storable(before.as_ref(), schemas));
        let left = left_by_policies(before.as_ref(), &mutated.outcomes);
        if before.is_some() {
            self.objects.insert(&trigger, mutated.object.clone());
            event.object = Some(mutated.object);
        }
        self.note_repeats(&mutated.outcomes);
        let refuses = |outcome: &RuleOutcome| {
            let passes = self.job.follows_denied && outcome.violation().is_some();
            outcome.refusal().is_some() && !passes
        };
        let refused = is_not_storable || mutated.outcomes.iter().any(refuses);
        let mut outcomes: Vec<_> = mutated.outcomes.into_iter().zip(left).collect();
        // A refused object is never stored, so nothing follows from it.
        if refused {
            self.objects.remove(&trigger);
            self.report.refused.push(trigger.clone());
        } else {
            let others = self.job.rules.evaluate_each(&event, &self.eval_env(), |rule, event| {
                self.prepare(event, &rule.id, &trigger)
            });
            outcomes.extend(others.into_iter().map(|outcome| (outcome, None)));
        }
        if outcomes.is_empty() && self.job.explain && given {
            self.report.untouched.push(trigger.clone());
        }
        for (outcome, left) in outcomes {
            self.carry_out(outcome, left, (given, number), &trigger, events);
        }
        event.object.filter(|_| !refused)
    }

    /// What a resource is called in reports. One whose name the server would make up gets a name that no object can
    /// have, and that no other such resource has.
    fn called(&mut self, object: &Value) -> ObjectId {
        let mut id = ObjectRef::of(object).id;
        let prefix = metadata::generate_name(object).filter(|_| id.name.is_empty());
        if let Some(prefix) = prefix {
            self.unnamed += 1;
            id.name = match self.unnamed {
                1 => format!("{prefix}*").into(),
                number => format!("{prefix}*{number}").into(),
            };
        }
        id
    }

    /// Warns of rules that would change an object again which they have changed already: every update of the object
    /// would add to it.
    fn note_repeats(&mut self, outcomes: &[RuleOutcome]) {
        let mut warnings = Vec::new();
        for outcome in outcomes {
            let Some(rule) = self.job.rules.rule(&outcome.rule) else { continue };
            if !matches!(rule.program, Program::Modify(_)) {
                continue;
            }
            for effect in &outcome.effects {
                let Effect::Patch(patch) = effect else { continue };
                let again = Event::updated(patch.after.clone(), patch.after.clone());
                let again = evaluate(rule, &again, &self.eval_env());
                if again.effects.iter().any(|effect| matches!(effect, Effect::Patch(_))) {
                    let id = ObjectRef::of(&patch.after).id;
                    let message = format!(
                        "rule {} changes {id} again each time it is updated",
                        rule.id.policy.key()
                    );
                    let hint =
                        "add a match item with negate: true that sees what the rule has done";
                    warnings.push(Diagnostic::warning(message).at(rule.origin.place()).hint(hint));
                }
            }
        }
        warnings.into_iter().for_each(|warning| self.warn(warning));
    }

    fn eval_env(&self) -> EvalEnv<'_> {
        EvalEnv {
            view: &self.objects,
            kinds: self.job.kinds,
            sources: self.sources,
            external_data: self.external_data,
            limits: self.job.limits,
            protected_namespaces: &[],
            home: "",
        }
    }

    /// The event as one rule sees it: with the values that were given for it.
    fn prepare(&self, event: &Event, rule: &RuleId, trigger: &ObjectId) -> Event {
        let mut event = event.clone();
        event.context.given = self.job.values.given(rule, &trigger.name);
        // Kyverno: what is given for the object is in it, also where rules are matched.
        if let Some(object) = &mut event.object {
            for (name, value) in event.context.given.iter() {
                if let Some(path) = name.strip_prefix("request.object.") {
                    place(object, path, value.clone());
                }
            }
        }
        event.context.given_each = self.job.values.given_each(rule);
        event.user.clone_from(&self.job.user);
        let operation = event.context.given.get("request.operation").and_then(Value::as_str);
        match operation.and_then(|text| text.parse::<Operation>().ok()) {
            Some(Operation::Delete) => {
                event.old_object = event.object.take();
                event.operation = Some(Operation::Delete);
                event.matched_as = Operation::Delete;
            }
            Some(operation) => {
                // Kyverno: an update leaves the object as it is.
                if operation == Operation::Update && event.old_object.is_none() {
                    event.old_object.clone_from(&event.object);
                }
                event.operation = Some(operation);
                event.matched_as = operation;
            }
            None => {}
        }
        event
    }

    fn carry_out(
        &mut self,
        mut outcome: RuleOutcome,
        left: Option<Value>,
        (given, number): (bool, Option<usize>),
        trigger: &ObjectId,
        events: &mut VecDeque<Event>,
    ) {
        if self.leave_others_their_turn(&mut outcome, trigger) {
            return;
        }
        // What rules do to the trigger itself is held to them as a whole.
        let is_trigger = |effect: &Effect| matches!(effect, Effect::Patch(patch) if patch.target == PatchTarget::Trigger);
        if let Some(schemas) = self.job.schemas
            && !outcome.effects.iter().any(is_trigger)
        {
            outcome.fail_if_not_storable(schemas);
        }
        let status = match outcome.violation() {
            Some(found) if self.job.audit_warns && !found.actions.deny => Status::Warn,
            _ => outcome.status(),
        };
        if status == Status::NoMatch && !self.job.explain {
            return;
        }
        let (mut made, mut refusal, mut violation) = (Vec::new(), None, None);
        let mut why: Option<String> = outcome.why.map(Into::into);
        for effect in outcome.effects {
            match effect {
                Effect::Ensure(ensure) => {
                    let object = self.ensure(*ensure);
                    if matches!(object.change, ObjectChange::Created | ObjectChange::Updated) {
                        let event = match &object.before {
                            None => Event::created(object.object.clone()),
                            Some(before) => Event::updated(before.clone(), object.object.clone()),
                        };
                        let lineage = outcome.lineage.clone();
                        events.push_back(event.by_engine(lineage));
                    }
                    made.push(object);
                }
                Effect::Warn(warning) => self.warn(warning),
                Effect::Patch(patch) => made.push(self.patch(*patch, trigger)),
                Effect::Reject { message, words } => {
                    why = Some(format!("rejected by {message}"));
                    refusal = words;
                }
                Effect::Violation(found) => violation = Some(*found),
                // What was made of files that are gone is not there to be deleted.
                Effect::Delete(_) => {}
                // Schedules are not looked at here, and files are never deleted.
                Effect::DeleteObject(_) => {}
            }
        }
        let rule = self.job.rules.rule(&outcome.rule);
        let deletes = rule.is_some_and(|rule| rule.program.is_scheduled());
        let deletion = match status {
            Status::Pass | Status::Warn if deletes => Some(Deletion::Delete),
            Status::Skip if deletes => Some(Deletion::Keep),
            _ => None,
        };
        let origin = rule.map(|rule| &rule.origin);
        let problems =
            outcome.failures.iter().filter_map(|failure| Some(failure.diagnose(origin?))).collect();
        self.report.results.push(RuleResult {
            rule: outcome.rule,
            trigger: trigger.clone(),
            given,
            number,
            status,
            why,
            refusal,
            violation,
            deletion,
            properties: outcome.properties,
            exceptions: outcome.exceptions,
            made,
            left,
            problems,
            trace: outcome.trace,
        });
    }

    /// A rule that changes all objects that match it comes to each given resource in that resource's own turn. Whether
    /// there is nothing else to it.
    fn leave_others_their_turn(&self, outcome: &mut RuleOutcome, trigger: &ObjectId) -> bool {
        let rule = self.job.rules.rule(&outcome.rule);
        let Some(Program::Mutate(Mutate { targets, .. })) = rule.map(|rule| &rule.program) else {
            return false;
        };
        let Some(Targets::Matching { but_the_trigger }) = targets else { return false };
        outcome.effects.retain(|effect| match effect {
            Effect::Patch(patch) => match &patch.target {
                PatchTarget::Stored { object, .. } => {
                    object == trigger || !self.given.contains(object)
                }
                PatchTarget::Trigger => true,
            },
            _ => true,
        });
        *but_the_trigger && outcome.effects.is_empty() && outcome.failures.is_empty()
    }

    fn ensure(&mut self, ensure: Ensure) -> Made {
        let Ensure { target, object, existing, claim, .. } = ensure;
        let before = self.objects.get(&target).cloned();
        let sources = claim.sources.into_iter().map(|source| source.id).collect();
        // Without a server nothing has a UID, so what was made in this run is remembered.
        let maker = (claim.rule, claim.trigger.id);
        let own = self.made_by.get(&target) == Some(&maker);
        let change = match &before {
            None => ObjectChange::Created,
            Some(_) if existing == Existing::Keep => ObjectChange::Kept,
            Some(_) if existing == Existing::UpdateOwn && !own => ObjectChange::Kept,
            Some(before) if *before == object => ObjectChange::Unchanged,
            Some(_) => ObjectChange::Updated,
        };
        let object = match (&before, change) {
            (Some(before), ObjectChange::Kept) => before.clone(),
            _ => {
                self.objects.insert(&target, object.clone());
                self.written.insert(target.clone());
                self.made_by.insert(target.clone(), maker);
                object
            }
        };
        Made { id: target, object, before, change, sources }
    }

    fn patch(&mut self, patch: PatchEffect, trigger: &ObjectId) -> Made {
        let PatchEffect { target, before, after } = patch;
        let id = match target {
            PatchTarget::Trigger => trigger.clone(),
            PatchTarget::Stored { object, .. } => {
                self.objects.insert(&object, after.clone());
                self.written.insert(object.clone());
                object
            }
        };
        let change = if before == after { ObjectChange::Unchanged } else { ObjectChange::Patched };
        Made { id, object: after, before: Some(before), change, sources: Vec::new() }
    }

    fn warn(&mut self, warning: Diagnostic) {
        let text = warning.to_string();
        if !self.report.warnings.iter().any(|known| known.to_string() == text) {
            self.report.warnings.push(warning);
        }
    }
}

/// For each outcome, the object as all rules of its policy left it.
fn left_by_policies(object: Option<&Value>, outcomes: &[RuleOutcome]) -> Vec<Option<Value>> {
    let mut object = object.cloned();
    let mut left = Vec::with_capacity(outcomes.len());
    for of_policy in outcomes.chunk_by(|a, b| a.rule.policy == b.rule.policy) {
        for effect in of_policy.iter().flat_map(|outcome| &outcome.effects) {
            if let Effect::Patch(patch) = effect {
                object = Some(patch.after.clone());
            }
        }
        left.extend(of_policy.iter().map(|_| object.clone()));
    }
    left
}
