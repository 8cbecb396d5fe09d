//! The tree of an expression, for programs that translate it.

use kiln_value::Value;

use crate::tree::{JmesPathNode, NodeId, Tree};

/// A part of an expression. Operators that associate to the left keep their operands in one list.
#[derive(Clone, Debug, PartialEq)]
pub enum Syntax {
    /// `@`, and the empty right side of a projection.
    Current,
    Field(String),
    /// An element of a list; negative from the end.
    Index(i64),
    /// `[start:stop:step]`
    Slice {
        start: Option<i64>,
        stop: Option<i64>,
        step: Option<i64>,
    },
    Literal(Value),
    /// Each part on the result of the one before: `a.b[0]`.
    Chain(Vec<Syntax>),
    /// Like a chain, but a missing key between stages is null: `a | b`.
    Pipe(Vec<Syntax>),
    Or(Vec<Syntax>),
    And(Vec<Syntax>),
    Not(Box<Syntax>),
    /// A comparison with its operator, such as `==`.
    Compare(&'static str, Box<Syntax>, Box<Syntax>),
    /// `[a, b]`
    MultiList(Vec<Syntax>),
    /// `{k: a}`
    MultiMap(Vec<(String, Syntax)>),
    /// `left[*]` and then `right` on each element.
    Projection {
        left: Box<Syntax>,
        right: Box<Syntax>,
    },
    /// `left.*` and then `right` on each value.
    ValueProjection {
        left: Box<Syntax>,
        right: Box<Syntax>,
    },
    /// `left[?condition]` and then `right` on each element that is left.
    Filter {
        left: Box<Syntax>,
        condition: Box<Syntax>,
        right: Box<Syntax>,
    },
    /// `left[]`: lists in the list are spread out, one level.
    Flatten(Box<Syntax>),
    Call {
        name: String,
        arguments: Vec<Syntax>,
    },
    /// `&part`, for functions that evaluate it themselves.
    Reference(Box<Syntax>),
}

/// The depth is bounded by the compiler.
pub(crate) fn syntax(tree: &Tree, id: NodeId) -> Syntax {
    let of = |id: &NodeId| syntax(tree, *id);
    let boxed = |id: &NodeId| Box::new(syntax(tree, *id));
    let all = |ids: &[NodeId]| ids.iter().map(of).collect::<Vec<_>>();
    match tree.node(id) {
        JmesPathNode::Current => Syntax::Current,
        JmesPathNode::Field(name) => Syntax::Field(name.to_string()),
        JmesPathNode::Index(at) => Syntax::Index(*at),
        JmesPathNode::Slice(slice) => {
            Syntax::Slice { start: slice.start, stop: slice.stop, step: slice.step }
        }
        JmesPathNode::Literal(value, _) => Syntax::Literal(value.clone()),
        JmesPathNode::Chain(parts) => Syntax::Chain(all(parts)),
        JmesPathNode::Pipe(parts) => Syntax::Pipe(all(parts)),
        JmesPathNode::Or(parts) => Syntax::Or(all(parts)),
        JmesPathNode::And(parts) => Syntax::And(all(parts)),
        JmesPathNode::Not(part) => Syntax::Not(boxed(part)),
        JmesPathNode::Compare(comparison, left, right) => {
            Syntax::Compare(comparison.symbol(), boxed(left), boxed(right))
        }
        JmesPathNode::MultiList(parts) => Syntax::MultiList(all(parts)),
        JmesPathNode::MultiMap { parts, .. } => {
            Syntax::MultiMap(parts.iter().map(|(key, part)| (key.to_string(), of(part))).collect())
        }
        JmesPathNode::Projection { left, right } => {
            Syntax::Projection { left: boxed(left), right: boxed(right) }
        }
        JmesPathNode::ValueProjection { left, right } => {
            Syntax::ValueProjection { left: boxed(left), right: boxed(right) }
        }
        JmesPathNode::Filter { left, condition, right } => {
            Syntax::Filter { left: boxed(left), condition: boxed(condition), right: boxed(right) }
        }
        JmesPathNode::Flatten(part) => Syntax::Flatten(boxed(part)),
        JmesPathNode::Call(call) => {
            Syntax::Call { name: call.name.to_string(), arguments: all(&call.arguments) }
        }
        JmesPathNode::Reference(part) => Syntax::Reference(boxed(part)),
    }
}
