//! Policies in CEL that check objects, and the checks of rules that are written like them.

use crate::policies::{
    ANNOTATIONS, BOUND_PARAMETERS, BOUND_POLICY, BOUND_RESOURCES, CONDITIONS, CONSTRAINTS, FAILURE,
    MATCH_CONSTRAINTS, PARAM_KIND, POD_CONTROLLERS, POLICY_WEBHOOK, SWITCH, VARIABLES, switch,
};
use crate::shared::{OBJECT_METADATA, STATUS, api_version, kind};
use crate::{
    Field, FieldTable, FieldType, boolean, cel, list, one_of, string, strings, table, tables,
};

const VALIDATIONS: Field = tables(
    "validations",
    &VALIDATION,
    "What must be true, in order; the first that is not decides.",
);
const ACTIONS: Field = list(
    "validationActions",
    &FieldType::Enum(&["Deny", "Audit", "Warn"]),
    "What becomes of objects that fail.",
)
.example("[Audit]");
const PARAMETERS: Field =
    table("paramKind", &PARAM_KIND, "Kind of the parameters, which expressions know as `params`.");

/// A ValidatingPolicy or NamespacedValidatingPolicy.
pub static VALIDATING_POLICY: FieldTable = FieldTable::new(
    "ValidatingPolicy",
    "Checks objects, data or requests. A NamespacedValidatingPolicy checks objects of its own namespace.",
    &[
        api_version("policies.kyverno.io/v1"),
        kind("ValidatingPolicy"),
        OBJECT_METADATA,
        table("spec", &VALIDATING_SPEC, "What the policy does.").required(),
        STATUS,
    ],
);

/// `spec` of a ValidatingPolicy.
pub static VALIDATING_SPEC: FieldTable = FieldTable::new(
    "ValidatingPolicy spec",
    "What is checked, and how.",
    &[
        ANNOTATIONS,
        table(
            "autogen",
            &VALIDATING_AUTOGEN,
            "Controllers of Pods that a policy for Pods also checks.",
        ),
        table("evaluation", &VALIDATING_EVALUATION, "When the policy runs, and on what."),
        FAILURE,
        CONDITIONS,
        table(
            "matchConstraints",
            &MATCH_CONSTRAINTS,
            "Requests and objects that the policy is for. Required, unless `evaluation.mode` is one for data and other requests.",
        ),
        ACTIONS,
        VALIDATIONS,
        VARIABLES,
        table("webhookConfiguration", &POLICY_WEBHOOK, "How the webhook is registered."),
    ],
);

/// `spec.autogen` of a ValidatingPolicy.
pub static VALIDATING_AUTOGEN: FieldTable = FieldTable::new(
    "ValidatingPolicy autogen",
    "For policies that match Pods.",
    &[
        table("podControllers", &POD_CONTROLLERS, "Which controllers."),
        table(
            "validatingAdmissionPolicy",
            &SWITCH,
            "Whether Kyverno creates a ValidatingAdmissionPolicy. Kiln does not.",
        )
        .ignored(),
    ],
);

/// `spec.evaluation` of a ValidatingPolicy.
pub static VALIDATING_EVALUATION: FieldTable = FieldTable::new(
    "ValidatingPolicy evaluation",
    "Switches, and what is checked.",
    &[
        switch("admission", "Whether admission requests are checked.")
            .default("true")
            .example("{enabled: false}"),
        switch("background", "Whether Kyverno reports on stored objects.")
            .default("true")
            .example("{enabled: false}")
            .ignored(),
        one_of(
            "mode",
            &["Kubernetes", "JSON", "HTTP", "Envoy"],
            "What is checked: objects, any data, or requests to a web server or to Envoy.",
        )
        .default("Kubernetes")
        .example("JSON"),
    ],
);

/// An entry of `validations`, or of `expressions`.
pub static VALIDATION: FieldTable = FieldTable::new(
    "Validation",
    "An expression that must be true.",
    &[
        cel("expression", "The expression.").required().example("object.spec.replicas <= 5"),
        string("message", "What to say when it is false.").example("at most 5 replicas"),
        cel("messageExpression", "What to say when it is false, computed.")
            .example("\"'at most 5 replicas, not ' + string(object.spec.replicas)\""),
        one_of(
            "reason",
            &["Unauthorized", "Forbidden", "Invalid", "RequestEntityTooLarge"],
            "The reason in the response of the API server.",
        )
        .example("Forbidden")
        .ignored(),
    ],
);

pub static VALIDATING_ADMISSION_POLICY: FieldTable = FieldTable::new(
    "ValidatingAdmissionPolicy",
    "Kubernetes' own policy. Without a binding it applies everywhere, as in Kyverno's command line.",
    &[
        api_version("admissionregistration.k8s.io/v1"),
        kind("ValidatingAdmissionPolicy"),
        OBJECT_METADATA,
        table("spec", &VALIDATING_ADMISSION_SPEC, "What the policy does.").required(),
        STATUS,
    ],
);

/// `spec` of a ValidatingAdmissionPolicy.
pub static VALIDATING_ADMISSION_SPEC: FieldTable = FieldTable::new(
    "ValidatingAdmissionPolicy spec",
    "Requests, values and what must be true.",
    &[ANNOTATIONS, FAILURE, CONDITIONS, CONSTRAINTS, PARAMETERS, VALIDATIONS, VARIABLES],
);

/// A ValidatingAdmissionPolicyBinding.
pub static VALIDATING_BINDING: FieldTable = FieldTable::new(
    "ValidatingAdmissionPolicyBinding",
    "A policy becomes one rule for each of its bindings.",
    &[
        api_version("admissionregistration.k8s.io/v1"),
        kind("ValidatingAdmissionPolicyBinding"),
        OBJECT_METADATA,
        table("spec", &VALIDATING_BINDING_SPEC, "The binding.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a ValidatingAdmissionPolicyBinding.
pub static VALIDATING_BINDING_SPEC: FieldTable = FieldTable::new(
    "ValidatingAdmissionPolicyBinding spec",
    "The policy, what narrows it, and what becomes of objects that fail.",
    &[BOUND_POLICY, BOUND_PARAMETERS, BOUND_RESOURCES, ACTIONS],
);

/// `validate.cel` of a rule.
pub static CEL_RULE: FieldTable = FieldTable::new(
    "Expressions of a rule",
    "Checks in CEL, with the libraries of Kubernetes.",
    &[
        tables("expressions", &VALIDATION, "What must be true, in order."),
        VARIABLES,
        PARAMETERS,
        BOUND_PARAMETERS,
        ANNOTATIONS,
        boolean("generate", "Whether Kyverno creates a ValidatingAdmissionPolicy. Kiln does not.")
            .default("false")
            .example("true")
            .ignored(),
    ],
);

/// `validate.podSecurity` of a rule.
pub static POD_SECURITY: FieldTable = FieldTable::new(
    "Pod Security",
    "A level of Kubernetes' Pod Security Standards.",
    &[
        one_of("level", &["privileged", "baseline", "restricted"], "The level.")
            .required()
            .example("restricted"),
        string("version", "The version of Kubernetes: `latest`, or for example `v1.34`.")
            .default("latest")
            .example("v1.34"),
        tables("exclude", &POD_SECURITY_EXCLUSION, "What is not checked."),
    ],
);

/// An entry of `podSecurity.exclude`, or of `podSecurity` of a PolicyException.
pub static POD_SECURITY_EXCLUSION: FieldTable = FieldTable::new(
    "Pod Security exclusion",
    "A control that is not checked, or some of its fields, values and images.",
    &[
        string("controlName", "The control.").required().example("Capabilities"),
        strings("images", "Wildcards for images of containers; without them, fields of the Pod.")
            .example("[\"registry.example/*\"]"),
        string("restrictedField", "The only field that is not checked.")
            .example("spec.containers[*].securityContext.capabilities.add"),
        strings("values", "Wildcards for values that the field may have.").example("[NET_ADMIN]"),
    ],
);
