//! `generate`.

use super::{CONTEXT_ENTRY, conditions};
use crate::shared::LABEL_SELECTOR;
use crate::{Field, FieldTable, FieldType, any, boolean, string, strings, table, tables};

const API_VERSION: Field =
    string("apiVersion", "apiVersion of the downstream.").example("networking.k8s.io/v1");
const KIND: Field = string("kind", "Kind of the downstream.").example("NetworkPolicy");
const NAME: Field = string("name", "Name of the downstream.").example("default-deny");
const NAMESPACE: Field = string(
    "namespace",
    "Namespace of the downstream, for kinds that have one; in a Policy, the policy's own.",
)
.example("'{{ request.object.metadata.name }}'");
const UID: Field =
    string("uid", "As in Kyverno, where it has no effect either.").example("''").ignored();
const DATA: Field = any("data", "The content of the downstream, with variables.")
    .example("{spec: {podSelector: {}, policyTypes: [Ingress]}}");
const DATA_LIST: Field =
    tables("dataList", &DATA_ENTRY, "Several downstreams, each with content of its own.")
        .only_kiln();
const CLONE_FIELD: Field = table("clone", &CLONE, "The source of a copy.");
static CLONE_LIST_FORMS: [FieldType; 2] =
    [FieldType::Table(&CLONE_LIST), FieldType::Tables(&CLONE_PAIR)];
const CLONE_LIST_FIELD: Field = Field::new(
    "cloneList",
    FieldType::Either(&CLONE_LIST_FORMS),
    "Several sources: by kind and label, or as pairs of source and target.",
);

/// A `generate` block.
pub static GENERATE: FieldTable = FieldTable::new(
    "Generate",
    "One of `data`, `dataList`, `clone`, `cloneList` and `foreach`. All text may have variables (`{{ }}`).",
    &[
        boolean("generateExisting", "Whether triggers that exist when the policy is stored get their downstreams.")
            .default("false")
            .example("true"),
        boolean("synchronize", "Whether downstreams follow the policy, the trigger and the source, and are repaired.")
            .default("false")
            .example("true"),
        boolean("orphanDownstreamOnPolicyDelete", "Whether downstreams stay when the policy or the rule is deleted. Without it, `data` is deleted and copies stay.")
            .example("true"),
        API_VERSION,
        KIND,
        NAME,
        NAMESPACE,
        UID,
        DATA,
        DATA_LIST,
        CLONE_FIELD,
        CLONE_LIST_FIELD,
        tables("foreach", &FOREACH, "One set of downstreams for each element of lists."),
    ],
);

/// An element of `generate.foreach`.
pub static FOREACH: FieldTable = FieldTable::new(
    "Generate foreach",
    "As a generate block, for each element of a list, with `element` and `elementIndex`.",
    &[
        Field::new("list", FieldType::Expression("JMESPath"), "The list, bare or as one variable.")
            .required()
            .example("request.object.data.zones | split(@, ',')"),
        tables("context", &CONTEXT_ENTRY, "Values for each element."),
        conditions(
            "preconditions",
            "What must hold of an element; `any` or `all`, not a bare list.",
        ),
        API_VERSION,
        KIND,
        NAME,
        NAMESPACE,
        UID,
        DATA,
        DATA_LIST,
        CLONE_FIELD,
        CLONE_LIST_FIELD,
    ],
);

/// An element of `dataList`.
pub static DATA_ENTRY: FieldTable = FieldTable::new(
    "Data entry",
    "One downstream of `dataList`. A proposal for Kyverno.",
    &[
        API_VERSION.only_kiln(),
        KIND.only_kiln(),
        NAME.only_kiln(),
        NAMESPACE.only_kiln(),
        UID.only_kiln(),
        DATA.only_kiln(),
    ],
);

/// `clone`.
pub static CLONE: FieldTable = FieldTable::new(
    "Clone",
    "The source has the kind of the downstream.",
    &[
        string("name", "Name of the source.").example("registry-credentials"),
        string("namespace", "Namespace of the source; in a Policy, the policy's own.")
            .example("platform"),
    ],
);

/// `cloneList` with kinds.
pub static CLONE_LIST: FieldTable = FieldTable::new(
    "Clone list",
    "All objects of some kinds in a namespace, or `list` with pairs of source and target.",
    &[
        strings("kinds", "Kinds as `version/Kind` or `group/version/Kind`.")
            .example("[v1/Secret, v1/ConfigMap]"),
        string("namespace", "Namespace of the sources.").example("platform"),
        table("selector", &LABEL_SELECTOR, "Labels of the sources."),
        tables("list", &CLONE_PAIR, "Pairs of source and target; then nothing else.").only_kiln(),
    ],
);

/// A source and its target.
pub static CLONE_PAIR: FieldTable = FieldTable::new(
    "Clone pair",
    "One copy. A proposal for Kyverno.",
    &[
        table("source", &OBJECT_NAME, "The source.").required().only_kiln(),
        table("target", &OBJECT_NAME, "The downstream.").required().only_kiln(),
    ],
);

/// What an object is called.
pub static OBJECT_NAME: FieldTable = FieldTable::new(
    "Object name",
    "What a source or a downstream is called.",
    &[
        string("apiVersion", "apiVersion.").example("v1").only_kiln(),
        string("kind", "Kind.").example("Secret").only_kiln(),
        string("name", "Name.").example("registry-credentials").only_kiln(),
        string("namespace", "Namespace.").example("platform").only_kiln(),
        string("uid", "Without effect.").example("''").ignored().only_kiln(),
    ],
);
