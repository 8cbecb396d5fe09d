//! Policies in CEL: those of `policies.kyverno.io`, and Kubernetes' own.

use crate::deleting;
use crate::kyverno::MATCH_CONDITION;
use crate::shared::{LABEL_SELECTOR, OBJECT_METADATA, STATUS, api_version, kind};
use crate::validating;
use crate::{
    DocumentKind, Field, FieldTable, FieldType, boolean, cel, integer, list, one_of, string,
    string_map, strings, table, tables,
};

const GROUP: &[&str] = &[
    "policies.kyverno.io/v1",
    "policies.kyverno.io/v1beta1",
    "policies.kyverno.io/v1alpha1",
    "kiln.dev/v1",
];
const NAMESPACED: &[&str] =
    &["policies.kyverno.io/v1", "policies.kyverno.io/v1beta1", "kiln.dev/v1"];
const NATIVE: &[&str] = &[
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1beta1",
    "admissionregistration.k8s.io/v1alpha1",
];

/// Kinds of `policies.kyverno.io`, and MutatingAdmissionPolicy with its binding.
pub const KINDS: &[DocumentKind] = &[
    DocumentKind {
        name: "GeneratingPolicy",
        api_versions: GROUP,
        original: "Kyverno",
        summary: "Creates objects in all namespaces, in CEL.",
        table: &GENERATING_POLICY,
    },
    DocumentKind {
        name: "NamespacedGeneratingPolicy",
        api_versions: NAMESPACED,
        original: "Kyverno",
        summary: "Creates objects in its own namespace, in CEL.",
        table: &GENERATING_POLICY,
    },
    DocumentKind {
        name: "MutatingPolicy",
        api_versions: GROUP,
        original: "Kyverno",
        summary: "Changes objects of all namespaces, in CEL.",
        table: &MUTATING_POLICY,
    },
    DocumentKind {
        name: "NamespacedMutatingPolicy",
        api_versions: NAMESPACED,
        original: "Kyverno",
        summary: "Changes objects of its own namespace, in CEL.",
        table: &MUTATING_POLICY,
    },
    DocumentKind {
        name: "ValidatingPolicy",
        api_versions: GROUP,
        original: "Kyverno",
        summary: "Checks objects, in CEL; on files also data and requests.",
        table: &validating::VALIDATING_POLICY,
    },
    DocumentKind {
        name: "NamespacedValidatingPolicy",
        api_versions: NAMESPACED,
        original: "Kyverno",
        summary: "Checks objects of its own namespace, in CEL.",
        table: &validating::VALIDATING_POLICY,
    },
    DocumentKind {
        name: "DeletingPolicy",
        api_versions: GROUP,
        original: "Kyverno",
        summary: "Deletes objects on a schedule, in CEL.",
        table: &deleting::DELETING_POLICY,
    },
    DocumentKind {
        name: "NamespacedDeletingPolicy",
        api_versions: NAMESPACED,
        original: "Kyverno",
        summary: "Deletes objects of its own namespace on a schedule, in CEL.",
        table: &deleting::DELETING_POLICY,
    },
    DocumentKind {
        name: "PolicyException",
        api_versions: GROUP,
        original: "Kyverno",
        summary: "Objects to which policies in CEL do not apply.",
        table: &EXCEPTION,
    },
    DocumentKind {
        name: "MutatingAdmissionPolicy",
        api_versions: NATIVE,
        original: "Kubernetes",
        summary: "Kubernetes' own; on files. In a cluster the API server runs it.",
        table: &ADMISSION_POLICY,
    },
    DocumentKind {
        name: "MutatingAdmissionPolicyBinding",
        api_versions: NATIVE,
        original: "Kubernetes",
        summary: "Where a MutatingAdmissionPolicy applies, and its parameters.",
        table: &BINDING,
    },
    DocumentKind {
        name: "ValidatingAdmissionPolicy",
        api_versions: NATIVE,
        original: "Kubernetes",
        summary: "Kubernetes' own; on files. In a cluster the API server runs it.",
        table: &validating::VALIDATING_ADMISSION_POLICY,
    },
    DocumentKind {
        name: "ValidatingAdmissionPolicyBinding",
        api_versions: NATIVE,
        original: "Kubernetes",
        summary: "Where a ValidatingAdmissionPolicy applies, its parameters, and what becomes of objects that fail.",
        table: &validating::VALIDATING_BINDING,
    },
];

pub(crate) const CONDITIONS: Field =
    tables("matchConditions", &MATCH_CONDITION, "Conditions that must all hold.");
pub(crate) const CONSTRAINTS: Field =
    table("matchConstraints", &MATCH_CONSTRAINTS, "Requests and objects that the policy is for.")
        .required();
pub(crate) const VARIABLES: Field =
    tables("variables", &POLICY_VARIABLE, "Named values, each visible to those after it.");
pub(crate) const ANNOTATIONS: Field =
    tables("auditAnnotations", &AUDIT_ANNOTATION, "Annotations of the audit event.");
const MUTATIONS: Field = tables("mutations", &MUTATION, "Patches, in order.");
pub(crate) const FAILURE: Field = one_of(
    "failurePolicy",
    &["Fail", "Ignore"],
    "What becomes of a request when the policy fails.",
)
.default("Fail")
.example("Ignore");
static ENABLED: [FieldType; 2] = [FieldType::Table(&SWITCH), FieldType::Boolean];
const SKIP: Field = boolean(
    "skipBackgroundRequests",
    "Whether requests of the engine itself do not trigger the policy.",
)
.default("true")
.example("false");

pub(crate) const fn switch(name: &'static str, doc: &'static str) -> Field {
    Field::new(name, FieldType::Either(&ENABLED), doc)
}

/// A GeneratingPolicy or NamespacedGeneratingPolicy.
pub static GENERATING_POLICY: FieldTable = FieldTable::new(
    "GeneratingPolicy",
    "Creates objects when a trigger comes. A NamespacedGeneratingPolicy reads and writes its own namespace only.",
    &[
        api_version("policies.kyverno.io/v1"),
        kind("GeneratingPolicy"),
        OBJECT_METADATA,
        table("spec", &GENERATING_SPEC, "What the policy does.").required(),
        STATUS,
    ],
);

/// `spec` of a GeneratingPolicy.
pub static GENERATING_SPEC: FieldTable = FieldTable::new(
    "GeneratingPolicy spec",
    "Triggers, values and what to create.",
    &[
        ANNOTATIONS,
        table(
            "evaluation",
            &GENERATING_EVALUATION,
            "When the policy runs, and what becomes of downstreams.",
        ),
        tables("generate", &GENERATE_ENTRY, "What to create, in order.").required(),
        CONDITIONS,
        CONSTRAINTS,
        boolean("useServerSideApply", "Whether downstreams are written by server-side apply.")
            .default("false")
            .example("true"),
        VARIABLES,
        table("webhookConfiguration", &POLICY_WEBHOOK, "How the webhook is registered."),
    ],
);

/// `spec.evaluation` of a GeneratingPolicy.
pub static GENERATING_EVALUATION: FieldTable = FieldTable::new(
    "GeneratingPolicy evaluation",
    "Switches.",
    &[
        switch("admission", "Whether admission requests trigger the policy.")
            .default("true")
            .example("{enabled: false}"),
        switch(
            "generateExisting",
            "Whether triggers that exist when the policy is stored get their downstreams.",
        )
        .default("false")
        .example("{enabled: true}"),
        switch(
            "orphanDownstreamOnPolicyDelete",
            "Whether downstreams stay when the policy is deleted.",
        )
        .default("false")
        .example("{enabled: true}"),
        SKIP,
        switch(
            "synchronize",
            "Whether downstreams follow the policy, the trigger and the source, and are repaired.",
        )
        .default("false")
        .example("{enabled: true}"),
    ],
);

/// `{enabled: true}`.
pub static SWITCH: FieldTable = FieldTable::new(
    "Switch",
    "Kyverno reads this form only; Kiln also reads `true` and `false` in its place.",
    &[boolean("enabled", "Whether it is on.").example("true")],
);

/// An element of `spec.generate`.
pub static GENERATE_ENTRY: FieldTable = FieldTable::new(
    "Generate entry",
    "`expression` or `template`.",
    &[
        string("name", "Name of the entry, for reports.").example("quota").only_kiln(),
        cel("expression", "Calls `generator.Apply`; true or false, or lists of them.")
            .example("generator.Apply(object.metadata.name, [variables.quota])"),
        table("template", &GENERATE_TEMPLATE, "Objects as YAML, with expressions."),
    ],
);

/// `template` of an element of `spec.generate`.
pub static GENERATE_TEMPLATE: FieldTable = FieldTable::new(
    "Generate template",
    "One or more documents.",
    &[
        string("value", "YAML.").required().example("\"apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: a, namespace: '{{ object.metadata.name }}'}\""),
        one_of("interpolate", &["none", "cel"], "Whether `{{ }}` are expressions in CEL.").default("none").example("cel"),
    ],
);

/// `spec.webhookConfiguration` of a policy in CEL.
pub static POLICY_WEBHOOK: FieldTable = FieldTable::new(
    "Policy webhook",
    "How the API server calls the webhook of the policy.",
    &[integer("timeoutSeconds", "Seconds that an answer may take, 1 to 30.")
        .default("10")
        .example("15")],
);

/// An element of `spec.variables`.
pub static POLICY_VARIABLE: FieldTable = FieldTable::new(
    "Policy variable",
    "Read as `variables.NAME`.",
    &[
        string("name", "Name.").required().example("team"),
        cel("expression", "Its value.")
            .required()
            .example("object.metadata.labels[?'team'].orValue('none')"),
    ],
);

/// An element of `spec.auditAnnotations`.
pub static AUDIT_ANNOTATION: FieldTable = FieldTable::new(
    "Audit annotation",
    "An annotation of the audit event.",
    &[
        string("key", "Key.").required().example("team"),
        cel("valueExpression", "Text, or null for none.").required().example("variables.team"),
    ],
);

const INCLUDE: Field = tables("resourceRules", &RESOURCE_RULE, "Resources of which one must fit.");
const EXCLUDE: Field =
    tables("excludeResourceRules", &RESOURCE_RULE, "Resources that are left out.");
const OF_NAMESPACES: Field =
    table("namespaceSelector", &LABEL_SELECTOR, "Labels of the namespace.");
const OF_OBJECTS: Field = table("objectSelector", &LABEL_SELECTOR, "Labels of the object.");
const POLICY: Field = one_of(
    "matchPolicy",
    &["Exact", "Equivalent"],
    "Whether requests in other versions of a kind are converted.",
)
.default("Equivalent")
.example("Exact");

/// `matchConstraints`.
pub static MATCH_CONSTRAINTS: FieldTable = FieldTable::new(
    "Match constraints",
    "As in Kubernetes' admission policies.",
    &[INCLUDE, EXCLUDE, OF_NAMESPACES, OF_OBJECTS, POLICY],
);

/// `targetMatchConstraints`.
pub static TARGET_CONSTRAINTS: FieldTable = FieldTable::new(
    "Target match constraints",
    "Stored objects that a MutatingPolicy changes.",
    &[
        INCLUDE,
        EXCLUDE,
        OF_NAMESPACES,
        OF_OBJECTS,
        POLICY,
        cel("expression", "The targets themselves: an object, or a List of objects.")
            .example("resource.List('apps/v1', 'deployments', object.metadata.namespace)"),
    ],
);

/// An element of `resourceRules`.
pub static RESOURCE_RULE: FieldTable = FieldTable::new(
    "Resource rule",
    "Resources and operations. `*` stands for all.",
    &[
        strings("apiGroups", "API groups; `''` is the core group.").required().example("['']"),
        strings("apiVersions", "Versions.").required().example("[v1]"),
        list(
            "operations",
            &FieldType::Enum(&["CREATE", "UPDATE", "DELETE", "CONNECT", "*"]),
            "Operations.",
        )
        .default("all")
        .example("[CREATE]"),
        strings("resources", "Plural names, also with `/subresource`.")
            .required()
            .example("[namespaces]"),
        strings("resourceNames", "Names of objects.").example("[shop]"),
        one_of("scope", &["Cluster", "Namespaced", "*"], "Whether objects have a namespace.")
            .default("*")
            .example("Namespaced"),
    ],
);

/// A MutatingPolicy or NamespacedMutatingPolicy.
pub static MUTATING_POLICY: FieldTable = FieldTable::new(
    "MutatingPolicy",
    "Changes objects at admission, or stored ones. A NamespacedMutatingPolicy acts in its own namespace.",
    &[
        api_version("policies.kyverno.io/v1"),
        kind("MutatingPolicy"),
        OBJECT_METADATA,
        table("spec", &MUTATING_SPEC, "What the policy does.").required(),
        STATUS,
    ],
);

/// `spec` of a MutatingPolicy.
pub static MUTATING_SPEC: FieldTable = FieldTable::new(
    "MutatingPolicy spec",
    "Triggers, values and patches.",
    &[
        ANNOTATIONS,
        table("autogen", &AUTOGEN, "Controllers of Pods that a policy for Pods also acts on."),
        table("evaluation", &MUTATING_EVALUATION, "When the policy runs."),
        FAILURE,
        CONDITIONS,
        CONSTRAINTS,
        MUTATIONS,
        one_of("reinvocationPolicy", &["Never", "IfNeeded"], "Whether the policy runs again after others changed the object. Kiln decides this for its webhook as a whole.")
            .example("IfNeeded")
            .ignored(),
        tables("targetMatchConditions", &MATCH_CONDITION, "Conditions on each target, as `object`."),
        table("targetMatchConstraints", &TARGET_CONSTRAINTS, "Stored objects to change, in place of the object of the request."),
        VARIABLES,
        table("webhookConfiguration", &POLICY_WEBHOOK, "How the webhook is registered."),
    ],
);

/// `spec.autogen`.
pub static AUTOGEN: FieldTable = FieldTable::new(
    "Autogen",
    "For policies that match Pods.",
    &[
        table("podControllers", &POD_CONTROLLERS, "Which controllers."),
        table(
            "mutatingAdmissionPolicy",
            &SWITCH,
            "Whether Kyverno creates a MutatingAdmissionPolicy. Kiln does not.",
        )
        .ignored(),
    ],
);

/// `spec.autogen.podControllers`.
pub static POD_CONTROLLERS: FieldTable = FieldTable::new(
    "Pod controllers",
    "Which controllers.",
    &[list(
        "controllers",
        &FieldType::Enum(&[
            "daemonsets",
            "deployments",
            "replicasets",
            "statefulsets",
            "jobs",
            "cronjobs",
        ]),
        "Plural names; an empty list for none.",
    )
    .default("all")
    .example("[deployments]")],
);

/// `spec.evaluation` of a MutatingPolicy.
pub static MUTATING_EVALUATION: FieldTable = FieldTable::new(
    "MutatingPolicy evaluation",
    "Switches.",
    &[
        switch("admission", "Whether admission requests trigger the policy.")
            .default("true")
            .example("{enabled: false}"),
        switch("background", "Whether Kyverno reports on stored objects.")
            .default("true")
            .example("{enabled: false}")
            .ignored(),
        one_of(
            "mode",
            &["Kubernetes", "JSON"],
            "What Kyverno evaluates; Kiln evaluates objects of Kubernetes.",
        )
        .example("Kubernetes")
        .ignored(),
        switch("mutateExisting", "Whether stored objects are changed.")
            .default("false")
            .example("{enabled: true}"),
        SKIP,
        boolean(
            "useServerSideApply",
            "Whether ApplyConfigurations may replace lists that a schema calls atomic.",
        )
        .default("false")
        .example("true"),
    ],
);

/// An element of `spec.mutations`.
pub static MUTATION: FieldTable = FieldTable::new(
    "Mutation",
    "A patch type and its expression.",
    &[
        one_of("patchType", &["ApplyConfiguration", "JSONPatch"], "Which of the two.")
            .required()
            .example("ApplyConfiguration"),
        table("applyConfiguration", &PATCH_EXPRESSION, "A part of an object, as `Object{…}`."),
        table("jsonPatch", &PATCH_EXPRESSION, "Operations, as a list of `JSONPatch{…}`."),
    ],
);

/// `applyConfiguration` or `jsonPatch`.
pub static PATCH_EXPRESSION: FieldTable = FieldTable::new(
    "Patch expression",
    "The patch.",
    &[cel("expression", "What the patch is.")
        .required()
        .example("'Object{metadata: Object.metadata{labels: {\"team\": \"shop\"}}}'")],
);

/// A PolicyException of `policies.kyverno.io`.
pub static EXCEPTION: FieldTable = FieldTable::new(
    "PolicyException (policies.kyverno.io)",
    "Policies in CEL do not apply to what the exception matches, or expressions see what it allows as `exceptions`.",
    &[
        api_version("policies.kyverno.io/v1"),
        kind("PolicyException"),
        OBJECT_METADATA,
        table("spec", &EXCEPTION_SPEC, "The exception.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a PolicyException of `policies.kyverno.io`.
pub static EXCEPTION_SPEC: FieldTable = FieldTable::new(
    "CEL exception spec",
    "Which policies, and for which objects. Of several, the label `polex.kyverno.io/priority` decides.",
    &[
        strings("allowedValues", "Values that expressions may allow.").example("['80']"),
        string("evaluationMode", "For policies that Kiln does not run.")
            .example("Kubernetes")
            .ignored(),
        string("expiresAt", "Time in RFC 3339 from which the exception no longer holds.")
            .example("'2030-01-31T00:00:00Z'"),
        strings("images", "Images that expressions may allow. Wildcards.")
            .example("['registry.example.com/*']"),
        CONDITIONS,
        tables("policyRefs", &POLICY_REF, "Policies.").required(),
        string_map("properties", "What Kyverno adds to reports.")
            .example("{ticket: OPS-1}")
            .ignored(),
        one_of("reportResult", &["skip", "pass"], "How a policy that does not apply is reported.")
            .default("skip")
            .example("pass"),
    ],
);

/// An element of `policyRefs`.
pub static POLICY_REF: FieldTable = FieldTable::new(
    "Policy reference",
    "A policy by kind and name.",
    &[
        string("name", "Name; of a policy in a namespace, also `namespace/name`.")
            .required()
            .example("quotas"),
        string(
            "kind",
            "Kind, for example GeneratingPolicy. Kinds that Kiln does not run have no effect.",
        )
        .required()
        .example("GeneratingPolicy"),
    ],
);

/// A MutatingAdmissionPolicy.
pub static ADMISSION_POLICY: FieldTable = FieldTable::new(
    "MutatingAdmissionPolicy",
    "Kubernetes' own policy. Without a binding it acts everywhere, as in Kyverno's command line.",
    &[
        api_version("admissionregistration.k8s.io/v1"),
        kind("MutatingAdmissionPolicy"),
        OBJECT_METADATA,
        table("spec", &ADMISSION_SPEC, "What the policy does.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a MutatingAdmissionPolicy.
pub static ADMISSION_SPEC: FieldTable = FieldTable::new(
    "MutatingAdmissionPolicy spec",
    "Requests, values and patches.",
    &[
        FAILURE,
        CONDITIONS,
        CONSTRAINTS,
        MUTATIONS,
        table(
            "paramKind",
            &PARAM_KIND,
            "Kind of the parameters, which expressions know as `params`.",
        ),
        one_of(
            "reinvocationPolicy",
            &["Never", "IfNeeded"],
            "Whether the API server runs the policy again.",
        )
        .required()
        .example("Never"),
        VARIABLES,
    ],
);

/// `paramKind`.
pub static PARAM_KIND: FieldTable = FieldTable::new(
    "Parameter kind",
    "The kind of parameters.",
    &[
        string("apiVersion", "apiVersion.").required().example("v1"),
        string("kind", "Kind.").required().example("ConfigMap"),
    ],
);

pub(crate) const BOUND_POLICY: Field =
    string("policyName", "Name of the policy.").required().example("labels");
pub(crate) const BOUND_PARAMETERS: Field = table("paramRef", &PARAM_REF, "The parameters.");
pub(crate) const BOUND_RESOURCES: Field =
    table("matchResources", &MATCH_CONSTRAINTS, "What narrows the policy.");

/// A MutatingAdmissionPolicyBinding.
pub static BINDING: FieldTable = FieldTable::new(
    "MutatingAdmissionPolicyBinding",
    "A policy becomes one rule for each of its bindings.",
    &[
        api_version("admissionregistration.k8s.io/v1"),
        kind("MutatingAdmissionPolicyBinding"),
        OBJECT_METADATA,
        table("spec", &BINDING_SPEC, "The binding.").required(),
        STATUS.only_kiln(),
    ],
);

/// `spec` of a MutatingAdmissionPolicyBinding.
pub static BINDING_SPEC: FieldTable = FieldTable::new(
    "Binding spec",
    "The policy, and what narrows it.",
    &[BOUND_POLICY, BOUND_PARAMETERS, BOUND_RESOURCES],
);

/// `paramRef`.
pub static PARAM_REF: FieldTable = FieldTable::new(
    "Parameter reference",
    "`name` or `selector`.",
    &[
        string("name", "Name of one object.").example("labels"),
        string("namespace", "Its namespace; without it, the namespace of the request.")
            .example("platform"),
        table("selector", &LABEL_SELECTOR, "Labels of objects; the policy runs once for each."),
        one_of(
            "parameterNotFoundAction",
            &["Allow", "Deny"],
            "What becomes of a request without parameters.",
        )
        .default("Deny")
        .example("Allow"),
    ],
);
