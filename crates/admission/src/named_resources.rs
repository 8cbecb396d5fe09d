//! The resources that the kinds in rules mean, as webhook configurations name them.

use kiln_object::{Kind, Kinds};
use kiln_rules::KindPattern;
use kiln_text::wildcard;
use kiln_value::Str;

/// A resource that a rule names.
pub(crate) struct NamedResource {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) resource: String,
    /// It is in namespaces, and nowhere else.
    pub(crate) namespaced: bool,
}

/// Every resource that is meant.
pub(crate) fn resources(pattern: &KindPattern, kinds: &Kinds) -> Vec<NamedResource> {
    if &*pattern.kind == "*" {
        return of_every_kind(pattern);
    }
    let fits = |kind: &&Kind| {
        wildcard::matches(&pattern.group, kind.group())
            && wildcard::matches(&pattern.version, kind.version())
            && wildcard::matches(&pattern.kind, kind.kind())
    };
    let mut found: Vec<&Kind> = kinds.iter().filter(fits).collect();
    if wildcard::contains_wildcard(&pattern.version) {
        // Requests in other versions are converted to the one that is named.
        found.retain(|kind| {
            kinds
                .preferred(kind.group(), kind.kind())
                .is_some_and(|best| best.version() == kind.version())
        });
    }
    let mut resources = Vec::new();
    for kind in found {
        let mut add = |resource: String| {
            resources.push(NamedResource {
                group: kind.group().to_owned(),
                version: kind.version().to_owned(),
                resource,
                namespaced: kind.is_namespaced(),
            });
        };
        let plural = kind.plural();
        match pattern.subresource.as_str() {
            "" => {
                add(plural.to_owned());
                // Kyverno: a rule on Pods also sees containers that are added for debugging.
                if kind.group().is_empty() && kind.kind() == "Pod" {
                    add("pods/ephemeralcontainers".to_owned());
                }
            }
            sub if wildcard::contains_wildcard(sub) => {
                let named = kind.subresources().iter().map(|sub| sub.name);
                let named: Vec<&str> = named.filter(|name| wildcard::matches(sub, name)).collect();
                // A webhook knows `*` and nothing else of wildcards.
                if named.is_empty() {
                    add(format!("{plural}/*"));
                }
                named.into_iter().for_each(|name| add(format!("{plural}/{name}")));
            }
            sub => add(format!("{plural}/{sub}")),
        }
    }
    resources
}

fn of_every_kind(pattern: &KindPattern) -> Vec<NamedResource> {
    // A webhook knows `*` and nothing else of wildcards.
    let plain = |word: &Str| match wildcard::contains_wildcard(word) {
        true => "*".to_owned(),
        false => word.to_string(),
    };
    let named = match pattern.subresource.as_str() {
        // Kyverno: containers that are added for debugging are a part of Pods.
        "" if wildcard::matches(&pattern.group, "") => {
            vec!["*".to_owned(), "pods/ephemeralcontainers".to_owned()]
        }
        "" => vec!["*".to_owned()],
        sub if wildcard::contains_wildcard(sub) => vec!["*/*".to_owned()],
        sub => vec![format!("*/{sub}")],
    };
    let of = |resource| NamedResource {
        group: plain(&pattern.group),
        version: plain(&pattern.version),
        resource,
        namespaced: false,
    };
    named.into_iter().map(of).collect()
}
