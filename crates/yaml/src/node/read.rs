//! From events to nodes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source, SourceLocation};

use super::{Comments, Node, NodeKind, NodeStyle};
use crate::events::event::{CollectionForm, Properties, Scalar, YamlEvent};
use crate::events::parse::Events;
use crate::events::{decode, syntax};
use crate::options::{ScalarTable, YamlLimits};
use crate::resolve::{Typed, plain};

/// Reads the first document of a source; `None` if there is nothing in it.
///
/// # Errors
/// When it is not YAML, or too large or too deep.
pub fn read_nodes(source: &Arc<Source>, limits: &YamlLimits) -> Result<Option<Node>, Diagnostic> {
    decode::check(source, limits)?;
    let mut reader = NodeReader {
        events: Events::with_comments(source.text()),
        source,
        limits,
        anchors: HashSet::new(),
    };
    reader.document().map_err(|problem| *problem)
}

struct NodeReader<'t> {
    events: Events<'t>,
    source: &'t Arc<Source>,
    limits: &'t YamlLimits,
    anchors: HashSet<&'t str>,
}

/// Boxed, so that the way of success stays narrow.
type Read<T> = Result<T, Box<Diagnostic>>;

impl<'t> NodeReader<'t> {
    fn document(&mut self) -> Read<Option<Node>> {
        let YamlEvent::DocumentStart = self.next()?.0 else { return Ok(None) };
        let comments = self.events.take_comments();
        let mut document = Node { kind: NodeKind::Document, comments, ..Node::default() };
        let root = self.root()?;
        document.content.push(root);
        self.next()?;
        document.comments.foot = self.events.take_comments().foot;
        Ok(Some(document))
    }

    fn next(&mut self) -> Read<(YamlEvent<'t>, Range<usize>)> {
        self.events.next().map_err(|error| Box::new(syntax::explain(&error, self.source)))
    }

    /// The root of a document. Collections that are open wait in a list, and not on the stack.
    fn root(&mut self) -> Read<Node> {
        let mut open: Vec<Node> = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let done = match event {
                YamlEvent::ListStart(properties, form) => {
                    self.check_depth(open.len(), span)?;
                    open.push(self.begun(NodeKind::List, "!!seq", &properties, form));
                    continue;
                }
                YamlEvent::MapStart(properties, form) => {
                    self.check_depth(open.len(), span)?;
                    open.push(self.begun(NodeKind::Map, "!!map", &properties, form));
                    continue;
                }
                YamlEvent::ListEnd | YamlEvent::MapEnd => {
                    let mut ended = open.pop().unwrap_or_default();
                    end(&mut ended, self.events.take_comments());
                    ended
                }
                YamlEvent::Alias(name) => self.alias(name, span)?,
                YamlEvent::Scalar(scalar) => self.scalar(scalar, &span),
                // Only nodes come where a node is expected.
                YamlEvent::DocumentStart | YamlEvent::DocumentEnd | YamlEvent::StreamEnd => {
                    Node::default()
                }
            };
            match open.last_mut() {
                Some(within) => add(within, done),
                None => return Ok(done),
            }
        }
    }

    fn check_depth(&self, depth: usize, span: Range<usize>) -> Read<()> {
        if depth < self.limits.depth {
            return Ok(());
        }
        let problem = format!("lists and maps nest deeper than {} levels", self.limits.depth);
        Err(Box::new(Diagnostic::error(problem).at(self.place(span))))
    }

    fn alias(&mut self, name: &str, span: Range<usize>) -> Read<Node> {
        let comments = self.events.take_comments();
        if !self.anchors.contains(name) {
            let problem = format!("unknown anchor '{name}' referenced");
            return Err(Box::new(Diagnostic::error(problem).at(self.place(span))));
        }
        let value = name.to_owned();
        Ok(Node { kind: NodeKind::Alias, value, comments, ..Node::default() })
    }

    fn begun(
        &mut self,
        kind: NodeKind,
        tag: &str,
        properties: &Properties<'t>,
        form: CollectionForm,
    ) -> Node {
        let mut node = Node { kind, comments: self.events.take_comments(), ..Node::default() };
        if form == CollectionForm::Flow {
            node.style = NodeStyle::FLOW;
        }
        self.give_properties(&mut node, properties, || tag);
        node
    }

    fn scalar(&mut self, scalar: Scalar<'t>, span: &Range<usize>) -> Node {
        let comments = self.events.take_comments();
        let style = match self.source.text().as_bytes().get(span.start) {
            _ if scalar.is_plain() => NodeStyle::default(),
            Some(b'"') => NodeStyle::DOUBLE_QUOTED,
            Some(b'\'') => NodeStyle::SINGLE_QUOTED,
            Some(b'|') => NodeStyle::LITERAL,
            _ => NodeStyle::FOLDED,
        };
        let value = scalar.text.into_owned();
        let mut node = Node { value: String::new(), style, comments, ..Node::default() };
        let text = style.has(NodeStyle::TEXT);
        self.give_properties(&mut node, &scalar.properties, || {
            if text { "!!str" } else { plain_tag(&value) }
        });
        node.value = value;
        node
    }

    fn give_properties<'a>(
        &mut self,
        node: &mut Node,
        properties: &Properties<'t>,
        otherwise: impl FnOnce() -> &'a str,
    ) {
        match properties.tag.as_deref() {
            None | Some("!") => node.tag = otherwise().to_owned(),
            Some(tag) => {
                node.tag = match tag.strip_prefix("tag:yaml.org,2002:") {
                    Some(short) => format!("!!{short}"),
                    None => tag.to_owned(),
                };
                node.style = node.style.with(NodeStyle::TAGGED);
            }
        }
        if let Some(anchor) = properties.anchor {
            self.anchors.insert(anchor);
            node.anchor = anchor.to_owned();
        }
    }

    fn place(&self, span: Range<usize>) -> SourceLocation {
        SourceLocation::new(Arc::clone(self.source), span)
    }
}

/// Puts a node into the list or map that it stands in.
fn add(within: &mut Node, mut node: Node) {
    let block = !within.style.has(NodeStyle::FLOW);
    let length = within.content.len();
    if within.kind == NodeKind::Map && length.is_multiple_of(2) {
        // What is left of a key's indentation belongs below the entry before it.
        if block && length > 0 && !node.comments.foot.is_empty() {
            within.content[length - 2].comments.foot = std::mem::take(&mut node.comments.foot);
        }
    } else if within.kind == NodeKind::Map {
        let key = &mut within.content[length - 1].comments;
        if key.foot.is_empty() {
            key.foot = std::mem::take(&mut node.comments.foot);
        }
    }
    within.content.push(node);
}

/// What stands behind and below a list or map that has ended. Below a block map, that is below its last entry.
fn end(ended: &mut Node, comments: Comments) {
    let block_map = ended.kind == NodeKind::Map && !ended.style.has(NodeStyle::FLOW);
    let last_key = ended.content.len().checked_sub(2).filter(|_| block_map);
    ended.comments.line = comments.line;
    ended.comments.foot = String::new();
    match last_key.filter(|_| !comments.foot.is_empty()) {
        Some(last) => ended.content[last].comments.foot = comments.foot,
        None => ended.comments.foot = comments.foot,
    }
}

/// The tag that go-yaml v3 gives to plain text.
pub(super) fn plain_tag(text: &str) -> &'static str {
    if text == "<<" {
        return "!!merge";
    }
    match plain(text, ScalarTable::V3) {
        Typed::Null => "!!null",
        Typed::Bool(_) => "!!bool",
        Typed::Number(number) if number.is_integer() => "!!int",
        Typed::Number(_) => "!!float",
        Typed::Time(_) => "!!timestamp",
        Typed::Text | Typed::Bytes(_) => "!!str",
    }
}
