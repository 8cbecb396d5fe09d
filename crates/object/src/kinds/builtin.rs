//! The kinds that an API server of Kubernetes 1.36 serves, as its discovery lists them.
//!
//! Servers of other versions are asked for theirs; without a server, this is the version that Kiln goes by.

use std::borrow::Cow;
use std::sync::LazyLock;

use kiln_value::Str;

use super::{Kind, KindNames, Subresource, Verbs};
use crate::gvk::GroupVersion;
use crate::kubernetes::{KindRow, SubresourceRow, TABLE_1_36, kind_rows};

const ALL: Verbs =
    &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const NO_COLLECTION: Verbs = &["create", "delete", "get", "list", "patch", "update", "watch"];
const READ_LIST: Verbs = &["get", "list"];
const READ_WRITE: Verbs = &["get", "patch", "update"];
const PROXY: Verbs = &["create", "delete", "get", "patch", "update"];
const CONNECT: Verbs = &["create", "get"];
const CREATE: Verbs = &["create"];
const READ: Verbs = &["get"];
const UPDATE: Verbs = &["update"];

/// The verbs that come nearest to some: no more than there are.
pub(super) fn nearest_verbs(has: impl Fn(&str) -> bool) -> Verbs {
    let sets = [ALL, NO_COLLECTION, READ_LIST, READ_WRITE, CONNECT, CREATE, READ];
    sets.into_iter().find(|set| set.iter().all(|verb| has(verb))).unwrap_or(&[])
}

/// What any object of a custom kind can be asked for.
pub(super) const CUSTOM_VERBS: Verbs = ALL;
pub(super) const STATUS: Subresource = sub("status", "", "", READ_WRITE);
pub(super) const SCALE: Subresource = sub("scale", "autoscaling/v1", "Scale", READ_WRITE);

const fn sub(
    name: &'static str,
    api_version: &'static str,
    kind: &'static str,
    verbs: Verbs,
) -> Subresource {
    Subresource { name, api_version, kind, verbs }
}

/// The built-in kinds, sorted by kind, group and version.
pub(super) fn kinds() -> &'static [Kind] {
    static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
        let mut kinds: Vec<Kind> = kind_rows(TABLE_1_36).map(of_row).collect();
        kinds.sort_by(|a, b| a.order().cmp(&b.order()));
        kinds
    });
    &KINDS
}

fn of_row(row: KindRow<'static>) -> Kind {
    let GroupVersion { group, version } = GroupVersion::parse(row.api_version);
    // Read once, and kept as long as the process.
    let names = |names: Vec<&'static str>| KindNames::Fixed(names.leak());
    Kind {
        group,
        version,
        kind: Str::new_static(row.kind),
        plural: Str::new_static(row.plural),
        singular: None,
        list_kind: None,
        namespaced: row.namespaced,
        short_names: names(row.short_names),
        categories: names(row.categories),
        subresources: Cow::Owned(row.subresources.iter().map(of_subresource).collect()),
        verbs: verbs_of(&row.verbs),
        served: true,
        storage: true,
    }
}

fn of_subresource(row: &SubresourceRow<'static>) -> Subresource {
    match row.name {
        // Of the object itself, in every kind.
        "status" => STATUS,
        name => sub(name, row.api_version, row.kind, verbs_of(&row.verbs)),
    }
}

/// The set of exactly these verbs.
fn verbs_of(verbs: &[&str]) -> Verbs {
    let sets = [ALL, NO_COLLECTION, READ_LIST, READ_WRITE, PROXY, CONNECT, CREATE, READ, UPDATE];
    sets.into_iter().find(|set| *set == verbs).unwrap_or_default()
}
