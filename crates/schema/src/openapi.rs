//! Reads OpenAPI documents and CustomResourceDefinitions into tables.
//!
//! Definitions are taken from a queue, so that a long chain of references needs no deep stack; only
//! what a document nests itself is walked recursively, and readers limit that.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use kiln_value::{Path, Value};

use crate::table::{
    ListType, MapType, PatchStrategy, ShapeId, Span, TableField, TableKind, TableShape,
};
use crate::table::{Table, UNKNOWN};
use crate::{KindScope, builtin};

/// A document that is not an OpenAPI document or no CustomResourceDefinition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchemaError {
    /// Where in the document.
    pub path: Path,
    /// The kind of value that the schema needs here.
    pub wanted: &'static str,
    /// What was found: a [`Value::type_name`], or `nothing`.
    pub found: &'static str,
}

impl fmt::Display for SchemaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SchemaError { path, wanted, found } = self;
        if path.is_root() {
            return write!(f, "cannot read the schema: wanted {wanted}, found {found}");
        }
        write!(f, "cannot read the schema: {path} must be {wanted}, found {found}")
    }
}

impl std::error::Error for SchemaError {}

fn wrong<'p>(
    path: impl IntoIterator<Item = &'p str>,
    wanted: &'static str,
    found: Option<&Value>,
) -> SchemaError {
    let found = found.map_or("nothing", Value::type_name);
    SchemaError { path: path.into_iter().collect(), wanted, found }
}

/// An OpenAPI document of version 2 or 3.
pub(crate) fn read_document(document: &Value) -> Result<Table, SchemaError> {
    let (place, definitions) = match document.get("definitions") {
        Some(definitions) => (&["definitions"][..], definitions),
        None => match document.get_path(["components", "schemas"]) {
            Some(schemas) => (&["components", "schemas"][..], schemas),
            None => {
                let wanted = "an OpenAPI document with definitions or components.schemas";
                return Err(wrong([], wanted, Some(document)));
            }
        },
    };
    let Value::Map(map) = definitions else {
        return Err(wrong(place.iter().copied(), "a map of definitions", Some(definitions)));
    };
    let mut reader = OpenApiReader::new(definitions);
    for (name, definition) in map {
        for gvk in definition.get(GROUP_VERSION_KIND).and_then(Value::as_list).into_iter().flatten()
        {
            if let Some((api_version, kind)) = group_version_kind(gvk) {
                let shape = reader.definition(name);
                reader.kind(api_version, kind.to_owned()).shape = Some(shape);
            }
        }
    }
    for (path, operations) in document.get("paths").and_then(Value::as_map).into_iter().flatten() {
        let gvk = operations.get_path(["get", GROUP_VERSION_KIND]).and_then(group_version_kind);
        let Some((api_version, kind)) = gvk else { continue };
        let entry = reader.kind(api_version, kind.to_owned());
        // One path with a namespace in it decides; there are others that list all namespaces.
        if path.contains("namespaces/{namespace}") {
            entry.scope = Some(KindScope::Namespaced);
        } else {
            entry.scope.get_or_insert(KindScope::Cluster);
        }
    }
    Ok(reader.finish())
}

/// The versions of a CustomResourceDefinition.
pub(crate) fn read_crd(crd: &Value) -> Result<Table, SchemaError> {
    let text = |path: &[&'static str]| {
        let found = crd.get_path(path.iter().copied());
        found.and_then(Value::as_str).ok_or_else(|| wrong(path.iter().copied(), "a string", found))
    };
    let group = text(&["spec", "group"])?;
    let kind = text(&["spec", "names", "kind"])?;
    let scope = match text(&["spec", "scope"])? {
        "Cluster" => KindScope::Cluster,
        _ => KindScope::Namespaced,
    };
    let versions = crd.get_path(["spec", "versions"]);
    let Some(Value::List(versions)) = versions else {
        return Err(wrong(["spec", "versions"], "a list of versions", versions));
    };
    let nothing = Value::Null;
    let mut reader = OpenApiReader::new(&nothing);
    let metadata = reader.object_meta();
    for version in versions {
        let Some(name) = version.get("name").and_then(Value::as_str) else {
            return Err(wrong(
                ["spec", "versions"],
                "a list of versions with names",
                Some(version),
            ));
        };
        let mut root = match version.get_path(["schema", "openAPIV3Schema"]) {
            Some(schema) => reader.inline(schema).0,
            None => TableShape::default(),
        };
        // The API server puts its own metadata into every kind, whatever the schema says.
        let mut fields = root.fields.of(&reader.fields).to_vec();
        fields.retain(|field| field.name != "metadata");
        fields.push(TableField { name: Cow::Borrowed("metadata"), shape: metadata });
        root.fields = reader.push_fields(fields);
        let shape = reader.add(root);
        let entry = reader.kind(format!("{group}/{name}"), kind.to_owned());
        (entry.scope, entry.shape) = (Some(scope), Some(shape));
    }
    Ok(reader.finish())
}

const GROUP_VERSION_KIND: &str = "x-kubernetes-group-version-kind";

fn group_version_kind(gvk: &Value) -> Option<(String, &str)> {
    let version = gvk.get("version")?.as_str()?;
    let api_version = match gvk.get("group").and_then(Value::as_str) {
        None | Some("") => version.to_owned(),
        Some(group) => format!("{group}/{version}"),
    };
    Some((api_version, gvk.get("kind")?.as_str()?))
}

/// How many references may follow each other before we take them for a circle.
const LONGEST_CHAIN: usize = 64;

struct OpenApiReader<'d> {
    definitions: &'d Value,
    shapes: Vec<TableShape>,
    /// For a shape that refers to another: what it says itself goes first, the rest comes from there.
    bases: HashMap<ShapeId, ShapeId>,
    fields: Vec<TableField>,
    keys: Vec<Cow<'static, str>>,
    kinds: HashMap<(String, String), TableKind>,
    /// Definitions that something refers to, and their shapes.
    named: HashMap<String, ShapeId>,
    /// Those of them that are not read yet.
    waiting: Vec<(&'d Value, ShapeId)>,
    /// Equal shapes are stored once.
    seen: HashMap<TableShape, ShapeId>,
    seen_keys: HashMap<Vec<String>, Span>,
}

impl<'d> OpenApiReader<'d> {
    fn new(definitions: &'d Value) -> Self {
        OpenApiReader {
            definitions,
            shapes: vec![TableShape::default()],
            bases: HashMap::new(),
            fields: Vec::new(),
            keys: Vec::new(),
            kinds: HashMap::new(),
            named: HashMap::new(),
            waiting: Vec::new(),
            seen: HashMap::new(),
            seen_keys: HashMap::new(),
        }
    }

    fn kind(&mut self, api_version: String, kind: String) -> &mut TableKind {
        let entry = self.kinds.entry((api_version, kind));
        let (api_version, kind) = entry.key().clone();
        entry.or_insert_with(|| TableKind {
            api_version: Cow::Owned(api_version),
            kind: Cow::Owned(kind),
            scope: None,
            shape: None,
        })
    }

    /// The shape of a definition, to be read later.
    fn definition(&mut self, name: &str) -> ShapeId {
        if let Some(&shape) = self.named.get(name) {
            return shape;
        }
        let Some(definition) = self.definitions.get(name) else { return UNKNOWN };
        let shape = self.push(TableShape::default());
        self.named.insert(name.to_owned(), shape);
        self.waiting.push((definition, shape));
        shape
    }

    fn push(&mut self, shape: TableShape) -> ShapeId {
        self.shapes.push(shape);
        id(self.shapes.len() - 1)
    }

    fn add(&mut self, shape: TableShape) -> ShapeId {
        if shape == TableShape::default() {
            return UNKNOWN;
        }
        if let Some(&known) = self.seen.get(&shape) {
            return known;
        }
        let at = self.push(shape.clone());
        self.seen.insert(shape, at);
        at
    }

    fn push_fields(&mut self, mut fields: Vec<TableField>) -> Span {
        if fields.is_empty() {
            return Span::default();
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        let span = Span { start: id(self.fields.len()), length: id(fields.len()) };
        self.fields.extend(fields);
        span
    }

    fn push_keys(&mut self, keys: Vec<String>) -> Span {
        if keys.is_empty() {
            return Span::default();
        }
        if let Some(&span) = self.seen_keys.get(&keys) {
            return span;
        }
        let span = Span { start: id(self.keys.len()), length: id(keys.len()) };
        self.keys.extend(keys.iter().cloned().map(Cow::Owned));
        self.seen_keys.insert(keys, span);
        span
    }

    /// The shape of a schema written in place, and the shape it refers to.
    fn inline(&mut self, schema: &'d Value) -> (TableShape, ShapeId) {
        let mut shape = TableShape::default();
        // OpenAPI 3 wraps references that have siblings.
        let reference = schema
            .get("$ref")
            .or_else(|| schema.get("allOf")?.index(0)?.get("$ref"))
            .and_then(Value::as_str);
        let base = reference.map_or(UNKNOWN, |reference| {
            let name = reference.rsplit('/').next().unwrap_or(reference);
            self.definition(&name.replace("~1", "/").replace("~0", "~"))
        });
        let text = |key: &str| schema.get(key).and_then(Value::as_str);
        shape.is_list = text("type") == Some("array") || schema.get("items").is_some();
        shape.list_type = match text("x-kubernetes-list-type") {
            Some("set") => ListType::Set,
            Some("map") => ListType::Map,
            _ => ListType::Atomic,
        };
        shape.map_type = match text("x-kubernetes-map-type") {
            Some("atomic") => Some(MapType::Atomic),
            Some("granular") => Some(MapType::Granular),
            _ => None,
        };
        shape.strategy =
            text("x-kubernetes-patch-strategy").map_or_else(Default::default, PatchStrategy::parse);
        let merge_key = text("x-kubernetes-patch-merge-key").map(str::to_owned);
        shape.merge_key = self.push_keys(merge_key.into_iter().collect());
        let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_list);
        let keys = keys.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        shape.map_keys = self.push_keys(keys.collect());
        if let Some(items) = schema.get("items") {
            shape.items = self.child(items);
        }
        if let Some(values) = schema.get("additionalProperties") {
            shape.values = self.child(values);
        }
        let properties = schema.get("properties").and_then(Value::as_map);
        let mut fields = Vec::new();
        for (name, property) in properties.into_iter().flatten() {
            let shape = self.child(property);
            if shape != UNKNOWN {
                fields.push(TableField { name: Cow::Owned(name.to_string()), shape });
            }
        }
        shape.fields = self.push_fields(fields);
        (shape, base)
    }

    fn child(&mut self, schema: &'d Value) -> ShapeId {
        let (shape, base) = self.inline(schema);
        if shape == TableShape::default() {
            return base;
        }
        if base == UNKNOWN {
            return self.add(shape);
        }
        let at = self.push(shape);
        self.bases.insert(at, base);
        at
    }

    /// The metadata of every object, as Kubernetes itself has it.
    fn object_meta(&mut self) -> ShapeId {
        let table = builtin::table(crate::KubernetesVersion::V1_36);
        let pod = table.kind("v1", "Pod").and_then(|kind| table.shape(kind.shape?));
        pod.and_then(|pod| table.field(pod, "metadata"))
            .map_or(UNKNOWN, |metadata| self.import(table, metadata))
    }

    /// Copies a shape of another table. Metadata is shallow, so recursion is fine.
    fn import(&mut self, table: &Table, shape: &TableShape) -> ShapeId {
        let mut copy = shape.clone();
        let child = |reader: &mut Self, at| {
            table.shape(at).map_or(UNKNOWN, |shape| reader.import(table, shape))
        };
        copy.items = child(self, shape.items);
        copy.values = child(self, shape.values);
        let owned = |span: Span| span.of(&table.keys).iter().map(ToString::to_string).collect();
        copy.merge_key = self.push_keys(owned(shape.merge_key));
        copy.map_keys = self.push_keys(owned(shape.map_keys));
        let fields = shape.fields.of(&table.fields).iter();
        let fields = fields
            .map(|field| TableField { name: field.name.clone(), shape: child(self, field.shape) })
            .collect();
        copy.fields = self.push_fields(fields);
        self.add(copy)
    }

    fn finish(mut self) -> Table {
        while let Some((definition, at)) = self.waiting.pop() {
            let (shape, base) = self.inline(definition);
            self.shapes[at as usize] = shape;
            if base != UNKNOWN {
                self.bases.insert(at, base);
            }
        }
        let own = self.shapes.clone();
        for &start in self.bases.keys() {
            let mut at = start;
            for _ in 0..LONGEST_CHAIN {
                let Some(&base) = self.bases.get(&at) else { break };
                fill_in(&mut self.shapes[start as usize], &own[base as usize]);
                at = base;
            }
        }
        let mut kinds: Vec<TableKind> = self.kinds.into_values().collect();
        kinds.sort_by(|a, b| a.order(&b.api_version, &b.kind));
        Table {
            shapes: Cow::Owned(self.shapes),
            fields: Cow::Owned(self.fields),
            keys: Cow::Owned(self.keys),
            kinds: Cow::Owned(kinds),
        }
    }
}

/// Takes from the base what the shape does not say itself.
fn fill_in(shape: &mut TableShape, base: &TableShape) {
    fn or<T: Default + PartialEq + Copy>(own: &mut T, base: T) {
        if *own == T::default() {
            *own = base;
        }
    }
    or(&mut shape.fields, base.fields);
    or(&mut shape.items, base.items);
    or(&mut shape.values, base.values);
    or(&mut shape.is_list, base.is_list);
    or(&mut shape.list_type, base.list_type);
    or(&mut shape.map_type, base.map_type);
    or(&mut shape.strategy, base.strategy);
    or(&mut shape.merge_key, base.merge_key);
    or(&mut shape.map_keys, base.map_keys);
}

/// A document would need gigabytes to reach four thousand million shapes.
fn id(position: usize) -> u32 {
    u32::try_from(position).expect("a schema has fewer than 2^32 parts")
}
