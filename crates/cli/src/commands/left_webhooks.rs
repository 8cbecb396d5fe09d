//! Webhook configurations of other engines: they stay when these are stopped, and then refuse requests.

use kiln_admission::Hooks;
use kiln_admission::authors::AUTHOR_PATH;
use kiln_admission::webhooks::POLICY_PATH;
use kiln_object::{Gvk, metadata};
use kiln_value::Value;

/// The kinds of such configurations.
pub(super) const KINDS: [&str; 2] =
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The Service that Kyverno and Kiln answer at.
const OURS: &str = "kyverno-svc";
/// The Service that KubeMod answers at.
const KUBEMOD: &str = "kubemod-webhook-service";

/// A configuration that calls where only another engine answers.
pub(super) struct Left {
    kind: String,
    name: String,
    /// The namespace and the name of the Service.
    pub(super) service: (String, String),
    /// At the Service that Kiln answers at, the path that it does not serve.
    pub(super) path: Option<String>,
}

impl Left {
    /// The configuration, if it calls the Service of an engine in this namespace, or of KubeMod anywhere, at a path that
    /// Kiln does not answer at.
    pub(super) fn of(configuration: &Value, namespace: &str) -> Option<Self> {
        let webhooks = configuration.get("webhooks").and_then(Value::as_list)?;
        let (service, path) = webhooks.iter().find_map(|webhook| {
            let text =
                |key: &str| webhook.str_at(["clientConfig", "service", key]).unwrap_or_default();
            let (at, service, path) = (text("namespace"), text("name"), text("path"));
            let is_served = || path == POLICY_PATH || path == AUTHOR_PATH || Hooks::knows(path);
            let called = (at.to_owned(), service.to_owned());
            match service {
                OURS if at == namespace && !is_served() => Some((called, Some(path.to_owned()))),
                KUBEMOD => Some((called, None)),
                _ => None,
            }
        })?;
        Some(Left {
            kind: Gvk::of(configuration)?.kind.to_string(),
            name: metadata::name(configuration)?.to_owned(),
            service,
            path,
        })
    }

    /// What it is called and what it calls.
    pub(super) fn describe(&self) -> String {
        let Left { kind, name, service: (namespace, service), path } = self;
        let path = path.as_deref().unwrap_or_default();
        format!("{kind} {name} (calls {namespace}/{service}{path})")
    }

    /// How to remove it.
    pub(super) fn removal(&self) -> String {
        format!("kubectl delete {} {}", self.kind.to_lowercase(), self.name)
    }
}
