//! Whether the account that scans may read what a policy in CEL checks: its status says so.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use kiln_dialects::pod_controllers::{Variant, validating_variants};
use kiln_object::{Gvk, Kinds};
use kiln_value::{Value, value};

use crate::api::Api;

/// How long an answer counts, in milliseconds.
pub const COUNTS: u64 = 60_000;

/// Where the account asks what it may do itself.
const OWN_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// What a scan does with a resource.
const VERBS: [&str; 3] = ["get", "list", "watch"];

/// Kyverno: said of a policy that is not scanned.
const NOT_SCANNED: &str = "Background scanning disabled; reporting permissions not required.";

/// A resource as a policy names it: group, version, plural.
type Resource = (String, String, String);

/// What the account may do, as the API server said of late.
#[derive(Debug, Default)]
pub struct ScanPermissions {
    answers: BTreeMap<(Resource, &'static str), (bool, u64)>,
}

/// Whether a policy can be scanned, in Kyverno's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scannable {
    /// All permissions are there; what to say if that is not the usual.
    Yes(Option<&'static str>),
    /// Some are not.
    No(String),
}

impl ScanPermissions {
    /// Whether a policy can be scanned; none if it is of a kind that is not, or a permission is not known.
    pub async fn of<A: Api>(
        &mut self,
        client: &A,
        kinds: &Kinds,
        policy: &Value,
    ) -> Option<Scannable> {
        let kind = Gvk::of(policy)?.kind;
        if !["ValidatingPolicy", "NamespacedValidatingPolicy"].contains(&kind.as_str()) {
            return None;
        }
        let spec = policy.get("spec")?;
        let scanned = spec.get_path(["evaluation", "background", "enabled"]);
        if scanned.and_then(Value::as_bool) == Some(false) {
            return Some(Scannable::Yes(Some(NOT_SCANNED)));
        }
        let mut lacks = Vec::new();
        for resource in resources(spec) {
            // What the cluster does not serve cannot be read, whatever roles say.
            let is_served = is_served(kinds, &resource);
            for verb in VERBS {
                if !(is_served && self.may(client, &resource, verb).await) {
                    let (group, version, plural) = &resource;
                    // Kyverno: as Go prints a resource, and with the reason of the API server, which gives none.
                    lacks.push(format!("{verb} {group}/{version}, Resource={plural}: "));
                }
            }
        }
        Some(match lacks.is_empty() {
            true => Scannable::Yes(None),
            false => Scannable::No(format!(
                "Policy is not ready for reporting, missing permissions: {}.",
                lacks.join("; ")
            )),
        })
    }

    async fn may<A: Api>(&mut self, client: &A, resource: &Resource, verb: &'static str) -> bool {
        let key = (resource.clone(), verb);
        if let Some((may, asked)) = self.answers.get(&key)
            && client.now().checked_sub(*asked).is_some_and(|age| age < COUNTS)
        {
            return *may;
        }
        let (group, version, plural) = resource;
        let (plural, subresource) = plural.split_once('/').unwrap_or((plural, ""));
        let review = value!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": group, "version": version, "resource": plural, "subresource": subresource,
                "verb": verb,
            }},
        });
        let answer = client.send(Method::POST, OWN_REVIEWS, Some(&review), "").await;
        // Without an answer nothing is said against the policy.
        let Ok(answer) = answer else { return true };
        let may = answer.get_path(["status", "allowed"]).and_then(Value::as_bool) == Some(true);
        self.answers.insert(key, (may, client.now()));
        may
    }
}

/// Whether the cluster serves a resource, or something that it may mean.
fn is_served(kinds: &Kinds, (group, version, plural): &Resource) -> bool {
    let plural = plural.split('/').next().unwrap_or_default();
    [group.as_str(), version, plural].contains(&"*")
        || kinds.by_resource(group, version, plural).is_some()
}

/// The resources that a policy and its variants for the controllers of Pods name, each once, its own first.
fn resources(spec: &Value) -> Vec<Resource> {
    let variants = validating_variants(spec);
    let of_variants = variants.iter().flat_map(Variant::joined_resource_rules);
    let own = spec.get_path(["matchConstraints", "resourceRules"]).and_then(Value::as_list);
    let own = own.into_iter().flat_map(|rules| rules.iter().cloned());
    let mut known = BTreeSet::new();
    let mut found = Vec::new();
    for rule in own.chain(of_variants) {
        let listed = |key: &str| -> Vec<String> {
            let list = rule.get(key).and_then(Value::as_list);
            let texts = list.into_iter().flat_map(|list| list.iter()).filter_map(Value::as_str);
            texts.map(str::to_owned).collect()
        };
        for group in listed("apiGroups") {
            for version in listed("apiVersions") {
                for plural in listed("resources") {
                    let resource = (group.clone(), version.clone(), plural);
                    if known.insert(resource.clone()) {
                        found.push(resource);
                    }
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resources_are_those_of_the_policy_and_its_variants() {
        let spec = value!({
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"],
            }]},
            "validations": [{"expression": "object.spec.hostNetwork == true"}],
        });
        let found = resources(&spec);
        assert_eq!(found[0], (String::new(), "v1".to_owned(), "pods".to_owned()));
        let names: BTreeSet<&str> = found.iter().map(|(_, _, plural)| plural.as_str()).collect();
        assert!(names.contains("deployments") && names.contains("cronjobs"), "{names:?}");
        let spec = value!({"matchConstraints": {"resourceRules": [{
            "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "configmaps"],
        }]}});
        let found = resources(&spec);
        let served: Vec<bool> =
            found.iter().map(|resource| is_served(&Kinds::builtin(), resource)).collect();
        assert_eq!(served, [true, false], "there are no ConfigMaps in the group apps");
    }
}
