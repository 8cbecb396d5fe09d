//! ModRule.

use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{
    DocumentKind, Field, FieldTable, FieldType, boolean, integer, list, one_of, string, strings,
    table, tables,
};

/// Kinds of `api.kubemod.io`.
pub const KINDS: &[DocumentKind] = &[DocumentKind {
    name: "ModRule",
    api_versions: &["api.kubemod.io/v1beta1"],
    original: "KubeMod",
    summary: "Patches or rejects objects at admission.",
    table: &MOD_RULE,
}];

pub static MOD_RULE: FieldTable = FieldTable::new(
    "ModRule",
    "A rule of its own namespace; in `kubemod-system`, for cluster-scoped objects or other namespaces.",
    &[
        api_version("api.kubemod.io/v1beta1"),
        kind("ModRule"),
        OBJECT_METADATA,
        table("spec", &SPEC, "The rule.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a ModRule.
pub static SPEC: FieldTable = FieldTable::new(
    "ModRule spec",
    "What to match, and what to do.",
    &[
        one_of("type", &["Patch", "Reject"], "Whether the rule changes objects or rejects them.")
            .required()
            .example("Patch"),
        tables("match", &MATCH_ITEM, "Items that must all match.").required(),
        tables("matches", &MATCH_ITEM, "A common misspelling, read with a warning.")
            .only_kiln()
            .deprecated("match"),
        tables("patch", &PATCH_ITEM, "Operations of a Patch rule, in order."),
        Field::new(
            "rejectMessage",
            FieldType::Expression("Go template"),
            "What a Reject rule says.",
        )
        .example("\"{{ .Target.metadata.name }} runs as root\""),
        string(
            "targetNamespaceRegex",
            "Namespaces that a rule of `kubemod-system` acts on, as a regular expression of Go.",
        )
        .example("^team-"),
        integer("executionTier", "Rules of lower tiers run first; -32767 to 32766.")
            .default("0")
            .example("10"),
        list(
            "admissionOperations",
            &FieldType::Enum(&["CREATE", "UPDATE", "DELETE"]),
            "Operations that the rule acts on.",
        )
        .default("[CREATE, UPDATE]")
        .example("[CREATE]"),
    ],
);

/// An item of `match`.
pub static MATCH_ITEM: FieldTable = FieldTable::new(
    "Match item",
    "Values of the object, and a test of them. Of several tests, the first of `matchValue`, `matchValues`, `matchRegex` counts.",
    &[
        Field::new(
            "select",
            FieldType::Expression("JSONPath"),
            "A path, or an expression of which the item asks whether it is true.",
        )
        .required()
        .example("$.spec.containers[*].image"),
        one_of("matchFor", &["Any", "All"], "How many of the values must pass.")
            .default("Any")
            .example("All"),
        Field::new(
            "matchValue",
            FieldType::Either(&[FieldType::String, FieldType::Boolean, FieldType::Integer]),
            "The value; numbers and booleans are compared as text.",
        )
        .example("Deployment"),
        strings("matchValues", "Values of which one must be equal.")
            .example("[Deployment, StatefulSet]"),
        string("matchRegex", "A regular expression of Go.").example("'^nginx:'"),
        boolean("negate", "Whether the opposite must hold.").default("false").example("true"),
        Field::new("query", FieldType::Expression("JSONPath"), "Until KubeMod 0.6.")
            .example("$.kind")
            .only_kiln()
            .deprecated("select"),
        string("value", "Until KubeMod 0.6.").example("Pod").only_kiln().deprecated("matchValue"),
        strings("values", "Until KubeMod 0.6.")
            .example("[Pod]")
            .only_kiln()
            .deprecated("matchValues"),
        string("regex", "Until KubeMod 0.6.")
            .example("'^nginx:'")
            .only_kiln()
            .deprecated("matchRegex"),
        boolean("negative", "Until KubeMod 0.6.").example("true").only_kiln().deprecated("negate"),
    ],
);

/// An item of `patch`.
pub static PATCH_ITEM: FieldTable = FieldTable::new(
    "Patch item",
    "An operation of RFC 6902. KubeMod has `add`, `replace` and `remove`.",
    &[
        one_of("op", &["add", "replace", "remove", "test", "move", "copy"], "The operation.").required().example("add"),
        Field::new("select", FieldType::Expression("JSONPath"), "A path; the operation is repeated for each match.")
            .example("$.spec.containers[*].image"),
        string("path", "A JSON pointer; `#0` is the first key that `select` captured, `-1` or `-` the end of a list.")
            .required()
            .example("/spec/containers/#0/imagePullPolicy"),
        string("from", "A JSON pointer, for `move` and `copy`.").example("/metadata/labels/old").only_kiln(),
        Field::new(
            "value",
            FieldType::Either(&[FieldType::Expression("Go template"), FieldType::Any]),
            "The value, a template that writes YAML.",
        )
        .example("Always"),
    ],
);
