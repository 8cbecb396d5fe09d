//! Changes to a kustomization file, as `kustomize edit` makes them.
//!
//! A change is a change of values; [`kiln_yaml::rewrite`] brings it into the text at the places that
//! differ, so comments, quotes and order stay. Like kustomize, every change that alters something also
//! fills in kind and apiVersion and moves fields that have a new name.
//!
//! | module | holds |
//! |---|---|
//! | `lists` | resources, components, generators, transformers, buildMetadata |
//! | `pairs` | labels and annotations |
//! | `entries` | images, replicas, patches |
//! | `generated` | ConfigMaps and Secrets |
//! | `fix` | old fields to new ones |
//! | `vars` | vars to replacements |
//! | `glob` | patterns of paths |
//!
//! ```
//! use kiln_kustomize::edit::{KustomizationFile, Listed};
//! let text = "kind: Kustomization\napiVersion: kustomize.config.k8s.io/v1beta1\nresources:\n- a.yaml # why\n";
//! let mut file = KustomizationFile::read("kustomization.yaml", text.as_bytes()).unwrap();
//! file.add_paths(Listed::Resource, &["b.yaml".to_owned()]);
//! assert_eq!(file.text().unwrap(), format!("{text}- b.yaml\n"));
//! ```

mod entries;
mod fix;
mod generated;
pub mod glob;
mod lists;
mod pairs;
mod vars;

use std::sync::Arc;

use kiln_diagnostic::{Diagnostic, Source};
use kiln_value::{Key, Map, Value};
use kiln_yaml::{Document, ReadOptions};

pub use entries::{Image, PatchEntry, Replicas};
pub use fix::Fixed;
pub use generated::{Generated, Generator, generator_problem};
pub use lists::{BUILD_METADATA, Listed};
pub use pairs::{Labelled, Pairs, parse_pairs};
pub use vars::{Converted, convert_vars};

use crate::error::{Error, Result};
use crate::load::decode;
use crate::load::kustomization::{self, Kustomization};
use crate::model::output::yaml_error;

/// The names that a kustomization file can have, the usual one first.
pub const FILE_NAMES: [&str; 3] = crate::load::target::FILE_NAMES;

/// A kustomization file, as it was and as it shall be.
#[derive(Clone, Debug)]
pub struct KustomizationFile {
    source: Arc<Source>,
    was: Value,
    /// With kind, apiVersion and new names, but otherwise as it was.
    settled: Value,
    value: Value,
    notes: Vec<String>,
}

impl KustomizationFile {
    /// Reads a file.
    ///
    /// # Errors
    /// When it is not a kustomization, with the place of what is wrong.
    pub fn read(name: &str, bytes: &[u8]) -> Result<Self> {
        let documents = kiln_yaml::read_bytes(name, bytes, ReadOptions::kustomization())
            .map_err(|diagnostic| yaml_error(&diagnostic).context("invalid Kustomization"))?;
        let (source, was) = match documents.into_iter().next() {
            Some(document) => {
                check(&document)?;
                (Arc::clone(document.source()), document.into_value())
            }
            // An empty file, or one with nothing but comments.
            None => {
                let text = String::from_utf8_lossy(bytes).into_owned();
                (Arc::new(Source::new(name, text)), Value::map())
            }
        };
        let mut settled = if was.is_null() { Value::map() } else { was.clone() };
        fix::settle(&mut settled);
        Ok(KustomizationFile { source, was, value: settled.clone(), settled, notes: Vec::new() })
    }

    /// The text of the file with the changes. The text as it was, if nothing was changed.
    ///
    /// # Errors
    /// When the change cannot be made without damage to the file.
    pub fn text(&self) -> std::result::Result<String, Diagnostic> {
        if !self.is_changed() {
            return Ok(self.source.text().to_owned());
        }
        if self.was.is_null() && !self.source.text().is_empty() {
            // `null` or `---` says nothing that could be kept.
            return Ok(kiln_yaml::emit(&self.value));
        }
        kiln_yaml::rewrite(&self.source, ReadOptions::kustomization(), &self.value)
    }

    /// Whether a change changed anything.
    pub fn is_changed(&self) -> bool {
        self.value != self.settled
    }

    /// What was skipped, and why.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Sets a field that is one text: `namespace`, `namePrefix`, `nameSuffix`. Empty removes it.
    pub fn set_text(&mut self, field: &str, text: &str) {
        if text.is_empty() {
            self.remove_field(field);
        } else {
            let key = self.key(field);
            self.map().insert(key, text);
        }
    }

    /// The fields as types.
    fn decoded(&self) -> Result<Kustomization> {
        let mut decoded: Kustomization = decode::strict(&self.value)
            .map_err(|error| Error::new(error.message).context("invalid Kustomization"))?;
        decoded.fix();
        Ok(decoded)
    }

    fn map(&mut self) -> &mut Map {
        if self.value.as_map().is_none() {
            self.value = Value::map();
        }
        match &mut self.value {
            Value::Map(map) => map,
            // It was made one just now.
            _ => unreachable!("a kustomization is a map"),
        }
    }

    /// The name of a field as the file has it: Go's JSON knows fields in any case.
    fn key(&self, field: &str) -> Key {
        key_in(&self.value, field)
    }

    fn field(&self, field: &str) -> Option<&Value> {
        self.value.get(&self.key(field)).filter(|value| !value.is_null())
    }

    fn remove_field(&mut self, field: &str) {
        let key = self.key(field);
        self.map().remove(&key);
    }

    fn list(&self, field: &str) -> &[Value] {
        self.field(field).and_then(Value::as_list).map_or(&[], |list| list)
    }

    /// The list of a field, made if there is none.
    fn list_mut(&mut self, field: &str) -> &mut Vec<Value> {
        let key = self.key(field);
        let value = self.map().get_or_insert_with(&key, Value::list);
        if value.as_list().is_none() {
            *value = Value::list();
        }
        value.as_list_mut().expect("it was made a list")
    }

    /// The map of a field, made if there is none.
    fn map_mut(&mut self, field: &str) -> &mut Map {
        let key = self.key(field);
        let value = self.map().get_or_insert_with(&key, Value::map);
        if value.as_map().is_none() {
            *value = Value::map();
        }
        value.as_map_mut().expect("it was made a map")
    }

    /// Empty fields go, as kustomize writes none.
    fn drop_if_empty(&mut self, field: &str) {
        let is_empty = match self.field(field) {
            Some(Value::List(list)) => list.is_empty(),
            Some(Value::Map(map)) => map.is_empty(),
            _ => false,
        };
        if is_empty {
            self.remove_field(field);
        }
    }
}

pub(crate) fn key_in(value: &Value, field: &str) -> Key {
    let map = value.as_map();
    map.filter(|map| !map.contains_key(field))
        .and_then(|map| map.keys().find(|key| key.eq_ignore_ascii_case(field)))
        .cloned()
        .unwrap_or_else(|| Key::new(field))
}

fn check(document: &Document) -> Result<()> {
    let decoded = decode::strict::<Kustomization>(document.value());
    decoded.map(drop).map_err(|error| {
        let place = if error.unknown_field {
            document.locate_key(&error.path)
        } else {
            document.locate(&error.path)
        };
        Error::new(error.message)
            .at(Some(place))
            .maybe_hint(error.hint)
            .context("invalid Kustomization")
    })
}

/// The text of a new kustomization file.
pub fn create(fields: &Create) -> String {
    let mut map = Map::new();
    map.insert("apiVersion", kustomization::KUSTOMIZATION_VERSION);
    map.insert("kind", kustomization::KUSTOMIZATION);
    let mut text = kiln_yaml::emit(&Value::Map(map));
    let list = |list: &[String]| {
        Value::from(list.iter().map(|t| Value::from(t.as_str())).collect::<Vec<_>>())
    };
    let pairs =
        |pairs: &Pairs| Value::Map(pairs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect());
    let fields = [
        ("resources", list(&fields.resources)),
        ("namePrefix", Value::from(fields.name_prefix.as_str())),
        ("nameSuffix", Value::from(fields.name_suffix.as_str())),
        ("namespace", Value::from(fields.namespace.as_str())),
        ("commonLabels", pairs(&fields.labels)),
        ("commonAnnotations", pairs(&fields.annotations)),
    ];
    for (field, value) in fields {
        let is_empty = match &value {
            Value::String(text) => text.is_empty(),
            Value::List(list) => list.is_empty(),
            Value::Map(map) => map.is_empty(),
            _ => false,
        };
        if !is_empty {
            text.push_str(&kiln_yaml::emit(&Value::Map([(field, value)].into_iter().collect())));
        }
    }
    text
}

/// What a new kustomization file shall say.
#[derive(Clone, Debug, Default)]
pub struct Create {
    /// Files and directories.
    pub resources: Vec<String>,
    /// What goes before all names.
    pub name_prefix: String,
    /// What goes after all names.
    pub name_suffix: String,
    /// The namespace of everything.
    pub namespace: String,
    /// Labels of everything.
    pub labels: Pairs,
    /// Annotations of everything.
    pub annotations: Pairs,
}
