//! Policies in CEL as Kubernetes' own: ValidatingAdmissionPolicy and MutatingAdmissionPolicy, each with a binding.

use kiln_dialects::pod_controllers;
use kiln_value::{Map, Path, Value, value};

use crate::Conversion;
use crate::documents::{self, ConvertedDocument};
use crate::verdict::{ConvertedRule, CoveredRequests, Difference, Obstacle};

const API_VERSION: &str = "admissionregistration.k8s.io/v1";

/// Fields of both languages that mean the same.
const SAME: [&str; 6] = [
    "failurePolicy",
    "matchConstraints",
    "matchConditions",
    "variables",
    "validations",
    "auditAnnotations",
];

/// Converts a ValidatingPolicy or MutatingPolicy.
pub(crate) fn convert(policy: &Value) -> Conversion {
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
    let kind = policy.str_at(["kind"]).unwrap_or_default();
    let mut rule = ConvertedRule {
        policy: name.clone(),
        rule: name,
        form: kind.to_owned(),
        documents: Vec::new(),
        differences: Vec::new(),
        possible: Vec::new(),
        obstacle: None,
    };
    let mut conversion = Conversion::default();
    match documents(policy, kind) {
        Ok((documents, differences)) => {
            rule.documents = (0..documents.len()).collect();
            rule.differences = differences;
            conversion.documents = documents;
        }
        Err(obstacle) => rule.obstacle = Some(obstacle),
    }
    conversion.rules.push(rule);
    conversion
}

type Documents = (Vec<ConvertedDocument>, Vec<Difference>);

fn documents(policy: &Value, kind: &str) -> Result<Documents, Obstacle> {
    let path = Path::root().join("spec");
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let validates = match kind {
        "ValidatingPolicy" => true,
        "MutatingPolicy" => false,
        "NamespacedValidatingPolicy" | "NamespacedMutatingPolicy" => {
            return Err(Obstacle::new(
                kind,
                "Kubernetes has no policies of namespaces: write a cluster-wide policy and select the namespace in its binding",
            ));
        }
        other => {
            return Err(Obstacle::new(
                other,
                "Kubernetes has no such policies of its own: keep it",
            ));
        }
    };
    for (field, why) in [
        (
            "useServerSideApply",
            "it replaces lists and maps that are one value, which Kubernetes refuses",
        ),
        ("mutateExisting", "Kubernetes does not change stored objects by policies"),
    ] {
        let is_on = |value: &Value| {
            value.as_bool() == Some(true)
                || value.get("enabled").and_then(Value::as_bool) == Some(true)
        };
        if spec.get_path(["evaluation", field]).is_some_and(is_on) {
            return Err(Obstacle::new(format!("evaluation.{field}"), why)
                .at(&path.join("evaluation").join(field)));
        }
    }
    let mut differences = Vec::new();
    if validates
        && spec.get_path(["evaluation", "background", "enabled"]).and_then(Value::as_bool)
            != Some(false)
    {
        differences.push(Difference::other(
            "stored objects",
            "Kubernetes does not scan what is stored: there are no reports about it",
            CoveredRequests::Untried,
        ));
    }
    let mut variants = vec![(String::new(), spec.clone())];
    let found = match validates {
        true => pod_controllers::validating_variants(spec),
        false => pod_controllers::variants(spec).unwrap_or_default(),
    };
    variants.extend(found.into_iter().map(|variant| {
        let mut spec = variant.spec.clone();
        let rules = variant.joined_resource_rules();
        let _ = spec.set(["matchConstraints", "resourceRules"], Value::List(rules.into()));
        (variant.prefix.to_owned(), spec)
    }));
    let mut made = Vec::new();
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
    for (prefix, spec) in variants {
        made.extend(pair(policy, &format!("{prefix}{name}"), &spec, validates));
    }
    Ok((made, differences))
}

/// A policy and its binding.
fn pair(policy: &Value, name: &str, spec: &Value, validates: bool) -> [ConvertedDocument; 2] {
    let kind = if validates { "ValidatingAdmissionPolicy" } else { "MutatingAdmissionPolicy" };
    let mut document = documents::envelope(policy, API_VERSION, kind, name);
    let mut own = Map::new();
    for field in SAME {
        if let Some(value) = spec.get(field) {
            own.insert(field, value.clone());
        }
    }
    if !validates {
        if let Some(mutations) = spec.get("mutations") {
            own.insert("mutations", mutations.clone());
        }
        own.insert(
            "reinvocationPolicy",
            spec.get("reinvocationPolicy").cloned().unwrap_or_else(|| Value::from("Never")),
        );
    }
    document.insert("spec", own);
    let binding_kind = format!("{kind}Binding");
    let mut binding = Map::new();
    binding.insert("apiVersion", API_VERSION);
    binding.insert("kind", binding_kind);
    binding.insert("metadata", value!({"name": format!("{name}-binding")}));
    let mut binding_spec = Map::new();
    binding_spec.insert("policyName", name);
    if validates {
        let actions = spec.get("validationActions").cloned().unwrap_or_else(|| value!(["Deny"]));
        binding_spec.insert("validationActions", actions);
    }
    binding.insert("spec", binding_spec);
    [ConvertedDocument::of(Value::Map(document)), ConvertedDocument::of(Value::Map(binding))]
}
