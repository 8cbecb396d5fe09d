//! Labels and annotations.

use kiln_value::{Map, Value};

use super::{KustomizationFile, key_in};
use crate::error::{Error, Result};

/// Keys and values, in the order they were given.
pub type Pairs = Vec<(String, String)>;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labelled {
    /// `commonLabels`
    Label,
    /// `commonAnnotations`
    Annotation,
}

impl Labelled {
    fn field(self) -> &'static str {
        match self {
            Labelled::Label => "commonLabels",
            Labelled::Annotation => "commonAnnotations",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Labelled::Label => "label",
            Labelled::Annotation => "annotation",
        }
    }
}

/// Reads `key:value` texts; the value may be in double quotes or missing.
///
/// # Errors
/// When a key is missing.
pub fn parse_pairs(texts: &[String], which: Labelled) -> Result<Pairs> {
    let mut pairs: Pairs = Vec::new();
    for text in texts {
        let (key, value) = text.split_once(':').unwrap_or((text, ""));
        if key.is_empty() && text.contains(':') {
            let word = which.word();
            return Err(Error::new(format!(
                "invalid {word}: '{text}' (need k:v pair where v may be quoted)"
            )));
        }
        let quoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = quoted.unwrap_or(value).to_owned();
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value,
            None => pairs.push((key.to_owned(), value)),
        }
    }
    Ok(pairs)
}

impl KustomizationFile {
    /// Adds pairs to `commonLabels` or `commonAnnotations`.
    ///
    /// # Errors
    /// When a key is there already and `force` is not given.
    pub fn add_pairs(&mut self, which: Labelled, pairs: &Pairs, force: bool) -> Result<()> {
        add(self.map_mut(which.field()), which, pairs, force)
    }

    /// Adds labels that leave selectors alone: an entry of `labels`.
    ///
    /// # Errors
    /// When a key is there already and `force` is not given.
    pub fn add_plain_labels(
        &mut self,
        pairs: &Pairs,
        force: bool,
        include_templates: bool,
    ) -> Result<()> {
        let is_on = |entry: &Value, flag: &str| {
            entry.get(&key_in(entry, flag)).and_then(Value::as_bool).unwrap_or(false)
        };
        let labels = self.list_mut("labels");
        let found = labels.iter().position(|entry| {
            !is_on(entry, "includeSelectors")
                && is_on(entry, "includeTemplates") == include_templates
        });
        let at = found.unwrap_or_else(|| {
            let mut entry = Map::new();
            if include_templates {
                entry.insert("includeTemplates", true);
            }
            entry.insert("pairs", Value::map());
            labels.push(Value::Map(entry));
            labels.len() - 1
        });
        let key = key_in(&labels[at], "pairs");
        let Value::Map(entry) = &mut labels[at] else {
            return Err(Error::new("an entry of labels is not a map"));
        };
        match entry.get_or_insert_with(&key, Value::map) {
            Value::Map(map) => add(map, Labelled::Label, pairs, force),
            other => {
                *other = Value::map();
                let map = other.as_map_mut().expect("it was made a map");
                add(map, Labelled::Label, pairs, force)
            }
        }
    }

    /// Removes keys from `commonLabels` or `commonAnnotations`.
    ///
    /// # Errors
    /// When one is not there, unless that does not matter.
    pub fn remove_pairs(&mut self, which: Labelled, keys: &[String], ignore: bool) -> Result<()> {
        let (field, word) = (which.field(), which.word());
        if let Some(empty) = keys.iter().find(|key| key.is_empty()) {
            return Err(Error::new(format!("invalid {word}: '{empty}' (name is empty)")));
        }
        if self.field(field).is_none() {
            if ignore {
                return Ok(());
            }
            return Err(Error::new(format!("{field} is not defined in kustomization file"))
                .maybe_hint(self.elsewhere(which, &keys[0])));
        }
        for key in keys {
            if self.map_mut(field).remove(key).is_none() && !ignore {
                return Err(Error::new(format!(
                    "{word} {key} is not defined in kustomization file"
                ))
                .maybe_hint(self.elsewhere(which, key)));
            }
        }
        self.drop_if_empty(field);
        Ok(())
    }

    fn elsewhere(&self, which: Labelled, key: &str) -> Option<String> {
        let in_labels = self.list("labels").iter().any(|entry| {
            entry.get(&key_in(entry, "pairs")).is_some_and(|pairs| pairs.get(key).is_some())
        });
        (which == Labelled::Label && in_labels)
            .then(|| format!("{key} stands under labels, which this command leaves alone"))
    }
}

fn add(map: &mut Map, which: Labelled, pairs: &Pairs, force: bool) -> Result<()> {
    for (key, value) in pairs {
        if map.contains_key(key) && !force {
            let word = which.word();
            return Err(Error::new(format!(
                "{word} {key} already in kustomization file. Use --force to override."
            )));
        }
        map.insert(key.as_str(), value.as_str());
    }
    Ok(())
}
