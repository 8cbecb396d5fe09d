//! Objects that users keep from rules, by kind, namespace and name.

use kiln_object::Gvk;
use kiln_rules::KindPattern;
use kiln_text::wildcard;
use kiln_value::Str;

/// Objects that fire no rule.
#[derive(Clone, Debug)]
pub struct ResourceFilter {
    kind: KindPattern,
    namespace: Str,
    name: Str,
}

impl ResourceFilter {
    /// A filter of wildcards; none when the kind cannot be read.
    pub fn new(kind: &str, namespace: &str, name: &str) -> Option<Self> {
        let kind = KindPattern::parse(kind)?;
        Some(ResourceFilter { kind, namespace: namespace.into(), name: name.into() })
    }

    /// Those that Kyverno has from the beginning: what the cluster itself lives on, and the engine.
    pub fn usual(namespace: &str) -> Vec<Self> {
        let lines = [
            ("Event", "*"),
            ("*/*", "kube-system"),
            ("*/*", "kube-public"),
            ("*/*", "kube-node-lease"),
            ("Node", "*"),
            ("Node/?*", "*"),
            ("APIService", "*"),
            ("APIService/?*", "*"),
            ("TokenReview", "*"),
            ("SubjectAccessReview", "*"),
            ("SelfSubjectAccessReview", "*"),
            ("Binding", "*"),
            ("Pod/binding", "*"),
            ("ReplicaSet", "*"),
            ("ReplicaSet/?*", "*"),
            ("EphemeralReport", "*"),
            ("ClusterEphemeralReport", "*"),
            ("UpdateRequest", "*"),
            ("*/*", namespace),
        ];
        lines.iter().filter_map(|(kind, namespace)| Self::new(kind, namespace, "*")).collect()
    }

    /// Whether an object is meant.
    pub fn matches(&self, gvk: &Gvk, namespace: &str, name: &str) -> bool {
        self.takes(gvk, "", namespace, name)
    }

    /// Whether an object, or a subresource of it, is meant.
    pub fn takes(&self, gvk: &Gvk, subresource: &str, namespace: &str, name: &str) -> bool {
        // Kyverno: for a Namespace, its name counts as well.
        let inside = match (gvk.group.as_str(), gvk.kind.as_str()) {
            ("", "Namespace") => name,
            _ => namespace,
        };
        self.kind.matches(&gvk.group, &gvk.version, &gvk.kind, subresource)
            && wildcard::matches(&self.namespace, inside)
            && wildcard::matches(&self.name, name)
    }
}
