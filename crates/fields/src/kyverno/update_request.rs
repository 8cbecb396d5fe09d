//! UpdateRequest.

use crate::shared::{OBJECT_METADATA, api_version, kind};
use crate::{FieldTable, any, boolean, integer, one_of, string, strings, table, tables};

pub static UPDATE_REQUEST: FieldTable = FieldTable::new(
    "UpdateRequest",
    "The controller writes one for work that waits, failed or was skipped, and for admission requests that must not be lost. One that another client creates in the engine's namespace triggers its rules again.",
    &[
        api_version("kyverno.io/v2"),
        kind("UpdateRequest"),
        OBJECT_METADATA,
        table("spec", &REQUEST_SPEC, "What to do.").required(),
        table("status", &REQUEST_STATUS, "What came of it."),
    ],
);

/// `spec` of an UpdateRequest.
pub static REQUEST_SPEC: FieldTable = FieldTable::new(
    "UpdateRequest spec",
    "Which rules, for which triggers.",
    &[
        one_of(
            "requestType",
            &["generate", "mutate", "cel-generate", "cel-mutate"],
            "What the rules do. The rules themselves decide.",
        )
        .example("generate")
        .ignored(),
        string("policy", "The policy, as `name` or `namespace/name`.")
            .required()
            .example("shop-defaults"),
        string("rule", "The rule, if `ruleContext` is empty.")
            .default("''")
            .example("default-deny"),
        table("resource", &REQUEST_RESOURCE, "The trigger, if `ruleContext` is empty.").required(),
        boolean("synchronize", "What the rule says.").default("false").example("true").ignored(),
        boolean(
            "deleteDownstream",
            "Whether Kyverno deletes downstreams. Kiln compares desired and actual objects.",
        )
        .default("false")
        .example("false")
        .ignored(),
        tables("ruleContext", &RULE_CONTEXT, "Rules and triggers."),
        table("context", &REQUEST_CONTEXT, "The admission request."),
    ],
);

/// An element of `spec.ruleContext`.
pub static RULE_CONTEXT: FieldTable = FieldTable::new(
    "Rule context",
    "A rule and a trigger.",
    &[
        string("rule", "The rule.").required().example("default-deny"),
        table("trigger", &REQUEST_RESOURCE, "The trigger.").required(),
        boolean("synchronize", "What the rule says.").default("false").example("true").ignored(),
        boolean("deleteDownstream", "As in `spec`.").default("false").example("false").ignored(),
        boolean("cacheRestore", "For Kyverno alone.").default("false").example("false").ignored(),
    ],
);

/// An object by name.
pub static REQUEST_RESOURCE: FieldTable = FieldTable::new(
    "Request resource",
    "An object; the UID counts, if there is one.",
    &[
        string("apiVersion", "apiVersion.").example("v1"),
        string("kind", "Kind.").example("Namespace"),
        string("namespace", "Namespace.").example("''"),
        string("name", "Name.").example("shop"),
        string("uid", "UID.").example("6f1a3c0e-0000-4000-8000-000000000000"),
    ],
);

/// `spec.context`.
pub static REQUEST_CONTEXT: FieldTable = FieldTable::new(
    "Request context",
    "What only the admission request knows.",
    &[
        table("userInfo", &REQUEST_USER, "The user."),
        table("admissionRequestInfo", &ADMISSION_REQUEST_INFO, "The request."),
        boolean(
            "passedOver",
            "The sender is excluded, so that no rule runs. Only in requests that Kiln stores.",
        )
        .default("false")
        .example("false")
        .only_kiln(),
        boolean(
            "changesNothing",
            "The object was sent as it is stored. Only in requests that Kiln stores.",
        )
        .default("false")
        .example("false")
        .only_kiln(),
    ],
);

/// `spec.context.userInfo`.
pub static REQUEST_USER: FieldTable = FieldTable::new(
    "Request user",
    "The user and its roles.",
    &[
        table("userInfo", &REQUEST_USER_INFO, "The user."),
        strings("roles", "Roles; Kiln finds them itself.").example("[shop:editor]").ignored(),
        strings("clusterRoles", "ClusterRoles; Kiln finds them itself.")
            .example("[view]")
            .ignored(),
        boolean("synchronize", "For Kyverno alone.").example("false").ignored(),
    ],
);

/// `spec.context.userInfo.userInfo`.
pub static REQUEST_USER_INFO: FieldTable = FieldTable::new(
    "Request user info",
    "As in an AdmissionReview.",
    &[
        string("username", "Name.").example("alice@example.com"),
        string("uid", "UID.").example("'42'"),
        strings("groups", "Groups.").example("[system:authenticated]"),
        any("extra", "More, as the API server knows it.").example("{scopes: [read]}"),
    ],
);

/// `spec.context.admissionRequestInfo`.
pub static ADMISSION_REQUEST_INFO: FieldTable = FieldTable::new(
    "Admission request info",
    "The operation, and in requests that Kiln stores the request itself.",
    &[
        one_of("operation", &["CREATE", "UPDATE", "DELETE", "CONNECT"], "The operation.").example("CREATE"),
        any("admissionRequest", "`operation`, `kind`, `namespace`, `name`, `subResource`, `object` and `oldObject` of the request.")
            .example("{operation: CREATE, kind: {group: '', version: v1, kind: Namespace}, name: shop}"),
    ],
);

/// `status` of an UpdateRequest.
pub static REQUEST_STATUS: FieldTable = FieldTable::new(
    "UpdateRequest status",
    "Written by the controller.",
    &[
        one_of(
            "state",
            &["Pending", "Failed", "Completed", "Skip"],
            "How far it is. A request of another client is taken if it is empty or `Pending`.",
        )
        .example("Failed"),
        string("reason", "Why, in one word.").example("Forbidden").only_kiln(),
        string("message", "Why, in a sentence.")
            .example("cannot create Secret shop/registry-credentials"),
        integer("retryCount", "Attempts so far.").example("2"),
        tables("generatedResources", &REQUEST_RESOURCE, "Downstreams."),
    ],
);
