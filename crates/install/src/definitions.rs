//! The custom resources: ours by name and group, in every version that users may write.
//!
//! All versions of a kind share one schema, so none needs conversion. A schema types what has one spelling and
//! keeps what has several: nothing that a user wrote is pruned.

use std::sync::Arc;

use kiln_diagnostic::Source;
use kiln_object::policy_kinds::{OWN_GROUP, POLICY_KINDS};
use kiln_value::{Map, Value, value};
use kiln_yaml::{ReadOptions, read};

/// A printer column: name, path, type, and the priority that hides it from the narrow table.
type Column = (&'static str, &'static str, &'static str, i64);

const AGE: Column = ("AGE", ".metadata.creationTimestamp", "date", 0);

const POLICY_COLUMNS: &[Column] = &[
    ("ADMISSION", ".spec.admission", "boolean", 0),
    ("BACKGROUND", ".spec.background", "boolean", 0),
    ("READY", r#".status.conditions[?(@.type == "Ready")].status"#, "string", 0),
    // Rules that have no effect: the message of the condition AllRulesRun names them.
    ("NOT RUN", ".status.rulecount.notrun", "integer", 0),
    AGE,
    ("FAILURE POLICY", ".spec.failurePolicy", "string", 1),
    ("VALIDATE", ".status.rulecount.validate", "integer", 1),
    ("MUTATE", ".status.rulecount.mutate", "integer", 1),
    ("GENERATE", ".status.rulecount.generate", "integer", 1),
    ("VERIFY IMAGES", ".status.rulecount.verifyimages", "integer", 1),
    ("MESSAGE", r#".status.conditions[?(@.type == "Ready")].message"#, "string", 0),
];

const MODRULE_COLUMNS: &[Column] = &[
    ("TYPE", ".spec.type", "string", 0),
    ("TIER", ".spec.executionTier", "integer", 0),
    ("READY", r#".status.conditions[?(@.type == "Ready")].status"#, "string", 0),
    AGE,
    ("MESSAGE", r#".status.conditions[?(@.type == "Ready")].message"#, "string", 1),
];

const REQUEST_COLUMNS: &[Column] = &[
    ("POLICY", ".spec.policy", "string", 0),
    ("RULETYPE", ".spec.requestType", "string", 0),
    ("RESOURCEKIND", ".spec.resource.kind", "string", 0),
    ("RESOURCENAME", ".spec.resource.name", "string", 0),
    ("RESOURCENAMESPACE", ".spec.resource.namespace", "string", 0),
    ("STATUS", ".status.state", "string", 0),
    AGE,
];

const REPORT_COLUMNS: &[Column] = &[
    ("KIND", ".scope.kind", "string", 0),
    ("NAME", ".scope.name", "string", 0),
    ("PASS", ".summary.pass", "integer", 0),
    ("FAIL", ".summary.fail", "integer", 0),
    ("WARN", ".summary.warn", "integer", 0),
    ("ERROR", ".summary.error", "integer", 0),
    ("SKIP", ".summary.skip", "integer", 0),
    AGE,
];

const CLEANUP_COLUMNS: &[Column] = &[
    ("SCHEDULE", ".spec.schedule", "string", 0),
    ("READY", r#".status.conditions[?(@.type == "Ready")].status"#, "string", 0),
    AGE,
    ("MESSAGE", r#".status.conditions[?(@.type == "Ready")].message"#, "string", 0),
];
const CEL_COLUMNS: &[Column] = &[AGE, ("READY", ".status.conditionStatus.ready", "string", 0)];
const ENTRY_COLUMNS: &[Column] = &[
    AGE,
    ("REFRESH INTERVAL", ".spec.apiCall.refreshInterval", "string", 0),
    ("LAST REFRESH", ".status.lastRefreshTime", "date", 0),
];

#[derive(Clone, Copy)]
struct Definition {
    group: &'static str,
    kind: &'static str,
    plural: &'static str,
    short: &'static str,
    namespaced: bool,
    /// The first is the one that is stored.
    versions: &'static [&'static str],
    deprecated: &'static [&'static str],
    schema: &'static str,
    columns: &'static [Column],
    has_status: bool,
}

const KYVERNO: Definition = Definition {
    group: "kyverno.io",
    kind: "",
    plural: "",
    short: "",
    namespaced: true,
    versions: &["v2", "v2beta1"],
    deprecated: &["v2beta1"],
    schema: "",
    columns: &[AGE],
    has_status: true,
};

const CEL: Definition = Definition {
    group: "policies.kyverno.io",
    versions: &["v1beta1", "v1", "v1alpha1"],
    deprecated: &["v1alpha1"],
    columns: CEL_COLUMNS,
    ..KYVERNO
};

/// Rules, in every spelling.
const POLICY: Definition = Definition {
    versions: &["v1", "v2beta1"],
    deprecated: &[],
    schema: include_str!("schemas/policy.yaml"),
    columns: POLICY_COLUMNS,
    ..KYVERNO
};

const CLEANUP: Definition = Definition {
    schema: include_str!("schemas/cleanup.yaml"),
    columns: CLEANUP_COLUMNS,
    ..KYVERNO
};

const GENERATING: Definition =
    Definition { schema: include_str!("schemas/generating_policy.yaml"), ..CEL };

const DELETING: Definition =
    Definition { schema: include_str!("schemas/deleting_policy.yaml"), ..CEL };

const MUTATING: Definition =
    Definition { schema: include_str!("schemas/mutating_policy.yaml"), ..CEL };

const VALIDATING: Definition =
    Definition { schema: include_str!("schemas/validating_policy.yaml"), ..CEL };

const REPORT: Definition = Definition {
    group: "wgpolicyk8s.io",
    versions: &["v1alpha2"],
    deprecated: &[],
    schema: include_str!("schemas/report.yaml"),
    columns: REPORT_COLUMNS,
    has_status: false,
    ..KYVERNO
};

const DEFINITIONS: &[Definition] = &[
    POLICY.cluster("ClusterPolicy", "clusterpolicies", "cpol"),
    POLICY.namespaced("Policy", "policies", "pol"),
    Definition {
        versions: &["v2"],
        deprecated: &[],
        schema: include_str!("schemas/update_request.yaml"),
        columns: REQUEST_COLUMNS,
        ..KYVERNO
    }
    .namespaced("UpdateRequest", "updaterequests", "ur"),
    Definition { schema: include_str!("schemas/exception.yaml"), has_status: false, ..KYVERNO }
        .namespaced("PolicyException", "policyexceptions", "polex"),
    CLEANUP.cluster("ClusterCleanupPolicy", "clustercleanuppolicies", "ccleanpol"),
    CLEANUP.namespaced("CleanupPolicy", "cleanuppolicies", "cleanpol"),
    Definition {
        versions: &["v2beta1", "v2", "v2alpha1"],
        deprecated: &["v2alpha1"],
        schema: include_str!("schemas/global_context.yaml"),
        columns: ENTRY_COLUMNS,
        ..KYVERNO
    }
    .cluster("GlobalContextEntry", "globalcontextentries", "gctxentry"),
    GENERATING.cluster("GeneratingPolicy", "generatingpolicies", "gpol"),
    GENERATING.younger().namespaced(
        "NamespacedGeneratingPolicy",
        "namespacedgeneratingpolicies",
        "ngpol",
    ),
    DELETING.cluster("DeletingPolicy", "deletingpolicies", "dpol"),
    DELETING.younger().namespaced(
        "NamespacedDeletingPolicy",
        "namespaceddeletingpolicies",
        "ndpol",
    ),
    MUTATING.cluster("MutatingPolicy", "mutatingpolicies", "mpol"),
    MUTATING.younger().namespaced(
        "NamespacedMutatingPolicy",
        "namespacedmutatingpolicies",
        "nmpol",
    ),
    VALIDATING.cluster("ValidatingPolicy", "validatingpolicies", "vpol"),
    VALIDATING.younger().namespaced(
        "NamespacedValidatingPolicy",
        "namespacedvalidatingpolicies",
        "nvpol",
    ),
    Definition {
        schema: include_str!("schemas/cel_exception.yaml"),
        columns: &[AGE],
        has_status: false,
        ..CEL
    }
    .namespaced("PolicyException", "policyexceptions", ""),
    Definition {
        group: "api.kubemod.io",
        versions: &["v1beta1"],
        deprecated: &[],
        schema: include_str!("schemas/mod_rule.yaml"),
        columns: MODRULE_COLUMNS,
        ..KYVERNO
    }
    .namespaced("ModRule", "modrules", ""),
    REPORT.namespaced("PolicyReport", "policyreports", "polr"),
    REPORT.cluster("ClusterPolicyReport", "clusterpolicyreports", "cpolr"),
];

const OPEN_REPORT: Definition =
    Definition { group: "openreports.io", versions: &["v1alpha1"], ..REPORT };

/// Reports of `openreports.io`, in the place of PolicyReports.
const OPEN_REPORTS: [Definition; 2] = [
    OPEN_REPORT.namespaced("Report", "reports", "reps"),
    OPEN_REPORT.cluster("ClusterReport", "clusterreports", "creps"),
];

/// Their definitions.
pub(crate) fn open_reports() -> Vec<Value> {
    let parts = yaml(include_str!("schemas/parts.yaml"));
    OPEN_REPORTS.iter().map(|definition| definition.object(&parts)).collect()
}

/// One kind for both forms of exceptions.
const OWN_EXCEPTION: Definition = Definition {
    kind: "PolicyException",
    plural: "policyexceptions",
    short: "polex",
    schema: include_str!("schemas/own_exception.yaml"),
    has_status: false,
    ..KYVERNO
};

/// The definitions of all kinds that Kiln reads or writes, under the groups that Kyverno and KubeMod have.
pub fn definitions() -> Vec<Value> {
    let parts = yaml(include_str!("schemas/parts.yaml"));
    DEFINITIONS.iter().map(|definition| definition.object(&parts)).collect()
}

/// The same kinds of policies under Kiln's own group, in one version.
pub fn own_definitions() -> Vec<Value> {
    let parts = yaml(include_str!("schemas/parts.yaml"));
    let of_policies = |definition: &&Definition| {
        POLICY_KINDS.iter().any(|row| {
            row.own && row.kind == definition.kind && row.kyverno_group() == definition.group
        })
    };
    let others = DEFINITIONS.iter().filter(of_policies);
    let others = others.filter(|definition| definition.kind != OWN_EXCEPTION.kind);
    let all = others.chain([&OWN_EXCEPTION]);
    let own = |definition: &Definition| Definition {
        group: OWN_GROUP,
        versions: &["v1"],
        deprecated: &[],
        ..*definition
    };
    all.map(|definition| own(definition).object(&parts)).collect()
}

/// Whether a definition is of a group that Kyverno installs as well.
pub(crate) fn is_of_kyverno(definition: &Value) -> bool {
    let group = definition.str_at(["spec", "group"]).unwrap_or_default();
    group == REPORT.group || POLICY_KINDS.iter().any(|row| row.kyverno_group() == group)
}

/// Whether a definition is of PolicyReports.
pub(crate) fn is_of_reports(definition: &Value) -> bool {
    definition.str_at(["spec", "group"]) == Some(REPORT.group)
}

impl Definition {
    /// A kind of this family whose objects live in namespaces.
    const fn namespaced(
        self,
        kind: &'static str,
        plural: &'static str,
        short: &'static str,
    ) -> Self {
        Definition { kind, plural, short, namespaced: true, ..self }
    }

    /// A kind of this family whose objects do not.
    const fn cluster(self, kind: &'static str, plural: &'static str, short: &'static str) -> Self {
        Definition { kind, plural, short, namespaced: false, ..self }
    }

    /// A kind of this family that came later, and has no old version.
    const fn younger(self) -> Self {
        Definition { versions: &["v1beta1", "v1"], deprecated: &[], ..self }
    }

    fn object(&self, parts: &Value) -> Value {
        let schema = self.schema(parts);
        let columns: Vec<Value> = self
            .columns
            .iter()
            .map(|(name, path, kind, priority)| {
                value!({"name": name, "jsonPath": path, "type": kind, "priority": priority})
            })
            .collect();
        let versions: Vec<Value> = self
            .versions
            .iter()
            .map(|version| {
                value!({
                    "name": version,
                    "served": true,
                    "storage": *version == self.versions[0],
                    "deprecated": self.deprecated.contains(version),
                    "schema": {"openAPIV3Schema": schema},
                    "additionalPrinterColumns": columns,
                    "subresources": if self.has_status { value!({"status": {}}) } else { value!({}) },
                })
            })
            .collect();
        let is_own = self.group == OWN_GROUP;
        // Short names are one space for all groups: `cpol` stays Kyverno's.
        let short = if is_own { format!("k{}", self.short) } else { self.short.to_owned() };
        let short: &[String] = if self.short.is_empty() { &[] } else { &[short] };
        let categories: &[&str] = match self.group {
            OWN_GROUP => &["kiln"],
            group if group.ends_with("kyverno.io") => &["kyverno"],
            _ => &[],
        };
        value!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {
                "name": format!("{}.{}", self.plural, self.group),
                "labels": crate::labels(&crate::InstallOptions::default(), "crds"),
            },
            "spec": {
                "group": self.group,
                "scope": if self.namespaced { "Namespaced" } else { "Cluster" },
                "names": {
                    "kind": self.kind,
                    "listKind": format!("{}List", self.kind),
                    "plural": self.plural,
                    "singular": self.kind.to_lowercase(),
                    "shortNames": short,
                    "categories": categories,
                },
                "versions": versions,
            },
        })
    }

    fn schema(&self, parts: &Value) -> Value {
        let mut schema = filled_in(&yaml(self.schema), parts);
        let top = schema.as_map_mut().expect("a schema is a map");
        top.insert("type", "object");
        let properties = top.get_mut("properties").and_then(Value::as_map_mut);
        let properties = properties.expect("a schema has properties");
        properties.insert("apiVersion", value!({"type": "string"}));
        properties.insert("kind", value!({"type": "string"}));
        properties.insert("metadata", value!({"type": "object"}));
        schema
    }
}

/// A schema with its shared shapes in place of their names.
fn filled_in(schema: &Value, parts: &Value) -> Value {
    if let Some(name) = schema.as_str()
        && let Some(part) = parts.get(name)
    {
        return filled_in(part, parts);
    }
    if let Some(map) = schema.as_map() {
        let entries = map.iter().map(|(key, value)| (key.clone(), filled_in(value, parts)));
        return Value::from(Map::from_unique(entries.collect()));
    }
    match schema.as_list() {
        Some(list) => {
            Value::from(list.iter().map(|item| filled_in(item, parts)).collect::<Vec<_>>())
        }
        None => schema.clone(),
    }
}

/// Reads a file that is part of this crate.
fn yaml(text: &str) -> Value {
    let source = Arc::new(Source::new("schema", text));
    let mut documents = read(&source, ReadOptions::kubernetes()).expect("our own files are YAML");
    documents.remove(0).into_value()
}
