//! Documents as trees of nodes that remember how they were written: styles, tags, anchors, comments, the order of
//! keys.
//!
//! kustomize's `cfg` and `fn` commands change such trees and print them again. [`read_nodes`] and [`emit_nodes`] do as
//! go-yaml v3 does, to the byte: indentation becomes the usual one and blank lines go, all else stays.

mod read;
mod scalar;
mod write;

pub use read::read_nodes;
pub use write::{emit_node, emit_nodes, emit_pretty};

pub use crate::notes::Comments;

/// A document, a collection, a scalar or an alias.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    pub kind: NodeKind,
    /// In its short form, as in `!!str`; empty without one.
    pub tag: String,
    /// The text of a scalar, or the name that an alias stands for.
    pub value: String,
    /// How it is written.
    pub style: NodeStyle,
    /// The name that aliases know it by; empty if it has none.
    pub anchor: String,
    /// What is written around it.
    pub comments: Comments,
    /// The elements of a list, the keys and values of a map in turns, or the root of a document.
    pub content: Vec<Node>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NodeKind {
    /// A whole document.
    Document,
    List,
    Map,
    /// Text, a number, and so on.
    #[default]
    Scalar,
    /// The name of another node.
    Alias,
}

impl NodeKind {
    /// What go-yaml calls it.
    pub fn name(self) -> &'static str {
        match self {
            NodeKind::Document => "DocumentNode",
            NodeKind::List => "SequenceNode",
            NodeKind::Map => "MappingNode",
            NodeKind::Scalar => "ScalarNode",
            NodeKind::Alias => "AliasNode",
        }
    }
}

/// How a node is written: any number of styles, of which the first that can be is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeStyle(u8);

impl NodeStyle {
    pub const TAGGED: NodeStyle = NodeStyle(1);
    pub const DOUBLE_QUOTED: NodeStyle = NodeStyle(2);
    pub const SINGLE_QUOTED: NodeStyle = NodeStyle(4);
    /// As a block that keeps its lines.
    pub const LITERAL: NodeStyle = NodeStyle(8);
    /// As a block whose lines are joined.
    pub const FOLDED: NodeStyle = NodeStyle(16);
    /// In brackets or braces.
    pub const FLOW: NodeStyle = NodeStyle(32);

    const TEXT: NodeStyle = NodeStyle(2 | 4 | 8 | 16);

    /// Both.
    #[must_use]
    pub fn with(self, other: NodeStyle) -> NodeStyle {
        NodeStyle(self.0 | other.0)
    }

    /// True if they share at least one style.
    pub fn has(self, other: NodeStyle) -> bool {
        self.0 & other.0 != 0
    }
}

impl Node {
    /// A scalar without a style yet.
    pub fn scalar(value: impl Into<String>) -> Node {
        Node { value: value.into(), ..Node::default() }
    }

    /// A scalar that is text, whatever it looks like.
    pub fn text(value: impl Into<String>) -> Node {
        Node { tag: "!!str".to_owned(), ..Node::scalar(value) }
    }

    /// An empty map.
    pub fn map() -> Node {
        Node { kind: NodeKind::Map, ..Node::default() }
    }

    pub fn list(content: Vec<Node>) -> Node {
        Node { kind: NodeKind::List, content, ..Node::default() }
    }

    /// Whether it stands for nothing.
    pub fn is_null(&self) -> bool {
        self.tag == "!!null"
    }

    /// The root of a document; any other node itself.
    pub fn root(&self) -> &Node {
        match (self.kind, self.content.first()) {
            (NodeKind::Document, Some(root)) => root,
            _ => self,
        }
    }

    /// The root of a document; any other node itself.
    pub fn root_mut(&mut self) -> &mut Node {
        if self.kind == NodeKind::Document && !self.content.is_empty() {
            return &mut self.content[0];
        }
        self
    }

    /// The keys and values of a map.
    pub fn entries(&self) -> impl Iterator<Item = (&Node, &Node)> {
        let pairs = if self.kind == NodeKind::Map { self.content.as_slice() } else { &[] };
        pairs.chunks_exact(2).map(|pair| (&pair[0], &pair[1]))
    }

    /// The value of a key; the last one, if the key is there twice.
    pub fn get(&self, key: &str) -> Option<&Node> {
        self.entries().filter(|(name, _)| name.value == key).last().map(|(_, value)| value)
    }

    /// The value of a key.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Node> {
        let at = self.position(key)?;
        self.content.get_mut(at + 1)
    }

    /// Where a key stands in the content.
    pub fn position(&self, key: &str) -> Option<usize> {
        let at = self.entries().position(|(name, _)| name.value == key)?;
        Some(2 * at)
    }

    /// Removes a key and its value.
    pub fn remove(&mut self, key: &str) {
        if let Some(at) = self.position(key) {
            self.content.drain(at..at + 2);
        }
    }

    /// Adds a key at the end.
    pub fn push(&mut self, key: impl Into<String>, value: Node) {
        self.content.push(Node::scalar(key));
        self.content.push(value);
    }

    /// Removes all comments, at any depth.
    pub fn strip_comments(&mut self) {
        self.comments = Comments::default();
        for inner in &mut self.content {
            inner.strip_comments();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use kiln_diagnostic::Source;

    use super::*;
    use crate::{ReadOptions, YamlLimits};

    fn node(text: &str) -> Node {
        let source = Arc::new(Source::new("text", text));
        read_nodes(&source, &YamlLimits::default()).unwrap().unwrap()
    }

    /// What go-yaml v3 writes; more of it is recorded in the `cfg` cases of `crates/kustomize`.
    #[test]
    fn comments_styles_and_order_stay_and_blank_lines_go() {
        for (text, wanted) in [
            ("b:   1 # one\n\n\na: 'x'\n", "b: 1 # one\na: 'x'\n"),
            ("# top\n\n# of a\na:\n    - b\n    # end\n", "# top\n\n# of a\na:\n- b\n# end\n"),
            ("a: {b:  [1,2], \"c\": d}\n", "a: {b: [1, 2], \"c\": d}\n"),
            ("a: &x\n  b: |\n    text\nc: *x\n", "a: &x\n  b: |\n    text\nc: *x\n"),
            ("a: >-\n  some\n  text\n", "a: >-\n  some text\n"),
            ("a: !!str 5\nb: !own c\n", "a: !!str 5\nb: !own c\n"),
            ("- - a\n  - b\n-\n  c: d\n", "- - a\n  - b\n- c: d\n"),
        ] {
            assert_eq!(emit_node(&node(text)), wanted, "{text}");
            assert_eq!(emit_node(&node(wanted)), wanted, "{wanted}");
        }
    }

    #[test]
    fn values_are_the_same_afterwards() {
        let texts = [
            "a: [1, 0x10, 1.50, ~, null, yes, \"on\", 2001-01-01, '']\n",
            "a: \"\\U0001F600 \\t\\n\\x07\"\nb: |2\n   x\nc: |+\n  y\n\nd: e\n",
            "? a b\n: - c\n  - {d: [], e: {}}\n\"- x\": '# y'\n",
        ];
        for text in texts {
            let value = |text: &str| {
                let read =
                    crate::read_bytes("", text.as_bytes(), ReadOptions::kustomize_resource());
                read.unwrap().remove(0).into_value()
            };
            assert_eq!(value(&emit_node(&node(text))), value(text), "{text}");
        }
    }

    #[test]
    fn what_is_too_deep_or_names_nothing_is_refused() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        for text in [deep.as_str(), "a: *nobody\n", "a: [\n"] {
            let source = Arc::new(Source::new("text", text));
            assert!(read_nodes(&source, &YamlLimits::default()).is_err());
        }
        let deepest = format!("{}{}", "[".repeat(500), "]".repeat(500));
        assert_eq!(emit_node(&node(&deepest)), format!("{deepest}\n"));
        let nothing = Arc::new(Source::new("text", "# only a comment\n"));
        assert_eq!(read_nodes(&nothing, &YamlLimits::default()).unwrap(), None);
    }
}
