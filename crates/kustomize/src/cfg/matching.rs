//! Paths through nodes: fields, indexes, `[name=pattern]` and `*`.

use kiln_text::Regex;
use kiln_yaml::{Node, NodeKind, YamlLimits};

use crate::error::{Error, Result};

/// The parts of a path as it is typed: `spec.containers[name=web].image`; a dot in a name has a backslash.
///
/// # Errors
/// When a part has more than one bracket.
pub(super) fn parse(path: &str) -> Result<Vec<String>> {
    // No name has this in it.
    const DOT: &str = "\0";
    let mut parts = Vec::new();
    for part in path.replace("\\.", DOT).split('.').map(|part| part.replace(DOT, ".")) {
        match part.split('[').collect::<Vec<_>>().as_slice() {
            [_] => parts.push(part),
            [name, element] => parts.extend([(*name).to_owned(), format!("[{element}")]),
            _ => {
                return Err(Error::new(format!(
                    "unrecognized path element: {part}.  Should be of the form 'list[field=value]'"
                )));
            }
        }
    }
    Ok(parts)
}

/// Something that a path leads to, and the texts of the fields that elements were found by.
pub(super) struct Match {
    pub(super) node: Node,
    pub(super) by: Vec<String>,
}

/// All that a path leads to.
///
/// # Errors
/// When it leads through something that is neither a list nor a map, or a pattern is malformed.
pub(super) fn find(node: &Node, path: &[String]) -> Result<Vec<Match>> {
    let Some((part, rest)) = path.split_first() else {
        return Ok(vec![Match { node: node.clone(), by: Vec::new() }]);
    };
    if let Ok(index) = part.parse::<usize>() {
        let elements = elements(node)?;
        let element = elements.get(index).ok_or_else(|| {
            let count = elements.len();
            Error::new(format!("index {index} specified but only {count} elements found"))
        })?;
        return find(element, rest);
    }
    if let Some(wanted) = part.strip_prefix('[').and_then(|part| part.strip_suffix(']')) {
        return in_list(node, wanted, rest);
    }
    if part == "*" {
        let mut found = Vec::new();
        for element in elements(node)? {
            found.extend(find(element, rest)?);
        }
        return Ok(found);
    }
    if node.is_null() {
        return Ok(Vec::new());
    }
    if node.kind != NodeKind::Map {
        return Err(wrong_kind(node, NodeKind::Map));
    }
    match node.get(part) {
        None => Ok(Vec::new()),
        // Text may hold YAML of its own.
        Some(inner) if inner.kind == NodeKind::Scalar && !rest.is_empty() => {
            let source = kiln_diagnostic::Source::new("", inner.value.clone()).into();
            let read = kiln_yaml::read_nodes(&source, &YamlLimits::default())
                .map_err(|problem| crate::build::session::malformed(&problem).nowhere())?;
            read.map_or(Ok(Vec::new()), |document| find(document.root(), rest))
        }
        Some(inner) => find(inner, rest),
    }
}

fn in_list(node: &Node, wanted: &str, rest: &[String]) -> Result<Vec<Match>> {
    let (field, pattern) = wanted.split_once('=').ok_or_else(|| {
        Error::new("list path element must contain fieldName=fieldValue for element to match")
    })?;
    let elements = elements(node)?;
    if elements.is_empty() {
        return Ok(Vec::new());
    }
    let pattern = Regex::new(pattern).map_err(|error| Error::new(error.to_string()))?;
    let mut found = Vec::new();
    for element in elements {
        let compared = if field.is_empty() { Some(element) } else { element.get(field) };
        let Some(text) = compared.map(kiln_yaml::emit_node) else { continue };
        let text = text.trim();
        if !pattern.is_match(text) {
            continue;
        }
        if field.is_empty() {
            // kustomize: what follows a plain element is not looked at.
            found.push(Match { node: element.clone(), by: Vec::new() });
            continue;
        }
        for mut inner in find(element, rest)? {
            inner.by.push(text.to_owned());
            found.push(inner);
        }
    }
    Ok(found)
}

fn elements(node: &Node) -> Result<&[Node]> {
    match node.kind {
        NodeKind::List => Ok(&node.content),
        _ if node.is_null() => Ok(&[]),
        _ => Err(wrong_kind(node, NodeKind::List)),
    }
}

fn wrong_kind(node: &Node, wanted: NodeKind) -> Error {
    Error::new(format!(
        "wrong node kind: expected {} but got {}: node contents:\n{}",
        wanted.name(),
        node.kind.name(),
        kiln_yaml::emit_node(node)
    ))
}
