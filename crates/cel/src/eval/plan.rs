//! From a checked tree to nodes.

use std::sync::Arc;

use kiln_text::Regex;
use kiln_value::Str;

use super::node::{
    CallNode, Chain, ChainStep, CompiledProgram, ExprNode, Item, Lazy, Loop, OptMap, Program,
};
use crate::check::{Checked, Reference};
use crate::env::Env;
use crate::error::failure;
use crate::syntax::ast::{Ast, ExprId, ExprKind, Literal};
use crate::value::{CelList, MapBuilder, MapKey};
use crate::{Span, Val};

impl Program {
    pub(crate) fn plan(env: Env, source: &str, ast: &Ast, checked: &Checked) -> Self {
        let mut planner = Planner {
            env: &env,
            ast,
            references: &checked.references,
            scopes: Vec::new(),
            lazies: Vec::new(),
            depth: 0,
            height: 0,
        };
        let root = planner.plan(ast.root);
        let Planner { lazies, height, .. } = planner;
        Program(Arc::new(CompiledProgram {
            source: source.into(),
            result: checked.result.clone(),
            root,
            locals: lazies.len(),
            lazies,
            height,
            kubernetes: env.declarations().dialect.kubernetes,
            env,
        }))
    }
}

struct Planner<'p> {
    env: &'p Env,
    ast: &'p Ast,
    references: &'p [Reference],
    /// Local variables with their slots, inner ones last.
    scopes: Vec<(Str, u32)>,
    /// One entry per slot; loop variables have no expression.
    lazies: Vec<Option<Lazy>>,
    depth: u32,
    height: u32,
}

impl Planner<'_> {
    fn slot(&mut self) -> u32 {
        self.lazies.push(None);
        u32::try_from(self.lazies.len() - 1).unwrap_or(u32::MAX)
    }

    fn local(&self, name: &str) -> Option<u32> {
        self.scopes.iter().rev().find(|(known, _)| known == name).map(|(_, slot)| *slot)
    }

    fn reference(&self, id: ExprId) -> &Reference {
        &self.references[id.index()]
    }

    fn plan(&mut self, id: ExprId) -> ExprNode {
        self.depth += 1;
        self.height = self.height.max(self.depth);
        let mut edge = vec![id];
        while let Some(next) = self.step_left(edge[edge.len() - 1]) {
            edge.push(next);
        }
        let mut node = match edge.pop() {
            Some(base) => self.base(base),
            None => ExprNode::Const(Val::Null),
        };
        let mut steps = Vec::new();
        while let Some(id) = edge.pop() {
            let (step, span) = self.step(id);
            node = match extend(node, &step, span, steps.is_empty()) {
                Ok(longer) => longer,
                Err(same) => {
                    steps.push((step, span));
                    same
                }
            };
        }
        self.depth -= 1;
        if steps.is_empty() { node } else { ExprNode::Chain(Box::new(Chain { base: node, steps })) }
    }

    /// The operand that a step works on, unless the node stands for itself.
    fn step_left(&self, id: ExprId) -> Option<ExprId> {
        match self.reference(id) {
            Reference::Variable(_)
            | Reference::Constant(_)
            | Reference::Call { namespaced: true, .. } => return None,
            Reference::None | Reference::Call { .. } => {}
        }
        if let ExprKind::Has { operand, field } = self.ast.kind(id)
            && self.tests_policy_variable(*operand, field)
        {
            return None;
        }
        self.ast.left_edge(id)
    }

    fn tests_policy_variable(&self, operand: ExprId, field: &str) -> bool {
        matches!(self.ast.kind(operand), ExprKind::Ident { name, .. } if name == "variables")
            && self.local("variables").is_none()
            && self.env.declarations().has_policy_variable(field)
    }

    fn base(&mut self, id: ExprId) -> ExprNode {
        let span = self.ast.span(id);
        let ast = self.ast;
        match self.reference(id) {
            Reference::Variable(slot) => return ExprNode::Variable(*slot, Box::from([]), span),
            Reference::Constant(value) => return ExprNode::Const(value.clone()),
            _ => {}
        }
        match ast.kind(id) {
            ExprKind::Literal(literal) => ExprNode::Const(literal_value(literal)),
            ExprKind::Ident { name, absolute } => match self.local(name).filter(|_| !absolute) {
                Some(slot) if self.lazies[slot as usize].is_some() => ExprNode::Lazy(slot),
                Some(slot) => ExprNode::Local(slot, Box::from([]), span),
                None => fail(format!("no such attribute(s): {name}"), span),
            },
            ExprKind::Call { function, args, .. } => self.call(id, function, args),
            ExprKind::Unary { op, operand } => {
                ExprNode::Unary(Box::new((*op, self.plan(*operand), span)))
            }
            ExprKind::Logic { op, terms } => {
                ExprNode::Logic(*op, terms.iter().map(|term| self.plan(*term)).collect())
            }
            ExprKind::Ternary { condition, yes, no } => {
                let parts = [self.plan(*condition), self.plan(*yes), self.plan(*no)];
                ExprNode::Ternary(Box::new(parts), span)
            }
            ExprKind::List(elements) => {
                let items: Box<[Item]> =
                    elements.iter().map(|e| self.item(e.value, e.optional)).collect();
                constant_list(&items).map_or_else(|| ExprNode::List(items), ExprNode::Const)
            }
            ExprKind::Map(entries) => {
                let entries: Box<[(ExprNode, Item)]> = entries
                    .iter()
                    .map(|e| (self.plan(e.key), self.item(e.value, e.optional)))
                    .collect();
                constant_map(&entries).map_or_else(|| ExprNode::Map(entries, span), ExprNode::Const)
            }
            ExprKind::Struct { name, fields } => {
                if self.env.declarations().message(name).is_none() {
                    return fail(format!("unknown type: {name}"), span);
                }
                let fields = fields
                    .iter()
                    .map(|f| (f.name.clone(), self.item(f.value, f.optional)))
                    .collect();
                ExprNode::Struct(Box::new((name.clone(), fields)))
            }
            ExprKind::Bind { slots, body } => self.bind(slots, *body),
            // `has(variables.x)`: the check has made sure that it exists.
            ExprKind::Has { .. } => ExprNode::Const(Val::Bool(true)),
            ExprKind::Select { .. }
            | ExprKind::Index { .. }
            | ExprKind::Binary { .. }
            | ExprKind::Loop(_)
            | ExprKind::OptMap { .. } => fail("not a value".to_owned(), span),
        }
    }

    fn item(&mut self, value: ExprId, optional: bool) -> Item {
        Item { node: self.plan(value), optional }
    }

    fn bind(&mut self, slots: &[(Str, ExprId)], body: ExprId) -> ExprNode {
        let outer = self.scopes.len();
        let mut numbers = Vec::with_capacity(slots.len());
        for (name, value) in slots {
            let slot = self.slot();
            // A named value runs wherever it is first used, so its depth is counted on its own.
            let (depth, height) = (self.depth, self.height);
            (self.depth, self.height) = (0, 0);
            let node = self.plan(*value);
            let lazy = Lazy { node, height: self.height };
            (self.depth, self.height) = (depth, height);
            self.lazies[slot as usize] = Some(lazy);
            self.scopes.push((name.clone(), slot));
            numbers.push(slot);
        }
        let body = self.plan(body);
        self.scopes.truncate(outer);
        ExprNode::Bind(Box::new((numbers, body)))
    }

    fn call(&mut self, id: ExprId, function: &Str, args: &[ExprId]) -> ExprNode {
        let span = self.ast.span(id);
        let Reference::Call { overloads, .. } = self.reference(id).clone() else {
            return fail(format!("no such overload: {function}"), span);
        };
        // `dyn` matters to the checker only.
        if let ("dyn", [arg]) = (function.as_str(), args) {
            return self.plan(*arg);
        }
        let args = args.iter().map(|arg| self.plan(*arg)).collect();
        ExprNode::Call(Box::new(CallNode { function: function.clone(), overloads, args, span }))
    }

    fn step(&mut self, id: ExprId) -> (ChainStep, Span) {
        let span = self.ast.span(id);
        let ast = self.ast;
        let step = match ast.kind(id) {
            ExprKind::Binary { op, right, .. } => ChainStep::Binary(*op, self.plan(*right)),
            ExprKind::Select { field, optional: false, .. } => ChainStep::Field(field.clone()),
            ExprKind::Select { field, .. } => ChainStep::OptionalField(field.clone()),
            ExprKind::Has { field, .. } => ChainStep::Has(field.clone()),
            ExprKind::Index { index, optional: false, .. } => ChainStep::Index(self.plan(*index)),
            ExprKind::Index { index, .. } => ChainStep::OptionalIndex(self.plan(*index)),
            ExprKind::Loop(it) => {
                let outer = self.scopes.len();
                let first = self.slot();
                self.scopes.push((it.first.clone(), first));
                let second = it.second.as_ref().map(|name| {
                    let slot = self.slot();
                    self.scopes.push((name.clone(), slot));
                    slot
                });
                let filter = it.filter.map(|filter| self.plan(filter));
                let body = self.plan(it.body);
                self.scopes.truncate(outer);
                ChainStep::Loop(Box::new(Loop { kind: it.kind, first, second, filter, body }))
            }
            ExprKind::OptMap { variable, body, flat, .. } => {
                let slot = self.slot();
                self.scopes.push((variable.clone(), slot));
                let body = self.plan(*body);
                self.scopes.pop();
                ChainStep::OptMap(Box::new(OptMap { variable: slot, body, flat: *flat }))
            }
            ExprKind::Call { function, args, .. } => {
                let overloads = match self.reference(id) {
                    Reference::Call { overloads, .. } => overloads.clone(),
                    _ => Vec::new(),
                };
                if let ("or" | "orValue", [other]) = (function.as_str(), args.as_slice()) {
                    return (ChainStep::Or(self.plan(*other), function == "orValue"), span);
                }
                let args: Vec<ExprNode> = args.iter().map(|arg| self.plan(*arg)).collect();
                match fixed_pattern(function, &args) {
                    Some(regex) => ChainStep::Matches(Box::new(regex)),
                    None => ChainStep::Call(Box::new(CallNode {
                        function: function.clone(),
                        overloads,
                        args,
                        span,
                    })),
                }
            }
            _ => ChainStep::Has(Str::default()),
        };
        (step, span)
    }
}

/// Paths are copied while they grow; what is longer goes on as steps.
const LONGEST_PATH: usize = 16;

/// A plain field, or a fixed string in brackets, lengthens a variable's path.
fn extend(node: ExprNode, step: &ChainStep, span: Span, first: bool) -> Result<ExprNode, ExprNode> {
    let field = match step {
        ChainStep::Field(field) if first => field,
        ChainStep::Index(ExprNode::Const(Val::String(key))) if first => key,
        _ => return Err(node),
    };
    let longer = |fields: Box<[Str]>| {
        let mut fields = fields.into_vec();
        fields.push(field.clone());
        fields.into_boxed_slice()
    };
    match node {
        ExprNode::Variable(slot, fields, start) if fields.len() < LONGEST_PATH => {
            Ok(ExprNode::Variable(slot, longer(fields), start.to(span)))
        }
        ExprNode::Local(slot, fields, start) if fields.len() < LONGEST_PATH => {
            Ok(ExprNode::Local(slot, longer(fields), start.to(span)))
        }
        node => Err(node),
    }
}

fn fixed_pattern(function: &str, args: &[ExprNode]) -> Option<Regex> {
    match (function, args) {
        ("matches", [ExprNode::Const(Val::String(pattern))]) => Regex::new(pattern).ok(),
        _ => None,
    }
}

fn constant_list(items: &[Item]) -> Option<Val> {
    let elements = items.iter().map(|item| match &item.node {
        ExprNode::Const(value) if !item.optional => Some(value.clone()),
        _ => None,
    });
    CelList::new(elements.collect::<Option<_>>()?).ok().map(Val::List)
}

fn constant_map(entries: &[(ExprNode, Item)]) -> Option<Val> {
    let mut map = MapBuilder::with_capacity(entries.len());
    for (key, item) in entries {
        match (key, &item.node) {
            (ExprNode::Const(key), ExprNode::Const(value)) if !item.optional => {
                map.insert(MapKey::from_val(key).ok()?, value.clone()).ok()?;
            }
            _ => return None,
        }
    }
    map.finish().ok()
}

fn literal_value(literal: &Literal) -> Val {
    match literal {
        Literal::Null => Val::Null,
        Literal::Bool(b) => Val::Bool(*b),
        Literal::Int(i) => Val::Int(*i),
        Literal::UInt(u) => Val::UInt(*u),
        Literal::Double(x) => Val::Double(*x),
        Literal::String(text) => Val::String(text.clone()),
        Literal::Bytes(bytes) => Val::Bytes(bytes.clone()),
    }
}

fn fail(message: String, span: Span) -> ExprNode {
    ExprNode::Fail(failure(message).at(span))
}
