//! The types of the built-in kinds: which fields there are, of which type, under which number, and when
//! they are left out. Everything that must know a type goes by this one table.

use std::collections::HashMap;
use std::sync::LazyLock;

use kiln_object::kubernetes::{TABLE_1_36, TABLE_1_37};
use kiln_value::{Value, json};

use crate::KubernetesVersion;

/// The position of a struct in the table.
pub type StructId = usize;

/// The type of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SchemaType {
    /// Text.
    String,
    /// True or false.
    Bool,
    /// A whole number of 32 bits.
    Int32,
    /// A whole number of 64 bits.
    Int64,
    /// A number.
    Double,
    /// Text in base64.
    Bytes,
    /// `500m`, `2Gi`, or a number.
    Quantity,
    /// A whole number, or text.
    IntOrString,
    /// A time in seconds.
    Time,
    /// A time in microseconds.
    MicroTime,
    /// A duration as Go writes it.
    Duration,
    /// Any object.
    Raw,
    /// `fieldsV1`.
    Fields,
    /// Any value, in a message of its own.
    Json,
    /// A schema, or an array of schemas, or of texts, or a boolean.
    SchemaOr(SchemaOr),
    /// A map with fields.
    Struct(StructId),
    /// A list of values of one type.
    List(Box<SchemaType>),
    /// A map with any keys, and values of one type.
    Map(Box<SchemaType>),
}

/// What may stand in the place of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaOr {
    /// An array of schemas.
    Array,
    /// A boolean.
    Bool,
    /// An array of texts.
    StringArray,
}

/// A field of a struct.
#[derive(Debug)]
pub struct TypeField {
    /// Its name in JSON.
    pub name: &'static str,
    /// Its number in protobuf.
    pub number: u32,
    /// Its type.
    pub ty: SchemaType,
    /// It is a pointer, so that zero and nothing differ.
    pub pointer: bool,
    /// It is left out when empty.
    pub omit_empty: bool,
    /// It is left out when zero.
    pub omit_zero: bool,
    /// It must be there.
    pub required: bool,
    /// The keys of a list of maps; none in a set.
    pub keys: Option<Vec<&'static str>>,
    /// It is one value, however much it holds.
    pub atomic: bool,
    pub default: Option<Value>,
    /// `x-kubernetes-patch-strategy`.
    pub patch_strategy: Option<&'static str>,
    /// `x-kubernetes-patch-merge-key`.
    pub merge_key: Option<&'static str>,
}

/// A type with fields.
#[derive(Debug, Default)]
pub struct Struct {
    /// Such as `core/v1.PodSpec`.
    pub name: &'static str,
    /// It is one value, however much it holds.
    pub atomic: bool,
    /// Its fields, in the order in which they are written.
    pub fields: Vec<TypeField>,
    /// Structs whose fields stand in this one in JSON, and under a number in protobuf.
    pub inline: Vec<(u32, StructId)>,
}

/// Every built-in type, with the kinds that are served by it.
#[derive(Debug, Default)]
pub struct Types {
    structs: Vec<Struct>,
    kinds: HashMap<(&'static str, &'static str), StructId>,
}

/// The types of Kubernetes 1.36, which is what the sandbox serves.
pub fn types() -> &'static Types {
    types_of(KubernetesVersion::V1_36)
}

/// The types of the newest version, to check rules by that may be for any of them.
pub fn newest_types() -> &'static Types {
    types_of(KubernetesVersion::NEWEST)
}

/// The types of a version, read once. There are none of 1.21, of which only merge rules are known.
pub(crate) fn types_of(version: KubernetesVersion) -> &'static Types {
    static V1_36: LazyLock<Types> = LazyLock::new(|| read(TABLE_1_36));
    static V1_37: LazyLock<Types> = LazyLock::new(|| read(TABLE_1_37));
    match version {
        KubernetesVersion::V1_21 | KubernetesVersion::V1_36 => &V1_36,
        KubernetesVersion::V1_37 => &V1_37,
    }
}

impl Types {
    /// How many types there are.
    pub(crate) fn len(&self) -> usize {
        self.structs.len()
    }

    /// The kinds: apiVersion, kind and type.
    pub(crate) fn kinds(&self) -> impl Iterator<Item = (&'static str, &'static str, StructId)> {
        self.kinds.iter().map(|((api_version, kind), id)| (*api_version, *kind, *id))
    }

    /// The type at a position.
    pub fn get(&self, id: StructId) -> &Struct {
        &self.structs[id]
    }

    /// The type of a kind; `api_version` as objects write it.
    pub fn kind(&self, api_version: &str, kind: &str) -> Option<StructId> {
        // The lookup by borrowed parts needs no owned key: both live as long as the table.
        self.kinds.get(&(api_version, kind) as &(&str, &str)).copied()
    }

    /// A type by its name, such as `core/v1.PodSpec`.
    pub fn named(&self, name: &str) -> Option<StructId> {
        self.structs.iter().position(|of| of.name == name)
    }

    /// A field by its name, also one of an inlined struct.
    pub fn field(&self, id: StructId, name: &str) -> Option<&TypeField> {
        let of = self.get(id);
        of.fields
            .iter()
            .find(|field| field.name == name)
            .or_else(|| of.inline.iter().find_map(|(_, inner)| self.field(*inner, name)))
    }

    /// The fields in the order in which they are written, those of inlined structs included.
    pub fn fields(&self, id: StructId) -> Vec<&TypeField> {
        let of = self.get(id);
        let inner = of.inline.iter().flat_map(|(_, inner)| self.fields(*inner));
        of.fields.iter().chain(inner).collect()
    }
}

/// The first field of an object of a built-in kind, or of a part of one, that the kind does not have, as an API server
/// says it: `.spec.replicaz`. None for kinds that are not known here.
pub fn undeclared(api_version: &str, kind: &str, object: &Value) -> Option<String> {
    let id = newest_types().kind(api_version, kind)?;
    let mut path = String::new();
    undeclared_in(id, object, true, &mut path).then_some(path)
}

/// Leaves the path of the first one.
fn undeclared_in(id: StructId, object: &Value, is_root: bool, path: &mut String) -> bool {
    let Value::Map(map) = object else { return false };
    for (key, value) in map {
        let end = path.len();
        path.push('.');
        path.push_str(key);
        let is_object = is_root || newest_types().get(id).name == "core/v1.PersistentVolumeClaim";
        let found = match newest_types().field(id, key) {
            Some(field) => undeclared_below(&field.ty, field.keys.as_deref(), value, path),
            None => !(is_object && matches!(key.as_str(), "apiVersion" | "kind")),
        };
        if found {
            return true;
        }
        path.truncate(end);
    }
    false
}

fn undeclared_below(
    ty: &SchemaType,
    keys: Option<&[&'static str]>,
    value: &Value,
    path: &mut String,
) -> bool {
    let end = path.len();
    let mut below = |ty: &SchemaType, step: &str, value: &Value| {
        path.push_str(step);
        let found = undeclared_below(ty, None, value, path);
        if !found {
            path.truncate(end);
        }
        found
    };
    match (ty, value) {
        (SchemaType::Struct(id), value) => undeclared_in(*id, value, false, path),
        (SchemaType::Map(values), Value::Map(map)) => {
            map.iter().any(|(key, value)| below(values, &format!(".{}", key.as_str()), value))
        }
        (SchemaType::List(items), Value::List(list)) => {
            list.iter().enumerate().any(|(at, value)| {
                let pairs = keys
                    .into_iter()
                    .flatten()
                    .filter_map(|key| Some(format!("{key}={}", json::to_string(value.get(key)?))));
                let pairs = pairs.collect::<Vec<_>>().join(",");
                let step = if pairs.is_empty() { format!("[{at}]") } else { format!("[{pairs}]") };
                below(items, &step, value)
            })
        }
        _ => false,
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
        } else if !line.starts_with(['#', '*']) {
            types.structs[current].fields.extend(field(line, &ids));
        }
    }
    types
}

fn field(line: &'static str, ids: &HashMap<&'static str, StructId>) -> Option<TypeField> {
    let mut parts = line.split(' ');
    let (name, number, ty, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let mut field = TypeField {
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
        patch_strategy: None,
        merge_key: None,
    };
    for extra in parts {
        if let Some(keys) = extra.strip_prefix("L=") {
            field.keys = Some(keys.split(',').filter(|key| !key.is_empty()).collect());
        } else if let Some(default) = extra.strip_prefix("D=") {
            field.default = json::parse(default).ok();
        } else if let Some(strategy) = extra.strip_prefix("P=") {
            field.patch_strategy = Some(strategy);
        } else if let Some(key) = extra.strip_prefix("K=") {
            field.merge_key = Some(key);
        } else if extra == "M" {
            field.atomic = true;
        }
    }
    Some(field)
}

fn parse_type(text: &str, ids: &HashMap<&'static str, StructId>) -> SchemaType {
    if let Some(items) = text.strip_prefix("[]") {
        return SchemaType::List(Box::new(parse_type(items, ids)));
    }
    if let Some(values) = text.strip_prefix("{}") {
        return SchemaType::Map(Box::new(parse_type(values, ids)));
    }
    match text {
        "string" => SchemaType::String,
        "bool" => SchemaType::Bool,
        "int32" => SchemaType::Int32,
        "int64" => SchemaType::Int64,
        "double" => SchemaType::Double,
        "bytes" => SchemaType::Bytes,
        "quantity" => SchemaType::Quantity,
        "intorstring" => SchemaType::IntOrString,
        "time" => SchemaType::Time,
        "microtime" => SchemaType::MicroTime,
        "duration" => SchemaType::Duration,
        "raw" => SchemaType::Raw,
        "fields" => SchemaType::Fields,
        "json" => SchemaType::Json,
        "any:JSONSchemaPropsOrArray" => SchemaType::SchemaOr(SchemaOr::Array),
        "any:JSONSchemaPropsOrBool" => SchemaType::SchemaOr(SchemaOr::Bool),
        "any:JSONSchemaPropsOrStringArray" => SchemaType::SchemaOr(SchemaOr::StringArray),
        name => ids.get(name).map_or(SchemaType::Raw, |id| SchemaType::Struct(*id)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_that_a_kind_does_not_have_are_found() {
        use kiln_value::value;
        let found = |version: &str, kind: &str, object: Value| undeclared(version, kind, &object);
        let replicaz = value!({"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"replicas": 1, "replicaz": 3}});
        assert_eq!(found("apps/v1", "Deployment", replicaz).as_deref(), Some(".spec.replicaz"));
        let in_list = value!({"spec": {"containers": [{"name": "a"}, {"name": "b", "imag": "x"}]}});
        assert_eq!(
            found("v1", "Pod", in_list).as_deref(),
            Some(".spec.containers[name=\"b\"].imag")
        );
        assert_eq!(found("v1", "Secret", value!({"spec": {}})).as_deref(), Some(".spec"));
        assert_eq!(
            found("v1", "Pod", value!({"metadata": {"labels": {"any.thing/x": "y"}}})),
            None
        );
        assert_eq!(found("example.com/v1", "Pod", value!({"x": 1})), None);
    }

    #[test]
    fn every_type_that_is_named_is_there() {
        let types = types();
        assert!(types.structs.len() > 400, "{}", types.structs.len());
        let pod = types.kind("v1", "Pod").unwrap();
        let spec = types.field(pod, "spec").unwrap();
        assert!(
            matches!(&spec.ty, SchemaType::Struct(id) if types.get(*id).name == "core/v1.PodSpec")
        );
        let SchemaType::Struct(spec) = spec.ty else { unreachable!() };
        let containers = types.field(spec, "containers").unwrap();
        assert_eq!((containers.number, containers.keys.clone()), (2, Some(vec!["name"])));
        let raw = types
            .structs
            .iter()
            .flat_map(|of| &of.fields)
            .filter(|field| field.ty == SchemaType::Raw);
        let raw: Vec<_> = raw.map(|field| field.name).collect();
        assert!(raw.len() < 10, "unknown types: {raw:?}");
    }
}
