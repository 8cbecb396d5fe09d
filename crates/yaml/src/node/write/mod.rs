//! From nodes to text, as go-yaml v3 writes them with an indentation of two and lists that are not indented below
//! their keys.
//!
//! Comments wait in the emitter until a place comes where they can be written, as they do in go-yaml: what it does
//! with comments in odd places follows from that.

mod scalar;

use kiln_value::{Number, Value};

use super::read::plain_tag;
use super::{Comments, Node, NodeKind, NodeStyle};
use crate::emitter::order;
use crate::emitter::style::is_break;

/// Documents with `---` between them. Nodes that are not documents stand for one each.
pub fn emit_nodes<'n>(documents: impl IntoIterator<Item = &'n Node>) -> String {
    let mut emitter = Emitter::new();
    for document in documents {
        emitter.document(document);
    }
    emitter.out
}

/// One node as a document.
pub fn emit_node(node: &Node) -> String {
    emit_nodes([node])
}

/// A value as go-yaml v3 writes it with an indentation of two, lists indented below their keys.
pub fn emit_pretty(value: &Value) -> String {
    let mut emitter = Emitter { indent_lists: true, ..Emitter::new() };
    emitter.document(&node_of(value));
    emitter.out
}

fn node_of(value: &Value) -> Node {
    match value {
        Value::Null => Node::scalar("null"),
        Value::Bool(truth) => Node::scalar(truth.to_string()),
        Value::Number(Number::Float(float)) => Node::scalar(kiln_text::float::print(*float)),
        Value::Number(number) => Node::scalar(number.to_string()),
        // go-yaml: a text of several lines is a block.
        Value::String(text) if text.contains('\n') => {
            Node { style: NodeStyle::LITERAL, ..Node::text(text.as_str()) }
        }
        // So that readers of YAML 1.1 read a text, too.
        Value::String(text) if is_old_truth(text) => {
            Node { style: NodeStyle::DOUBLE_QUOTED, ..Node::text(text.as_str()) }
        }
        Value::String(text) => Node::text(text.as_str()),
        Value::List(list) => Node::list(list.iter().map(node_of).collect()),
        Value::Map(map) => {
            let entries = map.as_slice();
            // Maps have fewer than 2^32 entries.
            let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
            order::sort(&mut sorted, |at| entries[at as usize].0.as_str());
            let mut node = Node::map();
            for at in sorted {
                let (key, value) = &entries[at as usize];
                node.content.extend([Node::text(key.as_str()), node_of(value)]);
            }
            node
        }
    }
}

/// Whether YAML 1.1 takes a word for a truth, and later versions do not.
fn is_old_truth(text: &str) -> bool {
    let is_word = |word: &str| {
        let mut letters = word.chars();
        let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
        text == word || text == word.to_uppercase() || text == first + letters.as_str()
    };
    ["y", "yes", "n", "no", "on", "off"].into_iter().any(is_word)
}

const STEP: isize = 2;

/// go-yaml: longer keys are written with `? `.
const LONGEST_SIMPLE_KEY: usize = 128;

struct Emitter {
    out: String,
    column: usize,
    /// Whether the last character was a blank, or nothing was written on this line.
    whitespace: bool,
    /// Whether only indentation was written on this line.
    indention: bool,
    indent: isize,
    indents: Vec<isize>,
    /// Before something at this indentation an empty line sets the comment above it apart.
    foot_indent: isize,
    flow_level: usize,
    /// Whether the node is the value of a key.
    in_map: bool,
    simple_key: bool,
    begun: bool,
    /// What waits to be written.
    comments: Comments,
    /// What stands below the entry before.
    tail: String,
    key_line: String,
    indent_lists: bool,
}

/// Where a node stands.
#[derive(Clone, Copy, Default)]
struct NodeContext {
    /// Behind the `-` of a block list.
    item: bool,
    /// A key or value.
    in_map: bool,
    simple_key: bool,
}

impl Emitter {
    fn new() -> Self {
        Emitter {
            out: String::new(),
            column: 0,
            whitespace: true,
            indention: true,
            indent: -1,
            indents: Vec::new(),
            foot_indent: -1,
            flow_level: 0,
            in_map: false,
            simple_key: false,
            begun: false,
            comments: Comments::default(),
            tail: String::new(),
            key_line: String::new(),
            indent_lists: false,
        }
    }

    fn document(&mut self, node: &Node) {
        if std::mem::replace(&mut self.begun, true) {
            self.line_up();
            self.indicator("---", true, false, false);
            self.line_up();
        }
        let is_document = node.kind == NodeKind::Document;
        if is_document {
            self.wait(&node.comments.head, "", "");
            if !self.comments.head.is_empty() {
                self.head();
                self.end_line();
            }
        }
        let root = node.root();
        self.announce(root, "");
        self.head();
        let place = NodeContext::default();
        self.start(root, place);
        self.line_and_foot();
        self.rest(root, place);
        if is_document {
            self.wait("", "", &node.comments.foot);
        }
        self.foot_indent = 0;
        self.foot();
        self.foot_indent = -1;
        self.line_up();
    }

    /// Comments that are to be written; what there is not changes nothing that waits.
    fn wait(&mut self, head: &str, line: &str, foot: &str) {
        let Comments { head: to_head, line: to_line, foot: to_foot } = &mut self.comments;
        for (to, text) in [(to_head, head), (to_line, line), (to_foot, foot)] {
            if !text.is_empty() {
                text.clone_into(to);
            }
        }
    }

    /// The comments of a node that is about to be written. Those behind and below collections come at their end.
    fn announce(&mut self, node: &Node, tail: &str) {
        let Comments { head, line, foot } = &node.comments;
        match node.kind {
            NodeKind::List | NodeKind::Map => self.wait(head, "", ""),
            _ => self.wait(head, line, foot),
        }
        if !tail.is_empty() && node.kind != NodeKind::Alias && node.kind != NodeKind::List {
            tail.clone_into(&mut self.tail);
        }
    }

    fn line_and_foot(&mut self) {
        self.line(false);
        self.foot();
    }

    /// A scalar or an alias; of collections only what stands before their content.
    fn start(&mut self, node: &Node, place: NodeContext) {
        self.in_map = place.in_map;
        self.simple_key = place.simple_key;
        if node.kind == NodeKind::Alias {
            self.indicator("*", true, false, false);
            self.word(&node.value);
            return;
        }
        if !node.anchor.is_empty() {
            self.indicator("&", true, false, false);
            self.word(&node.anchor);
        }
        let (tag, force_quotes) = shown_tag(node);
        self.tag(tag);
        if node.kind == NodeKind::Scalar {
            let style = self.scalar_style(node, force_quotes);
            self.deepen(true, place.item, false);
            self.scalar(&node.value, style);
            self.leave();
        }
    }

    /// The content of a collection.
    fn rest(&mut self, node: &Node, place: NodeContext) {
        let flow =
            self.flow_level > 0 || node.style.has(NodeStyle::FLOW) || node.content.is_empty();
        match (node.kind, flow) {
            (NodeKind::List, false) => self.block_list(node, place),
            (NodeKind::List, true) => self.flow_list(node, place),
            (NodeKind::Map, false) => self.block_map(node, place),
            (NodeKind::Map, true) => self.flow_map(node, place),
            _ => {}
        }
    }

    fn block_list(&mut self, list: &Node, place: NodeContext) {
        let compact = !self.indent_lists && self.in_map && (self.column == 0 || !self.indention);
        self.deepen(false, place.item, compact);
        for inner in &list.content {
            self.announce(inner, "");
            self.head();
            self.line_up();
            self.indicator("-", true, false, true);
            let place = NodeContext { item: true, ..NodeContext::default() };
            self.start(inner, place);
            self.line_and_foot();
            self.rest(inner, place);
        }
        self.wait("", &list.comments.line, &list.comments.foot);
        self.leave();
    }

    fn block_map(&mut self, map: &Node, place: NodeContext) {
        self.deepen(false, place.item, false);
        let mut tail = "";
        for (key, value) in map.entries() {
            let mut above = key.clone();
            // go-yaml keeps what stands below an entry at its key, and writes it before the next entry, at the indentation of the keys.
            let foot = std::mem::take(&mut above.comments.foot);
            self.announce(&above, tail);
            tail = if foot.is_empty() { "" } else { &key.comments.foot };
            self.head();
            self.line_up();
            if !self.comments.line.is_empty() {
                self.key_line = std::mem::take(&mut self.comments.line);
            }
            let simple = is_simple_key(key);
            let place = NodeContext { in_map: true, simple_key: simple, ..NodeContext::default() };
            if !simple {
                self.indicator("?", true, false, true);
            }
            self.start(&above, place);
            self.rest(&above, place);
            self.block_value(value, simple);
        }
        self.wait("", &map.comments.line, &map.comments.foot);
        if !tail.is_empty() {
            tail.clone_into(&mut self.tail);
        }
        self.head();
        self.leave();
    }

    fn block_value(&mut self, value: &Node, simple: bool) {
        self.announce(value, "");
        if simple {
            self.indicator(":", false, false, false);
        } else {
            self.line_up();
            self.indicator(":", true, false, true);
        }
        if !self.key_line.is_empty() {
            match value.kind {
                NodeKind::Scalar if self.comments.line.is_empty() => {
                    self.comments.line = std::mem::take(&mut self.key_line);
                }
                // A block follows, so that the rest of this line is free.
                NodeKind::Map | NodeKind::List if !value.style.has(NodeStyle::FLOW) => {
                    std::mem::swap(&mut self.comments.line, &mut self.key_line);
                    self.line(false);
                    std::mem::swap(&mut self.comments.line, &mut self.key_line);
                }
                _ => {}
            }
        }
        let place = NodeContext { in_map: true, ..NodeContext::default() };
        self.start(value, place);
        self.line_and_foot();
        self.rest(value, place);
    }

    /// Whether something is to be written behind or below the node that was announced.
    fn trails(&self) -> bool {
        !self.comments.line.is_empty() || !self.comments.foot.is_empty() || !self.tail.is_empty()
    }

    fn flow_list(&mut self, list: &Node, place: NodeContext) {
        self.indicator("[", true, true, false);
        self.deepen(true, place.item, false);
        self.flow_level += 1;
        let mut trailed = true;
        for inner in &list.content {
            self.announce(inner, "");
            if !trailed {
                self.indicator(",", false, false, false);
            }
            self.head();
            if self.column == 0 {
                self.line_up();
            }
            trailed = self.trails();
            self.flow_node(inner, NodeContext::default());
        }
        self.wait("", &list.comments.line, &list.comments.foot);
        self.flow_level -= 1;
        self.leave();
        if self.column == 0 {
            self.line_up();
        }
        self.indicator("]", false, false, false);
        self.line_and_foot();
    }

    /// A node in brackets or braces; a comment behind it stands behind the comma.
    fn flow_node(&mut self, node: &Node, place: NodeContext) {
        self.start(node, place);
        if self.trails() {
            self.indicator(",", false, false, false);
        }
        self.line_and_foot();
        self.rest(node, place);
    }

    fn flow_map(&mut self, map: &Node, place: NodeContext) {
        self.indicator("{", true, true, false);
        self.deepen(true, place.item, false);
        self.flow_level += 1;
        let mut trailed = true;
        let mut tail = "";
        for (key, value) in map.entries() {
            let mut above = key.clone();
            let foot = std::mem::take(&mut above.comments.foot);
            self.announce(&above, tail);
            tail = if foot.is_empty() { "" } else { &key.comments.foot };
            if !trailed {
                self.indicator(",", false, false, false);
            }
            self.head();
            if self.column == 0 {
                self.line_up();
            }
            let simple = is_simple_key(key);
            let place = NodeContext { in_map: true, simple_key: simple, ..NodeContext::default() };
            if !simple {
                self.indicator("?", true, false, false);
            }
            self.start(&above, place);
            self.rest(&above, place);
            self.announce(value, "");
            self.indicator(":", !simple, false, false);
            trailed = self.trails();
            self.flow_node(value, NodeContext { in_map: true, ..NodeContext::default() });
        }
        self.wait("", &map.comments.line, &map.comments.foot);
        if !tail.is_empty() {
            tail.clone_into(&mut self.tail);
        }
        let below = !self.comments.head.is_empty()
            || !self.comments.foot.is_empty()
            || !self.tail.is_empty();
        if below && !trailed {
            self.indicator(",", false, false, false);
        }
        self.head();
        self.flow_level -= 1;
        self.leave();
        self.indicator("}", false, false, false);
        self.line_and_foot();
    }

    /// What follows is one level deeper.
    fn deepen(&mut self, flow: bool, item: bool, compact: bool) {
        self.indents.push(self.indent);
        if self.indent < 0 {
            self.indent = if flow { STEP } else { 0 };
        } else if item {
            self.indent += 2;
        } else {
            self.indent = STEP * ((self.indent + STEP) / STEP);
            if compact {
                self.indent -= 2;
            }
        }
    }

    fn leave(&mut self) {
        self.indent = self.indents.pop().unwrap_or(-1);
    }

    fn tag(&mut self, tag: &str) {
        if tag.is_empty() {
            return;
        }
        let (open, rest, close) = match (tag.strip_prefix("!!"), tag.strip_prefix('!')) {
            (Some(suffix), _) => ("!!", suffix, ""),
            (None, Some(suffix)) => ("!", suffix, ""),
            (None, None) => ("!<", tag, ">"),
        };
        if !self.whitespace {
            self.put(' ');
        }
        self.write(open);
        let mut buffer = [0; 4];
        for c in rest.chars() {
            if c.is_ascii_alphanumeric() || "-;/?:@&=+$,_.~*'()[]".contains(c) {
                self.put(c);
                continue;
            }
            for byte in c.encode_utf8(&mut buffer).bytes() {
                self.write(&format!("%{byte:02X}"));
            }
        }
        self.write(close);
        self.whitespace = false;
        self.indention = false;
    }

    /// What stands below the entry before, and then what stands above this one.
    fn head(&mut self) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.line_up();
            self.comment(&tail);
            self.foot_indent = self.indent.max(0);
        }
        if !self.comments.head.is_empty() {
            let head = std::mem::take(&mut self.comments.head);
            self.line_up();
            self.comment(&head);
        }
    }

    /// What stands behind something; `ends_line` where the line has to end in any case.
    fn line(&mut self, ends_line: bool) {
        if self.comments.line.is_empty() {
            if ends_line {
                self.end_line();
            }
            return;
        }
        let line = std::mem::take(&mut self.comments.line);
        if !self.whitespace {
            self.put(' ');
        }
        self.comment(&line);
    }

    fn foot(&mut self) {
        if self.comments.foot.is_empty() {
            return;
        }
        let foot = std::mem::take(&mut self.comments.foot);
        self.line_up();
        self.comment(&foot);
        self.foot_indent = self.indent.max(0);
    }

    fn comment(&mut self, text: &str) {
        let (mut breaks, mut marked) = (false, false);
        for c in text.chars() {
            if is_break(c) {
                self.write_break(c);
                (breaks, marked) = (true, false);
                continue;
            }
            if breaks {
                self.line_up();
            }
            if !std::mem::replace(&mut marked, true) && c != '#' {
                self.write("# ");
            }
            self.put(c);
            self.indention = false;
            breaks = false;
        }
        if !breaks {
            self.end_line();
        }
        self.whitespace = true;
    }

    /// Goes to the indentation, on a new line if something stands on this one.
    fn line_up(&mut self) {
        let indent = self.indent.max(0) as usize;
        if !self.indention || self.column > indent || self.column == indent && !self.whitespace {
            self.end_line();
        }
        // Without an empty line, readers would take the comment below the last entry for one above the next.
        if self.foot_indent == indent as isize {
            self.end_line();
        }
        while self.column < indent {
            self.put(' ');
        }
        self.whitespace = true;
        self.foot_indent = -1;
    }

    fn indicator(&mut self, text: &str, after_blank: bool, is_blank: bool, indents: bool) {
        if after_blank && !self.whitespace {
            self.put(' ');
        }
        self.write(text);
        self.whitespace = is_blank;
        self.indention &= indents;
    }

    fn word(&mut self, text: &str) {
        self.write(text);
        self.whitespace = false;
        self.indention = false;
    }

    fn write(&mut self, text: &str) {
        self.out.push_str(text);
        self.column += text.chars().count();
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn end_line(&mut self) {
        self.write_break('\n');
    }

    fn write_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
        self.indention = true;
    }
}

/// The tag to write, if any, and whether quotes say the same.
fn shown_tag(node: &Node) -> (&str, bool) {
    let tag = node.tag.as_str();
    if tag.is_empty() || node.style.has(NodeStyle::TAGGED) {
        return (tag, false);
    }
    match node.kind {
        NodeKind::Scalar if tag == "!!str" && node.style.has(NodeStyle::TEXT) => ("", false),
        NodeKind::Scalar if plain_tag(&node.value) == tag => ("", false),
        NodeKind::Scalar if tag == "!!str" => ("", true),
        NodeKind::Map if tag == "!!map" => ("", false),
        NodeKind::List if tag == "!!seq" => ("", false),
        _ => (tag, false),
    }
}

fn is_simple_key(key: &Node) -> bool {
    let (tag, _) = shown_tag(key);
    let length = match key.kind {
        NodeKind::Alias => key.value.len(),
        NodeKind::Scalar if key.value.contains(is_break) => return false,
        NodeKind::Scalar => key.anchor.len() + tag.len() + key.value.len(),
        _ if !key.content.is_empty() => return false,
        _ => key.anchor.len() + tag.len(),
    };
    length <= LONGEST_SIMPLE_KEY
}
