//! What `.Capabilities` says: a version of Kubernetes, and the API versions that it has.

use crate::error::{ChartError, Result};
use crate::options::HelmVersion;

/// A version of Kubernetes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubeVersion {
    /// As it was given, with a `v` before it.
    given: String,
    numbers: Vec<String>,
}

impl Default for KubeVersion {
    /// That of the Kubernetes libraries that Helm 3.21 and 4.2 are built with.
    fn default() -> Self {
        let numbers = ["1", "36", "0"].map(str::to_owned).to_vec();
        KubeVersion { given: "v1.36.0".to_owned(), numbers }
    }
}

impl KubeVersion {
    /// Reads a version: at least two numbers with dots between them; what follows them is left out.
    ///
    /// # Errors
    /// When it is not a version.
    pub fn parse(text: &str) -> Result<Self> {
        let failed = |why: String| ChartError::new(format!("invalid kube version '{text}': {why}"));
        let trimmed = text.trim_start();
        let body = trimmed.strip_prefix('v').unwrap_or(trimmed);
        let mut numbers: Vec<String> = Vec::new();
        let mut rest = body;
        loop {
            let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
            if digits == 0 {
                break;
            }
            numbers.push(rest[..digits].to_owned());
            rest = &rest[digits..];
            match rest.strip_prefix('.') {
                Some(after) if after.starts_with(|c: char| c.is_ascii_digit()) => rest = after,
                _ => break,
            }
        }
        if numbers.is_empty() {
            return Err(failed(format!("could not parse {text:?} as version")));
        }
        if numbers.len() < 2 {
            return Err(failed(format!("illegal version string {text:?}")));
        }
        if let Some(number) =
            numbers.iter().find(|number| number.len() > 1 && number.starts_with('0'))
        {
            return Err(failed(format!(
                "illegal zero-prefixed version component {number:?} in {text:?}"
            )));
        }
        Ok(KubeVersion { given: format!("v{body}"), numbers })
    }

    fn normalized(&self) -> String {
        format!("v{}", self.numbers.join("."))
    }

    /// The version as constraints see it.
    pub(crate) fn for_constraints(&self) -> String {
        self.normalized()
    }

    /// The version as templates see it: Helm 4 keeps what follows the numbers.
    pub(crate) fn for_templates(&self, helm: HelmVersion) -> kiln_gotemplate::KubeVersion {
        kiln_gotemplate::KubeVersion {
            version: if helm.is_4 { self.given.clone() } else { self.normalized() },
            shown: self.normalized(),
            major: self.numbers[0].clone(),
            minor: self.numbers[1].clone(),
        }
    }
}

/// The API versions that Helm knows without a cluster, in its order.
pub(crate) const API_VERSIONS: &[&str] = &[
    "v1",
    "admissionregistration.k8s.io/v1",
    "admissionregistration.k8s.io/v1alpha1",
    "admissionregistration.k8s.io/v1beta1",
    "internal.apiserver.k8s.io/v1alpha1",
    "apps/v1",
    "apps/v1beta1",
    "apps/v1beta2",
    "authentication.k8s.io/v1",
    "authentication.k8s.io/v1alpha1",
    "authentication.k8s.io/v1beta1",
    "authorization.k8s.io/v1",
    "authorization.k8s.io/v1beta1",
    "autoscaling/v1",
    "autoscaling/v2",
    "batch/v1",
    "batch/v1beta1",
    "certificates.k8s.io/v1",
    "certificates.k8s.io/v1beta1",
    "certificates.k8s.io/v1alpha1",
    "coordination.k8s.io/v1alpha2",
    "coordination.k8s.io/v1beta1",
    "coordination.k8s.io/v1",
    "discovery.k8s.io/v1",
    "discovery.k8s.io/v1beta1",
    "events.k8s.io/v1",
    "events.k8s.io/v1beta1",
    "extensions/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1",
    "flowcontrol.apiserver.k8s.io/v1beta1",
    "flowcontrol.apiserver.k8s.io/v1beta2",
    "flowcontrol.apiserver.k8s.io/v1beta3",
    "networking.k8s.io/v1",
    "networking.k8s.io/v1beta1",
    "node.k8s.io/v1",
    "node.k8s.io/v1alpha1",
    "node.k8s.io/v1beta1",
    "policy/v1",
    "policy/v1beta1",
    "rbac.authorization.k8s.io/v1",
    "rbac.authorization.k8s.io/v1beta1",
    "rbac.authorization.k8s.io/v1alpha1",
    "resource.k8s.io/v1",
    "resource.k8s.io/v1beta2",
    "resource.k8s.io/v1beta1",
    "resource.k8s.io/v1alpha3",
    "scheduling.k8s.io/v1alpha2",
    "scheduling.k8s.io/v1beta1",
    "scheduling.k8s.io/v1",
    "storage.k8s.io/v1beta1",
    "storage.k8s.io/v1",
    "storage.k8s.io/v1alpha1",
    "storagemigration.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1beta1",
    "apiextensions.k8s.io/v1",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_as_kubernetes_reads_them() {
        for (text, wanted) in
            [("1.33", "v1.33"), ("v1.33.4-gke.1", "v1.33.4"), ("1.33.4.5", "v1.33.4.5")]
        {
            assert_eq!(KubeVersion::parse(text).unwrap().normalized(), wanted);
        }
        for text in ["1", "01.5", "abc", "", "v"] {
            assert!(KubeVersion::parse(text).is_err(), "{text}");
        }
        let version = KubeVersion::parse("1.33.4-gke.1").unwrap();
        assert_eq!(version.for_templates(HelmVersion::V3).version, "v1.33.4");
        assert_eq!(version.for_templates(HelmVersion::V4).version, "v1.33.4-gke.1");
    }
}
