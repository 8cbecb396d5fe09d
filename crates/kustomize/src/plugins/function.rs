//! Functions: programs and containers that read and write resource lists.

use kiln_diagnostic::{Diagnostic, Severity, SourceLocation};
use kiln_value::{Map, Str, Value};

use super::{exchange, running};
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::host::{Argument, Command, Finished, Trust};
use crate::load::decode::{self, record};
use crate::load::loader::Root;
use crate::load::target::KustomizationTarget;
use crate::model::annotations::LOCAL_CONFIG;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;

mod runtime;

use runtime::run_arguments;

const ANNOTATIONS: [&str; 2] = ["config.kubernetes.io/function", "config.k8s.io/function"];

record! {
    /// What the annotation of a function says.
    Spec = "FunctionSpec" {
        defer_failure: bool = "deferFailure",
        exec: ExecSpec = "exec",
        container: ContainerSpec = "container",
    }
}

record! {
    ExecSpec = "ExecSpec" {
        path: String = "path",
        args: Vec<String> = "args",
        envs: Vec<String> = "envs",
    }
}

record! {
    ContainerSpec = "ContainerSpec" {
        image: String = "image",
        network: bool = "network",
        mounts: Vec<Mount> = "mounts",
        envs: Vec<String> = "envs",
    }
}

record! {
    Mount = "StorageMount" {
        kind: String = "type",
        src: String = "src",
        dst: String = "dst",
        rw: bool = "rw",
    }
}

impl Spec {
    fn written(&self) -> &str {
        if self.exec.path.is_empty() { &self.container.image } else { &self.exec.path }
    }
}

/// A function with its configuration.
pub(crate) struct PluginFunction {
    runtime: FunctionRuntime,
    defer_failure: bool,
    config: Value,
    kind: String,
    /// The kind and the name of its configuration.
    name: String,
    directory: String,
    /// Variables that a program gets besides its own.
    environment: Vec<(String, String)>,
    /// The program or the image, as it is written.
    written: String,
}

/// The object that asks for a function, for messages.
struct Who {
    id: String,
    original_id: String,
    place: Option<SourceLocation>,
}

/// What came of a run.
pub(crate) struct Ran {
    /// What the function wrote.
    pub(crate) output: Vec<u8>,
    /// Why it failed, if it may.
    pub(crate) failed: Option<Error>,
}

/// What runs when a function runs.
enum FunctionRuntime {
    /// Nothing: it is a program, and programs are not allowed.
    NotAllowed,
    /// A program, at an absolute path.
    Program {
        exec: ExecSpec,
        /// Where it really lies, if not in the directory of the kustomization.
        elsewhere: Option<String>,
    },
    /// A container, with the program that runs it.
    Container { runtime: String, spec: ContainerSpec },
}

impl PluginFunction {
    /// The function that a configuration object names, if it names one.
    ///
    /// # Errors
    /// When the annotation is malformed, or wants to run or mount what is not below the kustomization.
    pub(super) fn configured(
        config: &Resource,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Option<Self>> {
        let Some(spec) = spec_of(config.object(), config.id())? else { return Ok(None) };
        let mut object = crate::model::annotations::with_memory(config);
        let who = Who {
            id: config.id().to_string(),
            original_id: config.original_id().to_string(),
            place: super::at(config).place(),
        };
        // A configuration object passed validation: metadata is a map.
        let _ = object.set(["metadata", "annotations", LOCAL_CONFIG], "true");
        Ok(Some(PluginFunction {
            defer_failure: spec.defer_failure,
            written: spec.written().to_owned(),
            runtime: FunctionRuntime::configured(spec, &who, &target.root, session)?,
            config: object,
            kind: config.kind().to_string(),
            name: format!("{} {}", config.kind(), config.name()),
            directory: target.root.path().to_owned(),
            environment: Vec::new(),
        }))
    }

    /// The function that an object declares, to be run from a directory; `in_container` whether it may be one of those.
    ///
    /// # Errors
    /// When the annotation is malformed, or it may not run.
    pub(crate) fn declared(
        object: &Value,
        root: &Root,
        in_container: bool,
        session: &Session<'_>,
    ) -> Result<Option<Self>> {
        let text = |path: &[&str]| {
            object.get_path(path.iter().copied()).map(scalar_text).unwrap_or_default()
        };
        let (kind, name) = (text(&["kind"]), text(&["metadata", "name"]));
        let id = format!("{kind} {name}");
        let Some(spec) = spec_of(object, &id)? else { return Ok(None) };
        if spec.exec.path.is_empty() {
            if spec.container.network && !session.options.network {
                return Err(Error::new(format!(
                    "network required but not enabled with --network by the function {id}"
                )));
            }
            if !in_container {
                return Err(Error::new(format!(
                    "the function {id} is the image {}, and containers are not allowed",
                    spec.container.image
                ))
                .hint("give --enable-alpha-plugins to allow it"));
            }
        }
        let who = Who { id: id.clone(), original_id: id.clone(), place: None };
        // kustomize: names alone are for containers.
        let given = session.options.environment.iter().filter(|text| text.contains('='));
        let environment = given.map(|text| pair(text)).collect();
        Ok(Some(PluginFunction {
            defer_failure: spec.defer_failure,
            written: spec.written().to_owned(),
            runtime: FunctionRuntime::configured(spec, &who, root, session)?,
            config: Value::Null,
            kind: kind.to_string(),
            name: id,
            directory: root.path().to_owned(),
            environment,
        }))
    }

    /// Runs it over a resource list; `None` if it may not run.
    ///
    /// # Errors
    /// When it cannot be run, or fails and may not.
    pub(crate) fn run(&self, input: Vec<u8>, session: &Session<'_>) -> Result<Option<Ran>> {
        let Some(mut command) = self.program(session) else { return Ok(None) };
        command.input = input;
        let finished =
            running::ask_one(command, session).map_err(|error| error.context(self.failed()))?;
        let failed = self.failure(&finished);
        if let Some(error) = &failed
            && (finished.stopped.is_some() || !self.defer_failure)
        {
            return Err(error.clone());
        }
        running::forward(&self.kind, &finished, session);
        Ok(Some(Ran { output: finished.output, failed }))
    }

    /// The program or the image, if it may run.
    pub(crate) fn to_run(&self) -> Option<&str> {
        (!matches!(self.runtime, FunctionRuntime::NotAllowed)).then_some(self.written.as_str())
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    pub(super) fn generate_command(&self, session: &Session<'_>) -> Option<Command> {
        self.command(vec![self.config.clone()], session)
    }

    pub(super) fn generated(
        &self,
        finished: Option<&Finished>,
        session: &Session<'_>,
    ) -> Result<Vec<Resource>> {
        let output = match finished {
            Some(finished) => self.output(finished, session)?,
            // kustomize: a function that is not allowed changes nothing.
            None => kiln_yaml::emit_documents([&self.config]).into_bytes(),
        };
        exchange::generated(&output, &self.kind, session)
    }

    pub(super) fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let items = exchange::outgoing(resources);
        let output = match self.command(items.clone(), session) {
            Some(command) => running::ask_one(command, session)
                .map_err(|error| error.context(self.failed()))
                .and_then(|finished| self.output(&finished, session))?,
            None => kiln_yaml::emit_documents(&items).into_bytes(),
        };
        exchange::transformed(&output, &self.kind, resources, session)
    }

    /// What messages call it.
    pub(crate) fn what(&self) -> String {
        format!("function {}", self.name)
    }

    /// How messages about a failure begin.
    fn failed(&self) -> String {
        format!("function {}: couldn't execute function", self.name)
    }

    /// What the function wrote, as documents.
    fn output(&self, finished: &Finished, session: &Session<'_>) -> Result<Vec<u8>> {
        let written = read_answer(&finished.output, &self.kind, session);
        if let Ok((_, results)) = &written {
            for result in results {
                session.warn(self.shown(result));
            }
        }
        match self.failure(finished) {
            Some(error) if finished.stopped.is_some() || !self.defer_failure => Err(error),
            _ => {
                running::forward(&self.kind, finished, session);
                let (items, _) = written?;
                Ok(kiln_yaml::emit_documents(&items).into_bytes())
            }
        }
    }

    /// Why it failed, if it did.
    fn failure(&self, finished: &Finished) -> Option<Error> {
        let (failed, said) = (self.failed(), running::said(finished));
        let error = match (&finished.stopped, finished.exit) {
            (Some(why), _) => Error::new(format!("{failed}: it did not end: {why}{said}")),
            (None, exit) if !exit.is_success() => Error::new(format!("{failed}: {exit}{said}")),
            (None, _) => return None,
        };
        Some(error.hint(match &self.runtime {
            FunctionRuntime::Container { runtime, spec } => {
                format!("it is the image {}, run by {runtime}", spec.image)
            }
            FunctionRuntime::Program { exec, .. } => running::advice(&exec.path, finished),
            FunctionRuntime::NotAllowed => "give --enable-exec to allow it".to_owned(),
        }))
    }

    /// One of the results that a function reports beside its items.
    pub(crate) fn shown(&self, result: &Value) -> Diagnostic {
        let text = |path: &[&str]| {
            result.get_path(path.iter().copied()).map(scalar_text).filter(|text| !text.is_empty())
        };
        let severity = match text(&["severity"]).as_deref() {
            Some("error") => Severity::Error,
            Some("warning") => Severity::Warning,
            _ => Severity::Note,
        };
        let mut message = format!("{}: {}", self.kind, text(&["message"]).unwrap_or_default());
        let about: Vec<Str> = [
            &["resourceRef", "apiVersion"][..],
            &["resourceRef", "kind"],
            &["resourceRef", "namespace"],
            &["resourceRef", "name"],
        ]
        .into_iter()
        .filter_map(text)
        .collect();
        if !about.is_empty() {
            message.push_str(" in ");
            message.push_str(&about.iter().map(Str::as_str).collect::<Vec<_>>().join("/"));
        }
        if let Some(path) = text(&["field", "path"]) {
            message.push_str(&format!(", field {path}"));
        }
        if let Some(path) = text(&["file", "path"]) {
            message.push_str(&format!(", file {path}"));
        }
        Diagnostic::new(severity, message)
    }

    /// The resource list that the function reads.
    fn request(&self, items: Vec<Value>) -> Map {
        let mut request = Map::new();
        request.insert("apiVersion", "config.kubernetes.io/v1");
        request.insert("kind", "ResourceList");
        let items: Vec<Value> = items
            .into_iter()
            .enumerate()
            .map(|(at, mut item)| {
                let at = at.to_string();
                for key in ["config.kubernetes.io/index", "internal.config.kubernetes.io/index"] {
                    let _ = item.set(["metadata", "annotations", key], at.as_str());
                }
                item
            })
            .collect();
        request.insert("items", items);
        request.insert("functionConfig", self.config.clone());
        request
    }

    /// What to run over these items; nothing if it may not run.
    fn command(&self, items: Vec<Value>, session: &Session<'_>) -> Option<Command> {
        let mut command = self.program(session)?;
        command.input = kiln_yaml::emit(&Value::Map(self.request(items))).into_bytes();
        Some(command)
    }

    fn program(&self, session: &Session<'_>) -> Option<Command> {
        let directory = self.directory.clone();
        match &self.runtime {
            FunctionRuntime::NotAllowed => None,
            FunctionRuntime::Program { exec, elsewhere } => Some(Command {
                program: exec.path.clone(),
                arguments: exec.args.iter().map(Argument::from).collect(),
                environment: {
                    let own = exec.envs.iter().map(|text| pair(text));
                    own.chain(self.environment.iter().cloned()).collect()
                },
                directory,
                trust: Trust::Function { elsewhere: elsewhere.clone() },
                ..Command::default()
            }),
            FunctionRuntime::Container { runtime, spec } => Some(Command {
                program: runtime.clone(),
                arguments: run_arguments(spec, session),
                directory,
                trust: Trust::Container,
                ..Command::default()
            }),
        }
    }
}

/// A variable as `NAME=VALUE` says it.
fn pair(text: &str) -> (String, String) {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    (name.to_owned(), value.to_owned())
}

fn spec_of(object: &Value, id: impl std::fmt::Display) -> Result<Option<Spec>> {
    let annotation = |key: &str| object.get_path(["metadata", "annotations", key]).map(scalar_text);
    let text = ANNOTATIONS.iter().find_map(|key| annotation(key)).filter(|text| !text.is_empty());
    if let Some(text) = text {
        let value = crate::model::output::parse_text(&text)?;
        return decode::known(&value).map(Some).map_err(|error| {
            Error::new(format!(
                "loader: failed to get FunctionSpec: {} in the annotation of {id}",
                error.message,
            ))
            .maybe_hint(error.hint)
        });
    }
    // The oldest form: the image alone.
    let image = object.get_path(["metadata", "configFn", "container", "image"]).map(scalar_text);
    let image = image.or_else(|| annotation("config.kubernetes.io/container"));
    Ok(image.map(|image| Spec {
        container: ContainerSpec { image: image.to_string(), ..Default::default() },
        ..Spec::default()
    }))
}

/// Whether a configuration object names a function.
pub(super) fn is_function(config: &Resource) -> bool {
    !matches!(spec_of(config.object(), config.id()), Ok(None))
}

/// The items and the results that a function wrote; plain documents are items.
fn read_answer(output: &[u8], by: &str, session: &Session<'_>) -> Result<(Vec<Value>, Vec<Value>)> {
    let documents =
        session.read_documents("the output of a function", output).map_err(|error| {
            error
                .reword(|message| format!("{message} in the output of the function {by}"))
                .nowhere()
        })?;
    let (mut items, mut results) = (Vec::new(), Vec::new());
    for document in documents {
        let value = document.into_value();
        let is_list =
            matches!(value.get("kind").and_then(Value::as_str), Some("ResourceList" | "List"));
        if !is_list {
            items.push(value);
            continue;
        }
        for (field, to) in [("items", &mut items), ("results", &mut results)] {
            if let Some(Value::List(list)) = value.get(field) {
                to.extend(list.iter().cloned());
            }
        }
    }
    Ok((items, results))
}
