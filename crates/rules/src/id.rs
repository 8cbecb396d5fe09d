//! Names of rules that stay the same from one run to the next.

use std::fmt;

use kiln_value::Str;
use serde::{Serialize, Serializer};

/// The input language that a policy was written in.
///
/// It is part of a rule's name, since two languages may use the same policy name. Nothing asks it how
/// a rule behaves: a difference in behaviour is a field of the [`Rule`](crate::Rule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Dialect {
    /// Kyverno's ClusterPolicy and Policy.
    Kyverno,
    /// CleanupPolicy and ClusterCleanupPolicy.
    CleanupPolicy,
    /// DeletingPolicy and NamespacedDeletingPolicy.
    DeletingPolicy,
    /// GeneratingPolicy and NamespacedGeneratingPolicy.
    GeneratingPolicy,
    /// Kubernetes' MutatingAdmissionPolicy.
    MutatingAdmissionPolicy,
    /// MutatingPolicy and NamespacedMutatingPolicy.
    MutatingPolicy,
    /// KubeMod's ModRule.
    ModRule,
    /// Kubernetes' ValidatingAdmissionPolicy.
    ValidatingAdmissionPolicy,
    /// ValidatingPolicy and NamespacedValidatingPolicy.
    ValidatingPolicy,
}

impl Dialect {
    /// The word that stands in front of a rule's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Dialect::Kyverno => "kyverno",
            Dialect::CleanupPolicy => "cleanpol",
            Dialect::DeletingPolicy => "dpol",
            Dialect::GeneratingPolicy => "gpol",
            Dialect::MutatingAdmissionPolicy => "map",
            Dialect::MutatingPolicy => "mpol",
            Dialect::ModRule => "modrule",
            Dialect::ValidatingAdmissionPolicy => "vap",
            Dialect::ValidatingPolicy => "vpol",
        }
    }

    /// The language that a word of [`Dialect::as_str`] stands for.
    pub fn read(word: &str) -> Option<Self> {
        [
            Dialect::Kyverno,
            Dialect::CleanupPolicy,
            Dialect::DeletingPolicy,
            Dialect::GeneratingPolicy,
            Dialect::MutatingAdmissionPolicy,
            Dialect::MutatingPolicy,
            Dialect::ModRule,
            Dialect::ValidatingAdmissionPolicy,
            Dialect::ValidatingPolicy,
        ]
        .into_iter()
        .find(|dialect| dialect.as_str() == word)
    }

    /// The source of results in policy reports, as readers of reports filter by it.
    pub fn report_source(self) -> &'static str {
        match self {
            Dialect::Kyverno | Dialect::CleanupPolicy | Dialect::DeletingPolicy => "kyverno",
            Dialect::GeneratingPolicy => "KyvernoGeneratingPolicy",
            Dialect::MutatingAdmissionPolicy => "MutatingAdmissionPolicy",
            Dialect::MutatingPolicy => "KyvernoMutatingPolicy",
            Dialect::ModRule => "kiln",
            Dialect::ValidatingAdmissionPolicy => "ValidatingAdmissionPolicy",
            Dialect::ValidatingPolicy => "KyvernoValidatingPolicy",
        }
    }
}

/// The name of a policy: language, namespace when it lives in one, and name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PolicyId {
    /// The language.
    pub dialect: Dialect,
    /// The namespace of the policy, for namespaced ones.
    pub namespace: Option<Str>,
    /// The name of the policy.
    pub name: Str,
}

impl PolicyId {
    /// `name`, or `namespace/name`: what users write to mean this policy.
    pub fn key(&self) -> String {
        match &self.namespace {
            Some(namespace) => format!("{namespace}/{}", self.name),
            None => self.name.to_string(),
        }
    }
}

impl PolicyId {
    /// Whether the ownership labels of objects name a rule and the namespace of its policy. Kyverno: those of generating
    /// policies name neither.
    pub fn labels_name_rules(&self) -> bool {
        self.dialect != Dialect::GeneratingPolicy
    }

    /// Whether its only rule has its name, which then says nothing.
    pub fn is_its_rule(&self) -> bool {
        matches!(
            self.dialect,
            Dialect::ValidatingPolicy
                | Dialect::ValidatingAdmissionPolicy
                | Dialect::CleanupPolicy
                | Dialect::DeletingPolicy
        )
    }
}

impl fmt::Display for PolicyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.dialect.as_str(), self.key())
    }
}

/// The name of a rule: its policy, and its own name in it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RuleId {
    /// The policy that holds the rule.
    pub policy: PolicyId,
    /// The name of the rule; that of the policy where rules have no names of their own.
    pub rule: Str,
}

impl RuleId {
    /// The rule in policy reports, as Kyverno names it there: policies with one nameless rule have none, Kubernetes' own
    /// have the name of the policy.
    pub fn in_reports(&self) -> Option<&str> {
        match self.policy.dialect {
            Dialect::ValidatingPolicy | Dialect::MutatingPolicy => None,
            Dialect::ValidatingAdmissionPolicy | Dialect::MutatingAdmissionPolicy => {
                Some(&self.policy.name)
            }
            Dialect::Kyverno
            | Dialect::CleanupPolicy
            | Dialect::DeletingPolicy
            | Dialect::GeneratingPolicy
            | Dialect::ModRule => Some(&self.rule),
        }
    }

    /// The binding by which a policy of Kubernetes applies, if there is one, and the property of reports that names it.
    pub fn binding(&self) -> Option<(&'static str, &str)> {
        let key = match self.policy.dialect {
            Dialect::ValidatingAdmissionPolicy => "binding",
            Dialect::MutatingAdmissionPolicy => "mapBinding",
            _ => return None,
        };
        (self.rule != self.policy.name).then_some((key, self.rule.as_str()))
    }
}

impl fmt::Display for RuleId {
    /// `kyverno:namespace/policy/rule`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.policy, self.rule)
    }
}

impl Serialize for RuleId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_print_the_policy_as_users_write_it() {
        let policy = PolicyId {
            dialect: Dialect::Kyverno,
            namespace: Some("team".into()),
            name: "defaults".into(),
        };
        let rule = RuleId { policy: policy.clone(), rule: "quota".into() };
        assert_eq!(policy.key(), "team/defaults");
        assert_eq!(rule.to_string(), "kyverno:team/defaults/quota");
        let cluster = PolicyId { namespace: None, ..policy };
        assert_eq!(cluster.to_string(), "kyverno:defaults");
    }
}
