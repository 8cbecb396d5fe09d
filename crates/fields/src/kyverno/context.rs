//! `context` and conditions.

use crate::{FieldTable, any, boolean, jmespath, one_of, string, strings, table, tables};

/// An entry of `context`.
pub static CONTEXT_ENTRY: FieldTable = FieldTable::new(
    "Context entry",
    "A name and exactly one source. Text of all sources may have variables (`{{ }}`).",
    &[
        string("name", "Name in expressions. Not `request`, `images`, `element`, `elementIndex`, `serviceAccountName`, `serviceAccountNamespace`.")
            .required()
            .example("settings"),
        table("configMap", &CONFIG_MAP, "A ConfigMap of the cluster."),
        table("apiCall", &API_CALL, "An answer of the API server or of a service."),
        table("imageRegistry", &IMAGE_REGISTRY, "Metadata of an image."),
        table("variable", &VARIABLE, "A value that the policy computes."),
        table("globalReference", &GLOBAL_REFERENCE, "What a GlobalContextEntry holds. Rejected in a Policy."),
    ],
);

/// `configMap` of a context entry.
pub static CONFIG_MAP: FieldTable = FieldTable::new(
    "ConfigMap source",
    "The expression sees the whole object: `{{ settings.data.zone }}`.",
    &[
        string("name", "Name of the ConfigMap.").required().example("settings"),
        string("namespace", "Its namespace; in a Policy, the policy's own.")
            .required()
            .example("shop"),
    ],
);

/// `apiCall` of a context entry.
pub static API_CALL: FieldTable = FieldTable::new(
    "API call",
    "`urlPath` or `service`. A variable fills one step of a path or one value of a query.",
    &[
        string("urlPath", "Path at the API server; in a Policy, below the policy's namespace.")
            .example("/api/v1/namespaces/{{ request.namespace }}/pods"),
        one_of("method", &["GET", "POST"], "Method of the request.").default("GET").example("GET"),
        tables("data", &KEY_VALUE, "What a POST request sends, as one JSON object."),
        table(
            "service",
            &SERVICE,
            "A service. Its host must be on the allowlist. Rejected in a Policy.",
        ),
        jmespath("jmesPath", "What to take of the answer.").example("items[].metadata.name"),
        any("default", "The value if the call fails or `jmesPath` finds nothing.").example("[]"),
    ],
);

pub static KEY_VALUE: FieldTable = FieldTable::new(
    "Key and value",
    "An entry of `data` or `headers`.",
    &[
        string("key", "Key.").required().example("name"),
        any("value", "Value; of a header, text.")
            .required()
            .example("'{{ request.object.metadata.name }}'"),
    ],
);

/// `service` of an API call.
pub static SERVICE: FieldTable = FieldTable::new(
    "Service",
    "A service that answers with JSON.",
    &[
        string("url", "Address, with `https` or `http`.")
            .required()
            .example("https://quota.platform.svc/zones"),
        string("caBundle", "Certificates in PEM that the service is checked with.")
            .example("'{{ ca.data.pem }}'"),
        tables("headers", &KEY_VALUE, "Headers of the request."),
    ],
);

/// `imageRegistry` of a context entry.
pub static IMAGE_REGISTRY: FieldTable = FieldTable::new(
    "Image registry",
    "Kiln asks no registry: the entry is an error unless a test suite or a values file gives the data.",
    &[
        string("reference", "The image.").required().example("'{{ element.image }}'"),
        jmespath("jmesPath", "What to take of the metadata.").example("configData.config.Labels"),
        table("imageRegistryCredentials", &REGISTRY_CREDENTIALS, "How Kyverno signs in.").ignored(),
    ],
);

/// `imageRegistryCredentials`.
pub static REGISTRY_CREDENTIALS: FieldTable = FieldTable::new(
    "Registry credentials",
    "Kyverno's; without effect in Kiln.",
    &[
        boolean("allowInsecureRegistry", "Whether plain HTTP is allowed.")
            .example("false")
            .ignored(),
        strings("providers", "Cloud providers.").example("[amazon]").ignored(),
        strings("secrets", "Secrets with credentials.").example("[registry]").ignored(),
    ],
);

/// `variable` of a context entry.
pub static VARIABLE: FieldTable = FieldTable::new(
    "Variable",
    "`value`, `jmesPath` or both: `jmesPath` is then evaluated on the value.",
    &[
        any("value", "A value, with variables.")
            .example("{zone: a, team: '{{ request.namespace }}'}"),
        jmespath("jmesPath", "An expression.").example("request.object.metadata.labels.team"),
        any("default", "The value if `jmesPath` finds nothing.").example("none"),
        string("name", "The name of the entry, as a proposal writes it. Read with a warning.")
            .example("team")
            .only_kiln(),
    ],
);

/// `globalReference` of a context entry.
pub static GLOBAL_REFERENCE: FieldTable = FieldTable::new(
    "Global reference",
    "The data of a GlobalContextEntry.",
    &[
        string("name", "Name of the entry, or of one of its projections as `entry.projection`.")
            .required()
            .example("deployments"),
        jmespath("jmesPath", "What to take of the data.").example("length(@)"),
    ],
);

/// `preconditions` and the like.
pub static CONDITIONS: FieldTable = FieldTable::new(
    "Conditions",
    "If both are written, both must hold.",
    &[
        tables("any", &CONDITION, "Conditions of which one must hold."),
        tables("all", &CONDITION, "Conditions that must all hold."),
    ],
);

pub static CONDITION: FieldTable = FieldTable::new(
    "Condition",
    "Compares a key with a value. Numbers, quantities, durations and times are compared as such.",
    &[
        any("key", "The left side.").example("'{{ request.operation }}'"),
        one_of(
            "operator",
            &[
                "Equals",
                "NotEquals",
                "Equal",
                "NotEqual",
                "AnyIn",
                "AllIn",
                "AnyNotIn",
                "AllNotIn",
                "In",
                "NotIn",
                "GreaterThan",
                "GreaterThanOrEquals",
                "LessThan",
                "LessThanOrEquals",
                "DurationGreaterThan",
                "DurationGreaterThanOrEquals",
                "DurationLessThan",
                "DurationLessThanOrEquals",
            ],
            "How to compare, in any letter case.",
        )
        .required()
        .example("AnyIn"),
        any("value", "The right side; text may have wildcards and ranges.")
            .example("[CREATE, UPDATE]"),
        string("message", "What is shown if the condition does not hold.")
            .example("only new objects"),
    ],
);
