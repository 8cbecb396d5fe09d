//! `replacements` and `vars`.

use super::SELECTOR;
use crate::{FieldTable, boolean, integer, one_of, string, strings, table, tables};

/// An entry of `replacements`.
pub static REPLACEMENT: FieldTable = FieldTable::new(
    "Replacement",
    "`source` or `sourceValue` with `targets`, or `path`.",
    &[
        table("source", &REPLACEMENT_SOURCE, "The field that is copied."),
        tables("targets", &REPLACEMENT_TARGET, "Fields that get the value."),
        string("sourceValue", "The value itself.").example("shop.example.com"),
        string("path", "A file with further entries.").example("replacements.yaml"),
    ],
);

/// `source` of a replacement.
pub static REPLACEMENT_SOURCE: FieldTable = FieldTable::new(
    "Replacement source",
    "Exactly one object.",
    &[
        string("group", "API group.").example("apps"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").example("ConfigMap"),
        string("name", "Name.").example("settings"),
        string("namespace", "Namespace.").example("shop"),
        string("fieldPath", "Path of the field, with dots.")
            .default("metadata.name")
            .example("data.host"),
        table("options", &FIELD_OPTIONS, "Which part of the value."),
    ],
);

/// An element of `targets` of a replacement.
pub static REPLACEMENT_TARGET: FieldTable = FieldTable::new(
    "Replacement target",
    "Objects and fields.",
    &[
        table("select", &SELECTOR, "Objects.").required(),
        tables("reject", &SELECTOR, "Objects that are left out."),
        strings("fieldPaths", "Paths of fields; `[name=web]` picks an element, `*` all.")
            .default("[metadata.name]")
            .example("[spec.template.spec.containers.*.env.0.value]"),
        table("options", &FIELD_OPTIONS, "Which part of the field."),
    ],
);

/// `options` of a source or a target.
pub static FIELD_OPTIONS: FieldTable = FieldTable::new(
    "Field options",
    "A part of a value.",
    &[
        string("delimiter", "Text at which the value is split.").example("/"),
        integer(
            "index",
            "Which part; in a target, -1 puts it first, and one past the end puts it last.",
        )
        .default("0")
        .example("1"),
        one_of(
            "encoding",
            &["base64"],
            "How the value is encoded. Kustomize reads the field and does nothing with it.",
        )
        .example("base64")
        .ignored(),
        boolean("create", "Whether a target's missing field is created.")
            .default("false")
            .example("true"),
    ],
);

/// An entry of `vars`.
pub static VAR: FieldTable = FieldTable::new(
    "Var",
    "An entry of `vars`.",
    &[
        string("name", "Name, used as `$(NAME)`.").required().example("HOST"),
        table("objref", &VAR_TARGET, "The object.").required(),
        table("fieldref", &FIELD_REF, "The field."),
    ],
);

/// `objref` of a var.
pub static VAR_TARGET: FieldTable = FieldTable::new(
    "Var object",
    "Exactly one object.",
    &[
        string("apiVersion", "apiVersion; or `group` and `version`.").example("v1"),
        string("group", "API group.").example("apps"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").example("Service"),
        string("name", "Name.").example("web"),
        string("namespace", "Namespace.").example("shop"),
    ],
);

/// `fieldref` of a var.
pub static FIELD_REF: FieldTable = FieldTable::new(
    "Var field",
    "The field.",
    &[string("fieldPath", "Path, with dots.").default("metadata.name").example("spec.clusterIP")],
);
