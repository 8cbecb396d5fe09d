//! From events to nodes.

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Place, Source};

use super::{Node, NodeKind, NodeStyle};
use crate::event::{Event, Form, Properties, Scalar};
use crate::options::{Limits, ScalarTable};
use crate::parse::Events;
use crate::resolve::{Typed, plain};
use crate::{decode, syntax};

/// Reads the first document of a source; `None` if there is nothing in it.
///
/// # Errors
/// When it is no YAML, or too large or too deep.
pub fn read_nodes(source: &Arc<Source>, limits: &Limits) -> Result<Option<Node>, Diagnostic> {
    decode::check(source, limits)?;
    let mut reader = Reader {
        events: Events::with_comments(source.text()),
        source,
        limits,
        anchors: HashSet::new(),
    };
    reader.document().map_err(|problem| *problem)
}

struct Reader<'t> {
    events: Events<'t>,
    source: &'t Arc<Source>,
    limits: &'t Limits,
    anchors: HashSet<&'t str>,
}

/// Boxed, so that the way of success stays narrow.
type Read<T> = Result<T, Box<Diagnostic>>;

impl<'t> Reader<'t> {
    fn document(&mut self) -> Read<Option<Node>> {
        let Event::DocumentStart = self.next()?.0 else { return Ok(None) };
        let comments = self.events.take_comments();
        let mut document = Node { kind: NodeKind::Document, comments, ..Node::default() };
        let (event, span) = self.next()?;
        let root = self.node(event, span, 0)?;
        document.content.push(root);
        self.next()?;
        document.comments.foot = self.events.take_comments().foot;
        Ok(Some(document))
    }

    fn next(&mut self) -> Read<(Event<'t>, Range<usize>)> {
        self.events.next().map_err(|error| Box::new(syntax::explain(&error, self.source)))
    }

    fn node(&mut self, event: Event<'t>, span: Range<usize>, depth: usize) -> Read<Node> {
        if depth >= self.limits.depth {
            let problem = format!("lists and maps nest deeper than {} levels", self.limits.depth);
            return Err(Box::new(Diagnostic::error(problem).at(self.place(span))));
        }
        match event {
            Event::Alias(name) => {
                let comments = self.events.take_comments();
                if !self.anchors.contains(name) {
                    let problem = format!("unknown anchor '{name}' referenced");
                    return Err(Box::new(Diagnostic::error(problem).at(self.place(span))));
                }
                let value = name.to_owned();
                Ok(Node { kind: NodeKind::Alias, value, comments, ..Node::default() })
            }
            Event::Scalar(scalar) => Ok(self.scalar(scalar, &span)),
            Event::ListStart(properties, form) => {
                let mut list = self.begun(NodeKind::List, "!!seq", &properties, form);
                loop {
                    let (event, span) = self.next()?;
                    if matches!(event, Event::ListEnd) {
                        break;
                    }
                    list.content.push(self.node(event, span, depth + 1)?);
                }
                let end = self.events.take_comments();
                (list.comments.line, list.comments.foot) = (end.line, end.foot);
                Ok(list)
            }
            Event::MapStart(properties, form) => {
                let map = self.begun(NodeKind::Map, "!!map", &properties, form);
                self.map(map, depth)
            }
            // Only nodes come where a node is expected.
            _ => Ok(Node::default()),
        }
    }

    fn map(&mut self, mut map: Node, depth: usize) -> Read<Node> {
        let block = !map.style.has(NodeStyle::FLOW);
        loop {
            let (event, span) = self.next()?;
            if matches!(event, Event::MapEnd) {
                break;
            }
            let mut key = self.node(event, span, depth + 1)?;
            // What is left of a key's indentation belongs below the entry before it.
            if block && let Some(before) = map.content.len().checked_sub(2) {
                let foot = std::mem::take(&mut key.comments.foot);
                if !foot.is_empty() {
                    map.content[before].comments.foot = foot;
                }
            }
            let (event, span) = self.next()?;
            let mut value = self.node(event, span, depth + 1)?;
            if key.comments.foot.is_empty() {
                key.comments.foot = std::mem::take(&mut value.comments.foot);
            }
            map.content.push(key);
            map.content.push(value);
        }
        let end = self.events.take_comments();
        map.comments.line = end.line;
        let last_key = map.content.len().checked_sub(2).filter(|_| block && !end.foot.is_empty());
        match last_key {
            Some(last) => map.content[last].comments.foot = end.foot,
            None => map.comments.foot = end.foot,
        }
        Ok(map)
    }

    fn begun(
        &mut self,
        kind: NodeKind,
        tag: &str,
        properties: &Properties<'t>,
        form: Form,
    ) -> Node {
        let mut node = Node { kind, comments: self.events.take_comments(), ..Node::default() };
        if form == Form::Flow {
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

    fn place(&self, span: Range<usize>) -> Place {
        Place::new(Arc::clone(self.source), span)
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
