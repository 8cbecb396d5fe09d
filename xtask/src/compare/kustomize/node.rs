//! YAML as it is to be written: scalars keep their text, quotes and all.

/// A part of a document.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// As it is written; nothing at all for a key without a value. Lines after the first are a block.
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
    /// A document inside of text.
    Block(Box<Node>),
}

pub(super) fn scalar(text: impl Into<String>) -> Node {
    Node::Scalar(text.into())
}

pub(super) fn map<K: Into<String>>(entries: impl IntoIterator<Item = (K, Node)>) -> Node {
    Node::Map(entries.into_iter().map(|(key, value)| (key.into(), value)).collect())
}

pub(super) fn list(elements: impl IntoIterator<Item = Node>) -> Node {
    Node::List(elements.into_iter().collect())
}

impl From<&str> for Node {
    fn from(text: &str) -> Self {
        scalar(text)
    }
}

impl From<String> for Node {
    fn from(text: String) -> Self {
        scalar(text)
    }
}

impl Node {
    /// Adds a field at the end of a map.
    pub(super) fn put(&mut self, key: &str, value: impl Into<Node>) {
        if let Node::Map(entries) = self {
            entries.retain(|(old, _)| old != key);
            entries.push((key.to_owned(), value.into()));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match self {
            Node::Scalar(text) => text.is_empty(),
            Node::List(list) => list.is_empty(),
            Node::Map(map) => map.is_empty(),
            Node::Block(_) => false,
        }
    }

    /// The document.
    pub(super) fn text(&self) -> String {
        let mut out = String::new();
        self.write(&mut out, 0);
        out
    }

    fn write(&self, out: &mut String, indent: usize) {
        let margin = " ".repeat(indent);
        match self {
            Node::Scalar(text) => {
                out.push_str(&text.replace('\n', &format!("\n{margin}")));
                out.push('\n');
            }
            Node::Block(inner) => {
                out.push('|');
                for line in inner.text().lines() {
                    out.push_str(&format!("\n{margin}{line}"));
                }
                out.push('\n');
            }
            Node::Map(entries) if entries.is_empty() => out.push_str("{}\n"),
            Node::List(elements) if elements.is_empty() => out.push_str("[]\n"),
            Node::Map(entries) => {
                for (at, (key, value)) in entries.iter().enumerate() {
                    if at > 0 {
                        out.push_str(&margin);
                    }
                    out.push_str(key);
                    out.push(':');
                    value.write_below(out, indent + 2);
                }
            }
            Node::List(elements) => {
                for (at, element) in elements.iter().enumerate() {
                    if at > 0 {
                        out.push_str(&margin);
                    }
                    out.push_str("- ");
                    element.write(out, indent + 2);
                }
            }
        }
    }

    fn write_below(&self, out: &mut String, indent: usize) {
        match self {
            Node::Scalar(text) if text.is_empty() => out.push('\n'),
            Node::Scalar(_) | Node::Block(_) => {
                out.push(' ');
                self.write(out, indent);
            }
            _ if self.is_empty() => {
                out.push(' ');
                self.write(out, indent);
            }
            _ => {
                out.push('\n');
                out.push_str(&" ".repeat(indent));
                self.write(out, indent);
            }
        }
    }

    /// How many parts it has that can be left out.
    pub(super) fn parts(&self) -> usize {
        match self {
            Node::Scalar(_) => 0,
            Node::Block(inner) => inner.parts(),
            Node::List(list) => list.len() + list.iter().map(Node::parts).sum::<usize>(),
            Node::Map(map) => map.len() + map.iter().map(|(_, value)| value.parts()).sum::<usize>(),
        }
    }

    /// Leaves out one part, counted from the outside in.
    pub(super) fn leave_out(&mut self, at: &mut usize) -> bool {
        let length = match self {
            Node::Scalar(_) => return false,
            Node::Block(inner) => return inner.leave_out(at),
            Node::List(list) => list.len(),
            Node::Map(map) => map.len(),
        };
        if *at < length {
            match self {
                Node::Scalar(_) | Node::Block(_) => {}
                Node::List(list) => drop(list.remove(*at)),
                Node::Map(map) => drop(map.remove(*at)),
            }
            return true;
        }
        *at -= length;
        match self {
            Node::Scalar(_) | Node::Block(_) => false,
            Node::List(list) => list.iter_mut().any(|inner| inner.leave_out(at)),
            Node::Map(map) => map.iter_mut().any(|(_, inner)| inner.leave_out(at)),
        }
    }
}
