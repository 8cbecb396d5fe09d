//! Walking nodes.

use kiln_value::Str;

use super::access;
use super::node::{CallNode, Chain, ChainStep, CompiledProgram, ExprNode, Item};
use super::session::Session;
use crate::env::Overload;
use crate::error::{EvalFailure, failure, no_such_overload};
use crate::syntax::ast::{LogicOp, UnaryOp};
use crate::value::{MapBuilder, MapKey, MapPart, deeper};
use crate::{Span, Val};

/// One program under way.
pub(super) struct EvalRun<'r, 'h> {
    pub(super) session: &'r mut Session<'h>,
    pub(super) program: &'r CompiledProgram,
    pub(super) locals: Vec<Local>,
}

/// The state of a local variable.
#[derive(Clone)]
pub(super) enum Local {
    Unset,
    Value(Val),
    Failed(EvalFailure),
}

pub(super) type EvalResult = Result<Val, EvalFailure>;

/// Steps of a chain, each with where it was written.
type Steps<'c> = &'c [(ChainStep, Span)];

impl<'r, 'h> EvalRun<'r, 'h> {
    pub(super) fn new(session: &'r mut Session<'h>, program: &'r CompiledProgram) -> Self {
        EvalRun { session, program, locals: vec![Local::Unset; program.locals] }
    }

    pub(super) fn charge(&mut self, units: u64) -> Result<(), EvalFailure> {
        self.session.context.meter.charge(units)
    }

    pub(super) fn eval(&mut self, node: &ExprNode) -> EvalResult {
        match node {
            ExprNode::Const(value) => Ok(value.clone()),
            ExprNode::Variable(slot, fields, span) => {
                self.charge(1 + fields.len() as u64)?;
                let value = self.session.variable(*slot)?;
                access::path(value, fields).map_err(|error| error.at(*span))
            }
            ExprNode::Local(slot, fields, span) => {
                self.charge(1 + fields.len() as u64)?;
                match &self.locals[*slot as usize] {
                    Local::Value(value) => {
                        access::path(value, fields).map_err(|error| error.at(*span))
                    }
                    _ => Err(failure("a loop variable is used outside of its loop")),
                }
            }
            ExprNode::Lazy(slot) => self.lazy(*slot),
            ExprNode::Chain(chain) => self.chain(chain),
            ExprNode::Unary(unary) => self.unary(unary.0, &unary.1, unary.2),
            ExprNode::Logic(op, terms) => self.logic(*op, terms),
            ExprNode::Ternary(parts, span) => self.ternary(parts, *span),
            ExprNode::List(items) => self.list(items),
            ExprNode::Map(entries, span) => self.map(entries).map_err(|error| error.at(*span)),
            ExprNode::Struct(structure) => self.structure(&structure.0, &structure.1),
            ExprNode::Call(call) => self.call(None, call),
            ExprNode::Bind(bind) => {
                for slot in &bind.0 {
                    self.locals[*slot as usize] = Local::Unset;
                }
                self.eval(&bind.1)
            }
            ExprNode::Fail(error) => Err(error.clone()),
        }
    }

    #[inline(never)]
    fn lazy(&mut self, slot: u32) -> EvalResult {
        self.charge(1)?;
        match &self.locals[slot as usize] {
            Local::Value(value) => return Ok(value.clone()),
            Local::Failed(error) => return Err(error.clone()),
            Local::Unset => {}
        }
        let program = self.program;
        let Some(Some(lazy)) = program.lazies.get(slot as usize) else {
            return Err(failure("a named value without an expression"));
        };
        self.session.descend(lazy.height)?;
        let outcome = self.eval(&lazy.node);
        self.session.ascend(lazy.height);
        self.locals[slot as usize] = match &outcome {
            Ok(value) => Local::Value(value.clone()),
            Err(error) => Local::Failed(error.clone()),
        };
        outcome
    }

    #[inline(never)]
    fn chain(&mut self, chain: &Chain) -> EvalResult {
        let mut value = self.eval(&chain.base)?;
        let mut steps = chain.steps.as_slice();
        while let [(step, span), rest @ ..] = steps {
            if let ChainStep::OptionalField(_) = step {
                (value, steps) = self.optional_path(&value, steps)?;
                continue;
            }
            value = self.step(value, step).map_err(|error| error.at(*span))?;
            steps = rest;
        }
        Ok(value)
    }

    /// `value.?first.?second`, and `orValue` behind it: what is on the way is neither copied nor put into an optional of
    /// its own, which would be an allocation for each field. Gives the steps that are left.
    fn optional_path<'c>(
        &mut self,
        value: &Val,
        steps: Steps<'c>,
    ) -> Result<(Val, Steps<'c>), EvalFailure> {
        let mut part = match value {
            Val::Optional(None) => None,
            Val::Optional(Some(nested)) => Some(MapPart::Val(&nested.value)),
            value => Some(MapPart::Val(value)),
        };
        let mut rest = steps;
        while let [(ChainStep::OptionalField(name), span), after @ ..] = rest {
            rest = after;
            self.charge(1).map_err(|error| error.at(*span))?;
            let Some(whole) = part else { continue };
            part = access::optional_part(whole, name).map_err(|error| error.at(*span))?;
            if let Some(MapPart::Val(found)) = part {
                deeper(found.depth()).map_err(|error| error.at(*span))?;
            }
        }
        match (part, rest) {
            (Some(part), [(ChainStep::Or(_, true), span), after @ ..]) => {
                self.charge(1).map_err(|error| error.at(*span))?;
                Ok((part.to_val(), after))
            }
            (Some(part), _) => Ok((Val::some(part.to_val())?, rest)),
            (None, _) => Ok((Val::none(), rest)),
        }
    }

    fn step(&mut self, value: Val, step: &ChainStep) -> EvalResult {
        match step {
            ChainStep::Binary(op, right) => {
                // A fixed operand is used where it is.
                if let ExprNode::Const(right) = right {
                    return super::operators::binary(*op, &value, right, &mut self.session.context);
                }
                let right = self.eval(right)?;
                super::operators::binary(*op, &value, &right, &mut self.session.context)
            }
            ChainStep::Field(field) => {
                self.charge(1)?;
                if !self.program.kubernetes {
                    access::refuse_plain(&value)?;
                }
                access::select(&value, field)
            }
            ChainStep::OptionalField(field) => {
                self.charge(1)?;
                access::select_optional(&value, field)
            }
            ChainStep::Has(field) => {
                self.charge(1)?;
                access::has(&value, field).map(Val::Bool)
            }
            ChainStep::Index(index) => {
                self.charge(1)?;
                if !self.program.kubernetes {
                    access::refuse_plain(&value)?;
                }
                let index = self.eval(index)?;
                access::index(&value, &index)
            }
            ChainStep::OptionalIndex(index) => {
                self.charge(1)?;
                let index = self.eval(index)?;
                access::index_optional(&value, &index)
            }
            ChainStep::Call(call) => self.call(Some(value), call),
            ChainStep::Or(other, unwrapped) => self.or(value, other, *unwrapped),
            ChainStep::Matches(regex) => {
                let Val::String(text) = &value else { return Err(no_such_overload()) };
                crate::library::standard::charge_regex(
                    &mut self.session.context.meter,
                    text,
                    regex.as_str(),
                )?;
                Ok(Val::Bool(regex.is_match(text)))
            }
            ChainStep::Loop(it) => self.comprehension(&value, it),
            ChainStep::OptMap(it) => self.opt_map(&value, it),
        }
    }

    #[inline(never)]
    fn or(&mut self, value: Val, other: &ExprNode, unwrapped: bool) -> EvalResult {
        self.charge(1)?;
        match value {
            Val::Optional(Some(nested)) if unwrapped => Ok(nested.value.clone()),
            Val::Optional(Some(_)) => Ok(value),
            Val::Optional(None) => match self.eval(other)? {
                Val::Optional(other) => Ok(Val::Optional(other)),
                other if unwrapped => Ok(other),
                _ => Err(no_such_overload()),
            },
            _ => Err(no_such_overload()),
        }
    }

    #[inline(never)]
    fn unary(&mut self, op: UnaryOp, operand: &ExprNode, span: Span) -> EvalResult {
        let value = self.eval(operand)?;
        self.charge(1)?;
        let result = match (op, &value) {
            (UnaryOp::Not, Val::Bool(b)) => Ok(Val::Bool(!b)),
            (UnaryOp::Negate, Val::Int(i)) => {
                i.checked_neg().map(Val::Int).ok_or_else(|| failure("integer overflow"))
            }
            (UnaryOp::Negate, Val::Double(x)) => Ok(Val::Double(-x)),
            (UnaryOp::Negate, Val::Duration(d)) => {
                d.checked_neg().map(Val::Duration).ok_or_else(|| failure("duration overflow"))
            }
            _ => Err(no_such_overload()),
        };
        result.map_err(|error| error.at(span))
    }

    /// `&&` and `||`: the first term that decides ends it; otherwise the first error counts.
    #[inline(never)]
    fn logic(&mut self, op: LogicOp, terms: &[ExprNode]) -> EvalResult {
        let decisive = op == LogicOp::Or;
        let mut problem = None;
        for term in terms {
            match self.eval(term) {
                Ok(Val::Bool(b)) if b == decisive => return Ok(Val::Bool(b)),
                Ok(Val::Bool(_)) => {}
                Ok(_) => {
                    problem.get_or_insert_with(no_such_overload);
                }
                Err(error) if error.is_absorbable() => {
                    problem.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
        }
        problem.map_or(Ok(Val::Bool(!decisive)), Err)
    }

    #[inline(never)]
    fn ternary(&mut self, parts: &[ExprNode; 3], span: Span) -> EvalResult {
        match self.eval(&parts[0])? {
            Val::Bool(true) => self.eval(&parts[1]),
            Val::Bool(false) => self.eval(&parts[2]),
            _ => Err(no_such_overload().at(span)),
        }
    }

    #[inline(never)]
    fn list(&mut self, items: &[Item]) -> EvalResult {
        // Kubernetes: a new list costs 10, a new map 30, a new message 40.
        self.charge(10)?;
        let mut elements = Vec::with_capacity(items.len());
        for item in items {
            if let Some(value) = self.item(item)? {
                elements.push(value);
            }
        }
        Val::list(elements)
    }

    /// The value of an item, unless it is an empty optional to be left out.
    fn item(&mut self, item: &Item) -> Result<Option<Val>, EvalFailure> {
        let value = self.eval(&item.node)?;
        if !item.optional {
            return Ok(Some(value));
        }
        match value {
            Val::Optional(held) => Ok(held.map(|nested| nested.value.clone())),
            _ => Err(failure("cannot initialize optional entry from a value that is not optional")),
        }
    }

    #[inline(never)]
    fn map(&mut self, entries: &[(ExprNode, Item)]) -> EvalResult {
        self.charge(30)?;
        let mut map = MapBuilder::with_capacity(entries.len());
        for (key, item) in entries {
            let key = MapKey::from_val(&self.eval(key)?)?;
            if let Some(value) = self.item(item)? {
                map.insert(key, value)?;
            }
        }
        map.finish()
    }

    #[inline(never)]
    fn structure(&mut self, name: &Str, fields: &[(Str, Item)]) -> EvalResult {
        self.charge(40)?;
        let mut values = Vec::with_capacity(fields.len());
        for (field, item) in fields {
            if let Some(value) = self.item(item)? {
                values.push((field.clone(), value));
            }
        }
        Val::message(name.clone(), values)
    }

    #[inline(never)]
    pub(super) fn call(&mut self, receiver: Option<Val>, call: &CallNode) -> EvalResult {
        let start = self.session.arguments.len();
        let outcome = self.call_with(receiver, call, start);
        self.session.arguments.truncate(start);
        outcome.map_err(|error| error.at(call.span))
    }

    fn call_with(&mut self, receiver: Option<Val>, call: &CallNode, start: usize) -> EvalResult {
        self.session.arguments.extend(receiver);
        for arg in &call.args {
            let value = self.eval(arg)?;
            self.session.arguments.push(value);
        }
        self.charge(1)?;
        let args = &self.session.arguments[start..];
        match choose(&call.overloads, args) {
            Some(overload) => (overload.run)(&mut self.session.context, args),
            None if call.overloads.is_empty() => {
                Err(failure(format!("no such overload: {}", call.function)))
            }
            None => Err(no_such_overload()),
        }
    }
}

/// The overload to run: the only one there is, or the first that fits the values.
fn choose<'o>(overloads: &'o [Overload], args: &[Val]) -> Option<&'o Overload> {
    let (first, rest) = overloads.split_first()?;
    if rest.iter().all(|other| other.group == first.group) {
        return Some(first);
    }
    overloads.iter().find(|overload| {
        overload.params.len() == args.len()
            && overload.params.iter().zip(args).all(|(ty, value)| value.has_type(ty))
    })
}
