//! Entries of `configMapGenerator` and `secretGenerator`.

use kiln_value::{Map, Value};

use super::{KustomizationFile, key_in};
use crate::error::{Error, Result};
use crate::load::fs::{FileSystem, Layered};
use crate::load::paths;
use crate::{Build, BuildOptions};

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Generator {
    /// `configMapGenerator`
    ConfigMap,
    /// `secretGenerator`
    Secret,
}

impl Generator {
    fn field(self) -> &'static str {
        match self {
            Generator::ConfigMap => "configMapGenerator",
            Generator::Secret => "secretGenerator",
        }
    }

    /// The word for it on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Generator::ConfigMap => "configmap",
            Generator::Secret => "secret",
        }
    }

    fn kind(self) -> &'static str {
        match self {
            Generator::ConfigMap => "ConfigMap",
            Generator::Secret => "Secret",
        }
    }
}

/// What is added to an entry.
#[derive(Clone, Debug, Default)]
pub struct Generated {
    /// The name of the object.
    pub name: String,
    /// Its namespace; empty is the same as `default`.
    pub namespace: String,
    /// `key=value` texts.
    pub literals: Vec<String>,
    /// Files, maybe with the key before them: `key=path`.
    pub files: Vec<String>,
    /// A file with `key=value` lines.
    pub env_file: String,
    /// create, merge or replace.
    pub behavior: String,
    pub secret_type: String,
    /// Whether the name gets no hash.
    pub disable_name_suffix_hash: bool,
}

impl Generated {
    fn check(&self) -> Result<()> {
        let none = self.literals.is_empty() && self.files.is_empty();
        if self.env_file.is_empty() && none {
            return Err(Error::new(
                "at least from-env-file, or from-file or from-literal must be set",
            ));
        }
        if !self.env_file.is_empty() && !none {
            return Err(Error::new(
                "from-env-file cannot be combined with from-file or from-literal",
            ));
        }
        if !matches!(self.behavior.as_str(), "" | "create" | "merge" | "replace") {
            return Err(Error::new(
                "invalid behavior: must be one of \"create\", \"merge\", or \"replace\"",
            ));
        }
        Ok(())
    }
}

impl KustomizationFile {
    /// Adds sources to the entry with this name and namespace, which is made if there is none. Returns the entry.
    ///
    /// # Errors
    /// When there is nothing to add, or things that do not go together.
    pub fn add_generated(&mut self, which: Generator, new: &Generated) -> Result<Value> {
        new.check()?;
        let at = self.generated(which, &new.name, &new.namespace).unwrap_or_else(|| {
            let mut entry = Map::new();
            entry.insert("name", new.name.as_str());
            if !new.namespace.is_empty() {
                entry.insert("namespace", new.namespace.as_str());
            }
            if which == Generator::Secret && !new.secret_type.is_empty() {
                entry.insert("type", new.secret_type.as_str());
            }
            let list = self.list_mut(which.field());
            list.push(Value::Map(entry));
            list.len() - 1
        });
        let entry = &mut self.list_mut(which.field())[at];
        extend(entry, "literals", &new.literals);
        extend(entry, "files", &new.files);
        extend(
            entry,
            "envs",
            if new.env_file.is_empty() { &[] } else { std::slice::from_ref(&new.env_file) },
        );
        if new.disable_name_suffix_hash {
            let key = key_in(entry, "options");
            if let Some(entry) = entry.as_map_mut() {
                let options = entry.get_or_insert_with(&key, Value::map);
                if options.as_map().is_none() {
                    *options = Value::map();
                }
                let key = key_in(options, "disableNameSuffixHash");
                if let Some(options) = options.as_map_mut() {
                    options.insert(key, true);
                }
            }
        }
        if !new.behavior.is_empty() {
            set(entry, "behavior", &new.behavior);
        }
        Ok(entry.clone())
    }

    /// Changes literals and the namespace of an entry. Returns the entry.
    ///
    /// # Errors
    /// When there is no such entry, or it has no such key.
    pub fn set_generated(
        &mut self,
        which: Generator,
        name: &str,
        namespace: &str,
        literals: &[String],
        new_namespace: &str,
    ) -> Result<Value> {
        if literals.is_empty() && new_namespace.is_empty() {
            return Err(Error::new(
                "at least one of [--from-literal, --new-namespace] must be specified",
            ));
        }
        let Some(at) = self.generated(which, name, namespace) else {
            return Err(Error::new(format!("unable to find {} with name {name:?}", which.kind()))
                .hint(format!("add it with: edit add {} {name} --from-literal=…", which.word())));
        };
        let entry = &mut self.list_mut(which.field())[at];
        for literal in literals {
            set_literal(entry, literal)?;
        }
        if !new_namespace.is_empty() {
            set(entry, "namespace", new_namespace);
        }
        Ok(entry.clone())
    }

    /// Removes entries by name; names that are not there get a note.
    ///
    /// # Errors
    /// When none of them is there.
    pub fn remove_generated(
        &mut self,
        which: Generator,
        names: &[String],
        namespace: &str,
    ) -> Result<()> {
        let word = which.word();
        let mut found = 0;
        for name in names {
            let before = found;
            while let Some(at) = self.generated(which, name, namespace) {
                self.list_mut(which.field()).remove(at);
                found += 1;
            }
            if found == before {
                self.notes.push(format!("{word} {name} doesn't exist in kustomization file"));
            }
        }
        if found == 0 {
            return Err(Error::new(format!(
                "no specified {word}(s) were found in the kustomization.yaml file"
            )));
        }
        self.drop_if_empty(which.field());
        Ok(())
    }

    fn generated(&self, which: Generator, name: &str, namespace: &str) -> Option<usize> {
        let or_default = |namespace: &str| match namespace {
            "" => "default".to_owned(),
            namespace => namespace.to_owned(),
        };
        let namespace = or_default(namespace);
        self.list(which.field()).iter().position(|entry| {
            text(entry, "name") == name && or_default(text(entry, "namespace")) == namespace
        })
    }

    /// The options for all generators, to try one of them.
    pub fn generator_options(&self) -> Option<&Value> {
        self.field("generatorOptions")
    }
}

fn text<'v>(entry: &'v Value, field: &str) -> &'v str {
    entry.get(&key_in(entry, field)).and_then(Value::as_str).unwrap_or_default()
}

fn set(entry: &mut Value, field: &str, text: &str) {
    let key = key_in(entry, field);
    if let Some(entry) = entry.as_map_mut() {
        entry.insert(key, text);
    }
}

fn extend(entry: &mut Value, field: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    let key = key_in(entry, field);
    let Some(entry) = entry.as_map_mut() else { return };
    let list = entry.get_or_insert_with(&key, Value::list);
    if list.as_list().is_none() {
        *list = Value::list();
    }
    if let Some(list) = list.as_list_mut() {
        list.extend(texts.iter().map(|text| Value::from(text.as_str())));
    }
}

fn set_literal(entry: &mut Value, literal: &str) -> Result<()> {
    let bad = || {
        Error::new("invalid format: literal values must be specified in the key=value format")
            .hint(format!("{literal:?} must have one equals sign"))
    };
    let split = |text: &str| {
        let (key, value) = text.split_once('=')?;
        (!value.contains('=')).then(|| (key.to_owned(), value.to_owned()))
    };
    let (key, _) = split(literal).ok_or_else(bad)?;
    let literals = key_in(entry, "literals");
    let list = entry.as_map_mut().and_then(|entry| entry.get_mut(&literals));
    let list = list.and_then(Value::as_list_mut);
    for old in list.into_iter().flatten() {
        let (old_key, _) = old.as_str().and_then(split).ok_or_else(bad)?;
        if old_key == key {
            *old = Value::from(literal);
            return Ok(());
        }
    }
    Err(Error::new(format!("key '{key}' not found in resource"))
        .hint("this command changes values that are there; edit add adds new ones"))
}

/// What is wrong with an entry: tries to make its object, with files relative to the directory.
///
/// # Errors
/// When the object cannot be made.
pub fn generator_problem(
    files: &dyn FileSystem,
    directory: &str,
    which: Generator,
    entry: &Value,
    options: Option<&Value>,
) -> Result<()> {
    let mut entry = entry.clone();
    let behavior = key_in(&entry, "behavior");
    if let Some(entry) = entry.as_map_mut() {
        // There is nothing here to merge with.
        entry.remove(&behavior);
    }
    let mut trial = Map::new();
    trial.insert(which.field(), Value::from(vec![entry]));
    if let Some(options) = options {
        trial.insert("generatorOptions", options.clone());
    }
    let at = |name: &str| paths::join(directory, name);
    let [usual, others @ ..] = super::FILE_NAMES;
    let trial = Layered::over(files).with(&at(usual), kiln_yaml::emit(&Value::Map(trial)));
    let trial = others.into_iter().fold(trial, |trial, name| trial.without(&at(name)));
    let options =
        BuildOptions { working_directory: directory.to_owned(), ..BuildOptions::default() };
    match Build::new(&trial, &options).run(directory) {
        Ok(_) => Ok(()),
        // The place is in a text that is generated.
        Err(failed) => Err(Error::new(failed.error.message())),
    }
}
