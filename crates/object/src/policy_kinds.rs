//! The kinds of policies, and what belongs to them, under Kyverno's API groups and under Kiln's own.
//!
//! Both groups have the same kinds with the same fields. Whoever asks what a policy is asks here and not for a group, so
//! that a policy means the same wherever it is stored.

use crate::{Gvk, ObjectId};

/// Kiln's own API group.
pub const OWN_GROUP: &str = "kiln.dev";

/// The version of the kinds in it.
pub const OWN_VERSION: &str = "kiln.dev/v1";

/// The language of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyFamily {
    /// Kyverno's rules.
    Rules,
    /// Expressions in CEL.
    Cel,
}

/// What a kind is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRole {
    /// Policies whose rules do something after objects are stored.
    Acts,
    /// Policies that only check objects.
    Checks,
    /// Policies that delete objects on a schedule.
    Deletes,
    /// Policies of which Kiln runs nothing.
    NotRun,
    /// Objects that policies leave alone.
    Exempts,
    /// Data that policies share.
    Data,
    /// Work that waits.
    Request,
}

/// A kind of the table.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKind {
    pub kind: &'static str,
    pub plural: &'static str,
    pub family: PolicyFamily,
    pub role: PolicyRole,
    /// Its objects have a namespace.
    pub namespaced: bool,
    /// The version in which Kiln reads it from Kyverno's group.
    pub kyverno: &'static str,
    /// Kiln's own group has it as well. It has none of what Kiln does not run: such policies would do nothing there.
    pub own: bool,
}

const fn of(
    family: PolicyFamily,
    role: PolicyRole,
    kind: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> PolicyKind {
    let kyverno = match (family, role) {
        (PolicyFamily::Cel, _) => "policies.kyverno.io/v1",
        (_, PolicyRole::Acts) => "kyverno.io/v1",
        _ => "kyverno.io/v2",
    };
    let own = !matches!(role, PolicyRole::NotRun);
    PolicyKind { kind, plural, family, role, namespaced, kyverno, own }
}

use PolicyFamily::{Cel, Rules};
use PolicyRole::{Acts, Checks, Data, Deletes, Exempts, NotRun, Request};

/// All of them.
pub const POLICY_KINDS: &[PolicyKind] = &[
    of(Rules, Acts, "ClusterPolicy", "clusterpolicies", false),
    of(Rules, Acts, "Policy", "policies", true),
    of(Cel, Acts, "GeneratingPolicy", "generatingpolicies", false),
    of(Cel, Acts, "NamespacedGeneratingPolicy", "namespacedgeneratingpolicies", true),
    of(Cel, Acts, "MutatingPolicy", "mutatingpolicies", false),
    of(Cel, Acts, "NamespacedMutatingPolicy", "namespacedmutatingpolicies", true),
    of(Cel, Checks, "ValidatingPolicy", "validatingpolicies", false),
    of(Cel, Checks, "NamespacedValidatingPolicy", "namespacedvalidatingpolicies", true),
    of(Rules, Deletes, "ClusterCleanupPolicy", "clustercleanuppolicies", false),
    of(Rules, Deletes, "CleanupPolicy", "cleanuppolicies", true),
    of(Cel, Deletes, "DeletingPolicy", "deletingpolicies", false),
    of(Cel, Deletes, "NamespacedDeletingPolicy", "namespaceddeletingpolicies", true),
    of(Cel, NotRun, "ImageValidatingPolicy", "imagevalidatingpolicies", false),
    of(Cel, NotRun, "NamespacedImageValidatingPolicy", "namespacedimagevalidatingpolicies", true),
    // In Kiln's group one kind holds both forms of exceptions: their fields tell them apart.
    of(Rules, Exempts, "PolicyException", "policyexceptions", true),
    of(Cel, Exempts, "PolicyException", "policyexceptions", true),
    of(Rules, Data, "GlobalContextEntry", "globalcontextentries", false),
    of(Rules, Request, "UpdateRequest", "updaterequests", true),
];

impl PolicyKind {
    /// Kyverno's group.
    pub fn kyverno_group(&self) -> &'static str {
        self.kyverno.split_once('/').map_or(self.kyverno, |(group, _)| group)
    }

    /// The kind in the version in which Kiln reads it from Kyverno's group.
    pub fn in_kyverno(&self) -> Gvk {
        Gvk::new(self.kyverno, self.kind)
    }

    /// The kind in Kiln's own group, if it has it.
    pub fn in_own(&self) -> Option<Gvk> {
        self.own.then(|| Gvk::new(OWN_VERSION, self.kind))
    }
}

/// The row of a kind, whatever its group and version.
pub fn policy_kind(gvk: &Gvk) -> Option<&'static PolicyKind> {
    let own = gvk.group == OWN_GROUP;
    POLICY_KINDS.iter().find(|row| {
        gvk.kind == row.kind && if own { row.own } else { gvk.group == row.kyverno_group() }
    })
}

/// Whether a kind is one of Kyverno's rules: a ClusterPolicy or Policy.
pub fn is_rules(gvk: &Gvk) -> bool {
    policy_kind(gvk).is_some_and(|row| (row.family, row.role) == (Rules, Acts))
}

/// Whether a kind is in CEL.
pub fn is_cel(gvk: &Gvk) -> bool {
    policy_kind(gvk).is_some_and(|row| row.family == Cel)
}

/// Whether a kind is an UpdateRequest.
pub fn is_update_request(gvk: &Gvk) -> bool {
    policy_kind(gvk).is_some_and(|row| row.role == Request)
}

/// Whether a group is one that policies are in.
pub fn is_policy_group(group: &str) -> bool {
    group == OWN_GROUP || POLICY_KINDS.iter().any(|row| row.kyverno_group() == group)
}

/// The kinds for a purpose, of Kyverno's groups (if they are followed) and then of Kiln's own.
pub fn kinds_for(roles: &[PolicyRole], kyverno: bool) -> Vec<Gvk> {
    let rows = || POLICY_KINDS.iter().filter(|row| roles.contains(&row.role));
    let mut kinds: Vec<Gvk> = Vec::new();
    if kyverno {
        kinds.extend(rows().map(PolicyKind::in_kyverno));
    }
    for own in rows().filter_map(PolicyKind::in_own) {
        if !kinds.contains(&own) {
            kinds.push(own);
        }
    }
    kinds
}

/// The same policy in the other group: Kiln's for one of Kyverno's, and the other way round.
pub fn twin(id: &ObjectId) -> Option<ObjectId> {
    let row = policy_kind(&id.gvk).filter(|row| row.own)?;
    let gvk = if id.gvk.group == OWN_GROUP { row.in_kyverno() } else { row.in_own()? };
    Some(ObjectId { gvk, ..id.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_the_same_in_both_groups() {
        for (version, kind, rules, cel) in [
            ("kyverno.io/v1", "ClusterPolicy", true, false),
            ("kyverno.io/v2beta1", "Policy", true, false),
            ("kiln.dev/v1", "Policy", true, false),
            ("kiln.dev/v1", "MutatingPolicy", false, true),
            ("policies.kyverno.io/v1alpha1", "MutatingPolicy", false, true),
            ("kyverno.io/v1", "MutatingPolicy", false, false),
            ("kiln.dev/v1", "ImageValidatingPolicy", false, false),
            ("example.com/v1", "ClusterPolicy", false, false),
        ] {
            let gvk = Gvk::new(version, kind);
            assert_eq!((is_rules(&gvk), is_cel(&gvk)), (rules, cel), "{gvk}");
        }
    }

    #[test]
    fn a_twin_has_the_same_name_in_the_other_group() {
        let id = |version: &str, kind: &str| ObjectId::new(Gvk::new(version, kind), "shop", "p");
        let twins = |a: ObjectId, b: ObjectId| {
            assert_eq!(twin(&a).as_ref(), Some(&b));
            assert_eq!(twin(&b), Some(a));
        };
        twins(id("kyverno.io/v1", "Policy"), id("kiln.dev/v1", "Policy"));
        let name = "NamespacedDeletingPolicy";
        twins(id("policies.kyverno.io/v1", name), id("kiln.dev/v1", name));
        assert_eq!(twin(&id("policies.kyverno.io/v1", "ImageValidatingPolicy")), None);
        assert_eq!(twin(&id("api.kubemod.io/v1beta1", "ModRule")), None);
    }

    #[test]
    fn every_kind_is_followed_once() {
        let all = [Acts, Checks, Deletes, NotRun, Exempts, Data, Request];
        let mut kinds = kinds_for(&all, true);
        let count = kinds.len();
        kinds.sort();
        kinds.dedup();
        assert_eq!(kinds.len(), count);
        assert!(kinds_for(&all, false).iter().all(|kind| kind.group == OWN_GROUP));
    }
}
