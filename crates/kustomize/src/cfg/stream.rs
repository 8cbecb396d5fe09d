//! Texts to nodes and back.

use std::ops::Range;
use std::sync::Arc;

use kiln_diagnostic::{Source, SourceLocation};
use kiln_value::Value;
use kiln_yaml::{Node, NodeKind, NodeStyle, ReadOptions, YamlLimits};

use super::meta::{self, INDEX, LEGACY_INDEX, LEGACY_PATH, PATH, SEQUENCE_INDENT};
use crate::error::{Error, Result};

/// How to read a text.
#[derive(Default)]
pub(super) struct Reading<'a> {
    /// Takes the items of a list that is alone.
    pub(super) unwrap: bool,
    /// The file, which annotations are to name.
    pub(super) path: Option<&'a str>,
    /// Whether nothing is to be annotated.
    pub(super) bare: bool,
    /// The most bytes that are read.
    pub(super) limit: usize,
}

#[derive(Default)]
pub(super) struct Read {
    pub(super) nodes: Vec<Node>,
    /// What a function reports beside its items.
    pub(super) results: Option<Node>,
}

/// Where the documents of a text stand: between lines that begin with `---`.
///
/// # Errors
/// When anything but a comment stands behind one.
fn documents(text: &str) -> Result<Vec<Range<usize>>> {
    let mut found = Vec::new();
    let mut start = 0;
    while let Some(at) = text[start..].find("\n---").map(|at| start + at) {
        let line = &text[at + 1..];
        let Some(end) = line.find('\n') else { break };
        let behind = line[3..end].trim();
        if !behind.is_empty() && !behind.starts_with('#') {
            return Err(Error::new(format!("invalid document separator: {}", line[..end].trim())));
        }
        // The line break before it ends the document.
        found.push(start..at + 1);
        start = at + 1 + end + 1;
    }
    if !text.is_empty() {
        found.push(start..text.len());
    }
    Ok(found)
}

/// Reads a text.
///
/// # Errors
/// When it is not YAML, or no objects.
pub(super) fn read(name: &str, bytes: &[u8], reading: &Reading<'_>) -> Result<Read> {
    if bytes.len() > reading.limit {
        return Err(Error::new(format!("{name} is larger than {} bytes", reading.limit)));
    }
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Error::new(format!("MalformedYAMLError: {name} is not UTF-8 text")))?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text).replace("\r\n", "\n");
    let limits = YamlLimits { bytes: reading.limit, ..YamlLimits::default() };
    let documents = documents(&text)?;
    let mut read = Read::default();
    let mut index = 0;
    for document in &documents {
        let source = Arc::new(Source::new(name, text[document.clone()].to_owned()));
        let node = kiln_yaml::read_nodes(&source, &limits).map_err(|mut problem| {
            // Each document is read by itself; people count the lines of files.
            let whole = Arc::new(Source::new(name, text.clone()));
            problem.place = problem.place.map(|place| {
                let span = place.span();
                SourceLocation::new(whole, document.start + span.start..document.start + span.end)
            });
            crate::build::session::malformed(&problem)
        })?;
        let Some(mut node) = node.filter(|node| !node.root().is_null()) else { continue };
        if !reading.bare {
            annotate(&mut node, index, reading.path)?;
        }
        let root = node.root();
        let is_list = matches!(meta::kind(&node), "ResourceList" | "List")
            && (root.get("items").is_some() || root.get("functionConfig").is_some());
        if reading.unwrap && documents.len() == 1 && is_list {
            read.results = root.get("results").cloned();
            if let Some(items) = root.get("items") {
                read.nodes.extend(items.content.iter().cloned());
            }
            continue;
        }
        read.nodes.push(node);
        index += 1;
    }
    Ok(read)
}

fn annotate(node: &mut Node, index: usize, path: Option<&str>) -> Result<()> {
    meta::copy_legacy(node)?;
    let index = index.to_string();
    let wanted = [
        (LEGACY_INDEX, Some(index.as_str())),
        (LEGACY_PATH, path),
        (INDEX, Some(index.as_str())),
        (PATH, path),
    ];
    for (key, value) in wanted {
        if let Some(value) = value {
            meta::set_annotation(node, key, value)?;
        }
    }
    Ok(())
}

/// How to write nodes.
#[derive(Default)]
pub(super) struct NodeOutput<'a> {
    pub(super) keep_annotations: bool,
    /// Annotations to remove, besides those that reading set.
    pub(super) clear: &'a [&'a str],
    /// The kind and version of a list around them.
    pub(super) wrap: Option<(&'a str, &'a str)>,
    pub(super) function_config: Option<Node>,
    pub(super) style: NodeStyle,
}

/// Writes nodes as one text.
///
/// # Errors
/// When one of them is not an object.
pub(super) fn write(mut nodes: Vec<Node>, written: &NodeOutput<'_>) -> Result<String> {
    let as_json = match nodes.as_slice() {
        [only] if written.wrap.is_none() => meta::path(only).ends_with(".json"),
        _ => false,
    };
    for node in &mut nodes {
        if !written.keep_annotations {
            for key in [INDEX, LEGACY_INDEX, SEQUENCE_INDENT] {
                meta::clear_annotation(node, key);
            }
        }
        for key in written.clear {
            meta::clear_annotation(node, key);
        }
        meta::clear_empty(node)?;
        if written.style != NodeStyle::default() {
            node.root_mut().style = written.style;
        }
    }
    if let (true, [only]) = (as_json, nodes.as_slice()) {
        let text = kiln_value::json::to_go_string_pretty(&value(only)?);
        return Ok(format!("{text}\n"));
    }
    let Some((kind, version)) = written.wrap else {
        return Ok(kiln_yaml::emit_nodes(&nodes));
    };
    let items = nodes.into_iter().map(|mut node| std::mem::take(node.root_mut())).collect();
    let mut list = Node { style: written.style, ..Node::map() };
    list.push("apiVersion", Node::scalar(version));
    list.push("kind", Node::scalar(kind));
    list.push("items", Node::list(items));
    if let Some(config) = &written.function_config {
        list.push("functionConfig", config.clone());
    }
    let document = Node { kind: NodeKind::Document, content: vec![list], ..Node::default() };
    Ok(kiln_yaml::emit_node(&document))
}

/// The value of a node.
///
/// # Errors
/// When it has none that is JSON.
pub(super) fn value(node: &Node) -> Result<Value> {
    let text = kiln_yaml::emit_node(node);
    let documents = kiln_yaml::read_bytes("", text.as_bytes(), ReadOptions::kustomize_resource())
        .map_err(|problem| crate::build::session::malformed(&problem).nowhere())?;
    Ok(documents.into_iter().next().map_or(Value::Null, kiln_yaml::Document::into_value))
}
