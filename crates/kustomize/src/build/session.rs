//! One build: its options, its doors to the outside, and what it has to say besides the result.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_value::{Segment, Value};
use kiln_yaml::{Document, ReadOptions};

use crate::BuildOptions;
use crate::build::budget::Budget;
use crate::build::explain::Touch;
use crate::build::stats::Clock;
use crate::error::{Error, Result};
use crate::fields::lazy_location::{LazyLocation, LocatedDocument};
use crate::host::Programs;
use crate::load::decode::DecodeError;
use crate::load::loader::{Files, Root};
use crate::load::paths;
use crate::model::id::ResId;
use crate::model::objects::Purpose;
use crate::model::output::yaml_error;
use crate::model::resource::Resource;
use crate::model::resources::Resources;
use crate::model::scope::Scopes;
use crate::model::selector::Selection;

/// Everything that lives as long as one build.
pub(crate) struct Session<'h> {
    pub(crate) options: &'h BuildOptions,
    pub(crate) files: Files<'h>,
    pub(crate) programs: &'h dyn Programs,
    /// Where `lookup` in charts finds objects.
    pub(crate) lookup: &'h dyn kiln_chart::Lookup,
    pub(crate) scopes: Scopes,
    pub(crate) clock: Clock<'h>,
    pub(crate) budget: Budget,
    warnings: RefCell<Vec<Diagnostic>>,
    touches: RefCell<Vec<Touch>>,
    /// The virtual resources of the kustomization whose transformers run.
    virtual_resources: RefCell<Resources>,
    told_unconfined: Cell<bool>,
    reader: RefCell<kiln_yaml::Reader>,
    documents: Cell<usize>,
}

impl<'h> Session<'h> {
    pub(crate) fn new(
        options: &'h BuildOptions,
        files: Files<'h>,
        programs: &'h dyn Programs,
        lookup: &'h dyn kiln_chart::Lookup,
        clock: Clock<'h>,
    ) -> Self {
        let reading = files.limited(ReadOptions::kustomize_resource());
        Session {
            options,
            files,
            programs,
            lookup,
            scopes: Scopes::new(options.behavior.admission_policies_have_no_namespace),
            clock,
            budget: Budget::default(),
            warnings: RefCell::default(),
            touches: RefCell::default(),
            virtual_resources: RefCell::default(),
            told_unconfined: Cell::new(false),
            reader: RefCell::new(kiln_yaml::Reader::new(reading)),
            documents: Cell::new(0),
        }
    }

    pub(crate) fn warn(&self, warning: Diagnostic) {
        self.warnings.borrow_mut().push(warning);
    }

    pub(crate) fn take_warnings(&self) -> Vec<Diagnostic> {
        std::mem::take(&mut self.warnings.borrow_mut())
    }

    /// Says once from what this system cannot keep plugins.
    pub(crate) fn warn_if_unconfined(&self) {
        if !self.told_unconfined.replace(true) {
            for what in self.programs.not_held() {
                self.warn(Diagnostic::warning(what));
            }
        }
    }

    /// Remembers what patches may have meant besides the objects of the build.
    pub(crate) fn remember_virtual(&self, resources: Resources) {
        self.virtual_resources.replace(resources);
    }

    /// Whether this is the id of a virtual resource.
    pub(crate) fn is_virtual(&self, id: &ResId) -> bool {
        !self.virtual_resources.borrow_mut().by_any_id(id).is_empty()
    }

    /// Whether this selects a virtual resource.
    pub(crate) fn selects_virtual(&self, selection: &Selection) -> bool {
        !selection.select(&mut self.virtual_resources.borrow_mut()).is_empty()
    }

    pub(crate) fn touch(&self, touch: Touch) {
        self.touches.borrow_mut().push(touch);
    }

    pub(crate) fn take_touches(&self) -> Vec<Touch> {
        std::mem::take(&mut self.touches.borrow_mut())
    }

    /// How many documents were read.
    pub(crate) fn documents_read(&self) -> usize {
        self.documents.get()
    }

    /// A file's name as the user knows it: relative to where the build was started.
    pub(crate) fn shown(&self, path: &str) -> String {
        let base = &self.options.working_directory;
        let below = (!base.is_empty() && base != "/")
            .then(|| path.strip_prefix(base.as_str())?.strip_prefix('/'))
            .flatten();
        below.unwrap_or(path).to_owned()
    }

    /// The objects in a text: documents and the items of lists.
    ///
    /// # Errors
    /// When it is not YAML, or a document is not an object.
    pub(crate) fn read_objects(
        &self,
        name: &str,
        bytes: &[u8],
        purpose: Purpose,
    ) -> Result<Vec<Resource>> {
        refuse_bad_separators(bytes)?;
        let documents = self.read_documents(name, bytes)?;
        refuse_directives(bytes)?;
        crate::model::objects::from_documents(documents, purpose, &self.scopes, |value| {
            crate::plugins::virtual_resource(value, purpose, self)
        })
    }

    /// The documents of a text, whatever they are.
    ///
    /// # Errors
    /// When it is not YAML.
    pub(crate) fn read_documents(&self, name: &str, bytes: &[u8]) -> Result<Vec<Document>> {
        let read = self.reader.borrow_mut().read_bytes(name, bytes);
        let documents = read.or_else(|diagnostic| {
            self.read_non_finite(name, bytes).ok_or_else(|| malformed(&diagnostic))
        })?;
        self.documents.set(self.documents.get() + documents.len());
        Ok(documents)
    }

    /// kustomize: infinity and NaN are fine in annotations, where they become the text that was written.
    fn read_non_finite(&self, name: &str, bytes: &[u8]) -> Option<Vec<Document>> {
        let options = ReadOptions {
            non_finite: true,
            ..self.files.limited(ReadOptions::kustomize_resource())
        };
        let documents = kiln_yaml::read_bytes(name, bytes, options).ok()?;
        let fit = documents.iter().all(|document| is_finite(document.value(), &mut Vec::new()));
        fit.then_some(documents)
    }
}

/// Whether infinity and NaN stand nowhere but in annotations.
fn is_finite(value: &Value, path: &mut Vec<String>) -> bool {
    match value {
        Value::Number(number) => {
            number.as_f64().is_finite()
                || path.len() == 3 && path[0] == "metadata" && path[1] == "annotations"
        }
        Value::Map(map) => map.iter().all(|(key, value)| {
            path.push(key.to_string());
            let finite = is_finite(value, path);
            path.pop();
            finite
        }),
        Value::List(list) => list.iter().all(|value| {
            path.push(String::new());
            let finite = is_finite(value, path);
            path.pop();
            finite
        }),
        _ => true,
    }
}

/// `---` must stand alone on its line, save for a comment.
fn refuse_bad_separators(bytes: &[u8]) -> Result<()> {
    let mut rest = bytes;
    while let Some(at) = find(rest, b"\n---") {
        rest = &rest[at + 4..];
        let Some(end) = rest.iter().position(|b| *b == b'\n') else { break };
        let after = rest[..end].trim_ascii();
        if !after.is_empty() && after[0] != b'#' {
            return Err(Error::new(format!(
                "invalid document separator: ---{}",
                String::from_utf8_lossy(rest[..end].trim_ascii_end())
            ))
            .hint("put the document on the line below the separator"));
        }
    }
    Ok(())
}

/// kustomize: text before the first `---` is a document of its own, and a directive alone is none.
fn refuse_directives(bytes: &[u8]) -> Result<()> {
    let lines = bytes.split(|b| *b == b'\n').map(<[u8]>::trim_ascii_end);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with(b"#"));
    if lines.next().is_some_and(|line| line.starts_with(b"%")) {
        return Err(Error::malformed(
            "MalformedYAMLError: yaml: line 1: did not find expected <document start>",
        )
        .hint("take the directive (%YAML or %TAG) out of the file"));
    }
    Ok(())
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

pub(crate) fn malformed(diagnostic: &Diagnostic) -> Error {
    let error = yaml_error(diagnostic);
    let place = error.place().cloned();
    Error::malformed(format!("MalformedYAMLError: {error}"))
        .at(place)
        .maybe_hint(diagnostic.hint.clone())
}

/// A kustomization file at work: where its paths lead and how its errors are placed.
#[derive(Clone, Copy)]
pub(crate) struct KustomizationSite<'s, 'h> {
    pub(crate) session: &'s Session<'h>,
    pub(crate) root: &'s Root,
    /// The kustomization file, if the step comes from one.
    pub(crate) document: Option<&'s Rc<LocatedDocument>>,
}

impl KustomizationSite<'_, '_> {
    pub(crate) fn load(&self, path: &str) -> Result<Arc<[u8]>> {
        self.session.files.load(self.root, path)
    }

    /// The name to show for a file that the kustomization names.
    pub(crate) fn shown(&self, path: &str) -> String {
        if path.contains("://") || path.starts_with('/') {
            return path.to_owned();
        }
        self.session.shown(&paths::join(self.root.path(), path))
    }

    /// The objects in a file.
    pub(crate) fn load_objects(&self, path: &str, purpose: Purpose) -> Result<Vec<Resource>> {
        let contents = self.load(path)?;
        self.session.read_objects(&self.shown(path), &contents, purpose).map_err(|error| {
            if error.is_malformed() {
                error.reword(|message| format!("{message} in File: {path}"))
            } else {
                error
            }
        })
    }

    /// The first document of a configuration file.
    pub(crate) fn load_config(&self, path: &str) -> Result<(Value, Option<Arc<Document>>)> {
        let contents = self.load(path)?;
        let options = self.session.files.limited(ReadOptions::kustomization());
        let documents = kiln_yaml::read_bytes(&self.shown(path), &contents, options)
            .map_err(|diagnostic| yaml_error(&diagnostic))?;
        let document = documents.into_iter().next().map(Arc::new);
        Ok((document.as_ref().map_or(Value::Null, |d| d.value().clone()), document))
    }

    /// An error in a configuration, with its place.
    pub(crate) fn decode_error(&self, error: DecodeError, document: Option<&Document>) -> Error {
        let place = document.map(|document| {
            if error.unknown_field {
                document.locate_key(&error.path)
            } else {
                document.locate(&error.path)
            }
        });
        Error::new(error.message).at(place).maybe_hint(error.hint)
    }

    /// A field of the kustomization file.
    pub(crate) fn at<S: Into<Segment>>(&self, path: impl IntoIterator<Item = S>) -> LazyLocation {
        LazyLocation::new(self.document, path)
    }
}
