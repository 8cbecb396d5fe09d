//! GlobalContextEntry.

use super::{KEY_VALUE, SERVICE};
use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{FieldTable, integer, jmespath, one_of, string, table, tables};

pub static GLOBAL_CONTEXT_ENTRY: FieldTable = FieldTable::new(
    "GlobalContextEntry",
    "Data that `globalReference` of context entries and `globalContext` in CEL read. `kiln run` keeps it up to date.",
    &[
        api_version("kyverno.io/v2beta1"),
        kind("GlobalContextEntry"),
        OBJECT_METADATA,
        table("spec", &GLOBAL_SPEC, "Where the data comes from.").required(),
        STATUS,
    ],
);

/// `spec` of a GlobalContextEntry.
pub static GLOBAL_SPEC: FieldTable = FieldTable::new(
    "GlobalContextEntry spec",
    "Exactly one of `kubernetesResource` and `apiCall`.",
    &[
        table(
            "kubernetesResource",
            &KUBERNETES_RESOURCE,
            "All objects of a resource, followed by a watch.",
        ),
        table(
            "apiCall",
            &GLOBAL_API_CALL,
            "An answer of the API server, asked for again and again.",
        ),
        tables("projections", &PROJECTION, "Named parts of the data."),
    ],
);

/// `kubernetesResource`.
pub static KUBERNETES_RESOURCE: FieldTable = FieldTable::new(
    "Kubernetes resource",
    "All objects of a resource.",
    &[
        string("group", "API group; empty for the core group.").default("''").example("apps"),
        string("version", "Version.").required().example("v1"),
        string("resource", "Plural name.").required().example("deployments"),
        string("namespace", "Namespace; without it, all.").example("shop"),
    ],
);

/// `apiCall` of a GlobalContextEntry.
pub static GLOBAL_API_CALL: FieldTable = FieldTable::new(
    "Global API call",
    "Answers of the API server to GET. Kiln does not ask services and does not send POST here.",
    &[
        string("urlPath", "Path at the API server.").example("/api/v1/nodes"),
        one_of("method", &["GET", "POST"], "Method; POST is an error.")
            .default("GET")
            .example("GET"),
        tables("data", &KEY_VALUE, "What a POST request sends.").rejected(),
        table("service", &SERVICE, "A service.").rejected(),
        string("refreshInterval", "Time between two calls, as a duration; at least 2 seconds.")
            .default("10m")
            .example("1m30s"),
        integer(
            "retryLimit",
            "Attempts of Kyverno. Kiln retries until it succeeds, and keeps the last answer.",
        )
        .default("3")
        .example("3")
        .ignored(),
    ],
);

/// An element of `projections`.
pub static PROJECTION: FieldTable = FieldTable::new(
    "Projection",
    "A named part of the data, read as `entry.projection`.",
    &[
        string("name", "Name of the projection.").required().example("names"),
        jmespath("jmesPath", "What it holds.").required().example("items[].metadata.name"),
    ],
);
