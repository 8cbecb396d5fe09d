//! The order of the output.

use rustc_hash::FxHashMap;

use crate::error::{Error, Result};
use crate::load::kustomization::SortOptions;
use crate::model::id::{ORDER_FIRST, ORDER_LAST, ResId};
use crate::model::resource::Resource;

/// Sorts as the options say.
///
/// # Errors
/// When the options contradict themselves.
pub(crate) fn sort(resources: &mut Vec<Resource>, options: &SortOptions) -> Result<()> {
    match (options.order.as_str(), &options.legacy_sort_options) {
        ("fifo", None) => Ok(()),
        ("fifo", Some(_)) => Err(Error::new(
            "the field 'sortOptions.legacySortOptions' is set but the selected sort order is 'fifo', not 'legacy'",
        )),
        ("legacy", None) => {
            legacy(resources, &ORDER_FIRST, &ORDER_LAST);
            Ok(())
        }
        ("legacy", Some(kinds)) => {
            let first: Vec<&str> = kinds.order_first.iter().map(String::as_str).collect();
            let last: Vec<&str> = kinds.order_last.iter().map(String::as_str).collect();
            legacy(resources, &first, &last);
            Ok(())
        }
        _ => Err(Error::new("the field 'sortOptions.order' must be one of [fifo, legacy]")),
    }
}

/// The legacy order: some kinds first, some last, and within a kind by namespace and name.
pub(crate) fn legacy(resources: &mut Vec<Resource>, first: &[&str], last: &[&str]) {
    let mut ranks: FxHashMap<&str, i64> = FxHashMap::default();
    for (at, kind) in first.iter().enumerate() {
        ranks.insert(kind, at as i64 - first.len() as i64);
    }
    for (at, kind) in last.iter().enumerate() {
        ranks.insert(kind, at as i64 + 1);
    }
    let mut keyed: Vec<(SortKey, Resource)> = std::mem::take(resources)
        .into_iter()
        .map(|resource| (SortKey::new(resource.id(), &ranks), resource))
        .collect();
    keyed.sort_by(|a, b| a.0.cmp(&b.0));
    resources.extend(keyed.into_iter().map(|(_, resource)| resource));
}

/// What sorts an object.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct SortKey {
    rank: i64,
    /// Core Namespaces come before Namespace kinds of other groups.
    other_namespace: bool,
    gvk: String,
    namespace: String,
    name: String,
}

impl SortKey {
    fn new(id: &ResId, ranks: &FxHashMap<&str, i64>) -> Self {
        // kustomize joins the parts with `|`, which sorts after every letter and below `~`.
        let or = |text: &str, none: &str| format!("{}|", if text.is_empty() { none } else { text });
        SortKey {
            rank: ranks.get(id.gvk.kind.as_str()).copied().unwrap_or(0),
            other_namespace: id.gvk.kind == "Namespace" && !id.gvk.group.is_empty(),
            gvk: id.gvk.sort_text(),
            namespace: or(&id.namespace, "~X"),
            name: if id.name.is_empty() { "~N".to_owned() } else { id.name.to_string() },
        }
    }
}
