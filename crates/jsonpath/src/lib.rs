//! KubeMod's JSONPath: paths, filters and the expressions around them.
//!
//! An [`Expression`] is compiled once and evaluated many times, within [`JsonPathLimits`]. A key that a map does not have gives
//! [`Item::Undefined`], which equals nothing; a step that makes no sense (a key below a text, an index beyond a list) is an
//! error, which a filter takes for no.
//!
//! KubeMod: order over maps is by key here, where the original has none.
//!
//! | module | holds |
//! |---|---|
//! | `scan`, `parse`, `tree` | text to a tree with byte positions |
//! | `item` | what expressions compute with |
//! | `eval`, `path` | evaluation, and the following of paths |
//! | `cost` | what an expression can cost, before it runs |
//! | `placeholder` | captured keys in the path of a patch |
//!
//! ```
//! use kiln_jsonpath::{Expression, Item, JsonPathLimits};
//! use kiln_value::value;
//! let pod = value!({"spec": {"containers": [{"name": "a", "image": "nginx"}, {"name": "b"}]}});
//! let names = Expression::compile(r#"$.spec.containers[? @.image =~ "^nginx"].name"#).unwrap();
//! assert_eq!(names.evaluate(&pod, &JsonPathLimits::default()).unwrap(), Item::Value(value!(["a"])));
//!
//! let containers = Expression::compile("$.spec.containers[*]").unwrap();
//! let selected = containers.select(&pod, &JsonPathLimits::default()).unwrap();
//! assert_eq!(selected[1].keys, ["1"]);
//! ```

mod cost;
mod error;
mod eval;
mod item;
mod parse;
mod path;
mod placeholder;
mod scan;
mod tree;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;

use kiln_value::{Str, Value};

pub use error::{Error, ErrorKind};
pub use item::Item;
pub use placeholder::{NoSuchKey, fill_placeholders};

use tree::{JsonPathFunction, JsonPathNode, JsonPathOperator, NodeKind, PathStepKind};

/// The functions of the language: each as it is called, and what it gives.
pub fn functions() -> impl Iterator<Item = (String, &'static str)> {
    JsonPathFunction::ALL
        .iter()
        .map(|(name, function)| (format!("{name}(value)"), function.about()))
}

/// How much an expression may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JsonPathLimits {
    /// The longest source, in bytes.
    pub source: usize,
    /// How deep brackets and operators may nest; a chain of operators is as deep as it is long.
    pub depth: usize,
    /// How many steps one evaluation may take. A step is about one node of the tree on one value.
    pub steps: u64,
}

impl Default for JsonPathLimits {
    fn default() -> Self {
        JsonPathLimits { source: 1 << 16, depth: 200, steps: 1_000_000 }
    }
}

/// A compiled expression. Cloning copies a pointer.
#[derive(Clone)]
pub struct Expression(Arc<CompiledPath>);

struct CompiledPath {
    source: String,
    tree: JsonPathNode,
}

/// One place that a path selects.
#[derive(Clone, Debug, PartialEq)]
pub struct Selection {
    /// The keys that the path took where it had a choice: one for each `*`, filter, slice or list of keys, and one for
    /// each level that `..` went down.
    pub keys: Vec<Str>,
    /// What is wrong.
    pub item: Item,
}

impl Expression {
    /// Compiles an expression.
    ///
    /// # Errors
    /// When the text is not an expression, or is too long or nests too deep.
    pub fn compile(source: &str) -> Result<Expression, Error> {
        Expression::compile_within(source, &JsonPathLimits::default())
    }

    /// Compiles an expression within limits of its own.
    ///
    /// # Errors
    /// As [`Expression::compile`].
    pub fn compile_within(source: &str, limits: &JsonPathLimits) -> Result<Expression, Error> {
        let tree = parse::parse(source, limits)?;
        Ok(Expression(Arc::new(CompiledPath { source: source.to_owned(), tree })))
    }

    /// The text it was compiled from.
    pub fn source(&self) -> &str {
        &self.0.source
    }

    /// Whether it is a path and nothing else, so that it selects places.
    pub fn is_path(&self) -> bool {
        matches!(self.0.tree.kind, NodeKind::Path(_))
    }

    /// The members that the expression follows down from the root, where that is all it does: what such a path cannot
    /// follow is not there. Without names that a list would take for an index.
    pub fn members(&self) -> Option<Vec<Str>> {
        cost::members(&self.0.tree)
    }

    /// At most so many steps does an evaluation take for each value of the root and each 16 bytes of its texts, if
    /// there is such a number.
    pub fn steps_per_value(&self) -> Option<u64> {
        // No part of the expression is looked at more than once for each value, and has at least one byte. A comparison
        // and a regular expression look at a text besides, which counts as much again.
        cost::is_linear(&self.0.tree).then(|| 8 * (1 + self.0.source.len() as u64))
    }

    /// The paths that are compared by `!=` although nothing asks whether they are there, as written: such a comparison
    /// holds where the path is undefined.
    pub fn unguarded_inequalities(&self) -> Vec<&str> {
        let mut found = Inequalities::default();
        found.collect(&self.0.tree);
        let text = |span: &std::ops::Range<usize>| self.0.source[span.clone()].trim();
        let asked: Vec<&str> = found.asked.iter().map(text).collect();
        let unequal = found.unequal.iter().map(text);
        unequal.filter(|path| !asked.contains(path)).collect()
    }

    /// The value of the expression for a root.
    ///
    /// # Errors
    /// When a step or an operator makes no sense for a value, or the budget is used up.
    pub fn evaluate(&self, root: &Value, limits: &JsonPathLimits) -> Result<Item, Error> {
        let eval = eval::Eval { root, steps: Cell::new(limits.steps), limit: limits.steps };
        eval.node(&self.0.tree, None)
    }

    /// The places that a path selects, in the order of the document; each once.
    ///
    /// # Errors
    /// When the expression is not a path, or the budget is used up.
    pub fn select(&self, root: &Value, limits: &JsonPathLimits) -> Result<Vec<Selection>, Error> {
        let NodeKind::Path(path) = &self.0.tree.kind else {
            let span = self.0.tree.span.clone();
            let message = "a path that begins with `$` is wanted here, not an expression";
            return Err(Error::new(ErrorKind::Evaluation, span, message));
        };
        let eval = eval::Eval { root, steps: Cell::new(limits.steps), limit: limits.steps };
        let mut selected: Vec<Selection> = Vec::new();
        let mut seen = std::collections::HashSet::new();
        for path::FoundItem { keys, item } in eval.matches(path, None)? {
            let keys: Vec<Str> = keys.iter().flat_map(path::Captured::parts).cloned().collect();
            if seen.insert(keys.clone()) {
                selected.push(Selection { keys, item });
            }
        }
        Ok(selected)
    }
}

/// Paths that are compared by `!=`, and those that a caller asks for.
#[derive(Default)]
struct Inequalities {
    unequal: Vec<std::ops::Range<usize>>,
    asked: Vec<std::ops::Range<usize>>,
}

impl Inequalities {
    fn collect(&mut self, node: &JsonPathNode) {
        match &node.kind {
            NodeKind::Constant(_) => {}
            NodeKind::Path(path) => path.steps.iter().for_each(|step| match &step.kind {
                PathStepKind::Filter(inner)
                | PathStepKind::Script(inner)
                | PathStepKind::Key(inner) => {
                    self.collect(inner);
                }
                PathStepKind::Keys(keys) => keys.iter().for_each(|key| self.collect(key)),
                _ => {}
            }),
            NodeKind::Name(keys, arguments) => {
                keys.iter().chain(arguments.iter().flatten()).for_each(|node| self.collect(node));
            }
            NodeKind::Call(function, arguments) => {
                if matches!(function, JsonPathFunction::IsDefined | JsonPathFunction::IsUndefined) {
                    self.asked.extend(arguments.iter().map(|argument| argument.span.clone()));
                }
                arguments.iter().for_each(|argument| self.collect(argument));
            }
            NodeKind::Prefix(_, inner) => self.collect(inner),
            NodeKind::Infix(operator, left, right) => {
                if *operator == JsonPathOperator::NotEqual {
                    for side in [left, right] {
                        let plain =
                            matches!(&side.kind, NodeKind::Path(path) if !path.steps.is_empty());
                        self.unequal.extend(plain.then(|| side.span.clone()));
                    }
                }
                self.collect(left);
                self.collect(right);
            }
            NodeKind::Match(left, right, ..) => {
                self.collect(left);
                self.collect(right);
            }
            NodeKind::If(condition, yes, no) => {
                [condition, yes, no].into_iter().for_each(|node| self.collect(node));
            }
            NodeKind::List(nodes) => nodes.iter().for_each(|node| self.collect(node)),
            NodeKind::Object(entries) => entries.iter().for_each(|(_, node)| self.collect(node)),
        }
    }
}

impl fmt::Debug for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Expression").field(&self.0.source).finish()
    }
}

impl fmt::Display for Expression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.source)
    }
}
