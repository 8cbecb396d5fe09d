//! Name references: when an object was renamed, the fields that name it follow.
//!
//! Runs once, at the end of a build, when all names are final. The table says which fields of which
//! kinds hold names of which kinds; the history of every object says what it was called before.

use kiln_value::{Map, Str, Value};
use rustc_hash::FxHashMap;

use crate::build::budget::Budget;
use crate::build::session::Session;
use crate::error::{Error, Result};
use crate::fields::config::NameBackReferences;
use crate::fields::field_spec::FieldSpec;
use crate::model::id::{DEFAULT_NAMESPACE, Gvk, NOT_NAMESPACED};
use crate::model::output::wrong_node_kind;
use crate::model::resource::{Resource, scalar_text};
use crate::model::resources::{Resources, Slot};

/// Brings all name references up to date.
///
/// # Errors
/// When several objects could be meant and they have different names now.
pub(crate) fn update_references(
    resources: &mut Resources,
    table: &[NameBackReferences],
    session: &Session<'_>,
) -> Result<()> {
    let fields = ReferrerFields::new(table);
    let previous_names = PreviousNames::new(resources);
    if previous_names.by_name.is_empty() {
        return check_subjects(resources);
    }
    // Written at the end, so that every reference is resolved in the same state, whatever the order of objects.
    let mut writes: Vec<(Slot, Value)> = Vec::new();
    for (slot, resource) in resources.iter() {
        let original = resource.original_id();
        let mut applicable = fields.of(&original.gvk).peekable();
        if applicable.peek().is_none() {
            continue;
        }
        let referrer = Referrer::new(resource, resources, &previous_names, &session.budget)?;
        let mut object = resource.object().clone();
        let before = object.clone();
        for (target, spec) in applicable {
            referrer.update(&mut object, target, spec)?;
        }
        if object != before {
            writes.push((slot, object));
        }
    }
    for (slot, object) in writes {
        resources.update(slot, &session.scopes, |resource| *resource.object_mut() = object);
    }
    Ok(())
}

/// kustomize looks at the subjects of every role binding, renamed or not.
fn check_subjects(resources: &Resources) -> Result<()> {
    resources.iter().try_for_each(|(_, resource)| subject_namespaces(resource).map(drop))
}

/// The table, by the kind of the referrer.
struct ReferrerFields<'t> {
    by_kind: FxHashMap<&'t str, Vec<(usize, Gvk, &'t FieldSpec)>>,
    any_kind: Vec<(usize, Gvk, &'t FieldSpec)>,
}

impl<'t> ReferrerFields<'t> {
    fn new(table: &'t [NameBackReferences]) -> Self {
        let mut fields = ReferrerFields { by_kind: FxHashMap::default(), any_kind: Vec::new() };
        let specs = table
            .iter()
            .flat_map(|referral| referral.referrers.iter().map(move |spec| (referral.gvk(), spec)));
        for (order, (target, spec)) in specs.enumerate() {
            let entry = (order, target, spec);
            match spec.kind.as_str() {
                "" => fields.any_kind.push(entry),
                kind => fields.by_kind.entry(kind).or_default().push(entry),
            }
        }
        fields
    }

    /// What an object of this kind may name, in the order of the table.
    fn of(&self, gvk: &Gvk) -> impl Iterator<Item = (&Gvk, &'t FieldSpec)> {
        let own = self.by_kind.get(gvk.kind.as_str()).map_or(&[][..], Vec::as_slice);
        let mut applicable: Vec<&(usize, Gvk, &FieldSpec)> =
            own.iter().chain(&self.any_kind).filter(|(.., spec)| spec.fits(gvk)).collect();
        applicable.sort_by_key(|(order, ..)| *order);
        applicable.into_iter().map(|(_, target, spec)| (target, *spec))
    }
}

/// Objects by the names they had, and within a name by their namespace, so that a thousand
/// instances of one base are distinguished without looking at all of them.
struct PreviousNames {
    by_name: FxHashMap<Str, FxHashMap<Str, Bucket>>,
    /// Objects by the namespace they began in.
    by_first_namespace: FxHashMap<Str, Vec<Slot>>,
}

/// Objects of one previous name in one namespace.
#[derive(Default)]
struct Bucket {
    slots: Vec<Slot>,
    by_prefix: FxHashMap<Option<Str>, Vec<Slot>>,
    by_suffix: FxHashMap<Option<Str>, Vec<Slot>>,
}

impl PreviousNames {
    fn new(resources: &Resources) -> Self {
        let mut previous_names = PreviousNames {
            by_name: FxHashMap::default(),
            by_first_namespace: FxHashMap::default(),
        };
        for (slot, resource) in resources.iter() {
            let first = Str::new(resource.original_id().effective_namespace());
            previous_names.by_first_namespace.entry(first).or_default().push(slot);
            for (at, previous) in resource.previous.iter().enumerate() {
                // An object that had a name twice stands in its bucket once, or it would be its own rival.
                if resource.previous[..at].iter().any(|p| p.name == previous.name) {
                    continue;
                }
                let namespaces = previous_names.by_name.entry(previous.name.clone()).or_default();
                let namespace = Str::new(resource.id().effective_namespace());
                let bucket = namespaces.entry(namespace).or_default();
                bucket.slots.push(slot);
                bucket.by_prefix.entry(resource.prefixes.last().cloned()).or_default().push(slot);
                bucket.by_suffix.entry(resource.suffixes.last().cloned()).or_default().push(slot);
            }
        }
        previous_names
    }
}

impl Bucket {
    /// The objects whose history can end like this one's: all that have the same last prefix (or
    /// suffix), and all that have none.
    fn alike(&self, own: &Resource) -> impl Iterator<Item = Slot> {
        let groups = match (own.prefixes.last(), own.suffixes.last()) {
            (Some(prefix), _) => {
                [self.by_prefix.get(&Some(prefix.clone())), self.by_prefix.get(&None)]
            }
            (None, Some(suffix)) => {
                [self.by_suffix.get(&Some(suffix.clone())), self.by_suffix.get(&None)]
            }
            (None, None) => [Some(&self.slots), None],
        };
        groups.into_iter().flatten().flatten().copied()
    }
}

/// An object whose fields may name others.
struct Referrer<'r> {
    resource: &'r Resource,
    resources: &'r Resources,
    previous_names: &'r PreviousNames,
    /// Namespaces of the service accounts that a role binding names.
    subject_namespaces: Vec<Str>,
    budget: &'r Budget,
}

/// What must agree for several candidates to be as good as one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Alike {
    Names,
    NamesAndNamespaces,
}

impl<'r> Referrer<'r> {
    fn new(
        resource: &'r Resource,
        resources: &'r Resources,
        previous_names: &'r PreviousNames,
        budget: &'r Budget,
    ) -> Result<Self> {
        let subject_namespaces = subject_namespaces(resource)?;
        Ok(Referrer { resource, resources, previous_names, subject_namespaces, budget })
    }

    fn update(&self, object: &mut Value, target: &Gvk, spec: &FieldSpec) -> Result<()> {
        // The referrer may have changed its kind since; the path still holds.
        let spec = FieldSpec { path: spec.path.clone(), ..FieldSpec::default() };
        let role = spec.path.ends_with("roleRef/name").then(|| role_kind(object)).flatten();
        let search = Search { referrer: self, target, role: role.as_ref() };
        let set = &mut |field: &mut Value| search.set(field);
        spec.apply(object, self.resource.id(), None, self.budget, set).map_err(|error| {
            error
                .context(format_args!(
                    "updating name reference in '{}' field of '{}'",
                    spec.path,
                    self.resource.id()
                ))
                .at(self.resource.document.as_ref().map(|document| document.place()))
        })
    }

    /// The namespaces in which this object can name others.
    fn visible<'b>(&self, namespaces: &'b FxHashMap<Str, Bucket>) -> Vec<&'b Bucket> {
        let own = self.resource.id();
        if own.cluster_scoped {
            return namespaces.values().collect();
        }
        let mut seen = vec![own.effective_namespace(), NOT_NAMESPACED];
        for subject in &self.subject_namespaces {
            let subject = if subject.is_empty() { DEFAULT_NAMESPACE } else { subject };
            if !seen.contains(&subject) {
                seen.push(subject);
            }
        }
        seen.into_iter().filter_map(|namespace| namespaces.get(namespace)).collect()
    }

    /// Whether this object can name another at all.
    fn can_see(&self, candidate: &Resource) -> bool {
        let own = self.resource.id();
        own.cluster_scoped
            || candidate.id().cluster_scoped
            || candidate.id().same_namespace(own)
            || self.subject_namespaces.contains(candidate.namespace())
    }
}

/// The namespaces of the service accounts among the subjects of a role binding.
fn subject_namespaces(resource: &Resource) -> Result<Vec<Str>> {
    let mut namespaces = Vec::new();
    if resource.kind() != "RoleBinding" || resource.id().cluster_scoped {
        return Ok(namespaces);
    }
    let subjects = resource.object().get("subjects").and_then(Value::as_list);
    for subject in subjects.into_iter().flat_map(|list| list.iter()) {
        let (Some(namespace), Some(kind)) = (subject.get("namespace"), subject.get("kind")) else {
            continue;
        };
        if kind.as_str() == Some("ServiceAccount") {
            match namespace {
                Value::String(namespace) => namespaces.push(namespace.clone()),
                _ => {
                    return Err(Error::new(format!(
                        "Invalid Input: namespace is blank for resource \"{}\"\n",
                        resource.id()
                    ))
                    .at(resource.document.as_ref().map(|document| document.place()))
                    .hint("write the namespace of the subject, or leave the field out"));
                }
            }
        }
    }
    Ok(namespaces)
}

/// The group and kind that a role reference names.
fn role_kind(object: &Value) -> Option<Gvk> {
    let role = object.get("roleRef")?;
    let text = |key: &str| role.get(key).filter(|v| !v.is_null()).map(scalar_text);
    Some(Gvk { group: text("apiGroup")?, version: Str::default(), kind: text("kind")? })
}

struct Search<'s> {
    referrer: &'s Referrer<'s>,
    target: &'s Gvk,
    role: Option<&'s Gvk>,
}

impl<'s> Search<'s> {
    fn set(&self, field: &mut Value) -> Result<()> {
        match field {
            Value::Null => Ok(()),
            Value::Map(map) => self.set_map(map),
            Value::List(list) => {
                for element in list.make_mut() {
                    match element {
                        Value::Null => {}
                        Value::Map(map) => self.set_map(map)?,
                        Value::List(_) => {
                            return Err(Error::new(format!(
                                "{} is expected to be either a string or a map of string",
                                kiln_value::json::to_string(element)
                            )));
                        }
                        scalar => self.set_scalar(scalar)?,
                    }
                }
                Ok(())
            }
            scalar => self.set_scalar(scalar),
        }
    }

    fn set_scalar(&self, field: &mut Value) -> Result<()> {
        let old = scalar_text(field);
        if let Some(found) = self.select(&old, Alike::Names, |_| true)?
            && *found.name() != old
        {
            *field = found.name().clone().into();
        }
        Ok(())
    }

    fn set_map(&self, map: &mut Map) -> Result<()> {
        let Some(name) = map.get("name") else {
            return Err(Error::new("path config error; no 'name' field in node"));
        };
        if matches!(name, Value::List(_) | Value::Map(_)) {
            return Err(wrong_node_kind("ScalarNode", name));
        }
        let old = scalar_text(name);
        let namespace = map.get("namespace").map(scalar_text);
        let found = match &namespace {
            None => self.select(&old, Alike::NamesAndNamespaces, |_| true)?,
            Some(namespace) => {
                // Objects that began in this namespace; if there are none, those that are in it.
                let began =
                    |r: &Resource| r.original_id().effective_namespace() == namespace.as_str();
                let is = |r: &Resource| r.id().effective_namespace() == namespace.as_str();
                // Whether *any* object began there is asked before the name is: kustomize narrows the candidates by
                // namespace first, so a namespace that existed hides objects that only moved into it.
                let any_began = self
                    .referrer
                    .resources
                    .iter()
                    .any(|(_, candidate)| began(candidate) && self.referrer.can_see(candidate));
                if any_began {
                    self.select(&old, Alike::NamesAndNamespaces, began)?
                } else {
                    self.select(&old, Alike::NamesAndNamespaces, is)?
                }
            }
        };
        let Some(found) = found else { return Ok(()) };
        if *found.name() == old && found.namespace().is_empty() {
            return Ok(());
        }
        map.insert("name", found.name().clone());
        if !found.namespace().is_empty() {
            map.insert("namespace", found.namespace().clone());
        }
        Ok(())
    }

    /// The object that a name means, if exactly one can be meant.
    fn select(
        &self,
        name: &Str,
        alike: Alike,
        limit: impl Fn(&Resource) -> bool,
    ) -> Result<Option<&'s Resource>> {
        let Some(namespaces) = self.referrer.previous_names.by_name.get(name) else {
            return Ok(None);
        };
        let own = self.referrer.resource;
        let buckets = self.referrer.visible(namespaces);
        let passes = |slot: &Slot| {
            let candidate = self.referrer.resources.get(*slot);
            let was = |gvk: &Gvk| candidate.previous_ids().any(|id| id.gvk.is_selected_by(gvk));
            let near = own.id().cluster_scoped
                || candidate.id().cluster_scoped
                || candidate.kind() == "ServiceAccount"
                || own.id().same_namespace(candidate.id());
            self.referrer.can_see(candidate)
                && limit(candidate)
                && was(self.target)
                && self.role.is_none_or(was)
                && near
        };
        // kustomize narrows the candidates in this order: kind and namespace; prefixes and suffixes, where an object without any
        // fits everything; the same, where it does not. Several that are left are an error only if their names differ now.
        // Two are enough to know that histories must decide.
        let mut candidates =
            buckets.iter().flat_map(|bucket| bucket.slots.iter().copied()).filter(passes);
        let Some(first) = candidates.next() else { return Ok(None) };
        if candidates.next().is_none() {
            return Ok(Some(self.referrer.resources.get(first)));
        }
        let mut slots: Vec<Slot> =
            buckets.iter().flat_map(|bucket| bucket.alike(own)).filter(passes).collect();
        slots.sort_unstable();
        let mut left: Vec<&Resource> = slots
            .into_iter()
            .map(|slot| self.referrer.resources.get(slot))
            .filter(|candidate| {
                let fits = |a: &[Str], b: &[Str]| a.is_empty() || b.is_empty() || ends_alike(a, b);
                fits(&candidate.prefixes, &own.prefixes) && fits(&candidate.suffixes, &own.suffixes)
            })
            .collect();
        if left.len() > 1 {
            left.retain(|candidate| {
                ends_alike(&candidate.prefixes, &own.prefixes)
                    && ends_alike(&candidate.suffixes, &own.suffixes)
            });
        }
        let Some((first, others)) = left.split_first() else { return Ok(None) };
        let same = others.iter().all(|other| {
            other.name() == first.name()
                && (alike == Alike::Names || other.namespace() == first.namespace())
        });
        if same {
            return Ok(Some(first));
        }
        let ids: Vec<String> = left.iter().map(|candidate| candidate.id().to_string()).collect();
        Err(Error::new(format!("found multiple possible referrals: {}", ids.join(", ")))
            .hint("give the objects different names, or prefixes in their bases"))
    }
}

/// Whether the shorter history is the end of the longer one. Nothing ends like something only if
/// that is nothing too.
fn ends_alike(a: &[Str], b: &[Str]) -> bool {
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    if short.is_empty() { long.is_empty() } else { long.ends_with(short) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histories_end_alike() {
        let texts = |texts: &[&str]| texts.iter().map(Str::new).collect::<Vec<_>>();
        for (a, b, alike) in [
            (&["a", "b", "c"][..], &["b", "c"][..], true),
            (&["a", "b", "c"], &["a", "b"], false),
            (&[], &["a"], false),
            (&[], &[], true),
        ] {
            assert_eq!(ends_alike(&texts(a), &texts(b)), alike);
            assert_eq!(ends_alike(&texts(b), &texts(a)), alike);
        }
    }
}
