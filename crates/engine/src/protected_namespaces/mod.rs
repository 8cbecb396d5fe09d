//! Namespaces that objects cannot choose: rules write there where their authors say so, and not because a value does.

mod expression;

use kiln_object::ObjectId;
use kiln_rules::{ContextEntry, ForEach, Load, Program, QueryText, Rule};
use kiln_text::wildcard;
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::input::eval_env::EvalEnv;
use crate::output::failure::{Failure, FailureKind};

pub(crate) use expression::{in_emitter, in_reads, in_targets, is_emptied};

/// The namespaces that a cluster and the engine live on.
pub fn usual_protected_namespaces(engine: &str) -> Vec<Str> {
    ["kube-system", "kube-public", "kube-node-lease", engine].map(Str::from).into()
}

/// Checks that an object which a rule writes is in no namespace that an object chose and that is protected. `names` tells
/// whether the author of the rule names a namespace for it.
pub(crate) fn check(
    id: &ObjectId,
    rule: &Rule,
    trigger_namespace: &str,
    eval_env: &EvalEnv<'_>,
    names: impl FnOnce(&str) -> bool,
) -> Result<(), Failure> {
    let (namespace, _) = namespace_of(id);
    let is_protected = || {
        eval_env.protected_namespaces.iter().any(|pattern| wildcard::matches(pattern, namespace))
    };
    if namespace.is_empty()
        || namespace == trigger_namespace
        || rule.scope.namespace() == Some(namespace.as_str())
        || !is_protected()
        || names(namespace)
    {
        return Ok(());
    }
    let message = format!(
        "cannot write into namespace {namespace}: it is protected, and an object names it, not the policy"
    );
    Err(Failure::new(FailureKind::OutOfReach, message)
        .hint("write the namespace into the rule, or remove it from kiln.protectedNamespaces"))
}

/// The namespace that a write into an object changes, and the field that says so: a Namespace is what it is called.
fn namespace_of(id: &ObjectId) -> (&Str, &'static str) {
    if id.gvk.kind == "Namespace" && id.gvk.group.is_empty() {
        (&id.name, "name")
    } else {
        (&id.namespace, "namespace")
    }
}

/// Whether a template names a namespace: itself, or as one variable that is a value without variables.
pub(crate) fn in_template(template: &Template, namespace: &str, rule: &Rule) -> bool {
    if template.is_plain() {
        return true;
    }
    let Some(path) = template.document().as_str().and_then(only_path) else { return false };
    let lists = each(rule);
    // Of several entries by one name, or by a part of it, it is unknown here which one counts.
    let meant: Vec<&ContextEntry> = rule
        .context
        .iter()
        .chain(lists.iter().flat_map(|each| &each.context))
        .filter(|entry| begins_with(path, &entry.name) || begins_with(&entry.name, path))
        .collect();
    if meant.is_empty() {
        return begins_with(path, "element")
            && lists.iter().any(|each| is_listed(&each.list, namespace));
    }
    let named =
        |entry: &&ContextEntry| begins_with(path, &entry.name) && is_value(entry, namespace);
    meant.iter().all(|entry| written(entry).is_some()) && meant.iter().any(named)
}

/// The path of a template that is one variable and nothing else, and the variable nothing but a path: `{{ to.prod }}`.
fn only_path(text: &str) -> Option<&str> {
    let path = text.trim().strip_prefix("{{")?.strip_suffix("}}")?.trim();
    is_path(path).then_some(path)
}

/// Whether an expression is nothing but a path: `to.prod`.
pub(crate) fn is_path(expression: &str) -> bool {
    expression.chars().all(|c| c.is_alphanumeric() || matches!(c, '_' | '.' | '[' | ']'))
}

/// Whether a path is a name, or leads into what is called that.
fn begins_with(path: &str, name: &str) -> bool {
    let rest = path.strip_prefix(name);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

fn each(rule: &Rule) -> Vec<&ForEach> {
    match &rule.program {
        Program::Generate(generate) => {
            generate.blocks.iter().filter_map(|block| block.foreach.as_ref()).collect()
        }
        Program::Mutate(_) | Program::Modify(_) | Program::Validate(_) | Program::Delete(_) => {
            Vec::new()
        }
    }
}

/// The value of an entry that is written down as it is.
pub(crate) fn written(entry: &ContextEntry) -> Option<&Value> {
    match &entry.load {
        Load::Variable { value: Some(value), query: None, .. } if value.is_plain() => {
            Some(value.document())
        }
        _ => None,
    }
}

/// Whether a named value is written down, and holds a name.
fn is_value(entry: &ContextEntry, name: &str) -> bool {
    written(entry).is_some_and(|value| holds(value, name))
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
