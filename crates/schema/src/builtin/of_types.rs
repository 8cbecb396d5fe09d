//! The merge rules of a version of Kubernetes, out of the table of its types.

use std::borrow::Cow;
use std::collections::BTreeMap;

use kiln_object::kubernetes::kind_rows;

use crate::KindScope;
use crate::table::{
    ListType, MapType, PatchStrategy, ShapeId, Span, Table, TableField, TableKind, TableShape,
    UNKNOWN,
};
use crate::types::{SchemaType, StructId, TypeField, Types};

/// The table of types, with the kinds and scopes of the text that they were read from.
pub(super) fn table(types: &'static Types, text: &'static str) -> Table {
    let count = types.len();
    let mut builder = Builder {
        types,
        shapes: Vec::new(),
        fields: Vec::new(),
        keys: Vec::new(),
        roles: Vec::new(),
    };
    // One shape for each struct, at a position that is known beforehand: structs hold each other. The first shape stands
    // for whatever is not known.
    builder.shapes.resize(count + 1, TableShape::default());
    for id in 0..count {
        builder.fill(id);
    }
    for (role, id) in std::mem::take(&mut builder.roles) {
        let TableShape { fields, map_type, .. } = builder.shapes[id + 1];
        let shape = &mut builder.shapes[role];
        (shape.fields, shape.map_type) = (fields, shape.map_type.or(map_type));
    }
    let mut kinds: BTreeMap<(&'static str, &'static str), TableKind> = BTreeMap::new();
    let entry = |api_version, kind| TableKind {
        api_version: Cow::Borrowed(api_version),
        kind: Cow::Borrowed(kind),
        scope: None,
        shape: None,
    };
    for (api_version, kind, id) in types.kinds() {
        let known = kinds.entry((api_version, kind)).or_insert_with(|| entry(api_version, kind));
        known.shape = Some(shape_of(id));
    }
    for row in kind_rows(text) {
        let known = kinds
            .entry((row.api_version, row.kind))
            .or_insert_with(|| entry(row.api_version, row.kind));
        let scope = if row.namespaced { KindScope::Namespaced } else { KindScope::Cluster };
        known.scope = Some(scope);
    }
    Table {
        shapes: Cow::Owned(builder.shapes),
        fields: Cow::Owned(builder.fields),
        keys: Cow::Owned(builder.keys),
        kinds: Cow::Owned(kinds.into_values().collect()),
    }
}

/// The shape of a struct.
fn shape_of(id: StructId) -> ShapeId {
    position(id + 1)
}

fn position(at: usize) -> ShapeId {
    ShapeId::try_from(at).unwrap_or(UNKNOWN)
}

struct Builder {
    types: &'static Types,
    shapes: Vec<TableShape>,
    fields: Vec<TableField>,
    keys: Vec<Cow<'static, str>>,
    /// Shapes of fields that say more of a struct than the struct itself; they get its fields when these are known.
    roles: Vec<(usize, StructId)>,
}

impl Builder {
    /// Fills in the fields of a struct. Those of which there is nothing to say are left out.
    fn fill(&mut self, id: StructId) {
        let fields = self.types.fields(id);
        let mut known: Vec<TableField> = fields
            .into_iter()
            .map(|field| TableField { name: Cow::Borrowed(field.name), shape: self.field(field) })
            .filter(|field| field.shape != UNKNOWN)
            .collect();
        known.sort_by(|a, b| a.name.cmp(&b.name));
        let span = Span { start: position(self.fields.len()), length: position(known.len()) };
        self.fields.extend(known);
        let shape = &mut self.shapes[id + 1];
        shape.fields = span;
        shape.map_type = self.types.get(id).atomic.then_some(MapType::Atomic);
    }

    /// The shape of a field.
    fn field(&mut self, field: &'static TypeField) -> ShapeId {
        let said = TableShape {
            strategy: PatchStrategy::parse(field.patch_strategy.unwrap_or_default()),
            merge_key: self.key_span(field.merge_key.as_slice()),
            map_type: field.atomic.then_some(MapType::Atomic),
            ..TableShape::default()
        };
        let shape = match &field.ty {
            SchemaType::List(items) => {
                let keys = field.keys.as_deref();
                TableShape {
                    is_list: true,
                    list_type: match keys {
                        Some([]) => ListType::Set,
                        Some(_) => ListType::Map,
                        None => ListType::Atomic,
                    },
                    map_keys: self.key_span(keys.unwrap_or_default()),
                    items: self.nested(items),
                    ..said
                }
            }
            SchemaType::Map(values) => TableShape { values: self.nested(values), ..said },
            SchemaType::Struct(id) if said == TableShape::default() => return shape_of(*id),
            SchemaType::Struct(id) => {
                self.roles.push((self.shapes.len(), *id));
                said
            }
            _ => said,
        };
        self.add(shape)
    }

    /// The shape of elements and values, of which only their type is known.
    fn nested(&mut self, ty: &SchemaType) -> ShapeId {
        match ty {
            SchemaType::Struct(id) => shape_of(*id),
            SchemaType::List(items) => {
                let shape = TableShape {
                    is_list: true,
                    items: self.nested(items),
                    ..TableShape::default()
                };
                self.add(shape)
            }
            SchemaType::Map(values) => {
                let shape = TableShape { values: self.nested(values), ..TableShape::default() };
                self.add(shape)
            }
            _ => UNKNOWN,
        }
    }

    fn add(&mut self, shape: TableShape) -> ShapeId {
        if shape == TableShape::default() {
            return UNKNOWN;
        }
        self.shapes.push(shape);
        position(self.shapes.len() - 1)
    }

    fn key_span(&mut self, keys: &[&'static str]) -> Span {
        let start = if keys.is_empty() { 0 } else { position(self.keys.len()) };
        self.keys.extend(keys.iter().map(|key| Cow::Borrowed(*key)));
        Span { start, length: position(keys.len()) }
    }
}
