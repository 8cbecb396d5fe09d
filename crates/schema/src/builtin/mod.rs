//! The built-in tables, and the short constructors that the generated source of 1.21 uses.

mod of_types;
mod v1_21;

use std::borrow::Cow;
use std::sync::LazyLock;

use kiln_object::kubernetes::{TABLE_1_36, TABLE_1_37};

use crate::table::{
    ListType, MapType, PatchStrategy, ShapeId, Span, Table, TableField, TableKind, TableShape,
};
use crate::types::types_of;
use crate::{KindScope, KubernetesVersion};

pub(crate) fn table(version: KubernetesVersion) -> &'static Table {
    match version {
        KubernetesVersion::V1_21 => &v1_21::TABLE,
        KubernetesVersion::V1_36 => &V1_36,
        KubernetesVersion::V1_37 => &V1_37,
    }
}

static V1_36: LazyLock<Table> =
    LazyLock::new(|| of_types::table(types_of(KubernetesVersion::V1_36), TABLE_1_36));
static V1_37: LazyLock<Table> =
    LazyLock::new(|| of_types::table(types_of(KubernetesVersion::V1_37), TABLE_1_37));

const N: Option<KindScope> = Some(KindScope::Namespaced);
const C: Option<KindScope> = Some(KindScope::Cluster);

#[allow(clippy::too_many_arguments, reason = "one call per generated entry, in the order of Shape")]
const fn shape(
    fields: [u32; 2],
    items: ShapeId,
    values: ShapeId,
    list: u8,
    map: u8,
    strategy: u8,
    merge_key: [u32; 2],
    map_keys: [u32; 2],
) -> TableShape {
    TableShape {
        fields: Span { start: fields[0], length: fields[1] },
        items,
        values,
        is_list: list != 0,
        list_type: match list {
            2 => ListType::Set,
            3 => ListType::Map,
            _ => ListType::Atomic,
        },
        map_type: match map {
            0 => None,
            1 => Some(MapType::Granular),
            _ => Some(MapType::Atomic),
        },
        strategy: PatchStrategy::from_bits(strategy),
        merge_key: Span { start: merge_key[0], length: merge_key[1] },
        map_keys: Span { start: map_keys[0], length: map_keys[1] },
    }
}

const fn field(name: &'static str, shape: ShapeId) -> TableField {
    TableField { name: Cow::Borrowed(name), shape }
}

const fn key(name: &'static str) -> Cow<'static, str> {
    Cow::Borrowed(name)
}

const fn kind(
    api_version: &'static str,
    kind: &'static str,
    scope: Option<KindScope>,
    shape: Option<ShapeId>,
) -> TableKind {
    TableKind { api_version: Cow::Borrowed(api_version), kind: Cow::Borrowed(kind), scope, shape }
}
