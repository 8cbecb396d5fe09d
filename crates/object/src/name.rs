//! The names that objects of a kind may have.

use kiln_text::names;

use crate::gvk::Gvk;

/// What is wrong with a name for an object of a kind, in Kubernetes' words; `None` when nothing is.
pub fn problem(kind: &Gvk, name: &str) -> Option<String> {
    if name.is_empty() {
        return Some("it is empty".into());
    }
    let problems = match (kind.group.as_str(), kind.kind.as_str()) {
        ("", "Namespace") => names::dns1123_label(name),
        ("", "Service") => names::dns1035_label(name),
        ("rbac.authorization.k8s.io", _) => names::path_segment(name),
        _ => names::dns1123_subdomain(name),
    };
    problems.into_iter().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_have_names_of_their_own_shape() {
        for (api_version, kind, name, fine) in [
            ("v1", "ConfigMap", "a.b-c", true),
            ("v1", "ConfigMap", "a_b", false),
            ("v1", "ConfigMap", "", false),
            ("v1", "Namespace", "a.b", false),
            ("v1", "Service", "1a", false),
            ("v1", "Secret", "1a", true),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "system:Node_x", true),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "a/b", false),
            ("rbac.authorization.k8s.io/v1", "ClusterRole", "a\u{7f}b", false),
        ] {
            let found = problem(&Gvk::new(api_version, kind), name);
            assert_eq!(found.is_none(), fine, "{kind} {name}: {found:?}");
        }
    }
}
