//! What differs between releases of kustomize that Kiln can stand in for.
//!
//! A build has one code path. Where a release changed what is printed, the code asks a named field of
//! [`ReleaseBehavior`], and [`DIFFERENCES`] says since when the field is on. A new release is new rows here.

/// The newest release whose output Kiln gives, and what it gives unless another is asked for.
const NEWEST: KustomizeVersion = KustomizeVersion { major: 5, minor: 8, patch: 2 };

/// The oldest release that can be asked for: what differs before it is not written down.
const OLDEST: KustomizeVersion = KustomizeVersion { major: 5, minor: 8, patch: 1 };

/// A release of kustomize.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KustomizeVersion {
    major: u16,
    minor: u16,
    patch: u16,
}

impl KustomizeVersion {
    /// Reads `5.8.1` or `v5.8.1`.
    ///
    /// # Errors
    /// When it is not a version, or none that Kiln can stand in for; the text says which there are.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut parts = text.strip_prefix('v').unwrap_or(text).split('.').map(str::parse::<u16>);
        let version = match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch)), None) => {
                KustomizeVersion { major, minor, patch }
            }
            _ => return Err(format!("{text:?} is not a version of kustomize, such as {OLDEST}")),
        };
        if (OLDEST..=NEWEST).contains(&version) {
            return Ok(version);
        }
        Err(format!("kustomize {version} is not known here; the versions are {OLDEST} to {NEWEST}"))
    }
}

impl std::fmt::Display for KustomizeVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// What a release does, where releases differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is one dated difference of its own")]
pub struct ReleaseBehavior {
    /// The release that the managed-by label names.
    pub version: KustomizeVersion,
    /// ValidatingAdmissionPolicy and its binding get no namespace.
    pub admission_policies_have_no_namespace: bool,
    /// `images` matches digests of any algorithm, not only of SHA-256.
    pub any_digest_algorithm: bool,
    /// `images` changes image volumes in the Pods of CronJobs.
    pub image_volumes_of_cron_jobs: bool,
    /// `includeTemplates` leaves volumeClaimTemplates alone, and `includeVolumeClaimTemplates` is known.
    pub claim_templates_apart: bool,
    /// A delimiter of a replacement also counts inside text that is JSON or YAML.
    pub delimiters_in_structured_text: bool,
    /// A generated Secret that is merged keeps the `stringData` of the Secret below it.
    pub merged_secrets_keep_string_data: bool,
    /// A base such as `base - ../other`, two entries in one, is refused.
    pub ambiguous_paths_are_refused: bool,
}

impl Default for ReleaseBehavior {
    fn default() -> Self {
        ReleaseBehavior::of(NEWEST)
    }
}

impl ReleaseBehavior {
    /// What a release does.
    pub fn of(version: KustomizeVersion) -> Self {
        let mut behavior = ReleaseBehavior {
            version,
            admission_policies_have_no_namespace: false,
            any_digest_algorithm: false,
            image_volumes_of_cron_jobs: false,
            claim_templates_apart: false,
            delimiters_in_structured_text: false,
            merged_secrets_keep_string_data: false,
            ambiguous_paths_are_refused: false,
        };
        for difference in DIFFERENCES.iter().filter(|difference| difference.since <= version) {
            (difference.switch_on)(&mut behavior);
        }
        behavior
    }

    /// The same with one difference as the newest release has it.
    #[must_use]
    pub fn with(mut self, difference: &ReleaseDifference) -> Self {
        (difference.switch_on)(&mut self);
        self
    }
}

/// One thing that a release changed.
#[derive(Debug)]
pub struct ReleaseDifference {
    /// What to call it, in output for programs.
    pub name: &'static str,
    /// The first release that has it.
    pub since: KustomizeVersion,
    /// What that release does, in one sentence.
    pub what: &'static str,
    switch_on: fn(&mut ReleaseBehavior),
}

const V5_8_2: KustomizeVersion = KustomizeVersion { major: 5, minor: 8, patch: 2 };

/// Everything in which the releases that Kiln knows differ. Accidents that lose data or crash are not here: no
/// release is imitated in those.
pub const DIFFERENCES: &[ReleaseDifference] = &[
    ReleaseDifference {
        name: "admission-policies-have-no-namespace",
        since: V5_8_2,
        what: "ValidatingAdmissionPolicy and ValidatingAdmissionPolicyBinding are cluster-scoped: they get no namespace",
        switch_on: |behavior| behavior.admission_policies_have_no_namespace = true,
    },
    ReleaseDifference {
        name: "any-digest-algorithm",
        since: V5_8_2,
        what: "images matches images with a digest of any algorithm",
        switch_on: |behavior| behavior.any_digest_algorithm = true,
    },
    ReleaseDifference {
        name: "image-volumes-of-cron-jobs",
        since: V5_8_2,
        what: "images changes the image volumes of CronJobs",
        switch_on: |behavior| behavior.image_volumes_of_cron_jobs = true,
    },
    ReleaseDifference {
        name: "claim-templates-apart",
        since: V5_8_2,
        what: "includeTemplates leaves volumeClaimTemplates alone; includeVolumeClaimTemplates labels them",
        switch_on: |behavior| behavior.claim_templates_apart = true,
    },
    ReleaseDifference {
        name: "delimiters-in-structured-text",
        since: V5_8_2,
        what: "the delimiter of a replacement also counts inside text that is JSON or YAML",
        switch_on: |behavior| behavior.delimiters_in_structured_text = true,
    },
    ReleaseDifference {
        name: "merged-secrets-keep-string-data",
        since: V5_8_2,
        what: "a generated Secret that is merged keeps the stringData of the Secret below it, as data",
        switch_on: |behavior| behavior.merged_secrets_keep_string_data = true,
    },
    ReleaseDifference {
        name: "ambiguous-paths-are-refused",
        since: V5_8_2,
        what: "a base with two dots inside a part of its path is refused, since it is often two entries in one",
        switch_on: |behavior| behavior.ambiguous_paths_are_refused = true,
    },
    ReleaseDifference {
        name: "managed-by-version",
        since: V5_8_2,
        what: "the managed-by label names the release",
        switch_on: |behavior| behavior.version = V5_8_2,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_bounded() {
        for text in ["5.8.1", "v5.8.2"] {
            let version = KustomizeVersion::parse(text).unwrap();
            assert_eq!(version.to_string(), text.trim_start_matches('v'));
        }
        for (text, part) in [
            ("5.8", "is not a version"),
            ("5.8.x", "is not a version"),
            ("5.8.1.0", "is not a version"),
            ("5.7.0", "5.8.1 to 5.8.2"),
            ("5.8.3", "5.8.1 to 5.8.2"),
        ] {
            let problem = KustomizeVersion::parse(text).unwrap_err();
            assert!(problem.contains(part), "{problem}");
        }
    }

    #[test]
    fn every_difference_changes_the_oldest_release_and_all_make_the_newest() {
        let oldest = ReleaseBehavior::of(OLDEST);
        let mut all = oldest;
        for difference in DIFFERENCES {
            assert_ne!(oldest.with(difference), oldest, "{}", difference.name);
            all = all.with(difference);
        }
        assert_eq!(all, ReleaseBehavior::default());
        assert_eq!(crate::KUSTOMIZE_VERSION, format!("v{NEWEST}"));
    }
}
