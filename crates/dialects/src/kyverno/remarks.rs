//! What Kyverno warns about in validate rules that it takes.

use kiln_pattern::Anchor;
use kiln_value::{Path, Value};

use crate::document_reader::DocumentNode;
use crate::kyverno::filters::Block;
use crate::kyverno::parse::{PolicyDoc, RuleDoc};

/// Old operators of conditions, and those that say which of the two they mean.
const OLD_OPERATORS: [(&str, &str); 2] =
    [("In", "[\"AllIn\" \"AnyIn\"]"), ("NotIn", "[\"AllNotIn\" \"AnyNotIn\"]")];

/// Remarks about a validate rule.
pub(crate) fn validate(
    policy: &PolicyDoc<'_, '_>,
    rule: &RuleDoc<'_, '_>,
    include: &Block<'_, '_>,
) {
    walk(rule.node.value, &mut rule.node.path.clone(), &mut |value, path| {
        old_operator(&rule.node, value, path);
    });
    let kinds = || include.filters.filters().iter().flat_map(|filter| &filter.kinds);
    let names = |word: &str| kinds().any(|kind| kind.to_string().contains(word));
    if let Some(validate) = rule.fields.get("validate") {
        for (field, subresource) in [("replicas", "scale"), ("status", "status")] {
            if !names(subresource) {
                bypassed(&validate, field, subresource);
            }
        }
    }
    let within = kinds().find(|kind| !kind.subresource.is_empty());
    if let Some(kind) = within.filter(|_| policy.background) {
        include.node.report.warn(
            &include.node.path,
            format!("background scan enabled with subresource {kind}: Kyverno rejects the policy"),
            Some("add `background: false` below spec".into()),
        );
    }
}

fn old_operator(node: &DocumentNode<'_, '_>, value: &Value, path: &Path) {
    // Label selectors and node affinities have keys and operators, too, and `values`.
    let is_condition = value.get("key").is_some() && value.get("values").is_none();
    let operator = value.str_at(["operator"]).filter(|_| is_condition);
    let old = OLD_OPERATORS.into_iter().find(|(old, _)| operator == Some(*old));
    if let Some((old, new)) = old {
        node.report.warn(
            &path.join("operator"),
            format!(
                "Operator {old} has been deprecated and will be removed soon. Use these instead: {new}"
            ),
            Some(format!("write Any{old} or All{old}")),
        );
    }
}

/// Warns of patterns for a field that another request changes as well, which the rule does not see.
fn bypassed(validate: &DocumentNode<'_, '_>, field: &str, subresource: &str) {
    let mut found = None;
    for check in ["pattern", "anyPattern"] {
        let Some(pattern) = validate.value.get(check) else { continue };
        walk(pattern, &mut validate.path.join(check), &mut |value, path| {
            let keys = value.as_map().into_iter().flat_map(kiln_value::Map::keys);
            let named = keys.filter(|key| {
                Anchor::parse(key).map_or(key.as_str(), |anchor| anchor.key) == field
            });
            for key in named {
                found.get_or_insert_with(|| path.join(key));
            }
        });
    }
    if let Some(path) = found {
        validate.report.warn_at_key(
            &path,
            format!(
                "You are matching on {field} but not including the {subresource} subresource in the policy."
            ),
            Some(format!("add a rule for KIND/{subresource}")),
        );
    }
}

fn walk(value: &Value, path: &mut Path, see: &mut impl FnMut(&Value, &Path)) {
    see(value, path);
    match value {
        Value::Map(map) => {
            for (key, value) in map {
                path.push(key);
                walk(value, path, see);
                path.pop();
            }
        }
        Value::List(list) => {
            for (at, value) in list.iter().enumerate() {
                path.push(at);
                walk(value, path, see);
                path.pop();
            }
        }
        _ => {}
    }
}
