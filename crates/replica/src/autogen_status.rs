//! What the status of policies for Pods says of their variants for the controllers of Pods.

use kiln_dialects::kyverno::derived_rules;
use kiln_dialects::pod_controllers::{Variant, validating_variants};
use kiln_object::Gvk;
use kiln_value::{Map, Value, value};

/// The status of a policy, with the variants that it has. What an earlier version of the policy had is removed.
pub(crate) fn added(policy: &Value, mut status: Value) -> Value {
    let kind = Gvk::of(policy).unwrap_or_default().kind;
    let autogen = match kind.as_str() {
        "ClusterPolicy" | "Policy" => {
            let rules = derived_rules(policy);
            let rules = if rules.is_empty() { Value::Null } else { Value::from(rules) };
            value!({"rules": rules})
        }
        "ValidatingPolicy" | "NamespacedValidatingPolicy" => {
            let spec = policy.get("spec").unwrap_or(&Value::Null);
            let configs: Map = validating_variants(spec)
                .iter()
                .map(|variant| (name(variant), config(spec, variant)))
                .collect();
            let configs = if configs.is_empty() { Value::Null } else { Value::Map(configs) };
            value!({"configs": configs})
        }
        _ => return status,
    };
    if let Some(map) = status.as_map_mut() {
        map.insert("autogen", autogen);
    }
    status
}

/// Kyverno's name of a group of controllers.
fn name(variant: &Variant) -> &'static str {
    if variant.kinds == ["CronJob"] { "cronjobs" } else { "defaults" }
}

fn config(original: &Value, variant: &Variant) -> Value {
    let mut spec = variant.spec.clone();
    let rules = variant.joined_resource_rules();
    // Constraints are there, or the policy would have no variants.
    let _ = spec.set(["matchConstraints", "resourceRules"], Value::from(rules));
    if let (Some(autogen), Some(map)) = (original.get("autogen"), spec.as_map_mut()) {
        map.insert("autogen", autogen.clone());
    }
    let controllers = variant.groups.iter().zip(&variant.kinds);
    let targets: Vec<Value> = controllers
        .map(|(group, kind)| {
            let resource = format!("{}s", kind.to_lowercase());
            value!({"group": group, "version": "v1", "kind": kind, "resource": resource})
        })
        .collect();
    value!({"spec": spec, "targets": targets})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variants_are_shown_as_long_as_there_are_some() {
        let rule = |kind: &str| {
            value!({
                "apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": "p"},
                "spec": {"rules": [{
                    "name": "r", "match": {"any": [{"resources": {"kinds": [kind]}}]},
                    "validate": {"pattern": {"spec": {"hostPID": false}}},
                }]},
            })
        };
        let names = |policy: &Value| -> Vec<String> {
            let status = added(policy, value!({}));
            let rules = status.get_path(["autogen", "rules"]).and_then(Value::as_list);
            let rules = rules.into_iter().flat_map(|rules| rules.iter());
            rules.filter_map(|rule| rule.str_at(["name"])).map(str::to_owned).collect()
        };
        assert_eq!(names(&rule("Pod")), ["autogen-r", "autogen-cronjob-r"]);
        assert_eq!(names(&rule("Secret")), Vec::<String>::new());
        assert_eq!(
            added(&rule("Secret"), value!({})),
            value!({"autogen": {"rules": (Value::Null)}}),
            "which removes those that were there"
        );
        let policy = value!({
            "apiVersion": "policies.kyverno.io/v1", "kind": "ValidatingPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
                ]},
                "validations": [{"expression": "object.spec.hostPID != true"}],
            },
        });
        let status = added(&policy, value!({}));
        let config = |name: &str| status.get_path(["autogen", "configs", name]).unwrap();
        let rules = config("defaults").get_path(["spec", "matchConstraints", "resourceRules"]);
        assert_eq!(
            rules.and_then(Value::as_list).map(|rules| rules.len()),
            Some(2),
            "apps and batch"
        );
        let expression = config("cronjobs").get_path(["spec", "validations"]);
        assert_eq!(
            expression.and_then(|list| list.index(0)?.str_at(["expression"])),
            Some("object.spec.jobTemplate.spec.template.spec.hostPID != true")
        );
    }
}
