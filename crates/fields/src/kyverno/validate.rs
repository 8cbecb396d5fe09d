//! `validate`.

use super::{CONTEXT_ENTRY, conditions};
use crate::shared::LABEL_SELECTOR;
use crate::validating::{CEL_RULE, POD_SECURITY};
use crate::{
    Field, FieldTable, FieldType, any, boolean, list, one_of, string, strings, table, tables,
};

const PATTERN: Field =
    any("pattern", "An object, described by example, with anchors and operators.")
        .example("{spec: {=(hostNetwork): false}}");
const ANY_PATTERN: Field =
    list("anyPattern", &FieldType::Any, "Patterns of which one must be met.")
        .example("[{spec: {hostNetwork: false}}, {metadata: {labels: {host: allowed}}}]");
const DENIED: Field = table("deny", &DENY, "Conditions that must not hold.");
// A function, because a loop holds loops.
const fn loops() -> Field {
    tables("foreach", &VALIDATE_FOREACH, "Checks for each element of lists.")
}

/// A `validate` block.
pub static VALIDATE: FieldTable = FieldTable::new(
    "Validate",
    "One of `pattern`, `anyPattern`, `deny`, `foreach`, `podSecurity` and `cel`.",
    &[
        one_of("failureAction", &["Audit", "Enforce"], "What becomes of an object that fails.")
            .default("spec.validationFailureAction")
            .example("Enforce"),
        tables("failureActionOverrides", &ACTION_OVERRIDE, "The same by namespace."),
        boolean(
            "allowExistingViolations",
            "Whether an update is let through if the object failed before it, too.",
        )
        .default("true")
        .example("false"),
        string("message", "What to say of an object that fails. May have variables.")
            .example("Memory limits are required."),
        PATTERN,
        ANY_PATTERN,
        DENIED,
        loops(),
        table("podSecurity", &POD_SECURITY, "A level of the Pod Security Standards.")
            .example("{level: baseline, version: latest}"),
        table("cel", &CEL_RULE, "Expressions in CEL that must be true.")
            .example("{expressions: [{expression: object.spec.replicas < 10}]}"),
        any("manifests", "Signatures of manifests.").example("{attestors: []}").not_run(),
        any("assert", "Removed in Kyverno 1.19.").example("{}").rejected(),
    ],
);

/// An element of `validate.foreach`.
pub static VALIDATE_FOREACH: FieldTable = FieldTable::new(
    "Validate foreach",
    "For each element of a list, with `element` and `elementIndex`; at most 8 levels.",
    &[
        Field::new("list", FieldType::Expression("JMESPath"), "The list, bare or as one variable.")
            .required()
            .example("request.object.spec.containers"),
        boolean("elementScope", "Whether patterns look at the element, or at the whole object.")
            .default("true for maps")
            .example("false"),
        tables("context", &CONTEXT_ENTRY, "Values for each element."),
        conditions(
            "preconditions",
            "What must hold of an element; `any` or `all`, not a bare list.",
        ),
        PATTERN,
        ANY_PATTERN,
        DENIED,
        loops(),
    ],
);

/// `deny`.
pub static DENY: FieldTable = FieldTable::new(
    "Deny",
    "Without conditions, every object fails.",
    &[conditions("conditions", "An object for which they hold fails.")],
);

/// An element of `failureActionOverrides`.
pub static ACTION_OVERRIDE: FieldTable = FieldTable::new(
    "Failure action override",
    "The first that means the namespace of an object decides.",
    &[
        one_of("action", &["audit", "enforce", "Audit", "Enforce"], "What becomes of the object.")
            .required()
            .example("Enforce"),
        strings("namespaces", "Namespaces. Wildcards.").example("[prod-*]"),
        table("namespaceSelector", &LABEL_SELECTOR, "Labels of the namespaces."),
    ],
);
