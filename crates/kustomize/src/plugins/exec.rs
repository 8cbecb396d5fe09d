//! Programs that get their configuration in a file: `home/group/version/kind/Kind FILE ARGS…`.

use kiln_value::Value;

use super::exchange;
use crate::decode::record;
use crate::error::{Error, Result};
use crate::host::{Argument, Command};
use crate::resource::Resource;
use crate::resources::Resources;
use crate::session::Session;
use crate::target::Target;

record! {
    /// Arguments for programs that do not want to read YAML.
    Arguments = "argsConfig" {
        one_liner: String = "argsOneLiner",
        from_file: String = "argsFromFile",
    }
}

/// A program with its configuration.
pub(crate) struct Exec {
    kind: String,
    program: String,
    arguments: Vec<String>,
    config: String,
    directory: String,
}

/// Variables longer than this are left out: no system takes them.
const LONGEST_VARIABLE: usize = 131_071;

impl Exec {
    /// Finds the program of a configuration object.
    ///
    /// # Errors
    /// When it is not there or may not be run; the message names where it was looked for.
    pub(super) fn configured(
        config: &Resource,
        target: &Target,
        session: &Session<'_>,
    ) -> Result<Self> {
        let id = config.original_id();
        let kind = id.gvk.kind.to_string();
        let Some(home) = session.programs.plugin_home() else {
            return Err(Error::new(format!(
                "unable to find plugin root - tried: KUSTOMIZE_PLUGIN_HOME, XDG_CONFIG_HOME, HOME; plugin {kind} cannot be loaded"
            )));
        };
        let relative = format!("{}/{}/{}", id.gvk.group, id.gvk.version, kind.to_lowercase());
        let program = crate::paths::join(&crate::paths::join(&home, &relative), &kind);
        match session.files.system().is_executable(&program) {
            Some(true) => {}
            Some(false) => return Err(Error::new(format!("unexecutable plugin at: {program}"))),
            None => {
                return Err(Error::new(format!(
                    "unable to load plugin {kind}: no executable at {program}"
                )));
            }
        }
        let site = target.site(session);
        let wanted: Arguments = crate::decode::lenient(config.object())
            .map_err(|error| site.decode_error(error, config.document.as_deref()))?;
        let mut arguments = split_words(&wanted.one_liner)
            .map_err(|error| error.context("failed to parse argsOneLiner"))?;
        if !wanted.from_file.is_empty() {
            let contents = site.load(&wanted.from_file)?;
            let text = String::from_utf8_lossy(&contents).into_owned();
            let lines = text.split('\n').map(|line| line.trim_start_matches(' '));
            arguments.extend(lines.filter(|line| !line.is_empty()).map(str::to_owned));
        }
        Ok(Exec {
            kind,
            program,
            arguments,
            config: kiln_yaml::emit(config.object()),
            directory: target.root.path().to_owned(),
        })
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    fn run(&self, input: Vec<u8>, session: &Session<'_>) -> Result<Vec<u8>> {
        let mut environment = Vec::new();
        for (name, value) in [
            ("KUSTOMIZE_PLUGIN_CONFIG_STRING", &self.config),
            ("KUSTOMIZE_PLUGIN_CONFIG_ROOT", &self.directory),
        ] {
            if name.len() + 1 + value.len() <= LONGEST_VARIABLE {
                environment.push((name.to_owned(), value.clone()));
            }
        }
        let finished = session.programs.run(&Command {
            program: self.program.clone(),
            arguments: std::iter::once(Argument::File)
                .chain(self.arguments.iter().map(Argument::from))
                .collect(),
            environment,
            directory: self.directory.clone(),
            input,
            file: Some(self.config.clone().into_bytes()),
        })?;
        if finished.code == 0 {
            return Ok(finished.output);
        }
        Err(Error::new(format!(
            "failure in plugin configured via {}; exit status {}",
            finished.file, finished.code
        ))
        .context(finished.errors))
    }

    pub(super) fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let output = self.run(Vec::new(), session)?;
        exchange::generated(&output, &self.program, session)
    }

    pub(super) fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let objects: Vec<Value> = exchange::outgoing(resources);
        let input = kiln_yaml::emit_documents(&objects).into_bytes();
        let output = self.run(input, session)?;
        exchange::transformed(&output, &self.program, resources, session)
    }
}

/// Splits words as a shell does: quotes, and backslashes outside single quotes.
fn split_words(text: &str) -> Result<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '#' if word.is_none() => {
                letters.by_ref().find(|c| *c == '\n');
            }
            '\'' => {
                let word = word.get_or_insert_with(String::new);
                loop {
                    match letters.next() {
                        Some('\'') => break,
                        Some(letter) => word.push(letter),
                        None => return Err(Error::new("a quote is not closed")),
                    }
                }
            }
            '"' => {
                let word = word.get_or_insert_with(String::new);
                loop {
                    match letters.next() {
                        Some('"') => break,
                        Some('\\') => match letters.next() {
                            Some(letter @ ('"' | '\\' | '$' | '`')) => word.push(letter),
                            Some(letter) => word.extend(['\\', letter]),
                            None => return Err(Error::new("a quote is not closed")),
                        },
                        Some(letter) => word.push(letter),
                        None => return Err(Error::new("a quote is not closed")),
                    }
                }
            }
            '\\' => match letters.next() {
                Some(letter) => word.get_or_insert_with(String::new).push(letter),
                None => return Err(Error::new("a backslash ends the text")),
            },
            letter => word.get_or_insert_with(String::new).push(letter),
        }
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_split_as_a_shell_does() {
        let words = split_words(r#"a  'b c' "d \"e" f\ g ''"#).unwrap();
        assert_eq!(words, ["a", "b c", "d \"e", "f g", ""]);
        assert!(split_words("'a").is_err());
    }
}
