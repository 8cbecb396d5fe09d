//! `mutate`.

use super::{CONTEXT_ENTRY, conditions};
use crate::shared::LABEL_SELECTOR;
use crate::{Field, FieldTable, FieldType, any, boolean, one_of, string, table, tables};

const STRATEGIC: Field = any(
    "patchStrategicMerge",
    "A strategic merge patch, with anchors such as `(name)` and `+(key)`.",
)
.example("{metadata: {labels: {+(team): none}}}");
const JSON: Field =
    Field::new("patchesJson6902", FieldType::String, "JSON patch operations, in YAML or JSON.")
        .example("\"[{op: add, path: /metadata/labels/team, value: none}]\"");
// A function, because a loop holds loops.
const fn loops() -> Field {
    tables("foreach", &MUTATE_FOREACH, "Patches for each element of lists.")
}

/// A `mutate` block.
pub static MUTATE: FieldTable = FieldTable::new(
    "Mutate",
    "One of `patchStrategicMerge`, `patchesJson6902` and `foreach`. All text may have variables (`{{ }}`).",
    &[
        boolean(
            "mutateExistingOnPolicyUpdate",
            "Whether storing the policy changes the targets, too. Needs `targets`.",
        )
        .default("false")
        .example("true"),
        tables(
            "targets",
            &MUTATE_TARGET,
            "Stored objects to change, in place of the object of the request.",
        ),
        STRATEGIC,
        JSON,
        loops(),
    ],
);

/// An element of `mutate.foreach`.
pub static MUTATE_FOREACH: FieldTable = FieldTable::new(
    "Mutate foreach",
    "For each element of a list, with `element` and `elementIndex`; at most 8 levels.",
    &[
        Field::new("list", FieldType::Expression("JMESPath"), "The list, bare or as one variable.")
            .required()
            .example("request.object.spec.containers"),
        one_of("order", &["Ascending", "Descending"], "Where to start.")
            .default("Descending for patchStrategicMerge, otherwise Ascending")
            .example("Descending"),
        tables("context", &CONTEXT_ENTRY, "Values for each element."),
        conditions(
            "preconditions",
            "What must hold of an element; `any` or `all`, not a bare list.",
        ),
        STRATEGIC,
        JSON,
        loops(),
    ],
);

/// An element of `mutate.targets`.
pub static MUTATE_TARGET: FieldTable = FieldTable::new(
    "Mutate target",
    "Stored objects; expressions know each as `target`.",
    &[
        string("apiVersion", "apiVersion. Wildcards.").example("apps/v1"),
        string("kind", "Kind. Wildcards.").required().example("Deployment"),
        string("name", "Name. Wildcards; without it, all.").example("web-*"),
        string(
            "namespace",
            "Namespace. Wildcards; without it, all; in a Policy, the policy's own.",
        )
        .example("'{{ request.namespace }}'"),
        string("uid", "As in Kyverno, where it has no effect either.").example("''").ignored(),
        table("selector", &LABEL_SELECTOR, "Labels of the targets."),
        tables("context", &CONTEXT_ENTRY, "Values for each target."),
        conditions("preconditions", "What must hold of a target."),
    ],
);
