//! Documents to objects: what counts as one, and lists that are several.

use std::collections::VecDeque;
use std::sync::Arc;

use kiln_value::{Key, Map, Path, Value};
use kiln_yaml::Document;

use crate::error::{Error, Result};
use crate::model::annotations;
use crate::model::output::wrong_node_kind;
use crate::model::resource::{Resource, scalar_text};
use crate::model::scope::Scopes;

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
/// When a document is not an object.
pub(crate) fn from_documents(
    documents: Vec<Document>,
    purpose: Purpose,
    scopes: &Scopes,
    virtual_resource: impl Fn(&Value) -> Option<Value>,
) -> Result<Vec<Resource>> {
    let mut objects = Vec::with_capacity(documents.len());
    let mut queue: VecDeque<(Value, Arc<Document>, Path)> = VecDeque::new();
    for document in documents {
        let value = document.value().clone();
        queue.push_back((value, Arc::new(document), Path::root()));
    }
    while let Some((value, document, place)) = queue.pop_front() {
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
                let items = items.iter().enumerate();
                queue.extend(items.map(|(at, item)| {
                    (item.clone(), Arc::clone(&document), place.join("items").join(at))
                }));
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
                resource.text = Some((Arc::clone(&document), place.clone()));
                // Items of a list have other paths than their document.
                if place.is_root() {
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
    for (key, text) in settled(resource, purpose) {
        // The path was just read.
        let _ = resource.object_mut().set(["metadata", "annotations", key.as_str()], text);
    }
}

/// The annotations that are not the texts which kustomize makes of them.
fn settled(resource: &Resource, purpose: Purpose) -> Vec<(Key, String)> {
    let texts = resource.annotations().into_iter().flatten();
    let odd = texts.filter(|(_, value)| match value {
        Value::String(text) => looks_like_a_time(text) || text.contains('\n'),
        Value::Null => purpose != Purpose::Patch,
        // They become empty text only at the end.
        Value::List(_) | Value::Map(_) => false,
        Value::Bool(_) | Value::Number(_) => true,
    });
    odd.filter_map(|(key, value)| {
        let path: Path = ["metadata", "annotations", key.as_str()].into_iter().collect();
        let text = copied_text(resource, &path, value);
        (value.as_str() != Some(text.as_str())).then(|| (key.clone(), text))
    })
    .collect()
}

/// Puts annotations back that became text when they were read: JSON patches see them as they are written.
pub(crate) fn unsettle_annotations(resource: &mut Resource) {
    let Some((object, ..)) = resource.as_written(&Path::root()) else { return };
    if !resource.transformations.is_empty() {
        // kustomize has written all of them anew to note what was done.
        return;
    }
    let mut raw = Resource::default().with_object(object.clone());
    raw.text.clone_from(&resource.text);
    for (key, text) in settled(&raw, Purpose::Object) {
        let path = ["metadata", "annotations", key.as_str()];
        if resource.object().get_path(path).and_then(Value::as_str) == Some(text.as_str())
            && let Some(value) = raw.object().get_path(path)
        {
            let _ = resource.object_mut().set(path, value.clone());
        }
    }
}

/// The text that kustomize has of a label or annotation when it copies them. What it copies is not folded any longer, so
/// that no line breaks are added.
pub(crate) fn copied_text(resource: &Resource, path: &Path, value: &Value) -> String {
    let written = resource.written(path);
    let is_folded = value.as_str().is_some() && written.is_some_and(|text| text.starts_with('>'));
    let unfolded = || {
        let (_, document, place) = resource.as_written(path)?;
        document.unfolded_twice(&place)
    };
    let unfolded = if is_folded { unfolded() } else { None };
    unfolded.unwrap_or_else(|| node_text(value, written))
}

/// The text that kustomize has of a scalar: what is written, without quotes.
pub(crate) fn node_text(value: &Value, written: Option<&str>) -> String {
    match (value, written) {
        // Text in quotes is what it says.
        (Value::String(text), Some(written)) if written.starts_with(['"', '\'', '|', '>']) => {
            text.to_string()
        }
        (Value::List(_) | Value::Map(_), _) => String::new(),
        (Value::String(text), Some(_)) if !looks_like_a_time(text) => text.to_string(),
        // A number with quotes and a tag.
        (value, Some(written)) if written.starts_with(['"', '\'']) => {
            let read = crate::model::output::parse_text(written);
            read.as_ref().map_or_else(|_| scalar_text(value), scalar_text).to_string()
        }
        (_, Some(written)) => written.to_owned(),
        (Value::Null, None) => "null".to_owned(),
        (value, None) => scalar_text(value).to_string(),
    }
}

/// Times are brought to one form on reading, but annotations keep theirs.
fn looks_like_a_time(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.len() >= 10 && bytes[0].is_ascii_digit() && bytes[4] == b'-' && bytes[7] == b'-'
}
