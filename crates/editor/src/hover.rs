//! What is known about the thing at one place: a field, a kind, a variable, a function.

use std::ops::Range;

use kiln_fields::{Field, FieldTable, Support};
use kiln_gotemplate::{FunctionSet, functions as template_functions};
use kiln_jmespath::functions as jmespath_functions;

use crate::kubernetes_fields;
use crate::outline::{Entry, OutlineStep, entry_at, outline, unquoted};
use crate::subject::{DocumentSubject, TextLanguage, in_words};
use crate::text_document::TextDocument;
use crate::variables::{REQUEST_VARIABLES, TEMPLATE_FIELDS, name_at, variables};

/// Markdown about a place, and what it is about.
pub(crate) fn hover(document: &TextDocument, at: usize) -> Option<(String, Range<usize>)> {
    let part = document.part_around(at);
    let entries = outline(document.text(), part.clone());
    let subject = DocumentSubject::of(document, &entries);
    let entry = entry_at(&entries, at)?;
    if entry.has_key() && entry.key.start <= at && at <= entry.key.end {
        return Some((field_help(subject, &entry.path)?, entry.key.clone()));
    }
    let value = &document.text()[entry.value.clone()];
    if let Some((language, span)) = subject.language_at(&entry.path, value, at - entry.value.start)
    {
        let offset = entry.value.start + span.start;
        let expression = &value[span];
        let (name, place) = name_at(expression, at.saturating_sub(offset))?;
        let about = word(document, &part, &entries, language, &name, entry)?;
        return Some((about, offset + place.start..offset + place.end));
    }
    if entry.path.len() == 1 && entry.path[0] == OutlineStep::Key("kind".to_owned()) {
        let kind = subject.kind.filter(|kind| kind.name == unquoted(value))?;
        let versions = kind.api_versions.join("`, `");
        let text = format!("**{}** (`{versions}`)\n\n{}", kind.name, kind.summary);
        return Some((text, entry.value.clone()));
    }
    Some((field_help(subject, &entry.path)?, entry.value.clone()))
}

/// What is known of the field that a path leads to.
fn field_help(subject: DocumentSubject, path: &[OutlineStep]) -> Option<String> {
    if let Some(root) = subject.kubernetes {
        let (field, owner) = kubernetes_fields::field_at(root, path)?;
        return Some(kubernetes_fields::describe(field, owner));
    }
    let (field, table) = subject.field_at(path)?;
    Some(describe(field, table, subject))
}

/// A variable or a function of an expression.
fn word(
    document: &TextDocument,
    part: &Range<usize>,
    entries: &[Entry],
    language: TextLanguage,
    name: &str,
    entry: &Entry,
) -> Option<String> {
    let known = variables(language, document.text(), part, entries);
    let is_it = |variable: &str| {
        name == variable || name.strip_prefix(variable).is_some_and(|rest| rest.starts_with('.'))
    };
    let variable = known
        .iter()
        .filter(|variable| entry.path.starts_with(&variable.scope))
        .find(|variable| is_it(&variable.name));
    if let Some(variable) = variable {
        let mut text = format!("variable **{}**", variable.name);
        if !variable.about.is_empty() {
            text.push_str(&format!("\n\n{}", variable.about));
        }
        match &variable.value {
            Some(value) => text.push_str(&format!("\n\n```json\n{value}\n```")),
            None if language == TextLanguage::Vars => text.push_str("\n\nThe build fills it in."),
            None => text.push_str("\n\nIts value is known when the rule runs."),
        }
        return Some(text);
    }
    let last = name.rsplit('.').next().unwrap_or(name);
    match language {
        TextLanguage::JmesPath => {
            if let Some(function) = jmespath_functions::find(last) {
                let parameters: Vec<&str> =
                    function.parameters().iter().map(|parameter| parameter.name).collect();
                return Some(format!(
                    "```\n{}({}) -> {}\n```\n{}",
                    function.name(),
                    parameters.join(", "),
                    function.returns(),
                    function.description()
                ));
            }
            longest(REQUEST_VARIABLES, name)
        }
        TextLanguage::GoTemplate => {
            if let Some(about) = longest(TEMPLATE_FIELDS, name) {
                return Some(about);
            }
            let functions = template_functions::functions(FunctionSet::Sprig);
            let function = functions.into_iter().find(|function| function.name() == name)?;
            let parameters = function.parameters().join(" ");
            Some(format!("```\n{name} {parameters}\n```\n{}", function.about()))
        }
        TextLanguage::Cel => {
            let calls = crate::completion::cel_calls(last);
            (!calls.is_empty()).then(|| format!("```\n{}\n```", calls.join("\n")))
        }
        TextLanguage::Vars => None,
    }
}

/// The longest name of a list that another begins with.
fn longest(known: &[(&str, &str)], name: &str) -> Option<String> {
    let begins = |known: &str| {
        name == known || name.strip_prefix(known).is_some_and(|rest| rest.starts_with('.'))
    };
    let (found, about) =
        known.iter().filter(|(known, _)| begins(known)).max_by_key(|(known, _)| known.len())?;
    Some(format!("**{found}**: {about}"))
}

/// What the tables say of a field, as Markdown.
pub(crate) fn describe(field: &Field, table: &FieldTable, subject: DocumentSubject) -> String {
    let mut text = format!("**{}** ({})", field.name, in_words(&field.holds));
    if field.is_required {
        text.push_str(", required");
    }
    text.push_str(&format!("\n\n{}", field.doc));
    let note = match field.support {
        Support::Full => None,
        Support::Ignored => Some("It has no effect.".to_owned()),
        Support::NotRun => Some("Kiln does not run it.".to_owned()),
        Support::Rejected => Some("Kiln rejects it.".to_owned()),
        Support::Deprecated(instead) => Some(format!("Deprecated; write `{instead}`.")),
    };
    if let Some(note) = note {
        text.push_str(&format!("\n\n*{note}*"));
    }
    if let Some(default) = field.default {
        text.push_str(&format!("\n\nDefault: `{default}`"));
    }
    if let Some(example) = field.example {
        text.push_str(&format!("\n\n```yaml\n{}: {example}\n```", field.name));
    }
    if let Some(kind) = subject.kind.filter(|_| !field.in_original) {
        text.push_str(&format!("\n\nOnly Kiln has it, not {}.", kind.original));
    }
    text.push_str(&format!("\n\n{}: {}", table.title, table.summary));
    text
}
