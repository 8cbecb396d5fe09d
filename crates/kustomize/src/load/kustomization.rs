//! The kustomization file as types.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use kiln_value::{Str, Value};

use crate::fields::field_spec::FieldSpec;
use crate::load::decode::record;
use crate::model::id::{Gvk, ResId};

/// The kind of a kustomization, and the apiVersion that goes with it.
pub(crate) const KUSTOMIZATION: &str = "Kustomization";
pub(crate) const KUSTOMIZATION_VERSION: &str = "kustomize.config.k8s.io/v1beta1";
/// The kind of a component, and the apiVersion that goes with it.
pub(crate) const COMPONENT: &str = "Component";
pub(crate) const COMPONENT_VERSION: &str = "kustomize.config.k8s.io/v1alpha1";

record! {
    /// Everything a kustomization file can hold.
    Kustomization = "Kustomization" {
        kind: String = "kind",
        api_version: String = "apiVersion",
        metadata: Option<ObjectMeta> = "metadata",
        openapi: Option<BTreeMap<String, String>> = "openapi",
        name_prefix: String = "namePrefix",
        name_suffix: String = "nameSuffix",
        namespace: String = "namespace",
        common_labels: Option<BTreeMap<String, String>> = "commonLabels",
        labels: Vec<Label> = "labels",
        common_annotations: BTreeMap<String, String> = "commonAnnotations",
        patches_strategic_merge: Option<Vec<String>> = "patchesStrategicMerge",
        patches_json6902: Option<Vec<Patch>> = "patchesJson6902",
        patches: Vec<Patch> = "patches",
        images: Vec<Image> = "images",
        image_tags: Option<Vec<Image>> = "imageTags",
        replacements: Vec<Replacement> = "replacements",
        replicas: Vec<Replica> = "replicas",
        vars: Option<Vec<Var>> = "vars",
        sort_options: Option<SortOptions> = "sortOptions",
        resources: Vec<String> = "resources",
        components: Vec<String> = "components",
        crds: Vec<String> = "crds",
        bases: Option<Vec<String>> = "bases",
        config_map_generator: Vec<GeneratorArgs> = "configMapGenerator",
        secret_generator: Vec<GeneratorArgs> = "secretGenerator",
        helm_globals: Option<HelmGlobals> = "helmGlobals",
        helm_charts: Vec<HelmChart> = "helmCharts",
        helm_chart_inflation_generator: Vec<HelmChartArgs> = "helmChartInflationGenerator",
        generator_options: Option<GeneratorOptions> = "generatorOptions",
        configurations: Vec<String> = "configurations",
        generators: Vec<String> = "generators",
        transformers: Vec<String> = "transformers",
        validators: Vec<String> = "validators",
        build_metadata: Vec<String> = "buildMetadata",
    }
}

record! {
    ObjectMeta = "ObjectMeta" {
        name: String = "name",
        namespace: String = "namespace",
        labels: BTreeMap<String, String> = "labels",
        annotations: BTreeMap<String, String> = "annotations",
    }
}

record! {
    /// One entry of `labels`.
    Label = "Label" {
        pairs: BTreeMap<String, String> = "pairs",
        include_selectors: bool = "includeSelectors",
        include_templates: bool = "includeTemplates",
        include_volume_claim_templates: bool = "includeVolumeClaimTemplates",
        fields: Vec<FieldSpec> = "fields",
    }
}

record! {
    /// One entry of `patches` or `patchesJson6902`.
    Patch = "Patch" {
        path: String = "path",
        patch: String = "patch",
        target: Option<Selector> = "target",
        options: Option<PatchOptions> = "options",
    }
}

record! {
    PatchOptions = "PatchArgs" {
        allow_name_change: bool = "allowNameChange",
        allow_kind_change: bool = "allowKindChange",
    }
}

record! {
    /// Which objects are meant; texts are regular expressions where the field says so.
    Selector = "Selector" {
        group: Str = "group",
        version: Str = "version",
        kind: Str = "kind",
        name: Str = "name",
        namespace: Str = "namespace",
        annotation_selector: String = "annotationSelector",
        label_selector: String = "labelSelector",
    }
}

impl Selector {
    /// The part that is an id.
    pub(crate) fn id(&self) -> ResId {
        ResId {
            gvk: Gvk {
                group: self.group.clone(),
                version: self.version.clone(),
                kind: self.kind.clone(),
            },
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            cluster_scoped: false,
        }
    }
}

record! {
    Image = "Image" {
        name: String = "name",
        new_name: String = "newName",
        tag_suffix: String = "tagSuffix",
        new_tag: String = "newTag",
        digest: String = "digest",
    }
}

record! {
    Replica = "Replica" {
        name: String = "name",
        count: i64 = "count",
    }
}

record! {
    /// One entry of `replacements`; `path` names a file with further entries.
    Replacement = "ReplacementField" {
        source: Option<ReplacementSource> = "source",
        targets: Option<Vec<ReplacementTarget>> = "targets",
        source_value: Option<String> = "sourceValue",
        path: String = "path",
    }
}

record! {
    ReplacementSource = "SourceSelector" {
        group: Str = "group",
        version: Str = "version",
        kind: Str = "kind",
        name: Str = "name",
        namespace: Str = "namespace",
        field_path: String = "fieldPath",
        options: Option<FieldOptions> = "options",
    }
}

impl ReplacementSource {
    /// The id of the object, empty parts fit anything.
    pub(crate) fn id(&self) -> ResId {
        ResId {
            gvk: Gvk {
                group: self.group.clone(),
                version: self.version.clone(),
                kind: self.kind.clone(),
            },
            name: self.name.clone(),
            namespace: self.namespace.clone(),
            cluster_scoped: false,
        }
    }
}

record! {
    ReplacementTarget = "TargetSelector" {
        select: Option<Selector> = "select",
        reject: Vec<Selector> = "reject",
        field_paths: Vec<String> = "fieldPaths",
        options: Option<FieldOptions> = "options",
    }
}

record! {
    FieldOptions = "FieldOptions" {
        delimiter: String = "delimiter",
        index: i64 = "index",
        encoding: String = "encoding",
        create: bool = "create",
    }
}

record! {
    Var = "Var" {
        name: String = "name",
        objref: VarTarget = "objref",
        fieldref: FieldSelector = "fieldref",
    }
}

record! {
    VarTarget = "Target" {
        api_version: String = "apiVersion",
        group: Str = "group",
        version: Str = "version",
        kind: Str = "kind",
        name: Str = "name",
        namespace: Str = "namespace",
    }
}

record! {
    FieldSelector = "FieldSelector" {
        field_path: String = "fieldPath",
    }
}

record! {
    SortOptions = "SortOptions" {
        order: String = "order",
        legacy_sort_options: Option<LegacySortOptions> = "legacySortOptions",
    }
}

record! {
    LegacySortOptions = "LegacySortOptions" {
        order_first: Vec<String> = "orderFirst",
        order_last: Vec<String> = "orderLast",
    }
}

record! {
    /// One entry of `configMapGenerator` or `secretGenerator`.
    GeneratorArgs = "GeneratorArgs" {
        namespace: String = "namespace",
        name: String = "name",
        behavior: String = "behavior",
        literals: Vec<String> = "literals",
        files: Vec<String> = "files",
        envs: Vec<String> = "envs",
        env: String = "env",
        options: Option<GeneratorOptions> = "options",
        secret_type: String = "type",
    }
}

record! {
    GeneratorOptions = "GeneratorOptions" {
        labels: BTreeMap<String, String> = "labels",
        annotations: BTreeMap<String, String> = "annotations",
        disable_name_suffix_hash: bool = "disableNameSuffixHash",
        immutable: bool = "immutable",
    }
}

impl GeneratorOptions {
    /// The options of one entry over the options of the file: the entry's own labels and
    /// annotations win, what either switches on is on.
    pub(crate) fn merged(own: Option<&Self>, global: Option<&Self>) -> Self {
        let mut merged = own.cloned().unwrap_or_default();
        if let Some(global) = global {
            let add = |into: &mut BTreeMap<String, String>, from: &BTreeMap<String, String>| {
                for (key, value) in from {
                    into.entry(key.clone()).or_insert_with(|| value.clone());
                }
            };
            add(&mut merged.labels, &global.labels);
            add(&mut merged.annotations, &global.annotations);
            merged.disable_name_suffix_hash |= global.disable_name_suffix_hash;
            merged.immutable |= global.immutable;
        }
        merged
    }
}

record! {
    HelmGlobals = "HelmGlobals" {
        chart_home: String = "chartHome",
        config_home: String = "configHome",
    }
}

record! {
    HelmChart = "HelmChart" {
        name: String = "name",
        version: String = "version",
        repo: String = "repo",
        release_name: String = "releaseName",
        namespace: String = "namespace",
        additional_values_files: Vec<String> = "additionalValuesFiles",
        values_file: String = "valuesFile",
        values_inline: Value = "valuesInline",
        values_merge: String = "valuesMerge",
        include_crds: bool = "includeCRDs",
        skip_hooks: bool = "skipHooks",
        api_versions: Vec<String> = "apiVersions",
        kube_version: String = "kubeVersion",
        name_template: String = "nameTemplate",
        skip_tests: bool = "skipTests",
        debug: bool = "debug",
        devel: bool = "devel",
        chart_home: String = "chartHome",
        config_home: String = "configHome",
    }
}

record! {
    /// `generate` of a `Chart` resource.
    ChartArguments = "Chart" {
        chart: String = "chart",
        values: Value = "values",
        release_name: String = "releaseName",
        namespace: String = "namespace",
        include_crds: bool = "includeCRDs",
        skip_hooks: bool = "skipHooks",
        skip_tests: bool = "skipTests",
    }
}

record! {
    /// The old form of a chart.
    HelmChartArgs = "HelmChartArgs" {
        chart_name: String = "chartName",
        chart_version: String = "chartVersion",
        chart_repo_url: String = "chartRepoUrl",
        chart_home: String = "chartHome",
        chart_repo_name: String = "chartRepoName",
        helm_bin: String = "helmBin",
        helm_home: String = "helmHome",
        values: String = "values",
        values_local: Value = "valuesLocal",
        values_merge: String = "valuesMerge",
        release_name: String = "releaseName",
        release_namespace: String = "releaseNamespace",
        extra_args: Vec<String> = "extraArgs",
    }
}

impl Kustomization {
    /// One line for each old field that is there, in the order kustomize warns.
    pub(crate) fn deprecations(&self) -> Vec<(&'static str, String)> {
        let fields = [
            (self.bases.is_some(), "bases", "resources", ""),
            (self.common_labels.is_some(), "commonLabels", "labels", ""),
            (self.image_tags.is_some(), "imageTags", "images", ""),
            (self.patches_json6902.is_some(), "patchesJson6902", "patches", ""),
            (self.patches_strategic_merge.is_some(), "patchesStrategicMerge", "patches", ""),
            (self.vars.is_some(), "vars", "replacements", "[EXPERIMENTAL] "),
        ];
        fields
            .into_iter()
            .filter(|(there, ..)| *there)
            .map(|(_, old, new, note)| {
                (old, format!(
                    "'{old}' is deprecated. Please use '{new}' instead. {note}Run 'kustomize edit fix' to update your Kustomization automatically."
                ))
            })
            .collect()
    }

    /// Moves old fields to their successors and fills in kind and apiVersion.
    pub(crate) fn fix(&mut self) {
        if self.kind.is_empty() {
            KUSTOMIZATION.clone_into(&mut self.kind);
        }
        if self.api_version.is_empty() {
            let version =
                if self.kind == COMPONENT { COMPONENT_VERSION } else { KUSTOMIZATION_VERSION };
            version.clone_into(&mut self.api_version);
        }
        self.resources.extend(self.bases.take().unwrap_or_default());
        self.images.extend(self.image_tags.take().unwrap_or_default());
        for generator in self.config_map_generator.iter_mut().chain(&mut self.secret_generator) {
            if !generator.env.is_empty() {
                generator.envs.push(std::mem::take(&mut generator.env));
            }
        }
        let mut globals = HelmGlobals::default();
        for old in std::mem::take(&mut self.helm_chart_inflation_generator) {
            if !old.helm_home.is_empty() {
                globals.config_home = old.helm_home;
            }
            if !old.chart_home.is_empty() {
                globals.chart_home = old.chart_home;
            }
            self.helm_charts.push(HelmChart {
                name: old.chart_name,
                version: old.chart_version,
                repo: old.chart_repo_url,
                values_file: old.values,
                values_inline: old.values_local,
                values_merge: old.values_merge,
                release_name: old.release_name,
                ..HelmChart::default()
            });
        }
        let any_global = !globals.chart_home.is_empty() || !globals.config_home.is_empty();
        if self.helm_globals.is_none() && any_global {
            self.helm_globals = Some(globals);
        }
    }

    /// What is wrong with kind and apiVersion.
    pub(crate) fn type_problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.kind != KUSTOMIZATION && self.kind != COMPONENT {
            problems.push(format!("kind should be {KUSTOMIZATION} or {COMPONENT}"));
        }
        let version =
            if self.kind == COMPONENT { COMPONENT_VERSION } else { KUSTOMIZATION_VERSION };
        if self.api_version != version {
            problems.push(format!("apiVersion for {} should be {version}", self.kind));
        }
        problems
    }
}
