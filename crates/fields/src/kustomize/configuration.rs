//! Files of `configurations`.

use crate::{Field, FieldTable, boolean, string, tables};

const fn specs(name: &'static str, doc: &'static str) -> Field {
    tables(name, &FIELD_SPEC, doc)
}

/// A file of `configurations`.
pub static CONFIGURATION: FieldTable = FieldTable::new(
    "Transformer configuration",
    "Fields that transformers change, added to kustomize's own.",
    &[
        specs("namePrefix", "Names that get the prefix."),
        specs("nameSuffix", "Names that get the suffix."),
        specs("namespace", "Namespaces."),
        specs("commonLabels", "Labels and selectors of `commonLabels`."),
        specs("labels", "Labels of `labels`."),
        specs("templateLabels", "Labels of templates."),
        specs("volumeClaimTemplateLabels", "Labels of volumeClaimTemplates."),
        specs("commonAnnotations", "Annotations."),
        tables(
            "nameReference",
            &NAME_REFERENCE,
            "Fields that name other objects, and follow when they are renamed.",
        ),
        specs("varReference", "Fields in which `$(NAME)` is replaced."),
        specs("images", "Fields that name images."),
        specs("replicas", "Numbers of replicas."),
    ],
);

/// An entry of `nameReference`.
pub static NAME_REFERENCE: FieldTable = FieldTable::new(
    "Name reference",
    "A kind, and the fields in which others name it.",
    &[
        string("group", "API group.").example("''"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").example("Secret"),
        specs("fieldSpecs", "Fields that name it."),
    ],
);

/// A field of some kinds.
pub static FIELD_SPEC: FieldTable = FieldTable::new(
    "Field spec",
    "A field of some kinds; empty parts fit all.",
    &[
        string("group", "API group.").example("apps"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").example("Deployment"),
        string("path", "Path with slashes; `[]` after a list.")
            .example("spec/template/spec/containers[]/image"),
        boolean("create", "Whether a missing field is created.").default("false").example("true"),
    ],
);
