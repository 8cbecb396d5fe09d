//! What an installation of the engine calls its own objects.
//!
//! By default they have the names that Kyverno's users know. Under another name nothing is shared with Kyverno, so that
//! both run in one cluster: other objects, other labels, and policies of Kiln's own API group alone.

use kiln_value::Str;

use crate::Gvk;
use crate::policy_kinds::OWN_VERSION;

/// The name that Kyverno's users know.
pub const KYVERNO: &str = "kyverno";

/// What the objects of one installation are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineNames {
    name: Str,
}

impl Default for EngineNames {
    fn default() -> Self {
        EngineNames::new(KYVERNO)
    }
}

impl EngineNames {
    /// Names that begin with this one.
    pub fn new(name: &str) -> Self {
        EngineNames { name: name.into() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether policies of Kyverno's API groups are run, and its labels and accounts used: another engine may do that
    /// beside an installation with a name of its own.
    pub fn stands_for_kyverno(&self) -> bool {
        self.name == KYVERNO
    }

    /// The domain of labels that users write.
    fn domain(&self) -> &'static str {
        if self.stands_for_kyverno() { "kyverno.io" } else { "kiln.dev" }
    }

    pub fn config_map(&self) -> String {
        self.name.to_string()
    }

    /// The Service of the webhooks.
    pub fn service(&self) -> String {
        format!("{}-svc", self.name)
    }

    /// The ServiceAccount of a component.
    pub fn account(&self, component: &str) -> String {
        format!("{}-{component}", self.name)
    }

    /// The user that the ServiceAccount of a component is.
    pub fn user(&self, namespace: &str, component: &str) -> String {
        format!("system:serviceaccount:{namespace}:{}", self.account(component))
    }

    /// The ClusterRole of a component.
    pub fn role(&self, component: &str) -> String {
        format!("{}:{component}", self.name)
    }

    /// The label of ClusterRoles that the role of a component collects.
    pub fn aggregation_label(&self, component: &str) -> String {
        format!("rbac.{}/aggregate-to-{component}", self.domain())
    }

    /// The Lease of the controller.
    pub fn lease(&self) -> String {
        if self.stands_for_kyverno() {
            return "kiln-controller".to_owned();
        }
        format!("{}-controller", self.name)
    }

    /// The kinds and names of the webhook configurations: those for objects, those for policies, and that for the TTL label.
    pub fn webhook_configurations(&self) -> [(&'static str, String); 5] {
        let name = &self.name;
        [
            ("MutatingWebhookConfiguration", format!("{name}-resource-mutating-webhook-cfg")),
            ("ValidatingWebhookConfiguration", format!("{name}-resource-validating-webhook-cfg")),
            ("ValidatingWebhookConfiguration", format!("{name}-policy-validating-webhook-cfg")),
            ("MutatingWebhookConfiguration", format!("{name}-policy-mutating-webhook-cfg")),
            ("ValidatingWebhookConfiguration", format!("{name}-ttl-validating-webhook-cfg")),
        ]
    }

    /// The kind of the requests in which work waits.
    pub fn update_request(&self) -> Gvk {
        let version = if self.stands_for_kyverno() { "kyverno.io/v2" } else { OWN_VERSION };
        Gvk::new(version, "UpdateRequest")
    }

    /// The name of the report about an object. Kyverno calls its reports by the UID alone, and takes out of them what it
    /// does not know.
    pub fn report(&self, uid: &str) -> String {
        if self.stands_for_kyverno() {
            return uid.to_owned();
        }
        format!("{}-{uid}", self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_name_shares_nothing() {
        let (usual, own) = (EngineNames::default(), EngineNames::new("kiln"));
        let names = |names: &EngineNames| {
            let hooks = names.webhook_configurations().map(|(_, name)| name);
            let part = "background-controller";
            let mut all = vec![
                names.config_map(),
                names.service(),
                names.account(part),
                names.role(part),
                names.aggregation_label(part),
                names.report("u"),
                names.update_request().to_string(),
            ];
            all.extend(hooks);
            all
        };
        assert!(names(&usual).iter().all(|name| !names(&own).contains(name)));
        assert_eq!(usual.service(), "kyverno-svc");
        assert_eq!(usual.report("u"), "u");
    }
}
