//! Steps configured as objects in `generators`, `transformers` and `validators`.
//!
//! The apiVersion `builtin` names a step of this crate ([`builtin`]), and so does the group of [`chart`]; anything else is
//! a program and needs to be allowed: a function that is spoken to in resource lists ([`function`]), a program that
//! gets a file with its configuration ([`exec`]), or one that serves a whole API group ([`group`]).

mod builtin;
mod chart;
mod exchange;
mod exec;
mod function;
mod group;
mod running;
mod virtual_resources;

pub use builtin::BUILTIN_PLUGINS;

use std::sync::Arc;

use kiln_diagnostic::Diagnostic;
use kiln_value::Segment;
use rustc_hash::{FxHashMap, FxHashSet};

pub(crate) use function::PluginFunction;
use group::Listed;
pub(crate) use virtual_resources::{VirtualResources, virtual_resource};

use crate::build::accumulate::{Accumulator, accumulate_resources};
use crate::build::session::Session;
use crate::build::steps::{Generate, GeneratorStep, TransformerStep};
use crate::error::{Context, Error, Result};
use crate::fields::lazy_location::{LazyLocation, LocatedDocument};
use crate::host::Command;
use crate::load::target::KustomizationTarget;
use crate::model::id::ResId;
use crate::model::objects::Purpose;
use crate::model::origin::{ConfiguredBy, Origin};
use crate::model::resource::Resource;
use crate::model::resources::{Resources, Slot};
use crate::transformers::Transform;

/// What a configuration object turned out to be.
enum Plugin<'t> {
    Generator(Box<dyn Generate + 't>),
    Transformer(Box<dyn Transform>),
    Program(Box<Program>),
}

/// A program that can do either.
pub(crate) enum Program {
    Function(function::PluginFunction),
    Exec(exec::Exec),
    Group(group::PluginGroup),
}

/// The fields of a kustomization that name configurations.
pub(crate) const GENERATORS: &str = "generators";
pub(crate) const TRANSFORMERS: &str = "transformers";
pub(crate) const VALIDATORS: &str = "validators";

/// The objects that configure steps: written in place, or in files and directories.
///
/// # Errors
/// When one of them cannot be read.
pub(crate) fn configs(
    target: &KustomizationTarget,
    field: &str,
    session: &Session<'_>,
) -> Result<Vec<Resource>> {
    let kustomization = &target.kustomization;
    let entries = match field {
        GENERATORS => &kustomization.generators,
        TRANSFORMERS => &kustomization.transformers,
        _ => &kustomization.validators,
    };
    let mut gathered = Accumulator::default();
    let mut paths = Vec::new();
    for (at, entry) in entries.iter().enumerate() {
        let name = format!("{} ({field}[{at}])", target.shown(session));
        match session.read_objects(&name, entry.as_bytes(), Purpose::Config) {
            Ok(inline) => {
                for mut resource in inline {
                    resource.origin =
                        target.origin.as_ref().map(|o| Arc::new(o.join(target.file_name)));
                    gathered.resources.append(resource).context("configuring external plugin")?;
                }
            }
            Err(_) => paths.push(entry.clone()),
        }
    }
    accumulate_resources(target, &mut gathered, &paths, field, session)?;
    Ok(gathered.resources.into_list().collect())
}

/// The generators that these objects configure.
///
/// # Errors
/// When one is unknown, not allowed, or wrongly configured.
pub(crate) fn generators<'t>(
    target: &'t KustomizationTarget,
    configs: Vec<Resource>,
    session: &Session<'_>,
) -> Result<Vec<GeneratorStep<'t>>> {
    configs
        .into_iter()
        .map(|config| {
            let origin = origin_of(&config);
            let what: Box<dyn Generate + 't> =
                match load(&config, Listed::Generators, target, session)
                    .map_err(|error| error.context("failed to load generator"))?
                {
                    Plugin::Generator(generator) => generator,
                    Plugin::Program(program) => program,
                    Plugin::Transformer(_) => {
                        return Err(Error::new(format!(
                            "failed to load generator: plugin {} not a generator",
                            config.original_id()
                        )));
                    }
                };
            Ok(GeneratorStep { what, origin, at: at(&config) })
        })
        .collect()
}

/// The transformers that these objects configure.
///
/// # Errors
/// When one is unknown, not allowed, or wrongly configured.
pub(crate) fn transformers(
    target: &KustomizationTarget,
    configs: Vec<Resource>,
    session: &Session<'_>,
) -> Result<Vec<TransformerStep>> {
    configs
        .into_iter()
        .map(|config| {
            let origin = origin_of(&config);
            let what: Box<dyn Transform> =
                match load(&config, Listed::Transformers, target, session)? {
                    Plugin::Transformer(transformer) => transformer,
                    Plugin::Program(program) => program,
                    Plugin::Generator(_) => {
                        return Err(Error::new(format!(
                            "plugin {} not a transformer",
                            config.original_id()
                        ))
                        .hint("list it under generators"));
                    }
                };
            Ok(TransformerStep { what, origin, at: at(&config) })
        })
        .collect()
}

/// What the object that configures a step says about where the step comes from.
fn origin_of(config: &Resource) -> Option<Arc<Origin>> {
    let origin = config.origin.as_ref()?;
    let id = config.id();
    Some(Arc::new(Origin {
        path: String::new(),
        repository: origin.repository.clone(),
        reference: origin.reference.clone(),
        configured_in: origin.path.clone(),
        configured_by: Some(ConfiguredBy {
            api_version: id.gvk.api_version(),
            kind: id.gvk.kind.to_string(),
            name: id.name.to_string(),
            namespace: id.namespace.to_string(),
        }),
    }))
}

/// Where a configuration object is written.
fn at(config: &Resource) -> LazyLocation {
    let document =
        config.document.as_ref().map(|document| LocatedDocument::new(Arc::clone(document)));
    LazyLocation::new::<Segment>(document.as_ref(), [])
}

fn load<'t>(
    config: &Resource,
    listed: Listed,
    target: &'t KustomizationTarget,
    session: &Session<'_>,
) -> Result<Plugin<'t>> {
    let loaded = || {
        let gvk = &config.id().gvk;
        if gvk.group.is_empty() && gvk.version == "builtin" {
            return builtin::load(config, target, session);
        }
        if VirtualResources::is_chart(config, listed, session) {
            return chart::Chart::configured(config, &at(config), target, session)
                .map(|chart| Plugin::Generator(Box::new(chart)));
        }
        if !session.options.enable_plugins {
            return Err(Error::new(format!(
                "external plugins disabled; unable to load external plugin '{}'",
                config.original_id().gvk.kind
            ))
            .hint("build with --enable-alpha-plugins to allow it"));
        }
        program(config, listed, target, session).map(|program| Plugin::Program(Box::new(program)))
    };
    loaded().map_err(|error| error.at(at(config).place()))
}

/// The program that a configuration object asks for.
fn program(
    config: &Resource,
    listed: Listed,
    target: &KustomizationTarget,
    session: &Session<'_>,
) -> Result<Program> {
    if let Some(function) = function::PluginFunction::configured(config, target, session)? {
        return Ok(Program::Function(function));
    }
    if exec::find(config, session).is_none() {
        let configs = vec![config.clone()];
        let plugin = group::PluginGroup::configured(configs, listed, true, target, session)?;
        if let Some(plugin) = plugin {
            return Ok(Program::Group(plugin));
        }
    }
    exec::Exec::configured(config, listed, target, session).map(Program::Exec)
}

/// Lets programs generate, side by side; the answers come in their order.
pub(crate) fn generate(programs: &[&Program], session: &Session<'_>) -> Vec<Result<Vec<Resource>>> {
    let commands: Vec<Option<Command>> =
        programs.iter().map(|program| program.generate_command(session)).collect();
    let mut answers =
        running::ask(commands.iter().flatten().cloned().collect(), session).into_iter();
    programs
        .iter()
        .zip(commands)
        .map(|(program, command)| {
            let answer = command.and_then(|_| answers.next()).transpose()?;
            match (program, answer) {
                (Program::Function(function), answer) => {
                    function.generated(answer.as_ref(), session)
                }
                (Program::Exec(exec), Some(answer)) => exec.generated(&answer, session),
                (Program::Group(group), Some(answer)) => group.generated(&answer, session),
                (Program::Exec(_) | Program::Group(_), None) => Ok(Vec::new()),
            }
        })
        .collect()
}

impl Program {
    /// What to run to make objects; nothing if it may not run.
    fn generate_command(&self, session: &Session<'_>) -> Option<Command> {
        match self {
            Program::Function(function) => function.generate_command(session),
            Program::Exec(exec) => Some(exec.generate_command()),
            Program::Group(group) => Some(group.generate_command()),
        }
    }

    fn transform_once(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        match self {
            Program::Function(function) => function.transform(resources, session),
            Program::Exec(exec) => exec.transform(resources, session),
            Program::Group(group) => group.transform(resources, session),
        }
    }

    /// Warns if what was transformed is not left alone the next time.
    fn check_idempotence(&self, resources: &Resources, session: &Session<'_>) -> Result<()> {
        let mut again = resources.clone();
        self.transform_once(&mut again, session).context("when it transforms its own output")?;
        let Some((does, id)) = first_difference(resources, &again) else { return Ok(()) };
        session.warn(
            Diagnostic::warning(format!(
                "plugin {} {does} {id} again when it transforms its own output",
                Generate::kind(self),
            ))
            .hint("a plugin that leaves alone what is as it should be can be run at any time"),
        );
        Ok(())
    }
}

/// What a plugin did to the first object that is not as it was, if there is one.
fn first_difference<'r>(
    before: &'r Resources,
    after: &'r Resources,
) -> Option<(&'static str, &'r ResId)> {
    let known: FxHashMap<Slot, &Resource> = before.iter().collect();
    let kept: FxHashSet<Slot> = after.iter().map(|(slot, _)| slot).collect();
    let changed = after.iter().find_map(|(slot, resource)| match known.get(&slot) {
        Some(old) if old.object() == resource.object() => None,
        Some(old) => Some(("changes", old.id())),
        None => Some(("adds", resource.id())),
    });
    changed.or_else(|| {
        let removed = before.iter().find(|(slot, _)| !kept.contains(slot));
        removed.map(|(_, resource)| ("removes", resource.id()))
    })
}

impl Generate for Program {
    fn kind(&self) -> &str {
        match self {
            Program::Function(function) => function.kind(),
            Program::Exec(exec) => exec.kind(),
            Program::Group(group) => group.name(),
        }
    }

    fn program(&self) -> Option<&Program> {
        Some(self)
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        generate(&[self], session).pop().unwrap_or_else(|| Ok(Vec::new()))
    }
}

impl Transform for Program {
    fn kind(&self) -> &str {
        Generate::kind(self)
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        self.transform_once(resources, session)?;
        if session.options.check_plugins {
            self.check_idempotence(resources, session)?;
        }
        Ok(())
    }
}
