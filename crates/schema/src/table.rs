//! Flat tables: every shape, field and kind in one slice each, linked by index.
//!
//! The same form serves the built-in tables, which are constants in the program (nothing is built
//! or parsed when it starts), and those made from documents at run time.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::KindScope;

/// How the elements of a list are identified when it is merged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ListType {
    /// The list is one value.
    #[default]
    Atomic,
    /// The elements are scalars, each there once.
    Set,
    /// The elements are maps, told apart by the values of some keys.
    Map,
}

/// Whether the entries of a map are merged one by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MapType {
    /// Each entry on its own.
    #[default]
    Granular,
    /// The map is one value.
    Atomic,
}

/// What `x-kubernetes-patch-strategy` says about a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct PatchStrategy(u8);

impl PatchStrategy {
    const MERGE: u8 = 1;
    const REPLACE: u8 = 2;
    const RETAIN_KEYS: u8 = 4;

    /// Reads the comma-separated form; unknown words count for nothing.
    pub(crate) fn parse(text: &str) -> Self {
        PatchStrategy(text.split(',').fold(0, |bits, word| {
            bits | match word {
                "merge" => Self::MERGE,
                "replace" => Self::REPLACE,
                "retainKeys" => Self::RETAIN_KEYS,
                _ => 0,
            }
        }))
    }

    pub(crate) const fn from_bits(bits: u8) -> Self {
        PatchStrategy(bits)
    }

    pub(crate) fn bits(self) -> u8 {
        self.0
    }

    /// Whether lists of this field are merged element by element.
    pub fn merges(self) -> bool {
        self.0 & Self::MERGE != 0
    }

    /// Whether the field is replaced as a whole.
    pub fn replaces(self) -> bool {
        self.0 & Self::REPLACE != 0
    }

    /// Whether only the keys that a patch names stay.
    pub fn retains_keys(self) -> bool {
        self.0 & Self::RETAIN_KEYS != 0
    }
}

/// What is known about the value at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct TableShape {
    /// The fields of an object type: a range of [`Table::fields`], sorted by name.
    pub(crate) fields: Span,
    /// The shape of list elements.
    pub(crate) items: ShapeId,
    /// The shape of map values.
    pub(crate) values: ShapeId,
    pub(crate) is_list: bool,
    pub(crate) list_type: ListType,
    /// `None`: not said, which counts as granular.
    pub(crate) map_type: Option<MapType>,
    pub(crate) strategy: PatchStrategy,
    /// `x-kubernetes-patch-merge-key`: none or one of [`Table::keys`].
    pub(crate) merge_key: Span,
    /// `x-kubernetes-list-map-keys`: a range of [`Table::keys`].
    pub(crate) map_keys: Span,
}

/// A range of another slice of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) length: u32,
}

impl Span {
    pub(crate) fn of<T>(self, all: &[T]) -> &[T] {
        &all[self.start as usize..][..self.length as usize]
    }
}

/// The position of a shape; [`UNKNOWN`] for a place about which nothing is known.
pub(crate) type ShapeId = u32;

/// Position 0 of every table holds an empty shape that stands for all we know nothing about.
pub(crate) const UNKNOWN: ShapeId = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableField {
    pub(crate) name: Cow<'static, str>,
    pub(crate) shape: ShapeId,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TableKind {
    pub(crate) api_version: Cow<'static, str>,
    pub(crate) kind: Cow<'static, str>,
    pub(crate) scope: Option<KindScope>,
    /// `None` when the table knows no more than the scope.
    pub(crate) shape: Option<ShapeId>,
}

impl TableKind {
    pub(crate) fn order(&self, api_version: &str, kind: &str) -> Ordering {
        (&*self.api_version, &*self.kind).cmp(&(api_version, kind))
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Table {
    pub(crate) shapes: Cow<'static, [TableShape]>,
    pub(crate) fields: Cow<'static, [TableField]>,
    pub(crate) keys: Cow<'static, [Cow<'static, str>]>,
    /// Sorted by apiVersion and kind.
    pub(crate) kinds: Cow<'static, [TableKind]>,
}

impl Table {
    pub(crate) fn kind(&self, api_version: &str, kind: &str) -> Option<&TableKind> {
        let at = self.kinds.binary_search_by(|entry| entry.order(api_version, kind)).ok()?;
        Some(&self.kinds[at])
    }

    pub(crate) fn shape(&self, id: ShapeId) -> Option<&TableShape> {
        (id != UNKNOWN).then(|| &self.shapes[id as usize])
    }

    pub(crate) fn named_field(&self, shape: &TableShape, name: &str) -> Option<&TableShape> {
        let fields = shape.fields.of(&self.fields);
        let at = fields.binary_search_by(|field| (*field.name).cmp(name)).ok()?;
        self.shape(fields[at].shape)
    }

    pub(crate) fn field(&self, shape: &TableShape, name: &str) -> Option<&TableShape> {
        self.named_field(shape, name).or_else(|| self.shape(shape.values))
    }
}
