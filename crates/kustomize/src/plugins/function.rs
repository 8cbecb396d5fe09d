//! Functions: programs and containers that read and write resource lists.

use kiln_value::{Map, Value};

use super::exchange;
use crate::annotations::LOCAL_CONFIG;
use crate::decode::{self, record};
use crate::error::{Error, Result};
use crate::host::{Argument, Command};
use crate::resource::{Resource, scalar_text};
use crate::resources::Resources;
use crate::session::Session;
use crate::target::Target;

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

/// A function with its configuration.
pub(crate) struct Function {
    spec: Spec,
    config: Value,
    kind: String,
    directory: String,
}

impl Function {
    /// The function that a configuration object names, if it names one.
    ///
    /// # Errors
    /// When the annotation is malformed, or wants to mount what is not below the kustomization.
    pub(super) fn configured(
        config: &Resource,
        target: &Target,
        session: &Session<'_>,
    ) -> Result<Option<Self>> {
        let Some(spec) = spec_of(config)? else { return Ok(None) };
        for mount in &spec.container.mounts {
            let cleaned = crate::paths::clean(&mount.src);
            let place = if mount.src.starts_with('/') {
                "relative to"
            } else if cleaned == ".." || cleaned.starts_with("../") {
                "under"
            } else {
                continue;
            };
            return Err(Error::new(format!(
                "plugin {} with mount path '{}' is not permitted; mount paths must be {place} the current kustomization directory",
                config.original_id(),
                mount.src
            )));
        }
        let mut object = crate::annotations::with_memory(config);
        // A configuration object passed validation: metadata is a map.
        let _ = object.set(["metadata", "annotations", LOCAL_CONFIG], "true");
        if !spec.exec.path.is_empty() && !session.options.enable_exec {
            session.warn(
                kiln_diagnostic::Diagnostic::warning(format!(
                    "the function {} was not run: programs are not allowed",
                    config.id()
                ))
                .hint("build with --enable-exec to allow it"),
            );
        }
        Ok(Some(Function {
            spec,
            config: object,
            kind: config.kind().to_string(),
            directory: target.root.path().to_owned(),
        }))
    }

    pub(super) fn kind(&self) -> &str {
        &self.kind
    }

    pub(super) fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let items = vec![self.config.clone()];
        let output = self.run(items, session)?;
        exchange::generated(&output, &self.kind, session)
    }

    pub(super) fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        let items = exchange::outgoing(resources);
        let output = self
            .run(items, session)
            .map_err(|error| error.reword(|message| format!("{message} ")))?;
        exchange::transformed(&output, &self.kind, resources, session)
    }

    /// Runs the function over items; what it writes comes back as documents.
    fn run(&self, items: Vec<Value>, session: &Session<'_>) -> Result<Vec<u8>> {
        let Some(mut command) = self.command(session) else {
            // kustomize: a function that is not allowed changes nothing.
            return Ok(kiln_yaml::emit_documents(&items).into_bytes());
        };
        command.input = kiln_yaml::emit(&Value::Map(self.request(items))).into_bytes();
        let finished =
            session.programs.run(&command).map_err(|e| e.context("couldn't execute function"))?;
        if !finished.errors.is_empty() {
            session.warn(kiln_diagnostic::Diagnostic::warning(format!(
                "{} says: {}",
                self.kind,
                finished.errors.trim_end()
            )));
        }
        if finished.code != 0 && !self.spec.defer_failure {
            return Err(Error::new(format!(
                "couldn't execute function: exit status {}",
                finished.code
            ))
            .hint(finished.errors.trim().to_owned()));
        }
        unwrap(&finished.output, session)
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

    fn command(&self, session: &Session<'_>) -> Option<Command> {
        let options = session.options;
        let pair = |text: &String| {
            let (name, value) = text.split_once('=').unwrap_or((text, ""));
            (name.to_owned(), value.to_owned())
        };
        let exec = &self.spec.exec;
        if !exec.path.is_empty() {
            if !options.enable_exec {
                return None;
            }
            let program = if exec.path.starts_with('/') {
                exec.path.clone()
            } else {
                crate::paths::join(&self.directory, &exec.path)
            };
            return Some(Command {
                program,
                arguments: exec.args.iter().map(Argument::from).collect(),
                environment: exec.envs.iter().map(pair).collect(),
                directory: self.directory.clone(),
                ..Command::default()
            });
        }
        Some(self.container(session))
    }

    fn container(&self, session: &Session<'_>) -> Command {
        let options = session.options;
        let container = &self.spec.container;
        let network = if container.network && options.network { "host" } else { "none" };
        let mut arguments: Vec<String> =
            ["run", "--rm", "-i", "-a", "STDIN", "-a", "STDOUT", "-a", "STDERR", "--network"]
                .map(str::to_owned)
                .to_vec();
        arguments.push(network.to_owned());
        if !options.as_current_user {
            arguments.extend(["--user".to_owned(), "nobody".to_owned()]);
        }
        arguments.push("--security-opt=no-new-privileges".to_owned());
        for mount in &container.mounts {
            let source = crate::paths::join(&self.directory, &mount.src);
            let mode = if mount.rw { "" } else { ",readonly" };
            arguments.extend([
                "--mount".to_owned(),
                format!("type={},source={source},target={}{mode}", mount.kind, mount.dst),
            ]);
        }
        for mount in &options.mounts {
            arguments.extend(["--mount".to_owned(), mount.clone()]);
        }
        let fixed = ["LOG_TO_STDERR=true", "STRUCTURED_RESULTS=true"].map(str::to_owned);
        for variable in fixed.iter().chain(&options.environment).chain(&container.envs) {
            arguments.extend(["-e".to_owned(), variable.clone()]);
        }
        arguments.push(container.image.clone());
        Command {
            program: "docker".to_owned(),
            arguments: arguments.into_iter().map(Argument::from).collect(),
            directory: self.directory.clone(),
            ..Command::default()
        }
    }
}

fn spec_of(config: &Resource) -> Result<Option<Spec>> {
    let text = ANNOTATIONS
        .iter()
        .find_map(|key| config.annotations()?.get(key).map(scalar_text))
        .filter(|text| !text.is_empty());
    if let Some(text) = text {
        let value = crate::output::parse_text(&text)?;
        return decode::known(&value).map(Some).map_err(|error| {
            Error::new(format!(
                "loader: failed to get FunctionSpec: {} in the annotation of {}",
                error.message,
                config.id()
            ))
            .maybe_hint(error.hint)
        });
    }
    // The oldest form: the image alone.
    let image = config.object().get_path(["metadata", "configFn", "container", "image"]);
    let image = image.or_else(|| {
        config.annotations().and_then(|texts| texts.get("config.kubernetes.io/container"))
    });
    Ok(image.map(|image| Spec {
        container: ContainerSpec { image: scalar_text(image).to_string(), ..Default::default() },
        ..Spec::default()
    }))
}

/// The items of a resource list as documents; plain documents are taken as they are.
fn unwrap(output: &[u8], session: &Session<'_>) -> Result<Vec<u8>> {
    let documents = session.read_documents("the output of a function", output)?;
    let mut items = Vec::new();
    for document in documents {
        let value = document.into_value();
        let is_list =
            matches!(value.get("kind").and_then(Value::as_str), Some("ResourceList" | "List"));
        match (is_list, value.get("items")) {
            (true, Some(Value::List(list))) => items.extend(list.iter().cloned()),
            (true, _) => {}
            (false, _) => items.push(value),
        }
    }
    Ok(kiln_yaml::emit_documents(&items).into_bytes())
}
