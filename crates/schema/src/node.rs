//! A place in a schema.

use std::borrow::Cow;
use std::fmt;
use std::ptr;

use crate::table::{Table, TableShape};
use crate::{ListType, MapType, PatchStrategy};

/// What is known about the value at one place of an object. Copying it copies two pointers.
///
/// Fields about which there is nothing to say (plain scalars, and fields the schema does not know)
/// have no node.
#[derive(Clone, Copy)]
pub struct SchemaNode<'s> {
    table: &'s Table,
    shape: &'s TableShape,
}

impl<'s> SchemaNode<'s> {
    pub(crate) fn new(table: &'s Table, shape: &'s TableShape) -> Self {
        SchemaNode { table, shape }
    }

    /// The node of a field, or of any entry when this is a map with values of one type.
    pub fn field(self, name: &str) -> Option<SchemaNode<'s>> {
        self.table.field(self.shape, name).map(|shape| SchemaNode { shape, ..self })
    }

    /// The node of a field that the type names itself, not of any entry of a map.
    pub fn named_field(self, name: &str) -> Option<SchemaNode<'s>> {
        self.table.named_field(self.shape, name).map(|shape| SchemaNode { shape, ..self })
    }

    /// Whether this is a map whose values have a type that is worth knowing.
    pub fn has_typed_values(self) -> bool {
        self.table.shape(self.shape.values).is_some()
    }

    /// The node of the elements, when this is a list of maps or lists.
    pub fn items(self) -> Option<SchemaNode<'s>> {
        self.table.shape(self.shape.items).map(|shape| SchemaNode { shape, ..self })
    }

    /// The node some fields further in.
    pub fn at<'p>(self, path: impl IntoIterator<Item = &'p str>) -> Option<SchemaNode<'s>> {
        path.into_iter().try_fold(self, SchemaNode::field)
    }

    /// How the list merges; `None` when this is not a list.
    pub fn list_type(self) -> Option<ListType> {
        self.shape.is_list.then_some(self.shape.list_type)
    }

    /// How the map merges; lists and maps of which nothing else is known count as granular.
    pub fn map_type(self) -> MapType {
        self.shape.map_type.unwrap_or_default()
    }

    /// How a strategic merge treats the field.
    pub fn patch_strategy(self) -> PatchStrategy {
        self.shape.strategy
    }

    /// `x-kubernetes-patch-merge-key`: the one key by which the API server's strategic merge tells
    /// elements apart.
    pub fn merge_key(self) -> Option<&'s str> {
        self.shape.merge_key.of(&self.table.keys).first().map(|key| &**key)
    }

    /// `x-kubernetes-list-map-keys`: the keys by which apply and kustomize tell elements apart.
    pub fn map_keys(self) -> &'s [Cow<'static, str>] {
        self.shape.map_keys.of(&self.table.keys)
    }

    /// The keys that make an element of this list unique: the map keys, else the merge key, else
    /// none.
    pub fn element_keys(self) -> &'s [Cow<'static, str>] {
        let shape = self.shape;
        let keys = if shape.map_keys.length > 0 { shape.map_keys } else { shape.merge_key };
        keys.of(&self.table.keys)
    }

    /// The names of the fields that have nodes, sorted.
    pub fn field_names(self) -> impl Iterator<Item = &'s str> {
        self.shape.fields.of(&self.table.fields).iter().map(|field| &*field.name)
    }
}

/// Whether both are the same place.
impl PartialEq for SchemaNode<'_> {
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.shape, other.shape)
    }
}

impl Eq for SchemaNode<'_> {}

impl fmt::Debug for SchemaNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node")
            .field("list_type", &self.list_type())
            .field("keys", &self.element_keys())
            .field("strategy", &self.shape.strategy)
            .field("map_type", &self.map_type())
            .field("fields", &self.field_names().collect::<Vec<_>>())
            .finish()
    }
}
