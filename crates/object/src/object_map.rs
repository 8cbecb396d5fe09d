//! Objects of one kind by namespace and name: what every store of objects has inside.

use std::collections::BTreeMap;
use std::ops::Bound;

use kiln_value::{Str, Value};

use crate::metadata;

/// Where an object of a known kind is: namespace (empty for objects of the cluster) and name.
pub type NamespacedName = (Str, Str);

/// The namespace and name of an object, empty where it has none.
pub fn namespaced_name(object: &Value) -> NamespacedName {
    let text = |text: Option<&str>| Str::new(text.unwrap_or_default());
    (text(metadata::namespace(object)), text(metadata::name(object)))
}

/// Objects of one kind, in the order in which an API server lists them: by namespace, then by name.
///
/// A store that needs more of each object than its value holds that as `V`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectMap<V = Value>(BTreeMap<NamespacedName, V>);

// Without the bound on `V` that deriving would ask for.
impl<V> Default for ObjectMap<V> {
    fn default() -> Self {
        ObjectMap(BTreeMap::new())
    }
}

/// Some of a list, and where the rest begins.
#[derive(Clone, Debug)]
pub struct ObjectPage<'m, V = Value> {
    pub objects: Vec<&'m V>,
    /// The last object of the page, if there are more behind it.
    pub resume: Option<&'m NamespacedName>,
}

impl<V> FromIterator<(NamespacedName, V)> for ObjectMap<V> {
    fn from_iter<I: IntoIterator<Item = (NamespacedName, V)>>(objects: I) -> Self {
        ObjectMap(objects.into_iter().collect())
    }
}

impl<V> ObjectPage<'_, V> {
    /// Where the next page begins, as a text that [`read_resume`] reads. Neither part can have a slash in it.
    pub fn resume_text(&self) -> Option<String> {
        self.resume.map(|(namespace, name)| format!("{namespace}/{name}"))
    }
}

/// What [`ObjectPage::resume_text`] wrote.
pub fn read_resume(text: &str) -> NamespacedName {
    let (namespace, name) = text.split_once('/').unwrap_or(("", text));
    (Str::new(namespace), Str::new(name))
}

impl<V> ObjectMap<V> {
    /// How many objects there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no object.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn get(&self, namespace: &str, name: &str) -> Option<&V> {
        self.0.get(&(Str::new(namespace), Str::new(name)))
    }

    pub fn get_at(&self, key: &NamespacedName) -> Option<&V> {
        self.0.get(key)
    }

    pub fn get_mut(&mut self, key: &NamespacedName) -> Option<&mut V> {
        self.0.get_mut(key)
    }

    /// Stores an object, and returns the one that was there.
    pub fn insert(&mut self, key: NamespacedName, object: V) -> Option<V> {
        self.0.insert(key, object)
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &NamespacedName) -> Option<V> {
        self.0.remove(key)
    }

    pub fn keys(&self) -> impl Iterator<Item = &NamespacedName> {
        self.0.keys()
    }

    pub fn values(&self) -> impl Iterator<Item = &V> + use<'_, V> {
        self.0.values()
    }

    pub fn into_values(self) -> impl Iterator<Item = V> {
        self.0.into_values()
    }

    /// The objects of a namespace, or of all, behind one.
    pub fn range<'m>(
        &'m self,
        namespace: Option<&'m str>,
        after: Option<&NamespacedName>,
    ) -> impl Iterator<Item = (&'m NamespacedName, &'m V)> {
        // A list goes on where it was left, which may be before the namespace when another list was left there.
        let first = namespace.map(|namespace| (Str::new(namespace), Str::default()));
        let start = match (after, first) {
            (Some(after), Some(first)) if *after < first => Bound::Included(first),
            (Some(after), _) => Bound::Excluded(after.clone()),
            (None, Some(first)) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        self.0
            .range((start, Bound::Unbounded))
            .take_while(move |((at, _), _)| namespace.is_none_or(|namespace| at == namespace))
    }

    /// At most `limit` of the objects in a range that are wanted.
    pub fn page<'m>(
        &'m self,
        namespace: Option<&'m str>,
        after: Option<&NamespacedName>,
        limit: usize,
        is_wanted: impl Fn(&V) -> bool,
    ) -> ObjectPage<'m, V> {
        let mut page = ObjectPage { objects: Vec::new(), resume: None };
        let mut last = None;
        for (key, object) in self.range(namespace, after) {
            if !is_wanted(object) {
                continue;
            }
            if page.objects.len() == limit {
                page.resume = last;
                break;
            }
            last = Some(key);
            page.objects.push(object);
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map() -> ObjectMap<u8> {
        let keys = [("", "node"), ("a", "x"), ("a", "y"), ("ab", "x"), ("b", "x")];
        keys.iter().zip(1..).map(|((of, name), n)| ((Str::new(of), Str::new(name)), n)).collect()
    }

    #[test]
    fn ranges_are_of_one_namespace_and_behind_a_place() {
        let map = map();
        let key = |namespace: &str, name: &str| (Str::new(namespace), Str::new(name));
        for (namespace, after, expected) in [
            (None, None, &[1, 2, 3, 4, 5][..]),
            (Some("a"), None, &[2, 3]),
            (Some(""), None, &[1]),
            (Some("c"), None, &[]),
            (None, Some(key("a", "x")), &[3, 4, 5]),
            (Some("a"), Some(key("a", "x")), &[3]),
            (Some("b"), Some(key("a", "x")), &[5]),
            (Some("a"), Some(key("b", "x")), &[]),
        ] {
            let found: Vec<u8> = map.range(namespace, after.as_ref()).map(|(_, n)| *n).collect();
            assert_eq!(found, expected, "{namespace:?} {after:?}");
        }
    }

    #[test]
    fn pages_go_on_where_the_one_before_ended() {
        let map = map();
        let mut resume = None;
        let mut pages = Vec::new();
        loop {
            let after = resume.as_deref().map(read_resume);
            let page = map.page(None, after.as_ref(), 2, |n| *n != 3);
            pages.push(page.objects.iter().map(|n| **n).collect::<Vec<u8>>());
            resume = page.resume_text();
            if resume.is_none() {
                break;
            }
        }
        assert_eq!(pages, [vec![1, 2], vec![4, 5]]);
        assert!(map.page(None, None, 4, |n| *n != 3).resume.is_none(), "nothing is left");
        assert_eq!(map.page(None, None, 4, |_| true).resume_text().as_deref(), Some("ab/x"));
    }
}
