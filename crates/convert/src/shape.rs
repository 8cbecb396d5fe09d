//! What is known of the type of a value: from the table of Kubernetes' kinds, as far as it goes.

use kiln_equivalence::is_always_there;
use kiln_schema::types::{SchemaType, StructId, types};
use kiln_value::Value;

/// The type of a value, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    Text,
    Int,
    Double,
    Bool,
    /// `500m`, `2Gi`, or a number.
    Quantity,
    /// A whole number, or text.
    IntOrString,
    /// A map with known fields.
    Struct(StructId),
    /// A map with any keys.
    Map(Box<Shape>),
    List(Box<Shape>),
    /// One of several, where a rule is about several kinds.
    Either(Vec<Shape>),
    Unknown,
}

impl Shape {
    /// The shape of the objects of kinds, each with its API version.
    pub(crate) fn of_kinds<'k>(kinds: impl IntoIterator<Item = (&'k str, &'k str)>) -> Shape {
        let shapes = kinds.into_iter().map(|(api_version, kind)| {
            types().kind(api_version, kind).map_or(Shape::Unknown, Shape::Struct)
        });
        Shape::either(shapes.collect())
    }

    fn either(mut shapes: Vec<Shape>) -> Shape {
        shapes.dedup();
        if shapes.contains(&Shape::Unknown) || shapes.is_empty() {
            return Shape::Unknown;
        }
        if shapes.windows(2).all(|pair| pair[0] == pair[1]) {
            return shapes.remove(0);
        }
        Shape::Either(shapes)
    }

    fn of(ty: &SchemaType) -> Shape {
        match ty {
            SchemaType::String
            | SchemaType::Time
            | SchemaType::MicroTime
            | SchemaType::Duration
            | SchemaType::Bytes => Shape::Text,
            SchemaType::Bool => Shape::Bool,
            SchemaType::Int32 | SchemaType::Int64 => Shape::Int,
            SchemaType::Double => Shape::Double,
            SchemaType::Quantity => Shape::Quantity,
            SchemaType::IntOrString => Shape::IntOrString,
            SchemaType::Struct(id) => Shape::Struct(*id),
            SchemaType::List(element) => Shape::List(Box::new(Shape::of(element))),
            SchemaType::Map(value) => Shape::Map(Box::new(Shape::of(value))),
            SchemaType::Raw | SchemaType::Fields | SchemaType::Json | SchemaType::SchemaOr(_) => {
                Shape::Unknown
            }
        }
    }

    /// The shape of a literal.
    pub(crate) fn of_value(value: &Value) -> Shape {
        match value {
            Value::Null => Shape::Unknown,
            Value::Bool(_) => Shape::Bool,
            Value::Number(number) if number.is_integer() => Shape::Int,
            Value::Number(_) => Shape::Double,
            Value::String(_) => Shape::Text,
            Value::List(list) => {
                Shape::List(Box::new(list.iter().next().map_or(Shape::Unknown, Shape::of_value)))
            }
            Value::Map(_) => Shape::Map(Box::new(Shape::Unknown)),
        }
    }

    /// The shape of a field, and whether an API server sees to it that it is there.
    pub(crate) fn field(&self, name: &str) -> (Shape, bool) {
        match self {
            Shape::Struct(id) => match types().field(*id, name) {
                Some(field) => (Shape::of(&field.ty), is_always_there(*id, field)),
                None => (Shape::Unknown, false),
            },
            Shape::Map(value) => ((**value).clone(), false),
            Shape::Either(shapes) => {
                let found: Vec<(Shape, bool)> =
                    shapes.iter().map(|shape| shape.field(name)).collect();
                let always = found.iter().all(|(_, always)| *always);
                let known: Vec<Shape> = found
                    .into_iter()
                    .map(|(shape, _)| shape)
                    .filter(|shape| *shape != Shape::Unknown)
                    .collect();
                (Shape::either(known), always)
            }
            _ => (Shape::Unknown, false),
        }
    }

    /// The shape of the elements of a list.
    pub(crate) fn element(&self) -> Shape {
        match self {
            Shape::List(element) => (**element).clone(),
            Shape::Either(shapes) => Shape::either(shapes.iter().map(Shape::element).collect()),
            _ => Shape::Unknown,
        }
    }

    pub(crate) fn is_list(&self) -> bool {
        matches!(self, Shape::List(_))
    }

    /// Whether it is certainly not a list.
    pub(crate) fn is_no_list(&self) -> bool {
        !matches!(self, Shape::List(_) | Shape::Unknown | Shape::Either(_))
    }

    pub(crate) fn is_map(&self) -> bool {
        matches!(self, Shape::Map(_) | Shape::Struct(_))
    }

    pub(crate) fn is_number(&self) -> bool {
        matches!(self, Shape::Int | Shape::Double)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_known_by_kind_and_by_what_kinds_share() {
        let pod = Shape::of_kinds([("v1", "Pod")]);
        let (spec, always) = pod.field("spec");
        assert!(always);
        let (containers, always) = spec.field("containers");
        assert!(always && containers.is_list());
        assert_eq!(containers.element().field("image"), (Shape::Text, true));
        let workloads = Shape::of_kinds([("apps/v1", "Deployment"), ("apps/v1", "StatefulSet")]);
        let template = workloads.field("spec").0.field("template").0;
        assert_eq!(template.field("spec").0, spec);
        assert_eq!(Shape::of_kinds([("x/v1", "Y")]).field("spec"), (Shape::Unknown, false));
    }
}
