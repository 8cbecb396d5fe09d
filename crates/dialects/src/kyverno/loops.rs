//! `foreach` of rules that mutate and rules that validate.

use kiln_rules::{ForEach, Scope};

use crate::document_reader::{DocumentFields, DocumentNode};
use crate::kyverno::entries;
use crate::kyverno::parse::conditions;

/// How deep loops may stand in each other.
const DEEPEST: usize = 8;

/// The entries of `foreach`, unless there are none or it stands too deep in others.
pub(crate) fn elements<'d, 'r>(
    node: &DocumentNode<'d, 'r>,
    depth: usize,
) -> Option<Vec<DocumentNode<'d, 'r>>> {
    let elements = node.elements();
    if elements.is_empty() {
        node.error_with("foreach has no elements", "add an element with a list");
        return None;
    }
    if depth == DEEPEST {
        node.error_with(
            format!("foreach is nested more than {DEEPEST} times"),
            "flatten the list with JMESPath: a[].b[]",
        );
        return None;
    }
    Some(elements)
}

/// What every entry has: the list, its context and preconditions.
pub(crate) fn for_each(
    node: &DocumentNode<'_, '_>,
    fields: &DocumentFields<'_, '_>,
    list: &DocumentNode<'_, '_>,
    scope: &Scope,
) -> Option<ForEach> {
    let list = entries::list_expression(list);
    let context = entries::context(fields.get("context"), scope);
    let guard = conditions(fields.get("preconditions"), false);
    Some(ForEach { list: list?, context, guard, path: node.path.clone() })
}
