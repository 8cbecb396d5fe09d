//! `match` and `exclude`: any, all, or the old form with everything directly below.

use kiln_fields::{FieldTable, kyverno as table};
use kiln_object::selector::WildcardSelector;
use kiln_rules::{Filter, Filters, KindPattern, Operation, Subject, UserFilter};
use kiln_value::Value;

use crate::document_reader::{DocumentFields, DocumentNode};

/// A block as it was written.
pub(crate) struct Block<'d, 'r> {
    pub(crate) node: DocumentNode<'d, 'r>,
    pub(crate) filters: Filters,
    /// The old form, with `resources` directly below the block.
    pub(crate) old_form: bool,
}

/// Reads a block. `old_form_allowed` is false in versions of the API that know only any and all.
pub(crate) fn block<'d, 'r>(
    node: DocumentNode<'d, 'r>,
    old_form_allowed: bool,
) -> Option<Block<'d, 'r>> {
    block_of(node, &table::MATCH, old_form_allowed)
}

/// A block of a kind that never had the old form.
pub(crate) fn new_block<'d, 'r>(node: DocumentNode<'d, 'r>) -> Option<Block<'d, 'r>> {
    block_of(node, &table::CLEANUP_MATCH, false)
}

fn block_of<'d, 'r>(
    node: DocumentNode<'d, 'r>,
    table: &'static FieldTable,
    old_form_allowed: bool,
) -> Option<Block<'d, 'r>> {
    let fields = node.fields(table)?;
    let (any, all) = (fields.get("any"), fields.get("all"));
    if any.is_some() && all.is_some() {
        node.error_with(
            format!("{} has any and all: only one of them can be there", node.path),
            "move the filters of one into the other, or write a second rule",
        );
    }
    let old: Vec<_> = table::FILTER.names().filter_map(|key| fields.get(key)).collect();
    let old_form = !old.is_empty();
    if let Some(first) = old.first()
        && (any.is_some() || all.is_some() || !old_form_allowed)
    {
        let why =
            if old_form_allowed { "next to any or all" } else { "in this version of the API" };
        first.error_with(
            format!("{} cannot stand {why}", first.path),
            "put it into an element of any",
        );
    }
    let list = |node: &DocumentNode<'d, 'r>| -> Vec<Filter> {
        node.elements()
            .iter()
            .filter_map(|element| filter(&element.fields(&table::FILTER)?))
            .collect()
    };
    let filters = match (&any, &all) {
        // Kyverno: any wins over all, and both over the old form.
        (Some(any), _) => Filters::Any(list(any)),
        (None, Some(all)) => Filters::All(list(all)),
        (None, None) => Filters::All(filter(&fields).into_iter().filter(|_| old_form).collect()),
    };
    Some(Block { node, filters, old_form })
}

fn filter(fields: &DocumentFields<'_, '_>) -> Option<Filter> {
    let mut filter = Filter { user: user(fields), ..Filter::default() };
    filter.place = Some(fields.report().place(fields.path()));
    if let Some(resources) = fields.get("resources") {
        resource(&resources.fields(&table::RESOURCES)?, &mut filter);
    }
    Some(filter)
}

fn resource(fields: &DocumentFields<'_, '_>, filter: &mut Filter) {
    if let Some(kinds) = fields.get("kinds") {
        for kind in kinds.elements() {
            let Some(text) = kind.text() else { continue };
            match KindPattern::parse(&text) {
                Some(pattern) => filter.kinds.push(pattern),
                None => kind.error_with(
                    format!("{text:?} is not a valid kind"),
                    "write Kind, version/Kind, group/version/Kind, or one of them and /subresource",
                ),
            }
        }
    }
    let (name, names) = (fields.get("name"), fields.get("names"));
    if let (Some(name), Some(_)) = (&name, &names) {
        name.error_with(
            "both name and names can not be specified together",
            "move the name into the list of names",
        );
    }
    filter.names.extend(name.and_then(|name| name.text()));
    filter.names.extend(names.map(|names| names.texts()).unwrap_or_default());
    filter.namespaces = fields.get("namespaces").map(|node| node.texts()).unwrap_or_default();
    if let Some(annotations) = fields.get("annotations").and_then(|node| node.any_fields()) {
        for (key, _) in annotations.map() {
            if let Some(value) = annotations.text(key) {
                filter.annotations.push((key.as_str().into(), value));
            }
        }
    }
    filter.selector = fields.get("selector").and_then(|node| selector(&node));
    filter.namespace_selector = fields.get("namespaceSelector").and_then(|node| selector(&node));
    if let Some(operations) = fields.get("operations") {
        let read = |node: &DocumentNode<'_, '_>| {
            node.text()?.parse::<Operation>().map_err(|error| node.error(error.to_string())).ok()
        };
        filter.operations = operations.elements().iter().filter_map(read).collect();
    }
}

pub(crate) fn selector(node: &DocumentNode<'_, '_>) -> Option<WildcardSelector> {
    WildcardSelector::from_value(node.value)
        .map_err(|error| {
            node.error_with(
                format!("bad selector at {}: {error}", node.path),
                "a selector has matchLabels, matchExpressions, or both",
            );
        })
        .ok()
}

fn user(fields: &DocumentFields<'_, '_>) -> UserFilter {
    let texts = |key: &str| fields.get(key).map(|node| node.texts()).unwrap_or_default();
    let subjects = fields.get("subjects").map(|node| node.elements()).unwrap_or_default();
    UserFilter {
        subjects: subjects.iter().filter_map(subject).collect(),
        roles: texts("roles"),
        cluster_roles: texts("clusterRoles"),
    }
}

fn subject(node: &DocumentNode<'_, '_>) -> Option<Subject> {
    let fields = node.fields(&table::SUBJECT)?;
    let (kind, name) = (fields.required_text("kind")?, fields.required_text("name")?);
    match kind.as_str() {
        "User" => Some(Subject::User(name)),
        "Group" => Some(Subject::Group(name)),
        "ServiceAccount" => match fields.text("namespace") {
            Some(namespace) => Some(Subject::ServiceAccount { namespace, name }),
            None => {
                node.error_with(
                    format!("the ServiceAccount {name:?} has no namespace"),
                    "add \"namespace\" here",
                );
                None
            }
        },
        other => {
            let kind = fields.get("kind")?;
            kind.error_with(
                format!("unknown kind of subject {other:?}"),
                "use User, Group or ServiceAccount",
            );
            None
        }
    }
}

/// Whether some text of a value holds a variable.
pub(crate) fn holds_variables(value: &Value) -> bool {
    match value {
        Value::String(text) => text.contains("{{"),
        Value::List(list) => list.iter().any(holds_variables),
        Value::Map(map) => {
            map.iter().any(|(key, value)| key.contains("{{") || holds_variables(value))
        }
        _ => false,
    }
}
