//! The values that expressions see: the request, what a rule names, the element of a loop.
//!
//! Named values are loaded when an expression reaches them, and at most once. While one loads, only those
//! named before it are there, so a later entry may build on an earlier one of the same name.

mod address;
mod api_path;
pub(crate) mod images;
mod layer;
mod load;

use std::cell::{Cell, RefCell};

use kiln_jmespath::{Expression, Meter, Root};
use kiln_rules::{ContextEntry, Load, QueryText, Rule};
use kiln_value::{MAX_DEPTH, Map, Path, Str, Value};
use kiln_variables::conditions::{ConditionsOutcome, Effort};
use kiln_variables::{Conditions, FilledText, Template};

use crate::input::eval_env::EvalEnv;
use crate::input::external_data::{ExternalDataError, ServiceRequest};
use crate::input::limits::Counters;
use crate::input::view::{Gate, RecordedRead};
use crate::output::failure::{Failure, FailureKind};
use crate::output::trace::{TraceAnswer, TraceStep, Tracer};

pub(crate) use layer::Layer;

/// What all contexts of one evaluation share.
pub(crate) struct EvalShared<'s> {
    pub(crate) eval_env: &'s EvalEnv<'s>,
    pub(crate) rule: &'s Rule,
    pub(crate) gate: &'s Gate<'s>,
    pub(crate) counters: &'s Counters,
    pub(crate) meter: &'s Meter,
    pub(crate) tracer: &'s Tracer,
    /// Values that the host gives by name; entries that would ask outside for them are not asked.
    pub(crate) given: &'s Map,
    /// The same for the elements of loops: lists, with a value for each element.
    pub(crate) given_each: &'s Map,
    /// How many levels of expressions are being searched, one because of the other.
    pub(crate) levels: Cell<usize>,
    /// Things worth telling when something fails later, such as a query that was read leniently.
    pub(crate) remarks: RefCell<Vec<Remark>>,
    /// A loop changed something, and perhaps put it back.
    pub(crate) moved: Cell<bool>,
}

const CANNOT_LOAD: &str = "cannot load the context entry";

/// What loading an entry takes besides the levels of its expression.
const LEVELS_OF_A_LOAD: usize = 10;

impl EvalShared<'_> {
    /// A value that the host keeps for all rules; none when there is no such value.
    pub(crate) fn global(&self, name: &str) -> Result<Option<Value>, ExternalDataError> {
        // Kyverno: those who write entries do not say which namespaces may read them.
        self.for_all(|| format!("the entry {name:?} of the global context"))?;
        self.gate.note(RecordedRead::Global(name.into()));
        self.eval_env.external_data.global(name)
    }

    /// The good answer of a service.
    pub(crate) fn service(&self, request: &ServiceRequest<'_>) -> Result<Value, ExternalDataError> {
        self.for_all(|| format!("what the service {} says", request.url))?;
        self.eval_env.external_data.call(request)
    }

    /// Whether the rule may use cluster-scoped data.
    fn for_all(&self, wanted: impl FnOnce() -> String) -> Result<(), ExternalDataError> {
        let checked = self.gate.check(None, wanted);
        checked.map_err(|error| ExternalDataError::refused(error.to_string()))
    }

    /// Searches, and counts how deep in other searches this one is.
    fn search(
        &self,
        expression: &Expression,
        root: &dyn Root,
    ) -> Result<Value, kiln_jmespath::Error> {
        let before = self.levels.get();
        self.levels.set(before + expression.height() + LEVELS_OF_A_LOAD);
        let found = expression.search_metered(root, self.eval_env.sources, self.meter);
        self.levels.set(before);
        found
    }
}

/// Something worth telling, and which part of the rule's document it is about.
pub(crate) struct Remark {
    pub(crate) text: String,
    pub(crate) path: Option<Path>,
}

/// Values, and the entries that become values on first use.
pub(crate) struct Context<'c> {
    pub(crate) shared: &'c EvalShared<'c>,
    outer: Option<&'c Context<'c>>,
    values: Map,
    entries: Vec<Slot<'c>>,
    /// What its entries have loaded, in bytes; given back when it ends.
    held: Cell<u64>,
    deleting: bool,
}

impl Drop for Context<'_> {
    fn drop(&mut self) {
        self.shared.counters.forget_context(self.held.get());
    }
}

struct Slot<'c> {
    entry: &'c ContextEntry,
    loaded: RefCell<Option<Result<Value, Failure>>>,
    loading: Cell<bool>,
}

impl<'c> Context<'c> {
    /// The context of a rule.
    pub(crate) fn new(
        shared: &'c EvalShared<'c>,
        values: Map,
        entries: &'c [ContextEntry],
        deleting: bool,
    ) -> Self {
        Context {
            shared,
            outer: None,
            values,
            entries: slots(shared, entries),
            held: Cell::new(0),
            deleting,
        }
    }

    /// A context inside this one, with values and entries of its own.
    pub(crate) fn inner<'i>(&'i self, values: Map, entries: &'i [ContextEntry]) -> Context<'i> {
        Context {
            shared: self.shared,
            outer: Some(self),
            values,
            entries: slots(self.shared, entries),
            held: Cell::new(0),
            deleting: self.deleting,
        }
    }

    /// A context for one element of a loop: `element` and `elementIndex`, also by their depth, and what
    /// the host gives for this element.
    pub(crate) fn of_element<'i>(
        &'i self,
        element: &Value,
        index: usize,
        depth: usize,
        entries: &'i [ContextEntry],
    ) -> Context<'i> {
        let mut values = Map::new();
        for (name, value) in [("element", element.clone()), ("elementIndex", (index as u64).into())]
        {
            values.insert(format!("{name}{depth}"), value.clone());
            values.insert(name, value);
        }
        let mut values = Value::Map(values);
        for (path, each) in self.shared.given_each.iter() {
            if let Some(value) = each.as_list().and_then(|each| each.get(index)) {
                place(&mut values, path, value.clone());
            }
        }
        let values = values.as_map().cloned().unwrap_or_default();
        self.inner(values, entries)
    }

    /// The same context with another value under a name. What was loaded stays loaded; what is loaded
    /// from now on sees the new value.
    pub(crate) fn renewed(&self, name: &str, value: Value) -> Context<'c> {
        let mut values = self.values.clone();
        values.insert(name, value);
        let renew = |slot: &Slot<'c>| Slot {
            entry: slot.entry,
            loaded: slot.loaded.clone(),
            loading: Cell::new(false),
        };
        Context {
            shared: self.shared,
            outer: self.outer,
            values,
            entries: self.entries.iter().map(renew).collect(),
            // What was loaded is held by the context that loaded it.
            held: Cell::new(0),
            deleting: self.deleting,
        }
    }

    /// The request, with another object in it.
    pub(crate) fn request_with(&self, object: &Value) -> Result<Value, Failure> {
        let mut request = self.all().value_of("request")?.unwrap_or_else(Value::map);
        place(&mut request, "object", object.clone());
        Ok(request)
    }

    /// Everything, for expressions of the rule itself.
    pub(crate) fn all(&self) -> Layer<'_> {
        Layer { context: self, upto: self.entries.len() }
    }

    /// Fills a template.
    pub(crate) fn fill(&self, template: &Template) -> Result<Value, Failure> {
        self.all().fill(template)
    }

    /// Fills a template that is a text which is parsed further, values kept apart.
    pub(crate) fn fill_text(&self, template: &Template) -> Result<FilledText, Failure> {
        self.all().fill_text(template)
    }

    /// Evaluates an expression that may hold variables.
    pub(crate) fn query(&self, query: &QueryText) -> Result<Value, Failure> {
        self.all().query_here(query)
    }

    /// Evaluates an expression that may hold variables; none when it asks for something that is not there.
    pub(crate) fn query_found(&self, query: &QueryText) -> Result<Option<Value>, Failure> {
        let layer = self.all();
        let filled;
        let expression = match query {
            QueryText::Ready(expression) => expression,
            QueryText::Unfilled(template) => {
                filled = layer.expression(template)?;
                &filled
            }
        };
        match self.shared.search(expression, &layer) {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.is_not_found() => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether conditions hold.
    pub(crate) fn holds(&self, conditions: &Conditions) -> Result<bool, Failure> {
        Ok(self.ask(conditions)?.holds)
    }

    /// Whether conditions hold, and what decides it.
    pub(crate) fn ask(&self, conditions: &Conditions) -> Result<ConditionsOutcome, Failure> {
        let layer = self.all();
        let mut substitution = layer.substitution();
        let outcome = conditions.evaluate(&mut substitution, &mut Effort::default());
        self.shared.counters.bytes(substitution.usage().bytes as u64)?;
        let outcome = outcome?;
        for check in &outcome.checks {
            self.shared.tracer.note(|| TraceStep {
                what: check.to_string(),
                answer: check.holds.into(),
                ..TraceStep::default()
            });
        }
        Ok(outcome)
    }
}

fn slots<'c>(shared: &EvalShared<'_>, entries: &'c [ContextEntry]) -> Vec<Slot<'c>> {
    let given = |entry: &ContextEntry| {
        !matches!(entry.load, Load::Variable { .. })
            && shared.given.keys().chain(shared.given_each.keys()).any(|key| {
                key.strip_prefix(entry.name.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
    };
    entries
        .iter()
        .filter(|entry| !given(entry))
        .map(|entry| Slot { entry, loaded: RefCell::new(None), loading: Cell::new(false) })
        .collect()
}

impl Context<'_> {
    /// The value of an entry.
    fn load(&self, at: usize) -> Result<Value, Failure> {
        let slot = &self.entries[at];
        if let Some(loaded) = &*slot.loaded.borrow() {
            return loaded.clone();
        }
        // An entry sees only those before it, so this cannot happen; better an error than a hang.
        if slot.loading.replace(true) {
            return Err(Failure::new(FailureKind::Value, "a context entry asks for itself"));
        }
        let layer = Layer { context: self, upto: at };
        let entry = slot.entry;
        // Each of them takes a piece of the stack.
        if self.shared.levels.get() > self.shared.eval_env.limits.levels {
            slot.loading.set(false);
            let message = "too many context entries ask for one another";
            return Err(Failure::new(FailureKind::Limit, message).at(&entry.path));
        }
        let loaded = self.shared.tracer.within(
            || format!("context {} ({})", entry.name, entry.load.word()),
            || {
                let loaded = layer.load(entry);
                // Only paths of the API server are remarked on.
                for remark in self.shared.remarks.borrow_mut().iter_mut() {
                    remark.path.get_or_insert_with(|| entry.path.join("apiCall").join("urlPath"));
                }
                let value = loaded?;
                let bytes = weight(&value);
                self.held.set(self.held.get() + bytes);
                self.shared.counters.context(bytes)?;
                Ok(value)
            },
            |loaded: &Result<Value, Failure>| match loaded {
                Ok(value) => (TraceAnswer::Value(value.clone()), None),
                Err(failure) => (TraceAnswer::Failed, Some(failure.to_string())),
            },
        );
        let loaded = loaded.map_err(|failure| {
            // The innermost entry is the one to mend.
            if failure.message.starts_with(CANNOT_LOAD) {
                return failure;
            }
            failure
                .at(&entry.path)
                .while_doing(format_args!("{CANNOT_LOAD} {:?}", entry.name.as_str()))
        });
        // Failures are kept, too: an entry is asked for once, however often expressions name it.
        *slot.loaded.borrow_mut() = Some(loaded.clone());
        slot.loading.set(false);
        loaded
    }
}

/// The first part of a dotted name, and the rest.
fn split_name(name: &str) -> (&str, Option<&str>) {
    match name.split_once('.') {
        Some((first, rest)) => (first, Some(rest)),
        None => (name, None),
    }
}

/// Puts a value at a path of names with dots in between, over whatever is in the way. A name in quotes may hold dots.
pub fn place(base: &mut Value, path: &str, value: Value) {
    // Values must not nest deeper than readers let them; what is left of the path is one key.
    let mut at = base;
    for key in steps(path) {
        if at.as_map().is_none() {
            *at = Value::map();
        }
        let Some(map) = at.as_map_mut() else { return };
        at = map.get_or_insert_with(key, || Value::Null);
    }
    *at = value;
}

/// The names of a dotted path.
fn steps(path: &str) -> Vec<&str> {
    let (mut steps, mut from, mut quoted) = (Vec::new(), 0, false);
    for (at, c) in path.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '.' if !quoted && steps.len() + 1 < MAX_DEPTH / 2 => {
                steps.push(&path[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    steps.push(&path[from..]);
    for step in &mut steps {
        *step = step.strip_prefix('"').and_then(|step| step.strip_suffix('"')).unwrap_or(step);
    }
    steps
}

/// The text of a value that has to be one.
pub(crate) fn text_of(value: Value, what: &str) -> Result<Str, Failure> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(not_text(&other, what)),
    }
}

pub(crate) fn not_text(found: &Value, what: &str) -> Failure {
    let kind = found.str_at(["kind"]);
    let shown = match kind {
        Some(kind) => format!("a whole {kind} object"),
        None => match found {
            Value::Null => "null".to_owned(),
            Value::Map(_) => "an object".to_owned(),
            other => format!("the {} {}", other.type_name(), short(other)),
        },
    };
    let failure =
        Failure::new(FailureKind::Value, format!("{what} must be a string, and this is {shown}"));
    match found {
        Value::Map(map) if map.contains_key("items") => {
            failure.hint("add `jmesPath: items[].metadata.name` to the call that gave the list")
        }
        Value::Map(map) if map.contains_key("metadata") => {
            failure.hint("add `.metadata.name` to take its name")
        }
        Value::Null => failure.hint("give a default: `{{ … || 'value' }}`"),
        Value::Number(_) | Value::Bool(_) => failure.hint("use to_string() to make a string of it"),
        _ => failure,
    }
}

fn short(value: &Value) -> String {
    let text = kiln_value::json::to_string(value);
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// About how many bytes a value takes as JSON.
fn weight(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64 + 2,
        Value::List(list) => 2 + list.iter().map(|v| weight(v) + 1).sum::<u64>(),
        Value::Map(map) => 2 + map.iter().map(|(k, v)| k.len() as u64 + 4 + weight(v)).sum::<u64>(),
        _ => 4,
    }
}
