//! The kinds there are: their scope, their names in the API, their versions and subresources.
//!
//! [`Kinds::builtin`] knows what Kubernetes itself serves and costs nothing to make; CRDs are put on
//! top ([`Kinds::with_crd`]). Lookups are by kind, by the plural name of the resource, or by any name
//! that `kubectl` takes.

mod builtin;
pub mod common;
mod common_defaults;
mod crd;
mod discovered;

use std::borrow::Cow;
use std::sync::Arc;

use kiln_value::{Str, Value};

use crate::gvk::{GroupVersion, Gvk, compare_versions};

pub use crd::CrdError;

/// What can be done with a resource, as discovery names it.
pub type Verbs = &'static [&'static str];

/// One kind in one version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kind {
    group: Str,
    version: Str,
    kind: Str,
    plural: Str,
    /// `None` for the kind in lower case.
    singular: Option<Str>,
    /// `None` for the kind and `List`.
    list_kind: Option<Str>,
    namespaced: bool,
    short_names: KindNames,
    categories: KindNames,
    subresources: Cow<'static, [Subresource]>,
    verbs: Verbs,
    served: bool,
    storage: bool,
}

#[derive(Clone, Debug)]
enum KindNames {
    Fixed(&'static [&'static str]),
    Read(Vec<Str>),
}

impl KindNames {
    fn iter(&self) -> impl Iterator<Item = &str> {
        let (fixed, read): (&[&str], &[Str]) = match self {
            KindNames::Fixed(names) => (names, &[]),
            KindNames::Read(names) => (&[], names),
        };
        fixed.iter().copied().chain(read.iter().map(Str::as_str))
    }
}

impl PartialEq for KindNames {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for KindNames {}

/// A part of an object with a path of its own, such as `pods/status`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subresource {
    /// The last part of the path.
    pub name: &'static str,
    /// Group and version of what is sent there; empty for those of the object.
    pub api_version: &'static str,
    /// The kind of what is sent there; empty for that of the object.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: Verbs,
}

impl Kind {
    /// The group; empty for the core group.
    pub fn group(&self) -> &str {
        &self.group
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Group, version and kind.
    pub fn gvk(&self) -> Gvk {
        Gvk { group: self.group.clone(), version: self.version.clone(), kind: self.kind.clone() }
    }

    pub fn group_version(&self) -> GroupVersion {
        GroupVersion { group: self.group.clone(), version: self.version.clone() }
    }

    /// The name in paths: `deployments`.
    pub fn plural(&self) -> &str {
        &self.plural
    }

    /// The name of one: `deployment`.
    pub fn singular(&self) -> Str {
        self.singular.clone().unwrap_or_else(|| Str::new(self.kind.to_lowercase()))
    }

    /// The kind of lists of it: `DeploymentList`.
    pub fn list_kind(&self) -> Str {
        self.list_kind.clone().unwrap_or_else(|| Str::new(format!("{}List", self.kind)))
    }

    /// Whether objects of this kind belong to a namespace.
    pub fn is_namespaced(&self) -> bool {
        self.namespaced
    }

    /// The short names: `deploy`.
    pub fn short_names(&self) -> impl Iterator<Item = &str> {
        self.short_names.iter()
    }

    /// The groups of resources it belongs to: `all`.
    pub fn categories(&self) -> impl Iterator<Item = &str> {
        self.categories.iter()
    }

    pub fn subresources(&self) -> &[Subresource] {
        &self.subresources
    }

    /// The subresource of this name.
    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|subresource| subresource.name == name)
    }

    /// What can be done with its objects.
    pub fn verbs(&self) -> Verbs {
        self.verbs
    }

    /// Whether the API serves this version.
    pub fn is_served(&self) -> bool {
        self.served
    }

    /// Whether objects are stored in this version. Unknown for built-in kinds.
    pub fn is_storage(&self) -> bool {
        self.storage
    }

    /// Whether it is one of Kubernetes' own.
    pub fn is_built_in(&self) -> bool {
        matches!(self.short_names, KindNames::Fixed(_))
    }

    fn order(&self) -> (&str, &str, &str) {
        (&self.kind, &self.group, &self.version)
    }
}

/// All kinds that are known. Cloning copies a pointer.
#[derive(Clone, Debug, Default)]
pub struct Kinds {
    /// Those of CRDs, sorted as the built-in ones.
    custom: Arc<Vec<Kind>>,
}

impl Kinds {
    /// The kinds that Kubernetes itself has.
    pub fn builtin() -> Self {
        Kinds::default()
    }

    /// Adds the kind of a CustomResourceDefinition, in all its versions. A custom kind of the same group with its
    /// kind or plural is replaced.
    ///
    /// # Errors
    /// When the definition lacks what is needed, or its kind or plural is built in; the error names the field.
    pub fn with_crd(mut self, definition: &Value) -> Result<Self, CrdError> {
        let kinds = crd::read(definition)?;
        let custom = Arc::make_mut(&mut self.custom);
        if let Some(new) = kinds.first() {
            custom.retain(|old| {
                old.group != new.group || old.kind != new.kind && old.plural != new.plural
            });
        }
        custom.extend(kinds);
        custom.sort_by(|a, b| a.order().cmp(&b.order()));
        Ok(self)
    }

    /// The built-in kinds, and all others that an API server says it serves (`APIGroupDiscoveryList`).
    pub fn discovered(discovery: &Value) -> Self {
        let mut custom = discovered::read(discovery);
        custom.sort_by(|a, b| a.order().cmp(&b.order()));
        custom.dedup_by(|a, b| a.order() == b.order());
        Kinds { custom: Arc::new(custom) }
    }

    /// Takes away the kind of a CustomResourceDefinition.
    #[must_use]
    pub fn without(mut self, group: &str, kind: &str) -> Self {
        Arc::make_mut(&mut self.custom).retain(|old| old.group != group || old.kind != kind);
        self
    }

    /// All kinds of a group in all versions, also those that are not served.
    pub fn in_group<'k>(&'k self, group: &'k str) -> impl Iterator<Item = &'k Kind> {
        self.custom.iter().chain(builtin::kinds()).filter(move |kind| kind.group == group)
    }

    /// A version of the custom kind with this plural name in a group.
    pub fn custom(&self, group: &str, plural: &str) -> Option<&Kind> {
        self.custom.iter().find(|kind| kind.group == group && kind.plural == plural)
    }

    /// All kinds in all served versions: custom ones first, both sorted by kind, group and version.
    pub fn iter(&self) -> impl Iterator<Item = &Kind> {
        self.custom.iter().chain(builtin::kinds()).filter(|kind| kind.served)
    }

    /// The kind in exactly this group and version, if it is served.
    pub fn get(&self, gvk: &Gvk) -> Option<&Kind> {
        self.versions(&gvk.group, &gvk.kind).find(|kind| kind.version == gvk.version && kind.served)
    }

    /// All versions of a kind, also those that are not served any more.
    pub fn versions<'k, 'n>(
        &'k self,
        group: &'n str,
        kind: &'n str,
    ) -> impl Iterator<Item = &'k Kind> + use<'k, 'n> {
        self.named(kind).filter(move |known| known.group == group)
    }

    /// The version of a kind that Kubernetes prefers: the most mature one that is served.
    pub fn preferred(&self, group: &str, kind: &str) -> Option<&Kind> {
        preferred(self.versions(group, kind))
    }

    /// Kinds of this name in any group, each in its preferred version; those of Kubernetes come first.
    pub fn by_kind(&self, kind: &str) -> Vec<&Kind> {
        let mut found: Vec<&Kind> = Vec::new();
        for known in self.named(kind) {
            if !found.iter().any(|other| other.group == known.group) {
                found.extend(self.preferred(&known.group, kind));
            }
        }
        found.sort_by_key(|kind| !kind.is_built_in());
        found
    }

    /// The kind behind the plural name of a resource in a group and version.
    pub fn by_resource(&self, group: &str, version: &str, plural: &str) -> Option<&Kind> {
        self.iter()
            .find(|kind| kind.plural == plural && kind.group == group && kind.version == version)
    }

    /// The kind that a user means: by plural, singular or short name or by kind, in any case, maybe
    /// with `.group` or `.version.group` behind it. Kinds of Kubernetes win over custom ones, and
    /// plural names over short ones.
    pub fn find(&self, name: &str) -> Option<&Kind> {
        let lower = name.to_lowercase();
        let (resource, rest) = lower.split_once('.').unwrap_or((&lower, ""));
        let in_group = |kind: &Kind| match rest.split_once('.') {
            _ if rest.is_empty() || rest == kind.group => true,
            Some((version, group)) => version == kind.version && group == kind.group,
            // A version of the core group.
            None => kind.group.is_empty() && rest == kind.version,
        };
        let named: [fn(&Kind, &str) -> bool; 2] = [
            |kind, name| {
                kind.plural == name || kind.singular() == name || kind.kind.to_lowercase() == name
            },
            |kind, name| kind.short_names().any(|short| short == name),
        ];
        let known: Vec<&Kind> = builtin::kinds().iter().chain(self.custom.iter()).collect();
        let served = || known.iter().copied().filter(|kind| kind.served && in_group(kind));
        named.into_iter().find_map(|is_named| {
            let first = served().find(|kind| is_named(kind, resource))?;
            preferred(served().filter(|kind| kind.kind == first.kind && kind.group == first.group))
        })
    }

    /// Whether objects of a kind belong to a namespace; `None` for unknown kinds. A version that is
    /// not known goes by the other versions of its kind.
    pub fn is_namespaced(&self, gvk: &Gvk) -> Option<bool> {
        let known = self.get(gvk).or_else(|| self.versions(&gvk.group, &gvk.kind).next());
        known.map(Kind::is_namespaced)
    }

    /// Kinds of this name in any group and version, custom ones first.
    fn named<'k>(&'k self, kind: &str) -> impl Iterator<Item = &'k Kind> + use<'k> {
        fn range<'k>(kinds: &'k [Kind], kind: &str) -> &'k [Kind] {
            let start = kinds.partition_point(|known| known.kind.as_str() < kind);
            let length = kinds[start..].partition_point(|known| known.kind == kind);
            &kinds[start..start + length]
        }
        range(&self.custom, kind).iter().chain(range(builtin::kinds(), kind))
    }
}

fn preferred<'k>(versions: impl Iterator<Item = &'k Kind>) -> Option<&'k Kind> {
    versions.filter(|kind| kind.served).max_by(|a, b| compare_versions(&a.version, &b.version))
}

/// The plural that a kind has unless its definition says otherwise.
pub fn usual_plural(kind: &str) -> String {
    let word = kind.to_lowercase();
    match word.strip_suffix('y') {
        _ if word.ends_with('s') => format!("{word}es"),
        Some(front) => format!("{front}ies"),
        None => format!("{word}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted_and_has_no_duplicates() {
        assert!(builtin::kinds().windows(2).all(|pair| pair[0].order() < pair[1].order()));
    }

    #[test]
    fn kinds_are_found_by_any_of_their_names() {
        let kinds = Kinds::builtin();
        for (name, gvk) in [
            ("deploy", "apps/v1/Deployment"),
            ("deployments", "apps/v1/Deployment"),
            ("Deployment", "apps/v1/Deployment"),
            ("deployment.apps", "apps/v1/Deployment"),
            ("deployments.v1.apps", "apps/v1/Deployment"),
            ("pods.v1", "v1/Pod"),
            ("po", "v1/Pod"),
            ("hpa", "autoscaling/v2/HorizontalPodAutoscaler"),
            ("hpa.v1.autoscaling", "autoscaling/v1/HorizontalPodAutoscaler"),
            ("events", "v1/Event"),
            ("events.events.k8s.io", "events.k8s.io/v1/Event"),
            ("crd", "apiextensions.k8s.io/v1/CustomResourceDefinition"),
            ("endpoints", "v1/Endpoints"),
            ("networkpolicies", "networking.k8s.io/v1/NetworkPolicy"),
        ] {
            let found = kinds.find(name).map(|kind| kind.gvk().to_string());
            assert_eq!(found.as_deref(), Some(gvk), "{name}");
        }
        for name in ["", "foo", "pods.v2", "deployments.batch", "pods.log"] {
            assert!(kinds.find(name).is_none(), "{name}");
        }
    }

    #[test]
    fn built_in_kinds_have_scope_and_subresources() {
        let kinds = Kinds::builtin();
        let pod = kinds.get(&Gvk::new("v1", "Pod")).unwrap();
        assert!(pod.is_namespaced());
        assert_eq!((pod.plural(), pod.singular().as_str()), ("pods", "pod"));
        assert_eq!(pod.list_kind(), "PodList");
        assert_eq!(pod.subresource("eviction").map(|s| s.kind), Some("Eviction"));
        assert_eq!(pod.subresource("status").map(|s| s.verbs.len()), Some(3));
        assert_eq!(kinds.is_namespaced(&Gvk::new("v1", "Namespace")), Some(false));
        assert_eq!(
            kinds.is_namespaced(&Gvk::new("networking.k8s.io/v1beta1", "Ingress")),
            Some(true)
        );
        assert_eq!(kinds.is_namespaced(&Gvk::new("extensions/v1beta1", "Ingress")), None);
        let secret = kinds.by_resource("", "v1", "secrets").unwrap();
        assert_eq!(secret.kind(), "Secret");
        let events: Vec<_> = kinds.by_kind("Event").iter().map(|kind| kind.group()).collect();
        assert_eq!(events, ["", "events.k8s.io"]);
        assert_eq!(
            kinds.preferred("autoscaling", "HorizontalPodAutoscaler").unwrap().version(),
            "v2"
        );
        assert_eq!(kinds.iter().count(), 68);
        assert_eq!(kinds.iter().filter(|kind| kind.categories().any(|c| c == "all")).count(), 11);
    }
}
