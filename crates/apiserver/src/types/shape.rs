//! What apply must know of the built-in types.

use kiln_patch::apply::{ApplyShape, Elements, Form, Member, Scalar};
use kiln_value::Str;

use super::{SchemaType, StructId, TypeField, types};

/// A place in a built-in type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    ty: PlaceType,
}

#[derive(Clone, Debug)]
enum PlaceType {
    /// The object itself, which has `kind` and `apiVersion` besides.
    Root(StructId),
    Field(&'static TypeField),
    Inner(&'static SchemaType),
    Text,
    Untyped,
}

impl Typed {
    /// The root of a kind.
    pub(crate) fn root(id: StructId) -> Self {
        Typed { ty: PlaceType::Root(id) }
    }
}

impl ApplyShape for Typed {
    fn form(&self) -> Form<Self> {
        match &self.ty {
            PlaceType::Root(_) => Form::Map,
            PlaceType::Text => Form::Scalar(Scalar::String),
            PlaceType::Untyped => Form::Untyped,
            PlaceType::Inner(ty) => form(ty, None),
            PlaceType::Field(field) => form(&field.ty, Some(field)),
        }
    }

    fn member(&self, name: &str) -> Member<Self> {
        let ty = match &self.ty {
            PlaceType::Root(id) => {
                return match types().field(*id, name) {
                    Some(field) => Member::Field(Typed { ty: PlaceType::Field(field) }),
                    None if matches!(name, "kind" | "apiVersion") => {
                        Member::Field(Typed { ty: PlaceType::Text })
                    }
                    None => Member::Unknown,
                };
            }
            PlaceType::Text => return Member::Unknown,
            PlaceType::Untyped => return Member::Entry(Typed { ty: PlaceType::Untyped }),
            PlaceType::Inner(ty) => *ty,
            PlaceType::Field(field) => &field.ty,
        };
        match ty {
            SchemaType::Struct(id) => match types().field(*id, name) {
                Some(field) => Member::Field(Typed { ty: PlaceType::Field(field) }),
                None if matches!(name, "kind" | "apiVersion")
                    && types().get(*id).name == "core/v1.PersistentVolumeClaim" =>
                {
                    Member::Field(Typed { ty: PlaceType::Text })
                }
                None => Member::Unknown,
            },
            SchemaType::Map(values) => Member::Entry(Typed { ty: PlaceType::Inner(values) }),
            SchemaType::Raw | SchemaType::Json | SchemaType::Fields | SchemaType::SchemaOr(_) => {
                Member::Entry(Typed { ty: PlaceType::Untyped })
            }
            _ => Member::Unknown,
        }
    }
}

fn form(ty: &'static SchemaType, field: Option<&'static TypeField>) -> Form<Typed> {
    match ty {
        SchemaType::String | SchemaType::Bytes => Form::Scalar(Scalar::String),
        SchemaType::Bool => Form::Scalar(Scalar::Bool),
        SchemaType::Int32 | SchemaType::Int64 | SchemaType::Double => Form::Scalar(Scalar::Number),
        SchemaType::Quantity
        | SchemaType::IntOrString
        | SchemaType::Time
        | SchemaType::MicroTime
        | SchemaType::Duration => Form::Scalar(Scalar::Any),
        SchemaType::Raw | SchemaType::Json | SchemaType::Fields | SchemaType::SchemaOr(_) => {
            Form::Untyped
        }
        SchemaType::Struct(id) => {
            let atomic = types().get(*id).atomic || field.is_some_and(|field| field.atomic);
            if atomic { Form::AtomicMap } else { Form::Map }
        }
        SchemaType::Map(_) => {
            if field.is_some_and(|field| field.atomic) {
                Form::AtomicMap
            } else {
                Form::Map
            }
        }
        SchemaType::List(items) => {
            let elements = match field.and_then(|field| field.keys.as_ref()) {
                None => Elements::Atomic,
                Some(keys) if keys.is_empty() => Elements::Set,
                Some(keys) => {
                    let default = |key: &str| match &**items {
                        SchemaType::Struct(id) => {
                            let field = types().field(*id, key)?;
                            let always = !field.pointer
                                && !field.omit_empty
                                && field.ty == SchemaType::String;
                            // What is always written has a default, if only an empty one.
                            field.default.clone().or_else(|| always.then(|| "".into()))
                        }
                        _ => None,
                    };
                    Elements::Keyed(keys.iter().map(|key| (Str::new(key), default(key))).collect())
                }
            };
            Form::List(Typed { ty: PlaceType::Inner(items) }, elements)
        }
    }
}
