//! `configMapGenerator`, `secretGenerator` and their options.

use crate::{FieldTable, boolean, one_of, string, string_map, strings, table};

/// An entry of `configMapGenerator` or `secretGenerator`.
pub static GENERATOR_ARGS: FieldTable = FieldTable::new(
    "Generator",
    "An entry of `configMapGenerator` or `secretGenerator`.",
    &[
        string("namespace", "Namespace.").example("shop"),
        string("name", "Name, to which a hash of the content is added.")
            .required()
            .example("settings"),
        one_of(
            "behavior",
            &["create", "merge", "replace"],
            "What to do with an object of that name from a base.",
        )
        .default("create")
        .example("merge"),
        strings("literals", "Keys and values.").example("[color=blue]"),
        strings("files", "Files, as `path` or `key=path`.")
            .example("[app.conf, tls.crt=certs/tls.crt]"),
        strings("envs", "Files with lines `key=value`.").example("[settings.env]"),
        string("env", "One such file.").example("settings.env").deprecated("envs"),
        table("options", &GENERATOR_OPTIONS, "Options of this object, over those of the file."),
        string("type", "Type of a Secret.").default("Opaque").example("kubernetes.io/tls"),
    ],
);

/// `generatorOptions`, or `options` of a generator.
pub static GENERATOR_OPTIONS: FieldTable = FieldTable::new(
    "Generator options",
    "Options of generated objects.",
    &[
        string_map("labels", "Labels.").example("{app: shop}"),
        string_map("annotations", "Annotations.").example("{team: shop}"),
        boolean("disableNameSuffixHash", "Whether names get no hash.")
            .default("false")
            .example("true"),
        boolean("immutable", "Whether the object is immutable.").default("false").example("true"),
    ],
);
