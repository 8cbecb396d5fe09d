//! The tree as text: one node per line, its parts indented below it.
//!
//! The words are those of the JMESPath specification. The depth is bounded by the compiler.

use std::fmt::Write;

use kiln_value::json;

use crate::tree::{JmesPathNode, NodeId, Tree};

pub(crate) fn print(tree: &Tree, top: NodeId) -> String {
    let mut text = String::new();
    Printer { tree, text: &mut text }.node(top, 0, "");
    text
}

struct Printer<'p> {
    tree: &'p Tree,
    text: &'p mut String,
}

impl Printer<'_> {
    fn line(&mut self, level: usize, role: &str, what: &str) {
        let colon = if role.is_empty() { "" } else { ": " };
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{:indent$}{role}{colon}{what}", "", indent = level * 2);
    }

    fn all(&mut self, parts: &[NodeId], level: usize) {
        for part in parts {
            self.node(*part, level, "");
        }
    }

    fn node(&mut self, id: NodeId, level: usize, role: &str) {
        match self.tree.node(id) {
            JmesPathNode::Current => self.line(level, role, "current"),
            JmesPathNode::Field(key) => {
                self.line(level, role, &format!("field {:?}", key.as_str()));
            }
            JmesPathNode::Index(index) => self.line(level, role, &format!("index {index}")),
            JmesPathNode::Slice(slice) => {
                let number = |n: Option<i64>| n.map(|n| n.to_string()).unwrap_or_default();
                let (start, stop) = (number(slice.start), number(slice.stop));
                let what = format!("slice {start}:{stop}:{}", number(slice.step));
                self.line(level, role, &what);
            }
            JmesPathNode::Literal(value, _) => {
                self.line(level, role, &format!("literal {}", json::to_string(value)));
            }
            JmesPathNode::Chain(parts) => {
                self.line(level, role, "subexpression");
                self.all(parts, level + 1);
            }
            JmesPathNode::Pipe(parts) => {
                self.line(level, role, "pipe");
                self.all(parts, level + 1);
            }
            JmesPathNode::Or(parts) => {
                self.line(level, role, "or");
                self.all(parts, level + 1);
            }
            JmesPathNode::And(parts) => {
                self.line(level, role, "and");
                self.all(parts, level + 1);
            }
            JmesPathNode::Not(part) => {
                self.line(level, role, "not");
                self.node(*part, level + 1, "");
            }
            JmesPathNode::Compare(comparison, left, right) => {
                self.line(level, role, &format!("comparator {}", comparison.symbol()));
                self.all(&[*left, *right], level + 1);
            }
            JmesPathNode::MultiList(parts) => {
                self.line(level, role, "multi-select list");
                self.all(parts, level + 1);
            }
            JmesPathNode::MultiMap { parts, .. } => {
                self.line(level, role, "multi-select hash");
                for (key, part) in parts {
                    self.node(*part, level + 1, &format!("{:?}", key.as_str()));
                }
            }
            JmesPathNode::Projection { left, right } => {
                self.line(level, role, "projection");
                self.node(*left, level + 1, "of");
                self.node(*right, level + 1, "each");
            }
            JmesPathNode::ValueProjection { left, right } => {
                self.line(level, role, "value projection");
                self.node(*left, level + 1, "of");
                self.node(*right, level + 1, "each");
            }
            JmesPathNode::Filter { left, condition, right } => {
                self.line(level, role, "filter projection");
                self.node(*left, level + 1, "of");
                self.node(*condition, level + 1, "where");
                self.node(*right, level + 1, "each");
            }
            JmesPathNode::Flatten(part) => {
                self.line(level, role, "flatten");
                self.node(*part, level + 1, "");
            }
            JmesPathNode::Call(call) => {
                self.line(level, role, &format!("function {}", call.name));
                self.all(&call.arguments, level + 1);
            }
            JmesPathNode::Reference(part) => {
                self.line(level, role, "expression reference");
                self.node(*part, level + 1, "");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::Expression;

    #[test]
    fn trees_read_from_the_outside_in() {
        let source = "a.b[?x > `1`].{n: name, l: length(@)} | sort_by(@, &n)[1:] || !'q'";
        let wanted = r#"pipe
  filter projection
    of: subexpression
      field "a"
      field "b"
    where: comparator >
      field "x"
      literal 1
    each: multi-select hash
      "n": field "name"
      "l": function length
        current
  or
    projection
      of: subexpression
        function sort_by
          current
          expression reference
            field "n"
        slice 1::
      each: current
    not
      literal "q"
"#;
        assert_eq!(Expression::compile(source).unwrap().print_tree(), wanted);
    }
}
