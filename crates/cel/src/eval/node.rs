//! The form in which expressions run.

use std::sync::Arc;

use kiln_text::Regex;
use kiln_value::Str;

use crate::env::{Env, Overload};
use crate::error::EvalError;
use crate::syntax::ast::{BinaryOp, LogicOp, LoopKind, UnaryOp};
use crate::{Span, Type, Val, VariableUse};

/// A compiled expression. Cloning copies a pointer.
#[derive(Clone)]
pub struct Program(pub(crate) Arc<CompiledProgram>);

pub(crate) struct CompiledProgram {
    pub(crate) env: Env,
    pub(crate) source: Arc<str>,
    pub(crate) result: Type,
    pub(crate) root: ExprNode,
    /// How many local variables it has.
    pub(crate) locals: usize,
    /// Expressions of named values, by the local slot that keeps the value.
    pub(crate) lazies: Vec<Option<Lazy>>,
    /// How deep evaluation recurses.
    pub(crate) height: u32,
    /// Whether it runs as in Kubernetes, see [`Dialect`](crate::syntax::Dialect).
    pub(crate) kubernetes: bool,
}

pub(crate) struct Lazy {
    pub(crate) node: ExprNode,
    pub(crate) height: u32,
}

impl Program {
    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// The type of its value.
    pub fn result_type(&self) -> &Type {
        &self.0.result
    }

    /// The environment it was compiled in.
    pub fn env(&self) -> &Env {
        &self.0.env
    }

    /// What it takes of a variable.
    pub fn uses(&self, variable: &str) -> VariableUse {
        self.env().uses(self.source(), variable)
    }
}

impl std::fmt::Debug for Program {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Program({:?}: {})", self.0.source, self.0.result)
    }
}

/// A part of an expression.
pub(crate) enum ExprNode {
    Const(Val),
    /// A variable of the environment, and plain fields below it.
    Variable(u32, Box<[Str]>, Span),
    /// A local variable, and plain fields below it.
    Local(u32, Box<[Str]>, Span),
    /// A named value, computed when first used.
    Lazy(u32),
    Chain(Box<Chain>),
    Unary(Box<(UnaryOp, ExprNode, Span)>),
    Logic(LogicOp, Box<[ExprNode]>),
    Ternary(Box<[ExprNode; 3]>, Span),
    List(Box<[Item]>),
    Map(Box<[(ExprNode, Item)]>, Span),
    Struct(Box<(Str, Vec<(Str, Item)>)>),
    Call(Box<CallNode>),
    /// Forgets the slots of named values, then goes on.
    Bind(Box<(Vec<u32>, ExprNode)>),
    /// A mistake that the unchecked form of an expression carries to its run.
    Fail(Box<EvalError>),
}

/// An element of a literal; an optional one is left out when it is empty.
pub(crate) struct Item {
    pub(crate) node: ExprNode,
    pub(crate) optional: bool,
}

/// A value and what is done with it, from left to right.
pub(crate) struct Chain {
    pub(crate) base: ExprNode,
    pub(crate) steps: Vec<(ChainStep, Span)>,
}

pub(crate) enum ChainStep {
    Binary(BinaryOp, ExprNode),
    Field(Str),
    OptionalField(Str),
    Has(Str),
    Index(ExprNode),
    OptionalIndex(ExprNode),
    Call(Box<CallNode>),
    /// What stands in for an empty optional, looked at only then: `or`, or with true `orValue`.
    Or(ExprNode, bool),
    /// `matches` with a fixed pattern.
    Matches(Box<Regex>),
    Loop(Box<Loop>),
    OptMap(Box<OptMap>),
}

/// A function call; for receiver calls the receiver is not among the arguments.
pub(crate) struct CallNode {
    pub(crate) function: Str,
    /// Overloads that may fit; all of one group when the choice is clear.
    pub(crate) overloads: Vec<Overload>,
    pub(crate) args: Vec<ExprNode>,
    pub(crate) span: Span,
}

pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) first: u32,
    pub(crate) second: Option<u32>,
    pub(crate) filter: Option<ExprNode>,
    pub(crate) body: ExprNode,
}

pub(crate) struct OptMap {
    pub(crate) variable: u32,
    pub(crate) body: ExprNode,
    pub(crate) flat: bool,
}
