//! Programs that get their configuration in a file: `home/group/version/kind/Kind FILE ARGS…`.

use kiln_value::Value;

use super::group::{self, Listed, is_name};
use super::{exchange, running};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::{Argument, Command, Finished, Trust};
use crate::load::decode::record;
use crate::load::target::KustomizationTarget;
use crate::model::resource::Resource;
use crate::model::resources::Resources;

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

/// Where below a directory for such programs the one of a configuration object lies, if it can lie there.
fn place(config: &Resource, home: &str) -> Option<String> {
    let gvk = &config.original_id().gvk;
    let kind = &gvk.kind;
    // A kind like `../x` leads elsewhere.
    if ![gvk.group.as_str(), &gvk.version, kind].into_iter().all(|p| p.is_empty() || is_name(p)) {
        return None;
    }
    let relative = format!("{}/{}/{}", gvk.group, gvk.version, kind.to_lowercase());
    Some(crate::load::paths::join(&crate::load::paths::join(home, &relative), kind))
}

/// The program of a configuration object, if it is there.
pub(super) fn find(config: &Resource, session: &Session<'_>) -> Option<String> {
    let place = place(config, &session.programs.plugin_home()?)?;
    session.files.system().is_executable(&place).map(|_| place)
}

/// Why there is no plugin for a configuration object, with all places that were looked at.
fn missing(config: &Resource, listed: Listed, session: &Session<'_>) -> Error {
    let id = config.original_id();
    let home = session.programs.plugin_home();
    let homes = session.programs.absent_plugin_homes().into_iter().chain(home.clone());
    let mut places: Vec<String> = homes.filter_map(|home| place(config, &home)).collect();
    places.extend(group::places(&id.gvk.group, listed, session));
    let about = format!("unable to load plugin {} ({id})", id.gvk.kind);
    let message = match (places.is_empty(), home) {
        (false, _) => format!("{about}: no executable at {}", places.join(", nor at ")),
        (true, Some(_)) => format!("{about}: {} names no file", id.gvk),
        // kustomize: the directory is the first of these that exists.
        (true, None) => format!(
            "unable to find plugin root - tried: KUSTOMIZE_PLUGIN_HOME, XDG_CONFIG_HOME, HOME; {about}"
        ),
    };
    Error::new(message)
        .hint("install the plugin at one of these places, or annotate the object as a function")
}

/// Variables longer than this are left out: no system takes longer ones, with a sign more for the way through the sandbox.
const LONGEST_VARIABLE: usize = 131_070;

impl Exec {
    /// Finds the program of a configuration object.
    ///
    /// # Errors
    /// When it is not there or may not be run; the message names where it was looked for.
    pub(super) fn configured(
        config: &Resource,
        listed: Listed,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Self> {
        let kind = config.original_id().gvk.kind.to_string();
        let Some(program) = find(config, session) else {
            return Err(missing(config, listed, session));
        };
        if session.files.system().is_executable(&program) != Some(true) {
            return Err(Error::new(format!("unexecutable plugin at: {program}"))
                .hint("make the file executable"));
        }
        let site = target.site(session);
        let wanted: Arguments = crate::load::decode::lenient(config.object())
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

    fn command(&self, input: Vec<u8>) -> Command {
        let mut environment = Vec::new();
        for (name, value) in [
            ("KUSTOMIZE_PLUGIN_CONFIG_STRING", &self.config),
            ("KUSTOMIZE_PLUGIN_CONFIG_ROOT", &self.directory),
        ] {
            if name.len() + 1 + value.len() <= LONGEST_VARIABLE {
                environment.push((name.to_owned(), value.clone()));
            }
        }
        // Such a program has a directory of its own.
        let beside = crate::load::paths::parent(&self.program).to_owned();
        Command {
            program: self.program.clone(),
            arguments: std::iter::once(Argument::File)
                .chain(self.arguments.iter().map(Argument::from))
                .collect(),
            environment,
            directory: self.directory.clone(),
            input,
            file: Some(self.config.clone().into_bytes()),
            trust: Trust::Plugin(vec![beside]),
        }
    }

    fn check(&self, finished: &Finished, session: &Session<'_>) -> Result<()> {
        let error = match (&finished.stopped, finished.exit) {
            (None, exit) if exit.is_success() => {
                running::forward(&self.kind, finished, session);
                return Ok(());
            }
            (Some(why), _) => Error::new(format!(
                "plugin {} did not end: {why}{}",
                self.kind,
                running::said(finished)
            )),
            (None, exit) => {
                Error::new(format!("failure in plugin configured via {}; {exit}", finished.file))
                    .context(&finished.errors)
            }
        };
        Err(error.hint(running::advice(&self.program, finished)))
    }

    pub(super) fn generate_command(&self) -> Command {
        self.command(Vec::new())
    }

    pub(super) fn generated(
        &self,
        finished: &Finished,
        session: &Session<'_>,
    ) -> Result<Vec<Resource>> {
        self.check(finished, session)?;
        exchange::generated(&finished.output, &self.program, session)
    }

    pub(super) fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let objects: Vec<Value> = exchange::outgoing(resources);
        let input = kiln_yaml::emit_documents(&objects).into_bytes();
        let finished = running::ask_one(self.command(input), session)?;
        self.check(&finished, session)?;
        exchange::transformed(&finished.output, &self.program, resources, session)
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
