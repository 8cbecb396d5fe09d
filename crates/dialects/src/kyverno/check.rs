//! What Kyverno refuses about the parts of a rule that come before its operation, in its own words.

use kiln_object::{Gvk, Kinds};
use kiln_rules::{Filter, Filters, Scope};
use kiln_text::wildcard;
use kiln_value::{Path, Value};

use crate::fields::Node;
use crate::kyverno::filters::{Block, holds_variables};
use crate::kyverno::parse::{HeadDoc, PolicyDoc, RuleDoc};

/// Checks match and exclude of a rule.
pub(crate) fn head(
    policy: &PolicyDoc<'_, '_>,
    rule: &RuleDoc<'_, '_>,
    head: &HeadDoc<'_, '_>,
    kinds: &Kinds,
) {
    for (word, block) in [("match", Some(&head.include)), ("exclude", head.exclude.as_ref())] {
        let Some(block) = block else { continue };
        if holds_variables(block.node.value) {
            block.node.error_with(
                format!(
                    "rule {:?} should not have variables in {word} section",
                    rule.name.as_str()
                ),
                "compare with variables in preconditions",
            );
        }
        if policy.background {
            users_in_background(block);
        }
        if let Scope::Namespace(_) = policy.scope {
            namespaced(block, kinds);
        }
    }
    has_kinds(&head.include);
    matches_something(head);
}

fn users_in_background(block: &Block<'_, '_>) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        let used = [
            ("subjects", !filter.user.subjects.is_empty()),
            ("roles", !filter.user.roles.is_empty()),
            ("clusterRoles", !filter.user.cluster_roles.is_empty()),
        ];
        for (word, _) in used.into_iter().filter(|(_, used)| *used) {
            let path = filter_path(block, at).join(word);
            let written = path.to_string().replace('.', "/");
            block.node.report.error(
                &path,
                format!(
                    "only select variables are allowed in background mode. Set \
                     spec.background=false to disable background mode for this policy rule: \
                     invalid variable used at path: {written}"
                ),
                Some("add `background: false` below spec".into()),
            );
        }
    }
}

fn filter_path(block: &Block<'_, '_>, at: usize) -> Path {
    match &block.filters {
        _ if block.old_form => block.node.path.clone(),
        filters => block.node.path.join(filters.word()).join(at),
    }
}

fn namespaced(block: &Block<'_, '_>, kinds: &Kinds) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        let resources = filter_path(block, at).join("resources");
        if !filter.namespaces.is_empty() {
            block.node.report.error(
                &resources.join("namespaces"),
                "Filtering namespaces not allowed in namespaced policies",
                Some(
                    "a Policy looks at its own namespace only: remove it, or use a ClusterPolicy"
                        .into(),
                ),
            );
        }
        for (index, pattern) in filter.kinds.iter().enumerate() {
            let known = kinds.by_kind(&pattern.kind);
            let meant = known.iter().filter(|k| wildcard::matches(&pattern.group, k.group()));
            let mut scopes = meant.map(|kind| kind.is_namespaced()).peekable();
            if scopes.peek().is_some() && scopes.all(|namespaced| !namespaced) {
                block.node.report.error(
                    &resources.join("kinds").join(index),
                    format!("Cluster wide resource '{pattern}' not allowed in namespaced policy"),
                    Some("use a ClusterPolicy".into()),
                );
            }
        }
    }
}

fn has_kinds(block: &Block<'_, '_>) {
    let filters = block.filters.filters();
    if filters.is_empty() {
        block.node.error_with("match cannot be empty", "add match.any with a list of resources");
        return;
    }
    // Of filters that must all hold, one that names kinds will do.
    let enough =
        matches!(block.filters, Filters::All(_)) && filters.iter().any(|f| !f.kinds.is_empty());
    for (at, filter) in filters.iter().enumerate() {
        if filter.kinds.is_empty() && !enough {
            block.node.report.error(
                &filter_path(block, at),
                "at least one element must be specified in a kind block, the kind attribute is \
                 mandatory when working with the resources element",
                Some("add resources.kinds".into()),
            );
        }
    }
}

/// Checks that not everything that matches is excluded again.
fn matches_something(head: &HeadDoc<'_, '_>) {
    let Some(exclude) = &head.exclude else { return };
    let (Filters::Any(included), Filters::Any(excluded)) =
        (&head.include.filters, &exclude.filters)
    else {
        return;
    };
    let raw = |block: &Block<'_, '_>, at: usize| -> Option<Value> {
        block.node.value.get_path(["any"]).and_then(|list| list.index(at)).cloned()
    };
    let same = |_: &Filter, at: usize| {
        (0..included.len())
            .any(|other| raw(exclude, at).is_some_and(|e| Some(e) == raw(&head.include, other)))
    };
    for (at, filter) in excluded.iter().enumerate() {
        if !filter.is_empty() && same(filter, at) {
            exclude.node.report.error(
                &filter_path(exclude, at),
                "Rule is matching an empty set",
                Some("it is matched and excluded at once: remove one of the two".into()),
            );
        }
    }
}

/// Checks that a generate rule does not match every kind there is.
pub(crate) fn no_wildcard_kind(policy: &PolicyDoc<'_, '_>, block: &Block<'_, '_>) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        if let Some(index) = filter.kinds.iter().position(|kind| kind.to_string() == "*") {
            let message = if policy.background {
                "wildcard policy not allowed in background mode. Set spec.background=false to \
                 disable background mode for this policy rule"
            } else {
                "wildcard policy does not support rule type"
            };
            let path = filter_path(block, at).join("resources").join("kinds").join(index);
            block.node.report.error(&path, message, Some("name the kinds".into()));
        }
    }
}

/// Warns when a rule fires on its own objects, at the kind of those.
pub(crate) fn fires_on_itself(
    head: &HeadDoc<'_, '_>,
    made: &Gvk,
    made_by: &Path,
    node: &Node<'_, '_>,
) {
    let fires = head.include.filters.filters().iter().flat_map(|filter| &filter.kinds);
    if !head.skip_background_requests
        && fires.into_iter().any(|kind| kind.matches(&made.group, &made.version, &made.kind, ""))
    {
        node.report.warn(
            &made_by.join("kind"),
            format!("the rule makes objects of kind {}, which it also fires on", made.kind),
            Some("exclude them by name or label, or leave skipBackgroundRequests on".into()),
        );
    }
}

/// Checks the content of an object: no anchors, and labels and annotations that are text.
pub(crate) fn content(node: &Node<'_, '_>) {
    let mut path = node.path.clone();
    anchors(node.value, &mut path, node);
    for field in ["labels", "annotations"] {
        let Some(Value::Map(pairs)) = node.value.get_path(["metadata", field]) else { continue };
        for (key, value) in pairs {
            if !matches!(value, Value::String(_)) {
                let path = node.path.join("metadata").join(field).join(key);
                node.report.error(
                    &path,
                    "labels and annotations supports only string values, \"use double quotes around \
                     the non string values\"",
                    Some(format!("write {key}: {:?}", kiln_value::json::to_string(value))),
                );
            }
        }
    }
}

fn anchors(value: &Value, path: &mut Path, node: &Node<'_, '_>) {
    match value {
        Value::Map(map) => {
            for (key, value) in map {
                path.push(key);
                let bare = key.trim_start_matches(['+', '=', '<', '^', 'X']);
                if bare.starts_with('(') && bare.ends_with(')') {
                    node.report.error_at_key(
                        path,
                        format!("anchors not supported on generate resources: {key}"),
                        Some("write the key without parentheses".into()),
                    );
                }
                anchors(value, path, node);
                path.pop();
            }
        }
        Value::List(list) => {
            for (at, value) in list.iter().enumerate() {
                path.push(at);
                anchors(value, path, node);
                path.pop();
            }
        }
        _ => {}
    }
}
