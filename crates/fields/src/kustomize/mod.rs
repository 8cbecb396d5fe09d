//! Kustomization, Component, and the files that they name.

mod builtin;
mod configuration;
mod function;
mod generators;
mod helm;
mod patches;
mod replacements;

pub use builtin::{
    ANNOTATIONS_TRANSFORMER, CONFIG_MAP_GENERATOR, HELM_CHART_GENERATOR, IAM_POLICY_GENERATOR,
    IAM_SERVICE, IAM_SERVICE_ACCOUNT, IMAGE_TAG_TRANSFORMER, LABEL_TRANSFORMER,
    NAMESPACE_TRANSFORMER, PATCH_JSON_TRANSFORMER, PATCH_STRATEGIC_MERGE_TRANSFORMER,
    PATCH_TRANSFORMER, PREFIX_SUFFIX_TRANSFORMER, REPLACEMENT_TRANSFORMER,
    REPLICA_COUNT_TRANSFORMER, VALUE_ADD_TARGET, VALUE_ADD_TRANSFORMER,
};
pub use configuration::{CONFIGURATION, FIELD_SPEC, NAME_REFERENCE};
pub use function::{CONTAINER, EXEC, EXEC_PLUGIN, FUNCTION, MOUNT};
pub use generators::{GENERATOR_ARGS, GENERATOR_OPTIONS};
pub use helm::{
    CHART_RESOURCE, CHART_RESOURCE_ARGUMENTS, HELM_CHART, HELM_CHART_ARGS, HELM_GLOBALS,
};
pub use patches::{IMAGE, LABEL, PATCH, PATCH_OPTIONS, REPLICA, SELECTOR};
pub use replacements::{
    FIELD_OPTIONS, FIELD_REF, REPLACEMENT, REPLACEMENT_SOURCE, REPLACEMENT_TARGET, VAR, VAR_TARGET,
};

use crate::{DocumentKind, FieldTable, one_of, string, string_map, strings, table, tables};

const VERSION: &[&str] = &["kustomize.config.k8s.io/v1beta1"];
const BUILTIN: &[&str] = &["builtin"];

/// Kustomization and Component, files that they name, and the configuration of built-in plugins.
pub const KINDS: &[DocumentKind] = &[
    DocumentKind {
        name: "Kustomization",
        api_versions: VERSION,
        original: "kustomize",
        summary: "What `kiln build` builds.",
        table: &KUSTOMIZATION,
    },
    DocumentKind {
        name: "Component",
        api_versions: &["kustomize.config.k8s.io/v1alpha1"],
        original: "kustomize",
        summary: "A part that kustomizations share.",
        table: &KUSTOMIZATION,
    },
    DocumentKind {
        name: "a file of `configurations`",
        api_versions: &[],
        original: "kustomize",
        summary: "Which fields transformers change.",
        table: &CONFIGURATION,
    },
    DocumentKind {
        name: "the annotation `config.kubernetes.io/function`",
        api_versions: &[],
        original: "kustomize",
        summary: "Makes an object the configuration of a function.",
        table: &FUNCTION,
    },
    DocumentKind {
        name: "the configuration of an exec plugin",
        api_versions: &[],
        original: "kustomize",
        summary: "Arguments of a program.",
        table: &EXEC_PLUGIN,
    },
    DocumentKind {
        name: "Chart",
        api_versions: &["helm.kustomize.io/v1beta1"],
        original: "KEP-993",
        summary: "A chart as a generator.",
        table: &CHART_RESOURCE,
    },
    builtin("AnnotationsTransformer", "Sets annotations.", &ANNOTATIONS_TRANSFORMER),
    builtin("ConfigMapGenerator", "Makes a ConfigMap.", &CONFIG_MAP_GENERATOR),
    builtin("HelmChartInflationGenerator", "Renders a chart.", &HELM_CHART_GENERATOR),
    builtin("IAMPolicyGenerator", "Makes a ServiceAccount of a cloud.", &IAM_POLICY_GENERATOR),
    builtin("ImageTagTransformer", "Changes images.", &IMAGE_TAG_TRANSFORMER),
    builtin("LabelTransformer", "Sets labels.", &LABEL_TRANSFORMER),
    builtin("NamespaceTransformer", "Sets the namespace.", &NAMESPACE_TRANSFORMER),
    builtin("PatchJson6902Transformer", "Applies a JSON patch.", &PATCH_JSON_TRANSFORMER),
    builtin(
        "PatchStrategicMergeTransformer",
        "Applies strategic merge patches.",
        &PATCH_STRATEGIC_MERGE_TRANSFORMER,
    ),
    builtin("PatchTransformer", "Applies a patch of either kind.", &PATCH_TRANSFORMER),
    builtin("PrefixTransformer", "Puts text before names.", &PREFIX_SUFFIX_TRANSFORMER),
    builtin("SuffixTransformer", "Puts text after names.", &PREFIX_SUFFIX_TRANSFORMER),
    builtin("PrefixSuffixTransformer", "Both.", &PREFIX_SUFFIX_TRANSFORMER),
    builtin("ReplacementTransformer", "Copies values between fields.", &REPLACEMENT_TRANSFORMER),
    builtin("ReplicaCountTransformer", "Sets a number of replicas.", &REPLICA_COUNT_TRANSFORMER),
    builtin("SecretGenerator", "Makes a Secret.", &CONFIG_MAP_GENERATOR),
    builtin("ValueAddTransformer", "Adds a value to fields.", &VALUE_ADD_TRANSFORMER),
    builtin("HashTransformer", "Adds hashes to names. It has no fields.", &HASH_TRANSFORMER),
];

const fn builtin(
    name: &'static str,
    summary: &'static str,
    table: &'static FieldTable,
) -> DocumentKind {
    DocumentKind { name, api_versions: BUILTIN, original: "kustomize", summary, table }
}

/// A HashTransformer, which has no fields.
pub static HASH_TRANSFORMER: FieldTable = FieldTable::new(
    "HashTransformer",
    "Adds the hash of the content to names that need one. No fields.",
    &[],
);

/// A kustomization file.
pub static KUSTOMIZATION: FieldTable = FieldTable::new(
    "Kustomization and Component",
    "The files `kustomization.yaml`, `kustomization.yml` and `Kustomization`. Names are read in any letter case, as Go does.",
    &[
        one_of("kind", &["Kustomization", "Component"], "The kind.")
            .default("Kustomization")
            .example("Kustomization"),
        string("apiVersion", "The version that belongs to the kind.")
            .default("kustomize.config.k8s.io/v1beta1")
            .example("kustomize.config.k8s.io/v1beta1"),
        table(
            "metadata",
            &KUSTOMIZATION_METADATA,
            "Name, labels, annotations of the kustomization itself.",
        )
        .ignored(),
        string_map(
            "openapi",
            "`path`: a schema in OpenAPI, with merge keys; `version`: kustomize's own.",
        )
        .example("{path: schema.json}"),
        string("namePrefix", "Text before the names of all objects.").example("prod-"),
        string("nameSuffix", "Text after the names of all objects.").example("-v2"),
        string("namespace", "Namespace of all objects that have one.").example("shop"),
        string_map("commonLabels", "Labels of objects, templates and selectors.")
            .example("{app: shop}")
            .deprecated("labels"),
        tables("labels", &LABEL, "Labels, with a choice of fields."),
        string_map("commonAnnotations", "Annotations of objects and templates.")
            .example("{team: shop}"),
        strings("patchesStrategicMerge", "Strategic merge patches: files or YAML.")
            .example("[patch.yaml]")
            .deprecated("patches"),
        tables("patchesJson6902", &PATCH, "JSON patches.").deprecated("patches"),
        tables("patches", &PATCH, "Patches of either kind, in order."),
        tables("images", &IMAGE, "New names, tags and digests of images."),
        tables("imageTags", &IMAGE, "The old name of `images`.").deprecated("images"),
        tables("replacements", &REPLACEMENT, "Values copied from one field to others."),
        tables("replicas", &REPLICA, "Numbers of replicas."),
        tables("vars", &VAR, "Values that `$(NAME)` stands for.").deprecated("replacements"),
        table("sortOptions", &SORT_OPTIONS, "Order of the output."),
        strings(
            "resources",
            "Files, directories with kustomizations, and addresses, which `--offline` rejects.",
        )
        .example("[deployment.yaml, ../base]"),
        strings("components", "Directories with Components.").example("[../components/tls]"),
        strings(
            "crds",
            "Files that describe fields of custom resources which hold names and labels.",
        )
        .example("[crd.json]"),
        strings("bases", "Directories with kustomizations.")
            .example("[../base]")
            .deprecated("resources"),
        tables("configMapGenerator", &GENERATOR_ARGS, "ConfigMaps to make."),
        tables("secretGenerator", &GENERATOR_ARGS, "Secrets to make."),
        table("helmGlobals", &HELM_GLOBALS, "Settings of all charts."),
        tables("helmCharts", &HELM_CHART, "Charts to render with `helm` (`--enable-helm`)."),
        tables("helmChartInflationGenerator", &HELM_CHART_ARGS, "The old form of `helmCharts`.")
            .deprecated("helmCharts"),
        table(
            "generatorOptions",
            &GENERATOR_OPTIONS,
            "Options of all generated ConfigMaps and Secrets.",
        ),
        strings("configurations", "Files that say which fields transformers change.")
            .example("[config.yaml]"),
        strings("generators", "Configuration of generators: files, directories or YAML.")
            .example("[generator.yaml]"),
        strings("transformers", "Configuration of transformers, which run last.")
            .example("[transformer.yaml]"),
        strings("validators", "Transformers that must not change anything.")
            .example("[validator.yaml]"),
        strings(
            "buildMetadata",
            "What the output says about how it was built: `managedByLabel`, `originAnnotations`, `transformerAnnotations`. Other words have no effect.",
        )
        .example("[originAnnotations]"),
    ],
);

/// `metadata` of a kustomization, or of the configuration of a plugin.
pub static KUSTOMIZATION_METADATA: FieldTable = FieldTable::new(
    "Kustomization metadata",
    "Of a kustomization, without effect. Of a built-in plugin, the name and namespace that it uses.",
    &[
        string("name", "Name.").example("shop"),
        string("namespace", "Namespace.").example("shop"),
        string_map("labels", "Labels.").example("{app: shop}"),
        string_map("annotations", "Annotations.").example("{team: shop}"),
    ],
);

/// `sortOptions`.
pub static SORT_OPTIONS: FieldTable = FieldTable::new(
    "Sort options",
    "Order of the output.",
    &[
        one_of("order", &["legacy", "fifo"], "By kind, or as the objects come.")
            .default("fifo")
            .example("legacy"),
        table("legacySortOptions", &LEGACY_SORT_OPTIONS, "Order of kinds, for `legacy`."),
    ],
);

/// `sortOptions.legacySortOptions`.
pub static LEGACY_SORT_OPTIONS: FieldTable = FieldTable::new(
    "Legacy sort options",
    "Order of kinds.",
    &[
        strings("orderFirst", "Kinds that come first.")
            .default("kustomize's list")
            .example("[Namespace]"),
        strings("orderLast", "Kinds that come last.")
            .default("kustomize's list")
            .example("[ValidatingWebhookConfiguration]"),
    ],
);
