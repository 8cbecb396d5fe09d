//! How far a rule reaches.

use kiln_value::Str;

/// Which part of the cluster a rule may see, be triggered from, and write to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    Cluster,
    /// Only the namespace that its policy lives in.
    Namespace(Str),
}

impl Scope {
    /// The one namespace, if the rule is limited to one.
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Scope::Cluster => None,
            Scope::Namespace(namespace) => Some(namespace),
        }
    }

    /// Whether objects of this namespace are within reach; `None` is a cluster-scoped object.
    pub fn reaches(&self, namespace: Option<&str>) -> bool {
        match self {
            Scope::Cluster => true,
            Scope::Namespace(own) => namespace == Some(own.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespaced_rule_reaches_its_own_namespace_only() {
        let own = Scope::Namespace("team".into());
        assert!(own.reaches(Some("team")));
        assert!(!own.reaches(Some("other")));
        assert!(!own.reaches(None));
        assert!(Scope::Cluster.reaches(None));
    }
}
