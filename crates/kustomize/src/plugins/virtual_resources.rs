//! Virtual resources: configurations that plugins named after their API group understand, and charts.
//!
//! They are read and patched before anything is generated, and never reach the output.

use kiln_value::Value;

use super::group::{self, Listed, PluginGroup};
use super::{Program, at, chart, exec, function, origin_of};
use crate::build::session::Session;
use crate::build::steps::{self, GeneratorStep, TransformerStep};
use crate::error::{Context, Result};
use crate::fields::config::Config;
use crate::load::target::KustomizationTarget;
use crate::model::objects::Purpose;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::Resources;

/// The virtual resources of one kustomization.
#[derive(Default)]
pub(crate) struct VirtualResources {
    generators: Resources,
    transformers: Resources,
    /// What else stands in `transformers`, if that was read.
    others: Option<Vec<Resource>>,
}

/// The object that a document is, if it is a virtual resource that kustomize would not take for an object:
/// one with `groupVersion`, or, where its plugin is there, without a version or a name.
pub(crate) fn virtual_resource(
    value: &Value,
    purpose: Purpose,
    session: &Session<'_>,
) -> Option<Value> {
    let (Value::Map(object), false) = (value, purpose == Purpose::Object) else { return None };
    let text = |key: &str| object.get(key).map(scalar_text).filter(|text| !text.is_empty());
    text("kind")?;
    let metadata = object.get("metadata");
    if !matches!(metadata, None | Some(Value::Null | Value::Map(_))) {
        return None;
    }
    match (text("apiVersion"), text("groupVersion")) {
        (None, Some(written)) => Some(group::normalised(value.clone(), &written)),
        (Some(written), _) if purpose == Purpose::Config => {
            let name = metadata.and_then(|metadata| metadata.get("name")).map(scalar_text);
            let is_complete = written.contains('/') && name.is_some_and(|name| !name.is_empty());
            let group = group::group_of(&written);
            (!is_complete && is_known(group, session))
                .then(|| group::normalised(value.clone(), &written))
        }
        _ => None,
    }
}

impl VirtualResources {
    /// Takes the virtual resources out of the configurations under `generators`, reads those under
    /// `transformers`, and patches both.
    ///
    /// # Errors
    /// When a configuration or a patch cannot be read or applied.
    pub(crate) fn take(
        generators: &mut Vec<Resource>,
        target: &KustomizationTarget,
        config: &Config,
        session: &Session<'_>,
    ) -> Result<Self> {
        let mut found = VirtualResources {
            generators: split(generators, Listed::Generators, session)?,
            ..Self::default()
        };
        if has_plugins(session) {
            let mut others = super::configs(target, super::TRANSFORMERS, session)?;
            found.transformers = split(&mut others, Listed::Transformers, session)?;
            found.others = Some(others);
        }
        if found.generators.slots().is_empty() && found.transformers.slots().is_empty() {
            return Ok(found);
        }
        for step in steps::patches(target, config, session)? {
            for resources in [&mut found.generators, &mut found.transformers] {
                step.what
                    .patch_virtual(resources, session)
                    .context("patching virtual resources")
                    .map_err(|error| error.at(step.at.place()))?;
            }
        }
        Ok(found)
    }

    /// Whether this is a chart to render here: no program of the user's serves it.
    pub(super) fn is_chart(config: &Resource, listed: Listed, session: &Session<'_>) -> bool {
        let installed =
            || has_plugins(session) && group::find(chart::GROUP, listed, session).is_some();
        config.id().gvk.group == chart::GROUP && !is_other(config, session) && !installed()
    }

    /// One generator for each group, and one for each chart.
    pub(crate) fn generators<'t>(
        &self,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Vec<GeneratorStep<'t>>> {
        let mut steps = Vec::new();
        for configs in by_group([&self.generators]) {
            if Self::is_chart(&configs[0], Listed::Generators, session) {
                for config in &configs {
                    let (origin, at) = (origin_of(config), at(config));
                    let chart = chart::Chart::configured(config, &at, target, session)
                        .map_err(|error| error.at(at.place()))?;
                    steps.push(GeneratorStep { what: Box::new(chart), origin, at });
                }
                continue;
            }
            let (origin, at) = (origin_of(&configs[0]), at(&configs[0]));
            let plugin =
                PluginGroup::configured(configs, Listed::Generators, true, target, session)
                    .map_err(|error| error.at(at.place()))?;
            if let Some(plugin) = plugin {
                steps.push(GeneratorStep { what: Box::new(Program::Group(plugin)), origin, at });
            }
        }
        Ok(steps)
    }

    /// One transformer for each group: what generates is asked to transform too.
    pub(crate) fn transformers(
        &self,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Vec<TransformerStep>> {
        let mut steps = Vec::new();
        for configs in by_group([&self.generators, &self.transformers]) {
            let group = &configs[0].id().gvk.group;
            let named = self.transformers.iter().map(|(_, config)| config);
            let wanted = named.into_iter().find(|config| config.id().gvk.group == *group);
            let speaks = wanted.unwrap_or(&configs[0]);
            let (origin, at) = (origin_of(speaks), at(speaks));
            let wanted = wanted.is_some();
            if !wanted && Self::is_chart(&configs[0], Listed::Transformers, session) {
                continue;
            }
            let plugin =
                PluginGroup::configured(configs, Listed::Transformers, wanted, target, session)
                    .map_err(|error| error.at(at.place()))?;
            if let Some(plugin) = plugin {
                steps.push(TransformerStep { what: Box::new(Program::Group(plugin)), origin, at });
            }
        }
        Ok(steps)
    }

    /// The other configurations under `transformers`.
    pub(crate) fn others(
        &mut self,
        target: &KustomizationTarget,
        session: &Session<'_>,
    ) -> Result<Vec<Resource>> {
        match self.others.take() {
            Some(others) => Ok(others),
            None => super::configs(target, super::TRANSFORMERS, session),
        }
    }

    /// Generators and transformers in one list.
    pub(crate) fn into_resources(self) -> Resources {
        let mut all = self.generators;
        for resource in self.transformers.into_list() {
            // One that stands in both lists is known already.
            let _ = all.append(resource);
        }
        all
    }
}

/// Whether plugins of API groups may run, and may be there.
fn has_plugins(session: &Session<'_>) -> bool {
    session.options.enable_plugins && !session.programs.group_plugin_homes().is_empty()
}

/// Whether this crate or a plugin understands the configurations of a group.
fn is_served(group: &str, listed: Listed, session: &Session<'_>) -> bool {
    let is_chart = group == chart::GROUP && listed == Listed::Generators;
    is_chart || has_plugins(session) && group::find(group, listed, session).is_some()
}

/// The same, wherever a configuration stands.
fn is_known(group: &str, session: &Session<'_>) -> bool {
    [Listed::Generators, Listed::Transformers]
        .into_iter()
        .any(|listed| is_served(group, listed, session))
}

/// Whether something else than a plugin of its group takes the configuration.
fn is_other(config: &Resource, session: &Session<'_>) -> bool {
    let is_exec = || session.options.enable_plugins && exec::find(config, session).is_some();
    config.id().gvk.version == "builtin" || function::is_function(config) || is_exec()
}

/// Takes those out that only a plugin of their group understands.
fn split(configs: &mut Vec<Resource>, listed: Listed, session: &Session<'_>) -> Result<Resources> {
    let mut taken = Resources::new();
    let mut left = Vec::new();
    for config in std::mem::take(configs) {
        let group = &config.id().gvk.group;
        if is_other(&config, session) || !is_served(group, listed, session) {
            left.push(config);
        } else {
            taken.append(config)?;
        }
    }
    *configs = left;
    Ok(taken)
}

/// The configurations of each group, in the order in which groups are first named; one that stands in two
/// lists counts once.
fn by_group<const N: usize>(lists: [&Resources; N]) -> Vec<Vec<Resource>> {
    let mut groups: Vec<Vec<Resource>> = Vec::new();
    for (_, config) in lists.into_iter().flat_map(Resources::iter) {
        let group = &config.id().gvk.group;
        match groups.iter_mut().find(|configs| configs[0].id().gvk.group == *group) {
            Some(configs) => {
                let is_known = !config.name().is_empty()
                    && configs.iter().any(|known| known.id().equals(config.id()));
                if !is_known {
                    configs.push(config.clone());
                }
            }
            None => groups.push(vec![config.clone()]),
        }
    }
    groups
}
