//! Namespaces that objects cannot choose: rules write there where their authors say so, and not because a value does.

use kiln_cel::Token;
use kiln_object::ObjectId;
use kiln_rules::{ContextEntry, Emitter, ForEach, Load, Part, Program, QueryText, Rule, What};
use kiln_text::wildcard;
use kiln_value::{Str, Value};
use kiln_variables::Template;

use crate::failure::{Failure, FailureKind};
use crate::world::World;

/// Checks that an object which a rule writes is in no namespace that an object chose and that is protected. `names` tells
/// whether the author of the rule names a namespace for it.
pub(crate) fn check(
    id: &ObjectId,
    rule: &Rule,
    trigger_namespace: &str,
    world: &World<'_>,
    names: impl FnOnce(&str) -> bool,
) -> Result<(), Failure> {
    // A Namespace is what it is called.
    let is_namespace = id.gvk.kind == "Namespace" && id.gvk.group.is_empty();
    let namespace: &Str = if is_namespace { &id.name } else { &id.namespace };
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

/// Whether what emits an object in CEL names a namespace for it.
pub(crate) fn in_emitter(emitter: &Emitter, namespace: &str) -> bool {
    match &emitter.what {
        What::Asked { expression, .. } => in_expression(expression.program.source(), namespace),
        What::Documents(documents) => documents.iter().any(|document| {
            let metadata = document.plain("metadata");
            let plain = metadata.and_then(|metadata| metadata.str_at(["namespace"]));
            plain == Some(namespace) || in_metadata(document, namespace)
        }),
        What::Data { .. } | What::Clone { .. } | What::CloneSelect(_) => false,
    }
}

/// The same for metadata with expressions in it.
fn in_metadata(document: &Part, namespace: &str) -> bool {
    let part = |part: &Part, name: &str| match part {
        Part::Map(entries) => {
            entries.iter().find(|(key, _)| key.as_str() == name).map(|(_, part)| part.clone())
        }
        _ => None,
    };
    let metadata = part(document, "metadata");
    metadata.is_some_and(|metadata| {
        ["namespace", "name"]
            .iter()
            .any(|key| metadata.plain(key).and_then(Value::as_str) == Some(namespace))
    })
}

/// Whether an expression has a name as an argument, in a list that is no question, or as `namespace` or `name`.
pub(crate) fn in_expression(source: &str, name: &str) -> bool {
    let tokens = kiln_cel::lex(source).unwrap_or_default();
    let text = |at: usize| source.get(tokens[at].1.range()).unwrap_or_default();
    let bare = |at: usize| text(at).trim_matches(['\'', '"']).to_owned();
    (1..tokens.len()).any(|at| {
        if tokens[at].0 != Token::String || bare(at) != name {
            return false;
        }
        let after_dyn = tokens[at - 1].0 == Token::OpenParen && at >= 2 && text(at - 2) == "dyn";
        let before = if after_dyn { at.saturating_sub(3) } else { at - 1 };
        match tokens[before].0 {
            Token::OpenParen | Token::Comma => true,
            Token::OpenBracket => before == 0 || tokens[before - 1].0 != Token::In,
            Token::Colon => {
                before > 0 && ["namespace", "name"].contains(&bare(before - 1).as_str())
            }
            _ => false,
        }
    })
}
