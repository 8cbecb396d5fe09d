//! Versions and ranges of versions as Kyverno's `semver_compare` and Kubernetes' CEL library use
//! them: strict three-part versions, and ranges such as `>=1.2.3 <2.0.0 || 3.x`.

mod range;

use std::cmp::Ordering;
use std::fmt;

use crate::quote::quote;

pub use range::{ParseRangeError, Range};

/// A version. Equality and order ignore build metadata, and a pre-release comes before its release.
#[derive(Clone, Debug, Default)]
pub struct Version {
    /// The first number.
    pub major: u64,
    /// The second number.
    pub minor: u64,
    /// The third number.
    pub patch: u64,
    /// The dot-separated parts after `-`.
    pub pre: Vec<Identifier>,
    /// The dot-separated parts after `+`.
    pub build: Vec<String>,
}

/// A part of a pre-release; numbers come before words.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Identifier {
    Number(u64),
    /// Anything else, compared byte by byte.
    Word(String),
}

/// Why a text is not a version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ParseVersionError(String);

impl Version {
    /// Reads a strict version: three numbers without leading zeros, no `v`.
    ///
    /// # Errors
    /// Says which part is wrong.
    pub fn parse(text: &str) -> Result<Self, ParseVersionError> {
        if text.is_empty() {
            return Err(ParseVersionError("version string empty".into()));
        }
        let mut parts = text.splitn(3, '.');
        let (Some(major), Some(minor), Some(rest)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(ParseVersionError("no major.minor.patch elements found".into()));
        };
        let major = number("major number", major)?;
        let minor = number("minor number", minor)?;
        let (rest, build) = match rest.split_once('+') {
            Some((rest, build)) => (rest, Some(build)),
            None => (rest, None),
        };
        let (patch, pre) = match rest.split_once('-') {
            Some((patch, pre)) => (patch, Some(pre)),
            None => (rest, None),
        };
        let patch = number("patch number", patch)?;
        let pre = pre.into_iter().flat_map(|pre| pre.split('.')).map(identifier);
        let build = build.into_iter().flat_map(|build| build.split('.'));
        let build = build.map(|part| word("build meta data", part).map(str::to_owned));
        Ok(Version {
            major,
            minor,
            patch,
            pre: pre.collect::<Result<_, _>>()?,
            build: build.collect::<Result<_, _>>()?,
        })
    }

    /// Reads a version after putting it right: a leading `v` and leading zeros go, and missing minor
    /// and patch numbers become 0.
    ///
    /// # Errors
    /// When it still is not a version, or when a short one has a pre-release or build metadata.
    pub fn parse_normalized(text: &str) -> Result<Self, ParseVersionError> {
        let text = text.strip_prefix('v').unwrap_or(text);
        let mut parts: Vec<String> = text
            .splitn(3, '.')
            .map(|part| match part.trim_start_matches('0') {
                _ if part.len() <= 1 => part.to_owned(),
                trimmed if trimmed.starts_with(|c: char| c.is_ascii_digit()) => trimmed.to_owned(),
                trimmed => format!("0{trimmed}"),
            })
            .collect();
        if parts.len() < 3 && parts.last().is_some_and(|last| last.contains(['+', '-'])) {
            let problem = "short version cannot contain prerelease/build meta data";
            return Err(ParseVersionError(problem.into()));
        }
        parts.resize(3, "0".to_owned());
        Version::parse(&parts.join("."))
    }
}

fn number(what: &str, text: &str) -> Result<u64, ParseVersionError> {
    if !text.bytes().all(|byte| byte.is_ascii_digit()) {
        let text = quote(text);
        return Err(ParseVersionError(format!("invalid character(s) found in {what} {text}")));
    }
    if text.len() > 1 && text.starts_with('0') {
        let text = quote(text);
        return Err(ParseVersionError(format!("{what} must not contain leading zeroes {text}")));
    }
    text.parse().map_err(|_| ParseVersionError(format!("{what} {} is out of range", quote(text))))
}

fn word<'a>(what: &str, text: &'a str) -> Result<&'a str, ParseVersionError> {
    if text.is_empty() {
        return Err(ParseVersionError(format!("{what} is empty")));
    }
    if !text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        let text = quote(text);
        return Err(ParseVersionError(format!("invalid character(s) found in {what} {text}")));
    }
    Ok(text)
}

fn identifier(text: &str) -> Result<Identifier, ParseVersionError> {
    let text = word("prerelease", text)?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return number("numeric prerelease version", text).map(Identifier::Number);
    }
    Ok(Identifier::Word(text.to_owned()))
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> Ordering {
        let numbers = |v: &Version| (v.major, v.minor, v.patch);
        // A release is above all its pre-releases.
        let release = |v: &Version| v.pre.is_empty();
        (numbers(self).cmp(&numbers(other)))
            .then_with(|| release(self).cmp(&release(other)))
            .then_with(|| self.pre.cmp(&other.pre))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)?;
        for (i, part) in self.pre.iter().enumerate() {
            f.write_str(if i == 0 { "-" } else { "." })?;
            match part {
                Identifier::Number(number) => write!(f, "{number}")?,
                Identifier::Word(word) => f.write_str(word)?,
            }
        }
        for (i, part) in self.build.iter().enumerate() {
            write!(f, "{}{part}", if i == 0 { "+" } else { "." })?;
        }
        Ok(())
    }
}

impl std::str::FromStr for Version {
    type Err = ParseVersionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Version::parse(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strict_versions_print_as_read() {
        for text in ["0.0.0", "1.2.3", "1.2.3-alpha.1", "1.2.3-a-b+build.01", "1.0.0+x"] {
            assert_eq!(Version::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn lax_versions_are_refused() {
        for (text, error) in [
            ("", "version string empty"),
            ("1.2", "no major.minor.patch elements found"),
            ("v1.2.3", r#"invalid character(s) found in major number "v1""#),
            ("01.2.3", r#"major number must not contain leading zeroes "01""#),
            ("1..3", r#"minor number "" is out of range"#),
            ("1.2.3-", "prerelease is empty"),
            ("1.2.3-01", r#"numeric prerelease version must not contain leading zeroes "01""#),
            ("1.2.3-a_b", r#"invalid character(s) found in prerelease "a_b""#),
            ("1.2.3+", "build meta data is empty"),
            ("1.2.3.4", r#"invalid character(s) found in patch number "3.4""#),
            ("99999999999999999999.0.0", r#"major number "99999999999999999999" is out of range"#),
        ] {
            assert_eq!(Version::parse(text).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn order_follows_precedence() {
        let ascending = [
            "1.0.0-1",
            "1.0.0-2",
            "1.0.0-10",
            "1.0.0-alpha",
            "1.0.0-alpha.1",
            "1.0.0-beta",
            "1.0.0",
            "1.0.1",
            "1.1.0",
            "2.0.0",
        ];
        for pair in ascending.windows(2) {
            assert!(
                Version::parse(pair[0]).unwrap() < Version::parse(pair[1]).unwrap(),
                "{pair:?}"
            );
        }
        assert_eq!(Version::parse("1.0.0+a").unwrap(), Version::parse("1.0.0+b").unwrap());
    }

    #[test]
    fn normalization_completes_versions() {
        for (text, version) in [
            ("v1", Some("1.0.0")),
            ("1.2", Some("1.2.0")),
            ("01.02.03", Some("1.2.3")),
            ("00.0.000", Some("0.0.0")),
            ("1.2.0-rc1", Some("1.2.0-rc1")),
            ("v1.0.00-rc.1", Some("1.0.0-rc.1")),
            ("1.2-rc1", None),
            (" 1.2.3", None),
            ("", None),
            ("vv1", None),
        ] {
            let got = Version::parse_normalized(text).ok().map(|v| v.to_string());
            assert_eq!(got.as_deref(), version, "{text}");
        }
    }
}
