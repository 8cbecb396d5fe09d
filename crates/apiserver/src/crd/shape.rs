//! What apply must know of a custom kind: its schema, read as Kubernetes reads it.

use std::sync::Arc;

use kiln_patch::apply::{ApplyShape, Elements, Form, Member, Scalar};
use kiln_value::{Str, Value};

use crate::types::{Typed, types};

/// A place in the schema of a custom kind.
#[derive(Clone, Debug)]
pub(crate) enum SchemaShape {
    /// The object itself: metadata is built in.
    Root(Option<Arc<Value>>),
    Schema(Arc<Value>, bool),
    /// Metadata, and what is below it.
    Builtin(Typed),
    Text,
    Untyped,
}

impl SchemaShape {
    pub(crate) fn root(schema: Option<&Value>) -> Self {
        SchemaShape::Root(schema.map(|schema| Arc::new(schema.clone())))
    }
}

fn is_on(schema: &Value, flag: &str) -> bool {
    schema.get(flag).and_then(Value::as_bool) == Some(true)
}

fn texts(schema: &Value, field: &str) -> Vec<Str> {
    let list = schema.get(field).and_then(Value::as_list);
    list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str).map(Str::new).collect()
}

/// The members that every object has.
fn known_to_all(name: &str) -> Option<Member<SchemaShape>> {
    match name {
        "kind" | "apiVersion" => Some(Member::Field(SchemaShape::Text)),
        "metadata" => {
            let root = types().kind("v1", "ConfigMap").map(Typed::root)?;
            root.member("metadata")
                .shape()
                .map(|metadata| Member::Field(SchemaShape::Builtin(metadata)))
        }
        _ => None,
    }
}

/// A member by a schema; unknown ones are free where the schema lets them be.
fn member(schema: &Value, name: &str, preserves: bool) -> Member<SchemaShape> {
    let preserves = preserves || is_on(schema, "x-kubernetes-preserve-unknown-fields");
    let fields = schema.get("properties").and_then(Value::as_map);
    if is_on(schema, "x-kubernetes-embedded-resource")
        && let Some(known) = known_to_all(name)
    {
        return known;
    }
    if let Some(field) = fields.and_then(|fields| fields.get(name)) {
        return Member::Field(SchemaShape::Schema(Arc::new(field.clone()), preserves));
    }
    match schema.get("additionalProperties") {
        Some(entry @ Value::Map(_)) => {
            Member::Entry(SchemaShape::Schema(Arc::new(entry.clone()), preserves))
        }
        Some(Value::Bool(true)) => Member::Entry(SchemaShape::Untyped),
        Some(_) => Member::Unknown,
        None if preserves || fields.is_none_or(kiln_value::Map::is_empty) => {
            Member::Entry(SchemaShape::Untyped)
        }
        None => Member::Unknown,
    }
}

impl ApplyShape for SchemaShape {
    fn form(&self) -> Form<Self> {
        match self {
            SchemaShape::Root(_) => Form::Map,
            SchemaShape::Text => Form::Scalar(Scalar::String),
            SchemaShape::Untyped => Form::Untyped,
            SchemaShape::Builtin(typed) => match typed.form() {
                Form::Untyped => Form::Untyped,
                Form::Scalar(scalar) => Form::Scalar(scalar),
                Form::List(items, elements) => Form::List(SchemaShape::Builtin(items), elements),
                Form::Map => Form::Map,
                Form::AtomicMap => Form::AtomicMap,
            },
            SchemaShape::Schema(schema, preserves) => {
                if is_on(schema, "x-kubernetes-int-or-string") {
                    return Form::Scalar(Scalar::Any);
                }
                let atomic = schema.str_at(["x-kubernetes-map-type"]) == Some("atomic");
                match schema.str_at(["type"]) {
                    Some("string") => Form::Scalar(Scalar::String),
                    Some("integer" | "number") => Form::Scalar(Scalar::Number),
                    Some("boolean") => Form::Scalar(Scalar::Bool),
                    Some("object") if atomic => Form::AtomicMap,
                    Some("object") => Form::Map,
                    Some("array") => {
                        let items = schema.get("items");
                        let inner = items.map_or(SchemaShape::Untyped, |items| {
                            SchemaShape::Schema(Arc::new(items.clone()), *preserves)
                        });
                        let elements = match schema.str_at(["x-kubernetes-list-type"]) {
                            Some("set") => Elements::Set,
                            Some("map") => {
                                let default = |key: &Str| {
                                    items?
                                        .get_path(["properties", key.as_str(), "default"])
                                        .cloned()
                                };
                                let keys = texts(schema, "x-kubernetes-list-map-keys").into_iter();
                                Elements::Keyed(
                                    keys.map(|key| (key.clone(), default(&key))).collect(),
                                )
                            }
                            _ => Elements::Atomic,
                        };
                        Form::List(inner, elements)
                    }
                    _ => Form::Untyped,
                }
            }
        }
    }

    fn member(&self, name: &str) -> Member<Self> {
        match self {
            SchemaShape::Root(schema) => known_to_all(name).unwrap_or_else(|| match schema {
                Some(schema) => member(schema, name, false),
                None => Member::Entry(SchemaShape::Untyped),
            }),
            SchemaShape::Text => Member::Unknown,
            SchemaShape::Untyped => Member::Entry(SchemaShape::Untyped),
            SchemaShape::Builtin(typed) => match typed.member(name) {
                Member::Field(typed) => Member::Field(SchemaShape::Builtin(typed)),
                Member::Entry(typed) => Member::Entry(SchemaShape::Builtin(typed)),
                Member::Unknown => Member::Unknown,
            },
            SchemaShape::Schema(schema, preserves) => member(schema, name, *preserves),
        }
    }
}
