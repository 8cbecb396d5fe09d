//! What may be written at one place: fields, words, kinds, files, and in expressions functions and variables.

use std::sync::LazyLock;

use kiln_cel::{Env, PolicyScope};
use kiln_fields::{FieldType, Support};
use kiln_gotemplate::{FunctionSet, functions as template_functions};
use kiln_jmespath::functions as jmespath_functions;
use kiln_kustomize::fs::FileSystem;
use kiln_object::Kinds;
use kiln_schema::types::SchemaType;
use serde_json::{Value as Json, json};

use crate::hover::describe;
use crate::json_schema::document_kinds;
use crate::kubernetes_fields;
use crate::outline::{Entry, OutlineStep, outline, unquoted};
use crate::subject::{DocumentSubject, TextLanguage, in_words};
use crate::text_document::TextDocument;
use crate::variables::{REQUEST_VARIABLES, TEMPLATE_FIELDS, name_at, variables};

/// What is written where a completion is asked for, so that the place is part of a word.
const MARK: char = '\u{e000}';

/// Numbers of the protocol for what an item is.
const FUNCTION: u8 = 3;
const FIELD: u8 = 5;
const VARIABLE: u8 = 6;
const CLASS: u8 = 7;
const VALUE: u8 = 12;
const FILE: u8 = 17;

static CEL_FUNCTIONS: LazyLock<Vec<String>> =
    LazyLock::new(|| Env::policies(PolicyScope::Cluster).functions());

/// The ways to call a CEL function of a name.
pub(crate) fn cel_calls(name: &str) -> Vec<&'static str> {
    let is_it = |call: &&String| cel_name(call) == name;
    CEL_FUNCTIONS.iter().filter(is_it).map(String::as_str).collect()
}

/// The name in `list(A).map(…) -> …`: behind the last dot before the parameters of the call itself.
fn cel_name(call: &str) -> &str {
    let head = call.split(" -> ").next().unwrap_or(call);
    let mut depth = 0_usize;
    let mut open = head.len();
    for (at, c) in head.char_indices().rev() {
        match c {
            ')' => depth += 1,
            '(' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    open = at;
                    break;
                }
            }
            _ => {}
        }
    }
    head[..open].rsplit(['.', ')']).next().unwrap_or(head)
}

fn item(label: &str, kind: u8, detail: &str, documentation: &str) -> Json {
    json!({
        "label": label,
        "kind": kind,
        "detail": detail,
        "documentation": {"kind": "markdown", "value": documentation},
    })
}

/// The items for a place.
pub(crate) fn completion(
    document: &TextDocument,
    at: usize,
    files: Option<&dyn FileSystem>,
) -> Vec<Json> {
    let part = document.part_around(at);
    // In a line between two documents.
    if at < part.start {
        return Vec::new();
    }
    // What stands behind the place is still to be written, or belongs to what follows.
    let mut text = document.text()[..at].to_owned();
    text.push(MARK);
    let entries = outline(&text, part.start..text.len());
    let Some(entry) = entries.iter().rev().find(|entry| {
        [&entry.key, &entry.value].iter().any(|span| text[(*span).clone()].contains(MARK))
    }) else {
        return Vec::new();
    };
    // Who the document is may stand below.
    let all = outline(document.text(), part);
    let subject = DocumentSubject::of(document, &all);
    let around: &[OutlineStep] = match entry.path.as_slice() {
        path if entry.is_half => path,
        [above @ .., _] if entry.has_key() && text[entry.key.clone()].contains(MARK) => above,
        path => {
            let mut items = values(document, &text, entry, subject, files, at);
            // An element may become a map.
            if !entry.has_key() && text[entry.value.clone()].find(MARK).is_some() {
                items.extend(fields(subject, path, &all));
            }
            return items;
        }
    };
    fields(subject, around, &all)
}

/// The fields of what is around, but for those that are there.
fn fields(subject: DocumentSubject, path: &[OutlineStep], all: &[Entry]) -> Vec<Json> {
    let is_there = |name: &str| {
        all.iter().any(|entry| {
            matches!(entry.path.split_last(), Some((OutlineStep::Key(key), above)) if key == name && above == path)
        })
    };
    if let Some(root) = subject.kubernetes {
        let known = kubernetes_fields::fields_at(root, path);
        let items = known.into_iter().filter(|field| !is_there(field.name)).map(|field| {
            let about = kubernetes_fields::in_words(&field.ty);
            let mut one = item(field.name, FIELD, &about, "");
            let required = if field.required { "0" } else { "1" };
            one["sortText"] = json!(format!("{required}{}", field.name));
            with_colon(one, field.name, kubernetes_fields::is_block(&field.ty))
        });
        return items.collect();
    }
    if subject.kind.is_none() && path.is_empty() {
        let top = ["apiVersion", "kind", "metadata", "spec"];
        let items = top.iter().filter(|name| !is_there(name));
        return items.map(|name| with_colon(item(name, FIELD, "", ""), name, false)).collect();
    }
    let mut items = Vec::new();
    for table in subject.tables_at(path) {
        for field in table.fields {
            if field.support == Support::Rejected || is_there(field.name) {
                continue;
            }
            let about = describe(field, table, subject);
            let mut one = item(field.name, FIELD, &in_words(&field.holds), &about);
            if matches!(field.support, Support::Deprecated(_)) {
                one["deprecated"] = json!(true);
            }
            let required = if field.is_required { "0" } else { "1" };
            one["sortText"] = json!(format!("{required}{}", field.name));
            items.push(with_colon(one, field.name, is_block(&field.holds)));
        }
    }
    items
}

/// Whether what a field holds begins on the next line.
fn is_block(holds: &FieldType) -> bool {
    matches!(
        holds,
        FieldType::Table(_) | FieldType::Tables(_) | FieldType::List(_) | FieldType::Map(_)
    )
}

fn with_colon(mut item: Json, name: &str, is_block: bool) -> Json {
    item["insertText"] = json!(if is_block { format!("{name}:") } else { format!("{name}: ") });
    item
}

fn values(
    document: &TextDocument,
    text: &str,
    entry: &Entry,
    subject: DocumentSubject,
    files: Option<&dyn FileSystem>,
    at: usize,
) -> Vec<Json> {
    let value = &text[entry.value.clone()];
    let place = at - entry.value.start;
    if let Some((language, span)) = subject.language_at(&entry.path, value, place) {
        let begun = value[span.start..place.max(span.start)].to_owned();
        let name = name_at(&begun, begun.len()).map(|(name, _)| name).unwrap_or_default();
        return words(document, entry, language, &name, at);
    }
    let last = entry.path.iter().rev().find_map(OutlineStep::key).unwrap_or_default();
    match (entry.path.as_slice(), last) {
        ([OutlineStep::Key(key)], _) if key == "kind" => {
            return document_kinds()
                .map(|kind| item(kind.name, CLASS, kind.original, kind.summary))
                .collect();
        }
        ([OutlineStep::Key(key)], _) if key == "apiVersion" => {
            let mut versions: Vec<&str> = match subject.kind {
                Some(kind) => kind.api_versions.to_vec(),
                None => {
                    document_kinds().flat_map(|kind| kind.api_versions.iter().copied()).collect()
                }
            };
            versions.sort_unstable();
            versions.dedup();
            return versions.iter().map(|version| item(version, VALUE, "", "")).collect();
        }
        (_, "kinds" | "kind") => return kubernetes_kinds(),
        _ if subject.is_kustomization && names_a_file(last) => {
            return files
                .map(|files| paths(document, unquoted(&value[..place]), files))
                .unwrap_or_default();
        }
        _ => {}
    }
    let mut items = Vec::new();
    let builtin = subject.kubernetes.and_then(|root| kubernetes_fields::type_at(root, &entry.path));
    if builtin == Some(SchemaType::Bool) {
        items.extend(["true", "false"].iter().map(|word| item(word, VALUE, "", "")));
    }
    for holds in subject.types_at(&entry.path) {
        match holds {
            FieldType::Enum(words) => {
                items.extend(words.iter().map(|word| item(word, VALUE, "", "")));
            }
            FieldType::Boolean => {
                items.extend(["true", "false"].iter().map(|word| item(word, VALUE, "", "")));
            }
            _ => {}
        }
    }
    items
}

/// Functions and variables of an expression, of which this much of a name is written.
fn words(
    document: &TextDocument,
    entry: &Entry,
    language: TextLanguage,
    name: &str,
    at: usize,
) -> Vec<Json> {
    let part = document.part_around(at);
    let all = outline(document.text(), part.clone());
    let known = variables(language, document.text(), &part, &all);
    // Editors replace the word behind the last dot.
    let above = name.rfind('.').map_or("", |dot| &name[..=dot]);
    let variable = |full: &str, about: &str| {
        let rest = full.strip_prefix(above)?;
        Some(item(rest, VARIABLE, about, ""))
    };
    let mut items: Vec<Json> = known
        .iter()
        .filter(|found| entry.path.starts_with(&found.scope))
        .filter_map(|found| {
            let value = found.value.as_deref().map(|value| format!("= {value}"));
            variable(&found.name, value.as_deref().unwrap_or(&found.about))
        })
        .collect();
    match language {
        TextLanguage::JmesPath => {
            items
                .extend(REQUEST_VARIABLES.iter().filter_map(|(name, about)| variable(name, about)));
            if above.is_empty() {
                items.extend(jmespath_functions::functions().iter().map(|function| {
                    let parameters: Vec<&str> =
                        function.parameters().iter().map(|parameter| parameter.name).collect();
                    let call = format!("({}) -> {}", parameters.join(", "), function.returns());
                    item(function.name(), FUNCTION, &call, function.description())
                }));
            }
        }
        TextLanguage::GoTemplate => {
            items.extend(TEMPLATE_FIELDS.iter().filter_map(|(name, about)| variable(name, about)));
            if above.is_empty() {
                let functions = template_functions::functions(FunctionSet::Sprig);
                items.extend(functions.into_iter().map(|function| {
                    let parameters = function.parameters().join(" ");
                    item(function.name(), FUNCTION, &parameters, function.about())
                }));
            }
        }
        TextLanguage::Cel => {
            let env = Env::policies(PolicyScope::Cluster);
            let more = ["variables", "element", "index"];
            let names = env.variable_names().chain(more);
            items.extend(names.filter_map(|name| variable(name, "")));
            let mut seen = std::collections::BTreeSet::new();
            for call in CEL_FUNCTIONS.iter() {
                let name = cel_name(call);
                if seen.insert(name) {
                    items.push(item(name, FUNCTION, call, ""));
                }
            }
        }
        TextLanguage::Vars => {}
    }
    items
}

fn kubernetes_kinds() -> Vec<Json> {
    let kinds = Kinds::builtin();
    let mut names: Vec<(String, String)> = kinds
        .iter()
        .map(|kind| (kind.kind().to_owned(), kind.group_version().to_string()))
        .collect();
    names.sort_unstable();
    names.dedup_by(|a, b| a.0 == b.0);
    names.iter().map(|(name, version)| item(name, CLASS, version, "")).collect()
}

/// The fields of kustomizations whose elements are paths.
fn names_a_file(field: &str) -> bool {
    matches!(
        field,
        "resources"
            | "components"
            | "bases"
            | "configurations"
            | "crds"
            | "generators"
            | "transformers"
            | "validators"
            | "path"
            | "files"
            | "envs"
            | "patchesStrategicMerge"
            | "valuesFile"
    )
}

/// Files and directories beside a kustomization, below what is written so far.
fn paths(document: &TextDocument, written: &str, files: &dyn FileSystem) -> Vec<Json> {
    let below = written.rsplit_once('/').map_or("", |(directory, _)| directory);
    let directory = match below {
        "" => document.directory().to_owned(),
        below => format!("{}/{below}", document.directory()),
    };
    let entries = files.list(&directory).unwrap_or_default();
    let shown = entries
        .iter()
        .filter(|entry| !entry.name.starts_with('.') && entry.name != document.file_name());
    shown
        .map(|entry| {
            let detail = if entry.is_directory { "directory" } else { "file" };
            item(&entry.name, FILE, detail, "")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_calls_are_found() {
        assert_eq!(cel_name("size(list(A)) -> int"), "size");
        assert_eq!(cel_name("list(A).first() -> optional(A)"), "first");
        assert_eq!(cel_name("string.matches(string) -> bool"), "matches");
        assert!(!cel_calls("size").is_empty());
    }
}
