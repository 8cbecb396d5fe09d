//! Evaluation of a tree on a root.
//!
//! Values are borrowed from the root and from the literals of the tree for as long as they are only
//! looked at; what has to be made is owned. A missing key is a [`EvalFault`] that costs next to nothing, because
//! projections throw away thousands of them.

use std::borrow::Cow;

use kiln_diagnostic::did_you_mean;
use kiln_value::{Key, List, Map, Value};

use crate::AmbientSources;
use crate::error::{Error, ErrorKind};
use crate::functions::{self, Argument};
use crate::meter::{Exhausted, Meter};
use crate::root::Root;
use crate::tree::{Comparison, JmesPathCall, JmesPathNode, NodeId, Slice, Tree};
use crate::weight;

/// Why a part of an expression has no value.
#[derive(Debug)]
pub(crate) enum EvalFault {
    /// A map has not the key that this node names. The map is kept for the question what was meant, which copies a
    /// pointer; names at the top have none.
    NotFound(NodeId, Value),
    /// Anything else.
    Raised(Error),
}

impl From<Error> for EvalFault {
    fn from(error: Error) -> Self {
        EvalFault::Raised(error)
    }
}

pub(crate) type EvalOutcome<'a> = Result<Cow<'a, Value>, EvalFault>;

/// What `@` is.
#[derive(Clone, Copy)]
enum Current<'a> {
    /// The root itself, which gives its fields one by one.
    Root,
    Value(&'a Value),
}

static NULL: Value = Value::Null;

/// From this many copies of its input on, a result is weighed before it is handed out.
const COPIES_TO_WEIGH: u64 = 4;

pub(crate) struct SearchRun<'s> {
    pub(crate) tree: &'s Tree,
    pub(crate) root: &'s dyn Root,
    pub(crate) sources: &'s dyn AmbientSources,
    pub(crate) meter: &'s Meter,
}

impl<'s> SearchRun<'s> {
    pub(crate) fn run(&'s self, top: NodeId) -> Result<Cow<'s, Value>, Error> {
        let current = self.root.as_value().map_or(Current::Root, Current::Value);
        let result = self.eval(top, current).map_err(|fault| self.surface(fault))?;
        if self.tree.measure(top).copies > COPIES_TO_WEIGH {
            weight::charge(&result, self.meter)
                .map_err(|exhausted| self.exhausted(top, exhausted))?;
        }
        Ok(result)
    }

    fn surface(&self, fault: EvalFault) -> Error {
        match fault {
            EvalFault::Raised(error) => error,
            EvalFault::NotFound(id, map) => {
                let key = match self.tree.node(id) {
                    JmesPathNode::Field(key) => key.as_str(),
                    _ => "",
                };
                let keys = map.as_map().into_iter().flat_map(Map::keys);
                let hint = match did_you_mean(key, keys.map(Key::as_str)) {
                    Some(meant) => {
                        format!("did you mean {meant:?}? if not, give a default with `|| ''`")
                    }
                    None => "give a default with `|| ''`".to_owned(),
                };
                Error::new(ErrorKind::NotFound, self.tree.span(id), format!("no key {key:?} here"))
                    .hint(hint)
                    .with_key(key)
            }
        }
    }

    pub(crate) fn exhausted(&self, id: NodeId, exhausted: Exhausted) -> Error {
        Error::new(ErrorKind::Limit, self.tree.span(id), exhausted.message())
    }

    /// Evaluates a part on a value.
    pub(crate) fn eval_on<'a>(&'a self, id: NodeId, value: &'a Value) -> EvalOutcome<'a> {
        self.eval(id, Current::Value(value))
    }

    /// The nodes that paths are made of; small, because projections call it for every element.
    #[inline]
    fn eval<'a>(&'a self, id: NodeId, current: Current<'a>) -> EvalOutcome<'a> {
        match (self.tree.node(id), current) {
            (JmesPathNode::Field(key), Current::Value(value)) => {
                self.step(id, 1)?;
                field(id, key, value)
            }
            (JmesPathNode::Current, Current::Value(value)) => {
                self.step(id, 1)?;
                Ok(Cow::Borrowed(value))
            }
            (JmesPathNode::Chain(steps), _) => self.chain(id, steps, current),
            (JmesPathNode::Or(parts), _) => {
                self.step(id, 1)?;
                self.or(parts, current)
            }
            (node, _) => self.eval_node(id, node, current),
        }
    }

    #[inline]
    fn step(&self, id: NodeId, count: u64) -> Result<(), EvalFault> {
        match self.meter.step(count) {
            Ok(()) => Ok(()),
            Err(exhausted) => Err(self.exhausted(id, exhausted).into()),
        }
    }

    #[inline(never)]
    fn eval_node<'a>(
        &'a self,
        id: NodeId,
        node: &'a JmesPathNode,
        current: Current<'a>,
    ) -> EvalOutcome<'a> {
        self.step(id, 1)?;
        match node {
            JmesPathNode::Field(key) => match current {
                Current::Value(value) => field(id, key, value),
                Current::Root => match self.root.field(key) {
                    Ok(Some(value)) => Ok(value),
                    Ok(None) => Err(EvalFault::NotFound(id, Value::Null)),
                    Err(failure) => {
                        let message = format!("loading {:?} failed: {failure}", key.as_str());
                        Err(self.root_failed(id, message).caused_by(failure).into())
                    }
                },
            },
            JmesPathNode::Current => self.whole(id, current),
            JmesPathNode::Chain(steps) => self.chain(id, steps, current),
            JmesPathNode::Literal(value, weight) => {
                self.meter.make(*weight).map_err(|exhausted| self.exhausted(id, exhausted))?;
                Ok(Cow::Borrowed(value))
            }
            JmesPathNode::Index(index) => {
                let value = self.whole(id, current)?;
                Ok(part(value, |value| element(value, *index)))
            }
            JmesPathNode::Slice(slice) => {
                let value = self.whole(id, current)?;
                self.slice(id, *slice, &value)
            }
            JmesPathNode::Pipe(stages) => self.pipe(stages, current),
            JmesPathNode::Or(parts) => self.or(parts, current),
            JmesPathNode::And(parts) => self.and(parts, current),
            JmesPathNode::Not(part) => {
                let truth = is_true(&*self.eval_or_null(*part, current)?);
                Ok(Cow::Owned(Value::Bool(!truth)))
            }
            JmesPathNode::Compare(comparison, left, right) => {
                let left = self.eval_or_null(*left, current)?;
                let right = self.eval_or_null(*right, current)?;
                self.compare(id, *comparison, &left, &right).map(Cow::Owned)
            }
            JmesPathNode::MultiList(parts) => {
                if matches!(current, Current::Value(Value::Null)) {
                    return Ok(Cow::Borrowed(&NULL));
                }
                let mut elements = Vec::with_capacity(parts.len());
                for part in parts {
                    elements.push(self.eval_or_null(*part, current)?.into_owned());
                }
                Ok(Cow::Owned(Value::List(List::from(elements))))
            }
            JmesPathNode::MultiMap { parts, unique } => {
                if matches!(current, Current::Value(Value::Null)) {
                    return Ok(Cow::Borrowed(&NULL));
                }
                let mut entries: Vec<(Key, Value)> = Vec::with_capacity(parts.len());
                for (key, part) in parts {
                    let value = self.eval_or_null(*part, current)?.into_owned();
                    entries.push((key.clone(), value));
                }
                let map =
                    if *unique { Map::from_unique(entries) } else { entries.into_iter().collect() };
                Ok(Cow::Owned(Value::Map(map)))
            }
            JmesPathNode::Projection { left, right } => {
                let list = self.eval_or_null(*left, current)?;
                self.project(&list, None, *right)
            }
            JmesPathNode::Filter { left, condition, right } => {
                let list = self.eval_softly(*left, current)?;
                self.project(&list, Some(*condition), *right)
            }
            JmesPathNode::ValueProjection { left, right } => {
                let map = self.eval_softly(*left, current)?;
                self.project_values(&map, *right)
            }
            JmesPathNode::Flatten(left) => {
                let list = self.eval_softly(*left, current)?;
                self.flatten(id, list)
            }
            JmesPathNode::Call(call) => self.call(id, call, current).map(Cow::Owned),
            JmesPathNode::Reference(_) => Err(Error::new(
                ErrorKind::Type,
                self.tree.span(id),
                "an expression reference has no value of its own",
            )
            .hint("`&` belongs to the arguments of functions such as sort_by and map")
            .into()),
        }
    }

    /// Like [`Self::eval`], where the dialect turns a missing key into null.
    fn eval_or_null<'a>(&'a self, id: NodeId, current: Current<'a>) -> EvalOutcome<'a> {
        or_null(self.eval(id, current))
    }

    /// Like [`Self::eval`], where the dialect turns any error into null.
    fn eval_softly<'a>(&'a self, id: NodeId, current: Current<'a>) -> EvalOutcome<'a> {
        match self.eval(id, current) {
            Err(EvalFault::Raised(error)) if !error.kind().is_soft() => {
                Err(EvalFault::Raised(error))
            }
            Err(_) => Ok(Cow::Borrowed(&NULL)),
            found => found,
        }
    }

    fn root_failed(&self, id: NodeId, message: String) -> Error {
        Error::new(ErrorKind::Root, self.tree.span(id), message)
    }

    fn whole<'a>(&'a self, id: NodeId, current: Current<'a>) -> EvalOutcome<'a> {
        match current {
            Current::Value(value) => Ok(Cow::Borrowed(value)),
            Current::Root => self.root.whole().map_err(|failure| {
                let message = format!("loading the whole context failed: {failure}");
                self.root_failed(id, message).caused_by(failure).into()
            }),
        }
    }

    /// The first part that is not `@`, with what comes after it: `@.a` need not load the whole root.
    fn skip_current<'p>(&self, parts: &'p [NodeId]) -> &'p [NodeId] {
        match parts {
            [first, rest @ ..]
                if !rest.is_empty() && matches!(self.tree.node(*first), JmesPathNode::Current) =>
            {
                rest
            }
            _ => parts,
        }
    }

    fn chain<'a>(
        &'a self,
        id: NodeId,
        steps: &'a [NodeId],
        current: Current<'a>,
    ) -> EvalOutcome<'a> {
        self.step(id, steps.len() as u64)?;
        let mut steps = self.skip_current(steps);
        let Current::Value(mut value) = current else {
            return self.chain_from_root(steps, current);
        };
        // Fields of what is borrowed, which is most of all paths, go through no other function.
        while let [first, rest @ ..] = steps {
            let JmesPathNode::Field(key) = self.tree.node(*first) else { break };
            value = find(*first, key, value)?;
            if rest.is_empty() {
                return Ok(Cow::Borrowed(value));
            }
            steps = rest;
        }
        self.follow(Cow::Borrowed(value), steps)
    }

    fn chain_from_root<'a>(&'a self, steps: &'a [NodeId], current: Current<'a>) -> EvalOutcome<'a> {
        match steps {
            [first, rest @ ..] => {
                self.follow(self.eval_node(*first, self.tree.node(*first), current)?, rest)
            }
            [] => Ok(Cow::Borrowed(&NULL)),
        }
    }

    fn follow<'a>(&'a self, mut result: Cow<'a, Value>, steps: &'a [NodeId]) -> EvalOutcome<'a> {
        for step in steps {
            result = match result {
                Cow::Borrowed(value) => match self.tree.node(*step) {
                    JmesPathNode::Field(key) => field(*step, key, value)?,
                    _ => self.eval_on(*step, value)?,
                },
                Cow::Owned(value) => self.eval_inside(*step, &value)?,
            };
        }
        Ok(result)
    }

    fn pipe<'a>(&'a self, stages: &[NodeId], current: Current<'a>) -> EvalOutcome<'a> {
        let Some((first, rest)) = self.skip_current(stages).split_first() else {
            return Ok(Cow::Borrowed(&NULL));
        };
        let mut result = self.eval_or_null(*first, current)?;
        for stage in rest {
            result = or_null(match result {
                Cow::Borrowed(value) => self.eval_on(*stage, value),
                Cow::Owned(value) => self.eval_inside(*stage, &value),
            })?;
        }
        Ok(result)
    }

    /// Evaluates on a value that is about to be dropped.
    fn eval_inside<'a>(&'a self, id: NodeId, value: &Value) -> EvalOutcome<'a> {
        self.eval_on(id, value).map(|result| Cow::Owned(result.into_owned()))
    }

    /// Apart from the other nodes, whose function needs more stack: defaults are in most policies.
    #[inline(never)]
    fn or<'a>(&'a self, parts: &[NodeId], current: Current<'a>) -> EvalOutcome<'a> {
        let mut result = Cow::Borrowed(&NULL);
        for part in parts {
            result = self.eval_or_null(*part, current)?;
            if is_true(&result) {
                break;
            }
        }
        Ok(result)
    }

    fn and<'a>(&'a self, parts: &[NodeId], current: Current<'a>) -> EvalOutcome<'a> {
        let Some((last, before)) = parts.split_last() else {
            return Ok(Cow::Borrowed(&NULL));
        };
        for part in before {
            let result = self.eval_or_null(*part, current)?;
            if !is_true(&result) {
                return Ok(result);
            }
        }
        // Kyverno: a missing key on the right side of `&&` is not caught.
        self.eval(*last, current)
    }

    pub(crate) fn equal(&self, id: NodeId, left: &Value, right: &Value) -> Result<bool, Error> {
        weight::equal(left, right, self.meter).map_err(|exhausted| self.exhausted(id, exhausted))
    }

    fn compare(
        &self,
        id: NodeId,
        comparison: Comparison,
        left: &Value,
        right: &Value,
    ) -> Result<Value, EvalFault> {
        let holds = match comparison {
            Comparison::Equal => self.equal(id, left, right)?,
            Comparison::NotEqual => !self.equal(id, left, right)?,
            order => match (left, right) {
                (Value::Number(a), Value::Number(b)) => {
                    let (a, b) = (a.as_f64(), b.as_f64());
                    match order {
                        Comparison::Less => a < b,
                        Comparison::LessOrEqual => a <= b,
                        Comparison::Greater => a > b,
                        _ => a >= b,
                    }
                }
                // Kyverno: only numbers are ordered; anything else compares to null.
                _ => return Ok(Value::Null),
            },
        };
        Ok(Value::Bool(holds))
    }

    fn slice<'a>(&'a self, id: NodeId, slice: Slice, value: &Value) -> EvalOutcome<'a> {
        let Value::List(list) = value else {
            return Ok(Cow::Borrowed(&NULL));
        };
        let step = slice.step.unwrap_or(1);
        if step == 0 {
            return Err(Error::new(
                ErrorKind::Failed,
                self.tree.span(id),
                "a slice cannot have a step of 0",
            )
            .into());
        }
        let elements: Vec<Value> =
            positions(slice, step, list.len()).map(|at| list[at].clone()).collect();
        let steps = elements.len() as u64;
        self.meter.step(steps).map_err(|exhausted| self.exhausted(id, exhausted))?;
        Ok(Cow::Owned(Value::List(List::from(elements))))
    }

    fn project<'a>(
        &'a self,
        list: &Value,
        condition: Option<NodeId>,
        right: NodeId,
    ) -> EvalOutcome<'a> {
        let Value::List(list) = list else {
            return Ok(Cow::Borrowed(&NULL));
        };
        if condition.is_none() {
            let path = match self.tree.node(right) {
                JmesPathNode::Field(_) => &[right],
                JmesPathNode::Chain(steps) => steps.as_slice(),
                _ => &[],
            };
            let is_field = |id: &NodeId| matches!(self.tree.node(*id), JmesPathNode::Field(_));
            if !path.is_empty() && path.iter().all(is_field) {
                return self.project_path(list, right, path);
            }
        }
        let mut results = Vec::new();
        for element in list {
            if let Some(condition) = condition {
                let keep = or_null(self.eval_on(condition, element))?;
                if !is_true(&keep) {
                    continue;
                }
            }
            let result = or_null(self.eval_on(right, element))?;
            if !result.is_null() {
                results.push(result.into_owned());
            }
        }
        Ok(Cow::Owned(Value::List(List::from(results))))
    }

    /// A projection whose right side takes fields: what is not there is null and vanishes, so that no fault is made and
    /// thrown away for it. Projecting and evaluating took 29 % of the instructions of `containers[*].image`.
    fn project_path<'a>(&'a self, list: &List, right: NodeId, path: &[NodeId]) -> EvalOutcome<'a> {
        self.step(right, list.len() as u64 * path.len() as u64)?;
        let mut results = Vec::with_capacity(list.len());
        'elements: for element in list {
            let mut value = element;
            for id in path {
                let (JmesPathNode::Field(key), Value::Map(map)) = (self.tree.node(*id), value)
                else {
                    continue 'elements;
                };
                let Some(found) = map.get(key) else { continue 'elements };
                value = found;
            }
            if !value.is_null() {
                results.push(value.clone());
            }
        }
        Ok(Cow::Owned(Value::List(List::from(results))))
    }

    fn project_values<'a>(&'a self, map: &Value, right: NodeId) -> EvalOutcome<'a> {
        let Value::Map(map) = map else {
            return Ok(Cow::Borrowed(&NULL));
        };
        let mut results = Vec::with_capacity(map.len());
        // Kyverno: the list of values begins with as many nulls, on which the right side runs too.
        // Fields of null are null and vanish; functions show it: `*.type(@)`.
        if !map.is_empty() {
            let result = or_null(self.eval_on(right, &NULL))?;
            if !result.is_null() {
                self.step(right, map.len() as u64)?;
                results.resize(map.len(), result.into_owned());
            }
        }
        for (_, value) in sorted(map) {
            let result = or_null(self.eval_on(right, value))?;
            if !result.is_null() {
                results.push(result.into_owned());
            }
        }
        Ok(Cow::Owned(Value::List(List::from(results))))
    }

    fn flatten<'a>(&'a self, id: NodeId, list: Cow<'a, Value>) -> EvalOutcome<'a> {
        let Value::List(elements) = &*list else {
            return Ok(Cow::Borrowed(&NULL));
        };
        if !elements.iter().any(|element| matches!(element, Value::List(_))) {
            return Ok(list);
        }
        let count = |element: &Value| element.as_list().map_or(1, |inner| inner.len());
        let mut flat = Vec::with_capacity(elements.iter().map(count).sum());
        for element in elements {
            match element {
                Value::List(inner) => flat.extend(inner.iter().cloned()),
                other => flat.push(other.clone()),
            }
        }
        let steps = flat.len() as u64;
        self.meter.step(steps).map_err(|exhausted| self.exhausted(id, exhausted))?;
        Ok(Cow::Owned(Value::List(List::from(flat))))
    }

    fn call(
        &self,
        id: NodeId,
        call: &JmesPathCall,
        current: Current<'_>,
    ) -> Result<Value, EvalFault> {
        let mut arguments = Vec::with_capacity(call.arguments.len());
        for argument in &call.arguments {
            arguments.push(match self.tree.node(*argument) {
                JmesPathNode::Reference(part) => Argument::Reference(*part),
                _ => Argument::Value(self.eval_or_null(*argument, current)?),
            });
        }
        functions::call(self, id, call, &arguments)
    }
}

fn or_null(outcome: EvalOutcome<'_>) -> EvalOutcome<'_> {
    match outcome {
        Err(EvalFault::NotFound(..)) => Ok(Cow::Borrowed(&NULL)),
        other => other,
    }
}

fn field<'a>(id: NodeId, key: &str, value: &'a Value) -> EvalOutcome<'a> {
    find(id, key, value).map(Cow::Borrowed)
}

// Kyverno: only a map can lack a key; a field of anything else is null.
#[inline]
fn find<'a>(id: NodeId, key: &str, value: &'a Value) -> Result<&'a Value, EvalFault> {
    match value {
        Value::Map(map) => map.get(key).ok_or_else(|| EvalFault::NotFound(id, value.clone())),
        _ => Ok(&NULL),
    }
}

fn element(value: &Value, index: i64) -> Option<&Value> {
    let list = value.as_list()?;
    let at = if index < 0 { index.checked_add_unsigned(list.len() as u64)? } else { index };
    list.get(usize::try_from(at).ok()?)
}

/// A part of a value, borrowed if the value is.
fn part<'a>(value: Cow<'a, Value>, find: impl Fn(&Value) -> Option<&Value>) -> Cow<'a, Value> {
    match value {
        Cow::Borrowed(value) => Cow::Borrowed(find(value).unwrap_or(&NULL)),
        Cow::Owned(value) => Cow::Owned(find(&value).cloned().unwrap_or_default()),
    }
}

/// The positions that a slice takes, as Python defines it.
fn positions(slice: Slice, step: i64, length: usize) -> impl Iterator<Item = usize> {
    let length = length as i64;
    let (lowest, highest) = if step < 0 { (-1, length - 1) } else { (0, length) };
    let bound = |given: Option<i64>, missing: i64| match given {
        None => missing,
        Some(at) if at < 0 => at.saturating_add(length).max(lowest),
        Some(at) => at.min(highest),
    };
    let start = bound(slice.start, if step < 0 { highest } else { 0 });
    let stop = bound(slice.stop, if step < 0 { -1 } else { length });
    let mut at = start;
    std::iter::from_fn(move || {
        let inside = if step < 0 { at > stop } else { at < stop };
        let here = usize::try_from(at).ok().filter(|_| inside)?;
        at = at.saturating_add(step);
        Some(here)
    })
}

/// The entries of a map by key. Kyverno: the order is that of Go maps, random; ours is stable.
pub(crate) fn sorted(map: &Map) -> Vec<(&Key, &Value)> {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    entries
}

/// Null, false and everything empty are false; every number is true.
pub(crate) fn is_true(value: &Value) -> bool {
    match value {
        Value::Null => false,
        Value::Bool(b) => *b,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        Value::List(list) => !list.is_empty(),
        Value::Map(map) => !map.is_empty(),
    }
}
