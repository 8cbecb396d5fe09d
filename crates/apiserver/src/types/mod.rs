//! The types of the built-in kinds: which fields there are, of which type, under which number, and when
//! they are left out. Everything that must know a type goes by this one table.
//!
//! | module | does |
//! |---|---|
//! | `decode` | reads an object as a Go program with these types would, and writes it as one |
//! | `protobuf` | reads protobuf bodies |
//! | `shape` | tells apply what it must know |

mod decode;
mod protobuf;
mod shape;

use std::collections::HashMap;
use std::sync::OnceLock;

use kiln_value::{Value, json};

pub(crate) use decode::decode;
pub(crate) use protobuf::envelope;
pub(crate) use shape::Typed;

/// The position of a struct in the table.
pub(crate) type StructId = usize;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    String,
    Bool,
    Int32,
    Int64,
    Double,
    Bytes,
    Quantity,
    IntOrString,
    Time,
    MicroTime,
    Duration,
    /// Any object.
    Raw,
    /// `fieldsV1`.
    Fields,
    /// Any value, in a message of its own.
    Json,
    /// A schema, or an array of schemas, or of texts, or a boolean.
    SchemaOr(SchemaOr),
    Struct(StructId),
    List(Box<Type>),
    Map(Box<Type>),
}

/// What may stand in the place of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaOr {
    Array,
    Bool,
    StringArray,
}

/// A field of a struct.
#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    pub(crate) ty: Type,
    pub(crate) pointer: bool,
    pub(crate) omit_empty: bool,
    pub(crate) omit_zero: bool,
    pub(crate) required: bool,
    /// The keys of a list of maps; none in a set.
    pub(crate) keys: Option<Vec<&'static str>>,
    pub(crate) atomic: bool,
    pub(crate) default: Option<Value>,
}

/// A type with fields.
#[derive(Debug, Default)]
pub(crate) struct Struct {
    /// Such as `core/v1.PodSpec`.
    pub(crate) name: &'static str,
    pub(crate) atomic: bool,
    pub(crate) fields: Vec<Field>,
    /// Structs whose fields stand in this one in JSON, and under a number in protobuf.
    pub(crate) inline: Vec<(u32, StructId)>,
}

/// All types.
#[derive(Debug, Default)]
pub(crate) struct Types {
    structs: Vec<Struct>,
    kinds: HashMap<(&'static str, &'static str), StructId>,
}

const TABLE: &str = include_str!("table.txt");

/// The table, read once.
pub(crate) fn types() -> &'static Types {
    static TYPES: OnceLock<Types> = OnceLock::new();
    TYPES.get_or_init(|| read(TABLE))
}

impl Types {
    pub(crate) fn get(&self, id: StructId) -> &Struct {
        &self.structs[id]
    }

    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        // The lookup by borrowed parts needs no owned key: both live as long as the table.
        self.kinds.get(&(api_version, kind) as &(&str, &str)).copied()
    }

    /// A field by its name, also one of an inlined struct.
    pub(crate) fn field(&self, id: StructId, name: &str) -> Option<&Field> {
        let of = self.get(id);
        of.fields
            .iter()
            .find(|field| field.name == name)
            .or_else(|| of.inline.iter().find_map(|(_, inner)| self.field(*inner, name)))
    }

    /// The fields in the order in which they are written, those of inlined structs included.
    pub(crate) fn fields(&self, id: StructId) -> Vec<&Field> {
        let of = self.get(id);
        let inner = of.inline.iter().flat_map(|(_, inner)| self.fields(*inner));
        of.fields.iter().chain(inner).collect()
    }
}

fn read(table: &'static str) -> Types {
    let mut types = Types::default();
    let mut ids: HashMap<&'static str, StructId> = HashMap::new();
    for line in table.lines() {
        if let Some(name) = line.strip_prefix("= ") {
            let name = name.trim_end_matches(" atomic");
            ids.insert(name, types.structs.len());
            types.structs.push(Struct {
                name,
                atomic: line.ends_with(" atomic"),
                ..Struct::default()
            });
        }
    }
    let mut current = 0;
    let mut seen = 0;
    for line in table.lines() {
        if let Some(kind) = line.strip_prefix("@ ") {
            let mut parts = kind.split(' ');
            if let (Some(version), Some(kind), Some(ty)) =
                (parts.next(), parts.next(), parts.next())
            {
                types.kinds.insert((version, kind), ids[ty]);
            }
        } else if line.starts_with("= ") {
            current = seen;
            seen += 1;
        } else if let Some(inline) = line.strip_prefix("> ") {
            if let Some((number, ty)) = inline.split_once(' ') {
                types.structs[current].inline.push((number.parse().unwrap_or(0), ids[ty]));
            }
        } else if !line.starts_with('#') {
            types.structs[current].fields.extend(field(line, &ids));
        }
    }
    types
}

fn field(line: &'static str, ids: &HashMap<&'static str, StructId>) -> Option<Field> {
    let mut parts = line.split(' ');
    let (name, number, ty, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let mut field = Field {
        name,
        number: number.parse().ok()?,
        ty: parse_type(ty, ids),
        pointer: flags.contains('p'),
        omit_empty: flags.contains('o'),
        omit_zero: flags.contains('z'),
        required: flags.contains('!'),
        keys: None,
        atomic: false,
        default: None,
    };
    for extra in parts {
        if let Some(keys) = extra.strip_prefix("L=") {
            field.keys = Some(keys.split(',').filter(|key| !key.is_empty()).collect());
        } else if let Some(default) = extra.strip_prefix("D=") {
            field.default = json::parse(default).ok();
        } else if extra == "M" {
            field.atomic = true;
        }
    }
    Some(field)
}

fn parse_type(text: &str, ids: &HashMap<&'static str, StructId>) -> Type {
    if let Some(items) = text.strip_prefix("[]") {
        return Type::List(Box::new(parse_type(items, ids)));
    }
    if let Some(values) = text.strip_prefix("{}") {
        return Type::Map(Box::new(parse_type(values, ids)));
    }
    match text {
        "string" => Type::String,
        "bool" => Type::Bool,
        "int32" => Type::Int32,
        "int64" => Type::Int64,
        "double" => Type::Double,
        "bytes" => Type::Bytes,
        "quantity" => Type::Quantity,
        "intorstring" => Type::IntOrString,
        "time" => Type::Time,
        "microtime" => Type::MicroTime,
        "duration" => Type::Duration,
        "raw" => Type::Raw,
        "fields" => Type::Fields,
        "json" => Type::Json,
        "any:JSONSchemaPropsOrArray" => Type::SchemaOr(SchemaOr::Array),
        "any:JSONSchemaPropsOrBool" => Type::SchemaOr(SchemaOr::Bool),
        "any:JSONSchemaPropsOrStringArray" => Type::SchemaOr(SchemaOr::StringArray),
        name => ids.get(name).map_or(Type::Raw, |id| Type::Struct(*id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_type_that_is_named_is_there() {
        let types = types();
        assert!(types.structs.len() > 400, "{}", types.structs.len());
        let pod = types.kind("v1", "Pod").unwrap();
        let spec = types.field(pod, "spec").unwrap();
        assert!(matches!(&spec.ty, Type::Struct(id) if types.get(*id).name == "core/v1.PodSpec"));
        let Type::Struct(spec) = spec.ty else { unreachable!() };
        let containers = types.field(spec, "containers").unwrap();
        assert_eq!((containers.number, containers.keys.clone()), (2, Some(vec!["name"])));
        let raw =
            types.structs.iter().flat_map(|of| &of.fields).filter(|field| field.ty == Type::Raw);
        let raw: Vec<_> = raw.map(|field| field.name).collect();
        assert!(raw.len() < 10, "unknown types: {raw:?}");
    }
}
