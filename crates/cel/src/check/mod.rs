//! The type checker: what each name and call refers to, and the type of the whole.
//!
//! It goes along the left edge of the tree in a loop and recurses only into nested parts, whose
//! depth the parser has limited.

mod literals;
mod loops;
mod unify;

use rustc_hash::FxHashMap;

use kiln_value::Str;

use self::unify::Unifier;
use crate::env::{Declarations, Named, Overload, StructKind, VariablePlace};
use crate::error::{CompileError, Issue};
use crate::syntax::ast::{Ast, Element, ExprId, ExprKind, Literal, MapEntry, MessageField};
use crate::{Span, Type, Val};

/// What to do about type errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Report them.
    Strict,
    /// Leave them to the evaluator.
    Lenient,
}

/// What a check found out.
pub(crate) struct Checked {
    pub(crate) result: Type,
    /// By expression: what names and calls refer to.
    pub(crate) references: Vec<Reference>,
}

/// What a name or call refers to.
#[derive(Clone)]
pub(crate) enum Reference {
    /// Nothing that was looked up (a local variable, a literal, …), or nothing that exists.
    None,
    /// The variable in this slot.
    Variable(u32),
    /// A fixed value: a type name or a constant of the environment.
    Constant(Val),
    /// A function: its overloads that may fit, and whether the target is only a namespace.
    Call { overloads: Vec<Overload>, namespaced: bool },
}

/// Types deeper than this become dyn: no policy needs them, and walking them must stay cheap.
const DEEPEST_TYPE: usize = 48;

pub(crate) fn check(
    env: &Declarations,
    ast: &Ast,
    source: &str,
    mode: Mode,
) -> Result<Checked, CompileError> {
    let unifier = Unifier::new(env.nullable_aggregates);
    let mut checker = Checker {
        env,
        ast,
        mode,
        unifier,
        types: vec![Type::Dyn; ast.exprs.len()],
        references: vec![Reference::None; ast.exprs.len()],
        scopes: Vec::new(),
        formats: 0,
        issues: Vec::new(),
    };
    checker.check(ast.root);
    if mode == Mode::Strict && checker.issues.is_empty() {
        checker.check_literals();
    }
    if mode == Mode::Strict && !checker.issues.is_empty() {
        return Err(CompileError::new(source, checker.issues));
    }
    let result = checker.unifier.resolve(checker.ty(ast.root), true);
    Ok(Checked { result, references: checker.references })
}

struct Checker<'c> {
    env: &'c Declarations,
    ast: &'c Ast,
    mode: Mode,
    unifier: Unifier,
    types: Vec<Type>,
    references: Vec<Reference>,
    /// Local variables, inner ones last.
    scopes: Vec<(Str, Type)>,
    /// How many calls of `format` are around; what is formatted may be of mixed types.
    formats: usize,
    issues: Vec<Issue>,
}

impl Checker<'_> {
    fn ty(&self, id: ExprId) -> &Type {
        &self.types[id.index()]
    }

    /// The type with everything put in that is known so far.
    fn known(&self, id: ExprId) -> Type {
        self.unifier.resolve(self.ty(id), false)
    }

    fn set(&mut self, id: ExprId, ty: Type) {
        let ty = if ty.nests_deeper_than(DEEPEST_TYPE) { Type::Dyn } else { ty };
        self.types[id.index()] = ty;
    }

    fn refer(&mut self, id: ExprId, reference: Reference) {
        self.references[id.index()] = reference;
    }

    fn issue(&mut self, message: String, span: Span) -> Type {
        self.issues.push(Issue::new(message, span));
        match self.mode {
            Mode::Strict => Type::Error,
            Mode::Lenient => Type::Dyn,
        }
    }

    fn local(&self, name: &str) -> Option<&Type> {
        self.scopes.iter().rev().find(|(known, _)| known == name).map(|(_, ty)| ty)
    }

    fn check(&mut self, id: ExprId) {
        let mut edge = vec![id];
        while let Some(next) = self.step_left(edge[edge.len() - 1]) {
            edge.push(next);
        }
        while let Some(id) = edge.pop() {
            let ty = self.infer(id);
            self.set(id, ty);
        }
    }

    /// The operand to check before this node, unless the node as a whole is a declared name.
    fn step_left(&mut self, id: ExprId) -> Option<ExprId> {
        match self.ast.kind(id) {
            ExprKind::Select { .. } if self.resolve_qualified(id) => None,
            ExprKind::Call { target: Some(target), function, .. } => {
                if self.namespaced(*target, function).is_some() {
                    return None;
                }
                Some(*target)
            }
            ExprKind::Has { operand, field } if self.tests_policy_variable(*operand, field) => None,
            _ => self.ast.left_edge(id),
        }
    }

    fn tests_policy_variable(&self, operand: ExprId, field: &str) -> bool {
        matches!(self.ast.kind(operand), ExprKind::Ident { name, .. } if name == "variables")
            && self.local("variables").is_none()
            && self.env.has_policy_variable(field)
    }

    /// Whether a selection such as `a.b.c` is one declared name; notes what it refers to.
    fn resolve_qualified(&mut self, id: ExprId) -> bool {
        let Some(name) = self.ast.qualified_name(id) else { return false };
        if !name.absolute && self.local(&name.root).is_some() {
            return false;
        }
        let Some(named) = self.env.name(&name.text, name.absolute) else { return false };
        let (ty, reference) = refer_to(&named);
        self.types[id.index()] = ty;
        self.refer(id, reference);
        true
    }

    /// The overloads of `target.function` read as one dotted name.
    fn namespaced(&self, target: ExprId, function: &str) -> Option<&[Overload]> {
        let name = self.ast.qualified_name(target)?;
        if !name.absolute && self.local(&name.root).is_some() {
            return None;
        }
        self.env.function(&format!("{}.{function}", name.text), name.absolute)
    }

    /// The type of a node whose left edge is done.
    fn infer(&mut self, id: ExprId) -> Type {
        let ast = self.ast;
        let span = ast.span(id);
        match ast.kind(id) {
            ExprKind::Literal(literal) => literal_type(literal),
            ExprKind::Ident { name, absolute } => self.ident(id, name, *absolute),
            ExprKind::Select { operand, field, optional } => {
                if !matches!(self.references[id.index()], Reference::None) {
                    return self.ty(id).clone();
                }
                self.select(*operand, field, *optional, span)
            }
            ExprKind::Has { operand, field } => {
                if !self.tests_policy_variable(*operand, field) {
                    self.select(*operand, field, false, span);
                }
                Type::Bool
            }
            ExprKind::Index { operand, index, optional } => {
                self.check(*index);
                let function = if *optional { "_[?_]" } else { "_[_]" };
                self.operator(id, function, &[*operand, *index])
            }
            ExprKind::Call { target, function, args } => self.call(id, *target, function, args),
            ExprKind::Unary { op, operand } => {
                self.check(*operand);
                self.operator(id, op.function(), &[*operand])
            }
            ExprKind::Binary { op, left, right } => {
                self.check(*right);
                self.operator(id, op.function(), &[*left, *right])
            }
            ExprKind::Logic { op, terms } => self.logic(op.function(), terms, span),
            ExprKind::Ternary { condition, yes, no } => {
                for part in [condition, yes, no] {
                    self.check(*part);
                }
                self.operator(id, "_?_:_", &[*condition, *yes, *no])
            }
            ExprKind::List(elements) => self.list(elements),
            ExprKind::Map(entries) => self.map(entries),
            ExprKind::Struct { name, fields } => self.structure(name, fields, span),
            ExprKind::Loop(it) => self.comprehension(it, span),
            ExprKind::Bind { slots, body } => {
                let outer = self.scopes.len();
                for (name, value) in slots {
                    self.check(*value);
                    let ty = self.ty(*value).clone();
                    self.scopes.push((name.clone(), ty));
                }
                self.check(*body);
                self.scopes.truncate(outer);
                self.ty(*body).clone()
            }
            ExprKind::OptMap { target, variable, body, flat } => {
                self.opt_map(*target, variable, *body, *flat, span)
            }
        }
    }

    fn ident(&mut self, id: ExprId, name: &Str, absolute: bool) -> Type {
        if !absolute && let Some(ty) = self.local(name) {
            return ty.clone();
        }
        if let Some(named) = self.env.name(name, absolute) {
            let (ty, reference) = refer_to(&named);
            self.refer(id, reference);
            return ty;
        }
        self.undeclared(name, self.ast.span(id))
    }

    fn undeclared(&mut self, name: &str, span: Span) -> Type {
        let container = &self.env.container;
        self.issue(format!("undeclared reference to '{name}' (in container '{container}')"), span)
    }

    fn select(&mut self, operand: ExprId, field: &str, optional: bool, span: Span) -> Type {
        let operand = self.known(operand);
        let (inner, was_optional) = match operand.as_optional() {
            Some(inner) => (inner.clone(), true),
            None => (operand, false),
        };
        let ty = match &inner {
            Type::Dyn | Type::Error => Type::Dyn,
            Type::Map(entry) => entry.1.clone(),
            Type::Variable(_) => {
                self.unifier.assignable(&Type::Dyn, &inner);
                Type::Dyn
            }
            Type::Struct(name) => match self.env.message(name) {
                Some(StructKind::Open) => Type::Dyn,
                Some(StructKind::Closed(structure)) => match structure.fields.get(field) {
                    Some(ty) => ty.clone(),
                    None => return self.issue(format!("undefined field '{field}'"), span),
                },
                None => Type::Dyn,
            },
            other => {
                let message = format!("type '{other}' does not support field selection");
                return self.issue(message, span);
            }
        };
        if optional || was_optional { Type::optional(ty) } else { ty }
    }

    fn operator(&mut self, id: ExprId, function: &str, args: &[ExprId]) -> Type {
        let env = self.env;
        let overloads = env.function(function, true).unwrap_or_default();
        let (ty, _) = self.resolve(function, overloads, None, args, self.ast.span(id));
        ty
    }

    fn call(
        &mut self,
        id: ExprId,
        target: Option<ExprId>,
        function: &str,
        args: &[ExprId],
    ) -> Type {
        let formats = usize::from(function == "format");
        self.formats += formats;
        for arg in args {
            self.check(*arg);
        }
        self.formats -= formats;
        let span = self.ast.span(id);
        let env = self.env;
        let (overloads, namespaced) = match target {
            Some(target) => match self.namespaced(target, function) {
                Some(overloads) => (Some(overloads.to_vec()), true),
                None => (env.function(function, true).map(<[_]>::to_vec), false),
            },
            None => (env.function(function, false).map(<[_]>::to_vec), false),
        };
        let Some(overloads) = overloads else {
            return self.undeclared(function, span);
        };
        let qualified = target.filter(|_| namespaced).and_then(|it| self.ast.qualified_name(it));
        let shown = qualified.map_or_else(
            || function.to_owned(),
            |namespace| format!("{}.{function}", namespace.text),
        );
        let target = target.filter(|_| !namespaced);
        let (ty, overloads) = self.resolve(&shown, &overloads, target, args, span);
        self.refer(id, Reference::Call { overloads, namespaced });
        ty
    }

    /// The overloads that fit, and the type they give: dyn, if they disagree.
    fn resolve(
        &mut self,
        function: &str,
        overloads: &[Overload],
        target: Option<ExprId>,
        args: &[ExprId],
        span: Span,
    ) -> (Type, Vec<Overload>) {
        let given: Vec<Type> = target.iter().chain(args).map(|arg| self.ty(*arg).clone()).collect();
        let callable: Vec<&Overload> = overloads
            .iter()
            .filter(|o| o.member == target.is_some() && o.params.len() == given.len())
            .collect();
        let mut result: Option<Type> = None;
        let mut fitting = Vec::new();
        for overload in &callable {
            let mut names = FxHashMap::default();
            let params: Vec<Type> = overload
                .params
                .iter()
                .map(|param| self.unifier.instantiate(param, &mut names))
                .collect();
            if !self.unifier.all_assignable(given.iter().zip(&params)) {
                continue;
            }
            let ty = self.unifier.instantiate(&overload.result, &mut names);
            let ty = self.unifier.resolve(&ty, false);
            result = match result {
                Some(previous) if previous != ty => Some(Type::Dyn),
                _ => Some(ty),
            };
            fitting.push((*overload).clone());
        }
        match result {
            Some(ty) => (ty, fitting),
            None => {
                let shown: Vec<String> =
                    given.iter().map(|ty| self.unifier.resolve(ty, true).to_string()).collect();
                let applied = match (target, shown.split_first()) {
                    (Some(_), Some((receiver, rest))) => {
                        format!("{receiver}.({})", rest.join(", "))
                    }
                    _ => format!("({})", shown.join(", ")),
                };
                let ty = self.issue(
                    format!("found no matching overload for '{function}' applied to '{applied}'"),
                    span,
                );
                (ty, callable.into_iter().cloned().collect())
            }
        }
    }

    fn logic(&mut self, function: &str, terms: &[ExprId], span: Span) -> Type {
        for term in terms {
            self.check(*term);
        }
        for term in terms {
            let ty = self.ty(*term).clone();
            if !self.unifier.assignable(&ty, &Type::Bool) {
                let (left, right) = match terms {
                    [left, right] => (self.known(*left), self.known(*right)),
                    _ => (Type::Bool, ty),
                };
                return self.mismatched_logic(function, &left, &right, span);
            }
        }
        Type::Bool
    }

    fn mismatched_logic(&mut self, function: &str, left: &Type, right: &Type, span: Span) -> Type {
        let message =
            format!("found no matching overload for '{function}' applied to '({left}, {right})'");
        self.issue(message, span)
    }

    fn list(&mut self, elements: &[Element]) -> Type {
        let mut joined = None;
        for element in elements {
            self.check(element.value);
            let ty = self.unwrapped(element.value, element.optional);
            joined = Some(self.join(joined, ty, self.ast.span(element.value)));
        }
        Type::list(joined.unwrap_or_else(|| self.unifier.fresh()))
    }

    fn map(&mut self, entries: &[MapEntry]) -> Type {
        let (mut keys, mut values) = (None, None);
        for entry in entries {
            self.check(entry.key);
            self.check(entry.value);
            let key = self.known(entry.key);
            keys = Some(self.join(keys, key, self.ast.span(entry.key)));
            let value = self.unwrapped(entry.value, entry.optional);
            values = Some(self.join(values, value, self.ast.span(entry.value)));
        }
        let key = match keys.unwrap_or_else(|| self.unifier.fresh()) {
            key @ (Type::Bool | Type::Int | Type::UInt | Type::String | Type::Variable(_)) => key,
            // Anything else fails when it runs, or is one of these after all.
            _ => Type::Dyn,
        };
        Type::map(key, values.unwrap_or_else(|| self.unifier.fresh()))
    }

    /// The type of an element; what is written with `?` must be an optional.
    fn unwrapped(&mut self, value: ExprId, optional: bool) -> Type {
        let ty = self.known(value);
        if !optional || ty.is_dyn() {
            return ty;
        }
        match ty.as_optional() {
            Some(inner) => inner.clone(),
            None => {
                let message = format!("expected type 'optional_type({ty})' but found '{ty}'");
                self.issue(message, self.ast.span(value))
            }
        }
    }

    fn join(&mut self, previous: Option<Type>, current: Type, span: Span) -> Type {
        let Some(previous) = previous else { return current };
        let mixed = self.env.homogeneous_literals
            && self.formats == 0
            && !literals::equivalent(
                &self.unifier.resolve(&previous, false),
                &self.unifier.resolve(&current, false),
            );
        match self.unifier.join(&previous, &current) {
            Some(joined) if !mixed => joined,
            _ if mixed => {
                let (wanted, found) =
                    (self.unifier.resolve(&previous, true), self.unifier.resolve(&current, true));
                self.issue(format!("expected type '{wanted}' but found '{found}'"), span)
            }
            _ => Type::Dyn,
        }
    }

    fn structure(&mut self, name: &Str, fields: &[MessageField], span: Span) -> Type {
        for field in fields {
            self.check(field.value);
        }
        let env = self.env;
        let Some(kind) = env.message(name) else { return self.undeclared(name, span) };
        for field in fields {
            let found = self.unwrapped(field.value, field.optional);
            let StructKind::Closed(structure) = kind else { continue };
            match structure.fields.get(&field.name) {
                None => {
                    self.issue(format!("undefined field '{}'", field.name), field.span);
                }
                Some(wanted) if !self.unifier.assignable(&found, wanted) => {
                    let (found, name) = (self.unifier.resolve(&found, true), &field.name);
                    let message = format!(
                        "expected type of field '{name}' is '{wanted}' but provided type is '{found}'"
                    );
                    self.issue(message, field.span);
                }
                Some(_) => {}
            }
        }
        Type::Struct(name.clone())
    }
}

fn literal_type(literal: &Literal) -> Type {
    match literal {
        Literal::Null => Type::Null,
        Literal::Bool(_) => Type::Bool,
        Literal::Int(_) => Type::Int,
        Literal::UInt(_) => Type::UInt,
        Literal::Double(_) => Type::Double,
        Literal::String(_) => Type::String,
        Literal::Bytes(_) => Type::Bytes,
    }
}

fn refer_to(named: &Named<'_>) -> (Type, Reference) {
    match named {
        Named::Variable(variable) => {
            let reference = match &variable.place {
                VariablePlace::Slot(slot) => Reference::Variable(*slot),
                VariablePlace::Constant(value) => Reference::Constant(value.clone()),
            };
            (variable.ty.clone(), reference)
        }
        Named::Type(ty) => {
            (Type::Type, Reference::Constant(Val::Type(Str::new(ty.runtime_name()))))
        }
    }
}
