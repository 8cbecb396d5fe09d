//! Policies in CEL that delete objects.

use crate::kyverno::MATCH_CONDITION;
use crate::policies::{MATCH_CONSTRAINTS, VARIABLES};
use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{Field, FieldTable, one_of, string, table, tables};

pub(crate) const SCHEDULE: Field = string(
    "schedule",
    "When, in UTC: minute, hour, day of the month, month and day of the week, or `@hourly`, `@daily`, `@weekly`, `@monthly`, `@yearly`, or `@every` and a duration.",
)
.required()
.example("\"*/15 * * * *\"");

pub(crate) const PROPAGATION: Field = one_of(
    "deletionPropagationPolicy",
    &["Foreground", "Background", "Orphan"],
    "What becomes of objects that a deleted one owns.",
)
.example("Foreground");

/// A DeletingPolicy or NamespacedDeletingPolicy.
pub static DELETING_POLICY: FieldTable = FieldTable::new(
    "DeletingPolicy",
    "Deletes objects on a schedule. A NamespacedDeletingPolicy deletes objects of its own namespace.",
    &[
        api_version("policies.kyverno.io/v1"),
        kind("DeletingPolicy"),
        OBJECT_METADATA,
        table("spec", &DELETING_SPEC, "What is deleted, and when.").required(),
        STATUS,
    ],
);

/// `spec` of a DeletingPolicy.
pub static DELETING_SPEC: FieldTable = FieldTable::new(
    "DeletingPolicy spec",
    "Objects that match, and for which all conditions are true, are deleted.",
    &[
        SCHEDULE,
        table(
            "matchConstraints",
            &MATCH_CONSTRAINTS,
            "Which objects. `operations` have no effect. An API server stores no policy without it.",
        ),
        VARIABLES,
        tables(
            "conditions",
            &MATCH_CONDITION,
            "What must be true of an object, which is `object`; at most 64. An object for which one fails is kept.",
        ),
        PROPAGATION,
    ],
);
