//! Webhook configurations of other engines: they stay when these are stopped, and then hold up or refuse requests.

use kiln_admission::webhooks::is_served;
use kiln_object::{EngineNames, Gvk, metadata};
use kiln_value::Value;

use super::competing_engines::{KUBEMOD, KYVERNO};

/// The kinds of such configurations.
pub(crate) const KINDS: [&str; 2] =
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The Service that Kyverno and Kiln answer at.
const KYVERNO_SERVICE: &str = "kyverno-svc";
/// The Service that KubeMod answers at.
const KUBEMOD_SERVICE: &str = "kubemod-webhook-service";

/// A configuration that calls where only another engine answers.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct OrphanedWebhook {
    kind: String,
    name: String,
    /// The engine that answers.
    pub(crate) engine: &'static str,
    /// The namespace and the name of the Service.
    pub(crate) service: (String, String),
    /// At the Service that Kiln answers at, the path that it does not serve.
    pub(crate) path: Option<String>,
    /// Requests are refused when no server answers, by the `failurePolicy` of at least one webhook; otherwise they go on.
    pub(crate) refuses: bool,
}

impl OrphanedWebhook {
    /// The configuration, if it calls the Service of KubeMod or of Kyverno; in this namespace, where Kiln answers, at a
    /// path that Kiln does not serve.
    pub(crate) fn of(configuration: &Value, namespace: &str, names: &EngineNames) -> Option<Self> {
        let kind = Gvk::of(configuration)?.kind.to_string();
        let name = metadata::name(configuration)?.to_owned();
        // Kiln writes these itself, in the place of what was there.
        let own = names.webhook_configurations();
        if own.iter().any(|(of, called)| (*of, called) == (kind.as_str(), &name)) {
            return None;
        }
        let webhooks = configuration.get("webhooks").and_then(Value::as_list)?;
        let calls = webhooks.iter().filter_map(|webhook| {
            let text =
                |key: &str| webhook.str_at(["clientConfig", "service", key]).unwrap_or_default();
            let (at, service, path) = (text("namespace"), text("name"), text("path"));
            let (engine, path) = match service {
                KYVERNO_SERVICE if at != namespace => (KYVERNO, None),
                KYVERNO_SERVICE if !is_served(path) => (KYVERNO, Some(path.to_owned())),
                KUBEMOD_SERVICE => (KUBEMOD, None),
                _ => return None,
            };
            // Kubernetes: without a word, requests are refused.
            let refuses = webhook.str_at(["failurePolicy"]) != Some("Ignore");
            let service = (at.to_owned(), service.to_owned());
            Some(OrphanedWebhook {
                kind: kind.clone(),
                name: name.clone(),
                engine,
                service,
                path,
                refuses,
            })
        });
        let calls: Vec<OrphanedWebhook> = calls.collect();
        // The one that does most harm speaks for all.
        let worst = calls.iter().position(|left| left.refuses).unwrap_or_default();
        calls.into_iter().nth(worst)
    }

    /// What it is called and what it calls.
    pub(crate) fn describe(&self) -> String {
        let OrphanedWebhook { kind, name, service: (namespace, service), path, .. } = self;
        let path = path.as_deref().unwrap_or_default();
        format!("{kind} {name} (calls {namespace}/{service}{path})")
    }

    /// What it does to requests when no server answers.
    pub(crate) fn effect(&self) -> &'static str {
        if self.refuses {
            "refuses requests"
        } else {
            "lets requests wait for a call that fails before they go on"
        }
    }

    /// How to remove it.
    pub(crate) fn removal(&self) -> String {
        format!("kubectl delete {} {}", self.kind.to_lowercase(), self.name)
    }
}

#[cfg(test)]
mod tests {
    use kiln_value::value;

    use super::*;

    /// What is found of a configuration with webhooks that have this namespace, Service, path and failure policy.
    fn found(name: &str, webhooks: &[[&str; 4]]) -> Option<(&'static str, String, &'static str)> {
        let webhooks = webhooks.iter().map(|[namespace, service, path, failure]| {
            let service = value!({"namespace": *namespace, "name": *service, "path": *path});
            value!({"clientConfig": {"service": service}, "failurePolicy": *failure})
        });
        let configuration = value!({
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": Value::from_iter(webhooks),
        });
        let left = OrphanedWebhook::of(&configuration, "kyverno", &EngineNames::default())?;
        Some((left.engine, left.describe().split_once(" (").unwrap().1.to_owned(), left.effect()))
    }

    #[test]
    fn what_other_engines_leave_is_known_by_what_it_calls() {
        let (refuses, waits) =
            ("refuses requests", "lets requests wait for a call that fails before they go on");
        let left = |engine, calls: &str, effect| Some((engine, calls.to_owned(), effect));
        let ours = ["kyverno", "kyverno-svc"];
        let call = |[namespace, service]: [&'static str; 2], path, failure| {
            [[namespace, service, path, failure]]
        };
        assert_eq!(
            found("a", &call(ours, "/exceptionvalidate", "Fail")),
            left(KYVERNO, "calls kyverno/kyverno-svc/exceptionvalidate)", refuses)
        );
        assert_eq!(
            found("a", &call(ours, "/exceptionvalidate", "Ignore")),
            left(KYVERNO, "calls kyverno/kyverno-svc/exceptionvalidate)", waits)
        );
        // Kiln answers here, but not in other namespaces.
        assert_eq!(found("a", &call(ours, "/policyvalidate", "Fail")), None);
        assert_eq!(
            found("a", &call(["elsewhere", "kyverno-svc"], "/policyvalidate", "")),
            left(KYVERNO, "calls elsewhere/kyverno-svc)", refuses)
        );
        assert_eq!(
            found("a", &call(["k", "kubemod-webhook-service"], "/validate", "Ignore")),
            left(KUBEMOD, "calls k/kubemod-webhook-service)", waits)
        );
        assert_eq!(found("a", &call(["a", "other"], "/validate", "Fail")), None);
        // Kiln overwrites it.
        let name = "kyverno-resource-validating-webhook-cfg";
        assert_eq!(found(name, &call(["elsewhere", "kyverno-svc"], "/validate", "Fail")), None);
        let [one] = call(ours, "/verifymutate", "Ignore");
        let [another] = call(ours, "/exceptionvalidate", "Fail");
        assert_eq!(
            found("a", &[one, another]),
            left(KYVERNO, "calls kyverno/kyverno-svc/exceptionvalidate)", refuses)
        );
    }
}
