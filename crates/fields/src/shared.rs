//! Parts that several kinds have.

use crate::{Field, FieldTable, any, one_of, string, string_map, strings, table, tables};

/// The metadata that Kiln reads of any object.
pub static METADATA: FieldTable = FieldTable::new(
    "Metadata",
    "As in every Kubernetes object; the fields that Kiln reads of a policy.",
    &[
        string("name", "Name of the object.").required().example("shop-defaults"),
        string("namespace", "Namespace, for kinds that have one.")
            .default("default")
            .example("shop"),
        string_map("labels", "Labels.").example("{team: shop}"),
        string_map("annotations", "Annotations.").example("{example.com/owner: shop}"),
    ],
);

pub static LABEL_SELECTOR: FieldTable = FieldTable::new(
    "Label selector",
    "All parts must hold. In Kyverno rules, keys and values may have the wildcards `*` and `?`.",
    &[
        string_map("matchLabels", "Labels that must be there with these values.")
            .example("{app: web}"),
        tables("matchExpressions", &LABEL_REQUIREMENT, "Requirements."),
    ],
);

/// A requirement of a label selector.
pub static LABEL_REQUIREMENT: FieldTable = FieldTable::new(
    "Label requirement",
    "An entry of `matchExpressions`.",
    &[
        string("key", "Key of the label.").required().example("tier"),
        one_of("operator", &["In", "NotIn", "Exists", "DoesNotExist"], "How to compare.")
            .required()
            .example("In"),
        strings("values", "Values for `In` and `NotIn`.").example("[front, back]"),
    ],
);

/// `apiVersion` of a document.
pub(crate) const fn api_version(example: &'static str) -> Field {
    string("apiVersion", "Group and version of the kind.").required().example(example)
}

/// `kind` of a document.
pub(crate) const fn kind(example: &'static str) -> Field {
    string("kind", "The kind.").required().example(example)
}

/// `metadata` of a policy.
pub(crate) const OBJECT_METADATA: Field =
    table("metadata", &METADATA, "Name, namespace, labels, annotations.").required();

/// `status` of a policy.
pub(crate) const STATUS: Field = any("status", "The engine writes it.").ignored();
