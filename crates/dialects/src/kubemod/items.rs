//! The items of `match` and `patch`.

use kiln_fields::kubemod as table;
use kiln_gotemplate::{FunctionSet, Template, TemplateOptions};
use kiln_jsonpath::Expression;
use kiln_object::Gvk;
use kiln_rules::{MatchItem, PatchAction, PatchItem, Quantifier, ValueTest};
use kiln_text::Regex;
use kiln_value::{Str, Value};
use kiln_yaml::{Document, ReadOptions, read_bytes};

use super::compile::loose_text;
use super::structure;
use crate::document_reader::{DocumentFields, DocumentNode};
use crate::generated_object_fields::{self, FieldProblem};

/// A field, also under the name it had before 0.6.0.
fn renamed<'d, 'r>(
    fields: &DocumentFields<'d, 'r>,
    name: &str,
    before: &str,
) -> Option<DocumentNode<'d, 'r>> {
    let old = fields.get(before);
    match (fields.get(name), old) {
        (Some(node), Some(old)) => {
            old.error_with(
                format!("{name} and {before} are both there"),
                format!("write {name} alone"),
            );
            Some(node)
        }
        (None, Some(old)) => {
            let message = format!("{before} is the old name of {name}");
            old.report.warn(&old.path, message, Some(format!("write {name}")));
            Some(old)
        }
        (node, None) => node,
    }
}

/// Compiles an item of `match`.
pub(super) fn match_item(node: &DocumentNode<'_, '_>) -> Option<MatchItem> {
    let fields = node.fields(&table::MATCH_ITEM)?;
    let Some(select) = renamed(&fields, "select", "query") else {
        fields.error(
            "the field select of an item is missing",
            Some("add select: $.kind, say".into()),
        );
        return None;
    };
    let expression = expression(&select)?;
    for path in expression.unguarded_inequalities() {
        if always_there(path) {
            continue;
        }
        select.report.warn(
            &select.path,
            format!("`!=` also holds where {path} is not there"),
            Some(format!("write isDefined({path}) && …, or == and negate: true")),
        );
    }
    let quantifier = match fields.get("matchFor") {
        None => Quantifier::Any,
        Some(node) => match node.text()?.as_str() {
            "Any" => Quantifier::Any,
            "All" => Quantifier::All,
            other => {
                node.error_with(format!("there is no matchFor {other:?}"), "use Any or All");
                return None;
            }
        },
    };
    let negate = renamed(&fields, "negate", "negative").and_then(|node| node.flag());
    Some(MatchItem {
        select: expression,
        test: test(&fields)?,
        quantifier,
        negate: negate.unwrap_or(false),
        path: node.path.clone(),
    })
}

/// What every object has.
fn always_there(path: &str) -> bool {
    matches!(path, "$" | "$.kind" | "$.apiVersion" | "$.metadata" | "$.metadata.name")
}

/// KubeMod: of several tests the first counts, in this order.
fn test(fields: &DocumentFields<'_, '_>) -> Option<ValueTest> {
    let value = renamed(fields, "matchValue", "value");
    let values = renamed(fields, "matchValues", "values");
    let regex = renamed(fields, "matchRegex", "regex");
    let several = [&value, &values, &regex].into_iter().flatten().count() > 1;
    if several {
        let report = fields.report();
        report.warn(
            fields.path(),
            "of matchValue, matchValues and matchRegex only the first counts",
            Some("write one of them, or several items".into()),
        );
    }
    let pattern = match &regex {
        None => None,
        Some(node) => {
            let text = node.text()?;
            match Regex::new(&text) {
                Ok(regex) => Some(regex),
                Err(error) => {
                    node.error_with(error.to_string(), "regular expressions are Go's: RE2 syntax");
                    return None;
                }
            }
        }
    };
    if let Some(node) = &value {
        let text = loose_text(node)?;
        if text.len() > 1 && text.starts_with('"') && text.ends_with('"') {
            node.report.warn(
                &node.path,
                format!("the quotes in {text} are compared, too"),
                Some(format!("write matchValue: {text}")),
            );
        }
        return Some(ValueTest::Values(vec![text]));
    }
    if let Some(node) = &values {
        let texts: Vec<Str> = node.elements().iter().filter_map(loose_text).collect();
        // KubeMod: an empty list counts as absent.
        if !texts.is_empty() {
            return Some(ValueTest::Values(texts));
        }
    }
    Some(pattern.map_or(ValueTest::Any, ValueTest::Regex))
}

fn expression(node: &DocumentNode<'_, '_>) -> Option<Expression> {
    let text = node.text()?;
    if text.trim().is_empty() {
        node.error_with("the expression is empty", "write a path such as $.kind");
        return None;
    }
    match Expression::compile(&text) {
        Ok(expression) => Some(expression),
        Err(error) => {
            let hint = error.hint_text().map(str::to_owned);
            let column = text[..error.span().start.min(text.len())].chars().count() + 1;
            let message = format!("{} (at character {column} of the expression)", error.message());
            node.report.error(&node.path, message, hint);
            None
        }
    }
}

/// Compiles an item of `patch`.
pub(super) fn patch_item(node: &DocumentNode<'_, '_>) -> Option<PatchItem> {
    let fields = node.fields(&table::PATCH_ITEM)?;
    let action = match fields.required_text("op")?.as_str() {
        "add" => PatchAction::Add,
        "replace" => PatchAction::Replace,
        "remove" => PatchAction::Remove,
        "test" => PatchAction::Test,
        "move" => PatchAction::Move,
        "copy" => PatchAction::Copy,
        other => {
            fields.report().error(
                &fields.path().join("op"),
                format!("a ModRule has no operation {other:?}"),
                Some("use add, replace, remove, test, move or copy".into()),
            );
            return None;
        }
    };
    let select = match fields.get("select") {
        None => None,
        Some(node) => {
            let expression = expression(&node)?;
            if !expression.is_path() {
                node.error_with(
                    "the select of a patch must be a path",
                    "begin with `$`, and put conditions into a filter: $.list[? @.x == 1]",
                );
                return None;
            }
            Some(expression)
        }
    };
    let pointer = fields.required_text("path")?;
    if pointer.starts_with("/syntheticRefs") {
        fields.report().warn(
            &fields.path().join("path"),
            "syntheticRefs are not part of the object, so a cluster refuses a patch of them",
            None,
        );
    }
    let takes = matches!(action, PatchAction::Move | PatchAction::Copy);
    let from = match fields.get("from") {
        _ if takes => Some(fields.required_text("from")?),
        Some(node) => {
            let message = "from is for move and copy; here it means nothing";
            node.report.warn(&node.path, message, Some("remove it".into()));
            None
        }
        None => None,
    };
    if let Some(node) = fields.get("value").filter(|_| takes) {
        let message = "move and copy take what is at from; the value means nothing";
        node.report.warn(&node.path, message, Some("remove it".into()));
    }
    let value = match fields.get("value") {
        None => None,
        Some(node) => {
            let text = loose_text(&node)?;
            metadata(&node, &pointer, &text);
            let template = template(&node, &text)?;
            structure::warn(&node, &template);
            Some(template)
        }
    };
    Some(PatchItem { action, select, pointer, from, value, path: node.path.clone() })
}

/// Warns about labels and annotations that are not text: a value is read as YAML, and an API server refuses the object.
fn metadata(node: &DocumentNode<'_, '_>, pointer: &str, text: &str) {
    let Some(at) =
        ["/metadata/labels", "/metadata/annotations"].iter().find_map(|part| pointer.find(part))
    else {
        return;
    };
    let below = &pointer[at + "/metadata".len()..];
    for problem in literal(text)
        .iter()
        .flat_map(|value| generated_object_fields::metadata_problems(below, value))
    {
        let message =
            format!("metadata.{} must be text: an API server refuses anything else", problem.path);
        let hint = format!("values are read as YAML, so quote it twice: '\"{}\"'", text.trim());
        node.report.warn(&node.path, message, Some(hint));
    }
}

/// Warns about fields that none of the kinds has that a rule changes, and about values that no API server takes there.
pub(super) fn against_schemas(node: &DocumentNode<'_, '_>, kinds: &[Gvk]) {
    let text = |key: &str| node.value.get(key).and_then(Value::as_str);
    let (Some(op), Some(pointer)) = (text("op"), text("path")) else { return };
    // What else may stand there is not read as a JSON Pointer.
    if !pointer.starts_with('/') {
        return;
    }
    let warn = |field: &str, problems: Vec<FieldProblem>| {
        let found = !problems.is_empty();
        for problem in problems {
            node.report.warn(&node.path.join(field), problem.message, Some(problem.hint));
        }
        found
    };
    if warn("path", generated_object_fields::problems_at_all(kinds, pointer, None)) {
        return;
    }
    // Labels and annotations have a warning of their own.
    let is_label =
        ["/metadata/labels", "/metadata/annotations"].iter().any(|at| pointer.contains(at));
    if matches!(op, "add" | "replace") && !is_label {
        let value = match node.value.get("value") {
            Some(Value::String(text)) => literal(text),
            other => other.cloned(),
        };
        warn("value", generated_object_fields::problems_at_all(kinds, pointer, value.as_ref()));
    }
}

/// The YAML in a value; none if a template computes it.
fn literal(text: &str) -> Option<Value> {
    if text.contains("{{") {
        return None;
    }
    let mut documents = read_bytes("value", text.as_bytes(), ReadOptions::kubernetes()).ok()?;
    documents.pop().map(Document::into_value)
}

/// Compiles a value or a message.
pub(super) fn template(node: &DocumentNode<'_, '_>, text: &str) -> Option<Template> {
    let options = TemplateOptions { functions: FunctionSet::Sprig, ..TemplateOptions::default() };
    match Template::parse("value", &with_key_parts(text), &options) {
        Ok(template) => Some(template),
        Err(error) => {
            let hint = error.hint_text().map(str::to_owned);
            node.report.error(&node.path, format!("bad template: {}", error.message()), hint);
            None
        }
    }
}

/// KubeMod: `.#0` in a value is short for `(index .SelectKeyParts 0)`.
fn with_key_parts(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(".#") {
        let digits = &rest[at + 2..];
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        out.push_str(&rest[..at]);
        match &digits[..end] {
            "" => out.push_str(".#"),
            number => out.push_str(&format!("(index .SelectKeyParts {number})")),
        }
        rest = &digits[end..];
    }
    out.push_str(rest);
    out
}
