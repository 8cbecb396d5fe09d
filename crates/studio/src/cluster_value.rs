//! A cluster as the web application reads it: the same form for a cluster in the tab, a sandbox and a live one.

use std::collections::BTreeSet;

use kiln_diagnostic::Diagnostic;
use kiln_engine::Ownership;
use kiln_object::{Gvk, ObjectId};
use kiln_value::{Map, Value};

use crate::html::{HtmlWriter, lineage_picture};
use crate::lineage::{Lineage, LineageFilter, LinkState};
use crate::object_name::ObjectName;

/// The most rows of a lineage that are drawn; rules with more objects are folded.
const MAX_ROWS: usize = 1_000;

/// Kinds that say what happened rather than what there is, and change all the time.
const UNLISTED: [&str; 3] = ["Event", "Lease", "EndpointSlice"];

/// Whether objects of a kind are listed.
pub fn is_listed(kind: &Gvk) -> bool {
    !UNLISTED.contains(&kind.kind.as_str())
}

/// Objects by their names; `total` is how many there are, where not all are given.
pub fn listing_as_value<'o>(
    objects: impl IntoIterator<Item = &'o Value>,
    total: usize,
    not_read: &[String],
) -> Value {
    let objects = objects.into_iter().filter_map(|object| {
        let name = ObjectName::from(&ObjectId::of(object).ok()?);
        let key = [&name.api_version, &name.kind, &name.namespace, &name.name];
        Some(Value::from(Map::from_iter([
            ("id", Value::from(key.map(String::as_str).join("|"))),
            ("apiVersion", Value::from(name.api_version.as_str())),
            ("kind", Value::from(name.kind.as_str())),
            ("namespace", Value::from(name.namespace.as_str())),
            ("name", Value::from(name.name.as_str())),
            ("made", Value::from(Ownership::read(object).is_some())),
        ])))
    });
    Value::from(Map::from_iter([
        ("objects", objects.collect()),
        ("total", Value::from(total)),
        ("notRead", not_read.iter().map(String::as_str).collect()),
    ]))
}

/// The part of a lineage that a request asks for, drawn, and what can be asked for.
pub fn lineage_as_value(all: &Lineage, request: &Value) -> Value {
    let text = |key: &str| request.str_at([key]).filter(|text| !text.is_empty());
    let filter = LineageFilter {
        namespace: text("namespace").map(str::to_owned),
        policy: text("policy").map(str::to_owned),
        state: text("state").and_then(LinkState::read),
    };
    let shown = all.filtered(&filter);
    let mut html = HtmlWriter::new();
    lineage_picture(&mut html, &shown, MAX_ROWS);
    let policies: BTreeSet<&str> = all.links.iter().map(|link| link.rule.policy.as_str()).collect();
    let namespaces = all.namespaces().into_iter().filter(|name| !name.is_empty());
    Value::from(Map::from_iter([
        ("html", Value::from(html.finish())),
        ("namespaces", namespaces.collect()),
        ("policies", policies.into_iter().collect()),
        ("states", LinkState::ALL.iter().map(|state| state.as_str()).collect()),
        ("links", Value::from(shown.links.len())),
    ]))
}

/// The object that a request names, `apps/v1|Deployment|shop|web`.
///
/// # Errors
/// When it names none.
pub fn named_object(request: &Value) -> Result<ObjectId, Diagnostic> {
    let text = request.str_at(["object"]).unwrap_or_default();
    match text.splitn(4, '|').collect::<Vec<_>>().as_slice() {
        [version, kind, namespace, name] => {
            Ok(ObjectId::new(Gvk::new(version, kind), namespace, name))
        }
        _ => Err(Diagnostic::error(format!("{text:?} names no object"))),
    }
}
