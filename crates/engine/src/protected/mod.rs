//! Namespaces that objects cannot choose: rules write there where their authors say so, and not because a value does.

mod expression;

use kiln_object::ObjectId;
use kiln_rules::{ContextEntry, ForEach, Load, Program, QueryText, Rule};
use kiln_text::wildcard;
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::failure::{Failure, FailureKind};
use crate::world::World;

pub(crate) use expression::{in_emitter, in_targets};

/// Checks that an object which a rule writes is in no namespace that an object chose and that is protected. `names` tells
/// whether the author of the rule names a namespace for it.
pub(crate) fn check(
    id: &ObjectId,
    rule: &Rule,
    trigger_namespace: &str,
    world: &World<'_>,
    names: impl FnOnce(&str) -> bool,
) -> Result<(), Failure> {
    let (namespace, _) = namespace_of(id);
    let is_protected =
        || world.protected.iter().any(|pattern| wildcard::matches(pattern, namespace));
    if namespace.is_empty()
        || namespace == trigger_namespace
        || rule.scope.namespace() == Some(namespace.as_str())
        || !is_protected()
        || names(namespace)
    {
        return Ok(());
    }
    let message = format!(
        "cannot write into namespace {namespace}: it is protected, and not the policy but an object names it"
    );
    Err(Failure::new(FailureKind::OutOfReach, message)
        .hint("write the namespace into the rule, or take it off kiln.protectedNamespaces"))
}

/// The namespace that a write into an object changes, and the field that says so: a Namespace is what it is called.
fn namespace_of(id: &ObjectId) -> (&Str, &'static str) {
    if id.gvk.kind == "Namespace" && id.gvk.group.is_empty() {
        (&id.name, "name")
    } else {
        (&id.namespace, "namespace")
    }
}

/// Whether a template, or a value without variables that it uses, names a namespace.
pub(crate) fn in_template(template: &Template, namespace: &str, rule: &Rule) -> bool {
    if template.is_plain() {
        return true;
    }
    let Some(text) = template.document().as_str() else { return false };
    let uses = |name: &str| text.split(|c: char| !is_of_name(c)).any(|word| word == name);
    let lists = each(rule);
    let mut entries = rule.context.iter().chain(lists.iter().flat_map(|each| &each.context));
    entries.any(|entry| uses(&entry.name) && is_value(entry, namespace))
        || (uses("element") && lists.iter().any(|each| is_listed(&each.list, namespace)))
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn each(rule: &Rule) -> Vec<&ForEach> {
    match &rule.program {
        Program::Generate(generate) => {
            generate.blocks.iter().filter_map(|block| block.foreach.as_ref()).collect()
        }
        Program::Mutate(_) | Program::Modify(_) => Vec::new(),
    }
}

/// Whether a named value is written down, and holds a name.
fn is_value(entry: &ContextEntry, name: &str) -> bool {
    match &entry.load {
        Load::Variable { value: Some(value), query: None, .. } => {
            value.is_plain() && holds(value.document(), name)
        }
        _ => false,
    }
}

fn holds(value: &Value, name: &str) -> bool {
    match value {
        Value::String(text) => text == name,
        Value::List(list) => list.iter().any(|value| holds(value, name)),
        Value::Map(map) => map.values().any(|value| holds(value, name)),
        _ => false,
    }
}

/// Whether a list is nothing but texts, of which one is a name: `['default', 'kube-system']`.
fn is_listed(list: &QueryText, name: &str) -> bool {
    let QueryText::Ready(expression) = list else { return false };
    let mut rest = expression.source().trim();
    let Some(inner) = rest.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return false;
    };
    rest = inner;
    let mut found = false;
    for item in rest.split(',').map(str::trim) {
        let text = item.strip_prefix('\'').and_then(|item| item.strip_suffix('\''));
        let Some(text) = text.filter(|text| !text.contains('\'')) else { return false };
        found |= text == name;
    }
    found
}
