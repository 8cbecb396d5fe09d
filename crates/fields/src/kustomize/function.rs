//! Functions.

use crate::{FieldTable, boolean, one_of, string, strings, table, tables};

/// The annotation `config.kubernetes.io/function`.
pub static FUNCTION: FieldTable = FieldTable::new(
    "Function annotation",
    "YAML in the annotation `config.kubernetes.io/function` (or `config.k8s.io/function`) of a plugin's configuration.",
    &[
        boolean("deferFailure", "Whether a failure is reported and the build continues.")
            .default("false")
            .example("true"),
        table("exec", &EXEC, "A program (`--enable-exec`)."),
        table("container", &CONTAINER, "A container."),
    ],
);

/// `exec` of a function.
pub static EXEC: FieldTable = FieldTable::new(
    "Exec function",
    "A program.",
    &[
        string("path", "Path of the program, below the kustomization.").example("./label.sh"),
        strings("args", "Arguments.").example("[--verbose]"),
        strings("envs", "Environment variables, as `NAME=VALUE` or `NAME`.")
            .example("[MODE=strict]"),
    ],
);

/// `container` of a function.
pub static CONTAINER: FieldTable = FieldTable::new(
    "Container function",
    "A container.",
    &[
        string("image", "The image.").example("registry.example.com/label:v1"),
        boolean("network", "Whether it needs a network (`--network` must allow it).")
            .default("false")
            .example("true"),
        tables("mounts", &MOUNT, "Directories that it sees."),
        strings("envs", "Environment variables, as `NAME=VALUE` or `NAME`.")
            .example("[MODE=strict]"),
    ],
);

/// An element of `container.mounts`.
pub static MOUNT: FieldTable = FieldTable::new(
    "Mount",
    "A directory that a container sees.",
    &[
        one_of(
            "type",
            &["bind", "volume", "tmpfs"],
            "How it is mounted. Kiln allows `bind` below the kustomization, and `tmpfs`.",
        )
        .example("bind"),
        string("src", "Source.").example("./data"),
        string("dst", "Path in the container.").example("/data"),
        boolean("rw", "Whether the container may write.").default("false").example("true"),
    ],
);

/// The configuration of an exec plugin.
pub static EXEC_PLUGIN: FieldTable = FieldTable::new(
    "Exec plugin",
    "Any object whose kind has a program; these fields are for programs that do not read YAML.",
    &[
        string("argsOneLiner", "Arguments, separated by spaces.").example("--env prod"),
        string("argsFromFile", "A file with one argument per line.").example("args.txt"),
    ],
);
