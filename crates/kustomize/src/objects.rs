//! Documents to objects: what counts as one, and lists that are several.

use std::collections::VecDeque;
use std::sync::Arc;

use kiln_value::{Map, Path, Value};
use kiln_yaml::Document;

use crate::annotations;
use crate::error::{Error, Result};
use crate::output::wrong_node_kind;
use crate::resource::{Resource, scalar_text};
use crate::scope::Scopes;

/// What objects are read for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// To be part of the build.
    Object,
    /// To be merged into others: null means deletion there.
    Patch,
    /// To configure a step.
    Config,
}

/// The objects in these documents. The items of a list come after all other documents, as kustomize
/// queues them. What `virtual_resource` gives for a document takes its place, and needs no name.
///
/// # Errors
/// When a document is no object.
pub(crate) fn from_documents(
    documents: Vec<Document>,
    purpose: Purpose,
    scopes: &Scopes,
    virtual_resource: impl Fn(&Value) -> Option<Value>,
) -> Result<Vec<Resource>> {
    let mut objects = Vec::with_capacity(documents.len());
    let mut queue: VecDeque<(Value, Arc<Document>, bool)> = VecDeque::new();
    for document in documents {
        let value = document.value().clone();
        queue.push_back((value, Arc::new(document), true));
    }
    while let Some((value, document, whole)) = queue.pop_front() {
        if is_empty(&value) {
            continue;
        }
        let value = match virtual_resource(&value) {
            Some(value) => value,
            None => {
                check(&value).map_err(|error| error.at(Some(document.place())))?;
                value
            }
        };
        let kind = value.get("kind").map(scalar_text).unwrap_or_default();
        match (kind.ends_with("List"), value.get("items")) {
            (true, Some(Value::List(items))) => {
                queue.extend(items.iter().map(|item| (item.clone(), Arc::clone(&document), false)));
            }
            (true, Some(Value::Null)) => {}
            (true, Some(other)) => {
                let found = match other {
                    Value::Map(_) => "map[string]interface {}",
                    Value::String(_) => "string",
                    Value::Bool(_) => "bool",
                    _ => "int",
                };
                return Err(Error::new(format!(
                    "expected array in {kind}/items, but found {found}"
                ))
                .at(Some(document.locate(&["items"].into_iter().collect()))));
            }
            _ => {
                let mut resource = Resource::new(value, scopes);
                // Items of a list have other paths than their document.
                if whole {
                    resource.document = Some(document);
                }
                settle_annotations(&mut resource, purpose);
                annotations::remember(&mut resource);
                objects.push(resource);
            }
        }
    }
    Ok(objects)
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Map(map) => map.is_empty(),
        Value::List(list) => list.is_empty(),
        _ => false,
    }
}

/// An object has a kind and, unless it is a list, a name.
///
/// # Errors
/// When one of them is missing.
pub(crate) fn check(value: &Value) -> Result<()> {
    let Value::Map(object) = value else {
        return Err(wrong_node_kind("MappingNode", value));
    };
    let metadata = match object.get("metadata") {
        None | Some(Value::Null) => None,
        Some(Value::Map(metadata)) => Some(metadata),
        Some(other) => return Err(wrong_node_kind("MappingNode", other)),
    };
    let text = |map: Option<&Map>, key: &str| {
        map.and_then(|map| map.get(key)).map(scalar_text).unwrap_or_default()
    };
    let kind = text(Some(object), "kind");
    let name = text(metadata, "name");
    let missing = if kind.is_empty() {
        "kind"
    } else if name.is_empty() && !kind.ends_with("List") {
        "metadata.name"
    } else {
        return Ok(());
    };
    let texts = |key: &str| {
        let map = metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_map);
        let mut pairs: Vec<String> = map
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}:{}", scalar_text(value)))
            .collect();
        pairs.sort();
        pairs.join(" ")
    };
    Err(Error::new(format!(
        "missing {missing} in object {{{{{} {kind}}} {{{{{name} {}}} map[{}] map[{}]}}}}",
        text(Some(object), "apiVersion"),
        text(metadata, "namespace"),
        texts("labels"),
        texts("annotations"),
    ))
    .hint(format!("add {missing} to the object")))
}

/// Makes texts of annotations that are numbers, as they are written: `1.50`, not 1.5.
fn settle_annotations(resource: &mut Resource, purpose: Purpose) {
    let odd: Vec<String> = resource
        .annotations()
        .into_iter()
        .flatten()
        .filter(|(_, value)| match value {
            Value::String(text) => looks_like_a_time(text),
            Value::Null => purpose != Purpose::Patch,
            _ => true,
        })
        .map(|(key, _)| key.to_string())
        .collect();
    for key in odd {
        let path: Path = ["metadata", "annotations", key.as_str()].into_iter().collect();
        let value = resource.object().get_path(&path).cloned().unwrap_or_default();
        let written = resource.written(&path).map(str::to_owned);
        let text = match (&value, written) {
            // Text in quotes is what it says.
            (Value::String(text), Some(written)) if written.starts_with(['"', '\'', '|', '>']) => {
                text.to_string()
            }
            (Value::List(_) | Value::Map(_), _) => String::new(),
            (_, Some(written)) => written,
            (Value::Null, None) => "null".to_owned(),
            (value, None) => scalar_text(value).to_string(),
        };
        // The path was just read.
        let _ = resource.object_mut().set(&path, text);
    }
}

/// Times are brought to one form on reading, but annotations keep theirs.
fn looks_like_a_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10 && bytes[0].is_ascii_digit() && bytes[4] == b'-' && bytes[7] == b'-'
}
