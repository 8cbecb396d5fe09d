//! What `kiln check` and `kiln build` say of a text.

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Severity, did_you_mean};
use kiln_dialects::{PolicyHost, compile_for, is_exception, is_policy, rule_cycles, unknown_kinds};
use kiln_fields::{FieldTable, FieldType, Support, chainsaw};
use kiln_kustomize::fs::{FileSystem, Layered};
use kiln_kustomize::{Build, BuildOptions};
use kiln_object::Kinds;
use kiln_value::{Path, Value};
use kiln_yaml::{Document, Places, ReadOptions};

use crate::subject::{DocumentSubject, find, in_words};
use crate::text_document::TextDocument;

/// More problems than this in one file are not shown: the first ones explain the others.
const MOST: usize = 200;

/// The problems of one open file. A kustomization is built only where `files` are given, since that reads all that it
/// names.
pub(crate) fn problems(document: &TextDocument, files: Option<&dyn FileSystem>) -> Vec<Diagnostic> {
    if document.is_too_large() {
        return Vec::new();
    }
    let read = match kiln_yaml::read(&document.source, ReadOptions::kubernetes()) {
        Ok(read) => read,
        Err(problem) => return vec![problem],
    };
    let mut found = policies(&read);
    for yaml in &read {
        let text = |key: &str| yaml.value().str_at([key]);
        let subject = DocumentSubject::called(document, text("apiVersion"), text("kind"));
        let Some(kind) = subject.kind else { continue };
        if is_policy(yaml) || is_exception(yaml) {
            continue;
        }
        let mut shape = Shape {
            places: yaml.places(),
            any_case: kind.original == "kustomize",
            everywhere: (kind.original == "Chainsaw").then_some(&chainsaw::WITHOUT_EFFECT),
            found: Vec::new(),
        };
        shape.table(yaml.value(), kind.table, &Path::root());
        found.append(&mut shape.found);
        let is_whole = !found.iter().any(|problem| problem.severity == Severity::Error);
        if let Some(files) = files
            && subject.is_kustomization
            && kind.name == "Kustomization"
            && is_whole
        {
            found.extend(build(document, files));
        }
    }
    found.retain(|problem| problem.severity > Severity::Note);
    found.truncate(MOST);
    found
}

/// What the compilers of policies say, and what concerns several rules.
fn policies(read: &[Document]) -> Vec<Diagnostic> {
    let ours: Vec<&Document> =
        read.iter().filter(|found| is_policy(found) || is_exception(found)).collect();
    if ours.is_empty() {
        return Vec::new();
    }
    let mut kinds = Kinds::builtin();
    for yaml in read {
        if yaml.value().str_at(["kind"]) == Some("CustomResourceDefinition") {
            match kinds.clone().with_crd(yaml.value()) {
                Ok(more) => kinds = more,
                Err(error) => {
                    return vec![Diagnostic::error(error.to_string()).at(yaml.place())];
                }
            }
        }
    }
    let compiled = compile_for(PolicyHost::Files, ours, &kinds);
    let mut found = compiled.diagnostics;
    let is_given = |kind: &str| {
        kiln_fields::kinds().any(|known| known.name == kind)
            || read.iter().any(|yaml| yaml.value().str_at(["kind"]) == Some(kind))
    };
    found.extend(unknown_kinds(&compiled.policies, &kinds, is_given));
    let rules = compiled.policies.iter().flat_map(|policy| &policy.rules).map(AsRef::as_ref);
    found.extend(rule_cycles(rules, []).iter().map(|cycle| {
        let place = cycle.start.origin.place();
        Diagnostic::warning(cycle.message()).at(place).hint(cycle.hint())
    }));
    found
}

/// What a build says of a kustomization as it is in the editor. Nothing is fetched and no program runs.
fn build(document: &TextDocument, files: &dyn FileSystem) -> Vec<Diagnostic> {
    let options = BuildOptions { offline: true, helm: None, ..BuildOptions::default() };
    let files = Layered::over(files).with(&document.path, document.text().as_bytes().to_vec());
    let here = |problem: Diagnostic| match &problem.place {
        Some(place) if place.source().name() == document.path => problem,
        // It is in a file that this one names: there is no better place for it here.
        Some(place) => Diagnostic::new(problem.severity, format!("{place}: {}", problem.message))
            .maybe_hint(problem.hint.clone()),
        None => problem,
    };
    let needs_more = |problem: &Diagnostic| {
        // What the editor's build leaves out is not the user's mistake.
        ["--enable-helm", "--enable-alpha-plugins", "--offline", "--enable-exec"]
            .iter()
            .any(|flag| problem.to_string().contains(flag))
            // The tables say it with what to write.
            || problem.message.contains("is deprecated")
    };
    let found = match Build::new(&files, &options).run(document.directory()) {
        Ok(output) => output.warnings,
        Err(failed) => {
            let mut found = failed.warnings;
            found.push(failed.error.into());
            found
        }
    };
    found.into_iter().filter(|problem| !needs_more(problem)).map(here).collect()
}

/// Holds a document against a table of fields.
struct Shape {
    places: Places,
    /// Whether names are read in any letter case.
    any_case: bool,
    /// Fields that every part may have besides its own.
    everywhere: Option<&'static FieldTable>,
    found: Vec<Diagnostic>,
}

impl Shape {
    fn table(&mut self, value: &Value, table: &'static FieldTable, path: &Path) {
        let Value::Map(map) = value else {
            self.wrong_type(&FieldType::Table(table), value, path);
            return;
        };
        for (key, inner) in map {
            let at = path.join(key);
            let field = match self.any_case {
                true => find(table, key),
                false => table.field(key),
            };
            let field = field.or_else(|| self.everywhere?.field(key));
            let Some(field) = field else {
                // Kubernetes has more metadata than Kiln reads.
                if !std::ptr::eq(table, &raw const kiln_fields::METADATA) {
                    self.unknown(key, table, &at);
                }
                continue;
            };
            match field.support {
                Support::Deprecated(instead) => self.found.push(
                    Diagnostic::warning(format!("{at} is deprecated"))
                        .at(self.places.key(&at))
                        .hint(format!("write {instead}")),
                ),
                Support::Rejected => self.found.push(
                    Diagnostic::error(format!("{at} is not accepted")).at(self.places.key(&at)),
                ),
                Support::Full | Support::Ignored | Support::NotRun => {}
            }
            if !inner.is_null() {
                self.value(inner, &field.holds, &at);
            }
        }
        for field in table.fields.iter().filter(|field| field.is_required) {
            if map.get(field.name).is_none_or(Value::is_null) {
                let message = format!("{} is missing", path.join(field.name));
                self.found.push(Diagnostic::error(message).at(self.places.key(path)));
            }
        }
    }

    fn value(&mut self, value: &Value, holds: &FieldType, path: &Path) {
        match (holds, value) {
            (FieldType::Any, _) => {}
            (FieldType::Either(forms), _) => match forms.iter().find(|form| accepts(form, value)) {
                Some(form) => self.value(value, form, path),
                None => self.wrong_type(holds, value, path),
            },
            (FieldType::Table(table), _) => self.table(value, table, path),
            (FieldType::Tables(table), Value::List(list)) => {
                for (at, element) in list.iter().enumerate() {
                    self.table(element, table, &path.join(at));
                }
            }
            (FieldType::List(inner), Value::List(list)) => {
                for (at, element) in list.iter().enumerate() {
                    self.value(element, inner, &path.join(at));
                }
            }
            (FieldType::Map(inner), Value::Map(map)) => {
                for (key, element) in map.iter().filter(|(_, element)| !element.is_null()) {
                    self.value(element, inner, &path.join(key));
                }
            }
            (FieldType::Enum(words), Value::String(word)) if !words.contains(&word.as_str()) => {
                let hint = match did_you_mean(word, words.iter().copied()) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => format!("the values are {}", words.join(", ")),
                };
                self.found.push(
                    Diagnostic::error(format!("{path} cannot be {word:?}"))
                        .at(self.places.value(path))
                        .hint(hint),
                );
            }
            _ if accepts(holds, value) => {}
            _ => self.wrong_type(holds, value, path),
        }
    }

    fn unknown(&mut self, key: &str, table: &'static FieldTable, at: &Path) {
        let hint = match did_you_mean(key, table.names()) {
            Some(meant) => format!("did you mean {meant:?}?"),
            None => format!("the fields here are {}", table.names().collect::<Vec<_>>().join(", ")),
        };
        self.found.push(
            Diagnostic::error(format!("unknown field {at}")).at(self.places.key(at)).hint(hint),
        );
    }

    fn wrong_type(&mut self, holds: &FieldType, value: &Value, path: &Path) {
        let hint = match (holds, value) {
            (FieldType::String | FieldType::Expression(_), Value::Number(_) | Value::Bool(_)) => {
                Some("put it in quotes".to_owned())
            }
            (FieldType::Boolean | FieldType::Integer, Value::String(_)) => {
                Some("write it without quotes".to_owned())
            }
            _ => None,
        };
        let name = if path.is_root() { "the document".to_owned() } else { path.to_string() };
        let message =
            format!("{name} must be {}, and this is a {}", in_words(holds), value.type_name());
        self.found.push(Diagnostic::error(message).at(self.places.value(path)).maybe_hint(hint));
    }
}

/// Whether a value has the outer form of a type.
fn accepts(holds: &FieldType, value: &Value) -> bool {
    match holds {
        FieldType::String | FieldType::Expression(_) | FieldType::Enum(_) => {
            matches!(value, Value::String(_))
        }
        FieldType::Boolean => matches!(value, Value::Bool(_)),
        FieldType::Integer => matches!(value, Value::Number(number) if number.is_integer()),
        FieldType::Any => true,
        FieldType::List(_) | FieldType::Tables(_) => matches!(value, Value::List(_)),
        FieldType::Map(_) | FieldType::Table(_) => matches!(value, Value::Map(_)),
        FieldType::Either(forms) => forms.iter().any(|form| accepts(form, value)),
    }
}

/// The file that a problem is shown in: the open one, unless it says so itself.
pub(crate) fn is_here(problem: &Diagnostic, document: &TextDocument) -> bool {
    problem.place.as_ref().is_some_and(|place| {
        Arc::ptr_eq(place.source(), &document.source)
            || place.source().text() == document.text() && place.source().name() == document.path
    })
}
