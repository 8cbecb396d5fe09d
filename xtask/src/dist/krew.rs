//! The manifest of the plugin for kubectl, which krew installs: `kubectl krew install --manifest=kiln.krew.yaml`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Where the files of a release are published: the directory that has one for each version.
const RELEASES: &str = "KILN_RELEASES";

/// The name of the file.
pub(super) const FILE: &str = "kiln.krew.yaml";

/// The manifest for archives with these digests, by system and processor.
pub(super) fn manifest(version: &str, archives: &BTreeMap<(&str, &str), String>) -> String {
    let releases =
        std::env::var(RELEASES).unwrap_or_else(|_| "https://example.com/kiln".to_owned());
    let mut text = format!(
        "apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: kiln
spec:
  version: v{version}
  shortDescription: Generate, mutate, validate resources by policies
  description: |
    Runs Kyverno policies, Kyverno's CEL policies, KubeMod ModRules and kustomizations: on files (check, test, apply,
    build), in a sandbox (up), and as a preview of a cluster (plan, explain, doctor).
  caveats: |
    Nothing is installed in the cluster. `kubectl kiln doctor` says what is there, `kubectl kiln plan POLICIES` what
    policies would change.
  platforms:
"
    );
    for ((os, arch), sum) in archives {
        let name = format!("kiln-{version}-{os}-{arch}");
        let ending = if *os == "windows" { ".exe" } else { "" };
        let _ = write!(
            text,
            "  - selector:
      matchLabels:
        os: {os}
        arch: {arch}
    uri: {releases}/v{version}/{name}.tar.gz
    sha256: {sum}
    files:
    - from: {name}/kiln{ending}
      to: kubectl-kiln{ending}
    - from: {name}/LICENSE
      to: .
    bin: kubectl-kiln{ending}
"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_every_archive_with_its_digest() {
        let sum = "0".repeat(64);
        let archives =
            BTreeMap::from([(("linux", "amd64"), sum.clone()), (("linux", "arm64"), sum)]);
        let text = manifest("0.2.0", &archives);
        assert!(text.contains("/v0.2.0/kiln-0.2.0-linux-arm64.tar.gz\n"), "{text}");
        assert!(
            text.contains("- from: kiln-0.2.0-linux-amd64/kiln\n      to: kubectl-kiln\n"),
            "{text}"
        );
        assert_eq!(text.matches("sha256: ").count(), 2);
        let short = text.lines().find_map(|line| line.trim().strip_prefix("shortDescription: "));
        // krew: longer ones are refused.
        assert!(short.is_some_and(|line| line.len() <= 50), "{short:?}");
    }
}
