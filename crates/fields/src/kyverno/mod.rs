//! ClusterPolicy, Policy and what belongs to them.

mod cleanup;
mod context;
mod exception;
mod filters;
mod generate;
mod global;
mod mutate;
mod update_request;
mod validate;

pub use cleanup::{CLEANUP_MATCH, CLEANUP_POLICY, CLEANUP_SPEC};
pub use context::{
    API_CALL, CONDITION, CONDITIONS, CONFIG_MAP, CONTEXT_ENTRY, GLOBAL_REFERENCE, IMAGE_REGISTRY,
    KEY_VALUE, REGISTRY_CREDENTIALS, SERVICE, VARIABLE,
};
pub use exception::{EXCEPTED_RULES, EXCEPTION, EXCEPTION_SPEC};
pub use filters::{FILTER, MATCH, RESOURCES, SUBJECT};
pub use generate::{CLONE, CLONE_LIST, CLONE_PAIR, DATA_ENTRY, FOREACH, GENERATE, OBJECT_NAME};
pub use global::{
    GLOBAL_API_CALL, GLOBAL_CONTEXT_ENTRY, GLOBAL_SPEC, KUBERNETES_RESOURCE, PROJECTION,
};
pub use mutate::{MUTATE, MUTATE_FOREACH, MUTATE_TARGET};
pub use update_request::{
    ADMISSION_REQUEST_INFO, REQUEST_CONTEXT, REQUEST_RESOURCE, REQUEST_SPEC, REQUEST_STATUS,
    REQUEST_USER, REQUEST_USER_INFO, RULE_CONTEXT, UPDATE_REQUEST,
};
pub use validate::{ACTION_OVERRIDE, DENY, VALIDATE, VALIDATE_FOREACH};

use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{
    DocumentKind, Field, FieldTable, FieldType, any, boolean, cel, integer, one_of, string,
    string_map, table, tables,
};

const CLEANUP: &[&str] = &["kyverno.io/v2", "kyverno.io/v2beta1", "kiln.dev/v1"];

/// Kinds of `kyverno.io`.
pub const KINDS: &[DocumentKind] = &[
    DocumentKind {
        name: "ClusterPolicy",
        api_versions: &["kyverno.io/v1", "kyverno.io/v2beta1", "kiln.dev/v1"],
        original: "Kyverno",
        summary: "Rules for the whole cluster.",
        table: &POLICY,
    },
    DocumentKind {
        name: "Policy",
        api_versions: &["kyverno.io/v1", "kyverno.io/v2beta1", "kiln.dev/v1"],
        original: "Kyverno",
        summary: "Rules for one namespace.",
        table: &POLICY,
    },
    DocumentKind {
        name: "ClusterCleanupPolicy",
        api_versions: CLEANUP,
        original: "Kyverno",
        summary: "Deletes objects of the whole cluster on a schedule.",
        table: &CLEANUP_POLICY,
    },
    DocumentKind {
        name: "CleanupPolicy",
        api_versions: CLEANUP,
        original: "Kyverno",
        summary: "Deletes objects of its own namespace on a schedule.",
        table: &CLEANUP_POLICY,
    },
    DocumentKind {
        name: "PolicyException",
        api_versions: &["kyverno.io/v2", "kyverno.io/v2beta1", "kiln.dev/v1"],
        original: "Kyverno",
        summary: "Objects to which rules do not apply.",
        table: &EXCEPTION,
    },
    DocumentKind {
        name: "GlobalContextEntry",
        api_versions: &[
            "kyverno.io/v2beta1",
            "kyverno.io/v2",
            "kyverno.io/v2alpha1",
            "kiln.dev/v1",
        ],
        original: "Kyverno",
        summary: "Data of the cluster that rules share.",
        table: &GLOBAL_CONTEXT_ENTRY,
    },
    DocumentKind {
        name: "UpdateRequest",
        api_versions: &["kyverno.io/v2", "kiln.dev/v1"],
        original: "Kyverno",
        summary: "Work of the controller that waits or failed.",
        table: &UPDATE_REQUEST,
    },
];

/// A ClusterPolicy or Policy.
pub static POLICY: FieldTable = FieldTable::new(
    "ClusterPolicy and Policy",
    "A ClusterPolicy acts in all namespaces and on cluster-scoped objects, a Policy in its own namespace.",
    &[
        api_version("kyverno.io/v1"),
        kind("ClusterPolicy"),
        OBJECT_METADATA,
        table("spec", &SPEC, "What the policy does.").required(),
        STATUS,
    ],
);

/// `spec` of a policy.
pub static SPEC: FieldTable = FieldTable::new(
    "Policy spec",
    "The rules, and what holds for all of them.",
    &[
        boolean("admission", "Whether admission requests trigger the rules. `false` is allowed for validate rules only.")
            .default("true")
            .example("true"),
        one_of("applyRules", &["All", "One"], "Whether all rules that match apply, or the first one only.")
            .default("All")
            .example("One"),
        boolean("background", "Whether rules may run without an admission request. `false` lets them use data of the request: users, roles, the operation.")
            .default("true")
            .example("false"),
        boolean("emitWarning", "Whether clients get a warning that names the rules that changed their object.")
            .default("false")
            .example("true"),
        one_of("failurePolicy", &["Fail", "Ignore"], "What a request that cannot be evaluated becomes.")
            .default("Fail for mutate, Ignore for generate")
            .example("Ignore")
            .deprecated("webhookConfiguration.failurePolicy"),
        boolean("generateExisting", "Whether generate rules apply to triggers that exist already.")
            .default("false")
            .example("true")
            .deprecated("generate.generateExisting"),
        boolean("generateExistingOnPolicyUpdate", "The old name of `generateExisting`.")
            .example("true")
            .rejected(),
        boolean("mutateExistingOnPolicyUpdate", "Whether storing the policy changes targets that exist.")
            .default("false")
            .example("true")
            .deprecated("mutate.mutateExistingOnPolicyUpdate"),
        tables("rules", &RULE, "The rules, in order.").required(),
        boolean("schemaValidation", "Whether Kyverno checks patches against schemas. Kiln always warns of unknown fields.")
            .example("true")
            .ignored(),
        boolean("useServerSideApply", "Whether generated objects are written by server-side apply, which leaves other writers' fields alone.")
            .default("false")
            .example("true"),
        one_of("validationFailureAction", &["audit", "enforce", "Audit", "Enforce"], "What a failing validate rule does.")
            .default("Audit")
            .example("Enforce"),
        tables("validationFailureActionOverrides", &ACTION_OVERRIDE, "The same by namespace; only in a ClusterPolicy."),
        table("webhookConfiguration", &WEBHOOK_CONFIGURATION, "How the webhooks of the policy are registered."),
        integer("webhookTimeoutSeconds", "Seconds that an answer may take, 1 to 30.")
            .default("10")
            .example("15")
            .deprecated("webhookConfiguration.timeoutSeconds"),
    ],
);

/// `spec.webhookConfiguration`.
pub static WEBHOOK_CONFIGURATION: FieldTable = FieldTable::new(
    "Webhook configuration",
    "How the API server calls the webhooks of a policy.",
    &[
        one_of(
            "failurePolicy",
            &["Fail", "Ignore"],
            "What becomes of a request when the webhook does not answer.",
        )
        .default("Fail for mutate, Ignore for generate")
        .example("Ignore"),
        integer("timeoutSeconds", "Seconds that an answer may take, 1 to 30.")
            .default("10")
            .example("15"),
        tables(
            "matchConditions",
            &MATCH_CONDITION,
            "Conditions on requests, which the API server checks before it calls. The controller checks them, too.",
        ),
    ],
);

/// A condition in CEL with a name.
pub static MATCH_CONDITION: FieldTable = FieldTable::new(
    "Match condition",
    "A condition with a name.",
    &[
        string("name", "Name of the condition.").required().example("not-from-nodes"),
        cel(
            "expression",
            "True if the policy applies. `object`, `oldObject` and `request` are known.",
        )
        .required()
        .example("\"!('system:nodes' in request.userInfo.groups)\""),
    ],
);

pub static RULE: FieldTable = FieldTable::new(
    "Rule",
    "What it applies to, and one of `generate`, `mutate`, `validate` and `verifyImages`.",
    &[
        string("name", "Name of the rule, unique in its policy, at most 63 characters.")
            .required()
            .example("default-deny"),
        tables(
            "context",
            &CONTEXT_ENTRY,
            "Named values for expressions, loaded when they are needed.",
        ),
        table("match", &MATCH, "Which objects and requests trigger the rule.").required(),
        table("exclude", &MATCH, "Which of them do not."),
        any("imageExtractors", "Where custom resources name images.")
            .example("{Task: [{path: /spec/steps/*/image}]}")
            .ignored(),
        conditions("preconditions", "What must hold after `match`. A bare list is `all`."),
        tables(
            "celPreconditions",
            &MATCH_CONDITION,
            "Conditions in CEL for `validate.cel`. An error in other rules.",
        ),
        table("mutate", &MUTATE, "Changes objects."),
        table("validate", &VALIDATE, "Checks objects."),
        table("generate", &GENERATE, "Creates objects, and keeps them synchronized."),
        any("verifyImages", "Checks signatures of images.")
            .example("[{imageReferences: ['*']}]")
            .not_run(),
        boolean(
            "skipBackgroundRequests",
            "Whether requests of the engine itself do not trigger the rule.",
        )
        .default("true")
        .example("false"),
        string_map(
            "reportProperties",
            "Properties of results in reports. `passMessage`, `failMessage`, `warnMessage`, `errorMessage`, `skipMessage` and `message` replace the message there.",
        )
        .example("{team: '{{ request.namespace }}'}"),
    ],
);

static CONDITION_FORMS: [FieldType; 2] =
    [FieldType::Table(&CONDITIONS), FieldType::Tables(&CONDITION)];

/// `any` and `all`, or a bare list.
const fn conditions(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Either(&CONDITION_FORMS), doc)
}
