//! Steps configured as objects in `generators`, `transformers` and `validators`.
//!
//! The apiVersion `builtin` names a step of this crate ([`builtin`]); anything else is a program and
//! needs to be allowed: a function that is spoken to in resource lists ([`function`]), or a program that
//! gets a file with its configuration ([`exec`]).

mod builtin;
mod exchange;
mod exec;
mod function;

use std::sync::Arc;

use kiln_value::Segment;

use crate::at::{At, Located};
use crate::error::{Error, Result};
use crate::origin::{ConfiguredBy, Origin};
use crate::resource::Resource;
use crate::session::Session;
use crate::steps::{Generate, GeneratorStep, Step};
use crate::target::Target;
use crate::transformers::Transform;

/// What a configuration object turned out to be.
enum Plugin<'t> {
    Generator(Box<dyn Generate + 't>),
    Transformer(Box<dyn Transform>),
    Program(Box<Program>),
}

/// A program that can do either.
pub(crate) enum Program {
    Function(function::Function),
    Exec(exec::Exec),
}

/// The generators that these objects configure.
///
/// # Errors
/// When one is unknown, not allowed, or wrongly configured.
pub(crate) fn generators<'t>(
    target: &'t Target,
    configs: Vec<Resource>,
    session: &Session<'_>,
) -> Result<Vec<GeneratorStep<'t>>> {
    configs
        .into_iter()
        .map(|config| {
            let origin = origin_of(&config);
            let what: Box<dyn Generate + 't> = match load(&config, target, session)
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
    target: &Target,
    configs: Vec<Resource>,
    session: &Session<'_>,
) -> Result<Vec<Step>> {
    configs
        .into_iter()
        .map(|config| {
            let origin = origin_of(&config);
            let what: Box<dyn Transform> = match load(&config, target, session)? {
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
            Ok(Step { what, origin, at: at(&config) })
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
fn at(config: &Resource) -> At {
    let document = config.document.as_ref().map(|document| Located::new(Arc::clone(document)));
    At::new::<Segment>(document.as_ref(), [])
}

fn load<'t>(config: &Resource, target: &'t Target, session: &Session<'_>) -> Result<Plugin<'t>> {
    let gvk = &config.id().gvk;
    let place = || at(config).place();
    if gvk.group.is_empty() && gvk.version == "builtin" {
        return builtin::load(config, target, session).map_err(|error| error.at(place()));
    }
    if !session.options.enable_plugins {
        return Err(Error::new(format!(
            "external plugins disabled; unable to load external plugin '{}'",
            config.original_id().gvk.kind
        ))
        .at(place())
        .hint("build with --enable-alpha-plugins to allow it"));
    }
    let program = match function::Function::configured(config, target, session)? {
        Some(function) => Program::Function(function),
        None => Program::Exec(exec::Exec::configured(config, target, session)?),
    };
    Ok(Plugin::Program(Box::new(program)))
}

impl Generate for Program {
    fn kind(&self) -> &str {
        match self {
            Program::Function(function) => function.kind(),
            Program::Exec(exec) => exec.kind(),
        }
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        match self {
            Program::Function(function) => function.generate(session),
            Program::Exec(exec) => exec.generate(session),
        }
    }
}

impl Transform for Program {
    fn kind(&self) -> &str {
        Generate::kind(self)
    }

    fn transform(
        &self,
        resources: &mut crate::resources::Resources,
        session: &Session<'_>,
    ) -> Result<()> {
        match self {
            Program::Function(function) => function.transform(resources, session),
            Program::Exec(exec) => exec.transform(resources, session),
        }
    }
}
