//! The configuration of built-in plugins: objects of apiVersion `builtin`.
//!
//! Unknown fields have no effect, as in kustomize.

use super::{
    FIELD_SPEC, GENERATOR_OPTIONS, HELM_CHART, IMAGE, KUSTOMIZATION_METADATA, PATCH_OPTIONS,
    REPLACEMENT, REPLICA, SELECTOR,
};
use crate::{
    Field, FieldTable, boolean, integer, one_of, string, string_map, strings, table, tables,
};

const FIELD_SPECS: Field = tables("fieldSpecs", &FIELD_SPEC, "Fields to change.");

pub static ANNOTATIONS_TRANSFORMER: FieldTable = FieldTable::new(
    "AnnotationsTransformer",
    "Sets annotations.",
    &[string_map("annotations", "Annotations.").example("{team: shop}"), FIELD_SPECS],
);

pub static LABEL_TRANSFORMER: FieldTable = FieldTable::new(
    "LabelTransformer",
    "Sets labels.",
    &[string_map("labels", "Labels.").example("{app: shop}"), FIELD_SPECS],
);

pub static NAMESPACE_TRANSFORMER: FieldTable = FieldTable::new(
    "NamespaceTransformer",
    "Sets the namespace.",
    &[
        table("metadata", &KUSTOMIZATION_METADATA, "`metadata.namespace` is the namespace."),
        FIELD_SPECS,
        boolean("unsetOnly", "Whether objects with a namespace keep it.")
            .default("false")
            .example("true"),
        one_of(
            "setRoleBindingSubjects",
            &["allServiceAccounts", "defaultOnly", "none"],
            "Subjects of RoleBindings that follow.",
        )
        .default("defaultOnly")
        .example("allServiceAccounts"),
    ],
);

pub static PREFIX_SUFFIX_TRANSFORMER: FieldTable = FieldTable::new(
    "PrefixTransformer, SuffixTransformer, PrefixSuffixTransformer",
    "Put text before or after names.",
    &[
        string("prefix", "Text before names.").example("prod-"),
        string("suffix", "Text after names.").example("-v2"),
        FIELD_SPECS.default("metadata/name"),
    ],
);

pub static REPLICA_COUNT_TRANSFORMER: FieldTable = FieldTable::new(
    "ReplicaCountTransformer",
    "Sets a number of replicas.",
    &[table("replica", &REPLICA, "Name and number."), FIELD_SPECS],
);

pub static IMAGE_TAG_TRANSFORMER: FieldTable = FieldTable::new(
    "ImageTagTransformer",
    "Changes an image.",
    &[table("imageTag", &IMAGE, "The image."), FIELD_SPECS],
);

pub static PATCH_TRANSFORMER: FieldTable = FieldTable::new(
    "PatchTransformer",
    "An entry of `patches`.",
    &[
        string("path", "File with the patch.").example("patch.yaml"),
        string("patch", "The patch itself.").example("\"- {op: remove, path: /spec/replicas}\""),
        table("target", &SELECTOR, "Objects to patch."),
        table("options", &PATCH_OPTIONS, "What the patch may change."),
    ],
);

pub static PATCH_STRATEGIC_MERGE_TRANSFORMER: FieldTable = FieldTable::new(
    "PatchStrategicMergeTransformer",
    "Strategic merge patches.",
    &[
        strings("paths", "Files.").example("[patch.yaml]"),
        string("patches", "The patches themselves, as YAML documents.").example(
            "\"{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: NodePort}}\"",
        ),
    ],
);

/// A PatchJson6902Transformer.
pub static PATCH_JSON_TRANSFORMER: FieldTable = FieldTable::new(
    "PatchJson6902Transformer",
    "A JSON patch.",
    &[
        table("target", &SELECTOR, "The object."),
        string("path", "File with the operations.").example("patch.json"),
        string("jsonOp", "The operations themselves.")
            .example("\"[{op: remove, path: /spec/replicas}]\""),
    ],
);

pub static REPLACEMENT_TRANSFORMER: FieldTable = FieldTable::new(
    "ReplacementTransformer",
    "Copies values between fields.",
    &[tables("replacements", &REPLACEMENT, "Entries.")],
);

pub static VALUE_ADD_TRANSFORMER: FieldTable = FieldTable::new(
    "ValueAddTransformer",
    "Adds a value to fields.",
    &[
        string("value", "The value.")
            .default("the name of the kustomization's directory")
            .example("shop"),
        tables("targets", &VALUE_ADD_TARGET, "Fields.").required(),
        string("targetFilePath", "A file with further `targets`.").example("targets.yaml"),
    ],
);

/// An element of `targets` of a ValueAddTransformer.
pub static VALUE_ADD_TARGET: FieldTable = FieldTable::new(
    "Value target",
    "A field.",
    &[
        table("selector", &SELECTOR, "Objects."),
        string("fieldPath", "Path with slashes.").required().example("spec/path"),
        integer(
            "filePathPosition",
            "Which step of a file path gets the value; 0 replaces the whole field.",
        )
        .default("0")
        .example("2"),
    ],
);

/// A ConfigMapGenerator or SecretGenerator.
pub static CONFIG_MAP_GENERATOR: FieldTable = FieldTable::new(
    "ConfigMapGenerator and SecretGenerator",
    "Make a ConfigMap or a Secret.",
    &[
        string("namespace", "Namespace.").default("metadata.namespace").example("shop"),
        string("name", "Name.").default("metadata.name").example("settings"),
        one_of(
            "behavior",
            &["create", "merge", "replace"],
            "What to do with an object of that name from a base.",
        )
        .default("create")
        .example("merge"),
        strings("literals", "Keys and values.").example("[color=blue]"),
        strings("files", "Files, as `path` or `key=path`.").example("[app.conf]"),
        strings("envs", "Files with lines `key=value`.").example("[settings.env]"),
        string("env", "One such file.").example("settings.env").deprecated("envs"),
        table("options", &GENERATOR_OPTIONS, "Options."),
        string("type", "Type of a Secret.").default("Opaque").example("kubernetes.io/tls"),
    ],
);

/// A HelmChartInflationGenerator.
pub static HELM_CHART_GENERATOR: FieldTable = FieldTable::new(
    "HelmChartInflationGenerator",
    "Renders a chart: the fields of a Helm chart.",
    HELM_CHART.fields,
);

pub static IAM_POLICY_GENERATOR: FieldTable = FieldTable::new(
    "IAMPolicyGenerator",
    "Makes a ServiceAccount that is bound to one of a cloud.",
    &[
        one_of("cloud", &["gke"], "The cloud.").required().example("gke"),
        table("kubernetesService", &IAM_SERVICE, "The ServiceAccount in the cluster."),
        table("serviceAccount", &IAM_SERVICE_ACCOUNT, "The account of the cloud."),
    ],
);

/// `kubernetesService` of an IAMPolicyGenerator.
pub static IAM_SERVICE: FieldTable = FieldTable::new(
    "Kubernetes service account",
    "The ServiceAccount in the cluster.",
    &[
        string("name", "Name.").example("uploader"),
        string("namespace", "Namespace.").example("shop"),
    ],
);

/// `serviceAccount` of an IAMPolicyGenerator.
pub static IAM_SERVICE_ACCOUNT: FieldTable = FieldTable::new(
    "Cloud service account",
    "The account of the cloud.",
    &[
        string("name", "Name.").example("uploader"),
        string("projectId", "Project.").example("example-project"),
    ],
);
