//! The compiled form: nodes in one vector, spans beside them, and what is known before a search.
//!
//! Nodes refer to each other by index, so that a tree of any shape is dropped without recursion.
//! Operators that associate to the left (`.`, `|`, `||`, `&&`) keep their operands in one list: a
//! path of a thousand fields is one node, not a thousand levels.

use std::ops::Range;

use kiln_value::{Key, Value};

use crate::functions::{CachedRegex, JmesPathFunction};

/// The index of a node in its tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NodeId(u32);

#[derive(Debug)]
pub(crate) enum JmesPathNode {
    /// `@`, and the empty right side of a projection.
    Current,
    /// A field of a map.
    Field(Key),
    /// An element of a list; negative from the end.
    Index(i64),
    /// Elements of a list.
    Slice(Slice),
    /// A fixed value, with its weight in bytes.
    Literal(Value, u64),
    /// Each part on the result of the one before: `a.b[0]`.
    Chain(Vec<NodeId>),
    /// Like a chain, but a missing key between stages is null: `a | b`.
    Pipe(Vec<NodeId>),
    /// The first true part, else the last.
    Or(Vec<NodeId>),
    /// The first false part, else the last.
    And(Vec<NodeId>),
    /// Whether the part is false.
    Not(NodeId),
    /// A comparison.
    Compare(Comparison, NodeId, NodeId),
    /// `[a, b]`
    MultiList(Vec<NodeId>),
    /// `{k: a}`
    MultiMap { parts: Vec<(Key, NodeId)>, unique: bool },
    /// `left[*]` and then `right` on each element.
    Projection { left: NodeId, right: NodeId },
    /// `left.*` and then `right` on each value.
    ValueProjection { left: NodeId, right: NodeId },
    /// `left[?condition]` and then `right` on each element that is left.
    Filter { left: NodeId, condition: NodeId, right: NodeId },
    /// `left[]`: lists in the list are spread out, one level.
    Flatten(NodeId),
    /// A function call.
    Call(JmesPathCall),
    /// `&part`, for functions that evaluate it themselves.
    Reference(NodeId),
}

/// The numbers of `[start:stop:step]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Slice {
    pub(crate) start: Option<i64>,
    pub(crate) stop: Option<i64>,
    pub(crate) step: Option<i64>,
}

/// A function call.
#[derive(Debug)]
pub(crate) struct JmesPathCall {
    /// The name as written; unknown ones fail when they are called.
    pub(crate) name: Key,
    pub(crate) function: Option<&'static JmesPathFunction>,
    pub(crate) arguments: Vec<NodeId>,
    /// For functions whose first argument is a regular expression.
    pub(crate) pattern: CachedRegex,
}

/// A comparison operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    pub(crate) fn symbol(self) -> &'static str {
        match self {
            Comparison::Equal => "==",
            Comparison::NotEqual => "!=",
            Comparison::Less => "<",
            Comparison::LessOrEqual => "<=",
            Comparison::Greater => ">",
            Comparison::GreaterOrEqual => ">=",
        }
    }
}

/// What is known about a node before any search. It keeps results finite: values share their
/// parts, so a short expression could otherwise describe an astronomic or bottomless one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measure {
    /// How many levels of the tree are below, itself included.
    pub(crate) height: usize,
    /// How many levels deeper than its input the result may be.
    pub(crate) growth: usize,
    /// How deep the result may be on account of literals alone.
    pub(crate) depth: usize,
    /// How often the result may hold the same part of the input.
    pub(crate) copies: u64,
}

impl Measure {
    pub(crate) const LEAF: Measure = Measure { height: 1, growth: 0, depth: 0, copies: 1 };

    /// This one's result fed into another.
    fn then(self, next: Measure) -> Measure {
        Measure {
            height: self.height.max(next.height),
            growth: self.growth + next.growth,
            depth: next.depth.max(self.depth + next.growth),
            copies: self.copies.saturating_mul(next.copies),
        }
    }

    /// Either this one's result or the other's.
    fn or(self, other: Measure) -> Measure {
        Measure {
            height: self.height.max(other.height),
            growth: self.growth.max(other.growth),
            depth: self.depth.max(other.depth),
            copies: self.copies.max(other.copies),
        }
    }

    /// Both results side by side.
    fn and(self, other: Measure) -> Measure {
        Measure { copies: self.copies.saturating_add(other.copies), ..self.or(other) }
    }

    /// In a new list or map.
    fn wrapped(self, levels: usize) -> Measure {
        Measure { growth: self.growth + levels, depth: self.depth + levels, ..self }
    }

    fn raised(self) -> Measure {
        Measure { height: self.height + 1, ..self }
    }
}

/// A compiled expression.
#[derive(Debug, Default)]
pub(crate) struct Tree {
    nodes: Vec<JmesPathNode>,
    spans: Vec<(u32, u32)>,
    measures: Vec<Measure>,
}

impl Tree {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    pub(crate) fn node(&self, id: NodeId) -> &JmesPathNode {
        &self.nodes[id.0 as usize]
    }

    pub(crate) fn span(&self, id: NodeId) -> Range<usize> {
        let (start, end) = self.spans[id.0 as usize];
        start as usize..end as usize
    }

    pub(crate) fn measure(&self, id: NodeId) -> Measure {
        self.measures[id.0 as usize]
    }

    pub(crate) fn calls(&self) -> impl Iterator<Item = (NodeId, &JmesPathCall)> {
        (0u32..).map(NodeId).zip(&self.nodes).filter_map(|(id, node)| match node {
            JmesPathNode::Call(call) => Some((id, call)),
            _ => None,
        })
    }

    /// Adds a node. Spans fit `u32` because the compiler refuses sources that are too long.
    pub(crate) fn push(&mut self, node: JmesPathNode, span: Range<usize>) -> NodeId {
        let measure = self.measure_of(&node);
        self.nodes.push(node);
        self.spans.push((span.start as u32, span.end as u32));
        self.measures.push(measure);
        NodeId(self.nodes.len() as u32 - 1)
    }

    /// Adds an operand to an operator that keeps its operands in one list.
    pub(crate) fn join(
        &mut self,
        operator: fn(Vec<NodeId>) -> JmesPathNode,
        left: NodeId,
        right: NodeId,
    ) -> NodeId {
        let span = self.span(left).start..self.span(right).end;
        let kind = std::mem::discriminant(&operator(Vec::new()));
        let more = match &mut self.nodes[right.0 as usize] {
            // `a.(b.c)` is `a.b.c`, and a right side such as `b[0]` is a chain of its own.
            JmesPathNode::Chain(steps)
                if kind == std::mem::discriminant(&JmesPathNode::Chain(Vec::new())) =>
            {
                std::mem::take(steps)
            }
            _ => vec![right],
        };
        let same = std::mem::discriminant(&self.nodes[left.0 as usize]) == kind;
        match &mut self.nodes[left.0 as usize] {
            JmesPathNode::Chain(parts)
            | JmesPathNode::Pipe(parts)
            | JmesPathNode::Or(parts)
            | JmesPathNode::And(parts)
                if same =>
            {
                parts.extend(&more);
                let (before, after) = (self.measure(left), self.measure(right));
                let joined = match &self.nodes[left.0 as usize] {
                    JmesPathNode::Chain(_) | JmesPathNode::Pipe(_) => before.then(after),
                    _ => before.or(after),
                };
                let height = before.height.max(after.height + 1);
                self.measures[left.0 as usize] = Measure { height, ..joined };
                self.spans[left.0 as usize] = (span.start as u32, span.end as u32);
                left
            }
            _ => self.push(operator([vec![left], more].concat()), span),
        }
    }

    fn measure_of(&self, node: &JmesPathNode) -> Measure {
        let of = |id: &NodeId| self.measure(*id);
        match node {
            JmesPathNode::Current
            | JmesPathNode::Field(_)
            | JmesPathNode::Index(_)
            | JmesPathNode::Slice(_) => Measure::LEAF,
            JmesPathNode::Literal(value, _) => Measure { depth: depth(value), ..Measure::LEAF },
            JmesPathNode::Chain(parts) | JmesPathNode::Pipe(parts) => {
                parts.iter().map(of).reduce(Measure::then).unwrap_or(Measure::LEAF).raised()
            }
            JmesPathNode::Or(parts) | JmesPathNode::And(parts) => {
                parts.iter().map(of).reduce(Measure::or).unwrap_or(Measure::LEAF).raised()
            }
            JmesPathNode::Not(part) => Measure { height: of(part).height + 1, ..Measure::LEAF },
            JmesPathNode::Compare(_, left, right) => {
                Measure { height: of(left).height.max(of(right).height) + 1, ..Measure::LEAF }
            }
            JmesPathNode::MultiList(parts) => {
                let inside = parts.iter().map(of).reduce(Measure::and).unwrap_or(Measure::LEAF);
                inside.wrapped(1).raised()
            }
            JmesPathNode::MultiMap { parts, .. } => {
                let inside = parts.iter().map(|(_, part)| of(part)).reduce(Measure::and);
                inside.unwrap_or(Measure::LEAF).wrapped(1).raised()
            }
            JmesPathNode::Projection { left, right }
            | JmesPathNode::ValueProjection { left, right } => {
                let each = of(right);
                // Literals on the right side end up inside the list.
                let each = Measure { depth: each.depth + 1, ..each };
                of(left).then(each).raised()
            }
            JmesPathNode::Filter { left, condition, right } => {
                let each = of(right);
                let each = Measure { depth: each.depth + 1, ..each };
                let all = of(left).then(each);
                Measure { height: all.height.max(of(condition).height), ..all }.raised()
            }
            JmesPathNode::Flatten(left) => of(left).raised(),
            JmesPathNode::Call(call) => {
                let inside = call.arguments.iter().map(of).reduce(|a, b| Measure {
                    // `map(&f, list)`: the results of one argument go through another.
                    growth: a.growth + b.growth,
                    depth: a.depth + b.depth,
                    copies: a.copies.saturating_mul(b.copies).max(a.and(b).copies),
                    height: a.height.max(b.height),
                });
                let levels = call.function.map_or(0, |function| function.levels);
                inside.unwrap_or(Measure::LEAF).wrapped(levels).raised()
            }
            JmesPathNode::Reference(part) => of(part).raised(),
        }
    }

    /// The fields that are read from the top of the context downwards, each path as far as it is plain; elements of lists
    /// are passed over.
    pub(crate) fn paths(&self, top: NodeId) -> Vec<Vec<&Key>> {
        let mut paths = Vec::new();
        let mut open = vec![top];
        while let Some(id) = open.pop() {
            match self.node(id) {
                JmesPathNode::Field(name) => paths.push(vec![name]),
                JmesPathNode::Chain(parts) => {
                    let parts = parts
                        .iter()
                        .skip_while(|p| matches!(self.node(**p), JmesPathNode::Current));
                    let mut path = Vec::new();
                    for part in parts {
                        match self.node(*part) {
                            JmesPathNode::Field(name) => path.push(name),
                            JmesPathNode::Index(_) | JmesPathNode::Slice(_) if !path.is_empty() => {
                            }
                            _ => {
                                if path.is_empty() {
                                    open.push(*part);
                                }
                                break;
                            }
                        }
                    }
                    if !path.is_empty() {
                        paths.push(path);
                    }
                }
                JmesPathNode::Pipe(parts) => open.extend(parts.first()),
                JmesPathNode::Or(parts)
                | JmesPathNode::And(parts)
                | JmesPathNode::MultiList(parts) => {
                    open.extend(parts.iter().rev());
                }
                JmesPathNode::MultiMap { parts, .. } => {
                    open.extend(parts.iter().rev().map(|(_, part)| part));
                }
                JmesPathNode::Compare(_, left, right) => open.extend([right, left]),
                JmesPathNode::Call(call) => open.extend(call.arguments.iter().rev()),
                JmesPathNode::Not(part)
                | JmesPathNode::Flatten(part)
                | JmesPathNode::Projection { left: part, .. }
                | JmesPathNode::ValueProjection { left: part, .. }
                | JmesPathNode::Filter { left: part, .. } => open.push(*part),
                JmesPathNode::Current
                | JmesPathNode::Index(_)
                | JmesPathNode::Slice(_)
                | JmesPathNode::Literal(..)
                | JmesPathNode::Reference(_) => {}
            }
        }
        paths
    }

    /// The names that are looked up at the top of the context, and whether `@` itself is.
    pub(crate) fn roots(&self, top: NodeId) -> (Vec<&Key>, bool) {
        let mut names: Vec<&Key> = Vec::new();
        let mut whole = false;
        let mut open = vec![top];
        while let Some(id) = open.pop() {
            match self.node(id) {
                JmesPathNode::Field(name) => {
                    if !names.contains(&name) {
                        names.push(name);
                    }
                }
                JmesPathNode::Current | JmesPathNode::Index(_) | JmesPathNode::Slice(_) => {
                    whole = true;
                }
                JmesPathNode::Literal(..) | JmesPathNode::Reference(_) => {}
                JmesPathNode::Chain(parts) | JmesPathNode::Pipe(parts) => {
                    // `@.a` is `a`.
                    let start =
                        parts.iter().find(|p| !matches!(self.node(**p), JmesPathNode::Current));
                    open.extend(start.or(parts.first()));
                }
                JmesPathNode::Or(parts)
                | JmesPathNode::And(parts)
                | JmesPathNode::MultiList(parts) => {
                    open.extend(parts.iter().rev());
                }
                JmesPathNode::MultiMap { parts, .. } => {
                    open.extend(parts.iter().rev().map(|(_, part)| part));
                }
                JmesPathNode::Compare(_, left, right) => open.extend([right, left]),
                JmesPathNode::Call(call) => open.extend(call.arguments.iter().rev()),
                JmesPathNode::Not(part)
                | JmesPathNode::Flatten(part)
                | JmesPathNode::Projection { left: part, .. }
                | JmesPathNode::ValueProjection { left: part, .. }
                | JmesPathNode::Filter { left: part, .. } => open.push(*part),
            }
        }
        (names, whole)
    }
}

/// How many lists and maps a value nests.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::List(list) => 1 + list.iter().map(depth).max().unwrap_or(0),
        Value::Map(map) => 1 + map.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
