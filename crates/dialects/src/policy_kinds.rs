//! The kinds of policies, as one table: what reads them, and when what they say is done.

use kiln_object::Gvk;
use kiln_rules::Dialect;

/// A kind of policies.
#[derive(Clone, Copy, Debug)]
pub struct PolicyKind {
    pub group: &'static str,
    /// The version that Kiln reads.
    pub version: &'static str,
    /// The version that API servers store.
    pub stored: &'static str,
    pub kind: &'static str,
    pub namespaced: bool,
    /// Its language; none for kinds that Kiln does not run.
    pub dialect: Option<Dialect>,
    pub runs: PolicyRuns,
}

/// When what a policy says is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PolicyRuns {
    /// At admission, and after objects are stored.
    WithController,
    /// At admission only.
    AtAdmission,
    OnSchedule,
    /// By the API server itself; on files by Kiln.
    ByServer,
    /// Not at all, with the word for what it would do.
    Never(&'static str),
}

impl PolicyKind {
    /// The kind with the version that Kiln reads.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.into(), version: self.version.into(), kind: self.kind.into() }
    }

    /// The `apiVersion` that stored objects have.
    pub fn stored_api_version(&self) -> String {
        format!("{}/{}", self.group, self.stored)
    }

    /// The kind of a group and name, in any version.
    pub fn find(group: &str, kind: &str) -> Option<&'static PolicyKind> {
        POLICY_KINDS.iter().find(|known| known.group == group && known.kind == kind)
    }

    /// The kind of a policy of a language.
    pub fn of(dialect: Dialect, namespaced: bool) -> Option<&'static PolicyKind> {
        let is_meant =
            |known: &&PolicyKind| known.dialect == Some(dialect) && known.namespaced == namespaced;
        POLICY_KINDS.iter().find(is_meant)
    }
}

use PolicyRuns::{AtAdmission, ByServer, Never, OnSchedule, WithController};

/// All of them.
pub static POLICY_KINDS: [PolicyKind; 17] = [
    kyverno("v1", "ClusterPolicy", false, Dialect::Kyverno, WithController),
    kyverno("v1", "Policy", true, Dialect::Kyverno, WithController),
    kyverno("v2", "ClusterCleanupPolicy", false, Dialect::CleanupPolicy, OnSchedule),
    kyverno("v2", "CleanupPolicy", true, Dialect::CleanupPolicy, OnSchedule),
    cel("GeneratingPolicy", false, Some(Dialect::GeneratingPolicy), WithController),
    cel("NamespacedGeneratingPolicy", true, Some(Dialect::GeneratingPolicy), WithController),
    cel("MutatingPolicy", false, Some(Dialect::MutatingPolicy), WithController),
    cel("NamespacedMutatingPolicy", true, Some(Dialect::MutatingPolicy), WithController),
    cel("ValidatingPolicy", false, Some(Dialect::ValidatingPolicy), AtAdmission),
    cel("NamespacedValidatingPolicy", true, Some(Dialect::ValidatingPolicy), AtAdmission),
    cel("DeletingPolicy", false, Some(Dialect::DeletingPolicy), OnSchedule),
    cel("NamespacedDeletingPolicy", true, Some(Dialect::DeletingPolicy), OnSchedule),
    cel("ImageValidatingPolicy", false, None, Never("verifyImages")),
    cel("NamespacedImageValidatingPolicy", true, None, Never("verifyImages")),
    PolicyKind {
        group: "api.kubemod.io",
        version: "v1beta1",
        stored: "v1beta1",
        kind: "ModRule",
        namespaced: true,
        dialect: Some(Dialect::ModRule),
        runs: AtAdmission,
    },
    kubernetes("MutatingAdmissionPolicy", Dialect::MutatingAdmissionPolicy),
    kubernetes("ValidatingAdmissionPolicy", Dialect::ValidatingAdmissionPolicy),
];

const fn kyverno(
    version: &'static str,
    kind: &'static str,
    namespaced: bool,
    dialect: Dialect,
    runs: PolicyRuns,
) -> PolicyKind {
    let group = "kyverno.io";
    PolicyKind { group, version, stored: version, kind, namespaced, dialect: Some(dialect), runs }
}

const fn cel(
    kind: &'static str,
    namespaced: bool,
    dialect: Option<Dialect>,
    runs: PolicyRuns,
) -> PolicyKind {
    let group = "policies.kyverno.io";
    PolicyKind { group, version: "v1", stored: "v1beta1", kind, namespaced, dialect, runs }
}

const fn kubernetes(kind: &'static str, dialect: Dialect) -> PolicyKind {
    PolicyKind {
        group: "admissionregistration.k8s.io",
        version: "v1",
        stored: "v1",
        kind,
        namespaced: false,
        dialect: Some(dialect),
        runs: ByServer,
    }
}
