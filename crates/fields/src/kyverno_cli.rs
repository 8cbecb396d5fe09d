//! Files of Kyverno's command line: suites, values, users, and what a cluster is said to hold.

use crate::{
    DocumentKind, Field, FieldTable, FieldType, any, boolean, integer, list, one_of, string,
    strings, table, tables,
};

const VERSION: &[&str] = &["cli.kyverno.io/v1alpha1", "cli.kyverno.io/v1beta1"];

/// Kinds of `cli.kyverno.io`.
pub const KINDS: &[DocumentKind] = &[
    DocumentKind {
        name: "Test",
        api_versions: VERSION,
        original: "Kyverno",
        summary: "A test suite (`kyverno-test.yaml`).",
        table: &TEST,
    },
    DocumentKind {
        name: "Values",
        api_versions: VERSION,
        original: "Kyverno",
        summary: "Values for expressions (`--values-file`, `variables`).",
        table: &VALUES_FILE,
    },
    DocumentKind {
        name: "UserInfo",
        api_versions: VERSION,
        original: "Kyverno",
        summary: "The user who sends the requests (`--userinfo`, `userinfo`).",
        table: &USER_FILE,
    },
    DocumentKind {
        name: "Context",
        api_versions: VERSION,
        original: "Kyverno",
        summary: "Objects and images that expressions find.",
        table: &GIVEN,
    },
    DocumentKind {
        name: "ClusterResource",
        api_versions: VERSION,
        original: "Kyverno",
        summary: "Objects and definitions that the cluster has.",
        table: &GIVEN,
    },
];

const API_VERSION: Field =
    string("apiVersion", "Group and version of the kind.").example("cli.kyverno.io/v1alpha1");
const KIND: Field = string("kind", "The kind.").example("Test");
const METADATA: Field =
    any("metadata", "`name` is the name of the suite.").example("{name: quotas}");

/// A test suite.
pub static TEST: FieldTable = FieldTable::new(
    "Test",
    "A suite. Files are relative to it; directories and patterns such as `policies/*.yaml` work, too.",
    &[
        API_VERSION,
        KIND,
        METADATA,
        string("name", "The name of the suite.").example("quotas").deprecated("metadata.name"),
        strings("policies", "Policies.").example("[policy.yaml]"),
        strings("resources", "Triggers: each is created, unless a result says otherwise.")
            .example("[resources.yaml]"),
        strings("targetResources", "Stored objects that mutate rules with targets change.")
            .example("[existing.yaml]"),
        strings("paramResources", "Parameters of MutatingAdmissionPolicies.")
            .example("[params.yaml]"),
        strings("clusterResources", "Files of kind ClusterResource.").example("[cluster.yaml]"),
        strings("exceptions", "PolicyExceptions.").example("[exception.yaml]"),
        strings("crds", "CustomResourceDefinitions. Without one, plural and scope are guessed.")
            .example("[crd.yaml]"),
        string("variables", "A file of kind Values.").example("values.yaml"),
        table("values", &VALUES_FILE, "The same, written here."),
        string("userinfo", "A file of kind UserInfo.").example("user.yaml"),
        string("context", "A file of kind Context.").example("context.yaml"),
        tables("apiCallResponses", &API_CALL_RESPONSE, "What services and the API server answer."),
        tables("globalContextEntries", &GLOBAL_ENTRY, "What GlobalContextEntries hold."),
        tables("results", &RESULT, "What is expected."),
        any("checks", "Assertions on results.").example("[{match: {}, assert: {}}]").not_run(),
        string("jsonPayload", "A file for ValidatingPolicies of mode JSON.")
            .example("payload.json")
            .deprecated("jsonPayloads"),
        strings("jsonPayloads", "Files for ValidatingPolicies of mode JSON.")
            .example("[payload.json]"),
        strings("httpPayloads", "Files for ValidatingPolicies of mode HTTP.")
            .example("[request.json]"),
        strings("envoyPayloads", "Files for ValidatingPolicies of mode Envoy.")
            .example("[request.json]"),
    ],
);

const ONE_OR_MORE: FieldType =
    FieldType::Either(&[FieldType::String, FieldType::List(&FieldType::String)]);

const fn says_what_the_policy_is(name: &'static str) -> Field {
    boolean(name, "The policy itself says so.").example("true").ignored()
}

/// An expectation.
pub static RESULT: FieldTable = FieldTable::new(
    "Result",
    "What a rule is expected to do with resources.",
    &[
        string("policy", "The policy, as `name` or `namespace/name`.").required().example("quotas"),
        string("rule", "The rule. Not needed for policies without named rules.").example("quota"),
        string("kind", "Kind of the resources.").example("Namespace"),
        strings(
            "resources",
            "Resources, as `name` or `namespace/name`; without it, all that match.",
        )
        .example("[shop]"),
        tables("resourceSpecs", &RESOURCE_SPEC, "Resources of other kinds."),
        one_of("result", &["pass", "fail", "skip", "warn", "error"], "What is expected.")
            .required()
            .example("pass"),
        one_of(
            "operation",
            &["CREATE", "UPDATE", "DELETE", "CONNECT"],
            "The operation of the request.",
        )
        .default("CREATE")
        .example("UPDATE"),
        Field::new(
            "patchedResources",
            ONE_OR_MORE,
            "Files with the patched resources; one may hold objects for several results.",
        )
        .example("patched.yaml"),
        Field::new("generatedResource", ONE_OR_MORE, "A file with the downstream.")
            .example("quota.yaml"),
        Field::new("generatedResources", ONE_OR_MORE, "Files with downstreams.")
            .example("[quota.yaml, network-policy.yaml]")
            .only_kiln(),
        Field::new("cloneSourceResource", ONE_OR_MORE, "Files with sources of clones.")
            .example("source.yaml"),
        boolean(
            "failOnMissingResources",
            "Whether a resource without an object in `patchedResources` fails.",
        )
        .default("false")
        .example("true"),
        string("rejectMessage", "With `result: fail`, what a ModRule says.")
            .example("no root here")
            .only_kiln(),
        string("status", "The old name of `result`.").example("pass").deprecated("result"),
        string("resource", "The old form of `resources`.").example("shop").deprecated("resources"),
        string("namespace", "The namespace of `resource`.")
            .example("team")
            .deprecated("resources, as namespace/name"),
        Field::new("patchedResource", ONE_OR_MORE, "The old name of `patchedResources`.")
            .example("patched.yaml")
            .deprecated("patchedResources"),
        says_what_the_policy_is("isValidatingAdmissionPolicy"),
        says_what_the_policy_is("isMutatingAdmissionPolicy"),
        says_what_the_policy_is("isValidatingPolicy"),
        says_what_the_policy_is("isImageValidatingPolicy"),
        says_what_the_policy_is("isMutatingPolicy"),
        says_what_the_policy_is("isGeneratingPolicy"),
        says_what_the_policy_is("isDeletingPolicy"),
    ],
);

/// An element of `resourceSpecs`.
pub static RESOURCE_SPEC: FieldTable = FieldTable::new(
    "Resource spec",
    "A resource; empty parts fit all.",
    &[
        string("group", "API group.").example("apps"),
        string("version", "Version.").example("v1"),
        string("kind", "Kind.").default("the `kind` of the result").example("Deployment"),
        string("namespace", "Namespace.").example("shop"),
        string("name", "Name.").example("web"),
        string("subresource", "Subresource.").example("scale").ignored(),
    ],
);

/// What a service or the API server answers.
pub static API_CALL_RESPONSE: FieldTable = FieldTable::new(
    "API call response",
    "`url` or `urlPath`, and the answer.",
    &[
        string("url", "Address of a service.").example("https://quota.platform.svc/zones"),
        string("urlPath", "Path at the API server.").example("/api/v1/nodes"),
        one_of("method", &["GET", "POST"], "Method of the request.").default("GET").example("GET"),
        table("response", &RESPONSE, "The answer.").required(),
    ],
);

/// `response` of an answer.
pub static RESPONSE: FieldTable = FieldTable::new(
    "Response",
    "An answer.",
    &[
        integer("statusCode", "Status of HTTP.").default("200").example("404"),
        any("body", "The body, a map.").required().example("{items: []}"),
    ],
);

/// What a GlobalContextEntry holds.
pub static GLOBAL_ENTRY: FieldTable = FieldTable::new(
    "Global context data",
    "`data`, `resources` or `resourceFiles`.",
    &[
        string("name", "Name of the GlobalContextEntry.").required().example("zones"),
        any("data", "Any data.").example("{zones: [a, b]}"),
        list("resources", &FieldType::Any, "Objects.")
            .example("[{apiVersion: v1, kind: Node, metadata: {name: a}}]"),
        strings("resourceFiles", "Files with objects.").example("[nodes.yaml]"),
        string("fieldPath", "A part of the data, as JMESPath.").example("zones"),
        tables("projections", &GIVEN_PROJECTION, "Named parts."),
    ],
);

/// A named part of what a GlobalContextEntry holds.
pub static GIVEN_PROJECTION: FieldTable = FieldTable::new(
    "Global context projection",
    "A named part.",
    &[
        string("name", "Name.").required().example("names"),
        Field::new("path", FieldType::Expression("JMESPath"), "What it holds.")
            .required()
            .example("zones[0]"),
    ],
);

/// A file of kind Values.
pub static VALUES_FILE: FieldTable = FieldTable::new(
    "Values",
    "Values count more the further down they stand: global, of a resource, of a rule; `--set` counts most.",
    &[
        API_VERSION,
        KIND.example("Values"),
        METADATA,
        any("globalValues", "Values of all policies, by their names in expressions.")
            .example("{request.operation: UPDATE}"),
        tables("policies", &POLICY_VALUES, "Values of single policies."),
        tables("namespaceSelector", &NAMESPACE_LABELS, "Labels of namespaces."),
        list("namespaces", &FieldType::Any, "Namespaces, as whole objects.")
            .example("[{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]")
            .only_kiln(),
        tables("subresources", &SUBRESOURCE, "Kinds that are subresources of others."),
    ],
);

pub static POLICY_VALUES: FieldTable = FieldTable::new(
    "Policy values",
    "Values of one policy.",
    &[
        string("name", "The policy, as `name` or `namespace/name`.").required().example("quotas"),
        tables("resources", &RESOURCE_VALUES, "Values for single resources."),
        tables("rules", &RULE_VALUES, "Values for single rules."),
    ],
);

pub static RESOURCE_VALUES: FieldTable = FieldTable::new(
    "Resource values",
    "Values for one resource.",
    &[
        string("name", "Name of the resource.").required().example("shop"),
        any("values", "Values, by their names in expressions.")
            .example("{request.operation: DELETE}"),
    ],
);

pub static RULE_VALUES: FieldTable = FieldTable::new(
    "Rule values",
    "Values for one rule, in place of what its context entries would load.",
    &[
        string("name", "Name of the rule.").required().example("quota"),
        any("values", "Values.").example("{settings.data.cpu: '4'}"),
        any("foreachValues", "Lists with a value for each element of `foreach`.")
            .example("{imageData: [{}, {}]}"),
    ],
);

pub static NAMESPACE_LABELS: FieldTable = FieldTable::new(
    "Namespace labels",
    "Labels of one namespace.",
    &[
        string("name", "Name of the namespace.").required().example("shop"),
        any("labels", "Its labels.").example("{team: shop}"),
    ],
);

/// A subresource and its parent.
pub static SUBRESOURCE: FieldTable = FieldTable::new(
    "Subresource",
    "Objects of a kind that are requests to a subresource.",
    &[
        table("subresource", &API_RESOURCE, "The kind of the requests.").required(),
        table("parentResource", &API_RESOURCE, "The kind of the parent.").required(),
    ],
);

/// What discovery says about a resource.
pub static API_RESOURCE: FieldTable = FieldTable::new(
    "API resource",
    "As discovery says it; other fields have no effect.",
    &[
        string("name", "Plural name; of a subresource, `parents/name`.")
            .required()
            .example("deployments/scale"),
        string("kind", "Kind.").required().example("Scale"),
        string("group", "API group.").example("autoscaling"),
        string("version", "Version.").example("v1"),
    ],
);

/// A file of kind UserInfo.
pub static USER_FILE: FieldTable = FieldTable::new(
    "UserInfo",
    "The user who sends the requests.",
    &[
        API_VERSION,
        KIND.example("UserInfo"),
        METADATA,
        strings("roles", "Roles, as `namespace:name`.").example("[shop:editor]"),
        strings("clusterRoles", "ClusterRoles.").example("[view]"),
        table("userInfo", &USER_INFO, "The user."),
    ],
);

/// `userInfo` of a user file.
pub static USER_INFO: FieldTable = FieldTable::new(
    "User",
    "As in an AdmissionReview.",
    &[
        string("username", "Name.").example("system:serviceaccount:ci:deployer"),
        string("uid", "UID.").example("'42'"),
        strings("groups", "Groups.").example("[system:authenticated]"),
        any("extra", "More, as the API server knows it.").example("{scopes: [read]}"),
    ],
);

/// A file of kind Context or ClusterResource.
pub static GIVEN: FieldTable = FieldTable::new(
    "Context and ClusterResource",
    "What a cluster and registries are said to hold.",
    &[
        API_VERSION,
        KIND.example("ClusterResource"),
        METADATA,
        table("spec", &GIVEN_SPEC, "The data."),
    ],
);

/// `spec` of a Context or ClusterResource.
pub static GIVEN_SPEC: FieldTable = FieldTable::new(
    "Given data",
    "Definitions, objects and images.",
    &[
        strings("crds", "Files with CustomResourceDefinitions; in a ClusterResource.")
            .example("[crd.yaml]"),
        list("resources", &FieldType::Any, "Objects.")
            .example("[{apiVersion: v1, kind: Namespace, metadata: {name: shop}}]"),
        list("images", &FieldType::Any, "What registries know of images; in a Context.")
            .example("[{image: 'nginx:1.29', configData: {}}]"),
    ],
);
