//! Given objects, found as a cluster would find them.

use std::collections::{BTreeMap, HashMap};

use kiln_engine::{ListPage, ListQuery, ReadError, View};
use kiln_object::object_map::read_resume;
use kiln_object::{Gvk, KindKey, Kinds, NamespacedName, ObjectId, ObjectMap, metadata};
use kiln_rules::usual_plural;
use kiln_value::Value;

/// Objects by kind, namespace and name. The version does not matter, as it does not to a server.
#[derive(Clone, Debug, Default)]
pub struct Objects {
    /// Kinds of which nothing is given are unknown, rather than kinds without objects.
    only_given_kinds: bool,
    by_kind: BTreeMap<KindKey, ObjectMap>,
    /// In which order they came.
    came: HashMap<(KindKey, NamespacedName), usize>,
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
        self.by_kind.entry(KindKey::of(&id.gvk)).or_default().insert(id.key(), object)
    }

    /// Takes an object out.
    pub fn remove(&mut self, id: &ObjectId) -> Option<Value> {
        self.by_kind.get_mut(&KindKey::of(&id.gvk))?.remove(&id.key())
    }

    /// The object of this identity.
    pub fn get(&self, id: &ObjectId) -> Option<&Value> {
        self.by_kind.get(&KindKey::of(&id.gvk))?.get(&id.namespace, &id.name)
    }
}

fn whole_key(id: &ObjectId) -> (KindKey, NamespacedName) {
    (KindKey::of(&id.gvk), id.key())
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
        let mut known = self.by_kind.keys();
        let found = known.find(|key| key.group == group && usual_plural(&key.kind) == plural);
        found.map(|key| Gvk {
            group: key.group.clone(),
            version: version.into(),
            kind: key.kind.clone(),
        })
    }

    fn knows(&self, kind: &Gvk) -> bool {
        !self.only_given_kinds || self.by_kind.contains_key(&KindKey::of(kind))
    }

    fn list(&self, query: &ListQuery<'_>) -> Result<ListPage, ReadError> {
        let Some(objects) = self.by_kind.get(&KindKey::of(query.kind)) else {
            return Ok(ListPage::default());
        };
        let after = query.resume.map(read_resume);
        let page = objects.page(query.namespace, after.as_ref(), query.limit, |object| {
            query.selector.matches(metadata::labels(object))
        });
        Ok(ListPage {
            resume: page.resume_text(),
            objects: page.objects.into_iter().cloned().collect(),
        })
    }
}
