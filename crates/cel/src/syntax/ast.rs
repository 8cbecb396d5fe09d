//! The tree of an expression, as a flat list of nodes.
//!
//! Nodes refer to each other by index, so that a tree as deep as an operator chain is long can be
//! built, walked along its left edge and dropped without recursion.

use std::sync::Arc;

use kiln_value::Str;

use crate::Span;

/// The index of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ExprId(pub(crate) u32);

impl ExprId {
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// A whole expression.
#[derive(Debug)]
pub(crate) struct Ast {
    pub(crate) exprs: Vec<Expr>,
    pub(crate) root: ExprId,
}

#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: ExprKind,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum ExprKind {
    Literal(Literal),
    /// A name; `absolute` ones begin with a dot and are never local variables.
    Ident {
        name: Str,
        absolute: bool,
    },
    /// `operand.field`, or `operand.?field`.
    Select {
        operand: ExprId,
        field: Str,
        optional: bool,
    },
    /// `has(operand.field)`.
    Has {
        operand: ExprId,
        field: Str,
    },
    /// `operand[index]`, or `operand[?index]`.
    Index {
        operand: ExprId,
        index: ExprId,
        optional: bool,
    },
    Call {
        target: Option<ExprId>,
        function: Str,
        args: Vec<ExprId>,
    },
    Unary {
        op: UnaryOp,
        operand: ExprId,
    },
    Binary {
        op: BinaryOp,
        left: ExprId,
        right: ExprId,
    },
    /// `a && b && …` or `a || b || …`, flat however long.
    Logic {
        op: LogicOp,
        terms: Vec<ExprId>,
    },
    Ternary {
        condition: ExprId,
        yes: ExprId,
        no: ExprId,
    },
    List(Vec<Element>),
    Map(Vec<MapEntry>),
    Struct {
        name: Str,
        fields: Vec<MessageField>,
    },
    /// A macro that walks a list or a map.
    Loop(Box<Loop>),
    /// `cel.bind` (one slot) or `cel.block`: named values, each computed when first used.
    Bind {
        slots: Vec<(Str, ExprId)>,
        body: ExprId,
    },
    /// `target.optMap(variable, body)` or `target.optFlatMap(variable, body)`.
    OptMap {
        target: ExprId,
        variable: Str,
        body: ExprId,
        flat: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Literal {
    Null,
    Bool(bool),
    Int(i64),
    UInt(u64),
    Double(f64),
    String(Str),
    Bytes(Arc<[u8]>),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Element {
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct MapEntry {
    pub(crate) key: ExprId,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct MessageField {
    pub(crate) name: Str,
    pub(crate) value: ExprId,
    pub(crate) optional: bool,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Loop {
    pub(crate) kind: LoopKind,
    pub(crate) range: ExprId,
    /// The variables: the element (lists) or key (maps), or both index and element.
    pub(crate) first: Str,
    pub(crate) second: Option<Str>,
    pub(crate) filter: Option<ExprId>,
    pub(crate) body: ExprId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// Both `map` and `transformList`.
    Map,
    Filter,
    TransformMap,
    TransformMapEntry,
    SortBy,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum UnaryOp {
    Not,
    Negate,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    In,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogicOp {
    And,
    Or,
}

impl UnaryOp {
    /// The name under which the operator is declared, and which messages show.
    pub(crate) fn function(self) -> &'static str {
        match self {
            UnaryOp::Not => "!_",
            UnaryOp::Negate => "-_",
        }
    }
}

impl BinaryOp {
    /// The name under which the operator is declared, and which messages show.
    pub(crate) fn function(self) -> &'static str {
        match self {
            BinaryOp::Add => "_+_",
            BinaryOp::Subtract => "_-_",
            BinaryOp::Multiply => "_*_",
            BinaryOp::Divide => "_/_",
            BinaryOp::Modulo => "_%_",
            BinaryOp::Equal => "_==_",
            BinaryOp::NotEqual => "_!=_",
            BinaryOp::Less => "_<_",
            BinaryOp::LessEqual => "_<=_",
            BinaryOp::Greater => "_>_",
            BinaryOp::GreaterEqual => "_>=_",
            BinaryOp::In => "@in",
        }
    }
}

impl LogicOp {
    /// The name which messages show.
    pub(crate) fn function(self) -> &'static str {
        match self {
            LogicOp::And => "_&&_",
            LogicOp::Or => "_||_",
        }
    }
}

impl Ast {
    pub(crate) fn expr(&self, id: ExprId) -> &Expr {
        &self.exprs[id.index()]
    }

    pub(crate) fn kind(&self, id: ExprId) -> &ExprKind {
        &self.expr(id).kind
    }

    pub(crate) fn span(&self, id: ExprId) -> Span {
        self.expr(id).span
    }

    /// The child at the left edge, along which operator chains and selections grow.
    pub(crate) fn left_edge(&self, id: ExprId) -> Option<ExprId> {
        match self.kind(id) {
            ExprKind::Binary { left, .. } => Some(*left),
            ExprKind::Select { operand, .. }
            | ExprKind::Has { operand, .. }
            | ExprKind::Index { operand, .. } => Some(*operand),
            ExprKind::Call { target, .. } => *target,
            ExprKind::Loop(it) => Some(it.range),
            ExprKind::OptMap { target, .. } => Some(*target),
            _ => None,
        }
    }

    /// `a.b.c` as one dotted name, if the node is nothing but names and plain selections.
    pub(crate) fn qualified_name(&self, id: ExprId) -> Option<QualifiedName> {
        let mut fields = Vec::<&str>::new();
        let mut at = id;
        loop {
            match self.kind(at) {
                ExprKind::Ident { name, absolute } => {
                    let mut text = name.to_string();
                    for field in fields.iter().rev() {
                        text.push('.');
                        text.push_str(field);
                    }
                    return Some(QualifiedName { root: name.clone(), text, absolute: *absolute });
                }
                // A name longer than this is data, not a declared name.
                ExprKind::Select { operand, field, optional: false } if fields.len() < 32 => {
                    fields.push(field.as_str());
                    at = *operand;
                }
                _ => return None,
            }
        }
    }
}

/// A dotted name with its first part.
pub(crate) struct QualifiedName {
    pub(crate) root: Str,
    pub(crate) text: String,
    pub(crate) absolute: bool,
}
