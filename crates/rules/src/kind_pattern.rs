//! The short way to name kinds in a match block: `Pod`, `v1/Pod`, `apps/*/Deploy*`, `Pod/exec`.

use std::fmt;

use kiln_object::kinds::usual_plural;
use kiln_object::{Kind, Kinds};
use kiln_text::wildcard;
use kiln_value::Str;

/// Kinds, and subresources of them, by wildcards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KindPattern {
    /// The API group; the core group is the empty text.
    pub group: Str,
    pub version: Str,
    pub kind: Str,
    /// The subresource; the empty text is the object itself.
    pub subresource: Str,
    /// The plural name of a resource whose kind was not known when the pattern was read. The kind is any
    /// then, and told by what its plural would be.
    pub plural: Option<Str>,
    /// Containers that are added to a Pod for debugging count as the Pod itself.
    pub with_ephemeral_containers: bool,
    written: Str,
}

impl KindPattern {
    /// Reads the text between slashes; `None` when it has no or too many parts.
    ///
    /// Kyverno: the last part may join kind and subresource with a dot, a first part that looks like a
    /// version is one, and a lower-case word behind `*/` is a subresource.
    pub fn parse(written: &str) -> Option<Self> {
        let (front, last) = match written.rsplit_once('/') {
            Some((front, last)) => (Some(front), last),
            None => (None, written),
        };
        let parts: Vec<&str> =
            front.into_iter().flat_map(|front| front.split('/')).chain(last.split('.')).collect();
        if parts.iter().any(|part| part.is_empty()) {
            return None;
        }
        let (group, version, kind, subresource) = match parts[..] {
            [kind] => ("*", "*", kind, ""),
            ["*", "*"] => ("*", "*", "*", "*"),
            ["*", word] if word.chars().all(|c| !c.is_uppercase()) => ("*", "*", "*", word),
            [version, kind] if is_version(version) => ("*", version, kind, ""),
            [kind, subresource] => ("*", "*", kind, subresource),
            ["*", version, kind] if is_version(version) && starts_upper(kind) => {
                ("*", version, kind, "")
            }
            [version, kind, subresource] if is_version(version) => {
                ("*", version, kind, subresource)
            }
            [group, version, kind] => (group, version, kind, ""),
            [group, version, kind, subresource] => (group, version, kind, subresource),
            _ => return None,
        };
        Some(KindPattern {
            group: group.into(),
            version: version.into(),
            kind: kind.into(),
            subresource: subresource.into(),
            plural: None,
            // Kyverno: a rule on Pods also sees containers that are added for debugging.
            with_ephemeral_containers: kind == "Pod" && subresource.is_empty(),
            written: written.into(),
        })
    }

    /// What a rule of Kubernetes' admission means: resources by their plural name, perhaps with a
    /// subresource behind a slash.
    ///
    /// Kubernetes: `pods/*` is every subresource of Pods, and not the Pods themselves; `*` is every
    /// resource without its subresources, and `*/*` is both.
    pub fn of_resource(group: &str, version: &str, resource: &str, kinds: &Kinds) -> Vec<Self> {
        let (plural, subresource) = match resource.split_once('/') {
            Some(("*", "*")) => ("*", "*"),
            Some((plural, "*")) => (plural, "?*"),
            Some((plural, subresource)) => (plural, subresource),
            None => (resource, ""),
        };
        let core = if group.is_empty() { String::new() } else { format!("{group}/") };
        let pattern = |kind: Str, plural: Option<Str>| KindPattern {
            group: group.into(),
            version: version.into(),
            kind,
            subresource: subresource.into(),
            plural,
            with_ephemeral_containers: false,
            written: format!("{core}{version}/{resource}").into(),
        };
        if plural == "*" {
            return vec![pattern("*".into(), None)];
        }
        let meant =
            |kind: &&Kind| kind.plural() == plural && wildcard::matches(group, kind.group());
        let mut known: Vec<&str> = kinds.iter().filter(meant).map(Kind::kind).collect();
        known.sort_unstable();
        known.dedup();
        match known.is_empty() {
            true => vec![pattern("*".into(), Some(plural.into()))],
            false => known.into_iter().map(|kind| pattern(kind.into(), None)).collect(),
        }
    }

    /// Whether a kind, or a subresource of it, is meant. `kind` is that of the parent object for
    /// subresources.
    pub fn matches(&self, group: &str, version: &str, kind: &str, subresource: &str) -> bool {
        wildcard::matches(&self.group, group)
            && wildcard::matches(&self.version, version)
            && wildcard::matches(&self.kind, kind)
            && self.plural.as_ref().is_none_or(|plural| *plural == usual_plural(kind))
            && (wildcard::matches(&self.subresource, subresource)
                || (self.with_ephemeral_containers && subresource == "ephemeralcontainers"))
    }

    /// Whether the kind is written out, so that rules can be found by it.
    pub fn names_one_kind(&self) -> bool {
        !wildcard::contains_wildcard(&self.kind)
    }
}

impl fmt::Display for KindPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written)
    }
}

fn starts_upper(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase())
}

/// `*`, or `v1`, `v2beta1` and the like.
pub fn is_version(word: &str) -> bool {
    if word == "*" {
        return true;
    }
    let Some(rest) = word.strip_prefix('v') else { return false };
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match rest.split_once("alpha").or_else(|| rest.split_once("beta")) {
        Some((major, minor)) => number(major) && number(minor),
        None => number(rest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_written_form_is_read() {
        for (written, group, version, kind, subresource) in [
            ("Pod", "*", "*", "Pod", ""),
            ("*", "*", "*", "*", ""),
            ("*/*", "*", "*", "*", "*"),
            ("*/scale", "*", "*", "*", "scale"),
            ("*/Pod", "*", "*", "Pod", ""),
            ("v1/Pod", "*", "v1", "Pod", ""),
            ("Pod/exec", "*", "*", "Pod", "exec"),
            ("Pod.status", "*", "*", "Pod", "status"),
            ("v1/Pod.status", "*", "v1", "Pod", "status"),
            ("v1/Pod/status", "*", "v1", "Pod", "status"),
            ("apps/v1/Deployment", "apps", "v1", "Deployment", ""),
            ("*/v1beta1/Ingress", "*", "v1beta1", "Ingress", ""),
            ("networking.k8s.io/*/Net*", "networking.k8s.io", "*", "Net*", ""),
            ("apps/v1/Deployment/scale", "apps", "v1", "Deployment", "scale"),
            ("apps/v1/Deployment.scale", "apps", "v1", "Deployment", "scale"),
        ] {
            let pattern = KindPattern::parse(written).unwrap();
            assert_eq!(
                (&*pattern.group, &*pattern.version, &*pattern.kind, &*pattern.subresource),
                (group, version, kind, subresource),
                "{written}"
            );
            assert_eq!(pattern.to_string(), written);
        }
        for bad in ["", "/", "a/b/c/d/e", "v1/", "Pod."] {
            assert_eq!(KindPattern::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn resources_are_found_by_their_plural() {
        let kinds = Kinds::builtin();
        let one = |group: &str, resource: &str| {
            KindPattern::of_resource(group, "v1", resource, &kinds).remove(0)
        };
        assert_eq!(&*one("", "namespaces").kind, "Namespace");
        assert_eq!(one("apps", "deployments/scale").to_string(), "apps/v1/deployments/scale");
        let pods = one("", "pods");
        assert!(pods.matches("", "v1", "Pod", ""));
        assert!(!pods.matches("", "v1", "Pod", "ephemeralcontainers"));
        let below = one("", "pods/*");
        assert!(below.matches("", "v1", "Pod", "exec"));
        assert!(!below.matches("", "v1", "Pod", ""));
        assert!(one("*", "*/*").matches("apps", "v1", "Deployment", "scale"));
        assert!(!one("*", "*").matches("apps", "v1", "Deployment", "scale"));
        let unknown = one("acme.io", "policies");
        assert!(unknown.matches("acme.io", "v1", "Policy", ""));
        assert!(!unknown.matches("acme.io", "v1", "Widget", ""));
        assert_eq!(usual_plural("Ingress"), "ingresses");
    }

    #[test]
    fn a_kind_alone_means_the_object_itself() {
        let pod = KindPattern::parse("Pod").unwrap();
        assert!(pod.matches("", "v1", "Pod", ""));
        assert!(!pod.matches("", "v1", "Pod", "exec"));
        assert!(pod.matches("", "v1", "Pod", "ephemeralcontainers"));
        assert!(!pod.matches("", "v1", "pod", ""));
        let all = KindPattern::parse("*/*").unwrap();
        assert!(all.matches("apps", "v1", "Deployment", "scale"));
        assert!(all.matches("apps", "v1", "Deployment", ""));
        assert!(KindPattern::parse("Pod/*").unwrap().names_one_kind());
        assert!(!KindPattern::parse("Po*").unwrap().names_one_kind());
    }

    #[test]
    fn versions_look_like_versions() {
        for word in ["*", "v1", "v12", "v1alpha1", "v2beta3"] {
            assert!(is_version(word), "{word}");
        }
        for word in ["", "v", "1", "v1gamma1", "v1beta", "vbeta1", "apps"] {
            assert!(!is_version(word), "{word}");
        }
    }
}
