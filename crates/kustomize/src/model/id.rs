//! Identity of objects as kustomize sees it: group, version, kind, name and namespace.
//!
//! Two ids are equal when group, version, kind and name are, and the *effective* namespaces: all
//! cluster-scoped kinds share one, and none at all is `default`.

use std::fmt;

use kiln_value::Str;

/// The effective namespace of what has none by nature.
pub(crate) const NOT_NAMESPACED: &str = "_non_namespaceable_";
/// The effective namespace of what names none.
pub(crate) const DEFAULT_NAMESPACE: &str = "default";

/// Group, version and kind; in a selector an empty part fits anything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Gvk {
    pub(crate) group: Str,
    pub(crate) version: Str,
    pub(crate) kind: Str,
}

impl Gvk {
    pub(crate) fn new(api_version: &str, kind: &str) -> Self {
        let (group, version) = split_api_version(api_version);
        Gvk { group: Str::new(group), version: Str::new(version), kind: Str::new(kind) }
    }

    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.to_string()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// Whether this fits a selector whose empty parts fit anything.
    pub(crate) fn is_selected_by(&self, selector: &Gvk) -> bool {
        let fits = |own: &Str, wanted: &Str| wanted.is_empty() || own == wanted;
        fits(&self.group, &selector.group)
            && fits(&self.version, &selector.version)
            && fits(&self.kind, &selector.kind)
    }

    /// The text `group_version_kind` that sorts kinds of one rank.
    pub(crate) fn sort_text(&self) -> String {
        let part = |text: &Str, none: &str| {
            if text.is_empty() { none.to_owned() } else { text.to_string() }
        };
        [part(&self.group, "~G"), part(&self.version, "~V"), part(&self.kind, "~K")].join("_")
    }
}

/// `a/b` is group and version; without a slash the group is empty.
pub(crate) fn split_api_version(api_version: &str) -> (&str, &str) {
    api_version.split_once('/').unwrap_or(("", api_version))
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Str, none: &'static str| {
            if text.is_empty() { Str::new_static(none) } else { text.clone() }
        };
        write!(
            f,
            "{}.{}.{}",
            or(&self.kind, "[noKind]"),
            or(&self.version, "[noVer]"),
            or(&self.group, "[noGrp]")
        )
    }
}

/// The id of an object, or in a selector what it must be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ResId {
    pub(crate) gvk: Gvk,
    pub(crate) name: Str,
    pub(crate) namespace: Str,
    pub(crate) cluster_scoped: bool,
}

impl ResId {
    pub(crate) fn effective_namespace(&self) -> &str {
        if self.cluster_scoped {
            NOT_NAMESPACED
        } else if self.namespace.is_empty() {
            DEFAULT_NAMESPACE
        } else {
            &self.namespace
        }
    }

    pub(crate) fn same_namespace(&self, other: &ResId) -> bool {
        self.effective_namespace() == other.effective_namespace()
    }

    /// Equal in group, version, kind, name and effective namespace.
    pub(crate) fn equals(&self, other: &ResId) -> bool {
        self.name == other.name && self.gvk == other.gvk && self.same_namespace(other)
    }

    /// Whether this fits a selector of exact texts whose empty parts fit anything.
    pub(crate) fn is_selected_by(&self, selector: &ResId) -> bool {
        (selector.name.is_empty() || selector.name == self.name)
            && (selector.namespace.is_empty() || selector.same_namespace(self))
            && self.gvk.is_selected_by(&selector.gvk)
    }

    /// What equal ids share, for a map.
    pub(crate) fn key(&self) -> IdKey {
        IdKey {
            gvk: self.gvk.clone(),
            name: self.name.clone(),
            namespace: Str::new(self.effective_namespace()),
        }
    }
}

impl fmt::Display for ResId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let or = |text: &Str, none: &'static str| {
            if text.is_empty() { Str::new_static(none) } else { text.clone() }
        };
        write!(f, "{}/{}.{}", self.gvk, or(&self.name, "[noName]"), or(&self.namespace, "[noNs]"))
    }
}

/// A map key that equal ids share.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct IdKey {
    gvk: Gvk,
    name: Str,
    namespace: Str,
}

/// Kinds that come first in the legacy order.
pub(crate) const ORDER_FIRST: [&str; 22] = [
    "Namespace",
    "ResourceQuota",
    "StorageClass",
    "CustomResourceDefinition",
    "ServiceAccount",
    "PodSecurityPolicy",
    "Role",
    "ClusterRole",
    "RoleBinding",
    "ClusterRoleBinding",
    "ConfigMap",
    "Secret",
    "Endpoints",
    "Service",
    "LimitRange",
    "PriorityClass",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Deployment",
    "StatefulSet",
    "CronJob",
    "PodDisruptionBudget",
];

/// Kinds that come last in the legacy order.
pub(crate) const ORDER_LAST: [&str; 2] =
    ["MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"];

/// The rank of a kind: negative comes first, positive last, zero between.
pub(crate) fn rank(kind: &str) -> i32 {
    if let Some(at) = ORDER_FIRST.iter().position(|k| *k == kind) {
        return at as i32 - ORDER_FIRST.len() as i32;
    }
    ORDER_LAST.iter().position(|k| *k == kind).map_or(0, |at| at as i32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_as_kustomize_prints_them() {
        let id = ResId {
            gvk: Gvk::new("apps/v1", "Deployment"),
            name: "web".into(),
            namespace: "".into(),
            cluster_scoped: false,
        };
        assert_eq!(id.to_string(), "Deployment.v1.apps/web.[noNs]");
        assert_eq!(ResId::default().to_string(), "[noKind].[noVer].[noGrp]/[noName].[noNs]");
    }

    #[test]
    fn no_namespace_is_the_default_namespace() {
        let id = |namespace: &str, cluster_scoped| ResId {
            gvk: Gvk::new("v1", "Pod"),
            name: "a".into(),
            namespace: namespace.into(),
            cluster_scoped,
        };
        assert!(id("", false).equals(&id("default", false)));
        assert!(!id("", false).equals(&id("x", false)));
        assert!(id("x", true).equals(&id("y", true)));
        assert!(!id("", true).equals(&id("", false)));
    }
}
