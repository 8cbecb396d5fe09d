//! Names of container images, under the two sets of rules that Kyverno uses.
//!
//! [`Image`] follows Kyverno's own functions and the `images` variable: the registry defaults to
//! `docker.io`, and nothing is put before one-part paths. [`Reference`] follows the image library of
//! its CEL policies, where the registry defaults to `index.docker.io` and one-part paths there are
//! below `library/`. Parsing only: nothing here talks to a registry.

mod reference;

use std::fmt;
use std::sync::LazyLock;

use crate::regex::Regex;

pub use reference::{ParseReferenceError, Reference};

/// The registry of images that name none.
pub const DEFAULT_REGISTRY: &str = "docker.io";

/// The parts of an image's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The host of the registry, with a port or not.
    pub registry: String,
    /// The path within the registry.
    pub path: String,
    /// The last part of the path.
    pub name: String,
    /// The tag; `latest` if there is neither tag nor digest, empty if there is only a digest.
    pub tag: String,
    /// The digest with its algorithm, or empty.
    pub digest: String,
}

/// Why a text is not the name of an image.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad image: {image}, defaultRegistry: {registry}: {problem}")]
pub struct ParseImageError {
    image: String,
    registry: String,
    problem: Problem,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Problem {
    #[error("invalid reference format")]
    Format,
    #[error("repository name must be lowercase")]
    Uppercase,
    #[error("repository name must not be more than 255 characters")]
    TooLong,
    #[error("unsupported digest algorithm")]
    Algorithm,
    #[error("invalid checksum digest length")]
    DigestLength,
    #[error("invalid checksum digest format")]
    DigestFormat,
}

/// Registry, path, tag and digest, as the distribution project writes them.
static SHAPE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let host = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])";
    let registry = format!(r"(?:{host}(?:\.{host})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?");
    let part = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*";
    let tag = r"\w[\w.-]{0,127}";
    let algorithm = "[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*";
    let digest = format!("{algorithm}:[0-9a-fA-F]{{32,}}");
    Regex::new(&format!("^(?:({registry})/)?({part}(?:/{part})*)(?::({tag}))?(?:@({digest}))?$"))
        .ok()
});

impl Image {
    /// Reads an image's name; a missing registry is `docker.io`.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(image: &str) -> Result<Self, ParseImageError> {
        Image::parse_with_registry(image, DEFAULT_REGISTRY)
    }

    /// Reads an image's name with another registry as the default.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse_with_registry(image: &str, registry: &str) -> Result<Self, ParseImageError> {
        let full =
            if has_registry(image) { image.to_owned() } else { format!("{registry}/{image}") };
        parts(&full).map_err(|problem| ParseImageError {
            image: image.to_owned(),
            registry: registry.to_owned(),
            problem,
        })
    }

    /// The name with its tag, whether there is a digest or not.
    pub fn reference_with_tag(&self) -> String {
        format!("{}:{}", self.repository(), self.tag)
    }

    /// Registry and path.
    pub fn repository(&self) -> String {
        match self.registry.as_str() {
            "" => self.path.clone(),
            registry => format!("{registry}/{}", self.path),
        }
    }
}

impl fmt::Display for Image {
    /// Prints the full name: with the digest if there is one, else with the tag.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.digest.as_str() {
            "" => f.write_str(&self.reference_with_tag()),
            digest => write!(f, "{}@{digest}", self.repository()),
        }
    }
}

/// Whether the part before the first `/` is a registry.
// Kyverno: it has a dot or a colon, is `localhost`, or has an upper-case letter.
fn has_registry(image: &str) -> bool {
    image.split_once('/').is_some_and(|(first, _)| {
        first.contains(['.', ':']) || first == "localhost" || first.to_lowercase() != first
    })
}

fn parts(full: &str) -> Result<Image, Problem> {
    let shape = SHAPE.as_ref().ok_or(Problem::Format)?;
    let Some(found) = shape.captures(full) else {
        let lower = full.to_lowercase();
        let only_case = lower != full && shape.is_match(&lower);
        return Err(if only_case { Problem::Uppercase } else { Problem::Format });
    };
    let part = |group| found.get(group).unwrap_or("").to_owned();
    let (registry, path, mut tag, digest) = (part(1), part(2), part(3), part(4));
    if path.len() > 255 {
        return Err(Problem::TooLong);
    }
    check_digest(&digest)?;
    if tag.is_empty() && digest.is_empty() {
        "latest".clone_into(&mut tag);
    }
    let name = path.rsplit('/').next().unwrap_or("").to_owned();
    Ok(Image { registry, path, name, tag, digest })
}

/// Checks algorithm and length of a digest, if there is one.
fn check_digest(digest: &str) -> Result<(), Problem> {
    let Some((algorithm, hash)) = digest.split_once(':') else { return Ok(()) };
    if algorithm.contains(|c: char| c.is_ascii_uppercase()) {
        return Err(Problem::DigestFormat);
    }
    let length = match algorithm {
        "sha256" => 64,
        "sha384" => 96,
        "sha512" => 128,
        _ => return Err(Problem::Algorithm),
    };
    if hash.len() != length {
        return Err(Problem::DigestLength);
    }
    let lower_hex = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if hash.bytes().all(lower_hex) { Ok(()) } else { Err(Problem::DigestFormat) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_completed_as_kyverno_does() {
        let digest = format!("sha256:{}", "0".repeat(64));
        for (image, full, name) in [
            ("nginx", "docker.io/nginx:latest", "nginx"),
            ("nginx:1.2", "docker.io/nginx:1.2", "nginx"),
            ("library/nginx", "docker.io/library/nginx:latest", "nginx"),
            ("ghcr.io/a/b/c:v1", "ghcr.io/a/b/c:v1", "c"),
            ("localhost/x", "localhost/x:latest", "x"),
            ("localhost:5000/x:y", "localhost:5000/x:y", "x"),
            ("Registry/x", "Registry/x:latest", "x"),
            ("[::1]:5000/x", "[::1]:5000/x:latest", "x"),
            (&format!("a/b:v1@{digest}"), &format!("docker.io/a/b@{digest}"), "b"),
        ] {
            let got = Image::parse(image).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!((got.to_string().as_str(), got.name.as_str()), (full, name));
        }
        let tagged = Image::parse(&format!("a/b:v1@{digest}")).unwrap();
        assert_eq!(tagged.reference_with_tag(), "docker.io/a/b:v1");
        assert_eq!(Image::parse_with_registry("x", "r.io").unwrap().to_string(), "r.io/x:latest");
    }

    #[test]
    fn what_is_no_image_is_refused() {
        for (image, problem) in [
            ("", "invalid reference format"),
            ("a b", "invalid reference format"),
            ("Nginx", "repository name must be lowercase"),
            ("a:", "invalid reference format"),
            ("a@sha256:00", "invalid reference format"),
            (&format!("a@sha256:{}", "0".repeat(63)), "invalid checksum digest length"),
            (&format!("a@md5:{}", "0".repeat(32)), "unsupported digest algorithm"),
            (&"a".repeat(256), "repository name must not be more than 255 characters"),
            (&format!("a:{}", "b".repeat(129)), "invalid reference format"),
        ] {
            let error = Image::parse(image).unwrap_err().to_string();
            assert!(error.ends_with(problem), "{error}");
        }
    }
}
