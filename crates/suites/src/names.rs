//! What the names in an expectation mean.

use kiln_object::ObjectId;
use kiln_rules::{PolicyId, RuleId};

use crate::format::ResourceName;

/// Whether an expectation means a policy.
pub(crate) fn means_policy(name: &str, id: &PolicyId) -> bool {
    means_key(name, &id.key())
}

/// Kyverno: the namespace may be left out, on both sides.
pub(crate) fn means_key(name: &str, key: &str) -> bool {
    let own = |text: &'_ str| text.rsplit('/').next().unwrap_or_default().to_owned();
    match (name.contains('/'), key.contains('/')) {
        (true, true) => name == key,
        _ => own(name) == own(key),
    }
}

/// Whether a rule is all of its policy, so that its own name says nothing.
// Kyverno: for these policies, what is written as the rule is not looked at.
pub(crate) fn is_the_policy(id: &RuleId) -> bool {
    id.policy.is_its_rule()
}

/// A rule may be meant by the name of the one that it was rewritten from.
pub(crate) fn means_rule(name: &str, id: &RuleId) -> bool {
    let rewritten = ["autogen-cronjob-", "autogen-"];
    id.rule == name || rewritten.iter().any(|p| id.rule.strip_prefix(p) == Some(name))
}

/// Whether an expectation means a rule that is not run, and so has no rules that were rewritten from it.
pub(crate) fn means_name(name: &str, rule: &str) -> bool {
    let rewritten = ["autogen-cronjob-", "autogen-"];
    name == rule || rewritten.iter().any(|prefix| name.strip_prefix(prefix) == Some(rule))
}

/// Whether an expectation names this object.
pub(crate) fn is_named(named: &ResourceName, id: &ObjectId) -> bool {
    let namespace = if id.namespace.is_empty() { "default" } else { id.namespace.as_str() };
    named.name == id.name
        && named.namespace.as_ref().is_none_or(|n| *n == id.namespace || n == namespace)
        && (named.kind.is_empty() || named.kind == id.gvk.kind)
        && named.group.as_ref().is_none_or(|group| *group == id.gvk.group)
}

/// An object as people call it.
pub(crate) fn describe(id: &ObjectId) -> String {
    let namespace = Some(id.namespace.as_str()).filter(|namespace| !namespace.is_empty());
    shown(&id.gvk.kind, namespace, &id.name)
}

pub(crate) fn shown(kind: &str, namespace: Option<&str>, name: &str) -> String {
    let name = match namespace {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    };
    let text = if kind.is_empty() { name } else { format!("{kind} {name}") };
    // Names in files may hold anything, also what a terminal would obey.
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

/// The name in what [`shown`] made, without the kind.
pub(crate) fn shown_name(shown: &str) -> &str {
    shown.rsplit(' ').next().unwrap_or(shown)
}
