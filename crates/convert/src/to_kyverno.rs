//! Policies in CEL back to ClusterPolicies, where someone must: ValidatingPolicies become rules with `validate.cel`.

use kiln_object::Kinds;
use kiln_rules::KindPattern;
use kiln_value::{Map, Path, Value, value};

use crate::Conversion;
use crate::documents::{self, ConvertedDocument};
use crate::verdict::{ConvertedRule, Difference, Obstacle};

/// What expressions of ClusterPolicies do not know.
const ONLY_IN_POLICIES: [&str; 10] = [
    "resource.",
    "globalContext.",
    "image(",
    "image.",
    "json.",
    "yaml.",
    "http.",
    "parseServiceAccount",
    "exceptions.",
    "random(",
];

/// Converts a ValidatingPolicy.
pub(crate) fn convert(policy: &Value, kinds: &Kinds) -> Conversion {
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default().to_owned();
    let mut rule = ConvertedRule {
        policy: name.clone(),
        rule: name,
        form: policy.str_at(["kind"]).unwrap_or_default().to_owned(),
        documents: Vec::new(),
        differences: Vec::new(),
        possible: Vec::new(),
        obstacle: None,
    };
    let mut conversion = Conversion::default();
    match document(policy, kinds) {
        Ok((document, differences)) => {
            rule.documents.push(0);
            rule.differences = differences;
            conversion.documents.push(document);
        }
        Err(obstacle) => rule.obstacle = Some(obstacle),
    }
    conversion.rules.push(rule);
    conversion
}

fn document(
    policy: &Value,
    kinds: &Kinds,
) -> Result<(ConvertedDocument, Vec<Difference>), Obstacle> {
    let path = Path::root().join("spec");
    let spec = policy.get("spec").unwrap_or(&Value::Null);
    let kind = policy.str_at(["kind"]).unwrap_or_default();
    let target = match kind {
        "ValidatingPolicy" => "ClusterPolicy",
        "NamespacedValidatingPolicy" => "Policy",
        other => {
            return Err(Obstacle::new(
                other,
                "only ValidatingPolicies have a form in ClusterPolicies: validate.cel",
            ));
        }
    };
    let text = kiln_value::json::to_string(spec);
    if let Some(word) = ONLY_IN_POLICIES.iter().find(|word| text.contains(**word)) {
        return Err(Obstacle::new(
            format!("{word} in an expression"),
            "validate.cel has no such library: use context entries and deny conditions",
        ));
    }
    let constraints = spec.get("matchConstraints").unwrap_or(&Value::Null);
    if constraints.get("excludeResourceRules").is_some() {
        return Err(Obstacle::new("excludeResourceRules", "write an exclude block")
            .at(&path.join("matchConstraints")));
    }
    let mut filters = Vec::new();
    for (at, rule) in constraints
        .get("resourceRules")
        .and_then(Value::as_list)
        .into_iter()
        .flat_map(|list| list.iter())
        .enumerate()
    {
        filters.push(filter(
            rule,
            constraints,
            kinds,
            &path.join("matchConstraints").join("resourceRules").join(at),
        )?);
    }
    let mut cel = Map::new();
    let expressions: Value = spec
        .get("validations")
        .and_then(Value::as_list)
        .into_iter()
        .flat_map(|list| list.iter())
        .map(|validation| {
            let mut validation = validation.clone();
            validation.remove(["reason"]);
            validation
        })
        .collect();
    cel.insert("expressions", expressions);
    for field in ["variables", "auditAnnotations"] {
        if let Some(found) = spec.get(field) {
            cel.insert(field, found.clone());
        }
    }
    let actions: Vec<&str> = spec
        .get("validationActions")
        .and_then(Value::as_list)
        .map_or_else(|| vec!["Deny"], |list| list.iter().filter_map(Value::as_str).collect());
    let action = if actions.contains(&"Deny") { "Enforce" } else { "Audit" };
    let name = policy.str_at(["metadata", "name"]).unwrap_or_default();
    let mut rule = Map::new();
    rule.insert("name", name);
    rule.insert("match", value!({"any": Value::List(filters.into())}));
    if let Some(conditions) = spec.get("matchConditions") {
        rule.insert("celPreconditions", conditions.clone());
    }
    rule.insert("validate", value!({"failureAction": action, "cel": cel}));
    let mut document = documents::envelope(policy, "kyverno.io/v1", target, name);
    let controllers =
        spec.get_path(["autogen", "podControllers", "controllers"]).and_then(Value::as_list);
    let usual = ["DaemonSet", "Deployment", "Job", "StatefulSet", "ReplicaSet", "CronJob"];
    let listed: Vec<String> = controllers.map_or_else(
        || usual.map(str::to_owned).to_vec(),
        |list| list.iter().filter_map(Value::as_str).map(kind_of_plural).collect(),
    );
    let wanted = if listed.is_empty() { "none".to_owned() } else { listed.join(",") };
    if let Some(Value::Map(metadata)) = document.get_mut("metadata") {
        let annotations = metadata.get_or_insert_with("annotations", Value::map);
        if let Some(map) = annotations.as_map_mut() {
            map.insert("pod-policies.kyverno.io/autogen-controllers", wanted);
        }
    }
    let mut own = Map::new();
    own.insert(
        "background",
        spec.get_path(["evaluation", "background", "enabled"])
            .cloned()
            .unwrap_or(Value::Bool(true)),
    );
    if let Some(failure) = spec.get("failurePolicy") {
        own.insert("failurePolicy", failure.clone());
    }
    if actions.contains(&"Warn") {
        own.insert("emitWarning", true);
    }
    own.insert("rules", Value::List(vec![Value::Map(rule)].into()));
    document.insert("spec", own);
    Ok((ConvertedDocument::of(Value::Map(document)), Vec::new()))
}

fn kind_of_plural(plural: &str) -> String {
    match plural {
        "daemonsets" => "DaemonSet",
        "deployments" => "Deployment",
        "jobs" => "Job",
        "replicasets" => "ReplicaSet",
        "statefulsets" => "StatefulSet",
        "cronjobs" => "CronJob",
        other => other,
    }
    .to_owned()
}

/// A filter of a match block.
fn filter(
    rule: &Value,
    constraints: &Value,
    kinds: &Kinds,
    path: &Path,
) -> Result<Value, Obstacle> {
    let texts = |field: &str| -> Vec<String> {
        let list = rule.get(field).and_then(Value::as_list);
        list.into_iter()
            .flat_map(|list| list.iter())
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect()
    };
    let mut named: Vec<String> = Vec::new();
    for group in texts("apiGroups") {
        for version in texts("apiVersions") {
            for resource in texts("resources") {
                for pattern in KindPattern::of_resource(&group, &version, &resource, kinds) {
                    if pattern.plural.is_some() || pattern.kind.as_str() == "*" {
                        let advice = "give the CustomResourceDefinition, or name the kind by hand";
                        return Err(Obstacle::new(
                            format!(
                                "resource {group}/{version}/{resource}, whose kind is not known"
                            ),
                            advice,
                        )
                        .at(path));
                    }
                    let front = match (pattern.group.as_str(), pattern.version.as_str()) {
                        ("", version) => format!("{version}/"),
                        (group, version) => format!("{group}/{version}/"),
                    };
                    let sub = if pattern.subresource.is_empty() {
                        String::new()
                    } else {
                        format!("/{}", pattern.subresource)
                    };
                    // Pods by their bare name: only then rules are derived for controllers.
                    let written = match (front.as_str(), pattern.kind.as_str()) {
                        ("v1/", "Pod") if sub.is_empty() => "Pod".to_owned(),
                        (front, kind) => format!("{front}{kind}{sub}"),
                    };
                    if !named.contains(&written) {
                        named.push(written);
                    }
                }
            }
        }
    }
    let mut resources = Map::new();
    resources.insert("kinds", named.iter().map(String::as_str).collect::<Value>());
    let operations = texts("operations");
    if !operations.is_empty() && !operations.iter().any(|operation| operation == "*") {
        resources.insert("operations", operations.iter().map(String::as_str).collect::<Value>());
    }
    let names = texts("resourceNames");
    if !names.is_empty() {
        resources.insert("names", names.iter().map(String::as_str).collect::<Value>());
    }
    for (from, to) in [("namespaceSelector", "namespaceSelector"), ("objectSelector", "selector")] {
        if let Some(selector) = constraints.get(from) {
            resources.insert(to, selector.clone());
        }
    }
    Ok(value!({"resources": resources}))
}
