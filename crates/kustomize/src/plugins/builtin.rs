//! Built-in generators and transformers, configured as objects of apiVersion `builtin`.

use kiln_value::Value;

use super::Plugin;
use crate::build::session::{KustomizationSite, Session};
use crate::build::steps::{Generate, MapGenerator};
use crate::error::{Error, Result};
use crate::generators::config_map::GeneratedKind;
use crate::generators::hash;
use crate::generators::helm::Chart;
use crate::generators::iam_policy::{self, IamPolicyConfig};
use crate::load::decode::{self, Decode};
use crate::load::kustomization::{GeneratorArgs, HelmChart};
use crate::load::target::KustomizationTarget;
use crate::model::resource::Resource;
use crate::model::resources::Resources;
use crate::transformers::Transform;
use crate::transformers::images::{DigestAlgorithms, ImageConfig, Images};
use crate::transformers::labels::{Annotations, Labels};
use crate::transformers::namespace::Namespace;
use crate::transformers::patches::{Json6902, StrategicMerge, TransformPatch};
use crate::transformers::prefix_suffix::{Affix, Both, Side};
use crate::transformers::replacements::{ReplacementConfig, Replacements};
use crate::transformers::replicas::Replicas;
use crate::transformers::value_add::{TargetFile, ValueAdd, ValueAddConfig};

/// The kinds of apiVersion `builtin`, by name.
pub const BUILTIN_PLUGINS: [&str; 18] = [
    "AnnotationsTransformer",
    "ConfigMapGenerator",
    "HashTransformer",
    "HelmChartInflationGenerator",
    "IAMPolicyGenerator",
    "ImageTagTransformer",
    "LabelTransformer",
    "NamespaceTransformer",
    "PatchJson6902Transformer",
    "PatchStrategicMergeTransformer",
    "PatchTransformer",
    "PrefixSuffixTransformer",
    "PrefixTransformer",
    "ReplacementTransformer",
    "ReplicaCountTransformer",
    "SecretGenerator",
    "SuffixTransformer",
    "ValueAddTransformer",
];

/// The step that an object of apiVersion `builtin` configures.
pub(super) fn load<'t>(
    config: &Resource,
    target: &'t KustomizationTarget,
    session: &Session<'_>,
) -> Result<Plugin<'t>> {
    let kind = config.kind().as_str();
    let site = target.site(session);
    let loaded = match kind {
        "ConfigMapGenerator" => map_generator(GeneratedKind::ConfigMap, config, target, &site),
        "SecretGenerator" => map_generator(GeneratedKind::Secret, config, target, &site),
        "IAMPolicyGenerator" => read::<IamPolicyConfig>(config, &site)
            .map(|config| Plugin::Generator(Box::new(IamPolicy(config)))),
        "HelmChartInflationGenerator" => read::<HelmChart>(config, &site)
            .and_then(|chart| Chart::configured(chart, &super::at(config), target, session))
            .map(|chart| Plugin::Generator(Box::new(chart))),
        _ => match transformer(kind, config, &site).transpose() {
            Some(transformer) => transformer.map(Plugin::Transformer),
            None => return Err(Error::new(format!("unable to load builtin {}", config.id().gvk))),
        },
    };
    loaded.map_err(|error| {
        error.context(format_args!("plugin {} fails configuration", config.original_id()))
    })
}

fn map_generator<'t>(
    kind: GeneratedKind,
    config: &Resource,
    target: &'t KustomizationTarget,
    site: &KustomizationSite<'_, '_>,
) -> Result<Plugin<'t>> {
    /// The name and namespace default to those of the configuration itself.
    fn named(mut args: GeneratorArgs, config: &Resource) -> GeneratorArgs {
        if args.name.is_empty() {
            config.name().as_str().clone_into(&mut args.name);
        }
        if args.namespace.is_empty() {
            config.namespace().as_str().clone_into(&mut args.namespace);
        }
        if !args.env.is_empty() {
            args.envs.push(std::mem::take(&mut args.env));
        }
        args
    }
    let args = named(read(config, site)?, config);
    Ok(Plugin::Generator(Box::new(MapGenerator { kind, args, global: None, target })))
}

fn transformer(
    kind: &str,
    config: &Resource,
    site: &KustomizationSite<'_, '_>,
) -> Result<Option<Box<dyn Transform>>> {
    Ok(Some(match kind {
        "AnnotationsTransformer" => Box::new(read::<Annotations>(config, site)?),
        "HashTransformer" => Box::new(Hashes),
        "ImageTagTransformer" => {
            let config: ImageConfig = read(config, site)?;
            let digests = DigestAlgorithms::of(site.session.options.behavior);
            Box::new(Images::new(&[config.image_tag], config.field_specs, digests))
        }
        "LabelTransformer" => Box::new(read::<Labels>(config, site)?),
        "NamespaceTransformer" => Box::new(Namespace::configured(read(config, site)?)?),
        "PatchJson6902Transformer" => {
            let written = super::at(config).field("jsonOp");
            Box::new(Json6902::load(&read(config, site)?, site, written)?)
        }
        "PatchStrategicMergeTransformer" => {
            Box::new(StrategicMerge::load(&read(config, site)?, site)?)
        }
        "PatchTransformer" => {
            let shown = kiln_yaml::emit(config.object());
            Box::new(TransformPatch::load(&read(config, site)?, &shown, site, super::at(config))?)
        }
        "PrefixTransformer" => Box::new(Affix::configured(Side::Prefix, read(config, site)?)?),
        "SuffixTransformer" => Box::new(Affix::configured(Side::Suffix, read(config, site)?)?),
        "PrefixSuffixTransformer" => Box::new(Both(
            Affix::configured(Side::Prefix, read(config, site)?)?,
            Affix::configured(Side::Suffix, read(config, site)?)?,
        )),
        "ReplacementTransformer" => {
            let written = super::at(config).field("replacements");
            let config: ReplacementConfig = read(config, site)?;
            Box::new(Replacements::load(&config.replacements, site, &written)?)
        }
        "ReplicaCountTransformer" => Box::new(read::<Replicas>(config, site)?),
        "ValueAddTransformer" => {
            let mut config: ValueAddConfig = read(config, site)?;
            if !config.target_file_path.is_empty() {
                let (value, document) = site.load_config(&config.target_file_path)?;
                let file: TargetFile = decode::lenient(&value)
                    .map_err(|error| site.decode_error(error, document.as_deref()))?;
                config.targets.extend(file.targets);
            }
            Box::new(ValueAdd::configured(config, site.root.path())?)
        }
        _ => return Ok(None),
    }))
}

/// Reads the configuration from the fields of an object.
fn read<T: Decode>(config: &Resource, site: &KustomizationSite<'_, '_>) -> Result<T> {
    decode::lenient(config.object())
        .map_err(|error| site.decode_error(error, config.document.as_deref()))
        .map_err(|error| {
            error.reword(|message| {
                format!("error unmarshaling JSON: while decoding JSON: {message}")
            })
        })
}

struct IamPolicy(IamPolicyConfig);

impl Generate for IamPolicy {
    fn kind(&self) -> &str {
        "IAMPolicyGenerator"
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let object: Value = iam_policy::generate(&self.0)?;
        Ok(vec![Resource::new(object, &session.scopes)])
    }
}

/// Adds hashes to the names of what asks for them, before the end of the build.
struct Hashes;

impl Transform for Hashes {
    fn kind(&self) -> &str {
        "HashTransformer"
    }

    fn transform(&self, resources: &mut Resources, session: &Session<'_>) -> Result<()> {
        for slot in resources.slots() {
            if resources.get(slot).needs_hash {
                resources.update(slot, &session.scopes, |resource| {
                    let hash = hash::of(resource.object());
                    resource.store_previous_id();
                    let name = format!("{}-{hash}", resource.name());
                    resource.set_metadata("name", name);
                });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kiln_fields::FieldTable;
    use kiln_fields::kustomize as table;

    use super::*;
    use crate::fields::config::ConfigFile;
    use crate::load::kustomization::{ChartArguments, Kustomization};
    use crate::plugins::{exec, function};
    use crate::transformers::namespace::NamespaceConfig;
    use crate::transformers::patches::{Json6902Config, PatchConfig, StrategicMergeConfig};
    use crate::transformers::prefix_suffix::AffixConfig;

    fn differences<T: Decode>(table: &'static FieldTable) -> Vec<String> {
        T::shape().differences(table)
    }

    #[test]
    fn the_readers_have_the_fields_of_the_tables() {
        let all = [
            differences::<Kustomization>(&table::KUSTOMIZATION),
            differences::<ConfigFile>(&table::CONFIGURATION),
            differences::<function::Spec>(&table::FUNCTION),
            differences::<exec::Arguments>(&table::EXEC_PLUGIN),
            differences::<Annotations>(&table::ANNOTATIONS_TRANSFORMER),
            differences::<GeneratorArgs>(&table::CONFIG_MAP_GENERATOR),
            differences::<HelmChart>(&table::HELM_CHART_GENERATOR),
            differences::<ChartArguments>(&table::CHART_RESOURCE_ARGUMENTS),
            differences::<IamPolicyConfig>(&table::IAM_POLICY_GENERATOR),
            differences::<ImageConfig>(&table::IMAGE_TAG_TRANSFORMER),
            differences::<Labels>(&table::LABEL_TRANSFORMER),
            differences::<NamespaceConfig>(&table::NAMESPACE_TRANSFORMER),
            differences::<Json6902Config>(&table::PATCH_JSON_TRANSFORMER),
            differences::<StrategicMergeConfig>(&table::PATCH_STRATEGIC_MERGE_TRANSFORMER),
            differences::<PatchConfig>(&table::PATCH_TRANSFORMER),
            differences::<AffixConfig>(&table::PREFIX_SUFFIX_TRANSFORMER),
            differences::<ReplacementConfig>(&table::REPLACEMENT_TRANSFORMER),
            differences::<Replicas>(&table::REPLICA_COUNT_TRANSFORMER),
            differences::<ValueAddConfig>(&table::VALUE_ADD_TRANSFORMER),
        ];
        assert_eq!(all.concat(), Vec::<String>::new());
    }

    #[test]
    fn the_table_has_every_built_in_plugin() {
        let builtin = |kind: &&kiln_fields::DocumentKind| kind.api_versions == ["builtin"];
        let listed: BTreeSet<&str> =
            kiln_fields::kinds().filter(builtin).map(|kind| kind.name).collect();
        assert_eq!(listed, BUILTIN_PLUGINS.into_iter().collect());
    }
}
