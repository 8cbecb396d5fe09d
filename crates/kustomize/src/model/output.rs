//! Text in and out of single values: what objects, fields and scalars look like.

use std::fmt::Write as _;
use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_value::{Map, Path, Value};
use kiln_yaml::{Document, EmitOptions, KeyOrder, ReadOptions};

use crate::error::{Error, Result};
use crate::model::annotations;
use crate::model::resource::{Resource, scalar_text};

/// A value as YAML with its keys in the order they have.
pub(crate) fn emit_in_order(value: &Value) -> String {
    let mut text = String::new();
    kiln_yaml::emit_into(&mut text, value, &EmitOptions { key_order: KeyOrder::AsIs });
    text
}

/// What kustomize says when a value has another form than a step needs.
pub(crate) fn wrong_node_kind(expected: &str, found: &Value) -> Error {
    wrong_node_kind_as(expected, found, emit_in_order(found).trim_end())
}

/// The same, with the value as the user wrote it.
pub(crate) fn wrong_node_kind_as(expected: &str, found: &Value, shown: &str) -> Error {
    let kind = match found {
        Value::List(_) => "SequenceNode",
        Value::Map(_) => "MappingNode",
        _ => "ScalarNode",
    };
    Error::new(format!(
        "wrong node kind: expected {expected} but got {kind}: node contents:\n{shown}\n"
    ))
}

/// The lines of a value as its document has them, moved to the left margin.
pub(crate) fn written_block(document: &Document, path: &Path) -> Option<String> {
    let place = document.locate(path);
    let margin = place.position().column - 1;
    let text = document.source().text().get(place.span())?;
    let mut lines = text.lines();
    let mut block = lines.next()?.to_owned();
    for line in lines {
        let indent = line.len() - line.trim_start_matches(' ').len();
        let _ = write!(block, "\n{}", &line[indent.min(margin)..]);
    }
    Some(block.trim_end().to_owned())
}

/// The value that a plain scalar with this text has in a resource.
pub(crate) fn resolve_plain(text: &str) -> Value {
    kiln_yaml::resolve_plain(text, kiln_yaml::ScalarTable::V3)
}

/// The value of a text that stands in a field.
pub(crate) fn parse_text(text: &str) -> Result<Value> {
    parse_document(text).map(|document| document.map_or(Value::Null, Document::into_value))
}

/// The first document of a text that stands in a field.
pub(crate) fn parse_document(text: &str) -> Result<Option<Document>> {
    let source = Arc::new(Source::new("<text>", text));
    kiln_yaml::read(&source, ReadOptions::kustomize_resource())
        .map(|documents| documents.into_iter().next())
        .map_err(|diagnostic| yaml_error(&diagnostic))
}

/// Puts a scalar in the place of another in a YAML text, and leaves all else as it is written.
pub(crate) fn splice_scalar(text: &str, path: &Path, new: &Value) -> Option<String> {
    let document = parse_document(text).ok()??;
    let span = document.locate(path).span();
    let old = text.get(span.clone())?;
    let written = crate::model::restyle::styled(new, old)?;
    Some(format!("{}{written}{}", &text[..span.start], &text[span.end..]))
}

/// A reader's complaint in the words of go-yaml, with its place and hint.
pub(crate) fn yaml_error(diagnostic: &Diagnostic) -> Error {
    let line = go_yaml_line(diagnostic);
    let text = match line {
        0 => format!("yaml: {}", diagnostic.message),
        line => format!("yaml: line {line}: {}", diagnostic.message),
    };
    Error::new(text).at(diagnostic.place.clone()).maybe_hint(diagnostic.hint.clone())
}

/// go-yaml counts from zero where its parser complains, and from one where its scanner does; and
/// it prefers the line where the construct began.
fn go_yaml_line(diagnostic: &Diagnostic) -> usize {
    let by_parser = diagnostic.message.starts_with("did not find expected");
    let shift = usize::from(by_parser);
    let began = diagnostic.related.first().map(|related| related.place.position().line);
    let found = diagnostic.place.as_ref().map(|place| place.position().line);
    [began, found].into_iter().flatten().find(|line| *line > 1).map_or(0, |line| line - shift)
}

/// An object as it leaves the build.
///
/// kustomize rewrites the annotations of every object from their text at the end, so they all come
/// out as text, and an empty map of them goes away.
pub(crate) fn finished(resource: &mut Resource, origin: bool, transformations: bool) {
    let mut kept = Map::new();
    for (key, value) in resource.annotations().into_iter().flatten() {
        let drop = annotations::is_bookkeeping(key)
            || key == annotations::ORIGIN
            || key == annotations::TRANSFORMATIONS;
        if !drop {
            let text = if value.is_null() { "null".into() } else { scalar_text(value) };
            kept.insert(key.clone(), text);
        }
    }
    if origin && let Some(origin) = &resource.origin {
        kept.insert(annotations::ORIGIN, origin.to_text());
    }
    if transformations && !resource.transformations.is_empty() {
        let steps = resource.transformations.iter().map(AsRef::as_ref);
        kept.insert(
            annotations::TRANSFORMATIONS,
            crate::model::origin::transformations_text(steps),
        );
    }
    if resource.object().get("metadata").is_none() {
        resource.set_metadata("annotations", Value::Null);
    }
    annotations::set(resource, kept);
}
