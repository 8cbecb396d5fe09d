//! Reads documents that people wrote: every mistake is reported with its place, and reading goes on. The texts for an
//! unknown field, a wrong type and a missing field are here.
//!
//! Which fields there are is written in `kiln_fields`, from which the reference is printed, too.

#[cfg(test)]
mod tests;

use std::cell::{OnceCell, RefCell};

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation, did_you_mean};
use kiln_fields::FieldTable;
use kiln_value::{Map, Path, Str, Value};
use kiln_yaml::{Document, Places};

/// Collects what is wrong with one document.
pub(crate) struct Report<'d> {
    document: &'d Document,
    places: OnceCell<Places>,
    found: RefCell<Vec<Diagnostic>>,
}

impl<'d> Report<'d> {
    pub(crate) fn new(document: &'d Document) -> Self {
        Report { document, places: OnceCell::new(), found: RefCell::new(Vec::new()) }
    }

    pub(crate) fn document(&self) -> &'d Document {
        self.document
    }

    /// The whole document.
    pub(crate) fn root(&self) -> DocumentNode<'d, '_> {
        DocumentNode { value: self.document.value(), path: Path::root(), report: self }
    }

    fn places(&self) -> &Places {
        self.places.get_or_init(|| self.document.places())
    }

    pub(crate) fn place(&self, path: &Path) -> SourceLocation {
        self.places().value(path)
    }

    pub(crate) fn add(&self, diagnostic: Diagnostic) {
        self.found.borrow_mut().push(diagnostic);
    }

    pub(crate) fn error(&self, path: &Path, message: impl Into<String>, hint: Option<String>) {
        self.add(Diagnostic::error(message).at(self.places().value(path)).maybe_hint(hint));
    }

    pub(crate) fn error_at_key(
        &self,
        path: &Path,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.add(Diagnostic::error(message).at(self.places().key(path)).maybe_hint(hint));
    }

    pub(crate) fn warn(&self, path: &Path, message: impl Into<String>, hint: Option<String>) {
        self.add(Diagnostic::warning(message).at(self.places().value(path)).maybe_hint(hint));
    }

    pub(crate) fn warn_at_key(
        &self,
        path: &Path,
        message: impl Into<String>,
        hint: Option<String>,
    ) {
        self.add(Diagnostic::warning(message).at(self.places().key(path)).maybe_hint(hint));
    }

    /// An error for a field that its map does not have.
    pub(crate) fn unknown_field(&self, path: &Path, hint: impl Into<String>) {
        self.error_at_key(path, format!("unknown field {path}"), Some(hint.into()));
    }

    pub(crate) fn has_errors(&self) -> bool {
        self.found.borrow().iter().any(|found| found.severity == Severity::Error)
    }

    pub(crate) fn finish(self) -> Vec<Diagnostic> {
        self.found.into_inner()
    }
}

/// A value of a document, and where it is.
pub(crate) struct DocumentNode<'d, 'r> {
    pub(crate) value: &'d Value,
    pub(crate) path: Path,
    pub(crate) report: &'r Report<'d>,
}

impl Clone for DocumentNode<'_, '_> {
    fn clone(&self) -> Self {
        DocumentNode { value: self.value, path: self.path.clone(), report: self.report }
    }
}

impl<'d, 'r> DocumentNode<'d, 'r> {
    pub(crate) fn error(&self, message: impl Into<String>) {
        self.report.error(&self.path, message, None);
    }

    pub(crate) fn error_with(&self, message: impl Into<String>, hint: impl Into<String>) {
        self.report.error(&self.path, message, Some(hint.into()));
    }

    fn wrong_type(&self, wanted: &str) {
        let hint = match (wanted, self.value) {
            ("a string", Value::Number(_) | Value::Bool(_) | Value::Null) => "put it in quotes",
            ("a list", _) => "put a dash in front of each element",
            ("true or false", Value::String(_)) => "write it without quotes",
            _ => "",
        };
        let message =
            format!("{} must be {wanted}, and this is {}", self.name(), a(self.value.type_name()));
        self.report.error(&self.path, message, Some(hint.to_owned()).filter(|h| !h.is_empty()));
    }

    /// The path as users say it.
    fn name(&self) -> String {
        if self.path.is_root() { "the document".into() } else { self.path.to_string() }
    }

    /// The fields of a map; unknown ones are reported with the nearest known name.
    pub(crate) fn fields(&self, table: &'static FieldTable) -> Option<DocumentFields<'d, 'r>> {
        #[cfg(test)]
        tests::note(&self.path, table);
        let fields = self.any_fields()?;
        for key in fields.map.keys() {
            if table.field(key).is_none() {
                let hint = match did_you_mean(key, table.names()) {
                    Some(meant) => format!("did you mean {meant:?}?"),
                    None => {
                        let names: Vec<&str> = table.names().collect();
                        format!("the fields here are {}", names.join(", "))
                    }
                };
                self.report.unknown_field(&self.path.join(key), hint);
            }
        }
        Some(fields)
    }

    /// The fields of a map, whatever they are called.
    pub(crate) fn any_fields(&self) -> Option<DocumentFields<'d, 'r>> {
        match self.value {
            Value::Map(map) => {
                Some(DocumentFields { map, path: self.path.clone(), report: self.report })
            }
            _ => {
                self.wrong_type("a map");
                None
            }
        }
    }

    pub(crate) fn elements(&self) -> Vec<DocumentNode<'d, 'r>> {
        match self.value {
            Value::List(list) => (list.iter().enumerate())
                .map(|(at, value)| DocumentNode {
                    value,
                    path: self.path.join(at),
                    report: self.report,
                })
                .collect(),
            Value::Null => Vec::new(),
            _ => {
                self.wrong_type("a list");
                Vec::new()
            }
        }
    }

    pub(crate) fn text(&self) -> Option<Str> {
        match self.value {
            Value::String(text) => Some(text.clone()),
            _ => {
                self.wrong_type("a string");
                None
            }
        }
    }

    pub(crate) fn flag(&self) -> Option<bool> {
        match self.value {
            Value::Bool(flag) => Some(*flag),
            _ => {
                self.wrong_type("true or false");
                None
            }
        }
    }

    /// A list of texts.
    pub(crate) fn texts(&self) -> Vec<Str> {
        self.elements().iter().filter_map(DocumentNode::text).collect()
    }
}

fn a(type_name: &str) -> String {
    match type_name {
        "null" => "null".into(),
        word if word.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {word}"),
        word => format!("a {word}"),
    }
}

/// The fields of a map.
#[derive(Clone)]
pub(crate) struct DocumentFields<'d, 'r> {
    map: &'d Map,
    path: Path,
    report: &'r Report<'d>,
}

impl<'d, 'r> DocumentFields<'d, 'r> {
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn report(&self) -> &'r Report<'d> {
        self.report
    }

    pub(crate) fn map(&self) -> &'d Map {
        self.map
    }

    /// The map itself.
    pub(crate) fn error(&self, message: impl Into<String>, hint: Option<String>) {
        self.report.error(&self.path, message, hint);
    }

    /// A field that is there and not null.
    pub(crate) fn get(&self, key: &str) -> Option<DocumentNode<'d, 'r>> {
        let value = self.map.get(key).filter(|value| !value.is_null())?;
        Some(DocumentNode { value, path: self.path.join(key), report: self.report })
    }

    pub(crate) fn text(&self, key: &str) -> Option<Str> {
        self.get(key)?.text()
    }

    pub(crate) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key)?.flag()
    }

    /// A text that must be there.
    pub(crate) fn required_text(&self, key: &str) -> Option<Str> {
        match self.get(key) {
            Some(node) => node.text(),
            None => {
                let place =
                    if self.path.is_root() { String::new() } else { format!(" of {}", self.path) };
                let message = format!("the field {key}{place} is missing");
                self.error(message, Some(format!("add {key:?} here")));
                None
            }
        }
    }
}
