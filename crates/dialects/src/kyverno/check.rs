//! What Kyverno refuses about the parts of a rule that come before its operation, in its own words.

use kiln_object::{Gvk, Kinds};
use kiln_rules::{Filter, Filters, KindPattern, Scope};
use kiln_text::wildcard;
use kiln_value::{Path, Str, Value};

use crate::document_reader::DocumentNode;
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
            namespaced(block, kinds, "Policy");
        }
    }
    has_kinds(&head.include);
    matches_something(&head.include, head.exclude.as_ref(), "Rule is matching an empty set");
    if let Some(conditions) = rule.fields.get("preconditions") {
        known_operations(&conditions);
    }
}

/// What an API server may be asked to do.
const OPERATIONS: [&str; 4] = ["CREATE", "UPDATE", "DELETE", "CONNECT"];

/// Warns of conditions that compare the operation with something that is none: they hold always, or never.
fn known_operations(conditions: &DocumentNode<'_, '_>) {
    let mut lists = vec![(conditions.value, conditions.path.clone())];
    for word in ["any", "all"] {
        lists.extend(conditions.value.get(word).map(|list| (list, conditions.path.join(word))));
    }
    for (list, path) in lists {
        for (at, condition) in list.as_list().into_iter().flatten().enumerate() {
            let key = condition.str_at(["key"]).unwrap_or_default();
            let key = key.trim().strip_prefix("{{").and_then(|key| key.strip_suffix("}}"));
            if key.map(str::trim) != Some("request.operation") {
                continue;
            }
            let value = condition.get("value").unwrap_or(&Value::Null);
            let words: Vec<&Value> = match value.as_list() {
                Some(list) => list.iter().collect(),
                None => vec![value],
            };
            let unknown = words.into_iter().filter_map(Value::as_str).find(|word| {
                let wild = wildcard::contains_wildcard(word) || word.contains("{{");
                !wild && !OPERATIONS.contains(word)
            });
            if let Some(unknown) = unknown {
                let meant = OPERATIONS.iter().find(|known| known.eq_ignore_ascii_case(unknown));
                conditions.report.warn(
                    &path.join(at).join("value"),
                    format!("no request has the operation {unknown:?}"),
                    Some(match meant {
                        Some(meant) => format!("write {meant}"),
                        None => format!("the operations are {}", OPERATIONS.join(", ")),
                    }),
                );
            }
        }
    }
}

/// The fields of a filter that match users.
pub(crate) fn user_fields(filter: &Filter) -> impl Iterator<Item = &'static str> {
    let used = [
        ("subjects", !filter.user.subjects.is_empty()),
        ("roles", !filter.user.roles.is_empty()),
        ("clusterRoles", !filter.user.cluster_roles.is_empty()),
    ];
    used.into_iter().filter(|(_, used)| *used).map(|(word, _)| word)
}

fn users_in_background(block: &Block<'_, '_>) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        for word in user_fields(filter) {
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

pub(crate) fn filter_path(block: &Block<'_, '_>, at: usize) -> Path {
    match &block.filters {
        _ if block.old_form => block.node.path.clone(),
        filters => block.node.path.join(filters.word()).join(at),
    }
}

/// Checks a block of a policy of this kind, which lives in a namespace.
pub(crate) fn namespaced(block: &Block<'_, '_>, kinds: &Kinds, own: &str) {
    for (at, filter) in block.filters.filters().iter().enumerate() {
        let resources = filter_path(block, at).join("resources");
        if !filter.namespaces.is_empty() {
            block.node.report.error(
                &resources.join("namespaces"),
                "Filtering namespaces not allowed in namespaced policies",
                Some(format!(
                    "a {own} looks at its own namespace only: remove it, or use a Cluster{own}"
                )),
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
                    Some(format!("use a Cluster{own}")),
                );
            }
        }
    }
}

pub(crate) fn has_kinds(block: &Block<'_, '_>) {
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
pub(crate) fn matches_something(
    include: &Block<'_, '_>,
    exclude: Option<&Block<'_, '_>>,
    nothing: &str,
) {
    let Some(exclude) = exclude else { return };
    let (Filters::Any(included), Filters::Any(excluded)) = (&include.filters, &exclude.filters)
    else {
        return;
    };
    let raw = |block: &Block<'_, '_>, at: usize| -> Option<Value> {
        block.node.value.get_path(["any"]).and_then(|list| list.index(at)).cloned()
    };
    let same = |_: &Filter, at: usize| {
        (0..included.len())
            .any(|other| raw(exclude, at).is_some_and(|e| Some(e) == raw(include, other)))
    };
    for (at, filter) in excluded.iter().enumerate() {
        if !filter.is_empty() && same(filter, at) {
            exclude.node.report.error(
                &filter_path(exclude, at),
                nothing,
                Some("it is matched and excluded at once: remove one of the two".into()),
            );
            return;
        }
    }
    let covered = |filter: &Filter| excluded.iter().any(|exclude| covers(exclude, filter));
    if !included.is_empty() && included.iter().all(covered) {
        exclude.node.report.warn(
            &exclude.node.path,
            "rule is matching an empty set: everything that it matches is excluded",
            Some("narrow the exclude block by names, namespaces or labels".into()),
        );
    }
}

/// Whether whatever a filter takes is surely taken by another. What the text does not show counts as no.
fn covers(other: &Filter, filter: &Filter) -> bool {
    let texts = |other: &[Str], own: &[Str]| {
        let taken = |text: &Str| other.iter().any(|pattern| wildcard::matches(pattern, text));
        other.is_empty() || (!own.is_empty() && own.iter().all(taken))
    };
    let kind = |pattern: &KindPattern| {
        other.kinds.iter().any(|other| {
            let of = |pattern: &str, text: &str| wildcard::matches(pattern, text);
            of(&other.group, &pattern.group)
                && of(&other.version, &pattern.version)
                && of(&other.kind, &pattern.kind)
                && of(&other.subresource, &pattern.subresource)
        })
    };
    let kinds =
        other.kinds.is_empty() || (!filter.kinds.is_empty() && filter.kinds.iter().all(kind));
    !other.is_empty()
        && kinds
        && texts(&other.names, &filter.names)
        && texts(&other.namespaces, &filter.namespaces)
        && other.annotations.is_empty()
        && other.selector.is_none()
        && other.namespace_selector.is_none()
        && other.namespaced.is_none()
        && (other.operations.is_empty()
            || (!filter.operations.is_empty()
                && filter.operations.iter().all(|own| other.operations.contains(own))))
        && other.user.is_empty()
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
    node: &DocumentNode<'_, '_>,
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
pub(crate) fn content(node: &DocumentNode<'_, '_>) {
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

fn anchors(value: &Value, path: &mut Path, node: &DocumentNode<'_, '_>) {
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
