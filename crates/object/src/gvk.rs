//! Groups, versions and kinds.

use std::cmp::Ordering;
use std::fmt;

use kiln_value::{Str, Value};

/// The group and version of an API, written `apps/v1`, or `v1` in the core group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupVersion {
    /// The group; empty for the core group.
    pub group: Str,
    pub version: Str,
}

impl GroupVersion {
    /// Splits an `apiVersion` at its first slash; without one it is a version of the core group.
    pub fn parse(api_version: &str) -> Self {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        GroupVersion { group: Str::new(group), version: Str::new(version) }
    }

    /// This group and version with a kind.
    pub fn kind(self, kind: &str) -> Gvk {
        Gvk { group: self.group, version: self.version, kind: Str::new(kind) }
    }
}

impl fmt::Display for GroupVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.group.as_str() {
            "" => f.write_str(&self.version),
            group => write!(f, "{group}/{}", self.version),
        }
    }
}

/// What an object is: group, version and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Gvk {
    /// The group; empty for the core group.
    pub group: Str,
    pub version: Str,
    pub kind: Str,
}

impl Gvk {
    /// From an `apiVersion` and a `kind`.
    pub fn new(api_version: &str, kind: &str) -> Self {
        GroupVersion::parse(api_version).kind(kind)
    }

    /// What an object says it is; `None` unless it has both `apiVersion` and `kind`.
    pub fn of(object: &Value) -> Option<Self> {
        let text =
            |field| object.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        Some(Gvk::new(text("apiVersion")?, text("kind")?))
    }

    /// Reads `group/version/Kind` or `version/Kind`.
    pub fn parse(text: &str) -> Option<Self> {
        let (api_version, kind) = text.rsplit_once('/')?;
        let fine =
            !kind.is_empty() && !api_version.is_empty() && api_version.matches('/').count() < 2;
        fine.then(|| Gvk::new(api_version, kind))
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// An object of this kind in this version. Versions of a kind are taken to differ in nothing but their name.
    #[must_use]
    pub fn in_version(&self, object: &Value) -> Value {
        let wanted = self.api_version();
        let mut object = object.clone();
        if object.get("apiVersion").and_then(Value::as_str) != Some(wanted.as_str())
            && let Some(map) = object.as_map_mut()
        {
            map.insert("apiVersion", wanted);
        }
        object
    }

    /// Group and version as an object's `apiVersion` has them.
    pub fn api_version(&self) -> String {
        self.group_version().to_string()
    }
}

impl fmt::Display for Gvk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        write!(f, "{}/{}", self.version, self.kind)
    }
}

/// Compares versions by how mature they are: `v2` over `v1` over `v1beta2` over `v1beta1` over
/// `v1alpha1`, and all of these over other texts, which compare backwards by letters. The greater one
/// is the one that Kubernetes prefers.
pub fn compare_versions(a: &str, b: &str) -> Ordering {
    match (maturity(a), maturity(b)) {
        (Some(a), Some(b)) => a.cmp(&b),
        (Some(_), None) => Ordering::Greater,
        (None, Some(_)) => Ordering::Less,
        (None, None) => b.cmp(a),
    }
}

/// Stage, major and minor number of a version such as `v1beta2`.
fn maturity(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.bytes().position(|byte| !byte.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let number = |digits: &str| {
        (digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0'))
            .then(|| digits.parse().ok())
            .flatten()
    };
    let major = number(major)?;
    if rest.is_empty() {
        return Some((2, major, 0));
    }
    let (stage, minor) = match rest.strip_prefix("beta") {
        Some(minor) => (1, minor),
        None => (0, rest.strip_prefix("alpha")?),
    };
    Some((stage, major, number(minor)?))
}

/// A kind whatever its version: what a cluster keeps together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KindKey {
    /// The group; empty for the core group.
    pub group: Str,
    pub kind: Str,
}

impl KindKey {
    /// The kind of a group, version and kind.
    pub fn of(gvk: &Gvk) -> Self {
        KindKey { group: gvk.group.clone(), kind: gvk.kind.clone() }
    }

    /// A kind by its group and name.
    pub fn new(group: &str, kind: &str) -> Self {
        KindKey { group: group.into(), kind: kind.into() }
    }
}

impl fmt::Display for KindKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.kind)?;
        if self.group.is_empty() { Ok(()) } else { write!(f, ".{}", self.group) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kiln_value::value;

    #[test]
    fn api_versions_print_as_read() {
        for (text, group, version) in
            [("v1", "", "v1"), ("apps/v1", "apps", "v1"), ("a/b/c", "a", "b/c"), ("", "", "")]
        {
            let parsed = GroupVersion::parse(text);
            assert_eq!((parsed.group.as_str(), parsed.version.as_str()), (group, version));
            assert_eq!(parsed.to_string(), text);
        }
        let gvk = Gvk::of(&value!({"apiVersion": "apps/v1", "kind": "Deployment"})).unwrap();
        assert_eq!(gvk.to_string(), "apps/v1/Deployment");
        assert_eq!(Gvk::parse("apps/v1/Deployment"), Some(gvk));
        assert_eq!(Gvk::parse("v1/Pod"), Some(Gvk::new("v1", "Pod")));
        assert_eq!(Gvk::parse("Pod"), None);
        assert_eq!(Gvk::parse("a/b/c/Pod"), None);
        assert_eq!(Gvk::of(&value!({"kind": "Pod"})), None);
        assert_eq!(Gvk::of(&value!({"apiVersion": "v1", "kind": ""})), None);
    }

    #[test]
    fn mature_versions_are_preferred() {
        let ascending = [
            "foo10", "foo1", "v1alpha1", "v2alpha1", "v1beta1", "v1beta2", "v1beta10", "v2beta1",
            "v1", "v2", "v10",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(compare_versions(pair[0], pair[1]), Ordering::Less, "{pair:?}");
        }
        assert_eq!(compare_versions("v1beta", "v1"), Ordering::Less);
        assert_eq!(compare_versions("v01", "v1alpha1"), Ordering::Less);
    }
}
