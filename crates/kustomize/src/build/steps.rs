//! The steps that the fields of a kustomization ask for, in kustomize's own order.
//!
//! All steps are configured before the first one runs, so that a missing patch file is reported
//! before anything else.

use std::sync::Arc;

use kiln_value::{Map, Segment, Value};

use crate::build::session::{KustomizationSite, Session};
use crate::error::{Context, Error, Result};
use crate::fields::config::Config;
use crate::fields::field_spec::{FieldSpec, merge_specs};
use crate::fields::lazy_location::LazyLocation;
use crate::generators::config_map::{self, GeneratedKind};
use crate::generators::helm::Chart;
use crate::load::kustomization::{GeneratorArgs, GeneratorOptions, Patch as PatchEntry, Selector};
use crate::load::target::KustomizationTarget;
use crate::model::origin::Origin;
use crate::model::resource::Resource;
use crate::plugins::Program;
use crate::transformers::Transform;
use crate::transformers::images::{DigestAlgorithms, Images};
use crate::transformers::labels::{Annotations, Labels};
use crate::transformers::namespace::Namespace;
use crate::transformers::patches::{
    Json6902, Json6902Config, PatchConfig, StrategicMerge, StrategicMergeConfig, TransformPatch,
};
use crate::transformers::prefix_suffix::{Affix, Side};
use crate::transformers::replacements::Replacements;
use crate::transformers::replicas::Replicas;

/// A transformer, who configured it, and the place that did.
pub(crate) struct TransformerStep {
    pub(crate) what: Box<dyn Transform>,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) at: LazyLocation,
}

/// A generator, who configured it, and the place that did.
pub(crate) struct GeneratorStep<'t> {
    pub(crate) what: Box<dyn Generate + 't>,
    pub(crate) origin: Option<Arc<Origin>>,
    pub(crate) at: LazyLocation,
}

/// Makes objects.
pub(crate) trait Generate {
    /// The name of the built-in generator, or the kind of the plugin.
    fn kind(&self) -> &str;

    /// The program that makes them, if one does: [`crate::plugins::generate`] runs several side by side.
    fn program(&self) -> Option<&Program> {
        None
    }

    /// Makes them.
    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>>;
}

/// An entry of `configMapGenerator` or `secretGenerator`.
pub(crate) struct MapGenerator<'t> {
    pub(crate) kind: GeneratedKind,
    pub(crate) args: GeneratorArgs,
    pub(crate) global: Option<&'t GeneratorOptions>,
    pub(crate) target: &'t KustomizationTarget,
}

impl Generate for MapGenerator<'_> {
    fn kind(&self) -> &str {
        self.kind.generator()
    }

    fn generate(&self, session: &Session<'_>) -> Result<Vec<Resource>> {
        let site = self.target.site(session);
        config_map::generate(self.kind, &self.args, self.global, &site).map(|made| vec![made])
    }
}

/// The built-in generators that the file asks for.
pub(crate) fn generators<'t>(
    target: &'t KustomizationTarget,
    session: &Session<'_>,
) -> Result<Vec<GeneratorStep<'t>>> {
    let kustomization = &target.kustomization;
    let mut steps: Vec<GeneratorStep<'t>> = Vec::new();
    let lists = [
        (GeneratedKind::ConfigMap, &kustomization.config_map_generator, "configMapGenerator"),
        (GeneratedKind::Secret, &kustomization.secret_generator, "secretGenerator"),
    ];
    for (kind, list, field) in lists {
        for (at, args) in list.iter().enumerate() {
            steps.push(GeneratorStep {
                what: Box::new(MapGenerator {
                    kind,
                    args: args.clone(),
                    global: kustomization.generator_options.as_ref(),
                    target,
                }),
                origin: builtin_origin(target, kind.generator()),
                at: entry(&target.site(session), field, at),
            });
        }
    }
    for (at, chart) in kustomization.helm_charts.iter().enumerate() {
        let place = entry(&target.site(session), "helmCharts", at);
        let chart = Chart::configured(chart.clone(), &place, target, session)
            .map_err(|error| error.at(place.place()))?;
        steps.push(GeneratorStep {
            what: Box::new(chart),
            origin: builtin_origin(target, "HelmChartInflationGenerator"),
            at: place,
        });
    }
    Ok(steps)
}

fn builtin_origin(target: &KustomizationTarget, kind: &str) -> Option<Arc<Origin>> {
    let origin = target.origin.as_ref()?;
    Some(Arc::new(origin.of_builtin(target.file_name, kind)))
}

fn entry(site: &KustomizationSite<'_, '_>, field: &str, at: usize) -> LazyLocation {
    let path: [Segment; 2] = [field.into(), at.into()];
    site.at(path)
}

/// The built-in transformers that the file asks for, in the order they run.
pub(crate) fn transformers(
    target: &KustomizationTarget,
    config: &Config,
    session: &Session<'_>,
) -> Result<Vec<TransformerStep>> {
    let mut plan = Plan { target, config, site: target.site(session), steps: Vec::new() };
    plan.strategic_merge()?;
    plan.patches()?;
    plan.names();
    plan.labels()?;
    plan.annotations();
    plan.json_patches()?;
    plan.replicas_and_images();
    plan.replacements()?;
    Ok(plan.steps)
}

/// The patches among them.
pub(crate) fn patches(
    target: &KustomizationTarget,
    config: &Config,
    session: &Session<'_>,
) -> Result<Vec<TransformerStep>> {
    let mut plan = Plan { target, config, site: target.site(session), steps: Vec::new() };
    plan.strategic_merge()?;
    plan.patches()?;
    plan.json_patches()?;
    Ok(plan.steps)
}

struct Plan<'p, 'h> {
    target: &'p KustomizationTarget,
    config: &'p Config,
    site: KustomizationSite<'p, 'h>,
    steps: Vec<TransformerStep>,
}

impl Plan<'_, '_> {
    fn add(&mut self, what: impl Transform + 'static, at: LazyLocation) {
        let origin = builtin_origin(self.target, what.kind());
        self.steps.push(TransformerStep { what: Box::new(what), origin, at });
    }

    fn field(&self, field: &str) -> LazyLocation {
        self.site.at([field])
    }

    fn strategic_merge(&mut self) -> Result<()> {
        let Some(paths) = &self.target.kustomization.patches_strategic_merge else {
            return Ok(());
        };
        if paths.is_empty() {
            return Ok(());
        }
        let place = self.field("patchesStrategicMerge");
        let config = StrategicMergeConfig { paths: paths.clone(), patches: String::new() };
        let shown = || {
            let list: Value = paths.iter().map(String::as_str).collect();
            [("paths", list)].into_iter().collect()
        };
        let step = StrategicMerge::load(&config, &self.site)
            .map_err(|error| trouble(error, "PatchStrategicMergeTransformer", shown(), &place))?;
        self.add(step, place);
        Ok(())
    }

    fn patches(&mut self) -> Result<()> {
        for (at, patch) in self.target.kustomization.patches.iter().enumerate() {
            let place = entry(&self.site, "patches", at);
            let config = PatchConfig {
                path: patch.path.clone(),
                patch: patch.patch.clone(),
                target: patch.target.clone(),
                options: patch.options.clone(),
            };
            let shown = kiln_yaml::emit(&Value::Map(patch_config(patch, "patch")));
            let step = TransformPatch::load(&config, &shown, &self.site, place.clone()).map_err(
                |error| trouble(error, "PatchTransformer", patch_config(patch, "patch"), &place),
            )?;
            self.add(step, place);
        }
        Ok(())
    }

    fn names(&mut self) {
        let kustomization = &self.target.kustomization;
        if !kustomization.namespace.is_empty() {
            let specs = self.config.namespace.to_vec();
            self.add(Namespace::new(&kustomization.namespace, specs), self.field("namespace"));
        }
        if !kustomization.name_prefix.is_empty() {
            let specs = self.config.name_prefix.to_vec();
            let step = Affix::new(Side::Prefix, &kustomization.name_prefix, specs);
            self.add(step, self.field("namePrefix"));
        }
        if !kustomization.name_suffix.is_empty() {
            let specs = self.config.name_suffix.to_vec();
            let step = Affix::new(Side::Suffix, &kustomization.name_suffix, specs);
            self.add(step, self.field("nameSuffix"));
        }
    }

    fn labels(&mut self) -> Result<()> {
        let kustomization = &self.target.kustomization;
        let common = kustomization.common_labels.clone().unwrap_or_default();
        if kustomization.labels.is_empty() && common.is_empty() {
            return Ok(());
        }
        for (at, label) in kustomization.labels.iter().enumerate() {
            let place = entry(&self.site, "labels", at);
            let mut specs = label.fields.clone();
            let merged = (|| {
                merge_specs(&mut specs, &self.config.labels)?;
                if label.include_selectors {
                    return merge_specs(&mut specs, &self.config.common_labels);
                }
                if label.include_templates {
                    merge_specs(&mut specs, &self.config.template_labels)
                        .context("failed to merge template fieldSpec")?;
                }
                if label.include_volume_claim_templates {
                    merge_specs(&mut specs, &self.config.volume_claim_template_labels)
                        .context("failed to merge volumeClaimTemplate fieldSpec")?;
                }
                merge_specs(&mut specs, &[FieldSpec::everywhere("metadata/labels", true)])
            })();
            merged.context("failed to merge labels").map_err(|error| error.at(place.place()))?;
            self.add(Labels { labels: label.pairs.clone(), field_specs: specs }, place);
        }
        // kustomize: with `labels` alone this step runs too, with nothing to do.
        let specs = self.config.common_labels.to_vec();
        self.add(Labels { labels: common, field_specs: specs }, self.field("commonLabels"));
        Ok(())
    }

    fn annotations(&mut self) {
        let annotations = &self.target.kustomization.common_annotations;
        if !annotations.is_empty() {
            let step = Annotations {
                annotations: annotations.clone(),
                field_specs: self.config.common_annotations.to_vec(),
            };
            self.add(step, self.field("commonAnnotations"));
        }
    }

    fn json_patches(&mut self) -> Result<()> {
        let patches = self.target.kustomization.patches_json6902.as_deref().unwrap_or_default();
        for (at, patch) in patches.iter().enumerate() {
            let place = entry(&self.site, "patchesJson6902", at);
            let config = Json6902Config {
                target: patch.target.clone(),
                path: patch.path.clone(),
                json_op: patch.patch.clone(),
            };
            let written = place.field("patch");
            let step = Json6902::load(&config, &self.site, written).map_err(|error| {
                let shown = patch_config(patch, "jsonOp");
                trouble(error, "PatchJson6902Transformer", shown, &place)
            })?;
            self.add(step, place);
        }
        Ok(())
    }

    fn replicas_and_images(&mut self) {
        let kustomization = &self.target.kustomization;
        for (at, replica) in kustomization.replicas.iter().enumerate() {
            let specs = self.config.replicas.to_vec();
            let step = Replicas { replica: replica.clone(), field_specs: specs };
            self.add(step, entry(&self.site, "replicas", at));
        }
        if !kustomization.images.is_empty() {
            let specs = self.config.images.to_vec();
            let digests = DigestAlgorithms::of(self.site.session.options.behavior);
            let step = Images::new(&kustomization.images, specs, digests);
            self.add(step, self.field("images"));
        }
    }

    fn replacements(&mut self) -> Result<()> {
        let replacements = &self.target.kustomization.replacements;
        if !replacements.is_empty() {
            let place = self.field("replacements");
            // An empty list counts as missing here, unlike in files that hold replacements.
            let mut replacements = replacements.clone();
            for replacement in &mut replacements {
                replacement.targets.take_if(|targets| targets.is_empty());
            }
            let step = Replacements::load(&replacements, &self.site, &place)
                .map_err(|error| error.at(place.place()))?;
            self.add(step, place);
        }
        Ok(())
    }
}

/// What kustomize says around an error in the configuration of a built-in step.
pub(crate) fn trouble(error: Error, kind: &str, shown: Map, at: &LazyLocation) -> Error {
    let shown = kiln_yaml::emit(&Value::Map(shown));
    error
        .context(format_args!("trouble configuring builtin {kind} with config: `\n{shown}`"))
        .at(at.place())
}

/// The entry of a patch as kustomize shows it.
fn patch_config(patch: &PatchEntry, text_field: &str) -> Map {
    let mut map = Map::new();
    put(&mut map, "path", &patch.path);
    put(&mut map, text_field, &patch.patch);
    if let Some(target) = &patch.target {
        map.insert("target", selector_config(target));
    }
    if let Some(options) = &patch.options {
        let mut inner = Map::new();
        for (key, on) in [
            ("allowNameChange", options.allow_name_change),
            ("allowKindChange", options.allow_kind_change),
        ] {
            if on {
                inner.insert(key, true);
            }
        }
        map.insert("options", inner);
    }
    map
}

fn selector_config(selector: &Selector) -> Map {
    let mut map = Map::new();
    put(&mut map, "group", &selector.group);
    put(&mut map, "version", &selector.version);
    put(&mut map, "kind", &selector.kind);
    put(&mut map, "name", &selector.name);
    put(&mut map, "namespace", &selector.namespace);
    put(&mut map, "annotationSelector", &selector.annotation_selector);
    put(&mut map, "labelSelector", &selector.label_selector);
    map
}

pub(crate) fn put(map: &mut Map, key: &str, text: &str) {
    if !text.is_empty() {
        map.insert(key, text);
    }
}
