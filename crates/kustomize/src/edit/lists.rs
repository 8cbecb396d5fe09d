//! Lists of paths and of words.

use kiln_value::Value;

use super::{KustomizationFile, glob};
use crate::error::{Error, Result};

/// The words that `buildMetadata` knows.
pub const BUILD_METADATA: [&str; 3] =
    ["originAnnotations", "transformerAnnotations", "managedByLabel"];

/// A list of paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listed {
    /// `resources`
    Resource,
    /// `components`
    Component,
    /// `configurations`
    Configuration,
    /// `generators`
    Generator,
    /// `transformers`
    Transformer,
}

impl Listed {
    fn field(self) -> &'static str {
        match self {
            Listed::Resource => "resources",
            Listed::Component => "components",
            Listed::Configuration => "configurations",
            Listed::Generator => "generators",
            Listed::Transformer => "transformers",
        }
    }

    fn word(self) -> &'static str {
        match self {
            Listed::Resource => "resource",
            Listed::Component => "component",
            Listed::Configuration => "configuration",
            Listed::Generator => "generator",
            Listed::Transformer => "transformer",
        }
    }
}

impl KustomizationFile {
    /// Adds paths to a list; those that are there already are skipped with a note.
    pub fn add_paths(&mut self, listed: Listed, paths: &[String]) {
        for path in paths {
            if self.has(listed.field(), path) {
                let word = listed.word();
                self.notes.push(format!("{word} {path} already in kustomization file"));
            } else if *path != self.source.name() {
                self.list_mut(listed.field()).push(path.as_str().into());
            }
        }
    }

    /// Adds directories to `resources`.
    ///
    /// # Errors
    /// When one is there already.
    pub fn add_bases(&mut self, paths: &[String]) -> Result<()> {
        for path in paths {
            if self.has("resources", path) {
                return Err(Error::new(format!("base {path} already in kustomization file")));
            }
            self.list_mut("resources").push(path.as_str().into());
        }
        Ok(())
    }

    /// Removes the paths that match one of the patterns.
    ///
    /// # Errors
    /// When a pattern is malformed.
    pub fn remove_paths(&mut self, listed: Listed, patterns: &[String]) -> Result<()> {
        let field = listed.field();
        let mut gone = Vec::new();
        for pattern in patterns {
            // A malformed pattern is an error even where nothing is.
            glob::matches(pattern, "")?;
            let before = gone.len();
            for path in self.list(field) {
                if glob::matches(pattern, path.as_str().unwrap_or_default())? {
                    gone.push(path.clone());
                }
            }
            if gone.len() == before {
                let word = listed.word();
                self.notes.push(format!("no {word} in the kustomization file matches {pattern}"));
            }
        }
        if !gone.is_empty() {
            self.list_mut(field).retain(|path| !gone.contains(path));
            self.drop_if_empty(field);
        }
        Ok(())
    }

    /// Adds words to `buildMetadata`.
    ///
    /// # Errors
    /// When a word is unknown or there already.
    pub fn add_build_metadata(&mut self, options: &[String]) -> Result<()> {
        check_build_metadata(options)?;
        for option in options {
            if self.has("buildMetadata", option) {
                return Err(Error::new(format!(
                    "buildMetadata option {option} already in kustomization file"
                )));
            }
            self.list_mut("buildMetadata").push(option.as_str().into());
        }
        Ok(())
    }

    /// Replaces the words of `buildMetadata`.
    ///
    /// # Errors
    /// When a word is unknown.
    pub fn set_build_metadata(&mut self, options: &[String]) -> Result<()> {
        check_build_metadata(options)?;
        *self.list_mut("buildMetadata") =
            options.iter().map(|option| Value::from(option.as_str())).collect();
        Ok(())
    }

    /// Removes words from `buildMetadata`.
    ///
    /// # Errors
    /// When a word is unknown.
    pub fn remove_build_metadata(&mut self, options: &[String]) -> Result<()> {
        check_build_metadata(options)?;
        if self.field("buildMetadata").is_some() {
            self.list_mut("buildMetadata").retain(|word| {
                !options.iter().any(|option| word.as_str() == Some(option.as_str()))
            });
            self.drop_if_empty("buildMetadata");
        }
        Ok(())
    }

    fn has(&self, field: &str, text: &str) -> bool {
        self.list(field).iter().any(|element| element.as_str() == Some(text))
    }
}

fn check_build_metadata(options: &[String]) -> Result<()> {
    match options.iter().find(|option| !BUILD_METADATA.contains(&option.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(Error::new(format!("invalid buildMetadata option: {unknown}"))
            .hint(format!("the options are {}", BUILD_METADATA.join(", ")))),
    }
}
