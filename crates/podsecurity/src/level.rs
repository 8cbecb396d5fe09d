//! Levels and versions of the standards.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// How much a standard forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Nothing.
    Privileged,
    /// What is known to give more rights than a container should have.
    Baseline,
    /// All that hardening advises against.
    Restricted,
}

impl Level {
    /// The word that users write.
    pub fn word(self) -> &'static str {
        match self {
            Level::Privileged => "privileged",
            Level::Baseline => "baseline",
            Level::Restricted => "restricted",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// A level that does not exist.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be one of privileged, baseline, restricted")]
pub struct UnknownLevel;

impl FromStr for Level {
    type Err = UnknownLevel;

    fn from_str(text: &str) -> Result<Self, UnknownLevel> {
        [Level::Privileged, Level::Baseline, Level::Restricted]
            .into_iter()
            .find(|level| level.word() == text)
            .ok_or(UnknownLevel)
    }
}

/// The version of Kubernetes whose standard is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PodSecurityVersion {
    /// The newest that is known.
    Latest,
    /// `v1.N`.
    Minor(u16),
}

impl PodSecurityVersion {
    /// Whether something that came with `v1.minor` is in force.
    pub(crate) fn reaches(self, minor: u16) -> bool {
        match self {
            PodSecurityVersion::Latest => true,
            PodSecurityVersion::Minor(own) => own >= minor,
        }
    }
}

impl fmt::Display for PodSecurityVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PodSecurityVersion::Latest => f.write_str("latest"),
            PodSecurityVersion::Minor(minor) => write!(f, "v1.{minor}"),
        }
    }
}

/// A text that is not a version.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("must be \"latest\" or \"v1.x\"")]
pub struct UnknownVersion;

impl FromStr for PodSecurityVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        if text == "latest" {
            return Ok(PodSecurityVersion::Latest);
        }
        let minor = text.strip_prefix("v1.").ok_or(UnknownVersion)?;
        let plain = minor.bytes().all(|b| b.is_ascii_digit())
            && !minor.is_empty()
            && (minor == "0" || !minor.starts_with('0'));
        if !plain {
            return Err(UnknownVersion);
        }
        // A version that no release will reach means what the newest means.
        Ok(minor.parse().map_or(PodSecurityVersion::Latest, PodSecurityVersion::Minor))
    }
}
