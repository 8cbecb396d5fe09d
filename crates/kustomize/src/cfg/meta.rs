//! What kyaml keeps in annotations: where an object comes from, under two names each.

use std::collections::BTreeMap;

use kiln_yaml::{Node, NodeKind, NodeStyle};

use crate::error::{Error, Result};

pub(super) const INDEX: &str = "internal.config.kubernetes.io/index";
pub(super) const PATH: &str = "internal.config.kubernetes.io/path";
pub(super) const ID: &str = "internal.config.kubernetes.io/id";
pub(super) const SEQUENCE_INDENT: &str = "internal.config.kubernetes.io/seqindent";
pub(super) const LEGACY_INDEX: &str = "config.kubernetes.io/index";
pub(super) const LEGACY_PATH: &str = "config.kubernetes.io/path";
pub(super) const LEGACY_ID: &str = "config.k8s.io/id";
const MIGRATION: &str = "internal.config.kubernetes.io/annotations-migration-resource-id";

/// The names and the older names of the same.
const NAMES: [(&str, &str); 3] = [(PATH, LEGACY_PATH), (INDEX, LEGACY_INDEX), (ID, LEGACY_ID)];

/// A field of an object that is not empty.
fn field<'n>(node: &'n Node, name: &str) -> Option<&'n Node> {
    node.get(name).filter(|value| {
        let is_empty =
            matches!(value.kind, NodeKind::Map | NodeKind::List) && value.content.is_empty();
        !value.is_null() && !is_empty
    })
}

fn text<'n>(node: &'n Node, name: &str) -> &'n str {
    field(node, name).map_or("", |value| value.value.as_str())
}

pub(super) fn kind(node: &Node) -> &str {
    text(node.root(), "kind")
}

pub(super) fn api_version(node: &Node) -> &str {
    text(node.root(), "apiVersion")
}

pub(super) fn name(node: &Node) -> &str {
    field(node.root(), "metadata").map_or("", |metadata| text(metadata, "name"))
}

pub(super) fn namespace(node: &Node) -> &str {
    field(node.root(), "metadata").map_or("", |metadata| text(metadata, "namespace"))
}

pub(super) fn annotation<'n>(node: &'n Node, key: &str) -> Option<&'n str> {
    let annotations = field(field(node.root(), "metadata")?, "annotations")?;
    annotations.get(key).map(|value| value.value.as_str())
}

/// A value of either name.
fn either<'n>(node: &'n Node, key: &str, legacy: &str) -> &'n str {
    annotation(node, key).or_else(|| annotation(node, legacy)).unwrap_or_default()
}

pub(super) fn path(node: &Node) -> &str {
    either(node, PATH, LEGACY_PATH)
}

pub(super) fn set_annotation(node: &mut Node, key: &str, value: &str) -> Result<()> {
    clear_empty(node)?;
    let mut map = node.root_mut();
    for part in ["metadata", "annotations"] {
        is_map(map)?;
        if map.get(part).is_none() {
            map.push(part, Node::map());
        }
        map = map.get_mut(part).ok_or_else(|| Error::new("missing Resource metadata"))?;
    }
    is_map(map)?;
    let mut text = Node { style: NodeStyle::SINGLE_QUOTED, ..Node::text(value) };
    match map.get_mut(key) {
        Some(old) => {
            text.style = old.style;
            *old = text;
        }
        None => map.push(key, text),
    }
    Ok(())
}

pub(super) fn clear_annotation(node: &mut Node, key: &str) {
    let annotations = node.root_mut().get_mut("metadata").and_then(|m| m.get_mut("annotations"));
    if let Some(annotations) = annotations {
        annotations.remove(key);
    }
}

/// Removes empty annotations, and metadata that is empty then.
pub(super) fn clear_empty(node: &mut Node) -> Result<()> {
    let root = node.root_mut();
    is_map(root)?;
    if let Some(metadata) = root.get_mut("metadata") {
        is_map(metadata)?;
        if metadata.get("annotations").is_some_and(|inner| inner.content.is_empty()) {
            metadata.remove("annotations");
        }
        if metadata.content.is_empty() {
            root.remove("metadata");
        }
    }
    Ok(())
}

fn is_map(node: &Node) -> Result<()> {
    if node.kind == NodeKind::Map || node.is_null() {
        return Ok(());
    }
    Err(Error::new(format!(
        "wrong node kind: expected MappingNode but got {}: node contents:\n{}",
        node.kind.name(),
        kiln_yaml::emit_node(node)
    )))
}

/// Gives what has one of the two names the other, too.
pub(super) fn copy_legacy(node: &mut Node) -> Result<()> {
    for (key, legacy) in NAMES {
        let value = |key: &str| annotation(node, key).unwrap_or_default().to_owned();
        let (new, old) = (value(key), value(legacy));
        match (new.is_empty(), old.is_empty()) {
            (false, true) => set_annotation(node, legacy, &new)?,
            (true, false) => set_annotation(node, key, &old)?,
            _ => {}
        }
    }
    Ok(())
}

fn check_mismatch(node: &Node) -> Result<()> {
    for ((key, legacy), what) in NAMES.iter().zip(["path", "index", "id"]) {
        let (new, old) = (annotation(node, key), annotation(node, legacy));
        if let (Some(new), Some(old)) = (new, old)
            && new != old
            && !new.is_empty()
            && !old.is_empty()
        {
            return Err(mismatch(what));
        }
    }
    Ok(())
}

fn mismatch(what: &str) -> Error {
    Error::new(format!(
        "resource input to function has mismatched legacy and internal {what} annotations"
    ))
}

/// Objects that pass through filters; filters are not run on none.
pub(super) struct Pipeline {
    nodes: Vec<Node>,
    ended: bool,
}

/// What each object said about itself before a filter, by the number it got.
type Before = BTreeMap<String, BTreeMap<String, String>>;

impl Pipeline {
    pub(super) fn of(nodes: Vec<Node>) -> Self {
        Pipeline { nodes, ended: false }
    }

    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// Whether nothing was left after a filter.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    pub(super) fn filter(
        &mut self,
        filter: impl FnOnce(&mut Vec<Node>) -> Result<()>,
    ) -> Result<()> {
        if self.ended {
            return Ok(());
        }
        let before = self.number()?;
        filter(&mut self.nodes)?;
        if self.nodes.is_empty() {
            self.ended = true;
            return Ok(());
        }
        self.reconcile(&before)
    }

    pub(super) fn written<T: Default>(
        self,
        write: impl FnOnce(Vec<Node>) -> Result<T>,
    ) -> Result<T> {
        if self.ended { Ok(T::default()) } else { write(self.nodes) }
    }

    fn number(&mut self) -> Result<Before> {
        let mut before = Before::new();
        for (at, node) in self.nodes.iter_mut().enumerate() {
            let number = at.to_string();
            set_annotation(node, MIGRATION, &number)?;
            let known = NAMES.iter().flat_map(|(key, legacy)| [*key, *legacy]);
            let said =
                known.filter_map(|key| Some((key.to_owned(), annotation(node, key)?.to_owned())));
            before.insert(number, said.collect());
            copy_legacy(node)?;
            check_mismatch(node)?;
        }
        Ok(before)
    }

    /// What a filter did under one name holds for the other.
    fn reconcile(&mut self, before: &Before) -> Result<()> {
        let (internal, legacy) = names_in_use(before)?;
        for node in &mut self.nodes {
            copy_legacy(node)?;
            let number = annotation(node, MIGRATION).unwrap_or_default().to_owned();
            if let Some(said) = before.get(&number) {
                for ((key, old_key), what) in NAMES.iter().zip(["path", "index"]) {
                    follow_change(node, said, (key, old_key), what)?;
                }
            }
            for (key, old_key) in NAMES {
                if !internal {
                    clear_annotation(node, key);
                }
                if !legacy {
                    clear_annotation(node, old_key);
                }
            }
            check_mismatch(node)?;
            clear_annotation(node, MIGRATION);
        }
        Ok(())
    }
}

fn follow_change(
    node: &mut Node,
    said: &BTreeMap<String, String>,
    (key, legacy): (&str, &str),
    what: &str,
) -> Result<()> {
    let Some(original) = said.get(key).or_else(|| said.get(legacy)).filter(|o| !o.is_empty())
    else {
        return Ok(());
    };
    let value = |key: &str| annotation(node, key).unwrap_or_default().to_owned();
    let (new, old) = (value(key), value(legacy));
    if new != *original && old != *original && new != old {
        return Err(mismatch(what));
    }
    if new != *original {
        set_annotation(node, legacy, &new)?;
    } else if old != *original {
        set_annotation(node, key, &old)?;
    }
    Ok(())
}

/// Which of the two names the input has.
fn names_in_use(before: &Before) -> Result<(bool, bool)> {
    if before.is_empty() {
        return Ok((true, true));
    }
    let mut seen: Option<(bool, bool)> = None;
    for said in before.values().filter(|said| !said.is_empty()) {
        let uses = (
            NAMES.iter().any(|(key, _)| said.contains_key(*key)),
            NAMES.iter().any(|(_, legacy)| said.contains_key(*legacy)),
        );
        if *seen.get_or_insert(uses) != uses {
            return Err(Error::new(
                "the annotation formatting in the input resources is not consistent",
            ));
        }
    }
    Ok(seen.unwrap_or((false, false)))
}
