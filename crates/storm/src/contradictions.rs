//! Rules that no object can make run, by what their match and exclude blocks say.

use std::sync::Arc;

use kiln_rules::{Filter, Filters, Policy, Rule};

use crate::finding::{Finding, FindingKind};
use crate::story::Story;

/// The rules that can never match.
pub(crate) fn find(policies: &[Arc<Policy>]) -> Vec<Finding> {
    let rules = policies.iter().flat_map(|policy| &policy.rules);
    rules
        .filter_map(|rule| {
            Some(Finding {
                kind: FindingKind::NeverMatches,
                about: rule.id.to_string(),
                message: contradiction(rule)?,
                story: Story::default(),
            })
        })
        .collect()
}

fn contradiction(rule: &Rule) -> Option<String> {
    if let Filters::All(filters) = &rule.trigger.include
        && let Some(why) = apart(filters)
    {
        return Some(why);
    }
    let include = rule.trigger.include.filters();
    let Filters::Any(exclude) = &rule.trigger.exclude else { return None };
    let is_excluded = |filter: &Filter| exclude.iter().any(|other| covers(other, filter));
    (!include.is_empty()
        && matches!(rule.trigger.include, Filters::Any(_))
        && include.iter().all(is_excluded))
    .then(|| "exclude covers everything that match takes".to_owned())
}

/// Why filters of which each must match match nothing together.
fn apart(filters: &[Filter]) -> Option<String> {
    for (at, one) in filters.iter().enumerate() {
        for other in &filters[at + 1..] {
            let named = |filter: &Filter| {
                !filter.kinds.is_empty()
                    && filter.kinds.iter().all(|kind| !kind.kind.contains(['*', '?']))
            };
            let shares = one.kinds.iter().any(|kind| {
                other
                    .kinds
                    .iter()
                    .any(|also| also.kind == kind.kind && also.subresource == kind.subresource)
            });
            if named(one) && named(other) && !shares {
                return Some(
                    "match.all names different kinds, and no object is of both".to_owned(),
                );
            }
            let plain = |texts: &[kiln_value::Str]| {
                !texts.is_empty() && texts.iter().all(|text| !text.contains(['*', '?']))
            };
            for (a, b, what) in [
                (&one.names, &other.names, "names"),
                (&one.namespaces, &other.namespaces, "namespaces"),
            ] {
                if plain(a) && plain(b) && !a.iter().any(|text| b.contains(text)) {
                    return Some(format!(
                        "match.all names different {what}, and no object has both"
                    ));
                }
            }
        }
    }
    None
}

/// Whether everything that a filter matches is matched by another one.
fn covers(wide: &Filter, narrow: &Filter) -> bool {
    let is_everything = |filter: &Filter| {
        filter.annotations.is_empty()
            && filter.selector.is_none()
            && filter.namespace_selector.is_none()
            && filter.user.is_empty()
            && filter.operations.is_empty()
            && filter.namespaced.is_none()
    };
    let texts = |wide: &[kiln_value::Str], narrow: &[kiln_value::Str]| {
        wide.is_empty()
            || wide.iter().any(|text| text == "*")
            || (!narrow.is_empty() && narrow.iter().all(|text| wide.contains(text)))
    };
    let kinds = wide.kinds.is_empty()
        || (!narrow.kinds.is_empty() && narrow.kinds.iter().all(|kind| wide.kinds.contains(kind)));
    let says_something =
        !wide.kinds.is_empty() || !wide.names.is_empty() || !wide.namespaces.is_empty();
    is_everything(wide)
        && says_something
        && kinds
        && texts(&wide.names, &narrow.names)
        && texts(&wide.namespaces, &narrow.namespaces)
}
