//! What apply must know of the built-in types.

use kiln_patch::apply::{Elements, Form, Member, Scalar, Shape};
use kiln_value::Str;

use super::{Field, StructId, Type, types};

/// A place in a built-in type.
#[derive(Clone, Debug)]
pub(crate) struct Typed {
    ty: PlaceType,
}

#[derive(Clone, Debug)]
enum PlaceType {
    /// The object itself, which has `kind` and `apiVersion` besides.
    Root(StructId),
    Field(&'static Field),
    Inner(&'static Type),
    Text,
    Untyped,
}

impl Typed {
    /// The root of a kind.
    pub(crate) fn root(id: StructId) -> Self {
        Typed { ty: PlaceType::Root(id) }
    }
}

impl Shape for Typed {
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
            Type::Struct(id) => match types().field(*id, name) {
                Some(field) => Member::Field(Typed { ty: PlaceType::Field(field) }),
                None if matches!(name, "kind" | "apiVersion")
                    && types().get(*id).name == "core/v1.PersistentVolumeClaim" =>
                {
                    Member::Field(Typed { ty: PlaceType::Text })
                }
                None => Member::Unknown,
            },
            Type::Map(values) => Member::Entry(Typed { ty: PlaceType::Inner(values) }),
            Type::Raw | Type::Json | Type::Fields | Type::SchemaOr(_) => {
                Member::Entry(Typed { ty: PlaceType::Untyped })
            }
            _ => Member::Unknown,
        }
    }
}

fn form(ty: &'static Type, field: Option<&'static Field>) -> Form<Typed> {
    match ty {
        Type::String | Type::Bytes => Form::Scalar(Scalar::String),
        Type::Bool => Form::Scalar(Scalar::Bool),
        Type::Int32 | Type::Int64 | Type::Double => Form::Scalar(Scalar::Number),
        Type::Quantity | Type::IntOrString | Type::Time | Type::MicroTime | Type::Duration => {
            Form::Scalar(Scalar::Any)
        }
        Type::Raw | Type::Json | Type::Fields | Type::SchemaOr(_) => Form::Untyped,
        Type::Struct(id) => {
            let atomic = types().get(*id).atomic || field.is_some_and(|field| field.atomic);
            if atomic { Form::AtomicMap } else { Form::Map }
        }
        Type::Map(_) => {
            if field.is_some_and(|field| field.atomic) {
                Form::AtomicMap
            } else {
                Form::Map
            }
        }
        Type::List(items) => {
            let elements = match field.and_then(|field| field.keys.as_ref()) {
                None => Elements::Atomic,
                Some(keys) if keys.is_empty() => Elements::Set,
                Some(keys) => {
                    let default = |key: &str| match &**items {
                        Type::Struct(id) => {
                            let field = types().field(*id, key)?;
                            let always =
                                !field.pointer && !field.omit_empty && field.ty == Type::String;
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
