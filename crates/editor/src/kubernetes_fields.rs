//! The fields of Kubernetes' built-in kinds, for documents that Kiln's own tables do not describe.

use kiln_schema::types::{SchemaType, StructId, TypeField, types};
use kiln_value::json;

use crate::outline::OutlineStep;

/// What may stand at a path below a type; none where any value may.
pub(crate) fn type_at(root: StructId, path: &[OutlineStep]) -> Option<SchemaType> {
    path.iter().try_fold(SchemaType::Struct(root), |holds, step| match (holds, step) {
        (SchemaType::Struct(id), OutlineStep::Key(key)) => {
            types().field(id, key).map(|field| field.ty.clone())
        }
        (SchemaType::Map(inner), OutlineStep::Key(_))
        | (SchemaType::List(inner), OutlineStep::Index(_)) => Some(*inner),
        _ => None,
    })
}

/// The fields that may stand at a path below a type.
pub(crate) fn fields_at(root: StructId, path: &[OutlineStep]) -> Vec<&'static TypeField> {
    match type_at(root, path) {
        Some(SchemaType::Struct(id)) => types().fields(id),
        _ => Vec::new(),
    }
}

/// The field that a path leads to, and the name of the type that has it.
pub(crate) fn field_at(
    root: StructId,
    path: &[OutlineStep],
) -> Option<(&'static TypeField, &'static str)> {
    let (last, above) = path.split_last()?;
    let SchemaType::Struct(id) = type_at(root, above)? else { return None };
    Some((types().field(id, last.key()?)?, types().get(id).name))
}

/// Whether what a field holds begins on the next line.
pub(crate) fn is_block(holds: &SchemaType) -> bool {
    matches!(holds, SchemaType::Struct(_) | SchemaType::List(_) | SchemaType::Map(_))
}

/// A type in words, as the reference of Kubernetes' API has it.
pub(crate) fn in_words(holds: &SchemaType) -> String {
    match holds {
        SchemaType::Struct(id) => short(types().get(*id).name).to_owned(),
        SchemaType::List(items) => format!("list of {}", in_words(items)),
        SchemaType::Map(values) => format!("map of {}", in_words(values)),
        SchemaType::Bool => "boolean".to_owned(),
        SchemaType::Int32 | SchemaType::Int64 => "integer".to_owned(),
        SchemaType::Double => "number".to_owned(),
        SchemaType::Quantity => "quantity".to_owned(),
        SchemaType::IntOrString => "integer or string".to_owned(),
        SchemaType::Time | SchemaType::MicroTime => "time".to_owned(),
        SchemaType::Duration => "duration".to_owned(),
        SchemaType::Bytes => "base64".to_owned(),
        SchemaType::String => "string".to_owned(),
        SchemaType::Raw | SchemaType::Fields | SchemaType::Json | SchemaType::SchemaOr(_) => {
            "any value".to_owned()
        }
    }
}

/// `PodSpec` of `core/v1.PodSpec`.
pub(crate) fn short(name: &str) -> &str {
    name.rsplit('.').next().unwrap_or(name)
}

/// What is known of a field, as Markdown.
pub(crate) fn describe(field: &TypeField, owner: &str) -> String {
    let mut text = format!("**{}** ({})", field.name, in_words(&field.ty));
    if field.required {
        text.push_str(", required");
    }
    if let Some(default) = &field.default {
        text.push_str(&format!("\n\nDefault: `{}`", json::to_string(default)));
    }
    text.push_str(&format!("\n\nA field of Kubernetes' {}.", short(owner)));
    text
}
