//! CleanupPolicy and ClusterCleanupPolicy.

use super::{CONDITIONS, CONTEXT_ENTRY, FILTER};
use crate::deleting::{PROPAGATION, SCHEDULE};
use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{FieldTable, table, tables};

/// A CleanupPolicy or ClusterCleanupPolicy.
pub static CLEANUP_POLICY: FieldTable = FieldTable::new(
    "CleanupPolicy and ClusterCleanupPolicy",
    "Deletes objects on a schedule. A CleanupPolicy deletes objects of its own namespace.",
    &[
        api_version("kyverno.io/v2"),
        kind("ClusterCleanupPolicy"),
        OBJECT_METADATA,
        table("spec", &CLEANUP_SPEC, "What is deleted, and when.").required(),
        STATUS,
    ],
);

/// `match` and `exclude` of a cleanup policy, which never had the old form.
pub static CLEANUP_MATCH: FieldTable = FieldTable::new(
    "Cleanup match",
    "`any` or `all`, not both. No variables.",
    &[
        tables("any", &FILTER, "Filters of which one must fit."),
        tables("all", &FILTER, "Filters that must all fit."),
    ],
);

/// `spec` of a cleanup policy.
pub static CLEANUP_SPEC: FieldTable = FieldTable::new(
    "Cleanup spec",
    "Objects that match, and for which all conditions hold, are deleted.",
    &[
        SCHEDULE,
        table(
            "match",
            &CLEANUP_MATCH,
            "Which objects, with `any` or `all`. No users, roles and variables; operations have no effect.",
        )
        .required(),
        table("exclude", &CLEANUP_MATCH, "Which of them are kept."),
        tables(
            "context",
            &CONTEXT_ENTRY,
            "Named values for conditions: `variable`, `apiCall` and `globalReference`. They do not see `target`.",
        ),
        table(
            "conditions",
            &CONDITIONS,
            "What must hold of an object, which is `target`. An object for which they fail is kept.",
        ),
        PROPAGATION,
    ],
);
