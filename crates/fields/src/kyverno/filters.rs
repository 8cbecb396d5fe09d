//! `match` and `exclude`.

use crate::shared::LABEL_SELECTOR;
use crate::{
    Field, FieldTable, FieldType, list, one_of, string, string_map, strings, table, tables,
};

const OPERATIONS: FieldType = FieldType::Enum(&["CREATE", "UPDATE", "DELETE", "CONNECT"]);

const SUBJECTS: Field = tables(
    "subjects",
    &SUBJECT,
    "Users, groups and service accounts that sent the request; one must fit. Needs `background: false`.",
);
const ROLES: Field = strings(
    "roles",
    "Roles of the user, as `namespace:name`; one must fit. Wildcards. Needs `background: false`.",
)
.example("[shop:editor]");
const CLUSTER_ROLES: Field = strings(
    "clusterRoles",
    "ClusterRoles of the user; one must fit. Wildcards. Needs `background: false`.",
)
.example("[cluster-admin]");

/// `match` or `exclude`.
pub static MATCH: FieldTable = FieldTable::new(
    "Match",
    "`any` or `all`, not both. Without them, the four other fields are one filter (not in `v2beta1` and in exceptions). No variables.",
    &[
        tables("any", &FILTER, "Filters of which one must fit."),
        tables("all", &FILTER, "Filters that must all fit."),
        table("resources", &RESOURCES, "The old form: resources without `any` and `all`."),
        SUBJECTS,
        ROLES,
        CLUSTER_ROLES,
    ],
);

/// An element of `any` or `all`.
pub static FILTER: FieldTable = FieldTable::new(
    "Filter",
    "All parts that are written must fit.",
    &[table("resources", &RESOURCES, "Which objects."), SUBJECTS, ROLES, CLUSTER_ROLES],
);

/// `resources` of a filter.
pub static RESOURCES: FieldTable = FieldTable::new(
    "Resources",
    "All parts that are written must fit; of the values of a list, one.",
    &[
        string_map("annotations", "Annotations of the object. Wildcards in keys and values.")
            .example("{example.com/tier: '*'}"),
        strings("kinds", "`Kind`, `version/Kind` or `group/version/Kind`, each also with `/subresource`. Wildcards.")
            .example("[Namespace, apps/v1/Deployment, Pod/exec]"),
        string("name", "Name of the object. Wildcards.").example("web-*").deprecated("names"),
        strings("names", "Names. Wildcards.").example("[web-*, api]"),
        strings("namespaces", "Namespaces. Wildcards. Not in a Policy.").example("['team-*']"),
        table("namespaceSelector", &LABEL_SELECTOR, "Labels of the namespace. Not in a Policy."),
        list("operations", &OPERATIONS, "Operations of the request.")
            .default("all")
            .example("[CREATE]"),
        table("selector", &LABEL_SELECTOR, "Labels of the object."),
    ],
);

/// A subject, as RBAC writes it.
pub static SUBJECT: FieldTable = FieldTable::new(
    "Subject",
    "As in a RoleBinding.",
    &[
        one_of("kind", &["User", "Group", "ServiceAccount"], "What it is.")
            .required()
            .example("ServiceAccount"),
        string("apiGroup", "The API group of the subject.")
            .example("rbac.authorization.k8s.io")
            .ignored(),
        string("name", "Name. Wildcards.").required().example("deployer"),
        string("namespace", "Namespace, which a ServiceAccount must have.").example("ci"),
    ],
);
