//! Documents with `(( expressions ))` in them.

use std::sync::Arc;

use kiln_cel::Env;
use kiln_diagnostic::{Diagnostic, Source, SourceLocation};
use kiln_object::Gvk;
use kiln_rules::{DocumentPart, TextPiece};
use kiln_value::{Path, Value};
use kiln_yaml::{Document, ReadOptions, Reader, part_of};

use super::expressions::{self, ExpectedType, Text};
use crate::document_reader::DocumentNode;
use crate::generated_object_fields;

/// Reads the documents of a text; `None` when something is wrong with them.
pub(super) fn read(
    node: &DocumentNode<'_, '_>,
    env: &Env,
    interpolate: bool,
) -> Option<Vec<DocumentPart>> {
    let text = node.text()?;
    let source = Arc::new(Source::new("template", text.as_str()));
    let documents = match Reader::new(ReadOptions::kubernetes()).read(&source) {
        Ok(documents) => documents,
        Err(error) => {
            let offset = error.place.as_ref().map_or(0, |place| place.span().start);
            node.report.add(
                Diagnostic::error(format!("{}: {}", node.path, error.message))
                    .at(part_of(&node.report.place(&node.path), &text, offset..offset + 1))
                    .maybe_hint(error.hint),
            );
            return None;
        }
    };
    let reader = DocumentReader { node, text: &text, env, interpolate };
    let mut parts = Vec::new();
    let mut fine = true;
    for document in documents.iter().filter(|document| !document.value().is_null()) {
        match reader.document(document) {
            Some(part) => parts.push(part),
            None => fine = false,
        }
    }
    if parts.is_empty() && fine {
        node.error_with(
            format!("{}: template must contain at least one YAML document", node.path),
            "write an object",
        );
        return None;
    }
    fine.then_some(parts)
}

struct DocumentReader<'t, 'd, 'r> {
    node: &'t DocumentNode<'d, 'r>,
    text: &'t str,
    env: &'t Env,
    interpolate: bool,
}

impl DocumentReader<'_, '_, '_> {
    fn document(&self, document: &Document) -> Option<DocumentPart> {
        let value = document.value();
        let part = match value {
            Value::Map(_) if !self.interpolate => DocumentPart::Plain(value.clone()),
            Value::Map(_) | Value::String(_) if self.interpolate => {
                self.part(value, &Path::root(), document)?
            }
            other => DocumentPart::Plain(other.clone()),
        };
        if !matches!(
            part,
            DocumentPart::Map(_) | DocumentPart::Whole(_) | DocumentPart::Plain(Value::Map(_))
        ) {
            let line = document.place().position().line;
            self.error(
                &document.locate(&Path::root()),
                &format!("line {line}: document must be a mapping describing a resource"),
            );
            return None;
        }
        self.look(document);
        Some(part)
    }

    /// Warns about what the object lacks, and what it has too much.
    fn look(&self, document: &Document) {
        let value = document.value();
        let warn = |inner: &SourceLocation, message: String, hint: String| {
            let outer = self.node.report.place(&self.node.path);
            let place = part_of(&outer, self.text, inner.span());
            self.node.report.add(Diagnostic::warning(message).at(place).hint(hint));
        };
        let Some(kind) = Gvk::of(value) else { return };
        if generated_object_fields::lacks_name(value, false) {
            let message = format!("this {} has no metadata.name, so it cannot be made", kind.kind);
            warn(&document.place(), message, "add name to its metadata".to_owned());
        }
        for slip in generated_object_fields::problems(&kind, value) {
            warn(&document.locate_key(&slip.path), slip.message, slip.hint);
        }
    }

    fn part(&self, value: &Value, path: &Path, document: &Document) -> Option<DocumentPart> {
        match value {
            Value::String(text) => self.scalar(text, path, document),
            Value::Map(map) => {
                let mut entries = Vec::with_capacity(map.len());
                for (key, value) in map {
                    if key.as_str().replace("\\((", "").contains("((") {
                        let message = "placeholders are not supported in mapping keys; build the map with a \
                             whole-value placeholder";
                        self.error(&document.locate_key(&path.join(key)), message);
                        return None;
                    }
                    entries.push((key.clone(), self.part(value, &path.join(key), document)?));
                }
                Some(if entries.iter().all(|(_, part)| matches!(part, DocumentPart::Plain(_))) {
                    DocumentPart::Plain(value_of(value, &entries))
                } else {
                    DocumentPart::Map(entries)
                })
            }
            Value::List(list) => {
                let mut parts = Vec::with_capacity(list.len());
                for (at, value) in list.iter().enumerate() {
                    parts.push(self.part(value, &path.join(at), document)?);
                }
                let plain: Option<Vec<Value>> = parts
                    .iter()
                    .map(|part| match part {
                        DocumentPart::Plain(value) => Some(value.clone()),
                        _ => None,
                    })
                    .collect();
                Some(plain.map_or(DocumentPart::List(parts), |plain| {
                    DocumentPart::Plain(Value::from(plain))
                }))
            }
            other => Some(DocumentPart::Plain(other.clone())),
        }
    }

    fn scalar(&self, text: &str, path: &Path, document: &Document) -> Option<DocumentPart> {
        let found = match scan(text) {
            Ok(found) => found,
            Err(message) => {
                self.error(&document.locate(path), &message);
                return None;
            }
        };
        let expression = |start: usize, end: usize| {
            let place = part_of(&document.locate(path), text, start..end);
            let text = Text {
                source: &text[start..end],
                path: self.node.path.clone(),
                offset: place.span().start,
                whole: self.text,
            };
            expressions::compile(self.env, &text, ExpectedType::Any, self.node.report)
        };
        match found.as_slice() {
            [] => Some(DocumentPart::Plain(Value::from(""))),
            [ScalarPiece::Plain(plain)] => Some(DocumentPart::Plain(Value::from(plain.as_str()))),
            [ScalarPiece::Expression(start, end)] => {
                expression(*start, *end).map(DocumentPart::Whole)
            }
            pieces => pieces
                .iter()
                .map(|piece| match piece {
                    ScalarPiece::Plain(plain) => Some(TextPiece::Plain(plain.clone())),
                    ScalarPiece::Expression(start, end) => {
                        expression(*start, *end).map(TextPiece::Value)
                    }
                })
                .collect::<Option<Vec<_>>>()
                .map(DocumentPart::Text),
        }
    }

    /// Reports something at a place in the template.
    fn error(&self, inner: &SourceLocation, message: &str) {
        let outer = self.node.report.place(&self.node.path);
        let place = part_of(&outer, self.text, inner.span());
        self.node.report.add(Diagnostic::error(format!("{}: {message}", self.node.path)).at(place));
    }
}

/// A map whose values may have lost escapes.
fn value_of(written: &Value, entries: &[(kiln_value::Key, DocumentPart)]) -> Value {
    let mut value = written.clone();
    if let Some(map) = value.as_map_mut() {
        for (key, part) in entries {
            if let DocumentPart::Plain(plain) = part {
                map.insert(key.clone(), plain.clone());
            }
        }
    }
    value
}

/// A piece of a scalar.
#[derive(Debug, PartialEq, Eq)]
enum ScalarPiece {
    Plain(String),
    /// The bytes between the parentheses, without white space around them.
    Expression(usize, usize),
}

/// Finds the placeholders of a scalar.
fn scan(text: &str) -> Result<Vec<ScalarPiece>, String> {
    let mut found = Vec::new();
    let mut plain = String::new();
    let mut at = 0;
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("\\((") {
            plain.push_str("((");
            at += 3;
        } else if rest.starts_with("((") {
            let end = placeholder_end(text, at)?;
            // White space has no place in what is written, so an expression begins behind it.
            let inside = &text[at + 2..end];
            let start = end - inside.trim_start().len();
            let length = inside.trim().len();
            if length == 0 {
                return Err(format!("empty placeholder at offset {at}"));
            }
            if !plain.is_empty() {
                found.push(ScalarPiece::Plain(std::mem::take(&mut plain)));
            }
            found.push(ScalarPiece::Expression(start, start + length));
            at = end + 2;
        } else {
            let c = rest.chars().next().unwrap_or_default();
            plain.push(c);
            at += c.len_utf8().max(1);
        }
    }
    if !plain.is_empty() {
        found.push(ScalarPiece::Plain(plain));
    }
    Ok(found)
}

/// Where the closing parentheses of a placeholder are.
fn placeholder_end(text: &str, start: usize) -> Result<usize, String> {
    let mut depth = 0_usize;
    let mut quote: Option<char> = None;
    let mut escaped = false;
    for (at, c) in text[start + 2..].char_indices() {
        let at = start + 2 + at;
        match quote {
            Some(_) if escaped => escaped = false,
            Some(_) if c == '\\' => escaped = true,
            Some(open) if c == open => quote = None,
            Some(_) => {}
            None => match c {
                '"' | '\'' => quote = Some(c),
                '(' => depth += 1,
                ')' if depth > 0 => depth -= 1,
                ')' if text[at..].starts_with("))") => return Ok(at),
                ')' => {
                    return Err(format!(
                        "unbalanced parenthesis in placeholder starting at offset {start}"
                    ));
                }
                _ => {}
            },
        }
    }
    Err(match quote {
        Some(_) => {
            format!("unterminated string literal in placeholder starting at offset {start}")
        }
        None => {
            format!("unterminated placeholder starting at offset {start}: missing closing '))'")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_found() {
        let shown = |text: &str| -> Result<Vec<String>, String> {
            Ok(scan(text)?
                .into_iter()
                .map(|found| match found {
                    ScalarPiece::Plain(plain) => plain,
                    ScalarPiece::Expression(start, end) => format!("<{}>", &text[start..end]),
                })
                .collect())
        };
        let list = |parts: &[&str]| Ok(parts.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(shown("(( 1 + 1 ))"), list(&["<1 + 1>"]));
        assert_eq!(shown("x-(( a ))-(( b ))"), list(&["x-", "<a>", "-", "<b>"]));
        assert_eq!(shown("\\((not))"), list(&["((not))"]));
        assert_eq!(shown("(( \":)\" ))"), list(&["<\":)\">"]));
        assert_eq!(shown("(( ((1) + (2)) ))"), list(&["<((1) + (2))>"]));
        assert_eq!(shown("((f(')) ')))"), list(&["<f(')) ')>"]));
        assert_eq!(shown("a (b) c"), list(&["a (b) c"]));
        for (text, message) in [
            ("((  ))", "empty placeholder at offset 0"),
            ("a((x) b", "unbalanced parenthesis in placeholder starting at offset 1"),
            ("(( 'x ))", "unterminated string literal in placeholder starting at offset 0"),
            ("(( x ", "unterminated placeholder starting at offset 0: missing closing '))'"),
        ] {
            assert_eq!(shown(text), Err(message.to_owned()), "{text}");
        }
    }
}
