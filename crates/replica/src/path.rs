//! The one function that builds every address at an API server, from typed parts.
//!
//! Names come from objects, and objects from any user: each part is checked before it becomes a part of a
//! path, so that no name can lead to another resource.

use std::fmt;
use std::fmt::Write as _;

/// Where something is at an API server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address<'a> {
    /// The group; empty for the core group.
    pub group: &'a str,
    pub version: &'a str,
    /// The plural name of the resource.
    pub plural: &'a str,
    /// The namespace; empty for cluster-scoped resources and for all namespaces.
    pub namespace: &'a str,
    /// The name; empty for all objects of the resource.
    pub name: &'a str,
    /// The subresource; empty for the object itself.
    pub subresource: &'a str,
}

/// A part that cannot be a part of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPart {
    pub part: &'static str,
    /// The text that cannot stand there.
    pub text: String,
}

impl fmt::Display for BadPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {:?} cannot be part of an address", self.part, self.text)
    }
}

impl std::error::Error for BadPart {}

/// The path and query of an address.
///
/// # Errors
/// When a part is empty where it is needed, too long, or would change the meaning of the path.
pub fn path(address: &Address<'_>, query: &[(&str, &str)]) -> Result<String, BadPart> {
    let mut path = String::with_capacity(96);
    if address.group.is_empty() {
        path.push_str("/api");
    } else {
        path.push_str("/apis");
        segment(&mut path, "group", address.group)?;
    }
    segment(&mut path, "version", address.version)?;
    if !address.namespace.is_empty() {
        path.push_str("/namespaces");
        segment(&mut path, "namespace", address.namespace)?;
    }
    segment(&mut path, "resource", address.plural)?;
    if !address.name.is_empty() {
        segment(&mut path, "name", address.name)?;
    }
    if !address.subresource.is_empty() {
        if address.name.is_empty() {
            return Err(BadPart { part: "name", text: String::new() });
        }
        for part in address.subresource.split('/') {
            segment(&mut path, "subresource", part)?;
        }
    }
    for (at, (key, value)) in query.iter().enumerate() {
        path.push(if at == 0 { '?' } else { '&' });
        encode(&mut path, key);
        path.push('=');
        encode(&mut path, value);
    }
    Ok(path)
}

fn segment(path: &mut String, part: &'static str, text: &str) -> Result<(), BadPart> {
    // Kubernetes: names in paths are neither "." nor "..", and contain neither "/" nor "%".
    let wrong = text.is_empty()
        || text.len() > 253
        || matches!(text, "." | "..")
        || text.chars().any(|c| matches!(c, '/' | '%' | '?' | '#' | '\\') || c.is_control());
    if wrong {
        return Err(BadPart { part, text: text.chars().take(300).collect() });
    }
    path.push('/');
    encode(path, text);
    Ok(())
}

fn encode(path: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b':') {
            path.push(char::from(byte));
        } else {
            // Writing to a string does not fail.
            let _ = write!(path, "%{byte:02X}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_paths() {
        let pod = Address {
            version: "v1",
            plural: "pods",
            namespace: "a",
            name: "b",
            ..Address::default()
        };
        let role = Address {
            group: "rbac.authorization.k8s.io",
            version: "v1",
            plural: "clusterroles",
            name: "system:a",
            ..Address::default()
        };
        for (address, query, expected) in [
            (pod, &[][..], "/api/v1/namespaces/a/pods/b"),
            (Address { subresource: "status", ..pod }, &[], "/api/v1/namespaces/a/pods/b/status"),
            (
                Address { namespace: "", name: "", ..pod },
                &[("labelSelector", "a in (b,c)"), ("limit", "5")],
                "/api/v1/pods?labelSelector=a%20in%20%28b%2Cc%29&limit=5",
            ),
            (role, &[], "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:a"),
        ] {
            assert_eq!(path(&address, query).as_deref(), Ok(expected));
        }
    }

    #[test]
    fn no_part_leads_elsewhere() {
        let good = Address {
            group: "apps",
            version: "v1",
            plural: "deployments",
            namespace: "a",
            name: "b",
            subresource: "status",
        };
        assert!(path(&good, &[]).is_ok());
        let long = "x".repeat(254);
        for bad in ["..", ".", "a/b", "a%2fb", "a?b", "a#b", "a\\b", "a\nb", "\0", long.as_str()] {
            for address in [
                Address { group: bad, ..good },
                Address { version: bad, ..good },
                Address { plural: bad, ..good },
                Address { namespace: bad, ..good },
                Address { name: bad, ..good },
            ] {
                assert!(path(&address, &[]).is_err(), "{address:?}");
            }
        }
        for address in [
            Address { version: "", ..good },
            Address { plural: "", ..good },
            Address { name: "", ..good },
            Address { subresource: "a/../b", ..good },
        ] {
            assert!(path(&address, &[]).is_err(), "{address:?}");
        }
    }
}
