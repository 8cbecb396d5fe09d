//! Given objects, found as a cluster would find them.

use std::collections::{BTreeMap, HashMap};

use kiln_engine::{ListPage, ListQuery, ReadError, View};
use kiln_object::{Gvk, Kinds, ObjectId, metadata};
use kiln_rules::usual_plural;
use kiln_value::{Str, Value};

/// Objects by kind, namespace and name. The version does not matter, as it does not to a server.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Kinds of which nothing is given are unknown, rather than kinds without objects.
    only_given_kinds: bool,
    by_kind: BTreeMap<(Str, Str), BTreeMap<(Str, Str), Value>>,
    /// In which order they came.
    came: HashMap<[Str; 4], usize>,
}

impl Objects {
    /// No objects yet; kinds without any are empty, or unknown.
    pub(crate) fn known(only_given_kinds: bool) -> Self {
        Objects { only_given_kinds, ..Objects::default() }
    }

    /// Puts an object in, in the place of one with the same identity, which is returned.
    pub fn insert(&mut self, id: &ObjectId, object: Value) -> Option<Value> {
        let next = self.came.len();
        self.came.entry(whole_key(id)).or_insert(next);
        self.by_kind.entry(kind_key(&id.gvk)).or_default().insert(name_key(id), object)
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: &ObjectId) -> Option<Value> {
        self.by_kind.get_mut(&kind_key(&id.gvk))?.remove(&name_key(id))
    }

    /// The object of this identity.
    pub fn get(&self, id: &ObjectId) -> Option<&Value> {
        self.by_kind.get(&kind_key(&id.gvk))?.get(&name_key(id))
    }
}

fn kind_key(gvk: &Gvk) -> (Str, Str) {
    (gvk.group.clone(), gvk.kind.clone())
}

fn name_key(id: &ObjectId) -> (Str, Str) {
    (id.namespace.clone(), id.name.clone())
}

fn whole_key(id: &ObjectId) -> [Str; 4] {
    [id.gvk.group.clone(), id.gvk.kind.clone(), id.namespace.clone(), id.name.clone()]
}

/// Puts a namespaced object that names no namespace into `default`, as clients do. An unknown kind counts as
/// namespaced, as it does to Kyverno.
pub fn with_namespace(mut object: Value, kinds: &Kinds) -> Value {
    let namespaced = Gvk::of(&object)
        .and_then(|gvk| kinds.get(&gvk).map(kiln_object::Kind::is_namespaced))
        .unwrap_or(true);
    if namespaced && metadata::namespace(&object).is_none_or(str::is_empty) {
        // Hosts refuse what is not an object, so there is always metadata to put it in.
        let _ = object.set(["metadata", "namespace"], "default");
    }
    object
}

impl View for Objects {
    fn get(
        &self,
        kind: &Gvk,
        namespace: Option<&str>,
        name: &str,
    ) -> Result<Option<Value>, ReadError> {
        let id = ObjectId::new(kind.clone(), namespace.unwrap_or_default(), name);
        Ok(Objects::get(self, &id).cloned())
    }

    fn sequence(&self, object: &ObjectId) -> Option<usize> {
        self.came.get(&whole_key(object)).copied()
    }

    fn kind_of(&self, group: &str, version: &str, plural: &str) -> Option<Gvk> {
        // Objects of a kind without a definition: all that is known is what its plural would be.
        let mut found =
            self.by_kind.keys().filter(|(of, kind)| of == group && usual_plural(kind) == plural);
        found.next().map(|(group, kind)| Gvk {
            group: group.clone(),
            version: version.into(),
            kind: kind.clone(),
        })
    }

    fn knows(&self, kind: &Gvk) -> bool {
        !self.only_given_kinds || self.by_kind.contains_key(&kind_key(kind))
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let Some(objects) = self.by_kind.get(&kind_key(query.kind)) else {
            return Ok(ListPage::default());
        };
        let after = query.resume.and_then(|resume| resume.split_once('/'));
        let mut page = ListPage::default();
        for ((namespace, name), object) in objects {
            let wanted = query.namespace.is_none_or(|wanted| namespace == wanted)
                && after.is_none_or(|after| (namespace.as_str(), name.as_str()) > after)
                && query.selector.matches(metadata::labels(object));
            if !wanted {
                continue;
            }
            if page.objects.len() == query.limit {
                page.resume = page.objects.last().map(|last| {
                    let part = |key| last.str_at(["metadata", key]).unwrap_or_default();
                    format!("{}/{}", part("namespace"), part("name"))
                });
                break;
            }
            page.objects.push(object.clone());
        }
        Ok(page)
    }
}
