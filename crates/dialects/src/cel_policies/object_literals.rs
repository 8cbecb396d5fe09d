//! Objects that expressions write out: what they lack, and what they have too much.

use kiln_cel::{Env, Span, WrittenValue};
use kiln_diagnostic::Diagnostic;
use kiln_object::Gvk;
use kiln_value::{Path, Segment, Value};
use kiln_yaml::part_of;

use crate::document_reader::DocumentNode;
use crate::generated_object_fields::{self, FieldProblem};

/// Warns about objects that the expression of a node writes out.
pub(super) fn check(node: &DocumentNode<'_, '_>, env: &Env) {
    let Some(source) = node.value.as_str() else { return };
    for (span, written) in env.written(source) {
        objects(&written, span, &mut |object, span| {
            one(object, span, &mut |message, hint, span| {
                let place = part_of(&node.report.place(&node.path), source, span.range());
                node.report.add(Diagnostic::warning(message).at(place).hint(hint));
            });
        });
    }
}

/// Warns about what the expression of a patch writes into objects of some kinds and these do not have.
pub(super) fn check_patch(node: &DocumentNode<'_, '_>, env: &Env, kinds: &[Gvk]) {
    let Some(source) = node.value.as_str().filter(|_| !kinds.is_empty()) else { return };
    for (span, written) in env.written(source) {
        parts(&written, span, &mut |name, part, span| {
            for (slip, at) in patched(kinds, name, part) {
                let place =
                    part_of(&node.report.place(&node.path), source, at.unwrap_or(span).range());
                node.report.add(Diagnostic::warning(slip.message).at(place).hint(slip.hint));
            }
        });
    }
}

/// Warns about fields of the trigger that an expression reads, and that none of these kinds has.
pub(super) fn check_reads(node: &DocumentNode<'_, '_>, env: &Env, kinds: &[Gvk]) {
    let Some(source) = node.value.as_str().filter(|_| !kinds.is_empty()) else { return };
    let mut told = Vec::new();
    for variable in ["object", "oldObject"] {
        for (span, fields) in env.reads(source, variable) {
            let fields: Vec<&str> = fields.iter().map(kiln_value::Str::as_str).collect();
            for slip in generated_object_fields::problems_below(kinds, &fields, &Value::Null) {
                if told.contains(&slip.path) {
                    continue;
                }
                let place = part_of(&node.report.place(&node.path), source, span.range());
                // Kubernetes' words, with which it warns about such expressions of its own policies.
                let name = fields.get(slip.path.segments().len() - 1).copied().unwrap_or_default();
                let message = format!("undefined field '{name}'; {}", slip.message);
                told.push(slip.path);
                node.report.add(Diagnostic::warning(message).at(place).hint(slip.hint));
            }
        }
    }
}

/// The same for a list of entries with expressions.
pub(super) fn check_reads_of(list: Option<DocumentNode<'_, '_>>, env: &Env, kinds: &[Gvk]) {
    for entry in list.map(|node| node.elements()).unwrap_or_default() {
        if let Some(expression) = entry.any_fields().and_then(|fields| fields.get("expression")) {
            check_reads(&expression, env, kinds);
        }
    }
}

/// Every structure: itself, or an element of a list.
fn parts<'w>(
    written: &'w WrittenValue,
    span: Span,
    each: &mut impl FnMut(&'w str, &'w WrittenValue, Span),
) {
    match written {
        WrittenValue::List(items) => items.iter().for_each(|item| parts(item, span, each)),
        WrittenValue::Map { name: Some(name), .. } => each(name, written, span),
        _ => {}
    }
}

/// What is wrong with `Object{…}`, with a part such as `Object.spec{…}`, or with `JSONPatch{…}`, and where.
fn patched(kinds: &[Gvk], name: &str, part: &WrittenValue) -> Vec<(FieldProblem, Option<Span>)> {
    let value = part.known();
    let mut names = name.split('.');
    match names.next() {
        Some("Object") => {
            let above: Vec<&str> = names.collect();
            let found = generated_object_fields::problems_below(kinds, &above, &value);
            let placed = found.into_iter().map(|slip| {
                let below: Path = slip.path.segments().iter().skip(above.len()).cloned().collect();
                let place = place_of(part, &below);
                (slip, place)
            });
            placed.collect()
        }
        Some("JSONPatch") => {
            let op = value.str_at(["op"]).unwrap_or_default();
            // A test may well ask for what is not there.
            let writes = matches!(op, "add" | "replace" | "remove");
            let Some(pointer) = value.str_at(["path"]).filter(|_| writes) else {
                return Vec::new();
            };
            let given = value.get("value").filter(|_| op != "remove");
            let found = generated_object_fields::problems_at_all(kinds, pointer, given);
            let path: Path = [Segment::Key("path".into())].into_iter().collect();
            let place = place_of(part, &path);
            found.into_iter().map(|slip| (slip, place)).collect()
        }
        _ => Vec::new(),
    }
}

/// Every map that is an object: itself, or an element of a list.
fn objects<'w>(
    written: &'w WrittenValue,
    span: Span,
    each: &mut impl FnMut(&'w WrittenValue, Span),
) {
    match written {
        WrittenValue::List(items) => items.iter().for_each(|item| objects(item, span, each)),
        WrittenValue::Map { name: None, entries, .. } => {
            let first = entries.first().map_or(span, |(_, span, _)| *span);
            each(written, first);
        }
        _ => {}
    }
}

fn one(object: &WrittenValue, span: Span, warn: &mut impl FnMut(String, String, Span)) {
    let WrittenValue::Map { entries, open, .. } = object else { return };
    let value = object.known();
    let Some(kind) = Gvk::of(&value) else { return };
    let metadata = entries.iter().find(|(key, ..)| key == "metadata");
    let is_open =
        *open || metadata.is_some_and(|(.., m)| matches!(m, WrittenValue::Map { open: true, .. }));
    if generated_object_fields::lacks_name(&value, is_open) {
        let at = metadata.map_or(span, |(_, span, _)| *span);
        warn(
            format!("this {} has no metadata.name, so it cannot be made", kind.kind),
            "add \"name\" to its metadata".to_owned(),
            at,
        );
    }
    for slip in generated_object_fields::problems(&kind, &value) {
        let at = place_of(object, &slip.path).unwrap_or(span);
        warn(slip.message, slip.hint, at);
    }
}

/// Where the last key of a path is written.
fn place_of(written: &WrittenValue, path: &Path) -> Option<Span> {
    let (mut at, mut place) = (written, None);
    for segment in path.segments() {
        at = match (at, segment) {
            (WrittenValue::Map { entries, .. }, Segment::Key(key)) => {
                let (_, span, value) = entries.iter().find(|(known, ..)| known == key.as_str())?;
                place = Some(*span);
                value
            }
            (WrittenValue::List(items), Segment::Index(index)) => items.get(*index)?,
            _ => return place,
        };
    }
    place
}
