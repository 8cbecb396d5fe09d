//! Keys without a value: `annotations:` and nothing after it.
//!
//! kustomize tells them from `null` and `~`. A strategic merge patch walks over the whole object, and drops
//! every such key that it comes by, wherever the patch itself says nothing.

use std::sync::Arc;

use kiln_schema::{Schema, SchemaNode};
use kiln_value::{Path, Value};

use crate::model::resource::Resource;

/// Drops the keys without a value that a strategic merge comes by.
pub(crate) fn drop_from(resource: &mut Resource, schema: &Schema) {
    let Some((root, document, _)) = resource.as_written(&Path::root()) else { return };
    let mut nulls = Vec::new();
    find(root, schema.root_of(root), schema, &mut Path::root(), &mut nulls);
    if nulls.is_empty() {
        return;
    }
    let document = Arc::clone(document);
    let places = document.places();
    let text = document.source().text();
    for path in nulls {
        let Some((_, _, place)) = resource.as_written(&path) else { continue };
        let is_empty = text.get(places.value(&place).span()).is_some_and(str::is_empty);
        let stands = match resource.object().get_path(&path) {
            Some(Value::Null) => true,
            // Annotations became text when they were read; in kustomize only with the first note of a step.
            Some(Value::String(text)) => {
                text.is_empty() && resource.transformations.is_empty() && is_annotation(&path)
            }
            _ => false,
        };
        if is_empty && stands {
            resource.object_mut().remove(&path);
        }
    }
}

fn is_annotation(path: &Path) -> bool {
    path.segments().starts_with(&["metadata".into(), "annotations".into()])
}

/// The nulls in maps, but for lists whose elements do not merge.
fn find<'s>(
    value: &Value,
    node: Option<SchemaNode<'s>>,
    schema: &'s Schema,
    path: &mut Path,
    found: &mut Vec<Path>,
) {
    match value {
        Value::Map(map) => {
            let node = node.or_else(|| schema.root_of(value));
            for (key, inner) in map {
                path.push(key.as_str());
                match inner {
                    Value::Null => found.push(path.clone()),
                    Value::Map(_) | Value::List(_) => {
                        find(inner, node.and_then(|node| node.field(key)), schema, path, found);
                    }
                    _ => {}
                }
                path.pop();
            }
        }
        Value::List(list) => {
            let Some(node) = node.filter(|node| node.patch_strategy().merges()) else { return };
            for (at, inner) in list.iter().enumerate() {
                path.push(at);
                find(inner, node.items(), schema, path, found);
                path.pop();
            }
        }
        _ => {}
    }
}
