//! Image references as Kyverno's CEL library parses them.

use super::check_digest;

const DEFAULT: &str = "index.docker.io";

/// Why a text is not an image reference.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("could not parse reference: {0}")]
pub struct ParseReferenceError(String);

/// A registry, a repository, and a tag or a digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: String,
    digest: String,
}

impl Reference {
    /// Reads a reference; the registry defaults to `index.docker.io`, the tag to `latest`.
    ///
    /// # Errors
    /// When it is not one.
    pub fn parse(text: &str) -> Result<Self, ParseReferenceError> {
        let url = text.starts_with("http://") || text.starts_with("https://");
        let found = if url { None } else { tagged(text).or_else(|| digested(text)) };
        found.ok_or_else(|| ParseReferenceError(text.to_owned()))
    }

    /// The host of the registry.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// The tag; empty for a reference by digest.
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// The digest; empty for a reference by tag.
    pub fn digest(&self) -> &str {
        &self.digest
    }

    /// The digest if there is one, else the tag.
    pub fn identifier(&self) -> &str {
        if self.digest.is_empty() { &self.tag } else { &self.digest }
    }
}

fn tagged(text: &str) -> Option<Reference> {
    let (base, tag) = match text.rsplit_once(':') {
        // What follows the colon of a port is not a tag.
        Some((base, tag)) if !tag.contains('/') => {
            let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte);
            if tag.is_empty() || tag.len() > 128 || !tag.bytes().all(valid) {
                return None;
            }
            (base, tag)
        }
        _ => (text, "latest"),
    };
    let (registry, repository) = repository(base)?;
    Some(Reference { registry, repository, tag: tag.to_owned(), digest: String::new() })
}

fn digested(text: &str) -> Option<Reference> {
    let (base, digest) = text.split_once('@')?;
    if !digest.contains(':') || check_digest(digest).is_err() {
        return None;
    }
    // A tag before the digest is read and dropped.
    let (registry, repository) = match tagged(base) {
        Some(tagged) => (tagged.registry, tagged.repository),
        None => repository(base)?,
    };
    Some(Reference { registry, repository, tag: String::new(), digest: digest.to_owned() })
}

/// Registry and repository, both complete.
fn repository(base: &str) -> Option<(String, String)> {
    let (registry, repository) = match base.split_once('/') {
        Some((first, rest)) if first == "localhost" || first.contains(['.', ':']) => (first, rest),
        _ => ("", base),
    };
    let valid =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-./".contains(&byte);
    if !(1..=255).contains(&repository.len()) || !repository.bytes().all(valid) {
        return None;
    }
    if !is_authority(registry) {
        return None;
    }
    let registry = if matches!(registry, "" | "docker.io") { DEFAULT } else { registry };
    let implicit = registry == DEFAULT && !repository.contains('/');
    let repository = if implicit { format!("library/{repository}") } else { repository.to_owned() };
    Some((registry.to_owned(), repository))
}

/// Whether the text is a host, with a port or not, as a URL has it.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, port)) if address.parse::<std::net::Ipv6Addr>().is_ok() => ("", port),
        Some(_) => return false,
        None => match text.find(':') {
            Some(colon) => text.split_at(colon),
            None => (text, ""),
        },
    };
    let in_host = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=\"<>".contains(&byte);
    let port_is_fine = match port.strip_prefix(':') {
        Some(port) => port.bytes().all(|byte| byte.is_ascii_digit()),
        None => port.is_empty(),
    };
    host.bytes().all(|byte| in_host(byte) || byte >= 0x80) && port_is_fine
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_completed() {
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, registry, repository, identifier) in [
            ("nginx", "index.docker.io", "library/nginx", "latest"),
            ("docker.io/nginx:1", "index.docker.io", "library/nginx", "1"),
            ("a/b", "index.docker.io", "a/b", "latest"),
            ("ghcr.io/a:v1", "ghcr.io", "a", "v1"),
            ("localhost:5000/a", "localhost:5000", "a", "latest"),
            ("[::1]:5000/a", "[::1]:5000", "a", "latest"),
            (&format!("a@{digest}"), "index.docker.io", "library/a", &digest),
            (&format!("r.io/a:v1@{digest}"), "r.io", "a", &digest),
        ] {
            let got = Reference::parse(text).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(got.registry(), registry, "{text}");
            assert_eq!(got.repository(), repository, "{text}");
            assert_eq!(got.identifier(), identifier, "{text}");
            assert_eq!(got.tag().is_empty(), !got.digest().is_empty(), "{text}");
        }
    }

    #[test]
    fn what_is_no_reference_is_refused() {
        for text in
            ["", "A", "a:", "a@sha256:1", "a b", "a:b c", "bad host.io/a", "https://a.io/b:x"]
        {
            assert!(Reference::parse(text).is_err(), "{text}");
        }
    }
}
