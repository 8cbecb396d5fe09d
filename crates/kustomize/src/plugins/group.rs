//! Programs named after an API group, which know all configurations of that group: `team.example.com generate`
//! and `team.example.com transform`.
//!
//! They read documents from standard input (the configurations of their group, and to transform all objects
//! of the build), and write documents to standard output.

use kiln_value::Value;

use super::{exchange, running};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::{Command, Exit, Finished, Trust};
use crate::load::target::KustomizationTarget;
use crate::model::id::split_api_version;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;

/// Exits with this: what was asked is not supported.
const UNSUPPORTED: Exit = Exit::Code(127);

/// The list in which a configuration stands, which says what is wanted of its plugin. Validators are
/// transformers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    Generators,
    Transformers,
}

impl Listed {
    /// Where below the directory of all plugins to look, in this order.
    fn directories(self) -> &'static [&'static str] {
        match self {
            Listed::Generators => &["", "generators"],
            // A plugin that generates is asked to transform too.
            Listed::Transformers => &["", "transformers", "generators"],
        }
    }
}

/// A program with the configurations of its group.
pub(crate) struct PluginGroup {
    group: String,
    program: String,
    configs: Vec<Resource>,
    directory: String,
    /// Whether the plugin was asked for in so many words, and not just because it generates.
    wanted: bool,
}

/// The files that may be the plugin of a group.
pub(super) fn places(group: &str, listed: Listed, session: &Session<'_>) -> Vec<String> {
    if !is_name(group) {
        return Vec::new();
    }
    let homes = session.programs.group_plugin_homes();
    let below = |home: &String| {
        listed
            .directories()
            .iter()
            .map(|directory| {
                crate::load::paths::join(&crate::load::paths::join(home, directory), group)
            })
            .collect::<Vec<_>>()
    };
    homes.iter().flat_map(below).collect()
}

/// The plugin of a group, if there is one.
pub(super) fn find(group: &str, listed: Listed, session: &Session<'_>) -> Option<String> {
    let files = session.files.system();
    places(group, listed, session).into_iter().find(|place| files.is_executable(place).is_some())
}

/// Whether this is one part of a path, and neither hidden nor above.
pub(super) fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with('.') && !text.contains(['/', '\\', '\0'])
}

impl PluginGroup {
    /// The plugin of a group with its configurations, if there is one.
    ///
    /// # Errors
    /// When it is there but cannot be run.
    pub(super) fn configured(
        configs: Vec<Resource>,
        listed: Listed,
        wanted: bool,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Option<Self>> {
        let Some(group) = configs.first().map(|config| config.id().gvk.group.to_string()) else {
            return Ok(None);
        };
        let Some(program) = find(&group, listed, session) else { return Ok(None) };
        if session.files.system().is_executable(&program) != Some(true) {
            return Err(Error::new(format!("unexecutable plugin at: {program}"))
                .hint("make the file executable"));
        }
        let directory = target.root.path().to_owned();
        Ok(Some(PluginGroup { group, program, configs, directory, wanted }))
    }

    pub(super) fn name(&self) -> &str {
        &self.group
    }

    fn command(&self, word: &str, resources: Option<&Resources>) -> Command {
        let mut objects: Vec<Value> = self.configs.iter().map(as_written).collect();
        let real = resources.into_iter().flat_map(Resources::iter);
        objects.extend(real.map(|(_, resource)| resource.object().clone()));
        Command {
            program: self.program.clone(),
            arguments: vec![word.into()],
            directory: self.directory.clone(),
            input: kiln_yaml::emit_documents(&objects).into_bytes(),
            trust: Trust::Plugin(Vec::new()),
            ..Command::default()
        }
    }

    pub(super) fn generate_command(&self) -> Command {
        self.command("generate", None)
    }

    /// Takes in what the plugin generated.
    pub(super) fn generated(
        &self,
        finished: &Finished,
        session: &Session<'_>,
    ) -> Result<Vec<Resource>> {
        self.check("generate", finished)?;
        running::forward(&self.group, finished, session);
        let objects = self.read("generate", finished, None, session)?;
        let objects = exchange::marked(objects)?;
        let mut seen = rustc_hash::FxHashSet::default();
        for object in &objects {
            if !seen.insert(object.id().key()) {
                return Err(Error::new(format!(
                    "plugin {} generate wrote {} twice",
                    self.group,
                    object.id()
                ))
                .hint(format!("it is the executable {}", self.program)));
            }
        }
        Ok(objects)
    }

    pub(super) fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let finished = running::ask_one(self.command("transform", Some(resources)), session)?;
        if finished.exit == UNSUPPORTED && finished.stopped.is_none() && !self.wanted {
            return Ok(());
        }
        self.check("transform", &finished)?;
        running::forward(&self.group, &finished, session);
        let objects = self.read("transform", &finished, Some(resources), session)?;
        let by = format!("plugin {} transform", self.group);
        exchange::exchanged(objects, &by, resources, session)
            .map_err(|error| error.hint(format!("it is the executable {}", self.program)))
    }

    fn check(&self, word: &str, finished: &Finished) -> Result<()> {
        let said = running::said(finished);
        let group = &self.group;
        let error = match (&finished.stopped, finished.exit) {
            (None, exit) if exit.is_success() => return Ok(()),
            (Some(why), _) => Error::new(format!("plugin {group} {word} did not end: {why}{said}")),
            (None, UNSUPPORTED) => {
                Error::new(format!("plugin {group} does not support {word}: {UNSUPPORTED}{said}"))
                    .hint(match word {
                        "generate" => {
                            format!(
                                "list it under transformers; it is the executable {}",
                                self.program
                            )
                        }
                        _ => {
                            format!(
                                "list it under generators only; it is the executable {}",
                                self.program
                            )
                        }
                    })
            }
            (None, exit) => Error::new(format!("plugin {group} {word} failed: {exit}{said}")),
        };
        Err(error.hint(running::advice(&self.program, finished)))
    }

    /// The objects that the plugin wrote, without the configurations that it passed through.
    fn read(
        &self,
        word: &str,
        finished: &Finished,
        resources: Option<&mut Resources>,
        session: &Session<'_>,
    ) -> Result<Vec<Resource>> {
        let name = format!("the output of {} {word}", self.group);
        let mut documents = session.read_documents(&name, &finished.output).map_err(|error| {
            let line = error.place().map(|place| format!(" in line {}", place.position().line));
            Error::new(format!(
                "plugin {} {word} wrote no YAML{}: {error}",
                self.group,
                line.unwrap_or_default()
            ))
            .hint(format!("it is the executable {}", self.program))
        })?;
        let mut real = resources;
        documents.retain(|document| !self.is_echo(document.value(), real.as_deref_mut(), session));
        crate::model::objects::from_documents(
            documents,
            crate::model::objects::Purpose::Object,
            &session.scopes,
            |_| None,
        )
        .map_err(|error| {
            let line = error.place().map(|place| format!(" in line {}", place.position().line));
            Error::new(format!(
                "plugin {} {word} wrote something that is not an object{}: {error}",
                self.group,
                line.unwrap_or_default()
            ))
            .hint(format!("it is the executable {}", self.program))
        })
    }

    /// Whether this is one of the configurations, and no object of the build.
    fn is_echo(
        &self,
        value: &Value,
        resources: Option<&mut Resources>,
        session: &Session<'_>,
    ) -> bool {
        let text = |key| value.get(key).map(scalar_text).unwrap_or_default();
        let written = match text("apiVersion") {
            none if none.is_empty() => text("groupVersion"),
            written => written,
        };
        if group_of(&written) != self.group {
            return false;
        }
        let id =
            crate::model::resource::id_of(&normalised(value.clone(), &written), &session.scopes);
        id.name.is_empty()
            || (self.configs.iter().any(|config| config.id().equals(&id))
                && resources.is_none_or(|resources| resources.by_current_id(&id).is_empty()))
    }
}

/// The group in `group/version`; a group may stand alone.
pub(super) fn group_of(written: &str) -> &str {
    match split_api_version(written) {
        ("", alone) if alone.contains('.') => alone,
        (group, _) => group,
    }
}

/// The object with an apiVersion by which it is known.
pub(super) fn normalised(mut object: Value, written: &str) -> Value {
    let api_version =
        if written.contains('/') { written.to_owned() } else { format!("{written}/") };
    if let Value::Map(map) = &mut object {
        map.insert("apiVersion", api_version);
    }
    object
}

/// The configuration as its author wrote it, patched.
fn as_written(config: &Resource) -> Value {
    let mut object = config.object().clone();
    if let Value::Map(map) = &mut object {
        let api_version = map.get("apiVersion").map(scalar_text).unwrap_or_default();
        if map.contains_key("groupVersion") {
            map.remove("apiVersion");
        } else if let Some(group) = api_version.strip_suffix('/') {
            map.insert("apiVersion", group);
        }
        let nothing = |value: &Value| value.as_map().is_some_and(kiln_value::Map::is_empty);
        if map.get("metadata").is_some_and(nothing) {
            map.remove("metadata");
        }
    }
    object
}
