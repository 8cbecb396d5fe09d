//! Converted policies as documents: the order of their fields, their comments, their text.

use kiln_value::{Map, Number, Value};
use kiln_yaml::{Document, Node, NodeStyle, emit_node};

/// A policy that came of a conversion.
#[derive(Clone, Debug)]
pub struct ConvertedDocument {
    pub value: Value,
    /// Comments that stand above the document.
    pub head: Vec<String>,
    /// Comments that stand above an element of a list, by the keys to it and its number.
    pub inner: Vec<(Vec<&'static str>, usize, Vec<String>)>,
}

impl ConvertedDocument {
    pub(crate) fn of(value: Value) -> Self {
        ConvertedDocument { value, head: Vec::new(), inner: Vec::new() }
    }

    /// The name that a file for it has, without its ending.
    pub fn file_stem(&self) -> String {
        let text = |path: &[&str]| self.value.str_at(path.iter().copied()).unwrap_or_default();
        match text(&["metadata", "namespace"]) {
            // Exceptions often have the name of their policy.
            _ if text(&["kind"]) == "PolicyException" => {
                format!("{}-exception", text(&["metadata", "name"]))
            }
            "" => text(&["metadata", "name"]).to_owned(),
            namespace => format!("{namespace}-{}", text(&["metadata", "name"])),
        }
    }

    /// The document as YAML.
    pub fn text(&self) -> String {
        let mut node = node_of(&self.value);
        node.comments.head = self.head.join("\n");
        for (keys, at, comments) in &self.inner {
            let mut place = Some(&mut node);
            for key in keys {
                place = place.and_then(|node| node.get_mut(key));
            }
            if let Some(element) = place.and_then(|list| list.content.get_mut(*at)) {
                // The comment of an element stands above its first key.
                let target = element.content.first_mut().map_or_else(Node::default, std::mem::take);
                let target = Node {
                    comments: kiln_yaml::Comments {
                        head: comments.join("\n"),
                        ..target.comments.clone()
                    },
                    ..target
                };
                if let Some(first) = element.content.first_mut() {
                    *first = target;
                }
            }
        }
        emit_node(&node)
    }
}

fn node_of(value: &Value) -> Node {
    match value {
        Value::Null => Node::scalar("null"),
        Value::Bool(truth) => Node::scalar(truth.to_string()),
        Value::Number(Number::Float(float)) => Node::scalar(kiln_text::float::print(*float)),
        Value::Number(number) => Node::scalar(number.to_string()),
        Value::String(text) if text.contains('\n') => {
            Node { style: NodeStyle::LITERAL, ..Node::text(text.as_str()) }
        }
        Value::String(text) => Node::text(text.as_str()),
        Value::List(list) if list.is_empty() => {
            Node { style: NodeStyle::FLOW, ..Node::list(Vec::new()) }
        }
        Value::List(list) => Node::list(list.iter().map(node_of).collect()),
        Value::Map(map) if map.is_empty() => Node { style: NodeStyle::FLOW, ..Node::map() },
        Value::Map(map) => {
            let mut node = Node::map();
            for (key, value) in map {
                node.content.push(Node::text(key.as_str()));
                node.content.push(node_of(value));
            }
            node
        }
    }
}

/// `apiVersion`, `kind` and `metadata` of a policy that comes of another.
pub(crate) fn envelope(from: &Value, api_version: &str, kind: &str, name: &str) -> Map {
    let mut metadata = Map::new();
    metadata.insert("name", name);
    for field in ["namespace", "labels", "annotations"] {
        let Some(found) = from.get_path(["metadata", field]) else { continue };
        let mut found = found.clone();
        if field == "annotations" {
            for gone in [
                "pod-policies.kyverno.io/autogen-controllers",
                "kubectl.kubernetes.io/last-applied-configuration",
            ] {
                if let Some(map) = found.as_map_mut() {
                    map.remove(gone);
                }
            }
        }
        if !matches!(&found, Value::Map(map) if map.is_empty()) {
            metadata.insert(field, found);
        }
    }
    let mut document = Map::new();
    document.insert("apiVersion", api_version);
    document.insert("kind", kind);
    document.insert("metadata", metadata);
    document
}

/// The comments of a document: those above everything, and those of each rule.
#[derive(Clone, Debug, Default)]
pub(crate) struct FoundComments {
    pub(crate) head: Vec<String>,
    /// The comments of rules, by their numbers.
    pub(crate) rules: Vec<Vec<String>>,
}

/// Finds the comments of a document, by the lines they stand on.
pub(crate) fn comments(document: &Document) -> FoundComments {
    let source = document.source();
    let begin = document.place().position().line;
    let count = document
        .value()
        .get_path(["spec", "rules"])
        .and_then(Value::as_list)
        .map_or(0, |rules| rules.len());
    let starts: Vec<usize> = (0..count)
        .map(|at| {
            let path = kiln_value::Path::root().join("spec").join("rules").join(at);
            document.locate(&path).position().line
        })
        .collect();
    let mut found = FoundComments { head: Vec::new(), rules: vec![Vec::new(); count] };
    let mut block: Option<usize> = None;
    for (number, line) in source.text().lines().enumerate() {
        let number = number + 1;
        if number < begin && line.trim_start().starts_with('#') && !source.text().contains("\n---")
        {
            found.head.push(line.trim().to_owned());
            continue;
        }
        if number < begin {
            continue;
        }
        if number > begin && line.trim_end() == "---" {
            break;
        }
        let indent = line.len() - line.trim_start().len();
        if let Some(of) = block {
            if line.trim().is_empty() || indent > of {
                continue;
            }
            block = None;
        }
        let text = line.trim();
        if text.ends_with(['|', '>'])
            || [">-", "|-", ">+", "|+"].iter().any(|end| text.ends_with(end))
        {
            block = Some(indent);
        }
        let comment = match text.strip_prefix('#') {
            Some(_) => Some(text.to_owned()),
            None if text.contains('"') || text.contains('\'') => None,
            None => text.find(" # ").map(|at| text[at + 1..].to_owned()),
        };
        let Some(comment) = comment else { continue };
        // A comment directly above a rule belongs to it.
        let rule = starts.iter().rposition(|start| *start <= number + 1);
        match rule {
            Some(at) => found.rules[at].push(comment),
            None => found.head.push(comment),
        }
    }
    found
}
